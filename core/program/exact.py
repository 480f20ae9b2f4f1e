"""Exact packing by branch and bound, after Moffitt, "MiniMalloc: A Lightweight Memory Allocator for
Hardware-Accelerated Machine Learning" (ASPLOS 2023), with blocks that may overlap by a distance.

Pushed down as far as they go, the blocks of a packing lie at 0 or on others. So blocks are placed in the order of
their offsets, each at its floor: the lowest offset that those below leave it. Time is cut into sections, one for each
set of blocks that live together and is not part of another. A branch ends where

* what is left of a section does not fit between its lowest floor and the peak to beat,
* a block's floor is lower than the last offset: it would have had to come before (and may still, once its floor rises),
* another block would fit entirely below the one to be placed: placed there, it is in nobody's way,
* of two blocks alike, the later one would come first, or of two at one offset.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence

from .blocks import Block, Budget, Overlaps, distance_apart, round_up, shared_bytes

__all__ = ["improved"]


def improved(
    blocks: Sequence[Block], overlaps: Overlaps, grain: int, bound: int, limit: int, budget: Budget, spare: int = 0
) -> tuple[list[int] | None, bool]:
    """The smallest packing with a peak below ``limit``, and whether none is smaller.

    Args:
        blocks, overlaps, grain: as for `Packer`.
        bound: a peak that is good enough to stop at.
        limit: the peak to beat.
        budget: how much work may be done.
        spare: work that stays in the budget.

    Returns:
        Offsets, or None where no packing below ``limit`` was found; and False where the work ended before all was tried
        (what was found is then the smallest seen).
    """
    search = _Search(blocks, overlaps, grain, limit)
    while search.limit > bound:
        if budget.work <= spare:
            return search.best, False
        if not search.step(budget):
            return search.best, True
    return search.best, True


class _Search:
    """Branch and bound, a step at a time.

    Attributes:
        limit: the peak to beat: that of the best packing so far.
        best: its offsets; None where nothing was found.
    """

    def __init__(self, blocks: Sequence[Block], overlaps: Overlaps, grain: int, limit: int) -> None:
        count = len(blocks)
        self.blocks, self.limit = blocks, limit
        self.best: list[int] | None = None
        starts = _sections(blocks)
        self.spans = [_span(block, starts) for block in blocks]
        self.members: list[list[int]] = [[] for _ in starts]
        for i, span in enumerate(self.spans):
            for section in span:
                self.members[section].append(i)
        self.left = [0] * len(starts)  # bytes that the unplaced blocks of a section take at least
        self.taken: list[list[tuple[int, int]]] = []  # for each block by section: what it adds to `left`
        shared = shared_bytes(blocks, overlaps, grain)
        for i, block in enumerate(blocks):
            own = round_up(block.size, grain)
            saved, until = shared.get(i, (0, -1))
            self.taken.append([(t, own - saved if starts[t] <= until else own) for t in self.spans[i]])
            for section, size in self.taken[i]:
                self.left[section] += size
        self.padding = [max(round_up(blocks[i].size, grain) - blocks[i].size for i in one) for one in self.members]
        # Others that live with a block, each with how far above the block's offset they must be once it is placed.
        self.above: list[list[tuple[int, int]]] = []
        for i, block in enumerate(blocks):
            near = dict.fromkeys(other for t in self.spans[i] for other in self.members[t] if other != i)
            self.above.append([(j, distance_apart(overlaps, i, j, block.size)) for j in near])
        self.rank = _ranks(blocks, self.spans, self.left)
        self.twin = _twins(blocks, overlaps, self.rank)
        under = {pair[1] for pair in overlaps}
        self.lies_over = [i in under for i in range(count)]  # at its offset too, what may overlap it comes first
        self.floor = [0] * count
        self.offsets = [-1] * count
        self.lowest = [0] * len(starts)  # of the floors of a section's unplaced blocks
        self.unplaced = count
        self.trail: list[tuple[int, list[tuple[int, int]], list[tuple[int, int]]]] = []
        self.choices: list[Iterator[int]] = [iter(self._candidates(0, -1))]

    def step(self, budget: Budget) -> bool:
        """Place one block, or take one back; False where all has been tried."""
        i = next(self.choices[-1], -1)
        budget.work -= 1
        if i < 0:
            self.choices.pop()
            if not self.choices:
                return False
            self._take_back()
            return True
        offset = self.floor[i]
        if offset + self.blocks[i].size >= self.limit:
            return True
        fits = self._place(i, offset, budget)
        if fits and self.unplaced:
            budget.work -= len(self.blocks) // 4
            self.choices.append(iter(self._candidates(offset, self.rank[i])))
            return True
        if fits:
            self.best = list(self.offsets)
            self.limit = max(at + block.size for at, block in zip(self.offsets, self.blocks, strict=True))
        self._take_back()
        return True

    def _candidates(self, reached: int, last: int) -> list[int]:
        """Which blocks may come next, the most promising first, where the last one of that rank is at ``reached``."""
        floor, offsets, rank, blocks = self.floor, self.offsets, self.rank, self.blocks
        unplaced = [i for i, at in enumerate(offsets) if at < 0]
        roof = min(floor[i] + blocks[i].size for i in unplaced)
        found = [
            i
            for i in unplaced
            if reached <= floor[i] < roof
            and (floor[i] > reached or rank[i] > last or self.lies_over[i])
            and (self.twin[i] < 0 or offsets[self.twin[i]] >= 0)
        ]
        return sorted(found, key=lambda i: (floor[i], rank[i]))

    def _place(self, i: int, offset: int, budget: Budget) -> bool:
        """Place a block; False where the others no longer fit."""
        floor, offsets, lowest, left = self.floor, self.offsets, self.lowest, self.left
        offsets[i] = offset
        self.unplaced -= 1
        for section, size in self.taken[i]:
            left[section] -= size
        raised: list[tuple[int, int]] = []
        span = self.spans[i]
        first, last = span.start, span.stop
        for j, apart in self.above[i]:
            if offsets[j] < 0 and floor[j] < offset + apart:
                raised.append((j, floor[j]))
                floor[j] = round_up(offset + apart, self.blocks[j].alignment)
                first, last = min(first, self.spans[j].start), max(last, self.spans[j].stop)
        changed: list[tuple[int, int]] = []
        self.trail.append((i, raised, changed))
        work = len(self.above[i]) + len(left)
        for section in range(first, last):
            work += len(self.members[section])
            low = min((floor[j] for j in self.members[section] if offsets[j] < 0), default=0)
            if low > lowest[section]:
                changed.append((section, lowest[section]))
                lowest[section] = low
        budget.work -= work
        sections = zip(left, lowest, self.padding, strict=True)
        return not any(size and max(low, offset) + size - padding >= self.limit for size, low, padding in sections)

    def _take_back(self) -> None:
        i, raised, changed = self.trail.pop()
        self.offsets[i] = -1
        self.unplaced += 1
        for section, size in self.taken[i]:
            self.left[section] += size
        for j, before in raised:
            self.floor[j] = before
        for section, before in changed:
            self.lowest[section] = before


def _sections(blocks: Sequence[Block]) -> list[int]:
    """A step of each section: those where something starts and, before the next such step, something ends."""
    starts = sorted({block.start for block in blocks})
    ends = sorted(block.end for block in blocks)
    found: list[int] = []
    at = 0
    for start, following in zip(starts, [*starts[1:], None], strict=True):
        while at < len(ends) and ends[at] < start:
            at += 1
        if following is None or (at < len(ends) and ends[at] < following):
            found.append(start)
    return found


def _span(block: Block, starts: Sequence[int]) -> range:
    """The sections that a block lives in."""
    return range(bisect_left(starts, block.start), bisect_right(starts, block.end))


def _ranks(blocks: Sequence[Block], spans: Sequence[range], load: Sequence[int]) -> list[int]:
    """The place of each block in the order in which they are tried: of crowded sections first, then large ones."""
    crowd = [max(load[section] for section in span) for span in spans]
    order = sorted(range(len(blocks)), key=lambda i: (-crowd[i], -blocks[i].size * len(spans[i]), -blocks[i].size, i))
    ranks = [0] * len(blocks)
    for rank, i in enumerate(order):
        ranks[i] = rank
    return ranks


def _twins(blocks: Sequence[Block], overlaps: Overlaps, rank: Sequence[int]) -> list[int]:
    """For each block one that is like it and is to be placed before it, or -1."""
    paired = {i for pair in overlaps for i in pair}
    twins = [-1] * len(blocks)
    last: dict[Block, int] = {}
    for i in sorted(range(len(blocks)), key=lambda i: rank[i]):
        if i not in paired:
            twins[i] = last.get(blocks[i], -1)
            last[blocks[i]] = i
    return twins
