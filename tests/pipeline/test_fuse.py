"""Which calls become one kernel."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st
from tests._support.relay_strategies import assert_same, modules, random_array, values_of

from uma.pipeline.fuse import MAX_GROUP, fuse, is_view
from uma.relay.evaluate import evaluate
from uma.relay.expr import Call, Constant, Expr, Function, Tuple, TupleGetItem, Var, call, const
from uma.relay.module import IRModule, Spans
from uma.relay.op import FixedPoint, Op
from uma.relay.transform import canonicalise
from uma.relay.types import TensorType
from uma.relay.verify import verify
from uma.relay.visit import free_vars, post_order


def var(shape: tuple[int, ...], dtype: str = "float32", name: str = "x") -> Var:
    return Var(name, TensorType(shape, dtype))


X = var((1, 4, 4, 2))
I = var((1, 4, 4, 2), "int8", "i")  # noqa: E741
W = const(random_array((1, 1, 2, 2), "float32", 1))
BIAS = const([1.0, 2.0])
CONV = call("nn.conv2d", X, W)


def fused(*results: Expr) -> Function:
    body = results[0] if len(results) == 1 else Tuple(results)
    module = fuse(IRModule.of({"main": Function(free_vars(body), body)}))
    verify(module)
    return module.main


def kernels(*results: Expr) -> list[str]:
    """The ops of every kernel, in the order in which they run; views in brackets."""
    found = []
    for expr in post_order(fused(*results).body):
        if isinstance(expr, Call) and isinstance(expr.op, Function):
            ops = [e.op_name for e in post_order(expr.op.body) if isinstance(e, Call)]
            found.append(" ".join(name.rpartition(".")[2] for name in ops if name))
        elif isinstance(expr, Call):
            assert is_view(expr)
            found.append(f"[{expr.op_name}]")
    return found


def relu(x: Expr) -> Call:
    return call("nn.relu", x)


# --- what joins ------------------------------------------------------------------------------------------------------


def test_elementwise_calls_follow_a_convolution() -> None:
    assert kernels(relu(call("add", CONV, BIAS))) == ["conv2d add relu"]


def test_a_chain_of_elementwise_calls_is_one_kernel() -> None:
    assert kernels(call("tanh", relu(call("sigmoid", X)))) == ["sigmoid relu tanh"]


def test_a_tree_of_elementwise_calls_is_one_kernel() -> None:
    assert kernels(call("add", call("tanh", X), relu(var((1, 4, 4, 2), name="y")))) == ["tanh relu add"]


def test_a_value_used_twice_by_one_call_is_its_own() -> None:
    tanh = call("tanh", X)
    assert kernels(call("multiply", tanh, tanh)) == ["tanh multiply"]


def test_what_others_use_ends_a_kernel() -> None:
    tanh = call("tanh", X)
    assert kernels(relu(tanh), call("sigmoid", tanh)) == ["tanh", "relu", "sigmoid"]
    assert kernels(tanh, relu(tanh)) == ["tanh", "relu"]


def test_a_result_ends_a_kernel() -> None:
    tanh = call("tanh", X)
    assert kernels(relu(tanh), tanh) == ["tanh", "relu"]


def test_a_residual_addition_joins_a_convolution() -> None:
    first = relu(call("add", CONV, BIAS))
    second = call("add", call("nn.conv2d", first, W), BIAS)
    assert kernels(relu(call("add", second, first))) == ["conv2d add relu", "conv2d add add relu"]
    assert kernels(relu(call("add", first, second))) == ["conv2d add relu", "conv2d add add relu"]


def test_of_two_convolutions_one_takes_the_addition() -> None:
    other = call("nn.conv2d", relu(X), W)
    assert kernels(call("add", CONV, other)) == ["relu", "conv2d", "conv2d add"]


def test_what_broadcasts_to_more_does_not_join() -> None:
    small = call("tanh", var((2,), name="s"))
    assert kernels(call("add", X, small)) == ["tanh", "add"]
    assert kernels(call("add", call("nn.global_avg_pool", X), X)) == ["global_avg_pool", "add"]


def test_movements_and_softmax_stand_alone() -> None:
    moved = call("transpose", relu(X), axes=(0, 2, 1, 3))
    assert kernels(call("tanh", moved)) == ["relu", "transpose", "tanh"]
    assert kernels(relu(call("nn.softmax", relu(X)))) == ["relu", "softmax", "relu"]


def test_views_stay_where_they_are() -> None:
    flat = call("reshape", relu(X), newshape=(32,))
    assert kernels(call("tanh", flat)) == ["relu", "[reshape]", "tanh"]
    assert kernels(call("squeeze", X, axis=(0,))) == ["[squeeze]"]


def test_a_pool_and_a_sum_take_in_what_comes_before_them_but_products_do_not() -> None:
    assert kernels(call("nn.global_avg_pool", relu(X))) == ["relu global_avg_pool"]
    assert kernels(call("sum", relu(X), axis=(1,))) == ["relu sum"]
    assert kernels(call("nn.conv2d", relu(X), W)) == ["relu", "conv2d"]
    assert kernels(call("nn.global_avg_pool", CONV)) == ["conv2d", "global_avg_pool"]


def test_what_widens_waits_for_its_user() -> None:
    real = call("qnn.dequantize", I, scale=0.5)
    assert kernels(call("nn.conv2d", real, W)) == ["dequantize", "conv2d"]
    sums = call("qnn.conv2d", I, const(np.ones((1, 1, 2, 2), np.int8)))
    narrow = call("qnn.requantize", sums, scale=FixedPoint((2**30,), (1,), "up"), dtype="int8")
    assert kernels(call("nn.softmax", call("qnn.dequantize", narrow, scale=0.5))) == [
        "conv2d requantize dequantize",
        "softmax",
    ]
    assert kernels(call("tanh", call("qnn.dequantize", narrow, scale=0.5)), narrow) == [
        "conv2d requantize",
        "dequantize tanh",
    ]


def test_a_kernel_has_only_so_many_calls() -> None:
    x: Expr = X
    for i in range(3 * MAX_GROUP):
        x = call(("tanh", "nn.relu")[i % 2], x)
    sizes = [len(names.split()) for names in kernels(x)]
    assert sizes == [MAX_GROUP] * 3
    layer = [call("multiply", var((2,), name=f"v{i}"), const(2.0)) for i in range(80)]
    values: list[Expr] = list(layer)
    while len(values) > 1:
        values = [call("add", a, b) for a, b in zip(values[::2], values[1::2], strict=False)]
    assert max(len(names.split()) for names in kernels(values[0])) <= MAX_GROUP


# --- what a kernel is given ------------------------------------------------------------------------------------------


def only_kernel(main: Function) -> tuple[Function, Call]:
    (made,) = {e for e in post_order(main.body) if isinstance(e, Call) and isinstance(e.op, Function)}
    assert isinstance(made.op, Function)
    return made.op, made


def test_large_constants_are_parameters_and_small_ones_stay() -> None:
    body = call("add", call("multiply", X, const([[2.0]])), BIAS)
    kernel, made = only_kernel(fused(body))
    assert made.args == (X, BIAS)
    assert [p.name for p in kernel.params] == ["p0", "p1"]
    inside = [e for e in post_order(kernel.body) if isinstance(e, Constant)]
    assert inside == [const([[2.0]])]
    assert kernel.attr("Primitive") == "1"


def test_a_value_is_given_once() -> None:
    kernel, made = only_kernel(fused(call("add", call("add", X, X), X)))
    assert made.args == (X,)
    assert len(kernel.params) == 1


def test_kernels_that_differ_by_their_weights_only_are_one() -> None:
    other = const(random_array((1, 1, 2, 2), "float32", 2))
    body = relu(call("nn.conv2d", relu(call("nn.conv2d", X, W)), other))
    functions = {e.op for e in post_order(fused(body).body) if isinstance(e, Call)}
    assert len(functions) == 1


def test_a_kernel_may_have_several_results() -> None:
    parts = call("split", X, indices=(1,), axis=1)
    body = call("concatenate", TupleGetItem(parts, 1), TupleGetItem(parts, 0), axis=1)
    assert kernels(body) == ["split", "concatenate"]


def test_what_is_fused_already_stays_as_it_is() -> None:
    module = fuse(IRModule.of({"main": Function([X], relu(call("add", CONV, BIAS)))}))
    assert fuse(module) == module


def test_attributes_of_main_are_kept() -> None:
    main = Function([X], relu(X), {"global_symbol": "m"})
    assert fuse(IRModule.of({"main": main})).main.attr("global_symbol") == "m"


# --- layers ----------------------------------------------------------------------------------------------------------


def test_a_kernel_has_the_layers_of_its_calls() -> None:
    bias = call("add", CONV, BIAS)
    body = relu(bias)
    view = call("reshape", body, newshape=(32,))
    spans = Spans({CONV: ("conv",), bias: ("conv", "bias"), body: ("relu",), view: ("flat",)})
    module = fuse(IRModule.of({"main": Function([X], view)}, spans))
    kernel, made = only_kernel(module.main)
    assert module.spans[made] == ("conv", "bias", "relu")
    assert module.spans[kernel.body] == ("relu",)
    assert module.spans[module.main.body] == ("flat",)
    assert body not in module.spans, "what is gone has no layers"


# --- every graph -----------------------------------------------------------------------------------------------------


@given(modules(), st.integers(0, 2**16))
def test_random_graphs_compute_the_same_in_kernels_that_form_no_cycle(module: IRModule, seed: int) -> None:
    inputs, expected, largest = values_of(module, seed)
    assume(math.isfinite(largest))
    for form in (module, canonicalise(module)):
        made = fuse(form)
        verify(made)  # a cycle could not be built, and what is used from within a kernel would be a free variable
        assert_same(evaluate(made, inputs), expected, largest)
        for expr in post_order(made.main.body):
            assert not (isinstance(expr, Call) and isinstance(expr.op, Op)) or is_view(expr)
        assert fuse(made) == made
        names = {name for _, layers in form.spans for name in layers}
        assert names == {name for _, layers in made.spans for name in layers}
