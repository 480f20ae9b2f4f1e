"""Packing of blocks that live for a while into as little address space as possible.

Dynamic storage allocation with known lives is NP-hard, so several greedy placements are tried, then an exact search
and a heuristic in C; without a C compiler, more greedy placements. All of it is deterministic and bounded by an amount
of work, not of time.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence

from .greedy_by_start import alternate, lowest, place_over_time, tightest
from .problem import (
    NONE,
    Block,
    Budget,
    EngineSource,
    Overlaps,
    Problem,
    Search,
    live_blocks,
    lower_bound,
    near_lists,
    pairs_of,
    round_up,
)

__all__ = ["Block", "Budget", "Overlaps", "Packer", "lower_bound", "pairs_of", "round_up"]

_MAX_PAIRS = 600_000
"""With more overlapping pairs than this, listing them costs more than it gains: placing in order of time must do."""

_WORK_FACTOR = 100
"""How much faster the compiled searches are than greedy placement: their work is multiplied by it."""

_PLACEMENTS = 60
"""How often blocks are placed in variants of one order."""

_OPEN_END = 1 << 62


class Packer:
    """Looks for a good packing of some blocks, and keeps the best.

    Args:
        blocks: what to pack.
        bound: a peak that is good enough to stop at, usually `lower_bound`.
        grain: the smallest alignment.
        budget: how much work may be done; shared by packers that compete.
        overlaps: which blocks that live together may overlap, and how far; all others are apart.
        engine: returns the compiled searches. It is called only if the best greedy placement is above the bound: only
            then does the result depend on it.

    Attributes:
        offsets: of each block, in the best packing so far.
        peak: end of the highest block in it.
        is_proven: whether a search has shown that there is no better one.
    """

    def __init__(
        self,
        blocks: Sequence[Block],
        bound: int,
        grain: int,
        budget: Budget,
        overlaps: Overlaps = NONE,
        engine: EngineSource | None = None,
    ) -> None:
        self.problem = Problem(blocks, grain, overlaps)
        self.blocks = blocks
        self.bound = bound
        self.grain = grain
        self.budget = budget
        self.offsets: list[int] = []
        self.peak = _OPEN_END
        self._near: list[list[int]] = []
        self.engine = engine
        self.is_proven = False
        self._pairs = self.problem.pairs

    def greedy(self) -> None:
        """Place in order of time, then in several orders of importance, in the lowest gap and in the tightest gap; with
        half of the budget."""
        spare = self.budget.work // 2
        for choose in (lowest, alternate(round_up(self.bound, self.grain)), tightest):
            self._keep(place_over_time(self.blocks, self._pairs, choose, self.budget))
            if self._done() or not self.budget.left:
                return
        pairs = self._count_pairs()
        if pairs > _MAX_PAIRS:
            return
        self._near = near_lists(self.blocks, self._pairs)
        self.budget.work -= pairs
        for order in self._orders():
            for in_tightest in (False, True):
                self._keep(self._place(order, in_tightest, self.peak))
                if self._done() or self.budget.work <= spare:
                    return

    def search(self, spare: int) -> None:
        """Improve the best packing: by a short exact search, a long one and a heuristic in C; without an engine by
        greedy placements in other orders.

        Args:
            spare: work that stays in the budget.
        """
        available = max(0, self.budget.work - spare)
        if self._done() or not self._near or not available:
            return
        engine = None if self.engine is None else self.engine()
        if engine is None:
            self._reorder(spare)
            return
        self.budget.work -= self._run(engine.exact, available // 2)
        self._run(engine.exact, _WORK_FACTOR * available * 3 // 4)
        self._run(engine.heuristic, _WORK_FACTOR * available // 4)

    def _run(self, search: Search, work: int) -> int:
        """Keep the packing of ``search``; return the work that was used."""
        if self._done():
            return 0
        packing = search(self.problem, self.offsets, self.bound, work)
        self._keep(list(packing.offsets))
        self.is_proven = packing.is_optimal
        return work - packing.work

    def _reorder(self, spare: int) -> None:
        """Place again and again, each time with the blocks that ended at the peak earlier in the order.

        After Joslin and Clements, "Squeaky Wheel Optimization" (1999).
        """
        by_end = sorted(range(len(self.blocks)), key=lambda i: (-self.blocks[i].end, -self.blocks[i].start, i))
        for order in (by_end, *self._orders()):
            for _ in range(_PLACEMENTS):
                offsets = self._place(order, False, _OPEN_END)
                assert offsets is not None
                self._keep(offsets)
                if self._done() or self.budget.work <= spare:
                    return
                peak = self._top(offsets)
                for i in [i for i in order if offsets[i] + self.blocks[i].size == peak]:
                    position = order.index(i)
                    order.insert(position // 2, order.pop(position))

    def _done(self) -> bool:
        return self.is_proven or self.peak <= self.bound

    def _top(self, offsets: Sequence[int]) -> int:
        return max((offset + block.size for offset, block in zip(offsets, self.blocks, strict=True)), default=0)

    def _keep(self, offsets: list[int] | None) -> None:
        if offsets is None:
            return
        peak = self._top(offsets)
        if peak < self.peak:
            self.offsets, self.peak = offsets, peak

    def _place(self, order: Sequence[int], in_tightest: bool, limit: int) -> list[int] | None:
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
                    if not in_tightest:
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

    def _count_pairs(self) -> int:
        starts = sorted(block.start for block in self.blocks)
        ends = sorted(block.end for block in self.blocks)
        # Of the blocks that start no later than this one, those that ended before it do not overlap it.
        return sum(position - bisect_left(ends, start) for position, start in enumerate(starts))

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
        for i, live in live_blocks(blocks):
            total = blocks[i].size + sum(blocks[other].size for other in live)
            for other in (i, *live):
                pressure[other] = max(pressure[other], total)
        return pressure
