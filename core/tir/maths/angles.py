"""sin, cos and atan of float32.

``x = k pi / 2 + r`` with a whole ``k`` and ``|r|`` up to pi / 4: sin and cos are one of two polynomials of ``r``, with
a sign, as the low bits of ``k`` say. Up to `NEAR`, ``k pi / 2`` is subtracted in four parts, of which the first three
have so few bits that their products with ``k`` are exact (Cody and Waite, 1980). Beyond that the product of ``x`` with
96 bits of 2 / pi, those that matter for its exponent, is formed in integers (Payne and Hanek, 1983).

atan is a polynomial of numbers up to tan(pi / 8), and beyond that an eighth or a quarter of a turn more than that of
``(x - 1) / (x + 1)`` or ``-1 / x``.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from ..form.exprs import Call, Expr, Select
from .coefficients import ATAN, COS, SIN
from .polynomials import bits, from_bits, magnitude, polynomial, real, with_sign_of, word

__all__ = ["NEAR", "atan", "cos", "cos_far", "sin", "sin_far"]

NEAR = 8192.0
"""Up to this size of ``x`` parts of pi / 2 are subtracted."""

_ROUNDS = 12582912.0  # 1.5 * 2**23: a sum of this size is rounded to a whole number
_PARTS = (1.5703125, 4.837512969970703125e-4, 7.549533620476722717285e-08, 2.5633440682570896e-12)
"""Of pi / 2: 8, 11, 11 and 24 bits."""

_PER_QUARTER = 0xA2F9836E4E441529FC2757D1F534DDC0DB6295993C439041FE5163AB
"""2 / pi times 2**224."""


class _Reduced(NamedTuple):
    """An angle.

    Args:
        k: quarters of a turn, in the low two bits of a uint32.
        r: what is left, a float32.
    """

    k: Expr
    r: Expr


def _near(x: Expr) -> _Reduced:
    rounded = x * real(2 / math.pi) + _ROUNDS
    k = rounded - _ROUNDS
    r = x
    for part in _PARTS:
        r = r - k * part
    return _Reduced(bits(rounded), r)


def _far(x: Expr) -> _Reduced:
    """Of ``|x|``, which is ``mantissa * 2**(exponent - 23)`` with an exponent of 13 or more.

    Bits of 2 / pi above 2**(25 - exponent) give multiples of 4 quarters; 96 bits are taken from there on. Their product
    with the mantissa is in units of 2**-94 quarters, of which the low 32 bits are left out.
    """
    pattern = bits(x)
    exponent = (pattern >> 23) & 255
    mantissa = ((pattern & 0x7FFFFF) | 0x800000).astype("uint64")
    # Bits are counted from 32 before the point, of which all are 0.
    start = exponent - (127 - 7)
    first, shift = start >> 5, start & 31
    words = [word(0), *(word(_PER_QUARTER >> (192 - 32 * number) & 0xFFFFFFFF) for number in range(7))]

    def at(offset: int) -> Expr:
        """The word that bit ``start`` is in, or one behind it."""
        selected: Expr = words[4 + offset]
        for number in (3, 2, 1, 0):
            selected = Select(first.equal(number), words[number + offset], selected)
        return selected.astype("uint64")

    def shifted_word(offset: int) -> Expr:
        return ((at(offset) << 32 | at(offset + 1)) << shift.astype("uint64")) >> 32

    product = (mantissa * shifted_word(0) << 32) + mantissa * shifted_word(1) + (mantissa * shifted_word(2) >> 32)
    k = (product + 2**61) >> 62
    rest = (product - (k << 62)).astype("int64").astype("float64")
    return _Reduced(k.astype("uint32"), (rest * (math.pi * 2.0**-63)).astype("float32"))


def _value(reduced: _Reduced, quarters: int) -> Expr:
    """The sine of an angle with so many quarters more."""
    k, r = reduced.k + quarters if quarters else reduced.k, reduced.r
    square = r * r
    sine = r + r * square * polynomial(SIN, square)
    cosine = real(1.0) - (square * 0.5 - square * square * polynomial(COS, square))
    value = Select((k & 1).equal(0), sine, cosine)
    return from_bits(bits(value) ^ ((k & 2) << 30))


def _far_value(x: Expr, quarters: int) -> Expr:
    return Select(magnitude(x) < math.inf, _value(_far(x), quarters), real(math.nan))


def sin(x: Expr) -> Expr:
    """The sine of an angle in radians; NaN of infinity."""
    near = Select(magnitude(x) < 2.0**-12, x, _value(_near(x), 0))
    return Select(magnitude(x) <= NEAR, near, Call("sin_far", x))


def cos(x: Expr) -> Expr:
    """The cosine of an angle in radians; NaN of infinity."""
    return Select(magnitude(x) <= NEAR, _value(_near(x), 1), Call("cos_far", x))


def sin_far(x: Expr) -> Expr:
    """The sine, of at least `NEAR` in size, or NaN."""
    sine = _far_value(x, 0)
    return from_bits(bits(sine) ^ (bits(x) & 0x80000000))


def cos_far(x: Expr) -> Expr:
    """The cosine, of at least `NEAR` in size, or NaN."""
    return _far_value(x, 1)


_EIGHTH, _EIGHTH_REST = 0.785398185253143310546875, -2.185569414336896e-8
"""Of a turn, pi / 4: the nearest float32, and what it is off by."""


def atan(x: Expr) -> Expr:
    """One quotient for all sizes of ``x``."""
    size = magnitude(x)
    beyond, far = size > real(math.sqrt(2) - 1), size > real(math.sqrt(2) + 1)
    above = Select(far, real(-1.0), Select(beyond, size - 1.0, size))
    below = Select(far, size, Select(beyond, size + 1.0, real(1.0)))
    r = above / below
    square = r * r
    near = r + r * (square * polynomial(ATAN, square))
    turned = Select(far, real(2 * _EIGHTH), Select(beyond, real(_EIGHTH), real(0.0)))
    rest = Select(far, real(2 * _EIGHTH_REST), Select(beyond, real(_EIGHTH_REST), real(0.0)))
    return with_sign_of(turned + (near + rest), x)
