"""The plain form of tensor expressions, which schedules begin with, and what finishes it."""

from __future__ import annotations

from dataclasses import replace
from textwrap import dedent, indent

import numpy as np
import pytest
from hypothesis import given
from tests._support.te_strategies import Computation, computations, meaning
from tests._support.tir_strategies import same_bits
from tests._support.tir_tools import func

from uma.errors import InternalError
from uma.tir import te
from uma.tir.form.interp import interpret
from uma.tir.form.nodes import Expr, Imm, PrimFunc, maximum, minimum
from uma.tir.form.text import print_func
from uma.tir.form.verify import verify
from uma.tir.proofs.obligations import unproven
from uma.tir.te.finalisation import finalise_kernel


def expect(function: PrimFunc, text: str) -> None:
    body = indent(dedent(text).lstrip("\n"), "    ")
    assert print_func(function, "f").split("):\n", 1)[1] == body


def plain(computation: Computation) -> te.Kernel:
    return te.plain(computation.inputs, computation.outputs, computation.constants)


@given(computations())
def test_the_plain_form_computes_what_the_expressions_mean(computation: Computation) -> None:
    kernel = plain(computation)
    expected = [meaning(output, computation.contents) for output in computation.outputs]
    for function in (kernel.func, finalise_kernel(kernel.func)):
        verify(function)
        found = interpret(function, computation.arguments(kernel))
        for buffer, array in zip(function.buffers("output"), expected, strict=True):
            assert same_bits(found[buffer.name], array), print_func(function, "f")


def convolution() -> tuple[list[te.Tensor], te.Kernel]:
    x = te.placeholder((1, 4, 3), "float32", "x")
    w = te.placeholder((3, 3, 2), "float32", "w")
    k, ci = te.reduce_axis(3, "k"), te.reduce_axis(3, "ci")

    def element(n: Expr, i: Expr, c: Expr) -> te.Reduction:
        inside = (i + k >= 1) & (i + k <= 4)
        return te.sum(x[n, i + k - 1, ci] * w[k, ci, c], (k, ci), where=inside)

    y = te.compute((1, 4, 2), element, "y")
    relu = te.compute((1, 4, 2), lambda *i: maximum(y[i], 0.0), "relu")
    return [x, w, y, relu], te.plain([x], [relu], [w])


def test_each_stage_has_a_nest_of_its_own_in_a_block() -> None:
    (x, w, y, relu), kernel = convolution()
    expect(
        kernel.func,
        """
            a0 = alloc(float32, (1, 4, 2), align(64))
            with block("reduce0"):
                for i0 in range(1):
                    for i1 in range(4):
                        for i2 in range(2):
                            a0[i0, i1, i2] = 0.0
                            for i3 in range(3):
                                for i4 in range(3):
                                    if i1 + i3 >= 1 and i1 + i3 <= 4:
                                        a0[i0, i1, i2] += x0[0, i1 + i3 - 1, i4] * w0[i3, i4, i2]
            with block("compute0"):
                for i5 in range(1):
                    for i6 in range(4):
                        for i7 in range(2):
                            out0[i5, i6, i7] = max(a0[0, i6, i7], 0.0)
        """,
    )
    assert unproven(kernel.func) is None
    assert kernel.labels == {y: "reduce0", relu: "compute0"}
    assert {tensor: buffer.name for tensor, buffer in kernel.buffers.items()} == {
        x: "x0",
        relu: "out0",
        w: "w0",
        y: "a0",
    }
    assert convolution()[1].func is kernel.func, "equal computations, whatever their tensors are called"


def test_pieces_have_blocks_within_that_of_their_stage() -> None:
    x = te.placeholder((2,), "int8", "x")
    padded = te.assemble((4,), "int8", [((0,), (4,), lambda i: Imm(0, "int8")), ((1,), (2,), lambda i: x[i])], "padded")
    kernel = te.plain([x], [padded])
    expect(
        kernel.func,
        """
            with block("compute0"):
                with block("piece0"):
                    for i0 in range(4):
                        out0[i0] = 0
                with block("piece1"):
                    for i1 in range(2):
                        out0[1 + i1] = x0[i1]
        """,
    )


