"""Nodes: what they are, what they refuse, and how they are walked and rebuilt."""

from __future__ import annotations

import copy
import gc
import math
from collections.abc import Callable

import pytest

from uma.errors import InternalError
from uma.support.interning import cached_on_node
from uma.tir.form.fields import gathered
from uma.tir.form.nodes import (
    Alloc,
    Bin,
    Bind,
    Block,
    Buffer,
    Call,
    Cast,
    Expr,
    For,
    If,
    Imm,
    Load,
    Param,
    PrimFunc,
    Select,
    Seq,
    Stmt,
    Store,
    Un,
    Update,
    Var,
    const,
    maximum,
    minimum,
    seq,
)
from uma.tir.form.visit import (
    buffers_read,
    buffers_written,
    child_statements,
    map_expressions,
    operands,
    rebuild,
    rewrite,
    substitute,
    variables,
    walk,
)

i, j = Var("i"), Var("j")
f, g = Var("f", "float32"), Var("g", "float32")
b = Var("b", "bool")
u = Var("u", "uint8")
x, y = Buffer("x", (4, 6), "int32"), Buffer("y", (4, 6), "int32")
scalar = Buffer("scalar", (), "float32")
flags = Buffer("flags", (2,), "bool")


def test_equal_nodes_are_one() -> None:
    assert i * 2 + 1 is Var("i") * 2 + 1
    assert Store(x, (i, j), x[i, j]) is Store(x, (i, j), Load(x, (i, j)))
    assert copy.deepcopy(i + 1) is copy.copy(i + 1) is i + 1
    assert Buffer("x", (4, 6), "int32", alignment=4) is x


def test_constants_that_look_equal_are_not() -> None:
    assert Imm(1, "int32") is not Imm(1, "int64")
    assert Imm(True, "bool") is not Imm(1, "int32")
    assert Imm(0.0, "float32") is not Imm(-0.0, "float32")
    assert Imm(math.nan, "float32") is Imm(-math.nan, "float32")
    assert Imm(0.1, "float32") is Imm(0.1 + 1e-10, "float32")
    assert Imm(1e39, "float32").value == math.inf and Imm(-1e39, "float32").value == -math.inf


def test_nodes_that_nobody_holds_are_freed() -> None:
    from uma.support.interning import _TABLE

    gc.collect()
    before = len(_TABLE)
    nodes = [Var("a") + number for number in range(1000)]
    assert len(_TABLE) >= before + 1000
    del nodes
    gc.collect()
    assert len(_TABLE) <= before + 1


def test_what_follows_from_a_node_is_kept_with_it_alone() -> None:
    from uma.support.interning import _TABLE

    asked: list[str] = []

    @cached_on_node
    def dtype(node: Expr) -> str:
        asked.append(node.dtype)
        return node.dtype

    @gathered
    def count(_: Expr | Stmt, within: list[int]) -> int:
        return 1 + sum(within)

    kept = i + 1
    assert dtype(kept) == dtype(kept) == "int32" and len(asked) == 1
    del kept
    gc.collect()
    before = len(_TABLE)
    deep: Expr = Var("a")
    for number in range(5_000):
        deep = deep + number
    assert count(deep) == 10_001 and variables(deep) == (Var("a"),)  # no recursion
    del deep
    gc.collect()
    assert len(_TABLE) <= before + 1


