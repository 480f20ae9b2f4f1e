"""Loops that are marked for several threads: which ones, and that results stay the same."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests._support.schedules import agree, parsed
from tests._support.thread_nets import every_loop
from tests.tir.schedule.test_random_schedules import stages

from uma.tir import Bounds, For, PrimFunc, Stmt, print_func, walk
from uma.tir.schedule.dependences import carried
from uma.tir.schedule.parallelisation import in_threads, is_parallel, predicted_cycles

_FEW = settings().max_examples // 2


def marked(func: PrimFunc) -> list[str]:
    """The loops that several threads run, with their extents."""
    found = (part for part in walk(func.body) if isinstance(part, For) and part.kind == "parallel")
    return [f"{loop.var.name}: {getattr(loop.extent, 'value', loop.extent)}" for loop in found]


def rows(count: int) -> PrimFunc:
    return parsed(f"""
        def f(x: In[float32, ({count}, 1000)], y: Out[float32, ({count}, 1000)]):
            for i in range({count}):
                for j in range(1000):
                    y[i, j] = x[i, j] * 2.0
    """)


def test_long_loops_are_marked_and_short_ones_are_not() -> None:
    assert marked(in_threads(rows(400), 2)) == ["i: 400"]
    assert marked(in_threads(rows(8), 2)) == []
    assert in_threads(rows(400), 1) == rows(400)
    assert predicted_cycles(rows(400).body) > 15000 > predicted_cycles(rows(8).body)
    once = in_threads(rows(400), 2)
    assert in_threads(once, 2) is once and is_parallel(once)


def test_two_loops_are_one_where_shares_are_more_even_so() -> None:
    made = in_threads(_three(), 2)
    assert marked(made) == ["i_j_1: 2400"]
    agree(_three(), made)
    assert marked(in_threads(_three(), 3)) == ["i_j_1: 2400"]
    assert marked(in_threads(rows(400), 3)) == ["i: 400"]


def _three() -> PrimFunc:
    return parsed("""
        def f(x: In[float32, (3, 800, 64)], y: Out[float32, (3, 800)]):
            for i in range(3):
                for j in range(800):
                    y[i, j] = 0.0
                    for k in range(64):
                        y[i, j] += x[i, j, k]
    """)


@pytest.mark.parametrize(
    ("text", "loops"),
    [
        # A sum is not parted: that is another order. What is around it is.
        (
            """
            def f(x: In[float32, (4, 20000)], y: Out[float32, (4,)]):
                for i in range(4):
                    y[i] = 0.0
                    for k in range(20000):
                        y[i] += x[i, k]
            """,
            ["i: 4"],
        ),
        (
            """
            def f(x: In[float32, (20000,)], y: Out[float32, ()]):
                y[()] = 0.0
                for k in range(20000):
                    y[()] += x[k]
            """,
            [],
        ),
        # Memory that iterations share, on the stack or in a workspace; of its own each may have it.
        (
            """
            def f(x: In[float32, (400, 100)], y: Out[float32, (400, 100)], t: Workspace[float32, (100,)]):
                for i in range(400):
                    for j in range(100):
                        t[j] = x[i, j] * 3.0
                    for k in range(100):
                        y[i, k] = t[k]
            """,
            [],
        ),
        (
            """
            def f(x: In[float32, (400, 100)], y: Out[float32, (400, 100)]):
                for i in range(400):
                    t = alloc(float32, (100,))
                    for j in range(100):
                        t[j] = x[i, j] * 3.0
                    for k in range(100):
                        y[i, k] = t[k]
            """,
            ["i: 400"],
        ),
        # Rows that are kept from one iteration to the next.
        (
            """
            def f(x: In[float32, (400, 100)], y: Out[float32, (401, 100)]):
                for i in range(400):
                    for j in range(100):
                        y[i + 1, j] = x[i, j] + y[i, j]
            """,
            [],
        ),
        # A copy is a stage of its own before what reads it; a number on the stack cannot be handed over.
        (
            """
            def f(x: In[float32, (300, 100)], y: Out[float32, (300, 100)], t: Workspace[float32, (302, 100)]):
                for i in range(300):
                    for j in range(100):
                        t[i + 1, j] = x[i, j] * 2.0
                for n in range(300):
                    for k in range(100):
                        y[n, k] = t[n, k] + t[n + 2, k]
            """,
            ["i: 300", "n: 300"],
        ),
        (
            """
            def f(x: In[float32, (300, 100)], y: Out[float32, (300, 100)]):
                t = alloc(float32, ())
                t[()] = x[0, 0]
                for i in range(300):
                    for j in range(100):
                        y[i, j] = x[i, j] * t[()]
            """,
            [],
        ),
        # Within what must keep its order.
        (
            """
            def f(x: In[float32, (100, 30000)], y: Out[float32, (101, 30000)]):
                for i in range(100):
                    for j in range(30000):
                        y[i + 1, j] = x[i, j] + y[i, j]
            """,
            ["j: 30000"],
        ),
        # Where the index is divided.
        (
            """
            def f(x: In[float32, (3000, 28)], y: Out[float32, (400, 210)]):
                for i in range(3000):
                    for j in range(28):
                        y[(i * 28 + j) // 210, (i * 28 + j) % 210] = x[i, j] * 2.0
            """,
            ["i: 3000"],
        ),
    ],
)
def test_what_is_marked(text: str, loops: list[str]) -> None:
    func = parsed(text)
    made = in_threads(func, 2)
    assert marked(made) == loops, print_func(made, "f")


def test_what_is_written_over_an_input_may_still_be() -> None:
    func = rows(400)
    func = PrimFunc(func.params, func.body, (("y", "x"),))
    assert in_threads(func, 2).may_alias == (("y", "x"),)


def check(func: PrimFunc, threads: int) -> None:
    with every_loop():
        made = in_threads(func, threads)
    agree(func, made)

    def loops(stmt: Stmt, known: Bounds) -> None:
        if isinstance(stmt, For) and stmt.kind == "parallel":
            assert carried(stmt, known) is None
        for body, within in known.children(stmt):
            loops(body, within)

    loops(made.body, Bounds({}))


@settings(max_examples=_FEW)
@given(stages(), st.integers(2, 4))
def test_random_stages_compute_the_same(func: PrimFunc, threads: int) -> None:
    """The interpreter runs the iterations of parallel loops backwards."""
    check(func, threads)


@pytest.mark.soak
@settings(max_examples=40 * _FEW)
@given(stages(), st.integers(2, 4))
def test_many_random_stages_compute_the_same(func: PrimFunc, threads: int) -> None:
    check(func, threads)
