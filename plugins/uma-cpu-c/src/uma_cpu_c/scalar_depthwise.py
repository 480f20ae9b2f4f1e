"""Convolutions of small integers with one filter for each channel, on cores without vectors: channel by channel.

A channel is copied to a plane with borders first, where what lies side by side in the picture does so in memory. A few
pixels of a row are summed up in registers, over all taps. The plane is all that is needed besides: the result may take
the place of the data.
"""

from __future__ import annotations

from uma.hookspecs import Declined, Fusion, ScheduledKernel
from uma.tir import Expr, Imm, Select, te

from .scalar_products import Core
from .schedules import is_known, planned

__all__ = ["small_planes"]

_MOST_TAPS = 16
"""Of a window that is written out: a larger one stays a loop over its rows."""


def small_planes(fusion: Fusion, core: Core) -> ScheduledKernel | Declined | None:
    """The loops of a fusion whose anchor is a convolution of two dimensions with one filter for each channel; or why it
    has no form here, None where it is none of these.

    Args:
        fusion: whose anchor it is.
        core: that computes it.
    """
    call = fusion.anchor
    assert call is not None
    attrs, (data, weight) = call.attrs, (fusion.tensors.by_expr[arg][0] for arg in call.args)
    channels = data.shape[-1]
    if not (is_known(fusion) and len(attrs.strides) == 2 and attrs.groups == channels == call.shape[-1] > 1):
        return None
    if data.dtype not in ("int8", "uint8", "int16"):
        return Declined(f"no planes of channels: its data is {data.dtype}, not int8, uint8, int16")
    if attrs.kernel_zero_point:
        return Declined(f"no planes of channels: its weights are around {attrs.kernel_zero_point}, not 0")
    (batch, height, width, _), (rows, columns) = data.shape, weight.shape[:2]
    top, left, bottom, right = attrs.padding
    zero, (down, along), (far, apart) = attrs.input_zero_point, attrs.strides, attrs.dilation

    def bordered(n: Expr, c: Expr, y: Expr, x: Expr) -> Expr:
        there = (y >= top) & (y < top + height) & (x >= left) & (x < left + width)
        return Select(there, data[n, y - top, x - left, c], Imm(zero, data.dtype))

    plane = te.compute((batch, channels, height + top + bottom, width + left + right), bordered, "plane")
    packed = te.compute((channels, rows, columns), lambda c, i, j: weight[i, j, 0, c], "packed")
    taps = tuple(te.reduce_axis(extent, name) for extent, name in ((rows, "t0"), (columns, "t1")))

    def total(n: Expr, c: Expr, y: Expr, x: Expr) -> te.Reduction:
        value = plane[n, c, y * down + taps[0] * far, x * along + taps[1] * apart].astype("int32")
        return te.sum(value * packed[c, taps[0], taps[1]].astype("int32"), taps)

    sums = te.compute((batch, channels, *call.shape[1:3]), total, "product")
    weights = te.compute(
        (channels,), lambda c: te.sum(packed[c, taps[0], taps[1]].astype("int32"), taps), "weight_sums"
    )

    def centred(n: Expr, y: Expr, x: Expr, c: Expr) -> Expr:
        return weights[c] * -zero + sums[n, c, y, x] if zero else sums[n, c, y, x]

    nest = planned(fusion, sums, te.compute(call.shape, centred, "centred"), packed, (plane,), None)
    if nest is None:
        return Declined("no planes of channels: what follows it has stages of its own, or needs no sums")
    s = nest.schedule
    _, c, y, x, *reduction = s.loops(nest.product)
    if fusion.by_rows:
        s.reorder(y, c)
    s.compute_at(nest.kernel.labels[plane], c)
    s.set_scope(s.store_at(nest.kernel.buffers[plane], c)[0], "global")
    last = s.loops(nest.last)
    s.reorder(last[0], *([last[1], last[3]] if fusion.by_rows else [last[3], last[1]]), last[2])
    at, pixel = s.split(x, core.pixels_of(call.shape[2]), tail="peel")
    start = s.decompose_reduction(nest.product, pixel)
    s.reorder(*reduction, pixel)
    s.reverse_compute_at(nest.last, at)
    s.cache_write(nest.product, nest.sums, "register", at=at)
    for label in (start, nest.product, nest.last):
        s.unroll(s.loops(label)[-1])
    if rows * columns <= _MOST_TAPS and core.pixels > 1 and not core.is_brief:
        for loop in reduction:
            s.unroll(loop)
    return nest.scheduled()
