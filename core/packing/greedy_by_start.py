"""Placing blocks in the order of time, each at one of the offsets that those before it leave it."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from heapq import heappop, heappush

from .problem import Block, Budget, Pairs, round_up

__all__ = ["Choice", "alternate", "lowest", "place_over_time", "tightest"]

_OPEN_END = 1 << 62

Choice = Callable[["Block", Sequence[tuple[int, int]]], int]
"""Takes a block and the ranges of offsets that it may have, both ends included, lowest first, of which the last has no
end; gives one of these offsets."""


def alternate(top: int) -> Choice:
    """Bottom and top by turns, which is optimal for a chain of layers.

    What lives for one step only goes between the two, so that the turns follow the chain.

    Args:
        top: where the highest block is to end.
    """
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
        return lowest(block, ranges)

    return choose


def place_over_time(blocks: Sequence[Block], pairs: Pairs, choose: Choice, budget: Budget) -> list[int]:
    """Place in order of time, with a list of gaps by address; needs no list of overlapping pairs."""
    offsets = [-1] * len(blocks)
    gaps = [(0, _OPEN_END)]
    occupied: dict[int, list[tuple[int, int]]] = {}  # by live blocks; what two share is the later one's
    ending: list[tuple[int, int]] = []
    work = 4 * len(blocks)  # keeping the heap
    for i in sorted(range(len(blocks)), key=lambda i: _in_time(blocks[i], i)):
        block = blocks[i]
        while ending and ending[0][0] < block.start:
            for low, high in occupied.pop(heappop(ending)[1]):
                _give_back(gaps, low, high)
        work += len(gaps)
        under = [pair for pair in pairs[i] if pair[0] in occupied]
        for other, _, _ in under:
            for low, high in occupied[other]:
                _give_back(gaps, low, high)
        ranges = [(low, high - block.size) for low, high in gaps if high - low >= block.size]
        for other, below, above in under:
            ranges = _without(ranges, offsets[other] - below, offsets[other] + above)
        offset = choose(block, ranges)
        offsets[i], end = offset, offset + block.size
        _take(gaps, offset, end)
        occupied[i] = [(offset, end)]
        for other, _, _ in under:
            remaining = [
                part for low, high in occupied[other] for part in ((low, min(high, offset)), (max(low, end), high))
            ]
            occupied[other] = [(low, high) for low, high in remaining if low < high]
            for low, high in occupied[other]:
                _take(gaps, low, high)
        heappush(ending, (block.end, i))
    budget.work -= work
    return offsets


def lowest(block: Block, ranges: Sequence[tuple[int, int]]) -> int:
    """The lowest offset."""
    mask = block.alignment - 1
    return next(at for low, high in ranges if (at := (low + mask) & ~mask) <= high)


def tightest(block: Block, ranges: Sequence[tuple[int, int]]) -> int:
    """The lowest offset in the range that leaves least room."""
    rooms = [(high - at, at) for low, high in ranges if (at := round_up(low, block.alignment)) <= high]
    return min(rooms)[1]


def _without(ranges: Sequence[tuple[int, int]], low: int, high: int) -> list[tuple[int, int]]:
    """What is left of ranges of offsets, ends included, where none may be between ``low`` and ``high``."""
    remaining = [part for first, last in ranges for part in ((first, min(last, low)), (max(first, high), last))]
    return [(first, last) for first, last in remaining if first <= last]


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
