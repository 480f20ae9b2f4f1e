"""Average pools and means between DequantizeLinear and QuantizeLinear, in integers.

The mean of ``count`` numbers ``scale * (q - zero_point)`` is their integer sum times ``scale / count``; QuantizeLinear
divides it by its own scale and rounds half to even. In float32 that rounds several times, so that noise decides where
halves go; here it is exact arithmetic.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

from ...errors import ModelError
from ...tir.form.dtype import bits, bounds
from ..expr import Call, Expr, const
from ..fixed_point import exact_fixed_point
from ..op import Bounds, FloatScale
from ..ops.common import normalise_axes
from ..transform import value_range
from .quantised_type import QuantisedType, StaysFloat, apply, dequantised

__all__ = ["average", "window_sums"]

_WINDOWS = {"nn.avg_pool1d": 1, "nn.avg_pool2d": 2}
_OPERANDS = ("int8", "uint8", "int16")
_MAX_ONES = 2**20
"""Weights that an average pool may cost."""


def average(
    core: Expr, output: QuantisedType, lower: Callable[[Expr], Expr], ranges: dict[Expr, Bounds]
) -> Expr | None:
    """``core`` of type ``output``; None where it is not an average of quantised data.

    Between equal scales it is a ``qnn.avg_pool`` that rounds half to even. Between others it is a sum and a
    ``qnn.requantize`` whose fixed point is proven to give, for every sum that there may be, what exact arithmetic does.

    Args:
        core: what is quantised.
        output: where the results go.
        lower: gives what became of an expression.
        ranges: bounds of integer expressions, as `value_range` keeps them.

    Raises:
        StaysFloat: integers cannot be proven to give that.
    """
    if not isinstance(core, Call) or core.op_name not in (*_WINDOWS, "nn.global_avg_pool", "mean"):
        return None
    dequantisation = dequantised(core.args[0])
    if dequantisation is None or dequantisation[1].dtype not in _OPERANDS:
        return None
    data, qtype = lower(dequantisation[0]), dequantisation[1]
    if qtype.scale != output.scale:
        return _scaled(core, data, qtype, output, ranges)
    try:
        mean = _rounded(core, data, qtype)
    except ModelError as error:  # of its type: it is refused where a sum could overflow
        raise StaysFloat("its sums may overflow 32 bits") from error
    if mean is None or qtype == output:
        return mean
    zero_points = {"input_zero_point": qtype.zero_point, "output_zero_point": output.zero_point}
    return apply("qnn.requantize", mean, scale=FloatScale((1.0,)), **zero_points, dtype=output.dtype)


def _rounded(core: Call, data: Expr, qtype: QuantisedType) -> Expr | None:
    """Means of the type of the data; None for one over axes that are not side by side."""
    attrs = {"rounding": "even", "zero_point": qtype.zero_point}
    if core.op_name in _WINDOWS:
        return apply(f"qnn.{(core.op_name or '').removeprefix('nn.')}", data, **dict(core.attrs.items), **attrs)
    shape = data.shape
    if core.op_name == "nn.global_avg_pool" and len(shape) - 2 in _WINDOWS.values():
        return apply(f"qnn.avg_pool{len(shape) - 2}d", data, pool_size=shape[1:-1], **attrs)
    axes = _averaged(core)
    first, count = axes[0], len(axes)
    if axes != tuple(range(first, first + count)):
        return None
    sizes = [math.prod(part) for part in (shape[:first], shape[first : first + count], shape[first + count :])]
    mean = apply("qnn.avg_pool1d", apply("reshape", data, newshape=sizes), pool_size=(sizes[1],), **attrs)
    return apply("reshape", mean, newshape=core.shape)


def _averaged(core: Call) -> tuple[int, ...]:
    """The axes over which a mean or a global pool goes."""
    rank = len(core.args[0].shape)
    return normalise_axes(core.attrs.axis, rank) if core.op_name == "mean" else tuple(range(1, rank - 1))


def _scaled(core: Call, data: Expr, qtype: QuantisedType, output: QuantisedType, ranges: dict[Expr, Bounds]) -> Expr:
    attrs, is_window = core.attrs, core.op_name in _WINDOWS
    low, high = (limit - qtype.zero_point for limit in value_range(data, ranges))
    if is_window:
        count = math.prod(attrs.pool_size)
        if any(attrs.padding) and not attrs.count_include_pad:
            raise StaysFloat("its windows at the borders have other sizes, and its scales differ")
        low, high = min(low, 0), max(high, 0)
    else:
        axes = _averaged(core)
        count = math.prod(data.shape[axis] for axis in axes)
    sums = Bounds(low * count, high * count)
    # (What a type of a sum refuses is what could overflow, whatever the data.)
    if count * 2 ** bits(data.dtype) >= 2**31:
        raise StaysFloat("its sums may overflow 32 bits")
    factor = Fraction(qtype.scale) / Fraction(output.scale) / count
    first, last = (limit - output.zero_point for limit in bounds(output.dtype))
    scale = exact_fixed_point(factor, sums, Bounds(first, last))
    if scale is None:
        raise StaysFloat(f"no fixed point that is known divides sums by {float(1 / factor):g} exactly")
    if is_window:
        totals = window_sums(core, data, qtype)
    else:
        keepdims = core.op_name != "mean" or attrs.keepdims
        totals = apply("qnn.sum", data, input_zero_point=qtype.zero_point, axis=axes, keepdims=keepdims)
    return apply("qnn.requantize", totals, scale=scale, output_zero_point=output.zero_point, dtype=output.dtype)


def window_sums(core: Call, data: Expr, qtype: QuantisedType) -> Expr:
    """Sums under the windows of an average pool of ``data``, of type ``qtype``: a depthwise convolution with ones.

    Raises:
        StaysFloat: it takes too many of them.
    """
    import numpy as np

    channels = data.shape[-1]
    if math.prod(core.attrs.pool_size) * channels > _MAX_ONES:
        raise StaysFloat("its windows are too large")
    ones = const(np.ones((*core.attrs.pool_size, 1, channels), np.int8))
    attrs = {"strides": core.attrs.strides, "padding": core.attrs.padding, "groups": channels}
    kernel = f"qnn.conv{len(core.attrs.pool_size)}d"
    return apply(kernel, data, ones, **attrs, input_zero_point=qtype.zero_point)
