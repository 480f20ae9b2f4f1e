"""A plan as it runs: what starts when, on which queue. One thing runs after the other, as the costs that are added up
have it; a later objective may let queues overlap."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from ...relay.expr import Var
from .candidate_set import CandidateSet, PlacementCandidate
from .set_cover import numbers

__all__ = ["Split", "TimelineEntry", "split", "timeline"]


@dataclass(frozen=True)
class TimelineEntry:
    """Something that runs.

    Args:
        queue: the label of the target that is busy; of a copy, with the word "copies".
        name: the part's key in tables of costs; of a copy, its value.
        start_ns: from the beginning of the run.
        duration_ns: with the launch.
        offer: the part of the plan; None for a copy.
    """

    json_fields: ClassVar = ("queue", "name", "start_ns", "duration_ns")

    queue: str
    name: str
    start_ns: int
    duration_ns: int
    offer: PlacementCandidate | None = None


@dataclass(frozen=True)
class Split:
    """What a plan's time goes to, in nanoseconds."""

    compute_ns: int
    launch_ns: int
    copies_ns: int

    @property
    def total_ns(self) -> int:
        """All of it."""
        return self.compute_ns + self.launch_ns + self.copies_ns

    def __sub__(self, other: Split) -> Split:
        """By how much each is more than another's."""
        return Split(
            self.compute_ns - other.compute_ns, self.launch_ns - other.launch_ns, self.copies_ns - other.copies_ns
        )


def split(pool: CandidateSet, plan: Sequence[int]) -> Split:
    """What the time of a plan goes to, which is given by the numbers of its offers."""
    prices = [pool.offers[number].price for number in plan]
    compute, launch = sum(price.ns for price in prices), sum(price.launch_ns for price in prices)
    return Split(compute, launch, pool.cover.cost(plan) - compute - launch)


def timeline(pool: CandidateSet, plan: Sequence[int]) -> list[TimelineEntry]:
    """The steps of a plan, in the order in which they run; each copy is made when it is first needed.

    Args:
        pool: whose offers they are.
        plan: their numbers; no two wait for each other.
    """
    cover, steps, now = pool.cover, list[TimelineEntry](), 0
    memory_of_op = {op: cover.pieces[number].memory for number in plan for op in numbers(cover.pieces[number].ops)}
    there = {op: {memory} for op, memory in memory_of_op.items()}
    labels = pool.labels_of_memories

    def copy(value: int, memory: int) -> None:
        nonlocal now
        if length := cover.hop(value, memory):
            queue, expr = f"{labels[memory]} copies", pool.exprs[value]
            name = expr.name if isinstance(expr, Var) else pool.key(queue, 1 << value).partition(": ")[2]
            steps.append(TimelineEntry(queue, f"copy of {name}", now, length))
            now += length

    for number in _in_order(pool, plan):
        offer, piece = pool.offers[number], cover.pieces[number]
        for value in cover.taken_in(piece.ops):
            if piece.memory in there[value]:
                continue
            if 0 not in there[value]:
                copy(value, memory_of_op[value])
                there[value].add(0)
            if piece.memory:
                copy(value, piece.memory)
                there[value].add(piece.memory)
        if not pool.is_free(offer):
            name = pool.key(offer.owner, offer.ops)
            steps.append(TimelineEntry(offer.owner, name, now, offer.price.total_ns, offer))
            now += offer.price.total_ns
    return steps


def _in_order(pool: CandidateSet, plan: Sequence[int]) -> list[int]:
    """The offers of a plan, each after what it needs, else by their first ops."""
    cover = pool.cover
    piece_of_op = {op: number for number in plan for op in numbers(cover.pieces[number].ops)}
    waits = {number: {piece_of_op[used] for used in cover.taken_in(cover.pieces[number].ops)} for number in plan}
    users: dict[int, list[int]] = {number: [] for number in plan}
    for number, before in waits.items():
        for other in before:
            users[other].append(number)

    def first(number: int) -> tuple[int, int]:
        return next(numbers(cover.pieces[number].ops)), number

    ready = [first(number) for number, before in waits.items() if not before]
    heapq.heapify(ready)
    ordered = []
    while ready:
        _, number = heapq.heappop(ready)
        ordered.append(number)
        for user in users[number]:
            waits[user].discard(number)
            if not waits[user]:
                heapq.heappush(ready, first(user))
    return ordered
