"""The schedule of a pool: tiles of pixels by channels in registers, tiles at the border apart from the others."""

from __future__ import annotations

import math
from collections.abc import Iterator

from uma.hookspecs import Declined, Fusion, ScheduledKernel
from uma.relay import Call
from uma.tir import Bin, Cast, Expr, Imm, Load, maximum, minimum, rewrite, substitute, te, walk

from .products import LANES
from .schedules import in_registers, looks_up, planned, spread, widest
from .vector_units import VectorModel

__all__ = ["POOLS", "pooled"]

POOLS = tuple(f"{kind}_pool{rank}d" for kind in ("nn.max", "nn.avg", "qnn.avg") for rank in (1, 2))

_MOST_PIXELS = 4
"""Of a tile: neighbours read the same columns, and more save few loads."""
_EXACT = 1 << 24
"""Integers below that are floats of 32 bits."""
_ALONE = 4
"""Vectors that a single channel counts as."""
_MOST_TAPS = 9
"""Of a row of a window that is written out for each pixel of a tile."""


def pooled(fusion: Fusion, unit: VectorModel) -> ScheduledKernel | Declined | None:
    """The loops of a fusion whose anchor is a pool over one or two dimensions; or why it has no form here, None where
    what follows it has stages of its own, and where the plain loops are as good.

    Args:
        fusion: whose anchor it is.
        unit: of the CPU.
    """
    call = fusion.anchor
    assert call is not None
    sums, anchor = _stages(fusion, call)
    channels, columns, taps = call.shape[-1], call.shape[-2], call.attrs.pool_size[-1]
    stride = call.attrs.strides[-1]
    if channels < LANES:
        return Declined(f"no pool in vectors: it has {channels} channels, fewer than {LANES}")
    if taps > _MOST_TAPS:
        return Declined(f"no pool in vectors: rows of its windows have {taps} elements, more than {_MOST_TAPS}")
    # Where windows share little, compilers make as much of the plain loops, but for means of integers.
    if not (call.op_name or "").startswith("qnn") and taps + 1 < 2 * stride:
        return None
    nest = planned(fusion, sums, anchor, None, (), unit)
    if nest is not None and looks_up(nest.kernel.func, nest.product):
        # Vectors read no tables. The data are computed before, each element once for all windows that it is in: in
        # a third of the time where these overlap; else plain loops are as fast, and need no memory for the data.
        if math.prod(call.shape[1:-1]) * math.prod(call.attrs.pool_size) <= math.prod(call.args[0].shape[1:-1]):
            return None
        nest = planned(fusion, sums, anchor, None, fusion.tensors.by_expr[call.args[0]], unit)
    if nest is None:
        return None
    # What data are computed from may be wider than their sums.
    element = max(sums.nbytes // sums.size, widest(nest.kernel.func, nest.product))
    lanes = _lanes(channels, unit.bytes // element)
    if lanes < LANES:
        return Declined(f"no pool in vectors: these hold fewer than {LANES} numbers of {element} bytes")
    s = nest.schedule
    *outer, channel = (loops := s.loops(nest.product))[: len(sums.shape)]
    *rows, column = loops[len(sums.shape) :]
    block, lane = s.split(channel, lanes, tail="peel")
    pixels = min(_MOST_PIXELS, columns)
    at, pixel = s.split(outer[-1], pixels, tail="peel")
    s.reorder(*outer[:-1], at, block, pixel, lane)
    in_registers(nest, block, [*rows, column], [pixel, lane], [], lanes, unit)
    places = _places(call, pixels)
    if places:
        s.part(at, *places)
    spread(s, [column, pixel, lane])
    return nest.scheduled()


def _stages(fusion: Fusion, call: Call) -> tuple[te.Tensor, te.Tensor]:
    """The reduction of a pool, and what the pool gives, computed from it."""
    (result,) = fusion.tensors.by_expr[call]
    if isinstance(result.definition, te.Reduce):
        return result, te.compute(result.shape, lambda *i: result[i], "pool")
    return next(_reductions(result)), _divided(call, result)


def _divided(call: Call, mean: te.Tensor) -> te.Tensor:
    """``mean``, of integers, by divisions of floats: there is none of integers for vectors. What is cut off of the
    quotient of two integers below 2^24 is the same, as both are exact and 1 / count is more than a rounding error.
    """
    definition = mean.definition
    assert isinstance(definition, te.Compute)
    data = call.args[0].tensor
    most = 2 * math.prod(call.attrs.pool_size) << 8 * data.nbytes // data.size
    if most >= _EXACT:
        return mean
    low, high = Imm(float(-most), "float32"), Imm(float(most), "float32")

    def by_floats(expr: Expr) -> Expr | None:
        if not (isinstance(expr, Bin) and expr.op == "truncdiv"):
            return None
        quotient = expr.a.astype("float32") / expr.b.astype("float32")
        # The limits tell that an int32 holds it.
        return minimum(maximum(quotient, low), high).astype("int32")

    value = rewrite(definition.value, by_floats)
    if isinstance(value, Cast) and value.a.dtype == "int32":
        # A mean is within these anyway. Told so, vectors are made narrow by one instruction.
        least, largest = (Imm(bound, "int32") for bound in _bounds(value.dtype))
        value = minimum(maximum(value.a, least), largest).astype(value.dtype)
    return te.compute(mean.shape, lambda *i: substitute(value, dict(zip(definition.axes, i, strict=True))), "mean")


def _bounds(dtype: str) -> tuple[int, int]:
    bits = int(dtype.lstrip("uint"))
    return (0, (1 << bits) - 1) if dtype.startswith("u") else (-(1 << bits - 1), (1 << bits - 1) - 1)


def _reductions(tensor: te.Tensor) -> Iterator[te.Tensor]:
    assert isinstance(tensor.definition, te.Compute)
    for part in walk(tensor.definition.value):
        buffer = part.buffer if isinstance(part, Load) else None
        if isinstance(buffer, te.Tensor) and isinstance(buffer.definition, te.Reduce):
            yield buffer


def _lanes(channels: int, most: int) -> int:
    """The lanes by which channels take the fewest steps. One beyond the last vector is code of its own."""
    widths = [most >> shift for shift in range(most.bit_length())]
    return min([n for n in widths if n <= channels], key=lambda n: (channels // n + _ALONE * (channels % n), -n))


def _places(call: Call, pixels: int) -> list[int]:
    """Where tiles of a row begin that meet no border, and where they end."""
    attrs, width, count = call.attrs, call.args[0].shape[-2], call.shape[-2]
    rank = len(attrs.pool_size)
    left, taps, stride = attrs.padding[rank - 1], attrs.pool_size[-1], attrs.strides[-1]
    first, end = -(-left // stride), (width + left - taps) // stride + 1
    tiles = -(-count // pixels)
    places = [-(-first // pixels), min(end, count) // pixels]
    return sorted({place for place in places if 0 < place < tiles})
