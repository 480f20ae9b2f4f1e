"""Simplification: the same results with less to compute, and less to prove for whoever comes next.

Nothing changes a value, down to the sign of a zero and the order of float operations. A program that faults is wrong
already: simplifying may remove a fault, and never adds one. Simplified is final: doing it again changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ..form.dtype import is_float
from ..form.nodes import (
    Alloc,
    Bin,
    Bind,
    Block,
    Copy,
    Expr,
    For,
    If,
    Imm,
    PrimFunc,
    Select,
    Seq,
    Stmt,
    Un,
    Var,
    const,
    seq,
)
from ..form.visit import (
    buffers,
    buffers_read,
    buffers_written,
    child_statements,
    clauses,
    declared,
    fresh_name,
    map_expressions,
    operands,
    rebuild,
    substitute,
    variables,
)
from ..proofs.intervals import AnyVar, Bounds, Interval
from .rules import apply_rules, is_total

__all__ = ["simplify", "simplify_expr", "simplify_within"]


def simplify(func: PrimFunc) -> PrimFunc:
    """A function that gives the same outputs for the same inputs.

    Constants are folded, integer sums and divisions made small, conditions decided by the ranges of variables and by
    the conditions around them; loops of no or one iteration, unused names, empty statements go, and what a loop's
    condition asks of outer variables only is asked once, around the loop.
    """
    bounds = Bounds.at_entry(func)
    while True:
        body = _Statements(func).statement(func.body, _Scope(bounds))
        if body is func.body:
            return func
        func = replace(func, body=body)


def simplify_expr(expr: Expr, ranges: Mapping[AnyVar, Interval]) -> Expr:
    """An expression equal to ``expr`` while its variables are within ``ranges``, or their type where they have none."""
    return simplify_within(expr, Bounds(ranges))


def simplify_within(expr: Expr, bounds: Bounds) -> Expr:
    """An expression equal to ``expr`` where ``bounds`` hold."""
    return _Scope(bounds).expr(expr)


_NONE: Mapping[Var, Expr] = {}


class _Scope:
    """A place of the program: what is known there, and which variables stand for which expressions."""

    def __init__(self, bounds: Bounds, values: Mapping[Var, Expr] = _NONE) -> None:
        self.bounds = bounds
        self.values = values
        self._memo = {} if values else bounds.simple
        self._scopes: dict[Bounds, _Scope] = {bounds: self}

    def assume(self, condition: Expr, holds: bool) -> _Scope | None:
        """This place under a simplified condition, or its opposite; None if it cannot be reached."""
        bounds = self.bounds.assume(condition, holds)
        if bounds is None:
            return None
        if bounds not in self._scopes:
            self._scopes[bounds] = _Scope(bounds, self.values)
        return self._scopes[bounds]

    def declare(self, var: Var, values: Interval) -> _Scope:
        """The place where a variable begins to exist, with a value within ``values``."""
        return _Scope(self.bounds.declare(var, values), self.values)

    def replace(self, var: Var, value: Expr) -> _Scope:
        """The place where a variable begins to exist that stands for a simplified ``value``."""
        return _Scope(self.bounds, {**self.values, var: value})

    def expr(self, expr: Expr) -> Expr:
        """``expr`` simplified for this place."""
        done = self._memo.get(expr)
        if done is None:
            done = self._with_simple_parts(expr)
            better = apply_rules(done, self.bounds)
            if better is not None:
                done = self.expr(better)
            self._memo[expr] = self._memo[done] = done
        return done

    def _with_simple_parts(self, expr: Expr) -> Expr:
        if isinstance(expr, Var):
            return self.values.get(expr, expr)
        if isinstance(expr, Select):
            return self._select(expr)
        if isinstance(expr, Bin) and expr.op in ("and", "or"):
            return self._junction(expr)
        return rebuild(expr, [self.expr(part) for part in operands(expr)])

    def _select(self, expr: Select) -> Expr:
        condition = self.expr(expr.condition)
        yes, no = self.assume(condition, True), self.assume(condition, False)
        decided = self.bounds.decide(condition)
        if no is None or (yes is not None and decided is True):
            return (yes or self).expr(expr.a)
        if yes is None or decided is False:
            return no.expr(expr.b)
        return Select(condition, yes.expr(expr.a), no.expr(expr.b))

    def _junction(self, expr: Bin) -> Expr:
        """``and`` and ``or``: the right side is evaluated only if the left one leaves the outcome open."""
        left = self.expr(expr.a)
        leaves_open = expr.op == "and"
        right = self.assume(left, leaves_open)
        return Imm(not leaves_open, "bool") if right is None else Bin(expr.op, left, right.expr(expr.b))


_NOTHING: Stmt = Seq(())


class _Statements:
    """One pass over the statements of a function."""

    def __init__(self, func: PrimFunc) -> None:
        self.aliases = func.may_alias
        self.names = declared(func)

    def statement(self, stmt: Stmt, scope: _Scope) -> Stmt:
        if isinstance(stmt, For):
            return self.loop(stmt, scope)
        if isinstance(stmt, If):
            return self.condition(stmt, scope)
        if isinstance(stmt, Bind):
            return self.bind(stmt, scope)
        exprs = [scope.expr(expr) for expr in operands(stmt)]
        inner = [self.statement(part, scope) for part in child_statements(stmt)]
        if isinstance(stmt, Seq):
            return seq(*inner)
        if isinstance(stmt, Block) and inner[0] is _NOTHING:
            return _NOTHING
        # A queue counts also what copies nothing.
        if isinstance(stmt, Copy) and stmt.queue is None and any(scope.bounds.interval(n)[1] <= 0 for n in stmt.shape):
            return _NOTHING
        if isinstance(stmt, Alloc) and stmt.buffer not in buffers(inner[0]):
            return inner[0]
        return rebuild(stmt, exprs, inner)

    def loop(self, stmt: For, scope: _Scope) -> Stmt:
        extent = scope.expr(stmt.extent)
        low, high = scope.bounds.interval(extent)
        if high <= 0:
            return _NOTHING
        if low == high == 1:
            return self.statement(stmt.body, scope.replace(stmt.var, const(0)))
        inside = scope.declare(stmt.var, (0, high - 1)).assume(Bin("lt", stmt.var, extent), True)
        body = _NOTHING if inside is None else self.statement(stmt.body, inside)
        return self.hoist(For(stmt.var, extent, body, stmt.kind), scope.bounds)

    def condition(self, stmt: If, scope: _Scope) -> Stmt:
        condition = scope.expr(stmt.condition)
        decided = scope.bounds.decide(condition)
        yes, no = scope.assume(condition, True), scope.assume(condition, False)
        then = otherwise = _NOTHING
        if yes is not None and decided is not False:
            then = self.statement(stmt.then, yes)
        if no is not None and decided is not True and stmt.otherwise is not None:
            otherwise = self.statement(stmt.otherwise, no)
        if no is None or decided is True:
            return then
        if yes is None or decided is False or then is otherwise:
            return otherwise
        if then is _NOTHING:
            return If(scope.expr(Un("not", condition)), otherwise)
        return If(condition, then, None if otherwise is _NOTHING else otherwise)

    def bind(self, stmt: Bind, scope: _Scope) -> Stmt:
        value = scope.expr(stmt.value)
        if isinstance(value, (Imm, Var)):
            return self.statement(stmt.body, scope.replace(stmt.var, value))
        inside = scope if is_float(value.dtype) else scope.declare(stmt.var, scope.bounds.interval(value))
        body = self.statement(stmt.body, inside)
        return Bind(stmt.var, value, body) if stmt.var in variables(body) else body

    def hoist(self, loop: For, bounds: Bounds) -> Stmt:
        """A loop over a condition as a condition over the loop, as far as it is the same in each iteration."""
        body = loop.body
        if body is _NOTHING:
            return _NOTHING
        if not isinstance(body, If):
            return loop
        outer, inner = self.split(loop, body, bounds)
        if outer is None or (body.otherwise is not None and inner is not None):
            return loop
        then = body.then if inner is None else If(inner, body.then)
        first = self.hoist(For(loop.var, loop.extent, then, loop.kind), bounds)
        if body.otherwise is None:
            return If(outer, first)
        var = Var(fresh_name(loop.var.name, self.names))
        otherwise = map_expressions(body.otherwise, lambda expr: substitute(expr, {loop.var: var}))
        return If(outer, first, self.hoist(For(var, loop.extent, otherwise, loop.kind), bounds))

    def split(self, loop: For, body: If, bounds: Bounds) -> tuple[Expr | None, Expr | None]:
        """The clauses of the condition that can be asked before the loop, and those that cannot."""
        written = {buffer.name for buffer in buffers_written(loop.body)}
        written |= {name for pair in self.aliases if written & set(pair) for name in pair}
        outer: list[Expr] = []
        inner: list[Expr] = []
        runs = bounds.interval(loop.extent)[0] > 0
        for clause in clauses(body.condition):
            fixed = loop.var not in variables(clause) and not any(b.name in written for b in buffers_read(clause))
            # Where the first iteration comes to this clause anyway, asking it earlier adds no fault.
            asked = runs and not inner
            (outer if fixed and (asked or is_total(clause, bounds)) else inner).append(clause)
        return _conjunction(outer), _conjunction(inner)


def _conjunction(clauses: list[Expr]) -> Expr | None:
    whole: Expr | None = None
    for clause in clauses:
        whole = clause if whole is None else Bin("and", whole, clause)
    return whole
