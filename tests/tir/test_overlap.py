"""By how many bytes an input must lie behind the output over it: at that distance nothing is lost, one byte less and
the interpreter misses what was written over."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest

from uma.tir import (
    Alloc,
    Bin,
    Buffer,
    Cast,
    Expr,
    For,
    If,
    Load,
    Param,
    PrimFunc,
    Stmt,
    Store,
    Var,
    const,
    interpret,
    parse_func,
    seq,
)
from uma.tir.form.interp import InterpreterError
from uma.tir.proofs.overlap import distance_by_bounds, may_overlap, overlaps, with_overlaps
from uma.tir.proofs.overlap_run import distance_by_running

CONVOLUTION = """
@prim_func
def f(x: In[{dtype}, (6, 6, 4)], y: Out[{dtype}, (6, 6, 4)]):
    for i in range(6):
        for j in range(6):
            for c in range(4):
                t = alloc(int32, (1,))
                t[0] = 0
                for a in range(3):
                    if 1 <= i + a and i + a < 7:
                        for b in range(3):
                            if 1 <= j + b and j + b < 7:
                                t[0] += int32(x[i + a - 1, j + b - 1, c])
                y[i, j, c] = {dtype}(t[0])
"""


def distances(text: str) -> tuple[int | None, int | None]:
    """By bounds, and by running, of a function of one output and one input."""
    func = parse_func(text)[1]
    ((out, x),) = may_overlap(func)
    return distance_by_bounds(out, x, func), distance_by_running(out, x, func)


def misses(func: PrimFunc, distance: int) -> bool:
    """Whether something is read that was written over, where the input lies so many bytes behind the output."""
    x, out = func.buffers("input")[0], func.buffers("output")[0]
    values = np.arange(x.size).reshape(x.shape).astype(x.dtype)
    try:
        interpret(func, {x.name: values}, [(out.name, x.name, distance)])
    except InterpreterError as error:
        assert "after another one was written over it" in str(error)
        return True
    return False


@pytest.mark.parametrize("dtype", ["int8", "float32"])
def test_a_window_is_read_a_row_and_a_pixel_behind(dtype: str) -> None:
    text = CONVOLUTION.format(dtype=dtype)
    wanted = (6 + 1) * 4 * np.dtype(dtype).itemsize
    assert distances(text) == (wanted, wanted)
    func = with_overlaps(parse_func(text)[1])
    assert func.overlaps == (("y", "x", wanted),)
    assert not misses(func, wanted) and misses(func, wanted - 1) and not misses(func, wanted + 1)


def test_sizes_and_types_may_differ() -> None:
    widening = (
        "@prim_func\ndef f(x: In[int8, (9,)], y: Out[float32, (9,)]):\n  for i in range(9):\n    y[i] = float32(x[i])\n"
    )
    # When x[8] is read, 32 bytes of y are there.
    assert distances(widening) == (24, 24)
    narrowing = (
        "@prim_func\ndef f(x: In[float32, (9,)], y: Out[int8, (9,)]):\n  for i in range(9):\n    y[i] = int8(x[i])\n"
    )
    assert distances(narrowing) == (-3, -3)
    tail = "@prim_func\ndef f(x: In[int8, (9,)], y: Out[int8, (3,)]):\n  for i in range(3):\n    y[i] = x[i + 6]\n"
    assert distances(tail) == (-6, -6)
    for text in (widening, narrowing, tail):
        func, wanted = parse_func(text)[1], distances(text)[1]
        assert wanted is not None and not misses(func, wanted) and misses(func, wanted - 1)


def test_what_is_not_read_may_lie_anywhere() -> None:
    text = "@prim_func\ndef f(x: In[int8, (9,)], y: Out[int8, (3,)]):\n  for i in range(3):\n    y[i] = 1\n"
    assert distances(text) == (-9, -9)


def test_a_distance_of_the_whole_output_is_none() -> None:
    text = "@prim_func\ndef f(x: In[int8, (4,)], y: Out[int8, (4,)]):\n  for i in range(4):\n    y[i] = x[3 - i]\n"
    assert distances(text) == (3, 3)
    func = parse_func(text.replace("[3 - i]", "[0]"))[1]
    assert distances(text.replace("[3 - i]", "[0]")) == (3, 3)
    twice = text + "  for j in range(4):\n    y[j] = x[j]\n"
    assert distances(twice) == (4, 4) and overlaps(parse_func(twice)[1]) == () != overlaps(func)


def test_bounds_see_through_names_and_loops_over_two_dimensions() -> None:
    text = """
