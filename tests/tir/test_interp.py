"""The interpreter: arithmetic against numpy, and everything that it must not let pass."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests._support.tir_strategies import FLOATS, immediates, same_bits
from tests._support.tir_tools import evaluate, func

from uma.errors import InternalError
from uma.tir.form.dtype import COMPUTED, INTEGERS, bits, bounds
from uma.tir.form.interp import InterpreterError, interpret
from uma.tir.form.nodes import (
    INDEX,
    Bin,
    Buffer,
    Call,
    Cast,
    For,
    Imm,
    Load,
    Param,
    PrimFunc,
    Select,
    Store,
    Un,
    Update,
    Var,
    const,
    seq,
)

# Arithmetic. numpy is the reference where it does what the loop form says, exact integers and fractions elsewhere.

INTEGER_OPS = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
    "bitand": np.bitwise_and,
    "bitor": np.bitwise_or,
    "bitxor": np.bitwise_xor,
    "floordiv": np.floor_divide,
    "floormod": np.remainder,
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}
FLOAT_OPS = {name: INTEGER_OPS[name] for name in ("add", "sub", "mul", "eq", "ne", "lt", "le", "gt", "ge")}
FLOAT_OPS["div"] = np.divide


def equal(found: object, expected: object) -> bool:
    return same_bits(np.asarray(found), np.asarray(expected))


@given(st.data(), st.sampled_from(INTEGERS), st.sampled_from(sorted(INTEGER_OPS)))
def test_integers_wrap_as_those_of_numpy(data: st.DataObject, dtype: str, op: str) -> None:
    a, b = data.draw(immediates(dtype)), data.draw(immediates(dtype))
    with np.errstate(over="ignore", divide="ignore"):  # numpy divides by zero as well, and gives 0
        expected = INTEGER_OPS[op](np.array(a.value, dtype), np.array(b.value, dtype))
    assert equal(evaluate(Bin(op, a, b)), expected)


@given(st.data(), st.sampled_from(FLOATS), st.sampled_from(sorted(FLOAT_OPS)))
def test_floats_round_as_those_of_numpy(data: st.DataObject, dtype: str, op: str) -> None:
    numbers = st.floats(width=32 if dtype == "float32" else 64)
    a, b = data.draw(numbers), data.draw(numbers)
    with np.errstate(all="ignore"):
        expected = FLOAT_OPS[op](np.array(a, dtype), np.array(b, dtype))
    assert equal(evaluate(Bin(op, Imm(a, dtype), Imm(b, dtype))), expected)


@given(st.data(), st.sampled_from(INTEGERS))
def test_truncdiv_rounds_to_zero(data: st.DataObject, dtype: str) -> None:
    a, b = data.draw(immediates(dtype)), data.draw(immediates(dtype))
    exact = math.trunc(Fraction(a.value) / Fraction(b.value)) if b.value else 0
    low, high = bounds(dtype)
    wrapped = (exact - low) % (high - low + 1) + low
    assert evaluate(Bin("truncdiv", a, b)) == wrapped


@given(st.data(), st.sampled_from(INTEGERS), st.integers(0, 63))
def test_shifts(data: st.DataObject, dtype: str, amount: int) -> None:
    a, amount = data.draw(immediates(dtype)), amount % bits(dtype)
    low, high = bounds(dtype)
    left = (a.value * 2**amount - low) % (high - low + 1) + low
    assert evaluate(Bin("shl", a, Imm(amount, dtype))) == left
    assert evaluate(Bin("shr", a, Imm(amount, dtype))) == a.value // 2**amount


@given(st.data(), st.sampled_from(COMPUTED), st.sampled_from(COMPUTED))
def test_casts(data: st.DataObject, source: str, target: str) -> None:
    a = data.draw(immediates(source))
    found = evaluate(Cast(a, target))
    array = np.array(a.value, source)
    if target == "bool":
        expected = array != 0
    elif source in FLOATS and target in INTEGERS:
        low, high = bounds(target)
        exact = 0 if np.isnan(array) else max(low, min(high, math.trunc(float(array)))) if np.isfinite(array) else None
        expected = np.array(exact if exact is not None else (high if array > 0 else low), target)
    else:
        with np.errstate(over="ignore"):
            expected = array.astype(target)
    assert equal(found, expected)


@given(st.integers(-(2**63), 2**63 - 1), st.integers(0, 2**64 - 1))
def test_large_integers_round_once_to_float32(a: int, b: int) -> None:
    assert equal(evaluate(Cast(Imm(a, "int64"), "float32")), np.int64(a).astype(np.float32))
    assert equal(evaluate(Cast(Imm(b, "uint64"), "float32")), np.uint64(b).astype(np.float32))
    tie = (1 << 62) + (1 << 38)  # just below the middle of two float32, by less than float64 can tell
    assert evaluate(Cast(Imm(tie - 1, "int64"), "float32")) == np.int64(tie - 1).astype(np.float32) == 2.0**62


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(("op", "wanted"), [("min", -3.0), ("max", 9.0)])
def test_a_reduction_to_an_extreme_ignores_nan(dtype: str, op: str, wanted: float) -> None:
    x, m, i = Buffer("x", (5,), dtype), Buffer("m", (1,), dtype), Var("i")
    zero = Imm(0, INDEX)
    begin = Store(m, (zero,), Imm(math.inf if op == "min" else -math.inf, dtype))
    steps = For(i, Imm(5, INDEX), Update(op, m, (zero,), Load(x, (i,))))
    reduction = PrimFunc((Param(x, "input"), Param(m, "output")), seq(begin, steps))
    for place in range(5):
        data = np.array([9, -3, 9, -3, 1], dtype)
        data[place] = math.nan
        assert interpret(reduction, {"x": data})["m"].tolist() == [wanted]


@pytest.mark.parametrize("dtype", FLOATS)
def test_min_and_max_of_floats_give_the_second_where_they_cannot_tell(dtype: str) -> None:
    nan, zero, minus_zero, one = (Imm(value, dtype) for value in (math.nan, 0.0, -0.0, 1.0))
    for op in ("min", "max"):
        assert evaluate(Bin(op, nan, one)) == 1.0
        assert np.isnan(evaluate(Bin(op, one, nan)))
        assert np.signbit(evaluate(Bin(op, zero, minus_zero)))
        assert not np.signbit(evaluate(Bin(op, minus_zero, zero)))


@pytest.mark.parametrize("dtype", [dtype for dtype in COMPUTED if dtype.startswith(("int", "float"))])
def test_negative_and_magnitude(dtype: str) -> None:
    values = [3, -3, 0] if dtype in FLOATS else [3, -3, 0, *bounds(dtype)]
    for value in values:
        with np.errstate(over="ignore"):
            array = np.array(value, dtype)
            assert equal(evaluate(Un("neg", Imm(value, dtype))), np.negative(array))
            assert equal(evaluate(Un("abs", Imm(value, dtype))), np.abs(array))
    if dtype in FLOATS:
        assert np.signbit(evaluate(Un("neg", Imm(0.0, dtype))))
        assert not np.signbit(evaluate(Un("abs", Imm(-0.0, dtype))))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    ("name", "reference"),
    [
        ("exp", np.exp),
        ("log", np.log),
        ("sin", np.sin),
        ("cos", np.cos),
        ("expm1", np.expm1),
        ("log1p", np.log1p),
        ("tan", np.tan),
        ("asin", np.arcsin),
        ("acos", np.arccos),
        ("atan", np.arctan),
        ("sinh", np.sinh),
        ("cosh", np.cosh),
        ("tanh", np.tanh),
        ("asinh", np.arcsinh),
        ("acosh", np.arccosh),
        ("atanh", np.arctanh),
        ("erf", np.vectorize(math.erf)),
        ("sqrt", np.sqrt),
        ("floor", np.floor),
        ("ceil", np.ceil),
        ("trunc", np.trunc),
        ("round_even", np.rint),
    ],
)
def test_functions(name: str, reference: Callable[[Any], Any], dtype: str) -> None:
    values = [0.0, -0.0, 0.5, -0.5, 1.0, -1.0, 1.5, 2.5, -2.5, 1e4, -1e4, 1e30, math.inf, -math.inf, math.nan]
    for value in values:
        found = evaluate(Call(name, Imm(value, dtype)))
        with np.errstate(all="ignore"):
            expected = np.asarray(reference(np.float64(np.array(value, dtype)))).astype(dtype)
        if name in ("sqrt", "floor", "ceil", "trunc", "round_even"):
            assert equal(found, expected)
        else:
            np.testing.assert_array_max_ulp(found, expected, maxulp=1, dtype=dtype)


@pytest.mark.parametrize("dtype", FLOATS)
def test_pow(dtype: str) -> None:
    values = [0.0, -0.0, 0.5, -0.5, 2.0, -2.0, 3.0, -3.0, 1e30, -1e30, 301.0, -301.0, math.inf, -math.inf, math.nan]
    for a in values:
        for b in values:
            if b == 0.5 and a in (0.0, -math.inf):
                continue  # numpy takes the square root, which has another sign and no value, respectively
            with np.errstate(all="ignore"):
                expected = np.power(np.float64(np.array(a, dtype)), np.float64(np.array(b, dtype))).astype(dtype)
            found = evaluate(Call("pow", Imm(a, dtype), Imm(b, dtype)))
            np.testing.assert_array_max_ulp(found, expected, maxulp=1, dtype=dtype)
            assert np.isnan(found) or np.signbit(found) == np.signbit(expected)


@pytest.mark.parametrize("dtype", FLOATS)
def test_fmod(dtype: str) -> None:
    values = [0.0, -0.0, 0.5, -0.75, 2.0, -3.0, 1e30, math.inf, -math.inf, math.nan]
    for a in values:
        for b in values:
            with np.errstate(all="ignore"):
                expected = np.fmod(np.array(a, dtype), np.array(b, dtype))
            assert equal(evaluate(Call("fmod", Imm(a, dtype), Imm(b, dtype))), expected)


@given(st.integers(0, 2**32 - 1))
def test_clz(value: int) -> None:
    assert evaluate(Call("clz", Imm(value, "uint32"))) == 32 - value.bit_length()
    signed = value - 2**31
    assert evaluate(Call("clz", const(signed))) == (0 if signed < 0 else 32 - signed.bit_length())


@given(st.integers(-(2**31), 2**31 - 1), st.integers(-(2**31), 2**31 - 1))
def test_mul_high(a: int, b: int) -> None:
    exact = math.floor(Fraction(a * b, 2**31) + Fraction(1, 2))
    assert evaluate(Call("mul_high", const(a), const(b))) == (exact if exact < 2**31 else -(2**31))


def test_the_one_product_whose_high_half_does_not_fit_wraps_around() -> None:
    assert evaluate(Call("mul_high", const(-(2**31)), const(-(2**31)))) == -(2**31)
    assert evaluate(Call("mul_high", const(1 - 2**31), const(-(2**31)))) == 2**31 - 1


@pytest.mark.parametrize("dtype", FLOATS)
@given(data=st.data())
def test_fma_is_the_float_nearest_to_the_exact_sum(dtype: str, data: st.DataObject) -> None:
    numbers = st.floats(-1e9, 1e9, width=32) | st.floats(-(2.0**-100), 2.0**-100, width=32)
    a, b, c = (data.draw(numbers) for _ in range(3))
    if data.draw(st.booleans()):  # what is left of a difference is small, and has all its bits
        c = float(np.array(-a * b, np.float32))
    found, exact = evaluate(Call("fma", *(Imm(v, dtype) for v in (a, b, c)))), Fraction(a) * Fraction(b) + Fraction(c)
    distance = abs(Fraction(float(found)) - exact)
    for other in (np.nextafter(found, np.array(end, dtype)) for end in (-math.inf, math.inf)):
        further = abs(Fraction(float(other)) - exact)
        is_even = int(found.view(f"int{8 * found.itemsize}")) % 2 == 0
        assert distance < further or (distance == further and is_even)


@pytest.mark.parametrize("dtype", FLOATS)
def test_fma_of_what_is_not_finite_and_of_zeros(dtype: str) -> None:
    def fma(a: float, b: float, c: float) -> float:
        return float(evaluate(Call("fma", Imm(a, dtype), Imm(b, dtype), Imm(c, dtype))))

    largest = float(np.finfo(dtype).max)
    assert fma(largest, 2.0, -math.inf) == -math.inf and fma(largest, 2.0, -largest) == largest
    assert fma(largest, 2.0, 0.0) == math.inf and fma(-math.inf, 2.0, 1.0) == -math.inf
    assert math.isnan(fma(math.inf, 0.0, 1.0)) and math.isnan(fma(math.inf, 1.0, -math.inf))
    assert math.isnan(fma(1.0, 1.0, math.nan))
    zeros = [fma(1.0, 1.0, -1.0), fma(-0.0, 1.0, 0.0), fma(-0.0, 1.0, -0.0), fma(0.0, -5.0, -0.0)]
    assert [math.copysign(1.0, zero) for zero in zeros] == [1.0, 1.0, -1.0, -1.0] and not any(zeros)


def test_only_what_is_needed_is_evaluated() -> None:
    fault = Bin("floordiv", const(1), const(0)) < 1
    yes, no = Imm(True, "bool"), Imm(False, "bool")
    assert not evaluate(Bin("and", no, fault)) and evaluate(Bin("or", yes, fault))
    assert evaluate(Select(yes, yes, fault)) and evaluate(Select(no, fault, yes))
    assert evaluate(Bin("and", yes, yes)) and not evaluate(Bin("or", no, no)) and not evaluate(Un("not", yes))


# Statements


def test_a_convolution() -> None:
    conv = func(
        """
