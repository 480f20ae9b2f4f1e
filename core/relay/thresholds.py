"""Where a scale steps: for each result the least integer that gives it, or more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..tir.form.dtype import bounds
from .fixed_point import scale_array
from .op import FixedPoint, FloatScale

if TYPE_CHECKING:
    import numpy as np

__all__ = ["is_monotonous", "thresholds"]


def is_monotonous(scale: FixedPoint | FloatScale, low: np.ndarray, high: np.ndarray) -> bool:
    """Whether no larger integer of ``low`` .. ``high``, of each channel, gives less: nothing wraps around."""
    import numpy as np

    least, greatest = bounds("int32")
    left_shift = np.zeros(1, np.int64)
    if isinstance(scale, FixedPoint) and scale.rounding == "double":
        left_shift = np.maximum(np.array(scale.shift, np.int64), 0)
    return bool(np.all(low << left_shift >= least) and np.all(high << left_shift <= greatest))


def thresholds(scale: FixedPoint | FloatScale, ks: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """For each k the least x of ``low`` .. ``high`` of which k or more is made, of each channel.

    Args:
        scale: `is_monotonous` between the bounds.
        ks: int64 (results,), of at most 17 bits.
        low, high: int64 (channels,), within int32; as many as scales, or there is one scale for all.

    Returns:
        int64 (channels, results); one above ``high`` where no x is large enough.
    """
    import numpy as np

    k, low, high = ks[None, :], low[:, None], high[:, None]
    if isinstance(scale, FloatScale):
        least_inputs = _of_floats(scale, k, low, high)
    else:
        multiplier, shift = (np.array(numbers, np.int64)[:, None] for numbers in (scale.multiplier, scale.shift))
        if scale.rounding == "double":
            right, left_shift = np.maximum(-shift, 0), np.maximum(shift, 0)
            # Half away from zero: what lies below zero has to be more than half.
            halves = ((2 * k - 1) << np.maximum(right - 1, 0)) + (k <= 0)
            least = np.clip(np.where(right > 0, halves, k), -(2**31), 2**31)
            least_inputs = _ceiling((2 * least - 1) << 30, multiplier, least)
            least_inputs = -(-least_inputs >> left_shift)
        else:
            bits = 30 - shift
            # No product is as large as 2**62, and so none reaches, or all do, what is.
            most = np.int64(2**62) >> bits
            tie = {"up": k != k, "even": k % 2 == 1, "away": k <= 0}[scale.rounding]
            least_inputs = _ceiling((np.clip(2 * k - 1, -most, most) << bits) + tie, multiplier, k)
    result: np.ndarray = np.clip(least_inputs, low, high + 1)
    return result


def _ceiling(target: np.ndarray, multiplier: np.ndarray, k: np.ndarray) -> np.ndarray:
    """The least x with ``x * multiplier >= target``. By 0 every x becomes 0: k or more where k is not positive."""
    import numpy as np

    result: np.ndarray = -(-target // np.maximum(multiplier, 1))
    return np.where(multiplier == 0, np.where(k > 0, 2**40, -(2**40)), result)


def _of_floats(scale: FloatScale, k: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    import numpy as np

    factor = np.array(scale.scale, np.float64)[:, None]
    guess = np.clip((k - 0.5) / factor, -(2.0**32), 2.0**32)
    # The product is off by one part in 2**24, as is x where it has more than 24 bits.
    around = np.ceil(np.abs(guess) * 2.0**-22) + 2
    below = np.clip(guess - around, low - 1, high + 1).astype(np.int64)
    above = np.clip(guess + around, low - 1, high + 1).astype(np.int64)
    while np.any(above - below > 1):
        middle = (below + above) >> 1
        reaches = scale_array(np.clip(middle, low, high), scale, 0) >= k
        above, below = np.where(reaches, middle, above), np.where(reaches, below, middle)
    result: np.ndarray = above
    return result
