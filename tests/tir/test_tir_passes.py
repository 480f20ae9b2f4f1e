"""Unrolling, flattening and hoisting: the same outputs, in the form that each promises."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests._support.tir_devices import device_funcs
from tests._support.tir_strategies import arguments, prim_funcs, same_bits

from uma.tir.flatten import flatten
from uma.tir.interp import interpret
from uma.tir.nodes import Alloc, For, PrimFunc
from uma.tir.scratch import hoist_scratch
from uma.tir.simplify import simplify
from uma.tir.text import parse_func, print_func
from uma.tir.unroll import unroll
from uma.tir.verify import verify
from uma.tir.visit import buffers, walk

Pass = Callable[[PrimFunc], PrimFunc]


def all_passes(func: PrimFunc) -> PrimFunc:
    return hoist_scratch(flatten(unroll(simplify(func))))


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
        assert rewrite(made) is made
        assert parse_func(print_func(made, "made")) == ("made", made)
        check_form(rewrite, made)


def check_form(rewrite: Pass, func: PrimFunc) -> None:
    if rewrite in (unroll, all_passes):
        assert not any(isinstance(part, For) and part.kind == "unrolled" for part in walk(func.body))
    if rewrite in (flatten, all_passes):
        assert all(len(buffer.shape) <= 1 for buffer in (*buffers(func.body), *(p.buffer for p in func.params)))
    if rewrite in (hoist_scratch, all_passes):
        assert not any(isinstance(part, Alloc) and part.buffer.scope != "local" for part in walk(func.body))


@settings(max_examples=settings().max_examples // 2)
@given(data=st.data(), func=prim_funcs())
def test_on_the_host_passes_keep_what_is_computed(data: st.DataObject, func: PrimFunc) -> None:
    check(func, data.draw(arguments(func)))


@settings(max_examples=settings().max_examples // 2, suppress_health_check=list(HealthCheck))
@given(data=st.data(), func=device_funcs())
def test_on_a_device_passes_keep_what_is_computed(data: st.DataObject, func: PrimFunc) -> None:
    check(func, data.draw(arguments(func)))
