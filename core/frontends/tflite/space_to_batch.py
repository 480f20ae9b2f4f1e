"""Operators that move blocks of images: into batches, into channels, and back."""

from __future__ import annotations

import math

from ...errors import ModelError
from ...relay.expr import Expr, call
from .layer import QUANTISED, Importer, Layer, quantisation
from .pads import pairs
from .shape import raw

__all__ = ["BLOCKS"]


def _blocks(layer: Layer, data: Expr, role: str) -> tuple[tuple[int, ...], list[tuple[int, int]]]:
    """Sides of the blocks of spatial dimensions, and what is put around or taken off them."""
    sides = layer.integers(1, "block shape")
    if len(data.shape) not in (3, 4) or len(sides) != len(data.shape) - 2 or min(sides) < 1:
        raise ModelError(f"its block shape {sides} does not fit {len(data.shape)} dimensions")
    around = pairs(layer, 2, role, len(sides))
    if min(map(min, around)) < 0:
        raise ModelError(f"its {role} are {around}")
    return sides, around


def _space_to_batch(layer: Layer) -> Expr:
    """Elements that lie a block's side apart become neighbours, in batches of their own."""
    data = raw(layer)
    layer.same_quantisation(layer.tensor(0), layer.output())
    sides, around = _blocks(layer, data, "paddings")
    before, after = zip((0, 0), *around, (0, 0), strict=True)
    zero = quantisation(layer.output())[1] if layer.output().dtype in QUANTISED else 0
    data = call("nn.pad", data, pad_width=(*before, *after), pad_value=zero)
    batch, *extents, depth = data.shape
    if any(extent % side for extent, side in zip(extents, sides, strict=True)):
        raise ModelError(f"its padded data of {extents} elements is not made of blocks of {list(sides)}")
    split = [part for extent, side in zip(extents, sides, strict=True) for part in (extent // side, side)]
    data = call("reshape", data, newshape=(batch, *split, depth))
    last = len(split) + 1
    data = call("transpose", data, axes=(*range(2, last, 2), 0, *range(1, last, 2), last))
    rows = [extent // side for extent, side in zip(extents, sides, strict=True)]
    return call("reshape", data, newshape=(batch * math.prod(sides), *rows, depth))


def _batch_to_space(layer: Layer) -> Expr:
    """What undoes SPACE_TO_BATCH_ND."""
    data = raw(layer)
    layer.same_quantisation(layer.tensor(0), layer.output())
    sides, around = _blocks(layer, data, "crops")
    batches, *extents, depth = data.shape
    count = len(sides)
    if batches % math.prod(sides):
        raise ModelError(f"its {batches} batches are not made of blocks of {list(sides)}")
    batch = batches // math.prod(sides)
    data = call("reshape", data, newshape=(*sides, batch, *extents, depth))
    inner = [axis for d in range(count) for axis in (count + 1 + d, d)]
    data = call("transpose", data, axes=(count, *inner, 2 * count + 1))
    wide = [extent * side for extent, side in zip(extents, sides, strict=True)]
    data = call("reshape", data, newshape=(batch, *wide, depth))
    begin, after = zip(*around, strict=True)
    end = [extent - cut for extent, cut in zip(wide, after, strict=True)]
    if any(first >= last for first, last in zip(begin, end, strict=True)):
        raise ModelError(f"its crops {around} leave nothing of {wide}")
    bounds = {"begin": (0, *begin, 0), "end": (batch, *end, depth), "strides": (1,) * len(data.shape)}
    return call("strided_slice", data, **bounds)


def _square(layer: Layer) -> tuple[Expr, int]:
    """An image (batch, height, width, channels), and the side of its blocks."""
    data, side = raw(layer), layer.options["block_size"]
    layer.same_quantisation(layer.tensor(0), layer.output())
    if len(data.shape) != 4 or side < 1:
        raise ModelError(f"it has blocks of {side} and data of {len(data.shape)} dimensions, not 4")
    return data, side


def _depth_to_space(layer: Layer) -> Expr:
    """Each pixel becomes a block, row by row of it, of a part of its channels."""
    data, side = _square(layer)
    batch, height, width, depth = data.shape
    if depth % side**2:
        raise ModelError(f"its {depth} channels are not made of blocks of {side} by {side}")
    data = call("reshape", data, newshape=(batch, height, width, side, side, depth // side**2))
    data = call("transpose", data, axes=(0, 1, 3, 2, 4, 5))
    return call("reshape", data, newshape=(batch, height * side, width * side, depth // side**2))


def _space_to_depth(layer: Layer) -> Expr:
    """What undoes DEPTH_TO_SPACE."""
    data, side = _square(layer)
    batch, height, width, depth = data.shape
    if height % side or width % side:
        raise ModelError(f"its {height} by {width} elements are not made of blocks of {side} by {side}")
    data = call("reshape", data, newshape=(batch, height // side, side, width // side, side, depth))
    data = call("transpose", data, axes=(0, 1, 3, 2, 4, 5))
    return call("reshape", data, newshape=(batch, height // side, width // side, side**2 * depth))


BLOCKS: dict[str, Importer] = {
    "BATCH_TO_SPACE_ND": _batch_to_space,
    "DEPTH_TO_SPACE": _depth_to_space,
    "SPACE_TO_BATCH_ND": _space_to_batch,
    "SPACE_TO_DEPTH": _space_to_depth,
}
