"""Sums of products with one rounding for each product and its addition, for CPUs that have an instruction for that."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import TypeGuard

from ..form.nodes import Bin, Call, Expr, Load, PrimFunc, Stmt, Store, Update
from ..form.visit import map_fields

__all__ = ["contract"]


def contract(func: PrimFunc, dtypes: Collection[str]) -> PrimFunc:
    """``func`` where each product that is added to a sum of a reduction is added by ``fma``.

    A compiler that may contract ``a * b + c`` does the same where it likes; said in the loops, it has one meaning for
    the interpreter and for every compiler.

    Args:
        func: as lowered: its reductions are `Update`s.
        dtypes: of the floats for which it is done.
    """
    return replace(func, body=_statement(func.body, frozenset(dtypes)))


def _statement(stmt: Stmt, dtypes: frozenset[str]) -> Stmt:
    if isinstance(stmt, Update) and stmt.op == "add" and stmt.value.dtype in dtypes:
        if not _is_product(stmt.value):
            return replace(stmt, value=_sum(stmt.value))
        return Store(stmt.buffer, stmt.indices, _fused(stmt.value, Load(stmt.buffer, stmt.indices)))
    return map_fields(stmt, body=lambda body: _statement(body, dtypes))


def _is_product(expr: Expr) -> TypeGuard[Bin]:
    return isinstance(expr, Bin) and expr.op == "mul"


def _fused(product: Bin, rest: Expr) -> Expr:
    return Call("fma", product.a, product.b, rest)


def _sum(expr: Expr) -> Expr:
    """``expr``, with its products taken together with what they are added to."""
    if isinstance(expr, Bin) and expr.op == "add":
        for product, rest in ((expr.b, expr.a), (expr.a, expr.b)):
            if _is_product(product):
                return _fused(product, _sum(rest))
    return expr
