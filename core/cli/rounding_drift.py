"""What commands say of layers that are rounded otherwise by consent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..support.formatting import format_percent
from ..targets.values import shorten
from .output import Output

if TYPE_CHECKING:
    from ..reports.explain import Explanation
    from ..verification.results import Verification

__all__ = ["part", "say_consent", "say_requantized"]


def part(equal: int, compared: int) -> str:
    """Return ``equal / compared`` as a percentage with three digits after the point."""
    return format_percent(equal / compared, digits=3)


def say_consent(found: Explanation, out: Output) -> None:
    """What is rounded otherwise by consent, layer by layer; or what accelerators would have with it."""
    if found.said:
        options = " ".join(f"--requantize {said}" for said in found.said)
        if not found.consented:
            out.line(f"with {options} nothing is rounded otherwise: no accelerator takes more")
            return
        count = f"{len(found.consented)} layer{'s are' if len(found.consented) > 1 else ' is'}"
        out.line(
            f"with {options} {count} rounded otherwise than the model says; off, for the same operands, by at most:"
        )
        rows = [
            (shorten(", ".join(one.layers), 60), one.owner, f"{one.what}, {one.rounding}", _steps(one.bound))
            for one in found.consented
        ]
        out.columns(("layer", "target", "rounds", "off by"), rows)
    elif found.with_consent is not None:
        of_what = "MACs" if found.macs else "ops"
        share = format_percent(found.with_consent)
        out.line(f"accelerators would have {share} of the {of_what} with --requantize fixed-point")


def _steps(bound: int) -> str:
    return "nothing" if bound == 0 else f"{bound} step{'s' * (bound > 1)}"


def say_requantized(found: Verification, out: Output) -> None:
    """Of each such layer, and of the outputs, how they are beside what the model says."""
    checks = found.consented
    if not checks:
        return
    measured = [check for check in checks if check.compared]
    if out.verbose:
        for check in checks:
            told = f"{part(check.equal, check.compared)} of the elements equal, at most {check.largest} apart"
            told = told if check.compared else "not compared, for a pass rewrote its region"
            out.line(f"  {shorten(', '.join(check.layers), 60)}: {told}, bound {check.bound}")
    compared, equal = sum(check.compared for check in measured), sum(check.equal for check in measured)
    largest = max((check.largest for check in measured), default=0)
    beyond = sum(not check.ok for check in checks)
    count = f"{len(checks)} layer{'s' * (len(checks) > 1)} rounded otherwise by consent"
    if not compared:
        out.line(f"{count}: not compared with what the model says")
    else:
        verdict = f"{beyond} beyond what they may" if beyond else "all within their bounds"
        out.line(
            f"{count}, each beside what the model says: {part(equal, compared)} of {compared} elements equal, at most "
            f"{largest} step{'s' * (largest != 1)} apart, {verdict}"
        )
    for drift in found.drifts:
        share = f"{part(drift.equal, drift.compared)} of {drift.compared} elements equal"
        out.line(
            f"{drift.role} {shorten(drift.name, 60)} beside what the model says: {share}, at most {drift.largest:.6g} "
            "apart (told, not judged)"
        )
