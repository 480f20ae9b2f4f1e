"""What is packed: blocks that live for a while, pairs of them that may overlap, and the least that they need."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from heapq import heappop, heappush
from types import MappingProxyType

__all__ = [
    "NONE",
    "Block",
    "Budget",
    "Engine",
    "EngineSource",
    "Overlaps",
    "Packing",
    "Pairs",
    "Problem",
    "Search",
    "distance_apart",
    "live_blocks",
    "lower_bound",
    "near_lists",
    "pairs_of",
    "round_up",
    "shared_bytes",
]

Overlaps = Mapping[tuple[int, int], int]
"""For a block, by its position, and one that starts earlier, how many bytes the offset of the second must be behind
that of the first, at least, for the two to be allowed to overlap. A negative number is taken for 0."""


@dataclass(frozen=True)
class Block:
    """``size`` bytes at a multiple of ``alignment``, needed from step ``start`` to step ``end``, both included."""

    start: int
    end: int
    size: int
    alignment: int


Pairs = Sequence[Sequence[tuple[int, int, int]]]
"""For each block those that live with it and that it may overlap, or that may overlap it: which one, how far its offset
must be below that of the other, or else above it."""


class Budget:
    """Work left to do, counted in pairs of overlapping blocks looked at."""

    def __init__(self, work: int) -> None:
        self.work = work

    @property
    def left(self) -> bool:
        return self.work > 0


NONE: Overlaps = MappingProxyType({})
"""No block may overlap another."""


@dataclass(frozen=True)
class Problem:
    """Blocks to pack, the smallest alignment, and which blocks may overlap, and how far; all others are apart."""

    blocks: Sequence[Block]
    grain: int
    overlaps: Overlaps

    @cached_property
    def pairs(self) -> Pairs:
        return pairs_of(self.blocks, self.overlaps)


@dataclass(frozen=True)
class Packing:
    """Result of a search.

    Args:
        offsets: the byte offset of each block.
        is_optimal: whether the search proved that no packing has a lower peak.
        work: the unused part of its work.
    """

    offsets: Sequence[int]
    is_optimal: bool
    work: int


Search = Callable[[Problem, Sequence[int], int, int], Packing]
"""Lowers the peak of a packing. Arguments: the problem, the offsets of a packing, a peak to stop at, and the work, in
blocks that are read."""


@dataclass(frozen=True)
class Engine:
    """Compiled searches."""

    exact: Search
    heuristic: Search


EngineSource = Callable[[], Engine | None]
"""Returns an engine if there is one; called when a search is needed."""


def round_up(offset: int, alignment: int) -> int:
    """The next multiple of ``alignment``, a power of two."""
    return (offset + alignment - 1) & -alignment


def lower_bound(blocks: Sequence[Block], grain: int, overlaps: Overlaps = NONE) -> int:
    """Bytes that are needed at once at the worst step, whatever the offsets.

    Every offset is a multiple of ``grain``, the smallest alignment, so every block but the topmost one takes up its
    size rounded up to that. Of what a block takes up, so much may be shared with those that it may overlap. The largest
    block needs its size.
    """
    shared = shared_bytes(blocks, overlaps, grain)
    live = worst = 0
    ends: list[tuple[int, int]] = []
    paddings: list[tuple[int, int]] = []
    for i in sorted(range(len(blocks)), key=lambda i: blocks[i].start):
        block = blocks[i]
        while ends and ends[0][0] < block.start:
            live -= heappop(ends)[1]
        size = round_up(block.size, grain)
        live += size
        heappush(ends, (block.end, size))
        if i in shared:
            saved, until = shared[i]
            live -= saved
            heappush(ends, (until, -saved))
        heappush(paddings, (block.size - size, block.end))
        while paddings[0][1] < block.start:
            heappop(paddings)
        worst = max(worst, block.size, live + paddings[0][0])
    return worst


def shared_bytes(blocks: Sequence[Block], overlaps: Overlaps, grain: int) -> dict[int, tuple[int, int]]:
    """For blocks that may overlap earlier ones: how much of what they take up, in multiples of ``grain``, these have
    taken already, at most, and the last step of which that can be said."""
    shared: dict[int, tuple[int, int]] = {}
    for (over, under), _ in overlaps.items():
        one, other = blocks[over], blocks[under]
        if other.start <= one.start <= other.end:
            size = round_up(one.size, grain)
            beyond = size - round_up(distance_apart(overlaps, over, under, one.size), grain)
            saved, until = shared.get(over, (0, -1))
            saved = min(size, saved + min(beyond, round_up(other.size, grain)))
            shared[over] = saved, max(until, min(one.end, other.end))
    return shared


def distance_apart(overlaps: Overlaps, lower: int, upper: int, size: int) -> int:
    """How many bytes the offset of block ``upper`` must be above that of block ``lower``, which has ``size``, where it
    is not below it and the two live together."""
    return max(0, min(overlaps.get((lower, upper), size), size))


def pairs_of(blocks: Sequence[Block], overlaps: Overlaps) -> Pairs:
    """The pairs of blocks that live together and may overlap, by either of the two."""
    pairs: list[list[tuple[int, int, int]]] = [[] for _ in blocks]
    for over, under in overlaps:
        one, other = blocks[over], blocks[under]
        if one.start <= other.end and other.start <= one.end:
            apart = distance_apart(overlaps, over, under, one.size)
            pairs[over].append((under, apart, other.size))
            pairs[under].append((over, other.size, apart))
    return pairs


def live_blocks(blocks: Sequence[Block]) -> Iterator[tuple[int, list[int]]]:
    """Yield each block, in the order of their starts, with the earlier ones that are live when it starts."""
    live: list[int] = []
    for i in sorted(range(len(blocks)), key=lambda i: (blocks[i].start, i)):
        live = [other for other in live if blocks[other].end >= blocks[i].start]
        yield i, live
        live.append(i)


def near_lists(blocks: Sequence[Block], pairs: Pairs) -> list[list[int]]:
    """For each block those that live with it and must be apart from it."""
    near: list[list[int]] = [[] for _ in blocks]
    for i, live in live_blocks(blocks):
        for other in live:
            near[other].append(i)
        near[i].extend(live)
    for i, block_pairs in enumerate(pairs):
        if block_pairs:
            excepted = {other for other, _, _ in block_pairs}
            near[i] = [other for other in near[i] if other not in excepted]
    return near
