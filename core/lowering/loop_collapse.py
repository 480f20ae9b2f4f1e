"""Loops within one another, along dimensions that lie side by side in all that they use, as one longer loop."""

from __future__ import annotations

from dataclasses import replace

from ..tir.form.fields import accesses, map_fields, parts, statements
from ..tir.form.nodes import Alloc, Expr, For, Imm, PrimFunc, Stmt, Var, const
from ..tir.form.visit import map_expressions, substitute

__all__ = ["collapse_loops"]

_LEAST = 64
"""Iterations that fill a vector, whatever the elements are: with fewer there is nothing to gain."""

_LONG = 256
"""Iterations of a loop that need no more around them: what is left over of its vectors counts for little."""


def collapse_loops(func: PrimFunc) -> PrimFunc:
    """A function with its innermost loops joined to the next ones around them, where they are short, and all that is
    read or written is at the same place along both, or does not depend on them. So rows of a picture of 28 bytes become
    planes of 784, which fill vectors.
    """
    return replace(func, body=_joined(func.body))


def _joined(stmt: Stmt) -> Stmt:
    inner = stmt.body if isinstance(stmt, For) else None
    if not isinstance(stmt, For) or not isinstance(inner, For) or not _are_side_by_side(stmt, inner):
        return map_fields(stmt, body=_joined)
    var, extent = Var(stmt.var.name), _extent(inner)
    values = {stmt.var: var // extent, inner.var: var % extent}
    body = map_expressions(inner.body, lambda expr: substitute(expr, values))
    return For(var, const(_extent(stmt) * extent), body)


def _are_side_by_side(outer: For, inner: For) -> bool:
    if any(isinstance(part, For | Alloc) for part in statements(inner.body)):
        return False
    extent = _extent(inner)
    is_worthwhile = extent < _LONG and extent * _extent(outer) >= _LEAST
    return is_worthwhile and _go_along(inner.body, outer.var, inner.var, extent)


def _extent(loop: For) -> int:
    """Of a plain loop how many iterations it has; else 0."""
    is_constant = loop.kind == "serial" and isinstance(loop.extent, Imm)
    return int(loop.extent.value) if is_constant and isinstance(loop.extent, Imm) else 0


def _go_along(node: Expr | Stmt, outer: Var, inner: Var, extent: int) -> bool:
    """Whether two variables are only ever used as the indices of dimensions one behind the other, of which the second
    has the extent of the second loop."""
    if isinstance(node, Var):
        return node not in (outer, inner)
    used = accesses(node)
    if any(access.view is not None for access in used):
        return False
    places: list[Expr] = []
    for access in used:
        at, shape = access.start, access.buffer.shape
        for d, index in enumerate(at):
            together = 0 < d and at[d - 1] is outer and index is inner and shape[d] == extent
            before = d + 1 < len(at) and index is outer and at[d + 1] is inner and shape[d + 1] == extent
            if not together and not before and not _go_along(index, outer, inner, extent):
                return False
            places.append(index)
    rest = [part for part in parts(node) if not any(part is place for place in places)]
    return all(_go_along(part, outer, inner, extent) for part in rest)
