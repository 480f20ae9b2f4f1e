"""Expressions that saturate: clamped to all that a type holds, which vectors have an instruction for."""

from __future__ import annotations

from ..tir.form.dtype import bounds, is_float
from ..tir.form.nodes import Bin, Call, Cast, Expr, Imm

__all__ = ["NARROWED", "find_rounded_operand", "find_saturated_operand", "move_rounding_last"]

NARROWED = ("int8", "uint8", "int16")
"""The integers that wider ones, and rounded floats, saturate to."""


def find_rounded_operand(expr: Cast) -> Expr | None:
    """What is clamped to all that a small integer holds, and rounded to it; None where ``expr`` is something else."""
    rounded = move_rounding_last(expr.a.a if isinstance(expr.a, Cast) and expr.a.dtype == "int32" else expr.a)
    if expr.dtype not in NARROWED or not isinstance(rounded, Call) or rounded.name != "round_even":
        return None
    return find_saturated_operand(rounded.args[0], expr.dtype) if rounded.dtype == "float32" else None


def move_rounding_last(expr: Expr) -> Expr:
    """A rounded float that is clamped, clamped before it is rounded: limits that are whole are what they round to."""
    if not isinstance(expr, Bin) or expr.op not in ("min", "max"):
        return expr
    if isinstance(expr.b, Imm) and float(expr.b.value).is_integer():
        inner = move_rounding_last(expr.a)
        if isinstance(inner, Call) and inner.name == "round_even":
            return Call("round_even", Bin(expr.op, inner.args[0], expr.b))
    return expr


def find_saturated_operand(expr: Expr, dtype: str) -> Expr | None:
    """What is clamped to all that ``dtype`` holds, NaN to the least; None where ``expr`` is something else."""
    low, high = map(float if is_float(expr.dtype) else int, bounds(dtype))
    orders = (("min", high, "max", low), ("max", low, "min", high))
    for outer, first, inner, second in orders[:1] if is_float(expr.dtype) else orders:
        if isinstance(expr, Bin) and expr.op == outer and expr.b is Imm(first, expr.dtype):
            limited = expr.a
            if isinstance(limited, Bin) and limited.op == inner and limited.b is Imm(second, expr.dtype):
                return limited.a
    return None
