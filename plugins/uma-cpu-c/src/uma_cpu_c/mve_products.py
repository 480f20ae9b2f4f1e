"""Products of int8 on cores with M-profile vectors: tiles of three pixels by whole loops of ``uma_mve.h``.

The data is multiplied as memory holds it: borders are filled with its zero point, and what that adds to the sums is
known with the weights, and part of the bias. Windows are laid out pixel by pixel, so that each sum goes along one run.
"""

from __future__ import annotations

from dataclasses import replace

from uma.hookspecs import Fusion, ScheduledKernel
from uma.tir import te
from uma.tir.schedule import Schedule

from .mve_epilogue import Requantised, requantised
from .mve_forms import PIXELS, dots, requantise
from .mve_strips import Element, Strip, borders, bring, taps_of, tensorized, weight_of

__all__ = ["mve_products"]

_MOST_CHANNELS = 128
"""Channels of a tile: its sums lie on the stack."""
_FEWEST_CHANNELS = 16
"""Of a tile, where there are more."""


def mve_products(fusion: Fusion) -> ScheduledKernel | str:
    """The loops of a fusion whose anchor is a convolution, or a product with a matrix of weights, of int8 by weights
    that are known and have no zero point; or why it has no form here.

    Raises:
        ScheduleError: loops are not instruction.
    """
    call = fusion.anchor
    assert call is not None
    name = (call.op_name or "").rpartition(".")[2]
    data, weight = (fusion.tensors.by_expr[arg][0] for arg in call.args)
    if name == "dense":
        taps, strip = data.shape[-1], None
        element: Element = lambda *i: data[i]  # noqa: E731 - as short as its use
        packed = weight
    else:
        taps, strip = taps_of(weight), Strip.from_call(call, data, weight)
        packed = te.compute((call.shape[-1], taps), lambda o, k: weight_of(weight, o, k), "packed")
        element = strip.patch if strip.is_copied else strip.pixel
    axis = te.reduce_axis(taps, "k")
    sums = te.compute(
        call.shape,
        lambda *i: te.sum(element(*i[:-1], axis).astype("int32") * packed[i[-1], axis].astype("int32"), axis),
        "sums",
    )
    epilogue = requantised(fusion, sums, (taps,), lambda *i: packed[i], call.attrs.input_zero_point)
    stages = [] if strip is None or not strip.is_copied else [strip.padded, strip.patches]
    return _scheduled(fusion, epilogue, sums, taps, [one for one in stages if one is not None], strip)


def _scheduled(
    fusion: Fusion,
    epilogue: Requantised,
    sums: te.Tensor,
    taps: int,
    stages: list[te.Tensor],
    strip: Strip | None,
) -> ScheduledKernel | str:
    """The loops of sums and what follows, by tiles; or why not."""
    kernel = epilogue.kernel(fusion, [*stages, sums])
    rest = [tensor for tensor in kernel.labels if tensor is not sums and tensor not in stages]
    is_plain = sums in kernel.labels and len(rest) == 2 - epilogue.is_last and rest[-1].shape == sums.shape
    if not is_plain or not all(stage in kernel.labels for stage in stages):
        return "what follows it has stages of its own, or needs no sums"
    channels = sums.shape[-1]
    block = max(n for n in range(1, _MOST_CHANNELS + 1) if channels % n == 0)
    if block < min(channels, _FEWEST_CHANNELS):
        return f"its {channels} channels go {block} at a time, which is not {_FEWEST_CHANNELS} to {_MOST_CHANNELS}"
    s = Schedule(kernel.func)
    labels, buffers = kernel.labels, kernel.buffers
    *outer, pixel, channel, _ = s.loops(labels[sums])
    pixels = min(PIXELS, sums.shape[-2])
    at, pixel = s.split(pixel, pixels, tail="peel")
    blocks, channel = s.split(channel, block)
    s.reorder(*outer, at, blocks, pixel, channel)
    for tensor in rest:
        s.reverse_compute_at(labels[tensor], blocks)
    s.store_at([buffers[sums], *([] if epilogue.is_last else [buffers[rest[0]]])], blocks)
    if strip is not None and stages:
        bring(s, kernel, strip, at, outer[-1])
    tensorized(s, pixel, dots(pixels, block, taps))
    if epilogue.rounding is not None:
        *_, over, _ = s.loops(labels[epilogue.tensor if not epilogue.is_last else rest[-1]])
        tensorized(s, over, requantise(pixels, block, epilogue.rounding))
    func = s.func
    if strip is not None and stages and strip.padded is not None:
        func = borders(func, labels[strip.padded], strip.zero)
    return ScheduledKernel(replace(kernel, func=func))
