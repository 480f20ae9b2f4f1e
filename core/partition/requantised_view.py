"""What an accelerator is offered with consent: the graph in its own fixed points, and matches there brought back.

Patterns are laid over the graph in fixed points. What they match is then put on the operands that it has in the graph
as it is: whoever computes those may round in either way, and nothing that is proven of them rests on one.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from ..relay.expr import Call, Constant, Expr, TupleGetItem
from ..relay.module import Spans
from ..relay.op import Bounds, Op
from ..relay.pattern import Graph, Match
from ..relay.transform.fixed_point_view import Change, in_fixed_points
from ..relay.visit import children, with_children
from ..support.rounding import FixedPointForm
from .rounding_opt_in import RoundingOptIn

__all__ = ["RequantisedMatch", "RequantisedView"]

_KEEPING = ("clip", "nn.relu", "minimum", "maximum", "nn.max_pool1d", "nn.max_pool2d", "nn.global_max_pool")
"""Ops whose results are not farther off than what they are given; and so are those that only move elements."""


@dataclass(frozen=True, eq=False)
class RequantisedMatch:
    """A match in another form.

    Args:
        match: of the form, its operands as they are in the graph.
        nodes: what it computes, in order, with the fields of what it gives as tuples.
        value: for each of its expressions that has the value of one of the graph's, that.
        stands: for each of its nodes those of the graph that it stands for.
        changes: of its nodes those that are another op than in the graph.
    """

    match: Match
    nodes: tuple[Expr, ...]
    value: dict[Expr, Expr]
    stands: dict[Expr, tuple[Expr, ...]]
    changes: dict[Expr, Change]


class RequantisedView:
    """A graph as one accelerator is offered it.

    Args:
        graph: as it is.
        form: the accelerator's.
        consent: what may be rounded otherwise.
        spans: the layers of the graph's expressions.
        ranges: bounds of its integer expressions, as `value_range` keeps them.

    Attributes:
        graph: in fixed points.
    """

    def __init__(
        self, graph: Graph, form: FixedPointForm, consent: RoundingOptIn, spans: Spans, ranges: dict[Expr, Bounds]
    ) -> None:
        def may(exprs: tuple[Expr, ...]) -> bool:
            return consent.covers(layer for expr in exprs for layer in spans[expr])

        self._as_is = graph
        self._view = in_fixed_points(graph.order, graph.users, form, may, ranges)
        self.graph = Graph(self._view.result)
        self.depth = max((len(exprs) for exprs in self._view.stands.values()), default=1)

    @property
    def is_changed(self) -> bool:
        """Whether anything in it is another op."""
        return bool(self._view.changes)

    def like(self, expr: Expr) -> Expr | None:
        """What stands here for an expression of the graph as it is; None where it is part of something else."""
        return self._view.replacements.get(expr)

    def value(self, expr: Expr) -> Expr | None:
        """The expression of the graph as it is that has the value of one here; None where none has."""
        return self._view.value.get(expr)

    def stands(self, expr: Expr) -> tuple[Expr, ...]:
        """What an expression here stands for."""
        return self._view.stands.get(expr, ())

    def among(self, exprs: Container[Expr]) -> Container[Expr]:
        """The expressions here that stand for some of ``exprs``."""
        return _Among(self, exprs)

    def take(self, match: Match, nodes: Sequence[Expr]) -> tuple[Match, RequantisedMatch] | None:
        """A match in this graph as one of the graph as it is, and in its own form. None where that has no such value,
        or where it is not known how far off it is: behind a change come ops that make more of a difference.
        """
        view = self._view
        changes = {node: view.changes[node] for node in nodes if node in view.changes}
        ends = (*match.roots, *(expr for expr in match.inputs if not isinstance(expr, Constant)))
        if any(end not in view.value for end in ends) or not _is_bounded(nodes, changes):
            return None
        new: dict[Expr, Expr] = {expr: view.value[expr] for expr in match.inputs if expr in view.value}
        value = {expr: expr for expr in new.values()}
        stands: dict[Expr, tuple[Expr, ...]] = {}
        for node in nodes:
            operands = [new[child] if child in new else view.value[child] for child in children(node)]
            new[node] = with_children(node, operands)
            stands[new[node]] = view.stands[node]
            if node in view.value:
                value[new[node]] = view.value[node]
        if len(stands) < len(nodes):
            return None  # on other operands two of them would be one
        inner = RequantisedMatch(
            match.with_replacements(new),
            tuple(new[node] for node in nodes),
            value,
            stands,
            {new[node]: change for node, change in changes.items()},
        )
        return self._whole(match, nodes), inner

    def _whole(self, match: Match, nodes: Sequence[Expr]) -> Match:
        view, graph = self._view, self._as_is
        fields = {expr for node in nodes if node not in match.nodes for expr in view.stands[node]}
        covered = graph.sorted(expr for node in nodes for expr in view.stands[node] if expr not in fields)
        roots, inside = tuple(view.value[root] for root in match.roots), {*covered}
        captures = {
            name: tuple(view.value[expr] for expr in exprs if expr in view.value)
            for name, exprs in match.captures.items()
        }
        return Match(
            match.pattern,
            roots=roots,
            nodes=covered,
            inputs=tuple(view.value[expr] for expr in match.inputs),
            constants=match.constants,
            escapes=tuple(
                node
                for node in covered
                if node not in roots and (node is graph.result or not inside.issuperset(graph.users(node)))
            ),
            captures=MappingProxyType(captures),
        )


def _is_bounded(nodes: Sequence[Expr], changes: dict[Expr, Change]) -> bool:
    """Whether what comes behind changes, among nodes in order, is not a farther off than these."""
    touched: set[Expr] = set()
    for node in nodes:
        if touched.isdisjoint(children(node)):
            if node in changes:
                touched.add(node)
            continue
        moves = isinstance(node, Call) and isinstance(node.op, Op) and node.op.kind == "injective"
        keeps = isinstance(node, Call) and node.op_name in _KEEPING
        if node in changes or not (moves or keeps or isinstance(node, TupleGetItem)):
            return False
        touched.add(node)
    return True


class _Among:
    def __init__(self, offered: RequantisedView, exprs: Container[Expr]) -> None:
        self._offered, self._exprs = offered, exprs

    def __contains__(self, expr: object) -> bool:
        return isinstance(expr, Expr) and any(one in self._exprs for one in self._offered.stands(expr))
