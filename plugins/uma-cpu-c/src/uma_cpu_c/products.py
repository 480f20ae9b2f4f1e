"""Convolutions and matrix products as one: sums over the taps of rows of numbers that lie side by side."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from uma.hookspecs import Fusion
from uma.relay import Call
from uma.tir import INDEX, Expr, Imm, Select, te

__all__ = [
    "LANES",
    "ROOM",
    "Element",
    "Index",
    "Operand",
    "Pieces",
    "Product",
    "bordered",
    "flat",
    "in_groups",
    "product_of",
    "split_group",
]

LANES = 4
"""The fewest of a vector."""

ROOM = 15
"""Channels beyond the last one that depthwise data have where their number is no multiple of `LANES`: what is there is
of the next pixel, and counts for nothing.
"""

_FEW = 192
"""Products for each number of the data that take no longer than its copy, of pixels of few channels."""
_FEW_CHANNELS = 8
_WIDE = 56
"""Pixels of a row of which most are in tiles that meet no border."""

Index = Sequence[Expr]
Element = Callable[..., Expr]
Pieces = list[tuple[Sequence[int], Sequence[int], Element]]


@dataclass(frozen=True)
class Operand:
    """How the data is brought to where it is multiplied.

    Args:
        dtype: of it there.
        offset: what is added to it.
        zero: padding, there.
        group: how many numbers of a row are multiplied at once: a row is read that far beyond its end.
        rows: whether rows with borders are made one by one, where they are read.
    """

    dtype: str
    offset: int = 0
    zero: int = 0
    group: int = 1
    rows: bool = False

    def convert(self, value: Expr) -> Expr:
        """A number of the model, as it is there."""
        if value.dtype == self.dtype:
            return value
        wide = value.astype("int32")
        return (wide + self.offset if self.offset else wide).astype(self.dtype)


@dataclass(frozen=True)
class Product:
    """``out[*outer, x, o]`` is the sum over ``taps`` of ``data(outer, x, taps, o) * weight(outer, taps, o)``.

    Args:
        shape: of the result; of one dimension it has no ``x``.
        taps: how far the sum goes, dimension by dimension; the last one runs along the data, but where it is depthwise.
        data: an element of the data, padding included.
        weight: an element of the weights, of the model's dtype.
        batches: how many of the first dimensions of ``outer`` the weights have.
        stages: tensors that need loops of their own.
        is_depthwise: whether each channel has data of its own; else they all have the same.
        inside: which steps of the sum are there, the others being of borders; None where all are.
        between: the first ``x`` whose taps are all inside their rows, and the first one after these.
        joined: how long the rows of the result are that are one row here, which ``x`` goes along; 0 where none are.
        groups: of channels, each with data of its own, which are the first dimension of ``shape`` if there are several.
        fresh: numbers of the data that the next row of a picture reads first; 0 where there are no rows.
        pitch: numbers of the data from what one ``x`` reads to what the next one does.
    """

    shape: tuple[int, ...]
    taps: tuple[int, ...]
    data: Callable[[Index, Expr, Index, Expr], Expr]
    weight: Callable[[Index, Index, Expr], Expr]
    batches: int
    stages: tuple[te.Tensor, ...]
    is_depthwise: bool = False
    inside: Callable[[Index, Expr, Index], Expr | None] | None = None
    between: tuple[int, int] = (0, 0)
    joined: int = 0
    groups: int = 1
    fresh: int = 0
    pitch: int = 0

    def less(self, zero: int, dtype: str) -> Callable[[Index, Index, Expr], Expr]:
        """An element of the weights less their zero point, of ``dtype``."""

        def weight(outer: Index, taps: Index, o: Expr) -> Expr:
            wide: Expr = self.weight(outer, taps, o).astype("int32")
            return (wide - zero if zero else wide).astype(dtype)

        return weight

    @property
    def row(self) -> int:
        """The taps of a row of the window where it is depthwise, else 0."""
        return self.taps[1] if self.is_depthwise else 0


def product_of(fusion: Fusion, operand: Operand, merged: int = 1) -> Product | None:
    """What the anchor of ``fusion``, a convolution or a matrix product, computes, as a product; None where it is none
    of this form: a product whose first operand is broadcast.

    Args:
        fusion: whose anchor it is.
        operand: how the data is read.
        merged: how many groups of channels of a convolution become one, a divisor of their number. A weight between
            channels of different groups stands for 0, so data must be finite: integers.
    """
    call = fusion.anchor
    assert call is not None
    data, weight = (fusion.tensors.by_expr[arg][0] for arg in call.args)
    name = (call.op_name or "").rpartition(".")[2]
    if name in ("conv1d", "conv2d"):
        return _convolution(fusion, call, data, weight, operand, merged)
    if name == "matmul" and not (data.shape[:-2] == call.shape[:-2] and weight.shape[:-2] in ((), call.shape[:-2])):
        return None
    rows, stages = _rows(data, operand)
    batches = 0 if name == "dense" else len(weight.shape) - 2

    def of_data(outer: Index, x: Expr, taps: Index, _: Expr) -> Expr:
        return rows[(*outer, *((x,) if len(rows.shape) > 1 else ()), *taps)]

    def of_weight(outer: Index, taps: Index, o: Expr) -> Expr:
        return weight[(o, *taps)] if name == "dense" else weight[(*outer[:batches], *taps, o)]

    return Product(call.shape, data.shape[-1:], of_data, of_weight, batches, stages, pitch=rows.shape[-1])


def _rows(data: te.Tensor, operand: Operand) -> tuple[te.Tensor, tuple[te.Tensor, ...]]:
    """The rows of a matrix, copied where they are converted or must have room behind them."""
    room = -data.shape[-1] % operand.group
    if data.dtype == operand.dtype and not room:
        return data, ()
    shape = (*data.shape[:-1], data.shape[-1] + room)
    origin = (0,) * len(shape)
    pieces: Pieces = [(origin, data.shape, lambda *i: operand.convert(data[i]))]
    if room:
        pieces.insert(0, (origin, shape, lambda *_: Imm(0, operand.dtype)))
    rows = te.assemble(shape, operand.dtype, pieces, "rows")
    return rows, (rows,)


def _convolution(
    fusion: Fusion, call: Call, data: te.Tensor, weight: te.Tensor, operand: Operand, merged: int
) -> Product:
    attrs, is_picture = call.attrs, len(call.attrs.strides) == 2
    # A convolution of one dimension is one of a picture of one row.
    batch, channels, width = data.shape[0], data.shape[-1], data.shape[-2]
    height, kernel_height = (data.shape[1], weight.shape[0]) if is_picture else (1, 1)
    kernel_width, stride, dilation = weight.shape[-3], attrs.strides[-1], attrs.dilation[-1]
    row_stride, row_dilation = (attrs.strides[0], attrs.dilation[0]) if is_picture else (1, 1)
    top, left, bottom, right = attrs.padding if is_picture else (0, attrs.padding[0], 0, attrs.padding[1])
    # Without dilation the taps of a row lie side by side.
    is_depthwise = attrs.groups == channels == call.shape[-1] > 1
    groups = 1 if is_depthwise else attrs.groups // merged
    is_run = groups == 1 and not is_depthwise and (dilation == 1 or kernel_width == 1)
    depth = 1 if is_depthwise else channels // groups
    taps = (kernel_height, kernel_width * channels) if is_run else (kernel_height, kernel_width, depth)
    is_odd = is_depthwise and channels % LANES != 0
    room = (ROOM if is_odd else 0) if is_depthwise else -taps[-1] % operand.group
    element_of, is_flat = flat(fusion, data)
    has_borders = any((top, left, bottom, right))
    # Where each pixel is alone, a picture is one row of them.
    is_joined = is_flat and height > 1 and not is_depthwise and not has_borders and not fusion.by_rows
    is_joined = is_joined and math.prod(weight.shape[:-2]) == stride == row_stride == 1
    # Several groups of channels read a large picture row by row, while it is in the cache.
    is_joined = is_joined and (groups == 1 or width < _WIDE)
    if is_joined:
        height, width = 1, height * width
        row = te.reshape(data, (batch, 1, width * channels))
        element_of = lambda n, y, i: row[n, y, i]  # noqa: E731 - as short as its use
    is_plain = is_flat and data.dtype == operand.dtype and not room
    # A pixel of which all taps are beyond the row would be a sum of no steps, which a tile cannot tell from others.
    rows = ([x * stride + tap * dilation - left for tap in range(kernel_width)] for x in range(call.shape[-2]))
    is_covered = all(any(0 <= at < width for at in taps_at) for taps_at in rows)
    # A first layer: a copy with borders would take as long as many of its products.
    is_light = is_run and operand.group == 1 and channels <= _FEW_CHANNELS and call.shape[-2] >= _WIDE
    is_light = is_light and kernel_height * kernel_width * call.shape[-1] <= _FEW * stride * row_stride
    if is_plain and (((is_depthwise or is_light) and is_covered) or not has_borders):
        stages: tuple[te.Tensor, ...] = ()
        element = element_of
    else:
        size = (height, width * channels)
        before, after = (top, left * channels), (bottom, right * channels + room)
        pad = _by_rows if operand.rows else _whole
        padded = pad(batch, size, before, after, element_of, operand)
        stages, element = (padded,), lambda *i: padded[i]

    def of_data(outer: Index, x: Expr, taps: Index, o: Expr) -> Expr:
        group, outer = split_group(outer, groups)
        y = outer[1] if len(outer) > 1 else Imm(0, INDEX)
        row, first = y * row_stride + taps[0] * row_dilation, x * (stride * channels)
        if groups > 1:
            # The constants of unrolled pixels come last, where compilers make them parts of addresses.
            first = group * depth + taps[-1] + taps[1] * (dilation * channels) + first
            return element(outer[0], row, first)
        if not is_run:
            first = first + taps[1] * (dilation * channels)
        if not stages:
            row, first = row - top, first - left * channels
        return element(outer[0], row, first + (o if is_depthwise else taps[-1]))

    def inside(outer: Index, x: Expr, taps: Index) -> Expr:
        y: Expr = outer[1] * row_stride + taps[0] * row_dilation if is_picture else Imm(0, INDEX)
        at: Expr = x * stride + (taps[1] // channels if is_run else taps[1] * dilation)
        there: Expr = (y >= top) & (y < top + height) & (at >= left) & (at < left + width)
        return there

    def of_weight(outer: Index, taps: Index, o: Expr) -> Expr:
        o = split_group(outer, groups)[0] * (call.shape[-1] // groups) + o if groups > 1 else o
        kx, c = (taps[1] // channels, taps[1] % channels) if is_run else (taps[1], taps[2])
        if merged == 1:
            return weight[(taps[0], kx, c, o) if is_picture else (kx, c, o)]
        wide = weight.shape[-2]
        value = weight[(taps[0], kx, c % wide, o) if is_picture else (kx, c % wide, o)]
        is_same = (c // wide).equal(o // (call.shape[-1] // attrs.groups) % merged)
        return Select(is_same, value, Imm(dict(attrs.items).get("kernel_zero_point", 0), value.dtype))

    asked = inside if has_borders and not stages else None
    between = (-(-left // stride), (width + left - (kernel_width - 1) * dilation - 1) // stride + 1)
    shape = (batch, width, call.shape[-1]) if is_joined else call.shape
    joined = data.shape[-2] if is_joined else 0
    fresh = row_stride * width * channels if len(shape) == 4 else 0
    return Product(
        in_groups(shape, groups),
        taps,
        of_data,
        of_weight,
        batches=int(groups > 1),
        stages=stages,
        is_depthwise=is_depthwise,
        inside=asked,
        between=between,
        joined=joined,
        groups=groups,
        fresh=fresh,
        pitch=stride * channels,
    )


def in_groups(shape: tuple[int, ...], groups: int) -> tuple[int, ...]:
    """Return the shape of a product in ``groups`` groups of channels, its first dimension if there are several.

    Args:
        shape: of the result of the convolution, the channels last.
        groups: of channels.
    """
    return (groups, *shape[:-1], shape[-1] // groups) if groups > 1 else shape


def split_group(outer: Index, groups: int) -> tuple[Expr, Index]:
    """Return the group of channels and the rest of ``outer``."""
    return (outer[0], outer[1:]) if groups > 1 else (Imm(0, INDEX), outer)


Sides = tuple[int, int]


def _whole(batch: int, size: Sides, before: Sides, after: Sides, element: Element, operand: Operand) -> te.Tensor:
    """Pictures with borders."""
    return te.assemble(*bordered(batch, size, before, after, element, operand), "padded")


def _by_rows(batch: int, size: Sides, before: Sides, after: Sides, value_at: Element, operand: Operand) -> te.Tensor:
    """The same element by element, so that a loop can make just the rows that it reads."""
    (height, width), (top, left), (bottom, right) = size, before, after

    def element(n: Expr, y: Expr, i: Expr) -> Expr:
        there = (y >= top) & (y < top + height) & (i >= left) & (i < left + width)
        return Select(there, operand.convert(value_at(n, y - top, i - left)), Imm(operand.zero, operand.dtype))

    return te.compute((batch, height + top + bottom, width + left + right), element, "padded")


def bordered(
    batch: int, size: tuple[int, int], before: tuple[int, int], after: tuple[int, int], value: Element, operand: Operand
) -> tuple[tuple[int, ...], str, Pieces]:
    """Shape, dtype and pieces of pictures with borders, which are all that is filled besides the copy."""
    (height, width), (top, left), (bottom, right) = size, before, after
    rows, columns = height + top + bottom, width + left + right
    pieces: Pieces = [
        (offset, extents, lambda *_: Imm(operand.zero, operand.dtype))
        for offset, extents in (
            ((0, 0, 0), (batch, top, columns)),
            ((0, top + height, 0), (batch, bottom, columns)),
            ((0, top, 0), (batch, height, left)),
            ((0, top, left + width), (batch, height, right)),
        )
        if 0 not in extents
    ]
    pieces.append(((0, top, left), (batch, height, width), lambda *i: operand.convert(value(*i))))
    return (batch, rows, columns), operand.dtype, pieces


def flat(fusion: Fusion, data: te.Tensor) -> tuple[Element, bool]:
    """An element of the data by batch, row, and number in the row; and whether that is how the kernel has it."""
    channels, is_picture = data.shape[-1], len(data.shape) == 4
    assert fusion.anchor is not None
    operand = fusion.anchor.args[0]
    is_shared = any(operand in call.args for call in fusion.calls if call is not fusion.anchor)
    if isinstance(data.definition, te.Placeholder) and not is_shared:
        height = data.shape[1] if is_picture else 1
        flat = te.reshape(data, (data.shape[0], height, data.shape[-2] * channels))
        return (lambda n, y, i: flat[n, y, i]), True
    if is_picture:
        return (lambda n, y, i: data[n, y, i // channels, i % channels]), False
    return (lambda n, y, i: data[n, i // channels, i % channels]), False
