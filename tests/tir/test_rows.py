"""Functions by rows: what their forms check, and which rows a run touches."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from uma.errors import InternalError
from uma.tir import Buffer, Load, Param, PrimFunc, RowForm, RowParam, Store, Var

ROW = Var("row")
X, Y = Buffer("x", (4, 3), "int8"), Buffer("y", (4, 3), "int8")


def _func(*params: RowParam, extent: int = 4, var: Var = ROW) -> PrimFunc:
    body = Store(Y, (var, var), Load(X, (var, var)))
    return PrimFunc((Param(X, "input"), Param(Y, "output")), body, rows=RowForm(var, extent, params))


@pytest.mark.parametrize(
    ("param", "expected"),
    [
        (RowParam("x", 4), [[0], [1], [2], [3]]),
        (RowParam("x", 4, window=3, before=1), [[0, 1], [0, 1, 2], [1, 2, 3], [2, 3]]),
        (RowParam("x", 8, window=3, stride=2), [[0, 1, 2], [2, 3, 4], [4, 5, 6], [6, 7]]),
        (RowParam("x", 2, before=1), [[], [0], [1], []]),
        (RowParam("x", 6, before=-2), [[2], [3], [4], [5]]),
        (RowParam("x", 1, window=2, before=5), [[], [], [], []]),
    ],
)
def test_a_run_touches_the_rows_of_its_window_that_there_are(param: RowParam, expected: list[list[int]]) -> None:
    assert [list(param.touched(row)) for row in range(4)] == expected


def test_a_row_form_knows_its_parameters_by_name() -> None:
    form = RowForm(ROW, 4, (RowParam("x", 4), RowParam("y", 4)))
    assert form.of("y") is form.params[1]
    assert form.of("z") is None


@pytest.mark.parametrize(
    ("build", "what"),
    [
        (lambda: RowParam("x", 0), "rows of 'x' have height 0"),
        (lambda: RowParam("x", 4, window=0), "rows of 'x' have window 0"),
        (lambda: RowParam("x", 4, stride=0), "rows of 'x' have stride 0"),
        (lambda: RowParam("x", 4, before=2**31), "rows of 'x' have before 2147483648"),
        (lambda: RowParam("x", True), "rows of 'x' have height True"),
        (lambda: RowForm(Var("row", "int64"), 4, ()), "row 'row' is int64, not int32"),
        (lambda: RowForm(ROW, 0, ()), "there are 0 rows 'row'"),
        (lambda: RowForm(ROW, 4, (RowParam("x", 4), RowParam("x", 2))), "two parameters by rows share a name"),
        (lambda: _func(var=Var("x")), "row 'x' is a parameter too"),
        (lambda: _func(RowParam("z", 4)), "'z' lies by rows, and is no input and no output"),
        (lambda: _func(RowParam("x", 5)), "'x' lies by rows, and its 12 elements are not 5 equal rows"),
        (lambda: _func(RowParam("y", 4), extent=2), "'y' lies by rows, and is not an output made by 2 rows"),
        (lambda: _func(RowParam("y", 4, before=1)), "'y' lies by rows, and is not an output made by 4 rows"),
    ],
)
def test_a_bad_row_form_cannot_be_built(build: Callable[[], object], what: str) -> None:
    with pytest.raises(InternalError, match=what.replace("(", r"\(")):
        build()
