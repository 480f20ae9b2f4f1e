"""Packing of blocks that live for a while into as little address space as possible.

Dynamic storage allocation with known lives is NP-hard, so several greedy placements are tried, then a local search
over orders of placement: placed lowest first, some order gives an optimal packing (that of the offsets of one). All
of it is deterministic and bounded by an amount of work, not of time.
"""

from __future__ import annotations

import random
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import permutations
from types import MappingProxyType

__all__ = ["Block", "Budget", "Overlaps", "Packer", "lower_bound", "round_up"]

_MAX_PAIRS = 600_000
"""With more overlapping pairs than this, listing them costs more than it gains: placing in order of time must do."""

_FEW = 6
"""Of no more blocks than this, all orders are tried, which finds an optimal packing."""

_OPEN_END = 1 << 62

Overlaps = Mapping[tuple[int, int], int]
"""For a block, by its position, and one that starts earlier, how many bytes the offset of the second must be behind
that of the first, at least, for the two to be allowed to overlap. A negative number is taken for 0."""

Choice = Callable[["Block", Sequence[tuple[int, int]]], int]
"""Takes a block and the ranges of offsets that it may have, both ends included, lowest first, of which the last has no
end; gives one of these offsets."""


@dataclass(frozen=True)
class Block:
    """``size`` bytes at a multiple of ``alignment``, needed from step ``start`` to step ``end``, both included."""

    start: int
    end: int
    size: int
    alignment: int


class Budget:
    """Work left to do, counted in pairs of overlapping blocks looked at."""

    def __init__(self, work: int) -> None:
        self.work = work

    @property
    def left(self) -> bool:
        return self.work > 0


_NONE: Overlaps = MappingProxyType({})


def round_up(offset: int, alignment: int) -> int:
    """The next multiple of ``alignment``, a power of two."""
    return (offset + alignment - 1) & -alignment


def lower_bound(blocks: Sequence[Block], grain: int, overlaps: Overlaps = _NONE) -> int:
    """Bytes that are needed at once at the worst step, whatever the offsets.

    Every offset is a multiple of ``grain``, the smallest alignment, so every block but the topmost one takes up its
    size rounded up to that. Of what a block takes up, so much may be shared with those that it may overlap.
    """
    shared, until = [0] * len(blocks), [-1] * len(blocks)
    for (over, under), distance in overlaps.items():
        one, other = blocks[over], blocks[under]
        if other.start <= one.start <= other.end:
            own = round_up(one.size, grain)
            beyond = own - round_up(_apart(distance, one.size), grain)
            shared[over] = min(own, shared[over] + min(beyond, round_up(other.size, grain)))
            until[over] = max(until[over], min(one.end, other.end))
    live = worst = 0
    ends: list[tuple[int, int]] = []
    paddings: list[tuple[int, int]] = []
    for i in sorted(range(len(blocks)), key=lambda i: blocks[i].start):
        block = blocks[i]
        while ends and ends[0][0] < block.start:
            live -= heappop(ends)[1]
        size = round_up(block.size, grain)
        live += size - shared[i]
        heappush(ends, (block.end, size))
        if shared[i]:
            heappush(ends, (until[i], -shared[i]))
        heappush(paddings, (block.size - size, block.end))
        while paddings[0][1] < block.start:
            heappop(paddings)
        worst = max(worst, live + paddings[0][0])
    return worst


def _apart(distance: int, size: int) -> int:
    """How many bytes a block of ``size`` bytes must begin before another one that it may overlap by ``distance``."""
    return max(0, min(distance, size))


