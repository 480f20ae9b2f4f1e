"""Primitives of schedules that change loops: what they make, what they refuse, and that they compute the same."""

from __future__ import annotations

import re
from textwrap import dedent
from typing import Any

import pytest
from tests._support.schedules import MATMUL, agree, parsed

from uma.tir import PrimFunc, print_func
from uma.tir.schedule import Schedule, ScheduleError, VectorUnit, replay
from uma.tir.schedule import loops as primitives
from uma.tir.schedule.schedule import _MADE

COPY = parsed("""
    def f(x: In[int32, (7, 6)], y: Out[int32, (7, 6)]):
        with block("copy"):
            for i in range(7):
                for j in range(6):
                    y[i, j] = x[i, j] + 1
""")
SHIFT = parsed("""
    def f(x: In[int32, (4, 5)], y: Out[int32, (5, 6)]):
        with block("clear"):
            for a in range(5):
                for b in range(6):
                    y[a, b] = a - b
        with block("shift"):
            for i in range(4):
                for j in range(5):
                    y[i + 1, j] = y[i, j + 1] + x[i, j]
""")
PADDED = parsed("""
    def f(x: In[int32, (8, 2)], y: Out[int32, (7,)]):
        t = alloc(int32, (7,))
        with block("sum"):
            for i in range(7):
                t[i] = 0
                for k in range(2):
                    t[i] += x[i, k]
        with block("out"):
            for o in range(7):
                y[o] = t[o]
""")


def text(func: PrimFunc) -> str:
    return print_func(func, "f").split(":\n", 1)[1]


@pytest.mark.parametrize("tail", ["guard", "peel", "shrink"])
@pytest.mark.parametrize("factor", [1, 2, 3, 7, 9])
def test_a_loop_is_split_with_every_tail(tail: primitives.Tail, factor: int) -> None:
    s = Schedule(COPY)
    outer, inner = s.split("i", factor, tail=tail)
    assert (outer.name, inner.name) == ("i_o", "i_i")
    assert [var.name for var in s.loops("copy")] == ["i_o", "i_i", "j"]
    agree(COPY, s.func)


def test_a_peeled_tail_has_loops_of_its_own_with_constant_extents() -> None:
    s = Schedule(COPY)
    s.split("i", 4, tail="peel")
    s.split("j", 4, tail="peel")
    s.reorder("i_o", "j_o", "i_i", "j_i")
    s.unroll("i_i")
    s.vectorize("j_i")
    made = s.func
    agree(COPY, made)
    assert text(made) == dedent("""\
        with block("copy"):
            for i_i in unrolled(4):
                for j_i in vectorized(4):
                    y[i_i, j_i] = x[i_i, j_i] + 1
            for i_i_2 in unrolled(4):
                for j_i_2 in vectorized(2):
                    y[i_i_2, j_i_2 + 4] = x[i_i_2, j_i_2 + 4] + 1
            for i_i_1 in unrolled(3):
                for j_i_1 in vectorized(4):
                    y[i_i_1 + 4, j_i_1] = x[i_i_1 + 4, j_i_1] + 1
            for i_i_1_1 in unrolled(3):
                for j_i_1_1 in vectorized(2):
                    y[i_i_1_1 + 4, j_i_1_1 + 4] = x[i_i_1_1 + 4, j_i_1_1 + 4] + 1
    """).replace("\n", "\n    ").join(("    ", "")).rstrip(" ")


def test_what_shrank_is_peeled_where_it_is_uneven() -> None:
    s = Schedule(COPY)
    s.split("i", 4, tail="peel")
    s.split("i_i", 2, tail="peel")
    s.reorder("j", "i_i_i")
    s.vectorize("i_i_i")
    agree(COPY, s.func)
    # Of 7 rows in blocks of 4: two whole pairs, then one and a row alone.
    assert text(s.func).count("vectorized(2)") == 2 and "range(1)" not in text(s.func) and "min" not in text(s.func)


