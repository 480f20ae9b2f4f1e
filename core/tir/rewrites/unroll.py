"""Unrolled loops made explicit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ...errors import InternalError
from ..form.nodes import INDEX, Alloc, Bind, Block, Buffer, Expr, For, If, Imm, Load, PrimFunc, Seq, Stmt, Var, seq
from ..form.printer import headline
from ..form.visit import declared, fresh_name, map_fields, rewrite
from ..proofs.intervals import Bounds
from .simplify import simplify_within

__all__ = ["MAX_STATEMENTS", "unroll"]

MAX_STATEMENTS = 20_000
"""What a function may grow by."""


def unroll(func: PrimFunc) -> PrimFunc:
    """``func`` without a loop of kind ``unrolled``: the steps of one whose extent is known stand one after the other,
    with the arithmetic on its variable folded; another one is a serial loop.

    What the first step declares keeps its name, what the others declare gets a number. A step that declares a name for
    what follows it stands in a block of its own, so that memory is in use for one step only.

    Raises:
        InternalError: more than `MAX_STATEMENTS` statements would be added.
    """
    body = _Unroller(func).statement(func.body, _UnrolledIteration(Bounds.at_entry(func), {}, False))
    return replace(func, body=body)


class _UnrolledIteration:
    """One step of the unrolled loops around a statement.

    Args:
        known: nothing; with what was folded before.
        symbols: what stands for variables and buffers.
        renames: whether it is a copy, the names of which are taken.
    """

    def __init__(self, known: Bounds, symbols: Mapping[Any, Any], renames: bool) -> None:
        self.known = known
        self.symbols = symbols
        self.renames = renames
        self._memo: dict[Expr, Expr] = {}

    def standing(self, symbol: Var | Buffer, value: Expr | Buffer, renames: bool = False) -> _UnrolledIteration:
        """This step, where ``value`` stands for ``symbol``."""
        return _UnrolledIteration(self.known, {**self.symbols, symbol: value}, self.renames or renames)

    def expr(self, expr: Expr) -> Expr:
        result = rewrite(expr, self._replace, self._memo)
        # Folded: compilers warn of some arithmetic on constants.
        return expr if result is expr else simplify_within(result, self.known)

    def _replace(self, node: Expr) -> Expr | None:
        if isinstance(node, Var):
            return self.symbols.get(node)
        if isinstance(node, Load) and node.buffer in self.symbols:
            return Load(self.symbols[node.buffer], node.indices)
        return None

    def element(self, buffer: Buffer, indices: tuple[Expr, ...]) -> tuple[Buffer, tuple[Expr, ...]]:
        return self.symbols.get(buffer, buffer), tuple([self.expr(index) for index in indices])


class _Unroller:
    def __init__(self, func: PrimFunc) -> None:
        self.names = declared(func)
        self.count = 0

    def statement(self, stmt: Stmt, step: _UnrolledIteration) -> Stmt:
        self.count += step.renames
        if self.count > MAX_STATEMENTS:
            raise InternalError(f"unrolling the loops adds more than {MAX_STATEMENTS} statements", where=headline(stmt))
        if isinstance(stmt, For) and stmt.kind == "unrolled":
            return self.loop(stmt, step)
        if isinstance(stmt, If):
            condition = step.expr(stmt.condition)
            if isinstance(condition, Imm) and condition is not stmt.condition:
                branch = stmt.then if condition.value else stmt.otherwise
                return seq() if branch is None else self.statement(branch, step)
        inner = step

        def declared(symbol: Var | Buffer) -> Var | Buffer:
            nonlocal inner
            fresh = replace(symbol, name=fresh_name(symbol.name, self.names)) if step.renames else symbol
            inner = step.standing(symbol, fresh)
            return fresh

        return map_fields(
            stmt,
            expr=step.expr,
            element=step.element,
            symbol=declared,
            label=lambda label: fresh_name(label, self.names) if step.renames else label,
            body=lambda body: self.statement(body, inner),
        )

    def loop(self, stmt: For, step: _UnrolledIteration) -> Stmt:
        extent = step.expr(stmt.extent)
        if not isinstance(extent, Imm):
            return self.statement(For(stmt.var, stmt.extent, stmt.body), step)
        steps = []
        for number in range(int(extent.value)):
            inner = step.standing(stmt.var, Imm(number, INDEX), renames=number > 0)
            body = self.statement(stmt.body, inner)
            steps.append(Block(self.label(f"{stmt.var.name}_{number}"), body) if _declares_on(body) else body)
        return seq(*steps)

    def label(self, label: str) -> str:
        if label in self.names:
            return fresh_name(label, self.names)
        self.names.add(label)
        return label


def _declares_on(stmt: Stmt) -> bool:
    """Whether a name that ``stmt`` declares would stay in scope for what follows it."""
    if isinstance(stmt, Seq):
        return bool(stmt.stmts) and _declares_on(stmt.stmts[-1])
    return isinstance(stmt, (Bind, Alloc))
