"""What ``uma run --profile`` tells: time and work of every call, and what devices counted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import ToolchainError
from ..support.formatting import format_percent
from ..targets.values import shorten
from .instruction_counts import show_counts
from .output import Output

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..artifact import Artifact, CallTime, ControlFlowTime, PartCounts, Peaks, Profile
    from ..contract.drivers import Clock
    from ..reports.costs import RegionCost

__all__ = ["estimated", "peaks_of", "profile_record", "show_profile"]


def estimated(costs: Sequence[RegionCost], profile: Profile) -> dict[str, dict[str, Any]]:
    """For each device that counts cycles, and whose plugin estimates them, both; by its label."""
    from ..contract.cost import Cost
    from ..reports.costs import counted_cycles

    estimates: dict[str, dict[str, Any]] = {}
    for label in dict.fromkeys(one.label for one in costs):
        counted = counted_cycles(profile, label)
        known = [one.cost for one in costs if one.label == label]
        total = Cost.total([cost for cost in known if cost is not None]) if None not in known else None
        if counted is not None and total is not None and total.cycles is not None:
            estimates[label] = {"cycles": total.cycles, "counted_cycles": counted}
    return estimates


def peaks_of(artifact: Artifact, out: Output) -> Mapping[str, Peaks]:
    """Of the hosts, by label; nothing, and that is said, where they cannot be measured: the times are good without."""
    try:
        return artifact.peaks()
    except ToolchainError as error:
        out.complain(f"uma: warning: the peak of this machine is not known: {error.what}")
        return {}


def _share_of_peak(call: CallTime, peaks: Mapping[str, Peaks]) -> float | None:
    peak = call.peak_gops(peaks[call.host]) if call.host in peaks else None
    return None if peak is None or call.gops is None else call.gops / peak


def profile_record(profile: Profile, peaks: Mapping[str, Peaks]) -> dict[str, Any]:
    """A profile as plain data, for JSON. Of a model in an emulator there is no time that was measured."""
    is_timed = not profile.is_emulated
    rows = [
        {
            "layers": call.layers,
            "kernel": call.kernel,
            "host": call.host,
            "device": call.device,
            "median_us": None if call.is_simulated or not is_timed else call.median_ns / 1e3,
            "simulator_us": call.median_ns / 1e3 if call.is_simulated and is_timed else None,
            "macs": call.macs,
            "gops": call.gops if is_timed else None,
            "share_of_peak": _share_of_peak(call, peaks),
            "bytes": call.nbytes,
            "constant_bytes": call.constant_bytes,
            "times": call.times,
            "counted": call.counted,
            "instructions": call.instructions,
            "cycles": call.cycles,
            "stack_bytes": call.stack_bytes,
            "parts": call.parts,
        }
        for call in profile.calls
    ]
    clocks = {
        label: {"hz": clock.hz, "seconds": clock.seconds(counted), "utilisation": clock.utilisation(counted)}
        for label, clock in profile.clocks.items()
        if (counted := profile.counters[label])
    }
    return {
        "profile": rows,
        "ways": profile.ways,
        "counters": profile.counters,
        "clocks": clocks,
        "ticks": profile.ticks,
        "peaks": peaks,
        "counts": profile.counts,
        "uncounted": profile.uncounted,
    }


def show_profile(profile: Profile, peaks: Mapping[str, Peaks], out: Output) -> None:
    """A profile for people: a row for each call, by what it was timed or counted, and what the devices counted."""
    if profile.is_emulated:
        show_counts(profile, out)
    else:
        _show_times(profile, peaks, out)
    for label, counted in profile.counters.items():
        if counted:
            clock = profile.clocks.get(label)
            out.line(f"{label} counted in one run:")
            out.table({name: f"{value:,}{_in_time(name, counted, clock)}" for name, value in counted.items()})
            _show_parts([part for call in profile.calls if call.device == label for part in call.parts], clock, out)


def _show_times(profile: Profile, peaks: Mapping[str, Peaks], out: Output) -> None:
    """A row for each call, and by what it was timed."""
    timed = [call for call in profile.calls if not call.is_simulated]
    total_ns = sum(call.median_ns for call in timed)
    rows = []
    for call in profile.calls:
        us, share = f"{call.median_ns / 1e3:.2f}", format_percent(call.median_ns / (total_ns or 1))
        rows.append(
            (
                shorten(", ".join(call.layers), 36),
                shorten(call.kernel, 24),
                call.device or call.host,
                *((str(call.times),) if profile.ways else ()),
                *(("-", "-") if call.is_simulated else (us, share)),
                str(call.macs) if call.macs else "-",
                "-" if call.gops is None else f"{call.gops:.1f}",
                "-" if (reached := _share_of_peak(call, peaks)) is None else format_percent(reached),
                str(call.nbytes),
            )
        )
    macs = sum((call.macs or 0) * call.times for call in timed)
    gops = f"{2 * macs / total_ns:.1f}" if macs and total_ns else "-"
    all_macs = sum(call.times * (call.macs or 0) for call in profile.calls)
    all_bytes = sum(call.times * call.nbytes for call in profile.calls)
    at_peak_ns = sum((_share_of_peak(call, peaks) or 0.0) * call.median_ns for call in timed)
    of_peak = format_percent(at_peak_ns / total_ns) if at_peak_ns else "-"
    total = (f"{total_ns / 1e3:.2f}", "100.0%", str(all_macs) if all_macs else "-", gops, of_peak, str(all_bytes))
    times = ("times",) if profile.ways else ()
    head = ("layer", "kernel", "on", *times, "us", "share", "MACs", "GOP/s", "of peak", "bytes")
    out.columns(head, [*rows, ("all", "", "", *("" for _ in times), *total)])
    if profile.ways:
        out.line("branches and loops, with all that is within them:")
        out.columns(("layer", "what", "us", "share"), [_shown_way(one, total_ns) for one in profile.ways])
    for label in dict.fromkeys(call.device for call in profile.calls if call.is_simulated):
        spent_ns = sum(call.median_ns for call in profile.calls if call.device == label)
        out.line(
            f"{label} is simulated: the {spent_ns / 1e3:.2f} us of its calls are the simulator's, not the device's"
        )
    for label, one in peaks.items():
        kinds = {"float32": one.float32_gops, "int8": one.int8_gops}
        known = ", ".join(f"{peak:.1f} GOP/s {kind}" for kind, peak in kinds.items() if peak is not None)
        out.line(f"peak of {label}, on one core: {known or 'not known of this machine'}")
    if profile.ticks is not None:
        ticks = profile.ticks
        out.line(
            f"timed by {ticks.what}: {ticks.hz / 1e6:.0f} MHz; each call has one reading in it, {ticks.cost_ns:.1f} ns"
        )


def _shown_way(one: ControlFlowTime, total_ns: float) -> tuple[str, ...]:
    """A row for branches, or for loops, of the same layers."""
    if one.way == "loop":
        what = f"{one.times:,} turns" + (f" of {one.entered:,} loops" if one.entered != 1 else "")
    else:
        what = f"taken {one.times:,} times of {one.entered:,}"
    layers = shorten(", ".join(one.layers), 36) or one.way
    return layers, what, f"{one.median_ns / 1e3:.2f}", format_percent(one.median_ns / (total_ns or 1))


def _in_time(name: str, counted: Mapping[str, int], clock: Clock | None) -> str:
    """What a counter is in time, or as a share of the cycles, behind its value."""
    if clock is None or name not in clock.counters:
        return ""
    if name == clock.cycles:
        return f" ({clock.seconds(counted) * 1e3:.3f} ms at {clock.hz:g} Hz)"
    share = clock.utilisation(counted)
    return "" if share is None else f" ({format_percent(share)} of {clock.cycles})"


def _show_parts(parts: Sequence[PartCounts], clock: Clock | None, out: Output) -> None:
    """What was counted of parts of calls, a row for each; with time and utilisation where cycles are among it."""
    if not parts:
        return
    names = list(parts[0].counted)
    timed = clock if clock is not None and clock.cycles in names else None
    busy = timed is not None and timed.busy in names
    rows = []
    for part in parts:
        row = [shorten(part.layer, 32), *(str(part.counted[name]) for name in names)]
        if timed is not None:
            row.append(f"{timed.seconds(part.counted) * 1e3:.3f}")
            share = timed.utilisation(part.counted) if busy else None
            row += [] if not busy else ["" if share is None else format_percent(share)]
        rows.append(tuple(row))
    out.columns(("layer", *names, *(["ms"] if timed else []), *(["utilisation"] if busy else [])), rows)
