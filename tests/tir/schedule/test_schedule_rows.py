"""Schedules that end in functions with rows."""

from __future__ import annotations

import numpy as np
import pytest
from tests._support.rows import by_least_rows
from tests._support.schedules import parsed

from uma.tir import PrimFunc, RowParam, interpret
from uma.tir.proofs.obligations import unproven
from uma.tir.schedule import Schedule, ScheduleError, replay
from uma.tir.te.finalisation import finalise_kernel as as_lowered

CONV = parsed("""
    def f(x: In[int8, (1, 7, 5, 2)], y: Out[int32, (1, 7, 5, 3)], w: Const[int8, (3, 3, 2, 3)]):
        t = alloc(int8, (1, 9, 7, 2))
        with block("pad"):
            for a in range(9):
                for b in range(7):
                    for c in range(2):
                        t[0, a, b, c] = x[0, a - 1, b - 1, c] if a >= 1 and a < 8 and b >= 1 and b < 6 else 3
        with block("conv"):
            for r in range(7):
                for q in range(5):
                    for o in range(3):
                        y[0, r, q, o] = 0
                        for i in range(3):
                            for j in range(3):
                                for k in range(2):
                                    y[0, r, q, o] += int32(t[0, r + i, q + j, k]) * int32(w[i, j, k, o])
""")
MEAN = parsed("""
    def f(x: In[float32, (1, 6, 4, 3)], y: Out[float32, (1, 1, 1, 3)]):
        a = alloc(float32, (3,))
        with block("sum"):
            for c in range(3):
                a[c] = 0.0
            for r in range(6):
                for q in range(4):
                    for d in range(3):
                        a[d] += x[0, r, q, d]
        with block("end"):
            for e in range(3):
                y[0, 0, 0, e] = a[e] / 24.0
""")


def _arrays(func: PrimFunc) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    given = [param.buffer for param in func.params if param.role in ("input", "constant")]
    return {buffer.name: rng.integers(-9, 9, buffer.shape).astype(buffer.dtype) for buffer in given}


def _check(func: PrimFunc, plain: PrimFunc) -> None:
    expected = interpret(plain, _arrays(plain))["y"]
    np.testing.assert_array_equal(interpret(func, _arrays(plain))["y"], expected)
    np.testing.assert_array_equal(by_least_rows(func, _arrays(plain))["y"], expected)


def test_a_convolution_whose_padding_is_made_for_each_row() -> None:
    s = Schedule(CONV)
    with pytest.raises(ScheduleError, match="'t' is made before the loop over rows, and would be made anew for each"):
        s.rows("r")
    s.compute_at("pad", "r")
    s.store_at("t", "r")
    s.rows("r")
    s.unroll("j")
    assert s.func.rows is not None
    assert s.func.rows.params == (RowParam("x", 7, 3, 1, 1), RowParam("y", 7))
    assert str(s.trace).splitlines()[2] == 's.rows("r")'
    _check(s.func, CONV)
    assert replay(CONV, s.trace).func is s.func
    assert as_lowered(s.func).rows is s.func.rows


def test_a_mean_adds_up_rows() -> None:
    s = Schedule(MEAN)
    s.rows("r")
    assert s.func.rows is not None
    assert (s.func.rows.params, s.func.rows.kept) == ((RowParam("x", 6),), ("a",))
    _check(s.func, MEAN)
    loops = Schedule(MEAN, simplify=False)
    loops.rows("r")
    _check(loops.func, MEAN)


def test_a_loop_that_others_are_around_is_no_row() -> None:
    s = Schedule(CONV)
    with pytest.raises(ScheduleError, match="loop 'q' cannot become rows: loop 'r' is around it"):
        s.rows("q")


def test_what_comes_after_must_leave_the_rows() -> None:
    s = Schedule(CONV)
    s.compute_at("pad", "r")
    s.store_at("t", "r")
    s.rows("r")
    s.split("r", 2, "peel")
    with pytest.raises(ScheduleError, match="the function has no rows: a tile takes 2 rows of 'y' at once"):
        s.func  # noqa: B018  # it is made then


def test_what_the_stack_cannot_hold_is_a_workspace_if_each_row_makes_it_anew() -> None:
    plain = parsed("""
        def f(x: In[int8, (4, 9000)], y: Out[int8, (4, 9000)], z: Out[int8, (4, 9000)]):
            t = alloc(int8, (9000,))
            u = alloc(int8, (9001,))
            for r in range(4):
                for i in range(9000):
                    t[i] = x[r, i]
                    u[i] = x[r, i]
                for j in range(9000):
                    y[r, j] = t[j]
                for k in range(9000):
                    z[r, k] = u[k]
    """)
    s = Schedule(plain)
    s.rows("r")
    made = as_lowered(s.func)
    assert [param.buffer.name for param in made.params if param.role == "workspace"] == ["t", "u"]
    assert unproven(made) is None


def test_what_is_not_shown_to_be_made_anew_stays_on_the_stack() -> None:
    func = parsed("""
        def f(x: In[int8, (4, 9000)], y: Out[int8, (4, 9000)]):
            rows(r, 4)
            by_rows(x, 4)
            by_rows(y, 4)
            t = alloc(int8, (9000,))
            for i in range(9000):
                t[(i + int32(x[r, 0])) % 9000] = x[r, i]
            for j in range(9000):
                y[r, j] = t[j]
    """)
    made = as_lowered(func)
    assert [param.buffer.name for param in made.params] == ["x", "y"]
    assert unproven(made) is None
