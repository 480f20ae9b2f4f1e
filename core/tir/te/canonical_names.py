"""Names by order of the text: functions that do the same are the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType

from ..form.nodes import (
    INDEX,
    Alloc,
    Bin,
    Block,
    Buffer,
    Expr,
    For,
    Imm,
    Load,
    Param,
    PrimFunc,
    Role,
    Seq,
    Stmt,
    Store,
    Update,
    Var,
    seq,
)
from ..form.visit import buffers, map_fields, rewrite
from ..proofs.alias import may_alias
from ..proofs.intervals import Bounds, Interval
from ..rewrites.common_subexpressions import share
from ..rewrites.simplify import simplify_expr
from .finalisation import with_value
from .tensors import PARAM_ALIGNMENT

__all__ = ["merge_stage_blocks", "rename_canonically"]


def merge_stage_blocks(stmt: Stmt, owners: Mapping[str, str]) -> Stmt:
    """``stmt`` with one block for all that belongs to a stage, and no others.

    Args:
        stmt: what a schedule made.
        owners: for the label of a block that of its stage.
    """
    if isinstance(stmt, Block):
        body = merge_stage_blocks(stmt.body, owners)
        return Block(owners[stmt.label], _bare(body)) if stmt.label in owners else body
    inner = map_fields(stmt, body=lambda part: merge_stage_blocks(part, owners))
    if isinstance(inner, Alloc):
        first, *rest = _one_by_one(inner.body)
        if isinstance(first, Block) and not any(inner.buffer in buffers(part) for part in rest):
            # What only one stage uses is its own.
            return seq(Block(first.label, Alloc(inner.buffer, first.body)), *rest)
    if not isinstance(inner, Seq):
        return inner
    parts: list[Stmt] = []
    for part in _one_by_one(seq(*inner.stmts)):
        last = parts[-1] if parts else None
        if isinstance(last, Block) and isinstance(part, Block) and last.label == part.label:
            parts[-1] = Block(last.label, seq(last.body, part.body))
        else:
            parts.append(part)
    return seq(*parts)


def _one_by_one(stmt: Stmt) -> tuple[Stmt, ...]:
    return stmt.stmts if isinstance(stmt, Seq) else (stmt,)


def _bare(stmt: Stmt) -> Stmt:
    """``stmt`` without blocks."""
    if isinstance(stmt, Block):
        return _bare(stmt.body)
    body = map_fields(stmt, body=_bare)
    return seq(*body.stmts) if isinstance(body, Seq) else body


def rename_canonically(func: PrimFunc, splits: Mapping[Var, Var] = MappingProxyType({})) -> PrimFunc:
    """``func`` with all named by kind and order.

    Args:
        func: what to name anew.
        splits: for the variable of a loop within blocks that of the loop over the blocks, which follows it in sums.
    """
    return _Renumbering(func, splits).run()


class _Renumbering:
    def __init__(self, func: PrimFunc, splits: Mapping[Var, Var]) -> None:
        self.func = func
        self.splits = splits
        self.blocks: dict[Expr, Expr] = {}
        self.counts: Counter[str] = Counter()
        self.values: dict[Var, Expr] = {}
        self.ranges: dict[Var, Interval] = {}
        self.buffers: dict[Buffer, Buffer] = {}
        self.memo: dict[Expr, Expr] = {}

    def run(self) -> PrimFunc:
        prefixes: dict[Role, str] = {"input": "x", "output": "out", "constant": "w", "workspace": "s"}
        params = []
        for param in self.func.params:
            buffer = replace(param.buffer, name=self.name(prefixes[param.role]))
            if param.role == "workspace":
                buffer = replace(buffer, alignment=PARAM_ALIGNMENT)
            self.buffers[param.buffer] = buffer
            params.append(Param(buffer, param.role))
        body = self.statement(self.func.body)
        return PrimFunc(tuple(params), body, may_alias(tuple(params), body))

    def name(self, prefix: str) -> str:
        self.counts[prefix] += 1
        return f"{prefix}{self.counts[prefix] - 1}"

    def statement(self, stmt: Stmt) -> Stmt:
        if isinstance(stmt, For):
            return self.loop(stmt)
        result = map_fields(
            stmt, expr=self.expr, element=self.element, symbol=self.symbol, label=self.label, body=self.statement
        )
        if isinstance(result, (Store, Update)):
            return share(result.value, lambda: self.name("v"), partial(with_value, result))
        return result

    def loop(self, stmt: For) -> Stmt:
        extent = simplify_expr(self.expr(stmt.extent), self.ranges)
        if extent is Imm(1, INDEX):
            self.values[stmt.var] = Imm(0, INDEX)
            return self.statement(stmt.body)
        var = Var(self.name("i"), stmt.var.dtype)
        self.values[stmt.var] = var
        self.ranges[var] = (0, Bounds(self.ranges).interval(extent)[1] - 1)
        if stmt.var in self.splits and self.splits[stmt.var] in self.values:
            self.blocks[var] = self.values[self.splits[stmt.var]]
        return For(var, extent, self.statement(stmt.body), stmt.kind)

    def symbol(self, symbol: Var | Buffer) -> Var | Buffer:
        assert isinstance(symbol, Buffer)  # the plain form has no names for values
        self.buffers[symbol] = replace(symbol, name=self.name("a"), alignment=64 if symbol.shape else 0)
        return self.buffers[symbol]

    def label(self, label: str) -> str:
        return self.name(label.rstrip("0123456789_"))

    def element(self, buffer: Buffer, indices: tuple[Expr, ...]) -> tuple[Buffer, tuple[Expr, ...]]:
        return self.buffers[buffer], tuple(map(self.expr, indices))

    def expr(self, expr: Expr) -> Expr:
        return rewrite(expr, self.rule, self.memo)

    def rule(self, node: Expr) -> Expr | None:
        if isinstance(node, Var):
            return self.values[node]
        if isinstance(node, Bin) and node.op == "add":
            return self.ordered(node)
        return Load(self.buffers[node.buffer], node.indices) if isinstance(node, Load) else None

    def ordered(self, node: Bin) -> Expr | None:
        """A sum in which the position of a block came before that within it."""
        rest = node.a.a if isinstance(node.a, Bin) and node.a.op == "add" else None
        last = node.a.b if isinstance(node.a, Bin) and node.a.op == "add" else node.a
        inner, outer = (term.a if isinstance(term, Bin) and term.op == "mul" else term for term in (node.b, last))
        if inner not in self.blocks or self.blocks[inner] is not outer:
            return None
        return Bin("add", node.b if rest is None else Bin("add", rest, node.b), last)
