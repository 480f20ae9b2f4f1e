"""The heuristic of core/toolchain/heuristic_packing.c in Python: its oracle. The C file explains it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isqrt

from tests._support.branch_and_bound import Problem

__all__ = ["Ejected", "eject", "lower_peak"]

_PARTS = 4
"""The work is for so many tries without success."""

_STEP = 5
"""A try looks for this part of what the best packing is above the bound, less where tries fail."""

_MOVED = 2
"""How many other blocks are moved where a block took others away."""

_FULL_WEIGHT = 1000

_MASK = (1 << 64) - 1


@dataclass(frozen=True)
class Ejected:
    """What a try found.

    Args:
        offsets: a packing below the limit; None where the work ended before.
        work: what is left of it.
    """

    offsets: Sequence[int] | None
    work: int


def lower_peak(problem: Problem, offsets: Sequence[int], bound: int, work: int) -> tuple[Sequence[int], int]:
    """A packing as low as the work allows, from one that there is, and what is left of the work.

    Args:
        problem: what to pack.
        offsets: of a packing.
        bound: good enough to stop at, as is the size of the largest block.
        work: how much may be done.
    """
    bound = max(bound, *(one.size for one in problem.blocks))
    peak, share, turn = _top(problem, offsets), _STEP, 0
    total = work
    while work > 0 and peak > bound:
        allowance = min(work, total // _PARTS + 1)
        tried = eject(problem, offsets, peak - (peak - bound) // share, allowance, turn)
        work -= allowance - tried.work
        turn += 1
        if tried.offsets is None:
            share *= 2
        else:
            offsets, peak, share = tried.offsets, _top(problem, tried.offsets), _STEP
    return offsets, work


def weights(problem: Problem) -> list[int]:
    """What it costs to take blocks away: those that take up more memory for longer are harder to put back."""
    areas = [one.size * (one.end - one.start + 1) for one in problem.blocks]
    most = max(areas)
    return [1 + isqrt(area * _FULL_WEIGHT**2 // most) for area in areas]


def eject(problem: Problem, offsets: Sequence[int], limit: int, work: int, seed: int) -> Ejected:
    """Make a packing with a peak below ``limit``.

    Args:
        problem: what to pack.
        offsets: of a packing with any peak.
        limit: the peak to beat.
        work: how much may be done, about one for each block looked at.
        seed: other numbers try other places.
    """
    return _Ejection(problem, offsets, limit, seed).run(work)


class _Ejection:
    """Blocks that are placed, at -1 where they are not, and those that wait."""

    def __init__(self, problem: Problem, offsets: Sequence[int], limit: int, seed: int) -> None:
        self.problem, self.limit, self.state = problem, limit, seed
        blocks = problem.blocks
        self.waiting = [i for i, one in enumerate(blocks) if offsets[i] + one.size >= limit]
        self.offsets = list(offsets)
        for i in self.waiting:
            self.offsets[i] = -1
        self.base = weights(problem)
        self.weight = list(self.base)

    def run(self, work: int) -> Ejected:
        blocks, count = self.problem.blocks, len(self.problem.blocks)
        if any(one.size >= self.limit for one in blocks):
            return Ejected(None, work)
        while self.waiting:
            if work <= 0:
                return Ejected(None, work)
            at = self.draw(len(self.waiting))
            i = self.waiting[at]
            self.waiting[at] = self.waiting[-1]
            self.waiting.pop()
            spans = self.spans(i)
            work -= 2 * count + 4 * len(spans)
            offset, cost = self.cheapest(i, spans)
            self.offsets[i] = offset
            if cost:
                self.weight[i] += self.base[i]
                for other in sorted(other for low, high, other in spans if low < offset < high):
                    self.offsets[other] = -1
                    self.waiting.append(other)
                for _ in range(_MOVED):
                    other = self.draw(count)
                    if self.offsets[other] >= 0:
                        work -= count
                        self.offsets[other] = self.elsewhere(other)
        return Ejected(self.offsets, work)

    def draw(self, count: int) -> int:
        """A number below ``count`` by chance."""
        self.state = (self.state * 6364136223846793005 + 1442695040888963407) & _MASK
        return (self.state >> 33) % count

    def spans(self, i: int) -> list[tuple[int, int, int]]:
        """Where block i is in the way of one that is placed: between two offsets, both excluded."""
        blocks, offsets, size = self.problem.blocks, self.offsets, self.problem.blocks[i].size
        spans = [
            (offsets[other] - size, offsets[other] + blocks[other].size, other)
            for other in self.problem.near[i]
            if offsets[other] >= 0
        ]
        spans += [
            (offsets[other] - below, offsets[other] + above, other)
            for other, below, above in self.problem.pairs[i]
            if offsets[other] >= 0 and below + above > 0
        ]
        spans.sort()
        return spans

    def cheapest(self, i: int, spans: Sequence[tuple[int, int, int]]) -> tuple[int, int]:
        """Where the blocks in the way weigh least, more or less, and what they weigh."""
        block, weight = self.problem.blocks[i], self.weight
        mask = block.alignment - 1
        top = (self.limit - 1 - block.size) & ~mask
        highs = sorted((high, weight[other]) for _, high, other in spans)
        offsets = {0, top, *((high + mask) & ~mask for high, _ in highs), *(low & ~mask for low, _, _ in spans)}
        begun = ended = cost = ties = 0
        best: tuple[int, int, int] | None = None
        for offset in sorted(offset for offset in offsets if 0 <= offset <= top):
            while begun < len(spans) and spans[begun][0] < offset:
                cost += weight[spans[begun][2]]
                begun += 1
            while ended < len(highs) and highs[ended][0] <= offset:
                cost -= highs[ended][1]
                ended += 1
            price = (cost << 13) + (cost * self.draw(1 << 10) if cost else 0)
            if best is None or price < best[0]:
                best, ties = (price, offset, cost), 1
            elif price == best[0]:
                ties += 1
                if self.draw(ties) == 0:
                    best = price, offset, cost
        assert best is not None
        return best[1:]

    def elsewhere(self, i: int) -> int:
        """An end of a gap in which block i has room."""
        block = self.problem.blocks[i]
        mask = block.alignment - 1
        top = (self.limit - 1 - block.size) & ~mask
        free, chosen, ties = 0, self.offsets[i], 0
        for low, high, _ in [*self.spans(i), (top, 0, 0)]:
            last = min(low, top) & ~mask
            if free <= last:
                ties += 1
                if self.draw(ties) == 0:
                    chosen = last if self.draw(2) else free
            free = max(free, (high + mask) & ~mask)
        return chosen


def _top(problem: Problem, offsets: Sequence[int]) -> int:
    return max(offset + one.size for offset, one in zip(offsets, problem.blocks, strict=True))
