"""Resize: the nearest element, or interpolation."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...errors import ModelError
from ...relay.expr import Expr
from ...relay.ops.common import normalise_axes
from ...tir.form.dtype import is_float
from .computed_resize import computed_resize
from .context import Context, Converter
from .integer_resize import between_integers
from .moves import repeated
from .windows import channels_first, channels_last

if TYPE_CHECKING:
    import numpy as np

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


@dataclass(frozen=True)
class _Axis:
    """How one dimension is resized: its extent, that of the result, the scale, and the part of the data that is taken,
    as shares of the extent.
    """

    extent: int
    count: int
    scale: float
    start: float = 0.0
    end: float = 1.0

    @property
    def stays(self) -> bool:
        return (self.count, self.scale, self.start, self.end) == (self.extent, 1, 0, 1)


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
        plain = all(axis.count == axis.extent and axis.scale == 1 for axis in axes[:-2])
        if len(axes) not in (2, 4) or not plain:
            raise ModelError(f"it interpolates {data.dtype}, and not between rows and columns, the last dimensions")
        if coordinates in ("tf_crop_and_resize", "half_pixel_symmetric"):
            raise ModelError(f"it interpolates {data.dtype} by {coordinates!r}; floats are supported")
        return between_integers(c, data, [_coordinates(axis, coordinates) for axis in axes[-2:]])
    if mode != "nearest" and not is_float(data.dtype):
        raise ModelError(f"it interpolates {data.dtype}; floats are supported")
    read = (1, 2, 3) if coordinates == "tf_crop_and_resize" else (2, 3)
    if any(c.has(i) and c.value(i).shape != (0,) and not c.is_known(i) for i in read):
        return computed_resize(c, data, mode, coordinates, rounding)
    axes = _axes(c, data.shape, coordinates)
    outside = None
    if coordinates == "tf_crop_and_resize":
        outside = [_outside(axis) for axis in axes]
    made = _nearest(c, data, axes, coordinates, rounding) if mode == "nearest" else _linear(c, data, axes, coordinates)
    return made if outside is None else _extrapolated(c, made, outside)


def _extrapolated(c: Context, made: Expr, outside: Sequence[np.ndarray]) -> Expr:
    """``made`` with a value where one of its coordinates is outside of the data."""
    for d, places in enumerate(outside):
        if places.any():
            mask = c.constant(places.reshape([-1 if e == d else 1 for e in range(len(outside))]))
            made = c.call("where", mask, c.scalar(c.node.real("extrapolation_value", 0.0), made), made)
    return made


def _outside(axis: _Axis) -> np.ndarray:
    at = _coordinates(axis, "tf_crop_and_resize")
    return (at < 0) | (at > axis.extent - 1)


def _axes(c: Context, shape: Sequence[int], coordinates: str) -> list[_Axis]:
    """The extents of the result, and the scales, which are float32, of every dimension."""
    import numpy as np

    rank, node = len(shape), c.node
    named = normalise_axes(node.integers("axes"), rank) if node.has("axes") else tuple(range(rank))
    order = [axis % rank for axis in node.integers("axes")] if node.has("axes") else list(range(rank))
    sized = c.has(3) and c.value(3).shape != (0,)
    given = c.known(3 if sized else 2)
    if given.shape != (len(named),):
        raise ModelError(f"it has scales or sizes of shape {given.shape} for {len(named)} dimensions")
    extents = np.array([shape[axis] for axis in order], np.float32)
    policy = node.text("keep_aspect_ratio_policy", "stretch")
    if not sized:
        scales = given.astype(np.float32)
        counts = np.floor(extents * scales)
    else:
        scales, counts = given.astype(np.float32) / extents, given
        if policy != "stretch":
            scales = np.full_like(scales, scales.min() if policy == "not_larger" else scales.max())
            counts = np.floor(extents * scales + np.float32(0.5))
    changes = zip(counts, extents, scales, strict=True)
    if not all(1 <= count <= MAX_SIDE or (count, scale) == (extent, 1) for count, extent, scale in changes):
        raise ModelError(f"it resizes by {given.tolist()}", hint=f"extents of the result are from 1 to {MAX_SIDE}")
    regions = [(0.0, 1.0)] * len(order)
    if coordinates == "tf_crop_and_resize":
        roi = c.known(1)
        if roi.shape != (2 * len(order),):
            raise ModelError(f"it has a roi of shape {roi.shape} for {len(order)} dimensions")
        regions = list(zip(map(float, roi[: len(order)]), map(float, roi[len(order) :]), strict=True))
    made = [_Axis(extent, extent, 1.0) for extent in shape]
    for axis, count, scale, region in zip(order, counts, scales, regions, strict=True):
        made[axis] = _Axis(shape[axis], int(count), float(scale), *region)
    return made


def _coordinates(axis: _Axis, coordinates: str, length: float | None = None) -> np.ndarray:
    """Where the elements of the result are in the data, float32 as onnxruntime finds them.

    Args:
        axis: what is resized.
        coordinates: ONNX's coordinate_transformation_mode.
        length: of the result, where it is not its whole number of elements.
    """
    import numpy as np

    f32 = np.float32
    extent, count = f32(axis.extent), f32(axis.count)
    index, factor = np.arange(axis.count, dtype=f32), f32(axis.scale)
    at: np.ndarray
    if coordinates == "align_corners":
        length = axis.count if length is None else length
        return np.asarray(index * (extent - 1) / (f32(length) - 1 if length != 1 else f32(1)))
    if coordinates == "tf_crop_and_resize":
        start, end = f32(axis.start), f32(axis.end)
        if axis.count == 1:
            return np.array([(start + end) * (extent - 1) / 2], f32)
        return np.asarray(start * (extent - 1) + index * (end - start) * (extent - 1) / (count - 1))
    if coordinates == "asymmetric":
        return np.asarray(index / factor)
    if coordinates == "tf_half_pixel_for_nn":
        return np.asarray((index + f32(0.5)) / factor)
    at = np.asarray((index + f32(0.5)) / factor - f32(0.5))
    if coordinates == "half_pixel_symmetric":
        # What is cut off is so on both sides.
        at = at + extent / 2 * (1 - count / (factor * extent))
    if coordinates == "pytorch_half_pixel" and axis.count == 1:
        return np.zeros(1, f32)
    return at


def _nearest(c: Context, data: Expr, axes: Sequence[_Axis], coordinates: str, rounding: str) -> Expr:
    places = [_places(axis, coordinates, rounding) for axis in axes]
    unchanged = [isinstance(taken, range) for taken in places]
    if all(unchanged):
        return data
    if len(places) in (3, 4) and all(unchanged[:2]) and max(map(len, places[2:])) <= MAX_SIDE:
        return _image(c, data, places[2:])
    times = [len(taken) // extent for taken, extent in zip(places, data.shape, strict=True)]
    if all(same or _repeats(taken, n) for taken, same, n in zip(places, unchanged, times, strict=True)):
        return repeated(c, data, times, each=True)
    for d, taken in enumerate(places):
        data = data if unchanged[d] else _taken(c, data, d, taken)
    return data


def _taken(c: Context, data: Expr, axis: int, places: Sequence[int]) -> Expr:
    import numpy as np

    return c.call("take", data, c.constant(np.array(places, np.int32)), axis=axis)


# --- interpolation ---------------------------------------------------------------------------------------------------


def _linear(c: Context, data: Expr, axes: Sequence[_Axis], coordinates: str) -> Expr:
    """Linear or cubic: along one dimension after the other."""
    import numpy as np

    for d, axis in enumerate(axes):
        if axis.stays:
            continue
        places, weights = _taps(c, axis, coordinates)
        used = [tap for tap in range(weights.shape[1]) if weights[:, tap].any()]
        if len(used) > MAX_TAPS:
            c.reserve(axis.extent, axis.count)
            matrix = np.zeros((axis.extent, axis.count))
            np.add.at(matrix, (places, np.arange(axis.count)[:, None]), weights)
            order = [e for e in range(len(axes)) if e != d]
            last = c.call("nn.dense", c.permute(data, (*order, d)), c.constant(matrix.T.astype(data.dtype)))
            data = c.permute(last, np.argsort([*order, d]).tolist())
            continue
        made: Expr | None = None
        for tap in used:
            weight = weights[:, tap].reshape([-1 if e == d else 1 for e in range(len(axes))])
            part = _taken(c, data, d, places[:, tap].tolist())
            part = c.call("multiply", part, c.constant(weight.astype(data.dtype)))
            made = part if made is None else c.call("add", made, part)
        assert made is not None
        data = made
    return data


def _taps(c: Context, axis: _Axis, coordinates: str) -> tuple[np.ndarray, np.ndarray]:
    """The elements that each one of the result is made of, (count, taps), and their weights: ONNX's definition."""
    import numpy as np

    cubic = c.node.text("mode") == "cubic"
    # ONNX's length is not rounded; onnxruntime's is, as for the nearest element. They differ where corners are aligned.
    at = _coordinates(axis, coordinates, axis.scale * axis.extent).astype(np.float64)
    first = np.floor(at)
    share = (at - first)[:, None]
    reach = 2 if cubic else 1
    scale = min(axis.scale, 1.0) if c.node.integer("antialias", 0) else 1.0
    start = math.floor(-reach / scale) + 1
    taps = np.arange(start, 2 - start)[None, :]
    distance = np.abs(taps - share) * scale
    if cubic:
        a = c.node.real("cubic_coeff_a", -0.75)
        near = ((a + 2) * distance - (a + 3)) * distance**2 + 1
        far = ((distance - 5) * distance + 8) * distance * a - 4 * a
        weights = np.where(distance <= 1, near, np.where(distance < 2, far, 0))
    else:
        weights = np.maximum(1 - distance, 0)
    places = (first[:, None] + taps).astype(np.int64)
    if c.node.integer("exclude_outside", 0):
        weights = np.where((places >= 0) & (places < axis.extent), weights, 0)
    return np.clip(places, 0, axis.extent - 1), weights / weights.sum(axis=1, keepdims=True)


