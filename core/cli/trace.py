"""``uma trace``: what drivers did to their devices, and whether another implementation does the same."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import UsageError, VerificationError
from ..support.json_record import to_json
from ..targets.values import shorten
from .output import Output
from .shared_options import add_output_arguments, add_plugin_arguments, plugin_host, target_text

if TYPE_CHECKING:
    from ..contract.devices import Device
    from ..contract.drivers import Register
    from ..runtime.traces import Entry, Trace, TraceLocation
    from ..verification.trace_replay import Difference

__all__ = ["add"]


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "trace",
        help="read a trace of devices, or play it back on another implementation",
        description="Show what drivers did to their devices, as uma run --device-trace has recorded it, by steps of "
        "the model; -v shows each access. With --target it is done again to that implementation, and what is read from "
        "registers and written to memory is compared: the first difference is an error. This runs the code of the "
        "target's plugin.",
        allow_abbrev=False,
    )
    parser.add_argument("trace", metavar="TRACE", type=Path, help="a file of uma run --device-trace")
    parser.add_argument("--target", metavar="T", help="play it back on this accelerator: 'KIND -impl=NAME'")
    parser.add_argument("--device", metavar="LABEL", help="which device of the trace, where it has several of the kind")
    add_plugin_arguments(parser)
    add_output_arguments(parser)
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace, out: Output) -> int:
    from ..runtime.traces import read_trace

    trace = read_trace(args.trace)
    if args.target is None and args.device is not None:
        raise UsageError("--device chooses what is played back, and there is no --target", hint="leave it out")
    device = None if args.target is None else _device(args)
    names = {} if device is None else {one.offset: one for one in device.runtime.registers}
    out.line(f"model {trace.model}: {', '.join(f'{one.label} ({one.kind})' for one in trace.devices) or 'no device'}")
    rows = _rows(trace)
    if out.verbose:
        _show_entries(trace, names, out)
    elif device is None:
        for place, row in rows:
            out.line(f"{_place(place)}: {', '.join(f'{count:,} {what}' for what, count in row.items())}")
    record: dict[str, Any] = {
        "model": trace.model,
        "devices": trace.devices,
        "places": [{**to_json(place), "accesses": row} for place, row in rows],
    }
    if device is None:
        out.result(record)
        return 0
    return _play(args, trace, device, record, out)


def _play(args: argparse.Namespace, trace: Trace, device: Device, record: dict[str, Any], out: Output) -> int:
    from ..verification.trace_replay import replay

    out.step(f"play it back on {device.kind}, {device.impl}")
    result = replay(trace, args.device, device)
    difference = result.difference
    out.line(
        f"{device.label} ({device.kind}, {device.impl}): {result.writes:,} writes, {result.reads:,} reads and "
        f"{result.nbytes:,} bytes of memory compared, {result.polls:,} waits ended as before, "
        f"{result.uncompared:,} counts not compared"
    )
    out.result({**record, "target": str(args.target), "difference": difference})
    if difference is not None:
        raise _error(trace, difference)
    return 0


def _error(trace: Trace, difference: Difference) -> VerificationError:
    digits = 2 if difference.what.startswith("byte") else 8
    expected, got = (f"{value:#0{digits + 2}x}" for value in (difference.expected, difference.got))
    more = f"; so do {difference.count - 1:,} more of these" if difference.count > 1 else ""
    return VerificationError(
        f"the first difference is {difference.what}: {got}, and {expected} in the trace{more}",
        where=f"{_place(difference.place)}; {trace.name}, line {difference.line}",
        hint=difference.hint or None,
    )


def _device(args: argparse.Namespace) -> Device:
    """The accelerator that is asked for, without a host."""
    from ..contract.devices import Device
    from ..lowering.build_targets import BuildTarget
    from ..targets import parse_target
    from ..targets.kind import COMPOSITE

    host = plugin_host(args)
    target = parse_target(target_text(args.target), host.lookup)
    if target.kind.is_host or target.kind.name == COMPOSITE:
        raise UsageError(
            f"--target {args.target!r} is not an accelerator to play the trace back on",
            hint="name one accelerator, without a host: 'KIND -impl=NAME'",
        )
    member = BuildTarget(target.name, target, host.plugin_for(target.kind.name))
    if member.runtime is None:
        raise member.plugin.fault("gave nothing from hook runtime")
    return Device.from_target(member.label, target, member.runtime)


def _rows(trace: Trace) -> list[tuple[TraceLocation, Mapping[str, int]]]:
    """What was done in each place, counted; none for places where nothing was."""
    counts: dict[int, Counter[str]] = {}
    for entry in trace.entries:
        row = counts.setdefault(entry.place, Counter())
        if entry.what == "read":
            row["reads"] += entry.numbers[2]
            row["waits"] += entry.numbers[3]
        elif entry.what in ("write", "low", "high"):
            row["writes"] += 1
        elif entry.what == "wait":
            row["waits"] += 1
        elif entry.what in ("give", "take"):
            row["bytes given" if entry.what == "give" else "bytes taken"] += entry.numbers[2]
    order = ("writes", "reads", "waits", "bytes given", "bytes taken")
    places = (
        (trace.places[at], {what: row[what] for what in order if row[what]}) for at, row in sorted(counts.items())
    )
    return [(place, row) for place, row in places if row]


def _show_entries(trace: Trace, names: Mapping[int, Register], out: Output) -> None:
    place = device = -1
    for entry in trace.entries:
        if entry.what == "bytes":
            continue
        if entry.place != place:
            place = entry.place
            out.line(_place(trace.places[place]))
        if entry.device != device:
            device = entry.device
            out.line(f"  {trace.devices[device].label}:")
        out.line(f"    {entry.what:<5} {_entry_text(trace, names, entry)}".rstrip())


def _entry_text(trace: Trace, names: Mapping[int, Register], entry: Entry) -> str:
    numbers = entry.numbers

    def memory(position: int, offset: int) -> str:
        return f"{trace.memories[position].name}+{offset:#x}" if position >= 0 else "memory that is not known"

    def register(offset: int) -> str:
        return names[offset].name if offset in names else f"{offset:#x}"

    match entry.what:
        case "read":
            times = f", {numbers[2]:,} times" if numbers[2] > 1 else ""
            return f"{register(numbers[0])} {numbers[1]:#x}{times}{', waiting' if numbers[3] else ''}"
        case "write":
            return f"{register(numbers[0])} {numbers[1]:#x}"
        case "low" | "high":
            return f"{register(numbers[0])} of {memory(numbers[1], numbers[2])}"
        case "give" | "take":
            return f"{memory(numbers[0], numbers[1])}, {numbers[2]:,} bytes"
    return ""


def _place(place: TraceLocation) -> str:
    return f"{place}, {shorten(', '.join(place.layers), 100)}" if place.layers else str(place)
