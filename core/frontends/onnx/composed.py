"""Operators of ONNX that are a few of the core's put together."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from ...errors import ModelError
from ...relay.expr import Constant, Expr, const
from ...relay.ops.common import broadcast_shapes, normalise_axes, normalise_axis
from ...tir.form.dtype import bounds, is_float, is_integer
from .arith import reduced_axes
from .context import Context, Converter
from .windows import channels_first, channels_last

__all__ = ["COMPOSED"]


def _scalar(value: float, like: Expr) -> Constant:
    """``value`` in the dtype of ``like``."""
    import numpy as np

    return const(np.array(value, like.dtype))


def _scaled(c: Context, data: Expr, factor: float) -> Expr:
    return data if factor == 1 else c.call("multiply", data, _scalar(factor, data))


def _ramp(c: Context, data: Expr, alpha: float, beta: float) -> Expr:
    """``alpha * data + beta`` between 0 and 1."""
    return c.call("clip", c.call("add", _scaled(c, data, alpha), _scalar(beta, data)), a_min=0.0, a_max=1.0)


def _hard_sigmoid(c: Context) -> Expr:
    return _ramp(c, c.expr(0), c.node.real("alpha", 0.2), c.node.real("beta", 0.5))


def _swish(c: Context) -> Expr:
    data = c.expr(0)
    return c.call("multiply", data, c.call("sigmoid", _scaled(c, data, c.node.real("alpha", 1.0))))


def _gelu(c: Context) -> Expr:
    return c.call("nn.gelu", c.expr(0), approximate=c.node.text("approximate", "none"))


def _leaky_relu(c: Context) -> Expr:
    return c.call("nn.leaky_relu", c.expr(0), alpha=c.node.real("alpha", 0.01))


def _prelu(c: Context) -> Expr:
    """``data`` where it is positive, ``data * slope`` elsewhere."""
    data, slope = c.expr(0), c.expr(1)
    below = c.call("minimum", data, _scalar(0, data))
    made = c.call("add", c.call("nn.relu", data), c.call("multiply", below, slope))
    if made.shape != data.shape:
        raise ModelError(f"its slope of shape {slope.shape} does not fit data of shape {data.shape}")
    return made


def _layer_norm(c: Context) -> Expr:
    data = c.expr(0)
    axes = range(normalise_axis(c.node.integer("axis", -1), len(data.shape)), len(data.shape))
    made = c.call("nn.layer_norm", data, axis=axes, epsilon=c.node.real("epsilon", 1e-5))
    made = c.call("multiply", made, c.expr(1))
    made = c.call("add", made, c.expr(2)) if c.has(2) else made
    if made.shape != data.shape:
        raise ModelError(f"its scale or bias does not fit data of shape {data.shape}")
    return made


def _remainder(c: Context) -> Expr:
    return c.call("trunc_mod" if c.node.integer("fmod", 0) else "floor_mod", c.expr(0), c.expr(1))


def _reciprocal(c: Context) -> Expr:
    return c.call("divide", _scalar(1, c.expr(0)), c.expr(0))


def _power(c: Context) -> Expr:
    """In the dtype of the base; the exponent may have another one. Integers are multiplied."""
    base, exponent = c.expr(0), c.expr(1)
    if not is_integer(base.dtype):
        return c.call("power", base, c.cast(exponent, base.dtype))
    known = c.known(1)
    count = int(known.item()) if known.size == 1 and known.item() in range(1, 64) else 0
    if not count:
        raise ModelError("it is of integers, and its exponent no constant whole number from 1 to 63")
    made: Expr | None = None
    square = base
    while count:
        if count & 1:
            made = square if made is None else c.call("multiply", made, square)
        count >>= 1
        square = c.call("multiply", square, square) if count else square
    assert made is not None
    return c.reshape(made, broadcast_shapes(base.shape, exponent.shape))


def _length(c: Context) -> Expr:
    """The square root of the sum of squares."""
    data, axes = c.expr(0), reduced_axes(c, 18)
    squares: Expr = c.call("multiply", data, data)
    if axes is not None:
        squares = c.call("sum", squares, axis=axes, keepdims=bool(c.node.integer("keepdims", 1)))
    return c.call("sqrt", squares)


def _triangle(c: Context) -> Expr:
    """The upper or lower triangle of matrices, zeros elsewhere."""
    import numpy as np

    data = c.expr(0)
    diagonals = c.known_integers(1) if c.has(1) else (0,)
    if len(data.shape) < 2 or len(diagonals) != 1:
        raise ModelError(f"it takes matrices and one diagonal, not {data.shape} and {diagonals}")
    # Beyond its corners a matrix does not change any more.
    diagonal = max(-data.shape[-2], min(diagonals[0], data.shape[-1]))
    keep = np.triu if c.node.integer("upper", 1) else np.tril
    kept = keep(np.ones(data.shape[-2:], bool), diagonal)
    return c.call("where", c.constant(kept), data, _scalar(0, data))


def _mean(c: Context) -> Expr:
    made = c.expr(0)
    for index in range(1, len(c.values)):
        made = c.call("add", made, c.expr(index))
    return _scaled(c, made, 1 / len(c.values))


# --- maximum and minimum ---------------------------------------------------------------------------------------------


def _largest(c: Context, data: Expr, axes: Sequence[int]) -> Expr:
    """The largest elements along ``axes``, by a pool over all of the space."""
    rank, keepdims = len(data.shape), c.node.integer("keepdims", 1)
    axes = normalise_axes(axes, rank)
    if not axes:  # a scalar
        return data
    shape = [1 if d in axes else extent for d, extent in enumerate(data.shape) if keepdims or d not in axes]
    if axes == tuple(range(2, rank)) and rank in (3, 4):
        return c.reshape(channels_first(c, c.call("nn.global_max_pool", channels_last(c, data))), shape)
    if axes != tuple(range(axes[0], axes[-1] + 1)):
        kept = (d for d in range(rank) if d not in axes)
        data, axes = c.permute(data, (*axes, *kept)), tuple(range(len(axes)))
    parts = data.shape[: axes[0]], data.shape[axes[0] : axes[-1] + 1], data.shape[axes[-1] + 1 :]
    return c.reshape(c.call("nn.global_max_pool", c.reshape(data, [math.prod(part) for part in parts])), shape)


def _reduce_max(c: Context) -> Expr:
    data, axes = c.expr(0), reduced_axes(c, 18)
    return data if axes is None else _largest(c, data, axes)


def _reduce_min(c: Context) -> Expr:
    """The opposite of the largest of the opposites."""
    data, axes = c.expr(0), reduced_axes(c, 18)
    return data if axes is None else _opposite(c, _largest(c, _opposite(c, data), axes))


def _opposite(c: Context, data: Expr) -> Expr:
    """The data upside down: -x of floats; of integers what is as far from the largest as x from the smallest."""
    if is_float(data.dtype):
        return _scaled(c, data, -1)
    return c.call("subtract", _scalar(sum(bounds(data.dtype)), data), data)


COMPOSED: Mapping[str, Converter] = {
    "Gelu": _gelu,
    "HardSigmoid": _hard_sigmoid,
    "LayerNormalization": _layer_norm,
    "LeakyRelu": _leaky_relu,
    "Mean": _mean,
    "Mod": _remainder,
    "PRelu": _prelu,
    "Pow": _power,
    "Reciprocal": _reciprocal,
    "ReduceL2": _length,
    "ReduceMax": _reduce_max,
    "ReduceMin": _reduce_min,
    "Swish": _swish,
    "Trilu": _triangle,
}
