"""Unrolled loops made explicit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ..errors import InternalError
from .nodes import (
    INDEX,
    Alloc,
    Bind,
    Block,
    Buffer,
    Copy,
    Exec,
    Expr,
    For,
    If,
    Imm,
    Load,
    PrimFunc,
    Seq,
    Stmt,
    Store,
    Update,
    Var,
    View,
    Wait,
    seq,
)
from .printer import headline
from .simplify import simplify_expr
from .visit import declared, fresh_name, map_accesses, rewrite

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
    body = _Unroller(func).statement(func.body, _Step({}, {}, False))
    return replace(func, body=body)


class _Step:
    """One step of the unrolled loops around a statement.

    Args:
        values: what stands for variables.
        buffers: what stands for buffers.
        renames: whether it is a copy, the names of which are taken.
    """

    def __init__(self, values: Mapping[Var, Expr], buffers: Mapping[Buffer, Buffer], renames: bool) -> None:
        self.values = values
        self.buffers = buffers
        self.renames = renames
        self._memo: dict[Expr, Expr] = {}

    def with_var(self, var: Var, value: Expr, renames: bool = False) -> _Step:
        return _Step({**self.values, var: value}, self.buffers, self.renames or renames)

    def with_buffer(self, buffer: Buffer, made: Buffer) -> _Step:
        return _Step(self.values, {**self.buffers, buffer: made}, self.renames)

    def expr(self, expr: Expr) -> Expr:
        moved = rewrite(expr, self._replace, self._memo)
        # Folded: compilers warn of some arithmetic on constants.
        return expr if moved is expr else simplify_expr(moved, {})

    def _replace(self, node: Expr) -> Expr | None:
        if isinstance(node, Var):
            return self.values.get(node)
        if isinstance(node, Load) and node.buffer in self.buffers:
            return Load(self.buffers[node.buffer], node.indices)
        return None

    def indices(self, indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return tuple([self.expr(index) for index in indices])

    def element(self, buffer: Buffer, indices: tuple[Expr, ...]) -> tuple[Buffer, tuple[Expr, ...]]:
        return self.buffers.get(buffer, buffer), self.indices(indices)

    def view(self, view: View) -> View:
        return View(*self.element(view.buffer, view.start), view.axes)


class _Unroller:
    def __init__(self, func: PrimFunc) -> None:
        self.names = declared(func)
        self.count = 0

    def statement(self, stmt: Stmt, step: _Step) -> Stmt:
        self.count += step.renames
        if self.count > MAX_STATEMENTS:
            raise InternalError(f"unrolling the loops adds more than {MAX_STATEMENTS} statements", where=headline(stmt))
        if isinstance(stmt, (Store, Update, Copy, Exec)):
            return map_accesses(stmt, step.expr, step.element, step.view)
        if isinstance(stmt, Wait):
            return stmt
        if isinstance(stmt, Seq):
            return seq(*[self.statement(inner, step) for inner in stmt.stmts])
        if isinstance(stmt, For):
            return self.loop(stmt, step)
        if isinstance(stmt, If):
            return self.condition(stmt, step)
        if isinstance(stmt, Bind):
            var, value = self.var(stmt.var, step), step.expr(stmt.value)
            return Bind(var, value, self.statement(stmt.body, step.with_var(stmt.var, var)))
        if isinstance(stmt, Alloc):
            buffer = stmt.buffer
            if step.renames:
                name = fresh_name(buffer.name, self.names)
                buffer = Buffer(name, buffer.shape, buffer.dtype, buffer.scope, buffer.alignment)
            return Alloc(buffer, self.statement(stmt.body, step.with_buffer(stmt.buffer, buffer)))
        assert isinstance(stmt, Block)  # the last kind there is
        label = fresh_name(stmt.label, self.names) if step.renames else stmt.label
        return Block(label, self.statement(stmt.body, step))

    def var(self, var: Var, step: _Step) -> Var:
        return Var(fresh_name(var.name, self.names), var.dtype) if step.renames else var

    def loop(self, stmt: For, step: _Step) -> Stmt:
        extent = step.expr(stmt.extent)
        if stmt.kind != "unrolled" or not isinstance(extent, Imm):
            var = self.var(stmt.var, step)
            kind = "serial" if stmt.kind == "unrolled" else stmt.kind
            return For(var, extent, self.statement(stmt.body, step.with_var(stmt.var, var)), kind)
        steps = []
        for number in range(int(extent.value)):
            inner = step.with_var(stmt.var, Imm(number, INDEX), renames=number > 0)
            body = self.statement(stmt.body, inner)
            steps.append(Block(self.label(f"{stmt.var.name}_{number}"), body) if _declares_on(body) else body)
        return seq(*steps)

    def condition(self, stmt: If, step: _Step) -> Stmt:
        condition = step.expr(stmt.condition)
        if isinstance(condition, Imm) and condition is not stmt.condition:
            taken = stmt.then if condition.value else stmt.otherwise
            return seq() if taken is None else self.statement(taken, step)
        otherwise = None if stmt.otherwise is None else self.statement(stmt.otherwise, step)
        return If(condition, self.statement(stmt.then, step), otherwise)

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
