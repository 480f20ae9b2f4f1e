"""Conformance as one page of HTML that needs nothing else: no network, no other file, no script.

It looks as the report of a model does. What a plugin says of itself is text on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources
from xml.etree.ElementTree import Element

from ...reports.report.components import table, tile
from ...support.html import Child, Section, element, page, row
from ...version import __version__
from ..record import PARTS, CheckResult, ClauseCount, Conformance, Finding
from .text import CLAUSE_HEAD, claims_lines, summary

__all__ = ["as_html"]

_REPORT = f"{__package__.rpartition('.')[0].rpartition('.')[0]}.reports.report"
_OWN = """
.verdict { --c: var(--t5); } .verdict.bad { --c: var(--mark); } .verdict.none { --c: var(--t0); }
.finding { margin: 0 0 .9rem; padding: .8rem 1rem; background: var(--card); border: 1px solid var(--line);
  border-left: 4px solid var(--mark); border-radius: 8px; }
.finding p { margin: 0 0 .35rem; max-width: 70rem; } .finding p:last-child { margin: 0; }
.finding small { color: var(--soft); }
pre { margin: .5rem 0; padding: .6rem .8rem; overflow-x: auto; background: var(--paper); border: 1px solid var(--line);
  border-radius: 6px; font: .84em/1.45 ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace; }
"""


def as_html(reports: Sequence[Conformance]) -> str:
    """The text of the file."""
    name = f"{reports[0].distribution} {reports[0].version}" if reports else "no plugin"
    css = resources.files(_REPORT).joinpath("page.css").read_text(encoding="utf-8") + _OWN
    sections = [section for number, one in enumerate(reports) for section in _sections(one, number, len(reports))]
    footer = f"uma check of uma-core {__version__}, seed {reports[0].seed if reports else 0}"
    return page(f"{name}: conformance", css, _head(name, reports), sections, footer)


def _head(name: str, reports: Sequence[Conformance]) -> list[Element]:
    findings = [finding for one in reports for finding in one.findings]
    parts = [(None, part, str(sum(finding.part == part for finding in findings))) for part in PARTS]
    counts = [count for one in reports for count in one.clauses]
    results = [result for one in reports for result in one.results]
    indecisive = str(sum(not count.decisive for count in counts))
    tiles = [
        tile("findings", str(len(findings)), None, [part for part in parts if part[2] != "0"]),
        tile("checks", str(len(results)), None, [(None, "skipped", str(sum(bool(one.skipped) for one in results)))]),
        tile("clauses", str(len(counts)), None, [(None, "never decisive", indecisive)]),
    ]
    lead = [element("li", None, f"{summary(reports)}.")]
    lead += [element("li", None, f"{one.target}, with {one.host}") for one in reports]
    return [
        element("p", {"class": "kicker"}, "UMA conformance"),
        element("h1", None, name),
        element("ul", {"class": "lead"}, *lead),
        element("div", {"class": "tiles"}, *tiles),
    ]


def _sections(one: Conformance, number: int, count: int) -> list[Section]:
    behind = f": {one.target}" if count > 1 else ""
    sections: list[Section] = []
    if one.findings:
        sections.append(Section(f"findings-{number}", f"Findings{behind}", list(map(_finding, one.findings))))
    sections.append(Section(f"checks-{number}", f"Checks{behind}", [_checks(one.results, number)]))
    claims = element("ul", {"class": "plain"}, *(element("li", None, line) for line in claims_lines(one.claims)))
    sections.append(Section(f"claims-{number}", f"Claims{behind}", [claims]))
    if one.clauses:
        about = (
            "Layers on both sides of each clause. One that was never decisive refused no layer alone: nothing shows "
            "that it is needed, or right."
        )
        body = [element("p", {"class": "about"}, about), _clauses(one.clauses, number)]
        sections.append(Section(f"clauses-{number}", f"Clauses{behind}", body))
    return sections


def _chip(text: str, kind: str) -> Element:
    return element("span", {"class": f"chip verdict {kind}".rstrip()}, text)


def _finding(finding: Finding) -> Element:
    return element(
        "div",
        {"class": "finding"},
        element("p", None, _chip(finding.part, "bad"), f" {finding.what}"),
        element("p", None, element("small", None, finding.where)) if finding.where else None,
        element("pre", {"tabindex": "0"}, finding.layer) if finding.layer else None,
        element("p", None, element("small", None, "repeat: "), element("code", None, finding.repeat))
        if finding.repeat
        else None,
    )


def _checks(results: Sequence[CheckResult], number: int) -> Element:
    rows = []
    for result in results:
        count = len(result.findings)
        kinds = {"ok": "", "skipped": "none", "nothing was checked": "none"}
        notes = [*filter(None, (result.skipped, result.unchecked)), *result.notes]
        name = element("td", {"class": "name"}, result.name, element("small", None, result.title))
        note_elements: list[Child] = [element("small", {"class": "why"}, note) for note in notes]
        rows.append(
            row(
                name,
                _chip("found" if count else result.verdict, kinds.get(result.verdict, "bad")),
                element("td", {"class": "num"}, count),
                element("td", {"class": "num"}, f"{result.seconds:.1f}"),
                element("td", None, *note_elements),
            )
        )
    return table(f"table-of-checks-{number}", ("check", "", "findings", "s", "notes"), rows, (2, 3))


def _clauses(counts: Sequence[ClauseCount], number: int) -> Element:
    rows = []
    for count in counts:
        numbers = [
            element("td", {"class": "num" if amount else "num none"}, amount)
            for amount in (count.accepted, count.refused, count.decisive)
        ]
        never = None if count.decisive else _chip("never decisive", "none")
        rows.append(row(count.pattern, count.clause, *numbers, never))
    return table(f"table-of-clauses-{number}", (*CLAUSE_HEAD, "remark"), rows, (2, 3, 4))
