"""The operator-level search of the paper "Collage: Seamless Integration of Deep Learning Backends with Automatic
Placement" (arXiv 2111.00655), written anew, to compare ours with.

It chooses among single matches that give one value, by what each takes alone. The lowest op that nothing covers is
covered next; of all ways to cover the same ops the cheapest is gone on from first (Dijkstra's algorithm). What is
copied between memories it does not see. Afterwards parts of one target that touch each other are merged.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

from uma.partition import Decision
from uma.partition.collage.frontier_search import frontier
from uma.partition.collage.set_cover import numbers, ops_of

__all__ = ["Paper", "by_paper"]


@dataclass(frozen=True)
class Paper:
    """What the paper's search comes to.

    Args:
        chosen_ns: what its choice costs, copies counted.
        merged_ns: the same when parts of one target are merged, as well as that can be done.
    """

    chosen_ns: int
    merged_ns: int


def by_paper(decision: Decision) -> Paper:
    """What the paper's search finds among the candidates of a decision, by the same costs.

    Raises:
        ValueError: there is no placement of single matches.
    """
    pool, cover = decision.pool, decision.pool.cover
    alone = [n for n, one in enumerate(pool.offers) if len(one.claims) < 2 and len(cover.produced_by(one.ops)) < 2]
    plan = _cheapest(len(cover.uses), [(pool.offers[n].ops, cover.pieces[n].cost, n) for n in alone])
    assert cover.fault(plan) is None
    mine = {(pool.offers[n].owner, pool.offers[n].ops) for n in plan}
    merged = [
        number
        for number, one in enumerate(pool.offers)
        if (one.owner, one.ops) in mine
        or (
            len(one.claims) > 1
            and all((one.owner, ops_of(pool._number[node] for node in claim.nodes)) in mine for claim in one.claims)
        )
    ]
    found = frontier(cover.with_pieces(cover.pieces[number] for number in merged))
    return Paper(cover.cost(plan), found.costs[0])


def _cheapest(count: int, pieces: list[tuple[int, int, int]]) -> list[int]:
    """The numbers of pieces (ops, cost, number) that cover all ops once and cost least together."""
    starting: list[list[tuple[int, int, int]]] = [[] for _ in range(count)]
    for piece in pieces:
        starting[next(numbers(piece[0]))].append(piece)
    everything = (1 << count) - 1
    least: dict[int, tuple[int, int, int]] = {0: (0, -1, -1)}
    queue, done = [(0, 0)], set[int]()
    while queue:
        cost, covered = heapq.heappop(queue)
        if covered in done:
            continue
        done.add(covered)
        if covered == everything:
            plan = []
            while covered:
                _, number, before = least[covered]
                plan.append(number)
                covered = before
            return plan
        for ops, more, number in starting[next(numbers(~covered))]:
            if not ops & covered and (covered | ops not in least or cost + more < least[covered | ops][0]):
                least[covered | ops] = (cost + more, number, covered)
                heapq.heappush(queue, (cost + more, covered | ops))
    raise ValueError("the ops cannot all be covered")
