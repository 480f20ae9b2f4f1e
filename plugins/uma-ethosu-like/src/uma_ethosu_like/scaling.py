"""Scales of the model as multipliers and shifts of the machine.

The machine has ``(x * multiplier + half) >> shift``, half up (``natural``), or, for TFLite, with 2**30 of the sign of x
more where the shift exceeds 31 (``tfl``). That is what `FixedPoint` calls ``double``: a product of 32 by 32 bits of
which the upper half is rounded, and then shifted and rounded away from zero.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np

from uma.relay import Call, FixedPoint

from .operations import LIMITS, Rounding, Scale

__all__ = ["IDENTITY", "MEAN_TAPS", "ROUNDINGS", "mean_scale", "operand_scale", "scale_of", "sum_operand"]

ROUNDINGS: dict[str, Rounding] = {"double": "tfl", "up": "natural"}
"""What the machine calls the roundings of `FixedPoint` that it has."""

IDENTITY = Scale(1 << 30, 30)
"""What changes nothing."""

MEAN_TAPS = 1 << 12
"""The most elements of a mean that `mean_scale` is proven for."""

_HEADROOM = {"int8": 20, "int16": 15}
"""Bits by which the operands of a sum are shifted to the left before they are scaled."""


def scale_of(multiplier: int, shift: int) -> Scale:
    """One fixed point: ``multiplier * 2**(shift - 31)``."""
    return Scale(multiplier, 31 - shift)


def sum_operand(core: Call) -> int | None:
    """Which operand of a sum has to be scaled, 1 or 2; None where the machine does not have it.

    It scales one of them; the other is halved. TFLite's sums are like that: operands are brought to twice the larger
    scale of both. No scale is 1 or more: what is shifted to the left wraps around at 32 bits in the references, and
    saturates here.
    """
    attrs = core.attrs
    scales = (attrs.lhs_scale, attrs.rhs_scale, attrs.output_scale)
    if attrs.left_shift != _HEADROOM[core.dtype] or any(getattr(one, "rounding", None) != "double" for one in scales):
        return None
    if any(one.shift[0] > 0 for one in scales):
        return None
    halves = [(one.multiplier, one.shift) == ((1 << 30,), (0,)) for one in scales[:2]]
    return 1 if halves[1] else 2 if halves[0] else None


def operand_scale(scale: FixedPoint, dtype: str) -> Scale:
    """That of the operand of a dtype that is scaled: the machine shifts it to the left besides."""
    return Scale(scale.multiplier[0], 31 - scale.shift[0] - _HEADROOM[dtype])


@cache
def mean_scale(taps: int, dtype: str) -> Scale | None:
    """By which a sum becomes its mean, rounded half away from zero as ``tfl`` rounds; None where it would be another
    number for some sum.

    Args:
        taps: that are summed up, at most `MEAN_TAPS`.
        dtype: of these.
    """
    # As Vela has it: 1 / taps to 32 bits, and up, so that halves stay halves or more.
    extra = math.frexp(taps - 1)[1]
    scale = Scale(((1 << 31 + extra) + (1 << extra)) // taps, 31 + extra)
    # Neither mean falls where its sum grows: where they agree on both sides of each step of one, they do in between.
    low, high = LIMITS[dtype]
    steps = -(-taps * (2 * np.arange(1, 1 - low, dtype=np.int64) - 1) // 2)
    around = np.concatenate([steps, steps - 1])
    sums = np.clip(np.concatenate([-around, around]), low * taps, high * taps)
    nudge = (1 << 30) * np.where(sums < 0, -1, 1) if scale.shift > 31 else 0
    means = (sums * scale.multiplier + (1 << scale.shift - 1) + nudge) >> scale.shift
    exact = np.sign(sums) * ((2 * np.abs(sums) + taps) // (2 * taps))
    return scale if taps <= MEAN_TAPS and np.array_equal(means, exact) else None
