"""Operators that pick elements by indices, turn them around, or put others in their places.

Indices that are computed and leave the data are brought into it; there is no saying what the kernels read.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...errors import ModelError
from ...relay.expr import Constant, Expr, call, const
from ...tir.form.dtype import is_integer
from ..compositions import index_parts, one_hot, positions, reversed_sequences, rows, scattered_rows
from .layer import QUANTISED, Importer, Layer, channel_axis, quantisations
from .shape import axis_of, raw

__all__ = ["PICKS"]


def _indices(layer: Layer, position: int) -> Expr:
    """Indices as int32 or int64."""
    value = layer.value(position)
    if value.dtype not in ("int16", "int32", "int64"):
        raise ModelError(f"its indices are {value.dtype}")
    return call("cast", value, dtype="int32") if value.dtype == "int16" else value


def _bound_indices(indices: Expr, extent: int, axis: int) -> Expr:
    """Indices of an axis, none of them counted from the end. ModelError where a known one is outside."""
    if isinstance(indices, Constant):
        if not 0 <= indices.data.min() <= indices.data.max() < extent:
            raise ModelError(f"its indices leave the {extent} elements of axis {axis}")
        return indices
    return call("clip", indices, a_min=0, a_max=extent - 1)


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
        _bound_indices(indices, data.shape[axis], axis)
    if batch == 0:
        return call("take", data, indices, axis=axis)
    chosen = _bound_indices(indices, data.shape[axis], axis)
    index_shape = indices.shape[batch:]
    chosen = call("reshape", chosen, newshape=(*indices.shape[:batch], *(1 for _ in range(batch, axis)), *index_shape))
    before = [positions(layer, data.shape[d], axis + len(index_shape), d, indices.dtype) for d in range(axis)]
    return rows(layer, data, [*before, chosen])


def _gather_nd(layer: Layer) -> Expr:
    """The last dimension of the indices names a place along each of the first dimensions of the data."""
    data, indices = raw(layer), _indices(layer, 1)
    layer.same_quantisation(layer.tensor(0), layer.output())
    return rows(layer, data, _places(layer, indices, data.shape))


def _places(layer: Layer, indices: Expr, shape: Sequence[int]) -> list[Expr]:
    """Return the places along each of the first dimensions of a shape that the last dimension of indices names."""
    count = indices.shape[-1] if indices.shape else 0
    if not 1 <= count <= len(shape):
        raise ModelError(f"its indices of shape {indices.shape} do not fit data of shape {tuple(shape)}")
    parts = zip(index_parts(layer, indices, count), shape, strict=False)
    return [_bound_indices(part, extent, axis) for axis, (part, extent) in enumerate(parts)]


def _embedding_lookup(layer: Layer) -> Expr:
    """Rows of a table; of one of integers beside a float result, times their scale, without a zero point."""
    import numpy as np

    table, output = layer.tensor(1), layer.output()
    indices = _indices(layer, 0)
    if len(indices.shape) != 1 or not layer.value(1).shape:
        raise ModelError(f"its indices have {len(indices.shape)} dimensions, not 1, or its table none")
    if isinstance(indices, Constant):
        _bound_indices(indices, layer.value(1).shape[0], 0)
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
        place = call("subtract", positions(layer, extent, 1, 0, start.dtype), first)
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


def _scatter_nd(layer: Layer) -> Expr:
    """Sums of updates at the places that indices name, 0 elsewhere; of bool, whether one of them holds."""
    updates, shape = raw(layer, 1), layer.integers(2, "shape")
    layer.same_quantisation(layer.tensor(1), layer.output())
    zeros = call("broadcast_to", layer.scalar(0, updates), shape=shape)
    places = _places(layer, _indices(layer, 0), shape)
    if updates.dtype != "bool":
        return scattered_rows(layer, zeros, places, updates, "add")
    codes = scattered_rows(layer, layer.cast(zeros, "uint8"), places, layer.cast(updates, "uint8"), "max")
    return layer.cast(codes, "bool")


def _one_hot(layer: Layer) -> Expr:
    indices, depth = _indices(layer, 0), layer.integer(1, "depth")
    on, off = raw(layer, 2), raw(layer, 3)
    layer.same_quantisation(layer.output(), layer.tensor(2), layer.tensor(3))
    rank, axis = len(indices.shape), layer.options["axis"]
    if depth < 1 or not -1 <= axis <= rank:
        raise ModelError(f"it makes {depth} elements along axis {axis} of indices of shape {indices.shape}")
    if on.tensor.size != 1 or off.tensor.size != 1:
        raise ModelError(f"its values have {on.tensor.size} and {off.tensor.size} elements, not 1")
    axis = rank if axis == -1 else axis
    return one_hot(layer, indices, depth, layer.reshape(on, ()), layer.reshape(off, ()), axis)


def _reverse_sequence(layer: Layer) -> Expr:
    data, lengths = raw(layer), layer.value(1)
    layer.same_quantisation(layer.tensor(0), layer.output())
    if lengths.dtype not in ("int32", "int64"):
        raise ModelError(f"its lengths are {lengths.dtype}", hint="supported: int32, int64")
    time, batch = layer.options["seq_dim"], layer.options["batch_dim"]
    result = reversed_sequences(layer, data, lengths, time, batch)
    if isinstance(lengths, Constant) and lengths.data.max() > data.shape[time]:
        raise ModelError(f"a length of {lengths.data.max()} is over the {data.shape[time]} elements of axis {time}")
    return result


PICKS: dict[str, Importer] = {
    "DYNAMIC_UPDATE_SLICE": _update_slice,
    "EMBEDDING_LOOKUP": _embedding_lookup,
    "GATHER": _gather,
    "GATHER_ND": _gather_nd,
    "ONE_HOT": _one_hot,
    "REVERSE_SEQUENCE": _reverse_sequence,
    "REVERSE_V2": _reverse,
    "SCATTER_ND": _scatter_nd,
}