SMALLER = {
    "twice": ("y[i] = x[i] + 1", "", None, ["vectorized(8)", "vectorized(8)"]),
    "narrow": ("y[i] = x[i] + 1", "", VectorUnit(16, 16), ["vectorized(4)"] * 4),
    "no room for lanes": ("y[i] = x[i] + 1", "", VectorUnit(8, 16), ["unrolled(14)"]),
    "in place": ("y[i] = x[i] + 1", "may_alias(y, x)", None, ["vectorized(8)", "vectorized(4)", "unrolled(2)"]),
    "added": ("y[i] += x[i]", "", None, ["vectorized(8)", "vectorized(4)", "unrolled(2)"]),
    "apart": ("y[i] = x[13 - i]", "", None, ["unrolled(14)"]),
    "chosen": ("y[i] = x[i] if x[i] > 0 else x[0]", "", None, ["vectorized(8)", "vectorized(8)"]),
    "chosen of what may not be there": ("y[i] = x[i + 1] if i < 13 else 0", "", None, ["unrolled(14)"]),
    "by what a lane says": ("if x[i] > 0:\n                        y[i] = x[i]", "", None, ["unrolled(14)"]),
    "by its number": ("if i > 3:\n                        y[i] = x[i]", "", None, ["unrolled(14)"]),
    "a value of its own": ("v: int32 = x[i] * 3\n                    y[i] = v * v", "", None, ["vectorized(8)"] * 2),
    "where a value says": ("v: int32 = x[i] & 7\n                    y[i] = x[v]", "", None, ["unrolled(14)"]),
}
"""What is done, before which the function says what, the unit, and the loops that 14 lanes become."""


@pytest.mark.parametrize("name", SMALLER)
def test_lanes_that_no_vector_has_are_smaller_vectors(name: str) -> None:
    """The second begins earlier where what it does once more changes nothing: not where it reads what was stored."""
    done, said, unit, wanted = SMALLER[name]
    clear = "" if said else "for c in range(14):\n                y[c] = 7"
    func = parsed(f"""
        def f(x: In[int32, (14,)], y: Out[int32, (14,)]):
            {said}
            {clear}
            with block("all"):
                for i in range(14):
                    {done}
    """)
    s = Schedule(func, unit)
    s.vectorize("i")
    agree(func, s.func)
    assert re.findall(r"for i\w* in (\w+\(\d+\))", text(s.func)) == wanted


def test_part_of_a_vector_is_unrolled() -> None:
    """Four lanes of vectors of eight in registers, which one can get at one by one."""
    s = Schedule(
        parsed("""
        def f(x: In[int32, (12,)], y: Out[int32, (12,)]):
            t = alloc(int32, (16,))
            with block("double"):
                for i in range(16):
                    t[i] = x[min(i, 11)] * 2
            with block("out"):
                for o in range(12):
                    y[o] = t[o]
    """)
    )
    whole = s.func
    at, lane = s.split("i", 8)
    s.reverse_compute_at("out", at)
    s.split("o", 8, tail="peel")
    s.cache_write("double", "t", "register", at=at)
    s.unroll(lane)
    s.vectorize("o_i")
    assert "for o_i in vectorized(8)" in text(s.func) and "in unrolled(4)" in text(s.func)
    agree(whole, s.func)


def test_what_follows_is_done_where_steps_are_left_out_after_all_was_written() -> None:
    func = parsed("""
        def f(x: In[int32, (6,)], y: Out[int32, (6,)]):
            t = alloc(int32, (6,))
            with block("window"):
                for i in range(6):
                    t[i] = 0
                    for k in range(3):
                        if i + k >= 1 and i + k < 7:
                            t[i] += x[i + k - 1]
            with block("out"):
                for o in range(6):
                    y[o] = t[o] * 2
    """)
    s = Schedule(func)
    at, _ = s.split("i", 4)
    s.reverse_compute_at("out", at)
    assert [var.name for var in s.loops("out")] == ["i_o", "o"]
    agree(func, s.func)


def test_what_follows_is_done_where_several_of_its_loops_are_parted() -> None:
    """Two loops write one dimension: each alone meets itself for some iterations of the other, both together do not."""
    func = parsed("""
        def f(x: In[int32, (3, 8)], y: Out[int32, (15,)]):
            t = alloc(int32, (3, 8))
            with block("double"):
                for g in range(3):
                    for i in range(8):
                        t[g, i] = x[g, i] * 2
            with block("out"):
                for part in range(3):
                    for o in range(5):
                        y[part * 5 + o] = t[part, o] + 1
    """)
    s = Schedule(func)
    at, _ = s.split("i", 4)
    s.reverse_compute_at("out", at)
    assert [var.name for var in s.loops("out")] == ["g", "i_o", "part", "o"]
    agree(func, s.func)
    wider = Schedule(parsed(print_func(func, "f").replace("part * 5 + o", "part * 4 + o").replace("@prim_func", "")))
    at, _ = wider.split("i", 4)
    with pytest.raises(ScheduleError, match="writes an element in several iterations of the loops"):
        wider.reverse_compute_at("out", at)


