"""Operators of ONNX whose results are as long as the data says: what is not zero, and boxes that do not overlap."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ...errors import ModelError
from ...relay.expr import Constant, Expr
from ...relay.ops.common import normalise_axis
from ...tir.form.symbolic_dims import bounds_of
from .context import Context, Converter, Value

if TYPE_CHECKING:
    import numpy as np

__all__ = ["DETECTION"]


def _places(c: Context, data: Expr) -> Expr:
    """Where data is not zero: int64 (dimensions, as many as there are)."""
    nonzero = c.call("nonzero", data)
    places, count = c.field(nonzero, 0), c.field(nonzero, 1)
    extent = c.counts.extent(count, 0, bounds_of(places.shape[1])[1], c.node.outputs[0])
    return c.cut(places, 1, extent)


def _nonzero(c: Context) -> Expr:
    data = c.expr(0)
    return _places(c, data if data.shape else c.reshape(data, (1,)))


def _compress(c: Context) -> Expr:
    """The slices for which a condition holds."""
    import numpy as np

    data = c.expr(0)
    if not c.node.has("axis"):
        data = c.reshape(data, (math.prod(data.shape),))
    axis = normalise_axis(c.node.integer("axis", 0), len(data.shape))
    condition = c.expr(1)
    if len(condition.shape) != 1 or condition.dtype != "bool":
        raise ModelError(f"its condition is {condition.dtype} of shape {condition.shape}, not a list of bool")
    if not isinstance(condition, Constant):
        if condition.shape[0] > data.shape[axis]:
            raise ModelError(f"its condition has {condition.shape[0]} elements, and its axis {data.shape[axis]}")
        places = _places(c, condition)
        return c.call("take", data, c.reshape(places, places.shape[1:]), axis=axis)
    positions = np.flatnonzero(condition.data)
    if not len(positions) or positions[-1] >= data.shape[axis]:
        raise ModelError(f"it takes the elements {tuple(map(int, positions))} of {data.shape[axis]}")
    return c.call("take", data, c.constant(positions.astype(np.int32)), axis=axis)


def _non_max_suppression(c: Context) -> Value:
    """The rows (batch, class, box) of ONNX's NonMaxSuppression, in onnxruntime's order."""
    import numpy as np

    center = c.node.integer("center_point_box", 0)
    if center not in (0, 1):
        raise ModelError(f"its center_point_box is {center}")
    boxes, scores = c.expr(0), c.expr(1)
    if len(boxes.shape) != 3:
        raise ModelError(f"its boxes are of shape {boxes.shape}")
    limit = bounds_of(boxes.shape[1])[1]
    if not c.has(2) or c.is_known(2):
        limit = min(limit, max(_one(c, 2, 0), 0))
        if not limit:
            return np.empty((0, 3), np.int64)
    if c.has(3) and c.is_known(3) and not 0 <= _one(c, 3, 0) <= 1:
        raise ModelError(f"its iou_threshold is {_one(c, 3, 0)}, which is 0 to 1")
    most, overlap = _operand(c, 2, "int64", 0), _operand(c, 3, "float32", 0)
    score = _operand(c, 4, "float32", math.nan)
    selection = c.call("nn.non_max_suppression", boxes, scores, most, overlap, score, limit=limit, center=bool(center))
    rows, count = c.field(selection, 0), c.field(selection, 1)
    return c.cut(rows, 0, c.counts.extent(count, 0, rows.shape[0], c.node.outputs[0]))


def _one(c: Context, index: int, default: float) -> int:
    """A parameter that is known; ``default`` where it is left out."""
    if not c.has(index):
        return int(default)
    array: np.ndarray = c.known(index)
    if array.size != 1:
        raise ModelError(f"its input {c.node.inputs[index]!r} has {array.size} elements, not one")
    number: int = array.reshape(()).item()
    return number


def _operand(c: Context, index: int, dtype: str, default: float) -> Expr:
    """A parameter as a list of one number."""
    import numpy as np

    if not c.has(index):
        return c.constant(np.array([default], dtype))
    operand = c.expr(index)
    if math.prod(operand.shape) != 1 or operand.dtype != dtype:
        raise ModelError(f"its input {c.node.inputs[index]!r} is {operand.type}, not one number of {dtype}")
    return c.reshape(operand, (1,))


DETECTION: Mapping[str, Converter] = {
    "Compress": _compress,
    "NonMaxSuppression": _non_max_suppression,
    "NonZero": _nonzero,
}
