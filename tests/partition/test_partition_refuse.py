"""Refusals: one match goes, every other one stays, and what was in it is placed anew."""

from __future__ import annotations

import numpy as np
import pytest
from tests._support.partitions import BOTH, X, Y, check, model, owner, regions, relu, w

from uma.errors import PluginError
from uma.partition import Placement, Refusal, place
from uma.relay import Call, Expr, Function, IRModule, Spans, Tuple, TupleGetItem, Var, call, const, post_order
from uma.relay.pattern import any_, op, optional, outputs, tuple_item
from uma.targets.limits import Limits


def chain(length: int) -> Expr:
    value: Expr = X
    for number in range(length):
        value = call("nn.relu", call("add", value, const(np.full((2, 4), number, np.int32))))
    return value


LARGE = owner("npu", op("nn.relu")(op("add")(w(), w())))


def refused(placement: Placement, module: IRModule, *refusals: tuple[str, Expr | None]) -> Placement:
    result = placement.refuse([Refusal(region, at, f"reason {i}") for i, (region, at) in enumerate(refusals)])
    check(module, result)
    return result


def composite(placement: Placement, number: int, region: str = "npu_0") -> Function:
    function = placement.regions[region].calls[number].op
    assert isinstance(function, Function)
    return function


def test_one_op_inside_of_a_large_region() -> None:
    """Every other match stays; explain says why this one did not."""
    module = model(chain(9))
    before = place(module, [LARGE])
    assert [len(region.claims) for region in before.regions.values()] == [9]
    after = refused(before, module, ("npu_0", before.regions["npu_0"].calls[4]))
    assert set(after.claims) == set(before.claims) - {before.regions["npu_0"].claims[4]}
    assert [len(region.claims) for region in after.regions.values()] == [4, 4]
    left = [record for record in after.records() if record.owner is None]
    assert [record.op for record in left] == ["add", "nn.relu"]
    for record in left:
        (why,) = record.why
        assert (why.owner, why.pattern, why.kind, why.reason) == ("npu", "npu.p0", "refused", "reason 0")


@pytest.mark.parametrize("what", ["call", "function", "root", "inner"])
def test_all_ways_to_say_which(what: str) -> None:
    module = model(chain(3))
    before = place(module, [LARGE])
    function = composite(before, 1)
    inner = next(e for e in post_order(function.body) if isinstance(e, Call))
    at = {"call": before.regions["npu_0"].calls[1], "function": function, "root": function.body, "inner": inner}[what]
    after = refused(before, module, ("npu_0", at))
    assert set(before.claims) - set(after.claims) == {before.regions["npu_0"].claims[1]}


def test_a_field_of_what_a_match_gives() -> None:
    split = call("split", X, indices=(2,), axis=1)
    module = model(call("concatenate", TupleGetItem(split, 1), call("nn.relu", TupleGetItem(split, 0)), axis=1))
    before = place(module, [owner("npu", op("split")(w(), indices=any_, axis=any_), relu())])
    made = before.regions["npu_0"].calls[0]
    after = refused(before, module, ("npu_0", TupleGetItem(made, 0)))
    assert regions(after) == {"npu_0": [["nn.relu"]]}


def test_equal_matches_of_a_region_go_together() -> None:
    """They are one function: what cannot be done of it cannot be done of any of them."""
    module = model(call("nn.relu", call("add", call("nn.relu", call("add", X, Y)), Y)))
    before = place(module, [LARGE])
    assert composite(before, 0) is composite(before, 1)
    assert not refused(before, module, ("npu_0", composite(before, 0))).claims
    only = refused(before, module, ("npu_0", before.regions["npu_0"].calls[0]))
    assert only.claims == (before.regions["npu_0"].claims[1],)


def test_the_whole_region() -> None:
    value = call("nn.relu", call("add", call("maximum", chain(2), X), Y))
    module = model(value)
    before = place(module, [LARGE])
    assert list(before.regions) == ["npu_0", "npu_1"]
    after = refused(before, module, ("npu_0", None))
    assert regions(after) == {"npu_0": [["add", "nn.relu"]]}
    assert len(after.withdrawn) == 2


def test_the_regions_function_and_its_results_are_the_whole_region() -> None:
    module = model(Tuple([chain(1), chain(2)]))
    before = place(module, [LARGE])
    function = before.module["npu_0"]
    assert isinstance(function, Function)
    for at in (function, function.body):
        assert not refused(before, module, ("npu_0", at)).regions


def test_several_refusals_at_once() -> None:
    """All are of the module as it was."""
    module = model(call("nn.relu", call("add", call("maximum", chain(3), X), Y)))
    before = place(module, [LARGE])
    after = refused(before, module, ("npu_1", None), ("npu_0", composite(before, 0)), ("npu_0", composite(before, 0)))
    assert [region.claims for region in after.regions.values()] == [before.regions["npu_0"].claims[1:]]
    assert [one.reason for one in after.withdrawn] == ["reason 0", "reason 1"]
    assert refused(before, module).claims == before.claims


def test_a_smaller_match_of_the_same_pattern() -> None:
    npu = owner("npu", optional(op("add")(w(), w()), lambda value: op("nn.relu")(value)))
    module = model(call("nn.relu", call("add", X, Y)))
    before = place(module, [npu])
    assert regions(before) == {"npu_0": [["add", "nn.relu"]]}
    after = refused(before, module, ("npu_0", None))
    assert regions(after) == {"npu_0": [["add"]]}
    assert not refused(after, module, ("npu_0", None)).regions


