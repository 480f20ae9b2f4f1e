"""The exact search of core/toolchain/exact_packing.c in Python: its oracle. The C file explains it."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from uma.packing.problem import Block, Overlaps, near_lists, pairs_of, round_up, shared_bytes

__all__ = ["Attempt", "Problem", "attempt"]


@dataclass(frozen=True)
class Attempt:
    """What a search found.

    Args:
        offsets: a packing below the limit; None where none was found.
        is_complete: whether there is none where none was found: False where the work ended before.
        work: what is left of it.
        fails: for each section how many branches ended because it was full.
    """

    offsets: Sequence[int] | None
    is_complete: bool
    work: int
    fails: Sequence[int]


class Problem:
    """Blocks to pack, as the search sees them.

    Args:
        blocks, overlaps: what to pack.
        grain: the smallest alignment.
        near: as the attribute, where it is known.

    Attributes:
        pairs: as of `pairs_of`.
        near: as of `near_lists`.
        spans: for each block its sections.
        members: for each section its blocks.
        taken: for each block, by section of its span, the bytes that it adds to the section at least.
        left: for each section, the bytes that all its blocks take at least.
        padding: for each section, how many bytes of these the topmost block may not take.
        above: for each block those that live with it, each with how far its offset must be above that of the first.
        lies_over: which blocks others may overlap: at the same offset too, these come first.
        twin: for each block one that is like it and comes first, or -1.
    """

    def __init__(
        self, blocks: Sequence[Block], overlaps: Overlaps, grain: int, near: Sequence[Sequence[int]] | None = None
    ) -> None:
        self.blocks = blocks
        self.pairs = pairs_of(blocks, overlaps)
        self.near = near_lists(blocks, self.pairs) if near is None else near
        starts = _sections(blocks)
        self.spans = [range(bisect_left(starts, one.start), bisect_right(starts, one.end)) for one in blocks]
        self.members: list[list[int]] = [[] for _ in starts]
        for i, span in enumerate(self.spans):
            for section in span:
                self.members[section].append(i)
        self.left = [0] * len(starts)
        self.taken: list[list[int]] = []
        shared = shared_bytes(blocks, overlaps, grain)
        for i, block in enumerate(blocks):
            size_bytes = round_up(block.size, grain)
            saved, until = shared.get(i, (0, -1))
            self.taken.append([size_bytes - saved if starts[t] <= until else size_bytes for t in self.spans[i]])
            for section, size in zip(self.spans[i], self.taken[i], strict=True):
                self.left[section] += size
        self.padding = [max(round_up(blocks[i].size, grain) - blocks[i].size for i in one) for one in self.members]
        under = {pair[1] for pair in overlaps}
        self.lies_over = [i in under for i in range(len(blocks))]
        self.twin = _twins(blocks, overlaps)

    @cached_property
    def above(self) -> list[list[tuple[int, int]]]:
        return [
            [(j, block.size) for j in near] + [(j, apart) for j, apart, _ in pairs]
            for block, near, pairs in zip(self.blocks, self.near, self.pairs, strict=True)
        ]


def attempt(problem: Problem, rank: Sequence[int], limit: int, work: int) -> Attempt:
    """Look for a packing with a peak below ``limit``.

    Args:
        problem: what to pack.
        rank: of each block; of those with one floor the lowest rank is tried first.
        limit: the peak to beat.
        work: how much may be done, about one for each block looked at.
    """
    search = _Search(problem, rank, limit)
    choices = [search.candidates(0, -1)]
    turn = 1 + len(problem.blocks) // 4
    while work > 0:
        work -= turn
        if not choices[-1]:
            choices.pop()
            if not choices:
                return Attempt(None, True, work, search.fails)
            search.take_back()
            continue
        i = choices[-1].pop()
        offset = search.floor[i]
        if offset + problem.blocks[i].size >= limit:
            continue
        fits, cost = search.place(i, offset)
        work -= cost
        if not fits:
            search.take_back()
        elif search.unplaced:
            choices.append(search.candidates(offset, rank[i]))
        else:
            return Attempt(search.offsets, True, work, search.fails)
    return Attempt(None, False, work, search.fails)


class _Search:
    """Blocks that are placed, and what that leaves to the others."""

    def __init__(self, problem: Problem, rank: Sequence[int], limit: int) -> None:
        self.problem, self.rank, self.limit = problem, rank, limit
        self.floor = [0] * len(problem.blocks)
        self.offsets = [-1] * len(problem.blocks)
        self.unplaced = len(problem.blocks)
        self.left = list(problem.left)  # bytes that the unplaced blocks of a section take at least
        self.witness = [0] * len(self.left)  # which member of a section is known to be low enough, if it is still so
        self.fails = [0] * len(self.left)
        self.trail: list[tuple[int, list[tuple[int, int]]]] = []

    def candidates(self, reached: int, last: int) -> list[int]:
        """Which blocks may come next, the most promising last, where that of rank ``last`` is at ``reached``."""
        floor, offsets, rank, problem = self.floor, self.offsets, self.rank, self.problem
        unplaced = [i for i, at in enumerate(offsets) if at < 0]
        roof = min(floor[i] + problem.blocks[i].size for i in unplaced)
        candidates = [
            i
            for i in unplaced
            if reached <= floor[i] < roof
            and (floor[i] > reached or rank[i] > last or problem.lies_over[i])
            and (problem.twin[i] < 0 or offsets[problem.twin[i]] >= 0)
        ]
        return sorted(candidates, key=lambda i: (-floor[i], -rank[i]))

    def place(self, i: int, offset: int) -> tuple[bool, int]:
        """Place a block; whether the others still fit, and the work that it was."""
        problem, floor, offsets, demand, limit = self.problem, self.floor, self.offsets, self.left, self.limit
        offsets[i] = offset
        self.unplaced -= 1
        span = problem.spans[i]
        for section, size in zip(span, problem.taken[i], strict=True):
            demand[section] -= size
        raised: list[tuple[int, int]] = []
        self.trail.append((i, raised))
        first, stop = span.start, span.stop
        for j, apart in problem.above[i]:
            if offsets[j] < 0 and floor[j] < offset + apart:
                raised.append((j, floor[j]))
                floor[j] = round_up(offset + apart, problem.blocks[j].alignment)
                first, stop = min(first, problem.spans[j].start), max(stop, problem.spans[j].stop)
        work = len(problem.above[i]) + (len(demand) + stop - first) // 4
        for section, size in enumerate(demand):
            if not size:
                continue
            room = limit - size + problem.padding[section]  # the lowest of what is left must be below this
            fits = offset < room
            if fits and first <= section < stop:
                # Nothing changed elsewhere. Most often the member that was low enough before is so still.
                members, at = problem.members[section], self.witness[section]
                for looked in range(len(members)):
                    j = members[(at + looked) % len(members)]
                    if offsets[j] < 0 and floor[j] < room:
                        self.witness[section] = (at + looked) % len(members)
                        work += looked
                        break
                else:
                    fits = False
                    work += len(members)
            if not fits:
                self.fails[section] += 1
                return False, work
        return True, work

    def take_back(self) -> None:
        """Take the last block that was placed away."""
        i, raised = self.trail.pop()
        self.offsets[i] = -1
        self.unplaced += 1
        for section, size in zip(self.problem.spans[i], self.problem.taken[i], strict=True):
            self.left[section] += size
        for j, before in raised:
            self.floor[j] = before


def _sections(blocks: Sequence[Block]) -> list[int]:
    """A step of each section: those where something starts and, before the next such step, something ends."""
    starts = sorted({block.start for block in blocks})
    ends = sorted(block.end for block in blocks)
    sections: list[int] = []
    at = 0
    for start, following in zip(starts, [*starts[1:], None], strict=True):
        while at < len(ends) and ends[at] < start:
            at += 1
        if following is None or (at < len(ends) and ends[at] < following):
            sections.append(start)
    return sections


def _twins(blocks: Sequence[Block], overlaps: Overlaps) -> list[int]:
    paired = {i for pair in overlaps for i in pair}
    twins = [-1] * len(blocks)
    last: dict[Block, int] = {}
    for i, block in enumerate(blocks):
        if i not in paired:
            twins[i] = last.get(block, -1)
            last[block] = i
    return twins
