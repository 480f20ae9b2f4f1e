"""Which regions come of which model."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests._support.partitions import BOTH, FULL, ONES, X, Y, check, function_of, model, owner, regions, relu, w

from uma.errors import PluginError, UsageError
from uma.partition import Owner, Placement, place
from uma.relay import (
    Call,
    Constant,
    Expr,
    FixedPoint,
    Function,
    IRModule,
    Spans,
    TensorType,
    Tuple,
    TupleGetItem,
    Var,
    call,
    const,
    post_order,
)
from uma.relay.pattern import (
    Clause,
    Pattern,
    PatternTable,
    Term,
    any_,
    constant,
    op,
    optional,
    outputs,
    tuple_item,
    wildcard,
)
from uma.relay.types import TupleType
from uma.targets.limits import Limits


def halves() -> Term:
    return op("split")(w(), indices=any_, axis=any_)


def placed(module: IRModule, *owners: Owner) -> Placement:
    placement = place(module, owners)
    check(module, placement)
    return placement


def outputs_of(placement: Placement, name: str) -> tuple[TensorType, ...]:
    type_ = function_of(placement, name).body.type
    assert isinstance(type_, TupleType)
    return type_.fields


# --- what becomes one region -----------------------------------------------------------------------------------------


def test_a_chain() -> None:
    value = call("nn.relu", call("add", call("nn.relu", call("add", X, Y)), Y))
    assert regions(placed(model(value), BOTH)) == {"npu_0": [["add"], ["nn.relu"], ["add"], ["nn.relu"]]}


def test_nothing_to_take() -> None:
    module = model(call("maximum", X, Y))
    for owners in ((), (BOTH,)):
        placement = placed(module, *owners)
        assert placement.module == module
        assert not placement.regions


def test_a_main_that_computes_nothing() -> None:
    assert not placed(model(Tuple([X, ONES])), BOTH).regions


def test_a_residual_block() -> None:
    """Convolution, requantise, convolution, requantise, addition of what came in: one region of two inputs."""
    x = Var("x", TensorType((1, 4, 4, 8), "int8"))
    scale = FixedPoint((2**30,), (-7,), "double")

    def layer(value: Expr, seed: int) -> Expr:
        weight = const((np.arange(3 * 3 * 8 * 8) * seed % 13 - 6).astype(np.int8).reshape(3, 3, 8, 8))
        sums = call("qnn.conv2d", value, weight, padding=(1, 1, 1, 1))
        biased = call("add", sums, const(np.arange(8, dtype=np.int32)))
        return call("qnn.requantize", biased, scale=scale, axis=-1, dtype="int8")

    before = call("maximum", x, call("clip", x, a_min=-3, a_max=3))
    value = call("clip", layer(before, 3), a_min=0, a_max=127)
    total = call("add", layer(value, 5), before)
    conv = op("qnn.conv2d")(wildcard("int8"), constant("int8"), padding=any_).named("conv")
    scaled = op("qnn.requantize")(op("add")(conv, constant("int32")), scale=any_, axis=-1, dtype="int8")
    clipped = optional(scaled, lambda v: op("clip")(v, a_min=any_, a_max=any_))
    npu = owner("npu", Pattern("npu.conv", clipped), Pattern("npu.add", op("add")(wildcard("int8"), wildcard("int8"))))
    placement = placed(model(call("minimum", total, x), x), npu)
    assert regions(placement) == {
        "npu_0": [
            ["qnn.conv2d", "add", "qnn.requantize", "clip"],
            ["qnn.conv2d", "add", "qnn.requantize"],
            ["add"],
        ]
    }
    function = function_of(placement, "npu_0")
    assert len(function.params) == 1
    assert not any(isinstance(expr, Constant) for expr in post_order(function.body))
    (made,) = {call.op for call in placement.regions["npu_0"].calls[2:]}
    assert isinstance(made, Function)
    assert made.attr("Composite") == "npu.add"


def test_several_outputs() -> None:
    """What is used outside of a region comes out of it, once, whoever uses it, and how often."""
    a = call("nn.relu", X)
    b = call("add", a, Y)
    c = call("nn.relu", b)
    module = model(Tuple([call("maximum", a, c), call("minimum", a, a), c]))
    placement = placed(module, BOTH)
    assert regions(placement) == {"npu_0": [["nn.relu"], ["add"], ["nn.relu"]]}
    body = function_of(placement, "npu_0").body
    assert isinstance(body, Tuple)
    assert list(body.fields) == [placement.regions["npu_0"].calls[0], placement.regions["npu_0"].calls[2]]
    main = placement.module.main
    assert {e.index for e in post_order(main.body) if isinstance(e, TupleGetItem)} == {0, 1}
    assert [arg.name for arg in main.params] == ["x", "y"]


def test_a_result_that_is_used_inside_too() -> None:
    a = call("nn.relu", X)
    placement = placed(model(Tuple([a, call("add", a, Y), a])), BOTH)
    assert len(outputs_of(placement, "npu_0")) == 2


def test_siblings_that_share_an_input() -> None:
    a, b = call("nn.relu", X), call("add", X, Y)
    assert list(regions(placed(model(call("maximum", a, b)), BOTH))) == ["npu_0"]


def test_what_shares_only_a_constant_stays_apart() -> None:
    a, b = call("add", X, ONES), call("add", Y, ONES)
    assert list(regions(placed(model(call("maximum", a, b)), BOTH))) == ["npu_0", "npu_1"]


def test_siblings_with_the_host_between_stay_apart() -> None:
    a = call("nn.relu", X)
    b = call("add", X, call("maximum", a, Y))
    assert list(regions(placed(model(b), BOTH))) == ["npu_0", "npu_1"]


def test_a_region_that_would_make_a_cycle() -> None:
    """relu -> maximum (the host's) -> add, and relu -> add: as one, it would need what is computed from it."""
    a = call("nn.relu", X)
    b = call("add", a, call("maximum", a, Y))
    assert regions(placed(model(b), BOTH)) == {"npu_0": [["nn.relu"]], "npu_1": [["add"]]}


def test_regions_of_two_owners_do_not_wait_for_each_other() -> None:
    """Each owner's two matches could be one, but not both owners' at once."""
    npu = owner("npu", relu(), op("add")(w(), w()))
    dsp = owner("dsp", op("clip")(w(), a_min=any_, a_max=any_), op("maximum")(w(), w()))
    a, b = call("nn.relu", X), call("clip", X, a_min=0, a_max=9)
    crossed = Tuple([call("maximum", a, X), call("add", b, X)])
    assert sorted(sizes(placed(model(crossed), npu, dsp))) == [1, 1, 2]


def test_a_diamond_across_two_targets() -> None:
    a = call("nn.relu", X)
    left, right = call("nn.relu", call("maximum", a, X)), call("clip", a, a_min=0, a_max=5)
    npu = owner("npu", relu(), op("maximum")(w(), w()), op("add")(w(), w()))
    dsp = owner("dsp", op("clip")(w(), a_min=any_, a_max=any_))
    placement = placed(model(call("add", left, right)), npu, dsp)
    assert regions(placement) == {
        "npu_0": [["nn.relu"], ["maximum"], ["nn.relu"]],
        "dsp_0": [["clip"]],
        "npu_1": [["add"]],
    }
    assert [region.owner for region in placement.regions.values()] == ["npu", "dsp", "npu"]


def test_owners_come_in_their_order() -> None:
    module = model(call("nn.relu", call("add", X, Y)))
    relus, both = owner("relus", relu()), owner("both", op("nn.relu")(op("add")(w(), w())))
    assert regions(placed(module, relus, both)) == {"relus_0": [["nn.relu"]]}
    assert regions(placed(module, both, relus)) == {"both_0": [["add", "nn.relu"]]}


# --- matches ---------------------------------------------------------------------------------------------------------


def test_patterns_come_in_their_order() -> None:
    module = model(call("nn.relu", call("add", X, Y)))
    small, large = op("add")(w(), w()), op("nn.relu")(op("add")(w(), w()))
    assert regions(placed(module, owner("npu", large, small, relu()))) == {"npu_0": [["add", "nn.relu"]]}
    assert regions(placed(module, owner("npu", small, large, relu()))) == {"npu_0": [["add"], ["nn.relu"]]}


def test_a_pattern_takes_what_is_nearest_to_the_result_first() -> None:
    value: Expr = X
    for _ in range(3):
        value = call("nn.relu", call("clip", value, a_min=-9 - len(post_order(value)), a_max=9))
    clip = op("clip")(op("nn.relu")(w()), a_min=any_, a_max=any_)
    pair = op("nn.relu")(clip)
    assert regions(placed(model(value), owner("npu", pair))) == {"npu_0": [["nn.relu", "clip", "nn.relu"]]}


def test_nested_matches_overlap_nowhere() -> None:
    """A pattern inside of another pattern's match does not take it again."""
    value = call("nn.relu", call("add", call("nn.relu", call("add", X, Y)), Y))
    deep = op("nn.relu")(op("add")(op("nn.relu")(op("add")(w(), w())), w()))
    flat = op("nn.relu")(op("add")(w(), w()))
    placement = placed(model(value), owner("npu", deep, flat))
    assert regions(placement) == {"npu_0": [["add", "nn.relu", "add", "nn.relu"]]}


def test_a_value_used_outside_is_not_inside_of_a_match() -> None:
    a = call("add", X, Y)
    module = model(Tuple([call("nn.relu", a), call("maximum", a, X)]))
    npu = owner("npu", op("nn.relu")(op("add")(w(), w())), relu())
    assert regions(placed(module, npu)) == {"npu_0": [["nn.relu"]]}


def test_a_failed_predicate_falls_back_to_a_smaller_match() -> None:
    added = op("add")(w(), w())
    few = Clause("few", lambda match: len(match.nodes) < 2, "one op at a time")
    npu = owner("npu", Pattern("npu.add", optional(added, lambda v: op("nn.relu")(v)), [few]))
    assert regions(placed(model(call("nn.relu", call("add", X, Y))), npu)) == {"npu_0": [["add"]]}


def test_a_match_of_several_outputs() -> None:
    data = op("add")(w(), w())
    both = outputs(op("nn.relu")(data), op("clip")(data, a_min=any_, a_max=any_))
    value = call("add", X, Y)
    results = call("nn.relu", value), call("clip", value, a_min=0, a_max=3)
    placement = placed(model(call("maximum", *results)), owner("npu", both))
    assert regions(placement) == {"npu_0": [["add", "nn.relu", "clip"]]}
    crossed = model(Tuple([call("maximum", *results[::-1]), results[1]]))
    assert regions(placed(crossed, owner("npu", both))) == {"npu_0": [["add", "clip", "nn.relu"]]}


def test_outputs_with_the_host_between_are_no_match() -> None:
    """The second output needs what the host computes from the first."""
    data = w()
    both = outputs(op("nn.relu")(data), op("add")(data, w()))
    a = call("nn.relu", X)
    assert not placed(model(call("add", X, call("maximum", a, Y))), owner("npu", both)).regions


def test_matches_of_several_outputs_do_not_wait_for_each_other() -> None:
    """Each of two matches is convex by itself, but each would need what the other gives."""
    x, y = wildcard("int32"), wildcard("int32")
    npu = owner("npu", outputs(op("nn.relu")(x), op("add")(x, w())))
    dsp = owner("dsp", outputs(op("clip")(y, a_min=any_, a_max=any_), op("maximum")(y, w())))
    a, b = call("nn.relu", X), call("clip", Y, a_min=0, a_max=9)
    module = model(call("subtract", call("add", X, b), call("maximum", Y, a)))
    placement = placed(module, npu, dsp)
    assert regions(placement) == {"npu_0": [["add", "nn.relu"]]}
    assert {note.kind for note in placement.notes.values()} == {"cycle"}


# --- tuples and constants at borders ---------------------------------------------------------------------------------


def test_a_split_on_the_accelerator() -> None:
    """Fields of a tuple belong to what makes it: the region gives tensors."""
    split = call("split", X, indices=(2,), axis=1)
    a, b = (TupleGetItem(split, i) for i in range(2))
    placement = placed(model(call("concatenate", b, a, axis=1)), owner("npu", halves()))
    function = function_of(placement, "npu_0")
    assert isinstance(function.body, Tuple)
    assert all(isinstance(field, TupleGetItem) for field in function.body.fields)


def test_only_fields_that_are_used_come_out() -> None:
    split = call("split", X, indices=(1, 2), axis=1)
    used = TupleGetItem(split, 1)
    placement = placed(model(call("maximum", used, used)), owner("npu", halves()))
    assert isinstance(function_of(placement, "npu_0").body, TupleGetItem)


def test_a_tuple_as_the_result_of_the_model() -> None:
    split = call("split", X, indices=(2,), axis=1)
    for npu in (owner("npu", halves()), owner("npu", relu())):
        placement = placed(model(split), npu)
        assert placement.module.main.type is model(split).main.type


def test_a_tuple_given_to_a_function() -> None:
    split = call("split", X, indices=(2,), axis=1)
    pair = Var("pair", split.type)
    join = Function([pair], call("concatenate", TupleGetItem(pair, 1), TupleGetItem(pair, 0), axis=1))
    module = model(call("nn.relu", Call(join, [split])))
    assert list(regions(placed(module, owner("npu", halves(), relu())))) == ["npu_0", "npu_1"]


def test_a_split_within_a_match() -> None:
    split = halves()
    gates = op("multiply")(op("nn.relu")(tuple_item(split, 0)), tuple_item(split, 1))
    made = call("split", X, indices=(2,), axis=1)
    a, b = (TupleGetItem(made, i) for i in range(2))
    npu = owner("npu", gates)
    assert regions(placed(model(call("multiply", call("nn.relu", a), b)), npu)) == {
        "npu_0": [["split", "nn.relu", "multiply"]]
    }
    escaping = Tuple([call("multiply", call("nn.relu", a), b), b])
    assert not placed(model(escaping), npu).regions


def test_a_tuple_and_what_is_computed_of_its_field() -> None:
    """Both are outputs; the field that is used inside may be used outside as well."""
    split = halves()
    npu = owner("npu", outputs(split, op("nn.relu")(tuple_item(split, 0))))
    made = call("split", X, indices=(2,), axis=1)
    a, b = (TupleGetItem(made, i) for i in range(2))
    module = model(Tuple([call("nn.relu", a), a, b]))
    placement = placed(module, npu)
    assert regions(placement) == {"npu_0": [["split", "nn.relu"]]}
    assert len(outputs_of(placement, "npu_0")) == 3


def test_constants_are_inside() -> None:
    """Those that a constant stands for, and those that a wildcard stands for."""
    two = const(np.full((2, 4), 2, np.int32))
    value = call("multiply", call("add", X, ONES), two)
    npu = owner("npu", op("add")(w(), w()), op("multiply")(w(), constant("int32")))
    placement = placed(model(value), npu)
    assert len(function_of(placement, "npu_0").params) == 1
    assert all(len(call.args) == 1 for call in placement.regions["npu_0"].calls)


def test_a_match_of_constants_alone() -> None:
    value = call("add", ONES, const(np.full((2, 4), 2, np.int32)))
    placement = placed(model(call("maximum", value, X)), BOTH)
    assert function_of(placement, "npu_0").params == ()


def test_one_input_at_two_places() -> None:
    placement = placed(model(call("add", X, X)), BOTH)
    assert len(function_of(placement, "npu_0").params) == 1


def test_equal_matches_share_their_function() -> None:
    value = call("add", call("add", call("add", X, ONES), ONES), ONES)
    placement = placed(model(value), BOTH)
    assert len({made.op for made in placement.regions["npu_0"].calls}) == 1


def test_layers_are_handed_on() -> None:
    a = call("add", X, Y)
    b = call("nn.relu", a)
    c = call("maximum", b, X)
    module = IRModule.from_functions({"main": Function((X, Y), c)}, Spans({a: ["A"], b: ["B"], c: ["C"]}))
    placement = placed(module, BOTH)
    spans = placement.module.spans
    main = placement.module.main.body
    assert isinstance(main, Call)
    assert spans[main] == ("C",)
    assert spans[main.args[0]] == ("A", "B")
    calls = placement.regions["npu_0"].calls
    assert [spans[made] for made in calls] == [("A",), ("B",)]
    assert isinstance(calls[0].op, Function)
    assert spans[calls[0].op.body] == ("A",)


# --- limits ----------------------------------------------------------------------------------------------------------


def chain(length: int) -> Expr:
    value: Expr = X
    for number in range(length):
        value = call("add", call("nn.relu", value), const(np.full((2, 4), number, np.int32)))
    return value


def sizes(placement: Placement) -> list[int]:
    return [len(region.claims) for region in placement.regions.values()]


def limited(**limits: Any) -> Owner:
    return Owner("npu", BOTH.patterns, Limits(**limits))


def test_a_limit_of_matches() -> None:
    assert sizes(placed(model(chain(5)), limited(matches=4))) == [4, 4, 2]
    assert sizes(placed(model(chain(5)), limited(matches=1))) == [1] * 10


def test_no_merging() -> None:
    assert sizes(placed(model(chain(3)), limited(merge=False))) == [1] * 6


def test_a_limit_of_bytes_counts_each_tensor_once() -> None:
    """A tensor has 32 bytes; n steps of relu and add touch 1 + 2 n values and n constants."""
    assert sizes(placed(model(chain(4)), limited(nbytes=32 * 7))) == [4, 4]
    assert sizes(placed(model(chain(4)), limited(nbytes=32 * 13))) == [8]
    assert sizes(placed(model(chain(4)), limited(nbytes=32 * 13 - 1))) == [7, 1]
    shared = call("add", call("nn.relu", X), call("add", X, X))
    assert sizes(placed(model(shared), limited(nbytes=32 * 4))) == [3]


def test_a_limit_of_outputs() -> None:
    a = call("nn.relu", X)
    b, c = call("add", a, X), call("add", a, Y)
    module = model(call("maximum", b, c))
    assert sizes(placed(module, limited(outputs=1))) == [1, 1, 1]
    assert sizes(placed(module, limited(outputs=2))) == [3]


def test_outputs_that_a_further_match_uses_up() -> None:
    """a with b or c alone would have two outputs; with all that use it, it has one."""
    a = call("add", X, ONES)
    b, c = call("nn.relu", a), call("add", a, Y)
    assert sizes(placed(model(call("add", b, c)), limited(outputs=1))) == [4]


def states(count: int) -> IRModule:
    """A chain that adds a state in each step and returns the sums, as streaming models do."""
    params = [Var(f"s{number}", FULL) for number in range(count)]
    sums = [X]
    for param in params:
        sums.append(call("add", sums[-1], param))
    return model(Tuple(sums[1:]), X, *params)


def test_a_limit_of_operands() -> None:
    """n steps have n + 1 inputs and n outputs."""
    for limits, parts in (
        ({"inputs": 3}, [2, 2, 2]),
        ({"inputs": 7}, [6]),
        ({"operands": 5}, [2, 2, 2]),
        ({"operands": 8}, [3, 3]),
        ({"operands": 12}, [5, 1]),
        ({"inputs": 4, "operands": 5}, [2, 2, 2]),
        ({"operands": 13}, [6]),
    ):
        assert sizes(placed(states(6), limited(**limits))) == parts


def test_constants_are_no_operands() -> None:
    """In each step 1 input and 1 output; in all of them together as well."""
    assert sizes(placed(model(chain(4)), limited(inputs=1, operands=2))) == [8]


def test_inputs_that_a_further_match_shares() -> None:
    """The last addition and the first one have three inputs; with the relu, whose input is one of these, two."""
    for sums in (
        call("add", call("add", X, Y), call("nn.relu", X)),
        call("add", call("nn.relu", X), call("add", X, Y)),
    ):
        assert sizes(placed(model(sums), limited(inputs=2))) == [3]
        assert sizes(placed(model(sums), limited(operands=3))) == [3]


@pytest.mark.parametrize(
    ("limits", "value"),
    [(Limits(nbytes=63), 64), (Limits(outputs=1), 2), (Limits(operands=2), 3)],
)
def test_a_match_that_is_too_large_alone(limits: Limits, value: int) -> None:
    split = call("split", X, indices=(2,), axis=1)
    module = model(call("concatenate", TupleGetItem(split, 1), TupleGetItem(split, 0), axis=1))
    placement = placed(module, owner("npu", halves(), limits=limits))
    assert not placement.regions
    assert {(note.kind, note.value) for note in placement.notes.values()} == {("limit", value)}


def test_a_smaller_match_may_be_small_enough() -> None:
    added = op("add")(op("add")(w(), w()), w())
    npu = owner("npu", added, op("add")(w(), w()), limits=Limits(nbytes=96, merge=False))
    z = Var("z", FULL)
    module = model(call("add", call("add", X, Y), z), X, Y, z)
    assert regions(placed(module, npu)) == {"npu_0": [["add"]], "npu_1": [["add"]]}


@pytest.mark.parametrize("field", ["matches", "outputs", "nbytes", "inputs", "operands"])
@pytest.mark.parametrize("value", [0, -1, 1.5, True, "8"])
def test_limits_that_are_none(field: str, value: Any) -> None:
    with pytest.raises(PluginError, match=f"limit '{field}' is "):
        Limits(**{field: value})


def test_merge_is_a_bool() -> None:
    with pytest.raises(PluginError, match="limit 'merge' is 'no'"):
        Limits(merge="no")  # type: ignore[arg-type]  # text is not a bool


# --- owners ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("label", ["", "n pu", "a-b", "1st", "ä", 3])
def test_a_label_is_an_identifier(label: str) -> None:
    with pytest.raises(UsageError, match="cannot label a target"):
        Owner(label, PatternTable())


def test_two_owners_of_one_label() -> None:
    with pytest.raises(UsageError, match="two targets have the label 'npu'"):
        place(model(X), [BOTH, owner("npu")])


def test_a_predicate_that_raises_stops_the_build() -> None:
    bad = Pattern("npu.bad", relu(), [Clause("bad", lambda match: 1 / 0, "it is bad")])
    with pytest.raises(PluginError, match="ZeroDivisionError") as caught:
        place(model(call("nn.relu", X)), [owner("npu", bad)])
    assert "npu.bad" in str(caught.value)
