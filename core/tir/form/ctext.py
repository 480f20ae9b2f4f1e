"""C texts with placeholders: how an accelerator's author writes what one transfer or instruction is in C.

A text is one expression of C with ``{name}`` where the core puts an operand: ``dma_in({device}, {to}, {from})``. It
consists of names, numbers, operators, brackets and placeholders. Nothing in it ends the expression, starts a comment or
a literal, or reaches the preprocessor, so that it stands safely wherever an expression may.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

__all__ = ["fault_in", "fill", "placeholders"]

_PLACEHOLDER = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")
_PLAIN = re.compile(r"[A-Za-z0-9_ ()\[\]+\-*/%&|^~!<>=?:.,]*")
_FORBIDDEN = ("//", "/*", "*/", "??", "<:", ":>", "<%", "%>", "%:")
"""Comments, trigraphs and digraphs."""
_PAIRS = {")": "(", "]": "["}
_PRIMARY = re.compile(r"[A-Za-z0-9_]+")


def placeholders(text: str) -> frozenset[str]:
    """The names of the placeholders in ``text``."""
    return frozenset(_PLACEHOLDER.findall(text))


def fault_in(text: str, known: Collection[str], required: Collection[str], lists: Collection[str] = ()) -> str | None:
    """What is wrong with a text, or None.

    Args:
        text: anything.
        known: the placeholders there are.
        required: those that the text must mention.
        lists: those that stand for several operands with commas between them.
    """
    plain = _PLACEHOLDER.sub("0", text)
    strange = plain[len(_match(plain)) :]
    if strange:
        return f"{strange[0]!r} cannot stand in an expression of C with placeholders"
    for sign in _FORBIDDEN:
        if sign in plain:
            return f"{sign!r} cannot stand in an expression of C with placeholders"
    used = placeholders(text)
    for name in sorted(used - set(known)):
        return f"unknown placeholder {{{name}}}; there is {', '.join(f'{{{k}}}' for k in known) or 'none'}"
    for name in required:
        if name not in used:
            return f"{{{name}}} is not mentioned"
    for match in _PLACEHOLDER.finditer(text):
        if match.group(1) in lists and not _is_argument(text, match):
            return f"{{{match.group(1)}}} stands for several operands, and is not an argument of a call by itself"
    return None if _is_one_expression(plain) else "it is not one expression: mind brackets and commas"


def _match(plain: str) -> str:
    match = _PLAIN.match(plain)
    return match.group() if match else ""


def _is_one_expression(plain: str) -> bool:
    open_brackets: list[str] = []
    for character in plain:
        if character in "([":
            open_brackets.append(character)
        elif (character in ")]" and (not open_brackets or open_brackets.pop() != _PAIRS[character])) or (
            character == "," and not open_brackets
        ):
            return False
    return not open_brackets and bool(plain.strip())


def _is_argument(text: str, match: re.Match[str]) -> bool:
    """Whether a placeholder stands between brackets and commas."""
    before, after = text[: match.start()].rstrip()[-1:], text[match.end() :].lstrip()[:1]
    return before in ("(", ",") and after in (")", ",")


def fill(text: str, values: Mapping[str, str]) -> str:
    """``text`` with each placeholder replaced by an expression of C, in parentheses where it needs them."""

    def operand(match: re.Match[str]) -> str:
        value = values[match.group(1)]
        return value if _is_argument(text, match) or _PRIMARY.fullmatch(value) else f"({value})"

    return _PLACEHOLDER.sub(operand, text)
