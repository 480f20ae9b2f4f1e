"""What ``uma run --profile`` tells of a model in an emulator: the instructions of every call, by layer and function."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..support.formatting import format_percent
from ..targets.values import shorten
from .output import Output

if TYPE_CHECKING:
    from ..artifact import Profile

__all__ = ["show_counts"]

_SHOWN_FUNCTIONS = 12


def show_counts(profile: Profile, out: Output) -> None:
    """Print what was counted: a row for each call, the functions of C that took most, and what was estimated."""
    counts = profile.counts
    if counts is None:
        return
    rows = []
    for call in profile.calls:
        known = call.instructions is not None and call.cycles is not None
        rows.append(
            (
                shorten(", ".join(call.layers), 36),
                shorten(call.kernel, 24),
                call.device or call.host,
                *_numbers(call.instructions or 0, call.cycles or 0, call.macs, profile, known),
                "-" if call.stack_bytes is None else str(call.stack_bytes),
            )
        )
    known_calls = [call for call in profile.calls if call.instructions is not None]
    if known_calls:
        rest = counts.instructions - sum(call.instructions or 0 for call in known_calls)
        rest_cycles = counts.cycles - sum(call.cycles or 0 for call in known_calls)
        rows.append(("around the calls", "", "", *_numbers(rest, rest_cycles, None, profile), "-"))
    macs = sum(call.macs or 0 for call in profile.calls if not call.is_simulated)
    rows.append(("all", "", "", *_numbers(counts.instructions, counts.cycles, macs, profile), "-"))
    head = ("layer", "kernel", "on", "instructions", "share", "MACs", "per MAC", "~cycles", "~us", "stack")
    out.columns(head, rows)
    if not known_calls:
        out.line("calls are counted together: the interpreter of branches and loops does not tell them apart")
    shown = list(counts.functions.items())[:_SHOWN_FUNCTIONS]
    out.line("by function of C:")
    out.table({shorten(name, 60): f"{count:,}" for name, count in shown})
    if len(counts.functions) > len(shown):
        out.line(f"and {len(counts.functions) - len(shown)} more functions")
    out.line(
        f"instructions are counted in {counts.runner}; cycles are a rough estimate by their kinds, without pipeline, "
        f"caches and wait states, and times these at {counts.clock_hz:g} Hz (-clock_hz)"
    )
    if counts.stack_bytes is not None:
        out.line(f"the run took {counts.stack_bytes:,} bytes of stack")


def _numbers(instructions: int, cycles: int, macs: int | None, profile: Profile, known: bool = True) -> tuple[str, ...]:
    assert profile.counts is not None
    if not known:
        return ("-", "-", str(macs) if macs else "-", "-", "-", "-")
    return (
        str(instructions),
        format_percent(instructions / (profile.counts.instructions or 1)),
        str(macs) if macs else "-",
        f"{instructions / macs:.2f}" if macs else "-",
        str(cycles),
        f"{cycles / profile.counts.clock_hz * 1e6:.1f}",
    )
