"""Walking and rewriting the loop form; `fields` has what is asked of a single node.

Expressions are interned and may share parts: whatever rewrites them keeps a memo, and `walk` shows each node once, so
that the cost is the number of distinct nodes. Recursion goes no deeper than an expression or a nest of statements.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain, count
from typing import NamedTuple, TypeVar

from ...support.interning import cached_on_node
from .fields import (
    accesses,
    child_statements,
    declares,
    gathered,
    map_fields,
    named,
    operands,
    rebuild,
    statements,
    views,
    walk,
)
from .nodes import HOST_SCOPES, Bin, Buffer, Exec, Expr, Imm, Intrinsic, Load, PrimFunc, Select, Stmt, Var, Wait

__all__ = [
    "accesses",
    "buffers",
    "buffers_read",
    "buffers_written",
    "child_statements",
    "clauses",
    "declared",
    "declares",
    "fresh_name",
    "intrinsics",
    "map_expressions",
    "map_fields",
    "may_fault",
    "operands",
    "rebuild",
    "rewrite",
    "statements",
    "substitute",
    "unguarded",
    "uses_device",
    "variables",
    "views",
    "walk",
]

Symbol = TypeVar("Symbol", Var, Buffer)


def variables(node: Expr | Stmt) -> tuple[Var, ...]:
    """The variables that expressions within ``node`` use, each once, in order of first use."""
    return _variables(node)


@gathered
def _variables(node: Expr | Stmt, parts: list[tuple[Var, ...]]) -> tuple[Var, ...]:
    return (node,) if isinstance(node, Var) else _each_once(parts)


def buffers(node: Expr | Stmt) -> tuple[Buffer, ...]:
    """The buffers that ``node`` uses, each once, in order of first use."""
    return _used(node).all


def buffers_read(node: Expr | Stmt) -> tuple[Buffer, ...]:
    """The buffers that ``node`` reads, each once, in order of first use."""
    return _used(node).read


def buffers_written(node: Expr | Stmt) -> tuple[Buffer, ...]:
    """The buffers that ``node`` writes, each once, in order of first use."""
    return _used(node).written


class _Used(NamedTuple):
    """The buffers that a node uses, those that it reads, and those that it writes, each once, in order."""

    all: tuple[Buffer, ...] = ()
    read: tuple[Buffer, ...] = ()
    written: tuple[Buffer, ...] = ()


_NONE = _Used()


@gathered
def _used(node: Expr | Stmt, parts: list[_Used]) -> _Used:
    uses = accesses(node)
    parts = [used for used in parts if used is not _NONE]
    if not uses and len(parts) < 2:
        return parts[0] if parts else _NONE
    here = _Used(
        tuple([use.buffer for use in uses]),
        tuple([use.buffer for use in uses if use.reads]),
        tuple([use.buffer for use in uses if use.writes]),
    )
    return _Used(*map(_each_once, zip(here, *parts, strict=True)))


def _each_once(several: Iterable[tuple[Symbol, ...]]) -> tuple[Symbol, ...]:
    return tuple(dict.fromkeys(chain.from_iterable(several)))


def may_fault(node: Expr) -> bool:
    """Whether evaluating this node, its operands being at hand, may fault: a load, a shift by a variable.

    Shifting by a constant width always does, and is left to whoever wrote it.
    """
    shifts = isinstance(node, Bin) and node.op in ("shl", "shr") and not isinstance(node.b, Imm)
    return isinstance(node, Load) or shifts


def unguarded(value: Expr) -> set[Expr]:
    """The parts of ``value`` that are evaluated whatever its conditions give."""
    seen = {value}
    stack = [value]
    while stack:
        node = stack.pop()
        parts = operands(node)
        if isinstance(node, Select) or (isinstance(node, Bin) and node.op in ("and", "or")):
            parts = parts[:1]
        fresh = [part for part in parts if part not in seen]
        seen.update(fresh)
        stack.extend(fresh)
    return seen


def clauses(condition: Expr) -> Iterator[Expr]:
    """The parts of a condition that must all hold, in order."""
    if isinstance(condition, Bin) and condition.op == "and":
        yield from clauses(condition.a)
        yield from clauses(condition.b)
    else:
        yield condition


def uses_device(func: PrimFunc) -> bool:
    """Whether ``func`` executes an intrinsic of an accelerator, copies to or from its memory, or waits for a queue."""
    return any(buffer.scope not in HOST_SCOPES for buffer in buffers(func.body)) or any(
        isinstance(part, Wait) or (isinstance(part, Exec) and not part.intrinsic.is_host)
        for part in statements(func.body)
    )


def intrinsics(func: PrimFunc) -> tuple[Intrinsic, ...]:
    """The intrinsics that ``func`` executes, each once, in order."""
    return tuple(dict.fromkeys(part.intrinsic for part in statements(func.body) if isinstance(part, Exec)))


def declared(func: PrimFunc) -> set[str]:
    """The names of all variables and buffers of ``func``, and its labels."""
    names = {param.buffer.name for param in func.params} | _declared(func.body)
    return names if func.rows is None else names | {func.rows.var.name}


@cached_on_node
def _declared(stmt: Stmt) -> frozenset[str]:
    return frozenset(named(stmt)).union(*map(_declared, child_statements(stmt)))


def fresh_name(name: str, taken: set[str]) -> str:
    """``name`` with the first number that makes it new; it is taken from now on."""
    fresh = next(candidate for number in count(1) if (candidate := f"{name}_{number}") not in taken)
    taken.add(fresh)
    return fresh


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
        node = rebuild(expr, [rewrite(part, rule, memo) for part in operands(expr)])
        replaced = rule(node)
        done = memo[expr] = node if replaced is None else replaced
    return done


def map_expressions(stmt: Stmt, function: Callable[[Expr], Expr]) -> Stmt:
    """``stmt`` with ``function`` applied to every expression that stands in it or in a statement within it."""
    return map_fields(stmt, expr=function, body=lambda inner: map_expressions(inner, function))


def substitute(expr: Expr, values: Mapping[Var, Expr]) -> Expr:
    """``expr`` with variables replaced by expressions of the same type; see `map_expressions` for statements."""
    return rewrite(expr, lambda node: values.get(node) if isinstance(node, Var) else None)
