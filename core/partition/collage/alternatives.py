"""Why a region is not larger, and not smaller: the cheapest such plan, and what its time goes to instead.

The rest of the plan stays as it is: what a larger region leaves of the parts that it takes ops from, and what a smaller
one leaves of the region, is covered anew as cheaply as can be.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from .candidate_set import CandidateSet, PlacementCandidate
from .frontier_search import frontier
from .timeline import Split, split

__all__ = ["Alternative", "rivals"]

_TRIED = 6
"""How many larger regions, and how many smaller ones, are tried for each region: those that are next in size."""


@dataclass(frozen=True)
class Alternative:
    """A region that is not in the plan.

    Args:
        name: its key in tables of costs.
        offer: the region.
        more: the time that the plan with it takes more, of each kind; negative where it takes less.
    """

    json_fields: ClassVar = ("name", "more_ns=more.total_ns", "*more")

    name: str
    offer: PlacementCandidate
    more: Split


def rivals(
    pool: CandidateSet, plan: Sequence[int], offer: PlacementCandidate, least: int = 0
) -> tuple[Alternative | None, Alternative | None]:
    """The best larger region of the same owner instead of one, and the best smaller one; None where there is none.

    Args:
        pool: what there is to choose from.
        plan: the numbers of what was chosen.
        offer: the region; in the plan.
        least: the gain that a plan has at least.
    """
    larger = _nearest(pool, lambda other: other.ops & offer.ops == offer.ops, offer)
    smaller = _nearest(pool, lambda other: other.ops & offer.ops == other.ops, offer)
    return _best(pool, plan, offer, larger, least), _best(pool, plan, offer, smaller, least)


def _nearest(pool: CandidateSet, fits: Callable[[PlacementCandidate], bool], offer: PlacementCandidate) -> list[int]:
    size = offer.ops.bit_count()
    near = [n for n, one in enumerate(pool.offers) if one.owner == offer.owner and one.ops != offer.ops and fits(one)]
    near = [number for number in near if pool.offers[number].claims]
    return sorted(near, key=lambda number: abs(pool.offers[number].ops.bit_count() - size))[:_TRIED]


def _best(
    pool: CandidateSet, plan: Sequence[int], offer: PlacementCandidate, tried: Sequence[int], least: int
) -> Alternative | None:
    cover, before = pool.cover, split(pool, plan)
    best_rival: Alternative | None = None
    for number in tried:
        rival = pool.offers[number]
        wanted = offer.ops | rival.ops
        fixed = [n for n in plan if not pool.offers[n].ops & wanted]
        area = ((1 << len(cover.uses)) - 1) & ~rival.ops
        for n in fixed:
            area &= ~pool.offers[n].ops
        inside = [n for n, one in enumerate(pool.offers) if one.ops & area == one.ops]
        others = [number, *fixed, *inside]
        best = frontier(cover.with_pieces(cover.pieces[n] for n in others), least=least)
        if not best.plans:
            continue
        more = split(pool, [others[n] for n in best.plans[0]]) - before
        if best_rival is None or more.total_ns < best_rival.more.total_ns:
            best_rival = Alternative(pool.key(rival.owner, rival.ops), rival, more)
    return best_rival
