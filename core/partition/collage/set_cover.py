"""The placement problem by itself: ops in order, pieces of which each covers some of them, and copies of values.

Ops are numbers, each above those whose values it uses; sets of them are whole numbers, an op a bit. A plan is a choice
of pieces that covers every op once, and in which no two pieces wait for each other. It costs what its pieces cost, and
what copying values between memories does: all memories are beside the first one, 0, which is the hosts', so that a
value gets from one of the others to another one by two hops; each hop of a value is made once.

Costs are whole numbers of whatever unit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from ...errors import InternalError

__all__ = ["CoverProblem", "CoverSet", "numbers", "ops_of"]


@dataclass(frozen=True)
class CoverSet:
    """Ops that are computed together.

    Args:
        ops: which, as bits.
        memory: where their values are then, and where what they use has to be.
        cost: of computing them, from 0 on.
        gain: how much of what a plan may have to have is in it, from 0 on.
    """

    ops: int
    memory: int
    cost: int
    gain: int = 0


@dataclass(frozen=True)
class CoverProblem:
    """What is to be covered.

    Args:
        uses: for each op the ops whose values it uses.
        hops: for each op's value and each memory but 0 what it costs to bring it from there to memory 0, or back: a
            row has one number less than there are memories.
        pieces: what there is to choose from.

    Raises:
        InternalError: an op uses one that is not before it, a piece covers nothing or what there is not, is in a
            memory that there is not, or a cost is below 0.
    """

    uses: tuple[tuple[int, ...], ...]
    hops: tuple[tuple[int, ...], ...]
    pieces: tuple[CoverSet, ...]

    def __post_init__(self) -> None:
        count = len(self.uses)
        memories = len(self.hops[0]) + 1 if self.hops else 1
        ordered = all(0 <= used < op for op, used_by in enumerate(self.uses) for used in used_by)
        if not ordered or len(self.hops) != count or any(len(row) != memories - 1 for row in self.hops):
            raise InternalError("the ops of a cover problem are out of order, or have hops for other memories")
        is_sound = all(0 < one.ops < 1 << count and 0 <= one.memory < memories for one in self.pieces)
        costs = (*(one.cost for one in self.pieces), *(cost for row in self.hops for cost in row))
        if not is_sound or any(cost < 0 for cost in costs):
            raise InternalError("a piece of a cover problem has no op, another problem's ops, or a cost below 0")

    @cached_property
    def users(self) -> tuple[tuple[int, ...], ...]:
        """For each op the ops that use its value, in order."""
        by_value: list[dict[int, None]] = [{} for _ in self.uses]
        for op, used in enumerate(self.uses):
            for one in used:
                by_value[one][op] = None
        return tuple(tuple(users) for users in by_value)

    def with_pieces(self, pieces: Iterable[CoverSet]) -> CoverProblem:
        """The same with other pieces."""
        return CoverProblem(self.uses, self.hops, tuple(pieces))

    def hop(self, value: int, memory: int) -> int:
        """What it costs to bring a value from a memory to memory 0, or back."""
        return self.hops[value][memory - 1] if memory else 0

    def copies(self, value: int, source: int, wanted: int) -> int:
        """What it costs to bring a value to where it is wanted.

        Args:
            value: the op that gives it.
            source: the memory that it is in.
            wanted: the memories, as bits.
        """
        elsewhere = wanted & ~(1 << source)
        if not elsewhere:
            return 0
        return self.hop(value, source) + sum(self.hop(value, memory) for memory in numbers(elsewhere))

    def taken_in(self, ops: int) -> list[int]:
        """The ops whose values a set of ops uses, itself left aside; in order."""
        return sorted({used for op in numbers(ops) for used in self.uses[op] if not ops >> used & 1})

    def produced_by(self, ops: int) -> list[int]:
        """The ops of a set whose values are used outside of it; in order."""
        return [op for op in numbers(ops) if any(not ops >> user & 1 for user in self.users[op])]

    def cost(self, plan: Sequence[int]) -> int:
        """What a plan costs, which is given by the numbers of its pieces."""
        chosen = [self.pieces[number] for number in plan]
        total = sum(one.cost for one in chosen)
        memory_of_op = {op: one.memory for one in chosen for op in numbers(one.ops)}
        wanted = [0] * len(self.uses)
        for one in chosen:
            for value in self.taken_in(one.ops):
                wanted[value] |= 1 << one.memory
        return total + sum(self.copies(value, memory_of_op[value], want) for value, want in enumerate(wanted) if want)

    def gain(self, plan: Sequence[int]) -> int:
        """How much of what may be asked for a plan has."""
        return sum(self.pieces[number].gain for number in plan)

    def fault(self, plan: Sequence[int]) -> str | None:
        """What keeps pieces from being a plan, in words; None where they are one."""
        covered = 0
        for number in plan:
            if covered & self.pieces[number].ops:
                return "covers an op twice"
            covered |= self.pieces[number].ops
        if covered != (1 << len(self.uses)) - 1:
            return "leaves an op out"
        return None if self.cycle(plan) is None else "has pieces that wait for each other"

    def cycle(self, plan: Sequence[int]) -> tuple[int, ...] | None:
        """Pieces of a plan that wait for each other, in a circle; None where there are none."""
        piece_of_op = {op: number for number in plan for op in numbers(self.pieces[number].ops)}
        waits = {number: {piece_of_op[used] for used in self.taken_in(self.pieces[number].ops)} for number in plan}
        users: dict[int, list[int]] = {number: [] for number in plan}
        for number, before in waits.items():
            for other in before:
                users[other].append(number)
        open_ = {number: len(before) for number, before in waits.items()}
        ready = [number for number, count in open_.items() if not count]
        while ready:
            done = ready.pop()
            del open_[done]
            for user in users[done]:
                open_[user] -= 1
                if not open_[user]:
                    ready.append(user)
        if not open_:
            return None
        path: dict[int, None] = {}
        at = min(open_)
        while at not in path:
            path[at] = None
            at = min(before for before in waits[at] if before in open_)
        circle = list(path)
        return tuple(circle[circle.index(at) :])

    def is_convex(self, ops: int) -> bool:
        """Whether no path leaves a set of ops and comes back."""
        outside = 0
        for op in range((ops & -ops).bit_length() - 1, ops.bit_length()):
            if ops >> op & 1:
                if any(outside >> used & 1 for used in self.uses[op]):
                    return False
            elif any((ops | outside) >> used & 1 for used in self.uses[op]):
                outside |= 1 << op
        return True


def numbers(ops: int) -> Iterator[int]:
    """The ops of a set, in order."""
    while ops:
        low = ops & -ops
        yield low.bit_length() - 1
        ops ^= low


def ops_of(members: Iterable[int]) -> int:
    """The set of some ops."""
    mask = 0
    for op in members:
        mask |= 1 << op
    return mask
