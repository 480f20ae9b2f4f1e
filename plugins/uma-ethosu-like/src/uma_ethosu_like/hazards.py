"""What keeps steps from getting in each other's way: the rule of hazards in README.md, in Python.

Two kernels and one copy may be in flight. Kernels work block by block in order, so a kernel may begin before the one
before it has ended, as far as what it reads first is not what the other writes last: ``BLOCKDEP`` says how many blocks
may be between. A copy and a kernel know nothing of each other. What is told here are the weakest waits that do.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .blocks import Block
from .machine import Configuration
from .operations import BRICK, DTYPE_BYTES, Box, FeatureMap, Step, Storage

__all__ = ["MOST_BLOCKDEP", "TABLES", "TABLES_BYTES", "Copy", "Flight", "Kernel", "Span", "SymbolicAddress"]

MOST_BLOCKDEP = 3
"""Blocks of the kernel before that may be unfinished, at most."""

TABLES = "tables"
"""The symbol of the part of the shared memory that tables lie in."""

TABLES_BYTES = 2048

_IN_FLIGHT = 2


class SymbolicAddress(NamedTuple):
    """An address before there are any: bytes from the start of a parameter or blob, by its name."""

    symbol: str
    offset: int


class Span(NamedTuple):
    """Bytes behind each other."""

    symbol: str
    start: int
    end: int

    @property
    def runs(self) -> Runs:
        """Itself, as one run."""
        return Runs(self.symbol, np.array([[self.start, self.end]]))


class Runs(NamedTuple):
    """Bytes of a symbol: (n, 2) starts and ends, ascending, that do not overlap."""

    symbol: str
    bounds: NDArray[np.int64]

    def meet(self, other: Runs) -> bool:
        """Whether there is a byte that both have."""
        if self.symbol != other.symbol or not len(self.bounds) or not len(other.bounds):
            return False
        # Of those of the other that begin before a run ends, the last ends last.
        before = np.searchsorted(other.bounds[:, 0], self.bounds[:, 1], "left") - 1
        return bool(np.any((before >= 0) & (other.bounds[before, 1] > self.bounds[:, 0])))


def _runs(one: FeatureMap, place: SymbolicAddress) -> Runs:
    """The bytes of a feature map, in runs as long as they are contiguous."""
    (rows, columns, channels), (by_row, by_column, by_brick) = one.shape, one.strides
    size = DTYPE_BYTES[one.dtype]
    starts, length = np.zeros(1, np.int64), channels * size
    lengths = np.array([length])
    if one.layout == "nhcwb16":
        firsts = np.arange(0, channels, BRICK)
        starts, lengths = firsts // BRICK * by_brick, np.minimum(channels - firsts, BRICK) * size
    turn = one.rows_before_turn
    row_numbers = [*range(one.first, one.first + turn), *range(rows - turn)]
    for numbers, stride in ((range(columns), by_column), (row_numbers, by_row)):
        if len(starts) == 1 and lengths[0] == stride and len(numbers) and numbers[-1] - numbers[0] + 1 == len(numbers):
            starts, lengths = starts + numbers[0] * stride, lengths * len(numbers)
            continue
        starts = (np.array(numbers, np.int64)[:, None] * stride + starts).ravel()
        lengths = np.tile(lengths, len(numbers))
    order = np.argsort(starts, kind="stable")
    starts, lengths = starts[order] + place.offset + one.offset, lengths[order]
    return Runs(place.symbol, np.stack([starts, starts + lengths], 1))


@dataclass(frozen=True, eq=False)
class Kernel:
    """A step as it is started.

    Args:
        step, block: what is done, by which blocks.
        place: where a storage lies.
        constants: its weights and records.
        table: of `TABLES`, what it reads.
    """

    step: Step
    block: Block
    place: Callable[[Storage], SymbolicAddress]
    constants: tuple[Span, ...] = ()
    table: Span | None = None

    def runs(self, one: FeatureMap) -> Runs:
        """The bytes of one of its maps."""
        return _runs(one, self.place(one.storage))

    def touches(self, copy: Copy, machine: Configuration) -> bool:
        """Whether a copy writes what it reads or writes, or reads what it writes."""
        step, target = self.step, copy.target.runs
        tables = self.table
        if tables is None and machine.reserved_banks == 0:
            tables = Span(TABLES, 0, TABLES_BYTES)  # its blocks may lie there
        spans = [*self.constants, *([] if tables is None else [tables])]
        maps = [one for one in (step.ofm, step.ifm, step.ifm2) if isinstance(one, FeatureMap)]
        if any(one.runs.meet(target) for one in spans) or any(self.runs(one).meet(target) for one in maps):
            return True
        return self.runs(step.ofm).meet(copy.source.runs)

    def last_blocks(self) -> Iterator[FeatureMap]:
        """What it writes, block by block, the last first."""
        for box in itertools.islice(self._boxes(backwards=True), MOST_BLOCKDEP):
            yield Step(self.step.operation, box).ofm

    def first_jobs(self) -> Iterator[tuple[FeatureMap, ...]]:
        """What it reads, job by job: a block of the output is one, or one for each slab of channels of the input if all
        of them are summed up.
        """
        return itertools.islice(self._jobs(), MOST_BLOCKDEP)

    def _jobs(self) -> Iterator[tuple[FeatureMap, ...]]:
        one = self.step.operation
        for box in self._boxes():
            part = Step(one, box)
            ifm = part.ifm
            second = (part.ifm2,) if isinstance(part.ifm2, FeatureMap) else ()
            if one.kind not in ("conv", "reduce_sum"):
                yield ifm, *second
                continue
            rows, columns, channels = ifm.shape
            size = DTYPE_BYTES[ifm.dtype]
            slab = BRICK if one.kind == "conv" and (self.block.part_kernel or size == 2) else 32 // size
            for first in range(0, channels, slab):
                yield (ifm.part(Box((0, 0, first), (rows, columns, min(first + slab, channels)))),)

    def _boxes(self, backwards: bool = False) -> Iterator[Box]:
        """Its blocks: channels first, then columns, then rows."""
        whole = self.step.box
        axes = [
            range(first, end, size) for first, end, size in zip(whole.start, whole.end, self.block.shape, strict=True)
        ]
        for start in itertools.product(*(axis[::-1] if backwards else axis for axis in axes)):
            row, column, channel = start
            end = (min(a + b, last) for a, b, last in zip(start, self.block.shape, whole.end, strict=True))
            yield Box((row, column, channel), tuple(end))  # type: ignore[arg-type]  # three of them


@dataclass(frozen=True)
class Copy:
    """A copy as it is started."""

    source: Span
    target: Span


@dataclass
class Flight:
    """What may be unfinished where a stream has come to.

    Args:
        machine: that runs it.
        kernels: the last first.
        copy: if there is one.
    """

    machine: Configuration
    kernels: list[Kernel] = field(default_factory=list)
    copy: Copy | None = None

    def start_kernel(self, kernel: Kernel) -> tuple[bool, int]:
        """Whether the copy has to be waited for, and the largest ``BLOCKDEP``. Kernels never write constants."""
        waits = self.copy is not None and kernel.touches(self.copy, self.machine)
        if waits:
            self.copy = None
        dependency = self._dependency(kernel, self.kernels[0]) if self.kernels else MOST_BLOCKDEP
        self.kernels = [kernel, *self.kernels][:_IN_FLIGHT]
        return waits, dependency

    def start_copy(self, copy: Copy) -> int | None:
        """How many kernels may be unfinished, if that is not all of them. A copy before it is over by then: there is
        one channel.
        """
        conflict = next((n for n, kernel in enumerate(self.kernels) if kernel.touches(copy, self.machine)), None)
        self.kernels, self.copy = self.kernels[:conflict], copy
        return conflict

    def _dependency(self, kernel: Kernel, before: Kernel) -> int:
        if self.machine.reserved_banks == 0 and before.table is not None and kernel.table is None:
            return 0  # without banks of its own a table lies where the next block may be
        written = before.runs(before.step.ofm)
        maps = [one for one in (kernel.step.ifm, kernel.step.ifm2) if isinstance(one, FeatureMap)]
        if not any(kernel.runs(one).meet(written) for one in maps):
            return MOST_BLOCKDEP
        blocks = [before.runs(one) for one in before.last_blocks()]
        read = [[kernel.runs(one) for one in job] for job in kernel.first_jobs()]
        meetings = (
            ahead + behind
            for (ahead, job), (behind, block) in itertools.product(enumerate(read), enumerate(blocks))
            if any(one.meet(block) for one in job)
        )
        return min([MOST_BLOCKDEP, *meetings])
