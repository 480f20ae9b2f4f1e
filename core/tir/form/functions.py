"""The pure functions of scalars, one row each: what they take, give and mean. `Call` is one of them applied.

The arguments of a call have one type. Functions of floats are those of mathematics, rounded to the type; the last bits
of those that are not ``exact`` are left to the C library. Those of float32 that are ``defined`` are what `maths` says
they are, to the last bit: they may be off by a unit of the last place or two, and are the same everywhere. (Of NaN
nothing is said but that it is one.) These have a meaning to the last bit for all types:

- ``floor``, ``ceil``, ``trunc``, ``round_even`` (to the nearest whole number, ties to the even one) and ``sqrt``.
- ``fma(a, b, c)`` is ``a * b + c`` with one rounding (IEEE 754, fusedMultiplyAdd).
- ``float_bits(a)`` is the unsigned integer of as many bits that a float has in memory, ``bits_float(a)`` the float that
  such an integer is. (Not exact as a NaN may become another one.)
- ``clz(a)`` of an int32 or uint32 counts its leading zero bits and gives an int32, 32 for 0.
- ``mul_high(a, b)`` of int32 is ``(a * b + 2**30) >> 31``, an int32: the product has 64 bits, and the shift keeps the
  sign. It is ``a * b / 2**31`` rounded to nearest, ties up. The one result that is not int32, that of -2**31 by itself,
  wraps around to -2**31, as all integers do; instructions that saturate there (Arm's SQRDMULH, RISC-V's vsmul) do the
  same wherever one of the operands is known not to be -2**31.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from .scalar_semantics import round_float32, wrapper

__all__ = ["FUNCTIONS", "Function", "register_float32_value"]

Value = Any
Interval = tuple[int, int]

_FLOATS = ("float32", "float64")
_DOUBLE, _BITS = struct.Struct("<d"), struct.Struct("<q")


@dataclass(frozen=True)
class Function:
    """A row.

    Args:
        arity: how many arguments it takes.
        value: for the type of the arguments, the function of Python's values.
        takes: the types that its arguments may have.
        gives: the type of its result, or for each type of the arguments; None where that is the type of the arguments.
        interval: of a result that is an integer, before it wraps to its type, from the intervals of the arguments.
        exact: whether it is the same to the last bit everywhere.
        defined: whether it is so for float32, by its definition in `maths`.
        cost: in additions.
    """

    arity: int
    value: Callable[[str], Callable[..., Value]]
    takes: tuple[str, ...] = _FLOATS
    gives: str | Mapping[str, str] | None = None
    interval: Callable[..., Interval] | None = None
    exact: bool = False
    cost: int = 1
    defined: bool = False

    def is_exact(self, dtype: str) -> bool:
        """Whether it is the same to the last bit everywhere, of arguments of ``dtype``."""
        return self.exact or (self.defined and dtype == "float32")

    def result(self, dtype: str) -> str:
        """The type of a call on arguments of ``dtype``."""
        return self.gives[dtype] if isinstance(self.gives, Mapping) else self.gives or dtype


def _rounded(exact: Callable[..., float]) -> Callable[[str], Callable[..., float]]:
    """A function computed in float64 and then rounded to the type."""
    return lambda dtype: exact if dtype == "float64" else lambda *args: round_float32(exact(*args))


_FLOAT32_VALUES: dict[str, Callable[[], Callable[..., float]]] = {}
"""Filled by `register_float32_value`."""


def register_float32_value(name: str, value: Callable[[], Callable[..., float]]) -> None:
    """Set what computes function ``name`` of float32. (`maths` does, which is written in the form that has functions.)

    Args:
        name: a function that is ``defined``.
        value: returns the function of Python's floats, when it is first needed.
    """
    _FLOAT32_VALUES[name] = value


def _defined(name: str, wide: Callable[..., float], arity: int = 1) -> Function:
    """A function that has a definition for float32; of float64 ``wide`` computes it."""

    def value(dtype: str) -> Callable[..., float]:
        if dtype != "float32":
            return wide
        return _FLOAT32_VALUES[name]()

    return Function(arity, value, cost=16, defined=True)


def _exp(a: float) -> float:
    try:
        return math.exp(a)
    except OverflowError:
        return math.inf


def _log(a: float) -> float:
    if a > 0:
        return math.log(a)
    return -math.inf if a == 0 else math.nan


def _log1p(a: float) -> float:
    if a > -1:
        return math.log1p(a)
    return -math.inf if a == -1 else math.nan


def _expm1(a: float) -> float:
    try:
        return math.expm1(a)
    except OverflowError:
        return math.inf


def _atanh(a: float) -> float:
    if abs(a) == 1:
        return math.copysign(math.inf, a)
    return math.nan if not abs(a) < 1 else math.atanh(a)


def _sinh(a: float) -> float:
    try:
        return math.sinh(a)
    except OverflowError:
        return math.copysign(math.inf, a)


def _cosh(a: float) -> float:
    try:
        return math.cosh(a)
    except OverflowError:
        return math.inf


def _sqrt(a: float) -> float:
    return math.nan if a < 0 else math.sqrt(a)


def _pow(a: float, b: float) -> float:
    try:
        return math.pow(a, b)
    except OverflowError:
        return math.copysign(math.inf, a) if b % 2 == 1 else math.inf
    except ValueError:  # a zero to a negative power, or the root of a negative number
        if a != 0:
            return math.nan
        return math.copysign(math.inf, a) if b % 2 == 1 else math.inf


def _finite(function: Callable[..., float]) -> Callable[..., float]:
    """A function that is NaN where Python's raises: at infinity, or of a division by 0."""

    def total(*args: float) -> float:
        try:
            return function(*args)
        except ValueError:
            return math.nan

    return total


