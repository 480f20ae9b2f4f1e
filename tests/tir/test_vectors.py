"""Vectorized loops, buffers in registers and intrinsics of the host: the form, and what is proven of it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from uma.errors import InternalError
from uma.tir.form.interp import interpret
from uma.tir.form.nodes import (
    Alloc,
    Axis,
    Buffer,
    Copy,
    Exec,
    Expr,
    For,
    Intrinsic,
    Memory,
    Param,
    PrimFunc,
    Stmt,
    Store,
    Update,
    Var,
    View,
    const,
    seq,
)
from uma.tir.form.text import parse_func, print_func
from uma.tir.form.verify import verify
from uma.tir.form.visit import intrinsics, uses_device
from uma.tir.proofs.lanes import lane_faults, register_faults, register_lanes
from uma.tir.proofs.obligations import unproven
from uma.tir.rewrites.flatten import flatten
from uma.tir.rewrites.simplify import simplify
from uma.tir.rewrites.unroll import unroll

TILE = """\
@intrinsic(statement="{acc} = dot({acc}, {a}, {w})", include="dot.h")
def dot(
    acc: Operand[int32, (8,), scope("register")],
    a: Operand[uint8, (4,)],
    w: Operand[int8, (8, 4)],
):
    for lane in range(8):
        for b in range(4):
            acc[lane] += int32(a[b]) * int32(w[lane, b])

@prim_func
def tile(
    x: In[uint8, (3, 8)],
    y: Out[int32, (3, 16)],
    w: Const[int8, (2, 2, 8, 4)],
):
    acc = alloc(int32, (3, 2, 8), scope("register"))
    for p in unrolled(3):
        for v in unrolled(2):
            for l in vectorized(8):
                acc[p, v, l] = 7
    for k in range(2):
        for p2 in unrolled(3):
            for v2 in unrolled(2):
                dot(view(acc[p2, v2, 0], axis(2)), view(x[p2, 4 * k], axis(1)), view(w[v2, k, 0, 0], axis(2), axis(3)))
    for p3 in unrolled(3):
        for v3 in unrolled(2):
            for l3 in vectorized(8):
                y[p3, 8 * v3 + l3] = max(acc[p3, v3, l3], 0)
