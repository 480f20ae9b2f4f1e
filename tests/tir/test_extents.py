"""Open extents: what integers do, as far as it holds for every value."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from uma.errors import InternalError, ModelError
from uma.tir.form.interp import interpret
from uma.tir.form.nodes import Bind, Buffer, Imm, Param, PrimFunc, Store, Var, const
from uma.tir.form.symbolic_dims import (
    Extent,
    OpenExtentError,
    Symbol,
    bounds_of,
    format_extents,
    parse_extent,
    parse_extents,
    substitute_symbols,
    symbols_of,
    upper_bounds,
)
from uma.tir.form.visit import substitute

N, M = Symbol("n", 1, 4), Symbol("m", 2, 3)
n, m = Extent.from_symbol(N), Extent.from_symbol(M)
VALUES = [{"n": a, "m": b} for a in range(1, 5) for b in (2, 3)]


@st.composite
def extents(draw: st.DrawFn) -> Any:
    """A polynomial of small factors."""
    total: Any = draw(st.integers(-3, 3))
    for _ in range(draw(st.integers(0, 3))):
        part: Any = draw(st.integers(-3, 3))
        for symbol in draw(st.lists(st.sampled_from([n, m]), max_size=2)):
            part = part * symbol
        total = total + part
    return total


def at(extent: Any, values: dict[str, int]) -> int:
    return substitute_symbols([extent], values)[0]


@given(
    extents(), extents(), st.sampled_from([operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod])
)
def test_arithmetic_is_that_of_every_value(a: Any, b: Any, op: Callable[..., Any]) -> None:
    try:
        made = op(a, b)
    except (OpenExtentError, ZeroDivisionError):
        assert op in (operator.floordiv, operator.mod)
        return
    for values in VALUES:
        assert at(made, values) == op(at(a, values), at(b, values))


@given(extents(), extents(), st.sampled_from([operator.lt, operator.le, operator.gt, operator.ge]))
def test_an_order_is_that_of_every_value(a: Any, b: Any, op: Callable[..., bool]) -> None:
    try:
        decided = op(a, b)
    except OpenExtentError as error:
        assert "depends on the extent" in error.what
        return
    assert {op(at(a, values), at(b, values)) for values in VALUES} == {decided}


@given(extents(), extents())
def test_what_is_equal_is_so_for_every_value(a: Any, b: Any) -> None:
    same = [at(a, values) == at(b, values) for values in VALUES]
    if a == b:
        assert all(same)
        assert hash(a) == hash(b)
    if isinstance(a, Extent):
        try:
            assert {a.equals(b)} == set(same)
        except OpenExtentError:
            assert a != b


@given(extents())
def test_bounds_hold_every_value_and_text_is_read_back(a: Any) -> None:
    low, high = bounds_of(a)
    assert all(low <= at(a, values) <= high for values in VALUES)
    assert upper_bounds([a]) == (high,)
    assert parse_extent(str(a)) == a


@given(extents())
def test_an_expression_computes_the_value(a: Any) -> None:
    out, held = Buffer("out", (1,), "int32"), [Buffer("a", (1,), "int32"), Buffer("b", (1,), "int32")]
    names = {N: Var("a0"), M: Var("b0")}
    inner = Store(out, (Imm(0, "int32"),), substitute(const(a), names))
    store = Bind(names[N], held[0][0], Bind(names[M], held[1][0], inner))
    func = PrimFunc((Param(held[0], "input"), Param(held[1], "input"), Param(out, "output")), store)
    got = interpret(func, {"a": np.array([3], np.int32), "b": np.array([2], np.int32)})
    assert got["out"][0] == at(a, {"n": 3, "m": 2})


@pytest.mark.parametrize(
    ("asked", "what"),
    [
        (lambda: range(n), "a number is needed"),
        (lambda: float(n), "a number is needed"),
        (lambda: n < 2, "is less than"),
        (lambda: n // 2, "what is left of"),
        (lambda: 12 // n, "divided by"),
        (lambda: bool(n - 2), "whether n[1:4] - 2 is 0"),
        (lambda: n.equals(1), "whether n[1:4] is 1"),
    ],
)
def test_what_depends_on_the_value_is_refused(asked: Callable[[], object], what: str) -> None:
    with pytest.raises(OpenExtentError) as caught:
        asked()
    assert what in caught.value.what


@pytest.mark.parametrize(
    "text",
    ["", "n", "n[1]", "n[4:1]", "n[-1:4]", "n[1:99999999999]", "n[1:4]+1", "1 + n[1:4]", "n[1:4]*2", "é[1:4]", "-"],
)
def test_what_is_no_extent_is_refused(text: str) -> None:
    with pytest.raises(ModelError) as caught:
        parse_extent(text)
    assert "is not an extent" in caught.value.what


def test_extents_are_one_text() -> None:
    assert parse_extents(format_extents((1, n, 3 * m + 2))) == (1, n, 3 * m + 2)
    assert symbols_of((1, n * m, m)) == (M, N)
    with pytest.raises(ModelError) as caught:
        parse_extents("1, 2")
    assert "has no open extent" in caught.value.what


@pytest.mark.parametrize("bounds", [(-1, 4), (4, 4), (5, 4), (1, 2**31)])
def test_a_symbol_has_several_values(bounds: tuple[int, int]) -> None:
    with pytest.raises(InternalError) as caught:
        Symbol("n", *bounds)
    assert "extent 'n' is" in caught.value.what


def test_a_symbol_is_known_by_name_and_bounds() -> None:
    assert Symbol("n", 1, 4) is N
    assert Symbol("n", 1, 5) is not N
    assert Extent.from_symbol(Symbol("n", 1, 5)) != n
