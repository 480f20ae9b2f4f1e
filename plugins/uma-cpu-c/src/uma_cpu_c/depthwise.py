"""Convolutions of small integers in which each channel has data of its own: products of several rows added at once."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cache

from uma.hookspecs import Fusion, ScheduledKernel
from uma.relay import Call
from uma.tir import INDEX, Buffer, Expr, For, Imm, Intrinsic, Select, Update, Var, minimum, te

from .products import Element, Operand, bordered, flat
from .schedules import Nest, in_registers, planned
from .vector_units import VectorModel

__all__ = ["windows"]

_MOST_PIXELS = 8
_PAIRING = 1.5
"""What it takes to bring a column of rows together, in products; what is beside it in a tile uses it as well."""
_TAIL = 1.1
"""What a tail has to be better by: it is code of its own."""


@dataclass(frozen=True)
class _Rows:
    """How products of rows are added: so many at once, of data and weights of these dtypes."""

    group: int
    data: str
    weight: str


_ROWS: Mapping[str, _Rows] = {
    "avx512_vnni": _Rows(4, "uint8", "int8"),
    "avx_vnni": _Rows(4, "uint8", "int8"),
    "avx2": _Rows(2, "int8", "int16"),
    "asimddp": _Rows(4, "int8", "int8"),
    "asimd": _Rows(2, "int8", "int8"),
}
"""By the feature that a CPU has, the best first."""


@dataclass(frozen=True)
class _Window:
    """A convolution with one filter for each channel, as sums over groups of rows of a window.

    Args:
        how: its numbers are multiplied.
        shape: of the result.
        channels: of the data, and of the result.
        lanes: channels of a vector.
        height, width: of a picture; one of one dimension is one column.
        kernel: height and width of the window.
        strides, dilation: of rows and columns.
        padding: top, left, bottom, right.
        kernel_zero_point: of the weights.
    """

    how: _Rows
    shape: tuple[int, ...]
    channels: int
    lanes: int
    height: int
    width: int
    kernel: tuple[int, int]
    strides: tuple[int, int]
    dilation: tuple[int, int]
    padding: tuple[int, int, int, int]
    kernel_zero_point: int

    @property
    def is_picture(self) -> bool:
        """Whether there are columns."""
        return len(self.shape) == 4

    @property
    def blocks(self) -> int:
        """Vectors of channels."""
        return -(-self.channels // self.lanes)

    @property
    def beyond(self) -> int:
        """Channels of the last vector that the data does not have; weights are 0 there."""
        return self.blocks * self.lanes - self.channels

    @property
    def groups(self) -> int:
        """How many times rows are added for one column."""
        return -(-self.kernel[0] // self.how.group)

    @property
    def rows(self) -> int:
        """Rows of the result that together read no more groups than one does."""
        free = self.groups * self.how.group - self.kernel[0]
        return min(free // self.strides[0] + 1, self.shape[1]) if self.dilation[0] == 1 else 1


def windows(fusion: Fusion, unit: VectorModel, features: Collection[str]) -> ScheduledKernel | None:
    """The loops of a fusion whose anchor is a convolution of int8 with one filter for each channel; None where it has
    another form.

    A lane holds the numbers of two or four rows, one below the other, of a channel. What was loaded and put together
    once serves all columns of the kernel, and as many rows of the result as its rows are used by: the weights are
    packed for each of these, with zeros for rows that it does not read. A picture of one dimension is one column.

    Args:
        fusion: whose anchor it is.
        unit: of the CPU.
        features: of the CPU.
    """
    call = fusion.anchor
    assert call is not None
    data, weight = (fusion.tensors.by_expr[arg][0] for arg in call.args)
    window = _window_of(call, data, weight, unit, features)
    if window is None:
        return None
    up = 128 if window.how.data == "uint8" else 0
    operand = Operand(window.how.data, up, call.attrs.input_zero_point + up)
    element, stages = _data(fusion, data, window, operand)
    packed = _packed(weight, window)
    sums = _sums(element, packed, window)
    nest = planned(fusion, sums, _centred(sums, packed, call.shape, operand.zero), packed, stages, unit)
    if nest is None:
        return None
    _tile(nest, window, unit)
    return nest.scheduled()


def _window_of(
    call: Call, data: te.Tensor, weight: te.Tensor, unit: VectorModel, features: Collection[str]
) -> _Window | None:
    """``call`` as a window; None where it is of another form, or the CPU has nothing for it."""
    attrs, channels = call.attrs, data.shape[-1]
    # Weights less their zero point are not bytes.
    fitting = (rows for name, rows in _ROWS.items() if name in features)
    how = next((rows for rows in fitting if rows.weight == "int16" or not attrs.kernel_zero_point), None)
    if how is None or not data.dtype == weight.dtype == "int8" or not attrs.groups == channels == call.shape[-1]:
        return None
    # As few vectors as there can be.
    widths = [n for n in (unit.lanes, unit.lanes // 2, unit.lanes // 4) if n >= 4]
    _, lanes = min((-(-channels // n), n) for n in widths)
    shape, zero = tuple(call.shape), attrs.kernel_zero_point
    if len(attrs.strides) == 2:
        height, width = data.shape[1], data.shape[2]
        kernel, padding = (weight.shape[0], weight.shape[1]), attrs.padding
        strides, dilation = attrs.strides, attrs.dilation
    else:
        height, width = data.shape[1], 1
        kernel, padding = (weight.shape[0], 1), (attrs.padding[0], 0, attrs.padding[1], 0)
        strides, dilation = (attrs.strides[0], 1), (attrs.dilation[0], 1)
    return _Window(how, shape, channels, lanes, height, width, kernel, strides, dilation, padding, zero)


def _data(fusion: Fusion, data: te.Tensor, window: _Window, operand: Operand) -> tuple[Element, tuple[te.Tensor, ...]]:
    """An element of the data by batch, row, and number in the row, borders and what vectors read beyond them
    included; and the stages that this takes.
    """
    top, left, bottom, right = window.padding
    last = (window.shape[1] - 1) // window.rows * window.rows * window.strides[0]
    read = last + (window.groups * window.how.group - 1) * window.dilation[0] + 1
    room = max(0, read - (window.height + top + bottom))
    before = (top, left * window.channels)
    after = (bottom + room, right * window.channels + window.beyond)
    if window.is_picture:
        element, is_flat = flat(fusion, data)
    else:
        element, is_flat = (lambda *i: data[i]), isinstance(data.definition, te.Placeholder)
    if is_flat and data.dtype == operand.dtype and not any((*before, *after)):
        return element, ()
    size = (window.height, window.width * window.channels)
    padded = te.assemble(*bordered(data.shape[0], size, before, after, element, operand), "padded")
    return (lambda *i: padded[i]), (padded,)


def _packed(weight: te.Tensor, window: _Window) -> te.Tensor:
    """The weights by vector of channels, row of the result, group, column, lane, and row of the group."""
    (height, width), group, zero = window.kernel, window.how.group, window.kernel_zero_point
    none = Imm(0, INDEX)

    def element(block: Expr, row: Expr, g: Expr, kx: Expr, lane: Expr, part: Expr) -> Expr:
        ky, o = g * group + part - row * window.strides[0], block * window.lanes + lane
        inside = (ky >= 0) & (ky < height)
        ky = minimum(-minimum(-ky, none), Imm(height - 1, INDEX))
        if window.beyond:
            inside, o = inside & (o < window.channels), minimum(o, Imm(window.channels - 1, INDEX))
        value: Expr = weight[(ky, kx, none, o) if window.is_picture else (ky, none, o)]
        if window.how.weight == "int16":
            wide = value.astype("int32")
            value = (wide - zero).astype("int16") if zero else wide.astype("int16")
        return Select(inside, value, Imm(0, value.dtype))

    return te.compute((window.blocks, window.rows, window.groups, width, window.lanes, group), element, "packed")


def _sums(element: Element, packed: te.Tensor, window: _Window) -> te.Tensor:
    """The sums of products, for all lanes of all vectors."""
    extents = (window.groups, window.kernel[1], window.how.group)
    axes = tuple(te.reduce_axis(extent, f"t{number}") for number, extent in enumerate(extents))
    rows, lanes = window.rows, window.lanes

    def total(*index: Expr) -> te.Reduction:
        n, y, *x, o = index
        g, kx, part = axes
        row = y // rows * (rows * window.strides[0]) + (g * window.how.group + part) * window.dilation[0]
        at = (x[0] * window.strides[1] if x else Imm(0, INDEX)) + kx * window.dilation[1]
        value = element(n, row, at * window.channels + o).astype("int32")
        return te.sum(value * packed[o // lanes, y % rows, g, kx, o % lanes, part].astype("int32"), axes)

    return te.compute((*window.shape[:-1], window.blocks * lanes), total, "product")


def _tile(nest: Nest, window: _Window, unit: VectorModel) -> None:
    """Tiles of columns by rows by one vector of channels, in registers."""
    s = nest.schedule
    *outer, channel, over_groups, over_columns, part = s.loops(nest.product)
    vectors, lane = s.split(channel, window.lanes)
    block, vector = s.split(vectors, 1)
    row_at, row = s.split(outer[1], window.rows, tail="peel")
    order, inner = [outer[0], row_at], [row, vector, lane]
    if window.is_picture:
        pixels = _pixels(window.shape[2], window.rows, window.kernel[1], window.strides[1], unit)
        pixel_at, pixel = s.split(outer[2], pixels, tail="peel")
        order, inner = [*order, pixel_at], [row, pixel, vector, lane]
    s.reorder(*order, block, *inner)
    in_registers(nest, block, [over_groups, over_columns], inner, [part], window.lanes, unit)
    for loop in (over_columns, *inner[:-1]):
        s.unroll(loop)
    s.tensorize(lane, _rows(window.how, window.lanes))


def _pixels(width: int, rows: int, kernel_width: int, stride: int, unit: VectorModel) -> int:
    """How many columns of the result a tile has: accumulators, and the columns that are read, are in registers."""

    def held(pixels: int) -> int:
        return pixels * rows + pixels * min(stride, kernel_width) + 1

    def cost(pixels: int) -> float:
        read = (pixels - 1) * min(stride, kernel_width) + kernel_width
        return pixels * rows * kernel_width + _PAIRING * read

    def row(pixels: int) -> float:
        count, rest = divmod(width, pixels)
        return (count * cost(pixels) + (cost(rest) if rest else 0)) * (_TAIL if rest else 1)

    return min((p for p in range(1, min(width, _MOST_PIXELS) + 1) if p == 1 or held(p) <= unit.registers), key=row)


def _centred(sums: te.Tensor, packed: te.Tensor, shape: tuple[int, ...], zero: int) -> te.Tensor:
    """What the anchor gives, of ``shape``: the sums less what the data's zero adds to each, which is a number for each
    channel, known where the weights are.
    """
    if not zero:
        return te.compute(shape, lambda *i: sums[i], "anchor")
    lanes, axes = packed.shape[4], tuple(te.reduce_axis(packed.shape[dim], f"z{dim}") for dim in (2, 3, 5))
    weights = te.compute(
        shape[-1:],
        lambda o: te.sum(packed[o // lanes, 0, axes[0], axes[1], o % lanes, axes[2]].astype("int32"), axes),
        "weight_sums",
    )
    return te.compute(shape, lambda *i: weights[i[-1]] * -zero + sums[i], "centred")


@cache
def _rows(how: _Rows, lanes: int) -> Intrinsic:
    """``acc[l] += a[0, l] * w[l, 0] + .. + a[group - 1, l] * w[l, group - 1]``, in ``uma_dots.h``."""
    acc = Buffer("acc", (lanes,), "int32", "register")
    a, w = Buffer("a", (how.group, lanes), how.data), Buffer("w", (lanes, how.group), how.weight)
    lane, part = Var("l"), Var("r")
    term = a[part, lane].astype("int32") * w[lane, part].astype("int32")
    body = For(lane, Imm(lanes, INDEX), For(part, Imm(how.group, INDEX), Update("add", acc, (lane,), term)))
    name = f"{'s' if how.data == how.weight else ''}rows{how.group}"
    text = f"{{acc}} = UMA_{name.upper()}_i32x{lanes}({{acc}}, {{a}}, {{a_stride0}}, {{w}})"
    return Intrinsic(f"{name}x{lanes}", (acc, a, w), (), body, statement=text, include="uma_dots.h")