"""
"""A tile of three pixels and two vectors, with an inner product."""


def tile() -> PrimFunc:
    return parse_func(TILE)[1]


def test_they_are_text_and_run_in_the_interpreter_as_they_are_at_every_stage() -> None:
    func = tile()
    assert print_func(func, "tile") == TILE
    rng = np.random.default_rng(1)
    given = {"x": rng.integers(0, 256, (3, 8), np.uint8), "w": rng.integers(-128, 128, (2, 2, 8, 4), np.int8)}
    products = np.einsum("pkb,vklb->pvl", given["x"].reshape(3, 2, 4).astype(int), given["w"].astype(int))
    wanted = np.maximum(products + 7, 0).reshape(3, 16)
    unrolled = unroll(simplify(func))
    flat = flatten(unrolled)
    assert unproven(func) is unproven(unrolled) is unproven(flat) is None
    np.testing.assert_array_equal(interpret(func, given)["y"], wanted)
    np.testing.assert_array_equal(interpret(unrolled, given)["y"], wanted)
    shaped = {name: array.ravel() for name, array in given.items()}
    np.testing.assert_array_equal(interpret(flat, shaped)["y"], wanted.ravel())
    assert parse_func(print_func(flat, "tile"))[1] is flat


def test_registers_have_constant_indices_once_loops_are_unrolled() -> None:
    func = simplify(tile())
    assert not list(register_faults(unroll(func))) and not list(register_faults(flatten(unroll(func))))
    first = next(register_faults(func))
    assert first.what == "'acc' is in registers, and the index by 'p' is not constant"
    assert first.hint == "a register is chosen when the C is written: unroll the loop over 'p'"
    assert not list(register_faults(func, early=True))
    rolled = parse_func(TILE.replace("for p in unrolled(3)", "for p in range(3)"))[1]
    assert [found.what for found in register_faults(rolled, early=True)] == [first.what]
    assert register_lanes(unroll(func)) == {Buffer("acc", (3, 2, 8), "int32", "register"): {8}}


def test_an_intrinsic_of_the_host_uses_no_device() -> None:
    func = tile()
    (dot,) = intrinsics(func)
    assert not uses_device(func) and dot.is_host and dot.roles == ((True, True), (True, False), (True, False))


x = Buffer("x", (32,), "float32")
y = Buffer("y", (32,), "float32")
r = Buffer("r", (16,), "float32", "register")
w = Buffer("w", (4,), "float32", "register")
i, j, lane = Var("i"), Var("j"), Var("l")


def function(*stmts: Stmt, alias: bool = False) -> PrimFunc:
    params = (Param(x, "input"), Param(y, "output"))
    return PrimFunc(params, seq(*stmts), (("y", "x"),) if alias else ())


def vector(body: Stmt, extent: Expr | int = 8) -> For:
    return For(lane, const(extent) if isinstance(extent, int) else extent, body, "vectorized")


READ = "an element of 'y' may be read and written by two iterations"
WRITTEN = "an element of 'y' may be written by two iterations"
DEPENDENT = [
    (vector(Store(y, (lane // 2,), x[lane])), WRITTEN),
    (vector(Store(y, (const(3),), x[lane])), WRITTEN),
    (vector(Update("add", y, (const(3),), x[lane])), WRITTEN),
    (vector(Store(y, (lane + 1,), y[lane])), READ),
    (vector(Store(y, (lane,), y[const(3)])), READ),
    (
        vector(For(j, const(4), Store(y, (lane * 2 + j,), x[lane]))),
        WRITTEN,
    ),
    (
        For(i, const(3), vector(Store(y, (lane,), y[i * 4]))),
        READ,
    ),
    (
        vector(Copy(View(y, (lane * 1,), (Axis(0),)), View(x, (lane * 1,), (Axis(0),)), (const(1),))),
        "a statement of kind Copy is not an element of a vector",
    ),
]


@pytest.mark.parametrize(("stmt", "what"), DEPENDENT)
def test_iterations_that_may_depend_on_one_another_are_found(stmt: Stmt, what: str) -> None:
    found = next(lane_faults(function(stmt)))
    assert found.what == f"vectorized loop 'l': {what}" and found.place is not None
    assert "vectorize loops whose iterations" in found.hint


INDEPENDENT = [
    vector(Store(y, (lane * 2,), y[lane * 2 + 1])),
    vector(Store(y, (lane,), y[const(8)])),
    vector(For(j, const(4), Store(y, (j * 8 + lane,), y[j * 8 + lane] + x[j]))),
    For(i, const(3), vector(Store(y, (i * 8 + lane,), y[(2 - i) * 8 + lane]))),
    vector(Alloc(w, seq(Store(w, (const(0),), x[lane]), Store(y, (lane,), w[const(0)])))),
]


@pytest.mark.parametrize("stmt", INDEPENDENT)
def test_iterations_that_touch_elements_of_their_own_are_independent(stmt: Stmt) -> None:
    assert not list(lane_faults(function(stmt)))


def test_an_output_that_may_be_the_memory_of_an_input_counts_as_that() -> None:
    shifted = vector(Store(y, (lane,), x[lane + 1]))
    assert not list(lane_faults(function(shifted))) and list(lane_faults(function(shifted, alias=True)))
    assert "may be read and written" in str(unproven(function(shifted, alias=True)))


REGISTERS = [
    (vector(Store(r, (lane + 4,), x[lane])), "'r', of 16 elements in registers, has no whole vectors of 8 lanes there"),
    (vector(Store(r, (lane * 2,), x[lane])), "'r' is in registers, and the index by 'l' is not constant"),
    (For(i, const(4), Store(r, (i,), x[i])), "'r' is in registers, and the index by 'i' is not constant"),
    (
        seq(vector(Store(r, (lane,), x[lane])), For(j, const(4), Store(r, (j,), x[j]), "vectorized")),
        "'r' is in registers, and used as vectors of 4 and 8 lanes",
    ),
]


@pytest.mark.parametrize(("stmt", "what"), REGISTERS)
def test_what_is_no_register_is_refused(stmt: Stmt, what: str) -> None:
    assert [found.what for found in register_faults(function(Alloc(r, stmt)))] == [what]


REFUSED = [
    (vector(Store(y, (lane,), x[lane]), 6), "the extent of vectorized loop 'l' is 6, not a power of two from 2 to 64"),
    (vector(Store(y, (lane,), x[lane]), 1), "the extent of vectorized loop 'l' is 1, not a power of two from 2 to 64"),
    (
        For(i, const(4), vector(Store(y, (lane,), x[lane]), i + 1)),
        "the extent of vectorized loop 'l' is not constant, not a power of two from 2 to 64",
    ),
    (
        For(i, const(4), vector(Store(y, (i * 8 + lane,), x[lane])), "vectorized"),
        "vectorized loop 'l' is within another one, 'i'",
    ),
]


@pytest.mark.parametrize(("stmt", "what"), REFUSED)
def test_a_vector_has_a_constant_number_of_lanes(stmt: Stmt, what: str) -> None:
    with pytest.raises(InternalError) as error:
        verify(function(stmt))
    assert error.value.what == f"malformed loops: {what}"


NOTHING = seq()
SLOTS = Buffer("s", (2, 8), "float32", "register")
MALFORMED = [
    (lambda: Intrinsic("f", (), (), NOTHING), "'f' has no code"),
    (
        lambda: Intrinsic("f", (), (), NOTHING, "f()", statement="f()"),
        "'f' is the host's, having a statement, and has no code and no start",
    ),
    (
        lambda: Intrinsic("f", (r,), (), NOTHING, "f({r})"),
        "parameter 'r' of 'f' has scope 'register', which only the host works on",
    ),
    (
        lambda: Intrinsic("f", (Buffer("t", (4,), "int8", "spad"),), (), NOTHING, statement="f({t})"),
        "parameter 't' of 'f' has scope 'spad', which the host cannot address",
    ),
    (lambda: Intrinsic("f", (), (), NOTHING, "f()", include="f.h"), "'f' has no statement, and includes a header"),
    (
        lambda: Intrinsic("f", (), (), NOTHING, statement="f()", include="../f.h"),
        "'f' includes '../f.h', which is not a name of a header such as 'dot.h'",
    ),
    (
        lambda: Intrinsic("f", (), (), NOTHING, statement="f({device})"),
        "statement of 'f': unknown placeholder {device}; there is none",
    ),
    (
        lambda: Intrinsic("f", (r,), (), NOTHING, statement="{r} = f({r}, {r_stride0})"),
        "statement of 'f': unknown placeholder {r_stride0}; there is {r}",
    ),
    (
        lambda: Intrinsic("f", (SLOTS,), (), NOTHING, statement="{s} = 0"),
        "statement of 'f': {s} stands for several operands, and is not an argument of a call by itself",
    ),
    (
        lambda: Exec(Intrinsic("f", (r,), (), NOTHING, statement="{r} = f()"), (View(x, (const(0),), (Axis(0),)),)),
        "'f' takes as 'r' a view in scope 'register', not 'global'",
    ),
    (
        lambda: Copy(View(x, (const(0),), ()), View(r, (const(0),), ()), ()),
        "'r' is in registers, which are not copied: load and store",
    ),
    (lambda: Memory("register", 4), "a memory cannot be called 'register', which is the host's"),
]


@pytest.mark.parametrize(("make", "what"), MALFORMED)
def test_a_node_that_cannot_be_is_refused(make: Callable[[], object], what: str) -> None:
    with pytest.raises(InternalError) as error:
        make()
    assert error.value.what == what
