"""Activations of ONNX, and other functions of elements that are a few of the core's put together."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from ...errors import ModelError
from ...relay.expr import Expr
from ...relay.ops.common import broadcast_shapes
from ...tir.form.dtype import is_float
from ..compositions import bit_cast
from .context import Context, Converter
from .tensors import dtype_name

__all__ = ["ACTIVATIONS"]


def _ramp(c: Context, data: Expr, alpha: float, beta: float) -> Expr:
    """``alpha * data + beta`` between 0 and 1."""
    return c.call("clip", c.call("add", c.scaled(data, alpha), c.scalar(beta, data)), a_min=0.0, a_max=1.0)


def _hard_sigmoid(c: Context) -> Expr:
    return _ramp(c, c.expr(0), c.node.real("alpha", 0.2), c.node.real("beta", 0.5))


def _swish(c: Context) -> Expr:
    data = c.expr(0)
    return c.call("multiply", data, c.call("sigmoid", c.scaled(data, c.node.real("alpha", 1.0))))


def _gelu(c: Context) -> Expr:
    return c.call("nn.gelu", c.expr(0), approximate=c.node.text("approximate", "none"))


def _leaky_relu(c: Context) -> Expr:
    return c.call("nn.leaky_relu", c.expr(0), alpha=c.node.real("alpha", 0.01))


def _prelu(c: Context) -> Expr:
    """``data`` where it is positive, ``data * slope`` elsewhere."""
    data, slope = c.expr(0), c.expr(1)
    if is_float(data.dtype):
        above, below = c.call("nn.relu", data), c.call("minimum", data, c.scalar(0, data))
        result = c.call("add", above, c.call("multiply", below, slope))
    else:
        is_below = c.call("less", data, c.scalar(0, data))
        result = c.call("where", is_below, c.call("multiply", data, slope), data)
    if result.shape != data.shape:
        raise ModelError(f"its slope of shape {slope.shape} does not fit data of shape {data.shape}")
    return result


def _exponential(alpha: Callable[[Context], float], divided: bool = False, gamma: float = 1.0) -> Converter:
    """Linear above 0, ``alpha * (exp(x) - 1)`` below, or of ``x / alpha``; all of it times ``gamma``."""

    def convert(c: Context) -> Expr:
        data, slope = c.expr(0), alpha(c)
        below: Expr = c.call("minimum", data, c.scalar(0, data))
        if divided and slope != 1:
            if slope == 0:
                raise ModelError("its alpha is 0, by which it divides")
            below = c.call("divide", below, c.scalar(slope, data))
        curve = c.scaled(c.call("expm1", below), slope)
        result = c.call("where", c.call("greater", data, c.scalar(0, data)), data, curve)
        return c.scaled(result, c.node.real("gamma", gamma)) if gamma != 1 else result

    return convert


def _softplus_of(c: Context, data: Expr) -> Expr:
    """``log(1 + exp(x))``, without overflow: ``max(x, 0) + log(1 + exp(-abs(x)))``."""
    small = c.call("exp", c.call("negative", c.call("abs", data)))
    return c.call("add", c.call("nn.relu", data), c.call("log1p", small))


def _softplus(c: Context) -> Expr:
    return _softplus_of(c, c.expr(0))


def _softsign(c: Context) -> Expr:
    data = c.expr(0)
    return c.call("divide", data, c.call("add", c.call("abs", data), c.scalar(1, data)))


def _mish(c: Context) -> Expr:
    data = c.expr(0)
    return c.call("multiply", data, c.call("tanh", _softplus_of(c, data)))


def _thresholded_relu(c: Context) -> Expr:
    data = c.expr(0)
    above = c.call("greater", data, c.scalar(c.node.real("alpha", 1.0), data))
    return c.call("where", above, data, c.scalar(0, data))


def _shrink(c: Context) -> Expr:
    """``x + bias`` below ``-lambd``, ``x - bias`` above ``lambd``, 0 between."""
    data, bias, limit = c.expr(0), c.node.real("bias", 0.0), c.node.real("lambd", 0.5)
    # Integers are computed as floats that hold them, and cut off.
    wide = data if is_float(data.dtype) else c.cast(data, "float64")
    less, more = c.call("add", wide, c.scalar(bias, wide)), c.call("subtract", wide, c.scalar(bias, wide))
    above = c.call("where", c.call("greater", wide, c.scalar(limit, wide)), more, c.scalar(0, wide))
    return c.cast(c.call("where", c.call("less", wide, c.scalar(-limit, wide)), less, above), data.dtype)


def _remainder(c: Context) -> Expr:
    return c.call("trunc_mod" if c.node.integer("fmod", 0) else "floor_mod", c.expr(0), c.expr(1))


def _reciprocal(c: Context) -> Expr:
    return c.call("divide", c.scalar(1, c.expr(0)), c.expr(0))


def _power(c: Context) -> Expr:
    """In the dtype of the base; the exponent may have another one. Integers are multiplied where the exponent is known;
    else it is computed in float64, as onnxruntime does.
    """
    base, exponent = c.expr(0), c.expr(1)
    if is_float(base.dtype):
        return c.call("power", base, c.cast(exponent, base.dtype))
    if base.dtype == "bool":
        raise ModelError("it takes numbers, not bool")
    value = c.value(1)
    constant: Any = None if isinstance(value, Expr) or value.size != 1 else value.item()
    count = int(constant) if constant in range(1, 64) else 0
    if not count:
        power = c.call("power", c.cast(base, "float64"), c.cast(exponent, "float64"))
        # (0 to a negative power is infinite, which saturates.)
        return c.cast(power, base.dtype)
    product: Expr | None = None
    square = base
    while count:
        if count & 1:
            product = square if product is None else c.call("multiply", product, square)
        count >>= 1
        square = c.call("multiply", square, square) if count else square
    assert product is not None
    return c.reshape(product, broadcast_shapes(base.shape, exponent.shape))


def _shift(c: Context) -> Expr:
    way = c.node.text("direction")
    if way not in ("LEFT", "RIGHT"):
        raise ModelError(f"its direction is {way!r}, not LEFT or RIGHT")
    data, amount = c.expr(0), c.expr(1)
    return c.call("left_shift" if way == "LEFT" else "right_shift", data, amount)


def _bit_cast(c: Context) -> Expr:
    return bit_cast(c, c.expr(0), dtype_name(c.node.integer("to"), "its result"))


def _is_nan(c: Context) -> Expr:
    data = c.expr(0)
    return c.call("not_equal", data, data)


def _is_inf(c: Context) -> Expr:
    data = c.expr(0)
    above, below = c.node.integer("detect_positive", 1), c.node.integer("detect_negative", 1)
    if above and below:
        return c.call("equal", c.call("abs", data), c.scalar(math.inf, data))
    if not above and not below:
        # Nothing is looked for: no element differs from itself but NaN, which is not an infinity either.
        return c.call("less", data, data)
    return c.call("equal", data, c.scalar(math.inf if above else -math.inf, data))


def _mean(c: Context) -> Expr:
    total = c.expr(0)
    for index in range(1, len(c.values)):
        total = c.call("add", total, c.expr(index))
    if not is_float(total.dtype):
        raise ModelError(f"it takes floats, not {total.dtype}")
    return c.scaled(total, 1 / len(c.values))


ACTIVATIONS: Mapping[str, Converter] = {
    "BitCast": _bit_cast,
    "BitShift": _shift,
    "Celu": _exponential(lambda c: c.node.real("alpha", 1.0), divided=True),
    "Elu": _exponential(lambda c: c.node.real("alpha", 1.0)),
    "Gelu": _gelu,
    "HardSigmoid": _hard_sigmoid,
    "IsInf": _is_inf,
    "IsNaN": _is_nan,
    "LeakyRelu": _leaky_relu,
    "Mean": _mean,
    "Mish": _mish,
    "Mod": _remainder,
    "PRelu": _prelu,
    "Pow": _power,
    "Reciprocal": _reciprocal,
    "Selu": _exponential(lambda c: c.node.real("alpha", 1.67326319217681884765625), gamma=1.05070102214813232421875),
    "Shrink": _shrink,
    "Softplus": _softplus,
    "Softsign": _softsign,
    "Swish": _swish,
    "ThresholdedRelu": _thresholded_relu,
}
