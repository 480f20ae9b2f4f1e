"""Transposed convolutions, as convolutions: each phase of the result has taps of its own.

Along a dimension with stride s, element s * q + p of what a transposed convolution spreads out is the sum over j of
``data[q - j] * weight[s * j + p]``: for each p a convolution of stride 1. They are the channels of one convolution, or
stand alone where that has fewer products: as channels of one, each has the taps and elements of the largest.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...errors import ModelError
from ...relay.evaluate import fold
from ...relay.expr import Constant, Expr
from ...relay.op import STEP_OPERATIONS
from ...support.import_budget import spend_operations
from .context import Context, Converter
from .conv_pool import channels_first, channels_last

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


def _folded(c: Context, weight: Expr, expr: Expr) -> Expr:
    """``expr`` of a weight; at once where that is a constant."""
    if expr is weight or not isinstance(weight, Constant):
        return expr
    folded = fold([expr])
    return expr if folded is None else c.constant(folded[0])


def _phases(c: Context, weight: Expr, strides: Sequence[int], groups: int) -> Expr:
    """The weight (in, out / groups, taps...) as that of the convolution: (taps of a phase..., in / groups, groups *
    phases... * out / groups).
    """
    rank = len(strides)
    depth, wide, *taps = weight.shape
    phase_taps = [-(-k // s) for k, s in zip(taps, strides, strict=True)]
    missing = [j * s - k for j, s, k in zip(phase_taps, strides, taps, strict=True)]
    if any(missing):
        weight = c.call("nn.pad", weight, pad_width=(*(0 for _ in weight.shape), 0, 0, *missing))
    pairs = [extent for pair in zip(phase_taps, strides, strict=True) for extent in pair]
    apart = c.reshape(weight, (groups, depth // groups, wide, *pairs))
    first, last = [3 + 2 * d for d in range(rank)], [4 + 2 * d for d in range(rank)]
    begin = [extent - 1 if d in first else 0 for d, extent in enumerate(apart.shape)]
    end = [-1 if d in first else extent for d, extent in enumerate(apart.shape)]
    steps = [-1 if d in first else 1 for d in range(len(apart.shape))]
    turned = c.call("strided_slice", apart, begin=begin, end=end, strides=steps)
    ordered = c.call("transpose", turned, axes=(*first, 1, 0, *last, 2))
    return c.reshape(ordered, (*phase_taps, depth // groups, groups * math.prod(strides) * wide))


def transposed(
    c: Context,
    data: Expr,
    weight: Expr,
    strides: Sequence[int],
    dilation: Sequence[int],
    begin: Sequence[int],
    extents: Sequence[int],
    groups: int,
    bias: Expr | None = None,
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
        bias: (out,), added to the result.
    """
    spend_operations(STEP_OPERATIONS * sum(strides))
    apart = weight
    for d in range(len(strides)):
        apart = _spread(c, apart, d + 2, dilation[d])
    weight = _folded(c, weight, apart)
    x = channels_last(c, data)
    lines = [
        [_Phase.for_residue(r, *line) for r in range(line[0])]
        for line in zip(strides, begin, extents, x.shape[1:-1], weight.shape[2:], strict=True)
    ]
    if _better_alone(lines, x.shape[1:-1], groups * weight.shape[1]):
        return _alone(c, x, weight, lines, extents, groups, bias)
    result = _together(c, x, weight, strides, begin, extents, groups)
    return result if bias is None else c.call("add", result, bias)


