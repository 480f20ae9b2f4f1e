"""``uma run``: a model or an artifact on this machine."""

from __future__ import annotations

import argparse
import contextlib
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import UsageError
from ..targets.values import shorten
from .output import Output
from .partition_options import say_cautions
from .profile import estimated, peaks_of, profile_record, show_profile
from .shared_options import (
    add_input_arguments,
    add_model_arguments,
    add_output_arguments,
    make_inputs,
    model_or_artifact,
    read_model,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np

    from ..artifact import Artifact, Peaks, Profile
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
    parser.add_argument(
        "model", metavar="MODEL|ARTIFACT", type=Path, help="a model file, or an artifact, folder or .zip"
    )
    add_model_arguments(parser, "run", target_required=False)
    add_input_arguments(parser)
    parser.add_argument("--outputs", metavar="OUT.npz", type=Path, help="write the outputs under their names")
    parser.add_argument("--repeat", metavar="N", type=int, help="then measure N runs more, and print their median")
    parser.add_argument(
        "--threads",
        metavar="N",
        type=int,
        help="how many threads run it: as many as it is built for (-threads of its host), the default, or fewer",
    )
    parser.add_argument(
        "--profile",
        action="store_true",
        help=f"time every layer instead: medians of --repeat runs (default: {_PROFILED_RUNS}); in an emulator, count "
        "its instructions",
    )
    parser.add_argument(
        "--trace",
        metavar="FILE.json",
        type=Path,
        help="write the calls of a profile as tracks for a trace viewer, Perfetto for example",
    )
    parser.add_argument(
        "--device-trace",
        metavar="FILE",
        type=Path,
        help="write what drivers do to their devices: registers, memory, interrupts, by step; uma trace reads it",
    )
    add_output_arguments(parser)
    parser.set_defaults(run=_run, command="run")


def _run(args: argparse.Namespace, out: Output) -> int:
    from ..reports.chrome_trace import trace
    from ..runtime.files import save_arrays, write_plain

    if args.repeat is not None and args.repeat < 1:
        raise UsageError(f"--repeat {args.repeat} is not positive", hint="give the number of runs, 1 or more")
    if args.device_trace is not None and (args.repeat is not None or args.profile or args.trace is not None):
        raise UsageError(
            "--device-trace records one run, and times are measured without it", hint="run the model twice"
        )
    artifact, costs = _artifact(args, out)
    inputs = make_inputs(args, artifact.record.inputs)
    profiled = args.profile or args.trace is not None
    if args.repeat is not None and artifact.emulator is not None:
        what = f"--repeat measures runs, and those in {artifact.emulator} do not take the time that the machine takes"
        raise UsageError(what, hint="leave it out")
    result: dict[str, Any] = {"name": artifact.name}
    profile: Profile | None = None
    peaks: Mapping[str, Peaks] = {}
    estimates: dict[str, dict[str, Any]] = {}
    simulated = [device.label for device in artifact.record.devices if device.simulated]
    out.step("compile and run")
    if profiled:
        profile = artifact.profile(inputs, args.repeat or _PROFILED_RUNS, threads=args.threads)
        outputs = dict(profile.outputs)
        estimates = estimated(costs, profile)
        peaks = peaks_of(artifact, out) if artifact.is_native else {}
        if profile.uncounted is not None:
            out.complain(f"uma: warning: instructions are not counted: {profile.uncounted}")
        result.update(
            runs=1 if artifact.emulator else args.repeat or _PROFILED_RUNS,
            **profile_record(profile, peaks),
            estimates=estimates,
        )
    else:
        session = artifact.session(trace=args.device_trace, threads=args.threads)
        # What a device that stopped the run has been told is in the trace, too.
        with session if args.device_trace is not None else contextlib.nullcontext():
            outputs = session.run(inputs)
        if args.repeat is not None:
            result.update(runs=args.repeat, median_us=_median_us(session.invoke, args.repeat), simulated=simulated)
    if args.trace is not None and profile is not None:
        write_plain(args.trace, trace(artifact.record, profile), "the trace")
    if args.outputs is not None:
        save_arrays(args.outputs, outputs, "the outputs")

    for name, array in outputs.items():
        out.line(f"{shorten(name, 60)}: {array.dtype}{list(array.shape)} {_excerpt(array)}")
    if "median_us" in result:
        where = f", with a simulator on this machine for {', '.join(simulated)}" if simulated else ""
        out.line(f"median of {args.repeat} runs: {result['median_us']:.1f} us{where}")
    if profile is not None:
        show_profile(profile, peaks, out)
        for label, row in estimates.items():
            out.line(f"{label}: estimated {row['cycles']:,.0f} cycles, counted {row['counted_cycles']:,}")
    values = {n: {"dtype": str(a.dtype), "shape": list(a.shape), "values": a.tolist()} for n, a in outputs.items()}
    out.result({**result, "outputs": values})
    return 0


def _artifact(args: argparse.Namespace, out: Output) -> tuple[Artifact, tuple[RegionCost, ...]]:
    """What to run; and for a profile of what was built just now, what its regions are to cost."""
    if (artifact := model_or_artifact(args, "running")) is not None:
        return artifact, ()
    from ..pipeline.driver import finish_build, start_build
    from ..reports.costs import region_costs

    members, loaded = read_model(args, out)
    build = start_build(loaded, members, progress=out.step)
    artifact = finish_build(build, loaded, out.step)
    out.notes(loaded.notes, loaded.simplified)
    say_cautions(members, out)
    costs = region_costs(build) if args.profile or args.trace else ()
    return artifact, costs


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
