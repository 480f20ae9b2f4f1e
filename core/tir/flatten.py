"""Buffers of one dimension."""

from __future__ import annotations

from dataclasses import replace

from .bounds import Bounds
from .dtype import is_float
from .nodes import (
    INDEX,
    Alloc,
    Axis,
    Bind,
    Buffer,
    Copy,
    Exec,
    Expr,
    For,
    If,
    Imm,
    Load,
    Param,
    PrimFunc,
    Stmt,
    Store,
    Update,
    View,
)
from .simplify import simplify_within
from .visit import bodies, expressions, map_accesses, rebuild, rewrite

__all__ = ["flat_element", "flatten"]


def flatten(func: PrimFunc) -> PrimFunc:
    """``func`` with all its buffers of one dimension, scalars as they are, and the indices that this takes simplified.

    Parameters have as many elements as before, in the same order. The parameters of intrinsics keep their dimensions:
    the axes of views say where these lie. What has one dimension already is left alone.
    """
    params = tuple([Param(_flat(param.buffer), param.role) for param in func.params])
    body = _Place(Bounds({})).statement(func.body)
    return replace(func, params=params, body=body)


def flat_element(buffer: Buffer, indices: tuple[Expr, ...]) -> Expr:
    """The position of an element, counted from the start of its buffer."""
    total: Expr = Imm(0, INDEX)
    for extent, index in zip(buffer.shape, indices, strict=True):
        if extent == 1:
            continue
        if not isinstance(total, Imm):
            total = total * extent
        elif total.value:
            total = Imm(total.value * extent, INDEX)
        if isinstance(total, Imm) and isinstance(index, Imm):
            total = Imm(total.value + index.value, INDEX)
        elif isinstance(total, Imm) and not total.value:
            total = index
        elif not isinstance(index, Imm) or index.value:
            total = total + index
    return total


def _is_flat(buffer: Buffer) -> bool:
    return len(buffer.shape) <= 1


def _flat(buffer: Buffer) -> Buffer:
    if _is_flat(buffer):
        return buffer
    return Buffer(buffer.name, (buffer.size,), buffer.dtype, buffer.scope, buffer.alignment)


class _Place:
    """A place of the program, and what is known there."""

    def __init__(self, known: Bounds) -> None:
        self.known = known
        self._memo: dict[Expr, Expr] = {}

    def within(self, known: Bounds | None) -> _Place:
        """The place where ``known`` holds; None if it is never reached, where anything may."""
        return self if known is None or known is self.known else _Place(known)

    def statement(self, stmt: Stmt) -> Stmt:
        if isinstance(stmt, (Store, Update, Copy, Exec)):
            return map_accesses(stmt, self.expr, self.element, self.view)
        exprs = [self.expr(expr) for expr in expressions(stmt)]
        if isinstance(stmt, If):
            inner = [self.within(self.known.assume(exprs[0])).statement(stmt.then)]
            if stmt.otherwise is not None:
                inner.append(self.within(self.known.assume(exprs[0], holds=False)).statement(stmt.otherwise))
            return rebuild(stmt, exprs, inner)
        place = self
        if isinstance(stmt, For):
            place = _Place(self.known.declare(stmt.var, (0, max(0, self.known.of(exprs[0])[1] - 1))))
        elif isinstance(stmt, Bind) and not is_float(stmt.var.dtype):
            place = _Place(self.known.declare(stmt.var, self.known.of(exprs[0])))
        inner = [place.statement(body) for body in bodies(stmt)]
        if isinstance(stmt, Alloc):
            return Alloc(_flat(stmt.buffer), inner[0])
        return rebuild(stmt, exprs, inner)

    def expr(self, expr: Expr) -> Expr:
        return rewrite(expr, self._load, self._memo)

    def _load(self, node: Expr) -> Expr | None:
        if not isinstance(node, Load) or _is_flat(node.buffer):
            return None
        return Load(_flat(node.buffer), (self.linear(node.buffer, node.indices),))

    def linear(self, buffer: Buffer, indices: tuple[Expr, ...]) -> Expr:
        return simplify_within(flat_element(buffer, indices), self.known)

    def element(self, buffer: Buffer, indices: tuple[Expr, ...]) -> tuple[Buffer, tuple[Expr, ...]]:
        given = tuple([self.expr(index) for index in indices])
        return _flat(buffer), given if _is_flat(buffer) else (self.linear(buffer, given),)

    def view(self, view: View) -> View:
        buffer, start = self.element(view.buffer, view.start)
        if _is_flat(view.buffer):
            return View(buffer, start, view.axes)
        return View(buffer, start, tuple([Axis(0, stride) for stride in view.strides()]))
