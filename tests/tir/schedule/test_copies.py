"""Borders apart from pictures, and copies: what the schedule's primitives for both give, and what they refuse."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests._support.schedules import agree, parsed
from tests._support.schedules import given as inputs

from uma.tir import CopyCommand, ExecCommand, PrimFunc, count_commands, interpret, parse_machine, print_func
from uma.tir.schedule import Schedule, ScheduleError

MACHINE = parse_machine("""
acts = memory(4096, copy_in="take({to}, {from}, {rows}, {row_bytes}, {to_stride}, {from_stride})")

@intrinsic("fill({to}, {to_stride0}, {rows}, {row_bytes}, {value})")
def fill(to: Operand[int8, (64, 64), scope("acts")], rows: int32, row_bytes: int32, value: int32):
    for row in range(rows):
        for i in range(row_bytes):
            to[row, i] = int8(value)
""")


def padded(height: int, width: int, top: int, left: int, rows: int, columns: int, step: int) -> PrimFunc:
    """Every ``step``-th element of a picture with a border, and the one three rows and two columns further."""
    outs = (rows - 4) // step + 1, (columns - 3) // step + 1
    return parsed(f"""
        def f(x: In[int8, ({height}, {width})], y: Out[int8, ({outs[0]}, {outs[1]})]):
            p = alloc(int8, ({rows}, {columns}))
            with block("pad"):
                for i in range({rows}):
                    for j in range({columns}):
                        p[i, j] = (
                            x[i - {top}, j - {left}]
                            if i >= {top} and {top + height} > i and {left} <= j and j < {left + width} else int8(7)
                        )
            with block("use"):
                for a in range({outs[0]}):
                    for b in range({outs[1]}):
                        y[a, b] = p[a * {step}, b * {step}] + p[a * {step} + 3, b * {step} + 2]
    """)


@settings(max_examples=12)
@given(st.data())
def test_a_border_apart_changes_no_result(data: st.DataObject) -> None:
    size, edge = st.integers(1, 6), st.integers(0, 5)
    height, width, top, left, below, beside = (data.draw(s) for s in (size, size, edge, edge, edge, edge))
    rows, columns = max(4, top + height + below), max(3, left + width + beside)
    func = padded(height, width, top, left, rows, columns, data.draw(st.integers(1, 3)))
    s = Schedule(func)
    if data.draw(st.booleans()):
        tile, _ = s.split("a", data.draw(st.integers(1, 4)))
        column, _ = s.split("b", data.draw(st.integers(1, 4)))
        s.reorder(tile, column, "a_i", "b_i")
        s.compute_at("pad", column)
        s.store_at("p", column)
    if " if " in print_func(s.func, "f"):
        s.decompose_padding("pad")
    if "= x[" in print_func(s.func, "f"):  # what a tile reads may be border alone
        s.as_copy("pad")
    # Not `agree`: that windows which lie in the border alone stay within the picture is not always proven.
    arrays = inputs(func)
    np.testing.assert_array_equal(interpret(func, arrays)["y"], interpret(s.func, arrays)["y"])


def test_only_what_is_outside_is_filled_and_nothing_is_executed_for_no_rows() -> None:
    """In tiles of two rows: the first has a border above it, the last one below."""
    func = parsed("""
        def f(x: In[int8, (6, 5)], y: Out[int8, (6, 5)]):
            p = alloc(int8, (8, 7))
            with block("pad"):
                for i in range(8):
                    for j in range(7):
                        p[i, j] = x[i - 1, j - 1] if i >= 1 and i < 7 and j >= 1 and j < 6 else int8(3)
            with block("use"):
                for a in range(6):
                    for b in range(5):
                        y[a, b] = p[a, b] + p[a + 2, b + 2]
    """)
    s = Schedule(func)
    tile, _ = s.split("a", 2)
    s.compute_at("pad", tile)
    s.store_at("p", tile)
    borders = s.decompose_padding("pad")
    assert borders == ("pad_border", "pad_border_1", "pad_border_2", "pad_border_3")
    s.as_copy("pad")
    agree(func, s.func)
    # The host does not read the memory of a device: the rest is looked at, not run.
    lone = parsed("""
        def f(x: In[int8, (6, 5)]):
            with block("tiles"):
                for a in range(3):
                    p = alloc(int8, (4, 7))
                    with block("pad"):
                        for i in range(4):
                            for j in range(7):
                                p[i, j] = (
                                    x[a * 2 + i - 1, j - 1]
                                    if a * 2 + i >= 1 and a * 2 + i < 7 and j >= 1 and j < 6 else int8(3)
                                )
    """)
    s = Schedule(lone)
    s.set_scope("p", MACHINE.memories[0])
    for border in s.decompose_padding("pad"):
        s.tensorize(s.loops(border)[-2], MACHINE.intrinsic("fill"), value=3)
    s.as_copy("pad")
    counted = {
        (one["rows"], one["row_bytes"]) if isinstance(one, ExecCommand) else (one.rows, one.row_bytes): times
        for one, times in count_commands(s.func).items()
    }
    assert all(isinstance(one, (ExecCommand, CopyCommand)) for one in count_commands(s.func))
    # Copies of 5 bytes in 3 or 4 rows; a row above and one below; a column on either side.
    assert counted == {(3, 5): 2, (4, 5): 1, (1, 7): 2, (3, 1): 4, (4, 1): 2}


REFUSALS = parsed("""
    def f(x: In[int32, (6, 6)], y: Out[int32, (6, 6)], z: Out[int32, (6, 6)]):
        t = alloc(int32, (36,))
        with block("sum"):
            for a in range(6):
                t[a] = 0
                t[a + 6] = 1
        with block("own"):
            for b in range(5):
                t[b] = t[b + 1] if b > 2 else 0
        with block("triangle"):
            for c in range(6):
                for d in range(c + 1):
                    t[c * 6 + d] = x[c, d] if c > 1 else 0
        with block("again"):
            for e in range(6):
                for g in range(6):
                    t[e] = x[e, g] if g > 1 else 0
        with block("diagonal"):
            for h in range(6):
                for i in range(6):
                    y[h, i] = x[h, i] if h > i else 0
        with block("data"):
            for j in range(6):
                for k in range(6):
                    z[j, k] = x[j, k] if x[j, k] > 0 else 0
        with block("plus"):
            for l in range(6):
                z[l, l] = x[l, l] + 1
        with block("slanting"):
            for m in range(6):
                y[m, 0] = x[m, m]
        with block("backwards"):
            for n in range(6):
                y[n, 1] = x[5 - n, 0]
        with block("halves"):
            for o in range(6):
                y[o, 2] = x[o // 2, 0]
""")


@pytest.mark.parametrize(
    ("name", "label", "reason"),
    [
        ("decompose_padding", "sum", "it is not just loops around one store"),
        ("decompose_padding", "own", "it reads 't', which it writes"),
        ("decompose_padding", "triangle", "the extent of loop 'd' depends on another of its loops"),
        ("decompose_padding", "again", "iterations of `t[e] = x[e, g] if g > 1 else 0` meet in 't'"),
        ("decompose_padding", "diagonal", "`h > i` does not say where one of its loops begins or ends"),
        ("decompose_padding", "data", "`x[j, k] > 0` does not say where one of its loops begins or ends"),
        ("decompose_padding", "plus", "it does not choose between two values"),
        ("as_copy", "plus", "it stores `x[l, l] + 1`, not an element of another buffer"),
        ("as_copy", "slanting", "loop 'm' does not go along one dimension of 'x'"),
        ("as_copy", "backwards", "loop 'n' does not go along one dimension of 'x'"),
        ("as_copy", "halves", "'x' is not gone through in equal steps"),
    ],
)
def test_what_is_no_border_and_no_copy_is_refused(name: str, label: str, reason: str) -> None:
    s = Schedule(REFUSALS)
    before = s.func
    with pytest.raises(ScheduleError) as caught:
        getattr(s, name)(label)
    assert label in caught.value.what and caught.value.what.endswith(reason)
    assert s.func is before


def test_parts_that_are_smaller_keep_their_loop() -> None:
    """Tails of what is computed after a loop, without loops of their own; the tail is peeled or shrunk."""
    func = parsed("""
        def f(x: In[int8, (8,)], y: Out[int8, (7,)]):
            t = alloc(int8, (8,))
            with block("make"):
                for i in range(8):
                    t[i] = x[i] + 1
            with block("use"):
                for j in range(7):
                    y[j] = t[j]
    """)
    loops = {}
    for tail in ("peel", "shrink"):
        s = Schedule(func)
        outer, _ = s.split("i", 4)
        s.reverse_compute_at("use", outer, tail=tail)
        agree(func, s.func)
        loops[tail] = print_func(s.func, "f").count("for ")
    assert loops["shrink"] == 3 < loops["peel"]
    with pytest.raises(ScheduleError, match=r"block 'use' has no tail 'pad'"):
        s.reverse_compute_at("use", outer, tail="pad")  # type: ignore[arg-type]  # a tail of `split` alone


def test_what_data_decide_is_read_from_the_whole_buffer() -> None:
    func = parsed("""
        def f(x: In[int32, (6,)], at: In[int32, (4,)], y: Out[int32, (4,)]):
            with block("gather"):
                for i in range(4):
                    for j in range(1):
                        y[i] = x[min(max(at[i], 0), 5)] + x[i + 1]
    """)
    s = Schedule(func)
    assert s.cache_read("gather", "x", at="i").shape == (6,)
    s.parallel("i")
    agree(func, s.func)


@pytest.mark.parametrize("at", ["k", "j", "i", None])
def test_what_is_read_beyond_the_end_in_no_iteration_is_not_copied(at: str | None) -> None:
    func = parsed("""
        def f(x: In[int32, (6, 4)], y: Out[int32, (6, 4)]):
            with block("window"):
                for i in range(6):
                    for j in range(4):
                        y[i, j] = 0
                        for k in range(3):
                            if k < 2:
                                y[i, j] += x[i + k, j] if i + k < 6 else 2
    """)
    s = Schedule(func)
    s.cache_read("window", "x", at=at)
    agree(func, s.func)
