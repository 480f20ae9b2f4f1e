"""pow of float32, by float64: ``2**(y log2(x))``, where the exponent needs more digits than a float32 has."""

from __future__ import annotations

import math

from ..form.exprs import Call, Expr, Imm, Select, maximum, minimum
from .coefficients import POWER_EXP, POWER_LOG
from .polynomials import bits, from_bits, magnitude, real, word

__all__ = ["pow"]

_ROOT = 0x3FE6A09E667F3BCD
"""The bits of sqrt(1/2)."""
_EXPONENT = 52
_ROUNDS = 6755399441055744.0  # 1.5 * 2**52: a sum of this size is rounded to a whole number
_WHOLE = 2.0**24  # from here on all numbers are even


def _wide(value: float) -> Expr:
    return Imm(value, "float64")


def _polynomial(coefficients: tuple[float, ...], x: Expr) -> Expr:
    total = _wide(coefficients[-1])
    for coefficient in coefficients[-2::-1]:
        total = total * x + coefficient
    return total


def _log2(x: Expr) -> Expr:
    """Of a float64 that is a positive float32: ``k + log2(m)`` with ``m`` from sqrt(1/2) to sqrt(2)."""
    pattern = Call("float_bits", x)
    k = (pattern - _ROOT).astype("int64") >> _EXPONENT
    m = Call("bits_float", pattern - (k.astype("uint64") << _EXPONENT))
    s = (m - 1.0) / (m + 1.0)
    return k.astype("int32").astype("float64") + s * _polynomial(POWER_LOG, s * s)


def _exp2(x: Expr) -> Expr:
    """Of a float64 from -200 to 200, as a float32."""
    rounded = x + _ROUNDS
    r = (x - (rounded - _ROUNDS)) * math.log(2)
    power = Call("bits_float", (Call("float_bits", rounded) + 1023) << _EXPONENT)
    return (_polynomial(POWER_EXP, r) * power).astype("float32")


def pow(x: Expr, y: Expr) -> Expr:  # its name in C
    """``x`` to the power of ``y``, with the special cases of C99 (annex F.9.4.4)."""
    size = magnitude(x)
    finite = Select(size < math.inf, _log2(size.astype("float64")), _wide(math.inf))
    log = Select(size.equal(0.0), _wide(-math.inf), finite)
    exponent = minimum(_wide(200.0), log * y.astype("float64"))
    power = Select(size.equal(1.0), real(1.0), _exp2(maximum(_wide(-200.0), exponent)))
    height = magnitude(y)
    whole = minimum(real(_WHOLE), height).astype("int32")
    is_whole = whole.astype("float32").equal(height) | (height >= _WHOLE)
    is_odd = is_whole & (whole & 1).equal(1)
    signed = from_bits(bits(power) | Select(is_odd, bits(x) & 0x80000000, word(0)))
    real_root = Select((x < 0.0) & (x > -math.inf) & ~is_whole, real(math.nan), signed)
    result = Select(x.equal(x) & y.equal(y), real_root, x + y)
    return Select(x.equal(1.0) | y.equal(0.0), real(1.0), result)
