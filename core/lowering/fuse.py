"""Grouping what hosts compute into kernels: by the patterns of their plugins, then by what ops declare."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..partition.candidates import Problem
from ..partition.choice import Choice
from ..partition.eager import take
from ..partition.outline import outlined
from ..partition.record import Candidate, Owner
from ..relay.expr import Call, Constant, Expr, Var
from ..relay.module import IRModule, Spans
from ..relay.op import Op
from ..relay.pattern import Graph
from ..relay.rewriter import Rewriter
from ..relay.views import is_view
from ..relay.visit import children
from .kernels import group

__all__ = ["fuse", "is_view"]


def fuse(module: IRModule, hosts: Sequence[Owner]) -> IRModule:
    """``module`` with what ``main`` computes itself in kernels: calls of functions with the attribute ``Primitive``.

    What a host's own pattern takes is a kernel, whose function has the pattern's name as ``Composite``. Patterns apply
    as those of accelerators do: in the order of the table, from the results backwards, each op once. What they leave
    is grouped around anchors (`kernels`), within the limits of the host. Only calls that move no data at run time
    (reshape, squeeze) stay as they are where no pattern takes them.

    An op that is pinned to a host is grouped with others that are, and the call of the kernel is pinned in its stead.
    What is not is grouped for the first host.

    Larger constants become parameters of a kernel, so that kernels that differ in their weights only are one function.

    Args:
        module: in canonical form, perhaps with calls of regions in ``main``.
        hosts: in order of priority; at least one.

    Raises:
        PatternFault: a test or a predicate of a plugin's is at fault.
    """
    main = module.main
    graph = Graph(main)
    known = {host.label for host in hosts}
    calls = [expr for expr in graph.order if isinstance(expr, Call)]
    # What is left in main is the hosts'. A movement of elements may be left to them that is pinned elsewhere.
    pins: dict[Expr, str] = {call: call.pin for call in calls if call.pin is not None and call.pin in known}
    labels: dict[Expr, str] = {call: pins.get(call) or hosts[0].label for call in calls}
    choice = Choice(Problem(graph, hosts, pins=labels if pins else {}))
    grouped: dict[Expr, tuple[Expr, ...]] = {}
    for host in hosts if pins else hosts[:1]:
        take(choice, host)
    for host in hosts if pins else hosts[:1]:
        free = {call for call in calls if labels[call] == host.label and call not in choice.of}
        for kernel in group(graph, free, host.limits.calls):
            # What is computed within a kernel is used by nothing else, so that it is in no cycle.
            choice.quotient.contract(map(choice.node, kernel))
            grouped.update(dict.fromkeys(kernel, kernel))
    rewriter = Rewriter(module)
    spans = rewriter.spans
    done: dict[Expr, Expr] = {expr: expr for expr in graph.order if isinstance(expr, (Var, Constant))}
    for part in choice.order():
        if isinstance(part, Candidate):
            pin = next((pins[node] for node in part.nodes if isinstance(node, Call) and node in pins), None)
            attrs = {"Composite": part.match.pattern.name}
            done.update(_kernel(part.nodes, part.match.roots, attrs, done, spans, pin))
        elif isinstance(part, Call) and isinstance(part.op, Op) and not is_view(part):
            nodes = grouped.get(part, (part,))
            pin = next((pins[node] for node in nodes if isinstance(node, Call) and node in pins), None)
            done.update(_kernel(nodes, nodes[-1:], {}, done, spans, pin))
        else:
            rewriter.rebuild([part], done=done)
    return rewriter.with_main(done[main.body])


def _kernel(
    nodes: Sequence[Expr],
    roots: Sequence[Expr],
    attrs: Mapping[str, str],
    given: Mapping[Expr, Expr],
    spans: Spans,
    pin: str | None,
) -> dict[Expr, Expr]:
    """What ``roots`` and their fields are when ``nodes``, in order, are a function of their own."""
    inside = set(nodes)
    needed = dict.fromkeys(child for node in nodes for child in children(node) if child not in inside)
    args = [expr for expr in needed if not (isinstance(expr, Constant) and expr.tensor.size == 1)]
    return outlined(nodes, roots, args, {**attrs, "Primitive": "1"}, given, spans, pin)[1]
