"""Intervals: what they say of single operations, and that no evaluation ever leaves them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests._support.tir_strategies import Scope, expressions, integer_types
from tests._support.tir_tools import evaluate

from uma.errors import InternalError
from uma.tir.form.dtype import bounds
from uma.tir.form.nodes import Bin, Buffer, Call, Cast, Expr, Imm, Select, Un, Var, const, maximum, minimum
from uma.tir.proofs.intervals import Bounds, fits, interval

i, j = Var("i"), Var("j")
k, u, wide = Var("k", "int8"), Var("u", "uint8"), Var("wide", "int64")
f = Var("f", "float32")
RANGES = {i: (0, 9), j: (-3, 5), k: (-128, 127), u: (3, 200), wide: (-10, 10)}
x = Buffer("x", (4,), "int16")


def op(name: str, a: Expr, b: Any) -> Expr:
    return Bin(name, a, const(b, a.dtype))


ALL = bounds("int32")
EXAMPLES: list[tuple[Expr, tuple[int, int]]] = [
    (const(7), (7, 7)),
    (Imm(True, "bool"), (1, 1)),
    (i, (0, 9)),
    (Var("free", "uint16"), (0, 65535)),
    (x[i], (-32768, 32767)),
    (i + j, (-3, 14)),
    (i - j, (-5, 12)),
    (i * j, (-27, 45)),
    (i * -2, (-18, 0)),
    (k + k, (-128, 127)),
    (u + 55, (58, 255)),
    (u + 56, (0, 255)),
    (u - 3, (0, 197)),
    (u - 4, (0, 255)),
    (i // 4, (0, 2)),
    (j // 4, (-1, 1)),
    (i // -4, (-3, 0)),
    (i // (j + 4), (0, 9)),
    (i // j, (-9, 9)),
    (i // const(0), (0, 0)),
    (k // const(-1, "int8"), (-128, 127)),
    (op("truncdiv", j, 4), (0, 1)),
    (op("truncdiv", j, -2), (-2, 1)),
    (i % 4, (0, 3)),
    (i % 16, (0, 9)),
    ((i + 17) % 16, (1, 10)),
    (j % 4, (0, 3)),
    (j % -4, (-3, 0)),
    (i % (j + 4), (0, 8)),
    (j % (j + 4), (0, 8)),
    (i % j, (-2, 4)),
    (i % const(0), (0, 0)),
    (const(7) // i, (0, 7)),
    (const(7) % (i + 2), (0, 7)),
    (minimum(i, j), (-3, 5)),
    (maximum(i, 3), (3, 9)),
    (i << 2, (0, 36)),
    (i << j, (0, 288)),
    (k << const(1, "int8"), (-128, 127)),
    (i << 32, ALL),
    (j >> 1, (-2, 2)),
    (i & 3, (0, 3)),
    (j & 3, (0, 3)),
    (j & -4, (-8, 7)),
    (Bin("bitand", Imm(-127, "int32"), Imm(-4, "int32")), (-128, -128)),
    (Bin("bitor", Imm(-127, "int32"), Imm(4, "int32")), (-123, -123)),
    (Bin("bitxor", Imm(5, "int32"), Imm(-4, "int32")), (-7, -7)),
    (i | 3, (3, 15)),
    (j | -4, (-8, 7)),
    (i ^ 3, (0, 15)),
    (j ^ 3, (-8, 7)),
    (i < 10, (1, 1)),
    (i < 9, (0, 1)),
    (i < 0, (0, 0)),
    (i <= 9, (1, 1)),
    (i > 9, (0, 0)),
    (i >= 0, (1, 1)),
    (i.equal(10), (0, 0)),
    (i.equal(9), (0, 1)),
    (const(3).equal(3), (1, 1)),
    (i.not_equal(10), (1, 1)),
    (const(3).not_equal(3), (0, 0)),
    (f < 1.0, (0, 1)),
    ((i < 10) & (j < 9), (1, 1)),
    ((i < 10) & (j > 9), (0, 0)),
    ((i < 5) | (j < 9), (1, 1)),
    (~(i < 10), (0, 0)),
    (-j, (-5, 3)),
    (-k, (-128, 127)),
    (Un("abs", j), (0, 5)),
    (Un("abs", j - 9), (4, 12)),
    (Un("abs", k), (-128, 127)),
    (Cast(j, "int8"), (-3, 5)),
    (Cast(j, "uint8"), (0, 255)),
    (Cast(f, "int8"), (-128, 127)),
    (Cast(i + 1, "bool"), (1, 1)),
    (Cast(i, "bool"), (0, 1)),
    (Cast(i * 0, "bool"), (0, 0)),
    (Select(i < 5, i, j), (-3, 9)),
    (Select(i < 10, i, j), (0, 9)),
    (Select(i > 10, i, j), (-3, 5)),
    (Call("clz", i + 1), (28, 31)),
    (Call("clz", j), (0, 32)),
    (Call("mul_high", i, const(2**30)), (0, 5)),
]


@pytest.mark.parametrize(("expr", "expected"), EXAMPLES, ids=range(len(EXAMPLES)))
def test_intervals(expr: Expr, expected: tuple[int, int]) -> None:
    assert interval(expr, RANGES) == expected


def test_floats_have_none() -> None:
    with pytest.raises(InternalError, match="an expression of float32 has no integer interval"):
        interval(f, {})


def test_what_may_wrap() -> None:
    known = Bounds(RANGES)
    assert known.may_wrap(u + 56) and not known.may_wrap(u + 55)
    assert known.may_wrap(-k) and known.may_wrap(Cast(j, "uint8")) and not known.may_wrap(i * j)
    assert known.exact(u + 56) == (59, 256)
    assert fits((-128, 127), "int8") and not fits((-129, 127), "int8")


def ranges_after(condition: Expr, holds: bool = True) -> tuple[tuple[int, int], tuple[int, int]] | None:
    known = Bounds(RANGES).assume(condition, holds)
    return None if known is None else (known.interval(i), known.interval(j))


WIDE = (-3, 5)
LEARNT: list[tuple[Expr, object]] = [
    (i < 4, ((0, 3), WIDE)),
    (i <= 4, ((0, 4), WIDE)),
    (i > 4, ((5, 9), WIDE)),
    (i >= 4, ((4, 9), WIDE)),
    (const(4) > i, ((0, 3), WIDE)),
    (i.equal(4), ((4, 4), WIDE)),
    (i.not_equal(0), ((1, 9), WIDE)),
    (i.not_equal(9), ((0, 8), WIDE)),
    (i.not_equal(4), ((0, 9), WIDE)),
    (~(i < 4), ((4, 9), WIDE)),
    (~((i < 4) | (j < 0)), ((4, 9), (0, 5))),
    ((i < 4) & (j > 2), ((0, 3), (3, 5))),
    (i + 1 < 4, ((0, 2), WIDE)),
    (i - 1 >= 0, ((1, 9), WIDE)),
    (const(10) - i < 4, ((7, 9), WIDE)),
    (i * 2 - 1 >= 2, ((2, 9), WIDE)),
    (i * -2 > -5, ((0, 2), WIDE)),
    (-i > -4, ((0, 3), WIDE)),
    (i // 2 < 2, ((0, 3), WIDE)),
    (Cast(i, "int64") < 4, ((0, 3), WIDE)),
    (i < j, ((0, 4), (1, 5))),
    (i + j > 12, ((8, 9), (4, 5))),
    (i < 0, None),
    ((i < 3) & (i > 5), None),
    (i.equal(j - 6), None),
    (i.not_equal(i * 0) & (i < 1), None),
    (x[i] < 3, ((0, 9), WIDE)),
    (f < 3.0, ((0, 9), WIDE)),
]


@pytest.mark.parametrize(("condition", "expected"), LEARNT, ids=range(len(LEARNT)))
def test_what_a_condition_says_of_variables(condition: Expr, expected: object) -> None:
    assert ranges_after(condition) == expected
    assert ranges_after(~condition, holds=False) == expected


def test_what_a_condition_says_of_itself() -> None:
    known = Bounds(RANGES)
    condition = (i * j) < 7
    under = known.assume(condition)
    assert under is not None and under.decide(condition) is True and known.decide(condition) is None
    assert under.interval(i * j) == (-27, 6)
    assert known.assume(i < 10) is known
    # What depends on memory may be otherwise after the next store.
    assert known.assume(x[i] < 3) is known


def test_declared_variables() -> None:
    inner = Bounds(RANGES).declare(Var("n"), (2, 3))
    assert inner.interval(Var("n") + i) == (2, 12)


VARIABLES = (i, j, k, u, wide, Var("b", "bool"), Var("f", "float64"))
DTYPES = ("int8", "uint8", "int32", "uint32", "int64", "bool", "float64")


@st.composite
def situations(draw: st.DrawFn) -> tuple[dict[Var, tuple[int, int]], dict[Var, object]]:
    """Ranges of variables, and values within them."""
    ranges, values = {}, {}
    for var in VARIABLES:
        if var.dtype == "float64":
            values[var] = draw(st.floats())
            continue
        low, high = bounds(var.dtype)
        value = draw(st.integers(max(low, -20), min(high, 20)) | st.sampled_from([low, high]))
        ranges[var] = (max(low, value - draw(st.integers(0, 9))), min(high, value + draw(st.integers(0, 9))))
        values[var] = bool(value) if var.dtype == "bool" else value
    return ranges, values


SCOPE = Scope(variables=VARIABLES, dtypes=DTYPES)


@given(situations(), st.one_of(integer_types(), st.just("bool")).flatmap(lambda dtype: expressions(dtype, SCOPE)))
def test_no_value_is_outside(situation: tuple, expr: Expr) -> None:
    ranges, values = situation
    low, high = interval(expr, ranges)
    assert low <= evaluate(expr, values) <= high


@given(situations(), expressions("bool", SCOPE), expressions("int32", SCOPE))
def test_no_value_is_outside_under_a_condition_that_holds(situation: tuple, condition: Expr, expr: Expr) -> None:
    ranges, values = situation
    known = Bounds(ranges).assume(condition, bool(evaluate(condition, values)))
    assert known is not None
    low, high = known.interval(expr)
    assert low <= evaluate(expr, values) <= high
    for var in VARIABLES[:-1]:
        low, high = known.interval(var)
        assert low <= values[var] <= high