@dataclass(frozen=True)
class _Phase:
    """Of a dimension: every so many elements of the result, as windows over the data.

    Args:
        first, taps: of the weight, those from ``first`` on, a stride apart.
        before, after: zeros that the windows see around the data; negative where they leave data out.
        count: of the elements.
    """

    first: int
    taps: int
    before: int
    after: int
    count: int

    @staticmethod
    def for_residue(residue: int, stride: int, begin: int, extent: int, length: int, taps: int) -> _Phase:
        """That of the elements ``residue``, ``residue + stride``, ... of ``extent``, rounded up, as of all phases."""
        start, first = divmod(residue + begin, stride)
        phase_taps, count = len(range(first, taps, stride)), -(-extent // stride)
        return _Phase(first, phase_taps, phase_taps - 1 - start, start + count - length, count)


def _better_alone(lines: Sequence[Sequence[_Phase]], lengths: Sequence[int], channels: int) -> bool:
    """Whether the phases, as convolutions of their own, have a tenth fewer products than as channels of one.

    Products are counted as by vectors of 16 channels, which few channels of a phase do not fill.
    """
    if any(p.taps < 1 or not 0 <= p.before < p.taps or not 0 <= p.after <= p.taps for line in lines for p in line):
        return False  # not windows over the data alone and some zeros around
    if math.prod(map(len, lines)) > _MOST_ALONE:
        return False
    largest = [max(p.taps for p in line) for line in lines]
    together = math.prod((n + k - 1) * k for n, k in zip(lengths, largest, strict=True))
    together *= -(-math.prod(map(len, lines)) * channels // _LANES)
    alone = math.prod(sum(p.taps * p.count for p in line) for line in lines) * -(-channels // _LANES)
    return alone <= 0.9 * together


_LANES = 16
"""Channels of a vector, as many machines have them: what fills less takes as long."""
_MOST_ALONE = 8
"""Convolutions: each is code of its own."""


def _alone(
    c: Context,
    x: Expr,
    weight: Expr,
    lines: Sequence[Sequence[_Phase]],
    extents: Sequence[int],
    groups: int,
    bias: Expr | None,
) -> Expr:
    """A convolution for each phase, whose results are put between each other."""
    rank, (depth, wide) = len(lines), weight.shape[:2]
    phase_results: list[Expr] = []
    for phases in itertools.product(*lines):
        turned = c.call(
            "strided_slice",
            weight,
            begin=(0, 0, *(p.first + (p.taps - 1) * len(line) for p, line in zip(phases, lines, strict=True))),
            end=(*weight.shape[:2], *(p.first - 1 for p in phases)),
            strides=(1, 1, *(-len(line) for line in lines)),
        )
        apart = c.reshape(turned, (groups, depth // groups, wide, *(p.taps for p in phases)))
        ordered = c.call("transpose", apart, axes=(*range(3, 3 + rank), 1, 0, 2))
        kernel = c.reshape(ordered, (*(p.taps for p in phases), depth // groups, groups * wide))
        around = (*(p.before for p in phases), *(p.after for p in phases))
        sums = c.call(f"nn.conv{rank}d", x, _folded(c, weight, kernel), padding=around, groups=groups)
        phase_results.append(sums if bias is None else c.call("add", sums, bias))
    batch, *counts, channels = phase_results[0].shape
    joined: Expr = c.call("concatenate", *(c.reshape(each, (1, *each.shape)) for each in phase_results), axis=0)
    joined = c.reshape(joined, (*map(len, lines), batch, *counts, channels))
    joined = c.permute(joined, (rank, *(axis for d in range(rank) for axis in (rank + 1 + d, d)), 2 * rank + 1))
    joined = c.reshape(joined, (batch, *(n * len(line) for n, line in zip(counts, lines, strict=True)), channels))
    return c.call(
        "strided_slice", joined, begin=[0] * (rank + 2), end=(batch, *extents, channels), strides=[1] * (rank + 2)
    )


def _together(
    c: Context,
    x: Expr,
    weight: Expr,
    strides: Sequence[int],
    begin: Sequence[int],
    extents: Sequence[int],
    groups: int,
) -> Expr:
    """One convolution, of whose channels each phase has some."""
    rank, wide = len(strides), weight.shape[1]
    kernel = _folded(c, weight, _phases(c, weight, strides, groups))
    phase_taps = kernel.shape[:rank]
    around = [j - 1 for j in phase_taps] * 2
    result: Expr = c.call(f"nn.conv{rank}d", x, kernel, padding=around, groups=groups)
    batch, *counts, _ = result.shape
    apart = c.reshape(result, (batch, *counts, groups, *strides, wide))
    pairs = (axis for d in range(rank) for axis in (1 + d, 2 + rank + d))
    ordered = c.permute(apart, (0, *pairs, 1 + rank, 2 + 2 * rank))
    joined = c.reshape(ordered, (batch, *(q * s for q, s in zip(counts, strides, strict=True)), groups * wide))
    first = [max(b, 0) for b in begin]
    last = [min(b + e, n) for b, e, n in zip(begin, extents, joined.shape[1:], strict=False)]
    if min(e - f for f, e in zip(first, last, strict=True)) < 1:
        raise ModelError(f"its result of {tuple(extents)} elements has none of the data")
    cut = {"begin": (0, *first, 0), "end": (batch, *last, joined.shape[-1]), "strides": (1,) * (rank + 2)}
    result = c.call("strided_slice", joined, **cut)
    before = [max(-b, 0) for b in begin]
    after = [e - f - (n - m) for e, f, n, m in zip(extents, before, last, first, strict=True)]
    if any((*before, *after)):
        result = c.call("nn.pad", result, pad_width=(0, *before, 0, 0, *after, 0))
    return result


def _numbers(c: Context, name: str, rank: int, default: int, least: int) -> tuple[int, ...]:
    numbers = c.node.integers(name, (default,) * rank)
    if len(numbers) != rank or min(numbers) < least:
        raise ModelError(f"it has {name} {numbers} for {rank} spatial dimensions")
    return numbers


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
    full = [
        (n - 1) * s + (k - 1) * d + 1 + o
        for n, s, k, d, o in zip(data.shape[2:], strides, kernel, dilation, behind, strict=True)
    ]
    begin = list(pads[:rank]) if mode == "NOTSET" else [0] * rank
    extents = [n - b - a for n, b, a in zip(full, begin, pads[rank:] if mode == "NOTSET" else begin, strict=True)]
    if c.node.has("output_shape") or mode.startswith("SAME"):
        same = tuple(n * s for n, s in zip(data.shape[2:], strides, strict=True))
        extents = list(c.node.integers("output_shape", same))[-rank:]
        if len(extents) != rank:
            raise ModelError(f"it has an output_shape of {len(extents)} numbers for {rank} spatial dimensions")
        total = [max(n - e, 0) for n, e in zip(full, extents, strict=True)]
        begin = [t // 2 if mode == "SAME_UPPER" else t - t // 2 for t in total]
    if min(extents) < 1:
        raise ModelError(f"its result has the impossible extents {tuple(extents)}")
    bias, channels = c.expr(2) if c.has(2) else None, groups * weight.shape[1]
    if bias is not None and bias.shape != (channels,):
        raise ModelError(f"it has a bias of shape {bias.shape} for {channels} channels")
    return channels_first(c, transposed(c, data, weight, strides, dilation, begin, extents, groups, bias))


def _col_to_im(c: Context) -> Expr:
    """Blocks added up where they are in an image: a transposed convolution each of whose weights picks one element."""
    import numpy as np

    data, image, block = c.expr(0), c.known_integers(1), c.known_integers(2)
    rank, taps = len(block), math.prod(block)
    if not block:
        raise ModelError("its blocks have no dimensions")
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
    c.reserve(depth, taps)
    weight = np.tile(np.eye(taps, dtype=data.dtype), (depth // taps, 1)).reshape(depth, 1, *block)
    x = c.reshape(data, (data.shape[0], depth, *counts))
    images = transposed(c, x, c.constant(weight), strides, dilation, pads[:rank], image, depth // taps)
    return channels_first(c, images)


TRANSPOSED: Mapping[str, Converter] = {"Col2Im": _col_to_im, "ConvTranspose": _conv_transpose}
