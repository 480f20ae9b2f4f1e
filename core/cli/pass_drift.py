"""What commands say of plugins' passes that change results within a tolerance, by consent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..support.formatting import format_percent
from .output import Output
from .rounding_drift import part

if TYPE_CHECKING:
    from ..reports.explain import Explanation
    from ..verification.results import Verification

__all__ = ["say_passes", "say_tolerated"]


def say_passes(found: Explanation, out: Output) -> None:
    """The passes that change what the model says; or what those that are not run would bring."""
    for one in found.tolerated:
        out.line(f"pass {one.name} ({one.plugin}) changes what {one.of_what}, by at most {one.tolerance}")
    for one in found.withheld:
        out.line(
            f"pass {one.name} ({one.plugin}) is not run: what {one.of_what} would be off by at most "
            f"{one.tolerance}; --tolerate {one.name} runs it"
        )
    if found.with_tolerance is not None:
        of_what = "MACs" if found.macs else "ops"
        share = format_percent(found.with_tolerance)
        options = " ".join(f"--tolerate {one.name}" for one in found.withheld)
        out.line(f"accelerators would have {share} of the {of_what} with {options}")


def say_tolerated(found: Verification, out: Output) -> None:
    """Of each such pass how what it gave is beside what it was given."""
    for check in found.tolerated:
        of = f"of region {check.region}" if check.region else "of the model"
        if not check.compared:
            out.line(f"pass {check.step}: the results {of} were not compared")
            continue
        verdict = f"within {check.tolerance}" if check.ok else f"beyond {check.tolerance}"
        out.line(
            f"pass {check.step}, results {of} beside those without it: {part(check.equal, check.compared)} of "
            f"{check.compared} elements equal, off by at most {check.largest}, {verdict}"
        )
