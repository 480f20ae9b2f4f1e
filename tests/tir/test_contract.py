"""Sums of products with one rounding each."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests._support.tir_tools import func as func_of

from uma.tir import FUNCTIONS, interpret, print_func, te
from uma.tir.rewrites.fma_contraction import contract

SUM = """
def f(x: In[float32, (4,)], y: In[float32, (4,)], out: Out[float32, (1,)]):
    out[0] = 0.0
    for i in range(4):
        out[0] += {value}
"""


def test_only_products_of_the_floats_that_are_asked_for() -> None:
    x, y = te.placeholder((2, 9), "float32", "x"), te.placeholder((9, 3), "float32", "y")
    k = te.reduce_axis(9, "k")
    product = te.compute((2, 3), lambda i, j: te.sum(x[i, k] * y[k, j], k), "product")
    longest = te.compute((2, 3), lambda i, j: te.max(x[i, k] * y[k, j], k), "longest")
    func = te.prim_func([x, y], [product, longest]).func
    made = print_func(contract(func, {"float32"}), "f")
    assert "fma(" in made and "+=" not in made
    assert contract(func, {"float64"}) is func
    integers = [te.placeholder(tensor.shape, "int32", tensor.name) for tensor in (x, y)]
    a, b = integers
    total = te.compute((2, 3), lambda i, j: te.sum(a[i, k] * b[k, j], k), "total")
    whole = te.prim_func(integers, [total]).func
    assert contract(whole, {"float32", "float64"}) is whole


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        ("x[i] * y[i]", "out[0] = fma(x[i], y[i], out[0])"),
        ("x[i] * y[i] + y[i]", "out[0] += fma(x[i], y[i], y[i])"),
        ("x[i] + x[i] * y[i]", "out[0] += fma(x[i], y[i], x[i])"),
        ("x[i] * x[i] + x[i] * y[i]", "out[0] += fma(x[i], y[i], x[i] * x[i])"),
        ("x[i] - y[i]", "out[0] += x[i] - y[i]"),
    ],
)
def test_which_products(value: str, wanted: str) -> None:
    func = func_of(SUM.format(value=value))
    assert wanted in print_func(contract(func, {"float32"}), "f")


def test_the_interpreter_rounds_once() -> None:
    func = contract(func_of(SUM.format(value="x[i] * y[i]")), {"float32"})
    tiny = np.float32(1 + 2**-12)
    # 1 + 2**-11 + 2**-24: the last term is lost where the product is rounded first.
    given = {"x": np.array([1 + 2**-11, tiny, 0, 0], "f4"), "y": np.array([-1, tiny, 0, 0], "f4")}
    assert interpret(func, given)["out"][0] == np.float32(2**-24)


numbers = st.floats(width=32) | st.sampled_from(
    [0.0, -0.0, 1.0, 1 + 2**-23, 2.0**-149, 2.0**-126, 3.4028234663852886e38]
)


@given(numbers, numbers, numbers)
def test_fma_of_float32_is_the_exact_result_rounded(a: float, b: float, c: float) -> None:
    got = FUNCTIONS["fma"].value("float32")(a, b, c)
    if not all(map(math.isfinite, (a, b, c))) or not (exact := Fraction(a) * Fraction(b) + Fraction(c)):
        assert math.isnan(got) == math.isnan(a * b + c) and (math.isnan(got) or got == a * b + c)
        return
    if abs(exact) >= Fraction(2**128 - 2**103):
        assert math.isinf(got) and (got > 0) == (exact > 0)
        return
    step = max(Fraction(2) ** -149, Fraction(2) ** (math.frexp(float(np.float32(got)))[1] - 24 if got else -149))
    assert abs(Fraction(got) - exact) <= step / 2
    if abs(Fraction(got) - exact) == step / 2:
        assert (Fraction(got) / step) % 2 == 0
