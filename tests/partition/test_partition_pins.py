"""What is pinned goes where it is pinned to, before anything else, or the build fails and says why."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from tests._support.partitions import BOTH, FULL, ONES, X, Y, check, function_of, model, owner, regions, relu, w

from uma.errors import InternalError, ModelError, RequirementError, UsageError
from uma.partition import Owner, Placement, Refusal, place
from uma.relay import Call, Expr, Function, IRModule, Spans, TensorType, Var, call, const, post_order
from uma.relay.pattern import Clause, Failed, Pattern, PatternTable, any_, op
from uma.relay.verify import verify
from uma.relay.visit import nested_exprs
from uma.support.json_record import to_json
from uma.targets.limits import Limits

P = Var("p", FULL)
ADD_RELU = op("nn.relu")(op("add")(w(), w()))
A = owner("a", relu(), op("add")(w(), w()))
B = owner("b", relu(), op("add")(w(), w()))


def pin(label: str, name: str, *args: Expr, **attrs: object) -> Call:
    return call(name, *args, **attrs).pinned(label)


def placed(body: Expr, *owners: Owner, layers: dict[Expr, list[str]] | None = None) -> Placement:
    """A placement of a model on some owners and two hosts, checked."""
    module = IRModule.from_functions({"main": Function([X, Y], body)}, Spans(layers or {}))
    placement = place(module, owners, ("host", "little"))
    check(module, placement)
    records = placement.records()
    labels = {one.label for one in owners}
    for record in records:
        assert record.pin not in labels or record.owner == record.pin
        assert record.pin not in ("host", "little") or record.owner is None
        assert to_json(record)["pin"] == record.pin
    for var, function in placement.module.functions.items():
        assert isinstance(function, Function)
        pins = {expr.pin for expr in nested_exprs(function) if isinstance(expr, Call)}
        assert pins <= ({None, "host", "little"} if var.name == "main" else {None})
    return placement


def where(placement: Placement) -> list[tuple[str, str | None, str | None]]:
    return [(record.op, record.owner, record.pattern) for record in placement.records()]


def refused(body: Expr, *owners: Owner, layers: dict[Expr, list[str]] | None = None) -> RequirementError:
    with pytest.raises(RequirementError) as caught:
        placed(body, *owners, layers=layers)
    return caught.value


class TestWherePinsLead:
    def test_to_a_target_of_lower_priority(self) -> None:
        placement = placed(pin("b", "nn.relu", call("nn.relu", X)), A, B)
        assert regions(placement) == {"a_0": [["nn.relu"]], "b_0": [["nn.relu"]]}

    def test_to_a_host(self) -> None:
        placement = placed(call("nn.relu", pin("host", "add", call("nn.relu", X), Y)), A)
        assert where(placement) == [("nn.relu", "a", "a.p0"), ("add", None, None), ("nn.relu", "a", "a.p0")]
        (added,) = (e for e in post_order(placement.module.main.body) if isinstance(e, Call) and e.op_name == "add")
        assert added.pin == "host"

    def test_no_match_has_in_it_what_is_pinned_elsewhere(self) -> None:
        both = owner("a", ADD_RELU, relu())
        placement = placed(call("nn.relu", pin("host", "add", X, Y)), both)
        assert where(placement) == [("add", None, None), ("nn.relu", "a", "a.p1")]
        placement = placed(pin("host", "nn.relu", call("add", X, Y)), both)
        assert where(placement) == [("add", None, None), ("nn.relu", None, None)]

    def test_before_an_owner_of_higher_priority_takes_a_part_of_the_match(self) -> None:
        """``a`` would take the relu, and ``b`` has no pattern for the add alone."""
        body = call("nn.relu", pin("b", "add", X, Y))
        placement = placed(body, owner("a", relu()), owner("b", ADD_RELU))
        assert where(placement) == [("add", "b", "b.p0"), ("nn.relu", "b", "b.p0")]
        assert where(placed(call("nn.relu", call("add", X, Y)), owner("a", relu()), owner("b", ADD_RELU)))[1][1] == "a"

    def test_before_a_pattern_of_higher_priority(self) -> None:
        """Without the pin the relu is taken alone, and the add is left."""
        patterns = owner("a", relu(), ADD_RELU)
        assert where(placed(call("nn.relu", call("add", X, Y)), patterns))[0][1] is None
        placement = placed(call("nn.relu", pin("a", "add", X, Y)), patterns)
        assert where(placement) == [("add", "a", "a.p1"), ("nn.relu", "a", "a.p1")]

    def test_the_same_op_in_two_places(self) -> None:
        """Pins are identity: the two are computed each where it is pinned."""
        one, other = pin("a", "nn.relu", X), pin("b", "nn.relu", X)
        placement = placed(call("maximum", one, other), A, B)
        assert regions(placement) == {"a_0": [["nn.relu"]], "b_0": [["nn.relu"]]}

    def test_limits_hold(self) -> None:
        narrow = owner("a", relu(), limits=Limits(matches=1))
        placement = placed(pin("a", "nn.relu", pin("a", "nn.relu", X)), narrow)
        assert regions(placement) == {"a_0": [["nn.relu"]], "a_1": [["nn.relu"]]}


class TestMovements:
    """What a layer has of reshapes and permutations around what it computes."""

    def test_they_may_stay_on_the_host(self) -> None:
        flat = pin("a", "reshape", X, newshape=(4, 2))
        body = pin("a", "nn.relu", flat)
        placement = placed(body, A, layers={flat: ["conv"], body: ["conv"]})
        assert where(placement) == [("reshape", None, None), ("nn.relu", "a", "a.p0")]
        assert [record.pin for record in placement.records()] == [None, "a"]

    def test_not_where_the_layer_has_nothing_else(self) -> None:
        flat = pin("a", "reshape", X, newshape=(4, 2))
        body = pin("a", "nn.relu", flat)
        error = refused(body, A, layers={flat: ["flatten"], body: ["conv"]})
        assert error.what == "flatten: reshape is pinned to 'a', which does not take it: no pattern takes reshape"
        assert refused(body, A).what.startswith("(no layer): reshape is pinned to 'a'")

    def test_what_the_layer_computes_is_all_that_is_told(self) -> None:
        flat = pin("a", "reshape", X, newshape=(4, 2))
        body = pin("a", "maximum", flat, flat)
        error = refused(body, A, layers={flat: ["m"], body: ["m"]})
        assert error.what == "m: maximum is pinned to 'a', which does not take it: no pattern takes maximum"


class TestImpossible:
    def test_a_clause_that_fails(self) -> None:
        few = Clause("few", lambda match: Failed(match.root.shape[1]), "at most 2 channels, not {value}")
        value = pin("a", "nn.relu", X)
        error = refused(value, owner("a", Pattern("a.relu", relu(), [few])), layers={value: ["act", "act2"]})
        assert error.what.startswith("act, act2: nn.relu is pinned to 'a', which does not take it: a.relu: clause few")
        assert "4" in error.what.partition("clause few")[2]
        assert error.exit_code == 4
        assert error.hint == "pin them elsewhere, or leave the choice to the partitioner"

    def test_an_attribute(self) -> None:
        error = refused(pin("a", "clip", X, a_min=-1, a_max=1), owner("a", op("clip")(w(), a_min=0, a_max=any_)))
        assert error.what.endswith("a.p0: clip: attribute a_min is -1.0, the pattern takes 0.0")

    def test_limits(self) -> None:
        error = refused(pin("a", "nn.relu", X), owner("a", relu(), limits=Limits(nbytes=32)))
        assert error.what.endswith("pattern a.p0 matches, but it has 64 bytes, and a region of a at most 32")

    def test_what_its_match_needs_is_pinned_elsewhere(self) -> None:
        error = refused(call("nn.relu", pin("host", "add", pin("a", "nn.relu", X), Y)), owner("a", op("add")(w(), w())))
        assert "no pattern takes nn.relu" in error.what
        body = pin("host", "nn.relu", pin("a", "add", X, Y))
        assert refused(body, owner("a", ADD_RELU)).what.endswith(
            "pattern a.p0 matches, but nn.relu in it is pinned to host"
        )

    def test_many_at_once(self) -> None:
        value: Expr = X
        for _ in range(13):
            value = pin("a", "maximum", value, Y)
        lines = refused(value, A).what.splitlines()
        assert (lines[0], len(lines), lines[-1]) == (
            "13 ops cannot run where they are pinned to", 12, "    and 3 more",
        )  # fmt: skip

    def test_in_a_function_that_is_nobodys(self) -> None:
        inner = Function([P], pin("a", "nn.relu", P))
        error = refused(Call(inner, [X]), A)
        assert error.what.endswith("the model has it in a function of its own, which is the host's")

    def test_a_label_that_is_none_of_the_build(self) -> None:
        value = pin("gpu", "nn.relu", X)
        with pytest.raises(ModelError) as caught:
            placed(value, A, layers={value: ["act"]})
        assert caught.value.what == "nn.relu is pinned to 'gpu', which is not a target of this build"
        assert (caught.value.where, caught.value.hint) == ("act", "the targets are a, host, little")


class TestRefusals:
    def test_a_smaller_match_is_as_good(self) -> None:
        patterns = owner("a", ADD_RELU, op("add")(w(), w()))
        placement = placed(call("nn.relu", pin("a", "add", X, Y)), patterns, B)
        again = placement.refuse([Refusal("a_0", None, "too hot")])
        assert where(again) == [("add", "a", "a.p1"), ("nn.relu", "b", "b.p0")]

    def test_nothing_is_left(self) -> None:
        value = pin("a", "nn.relu", X)
        placement = placed(value, A, B, layers={value: ["act"]})
        with pytest.raises(RequirementError) as caught:
            placement.refuse([Refusal("a_0", None, "too hot")])
        assert caught.value.what == "act: nn.relu is pinned to 'a', which does not take it: a.p0: too hot"

    def test_what_is_not_pinned_goes_elsewhere(self) -> None:
        placement = placed(pin("a", "nn.relu", call("add", X, Y)), A)
        claims, calls = placement.regions["a_0"].claims, placement.regions["a_0"].calls
        (made,) = (c for one, c in zip(claims, calls, strict=True) if one.match.pattern.name == "a.p1")
        assert where(placement.refuse([Refusal("a_0", made, "no")])) == [("add", None, None), ("nn.relu", "a", "a.p0")]


class TestTwins:
    """Ops that are alike but for their pins, of which nothing is left after partitioning."""

    def test_one_without_a_pin_is_the_pinned_one(self) -> None:
        free, pinned = call("nn.relu", X), pin("b", "nn.relu", X)
        assert where(placed(call("maximum", free, pinned), A, B))[0] == ("nn.relu", "b", "b.p0")
        # Also where only what follows it is the same as well.
        body = call("maximum", call("nn.relu", free), call("nn.relu", pinned))
        assert len(placed(body, A, B).records()) == 3
        assert regions(placed(call("maximum", free, pin("host", "nn.relu", X)), A)) == {}

    def test_a_movement_is_where_the_last_accelerator_has_it(self) -> None:
        ones = [pin(label, "reshape", X, newshape=(4, 2)) for label in ("host", "a", "b")]
        uses = [pin(label, "nn.relu", one) for label, one in zip(("host", "a", "b"), ones, strict=True)]
        layers = {expr: [name] for name, *exprs in zip("hab", ones, uses, strict=True) for expr in exprs}
        body = call("maximum", call("maximum", *uses[:2]), uses[2])
        assert [one.pin for one in placed(body, A, B, layers=layers).records() if one.op == "reshape"] == ["host", None]
        moving = owner("b", relu(), op("reshape")(w(), newshape=any_))
        assert ("reshape", "b", "b.p1") in where(placed(body, A, moving, layers=layers))

    def test_in_a_function_of_the_model(self) -> None:
        both = call("maximum", call("nn.relu", P), pin("npu", "nn.relu", P))
        placement = placed(Call(Function([P], both, {"Compiler": "npu"}), [X]), BOTH)
        assert [record.op for record in placement.records()] == ["nn.relu", "maximum"]


class TestExisting:
    def test_pins_that_say_the_same(self) -> None:
        inner = Function([P], pin("npu", "maximum", pin("npu", "nn.relu", P), ONES), {"Compiler": "npu"})
        placement = placed(Call(inner, [X]), BOTH)
        calls = [e for e in post_order(function_of(placement, "npu_0").body) if isinstance(e, Call)]
        assert [e.pin for e in calls] == [None, None]

    def test_pins_only_on_what_no_pattern_takes(self) -> None:
        inner = Function([P], pin("npu", "maximum", P, ONES), {"Compiler": "npu"})
        placed(Call(inner, [X]), BOTH)

    @pytest.mark.parametrize("label", ["host", "b"])
    def test_pins_that_contradict(self, label: str) -> None:
        value = pin(label, "nn.relu", P)
        inner = Function([P], value, {"Compiler": "npu"})
        with pytest.raises(ModelError) as caught:
            placed(Call(inner, [X]), BOTH, B, layers={value: ["act"]})
        assert caught.value.what == f"nn.relu is pinned to {label!r}, and the model has it in a function for 'npu'"
        assert (caught.value.where, caught.value.hint) == ("function 'main', act", "take one of the two away")


class TestReasons:
    def kinds(self, placement: Placement, number: int) -> list[tuple[str, str, object]]:
        return [(reason.kind, reason.reason, reason.value) for reason in placement.records()[number].why]

    def test_of_what_is_pinned(self) -> None:
        placement = placed(pin("b", "nn.relu", X), A, B)
        assert self.kinds(placement, 0) == [("pinned", "it is pinned to b", "b")]

    def test_of_what_it_takes_along(self) -> None:
        placement = placed(call("nn.relu", pin("host", "add", X, Y)), owner("a", ADD_RELU))
        assert self.kinds(placement, 1) == [
            ("pinned", "pattern a.p0 matches, but add in it is pinned to host", "host"),
        ]  # fmt: skip


@pytest.mark.parametrize("label", [3, "", "a b", "npu-0", "ä", "1a"])
def test_what_is_no_label(label: Any) -> None:
    with pytest.raises(ModelError, match="not a label to pin a call to"):
        call("nn.relu", X).pinned(label)


def test_a_call_of_a_function_is_pinned_unless_that_says_where_it_runs() -> None:
    verify(IRModule.from_functions({"main": Function([X], Call(Function([P], P), [X]).pinned("a"))}))
    with pytest.raises(InternalError, match="the call of a function for 'b' is pinned to 'a'"):
        verify(
            IRModule.from_functions({"main": Function([X], Call(Function([P], P, {"Compiler": "b"}), [X]).pinned("a"))})
        )


def test_labels_as_targets_have_them() -> None:
    """Upper and lower case; but no words of C's and Python's, which are not names in texts."""
    table: Sequence[Pattern] = [Pattern("p", relu())]
    for label in ("NPU_1", "Def", "_x"):
        placement = placed(pin(label, "nn.relu", X), Owner(label, PatternTable(table)))
        assert list(placement.regions) == [f"{label}_0"]
    for label in ("npu-1", "def", "int"):
        with pytest.raises(UsageError, match="cannot label a target"):
            Owner(label, PatternTable(table))


def test_a_dense_layer_of_several_ops() -> None:
    x = Var("x", TensorType((1, 5), "int8"))
    dense = pin("a", "qnn.dense", x, const(np.ones((2, 5), np.int8)))
    module = model(pin("a", "add", dense, const(np.ones(2, np.int32))), x)
    matmul = op("qnn.dense")(w(), w(), input_zero_point=any_)
    placement = place(module, [owner("a", op("add")(matmul, w()))])
    assert where(placement) == [("qnn.dense", "a", "a.p0"), ("add", "a", "a.p0")]
