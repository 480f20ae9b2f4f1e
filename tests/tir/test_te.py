"""Tensor expressions, and the loops that they are made into."""

from __future__ import annotations

from collections.abc import Callable
from textwrap import dedent
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests._support.te_strategies import Computation, computations, meaning
from tests._support.tir_strategies import same_bits

from uma.errors import InternalError
from uma.tir import te
from uma.tir.form.interp import interpret
from uma.tir.form.nodes import (
    Block,
    Call,
    Expr,
    For,
    If,
    Imm,
    Load,
    PrimFunc,
    Select,
    Store,
    Update,
    Var,
    maximum,
    minimum,
)
from uma.tir.form.text import print_func
from uma.tir.form.verify import verify
from uma.tir.form.visit import walk
from uma.tir.proofs.affine import affine
from uma.tir.rewrites.common_subexpressions import share
from uma.tir.rewrites.simplify import simplify
from uma.tir.te.default_schedule import DefaultSchedule
from uma.tir.te.lower import lower


def data(*shape: int, dtype: str = "float32") -> te.Tensor:
    return te.placeholder(shape, dtype, "data")


def lowered(*outputs: te.Tensor, inputs: list[te.Tensor], constants: tuple[te.Tensor, ...] = ()) -> PrimFunc:
    func = te.prim_func(inputs, outputs, constants=constants).func
    verify(func)
    return func


def text(func: PrimFunc) -> str:
    return print_func(simplify(func), "f").split("):\n", 1)[1]


def expect(func: PrimFunc, body: str) -> None:
    indented = "".join(f"    {line}\n" if line else "\n" for line in dedent(body).strip("\n").splitlines())
    assert text(func) == indented


def loops(func: PrimFunc) -> list[For]:
    return [node for node in walk(func.body) if isinstance(node, For)]


def extents(func: PrimFunc) -> list[int]:
    return [int(loop.extent.value) for loop in loops(func) if isinstance(loop.extent, Imm)]


# What the loops compute


SMALL = DefaultSchedule(block=16, steps=3, lanes_bytes=32, stack_bytes=64)


@given(computations(), st.sampled_from([DefaultSchedule(), SMALL]))
def test_the_loops_compute_what_the_expressions_mean(computation: Computation, schedule: DefaultSchedule) -> None:
    kernel = lower(computation.inputs, computation.outputs, computation.constants, schedule)
    verify(kernel.func)
    arguments = computation.arguments(kernel)
    expected = [meaning(output, computation.contents) for output in computation.outputs]
    for func in (kernel.func, simplify(kernel.func)):
        found = interpret(func, arguments)
        for buffer, array in zip(func.buffers("output"), expected, strict=True):
            assert same_bits(unsigned_zeros(found[buffer.name]), unsigned_zeros(array)), print_func(func, "f")


def unsigned_zeros(array: np.ndarray) -> np.ndarray:
    """Which of two zeros is the smaller one depends on the order in which a reduction finds them."""
    return array + array.dtype.type(0) if array.dtype.kind == "f" else array


