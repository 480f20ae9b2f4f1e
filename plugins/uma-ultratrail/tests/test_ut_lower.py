"""A region as starts: what becomes of its maps, what the rest of the model proves of them, what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from tests._support.plugins import members_of, toy

from uma.hookspecs import Extern, MatchedRegion, Refuse, RegionMatch
from uma.lowering.region_matches import Matches
from uma.relay import (
    Call,
    Expr,
    FloatScale,
    Function,
    GlobalVar,
    IRModule,
    TensorType,
    Tuple,
    TupleGetItem,
    Var,
    call,
    const,
)
from uma_ultratrail.device import ROUTINE
from uma_ultratrail.lower import lower as lower_region
from uma_ultratrail.lower import planned
from uma_ultratrail.machine import Machine
from uma_ultratrail.supported import make_patterns

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
    name = IRModule.from_functions({"npu_0": region}).global_var("npu_0")
    main = Function([given], Call(name, [given if computed is None else computed]))
    return IRModule.from_functions({"main": main, "npu_0": region})


def region_of(body: Expr, *params: Var) -> Function:
    return Function(params, body, {"Compiler": "ultra_trail", "global_symbol": "npu_0"})


X = var("x", 1, 9, 8)


def matched(machine: Machine, module: IRModule, name: str = "npu_0") -> MatchedRegion:
    """A region of a model as the hooks of the plugin see it."""
    members = members_of(toy("ultra_trail", patterns=lambda: make_patterns(machine)))
    return Matches(members).region(module, module.global_var(name))


def lower(region: Function, machine: Machine, module: IRModule) -> tuple[IRModule, GlobalVar]:
    assert module["npu_0"] is region
    return lower_region(matched(machine, module), machine, module.spans)


def externs(module: IRModule) -> list[Extern]:
    return [function for function in module.functions.values() if isinstance(function, Extern)]


def test_a_region_is_one_extern_with_its_layers() -> None:
    region = region_of(layer(layer(X)), X)
    module, entry = lower(region, MACHINE, module_of(region, var("given", 1, 9, 8)))
    (extern,) = externs(module)
    assert extern.routine == ROUTINE and [param.role for param in extern.params] == ["input", "output"]
    assert entry.type is IRModule.from_functions({"f": region}).global_var("f").type
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
    with pytest.raises(Refuse, match=r"nn\.relu stands for itself in a region of 'ultra_trail'") as caught:
        lower(region, MACHINE, module_of(region, var("given", 1, 9, 8)))
    assert caught.value.at is body


def test_other_patterns_are_refused() -> None:
    inside = var("p", 1, 9, 8)
    match = Call(composite(conv(inside), inside, name="npu.conv"), [X])
    region = region_of(match, X)
    with pytest.raises(Refuse, match=r"'npu\.conv' is not a pattern of 'ultra_trail'") as caught:
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
    """Through another region with two results, to one that is called once; not to one that is called twice."""
    a, b, given = var("a", 1, 9, 8), var("b", 1, 9, 8), var("given", 1, 9, 8)
    two = region_of(Tuple([limited(a, 6), call("nn.relu", a)]), a)
    inner = region_of(layer_of_six(b), b)
    names = IRModule.from_functions({"two": two, "inner": inner})
    first = Call(names.global_var("two"), [given])
    once, twice = Call(names.global_var("inner"), [TupleGetItem(first, 0)]), Call(names.global_var("inner"), [given])
    for results, proven in (([once], True), ([once, twice], False), ([twice], False)):
        module = IRModule.from_functions({"main": Function([given], Tuple(results)), "two": two, "inner": inner})
        region = matched(Machine(feature_bits=6), module, "inner")
        [one] = region.calls
        assert isinstance(one, RegionMatch) == proven
        if isinstance(one, RegionMatch):
            assert one.model_match["data"] is limited(given, 6)
            (start,) = planned(region, Machine(feature_bits=6))
            assert [node.name for node in start.nodes] == ["ultra_trail.conv1d"]


def test_a_map_that_is_reshaped_on_its_way_is_refused() -> None:
    flat = call("reshape", layer(X), newshape=(1, 8, 9))
    second = layer(call("reshape", flat, newshape=(1, 9, 8)))
    region = region_of(second, X)
    with pytest.raises(Refuse, match="here one is reshaped") as caught:
        lower(region, MACHINE, module_of(region, var("given", 1, 9, 8)))
    assert caught.value.at is second.args[0]
