"""``uma run``: a model or an artifact on this machine."""

from __future__ import annotations

import argparse
import dataclasses
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import ToolchainError, UsageError
from ..target.values import shorten
from .common import (
    add_input_arguments,
    add_model_arguments,
    add_output_arguments,
    make_inputs,
    read_model,
)
from .output import Output

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np

    from ..artifact import Artifact, CallTime, PartCounts, Peaks, Profile
    from ..contract.drivers import Clock
    from ..lowering.members import Members
    from ..reports.costs import RegionCost

__all__ = ["add"]

_SHOWN_ELEMENTS = 16
_PROFILED_RUNS = 10


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "run",
        help="run a model",
        description="Run a model or an artifact on this machine. This executes its code: run only what you trust.",
        allow_abbrev=False,
    )
    parser.add_argument("model", metavar="MODEL|ARTIFACT", type=Path, help="a model file, or a folder of uma build")
    add_model_arguments(parser, target_required=False)
    add_input_arguments(parser)
    parser.add_argument("--outputs", metavar="OUT.npz", type=Path, help="write the outputs under their names")
    parser.add_argument("--repeat", metavar="N", type=int, help="then measure N runs more, and print their median")
    parser.add_argument(
        "--profile",
        action="store_true",
        help=f"time every layer instead: medians of --repeat runs (default: {_PROFILED_RUNS})",
    )
    add_output_arguments(parser)
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace, out: Output) -> int:
    from ..lowering.blame import blaming_sources
    from ..runtime.files import save_arrays

    if args.repeat is not None and args.repeat < 1:
        raise UsageError(f"--repeat {args.repeat} is not positive")
    artifact, members, costs = _artifact(args, out)
    inputs = make_inputs(args, artifact.record.inputs)
    if args.repeat is not None and not args.profile and artifact.emulator is not None:
        what = f"--repeat measures runs, and those in {artifact.emulator} do not take the time that the machine takes"
        raise UsageError(what, hint="leave it out")
    result: dict[str, Any] = {"name": artifact.name}
    profile: Profile | None = None
    peaks: Mapping[str, Peaks] = {}
    estimates: dict[str, dict[str, Any]] = {}
    simulated = [device.label for device in artifact.record.devices if device.simulated]
    out.step("compile and run")
    if args.profile:
        with blaming_sources(members):
            profile = artifact.profile(inputs, args.repeat or _PROFILED_RUNS)
        outputs = dict(profile.outputs)
        estimates = _estimates(costs, profile)
        peaks = _peaks(artifact, out)
        result.update(runs=args.repeat or _PROFILED_RUNS, **_as_json(profile, peaks), estimates=estimates)
    else:
        with blaming_sources(members):
            session = artifact.session()
        outputs = session.run(inputs)
        if args.repeat is not None:
            result.update(runs=args.repeat, median_us=_median_us(session.invoke, args.repeat), simulated=simulated)
    if args.outputs is not None:
        save_arrays(args.outputs, outputs, "the outputs")

    for name, array in outputs.items():
        out.line(f"{shorten(name, 60)}: {array.dtype}{list(array.shape)} {_excerpt(array)}")
    if "median_us" in result:
        where = f", with a simulator on this machine for {', '.join(simulated)}" if simulated else ""
        out.line(f"median of {args.repeat} runs: {result['median_us']:.1f} us{where}")
    if profile is not None:
        _show(profile, peaks, out)
        for label, row in estimates.items():
            out.line(f"{label}: estimated {row['cycles']:,.0f} cycles, counted {row['counted_cycles']:,}")
    values = {n: {"dtype": str(a.dtype), "shape": list(a.shape), "values": a.tolist()} for n, a in outputs.items()}
    out.result({**result, "outputs": values})
    return 0


def _artifact(args: argparse.Namespace, out: Output) -> tuple[Artifact, Members | None, tuple[RegionCost, ...]]:
    """What to run; where it was built just now, the targets; and for a profile what their regions are to cost."""
    if os.path.isdir(args.model):
        from ..artifact import load

        if args.target or args.name or args.shape or args.state or args.constant or args.pin:
            hint = "--target, --name, --shape, --constant, --pin and --state go with model files"
            raise UsageError("an artifact is built already", hint=hint)
        return load(args.model), None, ()
    try:
        os.stat(args.model)
    except FileNotFoundError as error:
        hint = "name a model file, or a folder that uma build wrote"
        raise UsageError(f"there is no file {args.model}", hint=hint) from error
    except (OSError, ValueError) as error:  # ValueError: there is a null character in the path
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise UsageError(f"{str(args.model)!r} cannot be read: {why}") from error
    if not args.target:
        raise UsageError("running a model file needs --target", hint="for example --target c")
    from ..pipeline.driver import finish_build, start_build
    from ..reports.costs import region_costs

    members, loaded = read_model(args, out)
    build = start_build(loaded, members, progress=out.step)
    artifact = finish_build(build, loaded, out.step)
    out.notes(loaded.notes)
    costs = region_costs(build) if args.profile else ()
    return artifact, members, costs


def _estimates(costs: Sequence[RegionCost], profile: Profile) -> dict[str, dict[str, Any]]:
    """For each device that counts cycles, and whose plugin estimates them, both; by its label."""
    from ..contract.cost import Cost
    from ..reports.costs import counted_cycles

    found: dict[str, dict[str, Any]] = {}
    for label in dict.fromkeys(one.label for one in costs):
        counted = counted_cycles(profile, label)
        known = [one.cost for one in costs if one.label == label]
        total = Cost.total([cost for cost in known if cost is not None]) if None not in known else None
        if counted is not None and total is not None and total.cycles is not None:
            found[label] = {"cycles": total.cycles, "counted_cycles": counted}
    return found


