"""What the model itself has given to an accelerator stays there."""

from __future__ import annotations

import pytest
from tests._support.partitions import BOTH, FULL, ONES, X, Y, check, function_of, model, owner, regions, relu, w

from uma.errors import ModelError, PluginError
from uma.partition import Refusal, place
from uma.relay import Call, Expr, Function, GlobalVar, IRModule, Spans, Tuple, TupleGetItem, Var, call, post_order
from uma.relay.pattern import any_, op
from uma.relay.verify import verify
from uma.targets.limits import Limits

P = Var("p", FULL)


def given(body: Expr, label: str = "npu", **attrs: str) -> Function:
    return Function([P], body, {"Compiler": label, **attrs})


def composites(function: Function) -> list[str | None]:
    calls = (expr for expr in post_order(function.body) if isinstance(expr, Call))
    return [e.op.attr("Composite") if isinstance(e.op, Function) else e.op_name for e in calls]


def test_a_function_of_the_module() -> None:
    """Its ops are put into composites where a pattern matches; others stay raw; it is merged with nothing."""
    inner = given(call("maximum", call("nn.relu", call("add", P, ONES)), P))
    module = IRModule.from_functions({"main": Function([X], X), "fixed": inner})
    body = call("nn.relu", Call(module.global_var("fixed"), [call("nn.relu", X)]))
    module = IRModule.from_functions({"main": Function([X], body), "fixed": inner})
    placement = place(module, [BOTH])
    check(module, placement)
    assert regions(placement) == {"npu_0": [["nn.relu"]], "npu_1": [["nn.relu"]]}
    assert composites(function_of(placement, "fixed")) == ["npu.p1", "npu.p0", "maximum"]
    assert list(placement.module.functions)[:2] == [placement.module.global_var("main"), module.global_var("fixed")]
    found = [(record.op, record.owner, record.pattern, record.region) for record in placement.records()]
    assert found == [
        ("nn.relu", "npu", "npu.p0", "npu_0"),
        ("add", "npu", "npu.p1", "fixed"),
        ("nn.relu", "npu", "npu.p0", "fixed"),
        ("maximum", "npu", None, "fixed"),
        ("nn.relu", "npu", "npu.p0", "npu_1"),
    ]


def test_a_function_that_is_written_in_main() -> None:
    inner = given(call("nn.relu", P))
    a = Call(inner, [X])
    module = IRModule.from_functions({"main": Function([X, Y], call("add", a, Call(inner, [Y])))}, Spans({a: ["A"]}))
    placement = place(module, [BOTH])
    check(module, placement)
    assert [var.name for var in placement.module.functions] == ["main", "npu_0", "npu_1"]
    function = function_of(placement, "npu_0")
    assert (function.attr("Compiler"), function.attr("global_symbol")) == ("npu", "npu_0")
    assert composites(function) == ["npu.p0"]
    assert list(placement.regions) == ["npu_1"]
    calls = [e for e in post_order(placement.module.main.body) if isinstance(e, Call)]
    assert all(isinstance(made.op, GlobalVar) for made in calls)
    assert placement.module.spans[calls[0]] == ("A",)


@pytest.mark.parametrize(("symbol", "name"), [("mine", "mine"), ("taken", "npu_0")])
def test_a_name_of_its_own_is_kept_where_it_is_free(symbol: str, name: str) -> None:
    inner = given(call("nn.relu", P), global_symbol=symbol)
    module = model(Call(inner, [X]), functions={"taken": Function([P], P)})
    function = function_of(place(module, [BOTH]), name)
    assert function.attr("global_symbol") == name


def test_names_of_regions_are_new() -> None:
    module = model(call("nn.relu", X), functions={"npu_0": Function([P], P), "npu_2": Function([P], P)})
    value = call("nn.relu", call("maximum", call("nn.relu", X), X))
    assert list(place(module, [BOTH]).regions) == ["npu_1"]
    module = model(value, functions={"npu_0": Function([P], P), "npu_2": Function([P], P)})
    assert list(place(module, [BOTH]).regions) == ["npu_1", "npu_3"]


def test_regions_do_not_reach_around_an_existing_function() -> None:
    """As one region, what comes before and what comes after would need what is between."""
    a = call("nn.relu", X)
    b = Call(given(call("nn.relu", P), label="dsp"), [a])
    module = model(call("add", a, b))
    placement = place(module, [BOTH, owner("dsp", relu())])
    check(module, placement)
    assert regions(placement) == {"npu_0": [["nn.relu"]], "npu_1": [["add"]]}


def test_limits_do_not_break_up_what_the_model_wants() -> None:
    inner = given(call("nn.relu", call("add", P, P)))
    limited = owner("npu", op("nn.relu")(w()), op("add")(w(), w()), limits=Limits(matches=1, nbytes=1))
    assert composites(function_of(place(model(Call(inner, [X])), [limited]), "npu_0")) == ["npu.p1", "npu.p0"]


