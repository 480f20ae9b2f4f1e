"""The schedule of a product of few channels, whose sums are computed along the data: a vector of channels would be
empty for the most part.

A sum has the parts of `along_rows`, and is folded as there.
"""

from __future__ import annotations

from uma.hookspecs import Fusion, ScheduledKernel

from .products import Product
from .row_kernels import PARTS, folded
from .schedules import centred, looks_up, planned, sums_of, widest
from .tiles import Tile
from .vector_units import VectorModel

__all__ = ["few_channels"]

_SHARE = 4
"""Of the lanes of a vector that channels may be one part at most: each has all data of a pixel to itself."""

_AT_ONCE = 64
"""Pixels of which there are sums before what follows is done to them, in vectors if there is one channel."""


def few_channels(fusion: Fusion, product: Product, unit: VectorModel) -> ScheduledKernel | None:
    """The loops of a fusion whose anchor is a product of floats; None where it has more than few channels, or few taps
    side by side, or what follows has stages of its own.

    Args:
        fusion: whose anchor it is.
        product: the anchor.
        unit: of the CPU.
    """
    channels = product.shape[-1]
    is_one = not product.is_depthwise and product.groups == 1 and product.inside is None and len(product.shape) > 1
    if not is_one or _SHARE * channels > unit.lanes or product.taps[-1] < 2 * PARTS:
        return None
    assert fusion.anchor is not None
    sums, packed, _ = sums_of(product, Tile(1, 1, 1), 1)
    nest = planned(fusion, sums, centred(sums, product, fusion.anchor.shape, 0), packed, product.stages, unit)
    if nest is None:
        return None
    s, loops = nest.schedule, nest.schedule.loops(nest.product)
    at, _ = s.split(loops[len(sums.shape) - 2], _AT_ONCE, tail="peel")
    folded(s, loops[-1], unit.lanes)
    if not product.joined:
        s.reverse_compute_at(nest.last, at)
        s.store_at(nest.sums, at)
    if channels == 1 and not looks_up(nest.kernel.func, nest.last):
        lanes = unit.bytes // widest(nest.kernel.func, nest.last)
        pixel = s.fuse(*s.loops(nest.last)[-2:])
        s.vectorize(s.split(pixel, lanes, tail="peel")[1])
    return nest.scheduled()
