"""Grouping what hosts compute into kernels: by the patterns of their plugins, then by what ops declare."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from ..partition.candidates import Problem
from ..partition.eager import take
from ..partition.outlining import outline_function
from ..partition.record import Candidate, Owner
from ..partition.selection import Selection
from ..relay.expr import Call, Constant, Expr, Var
from ..relay.module import IRModule, Spans
from ..relay.op import Op
from ..relay.pattern import Graph
from ..relay.rewriter import Rewriter
from ..relay.transform.attention import ATTENTION, attentions, with_attention
from ..relay.views import is_view
from ..relay.visit import children
from .kernel_grouping import group

__all__ = ["fuse", "is_view", "kernels_of"]


def fuse(module: IRModule, hosts: Sequence[Owner]) -> IRModule:
    """``module`` with what ``main`` computes itself in kernels: calls of functions with the attribute ``Primitive``.

    What a host's own pattern takes is a kernel, whose function has the pattern's name as ``Composite``. Patterns apply
    as those of accelerators do: in the order of the table, from the results backwards, each op once. What they leave
    is grouped around anchors (`kernels`), within the limits of the host. Only calls that move no data at run time
    (reshape, squeeze) stay as they are where no pattern takes them.

    An op that is pinned to a host is grouped with others that are, and the call of the kernel is pinned in its stead.
    What is not is grouped for the first host.

    Larger constants become parameters of a kernel, so that kernels that differ in their weights only are one function.

    Where a partitioner decided what hosts compute together, as the module's spans say, a kernel is within one of these
    groups: what a host makes of a group alone is what it makes of it here.

    Attention that is spelled out is put together where a host's pattern takes it whole, and stays in pieces elsewhere.

    Args:
        module: in canonical form, perhaps with calls of regions in ``main``.
        hosts: in order of priority; at least one.

    Raises:
        PatternFault: a test or a predicate of a plugin's is at fault.
    """
    module, fusion = _with_whole(module, hosts)
    main, graph = module.main, fusion.graph
    choice, grouped, pins = fusion.choice, fusion.grouped, fusion.pins
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


def kernels_of(graph: Graph, hosts: Sequence[Owner], free: Collection[Expr]) -> list[tuple[Expr, ...]]:
    """What hosts would compute together of some calls: each kernel of more than one call, its calls in order.

    Args:
        graph: of the function that the calls are in.
        hosts: in order of priority; at least one.
        free: the calls. What else the graph has is given to them, or takes what they give.

    Raises:
        PatternFault: a test or a predicate of a plugin's is at fault.
    """
    wanted = set(free)
    groups: dict[Expr, int] = {expr: 0 if expr in wanted else 1 for expr in graph.order if isinstance(expr, Call)}
    fusion = _Fusion(graph, hosts, groups, only=0)
    claimed = [graph.sorted(node for node in one.nodes if node in wanted) for one in fusion.choice.all]
    kernels = [*claimed, *dict.fromkeys(fusion.grouped.values())]
    return sorted((kernel for kernel in kernels if len(kernel) > 1), key=lambda kernel: graph.position(kernel[0]))


class _Fusion:
    """What hosts compute together.

    Args:
        graph: of the function.
        hosts: in order of priority.
        groups: what may be together only with others of its group, where that was decided.
        only: the group in which kernels are looked for; None for all, and for what is in none.

    Attributes:
        choice: what patterns took, and for each kernel one node of its quotient.
        grouped: for each call of another kernel of several its calls, in order.
        pins: what is pinned to a host, and to which.
    """

    def __init__(
        self, graph: Graph, hosts: Sequence[Owner], groups: Mapping[Expr, int], only: int | None = None
    ) -> None:
        self.graph = graph
        names = {host.label for host in hosts}
        calls = [expr for expr in graph.order if isinstance(expr, Call)]
        # What is left in main is the hosts'. A movement of elements may be left to them that is pinned elsewhere.
        self.pins: dict[Expr, str] = {call: call.pin for call in calls if call.pin is not None and call.pin in names}
        labels: dict[Expr, str] = {call: self.pins.get(call) or hosts[0].label for call in calls}
        self.choice = choice = Selection(Problem(graph, hosts, pins=labels if self.pins else {}))
        self.grouped: dict[Expr, tuple[Expr, ...]] = {}

        def is_within(candidate: Candidate) -> bool:
            group_set = {groups.get(node) for node in candidate.nodes if isinstance(node, Call)}
            return len(group_set) <= 1 and (only is None or group_set <= {only})

        for host in hosts if self.pins else hosts[:1]:
            take(choice, host, accepts=is_within if groups else None)
        apart: dict[int | None, list[Expr]] = {}
        for call in calls:
            apart.setdefault(groups.get(call), []).append(call)
        for host in hosts if self.pins else hosts[:1]:
            for number, among in apart.items():
                if only is not None and number != only:
                    continue
                free = {call for call in among if labels[call] == host.label and call not in choice.candidate_by_node}
                for kernel in group(graph, free, host.limits.calls) if number is None or len(free) > 1 else ():
                    # What is computed within a kernel is used by nothing else, so that it is in no cycle.
                    choice.quotient.contract(map(choice.node, kernel))
                    self.grouped.update(dict.fromkeys(kernel, kernel))


def _with_whole(module: IRModule, hosts: Sequence[Owner]) -> tuple[IRModule, _Fusion]:
    """``module`` with that attention put together which a host's pattern takes; and what hosts compute together."""
    graph, groups = Graph(module.main), module.spans.groups
    if not any(ATTENTION in pattern.keys for host in hosts for pattern in host.patterns):
        return module, _Fusion(graph, hosts, groups)
    # What a partitioner has given to different kernels stays apart.
    apart: set[Expr] = {
        one.result for one in attentions(graph) if len({groups.get(piece) for piece in one.covered}) > 1
    }
    while True:
        idioms = with_attention(module, apart)
        fusion = _Fusion(Graph(idioms.module.main), hosts, idioms.module.spans.groups)
        unclaimed = {result for result, whole in idioms.calls.items() if whole not in fusion.choice.candidate_by_node}
        if not unclaimed:
            return idioms.module, fusion
        apart |= unclaimed


def _kernel(
    nodes: Sequence[Expr],
    roots: Sequence[Expr],
    attrs: Mapping[str, str],
    where: Mapping[Expr, Expr],
    spans: Spans,
    pin: str | None,
) -> dict[Expr, Expr]:
    """What ``roots`` and their fields are when ``nodes``, in order, are a function of their own."""
    inside = set(nodes)
    needed = dict.fromkeys(child for node in nodes for child in children(node) if child not in inside)
    args = [expr for expr in needed if not (isinstance(expr, Constant) and expr.tensor.size == 1)]
    return outline_function(nodes, roots, args, {**attrs, "Primitive": "1"}, where, spans, pin)[1]
