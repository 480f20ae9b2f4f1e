"""The partitioner collage, on random models and costs: never above eager in any order nor the host alone, and right."""

from __future__ import annotations

import contextlib
import itertools
import zlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests._support.covers import cheapest_costs
from tests._support.offload import Case as VariedCase
from tests._support.offload import varied_cases
from tests._support.partitions import (
    Case,
    X,
    Y,
    cases,
    check_ownership,
    check_pins,
    check_region,
    check_source,
    groups_of,
    has_cycle,
    inputs_of,
    model,
    owner,
    regions,
    relu,
    w,
)

from uma.errors import InternalError, ModelError, RequirementError, UsageError
from uma.lowering.fuse import kernels_of
from uma.partition import (
    Candidate,
    Collage,
    CostTable,
    Decision,
    Owner,
    Placement,
    Problem,
    Refusal,
    Regions,
    eager,
    place,
)
from uma.partition.collage import CostEstimate, Link
from uma.partition.collage.alternatives import rivals
from uma.partition.collage.set_cover import numbers
from uma.partition.collage.timeline import Split, split, timeline
from uma.relay import Expr, Function, IRModule, TensorType, Tuple, Var, call, const, post_order
from uma.relay.evaluate import evaluate
from uma.relay.expr import Call
from uma.relay.module import Spans
from uma.relay.op import Op
from uma.relay.pattern import PatternTable, any_, op
from uma.relay.transform import canonicalise
from uma.relay.verify import verify
from uma.relay.views import is_view
from uma.support.json_record import to_json
from uma.targets.limits import Limits

HOST = Owner("host", PatternTable(()))


