"""The READMEs of the plugins as pages of the site."""

from __future__ import annotations

import os
import re
from pathlib import Path

from .repository import ROOT, Project

__all__ = ["page"]

_LINK = re.compile(r"\[([^\]\n]+)\]\(([^)\s#:]+)(#[^)\s]*)?\)")
_FENCE = re.compile(r"^(`{3,}[^\n]*\n.*?^`{3,}$)", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^(#+) ", re.MULTILINE)


def page(project: Project, others: list[Project]) -> str | None:
    """The README of a plugin with links that lead to where its goals are in the site; None where there is none.

    A page has one title: what comes under another one becomes a part of it.
    """
    file = ROOT / project.folder / "README.md"
    if not file.is_file():
        return None
    pages = {f"{other.folder}/README.md": f"{other.name}.md" for other in others} | {"README.md": "../index.md"}
    titles = 0

    def heading(found: re.Match[str]) -> str:
        nonlocal titles
        titles += found[1] == "#"
        return f"#{found[0]}" if titles > 1 else found[0]

    def link(found: re.Match[str]) -> str:
        where = Path(os.path.relpath(file.parent / found[2], ROOT)).as_posix()
        goal = f"../{where.removeprefix('docs/')}" if where.startswith("docs/") else pages.get(where)
        return found[1] if goal is None else f"[{found[1]}]({goal}{found[3] or ''})"

    parts = _FENCE.split(file.read_text(encoding="utf-8"))
    parts[::2] = [_LINK.sub(link, _HEADING.sub(heading, part)) for part in parts[::2]]
    return "".join(parts)
