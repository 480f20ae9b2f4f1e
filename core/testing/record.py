"""What a check of conformance gives: findings, counts of clauses, and what was claimed; typed, and as JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from ..errors import VerificationError
from ..support.json_record import json_schema_of, to_json

if TYPE_CHECKING:
    from ..hookspecs import Claims

__all__ = [
    "PARTS",
    "CheckResult",
    "ClauseCount",
    "Conformance",
    "Finding",
    "Part",
    "conformance_record",
    "conformance_schema",
]

Part = Literal["registration", "pattern", "lowering", "machine", "driver", "cost", "packaging", "documentation"]
"""A part of a plugin, as authors name them."""

PARTS: dict[Part, str] = {
    "registration": "its kinds, their attributes, and hooks that give the same each time",
    "pattern": "what it takes: patterns and their clauses",
    "lowering": "the loops, streams or calls that it makes of what it takes",
    "machine": "its simulator, or the machine text that it contradicts",
    "driver": "the C that drives the device, and its faults",
    "cost": "what it says that layers take",
    "packaging": "the distribution: its files, licence, requirements and types",
    "documentation": "README, help texts and the table of faults",
}
"""What each part is."""


@dataclass(frozen=True)
class Finding:
    """Something that is wrong with a plugin.

    Args:
        part: which part of the plugin is wrong.
        check: the check that found it, ``layers``, ``registration.attributes``.
        what: one sentence: what is wrong, with numbers.
        where: pattern, attribute, file and line, target; empty where there is no place.
        layer: the text of the smallest model that shows it; empty where it needs none.
        repeat: one command that shows it again.
    """

    part: Annotated[Part, "which part of the plugin is wrong"]
    check: Annotated[str, "the check that found it"]
    what: Annotated[str, "what is wrong, in a sentence"]
    where: Annotated[str, "pattern, attribute, file and line, or target; may be empty"] = ""
    layer: Annotated[str, "the text form of the smallest model that shows it; may be empty"] = ""
    repeat: Annotated[str, "a command that shows it again; may be empty"] = ""

    def __str__(self) -> str:
        where = f" ({self.where})" if self.where else ""
        return f"{self.part}: {self.what}{where}"


@dataclass(frozen=True)
class ClauseCount:
    """How often a clause of a pattern let a layer pass.

    Args:
        pattern, clause: their names.
        accepted: layers for which it held.
        refused: layers for which it did not.
        decisive: layers that it alone refused.
    """

    pattern: Annotated[str, "the pattern's name"]
    clause: Annotated[str, "the clause's name"]
    accepted: Annotated[int, "layers for which it held"]
    refused: Annotated[int, "layers for which it did not hold"]
    decisive: Annotated[int, "layers that it alone refused"]


@dataclass(frozen=True)
class CheckResult:
    """What one check gave.

    Args:
        name: of the check: ``layers``.
        title: what it looks at, in words.
        findings: what is wrong.
        notes: what it did, and what it could not do, in sentences.
        skipped: why it did nothing at all; empty where it did.
        seconds: how long it took.
        clauses: how often each clause decided, where the check made layers.
        unchecked: why it ran and found nothing to check; empty where there was something.
    """

    name: Annotated[str, "of the check"]
    title: Annotated[str, "what it looks at"]
    findings: tuple[Finding, ...] = ()
    notes: Annotated[tuple[str, ...], "what it did and could not do, in sentences"] = ()
    skipped: Annotated[str, "why it did nothing; empty where it did"] = ""
    seconds: Annotated[float, "how long it took"] = 0.0
    clauses: tuple[ClauseCount, ...] = ()
    unchecked: Annotated[str, "why there was nothing to check; empty where there was something"] = ""

    @property
    def passed(self) -> bool:
        """Whether nothing is wrong; true of what was skipped, too."""
        return not self.findings

    @property
    def verdict(self) -> str:
        """The outcome in a few words: ``ok``, ``2 findings``, ``skipped`` or ``nothing was checked``."""
        count = len(self.findings)
        if count:
            return "a finding" if count == 1 else f"{count} findings"
        return "skipped" if self.skipped else "nothing was checked" if self.unchecked else "ok"

    def raise_for_findings(self) -> None:
        """Nothing where there is no finding.

        Raises:
            VerificationError: there is one at least; the text has all of them, with the commands that repeat them.
        """
        if not self.findings:
            return
        lines = [f"check {self.name} has {len(self.findings)} finding{'s' if len(self.findings) > 1 else ''}"]
        for finding in self.findings:
            lines.append(f"- {finding}")
            lines += [f"    {line}" for line in finding.layer.splitlines()]
            lines += [f"    repeat: {finding.repeat}"] if finding.repeat else []
        raise VerificationError("\n".join(lines))


@dataclass(frozen=True)
class Conformance:
    """What all checks gave of one target.

    Args:
        distribution, version: of the plugin.
        target: the text of the target that was checked.
        claims: what its plugin claims of it.
        results: of the checks, in the order in which they ran.
        host: the text of the host beside it.
        seed: of what was drawn at random.
    """

    distribution: str
    version: str
    target: str
    claims: Claims
    results: tuple[CheckResult, ...]
    host: str = ""
    seed: int = 0

    @property
    def clauses(self) -> tuple[ClauseCount, ...]:
        """How often each clause decided."""
        return tuple(count for result in self.results for count in result.clauses)

    @property
    def never_decisive(self) -> tuple[ClauseCount, ...]:
        """The clauses that alone refused no layer: nothing shows that they are needed, or right."""
        return tuple(count for count in self.clauses if not count.decisive)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What is wrong, in the order in which it was found."""
        return tuple(finding for result in self.results for finding in result.findings)

    @property
    def passed(self) -> bool:
        """Whether nothing is wrong."""
        return not self.findings


