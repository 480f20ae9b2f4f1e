"""Docstrings as Markdown.

They are plain text with a little markup: double backticks around code, single ones around names, lists, indented code,
and sections that begin with `Args:`, `Raises:` and the like, each with an entry ``name: text`` a line.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from .markdown import code, escaped, fence

__all__ = ["Docstring", "first_sentence", "inline", "literal_docs", "text"]

Link = Callable[[str], str | None]
"""Gives the Markdown of a link to what a name stands for, or None where there is nothing to link to."""

SECTIONS = ("Args", "Attributes", "Returns", "Yields", "Raises", "Example")
_SECTION = re.compile(rf"^({'|'.join(SECTIONS)}):(:?)$", re.MULTILINE)
_ENTRY = re.compile(r"^([*A-Za-z_][\w*.]*(?:, [*A-Za-z_][\w*.]*)*): (.*)$", re.DOTALL)
_SPAN = re.compile(r"``(.+?)``|`([^`]+)`|\*(\w[^*]*\w|\w)\*", re.DOTALL)
_SENTENCE_END = re.compile(r"(?<=[\w)`\]]\.)\s+(?=[A-Z`\[*])")
_WITH_ENTRIES = ("Args", "Attributes", "Raises")


@dataclass(frozen=True)
class Docstring:
    """A docstring in parts.

    Args:
        summary: the first paragraph.
        body: the rest in front of the sections.
        sections: by their titles; of some, entries: see `entries`.
    """

    summary: str
    body: str
    sections: dict[str, str]

    @staticmethod
    def of(value: object) -> Docstring:
        """That of a class, function or module; without text where it has none of its own."""
        own = isinstance(value, type) and "__doc__" not in vars(value)
        return Docstring.parsed("" if own else inspect.getdoc(value) or "")

    @staticmethod
    def parsed(doc: str) -> Docstring:
        parts = _SECTION.split(doc)
        summary, _, body = parts[0].strip().partition("\n\n")
        titles, contents = parts[1::3], parts[3::3]
        sections = {title: textwrap.dedent(text.strip("\n")) for title, text in zip(titles, contents, strict=True)}
        return Docstring(" ".join(summary.split()), body, sections)

    def entries(self, section: str) -> dict[str, str]:
        """The text of each name of a section; names that share one are taken apart."""
        found: dict[str, str] = {}
        for item in re.split(r"\n(?=\S)", self.sections.get(section, "")):
            first, _, rest = item.partition("\n")
            match = _ENTRY.fullmatch(first)
            if match is not None:
                content = "\n".join([match[2], textwrap.dedent(rest)]).strip()
                found.update((name.lstrip("*"), content) for name in match[1].split(", "))
        return found

    def markdown(self, link: Link) -> str:
        """All of it."""
        blocks = [text(self.summary, link), text(self.body, link)]
        for title, content in self.sections.items():
            if title == "Example":
                blocks.append(f"**Example**\n\n{fence(content, 'python')}")
            elif title in _WITH_ENTRIES and (entries := self.entries(title)):
                blocks.append(
                    f"**{'Arguments' if title == 'Args' else title}**\n\n{_definitions(entries, title, link)}"
                )
            else:
                blocks.append(f"**{title}**: {text(content, link)}")
        return "\n".join(block for block in blocks if block.strip())


def _definitions(entries: dict[str, str], title: str, link: Link) -> str:
    lines = []
    for name, content in entries.items():
        shown = (link(name) if title == "Raises" else None) or code(name)
        lines.append(textwrap.indent(f"{shown}: {text(content, link).strip()}", "  ").replace("  ", "- ", 1))
    return "\n".join([*lines, ""])


def text(given: str, link: Link) -> str:
    """Paragraphs, lists and indented code."""
    blocks: list[tuple[bool, str]] = []
    for block in re.split(r"\n[ \t]*\n", given.strip("\n")):
        if block.startswith("    "):
            # Of several paragraphs of code in a row make one.
            if blocks and blocks[-1][0]:
                blocks[-1] = (True, f"{blocks[-1][1]}\n\n{block}")
            else:
                blocks.append((True, block))
        elif block.strip():
            blocks.append((False, inline(re.sub(r"::$", ":", block), link)))
    return "\n".join(fence(textwrap.dedent(part)) if is_code else f"{part}\n" for is_code, part in blocks)


def inline(given: str, link: Link) -> str:
    """Text without paragraphs."""
    parts, end = [], 0
    for span in _SPAN.finditer(given):
        parts.append(escaped(given[end : span.start()]))
        if span[1] is not None:
            parts.append(code(span[1]))
        elif span[2] is not None:
            parts.append(link(span[2]) or code(span[2]))
        else:
            parts.append(f"*{escaped(span[3])}*")
        end = span.end()
    return "".join([*parts, escaped(given[end:])])


def first_sentence(markdown: str) -> str:
    """Return ``markdown``, one paragraph, up to the end of its first sentence.

    A sentence ends at a full stop in front of a capital letter or of markup; ``i.e.`` and ``1.5`` do not end one.
    """
    return _SENTENCE_END.split(markdown, maxsplit=1)[0]


def literal_docs(source: str) -> dict[str, tuple[str, str]]:
    """Of a module's own names, or a class's with its name and a dot before: the text that they are set to, and the
    docstring behind it.
    """
    return dict(_literal_docs(ast.parse(source), source.split("\n"), ""))


def _literal_docs(
    tree: ast.Module | ast.ClassDef, lines: list[str], prefix: str
) -> Iterator[tuple[str, tuple[str, str]]]:
    for node, behind in zip(tree.body, [*tree.body[1:], None], strict=True):
        if isinstance(node, ast.ClassDef):
            yield from _literal_docs(node, lines, f"{prefix}{node.name}.")
        targets = [node.target] if isinstance(node, ast.AnnAssign) else getattr(node, "targets", [])
        doc = ""
        if isinstance(behind, ast.Expr) and isinstance(behind.value, ast.Constant):
            doc = inspect.cleandoc(str(behind.value.value))
        for target in targets:
            for name in target.elts if isinstance(target, ast.Tuple) else [target]:
                if isinstance(name, ast.Name):
                    yield f"{prefix}{name.id}", (_segment(lines, node), doc)


def _segment(lines: list[str], node: ast.stmt) -> str:
    """What `ast.get_source_segment` gives, without splitting the whole source for each node."""
    parts = [line.encode() for line in lines[node.lineno - 1 : node.end_lineno]]
    parts[-1] = parts[-1][: node.end_col_offset]
    parts[0] = parts[0][node.col_offset :]
    return b"\n".join(parts).decode()
