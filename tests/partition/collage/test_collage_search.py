"""The search for the cheapest plan: by the frontier, by an integer program, and by trying everything."""

from __future__ import annotations

import builtins
import random
from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest
from benchmarks.growth import synthetic
from tests._support.covers import cheapest_costs, random_cover

from uma.errors import InternalError, UsageError
from uma.partition.collage.frontier_search import frontier
from uma.partition.collage.integer import integer
from uma.partition.collage.search import Budget, cheapest
from uma.partition.collage.set_cover import CoverProblem, CoverSet, numbers
from uma.partition.collage.unions import unions
from uma.partition.region_size import Excess

CHAIN = ((), (0,), (1,), (2,))
DIAMOND = ((), (0,), (0,), (1, 2))
PATIENCE = 1000.0
"""For how many seconds the integer program may run where it is to come to an end, on whatever machine."""


def problem(uses: tuple[tuple[int, ...], ...], *pieces: tuple[int, int, int], hop: int = 0) -> CoverProblem:
    """Pieces as (ops, memory, cost); every value costs ``hop`` between memory 0 and memory 1."""
    return CoverProblem(uses, ((hop,),) * len(uses), tuple(CoverSet(*piece) for piece in pieces))


def plan_of(given: CoverProblem) -> list[tuple[int, int, int]]:
    """The cheapest plan's pieces, in the order of their ops; both searches agree on what it costs."""
    found = frontier(given)
    assert found.is_proven and found.costs == integer(given).costs == tuple(cheapest_costs(given))
    return [(p.ops, p.memory, p.cost) for p in (given.pieces[n] for n in found.plans[0])]


@pytest.mark.few(50)
@pytest.mark.parametrize("seed", range(1000))
def test_both_searches_find_what_trying_everything_finds(seed: int) -> None:
    given = random_cover(random.Random(seed), 9)
    wanted = cheapest_costs(given, 5)
    found = frontier(given, best=5)
    assert found.costs == tuple(wanted)
    assert [given.fault(plan) for plan in found.plans] == [None] * len(wanted)
    assert [given.cost(plan) for plan in found.plans] == wanted
    assert len(set(found.plans)) == len(wanted)
    one = frontier(given)
    assert one.costs == tuple(wanted[:1]) and one.bound == wanted[0]
    assert integer(given).costs == one.costs


@pytest.mark.few(15)
@pytest.mark.parametrize("seed", range(300))
def test_both_searches_reach_a_gain_that_is_asked_for(seed: int) -> None:
    rng = random.Random(seed)
    given = random_cover(rng, 9)
    gains = [rng.choice([0, rng.randint(0, 10**6)]) for _ in given.uses]
    given = given.with_pieces(
        replace(one, gain=sum(gains[op] for op in numbers(one.ops)) if number % 2 else 0)
        for number, one in enumerate(given.pieces)
    )
    for share in (0.3, 0.7, 1.0):
        least = int(share * sum(gains))
        wanted = cheapest_costs(given, 5, least)
        found = frontier(given, best=5, least=least)
        assert found.costs == tuple(wanted)
        assert all(given.gain(plan) >= least and given.fault(plan) is None for plan in found.plans)
        one = frontier(given, least=least)
        assert one.costs == integer(given, least=least).costs == tuple(wanted[:1])
        assert one.bound == (wanted[0] if wanted else None)
        known = [(plan, given.cost(plan)) for plan in frontier(given, best=3).plans]
        assert cheapest(given, [plan for plan, _ in known], least=least).costs == tuple(wanted[:1])


def test_what_a_solver_takes_for_enough_is_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    given = problem(CHAIN, *((1 << op, 0, 10) for op in range(4)))
    monkeypatch.setattr(CoverProblem, "gain", lambda self, plan: -1)
    found = integer(given.with_pieces(replace(one, gain=1) for one in given.pieces), least=4)
    assert found.plans == () and found.bound in (39, 40)


def test_entries_that_are_too_many_leave_a_gap_that_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    chain = tuple(() if op == 0 else (op - 1,) for op in range(9))
    proven = []
    for seed in range(10):
        rng = random.Random(seed)
        given = problem(chain, *((1 << op, 0, cost) for op in range(9) for cost in (100, 100 + rng.randint(1, 90))))
        given = given.with_pieces(
            replace(p, gain=rng.randint(1, 99) if n % 2 else 0) for n, p in enumerate(given.pieces)
        )
        least = sum(one.gain for one in given.pieces) // 2
        (best,) = cheapest_costs(given, 1, least)
        assert frontier(given, least=least).costs == (best,)
        with monkeypatch.context() as patched:
            patched.setattr("uma.partition.collage.frontier_search._MOST_ENTRIES", 3)
            found = frontier(given, least=least)
        assert found.bound is not None and found.bound <= best
        assert not found.costs or best <= found.costs[0]
        proven.append(found.is_proven)
    assert False in proven


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(100))
def test_both_searches_agree_on_up_to_60_dense_ops(seed: int) -> None:
    agree(random_cover(random.Random(seed), 60, least_ops=10, reach=8))


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(100))
def test_what_the_frontier_is_too_wide_for_is_proven_by_the_integer_program(seed: int) -> None:
    given = random_cover(random.Random(seed), 60, least_ops=10)
    whole, other = frontier(given, widest=20_000, is_whole=True), integer(given, PATIENCE)
    found = cheapest(given, best=5, budget=Budget(seconds=PATIENCE))
    assert found.is_proven and found.costs[0] == other.costs[0] == given.cost(found.plans[0])
    assert whole.costs in ((), other.costs) and whole.is_proven == bool(whole.costs)


