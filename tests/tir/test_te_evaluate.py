"""Tensors that read constants only: computed at build time, to the bit as the loops would compute them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests._support.te_strategies import Computation, computations
from tests._support.tir_strategies import same_bits

from uma.errors import InternalError
from uma.tir import te
from uma.tir.form.dtype import COMPUTED, bounds, is_float, is_integer, is_signed
from uma.tir.form.functions import FUNCTIONS
from uma.tir.form.interp import interpret
from uma.tir.form.nodes import BINARY, Bin, Call, Cast, Expr, Imm, Select, Un, maximum
from uma.tir.form.text import print_func
from uma.tir.te import evaluate
from uma.tir.te.evaluate import contents_of


@given(computation=computations(), box=st.sampled_from([1 << 18, 7]))
def test_what_is_computed_at_build_time_is_what_the_loops_compute(computation: Computation, box: int) -> None:
    kernel = te.plain(computation.inputs, computation.outputs, computation.constants)
    expected = interpret(kernel.func, computation.arguments(kernel))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evaluate, "_BOX", box)
        found = contents_of(computation.outputs, computation.contents)
    for buffer, array in zip(kernel.func.buffers("output"), found, strict=True):
        assert same_bits(expected[buffer.name], array)


# Every operation


def edges(dtype: str) -> np.ndarray:
    """Values of a type at which operations do what they do nowhere else."""
    if is_float(dtype):
        some = [0.0, -0.0, 0.5, -0.5, 1.5, 2.5, -3.75, 1e-40, 127.5, 128.0, -129.0, 2.0**31, -(2.0**63), 2.0**63]
        return np.array([*some, 1e10, -1e30, 3e38, math.inf, -math.inf, math.nan], dtype)
    low, high = bounds(dtype)
    some = sorted({low, low + 1, high - 1, high, *(v for v in (-128, -7, -3, -1, 0, 1, 2, 3, 7, 100) if v >= low)})
    return np.array([v for v in some if v <= high], dtype)


def check(made: Callable[..., Expr], *columns: np.ndarray) -> None:
    """That what ``made`` gives of a row of constants is what the loops compute of it."""
    rows = list(itertools.product(*columns))
    held = [np.array(column, array.dtype) for column, array in zip(zip(*rows, strict=True), columns, strict=True)]
    constants = [te.constant(array, "c") for array in held]
    given = [te.placeholder(array.shape, array.dtype.name, "x") for array in held]
    (found,) = contents_of([te.compute((len(rows),), lambda i: made(*(c[i] for c in constants)), "y")], {})
    func = te.plain(given, [te.compute((len(rows),), lambda i: made(*(x[i] for x in given)), "y")]).func
    wanted = interpret(func, dict(zip((f"x{n}" for n in range(len(held))), held, strict=True)))["out0"]
    assert same_bits(found, wanted), (found, wanted)


@pytest.mark.parametrize("dtype", COMPUTED)
def test_binary_operations(dtype: str) -> None:
    for op in BINARY:
        takes = {"div": is_float(dtype), "and": dtype == "bool", "or": dtype == "bool", "eq": True, "ne": True}
        whole = op in ("floordiv", "floormod", "truncdiv", "shl", "shr", "bitand", "bitor", "bitxor")
        if takes.get(op, is_integer(dtype) if whole else dtype != "bool"):
            values = edges(dtype)
            widths = np.array([0, 1, 3, 7], dtype)
            check(lambda a, b, op=op: Bin(op, a, b), values, widths if op in ("shl", "shr") else values)


@pytest.mark.parametrize("dtype", COMPUTED)
def test_unary_operations_and_casts(dtype: str) -> None:
    for op in ("neg", "abs", "not"):
        if dtype == "bool" if op == "not" else is_signed(dtype):
            check(lambda a, op=op: Un(op, a), edges(dtype))
    for target in COMPUTED:
        if target != dtype:
            check(lambda a, target=target: Cast(a, target), edges(dtype))


@pytest.mark.parametrize("name", list(FUNCTIONS))
def test_functions(name: str) -> None:
    row = FUNCTIONS[name]
    for dtype in row.takes:
        check(lambda *args: Call(name, *args), *[edges(dtype)] * row.arity)


def test_what_is_not_reached_may_be_anything() -> None:
    def element(i: Expr, a: Expr, b: Expr) -> Expr:
        width = Select(a > 6, Imm(99, "int8"), a)
        return Select((a >= 0) & (a <= 6), b << width, Select((a < 0) | ((b >> a) > 0), Imm(-1, "int8"), b))

    values = np.array([-5, 0, 1, 6, 7, 7], np.int8)
    others = np.array([3, 4, -5, 1, -1, 0], np.int8)
    c, d = te.constant(values, "c"), te.constant(others, "d")
    (found,) = contents_of([te.compute((6,), lambda i: element(i, c[i], d[i]), "y")], {})
    assert found.tolist() == [-1, 4, -10, 64, -1, 0]


# Layouts


def test_packed_weights_with_padding_are_gathers_and_sums_fold_them() -> None:
    """Channels in groups of 8 lanes, pairs of inputs side by side; and what a zero point of -128 adds."""
    w, bias = te.placeholder((3, 5, 11), "int8", "w"), te.placeholder((11,), "int32", "bias")
    weights = np.random.default_rng(0).integers(-128, 128, (3, 5, 11)).astype(np.int8)
    biases = np.arange(11, dtype=np.int32) * 1000

    def lane(t: Expr, g: Expr, p: Expr, c: Expr, half: Expr) -> Expr:
        channel, depth = g * 8 + c, p * 2 + half
        return Select((channel < 11) & (depth < 5), w[t, depth, channel], Imm(0, "int8"))

    packed = te.compute((3, 2, 3, 8, 2), lane, "packed")
    t, k = te.reduce_axis(3, "t"), te.reduce_axis(5, "k")
    sums = te.compute((11,), lambda c: te.sum(w[t, k, c].astype("int32") * 128, (t, k)), "sums")
    folded = te.compute((11,), lambda c: bias[c] - sums[c], "folded")
    x = te.placeholder((3, 6), "uint8", "x")
    kp, kh = te.reduce_axis(3, "kp"), te.reduce_axis(2, "kh")

    def product(c: Expr) -> te.Reduction:
        value = x[t, kp * 2 + kh].astype("int32") * packed[t, c // 8, kp, c % 8, kh].astype("int32")
        return te.sum(value, (t, kp, kh))

    dot = te.compute((11,), product, "dot")
    y = te.compute((11,), lambda c: dot[c] + folded[c], "y")
    for kernel in (te.plain([x], [y], [w, bias]), te.prim_func([x], [y], constants=[w, bias])):
        assert kernel.held == (packed, folded), "what only they read is gone"
        found = kernel.bind({w: weights, bias: biases})
        wide = np.zeros((3, 6, 16), np.int8)
        wide[:, :5, :11] = weights
        assert same_bits(found[0], wide.reshape(3, 3, 2, 2, 8).transpose(0, 3, 1, 4, 2))
        assert same_bits(found[1], biases - 128 * weights.sum((0, 1), dtype=np.int32))
    assert te.plain([x], [y], [w, bias], keep=[packed, folded]).held == (packed, folded), "what is kept is not a loop"


def test_constant_terms_of_a_sum_of_integers_are_one() -> None:
    """A product of data less its zero point, by weights and a bias that a schedule gets as one number per channel."""
    x, w = te.placeholder((2, 3), "uint8", "x"), te.placeholder((3, 4), "int8", "w")
    bias, k, z = te.constant(np.arange(4, dtype=np.int32), "bias"), te.reduce_axis(3, "k"), te.reduce_axis(3, "z")
    dot = te.compute((2, 4), lambda i, c: te.sum(x[i, k].astype("int32") * w[k, c].astype("int32"), k), "dot")
    sums = te.compute((4,), lambda c: te.sum(w[z, c].astype("int32"), z), "sums")
    centred = te.compute((2, 4), lambda i, c: sums[c] * -128 + dot[i, c], "centred")
    y = te.compute((2, 4), lambda i, c: maximum(centred[i, c] + bias[c] - 3, 0), "y")
    kernel = te.plain([x], [y], [w])
    weights = np.random.default_rng(0).integers(-128, 128, (3, 4)).astype(np.int8)
    held, folded = kernel.bind({w: weights})
    assert kernel.held[0] is w and same_bits(held, weights)
    assert same_bits(folded, np.arange(4, dtype=np.int32) - 128 * weights.sum(0, dtype=np.int32) - 3)
    assert "out0[i3, i4] = max(a0[i3, i4] + w1[i4], 0)" in print_func(kernel.func, "f")


def test_terms_are_left_where_they_are_better_there() -> None:
    x, b, c = (
        te.placeholder((8, 8), "int32", "x"),
        te.placeholder((8,), "int32", "b"),
        te.placeholder((8,), "int32", "c"),
    )
    f = te.placeholder((8,), "float32", "f")

    def held(element: Callable[[Expr, Expr], Expr]) -> tuple[te.Tensor, ...]:
        return te.plain([x], [te.compute((8, 8), element, "y")], [b, c, f]).held

    assert held(lambda i, j: x[i, j] + b[j]) == (b, c, f), "one is a constant already"
    assert held(lambda i, j: x[i, j] + b[j] + c[i]) == (b, c, f), "more elements than both"
    assert held(lambda i, j: x[i, j].astype("float32") + f[j] + f[j]) == (b, c, f), "floats round"
    guarded = held(lambda i, j: Select(j > 0, x[i, j] + b[j - 1] - c[j], x[i, j]))
    assert guarded == (b, c, f), "read under a condition"
    made = held(lambda i, j: b[j] - x[i, j] - c[j])
    assert made[0] is f and [one.shape for one in made] == [(8,), (8,)]
    negated = held(lambda i, j: x[i, j] - b[j])
    assert len(negated) == 3 and b not in negated


def test_what_reads_no_constant_is_no_constant() -> None:
    x = te.placeholder((4,), "int32", "x")
    two = te.compute((), lambda: Imm(2, "int32"), "two")
    even = te.compute((4,), lambda i: i * two[()], "even")
    y = te.compute((4,), lambda i: x[i] + even[i], "y")
    assert te.prim_func([x], [y]).held == ()
    table = te.constant(np.arange(4, dtype=np.int32), "table")
    mixed = te.compute((4,), lambda i: table[i] + even[i], "mixed")
    kernel = te.prim_func([x], [te.compute((4,), lambda i: x[i] + mixed[i], "y")])
    assert kernel.held == (mixed,) and kernel.bind()[0].tolist() == [0, 3, 6, 9]
    output = te.prim_func([x], [mixed])
    assert output.held == (table,), "an output is computed by the kernel"


def test_a_constant_may_be_packed_from_one_view_and_read_through_another() -> None:
    w = te.placeholder((4,), "int8", "w")
    square, x = te.reshape(w, (2, 2)), te.placeholder((2,), "int8", "x")
    swapped = te.compute((2, 2), lambda i, j: square[j, i] + 0, "swapped")
    y = te.compute((2,), lambda i: x[i] * swapped[1, i] + w[i], "y")
    found = te.prim_func([x], [y], constants=[w]).bind({w: np.array([1, 2, 3, 4], np.int8)})
    assert [array.tolist() for array in found] == [[1, 2, 3, 4], [[1, 3], [2, 4]]]


def test_a_sum_of_floats_is_formed_in_order() -> None:
    values = np.random.default_rng(0).standard_normal((5, 300)).astype(np.float32)
    c, k = te.constant(values, "c"), te.reduce_axis(300, "k")
    (found,) = contents_of([te.compute((5,), lambda i: te.sum(c[i, k], k), "y")], {})
    assert same_bits(found, np.add.accumulate(values, axis=1)[:, -1])


# What is refused


@pytest.mark.parametrize(
    ("element", "message"),
    [
        (lambda c, i: c[i + 1], "'y' reads an index outside dimension 0 of 'c', of 4"),
        (lambda c, i: Select(i > 0, c[i - 2], c[i]), "'y' reads an index outside dimension 0 of 'c', of 4"),
        (lambda c, i: c[i] << (i + 5).astype("int8"), "'y' shifts int8 by less than 0, or by its width or more"),
        (lambda c, i: Select(i > 0, c[i] >> -c[i], c[i]), "'y' shifts int8 by less than 0, or by its width or more"),
    ],
)
def test_what_has_no_value_is_refused(element: Callable[..., Any], message: str) -> None:
    c = te.constant(np.arange(4, dtype=np.int8), "c")
    y = te.compute((4,), lambda i: element(c, i), "y")
    with pytest.raises(InternalError) as caught:
        contents_of([y], {})
    assert message in caught.value.what
