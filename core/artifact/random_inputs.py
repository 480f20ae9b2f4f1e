"""Inputs of an artifact, those that are given and random ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from .record import TensorRecord

if TYPE_CHECKING:
    import numpy as np

__all__ = ["random_inputs"]


def random_inputs(
    rows: Sequence[TensorRecord],
    fixed: Mapping[str, np.ndarray] | None = None,
    *,
    extents: Mapping[str, int] | None = None,
    below: Mapping[str, int] | None = None,
    seed: int = 0,
) -> dict[str, np.ndarray]:
    """An array for each input that a caller gives: those that are ``fixed``, and random ones.

    Args:
        rows: the inputs, as the record of an artifact has them.
        fixed: by name.
        extents: values of open extents, by name; by default those that ``fixed`` has, else the largest.
        below: of inputs that are indices, by name: random ones are at least 0, and below that.
        seed: random arrays of another one are others.

    Raises:
        ModelError: a given array has extents that do not fit.
    """
    from ..runtime.open_shapes import OpenShapes
    from ..runtime.tensors import random_array

    arrays = dict(fixed or {})
    open_shapes = OpenShapes.from_rows("", rows, ())
    extent_values: dict[str, int] = {}
    if open_shapes is not None:
        shapes = {
            name: array.shape
            for name, array in arrays.items()
            if name in open_shapes and name not in open_shapes.symbols
        }
        extent_values = {symbol.name: symbol.high for symbol in open_shapes.symbols.values()}
        extent_values |= open_shapes.extents(shapes, {})
        extent_values |= extents or {}
    for position, row in enumerate(rows):
        if row.name not in arrays and row.holds is None:
            shape = row.shape if open_shapes is None else open_shapes.shape(row.name, extent_values)
            values = random_array(shape, row.dtype, position + seed * len(rows))
            arrays[row.name] = values % values.dtype.type(below[row.name]) if below and row.name in below else values
    return arrays
