"""Many short exact searches, each of which learns from where those before it failed: oracle of
`uma_pack_exactly` in core/toolchain/exact_packing.c."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

from tests._support.branch_and_bound import Problem, attempt

__all__ = ["BestPacking", "improve_packing"]

_PATIENCE = 20
_TRIES = 8
"""After so many searches without success the next ones look for less: fewer where the work is not enough for this to
happen so many times."""

_PLACED = 4
"""A search is as much work as placing all blocks so many times."""

_LEAST = 2
"""Where there is work for fewer searches, none is made."""

_EVERY = 9
_FIRST = 8
_LATER = 64
"""How often a search is longer, and by what part of the work: the first one, and the others."""


class BestPacking:
    """The best packing so far.

    Args:
        peak: of the one that is to be beaten.
        bound: no packing is known to be below it.

    Attributes:
        offsets: of a better one; None where none was found.
        peak: of that.
        bound: raised by what was proven.
    """

    def __init__(self, peak: int, bound: int) -> None:
        self.peak, self.bound = peak, bound
        self.offsets: Sequence[int] | None = None

    @property
    def is_proven(self) -> bool:
        """Whether nothing is better."""
        return self.peak <= self.bound


def improve_packing(problem: Problem, peak: int, bound: int, work: int) -> tuple[BestPacking, int]:
    """A packing below ``peak``, as low as the work allows, and what is left of the work.

    Each search looks for a peak between the bound and the best one, for about as much work as placing all blocks a few
    times. The ranks of the blocks go by four measures in turn; what lives where a search failed often gains weight by
    that measure, and what it gained before counts a little less each time. The first search and some of the later ones
    are longer, for anything better, so that what is small is proven.

    Args:
        problem: what to pack.
        peak: to be beaten.
        bound: good enough to stop at.
        work: how much may be done.
    """
    best = BestPacking(peak, bound)
    short = _PLACED * _once(problem)
    if work < _LEAST * short:
        return best, work
    measures = _measures(problem)
    learned = [[1.0] * len(problem.blocks) for _ in measures]
    aim, misses, turn = _aim(best), 0, 0
    patience = max(1, min(_PATIENCE, work // short // _TRIES))
    first, later = work // _FIRST, work // _LATER
    while work > 0 and not best.is_proven:
        which = turn % len(measures)
        measure, weights = measures[which], learned[which]
        rank = _ranks([one * weight for one, weight in zip(measure, weights, strict=True)])
        is_long = turn % _EVERY == 0
        allowance = min(work, max(short, later if turn else first) if is_long else short)
        limit = best.peak if is_long else aim + 1
        tried = attempt(problem, rank, limit, allowance)
        work -= allowance - tried.work
        turn += 1
        if tried.offsets is not None:
            best.offsets = tried.offsets
            best.peak = max(at + one.size for at, one in zip(tried.offsets, problem.blocks, strict=True))
            aim, misses = _aim(best), 0
        elif tried.is_complete:
            best.bound = max(best.bound, limit)
            aim = _aim(best)
        else:
            misses += 1
            if misses % patience == 0:
                aim = min(best.peak - 1, (aim + best.peak) // 2)
            total = sum(tried.fails) + 1
            worst = _maxima(tried.fails, problem.spans)
            weights = [weight * (1 + fails / total) for weight, fails in zip(weights, worst, strict=True)]
            most = max(weights)
            learned[which] = [_power_7_8(weight / most) for weight in weights]
    return best, work


def _once(problem: Problem) -> int:
    """About how much work it is to place all blocks."""
    blocks, sections = len(problem.blocks), len(problem.left)
    return blocks * (1 + (blocks + sections) // 4) + sum(map(len, problem.near)) + sum(map(len, problem.spans))


def _maxima(values: Sequence[int], spans: Sequence[range]) -> list[int]:
    """The largest value in each span, of which none is empty."""
    tables = [list(values)]
    while 2 * (width := 1 << (len(tables) - 1)) <= len(values):
        last = tables[-1]
        tables.append([max(pair) for pair in zip(last, last[width:], strict=False)])
    maxima = []
    for span in spans:
        level = len(span).bit_length() - 1
        table = tables[level]
        maxima.append(max(table[span.start], table[span.stop - (1 << level)]))
    return maxima


def _power_7_8(weight: float) -> float:
    """Its power of 7/8, by what is rounded in the same way everywhere."""
    return weight / sqrt(sqrt(sqrt(weight)))


def _aim(best: BestPacking) -> int:
    return min(best.peak - 1, best.bound + (best.peak - best.bound) * 7 // 10)


def _measures(problem: Problem) -> list[list[float]]:
    """How important blocks are, in four senses of the word."""
    blocks, spans = problem.blocks, problem.spans
    crowd = _maxima(problem.left, spans)
    area = [one.size * len(span) for one, span in zip(blocks, spans, strict=True)]
    crowds, areas = max(crowd), max(area)
    longest, largest = max(map(len, spans)), max(one.size for one in blocks)
    return [
        [10.0 * (a / crowds) * (a / crowds) * (a / crowds) + b / areas for a, b in zip(crowd, area, strict=True)],
        [len(span) / longest + one.size / largest / 1000 for one, span in zip(blocks, spans, strict=True)],
        [one / areas for one in area],
        [one.size / largest for one in blocks],
    ]


def _ranks(importance: Sequence[float]) -> list[int]:
    ranks = [0] * len(importance)
    for rank, i in enumerate(sorted(range(len(importance)), key=lambda i: (-importance[i], i))):
        ranks[i] = rank
    return ranks
