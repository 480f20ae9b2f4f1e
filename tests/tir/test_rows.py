"""Functions by rows: what their forms check, which rows a run touches, and what one run does."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests._support.c_programs import SANITIZED, Run, run_compiled

from uma.codegen.kernel import kernel_prototype, kernel_source
from uma.errors import InternalError
from uma.tir import (
    Buffer,
    InterpreterError,
    Load,
    Param,
    PrimFunc,
    RowForm,
    RowParam,
    Store,
    Var,
    flatten,
    interpret,
    interpret_row,
    parse_func,
    print_func,
    simplify,
    unroll,
)
from uma.tir.proofs.accumulator_bounds import exact_sums
from uma.tir.proofs.obligations import unproven

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
        (lambda: _func(RowParam("z", 4)), "'z' lies by rows, and is neither an input nor an output"),
        (lambda: _func(RowParam("x", 5)), "'x' lies by rows, and its 12 elements are not 5 equal rows"),
        (lambda: _func(RowParam("y", 4), extent=2), "'y' lies by rows, and is not an output made by 2 rows"),
        (lambda: _func(RowParam("y", 4, before=1)), "'y' lies by rows, and is not an output made by 4 rows"),
    ],
)
def test_a_bad_row_form_cannot_be_built(build: Callable[[], object], what: str) -> None:
    with pytest.raises(InternalError, match=re.escape(what)):
        build()


SUM3 = """
@prim_func
def sum3(
    x: In[int16, (6, 4)],
    y: Out[int16, (6, 4)],
    n: Out[int32, (1,)],
    a: Workspace[int32, (1,)],
    t: Workspace[int16, (4,)],
):
    rows(r, 6)
    by_rows(x, 6, window=3, before=1)
    by_rows(y, 6)
    kept(a)
    if r == 0:
        a[0] = 0
    for i in range(4):
        t[i] = (x[r - 1, i] if r >= 1 else 0) + (x[r + 1, i] if r < 5 else 0)
    for j in range(4):
        y[r, j] = x[r, j] + t[j]
        a[0] += int32(t[j])
    if r == 5:
        n[0] = a[0]
"""
"""A sum of three rows, and the sum of all neighbours."""

_, FUNC = parse_func(SUM3)
DATA = np.arange(24, dtype=np.int16).reshape(6, 4) * 7 - 30


def _expected() -> dict[str, np.ndarray]:
    zero = np.zeros((1, 4), np.int16)
    beside = np.concatenate([zero, DATA[:-1]]) + np.concatenate([DATA[1:], zero])
    return {"y": DATA + beside, "n": np.array([beside.sum()], np.int32)}


def test_a_function_by_rows_reads_back_as_it_was() -> None:
    lines = ["rows(r, 6)", "by_rows(x, 6, window=3, before=1)", "by_rows(y, 6)", "kept(a)"]
    assert "".join(f"    {line}\n" for line in lines) in print_func(FUNC, "f")
    assert parse_func(print_func(FUNC, "sum3"))[1] is FUNC


@pytest.mark.parametrize("form", [lambda func: func, lambda func: unroll(flatten(simplify(func)))])
def test_run_as_a_whole_it_does_all_rows(form: Callable[[PrimFunc], PrimFunc], tmp_path: Path) -> None:
    func = form(FUNC)
    assert func.rows is FUNC.rows
    assert unproven(func) is None
    shape = func.params[0].buffer.shape
    expected = _expected()
    (compiled,) = run_compiled([Run(func, {"x": DATA.reshape(shape)})], "gcc", SANITIZED, tmp_path)
    for found in (interpret(func, {"x": DATA.reshape(shape)}), compiled):
        for name, array in found.items():
            np.testing.assert_array_equal(array.ravel(), expected[name].ravel())


def test_one_row_needs_the_rows_that_it_touches_and_no_others() -> None:
    rows = FUNC.rows
    assert rows is not None
    found, kept, end = [], [None], [None]
    for row in range(6):
        held = rows.params[0].touched(row)
        x = DATA[held.start : held.stop].ravel().tolist()
        memory = {"x": x, "y": [None] * 4, "n": end, "a": kept, "t": [None] * 4}
        interpret_row(FUNC, row, memory, {"x": held.start, "y": row})
        found += memory["y"]
    assert found == _expected()["y"].ravel().tolist()
    assert end == _expected()["n"].tolist()


def _memory(**other: list[int | None]) -> dict[str, list[int | None]]:
    return {"x": [1] * 24, "y": [None] * 24, "n": [None], "a": [0], "t": [None] * 4, **other}


@pytest.mark.parametrize(
    ("func", "row", "memory", "first", "what"),
    [
        (FUNC, 6, _memory(), {}, "the function has no row 6"),
        (FUNC.whole(), 0, _memory(), {}, "the function has no row 0"),
        (FUNC, 0, {**_memory(), "z": []}, {}, "parameters are missing or unknown: z"),
        (FUNC, 0, _memory(), {"t": 1}, "parameters are missing or unknown: t"),
        (FUNC, 0, _memory(x=[1] * 10), {}, "10 elements from row 0 on cannot be what is held of 'x'"),
        (FUNC, 0, _memory(x=[1] * 12), {"x": 4}, "12 elements from row 4 on cannot be what is held of 'x'"),
        (FUNC, 0, _memory(t=[1] * 8), {}, "8 elements from row 0 on cannot be what is held of 't'"),
        (FUNC, 2, _memory(x=[1] * 8), {"x": 2}, "element 4 of 'x' lies in a row that is not held"),
        (FUNC, 2, _memory(y=[1] * 4), {"y": 3}, "element 8 of 'y' lies in a row that is not held"),
        (FUNC, 2, _memory(x=[None] * 24), {}, "an element of 'x' is read before it is written"),
    ],
)
def test_one_row_that_cannot_be_run(
    func: PrimFunc, row: int, memory: dict[str, list[int | None]], first: dict[str, int], what: str
) -> None:
    with pytest.raises(InterpreterError, match=re.escape(what)):
        interpret_row(func, row, memory, first)


def test_its_c_takes_the_row_and_the_first_elements_that_are_held() -> None:
    prototype = kernel_prototype("f", flatten(FUNC))
    assert prototype.endswith("int16_t *restrict t_,\n    int32_t r_,\n    int32_t x_from_,\n    int32_t y_from_)")
    text = kernel_source("f", flatten(FUNC))
    assert "y_[r_ * 4 + j_ - y_from_] =" in text
    assert "x_[(r_ - 1) * 4 + i_ - x_from_]" in text
    assert "a_[0] = 0;" in text


def test_a_row_and_first_elements_that_nobody_reads_are_no_warning(tmp_path: Path) -> None:
    source = "@prim_func\ndef f(x_from: In[int8, (3,)], x: In[int8, (3,)], y: Out[int8, (2,)]):\n"
    source += "    rows(r, 1)\n    by_rows(x, 3)\n    y[0] = 1\n    y[1] = x_from[2]\n"
    _, func = parse_func(source)
    run = Run(func, {"x_from": np.array([1, 2, 3], np.int8), "x": np.zeros(3, np.int8)})
    (found,) = run_compiled([run], "gcc", SANITIZED, tmp_path)
    assert found["y"].tolist() == [1, 3]


def test_sums_over_rows_that_cannot_overflow_are_plain() -> None:
    assert {buffer.name for buffer in exact_sums(FUNC)} == {"a"}