def conv(x: In[int8, (1, 5, 6, 3)], y: Out[int32, (1, 5, 6, 4)], w: Const[int8, (3, 3, 3, 4)]):
    for i in parallel(5):
        for j in range(6):
            for c in unrolled(4):
                acc = alloc(int32, ())
                acc[()] = 0
                for a in range(3):
                    for b in range(3):
                        if 0 <= i + a - 1 and i + a - 1 < 5 and 0 <= j + b - 1 and j + b - 1 < 6:
                            for k in range(3):
                                acc[()] += int32(x[0, i + a - 1, j + b - 1, k]) * int32(w[a, b, k, c])
                y[0, i, j, c] = acc[()]
"""
    )
    rng = np.random.default_rng(0)
    x = rng.integers(-128, 128, (1, 5, 6, 3), dtype=np.int8)
    w = rng.integers(-128, 128, (3, 3, 3, 4), dtype=np.int8)
    padded = np.pad(x[0].astype(np.int32), ((1, 1), (1, 1), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(0, 1))
    expected = np.einsum("ijkab,abkc->ijc", windows, w.astype(np.int32))
    assert (interpret(conv, {"x": x, "w": w})["y"][0] == expected).all()


def test_all_statements() -> None:
    everything = func(
        """
def f(x: In[float32, (4,)], y: Out[float32, (4,)], z: Out[bool, ()], t: Workspace[int32, (2,)]):
    with block("first"):
        for i in range(4):
            v: float32 = x[i] * 2.0
            y[i] = v
            if v < 3.0:
                y[i] += 1.0
            elif v < 5.0:
                y[i] *= 3.0
            else:
                update_min(y[i], 7.0)
            update_max(y[i], 2.5)
        for n in range(-3):
            y[0] = 100.0
    t[0] = 3
    t[1] = t[0]
    z[()] = t[1] == 3
