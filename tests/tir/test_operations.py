"""How many operations loops take, counted by hand."""

from __future__ import annotations

from typing import Any

import pytest

from uma.tir.form.nodes import (
    Axis,
    Buffer,
    Exec,
    For,
    If,
    Imm,
    Intrinsic,
    Load,
    Param,
    PrimFunc,
    Stmt,
    Store,
    Var,
    View,
    seq,
)
from uma.tir.form.rows import RowForm, RowParam
from uma.tir.proofs.operations import operations

K, J = Var("k", "int32"), Var("j", "int32")
X, Y = Buffer("x", (8,), "int32"), Buffer("y", (8,), "int32")


def func(body: Stmt, rows: RowForm | None = None) -> PrimFunc:
    return PrimFunc((Param(X, "input"), Param(Y, "output")), body, rows=rows)


def times(extent: Var | int, body: Stmt, var: Var = K, kind: Any = "serial") -> For:
    return For(var, extent if isinstance(extent, Var) else Imm(extent, "int32"), body, kind)


COPY = Store(Y, (K,), Load(X, (K,)))
SUM = Store(Y, (K * 2 + 1,), Load(X, (K,)) + 3)


@pytest.mark.parametrize(
    ("body", "count"),
    {
        "a load and a store a turn, and the turn": (times(8, COPY), 8 * 4),
        "an addition; indices are free": (times(8, SUM), 8 * 5),
        "unrolled": (times(8, COPY, kind="unrolled"), 8 * 2),
        "lanes of a vector": (times(8, COPY, kind="vectorized"), 4),
        "the longer of two branches": (times(8, If(K < 3, COPY, seq(COPY, SUM))), 8 * (1 + 5 + 2)),
        "the largest of extents that vary": (times(8, times(K, COPY, J)), 8 * (7 * 4 + 2)),
    }.values(),
)
def test_operations_are_counted_in_loops(body: Stmt, count: int) -> None:
    assert operations(func(body)) == count


def test_an_instruction_is_one_operation() -> None:
    both = (Buffer("a", (4,), "int32"), Buffer("b", (4,), "int32"))
    effect = For(J, Imm(4, "int32"), Store(both[1], (J,), Load(both[0], (J,))))
    move = Intrinsic("move", both, (), effect, statement="move({b}, {a})")
    views = (View(X, (Imm(0, "int32"),), (Axis(0),)), View(Y, (Imm(0, "int32"),), (Axis(0),)))
    assert operations(func(Exec(move, views))) == 1
    count = Var("n", "int32")
    few = For(J, count, Store(both[1], (J,), Load(both[0], (J,))))
    some = Intrinsic("some", both, (count,), few, statement="some({b}, {a}, {n})")
    assert operations(func(Exec(some, views, (Imm(3, "int32"),)))) == 1
    # What is given a number may be a loop.
    assert operations(func(Exec(some, views, (Imm(300, "int32"),)))) == 300 * 4


def test_a_form_of_one_row_takes_as_many_as_all_of_its_rows() -> None:
    rows = RowForm(K, 8, (RowParam("x", 8), RowParam("y", 8)))
    assert operations(func(COPY, rows)) == 8 * 2
