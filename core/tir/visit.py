"""Walking and rebuilding the loop form.

Expressions are interned and may share parts: whatever rewrites them keeps a memo, and `walk` shows each node once, so
that the cost is the number of distinct nodes. Recursion goes no deeper than an expression or a nest of statements.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from .nodes import (
    Alloc,
    Bin,
    Bind,
    Block,
    Buffer,
    Call,
    Cast,
    Expr,
    For,
    If,
    Load,
    Select,
    Seq,
    Stmt,
    Store,
    Un,
    Update,
    Var,
    seq,
)

__all__ = [
    "bodies",
    "buffers_read",
    "buffers_written",
    "expressions",
    "map_expressions",
    "operands",
    "rebuild",
    "rewrite",
    "substitute",
    "variables",
    "walk",
    "with_operands",
]


def operands(expr: Expr) -> tuple[Expr, ...]:
    """The direct parts of an expression, in the order in which its constructor takes them."""
    if isinstance(expr, Bin):
        return (expr.a, expr.b)
    if isinstance(expr, Load):
        return expr.indices
    if isinstance(expr, (Un, Cast)):
        return (expr.a,)
    if isinstance(expr, Select):
        return (expr.condition, expr.a, expr.b)
    if isinstance(expr, Call):
        return expr.args
    return ()


def with_operands(expr: Expr, parts: Sequence[Expr]) -> Expr:
    """``expr`` with its `operands` replaced; itself where they are the same."""
    if all(new is old for new, old in zip(parts, operands(expr), strict=True)):
        return expr
    if isinstance(expr, Bin):
        return Bin(expr.op, *parts)
    if isinstance(expr, Load):
        return Load(expr.buffer, tuple(parts))
    if isinstance(expr, Un):
        return Un(expr.op, *parts)
    if isinstance(expr, Cast):
        return Cast(parts[0], expr.dtype)
    if isinstance(expr, Select):
        return Select(*parts)
    assert isinstance(expr, Call)  # what has operands is one of these
    return Call(expr.name, *parts)


def expressions(stmt: Stmt) -> tuple[Expr, ...]:
    """The expressions that stand in a statement itself, not in the statements within it."""
    if isinstance(stmt, (Store, Update)):
        return (*stmt.indices, stmt.value)
    if isinstance(stmt, For):
        return (stmt.extent,)
    if isinstance(stmt, If):
        return (stmt.condition,)
    if isinstance(stmt, Bind):
        return (stmt.value,)
    return ()


def bodies(stmt: Stmt) -> tuple[Stmt, ...]:
    """The statements directly within a statement, in order."""
    if isinstance(stmt, Seq):
        return stmt.stmts
    if isinstance(stmt, (For, Bind, Alloc, Block)):
        return (stmt.body,)
    if isinstance(stmt, If):
        return (stmt.then,) if stmt.otherwise is None else (stmt.then, stmt.otherwise)
    return ()


def rebuild(stmt: Stmt, exprs: Sequence[Expr], inner: Sequence[Stmt]) -> Stmt:
    """``stmt`` with its `expressions` and `bodies` replaced; itself where they are the same."""
    if all(new is old for new, old in zip(exprs, expressions(stmt), strict=True)) and all(
        new is old for new, old in zip(inner, bodies(stmt), strict=True)
    ):
        return stmt
    if isinstance(stmt, Seq):
        return seq(*inner)
    if isinstance(stmt, Store):
        return Store(stmt.buffer, tuple(exprs[:-1]), exprs[-1])
    if isinstance(stmt, Update):
        return Update(stmt.op, stmt.buffer, tuple(exprs[:-1]), exprs[-1])
    if isinstance(stmt, For):
        return For(stmt.var, exprs[0], inner[0], stmt.kind)
    if isinstance(stmt, If):
        return If(exprs[0], *inner)
    if isinstance(stmt, Bind):
        return Bind(stmt.var, exprs[0], inner[0])
    if isinstance(stmt, Alloc):
        return Alloc(stmt.buffer, inner[0])
    assert isinstance(stmt, Block)  # what has parts is one of these
    return Block(stmt.label, inner[0])


def walk(node: Expr | Stmt) -> Iterator[Expr | Stmt]:
    """Every node within ``node``, itself first, each distinct one once, in the order of the text."""
    seen: set[Expr | Stmt] = set()
    stack: list[Expr | Stmt] = [node]
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        yield node
        if isinstance(node, Expr):
            stack.extend(reversed(operands(node)))
        else:
            stack.extend(reversed(bodies(node)))
            stack.extend(reversed(expressions(node)))


def variables(node: Expr | Stmt) -> tuple[Var, ...]:
    """The variables that expressions within ``node`` use, each once, in order of first use."""
    return tuple(part for part in walk(node) if isinstance(part, Var))


def buffers_read(node: Expr | Stmt) -> tuple[Buffer, ...]:
    """The buffers that ``node`` reads by `Load` or `Update`, each once, in order of first use."""
    return tuple(dict.fromkeys(part.buffer for part in walk(node) if isinstance(part, (Load, Update))))


def buffers_written(stmt: Stmt) -> tuple[Buffer, ...]:
    """The buffers that ``stmt`` writes by `Store` or `Update`, each once, in order of first use."""
    return tuple(dict.fromkeys(part.buffer for part in walk(stmt) if isinstance(part, (Store, Update))))


Rule = Callable[[Expr], Expr | None]


def rewrite(expr: Expr, rule: Rule, memo: dict[Expr, Expr] | None = None) -> Expr:
    """``expr`` rebuilt from its leaves up.

    Args:
        expr: what to rewrite.
        rule: gets each node with its operands already rewritten, gives what stands in its place, or None to keep it.
        memo: what was rewritten before by the same rule; handed on, shared parts of several expressions cost once.
    """
    memo = {} if memo is None else memo
    done = memo.get(expr)
    if done is None:
        node = with_operands(expr, [rewrite(part, rule, memo) for part in operands(expr)])
        replaced = rule(node)
        done = memo[expr] = node if replaced is None else replaced
    return done


def map_expressions(stmt: Stmt, function: Callable[[Expr], Expr]) -> Stmt:
    """``stmt`` with ``function`` applied to every expression that stands in it or in a statement within it."""
    exprs = [function(expr) for expr in expressions(stmt)]
    return rebuild(stmt, exprs, [map_expressions(inner, function) for inner in bodies(stmt)])


def substitute(expr: Expr, values: Mapping[Var, Expr]) -> Expr:
    """``expr`` with variables replaced by expressions of the same type; see `map_expressions` for statements."""
    return rewrite(expr, lambda node: values.get(node) if isinstance(node, Var) else None)
