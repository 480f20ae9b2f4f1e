"""Arrays on the stack aligned as little as can be."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from tests._support.tir_tools import func as func_of

from uma.tir import (
    INDEX,
    Alloc,
    Axis,
    Block,
    Buffer,
    Exec,
    For,
    Imm,
    Intrinsic,
    Param,
    PrimFunc,
    Stmt,
    Store,
    Var,
    View,
    interpret,
    seq,
)
from uma.tir.form.verify import verify
from uma.tir.form.visit import statements
from uma.tir.rewrites.local_alignment import least_aligned

SUMS = """
def f(x: In[int8, (4,)], out: Out[int8, (4,)]):
    a = alloc(int32, (4,), align(64))
    b = alloc(int8, (4,), align({align}))
    for i in range(4):
        a[i] = int32(x[i]) * 3
        b[i] = x[i]
    for j in {loop}(4):
        out[j] = int8(a[j]) + b[j]
"""


def alignments(func: PrimFunc) -> list[int]:
    return [stmt.buffer.alignment for stmt in statements(func.body) if isinstance(stmt, Alloc)]


def test_arrays_have_the_alignment_of_their_elements() -> None:
    func = func_of(SUMS.format(align=64, loop="range"))
    made = least_aligned(func)
    verify(made)
    assert (alignments(func), alignments(made)) == ([64, 64], [4, 1])
    x = np.array([1, -2, 30, -40], np.int8)
    assert (interpret(made, {"x": x})["out"] == interpret(func, {"x": x})["out"]).all()
    assert least_aligned(made) is made


def test_loops_over_vectors_keep_what_they_have() -> None:
    func = func_of(SUMS.format(align=64, loop="vectorized"))
    assert least_aligned(func) is func


def test_what_an_intrinsic_asks_for_stays() -> None:
    at = Var("i")
    given = Buffer("given", (4,), "int8", alignment=16)
    body = For(at, Imm(4, INDEX), Store(given, (at,), Imm(1, "int8")))
    ones = Intrinsic("ones", (given,), (), body, statement="ones({given})")
    local, out = Buffer("a", (4,), "int8", "local", 64), Buffer("out", (4,), "int8")
    zero = (Imm(0, INDEX),)

    def parts() -> Iterator[Stmt]:
        yield Exec(ones, (View(local, zero, (Axis(0, 1),)),))
        yield For(at, Imm(4, INDEX), Store(out, (at,), local[at]))

    func = PrimFunc((Param(out, "output"),), Alloc(local, Block("all", seq(*parts()))))
    made = least_aligned(func)
    verify(made)
    assert alignments(made) == [16]
    assert (interpret(made, {})["out"] == 1).all()
