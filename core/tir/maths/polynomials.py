"""What the definitions of functions have in common: constants, polynomials, and signs."""

from __future__ import annotations

from collections.abc import Sequence

from ..form.exprs import Bin, Call, Expr, Imm, Un

__all__ = ["bits", "from_bits", "magnitude", "polynomial", "real", "with_sign_of", "word"]

_SIGN = 0x80000000


def real(value: float) -> Expr:
    """The float32 nearest to ``value``."""
    return Imm(value, "float32")


def word(value: int) -> Expr:
    """A uint32."""
    return Imm(value, "uint32")


def bits(x: Expr) -> Expr:
    """The uint32 that a float32 has in memory."""
    return Call("float_bits", x)


def from_bits(x: Expr) -> Expr:
    """The float32 that a uint32 is."""
    return Call("bits_float", x)


def magnitude(x: Expr) -> Expr:
    """``|x|``."""
    return Un("abs", x)


def with_sign_of(size: Expr, x: Expr) -> Expr:
    """``size``, which is not negative, or NaN, with the sign of ``x``."""
    return from_bits(Bin("bitor", bits(size), Bin("bitand", bits(x), word(_SIGN))))


def polynomial(coefficients: Sequence[float], x: Expr) -> Expr:
    """By Horner's rule; the lowest coefficient comes first."""
    *others, last = coefficients
    total: Expr = real(last)
    for coefficient in reversed(others):
        total = total * x + coefficient
    return total