def test_a_float_sum_is_formed_in_the_order_of_the_loops() -> None:
    x = data(300)
    k = te.reduce_axis(300, "k")
    func = lowered(te.compute((), lambda: te.sum(x[k], k), "total"), inputs=[x])
    values = np.random.default_rng(0).standard_normal(300).astype(np.float32)
    partial = np.zeros(32, np.float32)
    for start in range(0, 288, 32):
        partial += values[start : start + 32]
    partial[:12] += values[288:]
    while len(partial) > 1:
        partial = partial[: len(partial) // 2] + partial[len(partial) // 2 :]
    assert interpret(func, {"x0": values})["out0"] == partial[0]


def test_a_sum_over_dimensions_that_lie_side_by_side_is_one_long_sum() -> None:
    """Of a row of 10 it would have no partial sums."""
    x, flat = data(5, 6, 8, 10), data(5, 480)
    axes = [te.reduce_axis(extent, "k") for extent in (6, 8, 10)]
    k = te.reduce_axis(480, "k")
    sums = lowered(te.compute((5,), lambda i: te.sum(x[(i, *axes)] * x[(i, *axes)], axes), "sums"), inputs=[x])
    long = lowered(te.compute((5,), lambda i: te.sum(flat[i, k] * flat[i, k], k), "sums"), inputs=[flat])
    assert extents(simplify(sums)) == extents(simplify(long)) == [5, 32, 15, 32, 16, 8, 4, 2]
    values = np.random.default_rng(0).standard_normal((5, 480)).astype(np.float32)
    one, other = (interpret(func, {"x0": values.reshape(func.buffers("input")[0].shape)}) for func in (sums, long))
    assert same_bits(one["out0"], other["out0"])
    parted = lowered(
        te.compute((8,), lambda i: te.sum(x[0, axes[0], i, axes[2]], [axes[0], axes[2]]), "sums"), inputs=[x]
    )
    assert 6 in extents(simplify(parted))  # what lies between is not part of it


# The form of the loops


def convolution(height: int = 8, channels: int = 3, units: int = 16, name: str = "x") -> te.Kernel:
    x = te.placeholder((1, height, height, channels), "float32", name)
    w = te.placeholder((3, 3, channels, units), "float32", "w")
    bias = te.placeholder((units,), "float32", "bias")
    kh, kw, ci = te.reduce_axis(3, "kh"), te.reduce_axis(3, "kw"), te.reduce_axis(channels, "ci")

    def element(n: Expr, h: Expr, v: Expr, c: Expr) -> te.Reduction:
        inside = (h + kh >= 1) & (h + kh <= height) & (v + kw >= 1) & (v + kw <= height)
        return te.sum(x[n, h + kh - 1, v + kw - 1, ci] * w[kh, kw, ci, c], (kh, kw, ci), where=inside)

    y = te.compute((1, height, height, units), element, "y")
    z = te.compute(y.shape, lambda *i: y[i] + bias[i[-1]], "z")
    relu = te.compute(y.shape, lambda *i: maximum(z[i], 0.0), "relu")
    return te.prim_func([x], [relu], constants=[w, bias])


def test_a_convolution_with_bias_and_relu_is_one_nest_of_rows() -> None:
    expect(
        convolution().func,
        """
        for i0 in range(8):
            for i1 in range(8):
                a0 = alloc(float32, (16,), align(64))
                with block("reduce0"):
                    for i2 in range(16):
                        a0[i2] = 0.0
                    for i3 in range(3):
                        if i0 + i3 >= 1 and i0 + i3 <= 8:
                            for i4 in range(3):
                                if i1 + i4 >= 1 and i1 + i4 <= 8:
                                    for i5 in range(16):
                                        for i6 in unrolled(3):
                                            a0[i5] += x0[0, i0 + i3 - 1, i1 + i4 - 1, i6] * w0[i3, i4, i6, i5]
                with block("compute0"):
                    for i7 in range(16):
                        out0[0, i0, i1, i7] = max(a0[i7] + w1[i7], 0.0)
        """,
    )


def test_a_long_row_is_computed_in_blocks_of_constant_length() -> None:
    func = convolution(units=640).func
    assert sorted(set(extents(func))) == [3, 8, 10, 64]
    tail = convolution(units=100).func
    assert sorted(set(extents(tail))) == [3, 8, 36, 64]
    assert max(extents(convolution(units=1000).func)) == 40, "1000 is 25 times 40"
    assert max(buffer.size for buffer in allocated(tail)) == 64


def allocated(func: PrimFunc) -> list[Any]:
    return [node.buffer for node in walk(func.body) if type(node).__name__ == "Alloc"]


def test_a_softmax_goes_row_by_row() -> None:
    x = data(4, 10)
    k = te.reduce_axis(10, "k")
    largest = te.compute((4,), lambda n: te.max(x[n, k], k), "largest")
    power = te.compute(x.shape, lambda n, c: Call("exp", x[n, c] - largest[n]), "power")
    total = te.compute((4,), lambda n: te.sum(power[n, k], k), "total")
    softmax = te.compute(x.shape, lambda n, c: power[n, c] / total[n], "softmax")
    func = lowered(softmax, inputs=[x])
    expect(
        func,
        """
        may_alias(out0, x0)
        for i0 in range(4):
            a0 = alloc(float32, ())
            a1 = alloc(float32, (10,), align(64))
            a2 = alloc(float32, ())
            with block("reduce0"):
                a0[()] = float32("-inf")
                for i1 in range(10):
                    update_max(a0[()], x0[i0, i1])
            with block("compute0"):
                for i2 in range(10):
                    a1[i2] = exp(x0[i0, i2] - a0[()])
            with block("reduce1"):
                a2[()] = 0.0
                for i3 in range(10):
                    a2[()] += a1[i3]
            with block("compute1"):
                for i4 in range(10):
                    out0[i0, i4] = a1[i4] / a2[()]
        """,
    )


def test_a_dot_product_of_integers_has_one_accumulator_and_a_row_of_results() -> None:
    x, w = data(1, 40, dtype="int8"), te.placeholder((6, 40), "int8", "w")
    k = te.reduce_axis(40, "k")
    sums = te.compute((1, 6), lambda n, u: te.sum(x[n, k].astype("int32") * w[u, k].astype("int32"), k), "sums")
    clipped = te.compute((1, 6), lambda n, u: minimum(sums[n, u] >> 5, 127).astype("int8"), "clipped")
    expect(
        lowered(clipped, inputs=[x], constants=(w,)),
        """
        a0 = alloc(int32, (6,), align(64))
        with block("reduce0"):
            for i0 in range(6):
                a1 = alloc(int32, ())
                a1[()] = 0
                for i1 in range(40):
                    a1[()] += int32(x0[0, i1]) * int32(w0[i0, i1])
                a0[i0] = a1[()]
        with block("compute0"):
            for i2 in range(6):
                out0[0, i2] = int8(min(a0[i2] >> 5, 127))
        """,
    )


def test_a_dot_product_of_floats_has_partial_sums() -> None:
    x = data(20)
    k = te.reduce_axis(20, "k")
    expect(
        lowered(te.compute((), lambda: te.sum(x[k] * x[k], k), "norm"), inputs=[x]),
        """
        with block("reduce0"):
            a0 = alloc(float32, ())
            a0[()] = 0.0
            a1 = alloc(float32, (8,), align(64))
            for i0 in range(8):
                a1[i0] = 0.0
            for i1 in range(2):
                for i2 in range(8):
                    v0: float32 = x0[i2 + i1 * 8]
                    a1[i2] += v0 * v0
            for i3 in range(4):
                v1: float32 = x0[i3 + 16]
                a1[i3] += v1 * v1
            for i4 in range(4):
                a1[i4] += a1[i4 + 4]
            for i5 in range(2):
                a1[i5] += a1[i5 + 2]
            a1[0] += a1[1]
            a0[()] += a1[0]
            out0[()] = a0[()]
        """,
    )


def test_pieces_are_written_in_order() -> None:
    x = data(2, dtype="int8")
    pieces = [((0,), (4,), lambda i: Imm(7, "int8")), ((1,), (2,), lambda i: x[i])]
    expect(
        lowered(te.assemble((4,), "int8", pieces, "pad"), inputs=[x]),
        """
        with block("compute0"):
            for i0 in range(4):
                out0[i0] = 7
            for i1 in range(2):
                out0[i1 + 1] = x0[i1]
        """,
    )


def test_a_condition_that_may_fault_stays_behind_the_ones_before_it() -> None:
    x, mask = data(4, 4), te.placeholder((4,), "int8", "mask")
    i, j = te.reduce_axis(4, "i"), te.reduce_axis(4, "j")
    inside = (i + j < 4) & (mask[i + j] > 0)
    func = lowered(te.compute((4,), lambda r: te.sum(x[r, i], (i, j), where=inside), "y"), inputs=[x, mask])
    guards = [node for node in walk(func.body) if isinstance(node, If)]
    assert len(guards) == 1
    assert "(i" not in text(func).split("if ")[1].split(" < 4")[0], "the index is checked first"


def test_a_condition_that_never_holds_leaves_the_identity() -> None:
    x = data(4)
    k = te.reduce_axis(4, "k")
    func = lowered(te.compute((), lambda: te.min(x[k], k, where=k > 5), "y"), inputs=[x])
    assert not [node for node in walk(simplify(func).body) if isinstance(node, Update)]
    assert interpret(func, {"x0": np.zeros(4, np.float32)})["out0"] == np.inf


# Sharing


def test_equal_computations_are_one_function_whatever_their_tensors_are_called() -> None:
    assert convolution(name="x").func is convolution(name="activations").func
    assert convolution(units=16).func is not convolution(units=17).func


def test_contents_of_constants_are_no_part_of_the_function() -> None:
    def looked_up(table: np.ndarray) -> te.Kernel:
        x, entries = data(5, dtype="uint8"), te.constant(table, "table")
        return te.prim_func([x], [te.compute((5,), lambda i: entries[x[i].astype("int32")], "y")])

    one, two = looked_up(np.arange(256, dtype=np.int8)), looked_up(np.zeros(256, np.int8))
    assert one.func is two.func
    assert [param.role for param in one.func.params] == ["input", "output", "constant"]
    assert one.bind()[0][3] == 3 and two.bind()[0][3] == 0


def test_parameters_keep_the_order_in_which_they_are_given() -> None:
    a, b, unused = data(2), data(3), data(4)
    w = te.placeholder((3,), "float32", "w")
    y = te.compute((3,), lambda i: b[i] * w[i], "y")
    z = te.compute((2,), lambda i: a[i], "z")
    func = lowered(z, y, inputs=[a, unused, b], constants=(w,))
    shapes = [(param.buffer.name, param.buffer.shape) for param in func.params]
    assert shapes == [("x0", (2,)), ("x1", (4,)), ("x2", (3,)), ("out0", (2,)), ("out1", (3,)), ("w0", (3,))]


# What is kept and what is written into its consumers


def test_what_is_cheap_is_repeated_within_a_reduction() -> None:
    x, w = data(8, dtype="int8"), te.placeholder((8, 16), "int8", "w")
    k = te.reduce_axis(8, "k")
    centred = te.compute((8,), lambda i: x[i].astype("int32") - 3, "centred")
    y = te.compute((16,), lambda u: te.sum(centred[k] * w[k, u].astype("int32"), k), "y")
    assert blocks(lowered(y, inputs=[x], constants=(w,))) == ["reduce0"]


def test_what_is_costly_is_computed_once() -> None:
    x, w = data(8), te.placeholder((8, 16), "float32", "w")
    k = te.reduce_axis(8, "k")
    gate = te.compute((8,), lambda i: Call("tanh", x[i]), "gate")
    y = te.compute((16,), lambda u: te.sum(gate[k] * w[k, u], k), "y")
    assert blocks(lowered(y, inputs=[x], constants=(w,))) == ["compute0", "reduce0"]
    once = te.compute((), lambda: te.sum(gate[k], k), "once")
    assert blocks(lowered(once, inputs=[x])) == ["reduce0"], "read once, it needs no memory"


def test_the_result_of_a_reduction_is_not_kept_whole_for_a_consumer_in_another_order() -> None:
    x, w = data(6, 6, 4, dtype="int8"), te.placeholder((4, 8), "int8", "w")
    ci, kh, kw = te.reduce_axis(4, "ci"), te.reduce_axis(3, "kh"), te.reduce_axis(3, "kw")
    sums = te.compute(
        (6, 6, 8), lambda i, j, u: te.sum(x[i, j, ci].astype("int32") * w[ci, u].astype("int32"), ci), "sums"
    )
    small = te.compute(sums.shape, lambda *i: (sums[i] >> 4).astype("int8"), "small")
    pooled = te.compute((2, 2, 8), lambda i, j, u: te.max(small[i * 3 + kh, j * 3 + kw, u], (kh, kw)), "pooled")
    func = lowered(pooled, inputs=[x], constants=(w,))
    assert blocks(func) == ["reduce0", "compute0", "reduce1"]
    assert {(buffer.shape, buffer.dtype) for buffer in allocated(func)} == {
        ((6, 6, 8), "int8"),
        ((8,), "int32"),
        ((8,), "int8"),
    }


def blocks(func: PrimFunc) -> list[str]:
    return [node.label for node in walk(func.body) if isinstance(node, Block)]


def test_what_does_not_fit_the_stack_is_in_a_workspace() -> None:
    x = data(2, 5000)
    k = te.reduce_axis(5000, "k")
    power = te.compute(x.shape, lambda n, c: Call("exp", x[n, c]), "power")
    total = te.compute((2,), lambda n: te.sum(power[n, k], k), "total")
    func = lowered(te.compute(x.shape, lambda n, c: power[n, c] / total[n], "y"), inputs=[x])
    assert [buffer.shape for buffer in func.buffers("workspace")] == [(5000,)], "one row of it"


def test_a_long_chain_is_cut_before_its_expressions_nest_too_deep() -> None:
    x = data(4, dtype="int32")
    last = x
    for step in range(150):
        last = te.compute((4,), lambda i, t=last, n=step: t[i] * 3 ^ n, "link")
    func = lowered(last, inputs=[x])
    assert len(blocks(func)) > 3
    values = np.array([0, 1, -5, 2**31 - 1], np.int32)
    expected = values.copy()
    with np.errstate(over="ignore"):
        for step in range(150):
            expected = expected * np.int32(3) ^ np.int32(step)
    assert (interpret(func, {"x0": values})["out0"] == expected).all()


def test_stages_that_read_twice_what_reads_twice_do_not_explode() -> None:
    x = data(20, dtype="int32")
    last = x
    for _ in range(14):
        last = te.compute((last.shape[0] - 1,), lambda i, t=last: t[i] + t[i + 1], "pair")
    func = lowered(last, inputs=[x])
    assert len(text(func)) < 10_000
    expected = np.arange(20, dtype=np.int32)
    for _ in range(14):
        expected = expected[:-1] + expected[1:]
    assert (interpret(func, {"x0": np.arange(20, dtype=np.int32)})["out0"] == expected).all()


# In place


def aliases(make: Callable[[te.Tensor], te.Tensor], *shape: int, dtype: str = "float32") -> tuple[Any, ...]:
    x = data(*shape, dtype=dtype)
    return lowered(make(x), inputs=[x]).may_alias


PAIR = (("out0", "x0"),)


def test_element_by_element_an_output_may_be_the_input() -> None:
    assert aliases(lambda x: te.compute((3, 4), lambda i, j: x[i, j] * 2.0, "y"), 3, 4) == PAIR
    assert aliases(lambda x: te.compute((12,), lambda i: x[i // 4, i % 4], "y"), 3, 4) == PAIR


def test_an_input_that_is_read_after_it_would_be_overwritten_is_not_shared() -> None:
    assert aliases(lambda x: te.compute((4,), lambda i: x[3 - i], "y"), 4) == ()
    assert aliases(lambda x: te.compute((4, 4), lambda i, j: x[j, i], "y"), 4, 4) == ()
    assert aliases(lambda x: te.compute((4,), lambda i: x[i] + x[0], "y"), 4) == ()
    k = te.reduce_axis(4, "k")
    assert aliases(lambda x: te.compute((4, 4), lambda i, j: te.sum(x[k, j], k), "y"), 4, 4) == ()
    assert aliases(lambda x: te.compute((4, 4), lambda i, j: te.sum(x[i, k], k), "y"), 4, 4) == PAIR, "row by row"


def test_a_row_may_be_overwritten_once_it_was_reduced() -> None:
    k = te.reduce_axis(4, "k")

    def centred(x: te.Tensor) -> te.Tensor:
        total = te.compute((3,), lambda i: te.sum(x[i, k], k), "total")
        return te.compute((3, 4), lambda i, j: x[i, j] - total[i], "centred")

    def centred_on_the_last(x: te.Tensor) -> te.Tensor:
        total = te.compute((3,), lambda i: te.sum(x[2 - i, k], k), "total")
        return te.compute((3, 4), lambda i, j: x[i, j] - total[i], "centred")

    assert aliases(centred, 3, 4) == PAIR
    assert aliases(centred_on_the_last, 3, 4) == ()


def test_memory_is_shared_only_between_arrays_of_one_type_and_size() -> None:
    assert aliases(lambda x: te.compute((4,), lambda i: x[i].astype("int32"), "y"), 4) == ()
    assert aliases(lambda x: te.compute((2,), lambda i: x[i], "y"), 4) == ()


# Names for what is used twice


def test_what_occurs_twice_is_bound_once() -> None:
    x = data(4)
    expect(
        lowered(te.compute((4,), lambda i: x[i] * (x[i] + 1.0) * (x[i] + 1.0), "y"), inputs=[x]),
        """
        may_alias(out0, x0)
        with block("compute0"):
            for i0 in range(4):
                v0: float32 = x0[i0]
                v1: float32 = v0 + 1.0
                out0[i0] = v0 * v1 * v1
        """,
    )


def test_what_a_condition_guards_stays_under_it() -> None:
    x = data(4)
    i = Var("i")
    guarded = x[i] * x[i]
    value = Select(i < 4, guarded + guarded, Imm(0.0, "float32"))
    stmt = share(value, iter(["v0", "v1"]).__next__, lambda expr: Store(x, (Imm(0, "int32"),), expr))
    assert isinstance(stmt, Store), "nothing was moved out"
    assert stmt.value is value


def test_what_cannot_fault_may_be_moved_out_from_under_a_condition() -> None:
    x = data(4)
    zero = Imm(0, "int32")
    square = x[zero] * x[zero]
    value = Select(x[zero] > 1.0, square + square, x[zero])
    stmt = share(value, iter(["v0", "v1"]).__next__, lambda expr: Store(x, (zero,), expr))
    assert [node.name for node in walk(stmt) if isinstance(node, Var)] == ["v0", "v1"]


# Affine indices


def test_sums_of_multiples_are_found_in_indices() -> None:
    i, j = Var("i"), Var("j")
    found = affine((i * 4 + j) * 3 - (i - 7) + -j)
    assert (dict(found.terms), found.constant) == ({i: 11, j: 2}, 7)
    assert affine(i * j + 2 * i).stride(i) is None
    assert affine(j // 2 + 2 * i).stride(i) == 2
    assert affine(i - i).stride(i) == 0


# Views and layouts


def test_a_view_is_a_parameter_of_another_shape() -> None:
    x = data(2, 6)
    flat = te.reshape(x, (12,))
    func = lowered(te.compute((12,), lambda i: flat[i] * 2.0, "y"), inputs=[x])
    assert func.params[0].buffer.shape == (12,)


def test_weights_of_a_dot_product_lie_along_the_data() -> None:
    x, w = data(32, dtype="int8"), te.placeholder((32, 8), "int8", "w")
    k = te.reduce_axis(32, "k")
    y = te.compute((8,), lambda u: te.sum(x[k].astype("int32") * w[k, u].astype("int32"), k), "y")
    kernel = te.prim_func([x], [y], constants=[w])
    assert [buffer.shape for buffer in kernel.func.buffers("constant")] == [(8, 32)]
    weights = np.arange(256, dtype=np.uint8).view(np.int8).reshape(32, 8)
    assert same_bits(kernel.bind({w: weights})[0], weights.T)
    as_input = te.prim_func([x, w], [y])
    assert as_input.held == () and as_input.func.params[1].buffer.shape == (32, 8)


# What is refused


def refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(InternalError) as caught:
        make()
    assert message in caught.value.what
    assert caught.value.where == "tensor expression"


def test_axes_must_be_looped_over() -> None:
    x, k = data(4), te.reduce_axis(4, "k")
    refused(lambda: te.compute((4,), lambda i: x[k], "y"), "'y' uses k and does not loop over it")
    refused(lambda: te.compute((), lambda: te.sum(x[k], (), where=k > 1), "y"), "'y' uses k")
    refused(lambda: te.assemble((1,), "float32", [((0,), (1,), lambda i: x[k])], "y"), "'y' uses k")
    refused(lambda: te.compute((4,), lambda i: te.sum(x[i], i), "y"), "'y' reduces over its own axes")
    refused(lambda: te.sum(x[k], (k, k)), "names an axis twice")
    refused(lambda: te.reduce_axis(0, "k"), "axis 'k' has extent 0")


def test_types_of_reductions() -> None:
    k = te.reduce_axis(4, "k")
    refused(lambda: te.max(k > 1, k), "a reduction (max) does not take bool")
    refused(lambda: te.sum(k, k, where=k), "the condition of a reduction is not bool")


def test_constants_have_a_dtype_of_ours() -> None:
    refused(lambda: te.constant(np.zeros(2, np.complex64), "c"), "constant 'c' has dtype complex64")


def test_pieces_must_fit_and_cover() -> None:
    def one(i: Expr) -> Expr:
        return Imm(1, "int8")

    def pieces(*parts: Any) -> Callable[[], object]:
        return lambda: te.assemble((4,), "int8", parts, "y")

    refused(pieces(((0, 0), (4, 1), one)), "piece 0 of 'y' has another rank than the whole, 1")
    refused(pieces(((0,), (4,), one), ((2,), (3,), one)), "piece 1 of 'y' covers ((2, 5),) and reaches outside (4,)")
    refused(pieces(((-1,), (5,), one)), "reaches outside")
    refused(pieces(((0,), (4,), lambda i: i)), "piece 0 of 'y' is int32, not int8")
    refused(pieces(((0,), (1,), one), ((2,), (2,), one)), "the pieces of 'y' leave out ((1, 2),)")
    square = [((0, 0), (2, 2), lambda i, j: Imm(0, "int8")), ((1, 1), (2, 2), lambda i, j: Imm(0, "int8"))]
    refused(lambda: te.assemble((3, 3), "int8", square, "y"), "leave out ((2, 3), (0, 1))")


def test_parameters_and_outputs_are_what_they_must_be() -> None:
    x, y = data(4), te.compute((4,), lambda i: Imm(0.0, "float32"), "y")
    z = te.compute((4,), lambda i: x[i], "z")
    refused(lambda: te.prim_func([y], [z]), "parameter 'y' is not a placeholder")
    refused(lambda: te.prim_func([x], [z], constants=[x]), "parameter 'data' is given twice")
    refused(lambda: te.prim_func([x], [x]), "output 'data' is not computed")
    refused(lambda: te.prim_func([x], [te.reshape(x, (2, 2))]), "output 'data' is not computed")
    refused(lambda: te.prim_func([x], [z, z]), "output 'z' is given twice")
    refused(lambda: te.prim_func([], [z]), "'data' is read and is not a parameter")


def test_views_are_of_placeholders_and_agree() -> None:
    x = data(4)
    z = te.compute((4,), lambda i: x[i], "z")
    refused(lambda: te.reshape(z, (2, 2)), "a reshape of 'z', which is not a placeholder")
    refused(lambda: te.reshape(x, (5,)), "4 elements of 'data' do not fit (5,)")
    flat = te.reshape(x, (2, 2))
    both = te.compute((4,), lambda i: x[i] + flat[i // 2, i % 2], "both")
    refused(lambda: te.prim_func([x], [both]), "'data' is read under two shapes")


def test_a_tensor_is_itself() -> None:
    assert te.placeholder((2,), "int8", "x") is not te.placeholder((2,), "int8", "x")
    x = te.placeholder((2,), "int8", "x")
    assert isinstance(x[0], Load) and x[0].buffer is x
