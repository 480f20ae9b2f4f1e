"""What each operator does to scalar values: the one definition that interpreter and constant folding share. For the
functions see `functions`.

Values are Python's: bool for bool, int for the integers, float for the floats; a float32 is a float that float32 holds.
"""

from __future__ import annotations

import math
import operator
import struct
from collections.abc import Callable
from typing import Any

from .dtype import bits, bounds, is_float, is_signed

__all__ = ["UndefinedResult", "binary", "cast", "round_float", "round_float16", "round_float32", "unary", "wrapper"]

Value = Any
"""bool, int or float, as the dtype says; the functions are chosen by dtype, which mypy cannot follow."""


class UndefinedResult(ArithmeticError):
    """An operation that has no result on these values; it never leaves this layer."""


_FLOAT32, _FLOAT16 = struct.Struct("<f"), struct.Struct("<e")


def round_float32(value: float) -> float:
    """The float32 nearest to ``value``, ties to even; infinite beyond the largest."""
    try:
        return float(_FLOAT32.unpack(_FLOAT32.pack(value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


def round_float16(value: float) -> float:
    """The float16 nearest to ``value``, ties to even; infinite beyond the largest."""
    try:
        return float(_FLOAT16.unpack(_FLOAT16.pack(value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


def round_float(value: float, dtype: str) -> float:
    """The nearest number that a float type holds, as `round_float16` and `round_float32` give it."""
    return _NEAREST[dtype](value)


_NEAREST: dict[str, Callable[[float], float]] = {
    "float16": round_float16,
    "float32": round_float32,
    "float64": float,
}


def wrapper(dtype: str) -> Callable[[int], int]:
    """The function that gives of an integer the one of ``dtype`` that has its low bits."""
    mask = (1 << bits(dtype)) - 1
    if not is_signed(dtype):
        return lambda value: value & mask
    half = (mask + 1) >> 1
    return lambda value: ((value + half) & mask) - half


def _floordiv(a: int, b: int) -> int:
    return a // b if b else 0


def _floormod(a: int, b: int) -> int:
    return a % b if b else 0


def _truncdiv(a: int, b: int) -> int:
    quotient = _floordiv(abs(a), abs(b))
    return quotient if (a < 0) == (b < 0) else -quotient


def _divide(a: float, b: float) -> float:
    if b != 0:
        return a / b
    return math.nan if a == 0 or a != a else math.copysign(math.inf, a) * math.copysign(1.0, b)


_SAME: dict[str, Callable[[Value, Value], Value]] = {
    "min": lambda a, b: a if a < b else b,
    "max": lambda a, b: a if a > b else b,
    "bitand": operator.and_,
    "bitor": operator.or_,
    "bitxor": operator.xor,
    "and": lambda a, b: a and b,
    "or": lambda a, b: a or b,
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
}
_WRAPPED: dict[str, Callable[[int, int], int]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "floordiv": _floordiv,
    "floormod": _floormod,
    "truncdiv": _truncdiv,
}
# Rounding the float64 result once more gives the float32 result: 53 bits are more than twice 24 (Figueroa, 1995).
_ROUNDED: dict[str, Callable[[float, float], float]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": _divide,
}


def binary(op: str, dtype: str) -> Callable[[Value, Value], Value]:
    """The function that ``Bin(op, a, b)`` is for operands of ``dtype``.

    It raises `UndefinedResult` on shifts by less than 0 or by the width or more.
    """
    if op in _SAME:
        return _SAME[op]
    if is_float(dtype):
        rounded = _ROUNDED[op]
        return rounded if dtype == "float64" else lambda a, b: round_float32(rounded(a, b))
    wrap = wrapper(dtype)
    if op in ("shl", "shr"):
        width = bits(dtype)

        def shift(a: int, b: int) -> int:
            if not 0 <= b < width:
                raise UndefinedResult(f"shift of {dtype} by {b}")
            return wrap(a << b) if op == "shl" else a >> b

        return shift
    exact = _WRAPPED[op]
    return lambda a, b: wrap(exact(a, b))


def unary(op: str, dtype: str) -> Callable[[Value], Value]:
    """The function that ``Un(op, a)`` is for an operand of ``dtype``."""
    if op == "not":
        return operator.not_
    exact: Callable[[Value], Value] = operator.neg if op == "neg" else abs
    if is_float(dtype):
        return exact
    wrap = wrapper(dtype)
    return lambda a: wrap(exact(a))


def _integer_to_float32(value: int) -> float:
    # float() would round twice. Keep 53 bits and make the last one odd if any was lost, then rounding is right.
    size = abs(value)
    lost = max(0, size.bit_length() - 53)
    mantissa = size >> lost
    if mantissa << lost != size:
        mantissa |= 1
    return round_float32(math.copysign(float(mantissa << lost), value))


def cast(source: str, target: str) -> Callable[[Value], Value]:
    """The function that ``Cast`` from dtype ``source`` to dtype ``target`` is."""
    if target == "bool":
        return lambda a: a != 0
    if target == "float64":
        return float
    if target == "float16":
        return round_float16
    if target == "float32":
        return round_float32 if is_float(source) else lambda a: _integer_to_float32(int(a))
    if not is_float(source):
        wrap = wrapper(target)
        return lambda a: wrap(int(a))
    low, high = bounds(target)

    def saturate(a: float) -> int:
        if a != a:
            return 0
        return low if a <= low else high if a >= high else int(a)

    return saturate