def test_a_later_pattern_then_the_next_owner_then_the_host() -> None:
    npu = owner("npu", *[p.pattern for p in LARGE.patterns], *[p.pattern for p in BOTH.patterns])
    dsp = owner("dsp", relu())
    module = model(call("nn.relu", call("add", X, Y)))
    now = place(module, [npu, dsp])
    assert regions(now) == {"npu_0": [["add", "nn.relu"]]}
    now = refused(now, module, ("npu_0", None))
    assert regions(now) == {"npu_0": [["add"], ["nn.relu"]]}
    now = refused(now, module, ("npu_0", now.regions["npu_0"].calls[1]))
    assert regions(now) == {"npu_0": [["add"]], "dsp_0": [["nn.relu"]]}
    now = refused(now, module, ("dsp_0", None))
    assert regions(now) == {"npu_0": [["add"]]}
    record = now.records()[1]
    assert [(why.owner, why.pattern, why.kind) for why in record.why] == [
        ("npu", "npu.p0", "refused"),
        ("npu", "npu.p1", "refused"),
        ("dsp", "dsp.p0", "refused"),
    ]


def test_a_match_above_what_was_freed() -> None:
    """A match may take what was the host's together with what was given back."""
    npu = owner("npu", op("add")(w(), w()), op("maximum")(op("nn.relu")(op("add")(w(), w())), w()))
    module = model(call("maximum", call("nn.relu", call("add", X, Y)), X))
    before = place(module, [npu])
    assert regions(before) == {"npu_0": [["add"]]}
    after = refused(before, module, ("npu_0", None))
    assert regions(after) == {"npu_0": [["add", "nn.relu", "maximum"]]}


def test_a_match_of_several_outputs_beside_what_was_freed() -> None:
    data = w()
    both = outputs(op("nn.relu")(data), op("clip")(data, a_min=any_, a_max=any_))
    npu = owner("npu", op("clip")(w(), a_min=any_, a_max=any_), both)
    module = model(call("maximum", call("nn.relu", X), call("clip", X, a_min=0, a_max=3)))
    before = place(module, [npu])
    assert regions(before) == {"npu_0": [["clip"]]}
    assert regions(refused(before, module, ("npu_0", None))) == {"npu_0": [["nn.relu", "clip"]]}


def test_what_was_in_the_way_is_no_reason_any_more() -> None:
    npu = owner("npu", op("add")(w(), w()), op("nn.relu")(op("add")(w(), w())))
    module = model(call("nn.relu", call("add", X, Y)))
    before = place(module, [npu])
    relus = [record for record in before.records() if record.op == "nn.relu"]
    assert relus[0].why[0].kind == "overlap"
    after = refused(before, module, ("npu_0", None))
    gone = refused(after, module, ("npu_0", None))
    assert [why.kind for record in gone.records() for why in record.why] == ["refused"] * 3


def test_limits_hold_after_refusals_too() -> None:
    module = model(chain(6))
    before = place(module, [owner("npu", *[p.pattern for p in LARGE.patterns], limits=Limits(matches=3))])
    assert [len(region.claims) for region in before.regions.values()] == [3, 3]
    after = refused(before, module, ("npu_0", before.regions["npu_0"].calls[2]))
    assert [len(region.claims) for region in after.regions.values()] == [2, 3]


def test_a_placement_does_not_change() -> None:
    module = model(chain(3))
    before = place(module, [LARGE])
    shown = before.module, before.claims, dict(before.regions), before.withdrawn, before.records()
    refused(before, module, ("npu_0", None))
    assert shown == (before.module, before.claims, dict(before.regions), before.withdrawn, before.records())
    with pytest.raises(TypeError):
        before.regions["npu_1"] = before.regions["npu_0"]  # type: ignore[index]  # read-only: the test is about that


def test_what_is_not_in_the_region() -> None:
    a = call("add", X, Y)
    module = IRModule.from_functions({"main": Function([X, Y], call("nn.relu", a))}, Spans({a: ["A"]}))
    placement = place(module, [LARGE])
    function = placement.module["npu_0"]
    assert isinstance(function, Function)
    two = Tuple([placement.regions["npu_0"].calls[0]])
    for at in (call("nn.relu", a), function.params[0], Var("p0", X.type), two, call("nn.relu", X)):
        with pytest.raises(PluginError, match="which is nothing that region 'npu_0' computes") as caught:
            placement.refuse([Refusal("npu_0", at, "no")])
        assert caught.value.where == "A"
    with pytest.raises(PluginError, match="'npu_9' is refused, which is not a region"):
        placement.refuse([Refusal("npu_9", None, "no")])


def test_a_constant_is_in_the_match_that_needs_it() -> None:
    module = model(chain(3))
    before = place(module, [LARGE])
    body = composite(before, 2).body
    at = next(expr for expr in post_order(body) if expr.type is X.type and not isinstance(expr, (Call, Var)))
    after = refused(before, module, ("npu_0", at))
    assert len(after.claims) == 2


def test_fields_inside_of_a_match() -> None:
    split = op("split")(w(), indices=any_, axis=any_)
    npu = owner("npu", op("multiply")(op("nn.relu")(tuple_item(split, 0)), tuple_item(split, 1)))
    made = call("split", X, indices=(2,), axis=1)
    module = model(call("multiply", call("nn.relu", TupleGetItem(made, 0)), TupleGetItem(made, 1)))
    before = place(module, [npu])
    field = next(e for e in post_order(composite(before, 0).body) if isinstance(e, TupleGetItem))
    assert not refused(before, module, ("npu_0", field)).claims
