"""The C interface, from the headers that come with every artifact."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass

from .docstrings import inline
from .markdown import code, fence, heading, link, table
from .repository import ROOT

__all__ = ["HEADERS", "Declaration", "declarations", "page"]

_FOLDER = ROOT / "core" / "runtime" / "csrc"

_OF_GENERATED_C = ("uma_math.h", "uma_steps.h", "uma_ticks.h", "uma_vectors.h")
"""Nobody else knows of these."""

HEADERS = tuple(sorted(file.name for file in _FOLDER.glob("*.h") if file.name not in _OF_GENERATED_C))

_TOKEN = re.compile(
    r"(?P<comment>/\*.*?\*/)"
    r"|(?P<directive>^#(?:/\*.*?\*/|\\\n|[^\n])*)"
    r"|(?P<extern>extern \"C\" \{\n#endif)"
    r"|(?P<code>\S(?:[^;{]|/\*.*?\*/)*?(?:;|\{.*?^\}[^;\n]*;?))",
    re.DOTALL | re.MULTILINE,
)
_DEFINE = re.compile(r"#define (\w+)")
_NAME = re.compile(
    r"(?:^typedef [^;{]*\(\*(\w+)\)\([^;]*;|\b(\w+)\s*\([^()]*(?:\([^()]*\)[^()]*)*\)\s*(?:\{|;)|\}\s*(\w+);|\b(\w+);"
    r"|^struct (\w+) \{)",
    re.MULTILINE,
)


@dataclass(frozen=True)
class Declaration:
    """One declaration of a header.

    Args:
        name: what it declares.
        comment: in front of it, or behind it on its line.
        text: the declaration; of a function without its body.
    """

    name: str
    comment: str
    text: str


def page() -> str:
    """``c``."""
    parts = [
        heading(1, "The C interface"),
        "What every artifact has in common; [the artifact](../artifact.md) tells how it is used, and what the header "
        "of a model declares besides. These are the headers as they are, and nothing of them is left out.\n",
    ]
    for header in HEADERS:
        about, found = declarations((_FOLDER / header).read_text(encoding="utf-8"))
        rows = [(link(code(one.name), _anchor(header, one)), _said(_first(one.comment))) for one in found]
        parts += [heading(2, code(header)), f"{_said(about)}\n", table(("declares", "what it is"), rows)]
        for one in found:
            comment = f"{_said(one.comment)}\n" if one.comment else ""
            parts += [heading(3, code(one.name), _anchor(header, one)), comment, fence(one.text, "c")]
    return "\n".join(parts)


def _anchor(header: str, one: Declaration) -> str:
    # UMA_WAIT and uma_wait would be one.
    kind = "macro" if one.text.startswith("#") else "c"
    return f"{kind}-{header.removesuffix('.h')}-{one.name.lower()}"


def _said(comment: str) -> str:
    return re.sub(r"\n(?=\w+: )", "\n\n", inline(comment, lambda name: None))


def _first(comment: str) -> str:
    head, stop, _ = " ".join(comment.split()).partition(". ")
    return head + stop.strip()


def declarations(header: str) -> tuple[str, list[Declaration]]:
    """The comment at the head of a header, and what it declares, in order; forward declarations are left out."""
    about, end, rest = header.partition("*/")
    return _text(about + end), list(_declared(rest))


def _declared(text: str) -> Iterator[Declaration]:
    comment, end, seen = "", 0, set()
    for token in _TOKEN.finditer(text):
        blank = "\n\n" in text[end : token.start()]
        end = token.end()
        if token.lastgroup == "comment":
            comment = _text(token[0])
            continue
        if token.lastgroup == "directive":
            define = _DEFINE.match(token[0])
            if define is None:
                comment = "" if blank or token[0].startswith("#endif") else comment
                continue
            name, given = define[1], re.sub(r"[ \t]*\\\n", "\n", token[0])
            shown, _, behind = given.partition("/*")
            said = _text(f"/*{behind}") if behind else "" if blank else comment
            if name not in seen and not name.endswith("_H"):
                seen.add(name)
                yield Declaration(name, said, shown.rstrip())
            continue
        if token.lastgroup == "extern":
            continue
        shown, said, comment = token[0], "" if blank else comment, ""
        if re.fullmatch(r"(typedef )?struct \w+( \w+)?;", shown):
            continue
        if not shown.startswith(("typedef", "struct")):
            shown = shown.partition("\n{")[0].removeprefix("static inline ").rstrip(";") + ";"
        names = [next(filter(None, match.groups())) for match in _NAME.finditer(shown)]
        name = names[-1] if shown.startswith("typedef") else names[0]
        yield Declaration(name, said, textwrap.dedent(shown))


def _text(comment: str) -> str:
    """A comment's text."""
    lines = [re.sub(r"^\s*\*? ?", "", line) for line in comment.removeprefix("/*").removesuffix("*/").split("\n")]
    paragraphs = "\n".join(line.rstrip() for line in lines).strip()
    # A line that begins with the name of an argument begins a paragraph.
    return re.sub(r"(?<!\n)\n(?!\n|\w+: )", " ", paragraphs)
