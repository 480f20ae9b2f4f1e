"""What is left to do for loops that a schedule made of the plain form, before they are lowered as all others are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from ..form.nodes import Alloc, Buffer, Expr, For, Load, Param, PrimFunc, Stmt, Store, Update
from ..form.visit import child_statements, declared, fresh_name, map_fields, rewrite
from ..proofs.alias import may_alias
from ..proofs.rows import around, is_made_anew
from ..rewrites.common_subexpressions import share
from .tensors import PARAM_ALIGNMENT

__all__ = ["STACK_BYTES", "finalise_kernel", "with_value"]

STACK_BYTES = 8192
"""What a kernel takes of the stack for rows; what goes beyond is in workspaces."""


def finalise_kernel(func: PrimFunc) -> PrimFunc:
    """``func`` as kernels are lowered.

    - What it allocates on the stack beyond `STACK_BYTES` is in workspaces; except within parallel loops, of which each
      round has its own.
    - What a statement computes more than once has a name. Statements within vectorised loops are left as they are.
    - It tells anew which output may be the same memory as an input.
    """
    spilled: list[Buffer] = []
    _spill(func.body, 0, spilled)
    if func.rows is not None:  # what a workspace holds between rounds must not be found there
        spilled = [buffer for buffer in spilled if is_made_anew(buffer, func.body, around(func.rows))]
    finisher = _Finisher(func, spilled)
    body = finisher.statement(func.body)
    params = (*func.params, *(Param(buffer, "workspace") for buffer in finisher.workspaces.values()))
    result = replace(func, params=params, body=body)
    return replace(result, may_alias=may_alias(params, result.whole().body))


def _spill(stmt: Stmt, used: int, spilled: list[Buffer]) -> None:
    """Notes what is allocated on the stack and does not fit; ``used`` bytes of it are taken around ``stmt``."""
    if isinstance(stmt, For) and stmt.kind == "parallel":
        return
    if isinstance(stmt, Alloc) and stmt.buffer.scope == "local":
        if used + stmt.buffer.nbytes > STACK_BYTES:
            spilled.append(stmt.buffer)
        else:
            used += stmt.buffer.nbytes
    for inner in child_statements(stmt):
        _spill(inner, used, spilled)


class _Finisher:
    def __init__(self, func: PrimFunc, spilled: Sequence[Buffer]) -> None:
        self.workspaces = {
            old: replace(old, scope="global", alignment=min(old.alignment, PARAM_ALIGNMENT)) for old in spilled
        }
        self.taken = declared(func)
        self.memo: dict[Expr, Expr] = {}

    def statement(self, stmt: Stmt) -> Stmt:
        if isinstance(stmt, Alloc) and stmt.buffer in self.workspaces:
            return self.statement(stmt.body)
        if isinstance(stmt, For) and stmt.kind == "vectorized":
            return self.relocated(stmt)
        result = map_fields(stmt, expr=self.expr, element=self.element, body=self.statement)
        if isinstance(result, (Store, Update)):
            return share(result.value, lambda: fresh_name("v", self.taken), partial(with_value, result))
        return result

    def relocated(self, stmt: Stmt) -> Stmt:
        """``stmt`` with what was moved where it is now."""
        return map_fields(stmt, expr=self.expr, element=self.element, body=self.relocated)

    def element(self, buffer: Buffer, indices: tuple[Expr, ...]) -> tuple[Buffer, tuple[Expr, ...]]:
        return self.workspaces.get(buffer, buffer), tuple(map(self.expr, indices))

    def expr(self, expr: Expr) -> Expr:
        return rewrite(expr, self.rule, self.memo)

    def rule(self, node: Expr) -> Expr | None:
        workspace = self.workspaces.get(node.buffer) if isinstance(node, Load) else None
        return None if workspace is None or not isinstance(node, Load) else Load(workspace, node.indices)


def with_value(stmt: Store | Update, value: Expr) -> Stmt:
    """A statement that stores, or adds, another value."""
    if isinstance(stmt, Store):
        return Store(stmt.buffer, stmt.indices, value)
    return Update(stmt.op, stmt.buffer, stmt.indices, value)
