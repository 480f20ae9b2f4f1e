"""The text form: what it looks like, that it reads back as it was, and where its errors point."""

from __future__ import annotations

import ast
import math
import sys
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests._support.tir_strategies import immediates, prim_funcs

from uma.errors import InternalError, TextError
from uma.tir.form.dtype import DTYPES
from uma.tir.form.nodes import (
    Bin,
    Bind,
    Buffer,
    Call,
    Cast,
    Expr,
    For,
    If,
    Imm,
    Param,
    PrimFunc,
    Select,
    Stmt,
    Store,
    Un,
    Var,
    const,
    seq,
)
from uma.tir.form.printer import headline, print_expr, print_stmt
from uma.tir.form.source_text import Source
from uma.tir.form.text import Defined, parse_def, parse_func, print_func
from uma.tir.form.verify import MAX_NESTING, MAX_SCOPES, verify

EVERYTHING = """\
@prim_func
def everything(
    x: In[int8, (1, 4, 6)],
    z: In[float32, ()],
    y: Out[int8, (4, 6), align(16)],
    q: Out[bool, (2,)],
    w: Const[int32, (6,)],
    t: Workspace[float32, (6,), align(64)],
):
    may_alias(y, x)
    overlaps(y, x, -8)
    with block("main"):
        for i in range(4):
            row = alloc(int32, (6,), align(64))
            for j in parallel(6):
                v: int32 = int32(x[0, i, j])
                row[j] = v * w[j] if 0 <= v and v < 9 else abs(v)
                row[j] += 3
                row[j] *= -2
                update_min(row[j], 7)
                update_max(row[j], truncdiv(v, 2))
                if row[j] < v:
                    y[i, j] = int8(row[j])
                elif row[j] == 3 or not v > i:
                    y[i, j] = -1
                else:
                    y[i, j] = 0
            for k in unrolled(min(i, 6)):
                t[k] = float32(k) / z[()] + 1.5 * exp(-z[()])
    q[0] = True
    with block("nothing"):
        pass
    q[1] = t[3] == float32("inf")
"""


def test_the_whole_language() -> None:
    name, func = parse_func(EVERYTHING)
    assert name == "everything"
    assert print_func(func, name) == EVERYTHING


def test_what_is_equal_is_one() -> None:
    assert parse_func(EVERYTHING)[1] is parse_func(EVERYTHING.replace("    ", "  "))[1]


def test_functions_without_parameters_or_statements() -> None:
    empty = PrimFunc((), seq())
    assert print_func(empty, "f") == "@prim_func\ndef f():\n    pass\n"
    assert parse_func(print_func(empty, "f")) == ("f", empty)
    x, y = Param(Buffer("x", (), "int8"), "input"), Param(Buffer("y", (), "int8"), "output")
    func = PrimFunc((x, y), Bind(Var("v"), const(1), seq(Store(y.buffer, (), x.buffer[()]))), (("y", "x"),))
    assert parse_func(print_func(func, "f")) == ("f", func)


def test_a_name_that_is_bound_for_nothing() -> None:
    y = Buffer("y", (1,), "int8")
    stmt = seq(Store(y, (const(0),), Imm(1, "int8")), If(const(0) < 1, Bind(Var("v"), const(3), seq()), seq()))
    func = PrimFunc((Param(y, "output"),), stmt)
    assert parse_func(print_func(func, "f")) == ("f", func)


@given(func=prim_funcs(), name=st.sampled_from(["f", "main", "conv_1"]))
def test_what_is_printed_parses_to_the_very_function(func: PrimFunc, name: str) -> None:
    text = print_func(func, name)
    parsed_name, parsed = parse_func(text)
    assert parsed_name == name
    assert parsed is func
    assert print_func(parsed, name) == text


@given(st.sampled_from(DTYPES).flatmap(immediates))
def test_constants_are_exact(constant: Imm) -> None:
    y = Buffer("y", (), constant.dtype)
    func = PrimFunc((Param(y, "output"),), Store(y, (), constant))
    assert parse_func(print_func(func, "f"))[1] is func


@given(st.floats(width=32), st.floats())
def test_all_floats_are_exact(single: float, double: float) -> None:
    y, z = Buffer("y", (), "float32"), Buffer("z", (), "float64")
    body = seq(Store(y, (), Imm(single, "float32")), Store(z, (), Imm(double, "float64")))
    func = PrimFunc((Param(y, "output"), Param(z, "output")), body)
    assert parse_func(print_func(func, "f"))[1] is func


