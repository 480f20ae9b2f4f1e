"""The row form of a function: the outermost loop over the rows of what it makes, or of what it adds up, becomes a
number that it is given.

What stands around that loop does not change what a round computes, so all indices stay those of whole tensors. Several
loops over rows, one after the other, are one: each does its part of the row. Of a reduction over rows what stands
before the loop is done for row 0, and what stands behind it for the last one, and what it adds up in is a workspace.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from ..form.nodes import (
    Alloc,
    Bin,
    Bind,
    Block,
    Buffer,
    Expr,
    For,
    If,
    Imm,
    Load,
    Param,
    PrimFunc,
    RowForm,
    RowParam,
    Seq,
    Stmt,
    Var,
    const,
    seq,
)
from ..form.visit import (
    buffers_read,
    buffers_written,
    child_statements,
    declared,
    fresh_name,
    map_expressions,
    map_fields,
    rewrite,
    statements,
    uses_device,
)
from ..proofs.alias import may_alias
from ..proofs.linear_prover import Facts
from ..proofs.obligations import unproven
from ..proofs.rows import around, is_made_anew
from ..proofs.touched import Touch, step, touched, window
from .simplify import simplify

__all__ = ["NoRows", "row_form"]

_MAX_ALIGNMENT = 64
"""Of a workspace, in bytes."""


@dataclass(frozen=True)
class NoRows:
    """Why a function has no row form: one sentence for users, without a full stop."""

    reason: str


class _NoRowsError(Exception):
    """Why there is no row form."""


def row_form(func: PrimFunc, heights: Mapping[str, int]) -> PrimFunc | NoRows:
    """``func`` with rows, which computes the same to the last bit, or why it has none.

    Outputs with rows are made row by row. Where they have none, and inputs have, those are added up, or whatever a
    reduction does, row by row: its sums are workspaces then, the last parameters.

    Args:
        func: a finished function; what it allocates around its loops over rows must be written in each round before it
            is read there.
        heights: how many rows inputs and outputs have, by parameter name; those without are used whole in each round.
    """
    if func.rows is not None:
        return func
    try:
        form = _formed(func, heights)
    except _NoRowsError as error:
        return NoRows(str(error))
    fault = unproven(form)
    return form if fault is None else NoRows(f"its form of one row is not proven: {fault.what}")


def _formed(func: PrimFunc, heights: Mapping[str, int]) -> PrimFunc:
    if uses_device(func):
        raise _NoRowsError("it uses an accelerator")
    if func.partial:
        raise _NoRowsError("how much it makes is known when it runs")
    outputs = func.buffers("output")
    output_heights = {heights.get(buffer.name, 1) for buffer in outputs}
    input_heights = {heights.get(buffer.name, 1) for buffer in func.buffers("input")}
    if len(output_heights) > 1:
        raise _NoRowsError("its results have different numbers of rows")
    if output_heights != {1}:
        return _Map(func, heights, output_heights.pop()).formed()
    if input_heights <= {1}:
        raise _NoRowsError("neither what it reads nor what it makes has several rows")
    return _Sum(func, heights).formed()


class _Former:
    """What both forms have in common.

    Args:
        func: the function.
        heights: rows of its parameters.
    """

    def __init__(self, func: PrimFunc, heights: Mapping[str, int]) -> None:
        self.func = func
        self.names = declared(func)
        self.heights = {
            param.buffer.name: heights[param.buffer.name]
            for param in func.params
            if param.role in ("input", "output") and heights.get(param.buffer.name, 1) > 1
        }
        for buffer in (param.buffer for param in func.params):
            if buffer.size % self.heights.get(buffer.name, 1):
                raise _NoRowsError(f"{buffer.name!r} is not {self.heights[buffer.name]} equal parts")
        self.row = Var("row" if "row" not in self.names else fresh_name("row", self.names))
        self.names.add(self.row.name)
        self.scopes = Facts()

    def unit(self, buffer: Buffer) -> int:
        """The elements of one row."""
        return buffer.size // self.heights[buffer.name]

    def split(self, loop: For, rounds: int) -> For:
        """A loop as one over blocks of so many rounds and one within each."""
        var, inner = (Var(fresh_name(loop.var.name, self.names)) for _ in range(2))
        body = _replaced(loop.body, {loop.var: var * rounds + inner})
        return For(var, const(_count(loop) // rounds), For(inner, const(rounds), body))

    def over_rows(self, loop: For, tracked: Iterable[Buffer], facts: Facts) -> tuple[For, dict[Buffer, list[Touch]]]:
        """A loop, over pixels of some buffers perhaps, as one over their rows, and what it touches of these."""
        tracked = tuple(tracked)
        touches = _touches(loop, tracked, facts)
        for buffer in tracked:
            by, unit = step(touches[buffer], loop.var), self.unit(buffer)
            rounds = unit // by if by and by > 0 else 1
            whole = by and 0 < by < unit and unit % by == 0 and _count(loop) % rounds == 0
            if whole and rounds * self.heights[buffer.name] == _count(loop):
                loop = self.split(loop, rounds)
                return loop, _touches(loop, tracked, facts)
        return loop, touches

    def finished(self, body: Stmt, extent: int, params: tuple[Param, ...], kept: Iterable[str] = ()) -> PrimFunc:
        """The function with rows; what its parameters touch is found out."""
        facts = around(RowForm(self.row, extent, ()))
        rows = []
        for param in params:
            name = param.buffer.name
            if name in self.heights:
                touches = touched(body, (param.buffer,), facts)
                seen = window(touches, self.row, self.unit(param.buffer)) if touches else None
                if param.role == "output":
                    seen = (1, 1, 0)
                # Else all rows are touched in each round.
                if seen is not None and seen[0] < self.heights[name] + (extent - 1) * seen[1]:
                    rows.append(RowParam(name, self.heights[name], *seen))
        form = RowForm(self.row, extent, tuple(rows), tuple(kept))
        result = simplify(replace(self.func, params=params, body=body, may_alias=(), overlaps=(), rows=form))
        aliases = may_alias(result.params, result.whole().body) if self.func.may_alias else ()
        return replace(result, may_alias=tuple(pair for pair in self.func.may_alias if pair in aliases))


class _Map(_Former):
    """Outputs made row by row.

    Args:
        extent: how many rows they have.
    """

    def __init__(self, func: PrimFunc, heights: Mapping[str, int], extent: int) -> None:
        super().__init__(func, heights)
        self.extent = extent
        self.outputs = func.buffers("output")
        self.used: dict[Buffer, For] = {}

    def formed(self) -> PrimFunc:
        body = self.round(self.func.body, Facts())
        result = self.finished(body, self.extent, self.func.params)
        assert result.rows is not None
        facts = around(result.rows)
        for buffer in _own(self.func, self.func.body):
            if not is_made_anew(buffer, result.body, facts):
                raise _NoRowsError(f"{buffer.name!r} is kept from row to row")
        return result

    def round(self, stmt: Stmt, facts: Facts) -> Stmt:
        """What ``stmt`` does of one row."""
        if isinstance(stmt, For):
            return self.loop(stmt, facts)
        written = buffers_written(stmt)
        if isinstance(stmt, (Seq, Block, Alloc, Bind, If)) and child_statements(stmt):
            if isinstance(stmt, (Bind, If)) and any(
                b in buffers_written(self.func.body) for b in _buffers_read_first(stmt)
            ):
                raise _NoRowsError("what stands around its loops reads what they write")
            inner = facts.bind(stmt.var, stmt.value) if isinstance(stmt, Bind) else facts
            return map_fields(stmt, body=lambda body: self.round(body, inner))
        if any(buffer in self.outputs for buffer in written):
            raise _NoRowsError("part of its result is written outside of its loops over rows")
        return stmt

    def loop(self, stmt: For, facts: Facts) -> Stmt:
        written = buffers_written(stmt)
        results = [buffer for buffer in self.outputs if buffer in written]
        if not results:
            what = ", ".join(repr(buffer.name) for buffer in written)
            raise _NoRowsError(f"{what} is made before the loop over rows, and would be made anew for each")
        if not isinstance(stmt.extent, Imm) or stmt.kind == "vectorized":
            raise _NoRowsError(f"its outermost loop, {stmt.var.name!r}, is one over vectors or of no constant extent")
        stmt, touches = self.over_rows(stmt, results, facts)
        offsets = {self.offset(stmt, buffer, touches[buffer]) for buffer in results}
        if len(offsets) > 1:
            raise _NoRowsError("a round of its outermost loop writes different rows of its results")
        for buffer in written:
            if buffer not in self.outputs and self.used.setdefault(buffer, stmt) is not stmt:
                raise _NoRowsError(f"{buffer.name!r} is used by several loops over rows")
        for buffer in buffers_read(stmt):
            if buffer in self.used and self.used[buffer] is not stmt:
                raise _NoRowsError(f"{buffer.name!r} is made by one loop over rows and read by another")
        self.used.update(dict.fromkeys(results, stmt))
        first = offsets.pop()
        body = _replaced(stmt.body, {stmt.var: self.row - first if first else self.row})
        end = first + _count(stmt)
        guards = [self.row >= first] * (first > 0) + [self.row < end] * (end < self.extent)
        for guard in guards:
            body = If(guard, body)
        return body

    def offset(self, loop: For, buffer: Buffer, touches: list[Touch]) -> int:
        """The row that a round of a loop writes, less its number."""
        name, unit = buffer.name, self.unit(buffer)
        by = step(touches, loop.var)
        seen = window(touches, loop.var, unit)
        if seen is not None and seen[:2] == (1, 1):
            return -seen[2]
        if by and by % unit == 0 and by > unit:
            raise _NoRowsError(f"a tile takes {by // unit} rows of {name!r} at once")
        if by and by % unit and by * _count(loop) > unit:
            what = f"its outermost loop, {loop.var.name!r}, goes through {name!r} by {by} elements"
            raise _NoRowsError(f"{what}, and a row has {unit}")
        if by and by % unit == 0:
            raise _NoRowsError(f"a round of its outermost loop, {loop.var.name!r}, writes several rows of {name!r}")
        raise _NoRowsError(f"its outermost loop, {loop.var.name!r}, does not go over the rows of {name!r}")


class _Sum(_Former):
    """Inputs reduced row by row."""

    def formed(self) -> PrimFunc:
        self.hoisted: dict[Buffer, Buffer] = {}
        inputs = [buffer for buffer in self.func.buffers("input") if buffer.name in self.heights]
        loops = [(loop, facts) for loop, facts in _top_loops(self.func.body, Facts()) if _reads(loop, inputs)]
        if len(loops) != 1:
            what = "several loops" if loops else "no outermost loop"
            raise _NoRowsError(f"{what} over rows read {', '.join(repr(buffer.name) for buffer in inputs)}")
        (old, facts), *_ = loops
        if old.kind == "vectorized":
            raise _NoRowsError(f"its outermost loop, {old.var.name!r}, is one over vectors")
        used = [buffer for buffer in inputs if buffer in buffers_read(old)]
        loop, touches = self.over_rows(old, used, facts)
        if all(window(touches[buffer], loop.var, self.unit(buffer)) is None for buffer in used):
            what = " and ".join(repr(buffer.name) for buffer in used)
            raise _NoRowsError(f"its outermost loop that reads {what}, {old.var.name!r}, does not go over its rows")
        self.old, self.loop, self.extent = old, loop, _count(loop)
        body = self.round(self.func.body)
        body = _replace_buffers(body, self.hoisted)
        params = (*self.func.params, *(Param(buffer, "workspace") for buffer in self.hoisted.values()))
        inside = around(RowForm(self.row, self.extent, ()))
        lasting = [
            param.buffer.name
            for param in params
            if param.role == "workspace" and not is_made_anew(param.buffer, body, inside)
        ]
        return self.finished(body, self.extent, params, lasting)

    def round(self, stmt: Stmt) -> Stmt:
        """What a statement that the loop stands in does in one round."""
        if stmt is self.old:
            return _replaced(self.loop.body, {self.loop.var: self.row})
        if isinstance(stmt, Seq):
            place = next(n for n, inner in enumerate(stmt.stmts) if self.old in statements(inner))
            before, after = seq(*stmt.stmts[:place]), seq(*stmt.stmts[place + 1 :])
            first = (
                [If(Bin("eq", self.row, const(0)), before)] if child_statements(before) or before is not seq() else []
            )
            last = [If(Bin("eq", self.row, const(self.extent - 1)), after)] if after is not seq() else []
            return seq(*first, self.round(stmt.stmts[place]), *last)
        if isinstance(stmt, Alloc):
            return self.hoist(stmt)
        if isinstance(stmt, Bind) and any(b in buffers_written(self.func.body) for b in _buffers_read_first(stmt)):
            raise _NoRowsError("what stands around its loop over rows reads what that writes")
        return map_fields(stmt, body=self.round)

    def hoist(self, stmt: Alloc) -> Stmt:
        old = stmt.buffer
        if old.scope != "local":
            raise _NoRowsError(f"{old.name!r}, which it adds up in, is in registers")
        self.hoisted[old] = replace(old, scope="global", alignment=min(old.alignment, _MAX_ALIGNMENT))
        return self.round(stmt.body)


def _count(loop: For) -> int:
    assert isinstance(loop.extent, Imm)  # the callers looked
    return int(loop.extent.value)


def _touches(loop: For, tracked: tuple[Buffer, ...], facts: Facts) -> dict[Buffer, list[Touch]]:
    inside = facts.loop(loop.var, loop.extent)
    touches = [] if inside is None else touched(loop.body, tracked, inside)
    return {buffer: [touch for touch in touches if touch.buffer is buffer] for buffer in tracked}


def _top_loops(stmt: Stmt, facts: Facts) -> list[tuple[For, Facts]]:
    """The loops that no other loop or condition is around."""
    if isinstance(stmt, For):
        return [(stmt, facts)] if isinstance(stmt.extent, Imm) else []
    if isinstance(stmt, If):
        return []
    inner = facts.bind(stmt.var, stmt.value) if isinstance(stmt, Bind) else facts
    return [pair for body in child_statements(stmt) for pair in _top_loops(body, inner)]


def _reads(stmt: Stmt, inputs: Iterable[Buffer]) -> bool:
    read = buffers_read(stmt)
    return any(buffer in read for buffer in inputs)


def _own(func: PrimFunc, stmt: Stmt) -> list[Buffer]:
    """The workspaces of a function, and what it allocates outside of its loops."""
    workspaces = [param.buffer for param in func.params if param.role == "workspace"]

    def visit(stmt: Stmt) -> None:
        if isinstance(stmt, Alloc):
            workspaces.append(stmt.buffer)
        if not isinstance(stmt, For):
            for body in child_statements(stmt):
                visit(body)

    visit(stmt)
    return workspaces


def _buffers_read_first(stmt: Bind | If) -> tuple[Buffer, ...]:
    return buffers_read(stmt.value if isinstance(stmt, Bind) else stmt.condition)


def _replaced(stmt: Stmt, values: Mapping[Var, Expr]) -> Stmt:
    memo: dict[Expr, Expr] = {}

    def rule(node: Expr) -> Expr | None:
        return values.get(node) if isinstance(node, Var) else None

    return map_expressions(stmt, lambda expr: rewrite(expr, rule, memo))


def _replace_buffers(stmt: Stmt, new: Mapping[Buffer, Buffer]) -> Stmt:
    """``stmt`` with other buffers."""
    memo: dict[Expr, Expr] = {}

    def rule(node: Expr) -> Expr | None:
        return Load(new[node.buffer], node.indices) if isinstance(node, Load) and node.buffer in new else None

    def expr(node: Expr) -> Expr:
        return rewrite(node, rule, memo)

    def element(buffer: Buffer, indices: tuple[Expr, ...]) -> tuple[Buffer, tuple[Expr, ...]]:
        return new.get(buffer, buffer), tuple(map(expr, indices))

    return map_fields(stmt, expr=expr, element=element, body=lambda body: _replace_buffers(body, new))
