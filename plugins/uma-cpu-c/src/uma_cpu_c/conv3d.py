"""Convolutions of three dimensions as products: a volume is pictures, and a window goes over several of them."""

from __future__ import annotations

from uma.hookspecs import Fusion
from uma.relay import Call
from uma.tir import Expr, Imm, te

from .products import Element, Index, Pieces, Product, in_groups, split_group

__all__ = ["volume_product"]


def volume_product(fusion: Fusion) -> Product | None:
    """What the anchor of ``fusion``, an ``nn.conv3d`` of float32, computes, as a product of rows along the width; None
    where each channel has a filter of its own.

    Padding is a copy with borders, as its taps lie side by side only so.
    """
    call = fusion.anchor
    assert call is not None
    data, weight = (fusion.tensors.by_expr[arg][0] for arg in call.args)
    attrs, channels, kernel_width = call.attrs, data.shape[-1], weight.shape[2]
    groups, depth = attrs.groups, weight.shape[3]
    if groups == channels == call.shape[-1] > 1:
        return None
    is_run = groups == 1 and (attrs.dilation[-1] == 1 or kernel_width == 1)
    window = (*weight.shape[:2], *((kernel_width * channels,) if is_run else (kernel_width, depth)))
    element, stages = _data(call, data)

    def of_data(outer: Index, x: Expr, taps: Index, _: Expr) -> Expr:
        group, (n, *at) = split_group(outer, groups)
        rows = [i * attrs.strides[d] + taps[d] * attrs.dilation[d] for d, i in enumerate(at)]
        first = x * (attrs.strides[2] * channels)
        if groups > 1:
            # The constants of unrolled pixels come last, where compilers make them parts of addresses.
            return element(n, *rows, group * depth + taps[-1] + taps[2] * (attrs.dilation[2] * channels) + first)
        if not is_run:
            first = first + taps[2] * (attrs.dilation[2] * channels)
        return element(n, *rows, first + taps[-1])

    def of_weight(outer: Index, taps: Index, o: Expr) -> Expr:
        o = split_group(outer, groups)[0] * (call.shape[-1] // groups) + o if groups > 1 else o
        last = (taps[2] // channels, taps[2] % channels) if is_run else (taps[2], taps[3])
        return weight[(taps[0], taps[1], *last, o)]

    pitch = attrs.strides[2] * channels
    shape, batches = in_groups(call.shape, groups), int(groups > 1)
    return Product(shape, window, of_data, of_weight, batches, stages, groups=groups, pitch=pitch)


def _data(call: Call, data: te.Tensor) -> tuple[Element, tuple[te.Tensor, ...]]:
    """An element of the data by batch, plane, row, and number in the row, borders included; and the stages that this
    takes."""
    batch, *extents, channels = data.shape
    padding = call.attrs.padding
    if not any(padding) and isinstance(data.definition, te.Placeholder):
        rows = te.reshape(data, (batch, *extents[:2], extents[2] * channels))
        return (lambda *i: rows[i]), ()
    before = (0, *padding[:2], padding[2] * channels)
    after = (0, *padding[3:5], padding[5] * channels)
    inner = (batch, *extents[:2], extents[2] * channels)
    shape = tuple(low + extent + high for low, extent, high in zip(before, inner, after, strict=True))
    pieces: Pieces = []
    # A border of one dimension is within those of the dimensions before it: nothing is filled twice.
    for d in range(1, 4):
        start = (*before[:d], 0, *(0,) * (3 - d))
        for at, thickness in ((0, before[d]), (before[d] + inner[d], after[d])):
            if thickness:
                offset = (*start[:d], at, *start[d + 1 :])
                size = (*inner[:d], thickness, *shape[d + 1 :])
                pieces.append((offset, size, lambda *_: Imm(0.0, "float32")))
    pieces.append((before, inner, lambda n, z, y, i: data[n, z, y, i // channels, i % channels]))
    padded = te.assemble(shape, "float32", pieces, "padded")
    return (lambda *i: padded[i]), (padded,)
