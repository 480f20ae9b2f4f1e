"""The partitioner ``collage``: the cheapest placement, by costs that somebody tells."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from ...errors import InternalError, UsageError
from ...support.distribution import extra_hint
from ...support.formatting import format_value
from ..candidates import Problem
from ..cost_provider import Clock
from ..decision_check import Regions
from ..eager import eager
from ..grouping import group
from ..record import Candidate
from ..selection import Selection
from .candidate_set import CandidateSet, PlacementCandidate, uncovered
from .frontier_search import SearchResult
from .integer import has_solver
from .search import Budget, cheapest
from .table import CostTable

__all__ = ["Collage", "Decision"]

_RUNNER_UP_STATES = 20_000
"""How many states a search may have had that is made again for every region, to find what it won by."""


@dataclass(frozen=True)
class Decision:
    """What was chosen, and from what.

    Args:
        pool: what there was to choose from.
        result: the search's plans, the cheapest first.
        least: the gain that a plan has at least.
        unknown: what the table of costs tells of that there is not, in sentences.
    """

    pool: CandidateSet = field(repr=False)
    result: SearchResult
    least: int = 0
    unknown: tuple[str, ...] = ()

    @property
    def cost_ns(self) -> int:
        """What the plan costs, copies included."""
        return self.result.costs[0]

    @property
    def failed(self) -> tuple[str, ...]:
        """What could not be measured, and is not in the plan or was estimated instead; and why, in sentences."""
        return self.pool.failed

    @property
    def cautions(self) -> tuple[str, ...]:
        """What whoever asked has to know of it, in sentences: what the costs do not tell, what was not looked at, and
        that there may be a cheaper plan."""
        cut = [f"of {label} more unions of matches can be had than were looked at" for label in self.pool.cut]
        gap = []
        if not self.result.is_proven:
            bound_us = (self.result.bound or 0) / 1e3
            more = "" if has_solver() else f" (without HiGHS: {extra_hint('collage', 'highspy')})"
            gap = [
                f"the plan takes {self.cost_ns / 1e3:.2f} us, and is not proven: none is below {bound_us:.2f} us{more}"
            ]
        return (*self.unknown, *self.failed, *cut, *gap)

    @property
    def clocks(self) -> tuple[Clock, ...]:
        """How the times of each target are known, in the order of the targets."""
        return self.pool.clocks

    @property
    def notes(self) -> tuple[str, ...]:
        """Return a sentence if times of this machine are compared with those of a simulated or estimated device."""
        here = dict.fromkeys(clock.label for clock in self.clocks if clock.is_unscaled_machine)
        devices = dict.fromkeys(
            clock.label for clock in self.clocks if clock.source in ("simulator", "plugin") and clock.label not in here
        )
        if not here or not devices:
            return ()
        others = " and ".join(devices)
        return (
            f"the times of {' and '.join(here)} are of this machine, those of {others} of a simulated or "
            f"estimated device; if the product has another CPU, name it and an emulator in the target, or give "
            f"{next(iter(here))} a factor in a table of costs (--costs)",
        )

    @property
    def chosen(self) -> tuple[PlacementCandidate, ...]:
        """What runs, in the order of the model; what costs nothing is left out."""
        offers = (self.pool.offers[number] for number in self.result.plans[0])
        running = (offer for offer in offers if not self.pool.is_free(offer))
        return tuple(sorted(running, key=lambda offer: offer.ops & -offer.ops))

    def nth(self, number: int) -> Decision:
        """The same with another of the plans as the one that was chosen, counted from 0."""
        search = self.result
        return replace(self, result=replace(search, plans=search.plans[number:], costs=search.costs[number:]))

    def with_known(self) -> Decision:
        """The same with the plans that there are anyway behind the others, cheapest first: eager's, and the host alone;
        each once, and none that has too little gain."""
        cover, there = self.pool.cover, {self._running(plan) for plan in self.result.plans}
        more: dict[frozenset[int], tuple[int, ...]] = {}
        for plan in sorted(self.pool.known_plans, key=cover.cost):
            running = self._running(plan)
            if running not in there and cover.gain(plan) >= self.least:
                more.setdefault(running, plan)
        plans = *self.result.plans, *more.values()
        costs = *self.result.costs, *map(cover.cost, more.values())
        return replace(self, result=replace(self.result, plans=plans, costs=costs))

    def known_as(self, number: int) -> tuple[str, ...]:
        """What one of the plans is called of those that there are anyway, counted from 0: ``the host alone``."""
        running = self._running(self.result.plans[number])
        return tuple(
            name for name, plan in self.pool.named.items() if plan is not None and self._running(plan) == running
        )

    def _running(self, plan: Iterable[int]) -> frozenset[int]:
        """The numbers of what runs in a plan."""
        return frozenset(number for number in plan if not self.pool.is_free(self.pool.offers[number]))

    @property
    def copies_ns(self) -> int:
        """What copies between memories cost in it."""
        return self.cost_ns - sum(offer.price.total_ns for offer in self.chosen)

    @property
    def eager_ns(self) -> dict[tuple[str, ...], int]:
        """What eager's placement costs in every order of priority, by labels."""
        cover = self.pool.cover
        return {order: cover.cost(plan) for order, plan in self.pool.eager.items() if plan is not None}

    @property
    def host_ns(self) -> int | None:
        """What it costs without accelerators; None where something must be on one."""
        plan = self.pool.host_alone
        return None if plan is None else self.pool.cover.cost(plan)

    def runner_up(self, offer: PlacementCandidate) -> Decision | None:
        """The cheapest plan without an offer of this one's; None where there is none, or looking for it would take too
        long."""
        if self.result.states > _RUNNER_UP_STATES or not self.result.is_proven:
            return None
        cover, numbers = self.pool.cover, [n for n, one in enumerate(self.pool.offers) if one is not offer]
        search = cheapest(cover.with_pieces(cover.pieces[number] for number in numbers), least=self.least)
        if not search.plans:
            return None
        plans = tuple(tuple(numbers[number] for number in plan) for plan in search.plans)
        return replace(self, result=replace(search, plans=plans))


