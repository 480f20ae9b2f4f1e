"""Classes, functions and constants, with all that their docstrings say."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from typing import Any

from .docstrings import Docstring, inline, text
from .markdown import code, fence, heading, link
from .names import Name, Names, literal, module_source

__all__ = ["members_of", "render", "signature", "summary"]

_WIDTH = 100
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def render(name: Name, names: Names, level: int = 2) -> str:
    """The section on a public name."""
    value = name.value
    found = lambda mentioned: names.link(mentioned, name.module)  # noqa: E731 - as short as its use
    head = heading(level, code(name.name), name.anchor)
    if name.kind == "module":
        return (
            f"{head}\n{text(Docstring.of(value).summary, found)}\nSee [{code(value.__name__)}]({value.__name__}.md).\n"
        )
    if name.kind == "class":
        parts = [head, fence(signature(name.name, value, "class "), "python"), Docstring.of(value).markdown(found)]
        for member, shown, doc in members_of(value):
            parts.append(f"{heading(level + 1, code(member))}\n{shown}\n{Docstring.parsed(doc).markdown(found)}")
        return "\n".join(parts)
    if name.kind == "function":
        return "\n".join(
            [head, fence(signature(name.name, value, "def "), "python"), Docstring.of(value).markdown(found)]
        )
    source, doc = literal(name)
    return "\n".join([head, fence(source, "python"), text(doc, found)])


def summary(name: Name, names: Names) -> str:
    """One line on a public name, as Markdown."""
    doc = Docstring.parsed(literal(name)[1]) if name.kind == "data" else Docstring.of(name.value)
    return inline(doc.summary, lambda mentioned: names.link(mentioned, name.module))


def members_of(cls: type) -> Iterator[tuple[str, str, str]]:
    """The public members of a class that its arguments are not: name, how it is used, docstring.

    Those of bases count where these are UMA's.
    """
    seen: set[str] = set()
    for base in cls.__mro__:
        if not base.__module__.startswith("uma"):
            continue
        arguments = Docstring.of(base).entries("Args")
        for name, value in vars(base).items():
            if name.startswith("_") or name in seen:
                continue
            function = getattr(value, "fget", None) or getattr(value, "func", None) or getattr(value, "__func__", value)
            if inspect.isfunction(function) and function.__name__ == name:
                seen.add(name)
                is_method = inspect.isfunction(value) or hasattr(value, "__func__")
                kind = {classmethod: "classmethod ", staticmethod: "staticmethod "}.get(type(value), "")
                shown = signature(name, function, f"{kind}def ") if is_method else _property(name, function)
                yield (
                    name,
                    fence(shown, "python"),
                    inspect.getdoc(getattr(cls, name, None)) or inspect.getdoc(value) or "",
                )
        for name, (source, doc) in module_source(base.__module__).items():
            owner, _, field = name.rpartition(".")
            if owner == base.__name__ and doc and field not in seen and field not in arguments and field[0] != "_":
                seen.add(field)
                yield field, fence(source, "python"), doc


def _property(name: str, function: Any) -> str:
    return f"{name}: {_annotation(inspect.signature(function).return_annotation)}"


def signature(name: str, value: Any, before: str = "") -> str:
    """How something is called, over several lines where it is long."""
    # Interned nodes are made by their base.
    made = vars(value).get("__init__") if inspect.isclass(value) else None
    given = inspect.signature(made or value)
    parts: list[str] = []
    kinds = inspect.Parameter
    stars: dict[object, str] = {kinds.VAR_POSITIONAL: "*", kinds.VAR_KEYWORD: "**"}
    star = False
    parameters = [p for p in given.parameters.values() if p.name not in ("self", "cls", "_")]
    for parameter in parameters:
        if parameter.kind is kinds.KEYWORD_ONLY and not star:
            parts.append("*")
        star = star or parameter.kind in (kinds.KEYWORD_ONLY, kinds.VAR_POSITIONAL)
        shown = f"{stars.get(parameter.kind, '')}{parameter.name}"
        if parameter.annotation is not kinds.empty:
            shown += f": {_annotation(parameter.annotation)}"
        if parameter.default is not kinds.empty:
            shown += f" = {_ADDRESS.sub('', repr(parameter.default))}"
        parts.append(shown)
    result = (
        "" if before == "class " or given.return_annotation is kinds.empty else _annotation(given.return_annotation)
    )
    behind = f" -> {result}" if result else ""
    line = f"{before}{name}({', '.join(parts)}){behind}"
    if len(line) <= _WIDTH or not parts:
        return line
    return "\n".join([f"{before}{name}(", *(f"    {part}," for part in parts), f"){behind}"])


def _annotation(given: Any) -> str:
    return given if isinstance(given, str) else inspect.formatannotation(given)


def reference(name: Name, names: Names) -> str:
    """A link to where a name is documented."""
    return link(code(name.name), name.anchor)


def doc_of(module: str) -> str:
    """A module's docstring."""
    return inspect.getdoc(sys.modules[module]) or ""
