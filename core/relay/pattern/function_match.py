"""Functions that were made of matches: what all of a function is a match of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..expr import Call, Constant, Expr, Function, Tuple, TupleGetItem
from ..types import TupleType
from ..visit import children, with_children, without_pin
from .match import Graph, Match
from .matcher import Search
from .pattern import Pattern

__all__ = ["outlined", "whole_matches"]


def outlined(match: Match, nodes: Sequence[Expr], function: Function) -> Match:
    """A match of part of a graph as a match of the function that it was put into.

    Args:
        match: the match.
        nodes: what it computes, in order, with the fields of what it gives as tuples.
        function: computes that from the match's inputs, without those that are constant.
    """
    arguments = [expr for expr in match.inputs if not isinstance(expr, Constant)]
    inner: dict[Expr, Expr] = dict(zip(arguments, function.params, strict=True))
    for node in nodes:
        inner[node] = without_pin(with_children(node, [inner.get(child, child) for child in children(node)]))
    return match.with_replacements(inner, function)


def whole_matches(pattern: Pattern, function: Function) -> Iterator[Match]:
    """The ways in which a function computes what the pattern takes, and nothing else, the best first.

    The predicate is left aside.

    Raises:
        PluginError: a test of the plugin's is at fault.
    """
    graph = Graph(function)
    calls = {expr for expr in graph.order if isinstance(expr, Call)}
    fields = function.body.fields if isinstance(function.body, Tuple) else (function.body,)
    roots = dict.fromkeys((fields[0], fields[0].tuple) if isinstance(fields[0], TupleGetItem) else fields[:1])
    for root in roots:
        for match in Search(pattern, root, graph):
            if calls.issubset(match.nodes) and _results(match.roots) in (fields, (function.body,)):
                yield match.with_replacements({}, function)


def _results(roots: Sequence[Expr]) -> tuple[Expr, ...]:
    """What a function of these roots gives, one after the other."""
    if len(roots) == 1:
        return tuple(roots)
    results: list[Expr] = []
    for root in roots:
        fields = root.type.fields if isinstance(root.type, TupleType) else None
        results += [root] if fields is None else [TupleGetItem(root, number) for number in range(len(fields))]
    return tuple(results)
