"""How many operations loops take: a rough number, by which forms of one computation are compared."""

from __future__ import annotations

import math

from ...support.interning import cached_on_node
from ..form.nodes import Bind, Copy, Exec, Expr, For, If, Imm, Load, PrimFunc, Stmt, Store, Update, Var
from ..form.visit import operands
from .intervals import Bounds

__all__ = ["operations"]

_TURN = 2
"""What each turn of a loop takes besides: to count, and to jump."""

_ONE = 128
"""A description of no more operations than this is one instruction's, of several lanes; of more, a loop's."""


@cached_on_node
def operations(func: PrimFunc) -> int:
    """About how many operations of a machine one run of ``func`` takes, all of its rows where it has a form of one row.

    Every operator, load and store is one, whatever its width; the arithmetic of indices is none, as compilers take it
    out of loops; a loop whose extent varies has the largest. Of two branches the longer one counts. What an intrinsic
    does is one operation, unless it works on no registers and takes so many that it is a loop in C.
    """
    count = _statement(func.body, Bounds({}))
    return max(1, count if func.rows is None else count * func.rows.extent)


def _statement(stmt: Stmt, bounds: Bounds) -> int:
    inner = [_statement(body, inside) for body, inside in bounds.children(stmt)]
    if isinstance(stmt, For):
        turns = 1 if stmt.kind == "vectorized" else max(0, bounds.interval(stmt.extent)[1])
        return turns * (sum(inner) + (0 if stmt.kind == "unrolled" else _TURN))
    if isinstance(stmt, If):
        return _expression(stmt.condition) + max(inner, default=0)
    if isinstance(stmt, Exec):
        for var, value in zip(stmt.intrinsic.vars, stmt.values, strict=True):
            bounds = bounds.declare(var, bounds.interval(value))
        in_registers = any(param.scope == "register" for param in stmt.intrinsic.params)
        count = 1 if in_registers else _statement(stmt.intrinsic.description, bounds)
        return sum(map(_expression, stmt.values)) + (count if count > _ONE else 1)
    if isinstance(stmt, Copy):
        return 1 + math.prod(max(0, bounds.interval(extent)[1]) for extent in stmt.shape)
    operations = 1 + _expression(stmt.value) if isinstance(stmt, (Bind, Store, Update)) else 0
    return operations + sum(inner)


@cached_on_node
def _expression(expr: Expr) -> int:
    if isinstance(expr, (Imm, Var)):
        return 0
    if isinstance(expr, Load):
        return 1
    return 1 + sum(_expression(operand) for operand in operands(expr))