# --- the nearest element ---------------------------------------------------------------------------------------------


def _repeats(places: Sequence[int], times: int) -> bool:
    """Whether every element is taken so many times, in order."""
    return times > 0 and places == [i // times for i in range(len(places))]


def _places(axis: _Axis, coordinates: str, rounding: str) -> Sequence[int]:
    """The nearest of the elements to each of the result's. A range if these are all as they lie: data that stays may
    have more than `MAX_SIDE`.
    """
    import numpy as np

    if axis.stays:
        return range(axis.extent)
    at = _coordinates(axis, coordinates).astype(np.float64)
    places: list[int] = np.clip(_rounded(at, rounding), 0, axis.extent - 1).astype(int).tolist()
    return range(axis.extent) if axis.count == axis.extent and places == list(range(axis.extent)) else places


def _rounded(at: np.ndarray, rounding: str) -> np.ndarray:
    import numpy as np

    result: np.ndarray
    if rounding in ("floor", "round_prefer_ceil"):
        result = np.floor(at if rounding == "floor" else at + 0.5)
    else:
        result = np.ceil(at if rounding == "ceil" else at - 0.5)
    return result


def _image(c: Context, data: Expr, places: Sequence[Sequence[int]]) -> Expr:
    """Images, or sequences as images of one row."""
    image = channels_last(c, data)
    batch, *_, depth = image.shape
    if len(places) == 2:
        return channels_first(c, c.call("nn.resize_nearest", image, rows=places[0], columns=places[1]))
    row = c.reshape(image, (batch, 1, image.shape[1], depth))
    made = c.call("nn.resize_nearest", row, rows=(0,), columns=places[0])
    return channels_first(c, c.reshape(made, (batch, len(places[0]), depth)))


RESIZE: Mapping[str, Converter] = {"Resize": _resize}
