"""Images of integers between whose elements is read: onnxruntime's ``UpsampleBilinear``, which cuts off fractions, so
that the order of its sums in float32 counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...errors import ModelError
from ...relay.expr import Expr
from .context import Context

if TYPE_CHECKING:
    import numpy as np

__all__ = ["between_integers"]


def between_integers(c: Context, data: Expr, places: Sequence[np.ndarray]) -> Expr:
    """Integers at places between rows and columns, the last two dimensions.

    Args:
        c: the node.
        data: (..., height, width), integers.
        places: of the result in the data, float32, of rows and of columns.
    """
    import numpy as np

    rank = len(data.shape)
    if c.node.integer("antialias", 0):
        raise ModelError(f"it interpolates {data.dtype} with antialias; floats are supported")
    c.reserve(4, *(len(at) for at in places))
    (top, bottom, above, below), (left, right, before, behind) = (
        _neighbours(at, extent) for at, extent in zip(places, data.shape[-2:], strict=True)
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
