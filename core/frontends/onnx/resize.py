"""Resize: the nearest element, or interpolation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from math import floor, isfinite
from operator import index

from ...errors import ModelError
from ...relay.expr import Expr
from ...relay.ops.common import normalise_axes
from ...tir.form.dtype import is_float
from ...tir.form.symbolic_dims import is_open
from ..compositions import repeated
from .computed_resize import computed_resize
from .context import Context, Converter
from .conv_pool import channels_first, channels_last
from .integer_resize import between_integers
from .quantised_resize import between_quantised
from .resize_axes import Kernel, ResizedAxis, Taps, find_coordinates, find_taps

__all__ = ["RESIZE"]

MAX_SIDE = 1 << 14
"""Of data that is resized: a call says for each row and column of its result where it comes from."""

_COORDINATES = (
    "align_corners",
    "asymmetric",
    "half_pixel",
    "half_pixel_symmetric",
    "pytorch_half_pixel",
    "tf_crop_and_resize",
    "tf_half_pixel_for_nn",
)
_ROUNDINGS = ("ceil", "floor", "round_prefer_ceil", "round_prefer_floor")
_POLICIES = ("not_larger", "not_smaller", "stretch")

MAX_TAPS = 8
"""Elements that each one of an interpolation is added up of one by one; more are a product with a matrix."""


def _resize(c: Context) -> Expr:
    """By the nearest element of images and sequences any, of other data that which repeats every element; else by
    interpolation along each dimension.
    """
    node, data = c.node, c.expr(0)
    mode = node.text("mode", "nearest")
    coordinates = node.text("coordinate_transformation_mode", "half_pixel")
    rounding = node.text("nearest_mode", "round_prefer_floor")
    if mode not in ("nearest", "linear", "cubic"):
        raise ModelError(f"its mode is {mode!r}; nearest, linear and cubic are supported")
    if coordinates not in _COORDINATES or rounding not in _ROUNDINGS:
        raise ModelError(f"it finds the nearest element by {coordinates!r} and {rounding!r}, which is not supported")
    policy = node.text("keep_aspect_ratio_policy", "stretch")
    if policy not in _POLICIES:
        raise ModelError(f"it has the unknown keep_aspect_ratio_policy {policy!r}")
    if mode == "linear" and data.dtype in ("int8", "uint8", "int32"):
        axes = _axes(c, data.shape, coordinates)
        plain = all(axis.is_unchanged for axis in axes[:-2])
        if len(axes) not in (2, 4) or not plain:
            raise ModelError(f"it interpolates {data.dtype}, and not between rows and columns, the last dimensions")
        if coordinates in ("tf_crop_and_resize", "half_pixel_symmetric"):
            raise ModelError(f"it interpolates {data.dtype} by {coordinates!r}; floats are supported")
        return between_integers(c, data, axes[-2:], coordinates)
    if mode != "nearest" and not is_float(data.dtype):
        raise ModelError(f"it interpolates {data.dtype}; floats are supported")
    read = (1, 2, 3) if coordinates == "tf_crop_and_resize" else (2, 3)
    if any(c.has(i) and c.value(i).shape != (0,) and not c.is_known(i) for i in read):
        return computed_resize(c, data, mode, coordinates, rounding)
    axes = _axes(c, data.shape, coordinates)
    if mode == "nearest":
        result = _nearest(c, data, axes, coordinates, rounding)
    else:
        result = _interpolated(c, data, axes, coordinates)
    return _extrapolated(c, result, axes) if coordinates == "tf_crop_and_resize" else result


def _extrapolated(c: Context, data: Expr, axes: Sequence[ResizedAxis]) -> Expr:
    """``data`` with a constant where a coordinate along one of the axes is outside of the data."""
    for d, axis in enumerate(axes):
        if axis.is_unchanged:
            continue
        outside = find_coordinates(axis, "tf_crop_and_resize").outside(axis.extent)
        if outside.any():
            mask = c.constant(outside.reshape([-1 if e == d else 1 for e in range(len(axes))]))
            data = c.call("where", mask, c.scalar(c.node.real("extrapolation_value", 0.0), data), data)
    return data


def _axes(c: Context, shape: Sequence[int], coordinates: str) -> list[ResizedAxis]:
    """Every dimension, with its exact scale."""
    import numpy as np

    rank, node = len(shape), c.node
    if node.has("axes"):
        normalise_axes(node.integers("axes"), rank)
    order = [axis % rank for axis in node.integers("axes", range(rank))]
    sized = c.has(3) and c.value(3).shape != (0,)
    values = c.known(3 if sized else 2)
    if values.shape != (len(order),):
        raise ModelError(f"it has scales or sizes of shape {values.shape} for {len(order)} dimensions")
    extents = [shape[axis] for axis in order]
    fault = ModelError(f"it resizes by {values.tolist()}", hint=f"extents of the result are from 1 to {MAX_SIDE}")
    if sized:
        policy = node.text("keep_aspect_ratio_policy", "stretch")
        counts, scales = _from_sizes(c.known_integers(3), extents, policy, fault)
    else:
        counts, scales = _from_scales(values.astype(np.float32).tolist(), extents, fault)
    regions = [(Fraction(0), Fraction(1))] * len(order)
    if coordinates == "tf_crop_and_resize":
        roi = c.known(1)
        if roi.shape != (2 * len(order),):
            raise ModelError(f"it has a roi of shape {roi.shape} for {len(order)} dimensions")
        if not np.isfinite(roi).all():
            raise ModelError(f"it has the roi {roi.tolist()}, which is not finite")
        ends = [Fraction(float(end)) for end in roi]
        regions = list(zip(ends[: len(order)], ends[len(order) :], strict=True))
    axes = [ResizedAxis(extent, extent, Fraction(1)) for extent in shape]
    for axis, count, scale, region in zip(order, counts, scales, regions, strict=True):
        axes[axis] = ResizedAxis(shape[axis], count, scale, *region)
    if not all(axis.is_unchanged or 1 <= axis.count <= MAX_SIDE for axis in axes):
        raise fault
    return axes


_Sides = tuple[list[int], list[Fraction]]
"""The extents of the result, and the scales."""


def _from_sizes(sizes: Sequence[int], extents: Sequence[int], policy: str, fault: ModelError) -> _Sides:
    """Sizes that may have to keep the ratio of the sides: ONNX's ``keep_aspect_ratio_policy``."""
    if policy == "stretch":
        # A dimension that stays may be dynamic.
        pairs = zip(sizes, extents, strict=True)
        scales = [Fraction(1) if size == extent else _ratio(size, extent, fault) for size, extent in pairs]
        return list(sizes), scales
    ratios = [_ratio(size, extent, fault) for size, extent in zip(sizes, extents, strict=True)]
    scale = min(ratios) if policy == "not_larger" else max(ratios)
    return [floor(scale * extent + Fraction(1, 2)) for extent in extents], [scale] * len(ratios)


