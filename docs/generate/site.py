"""The sources of the site: the pages of docs/, the reference, and what ties them together."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

from . import readmes, reference
from .repository import ROOT, projects

__all__ = ["PAGES", "index_contents", "sources"]

PAGES = ROOT / "docs"

_BLOCK = re.compile(r"^```(\w+) (\S+)$", re.MULTILINE)
_PART = re.compile(r"^## (.+)$", re.MULTILINE)
_PAGE = re.compile(r"\]\(([\w-]+)\.md\)")


def sources() -> dict[str, str]:
    """Every page, by its path in the site with suffix.

    A page of docs/ that the index does not mention stands at the end of the site's contents.
    """
    made = {f"reference/{path}.md": page for path, page in reference().items()}
    for path in ("index", "plugins/index", "api/index"):
        links = re.findall(r"\]\(([\w./-]+)\.md\)", made[f"reference/{path}.md"])
        folder = PurePosixPath("reference", path).parent
        made[f"reference/{path}.md"] += _contents(None, [link for link in links if f"{folder / link}.md" in made])
    written = {file.name: file.read_text(encoding="utf-8") for file in sorted(PAGES.glob("*.md"))}
    found = projects()
    about = {f"plugins/{one.name}.md": text for one in found if (text := readmes.page(one, found)) is not None}
    written["index.md"] += index_contents(written["index.md"], [name.removesuffix(".md") for name in written])
    written["index.md"] += _contents("Plugins", [path.removesuffix(".md") for path in about])
    written["index.md"] += _contents("Reference", ["reference/index"])
    # The name of a file is its caption.
    captioned = {path: _BLOCK.sub(r"```{code-block} \1\n:caption: \2\n", p) for path, p in (written | about).items()}
    return made | captioned


def index_contents(index: str, pages: list[str]) -> str:
    """The sidebar: a part for each part of the index, with the pages that are first mentioned there."""
    left = [page for page in pages if page != "index"]
    parts = []
    titles = _PART.split(index)[1:]
    for title, text in zip(titles[::2], titles[1::2], strict=True):
        mentioned = [page for page in dict.fromkeys(_PAGE.findall(text)) if page in left]
        left = [page for page in left if page not in mentioned]
        parts.append(_contents(title, mentioned))
    return "".join([*parts, _contents("More", left)])


def _contents(caption: str | None, pages: list[str]) -> str:
    """What the site's sidebar lists; nothing is shown in the page itself."""
    if not pages:
        return ""
    said = f":caption: {caption}\n" if caption else ""
    return f"\n```{{toctree}}\n:hidden:\n{said}\n" + "\n".join(pages) + "\n```\n"
