"""Symbols of open extents in loops: each is a number that the loops are given."""

from __future__ import annotations

from dataclasses import replace

from ..form.exprs import INDEX
from ..form.nodes import Bind, Buffer, Expr, Param, PrimFunc, Stmt, Var, maximum, minimum
from ..form.symbolic_dims import Symbol
from ..form.visit import map_fields, operands, rewrite, variables, walk

__all__ = ["bound_to", "with_symbols"]


def bound_to(symbol: Symbol, var: Var, body: Stmt) -> tuple[Buffer, Stmt]:
    """``body``, in which ``var`` has the value of a symbol, and the input that gives it."""
    # Whoever calls it has checked the extent. Clamped, all is proven whatever it was given.
    extent_input = Buffer(f"{var.name}_given", (1,), INDEX)
    return extent_input, Bind(var, maximum(minimum(extent_input[0], symbol.high), symbol.low), body)


def with_symbols(func: PrimFunc) -> PrimFunc:
    """``func`` with an input behind the others for each symbol that stands in it, by name."""
    used = (var for stmt in walk(func.body) for expr in operands(stmt) for var in variables(expr))
    by_name = {var.name: var for var in used if isinstance(var, Symbol)}
    symbols = tuple(by_name[name] for name in sorted(by_name))
    if not symbols:
        return func
    named: dict[Expr, Var] = {symbol: Var(f"n{number}") for number, symbol in enumerate(symbols)}

    def expr(one: Expr) -> Expr:
        return rewrite(one, lambda node: named.get(node))

    def statement(stmt: Stmt) -> Stmt:
        return map_fields(stmt, expr=expr, body=statement)

    body, extent_params = statement(func.body), list[Param]()
    for symbol in symbols:
        extent_input, body = bound_to(symbol, named[symbol], body)
        extent_params.append(Param(extent_input, "input"))
    first = sum(param.role == "input" for param in func.params)
    params = (*func.params[:first], *extent_params, *func.params[first:])
    return replace(func, params=params, body=body)
