"""Pieces of Markdown, as MyST reads it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

__all__ = ["code", "escaped", "fence", "heading", "link", "table", "target"]

_SPECIAL = re.compile(r"([\\`*_\[\]<>|#~$])")


def escaped(text: str) -> str:
    """``text`` with nothing in it that Markdown would take for markup."""
    return _SPECIAL.sub(r"\\\1", text)


def code(text: str) -> str:
    """``text`` as code within a line, or within a cell of a table."""
    text = " ".join(text.split()).replace("|", "\\|")
    ticks = "``" if "`" in text else "`"
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{ticks}{pad}{text}{pad}{ticks}"


def fence(text: str, language: str = "") -> str:
    """``text`` as a block of code."""
    longest = max((len(run) for run in re.findall(r"^`{3,}", text, re.MULTILINE)), default=2)
    ticks = "`" * (longest + 1)
    return f"{ticks}{language}\n{text.rstrip()}\n{ticks}\n"


def link(text: str, anchor: str) -> str:
    """``text``, which is Markdown, as a link to a `target`."""
    return f"[{text}](#{anchor})"


def target(anchor: str) -> str:
    """What makes the heading after it the goal of a `link`."""
    return f"({anchor})=\n"


def heading(level: int, text: str, anchor: str | None = None) -> str:
    """A heading, ``text`` being Markdown."""
    return f"{target(anchor) if anchor else ''}{'#' * level} {text}\n"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of cells that are Markdown; empty where there are no rows."""
    lines = [f"| {' | '.join(cell.replace(chr(10), ' ') or ' ' for cell in row)} |" for row in rows]
    return "\n".join([f"| {' | '.join(head)} |", f"|{' --- |' * len(head)}", *lines, ""]) if lines else ""
