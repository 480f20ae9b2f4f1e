"""Which calls become one kernel of a host that has no patterns of its own."""

from __future__ import annotations

import numpy as np
import pytest
from tests._support.plugins import module_of
from tests._support.relay_strategies import random_array

from uma.lowering.fuse import fuse, is_view
from uma.partition import Owner
from uma.relay.expr import Call, Expr, Function, Tuple, TupleGetItem, Var, call, const
from uma.relay.op import FixedPoint
from uma.relay.pattern import PatternTable
from uma.relay.types import TensorType
from uma.relay.verify import verify
from uma.relay.visit import post_order
from uma.targets import Limits

MOST_CALLS = Limits().calls


def var(shape: tuple[int, ...], dtype: str = "float32", name: str = "x") -> Var:
    return Var(name, TensorType(shape, dtype))


X = var((1, 4, 4, 2))
I = var((1, 4, 4, 2), "int8", "i")  # noqa: E741 - integers, as X is floats
W = const(random_array((1, 1, 2, 2), "float32", 1))
BIAS = const([1.0, 2.0])
CONV = call("nn.conv2d", X, W)


def kernels(*results: Expr, most: int = MOST_CALLS) -> list[str]:
    """The ops of every kernel, in the order in which they run; views in brackets."""
    module = module_of(results[0] if len(results) == 1 else Tuple(results))
    module = fuse(module, [Owner("host", PatternTable(), Limits(calls=most))])
    verify(module)
    found: list[str] = []
    for expr in post_order(module.main.body):
        if isinstance(expr, Call) and isinstance(expr.op, Function):
            assert dict(expr.op.attrs) == {"Primitive": "1"}
            ops = [e.op_name for e in post_order(expr.op.body) if isinstance(e, Call)]
            found.append(" ".join(name.rpartition(".")[2] for name in ops if name))
        elif isinstance(expr, Call):
            assert is_view(expr)
            found.append(f"[{expr.op_name}]")
    return found


def relu(x: Expr) -> Call:
    return call("nn.relu", x)


def tanh(x: Expr) -> Call:
    return call("tanh", x)


def test_elementwise_calls_follow_a_convolution() -> None:
    assert kernels(relu(call("add", CONV, BIAS))) == ["conv2d add relu"]


@pytest.mark.parametrize(
    "sums",
    [
        call("qnn.conv2d", I, const(np.ones((1, 1, 2, 2), np.int8)), input_zero_point=3),
        call("qnn.conv2d", I, const(np.ones((3, 3, 1, 2), np.int8)), groups=2, padding=(1, 1, 1, 1)),
        call("qnn.conv1d", var((1, 4, 3), "int8"), const(np.ones((2, 3, 2), np.int8))),
        call("qnn.dense", var((1, 3), "int8"), const(np.ones((2, 3), np.int8))),
        call("qnn.matmul", var((4, 3), "int8"), var((3, 2), "int8", "y")),
    ],
    ids=lambda sums: str(sums.op_name),
)
def test_bias_requantisation_and_activation_follow_a_product(sums: Call) -> None:
    product = str(sums.op_name).rpartition(".")[2]
    scale = FixedPoint((2**30, 2**30), (1, 0), "double")
    narrow = call("qnn.requantize", call("add", sums, const([1, 2])), scale=scale, output_zero_point=-5, dtype="int8")
    assert kernels(narrow) == [f"{product} add requantize"]
    assert kernels(call("clip", narrow, a_min=-5, a_max=100)) == [f"{product} add requantize clip"]
    assert kernels(relu(narrow)) == [f"{product} add requantize relu"]
    assert kernels(call("cast", relu(narrow), dtype="int16")) == [f"{product} add requantize relu cast"]


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


def test_a_softmax_takes_in_what_stands_around_it() -> None:
    real = call("qnn.dequantize", I, scale=0.5)
    scores = call("nn.softmax", real)
    assert kernels(relu(call("nn.softmax", relu(X)))) == ["relu softmax relu"]
    assert kernels(call("qnn.quantize", scores, scale=0.5, rounding="even", dtype="int8")) == [
        "dequantize softmax quantize"
    ]


def test_a_movement_takes_in_what_stands_around_it() -> None:
    assert kernels(tanh(call("transpose", relu(X), axes=(0, 2, 1, 3)))) == ["relu transpose tanh"]
    assert kernels(relu(call("nn.pad", X, pad_width=(0, 1, 1, 0, 0, 1, 1, 0)))) == ["pad relu"]
    planes = call("layout_transform", var((1, 2, 4, 4)), src_layout="NCHW", dst_layout="NHWC")
    narrow = call("qnn.quantize", planes, scale=0.5, rounding="even", dtype="int8")
    assert kernels(call("qnn.conv2d", narrow, const(np.ones((1, 1, 2, 2), np.int8)))) == [
        "layout_transform quantize",
        "conv2d",
    ]


def test_what_has_several_results_or_takes_any_number_stands_alone() -> None:
    assert kernels(relu(call("concatenate", relu(X), X, axis=1))) == ["relu", "concatenate", "relu"]


def test_views_stay_where_they_are() -> None:
    flat = call("reshape", relu(X), newshape=(32,))
    assert kernels(call("tanh", flat)) == ["relu", "[reshape]", "tanh"]
    assert kernels(call("squeeze", X, axis=(0,))) == ["[squeeze]"]


