"""Transposed convolutions, as convolutions: each phase of the result has taps of its own.

Along a dimension with stride s, element s * q + p of what a transposed convolution spreads out is the sum over j of
``data[q - j] * weight[s * j + p]``: for each p a convolution of stride 1, all of which are the channels of one.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

from ...errors import ModelError
from ...relay.evaluate import evaluate
from ...relay.expr import Constant, Expr, Function
from .context import Context, Converter
from .windows import channels_first, channels_last

__all__ = ["TRANSPOSED"]


def _spread(c: Context, data: Expr, axis: int, step: int) -> Expr:
    """``data`` with ``step - 1`` zeros between its elements along an axis."""
    if step == 1:
        return data
    shape, rank = data.shape, len(data.shape)
    apart = c.reshape(data, (*shape[: axis + 1], 1, *shape[axis + 1 :]))
    width = [0] * (2 * rank + 2)
    width[rank + 1 + axis + 1] = step - 1
    wide = c.call("nn.pad", apart, pad_width=width)
    flat = c.reshape(wide, (*shape[:axis], shape[axis] * step, *shape[axis + 1 :]))
    end = [(extent - 1) * step + 1 if d == axis else extent for d, extent in enumerate(shape)]
    return c.call("strided_slice", flat, begin=[0] * rank, end=end, strides=[1] * rank)


def _phases(c: Context, weight: Expr, strides: Sequence[int], dilation: Sequence[int], groups: int) -> Expr:
    """The weight (in, out / groups, taps...) as that of the convolution: (taps of a phase..., in / groups, groups *
    phases... * out / groups).
    """
    rank = len(strides)
    for d in range(rank):
        weight = _spread(c, weight, d + 2, dilation[d])
    depth, wide, *taps = weight.shape
    own = [-(-k // s) for k, s in zip(taps, strides, strict=True)]
    missing = [j * s - k for j, s, k in zip(own, strides, taps, strict=True)]
    if any(missing):
        weight = c.call("nn.pad", weight, pad_width=(*(0 for _ in weight.shape), 0, 0, *missing))
    pairs = [extent for pair in zip(own, strides, strict=True) for extent in pair]
    apart = c.reshape(weight, (groups, depth // groups, wide, *pairs))
    first, last = [3 + 2 * d for d in range(rank)], [4 + 2 * d for d in range(rank)]
    begin = [extent - 1 if d in first else 0 for d, extent in enumerate(apart.shape)]
    end = [-1 if d in first else extent for d, extent in enumerate(apart.shape)]
    steps = [-1 if d in first else 1 for d in range(len(apart.shape))]
    turned = c.call("strided_slice", apart, begin=begin, end=end, strides=steps)
    ordered = c.call("transpose", turned, axes=(*first, 1, 0, *last, 2))
    return c.reshape(ordered, (*own, depth // groups, groups * math.prod(strides) * wide))


def transposed(
    c: Context,
    data: Expr,
    weight: Expr,
    strides: Sequence[int],
    dilation: Sequence[int],
    begin: Sequence[int],
    extents: Sequence[int],
    groups: int,
) -> Expr:
    """A transposed convolution, channels last.

    Args:
        c: the node.
        data: (batch, in, spatial...).
        weight: (in, out / groups, taps...).
        strides, dilation: per dimension.
        begin: what is cut off in front of what is spread out; zeros are added where it is negative.
        extents: of the result's spatial dimensions; zeros are added behind where there is nothing.
        groups: of channels.
    """
    rank, wide = len(strides), weight.shape[1]
    made_weight = _phases(c, weight, strides, dilation, groups)
    if isinstance(weight, Constant):
        made_weight = c.constant(evaluate(Function((), made_weight), {})[0])
    own = made_weight.shape[:rank]
    around = [j - 1 for j in own] * 2
    x = channels_last(c, data)
    made: Expr = c.call(f"nn.conv{rank}d", x, made_weight, padding=around, groups=groups)
    batch, *counts, _ = made.shape
    apart = c.reshape(made, (batch, *counts, groups, *strides, wide))
    pairs = (axis for d in range(rank) for axis in (1 + d, 2 + rank + d))
    ordered = c.permute(apart, (0, *pairs, 1 + rank, 2 + 2 * rank))
    whole = c.reshape(ordered, (batch, *(q * s for q, s in zip(counts, strides, strict=True)), groups * wide))
    first = [max(b, 0) for b in begin]
    last = [min(b + e, n) for b, e, n in zip(begin, extents, whole.shape[1:], strict=False)]
    if min(e - f for f, e in zip(first, last, strict=True)) < 1:
        raise ModelError(f"its result of {tuple(extents)} elements has none of the data")
    cut = {"begin": (0, *first, 0), "end": (batch, *last, whole.shape[-1]), "strides": (1,) * (rank + 2)}
    made = c.call("strided_slice", whole, **cut)
    before = [max(-b, 0) for b in begin]
    after = [e - f - (n - m) for e, f, n, m in zip(extents, before, last, first, strict=True)]
    if any((*before, *after)):
        made = c.call("nn.pad", made, pad_width=(0, *before, 0, 0, *after, 0))
    return made


def _numbers(c: Context, name: str, rank: int, default: int, least: int) -> tuple[int, ...]:
    given = c.node.integers(name, (default,) * rank)
    if len(given) != rank or min(given) < least:
        raise ModelError(f"it has {name} {given} for {rank} spatial dimensions")
    return given


def _conv_transpose(c: Context) -> Expr:
    data, weight = c.expr(0), c.expr(1)
    rank, groups = len(data.shape) - 2, c.node.integer("group", 1)
    if len(weight.shape) != len(data.shape) or rank < 1:
        raise ModelError(f"its weight of shape {weight.shape} does not fit data of shape {data.shape}")
    if groups < 1 or data.shape[1] % groups or weight.shape[0] != data.shape[1]:
        raise ModelError(f"its weight of shape {weight.shape} does not fit {data.shape[1]} channels in {groups} groups")
    kernel = c.node.integers("kernel_shape", weight.shape[2:])
    if kernel != weight.shape[2:]:
        raise ModelError(f"it has kernel_shape {kernel} and a weight of shape {weight.shape}")
    strides, dilation = _numbers(c, "strides", rank, 1, 1), _numbers(c, "dilations", rank, 1, 1)
    behind = _numbers(c, "output_padding", rank, 0, 0)
    pads = c.node.integers("pads", (0,) * 2 * rank)
    if len(pads) != 2 * rank:
        raise ModelError(f"it has pads {pads} for {rank} spatial dimensions")
    mode = c.node.text("auto_pad", "NOTSET")
    if mode not in ("NOTSET", "SAME_LOWER", "SAME_UPPER", "VALID"):
        raise ModelError(f"it has the unknown auto_pad {mode!r}")
    whole = [
        (n - 1) * s + (k - 1) * d + 1 + o
        for n, s, k, d, o in zip(data.shape[2:], strides, kernel, dilation, behind, strict=True)
    ]
    begin = list(pads[:rank]) if mode == "NOTSET" else [0] * rank
    extents = [n - b - a for n, b, a in zip(whole, begin, pads[rank:] if mode == "NOTSET" else begin, strict=True)]
    if c.node.has("output_shape") or mode.startswith("SAME"):
        same = tuple(n * s for n, s in zip(data.shape[2:], strides, strict=True))
        extents = list(c.node.integers("output_shape", same))[-rank:]
        if len(extents) != rank:
            raise ModelError(f"it has an output_shape of {len(extents)} numbers for {rank} spatial dimensions")
        total = [max(n - e, 0) for n, e in zip(whole, extents, strict=True)]
        begin = [t // 2 if mode == "SAME_UPPER" else t - t // 2 for t in total]
    if min(extents) < 1:
        raise ModelError(f"its result has the impossible extents {tuple(extents)}")
    made = transposed(c, data, weight, strides, dilation, begin, extents, groups)
    if c.has(2):
        bias = c.expr(2)
        if bias.shape != made.shape[-1:]:
            raise ModelError(f"it has a bias of shape {bias.shape} for {made.shape[-1]} channels")
        made = c.call("add", made, bias)
    return channels_first(c, made)


def _col_to_im(c: Context) -> Expr:
    """Blocks added up where they are in an image: a transposed convolution each of whose weights picks one element."""
    import numpy as np

    data, image, block = c.expr(0), c.known_integers(1), c.known_integers(2)
    rank, taps = len(block), math.prod(block)
    strides, dilation = _numbers(c, "strides", rank, 1, 1), _numbers(c, "dilations", rank, 1, 1)
    pads = _numbers(c, "pads", 2 * rank, 0, 0)
    spans = [(k - 1) * d + 1 for k, d in zip(block, dilation, strict=True)]
    if len(image) != rank or min((*image, *block)) < 1 or len(data.shape) != 3 or data.shape[1] % taps:
        raise ModelError(f"its blocks {block} of images {image} do not fit data of shape {data.shape}")
    counts = [
        (extent + before + after - span) // stride + 1
        for extent, before, after, span, stride in zip(image, pads[:rank], pads[rank:], spans, strides, strict=True)
    ]
    if min(counts) < 1 or math.prod(counts) != data.shape[2]:
        raise ModelError(f"its data has {data.shape[2]} blocks, its images {tuple(counts)}")
    depth = data.shape[1]
    weight = np.zeros((depth, 1, *block), data.dtype)
    for channel, tap in enumerate(itertools.product(*map(range, block))):
        np.moveaxis(weight[channel::taps, 0], 0, -1)[tap] = 1
    x = c.reshape(data, (data.shape[0], depth, *counts))
    made = transposed(c, x, c.constant(weight), strides, dilation, pads[:rank], image, depth // taps)
    return channels_first(c, made)


TRANSPOSED: Mapping[str, Converter] = {"Col2Im": _col_to_im, "ConvTranspose": _conv_transpose}
