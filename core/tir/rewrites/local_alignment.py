"""Arrays on the stack aligned as little as can be, for CPUs that gain nothing by more: what aligns the stack to a cache
line takes up to a cache line of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ..form.dtype import itemsize
from ..form.nodes import Alloc, Buffer, Exec, Expr, For, Load, PrimFunc, Stmt
from ..form.visit import map_fields, rewrite, statements

__all__ = ["least_aligned"]


def least_aligned(func: PrimFunc) -> PrimFunc:
    """``func`` where each local array has the alignment of its elements, or the largest that an intrinsic asks for that
    takes a part of it. What has loops over vectors is left as it is.
    """
    if any(isinstance(stmt, For) and stmt.kind == "vectorized" for stmt in statements(func.body)):
        return func
    asked = dict(_required_alignments(func))
    changed = {
        stmt.buffer: replace(stmt.buffer, alignment=max(itemsize(stmt.buffer.dtype), asked.get(stmt.buffer, 0)))
        for stmt in statements(func.body)
        if isinstance(stmt, Alloc) and stmt.buffer.scope == "local"
    }
    changed = {old: new for old, new in changed.items() if new.alignment < old.alignment}
    if not changed:
        return func
    memo: dict[Expr, Expr] = {}

    def load(node: Expr) -> Expr | None:
        return Load(changed[node.buffer], node.indices) if isinstance(node, Load) and node.buffer in changed else None

    def expr(node: Expr) -> Expr:
        return rewrite(node, load, memo)

    def element(buffer: Buffer, indices: tuple[Expr, ...]) -> tuple[Buffer, tuple[Expr, ...]]:
        return changed.get(buffer, buffer), tuple(map(expr, indices))

    def statement(stmt: Stmt) -> Stmt:
        return map_fields(
            stmt, expr=expr, element=element, symbol=lambda symbol: changed.get(symbol, symbol), body=statement
        )

    return replace(func, body=statement(func.body))


def _required_alignments(func: PrimFunc) -> Iterator[tuple[Buffer, int]]:
    """What the intrinsics ask for of each buffer, the largest last."""
    execs = [stmt for stmt in statements(func.body) if isinstance(stmt, Exec)]
    pairs = [
        (view.buffer, param.alignment)
        for one in execs
        for view, param in zip(one.args, one.intrinsic.params, strict=True)
    ]
    yield from sorted(pairs, key=lambda pair: pair[1])