def _whole(function: Callable[[float], int]) -> Callable[[float], float]:
    """A rounding to whole numbers that keeps infinities, NaN and the sign of zero."""
    return lambda a: math.copysign(function(a), a) if math.isfinite(a) else a


def _fma_float32(a: float, b: float, c: float) -> float:
    # The product is exact, and so is what its sum with c loses (Knuth's two-sum). A sum with an odd last bit where it
    # is not exact rounds as the exact one (Boldo and Melquiond, 2008).
    product = a * b
    total = product + c
    part = total - product
    lost = (product - (total - part)) + (c - part)
    if (lost < 0 or lost > 0) and _BITS.unpack(_DOUBLE.pack(total))[0] % 2 == 0:
        total = math.nextafter(total, math.copysign(math.inf, lost))
    return round_float32(total)


def _fma(dtype: str) -> Callable[[float, float, float], float]:
    if dtype == "float32":
        return _fma_float32

    def fused(a: float, b: float, c: float) -> float:
        if not (math.isfinite(a) and math.isfinite(b)):
            return a * b + c
        if not math.isfinite(c):
            return c  # the product, which is finite, might overflow
        exact = Fraction(a) * Fraction(b) + Fraction(c)
        if not exact:  # the sign of zero is that of both terms, else positive
            return a * b + c if not (a and b) else 0.0
        try:
            return float(exact)
        except OverflowError:
            return math.inf if exact > 0 else -math.inf

    return fused


def _clz_interval(a: Interval) -> Interval:
    return (32 - a[1].bit_length(), 32 - a[0].bit_length()) if a[0] >= 0 else (0, 32)


def _mul_high(a: int, b: int) -> int:
    return (a * b + 2**30) >> 31


def _mul_high_interval(a: Interval, b: Interval) -> Interval:
    ends = [_mul_high(x, y) for x in a for y in b]
    return min(ends), max(ends)


_INTEGER_OF = {"float32": "uint32", "float64": "uint64"}
_FLOAT_OF = {integer: real for real, integer in _INTEGER_OF.items()}
_FORMATS = {"float32": ("<f", "<I"), "float64": ("<d", "<Q"), "uint32": ("<I", "<f"), "uint64": ("<Q", "<d")}


def _same_bits(dtype: str) -> Callable[[Value], Value]:
    """The value of the other kind that has the bits of one of ``dtype``."""
    source, target = map(struct.Struct, _FORMATS[dtype])
    return lambda a: target.unpack(source.pack(a))[0]


FUNCTIONS: dict[str, Function] = {
    "exp": _defined("exp", _exp),
    "log": _defined("log", _log),
    "expm1": _defined("expm1", _expm1),
    "log1p": _defined("log1p", _log1p),
    "sin": _defined("sin", _finite(math.sin)),
    "cos": _defined("cos", _finite(math.cos)),
    # exp of what is at most 88, as in a softmax: results below 2**-126.5 are 0.
    "exp_flushed": replace(_defined("exp_flushed", _exp), takes=("float32",)),
    # Parts of sin and cos: of angles beyond `maths.angles.NEAR`.
    "sin_far": replace(_defined("sin_far", _finite(math.sin)), takes=("float32",)),
    "cos_far": replace(_defined("cos_far", _finite(math.cos)), takes=("float32",)),
    "tan": Function(1, _rounded(_finite(math.tan)), cost=16),
    "asin": Function(1, _rounded(_finite(math.asin)), cost=16),
    "acos": Function(1, _rounded(_finite(math.acos)), cost=16),
    "atan": _defined("atan", math.atan),
    "sinh": _defined("sinh", _sinh),
    "cosh": _defined("cosh", _cosh),
    "tanh": _defined("tanh", math.tanh),
    "asinh": Function(1, _rounded(math.asinh), cost=16),
    "acosh": Function(1, _rounded(_finite(math.acosh)), cost=16),
    "atanh": _defined("atanh", _atanh),
    "erf": _defined("erf", math.erf),
    "pow": _defined("pow", _pow, 2),
    "fmod": Function(2, _rounded(_finite(math.fmod)), cost=16),
    "sqrt": Function(1, _rounded(_sqrt), exact=True, cost=4),
    "floor": Function(1, _rounded(_whole(math.floor)), exact=True),
    "ceil": Function(1, _rounded(_whole(math.ceil)), exact=True),
    "trunc": Function(1, _rounded(_whole(math.trunc)), exact=True),
    "round_even": Function(1, _rounded(_whole(round)), exact=True),
    "fma": Function(3, _fma, exact=True),
    "float_bits": Function(1, _same_bits, gives=_INTEGER_OF),
    "bits_float": Function(1, _same_bits, takes=tuple(_FLOAT_OF), gives=_FLOAT_OF),
    "clz": Function(
        1,
        lambda dtype: lambda a: 32 - (a & 0xFFFFFFFF).bit_length(),
        takes=("int32", "uint32"),
        gives="int32",
        interval=_clz_interval,
        exact=True,
    ),
    "mul_high": Function(
        2,
        lambda dtype: lambda a, b: wrapper(dtype)(_mul_high(a, b)),
        takes=("int32",),
        interval=_mul_high_interval,
        exact=True,
        cost=2,
    ),
}
"""By name."""
