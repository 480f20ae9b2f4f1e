"""The proof against the interpreter: what it accepts never leaves a buffer, and what is right is accepted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from math import prod
from typing import Any

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests._support.tir_devices import device_funcs
from tests._support.tir_queues import queued_funcs
from tests._support.tir_strategies import arguments, prim_funcs

from uma.tir.form.interp import InterpreterError, interpret
from uma.tir.form.nodes import (
    Bin,
    Bind,
    Buffer,
    Expr,
    For,
    If,
    Load,
    Param,
    PrimFunc,
    Select,
    Stmt,
    Store,
    Var,
    const,
    maximum,
    minimum,
    seq,
)
from uma.tir.form.text import print_func
from uma.tir.form.visit import child_statements, operands, rebuild, rewrite
from uma.tir.proofs.intervals import Bounds
from uma.tir.proofs.obligations import unproven
from uma.tir.rewrites.flatten import flatten
from uma.tir.rewrites.scratch_hoisting import hoist_scratch
from uma.tir.rewrites.simplify import simplify

Draw = Any
_LESS = settings().max_examples * 2 // 5
"""Twenty: each example is a few functions."""


def leaves_a_buffer(func: PrimFunc, arrays: dict[str, np.ndarray]) -> str | None:
    """What the interpreter says of an access outside of a buffer, or of an output that is not written; else None."""
    try:
        interpret(func, arrays)
    except InterpreterError as error:
        if "is outside dimension" in error.what or "were never written" in error.what:
            return error.what
    return None


def rounds(stmt: Stmt, bounds: Bounds) -> int:
    """At most so many statements are executed in all rounds of all loops."""
    times = max(bounds.interval(stmt.extent)[1], 0) if isinstance(stmt, For) else 1
    return times * (1 + sum(rounds(body, within) for body, within in bounds.children(stmt)))


# --- random functions, and what may be wrong with them


def moved(func: PrimFunc, number: int, by: int) -> PrimFunc:
    """One index, or one extent, is another one: the one of this number, as often as there are so many."""
    sites: list[int] = []

    def site(expr: Expr) -> Expr:
        sites.append(0)
        return expr + by if len(sites) - 1 == number else expr

    def rule(node: Expr) -> Expr | None:
        return Load(node.buffer, tuple(site(index) for index in node.indices)) if isinstance(node, Load) else None

    def statement(stmt: Stmt) -> Stmt:
        exprs = [rewrite(expr, rule) for expr in operands(stmt)]
        if isinstance(stmt, For):
            exprs = [site(exprs[0])]
        elif isinstance(stmt, Store):
            exprs = [*(site(index) for index in exprs[:-1]), exprs[-1]]
        return rebuild(stmt, exprs, [statement(inner) for inner in child_statements(stmt)])

    return PrimFunc(func.params, statement(func.body), func.may_alias)


def smaller(func: PrimFunc, number: int) -> PrimFunc:
    """One parameter is one element shorter in its first dimension."""
    able = [param.buffer for param in func.params if param.buffer.shape and param.buffer.shape[0] > 1]
    if not able:
        return func
    old = able[number % len(able)]
    new = replace(old, shape=(old.shape[0] - 1, *old.shape[1:]))

    def rule(node: Expr) -> Expr | None:
        return Load(new, node.indices) if isinstance(node, Load) and node.buffer is old else None

    def statement(stmt: Stmt) -> Stmt:
        exprs = [rewrite(expr, rule) for expr in operands(stmt)]
        made = rebuild(stmt, exprs, [statement(inner) for inner in child_statements(stmt)])
        if getattr(made, "buffer", None) is old:
            made = replace(made, buffer=new)  # type: ignore[call-arg]  # what has a buffer is a dataclass with one
        return made

    params = tuple(Param(new, p.role) if p.buffer is old else p for p in func.params)
    return PrimFunc(params, statement(func.body), func.may_alias)


@settings(max_examples=_LESS)
@given(prim_funcs())
def test_what_never_leaves_a_buffer_is_proven(func: PrimFunc) -> None:
    for made in (func, simplify(func), flatten(func), flatten(simplify(func))):
        found = unproven(made)
        assert found is None, f"{found}\n{print_func(made, 'f')}"


@settings(max_examples=_LESS // 2)  # they take long to draw, and are proven wherever they are built
@given(st.one_of(device_funcs(), queued_funcs()))
def test_copies_and_intrinsics_that_never_leave_a_buffer_are_proven(func: PrimFunc) -> None:
    for made in (func, simplify(func), hoist_scratch(flatten(simplify(func)))):
        found = unproven(made)
        assert found is None, f"{found}\n{print_func(made, 'f')}"


@given(prim_funcs(depth=2), st.integers(0, 12), st.sampled_from([-1, 1, 3]), st.data())
def test_what_is_proven_of_a_changed_function_is_true(func: PrimFunc, n: int, by: int, data: st.DataObject) -> None:
    made = smaller(func, n) if data.draw(st.booleans()) else moved(func, n, by)
    assume(rounds(made.body, Bounds({})) < 10_000)  # an extent that is the sum of two may be anything
    if unproven(made) is None:
        assert leaves_a_buffer(made, data.draw(arguments(made))) is None, print_func(made, "f")


# --- nests of loops whose indices no data decide: the interpreter knows all about these


@st.composite
def tilings(draw: Draw) -> PrimFunc:
    """A copy of a vector in tiles, windows, rings or parts, of which one number may be wrong."""
    off = [0] * 6
    if draw(st.booleans()):
        off[draw(st.integers(0, 5))] = draw(st.sampled_from([-1, 1]))
    extent, tile = draw(st.integers(2, 9)), draw(st.integers(1, 4))
    reach, step = draw(st.integers(0, 2)), draw(st.integers(1, 2))
    x = Buffer("x", (max(1, (extent - 1) * step + 1 + off[0]),), "int32")
    y = Buffer("y", (max(1, extent + off[1]),), "int32")
    t, i, a = Var("t"), Var("i"), Var("a")
    count = -(-extent // tile) + off[2]
    at: Expr = t * tile + i
    write: Stmt = Store(y, (at,), _taken(draw, x, at * step + off[3]))
    kind = draw(st.sampled_from(["shrink", "guard", "back", "clamp", "split"]))
    if kind == "shrink":
        nest: Stmt = For(i, minimum(extent + off[4] - t * tile, tile), write)
    elif kind == "guard":
        nest = For(i, const(tile), If(at < extent + off[4], write))
    elif kind == "back":  # the last tile overlaps the one before it
        first = Var("first")
        start = minimum(t * tile, maximum(const(extent + off[4] - tile), 0))
        inner = Store(y, (first + i,), _taken(draw, x, (first + i) * step + off[3]))
        nest = Bind(first, start, For(i, const(min(tile, extent)), inner))
    elif kind == "clamp":
        last = minimum(at, extent - 1 + off[4])
        nest = For(i, const(tile), Store(y, (last,), _taken(draw, x, last * step + off[3])))
    else:
        whole = Store(y, (t // tile * tile + t % tile,), _taken(draw, x, t * step + off[3]))
        return _function(x, y, For(t, const(extent + off[4]), whole))
    body: Stmt = For(t, const(max(0, count)), nest)
    if reach and draw(st.booleans()):
        j = Var("j")
        back = j * step + a - reach + off[5]
        inside = Bin("and", back >= 0, back < x.shape[0])
        seen = (
            Select(inside, x[back], const(0)) if draw(st.booleans()) else x[minimum(maximum(back, 0), x.shape[0] - 1)]
        )
        around = For(j, const(y.shape[0]), For(a, const(2 * reach + 1), Store(y, (j,), seen)))
        body = seq(body, around)
    return _function(x, y, body)


def _taken(draw: Draw, x: Buffer, at: Expr) -> Expr:
    if draw(st.integers(0, 3)):
        return x[at]
    return Select(at >= 0, Select(at < x.shape[0], x[at], const(1)), const(2))


def _function(x: Buffer, y: Buffer, body: Stmt) -> PrimFunc:
    return PrimFunc((Param(x, "input"), Param(y, "output")), body)


@settings(max_examples=_LESS * 10)
@given(tilings())
def test_of_tiles_exactly_what_is_right_is_proven(func: PrimFunc) -> None:
    wrong = leaves_a_buffer(func, {"x": np.zeros(func.params[0].buffer.shape, np.int32)})
    for made in (func, flatten(simplify(func))):
        found = unproven(made)
        assert (found is None) == (wrong is None), f"{wrong}, {found}\n{print_func(made, 'f')}"


# --- blocks of an output, by loops in any order: nobody runs them where there are many elements


@st.composite
def blocks(draw: Draw) -> tuple[PrimFunc, PrimFunc, bool]:
    """A function that writes an output block by block, each dimension with a tail, perhaps in wrong blocks; the same
    with so many more blocks that no array holds a mark for each element; and whether it is right.
    """
    rank = draw(st.integers(1, 3))
    tiles = [draw(st.integers(1, 4)) for _ in range(rank)]
    counts = [draw(st.integers(1, 3)) for _ in range(rank)]
    tails = [draw(st.integers(0, tile - 1)) for tile in tiles]
    parts = list(product(*([False, True] if tail else [False] for tail in tails)))
    left_out = draw(st.sampled_from([None, *parts])) if len(parts) > 1 else None
    short = draw(st.sampled_from([None, *(dim for dim, tile in enumerate(tiles) if tile > 1)]))
    orders = {part: draw(st.permutations(range(2 * rank))) for part in parts}
    large = draw(st.integers(0, rank - 1))
    factor = (1 << 30) // prod(count * tile + tail for count, tile, tail in zip(counts, tiles, tails, strict=True))
    scales = [1] * rank, [factor if dim == large else 1 for dim in range(rank)]
    made = []
    for scale in scales:
        several = [count * factor for count, factor in zip(counts, scale, strict=True)]
        shape = tuple(count * tile + tail for count, tile, tail in zip(several, tiles, tails, strict=True))
        y = Buffer("y", shape, "int8")
        nests = [_block(y, part, several, [*tiles], tails, short, orders[part]) for part in parts if part != left_out]
        made.append(PrimFunc((Param(y, "output"),), seq(*nests)))
    return made[0], made[1], left_out is None and short is None


def _block(
    y: Buffer,
    is_tail: Sequence[bool],
    counts: Sequence[int],
    tiles: Sequence[int],
    tails: Sequence[int],
    short: int | None,
    order: Sequence[int],
) -> Stmt:
    """The nest of one block: of each dimension its whole tiles, or its tail."""
    loops: list[tuple[Var, int]] = []
    indices: list[Expr] = []
    for dim, (tail, count, tile, rest) in enumerate(zip(is_tail, counts, tiles, tails, strict=True)):
        t, i = (Var(f"{name}{dim}_{''.join(str(int(other)) for other in is_tail)}") for name in "ti")
        inner = (rest if tail else tile) - (short == dim and not any(is_tail))
        loops += [(t, 1 if tail else count), (i, inner)]
        indices.append(t * tile + i + count * tile if tail else t * tile + i)
    body: Stmt = Store(y, tuple(indices), const(1, "int8"))
    for number in order:
        var, extent = loops[number]
        body = For(var, const(extent), body)
    return body


@settings(max_examples=_LESS * 5)
@given(blocks())
def test_of_blocks_exactly_what_is_right_is_proven_however_many_elements_there_are(
    case: tuple[PrimFunc, PrimFunc, bool],
) -> None:
    small, large, is_right = case
    assert (leaves_a_buffer(small, {}) is None) == is_right, print_func(small, "f")
    for func in (small, flatten(simplify(small)), large, flatten(simplify(large))):
        found = unproven(func)
        assert (found is None) == is_right, f"{found}\n{print_func(func, 'f')}"
