"""Operators of ONNX that pick elements by indices, or put them where indices say."""

from __future__ import annotations

import math
from collections.abc import Mapping

from ...errors import ModelError
from ...relay.expr import Constant, Expr
from ...relay.ops.common import normalise_axis
from ...tir.form.dtype import is_integer
from ..compositions import index_parts, positions, reversed_sequences, rows, scattered_rows
from .context import Context, Converter

__all__ = ["GATHER"]


def _from_front(c: Context, indices: Expr, extent: int) -> Expr:
    """Indices as int32, those below 0 counted from the end. ModelError where a known one is outside."""
    import numpy as np

    if not is_integer(indices.dtype):
        raise ModelError(f"its indices are {indices.dtype}")
    if isinstance(indices, Constant):
        numbers = indices.data
        if numbers.size and not -extent <= numbers.min() <= numbers.max() < extent:
            raise ModelError(f"its indices leave the {extent} elements of an axis")
        return c.constant(np.where(numbers < 0, numbers + extent, numbers).astype(np.int32))
    signed = c.cast(indices, "int32")
    negative = c.call("less", signed, c.scalar(0, signed))
    return c.call("where", negative, c.call("add", signed, c.scalar(extent, signed)), signed)


def _gather_elements(c: Context) -> Expr:
    data, indices = c.expr(0), c.expr(1)
    rank = len(data.shape)
    axis = normalise_axis(c.node.integer("axis", 0), rank)
    beside = (
        part <= limit for d, (part, limit) in enumerate(zip(indices.shape, data.shape, strict=False)) if d != axis
    )
    if len(indices.shape) != rank or not all(beside):
        raise ModelError(f"its indices of shape {indices.shape} do not fit data of shape {data.shape}")
    chosen = _from_front(c, indices, data.shape[axis])
    others = (positions(c, extent, rank, d) for d, extent in enumerate(indices.shape))
    return rows(c, data, [chosen if d == axis else place for d, place in enumerate(others)])


def _tuples(c: Context, data: Expr, indices: Expr, batch: int) -> list[Expr]:
    """Where tuples of indices, the last dimension of ``indices``, point to: a place along each dimension of the data
    that they name, those of the batch first.
    """
    count = indices.shape[-1] if indices.shape else 0
    outer = indices.shape[:-1]
    if not 0 <= batch <= len(outer) or not 1 <= count <= len(data.shape) - batch or outer[:batch] != data.shape[:batch]:
        raise ModelError(f"its indices, of shape {indices.shape}, do not fit data of shape {data.shape}")
    places: list[Expr] = [positions(c, extent, len(outer), d) for d, extent in enumerate(outer[:batch])]
    extents = data.shape[batch : batch + count]
    parts = zip(index_parts(c, indices, count), extents, strict=True)
    return [*places, *(_from_front(c, part, extent) for part, extent in parts)]


def _gather_nd(c: Context) -> Expr:
    data, indices = c.expr(0), c.expr(1)
    return rows(c, data, _tuples(c, data, indices, c.node.integer("batch_dims", 0)))


_REDUCTIONS = {"none": "update", "add": "add", "mul": "mul", "min": "min", "max": "max"}


def _reduction(c: Context) -> str:
    reduction = c.node.text("reduction", "none")
    if reduction not in _REDUCTIONS:
        raise ModelError(f"it has the unknown reduction {reduction!r}")
    return _REDUCTIONS[reduction]


def _scatter_elements(c: Context) -> Expr:
    data = c.expr(0)
    axis = normalise_axis(c.node.integer("axis", 0), len(data.shape))
    if c.value(1).shape != c.value(2).shape:
        raise ModelError(f"its indices {c.value(1).shape} and updates {c.value(2).shape} differ in shape")
    return c.call("scatter", data, c.expr(1), c.expr(2), axis=axis, reduction=_reduction(c))


def _scatter_nd(c: Context) -> Expr:
    data = c.expr(0)
    return scattered_rows(c, data, _tuples(c, data, c.expr(1), 0), c.expr(2), _reduction(c))


