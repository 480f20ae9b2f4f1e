"""Whether what a user has to know is written down: README, attributes, faults, counters."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ...errors import UmaError
from ...hookspecs import Runtime
from ...support.package_metadata import read
from ...targets import Attribute, TargetKind
from ...targets.text import spell
from ..outcome import Check, Outcome, Progress
from ..sources import installed, source_of
from ..subject import Subject, read_project

__all__ = ["DOCUMENTATION"]

_READMES = ("README.md", "README.rst", "README.txt", "README")
_RANGE = re.compile(r"(-?\d+)\s*(?:to|-|\.\.+|–)\s*(-?\d+)")
_NUMBER = re.compile(r"(?<![\w.])(0[xX][0-9a-fA-F]+|-?\d+)(?![\w.]*\w)")
_MAX_RANGE = 1000


def _documentation(outcome: Outcome, progress: Progress) -> None:
    subject = outcome.subject
    text, where = _readme(subject)
    if not text.strip():
        message = f"there is no README: nobody is told what {subject.kind.name} is and what it can do"
        outcome.find("documentation", message, where, "readme")
        return
    if not _names(text, subject.kind.name):
        outcome.find("documentation", f"the README does not name the kind {subject.kind.name}", where, "readme")
    _attributes(outcome, subject.kind, text, where)
    try:
        runtime = subject.member.runtime
    except UmaError as error:
        outcome.note(f"faults and counters were not looked for: {error.what}")
        return
    if runtime is not None:
        _faults(outcome, runtime, text, where)
        _counters(outcome, runtime, text, where)
    outcome.note(f"read {where}")


DOCUMENTATION = Check(
    "documentation", "README, attributes, table of faults, counters", "documentation", _documentation, "kind"
)


def _readme(subject: Subject) -> tuple[str, str]:
    """Its text, and where it is: of the sources where they are known, else of what is installed."""
    source = source_of(subject)
    if source is not None:
        readme = read_project(source).get("project", {}).get("readme")
        name = readme.get("file") if isinstance(readme, dict) else readme
        names = [name] if isinstance(name, str) else [*_READMES]
        for path in (source / name for name in names):
            if path.is_file():
                return path.read_text(encoding="utf-8", errors="replace"), str(path)
        return "", str(source / names[0])
    distribution = installed(subject)
    if distribution is None:
        return "", subject.plugin.entry.distribution
    metadata = read(distribution, lambda one: one.read_text("METADATA")) or ""
    headers, _, body = metadata.partition("\n\n")
    if not body.strip():  # before metadata 2.1 it was a header, its lines indented
        body = "\n".join(
            line.strip()
            for line in headers.partition("\nDescription: ")[2].splitlines()
            if not re.match(r"[A-Z]\S*:", line)
        )
    return body, f"the metadata of {subject.plugin.entry.distribution}"


def _names(text: str, word: str) -> bool:
    """Whether the text has the word, and not as a part of another one."""
    return re.search(rf"(?<![A-Za-z0-9_]){re.escape(word)}(?![A-Za-z0-9_])", text) is not None


def _first_cells(text: str) -> Iterator[str]:
    """What rows begin with in tables about faults: by their head, or the heading that they stand below."""
    heading, head = "", ""
    for line in text.splitlines():
        if line.startswith("#"):
            heading = line
        if not line.lstrip().startswith("|"):
            head = ""
        elif not head:
            head = line
        elif re.search(r"fault|code|error|trap|status", f"{heading} {head}", re.IGNORECASE):
            yield line.strip().strip("|").split("|")[0].strip("`* ")


def _attributes(outcome: Outcome, kind: TargetKind, text: str, where: str) -> None:
    missing = [attribute.name for attribute in kind.attributes if not any(_names(text, n) for n in attribute.names)]
    if missing:
        noun = "attribute" if len(missing) == 1 else "attributes"
        message = f"the README does not name the {noun} {', '.join(missing)} of {kind.name}"
        outcome.find("documentation", message, where, "attributes")
    for attribute, said in _told_defaults(kind, text):
        try:
            same = attribute.check(attribute.parse(said)) == attribute.default
        except UmaError:
            continue  # it is told in words
        if not same:
            default = "none" if attribute.default is None else spell(attribute.default)  # type: ignore[arg-type]  # a default is spelt
            message = f"the README says that the default of {attribute.name} is {said}, and it is {default}"
            outcome.find("documentation", message, where, "attributes")


def _told_defaults(kind: TargetKind, text: str) -> Iterator[tuple[Attribute, str]]:
    """What the column ``default`` of a table says of attributes, which begin its rows."""
    column = -1
    for line in text.splitlines():
        if not line.lstrip().startswith("|"):
            column = -1
            continue
        cells = [cell.strip().strip("`*") for cell in line.strip().strip("|").split("|")]
        if column < 0:
            column = next((at for at, cell in enumerate(cells) if cell.lower() == "default"), -1)
            continue
        name = cells[0].lstrip("-")
        if len(cells) > column > 0 and kind.has(name) and (said := cells[column].replace(",", "")):
            yield kind.attribute(name), said


def _faults(outcome: Outcome, runtime: Runtime, text: str, where: str) -> None:
    """Every code has a row in a table, or is told as a fault."""
    codes_in_text: set[int] = {int(code, 0) for code in re.findall(r"(?:fault|code)s?\s+`?(\d+|0x[0-9a-fA-F]+)", text)}
    for first in _first_cells(text):
        codes_in_text |= {
            int(number, 0) for number in _NUMBER.findall(first) if not number.startswith("0") or "x" in number.lower()
        }
        for low, high in _RANGE.findall(first):
            if 0 <= int(high) - int(low) <= _MAX_RANGE:
                codes_in_text |= set(range(int(low), int(high) + 1))
    missing = [code for code in runtime.faults if code not in codes_in_text]
    if missing:
        noun = "fault" if len(missing) == 1 else "faults"
        codes = ", ".join(map(str, missing))
        meaning = f" ({runtime.faults[missing[0]]})" if len(missing) == 1 else ""
        outcome.find("documentation", f"the README has no row for {noun} {codes}{meaning}", where, "faults")


def _counters(outcome: Outcome, runtime: Runtime, text: str, where: str) -> None:
    counters = (*runtime.counters, *(runtime.parts.counters if runtime.parts is not None else ()))
    missing = [name for name in dict.fromkeys(counters) if not _names(text, name)]
    if missing:
        noun = "counter" if len(missing) == 1 else "counters"
        outcome.find("documentation", f"the README does not name the {noun} {', '.join(missing)}", where, "counters")
    if runtime.clock is not None and not re.search(r"clock|Hz\b", text):
        message = f"the README says nothing of the clock, by which its cycles are time ({runtime.clock.hz:g} Hz)"
        outcome.find("documentation", message, where, "counters")
