"""The verifier: one test for each thing that the specification forbids."""

from __future__ import annotations

import pytest

from uma.errors import InternalError
from uma.tir.form.nodes import (
    Alloc,
    Bind,
    Block,
    Buffer,
    Expr,
    For,
    If,
    Param,
    PrimFunc,
    Stmt,
    Store,
    Update,
    Var,
    const,
    seq,
)
from uma.tir.form.text import parse_func
from uma.tir.form.verify import MAX_NESTING, MAX_SCOPES, faults, verify

x, y = Buffer("x", (4,), "int32"), Buffer("y", (4,), "int32")
i, v = Var("i"), Var("v")
zero = const(0)
write = Store(y, (zero,), zero)


def function(*stmts: Stmt, params: tuple[Param, ...] = ()) -> PrimFunc:
    """A function of x and y that writes y, then does ``stmts``."""
    return PrimFunc((Param(x, "input"), Param(y, "output"), *params), seq(write, *stmts))


def test_a_good_function_passes() -> None:
    _, func = parse_func(
        """
@prim_func
def f(x: In[int32, (4,)], y: Out[int32, (4,)], t: Workspace[int32, (4,)]):
    may_alias(y, x)
    with block("all"):
        for i in parallel(4):
            v: int32 = x[i]
            s = alloc(int32, ())
            s[()] = v
            t[i] = s[()]
            t[i] += 1
            y[i] = t[i]
"""
    )
    verify(func)
    assert list(faults(func)) == []


LOCAL = Buffer("t", (2,), "int32", "local")
BITS = Buffer("bits", (2,), "bool", "local")


@pytest.mark.parametrize(
    ("stmt", "what", "where"),
    [
        (Store(y, (i,), zero), "'i' is used outside its scope", "y[i] = 0"),
        (seq(For(i, const(2), write), Store(y, (i,), zero)), "'i' is used outside its scope", "y[i] = 0"),
        (For(i, i + 1, write), "'i' is used outside its scope", "for i in range(i + 1):"),
        (Bind(v, v, write), "'v' is used outside its scope", "v: int32 = v"),
        (Store(LOCAL, (zero,), zero), "'t' is used outside its scope", "t[0] = 0"),
        (Store(y, (zero,), LOCAL[0]), "'t' is used outside its scope", "y[0] = t[0]"),
        (
            For(i, const(2), Store(y, (zero,), Var("i", "int8").astype("int32"))),
            "'i' is used as a variable of int8 and declared as a variable of int32",
            "y[0] = int32(i)",
        ),
        (
            Store(Buffer("y", (5,), "int32"), (zero,), zero),
            "'y' is used as a global buffer of int32 and shape (5,), aligned to 4 bytes and declared as a global",
            "y[0] = 0",
        ),
        (
            For(Var("x"), const(2), Store(y, (zero,), Var("x"))),
            "'x' is declared twice",
            "for x in range(2):",
        ),
        (seq(For(i, const(2), write), For(i, const(3), write)), "'i' is declared twice", "for i in range(3):"),
        (Alloc(Buffer("y", (1,), "int8", "local"), write), "'y' is declared twice", "y = alloc(int8, (1,))"),
        (For(Var("is"), const(2), write), "'is' cannot be a name", "for is in range(2):"),
        (For(Var("größe"), const(2), write), "'größe' cannot be a name", "for größe in range(2):"),
        (Block("größe", write), "label 'größe' is not an ASCII identifier", 'with block("größe"):'),
        (seq(Block("a", write), Block("a", write)), "label 'a' is used twice", 'with block("a"):'),
        (Store(x, (zero,), zero), "input 'x' is written", "x[0] = 0"),
        (Update("add", x, (zero,), zero), "input 'x' is written", "x[0] += 0"),
        (
            Alloc(Buffer("t", (2,), "int8", "global"), write),
            "buffer 't' is allocated in scope 'global', not 'local'",
            't = alloc(int8, (2,), scope("global"))',
        ),
        (
            Alloc(Buffer("t", (2**16, 2**15), "int8", "local"), write),
            "buffer 't' has 2**31 elements or more",
            "t = alloc(int8, (65536, 32768))",
        ),
        (
            Alloc(Buffer("t", (2,), "int8", "local", 8192), write),
            "buffer 't' is aligned to more than 4096 bytes",
            "t = alloc(int8, (2,), align(8192))",
        ),
        (
            Alloc(BITS, Update("min", BITS, (zero,), zero < 1)),
            "'bits' is bool and cannot be updated with min",
            "update_min(bits[0], int32(0) < 1)",
        ),
    ],
)
def test_malformed_statements(stmt: Stmt, what: str, where: str) -> None:
    with pytest.raises(InternalError) as caught:
        verify(function(stmt))
    assert f"malformed loops: {what}" in caught.value.what
    assert caught.value.where == where


def test_malformed_parameters() -> None:
    big = Param(Buffer("w", (2**31,), "int8"), "constant")
    with pytest.raises(InternalError, match="2\\*\\*31 elements or more\n  where: parameter 'w'"):
        verify(function(params=(big,)))
    with pytest.raises(InternalError, match="'def' cannot be a name"):
        verify(function(params=(Param(Buffer("def", (1,), "int8"), "constant"),)))
    with pytest.raises(InternalError, match="constant 'w' is written\n  where: w\\[0\\] = 0"):
        w = Buffer("w", (1,), "int32")
        verify(function(Store(w, (zero,), zero), params=(Param(w, "constant"),)))
    with pytest.raises(InternalError, match="output 'y' is never written\n  where: parameter 'y'"):
        verify(PrimFunc((Param(y, "output"),), seq()))


def test_all_faults_are_listed_in_order() -> None:
    func = function(Store(x, (zero,), i), Store(x, (i,), zero))
    assert [what for what, _ in faults(func)] == [
        "'i' is used outside its scope",
        "input 'x' is written",
        "'i' is used outside its scope",
        "input 'x' is written",
    ]


def nested(expr: Expr, levels: int) -> Expr:
    for _ in range(levels):
        expr = -expr
    return expr


def test_depth_of_expressions() -> None:
    verify(function(Store(y, (zero,), nested(x[0], MAX_NESTING - 2))))
    for levels in (MAX_NESTING - 1, 10_000):
        with pytest.raises(
            InternalError, match="an expression is nested too deeply\n  where: a statement of kind Store"
        ):
            verify(function(Store(y, (zero,), nested(x[0], levels))))


def test_depth_of_statements() -> None:
    def conditions(count: int) -> Stmt:
        stmt: Stmt = write
        for _ in range(count):
            stmt = If(zero < 1, stmt)
        return stmt

    def binds(count: int) -> Stmt:
        stmt: Stmt = write
        for number in range(count):
            stmt = Bind(Var(f"v{number}"), zero, stmt)
        return stmt

    verify(function(conditions(MAX_NESTING - 1)))
    verify(function(binds(MAX_SCOPES)))
    for stmt in (conditions(MAX_NESTING), binds(MAX_SCOPES + 1), conditions(10_000), binds(10_000)):
        with pytest.raises(InternalError, match="statements are nested too deeply"):
            verify(function(stmt))
