"""Unrolling, flattening and hoisting: the same outputs, in the form that each promises."""

from __future__ import annotations

import sys
from collections.abc import Callable
from textwrap import dedent

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests._support.tir_devices import DEFINITIONS, device_funcs
from tests._support.tir_strategies import arguments, prim_funcs, same_bits
from tests._support.tir_tools import func

from uma.errors import InternalError
from uma.tir.form.interp import interpret
from uma.tir.form.nodes import Alloc, For, PrimFunc
from uma.tir.form.text import parse_func, print_func
from uma.tir.form.verify import verify
from uma.tir.form.visit import buffers, walk
from uma.tir.proofs.accumulator_bounds import exact_sums
from uma.tir.rewrites.flatten import flatten
from uma.tir.rewrites.scratch_hoisting import hoist_scratch
from uma.tir.rewrites.simplify import simplify
from uma.tir.rewrites.unroll import unroll

Pass = Callable[[PrimFunc], PrimFunc]


def all_passes(func: PrimFunc) -> PrimFunc:
    return hoist_scratch(flatten(simplify(unroll(simplify(func)))))


PASSES: list[Pass] = [simplify, unroll, flatten, hoist_scratch, all_passes]


def check(func: PrimFunc, arrays: dict[str, np.ndarray]) -> None:
    wanted = interpret(func, arrays)
    for rewrite in PASSES:
        made = rewrite(func)
        verify(made)
        shapes = {param.buffer.name: param.buffer.shape for param in made.params}
        found = interpret(made, {name: array.reshape(shapes[name]) for name, array in arrays.items()})
        for name, array in wanted.items():
            text = f"{rewrite.__name__}\n{print_func(func, 'before')}\n{print_func(made, 'after')}"
            assert same_bits(array, found[name].reshape(array.shape)), text
        assert rewrite(made) is made or rewrite is all_passes
        assert parse_func(print_func(made, "made")) == ("made", made)
        check_form(rewrite, made)


def check_form(rewrite: Pass, func: PrimFunc) -> None:
    if rewrite in (unroll, all_passes):
        assert not any(isinstance(part, For) and part.kind == "unrolled" for part in walk(func.body))
    if rewrite in (flatten, all_passes):
        assert all(len(buffer.shape) <= 1 for buffer in (*buffers(func.body), *(p.buffer for p in func.params)))
    if rewrite in (hoist_scratch, all_passes):
        assert not any(isinstance(part, Alloc) and part.buffer.scope != "local" for part in walk(func.body))


