"""log, log1p and atanh of float32.

``x = 2**k m`` with ``m`` from sqrt(1/2) to sqrt(2), and ``f = m - 1``: ``log(x) = k log(2) + log(1 + f)``, of which the
last is ``f - f**2 / 2`` and ``f**3`` times a polynomial. log(2) is the sum of two numbers, of which the first has so
few bits that its product with ``k`` is exact (Cody and Waite, 1980).
"""

from __future__ import annotations

import math

from ..form.exprs import Expr, Select, maximum
from .coefficients import LOG
from .polynomials import bits, from_bits, magnitude, polynomial, real, with_sign_of

__all__ = ["atanh", "log", "log1p"]

_LOG_HIGH, _LOG_LOW = 0.693359375, -2.12194440054690583e-4
_ROOT = 0x3F3504F3
"""The bits of sqrt(1/2)."""
_EXPONENT = 23
_LEAST = 2.0**-126


def _exponent(x: Expr) -> Expr:
    """``k``, an int32, of a normal number that is not negative."""
    return (bits(x) - _ROOT).astype("int32") >> _EXPONENT


def _times_power(x: Expr, k: Expr) -> Expr:
    """``x / 2**k``, where both are normal numbers, or ``k`` is 0."""
    return from_bits(bits(x) - (k.astype("uint32") << _EXPONENT))


def _sum(f: Expr, k: Expr) -> Expr:
    """``log(1 + f) + k log(2)``; ``k`` is a float32."""
    square = f * f
    rest = f * square * polynomial(LOG, f) + k * _LOG_LOW - square * 0.5
    return f + rest + k * _LOG_HIGH


def _where_defined(value: Expr, x: Expr, least: float) -> Expr:
    """-inf of the ``least``, NaN below it, infinity of infinity, and ``value`` between."""
    inside = Select(x < math.inf, value, x)
    outside = Select(x.equal(least), real(-math.inf), real(math.nan))
    return Select(x > least, inside, outside)


def log(x: Expr) -> Expr:
    """The natural logarithm: also of denormal numbers; -inf of zeros, NaN below."""
    is_small = x < _LEAST
    normal = Select(is_small, x * 2.0**23, x)
    k = _exponent(normal)
    exponent = k.astype("float32") - Select(is_small, real(23.0), real(0.0))
    return _where_defined(_sum(_times_power(normal, k) - 1.0, exponent), x, 0.0)


def log1p(x: Expr) -> Expr:
    """log(1 + x). ``f`` is made of ``x / 2**k`` and ``1 / 2**k - 1``, so that what 1 + x loses is not lost."""
    k = _exponent(x + 1.0)
    power = from_bits(maximum(-k + 127, 0).astype("uint32") << _EXPONENT)
    value = _sum(_times_power(x, k) + (power - 1.0), k.astype("float32"))
    return Select(magnitude(x) < 2.0**-25, x, _where_defined(value, x, -1.0))


def atanh(x: Expr) -> Expr:
    """Half of log1p(2 |x| / (1 - |x|)), with the sign of ``x``: NaN beyond 1."""
    size = magnitude(x)
    half = log1p((size + size) / (real(1.0) - size)) * 0.5
    return with_sign_of(Select(size < 2.0**-12, size, half), x)
