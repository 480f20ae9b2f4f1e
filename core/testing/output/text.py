"""Conformance as text for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from ...hookspecs import Claims
from ..deadline import OUT_OF_TIME
from ..record import CheckResult, ClauseCount, Conformance

__all__ = ["CLAUSE_HEAD", "claims_lines", "clause_rows", "never_lines", "summary", "text_lines"]

CLAUSE_HEAD = ("pattern", "clause", "accepted", "refused", "decisive")
"""What the columns of the table of clauses are."""


def text_lines(report: Conformance, *, verbose: bool = False) -> Iterator[str]:
    """The report on one target, without the table of clauses.

    Args:
        report: what the checks gave.
        verbose: all notes, not only those of what there was no time for.
    """
    yield f"{report.distribution} {report.version}: {report.target}, with {report.host}"
    for line in claims_lines(report.claims):
        yield f"  claims: {line}"
    for result in report.results:
        yield from _result_lines(result, verbose)


def _result_lines(result: CheckResult, verbose: bool) -> Iterator[str]:
    if result.verdict == "skipped":
        yield f"  skipped  {result.name}: {result.skipped}"
        return
    time = f", {result.seconds:.1f} s" if verbose else ""
    if result.verdict == "nothing was checked":
        yield f"  {result.verdict}  {result.name}: {result.unchecked}{time}"
    else:
        yield f"  {result.verdict:<11}  {result.name}: {result.title}{time}"
    for finding in result.findings:
        yield f"    [{finding.part}] {finding.what}"
        if finding.where:
            yield f"      where: {finding.where}"
        for line in finding.layer.splitlines():
            yield f"      | {line}"
        if finding.repeat:
            yield f"      repeat: {finding.repeat}"
    for note in result.notes:
        if verbose or note.startswith(OUT_OF_TIME):
            yield f"      note: {note}"


def claims_lines(claims: Claims) -> list[str]:
    """What is claimed, in sentences."""
    lines = []
    if claims.cycles is None:
        lines.append("nothing of cycles")
    elif claims.cycles == 0:
        lines.append(f"estimated cycles are those that {claims.counter} counts")
    else:
        lines.append(f"estimated cycles are within {claims.cycles:.3g} of those that {claims.counter} counts")
    exact = "results are exact"
    lines.append(exact if not claims.tolerance else f"float results within {claims.tolerance:g} of the largest element")
    lines += [f"fault {code} cannot be reached: {reason}" for code, reason in sorted(claims.faults.items())]
    return lines


def clause_rows(counts: Sequence[ClauseCount]) -> list[tuple[str, ...]]:
    """The table of clauses, below `CLAUSE_HEAD`."""
    return [(one.pattern, one.clause, str(one.accepted), str(one.refused), str(one.decisive)) for one in counts]


def never_lines(report: Conformance) -> Iterator[str]:
    """The clauses that alone refused no layer, a line for each pattern."""
    by_pattern: dict[str, list[str]] = {}
    for count in report.never_decisive:
        by_pattern.setdefault(count.pattern, []).append(count.clause)
    for pattern, clauses in by_pattern.items():
        yield f"never decisive in {pattern}: {', '.join(clauses)}"


def summary(reports: Sequence[Conformance]) -> str:
    """How it ended, in a sentence."""
    count = sum(len(one.findings) for one in reports)
    targets = "1 target" if len(reports) == 1 else f"{len(reports)} targets"
    verdicts = Counter(result.verdict for one in reports for result in one.results)
    skipped, unchecked = verdicts["skipped"], verdicts["nothing was checked"]
    behind = f", {skipped} checks skipped" if skipped > 1 else ", 1 check skipped" if skipped else ""
    behind += f", nothing was checked by {unchecked}" if unchecked else ""
    return f"{targets}: {count or 'no'} finding{'' if count == 1 else 's'}{behind}"
