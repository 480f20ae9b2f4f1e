"""Resize in exact fractions, as the operator's text defines it: an oracle that shares no code with the import."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

__all__ = ["EXTRAPOLATED", "HALF", "REGION", "ROUNDINGS", "resized"]

F = np.float32
HALF = Fraction(1, 2)

ROUNDINGS = ("ceil", "floor", "round_prefer_ceil", "round_prefer_floor")
REGION = (F(0.1), F(0.85))
"""The roi of tf_crop_and_resize."""
EXTRAPOLATED = 1000.0


def source(mode: str, i: int, n: int, m: int, scale: Fraction, interpolates: bool = False) -> Fraction:
    """The source coordinate of element ``i`` of ``m`` in data of ``n``, as in the text of Resize."""
    if mode == "align_corners":
        # The backend tests of ONNX divide by a length that is not rounded, when they interpolate.
        length = scale * n if interpolates else Fraction(m)
        return Fraction(0) if m == 1 else i * (n - 1) / (length - 1)
    if mode == "tf_crop_and_resize":
        start, end = map(Fraction, map(float, REGION))
        return start * (n - 1) + i * (end - start) * (n - 1) / (m - 1) if m > 1 else HALF * (start + end) * (n - 1)
    if mode == "asymmetric":
        return i / scale
    if mode == "tf_half_pixel_for_nn":
        # A dimension that is not resized is copied.
        return Fraction(i) if scale == 1 else (i + HALF) / scale
    if mode == "pytorch_half_pixel":
        return (i + HALF) / scale - HALF if m > 1 else Fraction(0)
    centre = Fraction(n, 2)
    offset = centre * (1 - m / (scale * n)) if mode == "half_pixel_symmetric" else 0
    return offset + (i + HALF) / scale - HALF


def nearest(at: Fraction, rounding: str) -> int:
    below = math.floor(at)
    rest = at - below
    ups = {"floor": False, "ceil": rest > 0, "round_prefer_ceil": rest >= HALF, "round_prefer_floor": rest > HALF}
    return below + ups[rounding]


def weight(distance: Fraction, kernel: str, a: Fraction) -> Fraction:
    d = abs(distance)
    if kernel == "linear":
        return max(1 - d, Fraction(0))
    if d <= 1:
        return (a + 2) * d**3 - (a + 3) * d**2 + 1
    return a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a if d < 2 else Fraction(0)


def resized(values: Sequence[int], m: int, mode: str, kernel: str, scale: Fraction, **attrs: Any) -> list[Fraction]:
    """One dimension of data, resized; ``kernel`` is a rounding where the nearest element is taken."""
    n, result = len(values), []
    for i in range(m):
        at = source(mode, i, n, m, scale, kernel not in ROUNDINGS)
        if mode == "tf_crop_and_resize" and not 0 <= at <= n - 1:
            result.append(Fraction(int(EXTRAPOLATED)))
            continue
        if kernel in ROUNDINGS:
            result.append(Fraction(values[min(max(nearest(at, kernel), 0), n - 1)]))
            continue
        stretch = min(scale, Fraction(1)) if attrs.get("antialias") else Fraction(1)
        reach = math.ceil(2 / stretch) + 1
        weights = {}
        for k in range(math.floor(at) - reach, math.floor(at) + reach + 1):
            if 0 <= k < n or not attrs.get("exclude_outside"):
                weights[k] = weight((k - at) * stretch, kernel, Fraction(attrs.get("cubic_coeff_a", -0.75)))
        total = sum(weights.values())
        result.append(sum(w * values[min(max(k, 0), n - 1)] for k, w in weights.items()) / total)
    return result
