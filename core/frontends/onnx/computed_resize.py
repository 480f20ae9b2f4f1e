"""Resize by scales, sizes or a region that are computed at run time: the extents of the result are those that the model
declares, and where its elements come from is computed as `resize_axes` does at import.

Coordinates are float64. Each is the quotient of two numbers that float64 holds exactly, rounded once, because scales
have 24 significant bits; and a coordinate that is not a tie is at least 2**-25 away from one, more than the rounding
error of dimensions up to 2**24. So the nearest element is that of exact arithmetic. For the coordinates of a region
this holds if 53 bits hold the sum of the products of both ends with integers below 2**28; else the dividend is rounded,
too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...errors import ModelError
from ...relay.expr import Expr
from ...relay.ops.common import normalise_axes
from .context import ComputedAtRunTime, Context

if TYPE_CHECKING:
    import numpy as np

__all__ = ["computed_resize"]

MAX_TAPS = 64
"""Elements that each one of an interpolation is added up of."""


@dataclass(frozen=True)
class _Axis:
    """How one dimension is resized.

    Args:
        number: of the dimension.
        extent: of the data.
        count: elements of the result.
        scale: two float64 scalars with this quotient, both exact.
        start, end: of the region, in units of ``extent - 1``: float64 scalars; None for all of the data.
    """

    number: int
    extent: int
    count: int
    scale: tuple[Expr, Expr]
    start: Expr | None
    end: Expr | None


def computed_resize(c: Context, data: Expr, mode: str, coordinates: str, rounding: str) -> Expr:
    """The result of a Resize whose parameters are operands.

    Args:
        c: the node; modes are checked.
        data: floats, unless the nearest element is taken.
        mode, coordinates, rounding: as in ONNX.

    Raises:
        ModelError: the model does not declare the shape of the result, or one that does not fit; or an interpolation
            adds up over `MAX_TAPS` elements.
    """
    declared = c.declared[0] if c.declared else None
    if declared is None or len(declared) != len(data.shape):
        message = "its scales, sizes or roi are computed at run time"
        computed = next(c.expr(index) for index in (1, 2, 3) if c.has(index) and not c.is_known(index))
        raise ComputedAtRunTime(f"{message}, and the model does not say the shape of its result", computed)
    outside: Expr | None = None
    for axis in _axes(c, data.shape, declared, coordinates):
        at = _coordinates(c, axis, coordinates, mode == "nearest")
        if mode == "nearest":
            data = c.call("take", data, _place(c, _rounded(c, at, rounding), axis.extent), axis=axis.number)
        else:
            data = _interpolated(c, data, axis, at, mode)
        if coordinates == "tf_crop_and_resize":
            beyond = c.call("greater", at, c.scalar(axis.extent - 1, at))
            either = c.call("logical_or", c.call("less", at, c.scalar(0, at)), beyond)
            here = _along(c, either, axis, len(declared))
            outside = here if outside is None else c.call("logical_or", outside, here)
    if data.shape != declared:
        raise ModelError(f"it makes data of shape {data.shape}, and the model declares {declared}")
    if outside is None:
        return data
    return c.call("where", outside, c.scalar(c.node.real("extrapolation_value", 0.0), data), data)


def _axes(c: Context, shape: Sequence[int], declared: Sequence[int], coordinates: str) -> list[_Axis]:
    rank, node = len(shape), c.node
    normalise_axes(node.integers("axes", ()), rank)  # none outside, none twice
    order = [axis % rank for axis in node.integers("axes", range(rank))]
    scales = _scales(c, [shape[axis] for axis in order])
    parts: list[tuple[Expr | None, Expr | None]] = [(None, None)] * len(order)
    if coordinates == "tf_crop_and_resize":
        roi = c.cast(c.expr(1), "float64")
        if roi.shape != (2 * len(order),):
            raise ModelError(f"it has a roi of shape {roi.shape} for {len(order)} dimensions")
        parts = [(_element(c, roi, k), _element(c, roi, k + len(order))) for k in range(len(order))]
    return [
        _Axis(axis, shape[axis], declared[axis], scale, *part)
        for axis, scale, part in zip(order, scales, parts, strict=True)
    ]


def _scales(c: Context, extents: Sequence[int]) -> list[tuple[Expr, Expr]]:
    """Numerators and denominators."""
    sized = c.has(3) and c.value(3).shape != (0,)
    values = c.expr(3 if sized else 2)
    if values.shape != (len(extents),):
        raise ModelError(f"it has scales or sizes of shape {values.shape} for {len(extents)} dimensions")
    values = c.cast(values if sized else c.cast(values, "float32"), "float64")
    numerators = [_element(c, values, k) for k in range(len(extents))]
    scales: list[tuple[Expr, Expr]] = [
        (numerator, c.scalar(extent if sized else 1, values))
        for numerator, extent in zip(numerators, extents, strict=True)
    ]
    policy = c.node.text("keep_aspect_ratio_policy", "stretch")
    if not sized or policy == "stretch":
        return scales
    best = scales[0]
    for scale in scales[1:]:
        products = c.call("multiply", scale[0], best[1]), c.call("multiply", best[0], scale[1])
        is_better = c.call("less" if policy == "not_larger" else "greater", *products)
        best = c.call("where", is_better, scale[0], best[0]), c.call("where", is_better, scale[1], best[1])
    return [best] * len(scales)


def _element(c: Context, data: Expr, place: int) -> Expr:
    part = c.call("strided_slice", data, begin=(place,), end=(place + 1,), strides=(1,))
    return c.reshape(part, ())


def _along(c: Context, values: Expr, axis: _Axis, rank: int) -> Expr:
    """A value for each element along an axis, so that it broadcasts with the data."""
    return c.reshape(values, (axis.count, *(1 for _ in range(rank - axis.number - 1))))


def _coordinates(c: Context, axis: _Axis, mode: str, is_nearest: bool) -> Expr:
    """Source coordinates, float64, (count,): the formulas of `resize_axes`, with one division each."""
    import numpy as np

    (numerator, denominator), count, last = axis.scale, axis.count, axis.extent - 1

    def number(value: float) -> Expr:
        return c.scalar(value, numerator)

    def divided(positions: np.ndarray) -> Expr:
        """Positions in the result, divided by the scale."""
        return c.call("divide", c.call("multiply", c.constant(positions), denominator), numerator)

    c.reserve(4, count)
    positions = np.arange(count, dtype=np.float64)
    if mode in ("align_corners", "pytorch_half_pixel") and count == 1:
        return c.constant(np.zeros(1))
    if mode == "align_corners" and is_nearest:
        return c.constant(positions * last / (count - 1))
    if mode == "align_corners":
        # The length of the result is the product of scale and extent.
        intervals = c.call("subtract", c.call("multiply", numerator, number(axis.extent)), denominator)
        return c.call("divide", c.call("multiply", c.constant(positions * last), denominator), intervals)
    if mode == "tf_crop_and_resize":
        assert axis.start is not None and axis.end is not None
        before, behind = (positions[::-1], positions) if count > 1 else (np.ones(1), np.ones(1))
        parts = (
            c.call("multiply", c.constant(before * last), axis.start),
            c.call("multiply", c.constant(behind * last), axis.end),
        )
        return c.call("divide", c.call("add", *parts), number(count - 1 if count > 1 else 2))
    if mode == "asymmetric":
        return divided(positions)
    if mode == "tf_half_pixel_for_nn":
        # What is not resized stays as it is.
        is_one = c.call("equal", numerator, denominator)
        return c.call("where", is_one, c.constant(positions), divided(positions + 0.5))
    if mode == "half_pixel_symmetric":
        return c.call("add", divided(positions + (1 - count) / 2), number(last / 2))
    return c.call("subtract", divided(positions + 0.5), number(0.5))


def _rounded(c: Context, at: Expr, rounding: str) -> Expr:
    if rounding == "floor":
        return c.call("floor", at)
    if rounding == "ceil":
        return c.call("ceil", at)
    if rounding == "round_prefer_ceil":
        return c.call("floor", c.call("add", at, c.scalar(0.5, at)))
    return c.call("ceil", c.call("subtract", at, c.scalar(0.5, at)))


def _place(c: Context, position: Expr, extent: int) -> Expr:
    return c.cast(c.call("clip", position, a_min=0.0, a_max=extent - 1.0), "int32")


def _interpolated(c: Context, data: Expr, axis: _Axis, at: Expr, mode: str) -> Expr:
    """Linear or cubic along one dimension: the taps that any scale needs which gives so many elements."""
    reach, scale, least = (2 if mode == "cubic" else 1), None, 1.0
    if c.node.integer("antialias", 0):
        scale = c.call("minimum", c.call("divide", *axis.scale), c.scalar(1, at))
        least = min((axis.count - 0.5) / axis.extent, 1.0)
    start = math.floor(-reach / least) + 1
    if 2 * (1 - start) > MAX_TAPS:
        raise ModelError(f"it adds up {2 * (1 - start)} elements for each one, over {MAX_TAPS}")
    first = c.call("floor", at)
    share = c.call("subtract", at, first)
    parts: list[tuple[Expr, Expr]] = []
    total: Expr | None = None
    for tap in range(start, 2 - start):
        distance = c.call("abs", c.call("subtract", c.scalar(tap, share), share))
        distance = distance if scale is None else c.call("multiply", distance, scale)
        weight = _weight(c, distance, mode)
        position = c.call("add", first, c.scalar(tap, first))
        if c.node.integer("exclude_outside", 0):
            is_after_start = c.call("greater_equal", position, c.scalar(0, position))
            inside = c.call("logical_and", is_after_start, c.call("less", position, c.scalar(axis.extent, position)))
            weight = c.call("where", inside, weight, c.scalar(0, weight))
        total = weight if total is None else c.call("add", total, weight)
        parts.append((_place(c, position, axis.extent), weight))
    assert total is not None
    result: Expr | None = None
    for place, weight in parts:
        wide = _along(c, c.cast(c.call("divide", weight, total), data.dtype), axis, len(data.shape))
        part = c.call("multiply", c.call("take", data, place, axis=axis.number), wide)
        result = part if result is None else c.call("add", result, part)
    assert result is not None
    return result


def _weight(c: Context, distance: Expr, mode: str) -> Expr:
    """Of an element at a distance: ONNX's definition."""

    def number(value: float) -> Expr:
        return c.scalar(value, distance)

    def polynomial(*factors: float) -> Expr:
        total: Expr = number(factors[0])
        for factor in factors[1:]:
            total = c.call("add", c.call("multiply", total, distance), number(factor))
        return total

    if mode == "linear":
        return c.call("maximum", c.call("subtract", number(1), distance), number(0))
    a = c.node.real("cubic_coeff_a", -0.75)
    near, far = polynomial(a + 2, -(a + 3), 0, 1), polynomial(a, -5 * a, 8 * a, -4 * a)
    outer = c.call("where", c.call("less", distance, number(2)), far, number(0))
    return c.call("where", c.call("less_equal", distance, number(1)), near, outer)