def _median_us(call: Any, repeat: int) -> float:
    from statistics import median

    times_ns = []
    for _ in range(repeat):
        start = time.perf_counter_ns()
        call()
        times_ns.append(time.perf_counter_ns() - start)
    return median(times_ns) / 1e3


def _excerpt(array: np.ndarray) -> str:
    flat = array.reshape(-1)
    shown = " ".join(f"{value:.6g}" for value in flat[:_SHOWN_ELEMENTS].tolist())
    return f"{shown} ... ({flat.size - _SHOWN_ELEMENTS} more)" if flat.size > _SHOWN_ELEMENTS else shown


def _peaks(artifact: Artifact, out: Output) -> Mapping[str, Peaks]:
    """Of the hosts, by label; nothing, and that is said, where they cannot be measured: the times are good without."""
    try:
        return artifact.peaks()
    except ToolchainError as error:
        out.complain(f"uma: warning: the peak of this machine is not known: {error.what}")
        return {}


def _share_of_peak(call: CallTime, peaks: Mapping[str, Peaks]) -> float | None:
    peak = call.peak_gops(peaks[call.host]) if call.host in peaks else None
    return None if peak is None or call.gops is None else call.gops / peak


def _as_json(profile: Profile, peaks: Mapping[str, Peaks]) -> dict[str, Any]:
    rows = [
        {
            "layers": list(call.layers),
            "kernel": call.kernel,
            "host": call.host,
            "device": call.device,
            "median_us": None if call.is_simulated else call.median_ns / 1e3,
            "simulator_us": call.median_ns / 1e3 if call.is_simulated else None,
            "macs": call.macs,
            "gops": call.gops,
            "share_of_peak": _share_of_peak(call, peaks),
            "bytes": call.nbytes,
            "constant_bytes": call.constant_bytes,
            "counted": dict(call.counted),
            "parts": [{"layer": part.layer, "counted": dict(part.counted)} for part in call.parts],
        }
        for call in profile.calls
    ]
    clocks = {
        label: {"hz": clock.hz, "seconds": clock.seconds(counted), "utilisation": clock.utilisation(counted)}
        for label, clock in profile.clocks.items()
        if (counted := profile.counters[label])
    }
    counters = {label: dict(counted) for label, counted in profile.counters.items()}
    return {
        "profile": rows,
        "counters": counters,
        "clocks": clocks,
        "ticks": None if profile.ticks is None else dataclasses.asdict(profile.ticks),
        "peaks": {label: dataclasses.asdict(one) for label, one in peaks.items()},
    }


def _show(profile: Profile, peaks: Mapping[str, Peaks], out: Output) -> None:
    timed = [call for call in profile.calls if not call.is_simulated]
    total_ns = sum(call.median_ns for call in timed)
    rows = []
    for call in profile.calls:
        us, share = f"{call.median_ns / 1e3:.2f}", f"{call.median_ns / (total_ns or 1):.1%}"
        rows.append(
            (
                shorten(", ".join(call.layers), 48),
                shorten(call.kernel, 32),
                call.device or call.host,
                *(("-", "-") if call.is_simulated else (us, share)),
                str(call.macs) if call.macs else "-",
                "-" if call.gops is None else f"{call.gops:.1f}",
                "-" if (reached := _share_of_peak(call, peaks)) is None else f"{reached:.1%}",
                str(call.nbytes),
            )
        )
    macs = sum(call.macs or 0 for call in timed)
    gops = f"{2 * macs / total_ns:.1f}" if macs and total_ns else "-"
    all_macs, all_bytes = (sum(sizes) for sizes in zip(*((c.macs or 0, c.nbytes) for c in profile.calls), strict=True))
    at_peak_ns = sum((_share_of_peak(call, peaks) or 0.0) * call.median_ns for call in timed)
    of_peak = f"{at_peak_ns / total_ns:.1%}" if at_peak_ns else "-"
    total = (f"{total_ns / 1e3:.2f}", "100.0%", str(all_macs) if all_macs else "-", gops, of_peak, str(all_bytes))
    head = ("layer", "kernel", "on", "us", "share", "MACs", "GOP/s", "of peak", "bytes")
    out.columns(head, [*rows, ("all", "", "", *total)])
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
    for label, counted in profile.counters.items():
        if counted:
            clock = profile.clocks.get(label)
            out.line(f"{label} counted in one run:")
            out.table({name: f"{value:,}{_in_time(name, counted, clock)}" for name, value in counted.items()})
            _show_parts([part for call in profile.calls if call.device == label for part in call.parts], clock, out)


def _in_time(name: str, counted: Mapping[str, int], clock: Clock | None) -> str:
    """What a counter is in time, or as a share of the cycles, behind its value."""
    if clock is None or name not in clock.counters:
        return ""
    if name == clock.cycles:
        return f" ({clock.seconds(counted) * 1e3:.3f} ms at {clock.hz:g} Hz)"
    share = clock.utilisation(counted)
    return "" if share is None else f" ({share:.1%} of {clock.cycles})"


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
            row += [] if not busy else ["" if share is None else f"{share:.1%}"]
        rows.append(tuple(row))
    out.columns(("layer", *names, *(["ms"] if timed else []), *(["utilisation"] if busy else [])), rows)
