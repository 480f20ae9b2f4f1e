"""Sigmoid and tanh of fixed points of 16 bits, in the arithmetic of gemmlowp, on arrays or expressions of loops alike.

A number of m integer bits has 15 - m bits behind the point. They are held in wider integers; the product of two is
``(a * b + 2**14) >> 15``.
"""

from __future__ import annotations

from typing import Any

from .gemmlowp import Numbers

__all__ = ["MOST_INTEGER_BITS", "sigmoid16", "tanh16"]

MOST_INTEGER_BITS = 4
"""Of an argument: powers are of twice that."""

_MOST = (1 << 15) - 1

# Exponents of two and e ** -(2 ** exponent), Q0.15.
_POWERS = {-2: 25520, -1: 19875, 0: 12055, 1: 4435, 2: 600, 3: 11, 4: 0}
_EXP_MINUS_EIGHTH, _THIRD = 28918, 10923  # Q0.15
_48_OVER_17, _MINUS_32_OVER_17 = 23130, -15420  # Q2.13


def _product(a: Any, b: Any) -> Any:
    return (a * b + (1 << 14)) >> 15


def _saturated(numbers: Numbers, value: Any) -> Any:
    return numbers.most(numbers.least(value, _MOST), -(1 << 15))


def _halved(numbers: Numbers, value: Any, bits: int) -> Any:
    """``value / 2**bits``, half away from zero."""
    half, value = 1 << (bits - 1), numbers.name(value)
    return numbers.where(value < 0, 0 - ((0 - value + half) >> bits), (value + half) >> bits)


def _exp(numbers: Numbers, value: Any, bits: int) -> Any:
    """e ** a of what is not positive, as Q0.15. (gemmlowp, ``exp_on_negative_values``.)"""
    behind = 15 - bits
    quarter = 1 << (behind - 2)
    fraction = numbers.name((value & (quarter - 1)) - quarter)
    x = numbers.name((fraction << bits) + (1 << 12))
    x2 = numbers.name(_product(x, x))
    x3, x4 = _product(x2, x), _product(x2, x2)
    tail = _halved(numbers, _product(_halved(numbers, x4, 2) + x3, _THIRD) + x2, 1)
    result = _saturated(numbers, _product(x + tail, _EXP_MINUS_EIGHTH) + _EXP_MINUS_EIGHTH)
    rest, result = numbers.name(fraction - value), numbers.name(result)
    for exponent, power in _POWERS.items():
        if bits > exponent:
            is_set = ((rest >> (behind + exponent)) & 1) > 0
            result = numbers.name(numbers.where(is_set, _product(result, power), result))
    return numbers.where(value >= 0, _MOST, result)


def _newton(numbers: Numbers, value: Any) -> Any:
    """2 / (1 + x) of x in 0 .. 1, Q2.13. (gemmlowp.)"""
    half = numbers.name((value + (1 << 15)) >> 1)
    x = numbers.name(_product(half, _MINUS_32_OVER_17) + _48_OVER_17)
    for _ in range(3):
        x = numbers.name(x + _saturated(numbers, _product(x, (1 << 13) - _product(half, x)) << 2))
    return x


def sigmoid16(numbers: Numbers, value: Any, bits: int) -> Any:
    """1 / (1 + e ** -a), as Q0.15. (gemmlowp, ``logistic``.)

    Args:
        numbers: the arithmetic.
        value: 16 bits.
        bits: its integer bits.
    """
    value = numbers.name(value)
    below = numbers.name(numbers.where(value > 0, 0 - value, value))
    above = _saturated(numbers, _newton(numbers, _exp(numbers, below, bits)) << 1)
    return numbers.where(value > 0, above, numbers.where(value < 0, _MOST - above, 1 << 14))


def tanh16(numbers: Numbers, value: Any, bits: int) -> Any:
    """tanh(a), as Q0.15. (gemmlowp, ``tanh``.)

    Args:
        numbers: the arithmetic.
        value: 16 bits.
        bits: its integer bits.
    """
    value = numbers.name(value)
    below = numbers.name(numbers.where(value < 0, value, 0 - value))
    size = _saturated(numbers, (_newton(numbers, _exp(numbers, below, bits + 1)) - (1 << 13)) << 2)
    return numbers.where(value > 0, size, numbers.where(value < 0, 0 - size, 0))
