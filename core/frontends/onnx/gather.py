"""Operators of ONNX that pick elements by indices, or put them where indices say."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from ...errors import ModelError
from ...relay.expr import Constant, Expr
from ...relay.ops.common import normalise_axis
from ...tir.form.dtype import is_integer
from .context import Context, Converter

__all__ = ["GATHER", "positions", "rows"]


def positions(c: Context, extent: int, rank: int, axis: int) -> Constant:
    """0, 1, ... along one dimension of ``rank``, int32."""
    import numpy as np

    c.reserve(extent)
    return c.constant(np.arange(extent, dtype=np.int32).reshape([-1 if d == axis else 1 for d in range(rank)]))


def _from_front(c: Context, indices: Expr, extent: int) -> Expr:
    """Indices as int32, those below 0 counted from the end. ModelError where a known one is outside."""
    import numpy as np

    if not is_integer(indices.dtype):
        raise ModelError(f"its indices are {indices.dtype}")
    if isinstance(indices, Constant):
        known = indices.data
        if known.size and not -extent <= known.min() <= known.max() < extent:
            raise ModelError(f"its indices leave the {extent} elements of an axis")
        return c.constant(np.where(known < 0, known + extent, known).astype(np.int32))
    signed = c.cast(indices, "int32")
    negative = c.call("less", signed, c.scalar(0, signed))
    return c.call("where", negative, c.call("add", signed, c.scalar(extent, signed)), signed)


def _numbered(c: Context, extents: Sequence[int], places: Sequence[Expr]) -> Expr:
    """The number in row-major order of the element of ``extents`` that places, which broadcast, name."""
    made: Expr | None = None
    for d, place in enumerate(places):
        step = c.scaled(place, math.prod(extents[d + 1 :]))
        made = step if made is None else c.call("add", made, step)
    assert made is not None
    return made


def rows(c: Context, data: Expr, places: Sequence[Expr]) -> Expr:
    """What stands in ``data`` at places along its first dimensions: ``data[places[0], places[1], ...]``.

    Args:
        c: the node.
        data: of any dtype.
        places: int32, from the front, one for each of the first dimensions; they broadcast.

    Returns:
        The shape to which the places broadcast, then the other dimensions of the data.
    """
    leading, rest = data.shape[: len(places)], data.shape[len(places) :]
    return c.call("take", c.reshape(data, (math.prod(leading), *rest)), _numbered(c, leading, places), axis=0)


def _gather_elements(c: Context) -> Expr:
    data, indices = c.expr(0), c.expr(1)
    rank = len(data.shape)
    axis = normalise_axis(c.node.integer("axis", 0), rank)
    beside = (
        part <= whole for d, (part, whole) in enumerate(zip(indices.shape, data.shape, strict=False)) if d != axis
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
    for number in range(count):
        if isinstance(indices, Constant):
            part: Expr = c.constant(indices.data[..., number])
        else:
            begin, end = (*(0 for _ in outer), number), (*outer, number + 1)
            part = c.reshape(c.call("strided_slice", indices, begin=begin, end=end, strides=[1] * len(end)), outer)
        places.append(_from_front(c, part, data.shape[batch + number]))
    return places


def _gather_nd(c: Context) -> Expr:
    data, indices = c.expr(0), c.expr(1)
    return rows(c, data, _tuples(c, data, indices, c.node.integer("batch_dims", 0)))


_REDUCTIONS = {"none": "update", "add": "add", "mul": "mul", "min": "min", "max": "max"}


def _reduction(c: Context) -> str:
    given = c.node.text("reduction", "none")
    if given not in _REDUCTIONS:
        raise ModelError(f"it has the unknown reduction {given!r}")
    return _REDUCTIONS[given]


def _scatter_elements(c: Context) -> Expr:
    data = c.expr(0)
    axis = normalise_axis(c.node.integer("axis", 0), len(data.shape))
    if c.value(1).shape != c.value(2).shape:
        raise ModelError(f"its indices {c.value(1).shape} and updates {c.value(2).shape} differ in shape")
    return c.call("scatter", data, c.expr(1), c.expr(2), axis=axis, reduction=_reduction(c))


def _scatter_nd(c: Context) -> Expr:
    """Each tuple of indices names a row of the data; rows are numbered then."""
    data, indices, updates = c.expr(0), c.expr(1), c.expr(2)
    places = _tuples(c, data, indices, 0)
    leading, rest = data.shape[: len(places)], data.shape[len(places) :]
    if updates.shape != (*indices.shape[:-1], *rest):
        raise ModelError(f"its updates of shape {updates.shape} do not fit indices of shape {indices.shape}")
    count = math.prod(indices.shape[:-1])
    flat = (math.prod(leading), math.prod(rest)), (count, 1), (count, math.prod(rest))
    given = data, _numbered(c, leading, places), updates
    args = (c.reshape(arg, shape) for arg, shape in zip(given, flat, strict=True))
    return c.reshape(c.call("scatter", *args, axis=0, reduction=_reduction(c)), data.shape)


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
    own = c.call("subtract", c.cast(c.reshape(indices, (planes, math.prod(data.shape[2:]))), "int64"), first)
    made: Expr = c.call("scatter", zeros, own, c.reshape(data, own.shape), axis=1)
    made = c.reshape(made, (*data.shape[:2], *space))
    behind = [a - s for a, s in zip(asked, space, strict=True)]
    return c.call("nn.pad", made, pad_width=(*(0,) * (rank + 4), *behind)) if any(behind) else made


# --- orders ----------------------------------------------------------------------------------------------------------


def _reverse_sequence(c: Context) -> Expr:
    """The first elements of each sequence, as many as its length says, turned round."""
    data, lengths = c.expr(0), c.expr(1)
    time, batch = c.node.integer("time_axis", 0), c.node.integer("batch_axis", 1)
    if {time, batch} != {0, 1} or len(data.shape) < 2 or lengths.shape != (data.shape[batch],):
        raise ModelError(f"its lengths of shape {lengths.shape} do not fit data of shape {data.shape}")
    shape = tuple(data.shape[d] if d == batch else 1 for d in range(2))
    length = c.reshape(c.cast(lengths, "int32"), shape)
    at = positions(c, data.shape[time], 2, time)
    turned = c.call("subtract", c.call("subtract", length, c.scalar(1, at)), at)
    place = c.call("where", c.call("less", at, length), turned, at)
    own = positions(c, data.shape[batch], 2, batch)
    return rows(c, data, [place, own] if time == 0 else [own, place])


def _tensor_scatter(c: Context) -> Expr:
    """A cache, part of which an update replaces: from ``write_indices`` on along the axis, for each of the batch."""
    past, update = c.expr(0), c.expr(1)
    rank, mode = len(past.shape), c.node.text("mode", "linear")
    axis = normalise_axis(c.node.integer("axis", -2), rank)
    fits = len(update.shape) == rank and all(
        part == whole or (d == axis and part < whole)
        for d, (part, whole) in enumerate(zip(update.shape, past.shape, strict=False))
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
    taken = rows(c, update, [*others, limited])
    mask = c.reshape(new, (*new.shape, *(1 for _ in past.shape[axis + 1 :])))
    return c.call("where", mask, taken, past)


GATHER: Mapping[str, Converter] = {
    "GatherElements": _gather_elements,
    "GatherND": _gather_nd,
    "MaxUnpool": _max_unpool,
    "ReverseSequence": _reverse_sequence,
    "ScatterElements": _scatter_elements,
    "ScatterND": _scatter_nd,
    "TensorScatter": _tensor_scatter,
}