@dataclass
class Told:
    """Costs from a function of a part's name, in nanoseconds; None for a part that cannot be had."""

    ns: Callable[[str], int | None]
    links: Mapping[str, Link] = field(default_factory=dict)
    launch_ns: int = 0
    fuses: bool = True
    hosts: Sequence[str] = ("host",)
    failed: Sequence[str] = ()
    table: CostTable = field(default_factory=CostTable)
    prefetch: None = None
    gives_back: Callable[[Sequence[Candidate]], Sequence[Candidate]] = lambda claims: ()

    def measuring(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def link(self, label: str) -> Link | None:
        return self.links.get(label)

    def region(
        self, problem: Problem, claims: Sequence[Candidate], name: str
    ) -> CostEstimate | Sequence[Candidate] | None:
        if back := self.gives_back(claims):
            return back
        ns = self.ns(name)
        return None if ns is None else CostEstimate(ns, "table", self.launch_ns)

    def kernels(self, problem: Problem, free: Collection[Expr], label: str | None = None) -> Sequence[tuple[Expr, ...]]:
        return kernels_of(problem.graph, [HOST], free) if self.fuses else []

    def kernel(self, problem: Problem, nodes: Sequence[Expr], label: str, name: str) -> CostEstimate | None:
        ns = self.ns(name)
        return None if ns is None else CostEstimate(ns, "table")


@dataclass(eq=False)
class Telling(Collage):
    """`Collage` with costs of its own."""

    told: Told | None = None

    def __call__(self, problem: Problem) -> Regions:
        problem.costs = self.told
        return super().__call__(problem)


def collage(told: Told, **given: Any) -> Collage:
    return Telling(**given, told=told)


def decided(placement: Placement) -> Decision:
    assert placement.decision is not None
    return placement.decision


def seeded(seed: int) -> Callable[[str], int]:
    """Costs of up to a hundred for each op, by a hash of the name."""

    def ns(name: str) -> int:
        ops = name.partition(": ")[2].split()
        return 20 + sum(zlib.crc32(f"{seed} {name} {one}".encode()) % 100 for one in ops)

    return ns


@settings(max_examples=25)
@given(cases(), st.integers(0, 1000), st.booleans())
def test_random_models(case: Case, seed: int, apart: bool) -> None:
    check_case(case.module, case.owners, seed, apart)


@pytest.mark.soak
@settings(max_examples=1000)
@given(cases(), st.integers(0, 1000), st.booleans())
def test_random_models_at_length(case: Case, seed: int, apart: bool) -> None:
    check_case(case.module, case.owners, seed, apart)


@settings(max_examples=5)
@given(varied_cases(), st.integers(0, 1000), st.booleans())
def test_random_models_of_all_ops(case: VariedCase, seed: int, apart: bool) -> None:
    check_case(canonicalise(case.module), case.owners, seed, apart, case.host)


@pytest.mark.soak
@settings(max_examples=200)
@given(varied_cases(), st.integers(0, 1000), st.booleans())
def test_random_models_of_all_ops_at_length(case: VariedCase, seed: int, apart: bool) -> None:
    check_case(canonicalise(case.module), case.owners, seed, apart, case.host)


def check_case(module: IRModule, owners: Sequence[Owner], seed: int, apart: bool, host: str = "host") -> None:
    links = {owner.label: Link(5, 1e9) for owner in owners[:2]} if apart else {}
    told = Told(seeded(seed), links, launch_ns=15, hosts=(host,))
    eager_one = None
    with contextlib.suppress(RequirementError):
        eager_one = place(module, owners, [host])
    try:
        placement = place(module, owners, [host], collage(told))
    except RequirementError:
        assert eager_one is None  # which may find no place for what is pinned where there is one
        return
    check_placement(module, placement)
    decision = decided(placement)
    check_decision(decision)
    if not apart and eager_one is not None:
        check_eager(owners, told, decision, eager_one)
    if placement.regions:  # what is refused is chosen no more
        name = next(iter(placement.regions))
        gone = set(placement.regions[name].claims)
        try:
            after = placement.refuse([Refusal(name, None, "no")])
        except RequirementError:
            return
        check_placement(module, after)
        assert not gone & {claim for region in after.regions.values() for claim in region.claims}
        # Eager leaves other kernels to the host now: such a kernel that was not offered before was so op by op.
        prices = {(one.owner, one.ops): one.price.total_ns for one in decision.pool.offers}
        apart = 0
        for one in decided(after).chosen:
            if (one.owner, one.ops) not in prices:
                assert not one.claims
                apart += sum(prices[one.owner, 1 << op] for op in numbers(one.ops)) - one.price.total_ns
        assert decided(after).cost_ns + apart >= decision.cost_ns


def check_placement(module: IRModule, placement: Placement) -> None:
    verify(placement.module)
    inputs = inputs_of(module.main)
    with np.errstate(all="ignore"):  # random models have infinities
        results = evaluate(module, inputs), evaluate(placement.module, inputs)
    for wanted, found in zip(*results, strict=True):
        np.testing.assert_array_equal(wanted, found)
    check_source(module, placement)
    check_ownership(placement)
    assert not has_cycle(groups_of(placement))
    owners = {one.label: one for one in placement.owners}
    for region in placement.regions.values():
        check_region(placement.module, region, owners[region.owner])
    check_pins(placement)


def check_decision(decision: Decision) -> None:
    """The cheapest of its pool, by trying everything where that is quick; and no dearer than what there is anyway."""
    cover, found = decision.pool.cover, decision.result
    assert found.is_proven and found.bound == decision.cost_ns == cover.cost(found.plans[0])
    assert cover.fault(found.plans[0]) is None
    assert all(decision.cost_ns <= ns for ns in decision.eager_ns.values())
    assert decision.host_ns is None or decision.cost_ns <= decision.host_ns
    assert decision.cost_ns == decision.copies_ns + sum(offer.price.total_ns for offer in decision.chosen)
    check_steps(decision)
    if len(cover.pieces) < 60:
        assert cheapest_costs(cover) == [decision.cost_ns]
    if decision.chosen:
        other = decision.runner_up(decision.chosen[0])
        assert other is None or other.cost_ns >= decision.cost_ns


def check_steps(decision: Decision) -> None:
    """One after the other, all that costs something, and what uses a value after it; regions that are larger or smaller
    are no better."""
    pool, plan = decision.pool, decision.result.plans[0]
    steps, total = timeline(pool, plan), split(pool, plan)
    assert (total.total_ns, total.copies_ns) == (decision.cost_ns, decision.copies_ns)
    ends = list(itertools.accumulate(step.duration_ns for step in steps))
    assert [step.start_ns for step in steps] == [0, *ends][:-1] and ends[-1:] in ([], [decision.cost_ns])
    assert {step.offer for step in steps if step.offer is not None} == set(decision.chosen)
    assert sum(step.duration_ns for step in steps if step.offer is None) == decision.copies_ns
    at = {op: n for n, step in enumerate(steps) if step.offer is not None for op in numbers(step.offer.ops)}
    assert all(at[used] <= n for op, n in at.items() for used in pool.cover.uses[op] if used in at)
    for offer in decision.chosen:
        for rival in rivals(pool, plan, offer) if offer.claims else ():
            assert rival is None or (rival.more.total_ns >= 0 and rival.offer.owner == offer.owner)


def check_eager(owners: Sequence[Owner], told: Told, decision: Decision, placement: Placement) -> None:
    """What it says that eager's placement costs is what that does cost, added up without it."""
    pool, problem = decision.pool, decision.pool.problem
    if problem.graph.result is not placement.source.main.body:
        return  # what is pinned alike was merged
    claimed = [region.claims for region in placement.regions.values()]
    taken = {node for claims in claimed for claim in claims for node in claim.nodes}
    calls = [expr for expr in problem.computed if isinstance(expr, Call) and isinstance(expr.op, Op)]
    free = [one for one in calls if one not in taken and not is_view(one)]
    total = 0
    for claims in claimed:
        nodes = [node for claim in claims for node in claim.nodes]
        total += told.launch_ns + (told.ns(name(problem, claims[0].owner, nodes)) or 0)
    kernels = list(told.kernels(problem, free))
    fused = {node for kernel in kernels for node in kernel}
    for kernel in (*kernels, *([one] for one in free if one not in fused)):
        total += told.ns(name(problem, told.hosts[0], kernel)) or 0
    assert decision.eager_ns[tuple(owner.label for owner in owners)] == total
    assert len(decision.eager_ns) == len(list(itertools.permutations(owners)))
    assert pool.cut == []


def name(problem: Problem, label: str, nodes: Sequence[Expr]) -> str:
    """What a part is called: as tables of costs have it."""
    order = sorted(nodes, key=problem.number.__getitem__)
    words = [e.op_name if isinstance(e, Call) else type(e).__name__.lower() for e in order]
    return f"{label}: " + " ".join(f"{word}@{problem.number[e]}" for word, e in zip(words, order, strict=True))


# --- situations ------------------------------------------------------------------------------------------------------

RELU = call("nn.relu", X)
CHAIN = call("nn.relu", call("add", RELU, Y))
NPU = owner("npu", relu(), op("add")(w(), w()))
DSP = owner("dsp", relu(), op("add")(w(), w()))


def costs(table: Mapping[str, int], **others: int) -> Callable[[str], int]:
    """Costs by name; of names that the table has not, by owner, for each op."""

    def ns(name: str) -> int:
        label, _, ops = name.partition(": ")
        return table[name] if name in table else others[label] * len(ops.split())

    return ns


def chosen(body: Expr, told: Told, *owners: Owner, **given: int) -> list[str]:
    """The names of the parts that are chosen, in order."""
    module = model(body)
    placement = place(module, owners, told.hosts, collage(told, **given))
    check_placement(module, placement)
    decision = decided(placement)
    check_decision(decision)
    return [decision.pool.key(offer.owner, offer.ops) for offer in decision.chosen]


def test_one_op_goes_to_the_cheaper_side() -> None:
    assert chosen(RELU, Told(costs({}, npu=3, host=4)), NPU) == ["npu: nn.relu@0"]
    assert chosen(RELU, Told(costs({}, npu=4, host=3)), NPU) == ["host: nn.relu@0"]
    assert chosen(RELU, Told(costs({}, npu=3, host=4), launch_ns=2), NPU) == ["host: nn.relu@0"]


def test_fusion_flips_the_choice() -> None:
    split = costs({}, npu=3, host=4)
    assert chosen(CHAIN, Told(split), NPU) == ["npu: nn.relu@0 add@1 nn.relu@2"]
    whole = {"host: nn.relu@0 add@1 nn.relu@2": 5}
    assert chosen(CHAIN, Told(costs(whole, npu=3, host=4)), NPU) == ["host: nn.relu@0 add@1 nn.relu@2"]
    # And what a host does better in pieces is left in pieces.
    dear = {"host: nn.relu@0 add@1 nn.relu@2": 50, "host: nn.relu@0 add@1": 9, "host: add@1 nn.relu@2": 9}
    apart = ["host: nn.relu@0", "host: add@1", "host: nn.relu@2"]
    assert chosen(CHAIN, Told(costs(dear, npu=30, host=4)), NPU) == apart


def test_hosts_compute_together_what_a_region_leaves_of_a_kernel() -> None:
    part = {"npu: nn.relu@0": 1, "host: add@1 nn.relu@2": 2}
    assert chosen(CHAIN, Told(costs(part, npu=30, host=4)), NPU) == list(part)
    # An op that was in the kernel of its first operand joins that of the other when the first is elsewhere.
    weight = const(np.ones((4, 4), np.float32))
    left, right = (Var(name, TensorType((2, 4), "float32")) for name in "ab")
    ends = call("multiply", call("nn.dense", left, weight), call("nn.dense", right, weight))
    other = {"npu: nn.dense@0": 1, "host: nn.dense@1 multiply@2": 2}
    told = Told(costs({**other, "npu: nn.dense@1": 30, "host: nn.dense@0 multiply@2": 30}, npu=30, host=40))
    placement = place(model(ends, left, right), [owner("npu", op("nn.dense")(w(), w()))], told.hosts, collage(told))
    pool = decided(placement).pool
    assert [pool.key(one.owner, one.ops) for one in decided(placement).chosen] == list(other)


def test_eager_costs_what_it_does_after_refusals() -> None:
    told = Told(costs({}, npu=3, host=4), gives_back=lambda claims: claims[-1:] if len(claims) > 1 else ())
    placement = place(model(CHAIN), [NPU], ["host"], collage(told))
    decision = decided(placement)
    once = place(model(CHAIN), [NPU], ["host"])
    found = place(model(CHAIN), [NPU], ["host"])
    while again := [region for region in found.regions.values() if len(region.claims) > 1]:
        found = found.refuse([Refusal(again[0].name, again[0].calls[-1], "no")])
    assert len(once.regions) == len(found.regions) == 1
    (region,) = found.regions.values()
    assert [claim.nodes for claim in region.claims] == [(RELU,)]
    plan = decision.pool.eager[("npu",)]
    assert plan is not None and decision.eager_ns == {("npu",): 3 + 2 * 4}
    assert {decision.pool.key(one.owner, one.ops) for one in map(decision.pool.offers.__getitem__, plan)} >= {
        "npu: nn.relu@0", "host: add@1 nn.relu@2"
    }  # fmt: skip


def test_several_hosts_share_a_model() -> None:
    told = Told(costs({"fast: add@1": 1}, npu=30, host=4, fast=5), hosts=("host", "fast"), fuses=False)
    module = model(CHAIN)
    placement = place(module, [NPU], told.hosts, collage(told))
    check_decision(decided(placement))
    names = [decided(placement).pool.key(offer.owner, offer.ops) for offer in decided(placement).chosen]
    assert names == ["host: nn.relu@0", "fast: add@1", "host: nn.relu@2"]
    pins = [(expr.op_name, expr.pin) for expr in post_order(placement.module.main.body) if isinstance(expr, Call)]
    assert pins == [("nn.relu", None), ("add", "fast"), ("nn.relu", None)]
    # What is pinned is where it is pinned to, and what fuses is one host's.
    whole = {"fast: nn.relu@0 add@1 nn.relu@2": 2}
    told = Told(costs(whole, npu=30, host=4, fast=5), hosts=("host", "fast"))
    assert chosen(CHAIN, told, NPU) == ["fast: nn.relu@0 add@1 nn.relu@2"]
    pinned = call("nn.relu", call("add", RELU.pinned("host"), Y))
    assert chosen(pinned, told, NPU) == ["host: nn.relu@0 add@1 nn.relu@2"]


def test_a_transfer_outweighs_what_is_gained() -> None:
    def told(link_ns: int) -> Told:
        return Told(costs({}, npu=1, host=10), {"npu": Link(link_ns, 1e12)})

    # x and y there, the result back: three copies of 32 bytes, 1 ns each by the rate.
    assert chosen(CHAIN, told(7), NPU) == ["npu: nn.relu@0 add@1 nn.relu@2"]
    assert chosen(CHAIN, told(10), NPU) == ["host: nn.relu@0 add@1 nn.relu@2"]


def test_two_accelerators_that_each_win_on_a_half() -> None:
    body = call("maximum", CHAIN, call("multiply", X, Y))
    other = owner("dsp", op("multiply")(w(), w()), op("maximum")(w(), w()), relu())
    table = {"dsp: nn.relu@0": 1}
    told = Told(costs(table, npu=3, dsp=4, host=9))
    found = chosen(body, told, NPU, other)
    assert found[0] == "dsp: nn.relu@0" and {part.partition(":")[0] for part in found} == {"npu", "dsp"}
    told = Told(costs(table, npu=3, dsp=4, host=9), launch_ns=6)
    assert {part.partition(":")[0] for part in chosen(body, told, NPU, other)} == {"npu", "dsp"}


def test_a_residual_and_a_diamond_are_one_region() -> None:
    left, right = call("nn.relu", RELU), call("add", RELU, Y)
    diamond = call("add", left, right)
    told = Told(costs({}, npu=3, host=4), launch_ns=2)
    assert [part.partition(":")[0] for part in chosen(diamond, told, NPU)] == ["npu"]
    residual = call("add", call("add", call("nn.relu", RELU), Y), RELU)
    assert [part.partition(":")[0] for part in chosen(residual, told, NPU)] == ["npu"]


def test_results_that_are_a_tuple() -> None:
    told = Told(costs({}, npu=3, host=4), launch_ns=2)
    body = Tuple([RELU, call("add", RELU, Y)])
    assert chosen(body, told, NPU) == ["npu: nn.relu@0 add@1"]
    # One output at a time: what both would give is two regions, and their launches are dearer than the host.
    alone = replace(NPU, limits=Limits(outputs=1))
    assert {part.partition(":")[0] for part in chosen(body, told, alone)} == {"host"}


def test_limits_on_matches() -> None:
    told = Told(costs({}, npu=3, host=9), launch_ns=2)
    for limits, parts in ((Limits(matches=2), 2), (Limits(merge=False), 3), (Limits(nbytes=4 * 32), 2), (Limits(), 1)):
        assert len(chosen(CHAIN, told, replace(NPU, limits=limits))) == parts


def test_how_large_unions_may_be() -> None:
    told = Told(costs({}, npu=3, dsp=3, host=9), launch_ns=2)
    long = RELU
    for _ in range(5):
        long = call("add", call("nn.relu", long), Y)
    # Eager's region is larger than any union, and merging what was chosen finds it, too.
    assert len(chosen(long, told, NPU, most_ops=1)) == 1
    placement = place(model(long), [NPU], ["host"], collage(told, most_unions=12))
    assert decided(placement).pool.cut == ["npu"]
    assert decided(placement).cautions == ("of npu more unions of matches can be had than were looked at",)
    assert len(placement.regions) == 1


def test_a_plan_that_is_not_proven_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    decision = decided(place(model(CHAIN), [NPU], ["host"], collage(Told(costs({}, npu=3000, host=9000)))))
    assert decision.cautions == ()
    open_ = replace(decision, result=replace(decision.result, bound=8765))
    gap = "the plan takes 9.00 us, and is not proven: none is below 8.77 us"
    monkeypatch.setattr("uma.partition.collage.decision.has_solver", lambda: True)
    assert open_.cautions == (gap,)
    monkeypatch.setattr("uma.partition.collage.decision.has_solver", lambda: False)
    assert open_.cautions == (f"{gap} (without HiGHS: pip install 'uma-core[collage]')",)


def test_what_was_chosen_is_merged_and_looked_at_again() -> None:
    # Eager of either order mixes both; only two neighbours that are chosen, and merged, save the launch.
    npu, dsp = owner("npu", relu()), owner("dsp", relu(), op("add")(w(), w()))
    told = Told(costs({}, npu=50, dsp=1, host=20), launch_ns=10)
    assert chosen(CHAIN, told, npu, dsp, most_ops=1) == ["dsp: nn.relu@0 add@1 nn.relu@2"]


def test_hosts_compute_together_what_was_chosen_and_the_choice_is_told() -> None:
    dear = {"host: nn.relu@0 add@1 nn.relu@2": 50, "host: nn.relu@0 add@1": 9, "host: add@1 nn.relu@2": 9}
    placement = place(model(CHAIN), [NPU], ["host"], collage(Told(costs(dear, npu=30, host=4))))
    assert sorted(placement.module.spans.groups.values()) == [0, 1, 2]
    together = place(model(CHAIN), [NPU], ["host"], collage(Told(costs({}, npu=30, host=4))))
    assert len(set(together.module.spans.groups.values())) == 1
    assert not place(model(CHAIN), [NPU], ["host"]).module.spans.groups


def test_pins_are_kept_whatever_they_cost() -> None:
    told = Told(costs({}, npu=100, dsp=50, host=1))
    body = call("add", RELU.pinned("npu"), Y)
    placement = place(model(body), [DSP, NPU], ["host"], collage(told))
    assert regions(placement) == {"npu_0": [["nn.relu"]]}
    assert decided(placement).host_ns is None
    with pytest.raises(RequirementError, match="pinned to 'npu'"):
        place(model(call("multiply", X, Y).pinned("npu")), [NPU], ["host"], collage(told))


def test_pins_of_what_only_moves_elements() -> None:
    """A view that costs nothing on a host is still where it is pinned to, unless its layer computes something there."""
    flat = call("reshape", X, newshape=(8,))
    body = call("nn.relu", flat.pinned("npu"))
    npu = owner("npu", op("nn.relu")(op("reshape")(w(), newshape=any_)), op("nn.relu")(w()))
    told = Told(costs({}, npu=100, host=1))
    placement = place(model(body), [npu], ["host"], collage(told))
    assert regions(placement) == {"npu_0": [["reshape", "nn.relu"]]}
    assert decided(placement).host_ns is None
    relu = body.pinned("npu")
    layers = Spans({relu: ["a"], flat.pinned("npu"): ["a"]})
    beside = IRModule.from_functions({"main": Function([X], relu)}, layers)
    dear = Told(costs({"npu: reshape@0 nn.relu@1": 500}, npu=100, host=1))
    assert regions(place(beside, [npu], ["host"], collage(dear))) == {"npu_0": [["nn.relu"]]}


def test_a_part_that_its_owner_refuses_is_none() -> None:
    def ns(name: str) -> int | None:
        return None if name.startswith("npu") and "add" in name else 1 if name.startswith("npu") else 5

    assert chosen(RELU, Told(ns), NPU) == ["npu: nn.relu@0"]
    parts = chosen(CHAIN, Told(ns, fuses=False), NPU)
    assert parts == ["npu: nn.relu@0", "host: add@1", "npu: nn.relu@2"]


def test_what_accelerators_must_have() -> None:
    dear = {"npu: add@1": 30, "npu: nn.relu@0 add@1": 40, "npu: add@1 nn.relu@2": 40}
    # There are no multiply-accumulates: ops count. Dear as it is, two of three are as much as 60 %.
    told = Told(costs(dear, npu=9, host=4), fuses=False)
    parts = ["npu: nn.relu@0", "host: add@1", "npu: nn.relu@2"]

    def parted(share: float) -> list[str]:
        placement = place(model(CHAIN), [NPU], ["host"], replace(collage(told), offload=share))
        decision = decided(placement)
        assert decision.result.is_proven
        return [decision.pool.key(offer.owner, offer.ops) for offer in decision.chosen]

    assert parted(0.0) == ["host: nn.relu@0", "host: add@1", "host: nn.relu@2"]
    assert parted(0.6) == parted(2 / 3) == parts
    assert parted(0.67) == ["npu: nn.relu@0 add@1 nn.relu@2"]
    # What nobody can have is told by whoever asked for it.
    only = replace(collage(told), offload=1.0)
    placement = place(model(CHAIN), [owner("npu", relu())], ["host"], only)
    assert not placement.regions
    # And what it won by keeps to it.
    decision = decided(place(model(CHAIN), [NPU], ["host"], replace(collage(told), offload=0.6)))
    other = decision.runner_up(decision.chosen[0])
    assert other is not None and other.cost_ns > decision.cost_ns


@pytest.mark.parametrize("share", [-0.1, 1.5, True, "all"])
def test_shares_that_are_none(share: Any) -> None:
    with pytest.raises(UsageError, match=r"offload of Collage is .*, not a number from 0 to 1"):
        Collage(offload=share)


def test_runner_ups() -> None:
    placement = place(model(RELU), [NPU, DSP], ["host"], collage(Told(costs({}, npu=3, dsp=5, host=9))))
    decision = decided(placement)
    other = decision.runner_up(decision.chosen[0])
    assert other is not None and other.cost_ns - decision.cost_ns == 2
    assert [offer.owner for offer in other.chosen] == ["dsp"]
    assert decision.result.costs == (3, 5, 9)
    alone = decided(place(model(RELU), [], ["host"], collage(Told(costs({}, host=9)))))
    assert alone.runner_up(alone.chosen[0]) is None


def test_what_a_larger_or_smaller_region_loses_by() -> None:
    """By computing, launches or copies, each apart; and when what runs, with copies before what needs them."""
    told = Told(costs({"npu: add@1 nn.relu@2": 50}, npu=3, host=4), launch_ns=1)
    decision = decided(place(model(CHAIN), [NPU], ["host"], collage(told)))
    [whole] = decision.chosen
    larger, smaller = rivals(decision.pool, decision.result.plans[0], whole)
    assert larger is None and smaller is not None
    assert to_json(smaller) == {
        "name": "npu: nn.relu@0 add@1",
        "more_ns": 1,
        "compute_ns": 1,
        "launch_ns": 0,
        "copies_ns": 0,
    }
    # The last op is so dear that the host has it: the larger region computes longer, and brings back as much.
    table = {"npu: nn.relu@0 add@1 nn.relu@2": 90, "npu: add@1 nn.relu@2": 90, "npu: nn.relu@2": 90}
    links = {"npu": Link(2, 1e12)}
    decision = decided(
        place(model(CHAIN), [NPU], ["host"], collage(Told(costs(table, npu=3, host=20), links, launch_ns=1)))
    )
    assert [offer.owner for offer in decision.chosen] == ["npu", "host"]
    larger, smaller = rivals(decision.pool, decision.result.plans[0], decision.chosen[0])
    assert larger is not None and larger.more == Split(90 - 6 - 20, 0, 0)
    assert smaller is not None and smaller.more == Split(0, 1, 0)  # two of them
    steps = timeline(decision.pool, decision.result.plans[0])
    assert [step.name for step in steps if step.offer is None] == ["copy of x", "copy of y", "copy of add@1"]
    assert [step.queue for step in steps] == ["npu copies", "npu copies", "npu", "npu copies", "host"]


def test_an_op_of_which_nobody_tells_the_cost() -> None:
    with pytest.raises(ModelError, match=r"nobody tells what nn\.relu costs on any target"):
        place(model(RELU), [], ["host"], collage(Told(lambda name: None)))


def test_parts_that_do_not_make_a_whole() -> None:
    known = {"npu: nn.relu@0 add@1", "npu: add@1 nn.relu@2"}
    with pytest.raises(ModelError, match="there is no placement of which every part's cost is known"):
        place(model(CHAIN), [NPU], ["host"], collage(Told(lambda name: 1 if name in known else None)))


def test_collage_alone_knows_no_costs() -> None:
    assert str(Collage()) == "partitioner 'collage'"
    with pytest.raises(InternalError, match="by nobody who knows costs"):
        place(model(RELU), [NPU], ["host"], Collage())


@pytest.mark.parametrize("given", [{"most_ops": 0}, {"most_unions": True}, {"best": "two"}, {"measure": -1}])
def test_numbers_that_are_none(given: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=f"{next(iter(given))} of Collage is .*, not a whole number from [01] on"):
        Collage(**given)


def test_eager_is_asked_in_every_order() -> None:
    placement = place(model(CHAIN), [NPU, DSP], ["host"], collage(Told(costs({}, npu=3, dsp=2, host=9))))
    assert decided(placement).eager_ns == {("npu", "dsp"): 9, ("dsp", "npu"): 6}
    assert decided(placement).cost_ns == 6
    assert place(model(CHAIN), [NPU, DSP], ["host"], eager).regions["npu_0"].owner == "npu"
