"""Buffers that keep the last slices of a loop, and what has none to keep."""

from __future__ import annotations

import pytest
from tests._support.schedules import agree, parsed

from uma.tir import PrimFunc
from uma.tir.schedule import Schedule, ScheduleError


def rolled(stmt: str, loops: str = "for p in range(3):", rows: int = 6) -> PrimFunc:
    """A window of three rows of a buffer in each of four iterations."""
    return parsed(f"""
        def f(x: In[int32, ({rows}, 4)], y: Out[int32, (4, 4)]):
            t = alloc(int32, ({rows}, 4))
            for i in range(4):
                with block("make"):
                    {loops}
                        for q in range(4):
                            {stmt}
                with block("sum"):
                    for j in range(4):
                        y[i, j] = t[i, j] + t[i + 1, j] + t[i + 2, j]
    """)


ROLLING: dict[str, tuple[PrimFunc, str]] = {
    "two blocks": (
        parsed("""
            def f(x: In[int32, (3,)], y: Out[int32, (3,)]):
                t = alloc(int32, (5,))
                for i in range(3):
                    with block("a"):
                        t[i] = x[i]
                    with block("b"):
                        t[i + 1] = x[i]
                    with block("c"):
                        y[i] = t[i] + t[i + 1]
        """),
        "'t' cannot roll along loop 'i': not one block makes it",
    ),
    "still": (
        parsed("""
            def f(x: In[int32, (3,)], y: Out[int32, (2,)]):
                t = alloc(int32, (3,))
                for i in range(2):
                    with block("a"):
                        for p in range(3):
                            t[p] = x[p]
                    with block("b"):
                        y[i] = t[0] + t[1] + t[2]
        """),
        "'t' cannot roll along loop 'i': an iteration does not move along one dimension of it",
    ),
    "apart": (
        parsed("""
            def f(x: In[int32, (4,)], y: Out[int32, (2,)]):
                t = alloc(int32, (4,))
                for i in range(2):
                    with block("a"):
                        for p in range(2):
                            t[i * 2 + p] = x[i * 2 + p]
                    with block("b"):
                        y[i] = t[i * 2] + t[i * 2 + 1]
        """),
        "'t' cannot roll along loop 'i': iterations have nothing in common",
    ),
    "depends": (rolled("t[i + p, q] = x[i + p, q] + i"), "what is made of it depends on the iteration"),
    "guarded": (rolled("t[i + p, q] = x[i, q] + p"), "what is made of it depends on the iteration"),
    "less": (rolled("t[i + p, q] = x[i + p, q]", "for p in range(2):"), "not all that an iteration uses is made in it"),
}


@pytest.mark.parametrize("case", ROLLING)
def test_what_does_not_roll_is_refused(case: str) -> None:
    func, what = ROLLING[case]
    with pytest.raises(ScheduleError) as caught:
        Schedule(func).rolling("t", "i")
    assert what in caught.value.what


def test_what_rolls_is_made_once() -> None:
    func = rolled("t[i + p, q] = x[i + p, q] * 3")
    s = Schedule(func)
    assert s.rolling("t", "i").shape == (3, 4)
    agree(func, s.func)


def test_a_loop_without_constant_extent_is_not_parted() -> None:
    s = Schedule(rolled("t[i + p, q] = x[i + p, q] * 3", rows=9))
    s.split("i", 3)
    s.rolling("t", "i_i")
    with pytest.raises(ScheduleError, match="loop 'i_i' cannot be peeled: its extent is not constant"):
        _ = s.func
