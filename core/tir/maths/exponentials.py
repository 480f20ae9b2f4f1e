"""exp, expm1, tanh, sinh, cosh and erf of float32.

``x = n log(2) + r`` with a whole ``n`` and ``|r| <= log(2) / 2``: ``exp(x) = 2**n exp(r)``. ``n log(2)`` is subtracted
in two parts, of which the first has so few bits that its product with ``n`` is exact (Cody and Waite, 1980). What is
added to 1 in the end is ``high + rest``, where ``high`` is exact: so the last addition is all that rounds much.
"""

from __future__ import annotations

from typing import NamedTuple

from ..form.exprs import Expr, Select, maximum, minimum
from .coefficients import ERF, ERFC, EXP, EXP2
from .polynomials import bits, from_bits, magnitude, polynomial, real, with_sign_of

__all__ = ["cosh", "erf", "exp", "exp_flushed", "expm1", "sinh", "tanh"]

_PER_LOG = 1.4426950408889634
_LOG_HIGH, _LOG_LOW = 0.693359375, -2.12194440054690583e-4
_ROUNDS = 12582912.0  # 1.5 * 2**23: a sum of this size is rounded to a whole number
_EXPONENT = 23  # where it begins in a float32


class _Reduced(NamedTuple):
    """``exp(x) = 2**n (1 + high + rest)``.

    Args:
        n: plus a bias in its low 22 bits; a uint32.
        high, rest: of ``exp(r) - 1``.
    """

    n: Expr
    high: Expr
    rest: Expr


def _reduced(x: Expr, bias: int) -> _Reduced:
    """Of an ``x`` for which ``|n|`` is below 256."""
    rounded = x * real(_PER_LOG) + (_ROUNDS + bias)
    n = rounded - (_ROUNDS + bias)
    high = x - n * _LOG_HIGH
    low = n * _LOG_LOW
    r = high - low
    return _Reduced(bits(rounded), high, r * r * polynomial(EXP, r) - low)


def exp(x: Expr) -> Expr:
    """Denormal results are rounded once; beyond the largest number it is infinite."""
    # NaN stays NaN: these are the second operand where either is NaN.
    clamped = maximum(real(-104.0), minimum(real(89.0), x))
    n, high, rest = _reduced(clamped, 2 * 127)
    # Two powers of 2, each within the range of numbers; bits of n above the exponent fall out.
    half = n >> 1
    first, second = from_bits(half << _EXPONENT), from_bits((n - half) << _EXPONENT)
    return (high + rest + 1.0) * first * second


def exp_flushed(x: Expr) -> Expr:
    """exp of what is at most 88, where results below 2**-126.5 may be 0: a fifth cheaper."""
    # The least is so small that n is -127: the power is 0 then.
    n, high, rest = _reduced(maximum(real(-88.02), x), 127)
    return (high + rest + 1.0) * from_bits(n << _EXPONENT)


def expm1(x: Expr) -> Expr:
    """exp(x) - 1."""
    clamped = maximum(real(-20.0), minimum(real(89.0), x))
    n, high, rest = _reduced(clamped, 127 - 1)
    power = from_bits(n << _EXPONENT)  # 2**(n - 1): 2**128 would be infinite
    result = (power * (high + rest) + (power - 0.5)) * 2.0
    return Select(magnitude(x) < 2.0**-25, x, result)


def _small_expm1(x: Expr) -> Expr:
    """exp(x) - 1 of an ``x`` of 0 to 80."""
    n, high, rest = _reduced(x, 127)
    power = from_bits(n << _EXPONENT)
    return power * (high + rest) + (power - 1.0)


def tanh(x: Expr) -> Expr:
    """With ``e = exp(2 |x|) - 1``: ``e / (e + 2)``, with the sign of ``x``. From 9.02 on that is 1."""
    e = _small_expm1(minimum(real(18.1), magnitude(x) * 2.0))
    return with_sign_of(e / (e + 2.0), x)


def sinh(x: Expr) -> Expr:
    """With ``e = exp(|x|) - 1``: ``(e + e / (e + 1)) / 2``, with the sign of ``x``."""
    size = minimum(real(89.5), magnitude(x))
    n, high, rest = _reduced(size, 127 - 2)
    power = from_bits(n << _EXPONENT)  # a quarter, as exp(|x|) may be infinite where half of it is not
    quarter = power * (high + rest) + (power - 0.25)
    half = (quarter + quarter / (quarter * 4.0 + 1.0)) * 2.0
    return with_sign_of(Select(size < 2.0**-12, size, half), x)


def cosh(x: Expr) -> Expr:
    """With ``e = exp(|x|)``: ``(e + 1 / e) / 2``."""
    n, high, rest = _reduced(minimum(real(89.5), magnitude(x)), 127 - 2)
    quarter = (high + rest + 1.0) * from_bits(n << _EXPONENT)
    return (quarter + real(0.0625) / quarter) * 2.0


def erf(x: Expr) -> Expr:
    """Up to 1 ``x`` and an odd polynomial; beyond that ``1 - 2**p(|x|)`` with a polynomial ``p``; from 3.92 on 1."""
    size = magnitude(x)
    square = size * size
    near = size + size * polynomial(ERF, square)
    p = polynomial(ERFC, minimum(real(4.0), size))
    rounded = p + (_ROUNDS + 127)
    r = p - (rounded - (_ROUNDS + 127))
    far = real(1.0) - (r * polynomial(EXP2, r) + 1.0) * from_bits(bits(rounded) << _EXPONENT)
    return with_sign_of(Select(size < 1.0, near, far), x)
