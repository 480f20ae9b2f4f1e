"""What an accelerator's fixed points make of float scales, and how far that is off."""

from __future__ import annotations

import math
from functools import lru_cache

from ..support.rounding import FixedPointForm
from ..tir.form.dtype import bounds
from .fixed_point import scale_array
from .op import Bounds, FixedPoint, FloatScale
from .thresholds import is_monotonous, thresholds

__all__ = ["largest_deviation", "nearest"]

_MOST_AT_ONCE = 1 << 20
"""How many accumulators are looked at together."""


def nearest(form: FixedPointForm, scale: FloatScale) -> FixedPoint | None:
    """The fixed points nearest to float32 scales, one for each; None where one of them is out of reach: it is
    larger than multipliers and shifts can say, or so small that its multiplier would be 0.
    """
    pairs: list[tuple[int, int]] = []
    for factor in scale.scale:
        multiplier, shift = _nearest(form, factor)
        if not 0 < multiplier < 1 << form.multiplier_bits or shift > form.shifts[1]:
            return None
        pairs.append((multiplier, shift))
    if len(set(pairs)) == 1:
        pairs = pairs[:1]
    return FixedPoint(tuple(m for m, _ in pairs), tuple(s for _, s in pairs), form.rounding)


def _nearest(form: FixedPointForm, factor: float) -> tuple[int, int]:
    """Multiplier and shift, half up; the shift is not below the least one."""
    significand, exponent = math.frexp(factor)
    shift = max(exponent - form.multiplier_bits + 31, form.shifts[0])
    # A power of two times a float32: exact. It is 2**(multiplier_bits - 1) or more, unless the shift was too small.
    multiplier = math.floor(math.ldexp(significand, exponent + 31 - shift) + 0.5)
    return (multiplier, shift) if multiplier < 1 << form.multiplier_bits else (multiplier >> 1, shift + 1)


@lru_cache(maxsize=4096)
def largest_deviation(
    scale: FloatScale, approximation: FixedPoint, accumulators: Bounds, zero_point: int, dtype: str
) -> int | None:
    """Return the largest difference between ``approximation`` and ``scale`` over all accumulators, in result steps.

    Both are monotonous and step at known places. Their difference is largest at one of these, or at the least
    accumulator.

    Args:
        scale: in floats.
        approximation: as many numbers, or one.
        accumulators: what is scaled is within, after the zero point of the input was subtracted.
        zero_point, dtype: of the result, of at most 16 bits.

    Returns:
        None where accumulators may leave int32, or wrap around before ``approximation`` scales them.
    """
    import numpy as np

    least, greatest = bounds("int32")
    if not least <= accumulators.low <= accumulators.high <= greatest:
        return None
    channels = max(len(scale), len(approximation))
    low, high = (np.full(channels, end, np.int64) for end in (accumulators.low, accumulators.high))
    if not is_monotonous(approximation, low, high):
        return None
    first, last = bounds(dtype)
    ks = np.arange(first + 1, last + 1, dtype=np.int64) - zero_point
    most, some = 0, max(1, _MOST_AT_ONCE // len(ks))
    for start in range(0, channels, some):
        part = slice(start, start + some)
        sides = [_only(one, part) for one in (scale, approximation)]
        places = [thresholds(side, ks, low[part], high[part]) for side in sides]
        at = np.minimum(np.concatenate([low[part, None], *places], axis=1), high[part, None])
        results = [np.clip(scale_array(at, side, 0) + zero_point, first, last) for side in sides]
        most = max(most, int(np.abs(results[0] - results[1]).max()))
    return most


def _only(scale: FixedPoint | FloatScale, part: slice) -> FixedPoint | FloatScale:
    """The numbers of some channels; one for all stays one."""
    if len(scale) == 1:
        return scale
    if isinstance(scale, FloatScale):
        return FloatScale(scale.scale[part])
    return FixedPoint(scale.multiplier[part], scale.shift[part], scale.rounding)
