"""Conformance as JUnit XML, as continuous integration reads it: a suite for each target, a case for each check.

https://github.com/testmoapp/junitxml says what readers of it have in common.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from ..record import CheckResult, Conformance, Finding

__all__ = ["as_junit"]

_NO_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What no document of XML 1.0 may have, even escaped."""


def as_junit(reports: Sequence[Conformance]) -> str:
    """The text of the file, in UTF-8."""
    root = Element("testsuites", _counts([result for one in reports for result in one.results]))
    root.set("name", "uma check")
    for one in reports:
        suite = SubElement(root, "testsuite", _counts(one.results))
        suite.set("name", _text(f"{one.distribution}: {one.target}"))
        rows = SubElement(suite, "properties")
        for name, value in (
            ("distribution", one.distribution),
            ("version", one.version),
            ("target", one.target),
            ("host", one.host),
            ("seed", str(one.seed)),
            *(("never decisive", f"{count.pattern}: {count.clause}") for count in one.never_decisive),
        ):
            SubElement(rows, "property", {"name": name, "value": _text(value)})
        for result in one.results:
            _case(suite, one, result)
    indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + tostring(root, encoding="unicode") + "\n"


def _counts(results: Sequence[CheckResult]) -> dict[str, str]:
    return {
        "tests": str(len(results)),
        "failures": str(sum(not result.passed for result in results)),
        "errors": "0",
        "skipped": str(sum(_is_skipped(result) for result in results)),
        "time": f"{sum(result.seconds for result in results):.3f}",
    }


def _is_skipped(result: CheckResult) -> bool:
    """Whether a check has nothing to show; JUnit has one word for that."""
    return result.verdict in ("skipped", "nothing was checked")


def _case(suite: Element, one: Conformance, result: CheckResult) -> None:
    name = {"classname": _text(f"{one.distribution}.{one.target}"), "name": result.name}
    case = SubElement(suite, "testcase", {**name, "time": f"{result.seconds:.3f}"})
    if _is_skipped(result):
        message = result.skipped or f"{result.verdict}: {result.unchecked}"
        SubElement(case, "skipped", {"message": _text(message)})
    if result.findings:
        first = result.findings[0]
        more = f" (and {len(result.findings) - 1} more)" if len(result.findings) > 1 else ""
        failure = SubElement(case, "failure", {"type": first.part, "message": _text(f"{first.what}{more}")})
        failure.text = _text("\n\n".join(map(_describe, result.findings)))
    if result.notes:
        SubElement(case, "system-out").text = _text("\n".join(result.notes))


def _describe(finding: Finding) -> str:
    lines = [f"[{finding.part}] {finding.what}"]
    lines += [f"where: {finding.where}"] if finding.where else []
    lines += [finding.layer] if finding.layer else []
    lines += [f"repeat: {finding.repeat}"] if finding.repeat else []
    return "\n".join(lines)


def _text(text: str) -> str:
    return _NO_XML.sub("\N{REPLACEMENT CHARACTER}", text)
