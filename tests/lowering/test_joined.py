"""Loops along dimensions that lie side by side become one, with the same results."""

from __future__ import annotations

import numpy as np
import pytest
from tests._support.random_layers import Layers

import uma
from uma.lowering.loop_collapse import collapse_loops
from uma.relay.expr import Expr, Function, Var, call
from uma.relay.tensors import tensor_function
from uma.relay.types import TensorType
from uma.relay.visit import free_vars
from uma.tir.form.fields import statements
from uma.tir.form.interp import interpret
from uma.tir.form.nodes import For, Imm, PrimFunc
from uma.tir.form.verify import verify


def loops_of(func: PrimFunc) -> list[int]:
    """The extents of the loops."""
    loops = [part for part in statements(func.body) if isinstance(part, For)]
    return [loop.extent.value for loop in loops if isinstance(loop.extent, Imm) and isinstance(loop.extent.value, int)]


def data(name: str, *shape: int) -> Var:
    return Var(name, TensorType(shape, "int8"))


def added(a: Expr, b: Expr) -> Expr:
    return call("add", a, b)


X = data("x", 2, 3, 9, 8)
CASES: list[tuple[Expr, list[int]]] = [
    (added(X, X), [2, 3, 72]),
    (added(X, data("y", 3, 1, 1)), [2, 3, 72]),
    (added(X, data("y", 9, 8)), [2, 3, 72]),
    (added(X, data("y", 2, 3, 1, 8)), [2, 3, 9, 8]),
    (added(data("x", 3, 300), data("y", 1, 300)), [3, 300]),
    (added(data("x", 3, 300), data("z", 3, 300)), [3, 300]),
    (added(data("x", 9, 7), data("z", 9, 7)), [9, 7]),
    (call("transpose", X, axes=(0, 2, 3, 1)), [2, 9, 8, 3]),
    (call("concatenate", X, data("y", 2, 4, 9, 8), axis=1), [2, 3, 72, 2, 4, 72]),
]


@pytest.mark.parametrize(("result", "extents"), CASES)
def test_loops_are_as_long_as_what_lies_side_by_side(result: Expr, extents: list[int]) -> None:
    func = tensor_function(Function(free_vars(result), result)).kernel().func
    made = collapse_loops(func)
    verify(made)
    assert loops_of(made) == extents
    rng = np.random.default_rng(1)
    given = {b.name: rng.integers(-128, 128, b.shape).astype(b.dtype) for b in func.buffers("input")}
    (found,), (expected,) = interpret(made, given).values(), interpret(func, given).values()
    np.testing.assert_array_equal(found, expected)


def test_small_machines_and_rows_keep_theirs() -> None:
    """There code is as short either way, and rows are what single rounds of the outer loop make."""
    layers = Layers(1)
    layers.outputs.append(call("add", layers.input((1, 8, 9, 8), "int8"), layers.input((1, 8, 9, 8), "int8")))
    for target, extents in (("c -mtriple=x86_64-linux-gnu", [8, 72]), ("c -mcpu=cortex-m3", [8, 9, 8])):
        module = uma.build(layers.module, target, stop_after="lower")
        assert isinstance(module, uma.IRModule)
        (func,) = (one for one in module.functions.values() if isinstance(one, PrimFunc))
        assert loops_of(func) == extents
