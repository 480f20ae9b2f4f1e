"""From kernels of the graph form to loops."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tests._support.plugins import fused
from tests._support.programs import interpret_program
from tests._support.relay_strategies import assert_same, modules, random_array, values_of

from uma.errors import InternalError, ModelError
from uma.lowering.graph_queries import unique_name
from uma.lowering.lower import lower, lower_tracing
from uma.lowering.sequence import sequence
from uma.program import Program
from uma.program import verify as verify_program
from uma.relay import op as declarations
from uma.relay.expr import Call, Expr, Function, GlobalVar, Tuple, TupleGetItem, Var, call, const
from uma.relay.module import IRModule, Spans
from uma.relay.op import Op, register_op
from uma.relay.types import FuncType, TensorType
from uma.relay.verify import verify
from uma.relay.visit import free_vars, post_order
from uma.tir import te
from uma.tir.form.nodes import PrimFunc

T = TensorType((2, 3), "float32")
X, Y = Var("x", T), Var("y", T)


def module_of(*results: Expr, spans: Spans | None = None) -> IRModule:
    body = results[0] if len(results) == 1 else Tuple(results)
    return IRModule.from_functions({"main": Function(free_vars(body), body)}, spans)


def kernels(module: IRModule) -> list[str]:
    return [var.name for var, function in module.functions.items() if isinstance(function, PrimFunc)]


def check(module: IRModule, seed: int = 0) -> Program:
    """The program of `module`, which computes what `module` does."""
    lowered = lower(module)
    verify(lowered)
    program = sequence(lowered, "m")
    verify_program(program)
    inputs, expected, largest = values_of(module, seed)
    got = interpret_program(program, {f"in_{name}": array for name, array in inputs.items()})
    assert_same([got[f"out_{i}"] for i in range(len(expected))], expected, largest)
    return program


# --- kernels ---------------------------------------------------------------------------------------------------------


def test_a_kernel_takes_inputs_and_then_constants() -> None:
    weight, bias = const(random_array((4, 3), "float32", 1)), const(random_array((4,), "float32", 2))
    body = call("add", call("nn.dense", X, weight), bias)
    module = lower(fused(module_of(body)))
    (made,) = [e for e in post_order(module.main.body) if isinstance(e, Call) and isinstance(e.op, GlobalVar)]
    assert made.op_name is None
    assert made.args[0] is X
    assert all(isinstance(arg, type(weight)) for arg in made.args[1:])
    assert kernels(module) == ["dense_add"]
    check(module_of(body))


def test_equal_kernels_are_one_whatever_their_weights() -> None:
    body: Expr = X
    for seed in range(3):
        body = call("nn.relu", call("nn.dense", body, const(random_array((3, 3), "float32", seed))))
    program = check(fused(module_of(body)))
    assert list(program.functions) == ["dense_relu"]
    assert [step.function for step in program.steps] == ["dense_relu"] * 3
    weights = [step.args[2] for step in program.steps]
    assert len(set(weights)) == 3


def test_kernels_that_differ_have_names_that_do() -> None:
    other = call("sum", call("nn.relu", X), axis=(0,))
    module = lower(module_of(call("nn.relu", other), call("nn.relu", Y)))
    assert kernels(module) == ["relu", "sum", "relu_1"]
    assert unique_name("a", set()) == "a"
    taken = {"a", "a_1"}
    assert unique_name("a", taken) == "a_2"
    assert "a_2" in taken


def test_names_of_functions_of_the_module_are_not_taken() -> None:
    x = te.placeholder((2, 3), "float32", "x")
    mine = te.prim_func([x], [te.compute((2, 3), lambda i, j: -x[i, j], "y")]).func
    main = Function([X], Call(GlobalVar("relu", FuncType((T,), T)), [call("nn.relu", X)]))
    module = IRModule.from_functions({"main": main, "relu": mine})
    lowered = lower(module)
    assert kernels(lowered) == ["relu", "relu_1"]
    assert lowered["relu"] is mine
    program = sequence(lowered, "m")
    array = random_array((2, 3), "float32", 4)
    np.testing.assert_array_equal(interpret_program(program, {"in_x": array})["out_0"], -np.maximum(array, 0))


def test_long_kernels_have_short_names() -> None:
    body: Expr = X
    for _ in range(10):
        body = call("tanh", body)
    assert kernels(lower(fused(module_of(body)))) == ["tanh_tanh_tanh_tanh_tanh_tanh"]


def test_an_op_alone_is_lowered_too() -> None:
    check(module_of(call("add", call("multiply", X, X), call("add", X, const(random_array((3,), "float32", 0))))))


def test_views_are_not_lowered() -> None:
    body = call("nn.relu", call("reshape", X, newshape=(6,)))
    module = lower(fused(module_of(body)))
    assert kernels(module) == ["relu"]
    assert call("reshape", X, newshape=(6,)) in post_order(module.main.body)


def test_a_long_chain_in_one_kernel_is_lowered_without_recursion() -> None:
    body: Expr = X
    for i in range(400):
        body = call(("sigmoid", "tanh")[i % 2], body)
    x = Function([X], body)
    check(IRModule.from_functions({"main": Function([X], Call(x, [X]))}))


# --- what a kernel written by hand may be ----------------------------------------------------------------------------


def by_hand(function: Function, *args: Expr) -> IRModule:
    return module_of(Call(function, args))


LARGE = const(random_array((2, 3), "float32", 9))
PARTS = call("split", X, indices=(1,), axis=1)


@pytest.mark.parametrize(
    "module",
    [
        by_hand(Function([X], X), X),
        by_hand(Function([X, Y], Y), X, Y),
        by_hand(Function([X], LARGE), X),
        by_hand(Function([X], call("add", X, LARGE)), X),
        by_hand(Function([X], const(2.0)), X),
        by_hand(Function([X], Tuple([X, X, call("tanh", X), call("tanh", X), LARGE])), X),
        by_hand(Function([X], Tuple([call("tanh", X)])), X),
        by_hand(Function([X], TupleGetItem(PARTS, 1)), X),
        by_hand(Function([X], PARTS), X),
        by_hand(Function([X], call("split", X, indices=(), axis=1)), X),
        by_hand(Function([X], call("tanh", call("reshape", X, newshape=(6,)))), X),
        by_hand(Function([X, Y], call("subtract", X, Y)), LARGE, X),
        by_hand(Function([X, Y], call("subtract", X, Y)), X, X),
        by_hand(Function([X], call("tanh", X)), LARGE),
    ],
    ids=lambda module: None,
)
def test_kernels_of_any_result(module: IRModule) -> None:
    check(module)


def test_a_kernel_without_ops_is_called_a_copy() -> None:
    assert kernels(lower(by_hand(Function([X], X), X))) == ["copy"]


# --- layers and traces -----------------------------------------------------------------------------------------------


def test_layers_are_handed_on() -> None:
    relu = call("nn.relu", X)
    parts = call("split", relu, indices=(), axis=1)
    view = call("reshape", TupleGetItem(parts, 0), newshape=(6,))
    spans = Spans({relu: ("a", "b"), parts: ("p",), view: ("c",)})
    module = lower(module_of(view, spans=spans))
    layers = {}
    for expr in post_order(module.main.body):
        if isinstance(expr, Call):
            layers[expr.op_name or expr.op.name] = module.spans[expr]  # type: ignore[union-attr]  # what is not an op here is a `GlobalVar`
    assert layers == {"relu": ("a", "b"), "split": ("p",), "reshape": ("c",)}


def test_what_each_expression_became() -> None:
    relu = call("nn.relu", X)
    view = call("reshape", relu, newshape=(6,))
    module, became = lower_tracing(module_of(view))
    assert became[X] is X
    assert isinstance(became[relu], Call)
    assert became[view] is module.main.body
    assert set(became) == {X, relu, view}


def test_attributes_of_main_are_kept() -> None:
    module = IRModule.from_functions({"main": Function([X], call("nn.relu", X), {"global_symbol": "m"})})
    assert lower(module).main.attr("global_symbol") == "m"


def test_what_is_lowered_stays_as_it_is() -> None:
    module = lower(fused(module_of(call("nn.relu", X))))
    assert lower(module) == module


@given(modules(), st.integers(0, 2**16))
def test_random_kernels_compute_the_same(module: IRModule, seed: int) -> None:
    assume(math.isfinite(values_of(module, seed)[2]))
    check(module, seed)


# --- what cannot be lowered ------------------------------------------------------------------------------------------


@pytest.fixture
def own_ops() -> Iterator[None]:
    def wrong(attrs: Any, out: TensorType, data: te.Tensor) -> te.Tensor:
        return te.compute((6,), lambda i: data[0, 0], "wrong")

    for name, compute in (("test.no_loops", None), ("test.wrong_loops", wrong)):
        op = Op(name, "Its data.", ("data",), lambda attrs, t: t, lambda attrs, x: x, compute, "elementwise")
        register_op(op)
    yield
    for name in ("test.no_loops", "test.wrong_loops"):
        del declarations._OPS[name]


def test_an_op_without_loops_is_the_models_fault(own_ops: None) -> None:
    body = call("test.no_loops", X)
    with pytest.raises(ModelError, match=re.escape("test.no_loops has no lowering for the host")) as caught:
        lower(fused(module_of(body, spans=Spans({body: ("odd", "layer")}))))
    assert caught.value.where == "odd, layer"


def test_loops_of_another_shape_are_our_fault(own_ops: None) -> None:
    expected = "compute of test.wrong_loops gives (6,) float32, not Tensor[(2, 3), float32]"
    with pytest.raises(InternalError, match=re.escape(expected)):
        lower(module_of(call("test.wrong_loops", X)))


def test_functions_of_the_graph_form_are_not_called_by_name() -> None:
    body = Call(GlobalVar("g", FuncType((T,), T)), [X])
    module = IRModule.from_functions(
        {"main": Function([X], body), "g": Function([X], call("nn.relu", X))}, Spans({body: ("layer",)})
    )
    with pytest.raises(ModelError, match="main calls 'g', a function of the graph form, by its name") as caught:
        lower(module)
    assert (caught.value.where, caught.value.hint) == ("layer", "write its body where it is called")


def test_kernels_do_not_call_functions_of_the_module() -> None:
    inner = GlobalVar("g", FuncType((T,), T))
    with pytest.raises(ModelError, match="a kernel consists of calls of ops"):
        lower(by_hand(Function([X], Call(inner, [X])), X))


def test_kernels_take_tensors() -> None:
    pair = Var("p", Tuple([X, X]).type)
    with pytest.raises(ModelError, match="a value must be a tensor, not Tuple"):
        lower(by_hand(Function([pair], TupleGetItem(pair, 0)), Tuple([X, Y])))
