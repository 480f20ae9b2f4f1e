"""Conformance as one page of HTML that needs nothing else: no network, no other file, no script.

It looks as the report of a model does. What a plugin says of itself is text on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources
from xml.etree.ElementTree import Element

from ...reports.report.components import table, tile
from ...support.html import Child, element, html_of
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
    return "<!DOCTYPE html>\n" + html_of(_page(reports)) + "\n"


def _page(reports: Sequence[Conformance]) -> Element:
    style = element("style")
    # The page's own, and not to be touched: `element` would.
    style.text = resources.files(_REPORT).joinpath("page.css").read_text(encoding="utf-8") + _OWN
    policy = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
    name = f"{reports[0].distribution} {reports[0].version}" if reports else "no plugin"
    head = element(
        "head",
        None,
        element("meta", {"charset": "utf-8"}),
        element("meta", {"http-equiv": "Content-Security-Policy", "content": policy}),
        element("meta", {"name": "viewport", "content": "width=device-width, initial-scale=1"}),
        element("title", None, f"{name}: conformance"),
        style,
    )
    sections = [section for number, one in enumerate(reports) for section in _sections(one, number, len(reports))]
    links = [element("a", {"href": f"#{key}"}, title) for key, title, _ in sections]
    section_elements = [
        element(
            "section",
            {"id": key, "aria-labelledby": f"{key}-title"},
            element("h2", {"id": f"{key}-title"}, title),
            *body,
        )
        for key, title, body in sections
    ]
    nav = element("nav", {"aria-label": "Sections"}, element("div", None, *links))
    foot = element("footer", None, f"uma check of uma-core {__version__}, seed {reports[0].seed if reports else 0}")
    body = element("body", None, _head(name, reports), nav, element("main", None, *section_elements), foot)
    return element("html", {"lang": "en"}, head, body)


def _head(name: str, reports: Sequence[Conformance]) -> Element:
    findings = [finding for one in reports for finding in one.findings]
    parts = [(None, part, str(sum(finding.part == part for finding in findings))) for part in PARTS]
    counts = [count for one in reports for count in one.clauses]
    results = [result for one in reports for result in one.results]
    tiles = [
        tile("findings", str(len(findings)), None, [row for row in parts if row[2] != "0"]),
        tile("checks", str(len(results)), None, [(None, "skipped", str(sum(bool(one.skipped) for one in results)))]),
        tile(
            "clauses",
            str(len(counts)),
            None,
            [(None, "never decisive", str(sum(not count.decisive for count in counts)))],
        ),
    ]
    lead = [element("li", None, f"{summary(reports)}.")]
    lead += [element("li", None, f"{one.target}, with {one.host}") for one in reports]
    return element(
        "header",
        None,
        element(
            "div",
            None,
            element("p", {"class": "kicker"}, "UMA conformance"),
            element("h1", None, name),
            element("ul", {"class": "lead"}, *lead),
            element("div", {"class": "tiles"}, *tiles),
        ),
    )


def _sections(one: Conformance, number: int, count: int) -> list[tuple[str, str, list[Element]]]:
    behind = f": {one.target}" if count > 1 else ""
    sections: list[tuple[str, str, list[Element]]] = []
    if one.findings:
        sections.append((f"findings-{number}", f"Findings{behind}", [_finding(finding) for finding in one.findings]))
    sections.append((f"checks-{number}", f"Checks{behind}", [_checks(one.results, number)]))
    claims = element("ul", {"class": "plain"}, *(element("li", None, line) for line in claims_lines(one.claims)))
    sections.append((f"claims-{number}", f"Claims{behind}", [claims]))
    if one.clauses:
        about = (
            "Layers on both sides of each clause. One that was never decisive refused no layer alone: nothing shows "
            "that it is needed, or right."
        )
        body = [element("p", {"class": "about"}, about), _clauses(one.clauses, number)]
        sections.append((f"clauses-{number}", f"Clauses{behind}", body))
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
        cells = [
            name,
            element("td", None, _chip("found" if count else result.verdict, kinds.get(result.verdict, "bad"))),
            element("td", {"class": "num"}, count),
            element("td", {"class": "num"}, f"{result.seconds:.1f}"),
            element("td", None, *note_elements),
        ]
        rows.append(element("tr", None, *cells))
    return table(f"table-of-checks-{number}", ("check", "", "findings", "s", "notes"), rows, (2, 3))


def _clauses(counts: Sequence[ClauseCount], number: int) -> Element:
    rows = []
    for count in counts:
        numbers = [
            element("td", {"class": "num" if amount else "num none"}, amount)
            for amount in (count.accepted, count.refused, count.decisive)
        ]
        never = None if count.decisive else _chip("never decisive", "none")
        cells = [element("td", None, count.pattern), element("td", None, count.clause), *numbers]
        rows.append(element("tr", None, *cells, element("td", None, never)))
    return table(f"table-of-clauses-{number}", (*CLAUSE_HEAD, "remark"), rows, (2, 3, 4))
