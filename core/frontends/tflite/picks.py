"""Operators that pick elements by indices, turn them around, or put others in their places.

Indices that are computed and leave the data are brought into it; there is no saying what the kernels read.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ...errors import ModelError
from ...import_budget import require_memory
from ...relay.expr import Constant, Expr, call, const
from ...tir.form.dtype import is_integer
from .layer import QUANTISED, Importer, Layer, channel_axis, quantisations
from .shape import axis_of, raw

__all__ = ["PICKS"]


def _indices(layer: Layer, position: int) -> Expr:
    """Indices as int32 or int64."""
    value = layer.value(position)
    if value.dtype not in ("int16", "int32", "int64"):
        raise ModelError(f"its indices are {value.dtype}")
    return call("cast", value, dtype="int32") if value.dtype == "int16" else value


def _within(indices: Expr, extent: int, axis: int) -> Expr:
    """Indices of an axis, none of them counted from the end. ModelError where a known one is outside."""
    if isinstance(indices, Constant):
        if not 0 <= indices.data.min() <= indices.data.max() < extent:
            raise ModelError(f"its indices leave the {extent} elements of axis {axis}")
        return indices
    return call("clip", indices, a_min=0, a_max=extent - 1)


def _rows(data: Expr, places: Sequence[Expr]) -> Expr:
    """``data[places[0], places[1], ...]``: places along the first dimensions, which broadcast with one another."""
    leading, rest = data.shape[: len(places)], data.shape[len(places) :]
    number: Expr | None = None
    for d, place in enumerate(places):
        step = math.prod(leading[d + 1 :])
        own = place if step == 1 else call("multiply", place, const(step, place.dtype))
        number = own if number is None else call("add", number, own)
    assert number is not None
    return call("take", call("reshape", data, newshape=(math.prod(leading), *rest)), number, axis=0)


def _along(extent: int, rank: int, axis: int, dtype: str) -> Constant:
    """0, 1, ... along one dimension of ``rank``."""
    import numpy as np

    require_memory(8 * extent)
    return const(np.arange(extent, dtype=dtype).reshape([-1 if d == axis else 1 for d in range(rank)]))


def _gather(layer: Layer) -> Expr:
    """Along one axis; of each batch with indices of its own, where there are dimensions of batches."""
    data, indices = raw(layer), _indices(layer, 1)
    layer.same_quantisation(layer.tensor(0), layer.output())
    axis = axis_of(layer.options["axis"], len(data.shape))
    batch = layer.options["batch_dims"]
    batch += len(indices.shape) if batch < 0 else 0
    if not 0 <= batch <= min(axis, len(indices.shape)) or data.shape[:batch] != indices.shape[:batch]:
        raise ModelError(
            f"its data of shape {data.shape} and indices of shape {indices.shape} have no {batch} "
            f"dimensions of batches before axis {axis}"
        )
    if isinstance(indices, Constant):
        _within(indices, data.shape[axis], axis)
    if batch == 0:
        return call("take", data, indices, axis=axis)
    chosen = _within(indices, data.shape[axis], axis)
    own = indices.shape[batch:]
    chosen = call("reshape", chosen, newshape=(*indices.shape[:batch], *(1 for _ in range(batch, axis)), *own))
    before = [_along(data.shape[d], axis + len(own), d, indices.dtype) for d in range(axis)]
    return _rows(data, [*before, chosen])


def _gather_nd(layer: Layer) -> Expr:
    """The last dimension of the indices names a place along each of the first dimensions of the data."""
    data, indices = raw(layer), _indices(layer, 1)
    layer.same_quantisation(layer.tensor(0), layer.output())
    count = indices.shape[-1] if indices.shape else 0
    if not 1 <= count <= len(data.shape):
        raise ModelError(f"its indices of shape {indices.shape} do not fit data of shape {data.shape}")
    outer = indices.shape[:-1]
    places = []
    for number in range(count):
        if isinstance(indices, Constant):
            part: Expr = const(indices.data[..., number])
        else:
            begin, end = (*(0 for _ in outer), number), (*outer, number + 1)
            part = call("strided_slice", indices, begin=begin, end=end, strides=[1] * len(end))
            part = call("reshape", part, newshape=outer)
        places.append(_within(part, data.shape[number], number))
    return _rows(data, places)


def _embedding_lookup(layer: Layer) -> Expr:
    """Rows of a table; of one of integers beside a float result, times their scale, without a zero point."""
    import numpy as np

    table, output = layer.tensor(1), layer.output()
    indices = _indices(layer, 0)
    if len(indices.shape) != 1 or not layer.value(1).shape:
        raise ModelError(f"its indices have {len(indices.shape)} dimensions, not 1, or its table none")
    if isinstance(indices, Constant):
        _within(indices, layer.value(1).shape[0], 0)
    picked = call("take", layer.value(1), indices, axis=0)
    if table.dtype == output.dtype:
        layer.same_quantisation(table, output)
        return picked
    if output.dtype != "float32" or table.dtype not in QUANTISED:
        raise ModelError(f"it turns {table.dtype} into {output.dtype}")
    scales, _ = quantisations(table)
    factors: Expr = const(np.array(scales, np.float32))
    if len(scales) > 1:
        if channel_axis(table) != 0:
            raise ModelError(f"its table has scales along axis {channel_axis(table)}, not along its rows")
        rest = (1,) * (len(picked.shape) - 1)
        factors = call("reshape", call("take", factors, indices, axis=0), newshape=(*indices.shape, *rest))
    return call("multiply", call("cast", picked, dtype="float32"), factors)


def _reverse(layer: Layer) -> Expr:
    data = raw(layer)
    layer.same_quantisation(layer.tensor(0), layer.output())
    axes = {axis_of(axis, len(data.shape)) for axis in layer.integers(1, "axes")}
    rank = range(len(data.shape))
    return call(
        "strided_slice",
        data,
        begin=[data.shape[d] - 1 if d in axes else 0 for d in rank],
        end=[-1 if d in axes else data.shape[d] for d in rank],
        strides=[-1 if d in axes else 1 for d in rank],
    )


def _update_slice(layer: Layer) -> Expr:
    """The data with a part of it replaced, which begins where the third operand says, or earlier so that it fits."""
    data, update, start = raw(layer), layer.value(1), layer.value(2)
    layer.same_quantisation(layer.tensor(0), layer.tensor(1), layer.output())
    rank = len(data.shape)
    fits = len(update.shape) == rank and all(u <= e for u, e in zip(update.shape, data.shape, strict=True))
    if not fits or start.shape != (rank,) or not is_integer(start.dtype) or update.dtype != data.dtype or not rank:
        raise ModelError(f"its update {update.type} at {start.type} does not fit data {data.type}")
    inside: Expr | None = None
    for d, (extent, size) in enumerate(zip(data.shape, update.shape, strict=True)):
        first = call("strided_slice", start, begin=[d], end=[d + 1], strides=[1])
        first = call("clip", first, a_min=0, a_max=extent - size)
        place = call("subtract", _along(extent, 1, 0, start.dtype), first)
        # Places of 1, 1, ..., extent, ..., 1: for each axis of its own.
        here = call(
            "logical_and",
            *(call(op, place, const(limit, start.dtype)) for op, limit in (("greater_equal", 0), ("less", size))),
        )
        here = call("reshape", here, newshape=[extent if axis == d else 1 for axis in range(rank)])
        inside = here if inside is None else call("logical_and", inside, here)
        place = call("clip", place, a_min=0, a_max=size - 1)
        update = call("take", update, call("cast", place, dtype="int32"), axis=d)
    assert inside is not None
    return call("where", inside, update, data)


PICKS: dict[str, Importer] = {
    "DYNAMIC_UPDATE_SLICE": _update_slice,
    "EMBEDDING_LOOKUP": _embedding_lookup,
    "GATHER": _gather,
    "GATHER_ND": _gather_nd,
    "REVERSE_V2": _reverse,
}