@settings(max_examples=settings().max_examples // 3)
@given(data=st.data(), func=prim_funcs())
def test_on_the_host_passes_keep_what_is_computed(data: st.DataObject, func: PrimFunc) -> None:
    check(func, data.draw(arguments(func)))


@settings(max_examples=settings().max_examples // 6, suppress_health_check=list(HealthCheck))
@given(data=st.data(), func=device_funcs())
def test_on_a_device_passes_keep_what_is_computed(data: st.DataObject, func: PrimFunc) -> None:
    check(func, data.draw(arguments(func)))


# What each does


def unrolled(text: str) -> str:
    return print_func(unroll(func(dedent(text))), "f").split("):\n", 1)[1]


def test_steps_of_an_unrolled_loop_are_folded() -> None:
    text = """
    def f(x: In[int32, (8,)], y: Out[int32, (8,)]):
        for i in unrolled(2):
            for j in unrolled(i + 1):
                if i * 2 + j < 2:
                    y[i * 4 + j] = x[(i + 3) * 2] * i
                else:
                    y[j] = 7
            if i == 1:
                y[5] = 1
            elif i == 3:
                y[6] = 1
    """
    assert [line.strip() for line in unrolled(text).splitlines()] == ["y[0] = 0", "y[0] = 7", "y[1] = 7", "y[5] = 1"]


def test_names_stay_unique_and_memory_is_in_use_for_one_step() -> None:
    text = """
    def f(x: In[int32, (8,)], y: Out[int32, (8,)]):
        for i in unrolled(2):
            v: int32 = x[i]
            t = alloc(int32, (4,))
            for j in range(4):
                t[j] = v + j
            with block("out"):
                y[i] = t[i] + v
    """
    assert unrolled(text) == (
        """\
    with block("i_0"):
        v: int32 = x[0]
        t = alloc(int32, (4,))
        for j in range(4):
            t[j] = v + j
        with block("out"):
            y[0] = t[0] + v
    with block("i_1"):
        v_1: int32 = x[1]
        t_1 = alloc(int32, (4,))
        for j_1 in range(4):
            t_1[j_1] = v_1 + j_1
        with block("out_1"):
            y[1] = t_1[1] + v_1
"""
    )


def test_labels_of_steps_are_free_ones() -> None:
    text = """
    def f(y: Out[int32, (2,)]):
        with block("i_1"):
            for i in unrolled(2):
                v: int32 = i
                y[i] = v
    """
    assert [line.strip() for line in unrolled(text).splitlines() if "block" in line] == [
        'with block("i_1"):',
        'with block("i_0"):',
        'with block("i_1_1"):',
    ]


def test_a_loop_of_unknown_extent_is_serial_and_an_empty_one_is_nothing() -> None:
    text = """
    def f(x: In[int32, ()], y: Out[int32, (8,)]):
        for i in unrolled(min(x[()], 8)):
            y[i] = 1
        for j in unrolled(0):
            y[j] = 2
    """
    assert unrolled(text) == "    for i in range(min(x[()], 8)):\n        y[i] = 1\n"


def test_unrolling_ends_somewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[unroll.__module__], "MAX_STATEMENTS", 5_000)
    text = """
    def f(y: Out[int32, (8,)]):
        for i in unrolled(1000):
            for j in unrolled(1000):
                y[(i + j) % 8] = i
    """
    with pytest.raises(InternalError, match=r"adds more than 5000 statements") as caught:
        unrolled(text)
    assert caught.value.where == "y[(i + j) % 8] = i"


def flat(text: str) -> str:
    return print_func(flatten(parse_func(f"{DEFINITIONS}\n@prim_func\n{dedent(text).strip()}\n")[1]), "f").split(
        "def f("
    )[1]


def test_flat_buffers_have_linear_indices() -> None:
    text = """
    def f(x: In[int8, (4, 6, 8)], z: In[int8, ()], y: Out[int8, (1, 24), align(16)], w: Const[int8, (8,)]):
        t = alloc(int8, (2, 8), align(64))
        for i in range(4):
            for j in range(6):
                t[1, j] = x[i, j, 2 + 1]
                t[1, j] += w[j + 0] + z[()]
                y[0, i * 6 + j] = t[1, j] if x[0, 0, j] > 0 else x[3, (i + j) % 6, 0]
    """
    assert flat(text) == (
        """
    x: In[int8, (192,)],
    z: In[int8, ()],
    y: Out[int8, (24,), align(16)],
    w: Const[int8, (8,)],
):
    t = alloc(int8, (16,), align(64))
    for i in range(4):
        for j in range(6):
            t[j + 8] = x[(i * 6 + j) * 8 + 3]
            t[j + 8] += w[j + 0] + z[()]
            y[i * 6 + j] = t[j + 8] if x[j] > 0 else x[((i + j) % 6 + 18) * 8]
"""
    )


def test_flat_views_have_strides() -> None:
    text = """
    def f(x: In[int8, (4, 6, 8)], y: Out[int8, (1,)]):
        memories(spad)
        y[0] = 0
        for i in range(4):
            n: int32 = i * 2
            if n < 4:
                t = alloc(int8, (2, 8), scope("spad"))
                copy(view(t[1, n], axis(0), axis(1)), view(x[i, n, 1], axis(1, 2), axis(0)), (1, n))
    """
    assert flat(text).split("):\n", 1)[1] == (
        """\
    memories(spad)
    y[0] = 0
    for i in range(4):
        n: int32 = i * 2
        if n < 4:
            t = alloc(int8, (16,), scope("spad"))
            copy(view(t[n + 8], axis(0, 8), axis(0)), view(x[(i * 6 + n) * 8 + 1], axis(0, 16), axis(0, 48)), (1, n))
"""
    )


def test_what_is_never_in_use_together_shares_a_workspace() -> None:
    text = """
    def f(x: In[int8, (64,)], y: Out[int8, (1,)], w: Workspace[int8, (4,)], s: Workspace[int8, (8,), scope("spad")]):
        memories(spad, acc)
        y[0] = 0
        with block("first"):
            a = alloc(int8, (16,), scope("spad"))
            b = alloc(int8, (8,), align(16), scope("spad"))
            copy(view(a[0], axis(0)), view(x[0], axis(0)), (16,))
            copy(view(b[0], axis(0)), view(x[0], axis(0)), (8,))
        with block("second"):
            c = alloc(int8, (32,), scope("spad"))
            d = alloc(int32, (8,), scope("spad"))
            e = alloc(int8, (4, 4), scope("spad"))
            g = alloc(int32, (4,), scope("acc"))
            copy(view(c[0], axis(0)), view(x[0], axis(0)), (32,))
            copy(view(e[0, 0], axis(1)), view(x[0], axis(0)), (4,))
            copy(view(s[0], axis(0)), view(x[0], axis(0)), (8,))
    """
    func = parse_func(f"{DEFINITIONS}\n@prim_func\n{dedent(text).strip()}\n")[1]
    assert print_func(hoist_scratch(func), "f").split("def f(")[1] == (
        """
    x: In[int8, (64,)],
    y: Out[int8, (1,)],
    w: Workspace[int8, (4,)],
    s: Workspace[int8, (8,), align(8), scope("spad")],
    a: Workspace[int8, (32,), align(8), scope("spad")],
    b: Workspace[int8, (8,), align(16), scope("spad")],
    d: Workspace[int32, (8,), align(8), scope("spad")],
    e: Workspace[int8, (4, 4), align(8), scope("spad")],
    g: Workspace[int32, (4,), scope("acc")],
):
    memories(spad, acc)
    y[0] = 0
    with block("first"):
        copy(view(a[0], axis(0)), view(x[0], axis(0)), (16,))
        copy(view(b[0], axis(0)), view(x[0], axis(0)), (8,))
    with block("second"):
        copy(view(a[0], axis(0)), view(x[0], axis(0)), (32,))
        copy(view(e[0, 0], axis(1)), view(x[0], axis(0)), (4,))
        copy(view(s[0], axis(0)), view(x[0], axis(0)), (8,))
"""
    )


@pytest.mark.parametrize(
    ("index", "exact"),
    [
        ("t[i, j]", True),
        ("t[i, 0]", False),
        ("t[0, i]", False),
        ("t[j, i]", True),
        ("t[0, i + j]", False),
        ("t[0, (i + j) // 2]", False),
    ],
)
def test_sums_are_as_exact_when_they_are_flat(index: str, exact: bool) -> None:
    # Each step adds up to 2**28: eight of them fit an element, sixty-four do not.
    loops = func(
        dedent(
            f"""
            def f(x: In[int32, (8, 8)], y: Out[int32, (1,)]):
                y[0] = 0
                t = alloc(int32, (8, 16))
                for i in range(8):
                    for j in range(8):
                        for k in range(7):
                            {index} += min(max(x[i, j], 0), 268435456)
            """
        )
    )
    for made in (loops, flatten(loops)):
        assert bool(exact_sums(made)) == exact
