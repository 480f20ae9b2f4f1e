"""Images read between their elements, at places that are computed: RoiAlign, DeformConv."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from ...errors import ModelError
from ...relay.expr import Expr
from ...tir.form.dtype import is_float, is_integer
from ..compositions import positions, rows
from .context import Context, Converter

__all__ = ["AREAS"]

Tap = tuple[Expr, Expr]
"""Where an element is along a dimension, int32 within its extent, and its weight."""


def _minus(c: Context, a: Expr, b: Expr) -> Expr:
    return c.call("subtract", a, b)


def _inside(c: Context, at: Expr, low: float, high: float) -> Expr:
    """1 where ``low <= at <= high``, else 0."""
    above, below = c.call("greater_equal", at, c.scalar(low, at)), c.call("less_equal", at, c.scalar(high, at))
    return c.cast(c.call("logical_and", above, below), at.dtype)


def _column(c: Context, data: Expr, place: int) -> Expr:
    """One element of the last dimension."""
    outer = data.shape[:-1]
    begin, end = (*(0 for _ in outer), place), (*outer, place + 1)
    return c.reshape(c.call("strided_slice", data, begin=begin, end=end, strides=[1] * len(end)), outer)


# --- regions ---------------------------------------------------------------------------------------------------------


def _roi_taps(c: Context, at: Expr, extent: int) -> list[Tap]:
    """The two elements around a place; nothing further outside than one element."""
    is_inside = _inside(c, at, -1.0, float(extent))
    at = c.call("maximum", at, c.scalar(0, at))
    low = c.call("minimum", c.call("floor", at), c.scalar(extent - 1, at))
    high = c.call("minimum", c.call("add", low, c.scalar(1, at)), c.scalar(extent - 1, at))
    share = c.call("minimum", _minus(c, at, low), _minus(c, high, low))
    weights = _minus(c, c.scalar(1, share), share), share
    taps: list[Tap] = [
        (c.cast(place, "int32"), c.call("multiply", weight, is_inside))
        for place, weight in zip((low, high), weights, strict=True)
    ]
    return taps


def _roi_align(c: Context) -> Expr:
    """The mean, or the maximum, of samples in the parts of each region."""
    import numpy as np

    data, regions, batch = c.expr(0), c.expr(1), c.expr(2)
    node, samples = c.node, c.node.integer("sampling_ratio", 0)
    mode = node.text("mode", "avg")
    corners = node.text("coordinate_transformation_mode", "half_pixel" if node.opset >= 16 else "output_half_pixel")
    size = node.integer("output_height", 1), node.integer("output_width", 1)
    if mode not in ("avg", "max") or corners not in ("half_pixel", "output_half_pixel"):
        raise ModelError(f"it has the unknown mode {mode!r} or {corners!r}")
    if len(data.shape) != 4 or len(regions.shape) != 2 or regions.shape[1] != 4 or batch.shape != regions.shape[:1]:
        raise ModelError(f"its regions of shape {regions.shape} do not fit data of shape {data.shape}")
    if not is_integer(batch.dtype) or not is_float(data.dtype) or min(size) < 1:
        raise ModelError(f"it makes {size[0]} by {size[1]} parts of {data.dtype}, images chosen by {batch.dtype}")
    if samples < 1:
        raise ModelError("its sampling_ratio is 0: how many samples there are depends on data")
    c.reserve(max(size), samples)
    count, (height, width) = regions.shape[0], data.shape[2:]
    scaled = c.scaled(c.cast(regions, data.dtype), node.real("spatial_scale", 1.0))
    if corners == "half_pixel":
        scaled = _minus(c, scaled, c.scalar(0.5, scaled))
    taps = []
    for first, extent, parts in ((1, height, size[0]), (0, width, size[1])):
        begin, end = _column(c, scaled, first), _column(c, scaled, first + 2)
        span = _minus(c, end, begin)
        if corners == "output_half_pixel":
            span = c.call("maximum", span, c.scalar(1, span))
        places = (np.arange(parts)[:, None] + (np.arange(samples) + 0.5) / samples).reshape(-1) / parts
        step = c.call("multiply", c.reshape(span, (count, 1)), c.constant(places.astype(data.dtype)))
        taps.append(_roi_taps(c, c.call("add", c.reshape(begin, (count, 1)), step), extent))
    image, chosen = c.permute(data, (0, 2, 3, 1)), c.reshape(c.cast(batch, "int32"), (count, 1, 1))
    down, across = size[0] * samples, size[1] * samples
    total: Expr | None = None
    for (y, y_weight), (x, x_weight) in itertools.product(*taps):
        value = rows(c, image, [chosen, c.reshape(y, (count, down, 1)), c.reshape(x, (count, 1, across))])
        weight = c.call(
            "multiply", c.reshape(y_weight, (count, down, 1, 1)), c.reshape(x_weight, (count, 1, across, 1))
        )
        value = c.call("multiply", value, weight)
        # (Of the maximum, the largest of the four parts of a sample, as in onnxruntime.)
        total = value if total is None else c.call("add" if mode == "avg" else "maximum", total, value)
    assert total is not None
    apart = c.reshape(total, (count, size[0], samples, size[1], samples, data.shape[1]))
    pooled = c.call("mean" if mode == "avg" else "max", apart, axis=(2, 4), keepdims=False)
    return c.permute(pooled, (0, 3, 1, 2))


# --- convolutions whose taps move ------------------------------------------------------------------------------------


def _deform_taps(c: Context, at: Expr, extent: int) -> list[Tap]:
    """The two elements around a place; zeros outside."""
    at = c.call("clip", at, a_min=-2.0, a_max=extent + 1.0)
    low = c.call("floor", at)
    share = _minus(c, at, low)
    taps: list[Tap] = []
    for step, weight in ((0, _minus(c, c.scalar(1, share), share)), (1, share)):
        place = c.call("add", low, c.scalar(step, low))
        share_inside = c.call("multiply", weight, _inside(c, place, 0.0, extent - 1.0))
        taps.append((c.cast(c.call("clip", place, a_min=0.0, a_max=extent - 1.0), "int32"), share_inside))
    return taps


def _deform_conv(c: Context) -> Expr:
    """A convolution of two dimensions each of whose taps has an offset, and a weight, of its own for every element."""
    import numpy as np

    data, weight, offset, node = c.expr(0), c.expr(1), c.expr(2), c.node
    groups, offset_groups = node.integer("group", 1), node.integer("offset_group", 1)
    kernel = node.integers("kernel_shape", weight.shape[2:])
    strides, gaps = node.integers("strides", (1, 1)), node.integers("dilations", (1, 1))
    pads = node.integers("pads", (0,) * 4)
    fits = len(data.shape) == len(weight.shape) == len(offset.shape) == 4 and kernel == weight.shape[2:]
    if (
        not fits
        or len(strides) != 2
        or len(gaps) != 2
        or len(pads) != 4
        or min(groups, offset_groups, *strides, *gaps) < 1
    ):
        raise ModelError(f"its weight of shape {weight.shape} does not fit data of shape {data.shape}")
    batch, channels, height, width = data.shape
    taps, filters = kernel[0] * kernel[1], weight.shape[0]
    spans = ((k - 1) * d + 1 for k, d in zip(kernel, gaps, strict=True))
    space = tuple(
        (extent + pads[d] + pads[d + 2] - span) // strides[d] + 1
        for d, (extent, span) in enumerate(zip((height, width), spans, strict=True))
    )
    if channels % groups or channels % offset_groups or filters % groups or weight.shape[1] * groups != channels:
        raise ModelError(f"its weight of shape {weight.shape} does not fit {channels} channels in {groups} groups")
    if min(space) < 1 or offset.shape != (batch, offset_groups * taps * 2, *space):
        raise ModelError(f"its offsets of shape {offset.shape} do not fit a result of {space[0]} by {space[1]}")
    offsets = c.reshape(c.cast(offset, data.dtype), (batch, offset_groups, taps, 2, *space))
    c.reserve(taps, *space)
    along = []
    for d, extent in enumerate((height, width)):
        tap = np.arange(taps) // kernel[1] if d == 0 else np.arange(taps) % kernel[1]
        first = np.arange(space[d]) * strides[d] - pads[d]
        where = tap[:, None, None] * gaps[d] + (first[:, None] if d == 0 else first)
        begin, end = (0, 0, 0, d, 0, 0), (batch, offset_groups, taps, d + 1, *space)
        part = c.call("strided_slice", offsets, begin=begin, end=end, strides=(1,) * 6)
        base = c.constant(np.broadcast_to(where, (taps, *space)).astype(data.dtype))
        along.append(
            _deform_taps(c, c.call("add", c.reshape(part, (batch, offset_groups, taps, *space)), base), extent)
        )
    image = c.permute(
        c.reshape(data, (batch, offset_groups, channels // offset_groups, height, width)), (0, 1, 3, 4, 2)
    )
    each, group = positions(c, batch, 5, 0), positions(c, offset_groups, 5, 1)
    total: Expr | None = None
    for (y, y_weight), (x, x_weight) in itertools.product(*along):
        value = rows(c, image, [each, group, y, x])
        share = c.call("multiply", y_weight, x_weight)
        value = c.call("multiply", value, c.reshape(share, (*share.shape, 1)))
        total = value if total is None else c.call("add", total, value)
    assert total is not None
    if c.has(4):
        mask = c.expr(4)
        if mask.shape != (batch, offset_groups * taps, *space):
            raise ModelError(f"its mask of shape {mask.shape} does not fit a result of {space[0]} by {space[1]}")
        total = c.call("multiply", total, c.reshape(mask, (batch, offset_groups, taps, *space, 1)))
    columns = c.reshape(c.permute(total, (0, 3, 4, 1, 5, 2)), (batch, *space, channels * taps))
    flat = c.permute(c.reshape(weight, (filters, weight.shape[1] * taps)), (1, 0))
    conv: Expr = c.call("nn.conv2d", columns, c.reshape(flat, (1, 1, *flat.shape)), groups=groups)
    if c.has(3):
        bias = c.expr(3)
        if bias.shape != (filters,):
            raise ModelError(f"it has a bias of shape {bias.shape} for {filters} channels")
        conv = c.call("add", conv, bias)
    return c.permute(conv, (0, 3, 1, 2))


AREAS: Mapping[str, Converter] = {"DeformConv": _deform_conv, "RoiAlign": _roi_align}
