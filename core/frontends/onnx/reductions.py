"""Operators of ONNX that go over axes: reductions, softmax and its like, places, running sums, norms."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from ...errors import ModelError
from ...relay.expr import Expr
from ...relay.ops.common import normalise_axes, normalise_axis
from ...tir.form.dtype import bounds, is_float, is_integer
from ..compositions import local_response, one_hot, positions
from .arith import reduced_axes
from .context import Context, Converter, Value
from .conv_pool import channels_first, channels_last, read_window

if TYPE_CHECKING:
    import numpy as np

__all__ = ["REDUCTIONS", "single"]

# --- reductions ------------------------------------------------------------------------------------------------------

Over = Callable[[str, Expr], Expr]
"""A reduction of that name over the axes of a node; the data itself where it has none."""

Reduce = Callable[[Context, Expr, Over], Expr]
"""What a node makes of its data."""


def _reduction(convert: Reduce, axes_as_input: int = 18, wide: bool = False) -> Callable[[Context], Value]:
    """A reduction whose axes are an input from opset ``axes_as_input`` on, an attribute before.

    Args:
        convert: makes it of the data and of reductions of the core.
        axes_as_input: the opset.
        wide: whether integers are computed as float64.
    """

    def converter(c: Context) -> Value:
        axes = reduced_axes(c, axes_as_input)
        if 0 in c.value(0).shape:
            return _of_nothing(c, axes)
        data = c.expr(0)
        keepdims = bool(c.node.integer("keepdims", 1))

        def over(op: str, operand: Expr) -> Expr:
            return operand if axes is None else c.call(op, operand, axis=axes, keepdims=keepdims)

        result = convert(c, c.cast(data, "float64") if wide and is_integer(data.dtype) else data, over)
        return c.cast(result, data.dtype)

    return converter


def _of_nothing(c: Context, axes: Sequence[int] | None) -> np.ndarray:
    """A reduction of data without elements."""
    import numpy as np

    data = c.known(0)
    reduced = range(data.ndim) if axes == () else normalise_axes(axes or (), data.ndim)
    keepdims = c.node.integer("keepdims", 1)
    shape = [1 if d in reduced else n for d, n in enumerate(data.shape) if keepdims or d not in reduced]
    dtype = data.dtype.name
    if c.node.op in ("ReduceMax", "ReduceMin"):
        low, high = (-math.inf, math.inf) if is_float(dtype) else bounds(dtype)
        value: float = low if c.node.op == "ReduceMax" else high
    elif c.node.op in _OF_NOTHING and (is_float(dtype) or math.isfinite(_OF_NOTHING[c.node.op])):
        value = _OF_NOTHING[c.node.op]
    else:
        raise ModelError(f"its data of shape {data.shape} and {dtype} has no elements")
    if axes is None:
        return data
    c.reserve(*shape)
    return np.full(shape, value, data.dtype)


_OF_NOTHING: Mapping[str, float] = {
    "ReduceL1": 0,
    "ReduceL2": 0,
    "ReduceLogSum": -math.inf,
    "ReduceLogSumExp": -math.inf,
    "ReduceProd": 1,
    "ReduceSum": 0,
    "ReduceSumSquare": 0,
}
"""What sums and products of no elements are."""


def _named(op: str) -> Reduce:
    return lambda c, data, over: over(op, data)


def _mean(c: Context, data: Expr, over: Over) -> Expr:
    """That of integers is rounded towards zero."""
    if is_float(data.dtype):
        return over("mean", data)
    total = over("sum", data)
    count = math.prod(data.shape) // math.prod(total.shape)
    return total if count == 1 else c.call("divide", total, c.scalar(count, total))


def _extremum(op: str) -> Converter:
    def extremum(c: Context, data: Expr, over: Over) -> Expr:
        return over(op, c.cast(data, "uint8") if data.dtype == "bool" else data)

    plain = _reduction(extremum)
    if op == "min":
        return plain

    def convert(c: Context) -> Value:
        """The largest of a whole space is what a pool gives."""
        if 0 in c.value(0).shape:
            return plain(c)
        data, axes = c.expr(0), reduced_axes(c, 18)
        rank = len(data.shape)
        if axes is None or rank not in (3, 4) or data.dtype == "bool":
            return plain(c)
        if normalise_axes(axes, rank) != tuple(range(2, rank)):
            return plain(c)
        pooled = channels_first(c, c.call("nn.global_max_pool", channels_last(c, data)))
        return pooled if c.node.integer("keepdims", 1) else c.reshape(pooled, pooled.shape[:2])

    return convert


def _squares(c: Context, data: Expr, over: Over) -> Expr:
    return over("sum", c.call("multiply", data, data))


def _log_sum_exp(c: Context, data: Expr, over: Over) -> Expr:
    """``log(sum(exp(data - m))) + m``, m the largest element, or 0 where that is infinite."""
    axes = reduced_axes(c, 18)
    if axes is None:
        return data
    largest = c.call("max", data, axis=axes, keepdims=True)
    infinite = c.call("equal", c.call("abs", largest), c.scalar(math.inf, largest))
    base = c.call("where", infinite, c.scalar(0, largest), largest)
    total = over("sum", c.call("exp", c.call("subtract", data, base)))
    return c.call("add", c.call("log", total), c.reshape(base, total.shape))


# --- softmax and its like --------------------------------------------------------------------------------------------


def _along(convert: Callable[[Context, Expr, int], Expr]) -> Converter:
    """Along ``axis``; before opset 13 along all dimensions from it on, as one."""

    def converter(c: Context) -> Expr:
        data = c.expr(0)
        rank = len(data.shape)
        if c.node.opset >= 13:
            return convert(c, data, normalise_axis(c.node.integer("axis", -1), rank))
        axis = c.node.integer("axis", 1)
        axis = rank if axis == rank else normalise_axis(axis, rank)
        rows = c.reshape(data, (math.prod(data.shape[:axis]), math.prod(data.shape[axis:])))
        return c.reshape(convert(c, rows, 1), data.shape)

    return converter


def _normalised(op: str) -> Converter:
    return _along(lambda c, data, axis: c.call(op, data, axis=axis))


def _hard(c: Context, data: Expr, axis: int) -> Expr:
    place = c.call("argmax", data, axis=axis, keepdims=True, dtype="int32")
    return c.cast(c.call("equal", place, positions(c, data.shape[axis], len(data.shape) - axis, 0)), data.dtype)


# --- places ----------------------------------------------------------------------------------------------------------


def _place(op: str) -> Converter:
    def convert(c: Context) -> Expr:
        node, data = c.node, c.expr(0)
        last = bool(node.integer("select_last_index", 0))
        keepdims = bool(node.integer("keepdims", 1))
        return c.call(op, data, axis=node.integer("axis", 0), keepdims=keepdims, select_last=last)

    return convert


def single(c: Context, index: int) -> int:
    """Input ``index``, one integer that is known at import; ModelError where it is another number of them."""
    integers = c.known_integers(index)
    if len(integers) != 1:
        raise ModelError(f"its input {c.node.inputs[index]!r} has {len(integers)} elements, not one")
    return int(integers[0])


def _top(c: Context) -> Sequence[Value]:
    node, data = c.node, c.expr(0)
    k = single(c, 1)
    largest = bool(node.integer("largest", 1))
    top = c.call("topk", data, k=k, axis=node.integer("axis", -1), largest=largest)
    return c.field(top, 0), c.field(top, 1)


def _one_hot(c: Context) -> Expr:
    """``values[1]`` where the index says so, else ``values[0]``; an index below 0 counts from the end."""
    indices, depth, values = c.expr(0), single(c, 1), c.expr(2)
    if depth < 1 or values.shape != (2,):
        raise ModelError(f"it has a depth of {depth} and values of shape {values.shape}")
    indices = c.cast(indices, "int64")
    below = c.call("less", indices, c.scalar(0, indices))
    indices = c.call("where", below, c.call("add", indices, c.scalar(depth, indices)), indices)
    axis = normalise_axis(c.node.integer("axis", -1), len(indices.shape) + 1)
    off, on = (c.reshape(c.call("strided_slice", values, begin=(i,), end=(i + 1,), strides=(1,)), ()) for i in (0, 1))
    return one_hot(c, indices, depth, on, off, axis)


# --- running sums ----------------------------------------------------------------------------------------------------


def _running(op: str) -> Converter:
    def convert(c: Context) -> Expr:
        node, data = c.node, c.expr(0)
        how = {"exclusive": bool(node.integer("exclusive", 0)), "reverse": bool(node.integer("reverse", 0))}
        rank = len(data.shape)
        axis_value = c.value(1)
        if not isinstance(axis_value, Expr):
            return c.call(op, data, axis=single(c, 1), **how)
        if math.prod(axis_value.shape) != 1:
            raise ModelError(f"its axis is one number, not {axis_value.type}")
        # The axis is computed at run time: all of them are, and one is chosen.
        axis = c.reshape(axis_value, ())
        axis = c.call("where", c.call("less", axis, c.scalar(0, axis)), c.call("add", axis, c.scalar(rank, axis)), axis)
        result: Expr = c.call(op, data, axis=0, **how)
        for other in range(1, rank):
            chosen = c.call("equal", axis, c.scalar(other, axis))
            result = c.call("where", chosen, c.call(op, data, axis=other, **how), result)
        return result

    return convert


# --- norms -----------------------------------------------------------------------------------------------------------


def _norm(c: Context, data: Expr, p: int, axes: Sequence[int]) -> Expr:
    """The p-th root of the sum of p-th powers of sizes, with the axes kept."""
    size: Expr = c.call("abs", data) if p != 2 else c.call("multiply", data, data)
    if p > 2:
        size = c.call("power", size, c.scalar(p, data))
    total = c.call("sum", size, axis=tuple(axes), keepdims=True)
    if p == 1:
        return total
    return c.call("sqrt", total) if p == 2 else c.call("power", total, c.scalar(1 / p, data))


def _positive_p(c: Context) -> int:
    p = c.node.integer("p", 2)
    if p < 1:
        raise ModelError(f"its p is {p}, not positive")
    return p


def _lp_normalization(c: Context) -> Expr:
    """0 where the norm is 0."""
    data = c.expr(0)
    norm = _norm(c, data, _positive_p(c), (c.node.integer("axis", -1),))
    is_zero = c.call("equal", norm, c.scalar(0, norm))
    return c.call("divide", data, c.call("where", is_zero, c.scalar(1, norm), norm))


def _global_lp_pool(c: Context) -> Expr:
    data = c.expr(0)
    if len(data.shape) < 3:
        raise ModelError(f"its data has the shape {data.shape}, without a space")
    return _norm(c, data, _positive_p(c), range(2, len(data.shape)))


def _lp_pool(c: Context) -> Expr:
    """The root of sums of powers under a window: summed along one dimension after the other."""
    data, p = c.expr(0), _positive_p(c)
    rank = len(data.shape) - 2
    if rank < 1:
        raise ModelError(f"its data has the shape {data.shape}, without a space")
    window = read_window(c, data.shape[2:], c.node.integers("kernel_shape"))
    sums: Expr = c.call("abs", data) if p != 2 else c.call("multiply", data, data)
    if p > 2:
        sums = c.call("power", sums, c.scalar(p, data))
    padding = window.padding_with_excess
    for d, (kernel, stride, gap) in enumerate(zip(window.kernel, window.strides, window.dilation, strict=True)):
        parts = math.prod(sums.shape[: d + 2]), sums.shape[d + 2], math.prod(sums.shape[d + 3 :])
        how = {"pool_size": (kernel,), "strides": (stride,), "padding": (padding[d], padding[d + rank])}
        rows = c.reshape(sums, parts)
        if gap != 1 and kernel != 1:
            ones = {"strides": (stride,), "padding": how["padding"], "dilation": (gap,)}
            total = _summed_with_gaps(c, rows, kernel, **ones)
            sums = c.reshape(total, (*sums.shape[: d + 2], total.shape[1], *sums.shape[d + 3 :]))
            continue
        mean = c.call("nn.avg_pool1d", rows, **how, count_include_pad=True)
        sums = c.reshape(c.scaled(mean, kernel), (*sums.shape[: d + 2], mean.shape[1], *sums.shape[d + 3 :]))
    if p == 1:
        return sums
    return c.call("sqrt", sums) if p == 2 else c.call("power", sums, c.scalar(1 / p, data))


def _summed_with_gaps(c: Context, rows: Expr, kernel: int, **how: tuple[int, ...]) -> Expr:
    """Sums under windows with gaps along the middle one of three dimensions: a convolution with ones, row by row."""
    import numpy as np

    batch, extent, depth = rows.shape
    c.reserve(kernel)
    flat = c.reshape(c.permute(rows, (0, 2, 1)), (batch * depth, extent, 1))
    total = c.call("nn.conv1d", flat, c.constant(np.ones((kernel, 1, 1), rows.dtype)), **how)
    return c.permute(c.reshape(total, (batch, depth, total.shape[1])), (0, 2, 1))


def _mean_variance(c: Context) -> Expr:
    data, axes = c.expr(0), c.node.integers("axes", (0, 2, 3))
    centred = data
    # The first mean is rounded in proportion to itself; the second is its error, see nn.layer_norm.
    for _ in range(2):
        centred = c.call("subtract", centred, c.call("mean", centred, axis=axes, keepdims=True))
    variance = c.call("mean", c.call("multiply", centred, centred), axis=axes, keepdims=True)
    return c.call("divide", centred, c.call("add", c.call("sqrt", variance), c.scalar(1e-9, data)))


def _local_response(c: Context) -> Expr:
    """Over ``size`` channels around each element."""
    node, data = c.node, c.expr(0)
    size = node.integer("size")
    if len(data.shape) < 3 or size < 1:
        raise ModelError(f"it sums over {size} channels of data of shape {data.shape}")
    real = {name: node.real(name, value) for name, value in (("alpha", 1e-4), ("bias", 1.0), ("beta", 0.75))}
    return local_response(c, data, 1, ((size - 1) // 2, size // 2), **real)


REDUCTIONS: Mapping[str, Converter] = {
    "ArgMax": _place("argmax"),
    "ArgMin": _place("argmin"),
    "CumProd": _running("cumprod"),
    "CumSum": _running("cumsum"),
    "GlobalLpPool": _global_lp_pool,
    "Hardmax": _along(_hard),
    "LRN": _local_response,
    "LogSoftmax": _normalised("nn.log_softmax"),
    "LpNormalization": _lp_normalization,
    "LpPool": _lp_pool,
    "MeanVarianceNormalization": _mean_variance,
    "OneHot": _one_hot,
    "ReduceL1": _reduction(lambda c, data, over: over("sum", c.call("abs", data))),
    "ReduceL2": _reduction(lambda c, data, over: c.call("sqrt", _squares(c, data, over)), wide=True),
    "ReduceLogSum": _reduction(lambda c, data, over: c.call("log", over("sum", data)), wide=True),
    "ReduceLogSumExp": _reduction(_log_sum_exp, wide=True),
    "ReduceMax": _extremum("max"),
    "ReduceMean": _reduction(_mean),
    "ReduceMin": _extremum("min"),
    "ReduceProd": _reduction(_named("prod")),
    "ReduceSum": _reduction(_named("sum"), 13),
    "ReduceSumSquare": _reduction(_squares),
    "Softmax": _normalised("nn.softmax"),
    "TopK": _top,
}
