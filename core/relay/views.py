"""Ops that move nothing: what they give is what they are given, under another shape."""

from __future__ import annotations

from ..tir.form.symbolic_dims import upper_bounds
from .expr import Call, Expr

__all__ = ["FREE_OPS", "is_view", "strip_views"]

FREE_OPS = ("reshape", "squeeze")
"""Ops that are their operand's memory under another shape."""


def is_view(expr: Expr) -> bool:
    """Whether ``expr`` is its first argument's memory under another shape.

    So is a cut of what has memory for no more than that.
    """
    if not isinstance(expr, Call):
        return False
    return expr.op_name in FREE_OPS or (
        expr.op_name == "take_first" and upper_bounds(expr.shape) == upper_bounds(expr.args[0].shape)
    )


def strip_views(expr: Expr) -> Expr:
    """The expression whose memory ``expr`` is: what a reshape, or one after another, is given; else itself."""
    while isinstance(expr, Call) and is_view(expr):
        expr = expr.args[0]
    return expr
