"""Convolutions of int8 in which each channel has data of its own, on cores with M-profile vectors."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from uma.hookspecs import Fusion, ScheduledKernel
from uma.tir import INDEX, Expr, Imm, Select, minimum, te
from uma.tir.schedule import Schedule

from .mve_epilogue import requantised
from .mve_forms import LANES, window
from .mve_strips import Strip, borders, stored, tensorized

__all__ = ["mve_windows"]

_LEAST = -127
"""Of the weights: two products with bytes fit 16 bits then, added."""

_FEWEST = 5
"""Channels at a time: with fewer, other loops are as good."""


def mve_windows(fusion: Fusion, weights: np.ndarray) -> ScheduledKernel | str:
    """The loops of a fusion whose anchor is a convolution of int8 with one filter for each channel, so many channels at
    a time, a row by one instruction; or why not: few channels would go at once, a weight is -128, or what follows is
    not one requantisation of which there is a form.

    Args:
        fusion: whose anchor it is.
        weights: of the anchor, int8, without a zero point.

    Raises:
        ScheduleError: loops are not instruction.
    """
    call = fusion.anchor
    assert call is not None
    attrs, channels = call.attrs, call.shape[-1]
    lanes = max(n for n in range(1, LANES + 1) if channels % n == 0)
    if lanes < min(channels, _FEWEST):
        return f"its {channels} channels go {lanes} at a time, which is not {_FEWEST} to {LANES}"
    if weights.min() < _LEAST:
        return f"a weight is {weights.min()}, and two products with bytes do not fit 16 bits"
    data, weight = (fusion.tensors.by_expr[arg][0] for arg in call.args)
    strip, is_picture = Strip.from_call(call, data, weight), len(attrs.strides) == 2
    rows, columns = weight.shape[0] if is_picture else 1, weight.shape[-3]
    row_stride, row_dilation = (attrs.strides[0], attrs.dilation[0]) if is_picture else (1, 1)
    none = Imm(0, INDEX)

    def weight_at(o: Expr, r: Expr, k: Expr) -> Expr:
        value: Expr = weight[(r, k, none, o) if is_picture else (k, none, o)]
        return value

    def lying(b: Expr, r: Expr, k: Expr, lane: Expr) -> Expr:
        if lanes == LANES:
            return weight_at(b * LANES + lane, r, k)
        last = Imm(lanes - 1, INDEX)
        return Select(lane < lanes, weight_at(b * lanes + minimum(lane, last), r, k), Imm(0, "int8"))

    packed = te.compute((channels // lanes, rows, columns, LANES), lying, "packed")
    axes = (te.reduce_axis(rows, "r"), te.reduce_axis(columns, "k"))

    def total(*index: Expr) -> te.Reduction:
        n, *y, x, o = index
        at = (y[0] if y else none) * row_stride + axes[0] * row_dilation
        first = (x * attrs.strides[-1] + axes[1] * attrs.dilation[-1]) * channels
        value = strip.rows(n, at, first + o).astype("int32")
        return te.sum(value * packed[o // lanes, axes[0], axes[1], o % lanes].astype("int32"), axes)

    sums = te.compute(call.shape, total, "sums")
    epilogue = requantised(fusion, sums, (rows, columns), weight_at, attrs.input_zero_point, lanes)
    if epilogue.rounding is None or not epilogue.is_last:
        return "what follows it is not one requantisation to int8 that has a form"
    kernel = epilogue.kernel(fusion, [sums, *([] if strip.padded is None else [strip.padded])])
    labels, buffers = kernel.labels, kernel.buffers
    last = [tensor for tensor in labels if tensor not in (sums, strip.padded)]
    if sums not in labels or len(last) != 1:
        return "what follows it has stages of its own, or needs no sums"
    s = Schedule(kernel.func)
    *outer, pixel, channel, _, _ = s.loops(labels[sums])
    block, lane = s.split(channel, lanes)
    s.reorder(*outer, block, pixel, lane)
    s.reverse_compute_at(labels[last[0]], lane)
    s.store_at(buffers[sums], lane)
    if strip.padded is not None:
        stored(s, kernel, strip.padded, outer[-1])
        strip.part(s, s.loops(labels[strip.padded])[-1])
    tensorized(s, pixel, window(call.shape[-2], lanes, rows, columns, epilogue.rounding))
    func = s.func if strip.padded is None else borders(s.func, labels[strip.padded], strip.zero)
    return ScheduledKernel(replace(kernel, func=func))
