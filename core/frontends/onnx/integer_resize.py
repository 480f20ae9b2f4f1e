"""Images of integers between whose elements is read: onnxruntime's ``UpsampleBilinear``, which cuts off fractions, so
that the order of its sums in float32 counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...errors import ModelError
from ...relay.expr import Expr
from .context import Context
from .resize_axes import ResizedAxis

if TYPE_CHECKING:
    import numpy as np

__all__ = ["between_integers"]


def between_integers(c: Context, data: Expr, axes: Sequence[ResizedAxis], coordinates: str) -> Expr:
    """Interpolate integers between rows and columns, the last two dimensions.

    Args:
        c: the node.
        data: (..., height, width), integers.
        axes: the rows and the columns.
        coordinates: the ``coordinate_transformation_mode``; all but ``tf_crop_and_resize`` and
            ``half_pixel_symmetric``.
    """
    import numpy as np

    rank = len(data.shape)
    if c.node.integer("antialias", 0):
        raise ModelError(f"it interpolates {data.dtype} with antialias; floats are supported")
    c.reserve(4, *(axis.count for axis in axes))
    (top, bottom, above, below), (left, right, before, behind) = (
        _neighbours(_float_coordinates(axis, coordinates), axis.extent) for axis in axes
    )
    total: Expr | None = None
    for row, column, weights in (
        (top, left, np.outer(below, behind)),
        (top, right, np.outer(below, before)),
        (bottom, left, np.outer(above, behind)),
        (bottom, right, np.outer(above, before)),
    ):
        rows = c.call("take", data, c.constant(row), axis=rank - 2)
        corner = c.cast(c.call("take", rows, c.constant(column), axis=rank - 1), "float32")
        part = c.call("multiply", corner, c.constant(weights.astype(np.float32)))
        total = part if total is None else c.call("add", total, part)
    assert total is not None
    return c.cast(total, data.dtype)


def _float_coordinates(axis: ResizedAxis, mode: str) -> np.ndarray:
    """Source coordinates, float32, rounded as in onnxruntime's ``GetOriginalCoordinateFromResizedCoordinate``."""
    import numpy as np

    f32 = np.float32
    position, scale = np.arange(axis.count, dtype=f32), f32(float(axis.scale))
    if mode == "align_corners":
        return np.asarray(position * f32(axis.extent - 1) / f32(max(axis.count - 1, 1)))
    if mode == "asymmetric":
        return np.asarray(position / scale)
    if mode == "tf_half_pixel_for_nn":
        return np.asarray((position + f32(0.5)) / scale)
    if mode == "pytorch_half_pixel" and axis.count == 1:
        return np.zeros(1, f32)
    return np.asarray((position + f32(0.5)) / scale - f32(0.5))


def _neighbours(places: np.ndarray, extent: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The elements before and behind, and the distances from them; halves where both are the last one."""
    import numpy as np

    at = np.clip(places, np.float32(0), np.float32(extent - 1)).astype(np.float32)
    first = np.minimum(at.astype(np.int32), extent - 1)
    second = np.minimum(first + 1, extent - 1)
    half = np.float32(0.5)
    distances = [np.abs(at - near.astype(np.float32)) for near in (first, second)]
    distances = [np.where(first == second, half, distance) for distance in distances]
    return first, second, distances[0], distances[1]
