"""Operators on what is known at import: shapes, and the numbers that models make of them.

A converter that leaves the batch open writes operators that compute the shapes of reshapes. Here every shape is known,
and so is what follows from it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...errors import ModelError
from ...relay.expr import Expr, const
from ...relay.ops.common import broadcast_shapes, normalise_axes
from .layer import Importer, Layer

if TYPE_CHECKING:
    import numpy as np

__all__ = ["KNOWN"]


def _known(layer: Layer, position: int, what: str) -> np.ndarray:
    array = layer.constant(position)
    if array is None:
        raise ModelError(f"its {what} is not known at import", hint="supported: constants, and what shapes give")
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
    made = np.asarray(data.prod(reduced, data.dtype))
    return const(np.expand_dims(made, reduced) if layer.options["keep_dims"] else made)


def _broadcast_args(layer: Layer) -> Expr:
    """The shape to which two shapes broadcast."""
    import numpy as np

    shapes = [layer.integers(position, "shapes") for position in (0, 1)]
    dtype = layer.output().dtype
    if dtype not in ("int32", "int64"):
        raise ModelError(f"its result is {dtype}")
    return const(np.array(broadcast_shapes(*shapes), dtype))


KNOWN: dict[str, Importer] = {
    "BROADCAST_ARGS": _broadcast_args,
    "REDUCE_PROD": _product,
    "SHAPE": _shape,
}