"""
    )
    outputs = interpret(everything, {"x": np.array([0.25, 1, 2, 9], np.float32)})
    assert list(outputs) == ["y", "z"]
    assert outputs["y"].tolist() == [2.5, 3.0, 12.0, 7.0]
    assert outputs["z"].tolist() is True and outputs["z"].dtype == np.bool_


def test_float_sums_keep_their_order_and_type() -> None:
    total = func(
        """
def f(x: In[float32, (1000,)], y: Out[float32, ()]):
    y[()] = 0.0
    for i in range(1000):
        y[()] += x[i]
"""
    )
    x = np.random.default_rng(0).normal(size=1000).astype(np.float32)
    expected = np.float32(0)
    for value in x:
        expected += value
    assert interpret(total, {"x": x})["y"] == expected


def test_arguments_are_copied() -> None:
    func_ = func(
        """
def f(x: In[int32, (2,)], y: Out[int32, (2,)]):
    may_alias(y, x)
    y[1] = x[0]
    y[0] = x[1]
"""
    )
    x = np.array([1, 2], np.int32)
    assert interpret(func_, {"x": x})["y"].tolist() == [2, 1]
    assert x.tolist() == [1, 2]


def test_any_layout_of_an_array_will_do() -> None:
    copy = func(
        """
def f(x: In[int16, (2, 3)], y: Out[int16, (2, 3)]):
    for i in range(2):
        for j in range(3):
            y[i, j] = x[i, j]