def test_a_buffer_of_the_functions_own_is_aligned() -> None:
    s = Schedule(PADDED)
    assert s.align("t", 64).alignment == 64
    assert "t = alloc(int32, (7,), align(64))" in text(s.func)
    agree(PADDED, s.func)


def test_a_parted_loop_asks_where_it_must() -> None:
    func = parsed("""
        def f(x: In[int32, (9,)], y: Out[int32, (9,)]):
            with block("moved"):
                for i in range(9):
                    y[i] = x[i - 2] if i >= 2 and i < 8 else 0
    """)
    s = Schedule(func)
    s.part("i", 2, 8)
    assert "if" not in text(s.func) and "for i_1 in range(6)" in text(s.func)
    agree(func, s.func)
    agree(func, replay(func, s.trace).func)


def test_a_vector_of_a_length_that_no_machine_has_is_unrolled() -> None:
    s = Schedule(COPY)
    s.split("i", 4, tail="peel")
    s.reorder("i_o", "j", "i_i")
    s.vectorize("i_i")
    assert "vectorized(4)" in text(s.func) and "unrolled(3)" in text(s.func)
    agree(COPY, s.func)


def test_a_padded_loop_writes_into_room_of_its_own() -> None:
    s = Schedule(PADDED)
    s.split("i", 4, tail="pad")
    assert "t = alloc(int32, (8,))" in text(s.func)
    agree(PADDED, s.func)


def test_loops_are_fused_and_indices_stay_simple() -> None:
    s = Schedule(COPY)
    fused = s.fuse("i", "j")
    assert fused.name == "i_j"
    s.split(fused, 6)
    assert "y[i_j_o, i_j_i] = x[i_j_o, i_j_i] + 1" in text(s.func)
    agree(COPY, s.func)
    s.vectorize("i_j_o")  # what was fused is still known to be apart
    assert "unrolled(7)" in text(s.func)


def test_reductions_may_be_reordered_and_what_is_asked_between_loops_moves_inwards() -> None:
    func = parsed("""
        def f(x: In[float32, (4, 5)], y: Out[float32, (4,)]):
            with block("init"):
                for a in range(4):
                    y[a] = 0.5
            with block("sum"):
                for i in range(4):
                    if i < 3:
                        at: int32 = i * 2 % 4
                        for j in range(5):
                            y[i] += x[at, j]
    """)
    s = Schedule(func)
    s.reorder("j", "i")
    assert [var.name for var in s.loops("sum")] == ["j", "i"]
    agree(func, s.func, exact=False)


def test_a_dependence_is_not_turned_around() -> None:
    s = Schedule(SHIFT)
    with pytest.raises(ScheduleError) as caught:
        s.reorder("j", "i")
    assert "loops 'j', 'i' cannot be put in that order" in caught.value.what and "'y'" in caught.value.what
    for primitive in (s.vectorize, s.parallel):
        with pytest.raises(ScheduleError, match=r"loop 'i' cannot be .*: `y\[i, j \+ 1\]|meet in 'y'"):
            primitive("i")
    agree(SHIFT, s.func)
    assert not s.trace


def test_a_trace_is_printed_and_repeated() -> None:
    s = Schedule(MATMUL)
    i, o, k = s.loops("sum")
    s.split(i, 4, tail="peel")
    s.decompose_reduction("sum", "i_i")
    s.reorder(k, "i_i", o)
    s.unroll("i_i")
    assert str(s.trace) == dedent("""\
        s.split("i", 4, tail="peel")
        s.decompose_reduction("sum", "i_i")
        s.reorder("k", "i_i", "o")
        s.unroll("i_i")""")
    made = s.func
    _MADE.clear()
    assert replay(MATMUL, s.trace).func is made
    _MADE.clear()
    written: dict[str, Any] = {"s": Schedule(MATMUL)}
    exec(str(s.trace), written)
    assert written["s"].func is made


