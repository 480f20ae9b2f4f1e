"""What a stream costs: the model of cycles that the simulator has (``csrc/eu_cycles.c``), in Python.

Vela's, in integers: times are eighths of a cycle until those of an operation are known; each division rounds up.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from .blocks import SUB_KERNEL, Block, legal_blocks
from .machine import OUTPUT_CYCLES, Machine
from .operations import BRICK, DTYPE_BYTES, ELEMENTWISE, FeatureMap, Step

__all__ = [
    "CopyWork",
    "Event",
    "Memory",
    "Wait",
    "Work",
    "block_chooser",
    "bytes_moved",
    "choose_block",
    "copy_cycles",
    "memories",
    "step_cycles",
    "stream_cycles",
    "timeline",
]

_EIGHTHS = 8
_IN_FLIGHT = 4
"""Blocks that are on their way at a time."""

_RECORD_BYTES = 10
_RECORDS_AT_ONCE = 256


@dataclass(frozen=True, eq=False)
class Memory:
    """One behind the machine.

    Args:
        per_16_cycles: bytes that it gives or takes in 16 cycles.
        latency: cycles until the first come.
        burst: bytes that are moved at once.
    """

    per_16_cycles: int
    latency: int
    burst: int

    def transfer(self, nbytes: int) -> int:
        """The time that so many bytes take, in eighths."""
        return -(-nbytes * 16 * _EIGHTHS // self.per_16_cycles)


def memories(machine: Machine) -> tuple[Memory, Memory]:
    """SRAM, for feature maps; flash, for constants."""
    return (
        Memory(max(1, round(16 * machine.sram_bytes_per_cycle)), machine.sram_latency_cycles, 32),
        Memory(max(1, round(16 * machine.flash_bytes_per_cycle)), machine.flash_latency_cycles, 128),
    )


@dataclass(frozen=True, eq=False)
class Work:
    """A step as it stands in a stream.

    Args:
        step, block: what is done, by which blocks.
        weight_bytes, record_bytes: that it reads besides its maps.
        brought: whether these were copied to SRAM before.
    """

    step: Step
    block: Block
    weight_bytes: int = 0
    record_bytes: int = 0
    brought: bool = False


@dataclass(frozen=True)
class CopyWork:
    """A copy of constants, as it stands in a stream."""

    nbytes: int


@dataclass(frozen=True)
class Wait:
    """A wait as it stands in a stream.

    Args:
        kernels: how many may be unfinished; None waits for the copy.
    """

    kernels: int | None = None


Event = Work | CopyWork | Wait


@dataclass(frozen=True)
class _Sizes:
    """Blocks as large as the maps let them be, and how many there are: rows, columns, channels."""

    block: tuple[int, int, int]
    input: tuple[int, int, int]
    blocks_xy: int
    blocks_z: int
    input_blocks: int

    @staticmethod
    def from_work(work: Work) -> _Sizes:
        step, one = work.step, work.step.operation
        shape, whole = step.ofm.shape, step.ifm.shape
        block = tuple(min(a, b) for a, b in zip(work.block.shape, shape, strict=True))
        counts = [-(-a // b) for a, b in zip(shape, block, strict=True)]
        input_block, parts = block, 1
        if one.kind not in ELEMENTWISE:
            rows, columns = (
                min((extent - 1) * stride + min(span, SUB_KERNEL), most)
                for extent, stride, span, most in zip(block, one.window.strides, one.window.span, whole, strict=False)
            )
            input_block = (rows, columns, block[2])
        if _sums(step):
            size = DTYPE_BYTES[step.ifm.dtype]
            part_kernel = one.kind == "conv" and (work.block.part_kernel or size == 2)
            depth = min(16 if part_kernel else 32 // size, whole[2])
            input_block, parts = (input_block[0], input_block[1], depth), -(-whole[2] // depth)
        return _Sizes(_three(block), _three(input_block), counts[0] * counts[1], counts[2], parts)


def _three(values: tuple[int, ...]) -> tuple[int, int, int]:
    return values[0], values[1], values[2]


def _sums(step: Step) -> bool:
    return step.operation.kind in ("conv", "reduce_sum")


def step_cycles(work: Work, machine: Machine) -> int:
    """Cycles that the machine takes for a step."""
    step, one = work.step, work.step.operation
    sram, flash = memories(machine)
    s = _Sizes.from_work(work)
    elements = math.prod(s.block)
    transfer = _block_transfer(step.ifm, s.input, sram, flash) + _block_transfer(step.ofm, s.block, sram, flash)
    elementwise = one.kind in ELEMENTWISE
    array = 0 if elementwise else _array_cycles(work, s, machine) * _EIGHTHS
    output = _output_eighths(step, machine) * elements
    if one.filter is not None:
        records = _RECORD_BYTES * s.block[2] * _EIGHTHS * (sram if work.brought else flash).latency
        output = max(output, -(-records // _RECORDS_AT_ONCE))
    issued = -(-(transfer + output + array) // _IN_FLIGHT)
    array = 0 if elementwise else max(array, issued)
    output = max(output, issued)
    blocks = s.blocks_xy * s.blocks_z
    time = array * blocks + output if array > output else output * blocks + array
    return -(-max(time, _port_time(work, s, sram, flash)) // _EIGHTHS)


def _array_cycles(work: Work, s: _Sizes, machine: Machine) -> int:
    """What the multipliers take for a block."""
    step, one, size = work.step, work.step.operation, machine.configuration
    kernel, (rows, columns, channels) = one.window.kernel, size.ofm_ublock
    convolves = one.kind in ("conv", "depthwise")
    shape = step.ofm.shape
    if convolves and rows == 2 and shape[0] == 1 and shape[1] % 2 == 0 and kernel[0] == 1:
        rows, columns = 1, 4  # a row of one pixel's height is worked on as four columns
    down, across, deep = (-(-a // b) for a, b in zip(s.block, (rows, columns, channels), strict=True))
    least = 4 * channels  # until the next weights are there
    delay = 3 if machine.macs == 32 else 2
    wide = DTYPE_BYTES[step.ifm.dtype] == 2
    part_kernel = one.kind == "conv" and work.block.part_kernel
    slabs = -(-s.input[2] // 8) if part_kernel else 1
    cycles = 0
    for y in range(0, kernel[0], SUB_KERNEL):
        for x in range(0, kernel[1], SUB_KERNEL):
            taps = min(kernel[0] - y, SUB_KERNEL) * min(kernel[1] - x, SUB_KERNEL)
            if not convolves and not _sums(step):
                steps = 1
                time = max(4, taps) * down * across * deep * (2 if wide and machine.macs != 32 else 1)
            elif one.kind == "depthwise":
                steps = -(-taps // 4)
                time = max(least, 4 * down * across * (2 if wide else 1)) * steps * deep
            else:
                steps = -(-taps // (2 if wide else 4)) if part_kernel else taps
                time = max(least, 4 * down * across) * steps * deep * slabs
            idle = 0
            if down == 1 and across == 1:
                idle = delay * steps if deep == 1 else delay * (steps - 1) * deep
            cycles += time + idle * slabs
    return cycles * s.input_blocks


def _output_eighths(step: Step, machine: Machine) -> int:
    """What an element of the output takes."""
    one, size = step.operation, machine.configuration
    kind = "other"
    if one.kind in ELEMENTWISE:
        if step.ifm.dtype == "int32":
            kind = "unary_int32" if one.ifm2 is None else "binary_int32"
        elif one.kind == "mul":
            kind = "mul_to_int32" if step.ofm.dtype == "int32" else "mul"
        elif one.kind in ("add", "sub"):
            kind = "add" if one.operand else "add_unscaled"
    elif one.kind == "max_pool":
        kind = "max_pool"
    activation = size.activation_cycles[0] if one.table is not None else 0
    return max(size.output_cycles[OUTPUT_CYCLES.index(kind)], activation)


def _memory(one: FeatureMap, sram: Memory, flash: Memory) -> Memory:
    return sram if one.storage.data is None else flash


def _block_transfer(one: FeatureMap, shape: tuple[int, int, int], sram: Memory, flash: Memory) -> int:
    """What it takes to bring a block of a map, or to write it: latency, and bursts that are filled only as far as bytes
    are contiguous. In eighths.
    """
    memory, size = _memory(one, sram, flash), DTYPE_BYTES[one.dtype]
    run = shape[2] * size
    if one.layout == "nhcwb16":
        run = BRICK * shape[1] * size
    elif shape[2] == one.shape[2] and one.strides[1] == run:
        run *= shape[1]
    nbytes = math.prod(shape) * size
    return memory.latency * _EIGHTHS + memory.transfer(-(-nbytes * memory.burst // min(memory.burst, run)))


def _port_time(work: Work, s: _Sizes, sram: Memory, flash: Memory) -> int:
    """The time in which all that a step reads and writes passes the ports of both memories, in eighths."""
    step, one = work.step, work.step.operation
    outputs = math.prod(step.ofm.shape)
    inputs = outputs
    if one.kind not in ELEMENTWISE:
        inputs = s.input[0] * s.input[1] * step.ifm.shape[2] * s.blocks_xy
        inputs *= math.prod(-(-extent // SUB_KERNEL) for extent in one.window.kernel)
        inputs *= s.blocks_z if _sums(step) else 1
    passed = {sram: 0, flash: 0}
    passed[_memory(step.ifm, sram, flash)] += inputs * DTYPE_BYTES[step.ifm.dtype]
    passed[_memory(step.ofm, sram, flash)] += outputs * DTYPE_BYTES[step.ofm.dtype]
    if isinstance(step.ifm2, FeatureMap):
        passed[_memory(step.ifm2, sram, flash)] += math.prod(step.ifm2.shape) * DTYPE_BYTES[step.ifm2.dtype]
    passed[sram if work.brought else flash] += work.weight_bytes * s.blocks_xy + work.record_bytes
    return max(memory.transfer(nbytes) for memory, nbytes in passed.items())


def choose_block(step: Step, machine: Machine) -> tuple[Block, int]:
    """The legal block with which a step takes the fewest cycles, and these; of several the one that parts the output
    least. Weights count without their compression.
    """

    held = step.filter
    sizes = (0, 0) if held is None else (held.weights.size, _RECORD_BYTES * len(held.scales))

    def cycles(block: Block) -> tuple[int, int]:
        return step_cycles(Work(step, block, *sizes), machine), block.count(step.box.shape)

    # There is one: the smallest fits every size of the machine, whatever the window.
    best = min(legal_blocks(step, machine.configuration), key=cycles)
    return best, cycles(best)[0]


def block_chooser(machine: Machine) -> Callable[[Step], tuple[Block, int]]:
    """`choose_block` for a machine. Of an operation steps that are alike are asked for once."""
    chosen: dict[tuple[object, ...], tuple[Block, int]] = {}

    def choose(step: Step) -> tuple[Block, int]:
        key = (step.operation, step.box.shape, step.ifm.shape, step.padding)
        if key not in chosen:
            chosen[key] = choose_block(step, machine)
        return chosen[key]

    return choose


def copy_cycles(nbytes: int, machine: Machine) -> int:
    """Cycles of a copy of a constant into the shared memory."""
    sram, flash = memories(machine)
    return -(-max(flash.transfer(nbytes) + flash.latency * _EIGHTHS, sram.transfer(nbytes)) // _EIGHTHS)


def timeline(events: Iterable[Event], machine: Machine) -> Iterator[tuple[Event, int]]:
    """The events of a stream, each with the cycle at which it is over, from the start of the stream on. Kernels run one
    after the other, and so do copies; a command is read when no more than two kernels are unfinished.
    """
    now, last, before, copied = 0, 0, 0, 0
    for one in events:
        if isinstance(one, Work):
            last, before = max(now, last) + step_cycles(one, machine), last
            now = max(now, before)
            yield one, last
        elif isinstance(one, CopyWork):
            now = max(now, copied)
            copied = now + copy_cycles(one.nbytes, machine)
            yield one, copied
        else:
            now = max(now, copied if one.kernels is None else (last, before)[one.kernels])
            yield one, now


def stream_cycles(events: Iterable[Event], machine: Machine) -> int:
    """Cycles from the start of a stream to its end."""
    return max((end for _, end in timeline(events, machine)), default=0)


def bytes_moved(events: Iterable[Event]) -> int:
    """Bytes of maps, weights and tables, each once."""
    total = 0
    for event in events:
        if isinstance(event, Work):
            step = event.step
            maps = [one for one in (step.ofm, step.ifm, step.ifm2) if isinstance(one, FeatureMap)]
            total += sum(math.prod(one.shape) * DTYPE_BYTES[one.dtype] for one in maps)
            total += event.weight_bytes + event.record_bytes
        elif isinstance(event, CopyWork):
            total += event.nbytes
    return total
