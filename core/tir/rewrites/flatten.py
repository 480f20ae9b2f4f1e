"""Buffers of one dimension."""

from __future__ import annotations

from dataclasses import replace

from ..form.exprs import flat_element
from ..form.nodes import Axis, Buffer, Expr, Load, Param, PrimFunc, Stmt, Var, View
from ..form.visit import map_fields, operands, rebuild, rewrite
from ..proofs.intervals import Bounds
from .simplify import simplify_within

__all__ = ["flatten"]


def flatten(func: PrimFunc) -> PrimFunc:
    """``func`` with all its buffers of one dimension, scalars as they are, and the indices that this takes simplified.

    Parameters have as many elements as before, in the same order. The parameters of intrinsics keep their dimensions:
    the axes of views say where these lie. What has one dimension already is left alone.
    """
    params = tuple([Param(_flat(param.buffer), param.role) for param in func.params])
    body = _FlattenScope(Bounds.at_entry(func)).statement(func.body)
    return replace(func, params=params, body=body)


def _is_flat(buffer: Buffer) -> bool:
    return len(buffer.shape) <= 1


def _flat(buffer: Buffer) -> Buffer:
    if _is_flat(buffer):
        return buffer
    return Buffer(buffer.name, (buffer.size,), buffer.dtype, buffer.scope, buffer.alignment)


def _flat_symbol(symbol: Var | Buffer) -> Var | Buffer:
    return _flat(symbol) if isinstance(symbol, Buffer) else symbol


class _FlattenScope:
    """A place of the program, and what is known there."""

    def __init__(self, known: Bounds) -> None:
        self.known = known
        self._memo: dict[Expr, Expr] = {}

    def statement(self, stmt: Stmt) -> Stmt:
        flat = map_fields(stmt, expr=self.expr, element=self.element, view=self.view, symbol=_flat_symbol)
        inner = [
            (self if known is self.known else _FlattenScope(known)).statement(body)
            for body, known in self.known.children(flat)
        ]
        return rebuild(flat, operands(flat), inner)

    def expr(self, expr: Expr) -> Expr:
        return rewrite(expr, self._load, self._memo)

    def _load(self, node: Expr) -> Expr | None:
        if not isinstance(node, Load) or _is_flat(node.buffer):
            return None
        return Load(_flat(node.buffer), (self.linear(node.buffer, node.indices),))

    def linear(self, buffer: Buffer, indices: tuple[Expr, ...]) -> Expr:
        return simplify_within(flat_element(buffer, indices), self.known)

    def element(self, buffer: Buffer, indices: tuple[Expr, ...]) -> tuple[Buffer, tuple[Expr, ...]]:
        flat_indices = tuple([self.expr(index) for index in indices])
        return _flat(buffer), flat_indices if _is_flat(buffer) else (self.linear(buffer, flat_indices),)

    def view(self, view: View) -> View:
        buffer, start = self.element(view.buffer, view.start)
        if _is_flat(view.buffer):
            return View(buffer, start, view.axes)
        return View(buffer, start, tuple([Axis(0, stride) for stride in view.strides()]))