i, j = Var("i"), Var("j")
f = Var("f", "float32")
b, c = Var("b", "bool"), Var("c", "bool")
n = Var("n", "uint64")
half = Imm(0.5, "float32")
SPELLINGS: list[tuple[Expr, str]] = [
    (i + 1 - j, "i + 1 - j"),
    (i - (const(1) - j), "i - (1 - j)"),
    ((i + 1) * j, "(i + 1) * j"),
    (i + j * 2, "i + j * 2"),
    (i * (j // 2), "i * (j // 2)"),
    (i // 2 % 3, "i // 2 % 3"),
    (-(i + j), "-(i + j)"),
    (-i * j, "-i * j"),
    (Un("neg", -i), "--i"),
    (i - -j, "i - -j"),
    (i - const(-3), "i - -3"),
    (const(-3) - i, "-3 - i"),
    (Un("neg", const(3)), "neg(int32(3))"),
    (i + Un("neg", const(-3)), "i + neg(-3)"),
    (-Cast(i, "int8"), "-int8(i)"),
    (Un("abs", i), "abs(i)"),
    (i << 1 + i, "i << 1 + i"),
    ((i << 1) + i, "(i << 1) + i"),
    (i & 1 | j ^ 3, "i & 1 | j ^ 3"),
    (i & (1 | j), "i & (j | 1)") if False else (i & (j | 1), "i & (j | 1)"),
    ((i < j) & (j < 3), "i < j and j < 3"),
    (b & (b & c), "b and (b and c)"),
    (b & c & b, "b and c and b"),
    ((b | c) & b, "(b or c) and b"),
    (b | c & b, "b or c and b"),
    (~(b | c), "not (b or c)"),
    (~b & ~(i < j), "not b and not i < j"),
    (Bin("eq", ~b, c), "(not b) == c"),
    (Bin("eq", i < j, b), "(i < j) == b"),
    (Bin("eq", b, Imm(True, "bool")), "b == True"),
    (const(0) <= i, "0 <= i"),
    (const(1) < 2, "int32(1) < 2"),
    (Imm(3, "uint64") < n, "3 < n"),
    (Imm(2**64 - 1, "uint64"), "uint64(18446744073709551615)"),
    (Bin("min", i, const(3)), "min(i, 3)"),
    (Bin("max", const(3), i), "max(3, i)"),
    (Bin("truncdiv", const(3), const(2)) < i, "truncdiv(int32(3), 2) < i"),
    (Select(b, i, const(2)), "i if b else 2"),
    (Select(b, const(1), const(2)), "int32(1) if b else 2"),
    (Select(b, i, Select(c, j, i)), "i if b else j if c else i"),
    (Select(b, Select(c, j, i), i), "(j if c else i) if b else i"),
    (Select(Select(b, c, b), i, j), "i if (c if b else b) else j"),
    (Select(b, i, j) + 1, "(i if b else j) + 1"),
    (Cast(Select(b, i, j), "int8"), "int8(i if b else j)"),
    (Cast(const(3), "int8"), "int8(int32(3))"),
    (Imm(3, "int8"), "int8(3)"),
    (Cast(Imm(True, "bool"), "int8"), "int8(True)"),
    (Cast(i, "bool"), "bool(i)"),
    (Cast(Imm(True, "bool"), "bool"), "bool(True)"),
    (Imm(False, "bool"), "False"),
    (f * 0.1 + 1.0, "f * 0.1 + 1.0"),
    (f + 1e-45, "f + 1e-45"),
    (f + 1e30, "f + 1e+30"),
    (f + 16777216.0, "f + 16777216.0"),
    (f + -0.0, "f + -0.0"),
    (Un("neg", half), "neg(float32(0.5))"),
    (f + math.inf, 'f + float32("inf")'),
    (f + -math.inf, 'f + float32("-inf")'),
    (Imm(math.nan, "float64"), 'float64("nan")'),
    (Imm(0.1, "float64"), "float64(0.1)"),
    (Imm(0.1, "float32"), "float32(0.1)"),
    (Call("exp", half), "exp(float32(0.5))"),
    (Call("exp", half) + f, "exp(float32(0.5)) + f"),
    (f + Call("exp", half), "f + exp(0.5)"),
    (Call("pow", f, half), "pow(f, 0.5)"),
    (Call("pow", half, half), "pow(float32(0.5), 0.5)"),
    (Call("clz", const(3)) + i, "clz(int32(3)) + i"),
    (Call("clz", i), "clz(i)"),
    (Call("round_even", f), "round_even(f)"),
    (Call("fma", f, half, f), "fma(f, 0.5, f)"),
    (Call("fma", half, half, f) + f, "fma(0.5, 0.5, f) + f"),
    (Call("fma", half, half, half), "fma(float32(0.5), 0.5, 0.5)"),
    (Call("mul_high", i, const(3)), "mul_high(i, 3)"),
    (Call("mul_high", const(3), const(-3)), "mul_high(int32(3), -3)"),
]


@pytest.mark.parametrize(("expr", "text"), SPELLINGS, ids=[text for _, text in SPELLINGS])
def test_spelling_of_expressions(expr: Expr, text: str) -> None:
    assert print_expr(expr) == text
    y, z = Buffer("y", (), expr.dtype), Buffer("z", (), "bool")
    body: Stmt = seq(Store(y, (), expr), Store(z, (), Bin("eq", expr, expr)), If(Bin("ne", expr, expr), seq()))
    for var in (i, j, f, b, c, n):
        body = Bind(var, Imm(0, var.dtype), body)
    func = PrimFunc((Param(y, "output"), Param(z, "output")), body)
    assert parse_func(print_func(func, "f"))[1] is func


def test_the_first_line_of_a_statement() -> None:
    assert headline(For(i, const(3), seq())) == "for i in range(3):"
    y = Buffer("y", (1,), "int32")
    long = Store(y, (const(0),), sum([i] * 80, start=i))
    assert len(headline(long)) == 160 and headline(long).endswith("...")
    assert print_stmt(If(b, seq())) == "if b:\n    pass"


@pytest.mark.parametrize("name", ["2x", "a b", "for", ""])
def test_functions_that_cannot_be_named(name: str) -> None:
    with pytest.raises(InternalError, match="cannot name a function"):
        print_func(PrimFunc((), seq()), name)


def body(*lines: str) -> str:
    """A function of some parameters with these lines in it."""
    params = "x: In[int32, (4,)], y: Out[int32, (4,)], z: Out[float32, ()]"
    head = f"@prim_func\ndef f({params}):\n    z[()] = 1.0\n    y[0] = 1\n"
    return head + "".join(f"    {line}\n" for line in lines)


# § stands before the place where the error must point.
ERRORS = [
    # The module and the function
    ("§", "expected one function, marked @prim_func"),
    ("§x = 3\n", "expected one function, marked @prim_func"),
    ("@prim_func\ndef f(): pass\n§x = 3\n", "expected one function, marked @prim_func"),
    ("@prim_func\ndef f(): pass\n@prim_func\n§def g(): pass\n", "expected one function, marked @prim_func"),
    ("§def f(): pass\n", "a function of loops is marked @prim_func, and nothing else"),
    ("@prim_func\n@prim_func\n§def f(): pass\n", "a function of loops is marked @prim_func, and nothing else"),
    ("@prim_func()\n§def f(): pass\n", "a function of loops is marked @prim_func, and nothing else"),
    ("@prim_func\n§def größe(): pass\n", "'größe' is not an ASCII identifier"),
    ("@prim_func\ndef f() -> §int8: pass\n", "a function of loops returns nothing"),
    # Parameters
    ("@prim_func\ndef f(§x): pass\n", "parameter 'x' needs a type such as In[int8, (4, 6)]"),
    ("@prim_func\ndef f(§x: Inn[int8, (4,)]): pass\n", "parameter 'x' needs a type such as In[int8, (4, 6)]"),
    ("@prim_func\ndef f(x: In[int8, (4,)], *§y): pass\n", "parameters are plain"),
    ("@prim_func\ndef f(x: In[int8, (4,)] = §3): pass\n", "parameters are plain"),
    ("@prim_func\ndef f(§x, /): pass\n", "parameters are plain"),
    ("@prim_func\ndef f(*, §x): pass\n", "parameters are plain"),
    ("@prim_func\ndef f(**§x): pass\n", "parameters are plain"),
    ("@prim_func\ndef f(x: §In[int8]): pass\n", "buffer 'x' needs a dtype and a shape"),
    ("@prim_func\ndef f(x: §In[int8, 4]): pass\n", "buffer 'x' needs a dtype and a shape"),
    ("@prim_func\ndef f(x: In[§int7, (4,)]): pass\n", "expected a dtype: bool, int8,"),
    ("@prim_func\ndef f(x: In[int8, (4, §n)]): pass\n", "expected a whole number of reasonable size"),
    ("@prim_func\ndef f(x: In[int8, (4, §True)]): pass\n", "expected a whole number of reasonable size"),
    ("@prim_func\ndef f(x: In[int8, (4, §2.0)]): pass\n", "expected a whole number of reasonable size"),
    (f"@prim_func\ndef f(x: In[int8, (§-{'0x' + 'f' * 5000},)]): pass\n", "expected a whole number of reasonable size"),
    ("@prim_func\ndef f(x: §In[int8, (0,)]): pass\n", "buffer 'x' has shape (0,)"),
    ("@prim_func\ndef f(x: In[int8, (4,), §3]): pass\n", "expected align(bytes) or scope(\"name\") of 'x', once each"),
    ("@prim_func\ndef f(x: In[int8, (4,), align(4), §align(4)]): pass\n", "once each"),
    ("@prim_func\ndef f(x: In[int8, (4,), §align(4, 4)]): pass\n", "align takes 1 argument, not 2"),
    ("@prim_func\ndef f(x: In[int8, (4,), align(§0)]): pass\n", "an alignment is a power of two"),
    ("@prim_func\ndef f(x: §In[int8, (4,), align(3)]): pass\n", "buffer 'x' has alignment 3"),
    ("@prim_func\ndef f(x: §In[int8, (4,), scope('local')]): pass\n", "parameter 'x' has scope 'local'"),
    ("@prim_func\ndef f(§x: In[int8, (65536, 65536)]): pass\n", "buffer 'x' has 2**31 elements or more"),
    ("@prim_func\ndef f(§y: Out[int8, (4,)]): pass\n", "output 'y' is never written"),
    ("@prim_func\n§def f(y: Out[int8, (1,)], x: In[int8, (1,)]):\n  y[0] = x[0]\n", "parameters must come as inputs"),
    ("@prim_func\ndef f(x: In[int8, (1,)], §x: In[int8, (1,)]): pass\n", "'x' is declared twice, first in line 2"),
    (body("may_alias(y, x)")[:-1].replace("    may", "    §may"), "not a statement of loops"),
    (
        "@prim_func\ndef f(x: In[int8, (1,)]):\n  may_alias(§y, x)\n",
        "may_alias takes the names of an output and an input",
    ),
    ("@prim_func\n§def f(x: In[int8, (1,)]):\n  may_alias(x, x)\n", "may_alias names ('x', 'x')"),
    ("@prim_func\ndef f(x: In[int8, (1,)]):\n  §may_alias(x)\n", "may_alias takes 2 arguments, not 1"),
    (
        "@prim_func\ndef f(x: In[int8, (1,)]):\n  overlaps(x, §y, 4)\n",
        "overlaps takes the names of an output and an input, and a number of bytes",
    ),
    ("@prim_func\ndef f(x: In[int8, (1,)]):\n  overlaps(x, x, §x)\n", "expected a whole number of reasonable size"),
    ("@prim_func\n§def f(x: In[int8, (1,)]):\n  overlaps(x, x, -4)\n", "overlaps names ('x', 'x')"),
    ("@prim_func\ndef f(x: In[int8, (1,)]):\n  partial(§z)\n", "partial takes the name of an output"),
    ("@prim_func\n§def f(x: In[int8, (1,)]):\n  partial(x)\n", "partial names 'x', which is not an output"),
    (
        "@prim_func\ndef f(x: In[int8, (4,)]):\n  rows(§3, 4)\n",
        "expected a name for the row, and how many there are: rows(r, 8)",
    ),
    ("@prim_func\ndef f(x: In[int8, (4,)]):\n  §rows(r, 0)\n", "there are 0 rows 'r'"),
    ("@prim_func\ndef f(x: In[int8, (4,)]):\n  rows(§x, 4)\n", "'x' is declared twice, first in line 2"),
    ("@prim_func\ndef f(x: In[int8, (4,)]):\n  rows(r, 4)\n  §by_rows(y, 4)\n", "by_rows takes the name of an input"),
    ("@prim_func\ndef f(x: In[int8, (4,)]):\n  rows(r, 4)\n  §by_rows(x, 4, window=0)\n", "rows of 'x' have window 0"),
    ("@prim_func\ndef f(x: In[int8, (4,)]):\n  rows(r, 4)\n  by_rows(x, 4, high=§3)\n", "unknown argument 'high'"),
    ("@prim_func\n§def f(x: In[int8, (4,)]):\n  rows(r, 4)\n  by_rows(x, 3)\n", "its 4 elements are not 3 equal rows"),
    ("@prim_func\ndef f(x: In[int8, (4,)]):\n  rows(r, 4)\n  kept(§a)\n", "kept takes the name of a workspace"),
    ("@prim_func\n§def f(x: In[int8, (4,)]):\n  rows(r, 4)\n  kept(x)\n", "'x' is kept from row to row, and is no"),
    # Statements
    (body("§return"), "not a statement of loops"),
    (body("§import os"), "not a statement of loops"),
    (body("§y"), "not a statement of loops"),
    (body("§print(3)"), "not a statement of loops"),
    (body("§def g(): pass"), "not a statement of loops"),
    (body("§v: int32"), "expected a name, its dtype and its value"),
    (body("§y[0]: int32 = 3"), "expected a name, its dtype and its value"),
    (body("v: §int = 3"), "expected a dtype"),
    (body("§v: int8 = x[0]"), "'v' is int8, not int32"),
    (body("v: int32 = 3", "§v: int32 = 3"), "'v' is declared twice, first in line 5"),
    (
        body("for i in range(3):", "    pass", "for §i in range(3):", "    pass"),
        "'i' is declared twice, first in line 5",
    ),
    (body("§a = b = alloc(int8, (1,))"), "expected a name for the buffer"),
    (body("§a[0] = alloc(int8, (1,))"), "expected a name for the buffer"),
    (body("a = §alloc(int8)"), "buffer 'a' needs a dtype and a shape"),
    (
        body("§a = alloc(int8, (1,), scope('moon'))"),
        "buffer 'a' is in scope 'moon', which is not a memory of the function",
    ),
    (body("a = alloc(int8, (1,), scope(§3))"), "expected a string"),
    (body("a = alloc(int8, (1,), §align=16)"), "arguments are plain"),
    (body("§for i in range(3):", "    pass", "else:", "    pass"), "expected a loop such as"),
    (
        body("§for i in y:", "    pass"),
        "expected a loop such as for i in range(4), with one of range, parallel, unrolled",
    ),
    (body("§for i, j in range(3):", "    pass"), "expected a loop such as"),
    (body("for i in §range(1, 3):", "    pass"), "range takes 1 argument, not 2"),
    (body("for i in range(§*y):", "    pass"), "arguments are plain"),
    (body("§for i in range(z[()]):", "    pass"), "loop 'i' does not count in int32"),
    (body("for i in range(§2147483648):", "    pass"), "this constant does not fit int32"),
    (body("§while True:", "    pass"), "not a statement of loops"),
    (body("if §x[0]:", "    pass"), "condition is int32, not bool"),
    (body("§with open('x'):", "    pass"), "expected a label"),
    (body("§with block('a') as b:", "    pass"), "expected a label"),
    (body("§with block('a'), block('b'):", "    pass"), "expected a label"),
    (body("with block(§3):", "    pass"), "expected a string"),
    (body("with §block('a b'):", "    pass"), "'a b' is not a label"),
    (body("with block('a'):", "    pass", "§with block('a'):", "    pass"), "label 'a' is used twice, first in line 5"),
    (body("§y[0] = y[1] = 3"), "one assignment at a time"),
    (body("§y = 3"), "expected an element of a buffer that exists here"),
    (body("§q[0] = 3"), "expected an element of a buffer that exists here"),
    (body("§y[0, 1] = 3"), "'y' has 1 dimensions and is accessed with 2 indices"),
    (body("y[0] = §'é' if x[0] < 1 else 2"), "not an expression of loops"),
    (body("y[0] = 3 if §q < 1 else 2"), "no variable 'q' here"),
    (body("§x[0] = 3"), "input 'x' is written"),
    (body("§x[0] += 3"), "input 'x' is written"),
    (body("§y[0] -= 3"), "an update is one of +=, *=, update_min, update_max"),
    (body("§y[0] @= 3"), "an update is one of"),
    (body("§update_min(y[0])"), "update_min takes 2 arguments, not 1"),
    (body("update_min(§y, 3)"), "expected an element of a buffer"),
    (body("§y[0] = z[()]"), "float32 stored to 'y'"),
    (body("§y[0] += z[()]"), "float32 stored to 'y'"),
    (body("b = alloc(bool, (1,))", "§b[0] += True"), "'b' is bool and cannot be updated with add"),
    (body("if True:", "    v: int32 = 3", "y[0] = §v"), "no variable 'v' here"),
    (
        body("if True:", "    v = alloc(int32, (1,))", "y[0] = §v[0]"),
        "expected an element of a buffer that exists here",
    ),
    (body("for i in range(3):", "    pass", "y[§i] = 3"), "no variable 'i' here"),
    # Expressions
    (body("y[0] = §y"), "no variable 'y' here"),
    (body("for i in range(3):", "    y[i] = §i[0]"), "expected an element of a buffer that exists here"),
    (body("y[0] = §3.0"), "expected a constant of int32"),
    (body("z[()] = §3"), "expected a constant of float32"),
    (body("z[()] = §1e39"), "this constant does not fit float32"),
    (body("z[()] = §1e999"), "this constant does not fit float32"),
    (body("y[0] = §2147483648"), "this constant does not fit int32"),
    (body("y[0] = §-2147483649"), "this constant does not fit int32"),
    (body(f"y[0] = §0x{'f' * 5000}"), "this constant does not fit int32"),
    (body("y[0] = int32(int8(§128))"), "this constant does not fit int8"),
    (body("b: bool = §1"), "this constant does not fit bool"),
    (body("if §1 < 2:", "    pass"), "the type of this constant is not clear here"),
    (body("y[0] = clz(§3)"), "the type of this constant is not clear here"),
    (body("y[0] = §x[0] + z[()]"), "add of int32 and float32: cast one of them"),
    (body("y[0] = §3 if x[0] else 2"), "condition is int32, not bool"),
    (body("y[0] = §x[0] / 2"), "div takes float, not int32"),
    (body("y[0] = §x[0] @ 2"), "not an expression of loops"),
    (body("y[0] = §x[0] ** 2"), "not an expression of loops"),
    (body("y[0] = §~x[0]"), "not an expression of loops"),
    (body("y[0] = §+x[0]"), "not an expression of loops"),
    (body("y[0] = §[1]"), "not an expression of loops"),
    (body("y[0] = §3j"), "not an expression of loops"),
    (body("y[0] = §x.shape"), "not an expression of loops"),
    (body("y[0] = x[§0:3]"), "not an expression of loops"),
    (body("y[0] = §'3'"), "not an expression of loops"),
    (body("y[0] = §(lambda: 3)()"), "not a function of loops"),
    (body("y[0] = §sec(x[0])"), "no function 'sec'"),
    (body("y[0] = §min(x[0])"), "min takes 2 arguments, not 1"),
    (body("y[0] = §abs(x[0], 3)"), "abs takes 1 argument, not 2"),
    (body("y[0] = int32(x[0], §base=10)"), "arguments are plain"),
    (body("z[()] = §exp(x[0])"), "exp takes arguments of one float type"),
    (body("z[()] = §exp(1.0, 2.0)"), "exp takes 1 argument, not 2"),
    (body("y[0] = §mul_high(3)"), "mul_high takes 2 arguments, not 1"),
    (body("z[()] = §mul_high(1.0, z[()])"), "mul_high takes int32, not float32"),
    (body("z[()] = float32(§'infinity')"), "a constant in quotes is one of inf, -inf, nan, of a float type"),
    (body("y[0] = int32(§'inf')"), "a constant in quotes is one of inf, -inf, nan, of a float type"),
    (body("y[0] = §not x[0]"), "not does not take int32"),
    (body("y[0] = §-True"), "neg does not take bool"),
    (body("if §x[0] < 3 < 4:", "    pass"), "comparisons are not chained"),
    (body("if §x[0] is 3:", "    pass"), "not an expression of loops"),
    (body("if §x[0] and x[1]:", "    pass"), "and takes bool, not int32"),
    # Python's own
    (body("y[0] = 3 §3"), "invalid syntax"),
    (body("y[0] = §("), "'(' was never closed"),
    (body("y[0] = §08"), "leading zeros in decimal integer literals are not permitted"),
]


@pytest.mark.parametrize(("marked", "what"), ERRORS, ids=range(len(ERRORS)))
def test_errors_point_at_their_place(marked: str, what: str) -> None:
    text = marked.replace("§", "")
    before = marked[: marked.index("§")].split("\n")
    with pytest.raises(TextError) as caught:
        parse_func(text, "some.tir")
    assert what in caught.value.what
    assert (caught.value.line, caught.value.column) == (len(before), len(before[-1]) + 1)
    assert caught.value.where == f"some.tir:{len(before)}:{len(before[-1]) + 1}"


def test_columns_count_characters() -> None:
    with pytest.raises(TextError) as caught:
        parse_func(body("with block('größe'): y[0] = q"))
    assert (caught.value.line, caught.value.column) == (5, 33)
    assert str(caught.value).splitlines()[1:] == ["      with block('größe'): y[0] = q", "  " + " " * 32 + "^"]


def test_hints() -> None:
    for text, hint in [
        (body("y[0] = x[0] if 1 < 2 else 3"), "write for example int32(3)"),
        (body("z[()] = 3"), "constants of a float type have a point: 3.0"),
        (body("z[()] = 1e99"), 'infinity is float32("inf")'),
        (body("if 0 < x[0] < 3: pass"), "write a <= b and b < c"),
        ("@prim_func\ndef f(x): pass", "one of In, Out, Const, Workspace"),
    ]:
        with pytest.raises(TextError, match="hint: ") as caught:
            parse_func(text)
        assert caught.value.hint == hint


def test_a_definition_within_a_larger_text() -> None:
    text = f"x = 3\n\n\n{EVERYTHING}"
    node = ast.parse(text).body[1]
    assert isinstance(node, ast.FunctionDef)
    assert parse_def(node, Defined(Source(text, "module"))) == parse_func(EVERYTHING)
    broken = text.replace("q[0] = True", "q[0] = 7")
    node = ast.parse(broken).body[1]
    assert isinstance(node, ast.FunctionDef)
    with pytest.raises(TextError) as caught:
        parse_def(node, Defined(Source(broken, "module")))
    assert caught.value.where == "module:33:12"


HOSTILE = {
    "null bytes": (body("y[0] = 1 \0"), (5, 14), "the text contains '\\x00'"),
    "surrogates": (body("y[0] = '\ud800'"), (5, 13), "the text contains '\\ud800'"),
    "brackets": (body("y[0] = " + "(" * 5000 + ")" * 5000), (5, 212), "too many nested parentheses"),
    "minus signs": (body("y[0] = " + "-" * 100_000 + "x[0]"), None, "the text is nested too deeply"),
    "not": (body("y[0] = " + "not " * 100_000 + "x[0]"), (5, 1), "the text is nested too deeply"),
    "lambdas": (body("y[0] = " + "lambda:" * 100_000 + "x[0]"), (5, 1), "the text is nested too deeply"),
    "sums": (body("y[0] = " + "1 + " * 50_000 + "1"), None, "the text is nested too deeply"),
    "sums over lines": (body("y[0] = (" + "1 +\n" * 50_000 + "1)"), None, "the text is nested too deeply"),
    "subscripts": (body("y[0] = " + "x" + "[0]" * 50_000), None, "the text is nested too deeply"),
    "calls": (body("y[0] = " + "x" + "()" * 50_000), None, "the text is nested too deeply"),
    "attributes": (body("y[0] = " + "x" + ".x" * 50_000), None, "the text is nested too deeply"),
    "else if": (body("if True: pass", *["elif True: pass"] * 30_000), None, "the text is nested too deeply"),
    "some else if": (body("if True: pass", *["elif True: pass"] * 100), (95, 16), "statements are nested too deeply"),
    "indentation": (
        body(*[" " * depth + "if True:" for depth in range(150)]),
        (103, 103),
        "too many levels of indentation",
    ),
    "names": (body(*[f"v{k}: int8 = 3" for k in range(4_000)]), (155, 5), "statements are nested too deeply"),
    "expression": (body("y[0] = " + "1 + " * 95 + "1"), None, "an expression is nested too deeply"),
    "a long line": (body("y[0] = [" + "1, " * 50_000 + "]"), (5, 12), "not an expression of loops"),
    "a long number": (body("y[0] = " + "9" * 100_000), (5, 12), "Exceeds the limit"),
    "many decorators": ("@f\n" * 10_000 + "def f(): pass", (10_001, 1), "a function of loops is marked"),
}


@pytest.mark.few(10)
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_texts(name: str) -> None:
    text, place, what = HOSTILE[name]
    with pytest.raises(TextError) as caught:
        parse_func(text)
    assert what in caught.value.what
    if place is not None and name not in ("indentation", "a long number"):  # these differ between Pythons
        assert (caught.value.line, caught.value.column) == place
    assert len(str(caught.value)) < 1000


@given(st.text())
def test_any_text_parses_or_is_an_error(text: str) -> None:
    with pytest.raises(TextError):
        parse_func(text)


@given(st.data())
def test_any_damage_parses_or_is_an_error(data: st.DataObject) -> None:
    text = EVERYTHING
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(text)))
        end = start + data.draw(st.integers(0, 8))
        text = text[:start] + data.draw(st.text("xyij019()[]:=+-*/<>,. \n#'\"@", max_size=4)) + text[end:]
    try:
        _, func = parse_func(text)
    except TextError as error:
        assert error.line <= text.count("\n") + 2
    else:
        verify(func)


def deepest(make: Callable[[Expr], Expr]) -> Expr:
    """An expression of as many levels as there may be."""
    y = Buffer("y", (1,), "int32")
    expr: Expr = y[0]
    for _ in range(MAX_NESTING - 2):
        expr = make(expr)
    return expr


x = Buffer("x", (1,), "int32")
CHAINS = {
    "right": lambda expr: const(1) - expr,
    "left": lambda expr: expr - 1,
    "negation": lambda expr: -expr,
    "cast": lambda expr: Cast(expr, "int8" if expr.dtype == "int32" else "int32"),
    "load": lambda expr: x[expr],
    "select": lambda expr: Select(expr < 1, const(3), const(2)) if expr.dtype == "int32" else expr,
    "minimum": lambda expr: Bin("min", const(3), expr),
    "condition": lambda expr: Bin("eq", expr, Bin("eq", const(1), const(1))) if expr.dtype == "bool" else expr < 1,
}


@pytest.mark.parametrize("chain", CHAINS)
def test_what_is_nested_as_deeply_as_may_be_reads_back(chain: str) -> None:
    expr: Expr = x[0]
    while True:
        bigger = CHAINS[chain](expr)
        y = Buffer("y", (), bigger.dtype)
        func = PrimFunc((Param(x, "input"), Param(y, "output")), Store(y, (), bigger))
        try:
            verify(func)
        except InternalError:
            break
        expr = bigger
        if chain in ("right", "load") or len(print_expr(expr)) > 300:
            assert parse_func(print_func(func, "f"))[1] is func
    assert len(print_expr(expr)) > 90


def test_statements_nested_as_deeply_as_may_be_read_back() -> None:
    y = Buffer("y", (), "int32")
    stmt: Stmt = Store(y, (), const(1))
    for number in range(MAX_SCOPES):
        stmt = Bind(Var(f"v{number}"), const(number), stmt)
    for number in range(MAX_NESTING - 1):
        stmt = If(const(0) < number, stmt)
    func = PrimFunc((Param(y, "output"),), stmt)
    verify(func)
    assert parse_func(print_func(func, "f"))[1] is func
    chain: Stmt = Store(y, (), const(1))
    for number in range(MAX_NESTING - 1):
        chain = If(const(0) < number, Store(y, (), const(1)), chain)
    func = PrimFunc((Param(y, "output"),), chain)
    verify(func)
    assert parse_func(print_func(func, "f"))[1] is func


def test_long_functions_take_linear_time() -> None:
    y = Buffer("y", (6_000,), "int32")
    func = PrimFunc((Param(y, "output"),), seq(*[Store(y, (const(k),), const(k)) for k in range(6_000)]))
    assert parse_func(print_func(func, "f"))[1] is func


@pytest.mark.skipif(sys.version_info < (3, 12), reason="before Python 3.12, this is not a syntax")
def test_type_parameters() -> None:
    with pytest.raises(TextError, match="a function has no type parameters"):
        parse_func("@prim_func\ndef f[T](x: Out[int8, (4,)]):\n    x[0] = 1\n")