def test_a_pool_and_a_sum_take_in_what_comes_before_them_but_products_do_not() -> None:
    assert kernels(call("nn.global_avg_pool", relu(X))) == ["relu global_avg_pool"]
    assert kernels(call("sum", relu(X), axis=(1,))) == ["relu sum"]
    assert kernels(call("nn.conv2d", relu(X), W)) == ["relu", "conv2d"]
    assert kernels(call("nn.global_avg_pool", CONV)) == ["conv2d", "global_avg_pool"]
    assert kernels(call("nn.global_avg_pool", relu(CONV))) == ["conv2d relu", "global_avg_pool"]
    assert kernels(call("nn.global_avg_pool", relu(X)), relu(X)) == ["relu", "global_avg_pool"]


def test_what_widens_waits_for_its_user() -> None:
    real = call("qnn.dequantize", I, scale=0.5)
    assert kernels(call("nn.conv2d", real, W)) == ["dequantize", "conv2d"]
    sums = call("qnn.conv2d", I, const(np.ones((1, 1, 2, 2), np.int8)))
    narrow = call("qnn.requantize", sums, scale=FixedPoint((2**30,), (1,), "up"), dtype="int8")
    again = call("qnn.dequantize", narrow, scale=0.5)
    for later in (
        call("nn.softmax", again),
        call("nn.global_avg_pool", again),
        call("transpose", again, axes=(0, 2, 1, 3)),
    ):
        name = (later.op_name or "").rpartition(".")[2]
        assert kernels(later) == ["conv2d requantize", f"dequantize {name}"]
    assert kernels(call("reshape", again, newshape=(32,))) == ["conv2d requantize dequantize", "[reshape]"]
    assert kernels(tanh(again), narrow) == ["conv2d requantize", "dequantize tanh"]


def test_between_two_convolutions_the_narrowest_value_is_kept() -> None:
    ones = const(np.ones((1, 1, 2, 2), np.int8))

    def narrow(x: Expr) -> Call:
        scale = FixedPoint((2**30,), (1,), "up")
        return call(
            "qnn.requantize", call("add", call("qnn.conv2d", x, ones), const([1, 2])), scale=scale, dtype="int8"
        )

    # Both branches end in a convolution. One takes the addition; the other keeps all that makes its values narrow.
    a, b = (call("qnn.dequantize", narrow(x), scale=0.5) for x in (I, var((1, 4, 4, 2), "int8", "j")))
    assert kernels(relu(call("add", a, b))) == [
        "conv2d add requantize",
        "conv2d add requantize dequantize dequantize add relu",
    ]
    pooled = call("nn.avg_pool2d", call("qnn.dequantize", I, scale=0.5), pool_size=(1, 1))
    assert sorted(kernels(call("add", pooled, a))) == ["conv2d add requantize", "dequantize avg_pool2d dequantize add"]


def test_a_value_used_twice_within_a_kernel_stays_in_it() -> None:
    biased = call("add", CONV, BIAS)
    assert kernels(call("multiply", biased, call("sigmoid", biased))) == ["conv2d add sigmoid multiply"]
    both = call("add", relu(X), tanh(X))
    assert kernels(call("maximum", relu(both), tanh(both))) == ["relu tanh add relu tanh maximum"]
    assert kernels(call("maximum", relu(both), tanh(both)), both) == ["relu tanh add", "relu tanh maximum"]


def test_a_kernel_has_only_so_many_calls() -> None:
    x: Expr = X
    for i in range(3 * MOST_CALLS):
        x = call(("tanh", "nn.relu")[i % 2], x)
    sizes = [len(names.split()) for names in kernels(x)]
    assert sizes == [MOST_CALLS] * 3
    x = CONV
    for i in range(2 * MOST_CALLS):
        x = call(("tanh", "nn.relu")[i % 2], x)
    assert [len(names.split()) for names in kernels(x)] == [MOST_CALLS, 1, MOST_CALLS]
    layer = [call("multiply", var((2,), name=f"v{i}"), const(2.0)) for i in range(80)]
    values: list[Expr] = list(layer)
    while len(values) > 1:
        values = [call("add", a, b) for a, b in zip(values[::2], values[1::2], strict=False)]
    assert max(len(names.split()) for names in kernels(values[0])) <= MOST_CALLS


def test_a_host_limits_the_calls_of_a_kernel() -> None:
    chain = relu(tanh(relu(CONV)))
    assert kernels(chain, most=1) == ["conv2d", "relu", "tanh", "relu"]
    assert kernels(chain, most=2) == ["conv2d relu", "tanh relu"]
    assert kernels(chain, most=3) == ["conv2d relu tanh", "relu"]
    pool = tanh(call("nn.max_pool2d", tanh(relu(X)), pool_size=(1, 1)))
    assert kernels(pool, most=1) == ["relu", "tanh", "max_pool2d", "tanh"]
    assert kernels(pool, most=3) == ["relu", "tanh max_pool2d", "tanh"]
    assert kernels(pool, most=4) == ["relu tanh max_pool2d tanh"]


def test_an_op_of_several_results_has_no_epilogue() -> None:
    halves = call("split", relu(X), indices=(2,), axis=1)
    assert kernels(relu(TupleGetItem(halves, 0))) == ["relu", "split", "relu"]
