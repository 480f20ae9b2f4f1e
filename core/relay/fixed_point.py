"""Arithmetic of `FixedPoint` and `FloatScale`: on scalars, on arrays, and how a real factor becomes a fixed point."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

from ..errors import ModelError
from .op import Bounds, FixedPoint, FloatScale

if TYPE_CHECKING:
    import numpy as np

__all__ = [
    "exact_fixed_point",
    "find_fixed_point",
    "fixed_point",
    "prove_fixed_point",
    "quantize_multiplier",
    "scale_array",
    "scale_integer",
]

_LIMIT = 2.0**62
"""Floats are cut off here before they become integers: every dtype has long been saturated."""


def quantize_multiplier(factor: float) -> tuple[int, int]:
    """The fixed point (multiplier, shift) nearest to a factor, as TFLite rounds it.

    ``factor`` is about ``multiplier * 2 ** (shift - 31)`` with a multiplier in [2**30, 2**31), half away from zero.
    Factors below 2**-32 give 0. (TFLite, ``QuantizeMultiplier``.)

    Args:
        factor: finite, not negative.
    """
    significand, shift = math.frexp(factor)
    multiplier = math.floor(significand * 2**31 + 0.5)
    if multiplier == 2**31:
        multiplier, shift = 2**30, shift + 1
    return (multiplier, shift) if shift >= -31 else (0, 0)


def fixed_point(factors: Sequence[float], rounding: str) -> FixedPoint:
    """Each factor as `quantize_multiplier` gives it; one for all where they are equal.

    Raises:
        ModelError: a factor is 2**30 or more, as infinity is.
    """
    if math.inf in factors:
        raise ModelError("fixed-point scale inf is out of range")
    pairs = [quantize_multiplier(factor) for factor in factors]
    if len(set(pairs)) == 1:
        pairs = pairs[:1]
    return FixedPoint(tuple(m for m, _ in pairs), tuple(s for _, s in pairs), rounding)


def scale_integer(value: int, multiplier: int, shift: int, rounding: str) -> int:
    """``value``, an int32, scaled by one fixed point: see `FixedPoint`."""
    if rounding == "double":
        shifted = (value << max(shift, 0)) + 2**31
        high = _divide((shifted % 2**32 - 2**31) * multiplier, 31, "up")
        return _divide(high, max(-shift, 0), "away")
    return _divide(value * multiplier, 31 - shift, rounding)


def _divide(value: int, bits: int, rounding: str) -> int:
    """``value / 2**bits``, rounded to the nearest; ``rounding`` says where halves go."""
    quotient, twice_rest = value >> bits, 2 * (value & ((1 << bits) - 1))
    up = {"up": True, "even": quotient % 2 == 1, "away": quotient >= 0}[rounding]
    return quotient + (twice_rest > 1 << bits or (twice_rest == 1 << bits and up))


def scale_array(values: np.ndarray, scale: FixedPoint | FloatScale, axis: int) -> np.ndarray:
    """Integers scaled and rounded, as int64.

    Args:
        values: integers that int32 holds.
        scale: one for all, or one per element of dimension ``axis``.
        axis: the dimension of the channels.
    """
    import numpy as np

    shape = [1] * values.ndim
    if len(scale) > 1:
        shape[axis] = len(scale)
    if isinstance(scale, FloatScale):
        factors = np.array(scale.scale, np.float32).reshape(shape)
        with np.errstate(over="ignore"):
            product = np.rint(values.astype(np.float32) * factors)
        whole: np.ndarray = np.clip(product.astype(np.float64), -_LIMIT, _LIMIT).astype(np.int64)
        return whole
    multiplier = np.array(scale.multiplier, np.int64).reshape(shape)
    shift = np.array(scale.shift, np.int64).reshape(shape)
    wide = values.astype(np.int64)
    if scale.rounding == "double":
        shifted = (wide << np.maximum(shift, 0)).astype(np.int32).astype(np.int64)
        high = _divide_array(shifted * multiplier, np.full_like(shift, 31), "up")
        return _divide_array(high, np.maximum(-shift, 0), "away")
    return _divide_array(wide * multiplier, 31 - shift, scale.rounding)


def _divide_array(values: np.ndarray, bits: np.ndarray, rounding: str) -> np.ndarray:
    """`_divide` of int64 below 2**62."""
    quotient = values >> bits
    one = 1 << bits
    twice_rest = (values - (quotient << bits)) * 2
    tie_up = {"up": quotient == quotient, "even": quotient % 2 == 1, "away": quotient >= 0}[rounding]
    result: np.ndarray = quotient + ((twice_rest > one) | ((twice_rest == one) & tie_up))
    return result


def prove_fixed_point(factors: Sequence[float], accumulators: Bounds, results: Bounds) -> FixedPoint | None:
    """Fixed points that round once, ``up``, and give bit for bit what ``round(float64(x) * factor)`` does, if any do.

    TFLite's reference kernels scale the sums of a fully connected layer in float64 and round half away from zero. The
    result is monotonous in x and soon saturates, so that it is known by a few hundred thresholds: for every result k
    the least x that gives k or more. Each threshold bounds the multiplier from below and above, and any multiplier
    within all bounds is exact. The one nearest to the factor is taken.

    Args:
        factors: one per channel, or one for all; float64, not negative.
        accumulators: every x is within; int32.
        results: beyond these bounds results are saturated and need not agree.
    """
    import numpy as np

    proven: dict[float, tuple[int, int]] = {}
    ks = np.arange(results.low + 1, results.high + 1)
    for factor in dict.fromkeys(factors):
        if factor == 0:
            proven[factor] = (0, 0)
            continue
        point = _meeting(factor, _thresholds(factor, ks, accumulators), ks, accumulators)
        if point is None:
            return None
        proven[factor] = point
    points = [proven[factor] for factor in factors]
    if len(set(points)) == 1:
        points = points[:1]
    return FixedPoint(tuple(m for m, _ in points), tuple(s for _, s in points), "up")


def find_fixed_point(table: np.ndarray, first: int, factor: float, results: Bounds) -> FixedPoint | None:
    """The fixed point nearest to a factor that rounds once, ``up``, and gives ``table[i]`` of ``first + i``, if any.

    Args:
        table: integers that do not fall.
        first: the integer that the first of them belongs to.
        factor: about what integers are scaled by; positive float64.
        results: beyond these bounds results are saturated and need not agree.
    """
    import numpy as np

    ks = np.arange(results.low + 1, results.high + 1)
    point = _meeting(factor, first + np.searchsorted(table, ks), ks, Bounds(first, first + len(table) - 1))
    return None if point is None else FixedPoint((point[0],), (point[1],), "up")


def exact_fixed_point(factor: Fraction, accumulators: Bounds, results: Bounds) -> FixedPoint | None:
    """A fixed point that gives ``x * factor``, rounded half to even in exact arithmetic, of every x there may be.

    A factor that is a fixed point itself rounds ``even``. Of another one each result k has a least x, and a multiplier
    that steps at all of them is looked for, which rounds ``up``. There is none where x of the one parity are halves:
    where they go to even, steps are not alike.

    Args:
        factor: positive.
        accumulators: every x is within; int32.
        results: beyond these bounds results are saturated and need not agree.
    """
    import numpy as np

    multiplier, shift = factor.numerator, 31 - (factor.denominator.bit_length() - 1)
    while multiplier >= 2**31 and multiplier % 2 == 0:
        multiplier, shift = multiplier // 2, shift + 1
    while multiplier < 2**30:
        multiplier, shift = multiplier * 2, shift - 1
    if factor.denominator & (factor.denominator - 1) == 0 and multiplier < 2**31 and -31 <= shift <= 30:
        return FixedPoint((multiplier,), (shift,), "even")
    ks = range(results.low + 1, results.high + 1)
    thresholds = []
    for k in ks:
        half = Fraction(2 * k - 1, 2) / factor
        least = math.ceil(half)
        least += k % 2 == 1 and least == half
        thresholds.append(min(max(least, accumulators.low), accumulators.high + 1))
    point = _meeting(float(factor), np.array(thresholds), np.array(ks), accumulators)
    return None if point is None else FixedPoint((point[0],), (point[1],), "up")


def _meeting(factor: float, thresholds: np.ndarray, ks: np.ndarray, accumulators: Bounds) -> tuple[int, int] | None:
    """The fixed point nearest to a factor that gives each k, or more, of its threshold and of nothing less."""
    import numpy as np

    multiplier, shift = quantize_multiplier(factor)
    if shift > 30:
        return None
    half = 1 << (30 - shift)
    at, before = (((thresholds - step) * multiplier + half) >> (31 - shift) for step in (0, 1))
    reaches = (at >= ks) | (thresholds > accumulators.high)
    if np.all(reaches & ((before < ks) | (thresholds <= accumulators.low))):
        return multiplier, shift
    exact = _nearest_exact(multiplier, shift, thresholds.tolist(), ks.tolist(), accumulators)
    return None if exact is None else (exact, shift)


def _thresholds(factor: float, ks: np.ndarray, accumulators: Bounds) -> np.ndarray:
    """For each k the least x with ``round(float64(x) * factor) >= k``; one above the highest where there is none."""
    import numpy as np

    low, high = accumulators
    guess = np.clip(np.ceil((ks - 0.5) / factor), low - 1, high + 1).astype(np.int64)
    # The quotient is off by less than one, the product by less than one unit of x: three candidates are enough.
    result = np.full_like(ks, high + 1)
    for x in (guess + 1, guess, guess - 1):
        real = x * factor
        size = np.abs(real)
        whole = np.floor(size)
        rounded = np.copysign(whole + (size - whole >= 0.5), real)
        result = np.where((rounded >= ks) & (low <= x) & (x <= high), x, result)
    return result


def _nearest_exact(
    multiplier: int, shift: int, thresholds: Sequence[int], ks: Sequence[int], accumulators: Bounds
) -> int | None:
    """The multiplier nearest to ``multiplier`` that meets all thresholds, in exact arithmetic."""
    least, greatest = 0, 2**31 - 1
    for k, threshold in zip(ks, thresholds, strict=True):
        # x gives k or more where x * multiplier >= target: true of the threshold, not of the integer before it.
        target = (2 * k - 1) << (30 - shift)
        if threshold <= accumulators.high:
            floor, ceiling = _multipliers(threshold, target)
            least, greatest = max(least, floor), min(greatest, ceiling)
        if threshold > accumulators.low:
            floor, ceiling = _multipliers(1 - threshold, 1 - target)
            least, greatest = max(least, floor), min(greatest, ceiling)
        if least > greatest:
            return None
    return min(max(multiplier, least), greatest)


def _multipliers(x: int, target: int) -> tuple[int, int]:
    """The range of the multipliers m, of 0 .. 2**31 - 1, with ``x * m >= target``; an empty one is upside down."""
    if x > 0:
        return -(-target // x), 2**31 - 1
    if x < 0:
        return 0, target // x
    return (0, 2**31 - 1) if target <= 0 else (1, 0)
