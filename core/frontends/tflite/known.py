"""Operators on what is known at import: shapes, and the numbers that models make of them.

A converter that leaves the batch open writes operators that compute the shapes of reshapes. Here every shape is known,
and so is what follows from it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...errors import ModelError
from ...relay.expr import Expr, const
from ...relay.ops.common import normalise_axes
from ...relay.types import TensorType
from .layer import Importer, Layer

if TYPE_CHECKING:
    import numpy as np

__all__ = ["KNOWN", "KNOWN_BYTES"]

KNOWN_BYTES = 1 << 20
"""Of one result: a file of some bytes could ask for any number of them. (Networks begin with states of zeros.)"""


def _known(layer: Layer, position: int, what: str) -> np.ndarray:
    array = layer.constant(position)
    if array is None:
        raise ModelError(f"its {what} is not known at import", hint="supported: constants, and what shapes give")
    return array


def _limited(array: np.ndarray, shape: tuple[int, ...]) -> None:
    """ModelError unless a result of the array's dtype and this shape may be made."""
    size = TensorType(shape, array.dtype.name).nbytes
    if size > KNOWN_BYTES:
        raise ModelError(f"its result has {size} bytes, more than the {KNOWN_BYTES} that are made at import")


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


def _fill(layer: Layer) -> Expr:
    import numpy as np

    value, shape = _known(layer, 1, "value"), layer.integers(0, "shape")
    if value.size != 1:
        raise ModelError(f"it repeats {value.size} values, not one")
    _limited(value, shape)
    return const(np.full(shape, value.reshape(()), value.dtype))


KNOWN: dict[str, Importer] = {
    "FILL": _fill,
    "REDUCE_PROD": _product,
    "SHAPE": _shape,
}
