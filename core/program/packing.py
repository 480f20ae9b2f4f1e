"""Packing of blocks that live for a while into as little address space as possible.

Dynamic storage allocation with known lives is NP-hard, so several greedy placements are tried, then a local search
over orders of placement: placed lowest first, some order gives an optimal packing (that of the offsets of one). All
of it is deterministic and bounded by an amount of work, not of time.
"""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import permutations

__all__ = ["Block", "Budget", "Packer", "lower_bound", "round_up"]

_MAX_PAIRS = 600_000
"""With more overlapping pairs than this, listing them costs more than it gains: placing in order of time must do."""

_FEW = 6
"""Of no more blocks than this, all orders are tried, which finds an optimal packing."""

_OPEN_END = 1 << 62

Choice = Callable[["Block", Sequence[tuple[int, int]]], tuple[int, int]]
"""Takes a block and the gaps by address, of which the last has no end; gives a gap's position and an offset in it."""


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


def round_up(offset: int, alignment: int) -> int:
    """The next multiple of ``alignment``, a power of two."""
    return (offset + alignment - 1) & -alignment


def lower_bound(blocks: Sequence[Block], grain: int) -> int:
    """Bytes that are needed at once at the worst step, whatever the offsets.

    Every offset is a multiple of ``grain``, the smallest alignment, so every block but the topmost one takes up its
    size rounded up to that.
    """
    live = worst = 0
    ends: list[tuple[int, int]] = []
    paddings: list[tuple[int, int]] = []
    for block in sorted(blocks, key=lambda block: block.start):
        while ends and ends[0][0] < block.start:
            live -= heappop(ends)[1]
        size = round_up(block.size, grain)
        live += size
        heappush(ends, (block.end, size))
        heappush(paddings, (block.size - size, block.end))
        while paddings[0][1] < block.start:
            heappop(paddings)
        worst = max(worst, live + paddings[0][0])
    return worst


class Packer:
    """Looks for a good packing of some blocks, and keeps the best.

    Args:
        blocks: what to pack.
        bound: a peak that is good enough to stop at, usually `lower_bound`.
        grain: the smallest alignment.
        budget: how much work may be done; shared by packers that compete.

    Attributes:
        offsets: of each block, in the best packing so far.
        peak: end of the highest block in it.
    """

    def __init__(self, blocks: Sequence[Block], bound: int, grain: int, budget: Budget) -> None:
        self.blocks = blocks
        self.bound = bound
        self.grain = grain
        self.budget = budget
        self.offsets: list[int] = []
        self.peak = _OPEN_END
        self._order: list[int] = list(range(len(blocks)))
        self._near: list[list[int]] = []

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

        def choose(block: Block, gaps: Sequence[tuple[int, int]]) -> tuple[int, int]:
            nonlocal turn_of_top
            if block.start < block.end:
                turn_of_top = not turn_of_top
                if turn_of_top:
                    for position in range(len(gaps) - 1, -1, -1):
                        low, high = gaps[position]
                        offset = (min(high, top) - block.size) & -block.alignment
                        if offset >= low:
                            return position, offset
            return _lowest(block, gaps)

        return choose

    def _over_time(self, choose: Choice) -> list[int]:
        """Place in order of time, with a list of gaps by address; needs no list of overlapping pairs."""
        offsets = [0] * len(self.blocks)
        gaps = [(0, _OPEN_END)]
        ending: list[tuple[int, int, int]] = []
        work = 4 * len(self.blocks)  # keeping the heap
        for i in sorted(range(len(self.blocks)), key=lambda i: _in_time(self.blocks[i], i)):
            block = self.blocks[i]
            while ending and ending[0][0] < block.start:
                _, low, high = heappop(ending)
                _give_back(gaps, low, high)
            work += len(gaps)
            position, offset = choose(block, gaps)
            offsets[i] = offset
            low, high = gaps[position]
            end = offset + block.size
            gaps[position : position + 1] = [gap for gap in ((low, offset), (end, high)) if gap[0] < gap[1]]
            heappush(ending, (block.end, offset, end))
        self.budget.work -= work
        return offsets

    def _place(self, order: Sequence[int], tightest: bool, limit: int) -> list[int] | None:
        """Place in the given order, each block in the lowest or tightest gap; None once the peak reaches ``limit``."""
        blocks, near = self.blocks, self._near
        offsets = [-1] * len(blocks)
        ends = [0] * len(blocks)
        work = len(blocks) // 8  # what copying lists of this length costs
        for i in order:
            block = blocks[i]
            size, mask = block.size, block.alignment - 1
            others = near[i]
            work += len(others) + 1
            free, choice, slack = 0, -1, _OPEN_END
            for low, high in sorted([(offsets[other], ends[other]) for other in others if offsets[other] >= 0]):
                room = low - free - size
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
        near: list[list[int]] = [[] for _ in self.blocks]
        live: list[int] = []
        for i in self._by_start():
            start = self.blocks[i].start
            live = [other for other in live if self.blocks[other].end >= start]
            for other in live:
                near[other].append(i)
            near[i].extend(live)
            live.append(i)
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


def _lowest(block: Block, gaps: Sequence[tuple[int, int]]) -> tuple[int, int]:
    size, mask = block.size, block.alignment - 1
    return next((i, at) for i, (low, high) in enumerate(gaps) if (at := (low + mask) & ~mask) + size <= high)


def _tightest(block: Block, gaps: Sequence[tuple[int, int]]) -> tuple[int, int]:
    rooms = [high - round_up(low, block.alignment) - block.size for low, high in gaps]
    position = min((room, position) for position, room in enumerate(rooms) if room >= 0)[1]
    return position, round_up(gaps[position][0], block.alignment)


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


def _exchanged(order: list[int], one: int, other: int) -> list[int]:
    trial = list(order)
    a, b = trial.index(one), trial.index(other)
    trial[a], trial[b] = trial[b], trial[a]
    return trial
