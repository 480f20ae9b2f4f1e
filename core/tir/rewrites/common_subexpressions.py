"""Naming the parts of an expression that occur in it more than once, so that each is written and evaluated once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from ..form.nodes import Bind, Call, Expr, Load, Stmt, Var
from ..form.visit import may_fault, operands, rebuild, unguarded, walk

__all__ = ["share"]


def share(value: Expr, name: Callable[[], str], use: Callable[[Expr], Stmt]) -> Stmt:
    """``use(value)``, in the scope of names for the parts of ``value`` that occur in it more than once.

    What a `Select`, ``and`` or ``or`` guards and what may fault is not moved out from under the guard.

    Args:
        value: the expression.
        name: gives an unused name.
        use: makes the statement from the expression that is left.
    """
    counts = Counter(part for node in walk(value) if isinstance(node, Expr) for part in operands(node))
    repeated = {node for node, count in counts.items() if count > 1}
    if not repeated:
        return use(value)
    always = unguarded(value)
    bindings: list[tuple[Var, Expr]] = []
    memo: dict[Expr, Expr] = {}
    facts: dict[Expr, tuple[bool, bool]] = {}

    def visit(node: Expr) -> Expr:
        done = memo.get(node)
        if done is None:
            parts = operands(node)
            done = rebuild(node, [visit(part) for part in parts])
            safe = node in always or (not may_fault(node) and all(facts[part][0] for part in parts))
            # An index is left as it is: whoever asks for its stride, or its range, need not look names up.
            worthwhile = isinstance(node, (Load, Call)) or any(facts[part][1] for part in parts)
            facts[node] = (safe, worthwhile)
            if node in repeated and safe and worthwhile:
                bindings.append((Var(name(), node.dtype), done))
                done = bindings[-1][0]
            memo[node] = done
        return done

    stmt = use(visit(value))
    for var, bound in reversed(bindings):
        stmt = Bind(var, bound, stmt)
    return stmt
