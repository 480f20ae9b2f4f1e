"""Classes of errors, and every message with its remedy, as the sources say them."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from uma import errors

from .markdown import code, escaped, heading, link, table
from .members import reference, render, summary
from .names import Names, is_exception
from .repository import ROOT

__all__ = ["Message", "messages", "pages"]

_OURS = ("InternalError",)
"""What a user meets only where UMA is at fault, and the remedy is a report."""


@dataclass(frozen=True)
class Message:
    """What some line of the sources may say.

    Args:
        error: the class.
        what: the fault; ``…`` stands for what is filled in.
        hint: what to do; empty where that is not said there.
        place: the file that says it.
    """

    error: str
    what: str
    hint: str
    place: str


def pages(names: Names) -> dict[str, str]:
    """``errors`` and ``messages``."""
    return {"errors": _errors(names), "messages": _messages(names)}


def _errors(names: Names) -> str:
    homes = [home for home in names.of("uma.errors") if is_exception(home.value)]
    homes.sort(key=lambda home: (home.value.exit_code, home.name))
    rows = [(str(home.value.exit_code), reference(home, names), summary(home, names)) for home in homes]
    return "\n".join(
        [
            heading(1, "Errors"),
            "Everything that UMA raises on purpose is an `UmaError`, and says what is wrong, where, and what to do. "
            "The command line prints that and ends with the class's exit code. [Messages](messages.md) lists what they "
            "say, [troubleshooting](../troubleshooting.md) what to do where the remedy takes more than a line.\n",
            table(("exit code", "class", "what it is for"), rows),
            *(render(home, names) for home in homes),
        ]
    )


def _messages(names: Names) -> str:
    places: dict[tuple[str, str, str], set[str]] = {}
    for one in messages():
        if one.error not in _OURS:
            places.setdefault((one.error, one.what, one.hint), set()).add(one.place)
    found = sorted((*key, ", ".join(map(code, sorted(where)))) for key, where in places.items())
    parts = [
        heading(1, "Messages"),
        "What errors say, and the hint that goes with it; `…` stands for what is filled in. The list is made from the "
        "sources of the core and of the plugins of this repository: search it for a part of the message that you have. "
        "A message that is put together from several is not here as a whole.\n",
    ]
    for error in sorted({error for error, _, _, _ in found}, key=lambda e: (getattr(errors, e).exit_code, e)):
        home = names.homes["uma.errors", error]
        rows = [(escaped(what), escaped(hint), place) for name, what, hint, place in found if name == error]
        said = f"Exit code {home.value.exit_code}. {link(code(error), home.anchor)}\n"
        parts += [heading(2, error, f"messages-{error.lower()}"), said, table(("message", "what to do", "from"), rows)]
    return "\n".join(parts)


@functools.cache
def messages() -> tuple[Message, ...]:
    """Of every error that the sources make with a text of their own."""
    folders = [ROOT / "core", *ROOT.glob("plugins/*/src"), *ROOT.glob("examples/*/src")]
    files = sorted(file for folder in folders for file in folder.rglob("*.py"))
    return tuple(message for file in files for message in _in_file(file))


def _in_file(file: Path) -> Iterator[Message]:
    for function in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(function, (ast.FunctionDef, ast.Module)):
            yield from _in_function(function, file)


def _in_function(function: ast.FunctionDef | ast.Module, file: Path) -> Iterator[Message]:
    nodes = list(_own(function))
    texts: dict[str, list[str]] = {}
    for node in nodes:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            texts.setdefault(node.targets[0].id, []).extend(_texts(node.value, {}))
    for node in nodes:
        if not isinstance(node, ast.Call) or not node.args:
            continue
        hints = [keyword.value for keyword in node.keywords if keyword.arg == "hint"]
        if isinstance(node.func, ast.Name) and is_exception(vars(errors).get(node.func.id)):
            error, before = node.func.id, ""
        elif isinstance(node.func, ast.Attribute) and node.func.attr == "fault":
            # What is said of a plugin: its name and version stand in front. An entry point's fault comes with a hint.
            error, before = "PluginError", "plugin … "
            hints += node.args[1:2] if ast.unparse(node.func.value).endswith("entry") else []
        else:
            continue
        hint = next(iter(_texts(hints[0], texts)), "") if hints else ""
        for what in filter(_says_something, _texts(node.args[0], texts)):
            yield Message(error, f"{before}{what}", hint, file.relative_to(ROOT).as_posix())


def _says_something(what: str) -> bool:
    """Whether there is enough to search for."""
    return len(re.findall(r"[A-Za-z]{2,}", what)) > 1


def _own(function: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a function, but for those of functions in it."""
    waiting = [*ast.iter_child_nodes(function)][::-1]
    while waiting:
        node = waiting.pop()
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node
            waiting += [*ast.iter_child_nodes(node)][::-1]


def _texts(node: ast.expr, known: dict[str, list[str]]) -> list[str]:
    """What an expression may be as text; nothing where none of it is written there."""
    if isinstance(node, ast.Constant):
        return [node.value] if isinstance(node.value, str) else []
    if isinstance(node, ast.JoinedStr):
        parts = [str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values]
        joined = "".join(parts)
        return [joined] if joined.strip("… ") else []
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = (_texts(side, known) or ["…"] for side in (node.left, node.right))
        return [f"{a}{b}" for a in left for b in right if f"{a}{b}".strip("… ")]
    if isinstance(node, ast.IfExp):
        return [*_texts(node.body, known), *_texts(node.orelse, known)]
    return known.get(node.id, []) if isinstance(node, ast.Name) else []
