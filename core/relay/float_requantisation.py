"""Requantisation in floats: what a float form computes, on arrays. That it equals integers is proven elsewhere."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from ..errors import ModelError
from ..tir.form.scalar_semantics import round_float32

if TYPE_CHECKING:
    import numpy as np

__all__ = ["LEAST_FACTOR", "MAX_LIMIT", "FloatForm", "SumForm", "clipped", "fma_array", "multiply_add", "scaled"]

MAX_LIMIT = 2**24
"""The largest limit of a form in size: up to it, every whole number is a float32."""

LEAST_FACTOR = 2.0**-100
"""The smallest multiplier that is not 0. Every int32 times a smaller one rounds to 0, as with this one."""

_DTYPES = ("float32", "float64")


@dataclass(frozen=True)
class FloatForm:
    """How integers are scaled in floats: ``clip(round_even(x * multiplier + offset), low, high)``, x being converted to
    the nearest float first. Zero points are in the offsets.

    Args:
        dtype: float32 or float64, of all of it.
        multiplier: one per channel, or one for all; 0 or 2**-100 .. 2**62.
        offset: likewise; at most 2**62 in size.
        offset_below: what is added instead where x is negative; empty where that is no other.
        low, high: limits, whole numbers of at most 24 bits.
        fused: whether product and sum are rounded once (fma), or one after the other.
        shift: by how much x is larger than what is to be scaled, one per channel, or one for all: something was added
            so that an offset is found. Computing it does not take this, proving it does.
    """

    dtype: Literal["float32", "float64"]
    multiplier: tuple[float, ...]
    offset: tuple[float, ...]
    offset_below: tuple[float, ...]
    low: int
    high: int
    fused: bool
    shift: tuple[int, ...] = (0,)

    def __post_init__(self) -> None:
        _check(self.dtype, self.low, self.high, self.fused)
        object.__setattr__(self, "shift", _shifts(self.shift))
        for name in ("multiplier", "offset", "offset_below"):
            object.__setattr__(self, name, _floats(getattr(self, name), self.dtype, name))
        counts = {len(self.multiplier), len(self.offset), len(self.offset_below) or len(self.offset)}
        if len(counts) != 1 or 0 in counts or len(self.shift) not in (1, *counts):
            offsets = f"{len(self.offset)} and {len(self.offset_below)} offsets"
            shown = f"{len(self.multiplier)} multipliers, {offsets} and {len(self.shift)} shifts"
            raise ModelError(f"a float form of {shown}", hint="as many of each; or no offsets below 0, and one shift")
        for factor in self.multiplier:
            if not (factor == 0 or LEAST_FACTOR <= factor):
                raise ModelError(f"multiplier {factor} of a float form is neither 0 nor 2**-100 or more")

    def __len__(self) -> int:
        return len(self.multiplier)

    def apply(self, values: np.ndarray, axis: int) -> np.ndarray:
        """``values``, integers that int32 holds, scaled: int64 of the same shape.

        Args:
            values: integers.
            axis: the dimension of the channels.
        """
        import numpy as np

        shape = [1] * values.ndim
        if len(self) > 1:
            shape[axis] = len(self)
        numbers = (self.multiplier, self.offset, self.offset_below or self.offset)
        multiplier, offset, below = (np.array(parameter, self.dtype).reshape(shape) for parameter in numbers)
        return clipped(scaled(values, multiplier, offset, below, self.fused), self)


@dataclass(frozen=True)
class SumForm:
    """How two integers are scaled and added in float32: ``clip(round_even(a * lhs + (b * rhs + offset)), low, high)``.
    Zero points are in the offset.

    Args:
        lhs, rhs: factors of the operands; 0 or 2**-100 .. 2**62 in size.
        offset: at most 2**62 in size.
        low, high: limits, whole numbers of at most 24 bits.
        fused: whether each product and sum are rounded once (fma), or one after the other.
    """

    lhs: float
    rhs: float
    offset: float
    low: int
    high: int
    fused: bool

    def __post_init__(self) -> None:
        _check("float32", self.low, self.high, self.fused)
        for name in ("lhs", "rhs", "offset"):
            object.__setattr__(self, name, _floats((getattr(self, name),), "float32", name)[0])

    def apply(self, lhs: np.ndarray, rhs: np.ndarray) -> np.ndarray:
        """The sums of integers of at most 24 bits, broadcast as numpy does: int64."""
        import numpy as np

        single = np.float32
        inner = multiply_add(rhs.astype(single), single(self.rhs), single(self.offset), self.fused)
        return clipped(np.rint(multiply_add(lhs.astype(single), single(self.lhs), inner, self.fused)), self)


def _check(dtype: str, low: int, high: int, fused: bool) -> None:
    if dtype not in _DTYPES:
        raise ModelError(f"a float form in {dtype!r}", hint=f"one of {', '.join(_DTYPES)}")
    if type(fused) is not bool:
        raise ModelError(f"a float form is fused or not, not {fused!r}")
    for limit in (low, high):
        if type(limit) is not int or abs(limit) > MAX_LIMIT:
            raise ModelError(f"limit {limit!r} of a float form is not a whole number of at most 24 bits")
    if low > high:
        raise ModelError(f"limits {low} .. {high} of a float form are upside down")


def _shifts(values: Any) -> tuple[int, ...]:
    shifts = tuple(values) if isinstance(values, Iterable) else (values,)
    for value in shifts:
        if type(value) is not int or abs(value) >= 2**31:
            raise ModelError(f"shift {value!r} of a float form is not int32")
    return shifts


def _floats(values: Any, dtype: str, name: str) -> tuple[float, ...]:
    try:
        numbers = [float(value) for value in (values if isinstance(values, Iterable) else (values,))]
    except (TypeError, ValueError, OverflowError) as error:
        raise ModelError(f"{name} {values!r} of a float form: {error}") from error
    rounded = tuple((round_float32(value) if dtype == "float32" else value) + 0.0 for value in numbers)  # no -0.0
    for value in rounded:
        if not (math.isfinite(value) and abs(value) <= 2.0**62):
            raise ModelError(f"{name} {value} of a float form is larger than 2**62")
    return rounded


def scaled(
    values: np.ndarray, multiplier: np.ndarray, offset: np.ndarray, offset_below: np.ndarray, fused: bool
) -> np.ndarray:
    """Integers as a float form scales them, rounded to whole numbers of the dtype of its numbers.

    Args:
        values: that int32 holds.
        multiplier, offset, offset_below: of one float dtype; broadcast with ``values``.
        fused: as for `FloatForm`.
    """
    import numpy as np

    added = offset if offset is offset_below else np.where(values < 0, offset_below, offset)
    result: np.ndarray = np.rint(multiply_add(values.astype(multiplier.dtype), multiplier, added, fused))
    return result


def clipped(values: np.ndarray, form: FloatForm | SumForm) -> np.ndarray:
    """Whole numbers within the limits of a form, as int64."""
    import numpy as np

    result: np.ndarray = np.clip(values, form.low, form.high).astype(np.int64)
    return result


def multiply_add(x: np.ndarray, factor: Any, offset: Any, fused: bool) -> np.ndarray:
    """``x * factor + offset``, all of one float dtype, rounded once or twice."""
    result: np.ndarray = fma_array(x, factor, offset) if fused else x * factor + offset
    return result


def fma_array(a: Any, b: Any, c: Any) -> np.ndarray:
    """``a * b + c`` with one rounding, of float32 or float64 arrays that broadcast, nothing near overflow or underflow.

    (S. Boldo, G. Melquiond, "Emulation of FMA and correctly rounded sums: proved algorithms using rounding to odd",
    IEEE Transactions on Computers 57, 2008.)
    """
    import numpy as np

    if a.dtype == np.float32:
        # A product of two float32 is a float64. What is rounded to odd there can be rounded once more.
        result: np.ndarray = _odd_sum(a.astype(np.float64) * b, np.asarray(c, np.float64)).astype(np.float32)
        return result
    high, low = _exact_product(a, b)
    carried, carry = _exact_sum(c, low)
    total, rest = _exact_sum(high, carried)
    rounded_sum: np.ndarray = total + _odd_sum(carry, rest)
    return rounded_sum


def _exact_sum(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The sum and its error (Knuth)."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def _exact_product(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The product and its error (Dekker, Veltkamp)."""
    (a1, a2), (b1, b2) = _halves(a), _halves(b)
    product = a * b
    return product, a2 * b2 - (((product - a1 * b1) - a2 * b1) - a1 * b2)


def _halves(a: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    scaled = a * (2.0**27 + 1)
    high = scaled - (scaled - a)
    return high, a - high


def _odd_sum(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """``a + b`` in float64; where that is not exact the neighbour whose last bit is 1."""
    import numpy as np

    total, error = _exact_sum(a, b)
    total = np.atleast_1d(total)
    # The bits of floats of one sign are ordered as their magnitudes are.
    step = np.where((error > 0) == (total > 0), 1, -1)
    even = (error != 0) & (total.view(np.int64) & 1 == 0)
    result: np.ndarray = (total.view(np.int64) + np.where(even, step, 0)).view(np.float64)
    return result.reshape(np.shape(error))