"""
    )
    x = np.arange(6, dtype=np.int16).reshape(3, 2).T
    assert (interpret(copy, {"x": x})["y"] == x).all()


HEAD = "def f(x: In[int32, (4,)], y: Out[int32, (2, 3)], t: Workspace[int32, (4,)]):\n"
FAULTS = [
    ("y[2, 0] = 1", "index 2 is outside dimension 0 of 'y', of 2", "y[2, 0] = 1"),
    ("y[0, -1] = 1", "index -1 is outside dimension 1 of 'y', of 3", "y[0, -1] = 1"),
    (
        "for i in range(3):\n  for j in range(3):\n    y[i, j] = j",
        "index 2 is outside dimension 0 of 'y', of 2",
        "y[i, j] = j   with i = 2, j = 0",
    ),
    (
        "for i in range(5):\n  v: int32 = x[i] // 2",
        "index 4 is outside dimension 0 of 'x', of 4",
        "v: int32 = x[i] // 2   with i = 4",
    ),
    ("t[0] = y[0, 0]", "an element of 'y' is read before it is written", "t[0] = y[0, 0]"),
    ("t[0] = t[0]", "an element of 't' is read before it is written", "t[0] = t[0]"),
    ("t[0] += 1", "an element of 't' is updated before it is written", "t[0] += 1"),
    (
        "for i in range(2):\n  a = alloc(int32, (2,))\n  if i == 1:\n    t[0] = a[0]\n  a[0] = 1",
        "'a' is read before",
        "t[0] = a[0]",
    ),
    ("for i in parallel(3):\n  t[i] = 1 if i == 0 else t[i - 1]", "'t' is read before it is written", "with i = 2"),
    ("t[0] = 1 << 32", "shift of int32 by 32", "t[0] = 1 << 32"),
    ("t[0] = 1 >> -1", "shift of int32 by -1", "t[0] = 1 >> -1"),
    ("pass", "6 of 6 elements of output 'y' were never written, the first at [0, 0]", "interpreter"),
    (
        "for i in range(2):\n  y[0, i] = 1",
        "4 of 6 elements of output 'y' were never written, the first at [0, 2]",
        "interpreter",
    ),
]


@pytest.mark.parametrize(("text", "what", "where"), FAULTS)
def test_faults(text: str, what: str, where: str) -> None:
    lines = [*text.split("\n"), "if x[0] < 0:", "  y[0, 0] = 1"]  # so that y is written somewhere
    with pytest.raises(InterpreterError) as caught:
        interpret(func(HEAD + "".join(f"  {line}\n" for line in lines)), {"x": np.array([1, 2, 3, 4], np.int32)})
    assert what in caught.value.what
    assert where in str(caught.value.where)


@pytest.mark.parametrize(
    ("arrays", "what"),
    [
        ({}, "arrays are missing or unknown: w, x"),
        ({"x": np.zeros(2, np.int8), "w": np.zeros((), np.bool_), "y": np.zeros(2)}, "missing or unknown: y"),
        ({"x": np.zeros(3, np.int8), "w": np.zeros((), np.bool_)}, "'x' must be int8(2,), not int8(3,)"),
        ({"x": np.zeros(2, np.uint8), "w": np.zeros((), np.bool_)}, "'x' must be int8(2,), not uint8(2,)"),
        ({"x": np.zeros(2, np.int8), "w": np.zeros((), np.int32)}, "'w' must be bool(), not int32()"),
    ],
)
def test_wrong_arguments(arrays: dict[str, np.ndarray], what: str) -> None:
    copy = func(
        """
def f(x: In[int8, (2,)], y: Out[int8, (2,)], w: Const[bool, ()]):
    for i in range(2):
        y[i] = x[i] if w[()] else 0
"""
    )
    with pytest.raises(InterpreterError) as caught:
        interpret(copy, arrays)
    assert what in caught.value.what


def test_malformed_functions_do_not_run() -> None:
    y = Buffer("y", (), "int32")
    with pytest.raises(InternalError, match="'i' is used outside its scope"):
        interpret(PrimFunc((Param(y, "output"),), Store(y, (), Var("i"))), {})
