"""Operators on what is known at import: shapes, and the numbers that models make of them.

A converter that leaves the batch open writes operators that compute the shapes of reshapes. Here every shape is known,
and so is what follows from it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ...errors import ModelError
from ...relay.expr import Expr, const
from ...relay.ops.common import broadcast_shapes, normalise_axes
from ...support.import_budget import require_memory
from .layer import Importer, Layer

if TYPE_CHECKING:
    import numpy as np

__all__ = ["KNOWN"]


def _known(layer: Layer, position: int, role: str) -> np.ndarray:
    array = layer.constant(position)
    if array is None:
        raise ModelError(f"its {role} is not known at import", hint="supported: constants, and what shapes give")
    return array


def _shape(layer: Layer) -> Expr:
    import numpy as np

    shape = layer.value(0).shape
    if not shape:
        raise ModelError("its data has no dimensions")
    if layer.output().dtype not in ("int32", "int64"):
        raise ModelError(f"its result is {layer.output().dtype}")
    return const(np.array(shape, layer.output().dtype))


def _product(layer: Layer) -> Expr:
    import numpy as np

    data, axes = _known(layer, 0, "data"), layer.integers(1, "axes")
    if data.dtype.name not in ("int32", "int64"):
        raise ModelError(f"it is of {data.dtype.name}")
    if not axes:
        raise ModelError("it reduces over no axes")
    reduced = normalise_axes(axes, data.ndim)
    product = np.asarray(data.prod(reduced, data.dtype))
    return const(np.expand_dims(product, reduced) if layer.options["keep_dims"] else product)


def _broadcast_args(layer: Layer) -> Expr:
    """The shape to which two shapes broadcast."""
    import numpy as np

    shapes = [layer.integers(position, "shapes") for position in (0, 1)]
    dtype = layer.output().dtype
    if dtype not in ("int32", "int64"):
        raise ModelError(f"its result is {dtype}")
    return const(np.array(broadcast_shapes(*shapes), dtype))


def _rank(layer: Layer) -> Expr:
    if layer.output().dtype != "int32":
        raise ModelError(f"its result is {layer.output().dtype}")
    return const(len(layer.value(0).shape), "int32")


def _range(layer: Layer) -> Expr:
    """Numbers from a first one on, each of them the last one plus a step, as the kernel adds them up in float32."""
    import numpy as np

    dtype = layer.dtypes("float32", "int32", "int64")
    numbers = [_known(layer, position, role) for position, role in enumerate(("start", "limit", "delta"))]
    if any(number.size != 1 for number in numbers):
        raise ModelError(f"it takes three numbers, not {', '.join(str(number.size) for number in numbers)}")
    start, limit, delta = (number.item() for number in numbers)
    if dtype == "float32":
        with np.errstate(all="ignore"):
            quotient = float((np.float32(limit) - np.float32(start)) / np.float32(delta))
        count = math.ceil(quotient) if math.isfinite(quotient) else 0
    else:
        count = -((start - limit) // delta) if delta else 0
    if count < 1:
        raise ModelError(f"it counts from {start} to {limit} by {delta}")
    require_memory(8 * count)
    steps = np.full(count, delta, dtype)
    steps[0] = start
    return const(np.cumsum(steps, dtype=dtype))


def _densify(layer: Layer) -> Expr:
    """Sparse constants are dense since they were read."""
    return const(_known(layer, 0, "data"))


KNOWN: dict[str, Importer] = {
    "BROADCAST_ARGS": _broadcast_args,
    "DENSIFY": _densify,
    "RANGE": _range,
    "RANK": _rank,
    "REDUCE_PROD": _product,
    "SHAPE": _shape,
}
