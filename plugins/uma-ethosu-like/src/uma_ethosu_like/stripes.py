"""Stripes: operations behind each other that are done some rows at a time, so that none of the maps between them is
ever whole. Such a *cascade* keeps in a ring only the rows that are still to be read.

No row is made twice: for some more rows of its last output, each operation makes the rows that are missing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from .blocks import Block
from .operations import Box, FeatureMap, Operation, Step, Storage

__all__ = ["ALIGNMENT", "lives_of", "striped"]

ALIGNMENT = 16
"""Of a storage, in bytes."""


def lives_of(steps: Sequence[Step], fixed: Collection[Storage]) -> dict[Storage, tuple[int, int]]:
    """The first and the last step that needs each storage, but for those that are ``fixed`` or constant."""
    lives: dict[Storage, tuple[int, int]] = {}
    for number, step in enumerate(steps):
        for one, _ in step.operation.maps:
            if one.storage not in fixed and one.storage.data is None:
                first, _ = lives.get(one.storage, (number, number))
                lives[one.storage] = (first, number)
    return lives


@dataclass(frozen=True, eq=False)
class _Cascade:
    """Steps on whole maps, and the rings that take the place of some of these."""

    steps: tuple[Step, ...]
    rings: dict[Storage, FeatureMap]

    def turned(self) -> Iterator[Step]:
        """The steps on rings."""
        turned: dict[Operation, Operation] = {}
        for step in self.steps:
            one = step.operation
            if one not in turned:
                second = self._ring(one.ifm2) if isinstance(one.ifm2, FeatureMap) else one.ifm2
                turned[one] = replace(one, ofm=self._ring(one.ofm), ifm=self._ring(one.ifm), ifm2=second)
            yield Step(turned[one], step.box)

    def _ring(self, one: FeatureMap) -> FeatureMap:
        ring = self.rings.get(one.storage)
        return one if ring is None else replace(one, storage=ring.storage, ring=ring.ring)


def _same_grid(one: FeatureMap, other: FeatureMap) -> bool:
    grid = (one.offset, one.shape, one.strides, one.dtype, one.layout)
    return grid == (other.offset, other.shape, other.strides, other.dtype, other.layout)


def _between(operations: Sequence[Operation], chosen: Sequence[Operation], fixed: Collection[Storage]) -> set[Storage]:
    """The storages that only ``chosen`` operations need: one writes all of it, the others read it as it was written."""
    storages = set()
    for held in (one.ofm for one in chosen):
        uses = [fm for other in operations for fm, _ in other.maps if fm.storage is held.storage]
        inside = [fm for other in chosen for fm, _ in other.maps if fm.storage is held.storage]
        dense = held.offset == 0 and held.storage.nbytes == held.shape[0] * held.strides[0]
        alike = len(uses) == len(inside) > 1 and all(_same_grid(fm, held) for fm in uses)
        if held.storage not in fixed and dense and alike:
            storages.add(held.storage)
    return storages


def _steps(chosen: Sequence[Operation], rows: int, between: Collection[Storage]) -> list[Step]:
    """Steps that make so many rows of the last output at a time, and of the others as many as these need: each makes
    what it reads, as far as it is missing, just before.
    """
    producers = {one.ofm.storage: one for one in chosen}
    rows_done = dict.fromkeys(chosen, 0)
    height = chosen[-1].ofm.shape[0]
    steps: list[Step] = []

    def make(one: Operation, end: int) -> None:
        whole, columns, channels = one.ofm.shape
        at_once = -(-whole * rows // height)
        while rows_done[one] < end:
            step = Step(one, Box((rows_done[one], 0, 0), (min(rows_done[one] + at_once, end), columns, channels)))
            for fm, box in step.reads:
                if (producer := producers.get(fm.storage)) is not None:
                    make(producer, box.end[0] if _same_grid(fm, producer.ofm) else producer.ofm.shape[0])
            rows_done[one] = step.box.end[0]
            steps.append(step)

    make(chosen[-1], height)
    for one in chosen:
        if one.ofm.storage not in between:
            make(one, one.ofm.shape[0])
    return steps


def _ring_rows(steps: Sequence[Step], storage: Storage) -> int:
    """Rows that a storage has to hold: from the first that will be read to the last that is made."""
    lowest, most = 1 << 32, 0
    for step in reversed(steps):
        if step.operation.ofm.storage is storage:
            lowest = min(lowest, step.box.start[0])
            most = max(most, step.box.end[0] - lowest)
        lowest = min([lowest, *(box.start[0] for fm, box in step.reads if fm.storage is storage)])
    return most


def _cascades(
    operations: Sequence[Operation], chosen: Sequence[Operation], fixed: Collection[Storage]
) -> Iterator[_Cascade]:
    """Ways to do ``chosen`` operations together, in ever more stripes."""
    between, height = _between(operations, chosen, fixed), chosen[-1].ofm.shape[0]
    rows = height
    while rows > 1:
        rows = -(-rows // 2)
        steps = _steps(chosen, rows, between)
        rings = {}
        for held in (one.ofm for one in chosen if one.ofm.storage in between):
            count = _ring_rows(steps, held.storage)
            if count < held.shape[0]:
                ring = Storage(held.storage.name, count * held.strides[0])
                rings[held.storage] = replace(held, storage=ring, ring=count)
        yield _Cascade(tuple(steps), rings)


class Ranges:
    """Which operations behind each other are worth doing together: of hundreds or thousands, few.

    Args:
        operations: in order.
        fitting: which of them are done on whole maps.
    """

    def __init__(self, operations: Sequence[Operation], fitting: Sequence[bool]) -> None:
        self.count = count = len(operations)
        self._fitting = fitting
        times = Counter(one.ofm.storage for one in operations)
        self._next_unfit, self._next_in_parts = [count] * (count + 1), [count] * (count + 1)
        # The first operation that reads what each makes, and the last that makes what each reads.
        self._reader, self._producer = [count] * count, [-1] * count
        makers = {one.ofm.storage: number for number, one in enumerate(operations)}
        for number, one in enumerate(operations):
            for fm, _ in one.maps:
                maker = makers.get(fm.storage, number)
                if maker < number:
                    self._reader[maker] = min(self._reader[maker], number)
                    self._producer[number] = max(self._producer[number], maker)
        for number in reversed(range(count)):
            self._next_unfit[number] = self._next_unfit[number + 1] if fitting[number] else number
            in_parts = times[operations[number].ofm.storage] > 1
            self._next_in_parts[number] = number if in_parts else self._next_in_parts[number + 1]

    def beginning(self, first: int) -> Iterator[int]:
        """The last operations of the ranges that begin with one, itself among them.

        There is nothing in a range whose maps all fit whole, nor in one whose first or last operation has nothing to do
        with the others: that is done before, or after, in no more memory. What is written in parts, or again, is not
        followed row by row.
        """
        end = self._next_in_parts[first]
        if self._fitting[first] or first < end:
            yield first
        for last in range(max(self._reader[first], self._next_unfit[first], first + 1), end):
            if self._producer[last] >= first:
                yield last


def striped(
    operations: Sequence[Operation],
    fixed: Collection[Storage],
    limit: int,
    choose: Callable[[Step], tuple[Block, int]],
) -> list[tuple[Step, Block]] | int:
    """The steps with which all operations are done in the fewest cycles, while maps that live at the same time take no
    more than a limit. An operation is done in stripes only where it does not fit otherwise.

    Args:
        operations: in order.
        fixed: storages that do not count, as they lie elsewhere.
        limit: in bytes.
        choose: the block for a step, and its cycles.

    Returns:
        The steps with their blocks, or the number of the first operation that no stripes admit.
    """
    lives = lives_of([one.whole for one in operations], fixed)

    def fits(first: int, last: int, one: _Cascade) -> bool:
        sizes = {held: one.rings[held].storage.nbytes if held in one.rings else held.nbytes for held in lives}
        alive = (held for held, (start, end) in lives.items() if start <= last and end >= first)
        return sum(-(-sizes[held] // ALIGNMENT) * ALIGNMENT for held in alive) <= limit

    whole = [_Cascade((one.whole,), {}) for one in operations]
    fitting = [fits(number, number, one) for number, one in enumerate(whole)]
    ranges = Ranges(operations, fitting)
    # By the number of operations that are done: the cycles, and where the last cascade begins.
    cycles: list[int | None] = [0] + [None] * len(operations)
    ending: dict[int, tuple[int, _Cascade]] = {}
    for first in range(len(operations)):
        before = cycles[first]
        if before is None:
            continue
        for last in ranges.beginning(first):
            if first == last and fitting[first]:
                best: _Cascade | None = whole[first]
            else:
                some = _cascades(operations, operations[first : last + 1], fixed)
                best = next((one for one in some if fits(first, last, one)), None)
            if best is not None:
                total = before + sum(choose(step)[1] for step in best.steps)
                after = cycles[last + 1]
                if after is None or total < after:
                    cycles[last + 1], ending[last + 1] = total, (first, best)
    if cycles[-1] is None:
        return next(number for number in range(len(operations)) if cycles[number + 1] is None)
    done, count = [], len(operations)
    while count:
        count, one = ending[count]
        done.append(one)
    return [
        (turned, choose(step)[0])
        for one in reversed(done)
        for step, turned in zip(one.steps, one.turned(), strict=True)
    ]
