"""The proof that a function touches nothing outside of its buffers: every index, and every element of every view.

What is shown holds for all data. An index that data decide is within its buffer only where the function itself clamps
it, or asks for it before. Intrinsics are held to their descriptions: with the values that they are given, each access
is within the shape of the parameter, and within the buffer that the view is of.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from ..form.nodes import (
    INDEX,
    Bin,
    Bind,
    Buffer,
    Copy,
    Exec,
    Expr,
    For,
    If,
    Imm,
    Intrinsic,
    Load,
    PrimFunc,
    Select,
    Stmt,
    Var,
    View,
)
from ..form.printer import headline, print_expr
from ..form.visit import accesses, buffers_read, buffers_written, child_statements, map_fields, operands, rewrite, walk
from .affine import Affine
from .intervals import Interval
from .linear_prover import Facts

__all__ = ["OWN", "Prover", "Unproven", "index_faults", "inlined", "knowing_values"]


@dataclass(frozen=True)
class Unproven:
    """Something about a function that could not be shown.

    Args:
        what: a sentence.
        place: the statement; None where it is the function as a whole.
        hint: how to mend it.
    """

    what: str
    place: Stmt | None
    hint: str

    def __str__(self) -> str:
        return f"{self.what} ({self.where})" if self.place is not None else self.what

    @property
    def where(self) -> str:
        """The first line of the statement; empty where there is none."""
        return "" if self.place is None else headline(self.place)


_HINT = "mend the index, or the extent of a loop around it; an index that data decide needs a clamp or a guard"


def index_faults(func: PrimFunc) -> Iterator[Unproven]:
    """Every access of a function that `verify` accepts which is not proven to be within its buffer.

    A function without one never leaves a buffer, whatever its inputs and constants hold.
    """
    yield from Prover(func.may_alias).statement(func.whole().body, Facts())


class Prover:
    """Goes through statements, with what is known at each.

    Args:
        aliases: names of parameters that may be one memory.
        windows: for the parameters of an intrinsic, the views that they stand for; None for one that is in its buffer
            with all that it shows.
    """

    def __init__(
        self, aliases: Sequence[tuple[str, str]], windows: Mapping[Buffer, View | None] | None = None, within: str = ""
    ) -> None:
        self.aliases = aliases
        self.windows = windows or {}
        self.within = within
        self.checked: dict[Facts, set[Expr]] = {}
        self.loading: dict[Expr, bool] = {}
        self.sound: dict[tuple[Intrinsic, tuple[Expr, ...]], bool] = {}

    def statement(self, stmt: Stmt, facts: Facts) -> Iterator[Unproven]:
        for expr in operands(stmt):
            for what in self.expression(expr, facts):
                yield Unproven(what, stmt, _HINT)
        for what in self.own(stmt, facts):
            yield Unproven(what, stmt, _HINT)
        if isinstance(stmt, For):
            inside = facts.loop(stmt.var, stmt.extent, self.lasting(stmt.extent, stmt.body))
            if inside is not None:
                yield from self.statement(stmt.body, inside)
        elif isinstance(stmt, If):
            for body, holds in ((stmt.then, True), (stmt.otherwise, False)):
                if body is None:
                    continue
                inside = facts.assume(stmt.condition, holds, self.lasting(stmt.condition, body))
                if inside is not None:
                    yield from self.statement(body, inside)
        else:
            inner = facts.bind(stmt.var, stmt.value) if isinstance(stmt, Bind) else facts
            for body in child_statements(stmt):
                yield from self.statement(body, inner)

    def lasting(self, expr: Expr, body: Stmt) -> tuple[Buffer, ...]:
        """The buffers that ``expr`` reads and nothing in ``body`` writes."""
        if self.windows or not self.loads(expr):  # two views may be of one memory
            return ()
        names = {buffer.name for buffer in buffers_written(body)}
        names |= {name for pair in self.aliases if names & set(pair) for name in pair}
        return tuple(buffer for buffer in buffers_read(expr) if buffer.name not in names)

    def own(self, stmt: Stmt, facts: Facts) -> Iterator[str]:
        """The accesses of a statement itself."""
        for use in accesses(stmt):
            if use.view is None:
                yield from self.access(use.buffer, use.start, facts)
        if isinstance(stmt, Copy):
            yield from self.copy(stmt, facts)
        elif isinstance(stmt, Exec):
            yield from self.exec(stmt, facts)

    # Expressions

    def loads(self, expr: Expr) -> bool:
        """Whether something is loaded within ``expr``."""
        found = self.loading.get(expr)
        if found is None:
            found = isinstance(expr, Load) or any(self.loads(part) for part in operands(expr))
            self.loading[expr] = found
        return found

    def expression(self, expr: Expr, facts: Facts) -> Iterator[str]:
        """The accesses within an expression."""
        checked = self.checked.setdefault(facts, set())
        if not self.loads(expr) or expr in checked:
            return
        checked.add(expr)
        if isinstance(expr, Select):
            yield from self.expression(expr.condition, facts)
            yield from self.branch(expr.a, expr.condition, True, facts)
            yield from self.branch(expr.b, expr.condition, False, facts)
        elif isinstance(expr, Bin) and expr.op in ("and", "or"):
            yield from self.expression(expr.a, facts)
            yield from self.branch(expr.b, expr.a, expr.op == "and", facts)
        else:
            for part in operands(expr):
                yield from self.expression(part, facts)
            if isinstance(expr, Load):
                yield from self.access(expr.buffer, expr.indices, facts)

    def branch(self, expr: Expr, condition: Expr, holds: bool, facts: Facts) -> Iterator[str]:
        if not self.loads(expr):
            return
        # Nothing is written while an expression is evaluated.
        inside = facts.assume(condition, holds, buffers_read(condition) if self.loads(condition) else ())
        if inside is not None:
            yield from self.expression(expr, inside)

    # Accesses

    def access(self, buffer: Buffer, indices: tuple[Expr, ...], facts: Facts) -> Iterator[str]:
        for dim, (index, extent) in enumerate(zip(indices, buffer.shape, strict=True)):
            low, high = facts.bounds.interval(index)
            if (0 <= low and high < extent) or facts.is_between(facts.linear(index), 0, extent - 1):
                continue
            yield self.fault(f"index {_shown(index)}", buffer, dim, (low, high))
        view = self.windows.get(buffer)
        if view is not None:
            yield from self.seen(view, [facts.linear(index) for index in indices], facts)

    def seen(self, view: View, indices: Sequence[Affine], facts: Facts) -> Iterator[str]:
        """The element of ``view`` at ``indices``."""
        for dim, (start, extent) in enumerate(zip(view.start, view.buffer.shape, strict=True)):
            index = facts.linear(start)
            for axis, moved in zip(view.axes, indices, strict=True):
                if axis.dim == dim:
                    index += moved.scaled(axis.step)
            if not facts.is_between(index, 0, extent - 1):
                yield self.fault(f"a view from {_shown(start)} on", view.buffer, dim, facts.span(index))

    def fault(self, what: str, buffer: Buffer, dim: int, values: Interval) -> str:
        extent = buffer.shape[dim]
        sure = values[1] < 0 or values[0] >= extent
        found = f"is {values[0]}" if values[0] == values[1] else f"may be {values[0]} to {values[1]}"
        where = f"dimension {dim} of {buffer.name!r}, which has {extent}" + (
            f", in {self.within}" if self.within else ""
        )
        return f"{what} {found}, {'outside of' if sure else 'and is not proven to be within'} {where}"

    def copy(self, stmt: Copy, facts: Facts) -> Iterator[str]:
        inside: Facts | None = facts
        indices: list[Affine] = []
        for number, extent in enumerate(stmt.shape):
            low, high = facts.bounds.interval(extent)
            if low < 0 and not facts.not_negative(facts.linear(extent)):
                yield f"extent {_shown(extent)} of a copy may be {low} to {high}, and is not proven not to be negative"
            var = Var(f"{OWN}{number}")
            inside = None if inside is None else inside.loop(var, extent, buffers_read(extent))
            indices.append(Affine({var: 1}, 0))
        if inside is not None:  # else nothing is copied
            for view in (stmt.to, stmt.source):
                yield from self.seen(view, indices, inside)

    def exec(self, stmt: Exec, facts: Facts) -> Iterator[str]:
        intrinsic = stmt.intrinsic
        pairs = tuple(zip(intrinsic.params, stmt.args, strict=True))
        if all(_is_inside(view, param.shape, facts) for param, view in pairs) and self.keeps_to_shapes(stmt):
            return
        for view in stmt.args:
            # An address is handed over even where nothing is accessed.
            yield from self.seen(view, [Affine({}, 0)] * len(view.axes), facts)
        yield from _executed(stmt, dict(pairs), facts)

    def keeps_to_shapes(self, stmt: Exec) -> bool:
        """Whether an intrinsic that is given constants accesses what its parameters show and no more. That is the same
        for all its executions, of which loops that are unrolled have many.
        """
        if not all(isinstance(value, Imm) for value in stmt.values):
            return False
        key = stmt.intrinsic, stmt.values
        if key not in self.sound:
            self.sound[key] = not any(_executed(stmt, dict.fromkeys(stmt.intrinsic.params), Facts()))
        return self.sound[key]


def knowing_values(stmt: Exec, facts: Facts) -> Facts:
    """A place, within what an intrinsic does: its variables have the values that it is given there."""
    for var, value in zip(stmt.intrinsic.vars, stmt.values, strict=True):
        facts = facts.bind(_own(var), value)
    return facts


def _executed(stmt: Exec, windows: Mapping[Buffer, View | None], facts: Facts) -> Iterator[str]:
    """The accesses within what an intrinsic does."""
    facts = knowing_values(stmt, facts)
    for found in Prover((), windows, repr(stmt.intrinsic.name)).statement(inlined(stmt.intrinsic), facts):
        yield found.what


def _is_inside(view: View, shape: tuple[int, ...], facts: Facts) -> bool:
    """Whether all that a view shows in constant extents is surely in its buffer."""
    for dim, (start, extent) in enumerate(zip(view.start, view.buffer.shape, strict=True)):
        low, high = facts.span(facts.linear(start))
        for axis, count in zip(view.axes, shape, strict=True):
            if axis.dim == dim:
                low, high = low + min(0, axis.step * (count - 1)), high + max(0, axis.step * (count - 1))
        if low < 0 or high >= extent:
            return False
    return True


OWN = "\u03b9"
"""No name of a function that `verify` accepts begins with it, as those are ASCII."""


def _own(var: Var) -> Var:
    return Var(OWN + var.name, var.dtype)


@lru_cache(maxsize=64)
def inlined(intrinsic: Intrinsic) -> Stmt:
    """The description of an intrinsic with names for its variables that no function has."""
    memo: dict[Expr, Expr] = {}

    def symbol(old: Var | Buffer) -> Var | Buffer:
        return _own(old) if isinstance(old, Var) else old

    def expr(old: Expr) -> Expr:
        return rewrite(old, lambda node: _own(node) if isinstance(node, Var) else None, memo)

    def renamed(stmt: Stmt) -> Stmt:
        return map_fields(stmt, expr=expr, symbol=symbol, body=renamed)

    return renamed(intrinsic.description)


def _shown(expr: Expr) -> str:
    # Spelt out, an expression that shares its parts may be exponentially long.
    if sum(1 for _ in walk(expr)) > 60:
        return "of an expression"
    text = print_expr(expr, INDEX).replace(OWN, "")
    return text if len(text) <= 120 else text[:117] + "..."
