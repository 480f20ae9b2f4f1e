"""A region as starts: what becomes of its maps, what the rest of the model proves of them, what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from uma.hookspecs import Extern, Refuse
from uma.relay import (
    Call,
    Expr,
    FloatScale,
    Function,
    IRModule,
    TensorType,
    Tuple,
    TupleGetItem,
    Var,
    call,
    const,
    value_range,
)
from uma_ultratrail.device import ROUTINE
from uma_ultratrail.lower import lower, planned
from uma_ultratrail.machine import Machine
from uma_ultratrail.ranges import given_to

MACHINE = Machine()


def var(name: str, *shape: int) -> Var:
    return Var(name, TensorType(shape, "int8"))


def conv(data: Expr, value: int = 1, shift: int = 5) -> Expr:
    weights = const(np.full((1, data.shape[-1], 8), value, np.int8))
    return call("qnn.requantize", call("qnn.conv1d", data, weights), scale=FloatScale((2.0**-shift,)), dtype="int8")


def composite(body: Expr, *params: Var, name: str = "ultra_trail.conv1d") -> Function:
    return Function(params, body, {"Composite": name})


def layer(data: Expr, value: int = 1) -> Call:
    inside = var("p", *data.shape)
    return Call(composite(conv(inside, value), inside), [data])


def module_of(region: Function, given: Var, computed: Expr | None = None) -> IRModule:
    """A model that calls a region with its input, or with what it computes of it."""
    name = IRModule.of({"npu_0": region}).global_var("npu_0")
    main = Function([given], Call(name, [given if computed is None else computed]))
    return IRModule.of({"main": main, "npu_0": region})


def region_of(body: Expr, *params: Var) -> Function:
    return Function(params, body, {"Compiler": "ultra_trail", "global_symbol": "npu_0"})


X = var("x", 1, 9, 8)


def externs(module: IRModule) -> list[Extern]:
    return [function for function in module.functions.values() if isinstance(function, Extern)]


def test_a_region_is_one_extern_with_its_layers() -> None:
    region = region_of(layer(layer(X)), X)
    module, entry = lower(region, MACHINE, module_of(region, var("given", 1, 9, 8)))
    (extern,) = externs(module)
    assert extern.routine == ROUTINE and [param.role for param in extern.params] == ["input", "output"]
    assert entry.type is IRModule.of({"f": region}).global_var("f").type
    assert len(extern.blobs[0].marks) == 2 and extern.may_alias == (("output0", "input0"),)


def test_several_starts_hand_on_maps_and_results() -> None:
    first = layer(X)
    second = layer(first)
    region = region_of(Tuple([first, layer(second), X]), X)
    module, entry = lower(region, Machine(layers=2), module_of(region, var("given", 1, 9, 8)))
    assert [len(extern.blobs[0].marks) for extern in externs(module)] == [1, 2]
    made = module.functions[entry]
    assert isinstance(made, Function) and isinstance(made.body, Tuple)
    assert made.body.fields[2] is region.params[0]


# --- What is not as the patterns promise ---


def test_single_ops_are_refused() -> None:
    body = call("nn.relu", X)
    region = region_of(body, X)
    with pytest.raises(Refuse, match="takes layers as its patterns match them, and no single ops") as caught:
        lower(region, MACHINE, module_of(region, var("given", 1, 9, 8)))
    assert caught.value.at is body


def test_other_patterns_are_refused() -> None:
    inside = var("p", 1, 9, 8)
    match = Call(composite(conv(inside), inside, name="npu.conv"), [X])
    region = region_of(match, X)
    with pytest.raises(Refuse, match=r"'npu\.conv' is no pattern of UltraTrail") as caught:
        lower(region, MACHINE, module_of(region, var("given", 1, 9, 8)))
    assert caught.value.at is match


@pytest.mark.parametrize(
    ("shift", "relu", "reason"),
    [(7, False, "clause divisor: sums are divided by 32"), (5, True, "the pattern takes clip or nn.relu or")],
)
def test_what_no_pattern_takes_is_refused_though_the_model_asks_for_it(shift: int, relu: bool, reason: str) -> None:
    inside = var("p", 1, 9, 8)
    match = Call(composite(call("nn.relu", inside) if relu else conv(inside, shift=shift), inside), [X])
    region = region_of(match, X)
    with pytest.raises(Refuse, match=reason) as caught:
        lower(region, MACHINE, module_of(region, var("given", 1, 9, 8)))
    assert caught.value.at is match


# --- What is known of the inputs ---


def limited(data: Expr, bits: int) -> Expr:
    half = 1 << (bits - 1)
    return call("clip", data, a_min=float(-half), a_max=float(half - 1))


def test_what_the_model_proves_of_an_input_counts() -> None:
    """Features of 6 bits in int8: a clip outside of the region says so."""
    machine = Machine(feature_bits=6)
    region = region_of(layer_of_six(X), X)
    given = var("given", 1, 9, 8)
    with pytest.raises(Refuse, match="clause feature_bits"):
        lower(region, machine, module_of(region, given))
    assert externs(lower(region, machine, module_of(region, given, limited(given, 6)))[0])


def layer_of_six(data: Expr) -> Call:
    inside = var("p", *data.shape)
    return Call(composite(limited(conv(inside), 6), inside), [data])


def test_bounds_go_through_functions_and_tuples() -> None:
    """Through another region with two results, to one that is called twice."""
    a, b, given = var("a", 1, 9, 8), var("b", 1, 9, 8), var("given", 1, 9, 8)
    two = region_of(Tuple([limited(a, 4), call("nn.relu", a)]), a)
    inner = region_of(layer(b), b)
    names = IRModule.of({"two": two, "inner": inner})
    first = Call(names.global_var("two"), [given])
    calls = [Call(names.global_var("inner"), [TupleGetItem(first, n)]) for n in range(2)]
    main = Function([given], Tuple(calls))
    module = IRModule.of({"main": main, "two": two, "inner": inner})
    assert given_to(inner, module) == {b: value_range(call("clip", b, a_min=-8.0))}
    assert given_to(two, module) == {a: value_range(given)}


def test_what_is_planned_is_not_proven_again() -> None:
    region = region_of(layer_of_six(X), X)
    (start,) = planned(region, Machine(feature_bits=6))
    assert [node.name for node in start.nodes] == ["ultra_trail.conv1d"]
