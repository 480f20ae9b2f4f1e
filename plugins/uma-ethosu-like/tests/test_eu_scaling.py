"""The model's scales, and the machine's: equal to the last bit, by the formulas of both."""

from __future__ import annotations

import numpy as np
import pytest

from uma.relay import FixedPoint
from uma.relay.fixed_point import scale_array
from uma_ethosu_like.operations import LIMITS
from uma_ethosu_like.scaling import MEAN_TAPS, ROUNDINGS, mean_scale, scale_of


def by_the_machine(values: np.ndarray, multiplier: int, shift: int, rounding: str) -> list[int]:
    """As README.md has it, in integers without an end."""
    made = []
    for value in values.tolist():
        nudge = (1 << 30) * (-1 if value < 0 else 1) if rounding == "tfl" and shift > 31 else 0
        made.append((value * multiplier + (1 << shift >> 1) + nudge) >> shift)
    return made


@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_fixed_points_are_exact(rounding: str) -> None:
    rng = np.random.default_rng(1)
    for shift in range(-31, 12):
        values = rng.integers(-(2**18), 2**18, 400)
        values = np.concatenate([values, np.arange(-20, 20), values << 1 << max(0, min(11, -shift))])
        for multiplier in (1 << 30, (1 << 31) - 1, int(rng.integers(1 << 30, 1 << 31)), 0):
            fixed = FixedPoint((multiplier,), (shift,), rounding)
            scale = scale_of(multiplier, shift)
            made = by_the_machine(values, scale.multiplier, scale.shift, ROUNDINGS[rounding])
            assert made == scale_array(values, fixed, 0).tolist(), (shift, multiplier)


@pytest.mark.parametrize("dtype", LIMITS)
def test_means_are_exact_or_refused(dtype: str) -> None:
    counts = (*range(1, 260, 7), 255, 256, 1023, 1024, 2047, MEAN_TAPS)
    refused = {"int8": [], "int16": [1023, 2047]}
    assert [taps for taps in counts if mean_scale(taps, dtype) is None] == refused[dtype]
    assert mean_scale(MEAN_TAPS + 1, dtype) is None
    rng, (low, high) = np.random.default_rng(2), LIMITS[dtype]
    for taps in (1, 2, 3, 25, 49, 125):
        scale = mean_scale(taps, dtype)
        assert scale is not None
        sums = np.arange(low * taps, high * taps + 1)
        if dtype == "int16":
            # Some, with those where means change.
            steps = (2 * rng.integers(low, high, 2000) + 1) * taps // 2
            sums = np.concatenate([rng.integers(low * taps, high * taps, 2000), steps - 1, steps, steps + 1])
        made = by_the_machine(sums, scale.multiplier, scale.shift, "tfl")
        assert made == [int(np.sign(one) * ((2 * abs(one) + taps) // (2 * taps))) for one in sums.tolist()]