def test_equal_functions_are_scheduled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    _MADE.clear()
    counted: list[object] = []
    split = primitives.split
    monkeypatch.setattr(primitives, "split", lambda *args: counted.append(args) or split(*args))

    def scheduled(factor: int, *more: int) -> PrimFunc:
        s = Schedule(MATMUL)
        _, inner = s.split(s.loops("sum")[0], factor, tail="peel")
        for one in more:
            s.split(inner, one)
        return s.func

    first = scheduled(4)
    assert scheduled(4) is first and len(counted) == 1
    assert scheduled(4, 2) is not first and len(counted) == 2  # goes on from what was made
    assert scheduled(2) is not first and len(counted) == 3
    for _ in range(2):  # what is refused is refused again, and leaves the schedule as it was
        s = Schedule(MATMUL)
        with pytest.raises(ScheduleError, match="there is no loop 'none'"):
            s.split("none", 2)
        assert not s.trace and s.func is Schedule(MATMUL).func


def test_a_block_knows_its_loops_and_buffers() -> None:
    info = Schedule(MATMUL).block("sum")
    assert [var.name for var in info.spatial] == ["i", "o"] and [var.name for var in info.reduction] == ["k"]
    assert {buffer.name for buffer in info.reads} == {"x", "w", "t"} and [b.name for b in info.writes] == ["t"]


CHAIN = parsed("""
    def f(x: In[int32, (3, 7, 2)], y: Out[int32, (3, 7)], z: Out[int32, (3, 7)]):
        t = alloc(int32, (3, 7))
        u = alloc(int32, (3, 7))
        with block("sum"):
            for i in range(3):
                for j in range(7):
                    t[i, j] = 0
                    for k in range(2):
                        t[i, j] += x[i, j, k]
        with block("parts"):
            with block("left"):
                for a in range(3):
                    for b in range(4):
                        u[a, b] = t[a, b] * 2
            with block("right"):
                for c in range(3):
                    for d in range(3):
                        u[c, 4 + d] = t[c, 4 + d] * 3
        with block("out"):
            for p in range(3):
                for q in range(7):
                    y[p, q] = u[p, q] + t[p, q]
        with block("last"):
            for v in range(3):
                for w in range(7):
                    z[v, w] = t[v, 6 - w]
""")


def test_loops_one_after_the_other_are_merged_and_blocks_stand_within() -> None:
    s = Schedule(CHAIN)
    assert [var.name for var in s.merge("i", "a", "c", "p", "v")] == ["i"]
    assert s.blocks("i") == s.blocks() == ["sum", "parts", "left", "right", "out", "last"]
    assert [buffer.shape for buffer in s.store_at(["t", "u"], "i", before="sum", dims_from=1)] == [(7,), (7,)]
    assert [buffer.name for buffer in s.buffers("i")] == ["t", "u"]
    agree(CHAIN, s.func)
    agree(CHAIN, replay(CHAIN, s.trace).func)


def test_several_levels_are_merged_at_once_and_each_part_peeled_in_its_own_way() -> None:
    s = Schedule(MATMUL)
    assert [var.name for var in s.merge("i", "p")] == ["i"]
    for loop in ("o", "q"):
        s.split(loop, 12, tail="peel")
    (blocks,) = s.merge("o_o", "q_o")
    (small,) = s.store_at("t", blocks)
    whole, rest = s.peel(blocks)
    assert (small.shape, s.blocks(whole), s.blocks(rest)) == ((12,), ["sum", "out"], ["sum_1", "out_1"])
    (rest_of_it,) = s.store_at(s.buffers(rest), rest)
    assert rest_of_it.shape == (4,)
    s.decompose_reduction("sum", s.loops("sum")[-2])
    agree(MATMUL, s.func)
    t = Schedule(MATMUL)
    t.merge("i", "p", levels=2)
    assert t.store_at("t", "o", dims_from=2)[0].shape == ()
    agree(MATMUL, t.func)


@pytest.mark.parametrize("pairwise", [False, True])
def test_a_sum_is_parted_where_the_last_block_is_smaller(pairwise: bool) -> None:
    s = Schedule(MATMUL)
    _, inner = s.split("k", 4, tail="peel")
    parts = s.rfactor(inner, pairwise=pairwise)
    assert parts.shape == (4,)
    agree(MATMUL, s.func)


def test_loops_are_left_as_they_are_where_nobody_asked_for_simple_ones() -> None:
    s = Schedule(MATMUL, simplify=False)
    s.split("o", 4)
    s.split("i", 2, tail="peel")
    agree(MATMUL, s.func)
    assert "o_o * 4 + o_i" in print_func(s.func, "f")
