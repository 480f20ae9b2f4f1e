"""Walking and rewriting expressions, without recursion: a graph may be 50,000 calls deep."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from ..support.counters import active_counters
from .expr import Call, Expr, Function, GlobalVar, If, Loop, Tuple, TupleGetItem, Var

__all__ = [
    "callees",
    "children",
    "free_vars",
    "global_callees",
    "nested_exprs",
    "nested_functions",
    "post_order",
    "rewrite",
    "substitute",
    "users",
    "with_children",
    "with_pin",
    "without_pin",
]


def children(expr: Expr) -> tuple[Expr, ...]:
    """What ``expr`` is computed from. Functions are closed: their bodies are not entered."""
    if isinstance(expr, Call):
        return expr.args
    if isinstance(expr, Tuple):
        return expr.fields
    if isinstance(expr, TupleGetItem):
        return (expr.tuple,)
    return ()


def with_children(expr: Expr, new: Sequence[Expr]) -> Expr:
    """``expr`` computed from ``new`` instead of its children; itself where nothing changes."""
    if all(a is b for a, b in zip(children(expr), new, strict=True)):
        return expr
    if isinstance(expr, Call):
        return Call(expr.op, new, expr.attrs, expr.pin)
    if isinstance(expr, Tuple):
        return Tuple(new)
    assert isinstance(expr, TupleGetItem)
    return TupleGetItem(new[0], expr.index)


def post_order(*roots: Expr, known: Callable[[Expr], bool] | None = None) -> list[Expr]:
    """Every expression that the roots are computed from, once each, after its children, first children first.

    Args:
        roots: where to start.
        known: true of expressions to leave out, with all that only they are computed from.
    """
    order: list[Expr] = []
    seen: set[Expr] = set()
    stack: list[tuple[Expr, bool]] = [(root, False) for root in reversed(roots)]
    while stack:
        expr, ready = stack.pop()
        if ready:
            order.append(expr)
        elif expr not in seen:
            seen.add(expr)
            if known is None or not known(expr):
                stack.append((expr, True))
                for child in reversed(children(expr)):
                    if child not in seen:
                        stack.append((child, False))
    return order


def users(order: Iterable[Expr]) -> dict[Expr, list[Expr]]:
    """Who uses each expression of ``order``; one that uses it twice is named twice."""
    result: dict[Expr, list[Expr]] = {}
    for expr in order:
        result.setdefault(expr, [])
        for child in children(expr):
            result.setdefault(child, []).append(expr)
    return result


def free_vars(expr: Expr) -> list[Var]:
    """The variables that ``expr`` is computed from, in the order of their first use."""
    return [e for e in post_order(expr) if isinstance(e, Var)]


def nested_functions(function: Function) -> list[Function]:
    """``function`` and the functions that are called within it and are not functions of a module, each once."""
    functions = {function: None}
    unread = [function]
    while unread:
        for expr in post_order(unread.pop().body):
            if isinstance(expr, Call) and isinstance(expr.op, Function) and expr.op not in functions:
                functions[expr.op] = None
                unread.append(expr.op)
    return list(functions)


def nested_exprs(function: Function) -> Iterator[Expr]:
    """Every expression of ``function`` and of the functions that are nested in it."""
    for part in nested_functions(function):
        yield from post_order(part.body)


def global_callees(function: Function) -> list[GlobalVar]:
    """The functions of the module that ``function`` calls, also from functions nested in it, each once, in order."""
    return list(dict.fromkeys(var for e in nested_exprs(function) if isinstance(e, Call) for var in callees(e)))


def callees(call: Call) -> tuple[GlobalVar, ...]:
    """The functions of the module that a call runs: one, both branches of an If, the body of a Loop, or none."""
    if isinstance(call.op, GlobalVar):
        return (call.op,)
    if isinstance(call.op, If):
        return call.op.then, call.op.otherwise
    return (call.op.body,) if isinstance(call.op, Loop) else ()


def with_pin(expr: Expr, pin: str | None) -> Expr:
    """``expr`` pinned to a label where it is a call that has no pin of its own; else itself."""
    if pin is not None and isinstance(expr, Call) and expr.pin is None:
        return expr.pinned(pin)
    return expr


def without_pin(expr: Expr) -> Expr:
    """``expr`` without its own pin."""
    return expr.pinned(None) if isinstance(expr, Call) else expr


Rule = Callable[[Expr], Expr | None]
Observer = Callable[[Expr, Expr], None]


def rewrite(root: Expr, rule: Rule, observer: Observer | None = None) -> Expr:
    """``root`` with ``rule`` applied to every expression, children first.

    Args:
        root: where to start.
        rule: is given an expression whose children are rewritten already; gives its replacement, or None. What it
            gives is not rewritten again. A new call in the place of a pinned one has its pin.
        observer: called for every expression that became another one, for example to hand on spans.
    """
    done: dict[Expr, Expr] = {}
    there: set[Expr] = set()
    counters = active_counters()
    for expr in post_order(root):
        rebuilt = with_children(expr, [done[child] for child in children(expr)])
        result = rule(rebuilt)
        if counters is not None:
            counters.add_rule("relay", rule, result is not None and result is not rebuilt)
        if result is not None and isinstance(rebuilt, Call) and result not in there:
            result = with_pin(result, rebuilt.pin)
        done[expr] = rebuilt if result is None else result
        there.add(done[expr])
        if observer is not None and done[expr] is not expr:
            observer(expr, done[expr])
    return done[root]


def substitute(root: Expr, replace: Mapping[Expr, Expr]) -> Expr:
    """``root`` with each key of ``replace`` replaced by its value; what lies below a key is not looked at."""
    done = dict(replace)
    for expr in post_order(root, known=replace.__contains__):
        done[expr] = with_children(expr, [done[child] for child in children(expr)])
    return done[root]