class Packer:
    """Looks for a good packing of some blocks, and keeps the best.

    Args:
        blocks: what to pack.
        bound: a peak that is good enough to stop at, usually `lower_bound`.
        grain: the smallest alignment.
        budget: how much work may be done; shared by packers that compete.
        overlaps: which blocks that live together may overlap, and how far; all others are apart.

    Attributes:
        offsets: of each block, in the best packing so far.
        peak: end of the highest block in it.
    """

    def __init__(
        self, blocks: Sequence[Block], bound: int, grain: int, budget: Budget, overlaps: Overlaps = _NONE
    ) -> None:
        self.blocks = blocks
        self.bound = bound
        self.grain = grain
        self.budget = budget
        self.offsets: list[int] = []
        self.peak = _OPEN_END
        self._order: list[int] = list(range(len(blocks)))
        self._near: list[list[int]] = []
        self._pairs: list[list[tuple[int, int, int]]] = [[] for _ in blocks]
        for (over, under), distance in overlaps.items():
            one, other = blocks[over], blocks[under]
            if one.start <= other.end and other.start <= one.end:
                apart = _apart(distance, one.size)
                self._pairs[over].append((under, apart, other.size))
                self._pairs[under].append((over, other.size, apart))

    def greedy(self) -> None:
        """Place in order of time, then in several orders of importance, in the lowest gap and in the tightest gap."""
        for choose in (_lowest, self._alternate(), _tightest):
            self._keep(self._over_time(choose))
            if self._done() or not self.budget.left:
                return
        pairs = self._count_pairs()
        if pairs > _MAX_PAIRS:
            return
        self._near = self._list_near()
        self.budget.work -= pairs
        for order in self._orders():
            for tightest in (False, True):
                self._keep(self._place(order, tightest, self.peak), order)
                if self._done() or not self.budget.left:
                    return

    def search(self, spare: int) -> None:
        """Improve the best packing: all orders where they are few, else exchanges in the best order so far.

        Args:
            spare: work that stays in the budget.
        """
        if self._done() or not self._near:
            return
        if len(self.blocks) <= _FEW:
            for few in permutations(range(len(self.blocks))):
                self._keep(self._place(few, False, self.peak), few)
            return
        # What stands at the peak is placed earlier; equal results are accepted, to cross plateaus.
        chance = random.Random(0).random  # the one method that is the same in every version of Python
        order = list(self._order)
        offsets = self._place(order, False, _OPEN_END)
        assert offsets is not None
        self._keep(offsets, order)
        peak = self._top(offsets)
        while self.budget.work > spare and not self._done():
            highest = [i for i, block in enumerate(self.blocks) if offsets[i] + block.size == peak]
            one = highest[int(chance() * len(highest))]
            near = self._near[one] if self._near[one] and chance() < 0.75 else order
            other = near[int(chance() * len(near))]
            trial = _exchanged(order, one, other)
            placed = self._place(trial, False, peak + 1)
            if placed is not None:
                order, offsets, peak = trial, placed, self._top(placed)
                self._keep(offsets, order)

    def _done(self) -> bool:
        return self.peak <= self.bound

    def _top(self, offsets: Sequence[int]) -> int:
        return max((offset + block.size for offset, block in zip(offsets, self.blocks, strict=True)), default=0)

    def _keep(self, offsets: list[int] | None, order: Sequence[int] | None = None) -> None:
        if offsets is None:
            return
        peak = self._top(offsets)
        if peak < self.peak:
            self.offsets, self.peak = offsets, peak
            self._order = sorted(range(len(offsets)), key=lambda i: (offsets[i], i)) if order is None else list(order)

    def _alternate(self) -> Choice:
        """Bottom and top by turns, which is optimal for a chain of layers.

        What lives for one step only goes between the two, so that the turns follow the chain.
        """
        top = round_up(self.bound, self.grain)
        turn_of_top = False

        def choose(block: Block, ranges: Sequence[tuple[int, int]]) -> int:
            nonlocal turn_of_top
            if block.start < block.end:
                turn_of_top = not turn_of_top
                if turn_of_top:
                    for low, high in reversed(ranges):
                        offset = min(high, top - block.size) & -block.alignment
                        if offset >= low:
                            return offset
            return _lowest(block, ranges)

        return choose

    def _over_time(self, choose: Choice) -> list[int]:
        """Place in order of time, with a list of gaps by address; needs no list of overlapping pairs."""
        offsets = [-1] * len(self.blocks)
        gaps = [(0, _OPEN_END)]
        taken: dict[int, list[tuple[int, int]]] = {}  # by live blocks; what two share is the later one's
        ending: list[tuple[int, int]] = []
        work = 4 * len(self.blocks)  # keeping the heap
        for i in sorted(range(len(self.blocks)), key=lambda i: _in_time(self.blocks[i], i)):
            block = self.blocks[i]
            while ending and ending[0][0] < block.start:
                for low, high in taken.pop(heappop(ending)[1]):
                    _give_back(gaps, low, high)
            work += len(gaps)
            under = [pair for pair in self._pairs[i] if pair[0] in taken]
            for other, _, _ in under:
                for low, high in taken[other]:
                    _give_back(gaps, low, high)
            ranges = [(low, high - block.size) for low, high in gaps if high - low >= block.size]
            for other, below, above in under:
                ranges = _without(ranges, offsets[other] - below, offsets[other] + above)
            offset = choose(block, ranges)
            offsets[i], end = offset, offset + block.size
            _take(gaps, offset, end)
            taken[i] = [(offset, end)]
            for other, _, _ in under:
                left = [
                    part for low, high in taken[other] for part in ((low, min(high, offset)), (max(low, end), high))
                ]
                taken[other] = [(low, high) for low, high in left if low < high]
                for low, high in taken[other]:
                    _take(gaps, low, high)
            heappush(ending, (block.end, i))
        self.budget.work -= work
        return offsets

    def _place(self, order: Sequence[int], tightest: bool, limit: int) -> list[int] | None:
        """Place in the given order, each block in the lowest or tightest gap; None once the peak reaches ``limit``."""
        blocks, near, pairs = self.blocks, self._near, self._pairs
        offsets = [-1] * len(blocks)
        ends = [0] * len(blocks)
        work = len(blocks) // 8  # what copying lists of this length costs
        for i in order:
            block = blocks[i]
            size, mask = block.size, block.alignment - 1
            others = near[i]
            work += len(others) + 1
            # Where it cannot be: between two offsets, both excluded, for each block that is there already.
            spans = [(offsets[other] - size, ends[other]) for other in others if offsets[other] >= 0]
            if pairs[i]:
                work += len(pairs[i])
                placed = [(offsets[other], below, above) for other, below, above in pairs[i] if offsets[other] >= 0]
                spans += [(at - below, at + above) for at, below, above in placed]
            spans.sort()
            free, choice, slack = 0, -1, _OPEN_END
            for low, high in spans:
                room = low - free
                if 0 <= room < slack:
                    choice, slack = free, room
                    if not tightest:
                        break
                if high > free:
                    free = (high + mask) & ~mask
            if choice < 0:
                choice = free
            if choice + size >= limit:
                self.budget.work -= work
                return None
            offsets[i], ends[i] = choice, choice + size
        self.budget.work -= work
        return offsets

    def _by_start(self) -> list[int]:
        return sorted(range(len(self.blocks)), key=lambda i: (self.blocks[i].start, i))

    def _count_pairs(self) -> int:
        starts = sorted(block.start for block in self.blocks)
        ends = sorted(block.end for block in self.blocks)
        # Of the blocks that start no later than this one, those that ended before it do not overlap it.
        return sum(position - bisect_left(ends, start) for position, start in enumerate(starts))

    def _list_near(self) -> list[list[int]]:
        """For each block those that live with it and must be apart from it."""
        near: list[list[int]] = [[] for _ in self.blocks]
        live: list[int] = []
        for i in self._by_start():
            start = self.blocks[i].start
            live = [other for other in live if self.blocks[other].end >= start]
            for other in live:
                near[other].append(i)
            near[i].extend(live)
            live.append(i)
        for i, pairs in enumerate(self._pairs):
            if pairs:
                excepted = {other for other, _, _ in pairs}
                near[i] = [other for other in near[i] if other not in excepted]
        return near

    def _orders(self) -> Iterator[list[int]]:
        """Orders of placement; important blocks first, in several senses of the word."""
        blocks = self.blocks
        span = [block.end - block.start + 1 for block in blocks]
        crowd = [sum(blocks[other].size for other in others) for others in self._near]
        pressure = self._pressure()
        every = range(len(blocks))
        yield sorted(every, key=lambda i: (-blocks[i].size, -span[i], i))
        yield sorted(every, key=lambda i: (-pressure[i], -blocks[i].size, i))
        yield sorted(every, key=lambda i: (-pressure[i], -span[i], -blocks[i].size, i))
        yield sorted(every, key=lambda i: (-blocks[i].size * span[i], i))
        yield sorted(every, key=lambda i: (-span[i], -blocks[i].size, i))
        yield sorted(every, key=lambda i: (-crowd[i] - blocks[i].size, i))

    def _pressure(self) -> list[int]:
        """For each block, the bytes live at the worst step of its life, as far as steps at which blocks start tell."""
        blocks = self.blocks
        pressure = [0] * len(blocks)
        live: list[int] = []
        for i in self._by_start():
            start = blocks[i].start
            live = [other for other in live if blocks[other].end >= start]
            live.append(i)
            total = sum(blocks[other].size for other in live)
            for other in live:
                pressure[other] = max(pressure[other], total)
        return pressure


