"""Bounds of integers: never wrong, and as tight as each op's own rule promises."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from typing import TypeVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests._support.op_cases import CASES, NUMBERS
from tests._support.relay_strategies import Choice, modules, random_array, random_inputs

from uma.errors import ModelError
from uma.relay.evaluate import evaluate_all
from uma.relay.expr import Call, Expr, Function, TupleGetItem, Var, call, const
from uma.relay.module import IRModule
from uma.relay.op import Bounds, FixedPoint, registered_ops
from uma.relay.transform import value_range
from uma.relay.types import TensorType
from uma.relay.visit import post_order
from uma.tir.form.dtype import bounds, is_integer

T = TypeVar("T")

X = Var("x", TensorType((1, 4, 4, 2), "int8"))
U = Var("u", TensorType((2,), "uint8"))
WIDE = call("cast", X, dtype="int32")
LARGE = Var("z", TensorType((2,), "int32"))


def is_known(expr: Expr) -> bool:
    return isinstance(expr.type, TensorType) and is_integer(expr.dtype)


@given(modules(dtypes=("int8", "uint8")), st.integers(0, 2**16))
def test_no_value_of_a_random_graph_leaves_its_bounds(module: IRModule, seed: int) -> None:
    with np.errstate(all="ignore"):
        values = evaluate_all(module, random_inputs(module.main, seed))
    known: dict[Expr, Bounds] = {}
    for expr in filter(is_known, post_order(module.main.body)):
        found = value_range(expr, known)
        low, high = bounds(expr.dtype)
        if low <= found.low and found.high <= high:  # else it may wrap around, which is what the bounds tell
            array = np.asarray(values[expr])
            assert found.low <= array.min()
            assert array.max() <= found.high
        assert value_range(expr) == found


class Told(Choice):
    """Of several options those that the test says, of numbers the least."""

    def __init__(self, told: Sequence[int]) -> None:
        self.told = list(told)

    def of(self, *options: T) -> T:
        return options[self.told.pop(0)]

    def number(self, low: int, high: int) -> int:
        return low


def test_a_clip_takes_whatever_limits_are_drawn_for_it() -> None:
    for told in itertools.product(range(len(NUMBERS)), range(4), range(4)):
        choice = Told(told)
        CASES["clip"](choice, "clip")
        assert choice.told == []


RANGED = [name for name, op in registered_ops().items() if op.value_range is not None]


@pytest.mark.parametrize("name", RANGED)
@settings(max_examples=settings.default.max_examples // 4)
@given(data=st.data())
def test_no_value_of_an_op_leaves_its_bounds(name: str, data: st.DataObject) -> None:
    choice = Choice(data.draw)
    made = CASES[name](choice, name)
    if not is_known(made):
        return
    # Known weights, and data within limits that the op's own rule can see.
    args: list[Expr] = []
    inputs: dict[str, np.ndarray] = {}
    for position, arg in enumerate(made.args):
        array = choice.array(arg.shape, arg.dtype)
        if not is_known(arg):
            args.append(arg)
            inputs[arg.name] = array  # type: ignore[attr-defined]  # cases are calls on variables
        elif position and choice.of(True, False):
            args.append(const(array))
        else:
            low, high = bounds(arg.dtype) if choice.of(True, False) else sorted((int(array.min()), int(array.max())))
            inside = np.clip(choice.array(arg.shape, arg.dtype), low, high)
            ends = np.where(choice.array(arg.shape, "bool"), *np.array([low, high], arg.dtype))
            inputs[arg.name] = choice.of(inside, ends)  # type: ignore[attr-defined]  # a variable, too
            # The limits of 64 bits are not floats, as those of a clip are.
            limited = abs(low) < 2**50 and abs(high) < 2**50
            args.append(call("clip", arg, a_min=low, a_max=high) if limited else arg)
    body = Call(made.op, args, made.attrs)
    variables = [arg for arg in made.args if arg.name in inputs]  # type: ignore[attr-defined]  # all are variables
    found = value_range(body)
    least, greatest = bounds(body.dtype)
    if least <= found.low and found.high <= greatest:
        with np.errstate(all="ignore"):
            result = np.asarray(evaluate_all(Function(variables, body), inputs)[body])  # type: ignore[arg-type]  # variables alone
        assert found.low <= result.min()
        assert result.max() <= found.high


def dense(weight: list[list[int]], **attrs: int) -> Call:
    return call("qnn.dense", Var("d", TensorType((3,), "int8")), const(np.array(weight, np.int8)), **attrs)


DENSE = dense([[1, -2, 3], [0, 0, -1]])
CONV = call("qnn.conv2d", X, const(np.full((2, 2, 2, 1), -1, np.int8)), input_zero_point=5)
HALF = FixedPoint((2**30,), (0,), "up")
PAD = (1, 0, 1, 1)


@pytest.mark.parametrize(
    ("expr", "low", "high"),
    [
        (X, -128, 127),
        (const([3, -7, 5]), -7, 5),
        (call("nn.relu", X), 0, 127),
        (call("clip", X, a_min=-3, a_max=200), -3, 127),
        (call("clip", call("nn.relu", X), a_max=6), 0, 6),
        (WIDE, -128, 127),
        (call("cast", const([300]), dtype="int8"), -128, 127),
        (call("cast", U, dtype="int8"), -128, 127),
        (call("cast", Var("f", TensorType((), "float32")), dtype="int8"), -128, 127),
        (call("add", WIDE, const(1000)), 872, 1127),
        (call("subtract", WIDE, WIDE), -255, 255),
        (call("multiply", WIDE, const(-3)), -381, 384),
        (call("multiply", WIDE, WIDE), -16256, 16384),
        (call("minimum", WIDE, const(5)), -128, 5),
        (call("maximum", WIDE, const(5)), 5, 127),
        # What leaves its dtype shows, and is known no better after it wrapped around.
        (call("add", X, X), -256, 254),
        (call("nn.relu", call("add", X, X)), 0, 127),
        (call("subtract", U, U), -255, 255),
        # Sums of products with known weights: each sum by its own weights.
        (DENSE, -128 * 4 - 127 * 2, 127 * 4 + 128 * 2),
        (dense([[2, 2, 2]], input_zero_point=-128, kernel_zero_point=1), 0, 3 * 255),
        (CONV, -8 * 122, 8 * 133),
        (call("qnn.matmul", X, const(np.ones((2, 3), np.int8))), -256, 254),
        # With weights of which only bounds are known, each product by these.
        (call("qnn.matmul", X, call("transpose", X, axes=(0, 1, 3, 2))), 2 * -128 * 127, 2 * 128 * 128),
        (call("qnn.matmul", X, const(np.ones((1, 4, 2, 3), np.int8))), -256, 254),
        (
            call("qnn.dense", X, Var("w", TensorType((3, 2), "uint8")), kernel_zero_point=5),
            2 * -128 * 250,
            2 * 127 * 250,
        ),
        (
            call(
                "qnn.conv2d", X, call("clip", Var("w", TensorType((3, 2, 2, 1), "int8")), a_min=0, a_max=2), padding=PAD
            ),
            3 * 2 * 2 * -128 * 2,
            3 * 2 * 2 * 127 * 2,
        ),
        # Sums by how much they add.
        (call("sum", WIDE, axis=()), 32 * -128, 32 * 127),
        (call("sum", call("nn.relu", WIDE), axis=(1, -1), keepdims=True), 0, 4 * 2 * 127),
        (call("sum", X, axis=(3,)), 2 * -128, 2 * 127),
        (call("nn.relu", call("sum", X, axis=(3,))), 0, 127),
        (call("qnn.sum", X, axis=(1, 2), input_zero_point=-28), 16 * -100, 16 * 155),
        # What only moves elements keeps their bounds.
        (call("reshape", call("nn.relu", X), newshape=(32,)), 0, 127),
        (call("nn.max_pool2d", call("nn.relu", X), pool_size=(2, 2), padding=(1, 1, 0, 0)), 0, 127),
        (call("qnn.avg_pool2d", call("nn.relu", X), pool_size=(2, 2), padding=(1, 1, 0, 0)), 0, 127),
        (call("nn.pad", call("nn.relu", X), pad_width=(0, 1) * 4, pad_value=-5), -5, 127),
        (call("concatenate", U, const(np.array([7], np.uint8)), axis=0), 0, 255),
        (call("concatenate", call("minimum", U, const(np.uint8(9))), const(np.array([12], np.uint8)), axis=0), 0, 12),
        # Scales round as they say.
        (call("qnn.requantize", WIDE, scale=HALF, dtype="int32"), -64, 64),
        (call("qnn.requantize", WIDE, scale=HALF, output_zero_point=100, dtype="int8"), 36, 127),
        # The difference from the zero point may wrap around; its scaled result tells nothing of that.
        (call("qnn.requantize", LARGE, scale=HALF, input_zero_point=-1, dtype="int32"), -(2**31), 2**31 - 1),
        (call("qnn.requantize", LARGE, scale=HALF, dtype="int32"), -(2**30), 2**30),
        # Nothing is known of what an op without a rule gives.
        (TupleGetItem(call("split", call("nn.relu", X), indices=(1,), axis=1), 0), -128, 127),
    ],
    ids=lambda value: value.op_name if isinstance(value, Call) else "",
)
def test_bounds(expr: Expr, low: int, high: int) -> None:
    assert tuple(value_range(expr)) == (low, high)


def test_the_bounds_of_a_sum_of_products_are_reached() -> None:
    signs = np.array([1, -1, 1], np.int8)
    data = {True: np.where(signs > 0, 127, -128), False: np.where(signs > 0, -128, 127)}
    results = {}
    for high, array in data.items():
        main = Function([DENSE.args[0]], DENSE)  # type: ignore[list-item]  # its data, a variable
        results[high] = np.asarray(evaluate_all(main, {"d": array.astype(np.int8)})[DENSE])[0]
    assert tuple(value_range(DENSE)) == (results[False], results[True])


def test_a_constant_brings_its_elements() -> None:
    array = random_array((4,), "int16", 3)
    found = value_range(const(array))
    assert found.data is not None
    np.testing.assert_array_equal(found.data, array)


def test_floats_have_no_bounds() -> None:
    for expr in (const(1.0), call("cast", X, dtype="float32"), call("split", X, indices=(1,), axis=1)):
        with pytest.raises(ModelError, match=re.escape(f"bounds are proven of integer tensors, not of {expr.type}")):
            value_range(expr)


def test_what_was_found_is_not_looked_for_again() -> None:
    asked: list[Expr] = []

    class Known(dict[Expr, Bounds]):
        def __contains__(self, expr: object) -> bool:
            asked.append(expr)  # type: ignore[arg-type]  # what is looked up is an `Expr`
            return super().__contains__(expr)

    known = Known()
    expr: Expr = WIDE
    for i in range(1000):
        expr = call("minimum", expr, const(i))
        value_range(expr, known)
    assert len(asked) < 5_000
