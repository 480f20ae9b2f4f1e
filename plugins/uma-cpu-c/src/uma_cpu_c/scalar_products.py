"""Products of small integers on cores without vectors: tiles of few channels by few pixels in plain registers.

The sums of a tile stay in registers from the first product to the last, and weights lie in the order in which they are
read. The data is multiplied as memory holds it: its zero point is what borders are filled with, and what the sums of
the weights, known at build time, are multiplied with.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from uma.hookspecs import Declined, Fusion, ScheduledKernel
from uma.relay import TensorType
from uma.tir import Var

from .products import Operand, Product, product_of
from .schedules import Nest, centred, is_known, planned, sums_of
from .tiles import Tile

__all__ = ["CORES", "Core", "core_of", "small_products", "tile_of"]

_OPERANDS = ("int8", "uint8", "int16")


@dataclass(frozen=True)
class Core:
    """What the registers of a core without vectors hold.

    Args:
        pixels, channels: of a tile; more than these, and compilers keep sums in memory.
        alone: channels of a tile where there is one pixel.
        is_brief: whether code is to take little room before all else.
    """

    pixels: int
    channels: int
    alone: int
    is_brief: bool = False

    def pixels_of(self, row: int) -> int:
        """Pixels of a tile of a row; where code is to be brief, all tiles are alike."""
        most = min(row, self.pixels)
        return next(count for count in range(most, 0, -1) if row % count == 0) if self.is_brief else most


CORES: Mapping[str, Core] = {
    "thumb1": Core(1, 4, 4),
    "thumb2": Core(3, 2, 4),
    "riscv": Core(3, 4, 8),
}
"""By the feature that tells the class of a core."""


def core_of(features: Collection[str], is_brief: bool = False) -> Core | None:
    """The class of a core; None of one that has vectors, or is not known."""
    best = next((core for feature, core in CORES.items() if feature in features), None)
    return replace(best, is_brief=True) if best is not None and is_brief else best


def tile_of(core: Core, pixels: int, channels: int) -> Tile:
    """The tile by which a core multiplies, of channels that are not many more than there are."""
    held = core.pixels_of(pixels)
    widest = core.alone if held == 1 else core.channels
    width = min((w for w in range(1, widest + 1)), key=lambda w: (-(-channels // w) * w * (1 + 1 / w), -w))
    return Tile(held, width, 1)


def small_products(fusion: Fusion, core: Core) -> ScheduledKernel | Declined | None:
    """The loops of a fusion whose anchor is a convolution, or a product of matrices, of small integers; or why it has
    no form here.

    Args:
        fusion: whose anchor it is.
        core: that computes it.
    """
    call = fusion.anchor
    assert call is not None
    data, weight = (arg.dtype for arg in call.args)
    zero, weight_zero = call.attrs.input_zero_point, call.attrs.kernel_zero_point
    if data not in _OPERANDS or weight not in _OPERANDS:
        return _declined(f"its data is {data}, its weights are {weight}; not {', '.join(_OPERANDS)}")
    if not is_known(fusion):
        return _declined("its weights are not known when the model is built")
    product = product_of(fusion, Operand(data, 0, zero, rows=True))
    if product is None:
        return None
    if product.is_depthwise or product.groups > 1:
        return _declined(f"its channels are in {call.attrs.groups} groups")
    if weight_zero:
        product = replace(product, weight=product.less(weight_zero, "int16" if weight != "int16" else "int32"))
    pixels = product.shape[-2] if len(product.shape) > 1 else 1
    scheduled = small_tiles(fusion, product, tile_of(core, pixels, product.shape[-1]), zero)
    return scheduled or _declined("what follows it has stages of its own, or needs no product")


def _declined(reason: str) -> Declined:
    return Declined(f"no tiles whose sums stay in registers: {reason}")


def small_tiles(fusion: Fusion, product: Product, tile: Tile, zero: int) -> ScheduledKernel | None:
    """The loops of a fusion whose anchor is a product, by tiles in registers; None where what follows has stages of its
    own, or needs no product.

    Args:
        fusion: whose anchor it is.
        product: the anchor.
        tile: of pixels by channels, one lane.
        zero: what the data has for 0.
    """
    sums, packed, _ = sums_of(product, tile, 1)
    assert fusion.anchor is not None
    anchor = centred(sums, product, fusion.anchor.shape, zero)
    nest = planned(fusion, sums, anchor, packed, product.stages, None)
    if nest is None:
        return None
    s, loops = nest.schedule, nest.schedule.loops(nest.product)
    if product.joined:
        s.fuse(*s.loops(nest.last)[1:3])
    rank = len(sums.shape)
    outer, reduction = loops[:rank], loops[rank:]
    at, channel = s.split(outer.pop(), tile.vectors)
    inner = [channel]
    if outer:
        pixels, pixel = s.split(outer.pop(), tile.pixels, tail="peel")
        inner = [pixel, channel]
        s.reorder(*outer, pixels, at, *inner)
        _in_place(nest, fusion, product, pixels)
    _borders(nest, product, outer)
    start = s.decompose_reduction(nest.product, inner[0])
    s.reorder(*reduction, *inner)
    s.reverse_compute_at(nest.last, at)
    s.cache_write(nest.product, nest.sums, "register", at=at)
    for label in (start, nest.product, nest.last):
        for loop in s.loops(label)[-len(inner) :]:
            s.unroll(loop)
    return nest.scheduled()


def _in_place(nest: Nest, fusion: Fusion, product: Product, pixels: Var) -> None:
    """The pixels of a tile, copied where the result can take the place of the data then, which costs little."""
    s, result = nest.schedule, fusion.function.body.type
    data = [one for one in s.block(nest.product).reads if one in nest.kernel.func.buffers("input")]
    if len(data) != 1 or product.stages or not isinstance(result, TensorType):
        return
    alone = math.prod(product.taps) * math.prod(product.shape[:-1]) == data[0].size
    if alone and (result.size, result.dtype) == (data[0].size, data[0].dtype):
        s.set_scope(s.cache_read(nest.product, data[0], "local", at=pixels), "global")


def _borders(nest: Nest, product: Product, outer: list[Var]) -> None:
    """Rows with borders, just those that a row of the result reads, in the arena."""
    s = nest.schedule
    for stage in product.stages:
        label, buffer = nest.kernel.labels[stage], nest.kernel.buffers[stage]
        s.compute_at(label, outer[-1])
        (small,) = s.store_at(buffer, outer[-1])
        s.set_scope(small, "global")
