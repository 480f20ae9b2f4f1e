"""Convolutions of small integers in which each channel has data of its own: products of several rows added at once."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cache

from uma.hookspecs import Fusion, Scheduled
from uma.tir import INDEX, Buffer, Expr, For, Imm, Intrinsic, Select, Update, Var, minimum, te

from .products import Operand, bordered, flat
from .schedules import in_registers, planned
from .units import Unit

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


def windows(fusion: Fusion, unit: Unit, features: Collection[str]) -> Scheduled | None:
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
    attrs, is_picture = call.attrs, len(call.attrs.strides) == 2
    # Weights less their zero point are no bytes.
    fitting = (rows for name, rows in _ROWS.items() if name in features)
    how = next((rows for rows in fitting if rows.weight == "int16" or not attrs.kernel_zero_point), None)
    if how is None:
        return None
    group = how.group
    data, weight = (fusion.tensors.of[arg][0] for arg in call.args)
    channels = data.shape[-1]
    # As few vectors as there can be; where their last one goes beyond the last channel, weights are 0.
    widths = [n for n in (unit.lanes, unit.lanes // 2, unit.lanes // 4) if n >= 4]
    blocks, lanes = min((-(-channels // n), n) for n in widths)
    beyond = blocks * lanes - channels
    kernel_height, kernel_width = weight.shape[0], weight.shape[1] if is_picture else 1
    if data.dtype != "int8" or weight.dtype != "int8" or not attrs.groups == channels == call.shape[-1]:
        return None
    stride, dilation = attrs.strides[0], attrs.dilation[0]
    top, left, bottom, right = attrs.padding if is_picture else (attrs.padding[0], 0, attrs.padding[1], 0)
    column_stride, column_dilation = (attrs.strides[1], attrs.dilation[1]) if is_picture else (1, 1)
    height, width = data.shape[1], data.shape[2] if is_picture else 1
    groups = -(-kernel_height // group)
    # So many rows of the result read no more groups than one does.
    rows = min((groups * group - kernel_height) // stride + 1, call.shape[1]) if dilation == 1 else 1
    pixels = _pixels(call.shape[2] if is_picture else 1, rows, kernel_width, column_stride, unit)
    up = 128 if how.data == "uint8" else 0
    operand = Operand(how.data, up, attrs.input_zero_point + up)
    read = (call.shape[1] - 1) // rows * rows * stride + (groups * group - 1) * dilation + 1
    room = max(0, read - (height + top + bottom))
    before, after = (top, left * channels), (bottom + room, right * channels + beyond)
    if is_picture:
        given, is_flat = flat(fusion, data)
    else:
        given, is_flat = (lambda *i: data[i]), isinstance(data.definition, te.Placeholder)
    stages: tuple[te.Tensor, ...] = ()
    element = given
    if not is_flat or data.dtype != operand.dtype or any((*before, *after)):
        made = bordered(data.shape[0], (height, width * channels), before, after, given, operand)
        padded = te.assemble(*made, "padded")
        stages, element = (padded,), lambda *i: padded[i]

    def of_weight(ky: Expr, kx: Expr, o: Expr) -> Expr:
        return weight[(ky, kx, Imm(0, INDEX), o) if is_picture else (ky, Imm(0, INDEX), o)]

    def packed_element(block: Expr, row: Expr, g: Expr, kx: Expr, lane: Expr, part: Expr) -> Expr:
        ky, o = g * group + part - row * stride, block * lanes + lane
        inside = (ky >= 0) & (ky < kernel_height)
        ky = minimum(-minimum(-ky, Imm(0, INDEX)), Imm(kernel_height - 1, INDEX))
        if beyond:
            inside, o = inside & (o < channels), minimum(o, Imm(channels - 1, INDEX))
        value: Expr = of_weight(ky, kx, o)
        if how.weight == "int16":
            wide = value.astype("int32")
            value = (
                (wide - attrs.kernel_zero_point).astype("int16") if attrs.kernel_zero_point else wide.astype("int16")
            )
        return Select(inside, value, Imm(0, value.dtype))

    shape = (blocks, rows, groups, kernel_width, lanes, group)
    packed = te.compute(shape, packed_element, "packed")
    axes = tuple(te.reduce_axis(extent, f"t{number}") for number, extent in enumerate((groups, kernel_width, group)))

    def total(*index: Expr) -> te.Reduction:
        n, y, *x, o = index
        g, kx, part = axes
        row = y // rows * (rows * stride) + (g * group + part) * dilation
        first = ((x[0] * column_stride if x else Imm(0, INDEX)) + kx * column_dilation) * channels
        value = element(n, row, first + o).astype("int32")
        return te.sum(value * packed[o // lanes, y % rows, g, kx, o % lanes, part].astype("int32"), axes)

    sums = te.compute((*call.shape[:-1], blocks * lanes), total, "product")
    anchor = _centred(sums, packed, call.shape, operand.zero)
    nest = planned(fusion, sums, anchor, packed, stages, unit)
    if nest is None:
        return None
    s = nest.schedule
    *outer, channel, over_groups, over_columns, part = s.loops(nest.product)
    vectors, lane = s.split(channel, lanes)
    block, vector = s.split(vectors, 1)
    row_at, row = s.split(outer[1], rows, tail="peel")
    order, inner = [outer[0], row_at], [row, vector, lane]
    if is_picture:
        pixel_at, pixel = s.split(outer[2], pixels, tail="peel")
        order, inner = [*order, pixel_at], [row, pixel, vector, lane]
    s.reorder(*order, block, *inner)
    in_registers(nest, block, [over_groups, over_columns], inner, [part], lanes, unit)
    for loop in (over_columns, *inner[:-1]):
        s.unroll(loop)
    s.tensorize(lane, _rows(how, lanes))
    return nest.scheduled()


def _pixels(width: int, rows: int, kernel_width: int, stride: int, unit: Unit) -> int:
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