def _ratio(size: int, extent: int, fault: ModelError) -> Fraction:
    if size < 1:
        raise fault
    return Fraction(index(size), index(extent))


def _from_scales(scales: Sequence[float], extents: Sequence[int], fault: ModelError) -> _Sides:
    """Scales, exactly as float32 holds them. ONNX's shape inference multiplies in float32 and rounds down, so that is
    what the extents of the result are, though exact products are less in places: of 10 * 0.7, 7.
    """
    import numpy as np

    if not all(isfinite(scale) and scale > 0 for scale in scales):
        raise fault
    lengths = [
        extent if scale == 1 else np.floor(np.float32(scale) * np.float32(index(extent)))
        for scale, extent in zip(scales, extents, strict=True)
    ]
    if any(isinstance(length, np.float32) and np.isinf(length) for length in lengths):
        raise fault
    counts = [int(length) if isinstance(length, np.float32) else length for length in lengths]
    return counts, [Fraction(scale) for scale in scales]


def _nearest(c: Context, data: Expr, axes: Sequence[ResizedAxis], coordinates: str, rounding: str) -> Expr:
    places = [_places(axis, coordinates, rounding) for axis in axes]
    changed = {d: positions for d, positions in enumerate(places) if positions is not None}
    if not changed:
        return data
    sides = [axis.count for axis in axes[2:]]
    if len(places) in (3, 4) and min(changed) >= 2 and not is_open(sides) and max(sides) <= MAX_SIDE:
        return _image(c, data, [changed.get(d, range(axes[d].extent)) for d in range(2, len(axes))])
    times = [len(changed[d]) // axis.extent if d in changed else 1 for d, axis in enumerate(axes)]
    if all(_repeats(positions, times[d]) for d, positions in changed.items()):
        return repeated(c, data, times, each=True)
    for d, positions in changed.items():
        data = _take(c, data, d, positions)
    return data


def _take(c: Context, data: Expr, axis: int, places: Sequence[int]) -> Expr:
    import numpy as np

    return c.call("take", data, c.constant(np.array(places, np.int32)), axis=axis)


# --- interpolation ---------------------------------------------------------------------------------------------------


def _interpolated(c: Context, data: Expr, axes: Sequence[ResizedAxis], coordinates: str) -> Expr:
    """Linear or cubic: along one dimension after the other."""
    taps = {d: _taps(c, axis, coordinates) for d, axis in enumerate(axes) if not axis.is_unchanged}
    integers = between_quantised(c, data, taps)
    if integers is not None:
        return integers
    for d, one in taps.items():
        data = _along_axis(c, data, d, one)
    return data


def _along_axis(c: Context, data: Expr, d: int, taps: Taps) -> Expr:
    import numpy as np

    extent, (count, _), rank = data.shape[d], taps.places.shape, len(data.shape)
    weights = taps.weights
    used = np.flatnonzero(weights.any(axis=0)).tolist() or [0]
    if len(used) > MAX_TAPS:
        c.reserve(extent, count)
        matrix = np.zeros((extent, count))
        np.add.at(matrix, (taps.places, np.arange(count)[:, None]), weights)
        order = [e for e in range(rank) if e != d]
        last = c.call("nn.dense", c.permute(data, (*order, d)), c.constant(matrix.T.astype(data.dtype)))
        return c.permute(last, np.argsort([*order, d]).tolist())
    total: Expr | None = None
    for tap in used:
        weight = weights[:, tap].reshape([-1 if e == d else 1 for e in range(rank)])
        part = _take(c, data, d, taps.places[:, tap].tolist())
        part = c.call("multiply", part, c.constant(weight.astype(data.dtype)))
        total = part if total is None else c.call("add", total, part)
    assert total is not None
    return total


def _taps(c: Context, axis: ResizedAxis, coordinates: str) -> Taps:
    """The elements that each one of the result is made of, and their weights: ONNX's definition."""
    # In interpolation ONNX's backend tests do not round the length of the result, in contrast to onnxruntime.
    at = find_coordinates(axis, coordinates, axis.scale * axis.extent)
    coefficient = c.node.real("cubic_coeff_a", -0.75)
    if not isfinite(coefficient):
        raise ModelError(f"its cubic_coeff_a is {coefficient}, not a finite number")
    kernel = Kernel(
        c.node.text("mode") == "cubic",
        Fraction(coefficient),
        min(axis.scale, Fraction(1)) if c.node.integer("antialias", 0) else Fraction(1),
        bool(c.node.integer("exclude_outside", 0)),
    )
    c.reserve(8, axis.count, len(kernel.offsets))  # Python integers: numerators, and the lists that hold them
    return find_taps(at, axis.extent, kernel)


# --- the nearest element ---------------------------------------------------------------------------------------------


def _repeats(places: Sequence[int], times: int) -> bool:
    """Whether every element is taken so many times, in order."""
    return times > 0 and places == [i // times for i in range(len(places))]


def _places(axis: ResizedAxis, coordinates: str, rounding: str) -> list[int] | None:
    """The nearest of the elements to each of the result's; None if these are all as they lie: data that stays may have
    more than `MAX_SIDE`, or a dynamic extent.
    """
    if axis.is_unchanged:
        return None
    last = axis.extent - 1
    places = [min(max(place, 0), last) for place in find_coordinates(axis, coordinates).round(rounding)]
    return None if places == list(range(axis.extent)) else places


def _image(c: Context, data: Expr, places: Sequence[Sequence[int]]) -> Expr:
    """Images, or sequences as images of one row."""
    image = channels_last(c, data)
    batch, *_, depth = image.shape
    if len(places) == 2:
        return channels_first(c, c.call("nn.resize_nearest", image, rows=places[0], columns=places[1]))
    row = c.reshape(image, (batch, 1, image.shape[1], depth))
    resized = c.call("nn.resize_nearest", row, rows=(0,), columns=places[0])
    return channels_first(c, c.reshape(resized, (batch, len(places[0]), depth)))


RESIZE: Mapping[str, Converter] = {"Resize": _resize}
