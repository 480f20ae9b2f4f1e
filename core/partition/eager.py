"""The eager partitioner: every owner in turn takes all that its patterns match."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ..relay.expr import Expr
from .candidates import Problem
from .grouping import group
from .record import Candidate, Owner
from .selection import Selection

__all__ = ["eager", "take"]


def eager(problem: Problem) -> list[tuple[Candidate, ...]]:
    """Regions of what every owner in turn takes.

    An owner's patterns come in the order in which they were registered, each at every place where it may be laid, from
    the results of the model backwards; at a place the largest match is taken that overlaps no other, keeps to itself
    what is not among its outputs, is no larger than the owner's limits, and needs nothing that is computed from it.
    Then the matches of an owner become regions, as large as can be.

    Before all that each owner takes the matches that have something in them that is pinned to it. After refusals all
    that was not refused stays, and what became free is offered anew.

    Raises:
        PatternFault: a test or a predicate of an owner's is at fault.
    """
    choice = Selection(problem)
    for candidate in problem.kept:
        choice.add(candidate)
    pinned: dict[str, list[Expr]] = {}
    for expr in problem.pins if problem.freed is None else filter(problem.pins.__contains__, problem.freed):
        pinned.setdefault(problem.pins[expr], []).append(expr)
    for owner in problem.owners:
        if owner.label in pinned:
            take(choice, owner, pinned[owner.label], pinned_only=True)
    for owner in problem.owners:
        take(choice, owner, problem.freed)
    return group(choice)


def take(
    choice: Selection,
    owner: Owner,
    freed: Iterable[Expr] | None = None,
    *,
    pinned_only: bool = False,
    accepts: Callable[[Candidate], bool] | None = None,
) -> None:
    """Add all candidates of an owner's that can be added, the first at each place; note why others cannot.

    Args:
        choice: is added to.
        owner: the owner.
        freed: where given, patterns of one output are laid only where they can reach one of these.
        pinned_only: whether only candidates count in which something is pinned to the owner.
        accepts: returns whether a candidate counts; None for all.

    Raises:
        PatternFault: a test or a predicate of the owner's is at fault.
    """
    problem = choice.problem
    roots = None if freed is None else _above(choice, freed, owner)
    for candidate in problem.candidates(owner, roots=roots, taken=choice.candidate_by_node, pinned_only=pinned_only):
        if accepts is not None and not accepts(candidate):
            continue
        note = choice.add(candidate)
        for node in candidate.match.nodes if note is not None else ():
            assert note is not None
            problem.notes.setdefault((owner.label, node), note)


def _above(choice: Selection, freed: Iterable[Expr], owner: Owner) -> set[Expr]:
    """What is in no candidate and computed from ``freed`` by no more than the largest pattern could."""
    graph = choice.problem.graph
    levels = max((root.facts.levels for pattern in owner.patterns for root in pattern.roots), default=0)
    offered = choice.problem.offered(owner)
    levels += 0 if offered is None else offered.depth  # an op that it is offered may stand for several
    level = list(freed)
    reached = set(level)
    for _ in range(levels):
        users = (user for expr in level for user in graph.users(expr))
        level = [user for user in dict.fromkeys(users) if user not in reached and user not in choice.candidate_by_node]
        if not level:
            break
        reached.update(level)
    return reached
