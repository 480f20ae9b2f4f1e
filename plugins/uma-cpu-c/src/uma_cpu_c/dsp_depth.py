"""Convolutions of int8 with a window of three by three for each channel, for the DSP extension of Arm: row by row, four
channels of a pixel at a time, without a copy of the data.
"""

from __future__ import annotations

from functools import cache

from uma.tir import (
    INDEX,
    Alloc,
    Axis,
    Block,
    Buffer,
    Exec,
    Expr,
    For,
    Imm,
    Intrinsic,
    Param,
    PrimFunc,
    Select,
    Store,
    Update,
    Var,
    View,
    maximum,
    minimum,
    seq,
    te,
)

from .dsp_forms import scaled
from .dsp_layers import Layer, Refused

__all__ = ["WORDS", "depth_rows"]

WORDS = 34
"""Of what is known of four channels: 4 of sums to begin with, 18 of weights, 12 of scales."""

_ALIGNMENT = 16
_HEADER = "uma_dsp_depth.h"


def depth_rows(layer: Layer, data: te.Tensor, weight: te.Tensor, numbers: te.Tensor) -> te.Kernel:
    """The loops of a layer that has a window of three by three for each channel, over one picture, by rows.

    Args:
        layer: rounded twice.
        data: ``(1, height, width, channels)``.
        weight: ``(3, 3, 1, channels)``.
        numbers: what is known of each channel, as the products have it.

    Raises:
        Refused: its channels are not a multiple of four.
    """
    (_, height, width, channels), (_, down, across, _) = data.shape, layer.call.shape
    attrs = layer.call.attrs
    if channels % 4:
        raise Refused(f"its {channels} channels are not a multiple of 4, and go four at a time")
    (stride_down, stride), (top, left, _, _) = attrs.strides, attrs.padding
    parameters = _parameter_table(weight, numbers, channels)
    zeros = te.compute((channels,), lambda _: Imm(attrs.input_zero_point, "int8"), "zeros")
    x, out = Buffer("x0", (height, width, channels), "int8"), Buffer("out0", (down, across, channels), "int8")
    q = Buffer("w0", parameters.shape, "int32", alignment=_ALIGNMENT)
    z = Buffer("w1", zeros.shape, "int8", alignment=_ALIGNMENT)
    row, none = Var("i0"), Imm(0, INDEX)
    begin = row * stride_down - top
    first = minimum(maximum(begin, none), Imm(height - 1, INDEX))
    pixels = (Axis(1, 1), Axis(2, 1))
    instruction = Exec(
        depth((height, width, channels), across, stride, left),
        (
            View(out, (row, none, none), pixels),
            View(x, (first, none, none), (Axis(0, 1), *pixels)),
            View(z, (none,), (Axis(0, 1),)),
            View(q, (none, none), (Axis(0, 1), Axis(1, 1))),
        ),
        (first - begin, Imm(height, INDEX) - begin),
    )
    body = Block("depth", For(row, Imm(down, INDEX), instruction))
    params = (Param(x, "input"), Param(out, "output"), Param(q, "constant"), Param(z, "constant"))
    return te.Kernel(PrimFunc(params, body), (parameters, zeros))


def _parameter_table(weight: te.Tensor, numbers: te.Tensor, channels: int) -> te.Tensor:
    """What is known of four channels each, in the order in which it is read."""
    fours = channels // 4

    def taps(four: Expr, word: Expr) -> Expr:
        tap, channel = word // 2, four * 4 + word % 2

        def twice(o: Expr) -> Expr:
            value: Expr = weight[tap // 3, tap % 3, 0, o].astype("int32")
            return value * 2

        low = twice(channel)
        return twice(channel + 2) * 65536 + Select(low < 0, low + 65536, low)

    return te.assemble(
        (fours, WORDS),
        "int32",
        (
            ((0, 0), (fours, 4), lambda four, i: numbers[four * 4 + i, 0]),
            ((0, 4), (fours, 18), taps),
            ((0, 22), (fours, 12), lambda four, i: numbers[four * 4 + i // 3, i % 3 + 1]),
        ),
        "known",
    )


@cache
def depth(picture: tuple[int, int, int], across: int, stride: int, left: int) -> Intrinsic:
    """A row of ``across`` pixels. The rows of the window from ``above`` up to ``end`` are in the picture, which is
    given from the first of these on.

    Args:
        picture: height, width, channels.
        across: pixels of the row.
        stride: columns from one window to the next.
        left: columns of the first window before the picture.
    """
    _, width, channels = picture
    fours = channels // 4
    out, image = Buffer("out", (across, channels), "int8"), Buffer("image", picture, "int8")
    zeros, q = Buffer("zeros", (channels,), "int8"), Buffer("q", (fours, WORDS), "int32")
    above, end, x, four, half, odd, r, k = (Var(n) for n in ("above", "end", "x", "n", "h", "j", "r", "k"))
    total, none = Buffer("s", (1,), "int32", "local"), Imm(0, INDEX)
    lane = half * 2 + odd
    channel, column = four * 4 + lane, x * stride + k - left
    inside = (r >= above) & (r < end) & (column >= 0) & (column < width)
    value = Select(inside, image[r - above, column, channel], zeros[channel]).astype("int32")
    word: Expr = q[four, (r * 3 + k) * 2 + odd + 4]
    weight = Select(half < 1, word.astype("int16").astype("int32"), word >> 16)
    step = Update("add", total, (none,), value * weight)
    at = lane * 3 + 22
    rounded = scaled(total[none], q[four, at], q[four, at + 1], q[four, at + 2], True)
    body = seq(
        Store(total, (none,), q[four, lane]),
        For(r, Imm(3, INDEX), For(k, Imm(3, INDEX), step)),
        Store(out, (x, channel), rounded),
    )
    body = For(four, Imm(fours, INDEX), For(half, Imm(2, INDEX), For(odd, Imm(2, INDEX), Alloc(total, body))))
    sizes = ", ".join(map(str, (width, channels, stride, left, across)))
    text = f"uma_dsp_depth({{out}}, {{image}}, {{zeros}}, {{q}}, {{above}}, {{end}}, {sizes})"
    name = "_".join(map(str, ("dsp_depth", *picture, across, stride, left)))
    return Intrinsic(
        name, (out, image, zeros, q), (above, end), For(x, Imm(across, INDEX), body), statement=text, include=_HEADER
    )