@pytest.mark.parametrize(
    ("limits", "text"),
    [
        (Limits(inputs=1), "2 inputs, and a region of npu at most 1"),
        (Limits(inputs=2, operands=2), "3 inputs and outputs, and a region of npu at most 2"),
    ],
)
def test_the_hardware_s_limits_hold_for_a_function_of_the_model(limits: Limits, text: str) -> None:
    q = Var("q", FULL)
    inner = Function([P, q], call("add", P, q), {"Compiler": "npu"})
    npu = owner("npu", op("add")(w(), w()), limits=limits)
    with pytest.raises(ModelError) as caught:
        place(model(Call(inner, [X, Y])), [npu])
    assert caught.value.what == f"the model's function for 'npu' has {text}"
    assert caught.value.where == "function 'main'" and "remove its attribute Compiler" in (caught.value.hint or "")


def test_tuples_in_an_existing_function() -> None:
    split = call("split", P, indices=(2,), axis=1)
    halves = owner("npu", op("split")(w(), indices=any_, axis=any_))
    both, left = given(split), given(Tuple([TupleGetItem(split, 1), TupleGetItem(split, 0)]))
    for inner in (both, left):
        made = Call(inner, [X])
        module = model(call("concatenate", TupleGetItem(made, 0), TupleGetItem(made, 1), axis=1))
        placement = place(module, [halves])
        check(module, placement)
        assert composites(function_of(placement, "npu_0")) == ["npu.p0"]
        # Where no pattern matches it is left exactly as it is.
        again = place(module, [owner("npu", relu())])
        assert function_of(again, "npu_0").body is inner.body


def test_functions_of_the_host_are_left_alone() -> None:
    inner = Function([P], call("nn.relu", P), {"Primitive": "1"})
    module = model(call("add", Call(inner, [X]), Y))
    placement = place(module, [BOTH])
    check(module, placement)
    assert regions(placement) == {"npu_0": [["add"]]}
    first, _ = placement.records()
    assert (first.op, first.owner) == ("nn.relu", None)
    assert [reason.reason for reason in first.why] == ["the model has it in a function of its own, which is the host's"]


def test_one_op_inside_and_outside() -> None:
    """A node of main and one of a function may be the same node: what becomes of one says nothing of the other."""
    inner = Function([X], call("nn.relu", X), {"Compiler": "dsp"})
    module = model(call("maximum", call("nn.relu", X), Call(inner, [Y])))
    placement = place(module, [owner("npu", relu()), owner("dsp")])
    check(module, placement)
    found = {(r.op, r.owner, r.pattern, r.region, len(r.why)) for r in placement.records()}
    assert found == {
        ("nn.relu", "npu", "npu.p0", "npu_0", 1),
        ("nn.relu", "dsp", None, "dsp_0", 1),
        ("maximum", None, None, None, 2),
    }


def test_a_function_that_calls_another() -> None:
    """What a function calls is part of it."""
    helper = Function([P], call("nn.relu", P), {"Composite": "npu.p0"})
    inner = given(call("maximum", Call(helper, [P]), P))
    plain = Function([P], Call(helper, [P]))
    module = model(call("add", Call(inner, [X]), Call(plain, [Y])))
    records = place(module, [BOTH]).records()
    assert [(r.op, r.owner, r.pattern) for r in records] == [
        ("nn.relu", "npu", "npu.p0"),
        ("maximum", "npu", None),
        ("nn.relu", None, None),
        ("add", "npu", "npu.p1"),
    ]


def test_a_placed_module_placed_again_is_the_same() -> None:
    module = model(call("maximum", call("nn.relu", call("add", X, Y)), call("nn.relu", Y)))
    placed = place(module, [BOTH]).module
    again = place(placed, [BOTH])
    verify(again.module)
    assert again.module == placed
    assert not again.regions
    assert all(r.owner == "npu" and r.pattern for r in again.records() if r.op != "maximum")


@pytest.mark.parametrize("inline", [True, False])
def test_a_function_for_nobody(inline: bool) -> None:
    value = call("nn.relu", P)
    inner = given(value, label="gpu")
    spans = Spans({value: ["layer 7"]})
    if inline:
        module = IRModule.from_functions({"main": Function([X], Call(inner, [X]))}, spans)
    else:
        module = IRModule.from_functions({"main": Function([X], X), "other": inner}, spans)
    with pytest.raises(ModelError, match="a function for 'gpu', which is not an accelerator of this build") as caught:
        place(module, [BOTH])
    assert caught.value.where == f"function '{'main' if inline else 'other'}', layer 7"
    assert caught.value.hint == "the accelerators are npu"
    with pytest.raises(ModelError) as caught:
        place(module, [])
    assert caught.value.hint == "the accelerators are none"


def test_main_is_the_hosts() -> None:
    with pytest.raises(ModelError, match="main is a function for 'npu'"):
        place(IRModule.from_functions({"main": given(P)}), [BOTH])


def test_what_the_model_wants_is_not_refused_here() -> None:
    placement = place(model(Call(given(call("nn.relu", P)), [X])), [BOTH])
    with pytest.raises(PluginError, match="'npu_0' is refused, which is not a region"):
        placement.refuse([Refusal("npu_0", None, "no")])