@dataclass(eq=False)
class Collage:
    """Partitioner that chooses the cheapest placement.

    Args:
        costs: a table that overrides other sources, or the path of its JSON file; None for none.
        most_ops: how many ops a union of matches has at most; eager's regions may have more.
        most_unions: how many unions of one target there are at most.
        budget: how far the search goes.
        best: how many plans are kept.
        measure: how many of the best plans are built and timed, beside those that there are anyway; the fastest one
            counts. 0 for none.
        offload: the part of the multiply-accumulates that accelerators have, 0 to 1; of the ops, in a model without
            any. Where no plan has as much, it does not count.
        workers: who builds and measures parts: the address of a scheduler of Dask, or ``local:2`` for two processes
            here; None for this process.
        insecure_workers: whether the address may be ``tcp://`` of another machine, which is neither encrypted nor
            authenticated: who answers there can run code here.

    Attributes:
        decision: what was chosen last, in whatever build; None before.

    Raises:
        UsageError: a number is none from 1 on; or ``costs`` is neither a table nor the path of a file with one.
    """

    costs: CostTable | str | os.PathLike[str] | None = None
    most_ops: int = 16
    most_unions: int = 5000
    budget: Budget = field(default_factory=Budget)
    best: int = 5
    measure: int = 0
    offload: float = 0.0
    workers: str | None = None
    insecure_workers: bool = False
    decision: Decision | None = field(default=None, repr=False, init=False)

    def __post_init__(self) -> None:
        self.costs = self.table
        for name, least in (("most_ops", 1), ("most_unions", 1), ("best", 1), ("measure", 0)):
            value: object = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise UsageError(f"{name} of Collage is {value!r}, not a whole number from {least} on")

        share: object = self.offload
        if isinstance(share, bool) or not isinstance(share, (int, float)) or not 0 <= share <= 1:
            raise UsageError(f"offload of Collage is {share!r}, not a number from 0 to 1")

    @property
    def table(self) -> CostTable | None:
        """The table of ``costs``, which is read if it is a path.

        Raises:
            UsageError: as for `Collage`.
        """
        costs: object = self.costs
        if costs is None or isinstance(costs, CostTable):
            return costs
        if isinstance(costs, (str, os.PathLike)):
            return CostTable.read(costs)
        text = f"costs of Collage is {format_value(costs)}, not a CostTable or the path of a JSON file"
        raise UsageError(text, hint='for example costs="costs.json"')

    def __str__(self) -> str:
        return "partitioner 'collage'"

    def __call__(self, problem: Problem) -> Regions:
        """Regions of the cheapest placement; see `uma.partition.Partitioner`.

        What hosts compute together is noted with the problem. Where what is pinned can be had by nobody, the answer is
        eager's, so that the reasons are told.

        Raises:
            ModelError: nobody tells what an op costs.
            UsageError: a cost is none.
            PatternFault: a test or a predicate of an owner's is at fault.
        """
        costs = problem.costs
        if costs is None:
            raise InternalError("collage was asked by nobody who knows costs")
        if costs.prefetch is not None:
            CandidateSet(problem, costs.prefetch, most_ops=self.most_ops, most_unions=self.most_unions)
        pool = CandidateSet(problem, costs, most_ops=self.most_ops, most_unions=self.most_unions)
        while True:
            least = pool.least(self.offload)
            result = cheapest(pool.cover, pool.known_plans, max(self.best, self.measure), self.budget, least)
            if least and not result.plans:
                least, result = 0, cheapest(pool.cover, pool.known_plans, max(self.best, self.measure), self.budget)
            if not result.plans:
                if problem.pins:
                    return eager(problem)
                raise uncovered(pool)
            chosen = [offer for number in result.plans[0] if (offer := pool.offers[number]).claims]
            merged = [pool.add_region(region) for region in _merged(problem, chosen)]
            if not pool.add_rest([offer.claims for offer in chosen]) and not any(merged):
                break
        unknown = () if self.costs is None else pool.unknown(costs.table)
        self.decision = problem.decision = Decision(pool, result, least, unknown)
        kernels = [(offer.owner, pool.nodes(offer)) for offer in self.decision.chosen if not offer.claims]
        problem.kernels[:] = [nodes for _, nodes in kernels]
        problem.on_hosts.update((node, label) for label, nodes in kernels if label != pool.host for node in nodes)
        return [offer.claims for offer in chosen]


def _merged(problem: Problem, chosen: list[PlacementCandidate]) -> list[tuple[Candidate, ...]]:
    """What regions would be if all that touch each other and have one owner were one, as far as they can."""
    choice = Selection(problem)
    for offer in chosen:
        for claim in offer.claims:
            choice.add(claim)
    return group(choice)