def _max_unpool(c: Context) -> Expr:
    """Maxima put back to where they were; zeros elsewhere. A larger output_shape adds zeros behind."""
    import numpy as np

    data, indices = c.expr(0), c.expr(1)
    rank = len(data.shape) - 2
    kernel = c.node.integers("kernel_shape")
    strides, pads = c.node.integers("strides", (1,) * rank), c.node.integers("pads", (0,) * 2 * rank)
    if not 0 < rank == len(kernel) == len(strides) == len(pads) // 2 or indices.shape != data.shape:
        raise ModelError(f"its indices of shape {indices.shape} or kernel {kernel} do not fit data {data.shape}")
    space = [
        (extent - 1) * stride + size - before - after
        for extent, stride, size, before, after in zip(
            data.shape[2:], strides, kernel, pads[:rank], pads[rank:], strict=True
        )
    ]
    asked = list(c.known_integers(2))[2:] if c.has(2) else space
    if min(space) < 1 or len(asked) != rank or any(a < s for a, s in zip(asked, space, strict=True)):
        raise ModelError(f"its result has the impossible extents {tuple(asked)}")
    planes, count = math.prod(data.shape[:2]), math.prod(space)
    zeros = c.call("broadcast_to", c.scalar(0, data), shape=(planes, count))
    c.reserve(planes)
    first = c.constant(np.arange(planes)[:, None] * count)
    offsets = c.call("subtract", c.cast(c.reshape(indices, (planes, math.prod(data.shape[2:]))), "int64"), first)
    unpooled: Expr = c.call("scatter", zeros, offsets, c.reshape(data, offsets.shape), axis=1)
    unpooled = c.reshape(unpooled, (*data.shape[:2], *space))
    behind = [a - s for a, s in zip(asked, space, strict=True)]
    return c.call("nn.pad", unpooled, pad_width=(*(0,) * (rank + 4), *behind)) if any(behind) else unpooled


# --- orders ----------------------------------------------------------------------------------------------------------


def _reverse_sequence(c: Context) -> Expr:
    time, batch = c.node.integer("time_axis", 0), c.node.integer("batch_axis", 1)
    return reversed_sequences(c, c.expr(0), c.expr(1), time, batch)


def _tensor_scatter(c: Context) -> Expr:
    """A cache, part of which an update replaces: from ``write_indices`` on along the axis, for each of the batch."""
    past, update = c.expr(0), c.expr(1)
    rank, mode = len(past.shape), c.node.text("mode", "linear")
    axis = normalise_axis(c.node.integer("axis", -2), rank)
    fits = len(update.shape) == rank and all(
        part == limit or (d == axis and part < limit)
        for d, (part, limit) in enumerate(zip(update.shape, past.shape, strict=False))
    )
    if not axis or not fits or mode not in ("linear", "circular"):
        raise ModelError(f"its update of shape {update.shape} does not fit a cache of shape {past.shape}")
    extent, count = past.shape[axis], update.shape[axis]
    at = positions(c, extent, axis + 1, axis)
    batch = (past.shape[0], *(1 for _ in range(axis)))
    first: Expr = c.scalar(0, at)
    if c.has(2):
        if c.value(2).shape != past.shape[:1]:
            raise ModelError(f"it has write_indices of shape {c.value(2).shape} for a batch of {past.shape[0]}")
        first = c.reshape(c.cast(c.expr(2), "int32"), batch)
    number: Expr = c.call("subtract", at, first)
    if mode == "circular":
        number = c.call("floor_mod", number, c.scalar(extent, number))
    new = c.call(
        "logical_and",
        c.call("greater_equal", number, c.scalar(0, number)),
        c.call("less", number, c.scalar(count, number)),
    )
    limited = c.call("clip", number, a_min=0.0, a_max=float(count - 1))
    others = (positions(c, past.shape[d], axis + 1, d) for d in range(axis))
    update_rows = rows(c, update, [*others, limited])
    mask = c.reshape(new, (*new.shape, *(1 for _ in past.shape[axis + 1 :])))
    return c.call("where", mask, update_rows, past)


GATHER: Mapping[str, Converter] = {
    "GatherElements": _gather_elements,
    "GatherND": _gather_nd,
    "MaxUnpool": _max_unpool,
    "ReverseSequence": _reverse_sequence,
    "ScatterElements": _scatter_elements,
    "ScatterND": _scatter_nd,
    "TensorScatter": _tensor_scatter,
}
