"""Random cover problems, and their cheapest plans by trying them all."""

from __future__ import annotations

import itertools
import random

from uma.partition.collage.set_cover import CoverProblem, CoverSet, ops_of
from uma.partition.collage.unions import unions


def random_cover(rng: random.Random, most_ops: int, *, least_ops: int = 4, reach: int | None = None) -> CoverProblem:
    """Ops that use up to three of the last five; one host, and one to three others with memories of their own or the
    host's; pieces of one op up to five, some of ops that have nothing to do with each other; copies of half the values.

    Args:
        reach: how far from each other the first and the last op of a piece may be; None for any distance.
    """
    count = rng.randint(least_ops, most_ops)
    uses = tuple(
        tuple(sorted(rng.sample(range(max(0, op - 5), op), min(op, rng.choice([1, 1, 2, 3]))))) for op in range(count)
    )
    memories = rng.randint(1, 4)
    hops = tuple(
        tuple(rng.choice([0, rng.randint(0, 300)]) if rng.random() < 0.7 else 0 for _ in range(memories - 1))
        for _ in range(count)
    )
    problem = CoverProblem(uses, hops, ())
    pieces = [CoverSet(1 << op, 0, rng.randint(100, 1000)) for op in range(count)]
    for _ in range(rng.randint(1, 3)):
        memory = rng.randrange(memories)
        singles = [1 << op for op in range(count) if rng.random() < 0.8]
        grown = unions(problem, singles, most_parts=4, most=1000)
        for ops in grown.sets:
            if rng.random() < 0.5:
                pieces.append(CoverSet(ops, memory, 100 + sum(rng.randint(30, 800) for _ in range(ops.bit_count()))))
        for _ in range(4):
            ops = ops_of(rng.sample(range(count), 2))
            if problem.is_convex(ops):
                pieces.append(CoverSet(ops, memory, rng.randint(50, 500)))
        edges = [(used, op) for op in range(count) for used in uses[op]]
        for (a, c), (d, b) in itertools.islice(itertools.combinations(rng.sample(edges, len(edges)), 2), 30):
            # Each alone may be had; both together wait for each other.
            if len({a, b, c, d}) == 4 and problem.is_convex(ops_of([a, b])) and problem.is_convex(ops_of([c, d])):
                pieces += [CoverSet(ops_of([a, b]), memory, rng.randint(20, 200)), CoverSet(ops_of([c, d]), 0, 50)]
    near = [one for one in pieces if reach is None or one.ops // (one.ops & -one.ops) < 2 << reach]
    return problem.with_pieces(dict.fromkeys(near))


def cheapest_costs(problem: CoverProblem, best: int = 1, least: int = 0) -> list[int]:
    """What the cheapest plans of a least gain cost, in order, by trying every one whose pieces alone do not cost more
    already."""
    found: list[int] = []
    starting: list[list[int]] = [[] for _ in problem.uses]
    for number in sorted(range(len(problem.pieces)), key=lambda number: problem.pieces[number].cost):
        ops = problem.pieces[number].ops
        starting[(ops & -ops).bit_length() - 1].append(number)
    everything = (1 << len(problem.uses)) - 1

    def go(covered: int, plan: list[int], cost: int) -> None:
        if len(found) == best and cost >= found[-1]:
            return
        if covered == everything:
            if problem.gain(plan) >= least and problem.fault(plan) is None:
                found[:] = sorted([*found, problem.cost(plan)])[:best]
            return
        for number in starting[(~covered & (covered + 1)).bit_length() - 1]:
            piece = problem.pieces[number]
            if not piece.ops & covered:
                go(covered | piece.ops, [*plan, number], cost + piece.cost)

    go(0, [], 0)
    return found
