"""Operators that several formats have, composed of the core's ops."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..errors import ModelError
from ..relay.expr import Constant, Expr, const
from ..tir.form.dtype import bits
from ..tir.form.symbolic_dims import Dim, upper_bounds
from .builder import Builder

__all__ = [
    "bit_cast",
    "index_parts",
    "local_response",
    "one_hot",
    "positions",
    "repeated",
    "reversed_sequences",
    "rows",
    "scattered_rows",
]

# --- indices ---------------------------------------------------------------------------------------------------------


def positions(b: Builder, extent: Dim, rank: int, axis: int, dtype: str = "int32") -> Expr:
    """Return 0, 1, ... along one dimension of ``rank``."""
    import numpy as np

    b.reserve(extent)
    (count,) = upper_bounds((extent,))
    every = const(np.arange(count, dtype=dtype).reshape([-1 if d == axis else 1 for d in range(rank)]))
    if count == extent:
        return every
    end = [extent if d == axis else 1 for d in range(rank)]
    return b.call("strided_slice", every, begin=(0,) * rank, end=end, strides=(1,) * rank)


def index_parts(b: Builder, indices: Expr, count: int) -> list[Expr]:
    """Return the elements along the last dimension of ``indices``, which are ``count``, each without that dimension."""
    outer = indices.shape[:-1]
    parts: list[Expr] = []
    for number in range(count):
        if isinstance(indices, Constant):
            parts.append(const(indices.data[..., number]))
        else:
            begin, end = (*(0 for _ in outer), number), (*outer, number + 1)
            part = b.call("strided_slice", indices, begin=begin, end=end, strides=[1] * len(end))
            parts.append(b.reshape(part, outer))
    return parts


def _row_numbers(b: Builder, extents: Sequence[int], places: Sequence[Expr]) -> Expr:
    """Return the number in row-major order of the element of ``extents`` that places, which broadcast, name."""
    number: Expr | None = None
    for d, place in enumerate(places):
        step = b.scaled(place, math.prod(extents[d + 1 :]))
        number = step if number is None else b.call("add", number, step)
    assert number is not None
    return number


def rows(b: Builder, data: Expr, places: Sequence[Expr]) -> Expr:
    """Return what stands in ``data`` at places along its first dimensions: ``data[places[0], places[1], ...]``.

    Args:
        b: the operator.
        data: of any dtype.
        places: of one integer dtype, from the front, one for each of the first dimensions; they broadcast.

    Returns:
        The shape to which the places broadcast, then the other dimensions of the data.
    """
    leading, rest = data.shape[: len(places)], data.shape[len(places) :]
    return b.call("take", b.reshape(data, (math.prod(leading), *rest)), _row_numbers(b, leading, places), axis=0)


def scattered_rows(b: Builder, data: Expr, places: Sequence[Expr], updates: Expr, reduction: str) -> Expr:
    """Return ``data`` with the rows ``data[places[0], places[1], ...]`` changed by ``updates``.

    Args:
        b: the operator.
        data: of any dtype that `scatter` takes.
        places: as for `rows`, all of one shape.
        updates: the shape of a place, then the other dimensions of the data.
        reduction: that of `scatter`.

    Raises:
        ModelError: the updates have another shape.
    """
    leading, rest = data.shape[: len(places)], data.shape[len(places) :]
    outer = places[0].shape
    if updates.shape != (*outer, *rest):
        raise ModelError(f"its updates have the shape {updates.shape}, not {(*outer, *rest)}")
    count = math.prod(outer)
    flat = (math.prod(leading), math.prod(rest)), (count, 1), (count, math.prod(rest))
    operands = data, _row_numbers(b, leading, places), updates
    args = (b.reshape(arg, shape) for arg, shape in zip(operands, flat, strict=True))
    return b.reshape(b.call("scatter", *args, axis=0, reduction=reduction), data.shape)


def one_hot(b: Builder, indices: Expr, depth: int, on: Expr, off: Expr, axis: int) -> Expr:
    """Return a new dimension of ``depth`` at ``axis``: ``on`` at the place that the index names, else ``off``.

    Indices of int32 or int64 that are outside name no place; ``on`` and ``off`` are scalars of one dtype.
    """
    apart = b.reshape(indices, (*indices.shape[:axis], 1, *indices.shape[axis:]))
    is_place = b.call("equal", apart, positions(b, depth, len(apart.shape) - axis, 0, indices.dtype))
    return b.call("where", is_place, on, off)


def reversed_sequences(b: Builder, data: Expr, lengths: Expr, time: int, batch: int) -> Expr:
    """Return the data with the first elements of each sequence, as many as its length says, turned round.

    Args:
        b: the operator.
        data: of any dtype.
        lengths: integers, one for each element of dimension ``batch``.
        time, batch: the dimensions of the data along which a sequence goes, and sequences are counted.

    Raises:
        ModelError: the dimensions are one, or not of the data, or the lengths do not fit.
    """
    last = max(time, batch)
    if time == batch or not 0 <= min(time, batch) <= last < len(data.shape):
        raise ModelError(f"its sequences lie along axis {time}, those of axis {batch}, in data of shape {data.shape}")
    if lengths.shape != (data.shape[batch],):
        raise ModelError(f"its lengths of shape {lengths.shape} do not fit data of shape {data.shape}")
    rank = last + 1
    length = b.reshape(b.cast(lengths, "int32"), tuple(data.shape[d] if d == batch else 1 for d in range(rank)))
    at = positions(b, data.shape[time], rank, time)
    turned = b.call("subtract", b.call("subtract", length, b.scalar(1, at)), at)
    place = b.call("where", b.call("less", at, length), turned, at)
    return rows(b, data, [place if d == time else positions(b, data.shape[d], rank, d) for d in range(rank)])


# --- elements --------------------------------------------------------------------------------------------------------


def repeated(b: Builder, data: Expr, counts: Sequence[int], each: bool) -> Expr:
    """Return ``data`` repeated along every dimension: element by element, or as a whole.

    Raises:
        ModelError: a count is below 1.
    """
    if min(counts, default=1) < 1:
        raise ModelError(f"it repeats {tuple(counts)} times")
    apart: list[int] = []
    wide: list[int] = []
    for count, extent in zip(counts, data.shape, strict=True):
        if count > 1:
            apart += (extent, 1) if each else (1, extent)
            wide += (extent, count) if each else (count, extent)
        else:
            apart.append(extent)
            wide.append(extent)
    shape = [count * extent for count, extent in zip(counts, data.shape, strict=True)]
    return b.reshape(b.call("broadcast_to", b.reshape(data, apart), shape=wide), shape)


def bit_cast(b: Builder, data: Expr, dtype: str) -> Expr:
    """Return the same bits as another dtype of as many; a bool is a byte that is 0 or 1.

    Raises:
        ModelError: the dtype has another width.
    """
    if data.dtype == dtype:
        return data
    if data.dtype == "bool" and bits(dtype) == 8:
        return b.cast(data, dtype)
    return b.call("bitcast", data, dtype=dtype)


def local_response(
    b: Builder, data: Expr, axis: int, around: tuple[int, int], *, alpha: float, bias: float, beta: float
) -> Expr:
    """Return ``data / (bias + alpha * mean) ** beta``, mean that of the squares of a window along ``axis``.

    Args:
        b: the operator.
        data: floats.
        axis: the dimension of the channels.
        around: elements of the window before and behind each element; those outside are zeros, and count.
        alpha, bias, beta: as in the formula, which is that of Krizhevsky et al. 2012, 3.3.
    """
    shape = data.shape
    parts = b.reshape(data, (math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])))
    squares = b.call("multiply", parts, parts)
    window = {"pool_size": (sum(around) + 1,), "padding": around, "count_include_pad": True}
    mean = b.reshape(b.call("nn.avg_pool1d", squares, **window), shape)
    base = b.call("add", b.scaled(mean, alpha), b.scalar(bias, data))
    if beta == 0.75 and alpha >= 0 and bias > 0:
        root = b.call("sqrt", base)  # of a positive number: its power of 0.75 is by roots exact to two units
        return b.call("divide", data, b.call("multiply", root, b.call("sqrt", root)))
    return b.call("divide", data, b.call("power", base, b.scalar(beta, data)))
