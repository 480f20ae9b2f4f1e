"""Walking and rebuilding the loop form.

Expressions are interned and may share parts: whatever rewrites them keeps a memo, and `walk` shows each node once, so
that the cost is the number of distinct nodes. Recursion goes no deeper than an expression or a nest of statements.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import count

from .nodes import (
    HOST_SCOPES,
    Alloc,
    Bin,
    Bind,
    Block,
    Buffer,
    Call,
    Cast,
    Copy,
    Exec,
    Expr,
    For,
    If,
    Intrinsic,
    Load,
    PrimFunc,
    Select,
    Seq,
    Stmt,
    Store,
    Un,
    Update,
    Var,
    View,
    Wait,
    seq,
)

__all__ = [
    "bodies",
    "buffers",
    "buffers_read",
    "buffers_written",
    "declared",
    "expressions",
    "fresh_name",
    "intrinsics",
    "map_accesses",
    "map_expressions",
    "operands",
    "rebuild",
    "rewrite",
    "substitute",
    "uses_device",
    "variables",
    "views",
    "walk",
    "with_operands",
    "with_views",
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
    if isinstance(stmt, Copy):
        return (*stmt.to.start, *stmt.source.start, *stmt.shape)
    if isinstance(stmt, Exec):
        return (*(index for view in stmt.args for index in view.start), *stmt.values)
    return ()


def views(stmt: Stmt) -> tuple[View, ...]:
    """The views that stand in a statement itself, in the order in which its constructor takes them."""
    if isinstance(stmt, Copy):
        return (stmt.to, stmt.source)
    return stmt.args if isinstance(stmt, Exec) else ()


def with_views(stmt: Copy | Exec, replaced: Sequence[View]) -> Stmt:
    """``stmt`` with its `views` replaced."""
    if isinstance(stmt, Copy):
        return Copy(replaced[0], replaced[1], stmt.shape, stmt.queue)
    return Exec(stmt.intrinsic, tuple(replaced), stmt.values)


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
    """``stmt`` with its `expressions` and `bodies` replaced; itself where they are the same.

    Args:
        stmt: a statement.
        exprs: as many as `expressions` gives of it, in that order, each of the same dtype.
        inner: as many as `bodies` gives of it, in that order.
    """
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
    if isinstance(stmt, (Copy, Exec)):
        moved, rest = [], tuple(exprs)
        for view in views(stmt):
            moved.append(View(view.buffer, rest[: len(view.start)], view.axes))
            rest = rest[len(view.start) :]
        if isinstance(stmt, Copy):
            return Copy(moved[0], moved[1], rest, stmt.queue)
        return Exec(stmt.intrinsic, tuple(moved), rest)
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


def buffers(node: Expr | Stmt) -> tuple[Buffer, ...]:
    """The buffers that stand in ``node``, each once, in order of first use."""
    found: dict[Buffer, None] = {}
    for part in walk(node):
        if isinstance(part, (Load, Store, Update)):
            found[part.buffer] = None
        elif isinstance(part, (Copy, Exec)):
            found.update(dict.fromkeys(view.buffer for view in views(part)))
    return tuple(found)


def buffers_read(node: Expr | Stmt) -> tuple[Buffer, ...]:
    """The buffers that ``node`` reads by `Load`, `Update`, `Copy` or `Exec`, each once, in order of first use."""
    found: dict[Buffer, None] = {}
    for part in walk(node):
        if isinstance(part, (Load, Update)):
            found[part.buffer] = None
        elif isinstance(part, Copy):
            found[part.source.buffer] = None
        elif isinstance(part, Exec):
            found.update(_executed(part, buffers_read(part.intrinsic.description)))
    return tuple(found)


def buffers_written(stmt: Stmt) -> tuple[Buffer, ...]:
    """The buffers that ``stmt`` writes by `Store`, `Update`, `Copy` or `Exec`, each once, in order of first use."""
    found: dict[Buffer, None] = {}
    for part in walk(stmt):
        if isinstance(part, (Store, Update)):
            found[part.buffer] = None
        elif isinstance(part, Copy):
            found[part.to.buffer] = None
        elif isinstance(part, Exec):
            found.update(_executed(part, buffers_written(part.intrinsic.description)))
    return tuple(found)


def _executed(stmt: Exec, params: Collection[Buffer]) -> dict[Buffer, None]:
    """The buffers given for some of the parameters of an intrinsic."""
    given = zip(stmt.intrinsic.params, stmt.args, strict=True)
    return dict.fromkeys(view.buffer for param, view in given if param in params)


def uses_device(func: PrimFunc) -> bool:
    """Whether ``func`` executes an intrinsic, copies to or from an accelerator's memory, or waits for a queue."""
    return any(
        isinstance(part, (Exec, Wait))
        or (isinstance(part, Copy) and any(view.buffer.scope not in HOST_SCOPES for view in views(part)))
        for part in walk(func.body)
    )


def intrinsics(func: PrimFunc) -> tuple[Intrinsic, ...]:
    """The intrinsics that ``func`` executes, each once, in order."""
    return tuple(dict.fromkeys(part.intrinsic for part in walk(func.body) if isinstance(part, Exec)))


def declared(func: PrimFunc) -> set[str]:
    """The names of all variables and buffers of ``func``, and its labels."""
    names = {param.buffer.name for param in func.params}
    for part in walk(func.body):
        if isinstance(part, (For, Bind)):
            names.add(part.var.name)
        elif isinstance(part, Alloc):
            names.add(part.buffer.name)
        elif isinstance(part, Block):
            names.add(part.label)
    return names


def fresh_name(name: str, taken: set[str]) -> str:
    """``name`` with the first number that makes it new; it is taken from now on."""
    found = next(candidate for number in count(1) if (candidate := f"{name}_{number}") not in taken)
    taken.add(found)
    return found


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


def map_accesses(
    stmt: Store | Update | Copy | Exec,
    expression: Callable[[Expr], Expr],
    element: Callable[[Buffer, tuple[Expr, ...]], tuple[Buffer, tuple[Expr, ...]]],
    view: Callable[[View], View],
) -> Stmt:
    """``stmt`` with all replaced that it writes and reads.

    Args:
        stmt: a statement that has effects itself.
        expression: applied to values and to the extents of a copy.
        element: gives the buffer and indices that a `Store` or `Update` writes.
        view: applied to what a `Copy` or `Exec` works on.
    """
    if isinstance(stmt, Store):
        return Store(*element(stmt.buffer, stmt.indices), expression(stmt.value))
    if isinstance(stmt, Update):
        return Update(stmt.op, *element(stmt.buffer, stmt.indices), expression(stmt.value))
    if isinstance(stmt, Copy):
        shape = tuple([expression(extent) for extent in stmt.shape])
        return Copy(view(stmt.to), view(stmt.source), shape, stmt.queue)
    values = tuple([expression(value) for value in stmt.values])
    return Exec(stmt.intrinsic, tuple([view(arg) for arg in stmt.args]), values)
