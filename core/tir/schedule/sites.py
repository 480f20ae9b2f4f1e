"""Where things stand in a function: loops by their variable, blocks by their label, and statements put in their place.

Names are unique in a function, so that a `For`, a `Block` or an `Alloc` is found, and replaced, by identity.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar
from weakref import WeakKeyDictionary

from ...errors import InternalError
from ..form.dtype import is_float
from ..form.nodes import Bind, Block, Buffer, Expr, For, If, Load, PrimFunc, Seq, Stmt, Update, Var, View
from ..form.visit import (
    buffers_read,
    child_statements,
    declared,
    fresh_name,
    map_expressions,
    map_fields,
    operands,
    rebuild,
    rewrite,
    statements,
    variables,
    walk,
)
from ..proofs.intervals import Bounds, Interval
from ..rewrites.simplify import simplify_within

__all__ = [
    "Names",
    "ScheduleError",
    "Site",
    "block_site",
    "chain",
    "copy_with_new_names",
    "illegal",
    "inline_bindings",
    "loop_site",
    "redirect_accesses",
    "replace_statement",
    "simplify_expressions",
    "site_of",
    "substitute_variables",
    "wrap_in",
]


class ScheduleError(InternalError):
    """A schedule asks for what is not there, or not legal."""


def illegal(what: str, hint: str | None = None) -> ScheduleError:
    """What to raise: what is wrong, and what to do instead."""
    return ScheduleError(what, where="schedule", hint=hint)


AnyStmt = TypeVar("AnyStmt", bound=Stmt)


@dataclass(frozen=True)
class Site:
    """A statement and what stands around it.

    Args:
        path: from the body of the function to the statement.
    """

    path: tuple[Stmt, ...]

    @property
    def stmt(self) -> Stmt:
        """The statement itself."""
        return self.path[-1]

    @property
    def loops(self) -> tuple[For, ...]:
        """The loops around the statement, outermost first."""
        return tuple(stmt for stmt in self.path[:-1] if isinstance(stmt, For))

    @property
    def bounds(self) -> Bounds:
        """What is known where the statement stands."""
        result = Bounds({})
        for outer, inner in zip(self.path, self.path[1:], strict=False):
            result = next(bounds for body, bounds in result.children(outer) if body is inner)
        return result

    def up_to(self, stmt: Stmt) -> Site:
        """A statement on the path."""
        return Site(self.path[: self.path.index(stmt) + 1])


def site_of(body: Stmt, matches: Callable[[Stmt], bool]) -> Site | None:
    """The first statement within ``body``, in the order of its text, that is wanted."""
    if matches(body):
        return Site((body,))
    for inner in child_statements(body):
        site = site_of(inner, matches)
        if site is not None:
            return Site((body, *site.path))
    return None


def loop_site(func: PrimFunc, var: Var | str) -> Site:
    """The loop over ``var``; a `ScheduleError` where there is none."""
    name = var if isinstance(var, str) else var.name
    site = site_of(func.body, lambda stmt: isinstance(stmt, For) and stmt.var.name == name)
    if site is None:
        there = ", ".join(part.var.name for part in statements(func.body) if isinstance(part, For)) or "none"
        raise illegal(f"there is no loop {name!r}", f"the loops are {there}")
    return site


def block_site(func: PrimFunc, label: str) -> Site:
    """The block of that label; a `ScheduleError` where there is none."""
    site = site_of(func.body, lambda stmt: isinstance(stmt, Block) and stmt.label == label)
    if site is None:
        there = ", ".join(part.label for part in statements(func.body) if isinstance(part, Block)) or "none"
        raise illegal(f"there is no block {label!r}", f"the blocks are {there}")
    return site


def chain(stmt: Stmt) -> tuple[Stmt, ...]:
    """The statements from ``stmt`` in to the first one that has not exactly one statement within it; of a sequence that
    makes a reduction, on to its last update.
    """
    inner = child_statements(stmt)
    if isinstance(stmt, Seq):
        last = [body for body in inner if any(isinstance(part, Update) for part in walk(body))]
        inner = tuple(last[-1:]) or inner[-1:]
    return (stmt, *chain(inner[0])) if len(inner) == 1 else (stmt,)


# Statements in the place of others


def replace_statement(stmt: Stmt, old: Stmt, new: Stmt) -> Stmt:
    """``stmt`` with ``new`` wherever ``old`` stands in it."""
    if stmt is old:
        return new
    return rebuild(stmt, operands(stmt), [replace_statement(body, old, new) for body in child_statements(stmt)])


def wrap_in(stmt: Stmt, around: Sequence[Stmt]) -> Stmt:
    """``stmt`` within copies of statements that have one body each, outermost first."""
    for outer in reversed(around):
        stmt = rebuild(outer, operands(outer), (stmt,))
    return stmt


def substitute_variables(stmt: Stmt, values: Mapping[Var, Expr]) -> Stmt:
    """``stmt`` with expressions in place of variables."""
    memo: dict[Expr, Expr] = {}

    def rule(node: Expr) -> Expr | None:
        return values.get(node) if isinstance(node, Var) else None

    return map_expressions(stmt, lambda expr: rewrite(expr, rule, memo))


def simplify_expressions(stmt: Stmt, known: Bounds) -> Stmt:
    """``stmt`` with its expressions simplified; all its statements stay, so that they can be addressed.

    What a condition says of variables is not put in: an element would be addressed by other means within it.
    """
    done = known.tidy.get(stmt)
    if done is None:
        node = map_fields(stmt, expr=lambda expr: _tidy(expr, known))
        inside = [(body, known) for body in child_statements(node)] if isinstance(node, If) else known.children(node)
        done = rebuild(node, operands(node), [simplify_expressions(body, bounds) for body, bounds in inside])
        known.tidy[stmt] = known.tidy[done] = done
    return done


def inline_bindings(stmt: Stmt) -> Stmt:
    """``stmt`` without names for what depends on other variables only, such as parts of indices."""
    if isinstance(stmt, Bind) and not buffers_read(stmt.value):
        return inline_bindings(substitute_variables(stmt.body, {stmt.var: stmt.value}))
    return rebuild(stmt, operands(stmt), [inline_bindings(body) for body in child_statements(stmt)])


_TIDY: WeakKeyDictionary[Expr, tuple[Interval, ...]] = WeakKeyDictionary()
"""Expressions that cannot be simplified within some intervals of their variables: a function is tidied at each step."""


def _tidy(expr: Expr, bounds: Bounds) -> Expr:
    ranges = tuple([bounds.interval(var) for var in variables(expr) if not is_float(var.dtype)])
    if _TIDY.get(expr) == ranges:
        return expr
    simplified = simplify_within(expr, bounds)
    _TIDY[simplified] = (
        ranges
        if simplified is expr
        else tuple([bounds.interval(v) for v in variables(simplified) if not is_float(v.dtype)])
    )
    return simplified


Address = Callable[[tuple[Expr, ...]], tuple[Expr, ...]]


def redirect_accesses(
    stmt: Stmt, old: Buffer, new: Buffer, at: Address, view: Callable[[View], View] | None = None
) -> Stmt:
    """``stmt`` with the uses of one buffer turned into uses of another one.

    Args:
        stmt: where they stand.
        old, new: the buffers.
        at: gives the indices into ``new`` for those into ``old``.
        view: gives the view of ``new`` for one of ``old``; by default the one that starts at ``at`` of its start.
    """
    memo: dict[Expr, Expr] = {}

    def rule(node: Expr) -> Expr | None:
        return Load(new, at(node.indices)) if isinstance(node, Load) and node.buffer is old else None

    def expr(node: Expr) -> Expr:
        return rewrite(node, rule, memo)

    def element(buffer: Buffer, indices: tuple[Expr, ...]) -> tuple[Buffer, tuple[Expr, ...]]:
        new_indices = tuple([expr(index) for index in indices])
        return (new, at(new_indices)) if buffer is old else (buffer, new_indices)

    def shown(node: View) -> View:
        rewritten = map_fields(node, expr=expr)
        if rewritten.buffer is not old:
            return rewritten
        return View(new, at(rewritten.start), rewritten.axes) if view is None else view(rewritten)

    def statement(part: Stmt) -> Stmt:
        return map_fields(part, expr=expr, element=element, view=shown, body=statement)

    return statement(stmt)


class Names:
    """The names of a function, and new ones."""

    def __init__(self, func: PrimFunc) -> None:
        self.taken = declared(func)

    def new(self, name: str) -> str:
        """``name`` itself where nothing is called so, else with a number."""
        if name in self.taken:
            return fresh_name(name, self.taken)
        self.taken.add(name)
        return name


def copy_with_new_names(stmt: Stmt, name: Callable[[str], str]) -> tuple[Stmt, dict[str, str]]:
    """A copy of ``stmt`` whose variables, buffers and labels have new names, and these by the old ones.

    Args:
        stmt: what to copy.
        name: gives the new name for an old one; called once for each.
    """
    names: dict[str, str] = {}
    memo: dict[Expr, Expr] = {}
    copies: dict[Var | Buffer, Var | Buffer] = {}

    def fresh(old: str) -> str:
        return names.setdefault(old, name(old)) if old not in names else names[old]

    def declares(symbol: Var | Buffer) -> Var | Buffer:
        copy = Var(fresh(symbol.name), symbol.dtype) if isinstance(symbol, Var) else _named(symbol, fresh(symbol.name))
        copies[symbol] = copy
        return copy

    def rule(node: Expr) -> Expr | None:
        if isinstance(node, Var):
            return copies.get(node)  # type: ignore[return-value]  # a variable stands for a variable
        return Load(buffer(node.buffer), node.indices) if isinstance(node, Load) else None

    def buffer(old: Buffer) -> Buffer:
        return copies.get(old, old)  # type: ignore[return-value]  # a buffer stands for a buffer

    def expr(node: Expr) -> Expr:
        return rewrite(node, rule, memo)

    def element(old: Buffer, indices: tuple[Expr, ...]) -> tuple[Buffer, tuple[Expr, ...]]:
        return buffer(old), tuple([expr(index) for index in indices])

    def statement(part: Stmt) -> Stmt:
        # What is declared is known before what uses it is looked at: fields come in that order but for extents, which
        # do not use their own variable.
        return map_fields(part, expr=expr, element=element, symbol=declares, label=fresh, body=statement)

    return statement(stmt), names


def _named(buffer: Buffer, name: str) -> Buffer:
    return replace(buffer, name=name)
