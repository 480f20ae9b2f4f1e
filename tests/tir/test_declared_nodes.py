"""A new statement says what its fields are, once: all that walks, rebuilds, writes and reads loops works on it."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from uma.tir.form.fields import DECLARED, LABEL, READ, WRITTEN, Access, accesses, declares, map_fields, named
from uma.tir.form.nodes import Block, Buffer, Expr, For, Param, PrimFunc, Stmt, Store, Var, const, seq
from uma.tir.form.printer import CALLS
from uma.tir.form.text import parse_func, print_func
from uma.tir.form.verify import faults, verify
from uma.tir.form.visit import (
    buffers_read,
    buffers_written,
    child_statements,
    map_expressions,
    operands,
    rebuild,
    substitute,
    walk,
)
from uma.tir.proofs.alias import may_alias
from uma.tir.proofs.indices import index_faults
from uma.tir.rewrites.flatten import flatten
from uma.tir.rewrites.simplify import simplify
from uma.tir.rewrites.unroll import unroll


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Scale(Stmt):
    """``target[to] = source[at] * factor``."""

    target: Buffer = field(metadata=WRITTEN)
    to: tuple[Expr, ...]
    source: Buffer = field(metadata=READ)
    at: tuple[Expr, ...]
    factor: Expr
    times: int = 1


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Region(Stmt):
    """``body`` under a label."""

    label: str = field(metadata=LABEL)
    body: Stmt


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Guess(Stmt):
    """``var`` is something within ``body``."""

    var: Var = field(metadata=DECLARED)
    body: Stmt


i, j = Var("i"), Var("j")
x, y = Buffer("x", (4, 6), "int32"), Buffer("y", (4, 6), "int32")


@pytest.fixture(autouse=True)
def words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CALLS, "scale", Scale)
    monkeypatch.setitem(CALLS, "region", Region)


def function(*stmts: Stmt) -> PrimFunc:
    first = For(Var("a"), const(4), For(Var("b"), const(6), Store(y, (Var("a"), Var("b")), const(0))))
    return PrimFunc((Param(x, "input"), Param(y, "output")), seq(first, *stmts))


def test_its_parts_are_found_and_replaced() -> None:
    scale = Scale(y, (i, j), x, (j, i), i * 2)
    assert operands(scale) == (i, j, j, i, i * 2) and child_statements(scale) == ()
    assert accesses(scale) == (Access(y, (i, j), False, True), Access(x, (j, i), True, False))
    assert buffers_read(scale) == (x,) and buffers_written(scale) == (y,)
    assert list(walk(scale)) == [scale, i, j, i * 2, const(2)]
    assert rebuild(scale, operands(scale)) is scale and map_fields(scale) is scale
    moved = map_expressions(scale, lambda expr: substitute(expr, {i: const(3)}))
    assert moved is Scale(y, (const(3), j), x, (j, const(3)), const(3) * 2)
    region, guess = Region("here", scale), Guess(i, scale)
    assert child_statements(region) == (scale,) and named(region) == ("here",) and named(guess) == ("i",)
    assert declares(guess) is i and declares(region) is None
    assert rebuild(region, (), [seq()]) is Region("here", seq())


def test_it_is_written_and_read() -> None:
    loop = For(i, const(4), Region("here", Scale(y, (i, const(0)), x, (i, const(1)), i * 2, 3)))
    text = print_func(function(loop), "f")
    assert '        with region("here"):\n            scale(y[i, 0], x[i, 1], i * 2, 3)\n' in text
    assert parse_func(text) == ("f", function(loop))
    short = function(Scale(y, (const(0), const(0)), x, (const(1), const(1)), const(3)))
    assert "    scale(y[0, 0], x[1, 1], int32(3))\n" in print_func(short, "f")
    assert parse_func(print_func(short, "f"))[1] is short


def test_it_is_checked() -> None:
    inside = Scale(y, (const(0), i), x, (const(0), const(6)), const(1))
    assert list(faults(function(For(i, const(6), inside)))) == []
    assert [what for what, _ in faults(function(inside))] == ["'i' is used outside its scope"]
    written = Scale(x, (const(0), const(0)), y, (const(0), const(0)), const(1))
    assert [what for what, _ in faults(function(written))] == ["input 'x' is written"]
    (found,) = index_faults(function(For(i, const(6), inside)))
    assert found.what == "index 6 is 6, outside of dimension 1 of 'x', which has 6"


def test_it_goes_through_the_rewrites() -> None:
    rows = For(i, const(2), Scale(y, (i, const(0) + 1), x, (i + 1, i), const(2) * 3), "unrolled")
    func = unroll(function(rows))
    verify(func)
    scales = [part for part in walk(func.body) if isinstance(part, Scale)]
    assert [scale.to[0] for scale in scales] == [const(0), const(1)] and scales[1].at == (const(2), const(1))
    simple = [part for part in walk(simplify(func).body) if isinstance(part, Scale)]
    assert simple[0].factor is const(6) and simple[0].to == (const(0), const(1))
    flat = [part for part in walk(flatten(simplify(func)).body) if isinstance(part, Scale)]
    assert flat[1].to == (const(7),) and flat[1].target.shape == (24,) and flat[1].at == (const(13),)
    again = unroll(function(For(j, const(2), Guess(i, Scale(y, (i, i), x, (i, i), i)), "unrolled")))
    verify(again)
    assert [declares(part) for part in walk(again.body) if isinstance(part, Guess)] == [i, Var("i_1")]
    named_twice = unroll(function(For(j, const(2), Region("here", Block("there", seq())), "unrolled")))
    assert [part.label for part in walk(named_twice.body) if isinstance(part, Region)] == ["here", "here_1"]


def test_it_counts_for_who_may_share_memory() -> None:
    params = function().params
    turned = For(i, const(4), For(j, const(4), Scale(y, (i, j), x, (j, i), const(1))))
    read_before = For(i, const(4), Scale(y, (i, const(0)), x, (i, const(0)), const(1)))
    # What a statement itself reads counts as read after what it writes.
    assert may_alias(params, turned) == () and may_alias(params, read_before) == ()
    other = Scale(y, (i, const(0)), y, (i, const(0)), x[i, const(0)])
    assert may_alias(params, For(i, const(4), other)) == (("y", "x"),)
