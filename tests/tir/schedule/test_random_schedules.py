"""Schedules against the interpreter: whatever primitives do to random stages, the results stay the same."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests._support.schedules import agree

from uma.errors import InternalError
from uma.tir import (
    Alloc,
    Bin,
    Block,
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
    Update,
    Var,
    const,
    print_func,
    seq,
    walk,
)
from uma.tir.schedule import Schedule, ScheduleError, replay
from uma.tir.schedule.schedule import _MADE

Draw = Any
_FEW = settings().max_examples // 2


@st.composite
def stages(draw: Draw) -> PrimFunc:
    """Three or four stages, each a nest over one or two dimensions: elementwise, a window, a sum, or one whose
    iterations depend on one another.
    """
    shape = (draw(st.integers(2, 6)), draw(st.integers(2, 6)))
    x = Buffer("x", shape, "int32")
    done: list[Buffer] = [x]
    nests: list[Stmt] = []
    count = draw(st.integers(2, 4))
    for number in range(count):
        last = number == count - 1
        scope = "global" if last or draw(st.booleans()) else "local"
        made = Buffer("y" if last else f"t{number}", shape, "int32", scope)
        nests.append(Block(f"stage{number}", draw(_stage(made, done, number))))
        done.append(made)
    own = [buffer for buffer in done[1:-1] if buffer.scope == "local"]
    body = seq(*nests)
    for buffer in own:
        body = Alloc(buffer, body)
    spaces = [Param(buffer, "workspace") for buffer in done[1:-1] if buffer.scope == "global"]
    return PrimFunc((Param(x, "input"), Param(done[-1], "output"), *spaces), body)


@st.composite
def _stage(draw: Draw, made: Buffer, done: list[Buffer], number: int) -> Stmt:
    i, j, k = (Var(f"{name}{number}") for name in "ijk")
    rows, columns = made.shape
    source = done[-1] if draw(st.integers(0, 2)) else draw(st.sampled_from(done))
    kind = draw(st.sampled_from(["each", "each", "window", "sum", "sum", "after"]))
    if kind == "each":
        other = draw(st.sampled_from(done))
        at = (i, j) if draw(st.integers(0, 3)) else (i, columns - 1 - j)
        body: Stmt = Store(made, (i, j), source[at] * 3 + other[i, j] - i)
    elif kind == "window":
        inside = Bin("and", j + k >= 1, j + k < columns + 1)
        step = Update("add", made, (i, j), Select(inside, Load(source, (i, j + k - 1)), const(2)))
        body = seq(Store(made, (i, j), const(1)), For(k, const(3), step))
    elif kind == "sum":
        step = Update(draw(st.sampled_from(["add", "max"])), made, (i, j), source[i, k] * (j + 1))
        body = seq(Store(made, (i, j), const(0)), For(k, const(columns), step))
        if draw(st.booleans()):
            body = seq(Store(made, (i, j), const(0)), For(k, const(columns), If(k < i + 2, step)))
    else:
        before: Expr = Select(i > 0, Load(made, (i - 1, j)), source[i, j])
        body = Store(made, (i, j), before + source[i, j])
    return For(i, const(rows), For(j, const(columns), body))


def step(s: Schedule, draw: Draw) -> None:
    """A call of a primitive, legal or not."""
    func = s._state.func
    loops = [part.var.name for part in walk(func.body) if isinstance(part, For)]
    labels = [part.label for part in walk(func.body) if isinstance(part, Block)]
    if not loops or not labels:
        return  # each loop has been unrolled, or had one step; each block has been inlined
    buffers = [param.buffer.name for param in func.params]
    buffers += [part.buffer.name for part in walk(func.body) if isinstance(part, Alloc)]
    number = draw(st.integers(0, len(labels) - 1))
    label, neighbour = labels[number], labels[(number + draw(st.sampled_from([1, -1, 2]))) % len(labels)]
    mine, others = [var.name for var in s.loops(label)] or loops, [var.name for var in s.loops(neighbour)] or loops
    loop, other, at = draw(st.sampled_from(loops)), draw(st.sampled_from(others)), draw(st.sampled_from([None, *mine]))
    info = s.block(label)
    buffer = draw(st.sampled_from([buffer.name for buffer in (*info.reads, *info.writes)] or buffers))
    name = draw(st.sampled_from(PRIMITIVES))
    run = getattr(s, name)
    if name == "split":
        run(loop, draw(st.integers(1, 5)), tail=draw(st.sampled_from(["guard", "peel", "pad", "shrink"])))
    elif name == "fuse":
        run(*draw(st.sampled_from(list(pairwise(mine)) or [(loop, loop)])))
    elif name == "reorder":
        run(*draw(st.permutations(mine))[: draw(st.integers(2, 4))])
    elif name in ("unroll", "parallel"):
        run(loop)
    elif name == "vectorize":
        run(mine[-1])
    elif name == "decompose_reduction":
        run(label, draw(st.sampled_from(mine)))
    elif name in ("compute_at", "reverse_compute_at"):
        run(label, other)
    elif name == "inline":
        run(label)
    elif name == "cache_write":
        run(label, buffer, draw(st.sampled_from(["register", "local"])), at=at)
    elif name == "cache_read":
        run(label, buffer, at=at, layout=draw(st.sampled_from([None, (1, 0)])))
    elif name == "merge":
        run(mine[0], others[0], levels=draw(st.integers(1, 2)))
    elif name == "peel":
        run(loop)
    elif name == "store_at":
        run(buffer, draw(st.sampled_from([loop, None])), before=draw(st.sampled_from([None, None, *labels])))
    elif name == "rolling":
        run(buffer, loop)
    elif name == "rfactor":
        run(draw(st.sampled_from(mine)), pairwise=draw(st.booleans()))
    else:
        run(buffer, draw(st.sampled_from(["register", "local", "global"])))


def steps(s: Schedule, data: st.DataObject, count: int) -> None:
    """Calls of primitives, legal or not."""
    for _ in range(count):
        try:
            step(s, data.draw)
        except ScheduleError:
            continue


PRIMITIVES = [
    *("split", "split", "split", "fuse", "reorder", "reorder", "unroll", "vectorize", "parallel"),
    *("decompose_reduction", "decompose_reduction", "compute_at", "compute_at", "reverse_compute_at"),
    *("reverse_compute_at", "reverse_compute_at", "inline", "cache_write", "cache_write", "cache_read", "store_at"),
    *("set_scope", "rfactor", "rolling", "rolling", "merge", "merge", "peel"),
]


def check(func: PrimFunc, data: st.DataObject, count: int) -> None:
    s = Schedule(func)
    steps(s, data, count)
    try:
        made = s.func
    except ScheduleError:
        return
    try:
        agree(func, made)
    except (AssertionError, InternalError) as error:
        error.add_note(f"{print_func(func, 'f')}\n{s.trace}\n{print_func(made, 'g')}")
        raise
    _MADE.clear()
    assert replay(func, s.trace).func is made


def _guarded(rows: int) -> PrimFunc:
    """Sums of less than whole rows, and what is made of them: both were found by the soak."""
    x, y = Buffer("x", (rows, 5), "int32"), Buffer("y", (rows, 5), "int32")
    t = Buffer("t", (rows, 5), "int32", "local")
    i, j, k, p, q = (Var(name) for name in "ijkpq")
    step = For(k, const(5), If(k < i + 2, Update("add", t, (i, j), x[i, k] * (j + 1))))
    first = For(i, const(rows), For(j, const(5), seq(Store(t, (i, j), const(0)), step)))
    second = For(p, const(rows), For(q, const(5), Store(y, (p, q), t[p, 4 - q] * 3 + x[p, q] - p)))
    return PrimFunc((Param(x, "input"), Param(y, "output")), Alloc(t, seq(Block("sums", first), Block("made", second))))


def test_a_copy_is_no_longer_than_what_a_condition_lets_loops_read() -> None:
    func = _guarded(2)
    s = Schedule(func)
    s.split("k", 2, tail="peel")
    s.cache_read("sums", "x")
    agree(func, s.func)


def test_what_a_loop_is_never_entered_for_is_proven() -> None:
    func = _guarded(3)
    s = Schedule(func)
    s.fuse("p", "q")
    s.split("k", 2, tail="peel")
    s.split("p_q", 2, tail="guard")
    s.compute_at("sums", "p_q_i")
    agree(func, s.func)


@settings(max_examples=_FEW)
@given(stages(), st.data())
def test_random_schedules_change_no_result(func: PrimFunc, data: st.DataObject) -> None:
    check(func, data, data.draw(st.integers(1, 8)))


@pytest.mark.soak
@settings(max_examples=60 * _FEW)
@given(stages(), st.data())
def test_many_random_schedules_change_no_result(func: PrimFunc, data: st.DataObject) -> None:
    check(func, data, data.draw(st.integers(1, 16)))
