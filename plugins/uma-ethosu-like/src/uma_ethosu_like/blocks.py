"""Blocks: how much of its output the machine makes at a time, and how its shared memory is divided for that.

The shared memory holds, from its start on, what goes out (`OUTPUT_BANKS`), two blocks of the input (of each of two
inputs), two blocks of accumulators, and tables. A part of it takes a multiple of its granule. So a block of the output
is legal if what it needs of the input and its accumulators fit.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from .machine import BANK_BYTES, MAX_BLOCK, OUTPUT_BANKS, Configuration
from .operations import DTYPE_BYTES, ELEMENTWISE, FeatureMap, Step

__all__ = ["SUB_KERNEL", "Block", "fit_block", "legal_blocks", "part_kernel_first"]

SUB_KERNEL = 8
"""Rows and columns of a kernel that are worked on at once."""

_ACCUMULATOR_BYTES = 4
_SHORT_DEPTH = 8


@dataclass(frozen=True)
class Block:
    """A block of the output, and where what belongs to it lies in the shared memory.

    Args:
        shape: rows, columns, channels.
        ifm_end: the bank behind the input.
        ifm2_start: the first bank of the second input.
        accumulator_start: the first bank of the accumulators.
        part_kernel: whether the elements of a kernel come before the channels of the input.
    """

    shape: tuple[int, int, int]
    ifm_end: int
    ifm2_start: int
    accumulator_start: int
    part_kernel: bool = False

    def count(self, box: tuple[int, int, int]) -> int:
        """How many of them a box of the output takes."""
        return math.prod(-(-extent // size) for extent, size in zip(box, self.shape, strict=True))


def part_kernel_first(step: Step) -> bool:
    """Whether the order of the weights is that in which fewer products are with what only fills up the array."""
    if step.operation.kind != "conv":
        return False
    depth, taps = step.ifm.shape[2], math.prod(step.operation.window.kernel)
    if depth <= _SHORT_DEPTH:
        return True
    wide, deep = (4, 32) if step.ifm.dtype in ("int8", "uint8") else (2, 16)
    return depth * taps / (_up(depth, 8) * _up(taps, wide)) > depth / _up(depth, deep)


def fit_block(step: Step, shape: tuple[int, int, int], machine: Configuration) -> Block | None:
    """The shared memory for a block of that shape; None where it does not fit.

    Args:
        step: what is done.
        shape: multiples of the micro-block.
        machine: the configuration.
    """
    one, kind = step.operation, step.operation.kind
    elementwise = kind in ELEMENTWISE
    size = max(DTYPE_BYTES[fm.dtype] for fm, written in one.maps if not written)
    part_kernel = part_kernel_first(step)
    height, width, depth = shape
    if kind in ("conv", "reduce_sum"):
        most = 16 if part_kernel or size == 2 else 32
        depth = _up(min(step.ifm.shape[2], most), 4 if size == 2 else machine.ifm_ublock[2])
    rows, columns = (
        _up((extent - 1) * stride + min(span, SUB_KERNEL), micro)
        for extent, stride, span, micro in zip(
            (height, width), one.window.strides, one.window.span, machine.ofm_ublock, strict=False
        )
    )
    granule = machine.granule(f"ifm{8 * size}" + ("_elementwise" if elementwise and size < 4 else ""))
    ifm_banks = _banks(rows * columns * _up(depth * size, 8), granule)
    ifm_end, end = OUTPUT_BANKS + ifm_banks, machine.usable_banks(lut=one.table is not None)
    if elementwise:
        both = ifm_banks if isinstance(one.ifm2, FeatureMap) else 0
        return Block(shape, end, ifm_end, end) if ifm_end + both <= end else None
    start = end - _banks(height * width * _up(shape[2], 8) * _ACCUMULATOR_BYTES, machine.granule("acc32"))
    return Block(shape, ifm_end, ifm_end, start, part_kernel) if ifm_end <= start else None


def legal_blocks(step: Step, machine: Configuration) -> Iterator[Block]:
    """The blocks that fit, no larger than what is made."""
    micro = machine.ofm_ublock
    rows, columns, channels = (
        _up(min(extent, most), unit) for extent, most, unit in zip(step.box.shape, MAX_BLOCK, micro, strict=True)
    )
    for depth in range(micro[2], channels + 1, micro[2]):
        # Blocks that part the output have whole bricks of channels.
        if depth % 16 and depth < step.box.shape[2]:
            continue
        for height in _sizes(micro[0], rows):
            for width in _sizes(micro[1], columns):
                block = fit_block(step, (height, width, depth), machine)
                if block is not None:
                    yield block


def _sizes(micro: int, most: int) -> Iterator[int]:
    """Micro-blocks doubled again and again, and the most."""
    size = micro
    while size < most:
        yield size
        size *= 2
    yield most


def _banks(nbytes: int, granule: int) -> int:
    """Banks of two buffers of that size."""
    return _up(2 * -(-nbytes // BANK_BYTES), granule)


def _up(value: int, unit: int) -> int:
    return -(-value // unit) * unit
