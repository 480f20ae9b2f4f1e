"""Arithmetic of `FixedPoint` and `FloatScale`: on scalars, on arrays, and how a real factor becomes a fixed point."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from .op import Bounds, FixedPoint, FloatScale, Scale

if TYPE_CHECKING:
    import numpy as np

__all__ = ["prove_fixed_point", "quantize_multiplier", "scale_array", "scale_integer"]


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


def scale_integer(value: int, multiplier: int, shift: int, rounding: str) -> int:
    """``value``, an int32, scaled by one fixed point: see `FixedPoint`."""
    if rounding == "double":
        left = _wrap(value << max(shift, 0))
        return _divide(_divide(left * multiplier, 31, "up"), max(-shift, 0), "away")
    return _divide(value * multiplier, 31 - shift, rounding)


def _wrap(value: int) -> int:
    return (value + 2**31) % 2**32 - 2**31


def _divide(value: int, bits: int, rounding: str) -> int:
    """``value / 2**bits``, rounded to the nearest; ``rounding`` says where halves go."""
    quotient, rest = value >> bits, 2 * (value & ((1 << bits) - 1))
    half = 1 << bits
    up = {"up": True, "even": quotient % 2 == 1, "away": quotient >= 0}[rounding]
    return quotient + (rest > half or (bits > 0 and rest == half and up))


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
        # Beyond 2**62 every dtype has long been saturated.
        return np.clip(product.astype(np.float64), -(2.0**62), 2.0**62).astype(np.int64)
    multiplier = np.array(scale.multiplier, np.int64).reshape(shape)
    shift = np.array(scale.shift, np.int64).reshape(shape)
    wide = values.astype(np.int64)
    if scale.rounding == "double":
        left = (wide << np.maximum(shift, 0)).astype(np.int32).astype(np.int64)
        high = _divide_array(left * multiplier, np.full(shape, 31), "up")
        return _divide_array(high, np.maximum(-shift, 0), "away")
    return _divide_array(wide * multiplier, 31 - shift, scale.rounding)


def _divide_array(values: np.ndarray, bits: np.ndarray, rounding: str) -> np.ndarray:
    quotient = values >> bits
    twice_rest = (values - (quotient << bits)) * 2
    one = np_one() << bits
    tie_up = {"up": quotient == quotient, "even": quotient % 2 == 1, "away": quotient >= 0}[rounding]
    up: np.ndarray = (twice_rest > one) | ((twice_rest == one) & (bits > 0) & tie_up)
    return quotient + up
