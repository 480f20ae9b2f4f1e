"""Grouping what the host computes into kernels, by the patterns of its plugin: what runs in one nest of loops."""

from __future__ import annotations

from collections.abc import Sequence

from ..partition.claims import Claims
from ..partition.record import Claim, Owner
from ..relay.expr import Call, Constant, Expr, Function, Tuple, TupleGetItem, Var
from ..relay.module import IRModule, Spans
from ..relay.op import Op
from ..relay.pattern import Graph, PatternTable
from ..relay.types import TupleType
from ..relay.visit import children, with_children

__all__ = ["fuse", "is_view"]


def fuse(module: IRModule, patterns: PatternTable) -> IRModule:
    """``module`` with what ``main`` computes itself in kernels: calls of functions with the attribute ``Primitive``.

    What a pattern takes is a kernel, whose function has the pattern's name as ``Composite``. Patterns apply as those of
    accelerators do: in the order of the table, from the results backwards, each op once. Every other op is a kernel of
    its own. Only calls that move no data at run time (reshape, squeeze) stay as they are where no pattern takes them.

    Larger constants become parameters of a kernel, so that kernels that differ in their weights only are one function.

    Args:
        module: in canonical form, perhaps with calls of regions in ``main``.
        patterns: of the host.

    Raises:
        PatternFault: a test or a predicate of a plugin's is at fault.
    """
    main = module.main
    claims = Claims(Graph(main))
    claims.offer(Owner("host", patterns))
    spans = Spans(dict(module.spans))
    done: dict[Expr, Expr] = {var: var for var in main.params}
    done.update((expr, expr) for expr in claims.graph.order if isinstance(expr, (Var, Constant)))
    for part in claims.order():
        if isinstance(part, Claim):
            _outline(part.match.nodes, part.match.roots, {"Composite": part.match.pattern.name}, done, spans)
            for field in part.nodes:
                if isinstance(field, TupleGetItem) and field not in done and field.tuple in part.match.roots:
                    done[field] = _field(done[field.tuple], field.index)
                    spans.moved(field, done[field])
        elif isinstance(part, Call) and isinstance(part.op, Op) and not is_view(part):
            _outline((part,), (part,), {}, done, spans)
        else:
            done[part] = with_children(part, [done[child] for child in children(part)])
            spans.moved(part, done[part])
    return module.with_main(Function(main.params, done[main.body], dict(main.attrs)), spans)


def is_view(expr: Expr) -> bool:
    """Whether ``expr`` is its argument's memory under another shape."""
    return isinstance(expr, Call) and expr.op_name in ("reshape", "squeeze")


def _outline(
    nodes: Sequence[Expr], roots: Sequence[Expr], attrs: dict[str, str], done: dict[Expr, Expr], spans: Spans
) -> None:
    """Notes in ``done`` what becomes of ``roots`` when ``nodes``, in order, are a function of their own."""
    inner: dict[Expr, Expr] = {}
    params: list[Var] = []
    args: list[Expr] = []
    layers: list[str] = []
    for node in nodes:
        for child in children(node):
            if child not in inner:
                given = done[child]
                if isinstance(given, Constant) and given.tensor.size == 1:
                    inner[child] = given
                    continue
                params.append(Var(f"p{len(params)}", given.type))
                args.append(given)
                inner[child] = params[-1]
        inner[node] = with_children(node, [inner[child] for child in children(node)])
        spans.moved(node, inner[node])
        layers.extend(spans[node])
    if len(roots) == 1:
        body = inner[roots[0]]
    else:
        body = Tuple([part for root in roots for part in _fields(inner[root])])
    call = Call(Function(params, body, {**attrs, "Primitive": "1"}), args)
    spans.add(call, layers)
    results = iter(_fields(call))
    for root in roots:
        if len(roots) == 1:
            done[root] = call
        elif isinstance(root.type, TupleType):
            done[root] = Tuple([next(results) for _ in root.type.fields])
        else:
            done[root] = next(results)
        spans.moved(root, done[root])


def _fields(expr: Expr) -> list[Expr]:
    """The tensors that ``expr`` consists of."""
    if isinstance(expr.type, TupleType):
        return [_field(expr, index) for index in range(len(expr.type.fields))]
    return [expr]


def _field(expr: Expr, index: int) -> Expr:
    return expr.fields[index] if isinstance(expr, Tuple) else TupleGetItem(expr, index)