@prim_func
def f(x: In[int8, (5, 7)], y: Out[int8, (5, 7)]):
    for i in range(35):
        row: int32 = i // 7
        y[row, i % 7] = x[i // 7, i % 7]
"""
    assert distances(text) == (0, 0)
    assert distances(text.replace("i % 7]\n", "i % 5]\n")) == (34, 6)


def test_where_bounds_fail_the_arithmetic_is_run() -> None:
    """Edges that are repeated: an index is a minimum, which is not a sum."""
    text = """
@prim_func
def f(x: In[int8, (40,)], y: Out[int8, (40,)]):
    for i in range(40):
        y[i] = x[min(i + 2, 39)] if i < 39 else int8(3)
"""
    by_bounds, by_running = distances(text)
    assert by_bounds is not None and by_bounds >= 36 and by_running == -1
    func = parse_func(text)[1]
    ((out, x),) = may_overlap(func)
    assert distance_by_running(out, x, func, max_work=10) is None
    assert not misses(func, -1)


def test_what_depends_on_memory_may_be_anything() -> None:
    text = """
@prim_func
def f(x: In[int8, (8,)], k: In[int32, (8,)], y: Out[int8, (8,)]):
    for i in range(8):
        y[i] = x[max(0, min(7, k[i]))] if k[i] > 3 else int8(0)
"""
    assert overlaps(parse_func(text)[1]) == (("y", "x", 7), ("y", "k", -3))


def test_steps_of_an_intrinsic_have_no_order() -> None:
    text = """
@intrinsic(statement="add({y}, {x}, {n})")
def add(y: Operand[int8, (8,)], x: Operand[int8, (9,)], n: int32):
    for i in range(n):
        y[i] = x[i] + x[i + 1]

@prim_func
def f(x: In[int8, (40,)], y: Out[int8, (32,)]):
    for i in range(8):
        add(view(y[i * 4], axis(0)), view(x[i * 4 + 1], axis(0)), 4)
"""
    assert distances(text) == (3, 3), "4 elements are written, from the second on 5 are read"
    shorter = text.replace("axis(0)), 4)", "axis(0)), 2)")
    assert distances(shorter) == (1, 1), "as many as this call works on"
    copied = """
@prim_func
def f(x: In[int8, (32,)], y: Out[int8, (32,)]):
    for i in range(4):
        copy(view(y[i * 8], axis(0)), view(x[i * 8], axis(0)), (8,))
"""
    assert distances(copied) == (8, 8)


def test_rounds_of_a_parallel_loop_have_no_order() -> None:
    text = "@prim_func\ndef f(x: In[int8, (9,)], y: Out[int8, (9,)]):\n  for i in {}(9):\n    y[i] = x[i]\n"
    assert distances(text.format("range")) == (0, 0)
    assert distances(text.format("parallel")) == (9, 9)


def test_vectors_and_what_is_in_flight_overlap_nothing() -> None:
    text = "@prim_func\ndef f(x: In[int8, (8,)], y: Out[int8, (8,)]):\n  for i in {}(8):\n    y[i] = x[i]\n"
    assert overlaps(parse_func(text.format("range"))[1]) == (("y", "x", 0),)
    assert overlaps(parse_func(text.format("vectorized"))[1]) == ()
    started = """
spad = memory(64, copy_out="out({to}, {from}, {row_bytes})", start_in="in({queue}, {to}, {from}, {row_bytes})")
dma = queue("wait({device}, {pending})")

@prim_func
def f(x: In[int8, (8,)], y: Out[int8, (8,)]):
    memories(spad)
    queues(dma)
    t = alloc(int8, (8,), scope("spad"))
    copy(view(t[0], axis(0)), view(x[0], axis(0)), (8,), dma)
    wait(dma)
    copy(view(y[0], axis(0)), view(t[0], axis(0)), (8,))
"""
    assert overlaps(parse_func(started)[1]) == ()


def test_a_function_of_very_many_outputs_tells_nothing() -> None:
    def split(count: int) -> PrimFunc:
        outs = "".join(f", y{k}: Out[int8, (1,)]" for k in range(count))
        body = "".join(f"  y{k}[0] = x[{k}]\n" for k in range(count))
        return parse_func(f"@prim_func\ndef f(x: In[int8, ({count},)]{outs}):\n{body}")[1]

    assert overlaps(split(3)) == (("y0", "x", 0), ("y1", "x", -1), ("y2", "x", -3))
    assert overlaps(split(300)) == ()


def test_c_must_take_both_for_one_memory() -> None:
    text = "@prim_func\ndef f(x: In[{}, (8,)], y: Out[{}, (8,)]):\n  for i in range(8):\n    y[i] = {}(x[i])\n"

    def may(given: str, out: str) -> bool:
        return bool(overlaps(parse_func(text.format(given, out, out))[1]))

    assert may("float32", "int8") and may("uint8", "float32") and may("int32", "uint32") and may("bool", "bool")
    assert not may("float32", "int32") and not may("int16", "int32") and not may("bool", "int32")


# Random loops


@dataclass(frozen=True)
class Access:
    """Its own loops' extents and strides, where it begins, and in which rounds of these it is: 99 is in all."""

    writes: bool
    extents: tuple[int, ...]
    strides: tuple[int, ...]
    start: int
    below: int


Loops = tuple[tuple[int, ...], list[tuple[int, Access]]]
"""Extents of the loops around, and accesses, each with the stride of these loops' count."""


def random_loops(rng: random.Random) -> Loops:
    around = tuple(rng.randint(1, 5) for _ in range(rng.randint(1, 2)))
    accesses = []
    for number in range(rng.randint(2, 5)):
        extents = tuple(rng.randint(1, 8) for _ in range(rng.randint(0, 2)))
        strides = tuple(rng.choice((-2, -1, 0, 1, 1, 2, 4)) for _ in extents)
        lowest = -sum(min(0, stride) * (extent - 1) for stride, extent in zip(strides, extents, strict=True))
        writes = number == 0 or (number > 1 and rng.random() < 0.5)
        start = lowest + rng.choice((0, 0, 1, 3, 8))
        accesses.append(
            (rng.choice((0, 1, 2, 4)), Access(writes, extents, strides, start, rng.choice((rng.randint(1, 9), 99))))
        )
    rng.shuffle(accesses)
    return around, accesses


def function_of(loops: Loops, out_type: str, x_type: str) -> PrimFunc:
    around, accesses = loops
    x, y, t = Buffer("x", (256,), x_type), Buffer("y", (256,), out_type), Buffer("t", (1,), "int32", "local")
    turns = [Var(f"o{depth}") for depth in range(len(around))]
    count: Expr = const(0)
    for var, extent in zip(turns, around, strict=True):
        count = count * extent + var
    parts = []
    for number, (stride, access) in enumerate(accesses):
        inner = [Var(f"i{number}_{depth}") for depth in range(len(access.extents))]
        index, turn = count * stride + access.start, const(0)
        for var, step in zip(inner, access.strides, strict=True):
            index, turn = index + var * step, turn + var
        here = (const(0),)
        body: Stmt = (
            Store(y, (index,), Cast(Load(t, here), out_type))
            if access.writes
            else Store(t, here, Cast(Load(x, (index,)), "int32"))
        )
        if access.below < 99:
            body = If(Bin("lt", turn, const(access.below)), body)
        for var, extent in reversed(list(zip(inner, access.extents, strict=True))):
            body = For(var, const(extent), body)
        parts.append(body)
    nest = seq(*parts)
    for var, extent in reversed(list(zip(turns, around, strict=True))):
        nest = For(var, const(extent), nest)
    whole = Alloc(t, seq(Store(t, (const(0),), const(0, "int32")), nest))
    return PrimFunc((Param(x, "input"), Param(y, "output")), whole, partial=("y",))


def needed(loops: Loops, out_size: int, x_size: int) -> int:
    """The distance, by going through all accesses one by one."""
    around, accesses = loops
    end, distance = -(1 << 40), -256 * x_size
    for count in range(int(np.prod(around))):
        for stride, access in accesses:
            for at in elements(access, count * stride):
                if access.writes:
                    end = max(end, (at + 1) * out_size)
                else:
                    distance = max(distance, end - at * x_size)
    return distance


def elements(access: Access, around: int) -> Iterator[int]:
    for turn in np.ndindex(*access.extents):
        if sum(turn) < access.below:
            yield around + access.start + int(np.dot(turn, access.strides)) if turn else around + access.start


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(1, 60))])
def test_random_loops(seed: int) -> None:
    rng, tight = random.Random(seed), 0
    for _ in range(60):
        loops = random_loops(rng)
        out_type, x_type = rng.choice((("int8", "int8"), ("float32", "int8"), ("int8", "int16"), ("int32", "int32")))
        func = function_of(loops, out_type, x_type)
        out_size, x_size = (np.dtype(dtype).itemsize for dtype in (out_type, x_type))
        wanted = needed(loops, out_size, x_size)
        ((out, x),) = may_overlap(func)
        run, bound = distance_by_running(out, x, func), distance_by_bounds(out, x, func)
        assert run == wanted and bound is not None and bound >= wanted, loops
        assert not misses(func, wanted) and not misses(func, wanted + rng.randint(1, 9))
        if wanted > -x.nbytes:
            assert misses(func, wanted - 1), loops
            tight += 1
    assert tight > 30
