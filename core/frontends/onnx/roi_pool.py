"""The largest elements of the parts of regions of interest (Girshick, Fast R-CNN, 2015)."""

from __future__ import annotations

from collections.abc import Mapping

from ...errors import ModelError
from ...relay.expr import Expr
from ...tir.form.dtype import is_float
from .context import Context, Converter

__all__ = ["POOLED_REGIONS"]

_BELOW_HALF = 0.49999997
"""The largest float32 below 0.5: added before the fraction is cut off, halves are rounded away from zero."""


def _max_roi_pool(c: Context) -> Expr:
    """Rows of a part first, then its columns; a part without elements is 0, as in onnxruntime."""
    data, regions = c.expr(0), c.expr(1)
    size = c.node.integers("pooled_shape", ())
    if len(data.shape) != 4 or len(regions.shape) != 2 or regions.shape[1] != 5:
        raise ModelError(f"its regions of shape {regions.shape} do not fit data of shape {data.shape}")
    if len(size) != 2 or min(size) < 1 or not is_float(data.dtype):
        raise ModelError(f"it makes parts of {data.dtype}, of each region {tuple(size)}")
    count, channels = regions.shape[0], data.shape[1]
    image = c.call("take", data, c.cast(_column(c, regions, 0), "int32"), axis=0)
    scale, lowest = c.node.real("spatial_scale", 1.0), c.scalar(float("-inf"), data)
    pooled: Expr = image
    empty: list[Expr] = []
    for along, parts in enumerate(size):
        extent, first = data.shape[2 + along], 2 - along  # a region is: batch, x, y, x, y
        begin, end = (_whole(c, c.scaled(_column(c, regions, at), scale)) for at in (first, first + 2))
        inside, none = _parts(c, begin, end, parts, extent)
        if along == 0:
            mask = c.reshape(inside, (count, 1, parts, extent, 1))
            from_ = c.reshape(pooled, (count, channels, 1, extent, data.shape[3]))
        else:
            mask = c.reshape(inside, (count, 1, 1, parts, extent))
            from_ = c.reshape(pooled, (count, channels, size[0], 1, extent))
        pooled = c.call("max", c.call("where", mask, from_, lowest), axis=(3 + along,), keepdims=False)
        empty.append(c.reshape(none, (count, 1, parts, 1) if along == 0 else (count, 1, 1, parts)))
    return c.call("where", c.call("logical_or", *empty), c.scalar(0, data), pooled)


def _column(c: Context, regions: Expr, at: int) -> Expr:
    count = regions.shape[0]
    return c.reshape(c.call("strided_slice", regions, begin=(0, at), end=(count, at + 1), strides=(1, 1)), (count,))


def _whole(c: Context, value: Expr) -> Expr:
    """The nearest whole number, halves away from zero; int32."""
    nothing = c.scalar(0, value)
    half = c.call("where", c.call("less", value, nothing), c.scalar(-_BELOW_HALF, value), c.scalar(_BELOW_HALF, value))
    return c.cast(c.call("add", value, half), "int32")


def _parts(c: Context, begin: Expr, end: Expr, parts: int, extent: int) -> tuple[Expr, Expr]:
    """Whether an element is in a part, (regions, parts, extent), and whether a part has none, (regions, parts)."""
    import numpy as np

    count = begin.shape[0]
    c.reserve(parts, extent)
    one = c.constant(np.ones(1, np.int32))
    length = c.call("maximum", c.call("add", c.call("subtract", end, begin), one), one)
    step = c.call("divide", c.cast(length, "float32"), c.constant(np.array([parts], np.float32)))
    steps, first = c.reshape(step, (count, 1)), c.reshape(begin, (count, 1))

    def edge(rounding: str, numbers: np.ndarray) -> Expr:
        at = c.call(rounding, c.call("multiply", steps, c.constant(numbers.astype(np.float32))))
        return c.call("clip", c.call("add", c.cast(at, "int32"), first), a_min=0, a_max=extent)

    low, high = edge("floor", np.arange(parts)), edge("ceil", np.arange(1, parts + 1))
    places = c.constant(np.arange(extent, dtype=np.int32))
    apart = [c.reshape(at, (count, parts, 1)) for at in (low, high)]
    inside = c.call("logical_and", c.call("less_equal", apart[0], places), c.call("less", places, apart[1]))
    return inside, c.call("less_equal", high, low)


POOLED_REGIONS: Mapping[str, Converter] = {"MaxRoiPool": _max_roi_pool}
