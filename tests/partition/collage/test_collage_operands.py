"""Limits on the inputs and outputs of regions: kept, and the cheapest placement within them, by trying every region."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests._support.covers import cheapest_costs
from tests._support.partitions import BINARY, FULL, check, model, owner, relu, w
from tests.partition.collage.test_collage import Told, check_placement, collage, decided, seeded

from uma.partition import Owner, place
from uma.partition.collage.candidate_set import CandidateSet
from uma.partition.collage.set_cover import CoverSet, numbers
from uma.relay import Expr, IRModule, Tuple, Var, call
from uma.relay.pattern import op
from uma.targets.limits import Limits

NPU = owner("npu", relu(), *(op(name)(w(), w()) for name in BINARY))


@st.composite
def streaming(draw: st.DrawFn, most: int = 6) -> IRModule:
    """A few ops over a few inputs; what nothing uses is a result, and so are some other values."""
    params = [Var(f"s{number}", FULL) for number in range(draw(st.integers(1, 4)))]
    values: list[Expr] = list(params)
    unused: dict[Expr, None] = {}
    for _ in range(draw(st.integers(2, most))):
        args = [draw(st.sampled_from(values)) for _ in range(draw(st.integers(1, 2)))]
        value = call("nn.relu" if len(args) == 1 else draw(st.sampled_from(BINARY)), *args)
        if value in values:
            continue
        values.append(value)
        unused[value] = None
        for arg in args:
            if draw(st.integers(0, 3)):
                unused.pop(arg, None)
    return model(Tuple(list(unused)) if len(unused) > 1 else next(iter(unused)), *params)


limits = st.builds(
    Limits,
    inputs=st.sampled_from([None, 1, 2, 3]),
    operands=st.sampled_from([None, 2, 3, 4, 5]),
    outputs=st.sampled_from([None, None, 1, 2]),
)


@settings(max_examples=40)
@given(streaming(10), limits)
def test_eager_keeps_within_the_limits(module: IRModule, bounds: Limits) -> None:
    check(module, place(module, [Owner("npu", NPU.patterns, bounds)], ["host"]))


def check_cheapest(module: IRModule, bounds: Limits, seed: int) -> None:
    npu = Owner("npu", NPU.patterns, bounds)
    told = Told(seeded(seed), launch_ns=15, fuses=False)
    placement = place(module, [npu], ["host"], collage(told))
    check_placement(module, placement)
    decision = decided(placement)
    assert [decision.cost_ns] == cheapest_costs(decision.pool.cover.with_pieces(pieces(decision.pool, bounds, told)))


def pieces(pool: CandidateSet, bounds: Limits, told: Told) -> Iterator[CoverSet]:
    """Every region within the limits, the ops of hosts one by one, and what is free."""
    computed = {number for number, expr in enumerate(pool.exprs) if not isinstance(expr, (Var, Tuple))}
    for offer in pool.offers:
        if not offer.claims:
            yield CoverSet(offer.ops, 0, offer.price.total_ns)
    single = {ops for ops in (1 << number for number in computed) if fits_limits(pool, ops, bounds)}
    for ops in range(1, 1 << len(pool.exprs)):
        members = list(numbers(ops))
        if not all(1 << op in single for op in members) or not fits_limits(pool, ops, bounds):
            continue
        if is_connected(pool, members) and pool.cover.is_convex(ops):
            yield CoverSet(ops, 0, told.ns(pool.key("npu", ops)) + told.launch_ns)  # type: ignore[operator]  # `seeded` costs everything


def fits_limits(pool: CandidateSet, ops: int, bounds: Limits) -> bool:
    """Whether a region of these ops keeps within the limits."""
    inputs, outputs = len(pool.cover.taken_in(ops)), len(pool.cover.produced_by(ops))
    return (
        inputs <= (bounds.inputs or inputs)
        and outputs <= (bounds.outputs or outputs)
        and inputs + outputs <= (bounds.operands or inputs + outputs)
    )


def is_connected(pool: CandidateSet, members: list[int]) -> bool:
    """Whether every op reaches every other by values that go from one to the other, or that both use."""
    uses = {op: {op, *pool.cover.uses[op]} for op in members}
    reached, left = uses[members[0]], members[1:]
    while near := [member for member in left if uses[member] & reached]:
        reached = reached.union(*(uses[member] for member in near))
        left = [member for member in left if member not in near]
    return not left


@settings(max_examples=25)
@given(streaming(), limits, st.integers(0, 1000))
def test_collage_finds_the_cheapest(module: IRModule, bounds: Limits, seed: int) -> None:
    check_cheapest(module, bounds, seed)


@pytest.mark.soak
@settings(max_examples=1000)
@given(streaming(8), limits, st.integers(0, 1000))
def test_collage_finds_the_cheapest_at_length(module: IRModule, bounds: Limits, seed: int) -> None:
    check_cheapest(module, bounds, seed)


def test_a_region_whose_parts_exceed_the_limits() -> None:
    """Any two ops of this region have three inputs or two outputs; all of them together have two inputs and one."""
    x, y = Var("s0", FULL), Var("s1", FULL)
    left, right = call("nn.relu", x), call("nn.relu", y)
    module = model(call("maximum", call("add", left, right), call("multiply", left, right)), x, y)
    npu = Owner("npu", NPU.patterns, Limits(inputs=2, outputs=1))
    assert len(place(module, [npu], ["host"]).regions) == 5
    told = Told(lambda name: 9 if name.startswith("host") else 3, launch_ns=1, fuses=False)
    placement = place(module, [npu], ["host"], collage(told))
    assert len(placement.regions) == 1 and decided(placement).cost_ns == 4
