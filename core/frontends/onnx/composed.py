"""Operators of ONNX that are a few of the core's put together."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from ...errors import ModelError
from ...relay.expr import Constant, Expr, const
from ...relay.ops.common import normalise_axes
from ...tir.form.dtype import bounds, is_float
from .arith import reduced_axes
from .context import Context, Converter
from .windows import channels_first, channels_last

__all__ = ["COMPOSED"]

MAX_POWER = 8
"""Largest exponent of a power that is a product."""


def _scalar(value: float, like: Expr) -> Constant:
    """``value`` in the dtype of ``like``."""
    import numpy as np

    return const(np.array(value, like.dtype))


def _scaled(c: Context, data: Expr, factor: float) -> Expr:
    return data if factor == 1 else c.call("multiply", data, _scalar(factor, data))


def _negative(c: Context) -> Expr:
    return _scaled(c, c.expr(0), -1)


def _absolute(c: Context) -> Expr:
    return c.call("maximum", c.expr(0), _negative(c))


def _ramp(c: Context, data: Expr, alpha: float, beta: float) -> Expr:
    """``alpha * data + beta`` between 0 and 1."""
    return c.call("clip", c.call("add", _scaled(c, data, alpha), _scalar(beta, data)), a_min=0.0, a_max=1.0)


def _hard_sigmoid(c: Context) -> Expr:
    return _ramp(c, c.expr(0), c.node.real("alpha", 0.2), c.node.real("beta", 0.5))


def _hard_swish(c: Context) -> Expr:
    return c.call("multiply", c.expr(0), _ramp(c, c.expr(0), 1 / 6, 0.5))


def _swish(c: Context) -> Expr:
    data = c.expr(0)
    return c.call("multiply", data, c.call("sigmoid", _scaled(c, data, c.node.real("alpha", 1.0))))


def _gelu(c: Context) -> Expr:
    """By its approximation, x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x**3))); the core has no erf."""
    data = c.expr(0)
    if c.node.text("approximate", "none") != "tanh":
        raise ModelError("it is not approximated by tanh")
    cube = c.call("multiply", c.call("multiply", data, data), data)
    inner = c.call("add", data, _scaled(c, cube, 0.044715))
    ramp = c.call("add", c.call("tanh", _scaled(c, inner, math.sqrt(2 / math.pi))), _scalar(1, data))
    return c.call("multiply", _scaled(c, data, 0.5), ramp)


def _leaky(c: Context, data: Expr, slope: Expr) -> Expr:
    """``data`` where it is positive, ``data * slope`` elsewhere."""
    below = c.call("minimum", data, _scalar(0, data))
    made = c.call("add", c.call("nn.relu", data), c.call("multiply", below, slope))
    if made.shape != data.shape:
        raise ModelError(f"its slope of shape {slope.shape} does not fit data of shape {data.shape}")
    return made


def _leaky_relu(c: Context) -> Expr:
    return _leaky(c, c.expr(0), _scalar(c.node.real("alpha", 0.01), c.expr(0)))


def _prelu(c: Context) -> Expr:
    return _leaky(c, c.expr(0), c.expr(1))


def _power(c: Context) -> Expr:
    """A product of equal factors."""
    data, exponent = c.expr(0), c.known(1)
    if exponent.size != 1 or exponent.ndim > len(data.shape) or exponent.item() not in range(1, MAX_POWER + 1):
        raise ModelError(f"its exponent is no constant whole number from 1 to {MAX_POWER}")
    made = data
    for _ in range(int(exponent.item()) - 1):
        made = c.call("multiply", made, data)
    return made


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
    "Abs": _absolute,
    "Gelu": _gelu,
    "HardSigmoid": _hard_sigmoid,
    "HardSwish": _hard_swish,
    "LeakyRelu": _leaky_relu,
    "Mean": _mean,
    "Neg": _negative,
    "PRelu": _prelu,
    "Pow": _power,
    "ReduceMax": _reduce_max,
    "ReduceMin": _reduce_min,
    "Swish": _swish,
}
