"""Taking a part of a graph out of it, into a function of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..relay.expr import Call, Expr, Function, Tuple, TupleGetItem, Var
from ..relay.module import Spans
from ..relay.types import TupleType
from ..relay.visit import children, with_children, without_pin

__all__ = ["outline_function"]


def outline_function(
    nodes: Sequence[Expr],
    roots: Sequence[Expr],
    args: Sequence[Expr],
    attrs: Mapping[str, str],
    where: Mapping[Expr, Expr],
    spans: Spans,
    pin: str | None = None,
) -> tuple[Call, dict[Expr, Expr]]:
    """A call of a new function that computes a part of a graph. Who runs it is said: there are no pins in it.

    Args:
        nodes: the part, in order. What it needs is in it, in ``args``, or constant.
        roots: those of its nodes that are used outside. What a root gives as a tuple may be used by its fields, which
            are nodes or roots themselves, or as a whole.
        args: what the function is given. Other constants are inside of it.
        attrs: of the function.
        where: what ``args`` are where the call stands.
        spans: is told whose layers the function and the call have.
        pin: of the call.

    Returns:
        The call, and what it makes of the roots and their fields. A function of several roots gives one flat tuple.
    """
    params = [Var(f"p{number}", arg.type) for number, arg in enumerate(args)]
    inner: dict[Expr, Expr] = dict(zip(args, params, strict=True))
    for node in nodes:
        inner[node] = without_pin(with_children(node, [inner.get(child, child) for child in children(node)]))
        spans.record_rewrite(node, inner[node])
    alone = len(roots) == 1
    body = inner[roots[0]] if alone else Tuple([field for root in roots for field in _fields(inner[root])])
    call = Call(Function(params, body, attrs), [where[arg] for arg in args], pin=pin)
    spans.add(call, [layer for node in nodes for layer in spans[node]])
    results: dict[Expr, Expr] = {}
    parts = iter(_fields(call))
    for root in roots:
        if not isinstance(root.type, TupleType):
            results[root] = call if alone else next(parts)
            continue
        fields = _fields(call) if alone else [next(parts) for _ in root.type.fields]
        results[root] = call if alone else Tuple(fields)
        users = (node for node in nodes if isinstance(node, TupleGetItem) and node.tuple is root)
        results.update((user, fields[user.index]) for user in users)
    for old, new in results.items():
        spans.record_rewrite(old, new)
    return call, results


def _fields(expr: Expr) -> list[Expr]:
    """The tensors that ``expr``, a call or a field, consists of."""
    if isinstance(expr.type, TupleType):
        return [TupleGetItem(expr, index) for index in range(len(expr.type.fields))]
    return [expr]
