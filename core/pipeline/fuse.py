"""Grouping what the host computes into kernels, by the patterns of its plugin: what runs in one nest of loops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..partition.claims import Claims
from ..partition.outline import outlined
from ..partition.record import Claim, Owner
from ..relay.expr import Call, Constant, Expr, Function, Var
from ..relay.module import IRModule, Spans
from ..relay.op import Op
from ..relay.pattern import Graph, PatternTable
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
    claims = Claims(Graph(main), heeds_pins=False)  # what is left in main is the host's
    claims.offer(Owner("host", patterns))
    spans = Spans(dict(module.spans))
    done: dict[Expr, Expr] = {expr: expr for expr in claims.graph.order if isinstance(expr, (Var, Constant))}
    for part in claims.order():
        if isinstance(part, Claim):
            done.update(_kernel(part.nodes, part.match.roots, {"Composite": part.match.pattern.name}, done, spans))
        elif isinstance(part, Call) and isinstance(part.op, Op) and not is_view(part):
            done.update(_kernel((part,), (part,), {}, done, spans))
        else:
            done[part] = with_children(part, [done[child] for child in children(part)])
            spans.moved(part, done[part])
    return module.with_main(Function(main.params, done[main.body], dict(main.attrs)), spans)


def is_view(expr: Expr) -> bool:
    """Whether ``expr`` is its argument's memory under another shape."""
    return isinstance(expr, Call) and expr.op_name in ("reshape", "squeeze")


def _kernel(
    nodes: Sequence[Expr], roots: Sequence[Expr], attrs: Mapping[str, str], given: Mapping[Expr, Expr], spans: Spans
) -> dict[Expr, Expr]:
    """What ``roots`` and their fields are when ``nodes``, in order, are a function of their own."""
    inside = set(nodes)
    needed = dict.fromkeys(child for node in nodes for child in children(node) if child not in inside)
    args = [expr for expr in needed if not (isinstance(expr, Constant) and expr.tensor.size == 1)]
    return outlined(nodes, roots, args, {**attrs, "Primitive": "1"}, given, spans)[1]