@dataclass(frozen=True)
class _Fault:
    code: Annotated[int, "of a fault that no check can reach"]
    reason: Annotated[str, "why"]


@dataclass(frozen=True)
class _Claims:
    targets: Annotated[tuple[str, ...], "further targets that are checked"]
    cycles: Annotated[float | None, "share by which counted cycles may differ from estimated ones; null: not claimed"]
    counter: Annotated[str, "the counter that has the cycles"]
    tolerance: Annotated[float, "of float results, a share of the largest magnitude"]
    faults: tuple[_Fault, ...]
    samples: Annotated[bool, "whether it gives layers of its own"]


@dataclass(frozen=True)
class _Record:
    distribution: Annotated[str, "of the plugin"]
    version: Annotated[str, "of the distribution"]
    target: Annotated[str, "what was checked, as text"]
    host: Annotated[str, "the host beside it, as text"]
    seed: Annotated[int, "of what was drawn at random"]
    passed: Annotated[bool, "whether there is no finding"]
    claims: _Claims
    results: tuple[CheckResult, ...]
    never_decisive: Annotated[tuple[str, ...], "clauses that alone refused no layer, as pattern: clause"]


def conformance_record(report: Conformance) -> dict[str, Any]:
    """The same as plain data, for JSON, as `conformance_schema` has it."""
    claims = report.claims
    faults = tuple(_Fault(code, reason) for code, reason in sorted(claims.faults.items()))
    claimed = _Claims(
        claims.targets, claims.cycles, claims.counter, claims.tolerance, faults, claims.samples is not None
    )
    never = tuple(f"{count.pattern}: {count.clause}" for count in report.never_decisive)
    record = _Record(
        report.distribution,
        report.version,
        report.target,
        report.host,
        report.seed,
        report.passed,
        claimed,
        report.results,
        never,
    )
    data: dict[str, Any] = to_json(record)
    return data


def conformance_schema() -> dict[str, Any]:
    """The JSON Schema of what `conformance_record` gives."""
    return json_schema_of(_Record)
