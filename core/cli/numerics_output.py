"""The text of commands about results that differ from the model's arithmetic, by the user's opt-in."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from ..support.formatting import format_difference, format_percent
from ..targets.values import shorten
from .output import Output

if TYPE_CHECKING:
    from ..reports.explain import Explanation
    from ..verification.numerics_drift import DifferenceCheck
    from ..verification.results import Verification

__all__ = ["describe_check", "say_allowed", "say_checks"]


def say_allowed(explanation: Explanation, out: Output) -> None:
    """Print which results may differ and by how much; then which opt-ins are missing, and their effect."""
    options = " ".join(f"--allow {text}" for text in explanation.allowed)
    if explanation.differences:
        out.line(f"with {options} results differ from the model's arithmetic, for the same operands by at most:")
        rows = [
            (
                one.opt_in,
                shorten(", ".join(one.layers), 60) or "-",
                one.device or "-",
                f"{one.what}, {one.how}",
                one.plugin or "-",
                one.bound,
            )
            for one in explanation.differences
        ]
        out.columns(("opt-in", "layers", "target", "what differs", "plugin", "by at most"), rows)
    elif explanation.allowed:
        out.line(f"with {options} no result differs from the model's arithmetic: no layer and no pass makes use of it")
    for offer in explanation.offers:
        for one in offer.differences:
            out.line(
                f"pass {one.opt_in} ({one.plugin}) is not run: the {one.what} would be off by at most {one.bound}; "
                f"--allow {one.opt_in}=declared runs it"
            )
        if offer.offloaded is not None:
            noun = "MACs" if explanation.macs else "ops"
            options = " ".join(f"--allow {text}" for text in offer.options)
            share = format_percent(offer.offloaded)
            out.line(f"accelerators would have {share} of the {noun} with {options}")


def say_checks(verification: Verification, out: Output) -> None:
    """Print the measured differences of each opt-in, with ``-v`` of each match and region, and those of the outputs."""
    for opt_in, group in groupby(verification.allowed, lambda check: check.bound.opt_in):
        checks = list(group)
        if out.verbose:
            for check in checks:
                out.line(f"  {describe_check(check)}: {_measured([check])}, bound {check.bound.bound}")
        count = f"{len(checks)} result{'s' * (len(checks) > 1)}"
        beyond = sum(not check.ok for check in checks)
        verdict = f", {beyond} beyond their bounds" if beyond else ", all within their bounds"
        verdict = verdict if any(check.compared for check in checks) else ""
        out.line(f"--allow {opt_in}, {count} compared with those without it: {_measured(checks)}{verdict}")
    for drift in verification.drifts:
        share = f"{_percent(drift.equal, drift.compared)} of {drift.compared} elements equal"
        out.line(
            f"{drift.role} {shorten(drift.name, 60)} compared with the model's arithmetic: {share}, off by at most "
            f"{drift.largest:.6g} (printed, not judged)"
        )


def describe_check(check: DifferenceCheck) -> str:
    """Return the name of what was compared: layers, a region, or the model."""
    if check.layers:
        return f"layer {shorten(', '.join(check.layers), 200)}"
    return f"region {check.region}" if check.region else "the model"


def _measured(checks: list[DifferenceCheck]) -> str:
    compared, equal = sum(check.compared for check in checks), sum(check.equal for check in checks)
    if not compared:
        return "not compared"
    largest = format_difference(max(check.steps for check in checks), max(check.relative for check in checks), " and ")
    return f"{_percent(equal, compared)} of {compared} elements equal, off by at most {largest}"


def _percent(equal: int, compared: int) -> str:
    return format_percent(equal / compared, digits=3)
