"""How the search for the cheapest placement grows: python -m benchmarks placement growth.

Prints for graphs of 250, 500 and 1,000 ops (chain, residual, inception), with four targets, how many pieces there are
to choose from, and the seconds of this process, cheapest cost and bound of both searches.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence

from uma.partition.collage.frontier_search import frontier
from uma.partition.collage.integer import has_solver, integer
from uma.partition.collage.set_cover import CoverProblem, CoverSet
from uma.partition.collage.unions import unions

KINDS = ("chain", "residual", "inception")
SIZES = (250, 500, 1000)


def synthetic(kind: str, count: int, targets: int, rng: random.Random, most_parts: int = 4) -> CoverProblem:
    """A large problem: a chain, residual blocks, or inception-like ones of four branches. Each target but the first,
    the host, takes seven of ten ops and some pairs, in unions of up to ``most_parts``; every value costs a copy."""
    uses: list[tuple[int, ...]] = [()]
    while len(uses) < count:
        at = len(uses)
        if kind == "chain":
            uses.append((at - 1,))
        elif kind == "residual":
            uses += [(at - 1,), (at,), (at + 1,), (at - 1, at + 2)]
        else:
            uses += [(at - 1,), (at - 1,), (at + 1,), (at - 1,), (at + 3,), (at + 4,), (at - 1,), (at + 6,)]
            uses.append((at, at + 2, at + 5, at + 7))
    uses = uses[:count]
    hops = tuple((rng.randint(200, 3000),) * (targets - 1) for _ in uses)
    problem = CoverProblem(tuple(uses), hops, ())
    base = [rng.randint(1000, 10_000) for _ in uses]
    pieces = [CoverSet(1 << op, 0, base[op]) for op in range(count)]
    for ops in unions(problem, [1 << op for op in range(count)], most_parts=2, most=100_000).sets:
        if ops.bit_count() > 1:
            pieces.append(CoverSet(ops, 0, _sum(base, ops) * 9 // 10))
    for memory in range(1, targets):
        takes = [1 << op for op in range(count) if rng.random() < 0.7]
        pairs = unions(problem, takes, most_parts=2, most=100_000).sets
        takes += [ops for ops in pairs if ops.bit_count() > 1 and rng.random() < 0.5]
        speed = {ops: int(_sum(base, ops) * rng.uniform(0.1, 0.9)) for ops in dict.fromkeys(takes)}
        for ops, parts in unions(problem, list(speed), most_parts=most_parts, most=100_000).sets.items():
            pieces.append(CoverSet(ops, memory, 2000 + sum(speed[part] for part in parts)))
    return problem.with_pieces(pieces)


def _sum(base: list[int], ops: int) -> int:
    return sum(cost for op, cost in enumerate(base) if ops >> op & 1)


def say(kinds: Sequence[str], out: Callable[[str], None]) -> None:
    """Print a row for each kind and size."""
    for kind in kinds:
        for size in SIZES:
            problem = synthetic(kind, size, 4, random.Random(3))
            out(f"{kind}, {size} ops, {len(problem.pieces)} pieces")
            start = time.process_time()
            exact = frontier(problem)
            seconds = time.process_time() - start
            told = f"{exact.costs[0]}, bound {exact.bound}, {exact.states} states, widest {exact.widest}"
            out(f"    frontier {seconds:7.2f} s: {told}")
            if has_solver():
                start = time.process_time()
                other = integer(problem)
                seconds = time.process_time() - start
                out(f"    integer  {seconds:7.2f} s: {other.costs[0]}, bound {other.bound}")
