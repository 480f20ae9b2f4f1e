"""Where a Resize known at import takes its elements from, in exact arithmetic: no tie is decided by a rounding error.

Sizes are integers and float32 scales are binary fractions, so every source coordinate is a ratio of integers.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import gcd, lcm
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

__all__ = ["Coordinates", "Kernel", "ResizedAxis", "Taps", "find_coordinates", "find_taps"]


@dataclass(frozen=True)
class ResizedAxis:
    """One dimension of a Resize.

    Args:
        extent: elements of the data; an integer, unless the dimension keeps its elements.
        count: elements of the result.
        scale: of the result to the data; positive.
        start, end: the region that is resized, in units of ``extent - 1``.
    """

    extent: int
    count: int
    scale: Fraction
    start: Fraction = Fraction(0)
    end: Fraction = Fraction(1)

    @property
    def is_unchanged(self) -> bool:
        """Whether the result has the elements of the data in their order, whatever the coordinate mode."""
        return self.scale == 1 and self.count == self.extent and self.start == 0 and self.end == 1


@dataclass(frozen=True)
class Coordinates:
    """Source coordinates: element ``i`` of the result lies at ``(first + step * i) / unit`` in the data.

    Args:
        count: elements of the result.
        first, step: integers.
        unit: the common denominator; positive.
    """

    count: int
    first: int
    step: int
    unit: int

    @staticmethod
    def linear(count: int, first: Fraction, step: Fraction) -> Coordinates:
        """Return the coordinates ``first + step * i``."""
        unit = lcm(first.denominator, step.denominator)
        return Coordinates(count, int(first * unit), int(step * unit), unit)

    @property
    def numerators(self) -> list[int]:
        """The numerator of each coordinate; the denominator is ``unit``."""
        return [self.first + self.step * i for i in range(self.count)]

    def round(self, rounding: str) -> list[int]:
        """Round each coordinate as ONNX's ``nearest_mode`` says."""
        unit = self.unit
        if rounding == "floor":
            return [at // unit for at in self.numerators]
        if rounding == "ceil":
            return [-(-at // unit) for at in self.numerators]
        if rounding == "round_prefer_ceil":
            return [(2 * at + unit) // (2 * unit) for at in self.numerators]
        return [-((unit - 2 * at) // (2 * unit)) for at in self.numerators]

    def outside(self, extent: int) -> np.ndarray:
        """Return whether each coordinate is outside of ``0 .. extent - 1``; bool, (count,)."""
        import numpy as np

        last = (extent - 1) * self.unit
        return np.array([not 0 <= at <= last for at in self.numerators])


def find_coordinates(axis: ResizedAxis, mode: str, length: Fraction | None = None) -> Coordinates:
    """Compute the source coordinates of an axis.

    Args:
        axis: the dimension.
        mode: ONNX's ``coordinate_transformation_mode``; the formulas are those of its Resize, versions 11 to 19.
        length: the length of the result that ``align_corners`` divides by; the number of its elements if omitted.
    """
    half, count, last = Fraction(1, 2), axis.count, axis.extent - 1
    step = 1 / axis.scale
    if mode == "align_corners":
        intervals = (Fraction(count) if length is None else length) - 1
        # One element is at the first corner: the formula is 0/0 there.
        return Coordinates.linear(count, Fraction(0), last / intervals if count > 1 and intervals else Fraction(0))
    if mode == "tf_crop_and_resize":
        if count == 1:
            return Coordinates.linear(1, (axis.start + axis.end) * last / 2, Fraction(0))
        return Coordinates.linear(count, axis.start * last, (axis.end - axis.start) * last / (count - 1))
    if mode == "asymmetric":
        return Coordinates.linear(count, Fraction(0), step)
    if mode == "tf_half_pixel_for_nn":
        return Coordinates.linear(count, step / 2, step)
    if mode == "pytorch_half_pixel" and count == 1:
        return Coordinates.linear(1, Fraction(0), Fraction(0))
    first = step / 2 - half
    if mode == "half_pixel_symmetric":
        # `center * (1 - adjustment)`: a fractional length loses the same amount on both sides.
        first += Fraction(axis.extent, 2) * (1 - count / (axis.scale * axis.extent))
    return Coordinates.linear(count, first, step)


@dataclass(frozen=True)
class Kernel:
    """An interpolation filter.

    Args:
        is_cubic: cubic, else linear.
        coefficient: ``cubic_coeff_a``.
        scale: the filter is stretched by its inverse; at most 1.
        excludes_outside: elements outside of the data have weight 0, and the others add up to 1.
    """

    is_cubic: bool
    coefficient: Fraction = Fraction(-3, 4)
    scale: Fraction = Fraction(1)
    excludes_outside: bool = False

    @property
    def offsets(self) -> range:
        """The elements that may have a weight, relative to the one at or before the coordinate."""
        start = -(2 if self.is_cubic else 1) * self.scale.denominator // self.scale.numerator + 1
        return range(start, 2 - start)

    def weigh(self, distance: int, unit: int) -> int:
        """The weight at ``distance / unit``, times an integer that depends on ``unit`` only."""
        if not self.is_cubic:
            return max(unit - distance, 0)
        p, q = self.coefficient.numerator, self.coefficient.denominator
        if distance <= unit:
            return (p + 2 * q) * distance**3 - (p + 3 * q) * distance**2 * unit + q * unit**3
        if distance < 2 * unit:
            return p * (distance**3 - 5 * distance**2 * unit + 8 * distance * unit**2 - 4 * unit**3)
        return 0


@dataclass(frozen=True)
class Taps:
    """The elements that each element of the result is a mean of.

    Args:
        places: of the elements in the data; int64, (count, taps).
        numerators: of the weights; count lists of one integer per tap.
        denominators: of the weights of each element of the result; positive, or 0 where all weights are.
    """

    places: np.ndarray
    numerators: list[list[int]]
    denominators: list[int]

    @property
    def weights(self) -> np.ndarray:
        """The weights, float64, (count, taps), each rounded once."""
        import numpy as np

        rows = zip(self.numerators, self.denominators, strict=True)
        return np.array([[weight / (total or 1) for weight in row] for row, total in rows])

    def scaled(self, limit: int) -> tuple[np.ndarray, int] | None:
        """The weights as integers, int64, over one denominator; None where one of these is ``limit`` or more."""
        import numpy as np

        common, rows = 1, []
        for row, total in zip(self.numerators, self.denominators, strict=True):
            shared = gcd(*row, total) or 1
            rows.append(([weight // shared for weight in row], total // shared or 1))
            common = lcm(common, rows[-1][1])
            if common >= limit:
                return None
        integers = [[weight * (common // total) for weight in row] for row, total in rows]
        if any(abs(weight) >= limit for row in integers for weight in row):
            return None
        return np.array(integers, np.int64), common


def find_taps(coordinates: Coordinates, extent: int, kernel: Kernel) -> Taps:
    """Find the elements of ``extent``, and their weights, that interpolation at the coordinates reads.

    A linear or cubic filter (R. Keys, 1981, equation 4, as in ONNX's Resize), normalised to a sum of 1.
    """
    import numpy as np

    offsets, unit = kernel.offsets, coordinates.unit
    stretch, stretched = kernel.scale.numerator, unit * kernel.scale.denominator
    firsts, numerators, denominators = [], [], []
    for at in coordinates.numerators:
        first, rest = divmod(at, unit)
        weights = [kernel.weigh(abs(offset * unit - rest) * stretch, stretched) for offset in offsets]
        if kernel.excludes_outside:
            weights = [
                weight if 0 <= first + offset < extent else 0 for offset, weight in zip(offsets, weights, strict=True)
            ]
        total = sum(weights)
        sign = -1 if total < 0 else 1
        firsts.append(min(max(first, -(2**31)), 2**31))
        numerators.append([sign * weight if total else 0 for weight in weights])
        denominators.append(abs(total))
    places = np.array(firsts, np.int64)[:, None] + np.array(offsets, np.int64)
    return Taps(np.clip(places, 0, extent - 1), numerators, denominators)
