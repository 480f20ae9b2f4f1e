"""The parts of an artifact's record that say what a program is: its tensors, buffers, calls and devices."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from ..contract.devices import CORE_BUSES, Device
from ..lowering.mac_count import Work
from ..program import Buffer, Call, Else, End, If, Loop, Plan, Program, Quantisation, Rows
from ..program.control_flow import blocks, condition_uses, extended
from ..program.program import arguments
from ..program.row_schedule import lives
from ..program.wait_insertion import finish_positions
from ..relay.extern import Extern
from ..tir.form.symbolic_dims import format_extents
from .record import (
    BufferRecord,
    CallRecord,
    ClockRecord,
    DeviceRecord,
    FaultRecord,
    MemoryRecord,
    PartsRecord,
    QuantizationRecord,
    TensorRecord,
)

__all__ = ["buffer_records", "call_records", "device_record", "tensor_records"]


def tensor_records(
    buffers: Sequence[Buffer],
    identifiers: Mapping[str, str],
    held: Mapping[str, str] = MappingProxyType({}),
    rows: Mapping[str, int] = MappingProxyType({}),
) -> tuple[TensorRecord, ...]:
    """Inputs, outputs or states.

    Args:
        buffers: these, in the model's order.
        identifiers: what the C calls them, by the buffers' names.
        held: the open extents that they hold, by the buffers' names.
        rows: of those that are given row by row, how many rows are asked for, by the buffers' names.
    """
    return tuple(
        TensorRecord(
            buffer.tensor or buffer.name,
            identifiers[buffer.name],
            buffer.shape,
            buffer.dtype,
            _quantization(buffer.quantisation),
            None if buffer.extents is None else format_extents(buffer.extents),
            held.get(buffer.name),
            rows.get(buffer.name),
        )
        for buffer in buffers
    )


def _quantization(quantisation: Quantisation | None) -> QuantizationRecord | None:
    return None if quantisation is None else QuantizationRecord(quantisation.scale, quantisation.zero_point)


def buffer_records(program: Program, plan: Plan) -> tuple[BufferRecord, ...]:
    """Where every buffer is, and when, in the order of the program's table."""
    last, finished = max(len(program.steps) - 1, 0), finish_positions(program)
    spans: dict[str, tuple[int, int]] = {}
    for position, step in program.calls:
        for name in step.args:
            first, end = spans.get(name, (position, position))
            spans[name] = first, max(end, finished[position])
    for position, name in condition_uses(program.steps):
        first, end = spans.get(name, (position, position))
        spans[name] = min(first, position), max(end, position)
    for buffer in program.placed:  # the caller writes it before the first step
        if buffer.role == "input":
            spans[buffer.name] = -1, spans.get(buffer.name, (0, 0))[1]
    spans = lives(program, extended(spans, program.steps))
    for buffer in program.buffers:
        first, end = spans.get(buffer.name, (0, 0))
        if buffer.role in ("constant", "state"):
            first, end = 0, last
        elif buffer.role == "input":
            first = 0
        elif buffer.role == "output":
            end = last
        spans[buffer.name] = first, end
    return tuple(
        BufferRecord(b.name, b.role, b.shape, b.dtype, *_place(b, plan), b.nbytes, *spans[b.name])
        for b in program.buffers
    )


def _place(buffer: Buffer, plan: Plan) -> tuple[str | None, int | None]:
    """The memory that a buffer is in, and its offset there."""
    if buffer.role == "constant":
        return "weights", plan.constants[buffer.name]
    if buffer.is_streamed:
        return buffer.pool, None
    return (None, None) if buffer.is_given else (buffer.pool, plan.offsets[buffer.name])


_WAYS = {If: "branch", Else: "otherwise", Loop: "loop", End: "end", Rows: "rows"}
"""What the steps are called by which branches, loops and rows begin and end."""


def call_records(
    program: Program, devices: Mapping[str, Device], host: str, work: Mapping[int, Work] = MappingProxyType({})
) -> Iterator[CallRecord]:
    """What each step is. A wait is for the layers of the launches that it finishes.

    Args:
        program: a verified program.
        devices: what its steps are for, by label.
        host: the label of the first host.
        work: what steps do of the model, by position, where that is known.
    """
    finished: dict[int, list[str]] = {}
    finishes = list(finish_positions(program))
    for at, position in enumerate(finishes):
        step = program.steps[at]
        finished.setdefault(position, []).extend(step.layers if isinstance(step, Call) else ())
    buffers = {buffer.name: buffer for buffer in program.buffers}
    begins = {at: block.begin for block in blocks(program.steps) for at in (block.begin, block.middle, block.end)}
    for position, step in enumerate(program.steps):
        runtime = None if step.device is None else devices[step.device].runtime
        device = step.device if runtime is not None and runtime.driver is not None else None
        if isinstance(step, (If, Else, Loop, Rows, End)):
            looked_at = (step.condition,) if isinstance(step, (If, Loop)) else ()
            begin, way = program.steps[begins[position]], _WAYS[type(step)]
            if isinstance(step, End) and isinstance(begin, Rows):
                way = "rows_end"
            layers = begin.layers if isinstance(begin, (If, Loop)) else ()
            yield CallRecord(way, layers, host, None, (), looked_at, None, None, 0, 0, None, position, way)
            continue
        if not isinstance(step, Call):
            layers = tuple(dict.fromkeys(finished[position]))
            yield CallRecord(f"wait_{step.queue}", layers, host, device, (), (), None, None, 0, 0, step.queue, position)
            continue
        function = program.functions[step.function]
        parts: tuple[str, ...] = ()
        if runtime is not None and runtime.parts is not None and isinstance(function, Extern):
            parts = tuple(layer for blob in function.blobs for _, layer in blob.marks)
        constants = {name for name in step.args if buffers[name].role == "constant"}
        done = work.get(position)
        result = next((name for param, name in arguments(program, step) if param.role == "output"), None)
        shape = None if result is None else buffers[result].shape
        yield CallRecord(
            step.function,
            tuple(dict.fromkeys(step.layers)),
            step.host or host,
            device,
            parts,
            step.args,
            None if done is None else done.op,
            shape if done is None else done.shape,
            None if done is None else done.macs,
            sum(buffers[name].nbytes for name in constants),
            step.queue,
            finishes[position],
        )


def device_record(device: Device, program: Program, plan: Plan) -> DeviceRecord:
    """An accelerator, and how much of its memories the program uses."""
    runtime = device.runtime
    parts, clock = runtime.parts, runtime.clock
    return DeviceRecord(
        device.label,
        device.kind,
        device.impl,
        device.implementation.bus not in CORE_BUSES and not device.implementation.is_real,
        device.base,
        tuple(runtime.parameters),
        tuple(runtime.counters),
        None if parts is None else PartsRecord(parts.count, tuple(parts.counters), parts.locates_faults),
        None if clock is None else ClockRecord(clock.hz, clock.cycles, clock.busy),
        tuple(FaultRecord(code, meaning) for code, meaning in sorted(runtime.faults.items())),
        tuple(
            MemoryRecord(name, memory.nbytes, plan.pool_bytes.get(f"{device.label}.{name}", 0))
            for name, memory in sorted(program.memories(device.label).items())
        ),
    )
