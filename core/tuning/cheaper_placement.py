"""Where eager's placement is not the cheapest, by costs that are known without building anything."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import ModelError
from ..lowering.error_attribution import attributing_errors
from ..lowering.graph_queries import has_loops
from ..partition import Collage, CostTable, Problem, eager
from ..partition.collage.candidate_set import CandidateSet, PlacementCandidate, computes
from ..pipeline.stages import Build
from ..relay.pattern import Graph
from .static_costs import StaticCosts

__all__ = ["OtherPart", "Otherwise", "otherwise"]

_MOST_UNIONS = 64
"""How many unions of matches are looked at for each target, beside eager's regions in every order of priority: telling
where ops go is to take no longer than placing them."""


@dataclass(frozen=True)
class OtherPart:
    """Something that a cheaper placement has, and eager's has not.

    Args:
        name: as in tables of costs.
        target: the label of who computes it.
        layers: of the model.
        ns: with its launch.
        source: who says so.
        instead: the labels of who has these ops in eager's placement.
    """

    name: str
    target: str
    layers: tuple[str, ...]
    ns: int
    source: str
    instead: tuple[str, ...]


@dataclass(frozen=True)
class Otherwise:
    """A cheaper placement than eager's.

    Args:
        eager_ns: what eager's costs, without what is not known.
        ns: what the other one costs, likewise; it has all that is not known as well.
        parts: what the other one has otherwise, in the order of the model; nothing where it is not cheaper.
        unknown: what the table tells of that there is not, in sentences.
    """

    eager_ns: int
    ns: int
    parts: tuple[OtherPart, ...]
    unknown: tuple[str, ...] = ()


def otherwise(build: Build, costs: CostTable | None = None) -> Otherwise | None:
    """The cheapest placement by costs of a table and by what plugins estimate, where eager's is not as cheap.

    Nothing is built or measured. What eager leaves to hosts, and regions, of which so nothing is known count nothing,
    and only placements are looked at that have those as they are, or without cost.

    Args:
        build: was run up to ``lower`` at least; placed by eager.
        costs: goes before what plugins say; None for none.

    Returns:
        None where eager's placement is the cheapest and all of the table fits, where somebody else decided, or
        nothing is known.

    Raises:
        UsageError: a cost is none.
        PluginError: a pattern or the hook ``estimate_cost`` is at fault.
    """
    placement, members = build.placement, build.members
    if placement is None or placement.partitioner is not eager or not placement.owners or has_loops(placement.source):
        return None
    source = placement.source
    problem = Problem(
        Graph(source.main),
        placement.owners,
        withdrawn=placement.withdrawn,
        spans=source.spans,
        consent=placement.consent,
        hosts=placement.hosts,
    )
    regions = [
        (one.owner, frozenset(node for claim in one.claims for node in claim.nodes))
        for one in placement.regions.values()
    ]
    claimed = frozenset().union(*(nodes for _, nodes in regions))
    prices = StaticCosts(members, costs, regions)
    free = [expr for expr in problem.computed if expr not in claimed and computes(expr)]
    kernels = [tuple(kernel) for kernel in prices.kernels(problem, free)]
    together = {node for kernel in kernels for node in kernel}
    for kernel in (*kernels, *((node,) for node in free if node not in together)):
        pin = problem.pins.get(kernel[0])
        prices.placed.add((pin if pin in placement.hosts else placement.hosts[0], frozenset(kernel)))
    problem.costs, collage = prices, Collage(costs, most_unions=_MOST_UNIONS)
    with attributing_errors(source.spans, members.__getitem__):
        try:
            collage(problem)
        except ModelError:  # an owner would refuse what it has
            return None
    decision = collage.decision
    order = tuple(owner.label for owner in placement.owners)
    if decision is None or order not in decision.eager_ns:
        return None
    eager_ns, ns = decision.eager_ns[order], decision.cost_ns
    if eager_ns <= ns:
        return Otherwise(eager_ns, ns, (), decision.unknown) if decision.unknown else None
    pool, plan = decision.pool, decision.pool.eager[order]
    assert plan is not None
    before = [pool.offers[number] for number in plan]
    parts = (_part(pool, offer, before) for offer in decision.chosen if offer not in before)
    return Otherwise(eager_ns, ns, tuple(parts), decision.unknown)


def _part(pool: CandidateSet, offer: PlacementCandidate, before: list[PlacementCandidate]) -> OtherPart:
    layers = dict.fromkeys(layer for node in pool.nodes(offer) for layer in pool.problem.spans[node])
    running = [one for one in before if one.ops & offer.ops and any(map(computes, pool.nodes(one)))]
    instead = dict.fromkeys(one.owner for one in running)
    name = pool.key(offer.owner, offer.ops)
    return OtherPart(name, offer.owner, tuple(layers), offer.price.total_ns, offer.price.source, tuple(instead))