def test_cheap_stages_are_written_into_their_users_unless_they_are_kept() -> None:
    x = te.placeholder((4,), "int8", "x")
    wide = te.compute((4,), lambda i: x[i].astype("int32") + 128, "wide")
    total = te.compute((2,), lambda i: wide[i] * wide[i + 2], "total")
    assert list(te.plain([x], [total]).labels) == [total]
    kept = te.plain([x], [total], keep=[wide])
    assert kept.labels == {wide: "compute0", total: "compute1"}
    assert kept.buffers[wide].shape == (4,)
    with pytest.raises(InternalError, match="'x' is to be kept and is not computed"):
        te.plain([x], [total], keep=[x])
    with pytest.raises(InternalError, match="'x' is read and is not a parameter"):
        te.plain([], [total])
    with pytest.raises(InternalError, match="output 'total' is given twice"):
        te.plain([x], [total, total])


def test_constants_are_bound_by_their_tensors() -> None:
    x, w = te.placeholder((2,), "int8", "x"), te.placeholder((4,), "int8", "w")
    table = te.constant(np.arange(2, dtype=np.int8), "table")
    square = te.reshape(w, (2, 2))
    y = te.compute((2,), lambda i: x[i] * square[i, 1] + table[i], "y")
    for kernel in (te.plain([x], [y], [w]), te.prim_func([x], [y], constants=[w])):
        bound = kernel.bind({w: np.array([1, 2, 3, 4], np.int8)})
        assert [array.tolist() for array in bound] == [[[1, 2], [3, 4]], [0, 1]]
        assert [array.shape for array in bound] == [buffer.shape for buffer in kernel.func.buffers("constant")]
        with pytest.raises(InternalError, match="nothing is bound to constant 'w'"):
            kernel.bind()
        with pytest.raises(InternalError, match=r"int32\[4\] is bound to constant 'w', which is int8\[4\]"):
            kernel.bind({w: np.zeros(4, np.int32)})


# What finishes loops


def test_what_does_not_fit_the_stack_is_in_workspaces() -> None:
    x = te.placeholder((3000,), "float32", "x")
    first = te.compute((1000,), lambda i: x[i] + x[i + 1], "first")
    second = te.compute((3000,), lambda i: x[i] + first[i % 1000] * first[0], "second")
    y = te.compute((2000,), lambda i: second[i] + second[i + 1000], "y")
    kernel = te.plain([x], [y], keep=[first, second])
    made = finalise_kernel(kernel.func)
    assert [(p.buffer.name, p.role, p.buffer.alignment) for p in made.params[2:]] == [("a1", "workspace", 16)]
    assert made.buffers("workspace")[0].shape == (3000,)
    assert "a0 = alloc(float32, (1000,), align(64))" in print_func(made, "f")
    verify(made)
    assert unproven(made) is None
    given = {"x0": np.random.default_rng(0).standard_normal(3000).astype(np.float32)}
    assert same_bits(interpret(made, given)["out0"], interpret(kernel.func, given)["out0"])


def test_each_round_of_a_parallel_loop_has_memory_of_its_own() -> None:
    parallel = func(
        """
        def f(x: In[int8, (2, 9000)], y: Out[int8, (2, 9000)]):
            for i in parallel(2):
                row = alloc(int8, (9000,))
                for j in range(9000):
                    row[j] = x[i, j]
                for k in range(9000):
                    y[i, k] = row[k]
        """
    )
    assert finalise_kernel(parallel).body is parallel.body


def test_what_is_computed_twice_has_a_name_and_outputs_may_alias_anew() -> None:
    x = te.placeholder((4,), "float32", "x")
    root = te.compute((4,), lambda i: maximum(x[i] + 1.0, 0.0), "root")
    y = te.compute((4,), lambda i: minimum(root[i] * root[i], 6.0) * root[i], "y")
    made = finalise_kernel(replace(te.plain([x], [y]).func, may_alias=()))
    assert made.may_alias == (("out0", "x0"),)
    expect(
        replace(made, may_alias=()),
        """
            with block("compute0"):
                for i0 in range(4):
                    v_1: float32 = max(x0[i0] + 1.0, 0.0)
                    out0[i0] = min(v_1 * v_1, 6.0) * v_1
        """,
    )
