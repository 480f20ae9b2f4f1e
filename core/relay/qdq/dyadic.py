"""Numbers that are integers times a power of two: those of constants, and of scales."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..expr import Call, Constant, Expr
from .quantised_type import StaysFloat

if TYPE_CHECKING:
    import numpy as np

__all__ = [
    "EXPONENTS",
    "LIMIT",
    "Stored",
    "dyadic_number",
    "exponent_of",
    "narrow",
    "shifted",
    "stored_constant",
]

LIMIT = 2**24
"""Above the size of integers that float32 holds whatever they are."""

EXPONENTS = range(-100, 101)
"""Of units: far from where float32 ends."""


@dataclass(frozen=True)
class Stored:
    """A constant: ``integers * 2**exponent``, int32; where there are ``shifts``, element c along ``axis`` times
    ``2**shifts[c]``.

    The least of the shifts is 0. ``is_shifted`` tells that the integers are other ones than the model's.
    """

    integers: np.ndarray
    exponent: int
    shifts: tuple[int, ...] = ()
    axis: int = -1
    is_shifted: bool = False

    def along(self, axis: int) -> Stored:
        """The same with shifts along ``axis``, of the positive ones, if it has any."""
        import numpy as np

        if not self.shifts or self.axis % self.integers.ndim == axis % self.integers.ndim:
            return self
        shape = [1] * self.integers.ndim
        shape[self.axis] = len(self.shifts)
        return Stored(shifted(self.integers, np.array(self.shifts).reshape(shape)), self.exponent, is_shifted=True)


def exponent_of(scale: float) -> int | None:
    """The exponent of a power of two that is a usable unit; None for another number."""
    significand, exponent = math.frexp(scale)
    return exponent - 1 if significand == 0.5 and exponent - 1 in EXPONENTS else None


def dyadic_number(value: float) -> tuple[int, int]:
    """An integer and an exponent: ``value`` is the one times a power of two; StaysFloat as for `_dyadic`."""
    import numpy as np

    integers, exponent = _dyadic(np.array([value], np.float64))
    return int(integers[0]), exponent


def _dyadic(values: np.ndarray) -> tuple[np.ndarray, int]:
    """Integers, int32, and an exponent: ``values`` is integers times a power of two, the largest one for which it is.

    Raises:
        StaysFloat: the integers do not fit 24 bits.
    """
    import numpy as np

    if not np.isfinite(values).all():
        raise StaysFloat("a constant is not finite")
    wide = values.astype(np.float64)
    used = wide[wide != 0]
    if not used.size:
        return np.zeros(values.shape, np.int32), 0
    significands, exponents = np.frexp(used)
    whole = np.abs(significands * 2.0**53).astype(np.int64)
    trailing = np.log2((whole & -whole).astype(np.float64)).astype(np.int64)
    exponent = int((exponents.astype(np.int64) - 53 + trailing).min())
    if int(exponents.max()) - exponent > 24 or exponent not in EXPONENTS:
        raise StaysFloat("its constants need more than 24 bits")
    return (wide * 2.0**-exponent).astype(np.int32), exponent


def stored_constant(expr: Expr) -> Stored | None:
    """The integers of a constant; None for what is not a constant. A quantised constant keeps its own.

    Raises:
        StaysFloat: it has no such integers.
    """
    import numpy as np

    if isinstance(expr, Constant):
        return Stored(*_dyadic(expr.data))
    if not isinstance(expr, Call) or expr.op_name != "qnn.dequantize" or not isinstance(expr.args[0], Constant):
        return None
    attrs, stored = expr.attrs, expr.args[0].data.astype(np.int64)
    exponents = [exponent_of(scale) for scale in attrs.scale]
    exact = [exponent for exponent in exponents if exponent is not None]
    if len(exact) < len(exponents):
        raise StaysFloat("a scale of a constant is not a power of two")
    zero_points = np.array(attrs.zero_point, np.int64)
    if len(zero_points) > 1:
        zero_points = zero_points.reshape([-1 if d == attrs.axis % stored.ndim else 1 for d in range(stored.ndim)])
    centred = shifted(stored - zero_points, np.zeros((), np.int64))
    unit = min(exact)
    shifts = tuple(exponent - unit for exponent in exact)
    return Stored(centred, unit, shifts, attrs.axis) if any(shifts) else Stored(centred, unit)


def narrow(integers: np.ndarray, weight: Expr, stored: Stored) -> tuple[np.ndarray, int]:
    """The integers of a weight in as few bits as they fit, less a zero point.

    Raises:
        StaysFloat: they need more than 16 bits.
    """
    import numpy as np

    if np.array_equal(integers.astype(np.int8), integers):
        return integers.astype(np.int8), 0
    if isinstance(weight, Call) and not stored.is_shifted:
        data, zero_points = weight.args[0], set(weight.attrs.zero_point)
        if isinstance(data, Constant) and data.dtype in ("int8", "uint8") and len(zero_points) == 1:
            return data.data, zero_points.pop()
    if not np.array_equal(integers.astype(np.int16), integers):
        raise StaysFloat("its weight needs more than 16 bits")
    return integers.astype(np.int16), 0


def shifted(integers: np.ndarray, shifts: np.ndarray) -> np.ndarray:
    """``integers * 2**shifts`` as int32; StaysFloat where they need more than 24 bits."""
    import numpy as np

    wide = integers.astype(np.int64) << np.minimum(shifts, 24)
    if np.abs(wide).max() >= LIMIT:
        raise StaysFloat("its constants need more than 24 bits")
    result: np.ndarray = wide.astype(np.int32)
    return result