def test_a_search_that_is_to_be_whole_ends_where_states_would_be_lost() -> None:
    given = random_cover(random.Random(3), 30, least_ops=30)
    wide = frontier(given)
    found = frontier(given, widest=wide.widest // 4, is_whole=True)
    assert wide.is_proven and wide.widest >= 8
    assert found.plans == () and not found.is_proven and found.states < wide.states
    assert found.bound is not None and found.bound <= wide.costs[0]
    narrow = cheapest(given, best=3, budget=Budget(widest=wide.widest // 4))
    assert narrow.is_proven and narrow.costs[0] == wide.costs[0] and len(narrow.plans) <= 3


@pytest.mark.parametrize("kind", ["chain", "residual", "inception"])
def test_both_searches_agree_on_nets(kind: str) -> None:
    agree(synthetic(kind, 60 if kind != "inception" else 19, 4, random.Random(2), 3))


def agree(given: CoverProblem) -> None:
    found, other = frontier(given), integer(given)
    assert found.costs == other.costs == (given.cost(found.plans[0]),) == (given.cost(other.plans[0]),)
    assert found.bound == other.bound == found.costs[0]
    assert frontier(given) == found


def test_among_the_random_graphs_are_pieces_that_wait_for_each_other() -> None:
    assert sum(frontier(random_cover(random.Random(seed), 9)).circles > 0 for seed in range(20)) >= 2


def test_a_copy_that_costs_more_than_is_gained_is_not_made() -> None:
    alone = [(1 << op, 0, 10) for op in range(4)]
    assert plan_of(problem(CHAIN, *alone, (2, 1, 1), hop=4)) == [(1, 0, 10), (2, 1, 1), (4, 0, 10), (8, 0, 10)]
    assert plan_of(problem(CHAIN, *alone, (2, 1, 1), hop=5)) == alone


def test_a_value_is_copied_once_for_all_that_want_it_in_a_memory() -> None:
    alone = [(1 << op, 0, 10) for op in range(4)]
    # Brought there once for both, and both results back: 3 hops.
    assert plan_of(problem(DIAMOND, *alone, (2, 1, 1), (4, 1, 1), hop=5))[1:3] == [(2, 1, 1), (4, 1, 1)]
    assert plan_of(problem(DIAMOND, *alone, (2, 1, 1), (4, 1, 1), hop=7)) == alone


def test_a_piece_of_several_ops_flips_the_choice() -> None:
    alone = [(1 << op, 0, 10) for op in range(4)]
    singles = [(1 << op, 1, 11) for op in range(4)]
    assert plan_of(problem(CHAIN, *alone, *singles)) == alone
    assert plan_of(problem(CHAIN, *alone, *singles, (6, 1, 19))) == [(1, 0, 10), (6, 1, 19), (8, 0, 10)]


def test_pieces_that_wait_for_each_other_are_not_chosen_together() -> None:
    uses = ((), (), (0,), (1,))
    alone = [(1 << op, 0, 10) for op in range(4)]
    both = problem(uses, *alone, (0b1001, 0, 1), (0b0110, 0, 1))  # 0 -> 2 and 1 -> 3: {0, 3} and {1, 2}
    assert both.cycle((4, 5)) == (4, 5) and both.fault((4, 5)) == "has pieces that wait for each other"
    assert both.cost((4, 5)) == 2
    found = frontier(both)
    assert (found.costs, found.circles) == ((21,), 1)
    assert integer(both).costs == (21,)


def test_the_same_problem_without_a_plan() -> None:
    for search in (frontier, integer):
        assert search(problem(CHAIN, (1, 0, 1), (2, 0, 1))) == search(problem(CHAIN, (1, 0, 1), (2, 0, 1)))
        found = search(problem(CHAIN, (1, 0, 1), (2, 0, 1)))
        assert (found.plans, found.bound, found.is_proven) == ((), None, True)
    assert cheapest(problem(CHAIN, (1, 0, 1))).plans == ()


def test_where_states_are_too_many_a_gap_is_told_that_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    given = synthetic("inception", 28, 3, random.Random(1), 3)
    best = frontier(given)
    assert best.is_proven and best.bound == best.costs[0]
    narrow = frontier(given, widest=3)
    assert not narrow.is_proven and narrow.bound is not None
    assert narrow.bound <= best.costs[0] <= narrow.costs[0] == given.cost(narrow.plans[0])
    few = frontier(given, most_states=10)
    assert few.states > 10 and few.bound is not None and few.bound <= best.costs[0] <= few.costs[0]
    # With the solver the gap closes; without it, it stays, and what is known besides is taken into account.
    small = Budget(widest=3)
    assert cheapest(given, budget=small).costs == best.costs and cheapest(given, budget=small).is_proven
    monkeypatch.setattr("uma.partition.collage.search.has_solver", lambda: False)
    assert cheapest(given, budget=small) == narrow
    assert cheapest(given, best.plans, budget=small).costs == best.costs


def test_the_integer_program_ends_when_its_time_is_up() -> None:
    given = synthetic("residual", 60, 4, random.Random(1))
    found = integer(given, seconds=0.0)
    assert found.bound is not None and found.bound <= frontier(given).costs[0]
    assert all(given.fault(plan) is None for plan in found.plans)


def test_a_solver_that_is_missing_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any, **named: Any) -> ModuleType:
        if name == "highspy":
            raise ImportError(name=name)
        return real(name, *rest, **named)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(UsageError, match="needs the package 'highspy', which is not installed") as error:
        integer(problem(CHAIN, (15, 0, 1)))
    assert "highspy" in (error.value.hint or "") or "collage" in (error.value.hint or "")
    # The frontier alone is enough where it is narrow.
    assert cheapest(problem(CHAIN, (15, 0, 1))).costs == (1,)


@pytest.mark.parametrize(
    ("uses", "hops", "pieces"),
    [
        (((0,),), ((),), ()),
        (((),), (), ()),
        (((), ()), ((1,), (1, 1)), ()),
    ],
)
def test_ops_out_of_order_are_a_fault(
    uses: tuple[tuple[int, ...], ...], hops: tuple[tuple[int, ...], ...], pieces: tuple[CoverSet, ...]
) -> None:
    with pytest.raises(InternalError, match="out of order"):
        CoverProblem(uses, hops, pieces)


@pytest.mark.parametrize("piece", [CoverSet(0, 0, 1), CoverSet(2, 0, 1), CoverSet(1, 1, 1), CoverSet(1, 0, -1)])
def test_pieces_of_other_problems_are_a_fault(piece: CoverSet) -> None:
    with pytest.raises(InternalError, match="a piece of a cover problem"):
        CoverProblem(((),), ((),), (piece,))


def test_plans_that_are_none() -> None:
    given = problem(CHAIN, (3, 0, 1), (6, 0, 1), (12, 0, 1))
    assert given.fault((0,)) == "leaves an op out"
    assert given.fault((0, 1)) == "covers an op twice"
    assert given.fault((0, 2)) is None


def test_unions_touch_are_convex_and_within_what_is_allowed() -> None:
    diamond = problem(DIAMOND)
    ones = [1, 2, 4, 8]
    # Siblings that use the same value touch each other; {0, 3} has a path outside of it, {0, 1, 3} too.
    whole = unions(diamond, ones, most=100)
    assert whole.is_whole
    assert list(whole.sets) == [1, 2, 4, 8, 3, 5, 6, 10, 12, 7, 14, 15]
    assert all(sum(parts) == ops for ops, parts in whole.sets.items())
    assert list(unions(diamond, ones, most=100, most_ops=2).sets) == [1, 2, 4, 8, 3, 5, 6, 10, 12]
    assert list(unions(diamond, ones, most=100, most_parts=1).sets) == ones

    def small(parts: tuple[int, ...]) -> Excess | None:
        return Excess("nbytes", 9, 8, True) if 8 in parts else None

    def even(parts: tuple[int, ...]) -> Excess | None:
        return Excess("outputs", 2, 1, False) if len(parts) == 3 else None

    assert list(unions(diamond, ones, most=100, excess=small).sets) == [1, 2, 4, 8, 3, 5, 6, 7]
    assert list(unions(diamond, ones, most=100, excess=even).sets) == [1, 2, 4, 8, 3, 5, 6, 10, 12, 15]
    first = unions(diamond, ones, most=6)
    assert (len(first.sets), first.is_whole) == (6, False)


def test_matches_that_wait_for_each_other_are_no_union() -> None:
    uses = ((), (0,), (1,), (0, 2))  # the last op is with the first one, around those between
    around, between = 0b1001, 0b0110
    given = CoverProblem(uses, ((),) * 4, ())
    assert set(unions(given, [around, between], most=100).sets) == {between}
    found = unions(given, [around, between, 0b0011, 0b1100], most=100).sets
    assert found[0b1111] == (0b0011, 0b1100)