def _lowest(block: Block, ranges: Sequence[tuple[int, int]]) -> int:
    mask = block.alignment - 1
    return next(at for low, high in ranges if (at := (low + mask) & ~mask) <= high)


def _tightest(block: Block, ranges: Sequence[tuple[int, int]]) -> int:
    rooms = [(high - at, at) for low, high in ranges if (at := round_up(low, block.alignment)) <= high]
    return min(rooms)[1]


def _without(ranges: Sequence[tuple[int, int]], low: int, high: int) -> list[tuple[int, int]]:
    """What is left of ranges of offsets, ends included, where none may be between ``low`` and ``high``."""
    left = [part for first, last in ranges for part in ((first, min(last, low)), (max(first, high), last))]
    return [(first, last) for first, last in left if first <= last]


def _in_time(block: Block, position: int) -> tuple[int, bool, int, int]:
    return block.start, block.start == block.end, -block.size, position


def _give_back(gaps: list[tuple[int, int]], low: int, high: int) -> None:
    """Return ``low`` .. ``high`` to the gaps, which stay sorted and apart."""
    at = bisect_left(gaps, (low, high))
    first = last = at
    if at > 0 and gaps[at - 1][1] == low:
        first, low = at - 1, gaps[at - 1][0]
    if at < len(gaps) and gaps[at][0] == high:
        last, high = at + 1, gaps[at][1]
    gaps[first:last] = [(low, high)]


def _take(gaps: list[tuple[int, int]], low: int, high: int) -> None:
    """Take ``low`` .. ``high`` out of the one gap that it is in."""
    at = bisect_right(gaps, (low, _OPEN_END)) - 1
    first, last = gaps[at]
    gaps[at : at + 1] = [gap for gap in ((first, low), (high, last)) if gap[0] < gap[1]]


def _exchanged(order: list[int], one: int, other: int) -> list[int]:
    trial = list(order)
    a, b = trial.index(one), trial.index(other)
    trial[a], trial[b] = trial[b], trial[a]
    return trial
