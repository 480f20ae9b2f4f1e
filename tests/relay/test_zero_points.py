"""Zero points of products become biases: exactly, once, and never under padding."""

from __future__ import annotations

import numpy as np
import pytest
from tests._support.relay_strategies import random_array

from uma.relay.evaluate import evaluate
from uma.relay.expr import Call, Constant, Expr, Function, Var, call, const
from uma.relay.module import IRModule, Spans
from uma.relay.transform.zero_point_folding import zero_points_to_biases
from uma.relay.types import TensorType
from uma.relay.verify import verify
from uma.relay.visit import free_vars, post_order

X = Var("x", TensorType((1, 5, 4, 6), "int8"))
FLAT = Var("x", TensorType((3, 20), "int8"))
STACK = Var("x", TensorType((2, 3, 20), "int16"))


def weights(*shape: int, dtype: str = "int8") -> Constant:
    return const(random_array(shape, dtype, 3))


PRODUCTS: dict[str, Call] = {
    "dense": call("qnn.dense", FLAT, weights(7, 20), input_zero_point=-128),
    "dense of int16": call("qnn.dense", STACK, weights(7, 20), input_zero_point=-300, kernel_zero_point=9),
    "matmul": call("qnn.matmul", FLAT, weights(20, 7), input_zero_point=5, kernel_zero_point=-3),
    "matmul of a stack": call("qnn.matmul", STACK, weights(2, 20, 5), input_zero_point=77),
    "convolution": call("qnn.conv2d", X, weights(2, 3, 6, 4), input_zero_point=-128, dilation=(2, 1)),
    "convolution in groups": call("qnn.conv2d", X, weights(2, 2, 3, 4), groups=2, input_zero_point=5, strides=(2, 2)),
    "depthwise": call("qnn.conv2d", X, weights(3, 3, 1, 12), groups=6, input_zero_point=7, kernel_zero_point=3),
}


def of(body: Expr) -> IRModule:
    calls = [e for e in post_order(body) if isinstance(e, Call)]
    return IRModule.from_functions(
        {"main": Function(free_vars(body), body)}, Spans({e: [f"l{i}"] for i, e in enumerate(calls)})
    )


def rewritten(body: Expr) -> list[Call]:
    """The calls of what ``body`` becomes, which computes the same, and becomes nothing else again."""
    module = of(body)
    made = zero_points_to_biases(module)
    verify(made)
    assert zero_points_to_biases(made).main is made.main
    for seed in range(3):
        inputs = {p.name: random_array(p.shape, p.dtype, seed) for p in module.main.params}
        for got, wanted in zip(evaluate(made, inputs), evaluate(module, inputs), strict=True):
            np.testing.assert_array_equal(got, wanted)
    return [e for e in post_order(made.main.body) if isinstance(e, Call)]


@pytest.mark.parametrize("name", PRODUCTS)
def test_a_product_of_constants(name: str) -> None:
    product, bias = rewritten(PRODUCTS[name])
    assert product.attrs.input_zero_point == 0 and bias.op_name == "add"


@pytest.mark.parametrize("name", PRODUCTS)
@pytest.mark.parametrize("first", [True, False])
def test_a_bias_takes_it_in(name: str, first: bool) -> None:
    """Sums that overflow wrap around, as before."""
    product = PRODUCTS[name]
    bias = const(random_array((product.shape[-1],), "int32", 5))
    calls = rewritten(call("add", *((bias, product) if first else (product, bias))))
    assert [e.op_name for e in calls] == [product.op_name, "add"]


def test_what_is_used_twice_is_computed_once() -> None:
    product = PRODUCTS["dense"]
    both = call("maximum", call("add", product, const([1] * 7)), product)
    assert [e.op_name for e in rewritten(both)].count("qnn.dense") == 1


def test_a_bias_that_is_larger_than_the_channels_stays_apart() -> None:
    larger = const(np.arange(3, dtype=np.int32).reshape(3, 1))
    assert len(rewritten(call("add", PRODUCTS["dense"], larger))) == 3


def test_pins_and_layers_stay() -> None:
    module = of(call("add", PRODUCTS["dense"].pinned("host"), const([1] * 7)).pinned("host"))
    made = zero_points_to_biases(module)
    assert [e.pin for e in post_order(made.main.body) if isinstance(e, Call)] == ["host", "host"]
    assert [made.spans[e] for e in post_order(made.main.body) if isinstance(e, Call)] == [("l0",), ("l1",)]


@pytest.mark.parametrize(
    "product",
    [
        call("qnn.conv2d", X, weights(3, 3, 6, 4), padding=(1, 1, 1, 1), input_zero_point=-128),  # padding adds nothing
        call("qnn.conv2d", X, weights(3, 3, 6, 4), padding=(0, 0, 0, 1), input_zero_point=5),
        call(
            "qnn.conv2d", Var("x", TensorType((1, 5, 4, 16), "int8")), weights(1, 1, 16, 8), input_zero_point=5
        ),  # rows
        call("qnn.dense", FLAT, Var("w", TensorType((2, 20), "int8")), input_zero_point=5),
        call("qnn.dense", FLAT, weights(7, 20)),
    ],
)
def test_what_stays(product: Call) -> None:
    assert rewritten(product) == [product]
