"""Functions of fixed points, in the arithmetic of gemmlowp, on arrays of int64 or on int64 expressions of loops alike.

A number of format Qm.n is an integer with n bits behind the point, m + n = 31. The product of two of them is their
rounding doubling high product, ``(a * b + 2**30) >> 31``; their integer bits add up.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...tir.form.nodes import Call, Expr, Imm, Select, const, maximum, minimum

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "ARRAYS",
    "LOOPS",
    "ROOT_STEPS",
    "Numbers",
    "away",
    "inverse_of_one_plus",
    "inverse_root",
    "log",
    "product",
    "root_begin",
    "root_end",
    "root_step",
    "scaled",
]

_MOST = 2**31 - 1


@dataclass(frozen=True)
class Numbers:
    """What arrays and expressions of loops do not share.

    Args:
        where: ``where(condition, a, b)``.
        leading: zeros before the first one among 32 bits, of what is positive.
        least, most: of two.
        name: has an expression computed once that is used several times; gives what stands for it.
    """

    where: Callable[[Any, Any, Any], Any]
    leading: Callable[[Any], Any]
    least: Callable[[Any, Any], Any]
    most: Callable[[Any, Any], Any]
    name: Callable[[Any], Any] = lambda value: value

    def saturated(self, value: Any) -> Any:
        """Within int32."""
        return self.most(self.least(value, _MOST), -(2**31))


def _where(condition: Any, a: Any, b: Any) -> Any:
    import numpy as np

    return np.where(condition, a, b)


def _leading(values: Any) -> Any:
    import numpy as np

    return 32 - np.vectorize(lambda value: int(value).bit_length(), otypes=[np.int64])(values)


def _by(name: str) -> Callable[[Any, Any], Any]:
    def function(a: Any, b: Any) -> Any:
        import numpy as np

        return getattr(np, name)(a, b)

    return function


def _chosen(condition: Any, a: Any, b: Any) -> Any:
    dtype = next((value.dtype for value in (a, b) if not isinstance(value, int)), "int64")
    a, b = (const(value, dtype) if isinstance(value, int) else value for value in (a, b))
    return Select(condition, a, b)


ARRAYS = Numbers(_where, _leading, _by("minimum"), _by("maximum"))
"""Arrays of int64."""

LOOPS = Numbers(_chosen, lambda value: Call("clz", value.astype("int32")).astype("int64"), minimum, maximum)
"""Expressions of int64; of int32 where all that is computed fits."""


def product(a: Any, b: Any) -> Any:
    """The rounding doubling high product."""
    return (a * b + (1 << 30)) >> 31


def away(numbers: Numbers, value: Any, bits: Any) -> Any:
    """``value / 2**bits``, half away from zero."""
    one = Imm(1, "int64") if isinstance(bits, Expr) else 1
    half = (one << bits) >> 1
    size = numbers.where(value < 0, 0 - value, value)
    rounded = (size + half) >> bits
    return numbers.where(value < 0, 0 - rounded, rounded)


def scaled(numbers: Numbers, value: Any, multiplier: Any, shift: Any) -> Any:
    """``value * multiplier * 2**(shift - 31)``, rounded twice: TFLite's ``MultiplyByQuantizedMultiplier``."""
    left, right = numbers.most(shift, 0), numbers.most(0 - shift, 0)
    return away(numbers, product(value << left, multiplier), right)


ROOT_STEPS = 5
"""Of Newton's iteration to an inverse root."""


def inverse_root(numbers: Numbers, value: Any) -> tuple[Any, Any]:
    """1 / sqrt(value) as a multiplier and a shift, that of `scaled`; of 0 and 1 the largest multiplier.

    Newton's iteration from 1 on numbers of 3 integer bits. (TFLite, ``GetInvSqrtQuantizedMultiplierExp``.)

    Args:
        numbers: the arithmetic.
        value: not negative, below 2**31.
    """
    half, shift = root_begin(numbers, value)
    x = half * 0 + (1 << 28)
    for _ in range(ROOT_STEPS):
        x = root_step(numbers, half, x)
    return root_end(numbers, value, x, shift)


def root_begin(numbers: Numbers, value: Any) -> tuple[Any, Any]:
    """Half of the number that the iteration is about, and how far the result is shifted to the right."""
    is_large = value >= 1 << 29
    at = numbers.where(value <= 1, 2, numbers.where(is_large, value >> 2, value))
    pairs = ((numbers.leading(at) - 1) >> 1) - 1
    half = (((at << (pairs << 1)) >> 1) + 1) >> 1
    return half, numbers.where(is_large, 12, 11) - pairs


def root_step(numbers: Numbers, half: Any, x: Any) -> Any:
    """One step of the iteration."""
    cube = numbers.saturated(product(product(x, x), x) << 6)
    return numbers.saturated((product(x, (1 << 28) + (1 << 27)) - product(half, cube)) << 3)


def root_end(numbers: Numbers, value: Any, x: Any, shift: Any) -> tuple[Any, Any]:
    """Multiplier and shift."""
    is_small = value <= 1
    scaled_root = product(x, 1518500250) << numbers.most(0 - shift, 0)
    return numbers.where(is_small, _MOST, scaled_root), numbers.where(is_small, 0, 0 - numbers.most(shift, 0))


def inverse_of_one_plus(numbers: Numbers, value: Any) -> Any:
    """1 / (1 + x) of x in 0 .. 1, both Q0.31. (gemmlowp, ``one_over_one_plus_x_for_x_in_0_1``.)"""
    half = (value + (1 << 31)) >> 1
    x = product(half, -1010580540) + 1515870810
    for _ in range(3):
        x = x + (product(x, 2**29 - product(half, x)) << 2)
    return numbers.saturated(x << 1)


_LOG_2, _ROOT_HALF, _FOURTH_ROOT_HALF = 1488522236, 1518500250, 1805811301  # Q0.31
_ALPHA_N, _ALPHA_D, _ALPHA_I, _ALPHA_F = 117049297, 127690142, 1057819769, 638450708  # Q0.31
_QUARTER = 1 << 23  # Q6.25


def log(numbers: Numbers, value: Any, bits: int) -> Any:
    """The natural logarithm of what is 1 or more, as Q5.26.

    What is left of a power of two is near sqrt(sqrt(1/2)), around which a quotient of polynomials is taken.
    (gemmlowp's fixed points in TFLite's ``log_x_for_x_greater_than_or_equal_to_1_impl``.)

    Args:
        numbers: the arithmetic.
        value: positive.
        bits: its integer bits.
    """
    room = numbers.leading(value)
    first = numbers.saturated(product(value << (room - 1), _ROOT_HALF) << 1)
    first_power = ((bits - room) << 25) + _QUARTER
    other_room = numbers.leading(product(value, _ROOT_HALF)) - 1
    other = numbers.saturated(value << other_room)
    other_power = ((bits - other_room) << 25) - _QUARTER
    r, power = numbers.least(first, other), numbers.most(first_power, other_power)
    p = (r + (_FOURTH_ROOT_HALF + 1)) >> 1
    q = (r - _FOURTH_ROOT_HALF) << 1
    square = product(q, q)
    above = product(q, r) + product(product(q, square), _ALPHA_N)
    below = product(p, q + product(square, _ALPHA_D) + _ALPHA_I) + product(q, _ALPHA_F)
    share = product(away(numbers, above, 6), inverse_of_one_plus(numbers, below))
    return numbers.saturated((product(power, _LOG_2) + share) << 1)