def test_operators_build_what_they_say() -> None:
    assert 1 + i is Bin("add", const(1), i) and 1 - i is Bin("sub", const(1), i) and 2 * i is Bin("mul", const(2), i)
    assert f / 2.0 is Bin("div", f, Imm(2.0, "float32")) and 2.0 / f is Bin("div", Imm(2.0, "float32"), f)
    assert [(e.op) for e in (i // 2, i % 2, i << 2, i >> 2)] == ["floordiv", "floormod", "shl", "shr"]
    assert [(e.op) for e in (i & 1, i | 1, i ^ 1, b & b, b | b)] == ["bitand", "bitor", "bitxor", "and", "or"]
    assert [(e.op) for e in (i < 1, i <= 1, i > 1, i >= 1, i.equal(1), i.not_equal(1))] == [
        *("lt", "le", "gt", "ge", "eq", "ne")
    ]
    assert -i is Un("neg", i) and ~b is Un("not", b)
    assert minimum(i, 3) is Bin("min", i, const(3)) and maximum(f, 0) is Bin("max", f, Imm(0.0, "float32"))
    assert i.astype("int32") is i and i.astype("int8") is Cast(i, "int8")
    assert (i < 1).dtype == "bool" and Call("clz", Var("n", "uint32")).dtype == "int32"


def overlapping(*overlaps: tuple[str, str, int]) -> PrimFunc:
    return PrimFunc((Param(x, "input"), Param(y, "output")), seq(), overlaps=overlaps)


@pytest.mark.parametrize(
    ("build", "what"),
    [
        (lambda: Var("2x"), "'2x' is not a name"),
        (lambda: Var("x", "int7"), "unknown dtype 'int7'"),
        (lambda: Imm(1, "int7"), "unknown dtype 'int7'"),
        (lambda: Imm(1.5, "int32"), "1.5 is not a whole number"),
        (lambda: Imm(math.nan, "int32"), "nan is not a whole number"),
        (lambda: Imm(math.inf, "bool"), "inf is not a whole number"),
        (lambda: Imm(128, "int8"), "constant 128 does not fit int8"),
        (lambda: Imm(2, "bool"), "constant 2 does not fit bool"),
        (lambda: const(f, "int32"), "expected int32, got an expression of float32"),
        (lambda: Bin("plus", i, i), "unknown binary operation 'plus'"),
        (lambda: Bin("add", i, f), "add of int32 and float32: cast one of them"),
        (lambda: Bin("and", i, i), "and takes bool, not int32"),
        (lambda: i / 2, "div takes float, not int32"),
        (lambda: f // 2, "floordiv takes integers, not float32"),
        (lambda: Bin("bitxor", b, b), "bitxor takes integers, not bool"),
        (lambda: b + b, "add does not take bool"),
        (lambda: b < b, "lt does not take bool"),
        (lambda: Un("sqrt", f), "unknown unary operation 'sqrt'"),
        (lambda: -u, "neg does not take uint8"),
        (lambda: ~i, "not does not take int32"),
        (lambda: Cast(i, "int7"), "cast to unknown dtype 'int7'"),
        (lambda: Select(i, i, i), "condition is int32, not bool"),
        (lambda: Select(b, i, f), "select between int32 and float32"),
        (lambda: Buffer("a b", (1,), "int8"), "'a b' is not a name"),
        (lambda: Buffer("a", (1,), "int7"), "unknown dtype 'int7'"),
        (lambda: Buffer("a", (1, 0), "int8"), "buffer 'a' has shape (1, 0)"),
        (lambda: Buffer("a", (1,), "int32", alignment=2), "buffer 'a' has alignment 2"),
        (lambda: Buffer("a", (1,), "int8", alignment=12), "buffer 'a' has alignment 12"),
        (lambda: x[i], "'x' has 2 dimensions and is accessed with 1 indices"),
        (lambda: x[i, u], "expected int32, got an expression of uint8"),
        (lambda: Load(x, (i, u)), "index of 'x' is uint8, not int32"),
        (lambda: Call("sec", f), "unknown function 'sec'"),
        (lambda: Call("exp", f, f), "exp takes 1 arguments, not 2"),
        (lambda: Call("exp", i), "exp takes arguments of one float type"),
        (lambda: Call("pow", f, Imm(1.0, "float64")), "pow takes arguments of one float type"),
        (lambda: Call("clz", u), "clz takes int32 or uint32, not uint8"),
        (lambda: Call("mul_high", i, u), "mul_high takes int32, not int32 and uint8"),
        (lambda: Call("fma", f, f, Imm(1.0, "float64")), "fma takes arguments of one float type"),
        (lambda: Seq((seq(),)), "a Seq is not flat"),
        (lambda: Seq((Bind(i, const(1), seq()), seq())), "a Seq is not flat"),
        (lambda: For(u, const(1), seq()), "loop 'u' does not count in int32"),
        (lambda: For(i, Imm(1, "int64"), seq()), "loop 'i' does not count in int32"),
        (lambda: For(i, const(1), seq(), "sideways"), "unknown loop kind 'sideways'"),  # type: ignore[arg-type]  # no such kind
        (lambda: If(i, seq()), "condition is int32, not bool"),
        (lambda: Bind(i, f, seq()), "'i' is int32, not float32"),
        (lambda: Store(x, (i,), i), "'x' has 2 dimensions and is accessed with 1 indices"),
        (lambda: Store(x, (i, j), f), "float32 stored to 'x'"),
        (lambda: Update("add", x, (i, j), f), "float32 stored to 'x'"),
        (lambda: Update("sub", x, (i, j), i), "unknown reduction 'sub'"),
        (lambda: Block("a b", seq()), "'a b' is not a label"),
        (lambda: Param(x, "friend"), "parameter 'x' has unknown role 'friend'"),  # type: ignore[arg-type]  # no such role
        (lambda: Param(Buffer("t", (1,), "int8", "local"), "input"), "parameter 't' has scope 'local'"),
        (lambda: PrimFunc((Param(y, "output"), Param(x, "input")), seq()), "parameters must come as inputs, outputs"),
        (lambda: PrimFunc((Param(x, "input"), Param(x, "output")), seq()), "two parameters share a name"),
        (lambda: PrimFunc((Param(x, "input"),), seq(), (("x", "x"),)), "may_alias names ('x', 'x')"),
        (lambda: overlapping(("x", "y", 0)), "overlaps names ('x', 'y'), not an output and an input"),
        (lambda: overlapping(("y", "x", True)), "overlaps of ('y', 'x') by True, not a number of bytes"),
        (lambda: overlapping(("y", "x", 0), ("y", "x", 4)), "overlaps names a pair twice"),
    ],
)
def test_what_cannot_be_built(build: Callable[[], object], what: str) -> None:
    with pytest.raises(InternalError) as caught:
        build()
    assert what in str(caught.value)


def test_seq_is_flat_and_takes_what_follows_into_scope() -> None:
    a, c, d = (Store(x, (const(k), i), i) for k in range(3))
    v = Var("v")
    t = Buffer("t", (1,), "int8", "local")
    assert seq(a) is a and seq() is Seq(()) and seq(seq(a, c), seq(), d) is Seq((a, c, d))
    assert seq(a, Bind(v, i, c), d) is Seq((a, Bind(v, i, Seq((c, d)))))
    assert seq(Bind(v, i, c), a, Alloc(t, seq()), d) is Bind(v, i, Seq((c, a, Alloc(t, d))))
    assert seq(Bind(v, i, seq())) is Bind(v, i, Seq(()))


STORE = Store(x, (i, j), y[j, i] + 1)
STATEMENTS = [
    STORE,
    Update("max", x, (i, const(2)), j),
    For(i, j + 1, STORE, "parallel"),
    If(i < j, STORE),
    If(i < j, STORE, seq()),
    Bind(Var("v"), i * 2, STORE),
    Alloc(Buffer("t", (3,), "int8", "local"), STORE),
    Block("label", STORE),
    Seq((STORE, Block("label", STORE))),
    Seq(()),
]
EXPRESSIONS = [i + j, -i, i.astype("int8"), Select(b, i, j), x[i, j], scalar[()], Call("pow", f, g), i, const(3)]


@pytest.mark.parametrize("stmt", STATEMENTS)
def test_statements_are_rebuilt_from_their_parts(stmt: Seq) -> None:
    assert rebuild(stmt, operands(stmt), child_statements(stmt)) is stmt
    swap = {i: j, j: i}
    swapped = map_expressions(stmt, lambda expr: substitute(expr, swap))
    assert map_expressions(swapped, lambda expr: substitute(expr, swap)) is stmt
    assert (swapped is stmt) == (not variables(stmt))
    assert type(swapped) is type(stmt)


@pytest.mark.parametrize("expr", EXPRESSIONS)
def test_expressions_are_rebuilt_from_their_parts(expr: Var) -> None:
    assert rebuild(expr, operands(expr)) is expr
    swap = {i: j, j: i, f: g, g: f}
    swapped = substitute(expr, swap)
    assert substitute(swapped, swap) is expr
    assert (swapped is expr) == (not variables(expr) or expr is Select(b, i, i))


def test_walk_shows_each_distinct_node_once_in_order_of_the_text() -> None:
    stmt = For(i, const(4), Store(x, (i, i), y[i, j] + y[i, j]))
    store = stmt.body
    assert list(walk(stmt)) == [stmt, const(4), store, i, y[i, j] + y[i, j], y[i, j], j]
    assert variables(stmt) == (i, j)
    assert buffers_read(Seq((stmt, Update("add", x, (i, j), i)))) == (y, x)
    assert buffers_written(stmt) == (x,)


def test_walking_and_rewriting_cost_the_number_of_distinct_nodes() -> None:
    expr = i
    for _ in range(60):  # 2**60 nodes, if it were a tree
        expr = expr + expr
    assert len(list(walk(expr))) == 61
    assert substitute(expr, {i: j}) is not expr
    doubled = rewrite(expr, lambda node: node.a * 2 if isinstance(node, Bin) and node.op == "add" else None)
    assert len(list(walk(doubled))) == 62
