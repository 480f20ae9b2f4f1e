"""Both searches together: the exact one, and the integer program where its states would be too many."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from .frontier_search import SearchResult, frontier
from .integer import has_solver, integer
from .set_cover import CoverProblem

__all__ = ["Budget", "cheapest"]


_FEWER = 20
"""How many times fewer states are looked at for other plans, once the best one is known."""


@dataclass(frozen=True)
class Budget:
    """How far a search goes before it ends with a gap that is told.

    Args:
        states: how many states of the frontier are looked at in all.
        widest: how many of them that cover up to the same op are kept.
        seconds: how long the integer program may take, where HiGHS is installed.
    """

    states: int = 500_000
    widest: int = 20_000
    seconds: float = 60.0


def cheapest(
    problem: CoverProblem,
    known: Sequence[tuple[int, ...]] = (),
    best: int = 1,
    budget: Budget | None = None,
    least: int = 0,
) -> SearchResult:
    """The cheapest plans that there are, or that were found.

    Args:
        problem: it.
        known: plans that there are anyway, of which none is cheaper than the first that is given.
        best: how many are wanted.
        budget: how far to go.
        least: the gain that a plan has at least.

    Returns:
        Plans in the order of their costs; those of the same cost in the order in which they were found, what was known
        last. None at all where there are none.
    """
    budget = budget or Budget()
    limits = best, budget.states, budget.widest, least
    solved = has_solver()
    result = frontier(problem, *limits, is_whole=solved)
    plans = dict(zip(result.plans, result.costs, strict=True))
    bound = result.bound
    if solved and not result.is_proven:
        other = integer(problem, budget.seconds, least)
        if best > 1 or not other.is_proven:
            few = best, budget.states // _FEWER, budget.widest // _FEWER, least  # that are near to the best one
            result = frontier(problem, *(few if other.is_proven else limits))
            plans = dict(zip(result.plans, result.costs, strict=True))
            bound = result.bound
        for plan, cost in zip(other.plans, other.costs, strict=True):
            plans.setdefault(plan, cost)
        if bound is not None:
            bound = None if other.bound is None else max(bound, other.bound)
    for plan in known:
        if problem.gain(plan) < least:
            continue
        ordered = sorted(plan, key=lambda number: problem.pieces[number].ops & -problem.pieces[number].ops)
        plans.setdefault(tuple(ordered), problem.cost(plan))
    order = sorted(plans, key=plans.__getitem__)[:best]
    if not order:
        return result
    return replace(result, plans=tuple(order), costs=tuple(plans[plan] for plan in order), bound=bound)
