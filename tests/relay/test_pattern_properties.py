"""Matching against another matcher: a simple one, exponential, that is recursive and has no order of its own."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from uma.errors import PluginError
from uma.relay import Call, Constant, Expr, TensorType, TupleGetItem, Var, call, const
from uma.relay.op import Op
from uma.relay.pattern import (
    Graph,
    Match,
    Mismatch,
    Pattern,
    PatternTable,
    Term,
    any_,
    any_of,
    constant,
    find,
    find_matches,
    match,
    op,
    optional,
    outputs,
    roots_of,
    tuple_item,
    wildcard,
)
from uma.relay.pattern.terms import AnyOf, ConstantTerm, Item, OpTerm, Wildcard
from uma.relay.visit import children, post_order

TYPE = TensorType((2, 4), "int32")
BINARY = ("add", "multiply", "subtract", "maximum")


@st.composite
def graphs(draw: st.DrawFn) -> list[Expr]:
    """Small graphs with much sharing; the last value is the result."""
    values: list[Expr] = [Var("x", TYPE), Var("y", TYPE), const(np.ones((2, 4), np.int32))]
    for _ in range(draw(st.integers(3, 9))):
        a, b = (values[-1 - draw(st.integers(0, min(4, len(values) - 1)))] for _ in range(2))
        kind = draw(st.sampled_from(["binary", "binary", "relu", "clip", "split"]))
        if kind == "binary":
            values.append(call(draw(st.sampled_from(BINARY)), a, b))
        elif kind == "relu":
            values.append(call("nn.relu", a))
        elif kind == "clip":
            values.append(call("clip", a, a_min=-draw(st.integers(0, 1)), a_max=5))
        else:
            split = call("split", a, indices=(2,), axis=1)
            halves = [TupleGetItem(split, i) for i in range(2)]
            values.append(call("concatenate", *halves, axis=1))
    return values


class Writer:
    """Writes a pattern of a part of a graph, every term with a name of its own."""

    def __init__(self, draw: st.DrawFn, odd: bool) -> None:
        self.draw, self.odd = draw, odd
        self.names = itertools.count()
        self.terms: dict[Expr, Term] = {}

    def named(self, term: Term) -> Term:
        return term.named(f"t{next(self.names)}")

    def chance(self, percent: int) -> bool:
        return self.draw(st.integers(0, 99)) < percent

    def term(self, expr: Expr, depth: int) -> Term:
        """A term that matches ``expr``, or, where ``odd``, perhaps only almost."""
        if expr in self.terms and self.chance(80):
            return self.terms[expr]
        term = self.made(expr, depth)
        if depth and not isinstance(expr, TupleGetItem) and expr.type is TYPE and self.chance(15):
            other = op("nn.relu")(self.leaf(expr)) if self.chance(50) else op("nn.relu")(term)
            pair = (term, self.named(other))
            term = self.named(any_of(*(pair if self.chance(50) else pair[::-1])))
        if depth and self.chance(10) and expr.type is TYPE:
            term = self.named(optional(term, lambda v: op("nn.relu")(v)))
        return self.terms.setdefault(expr, term)

    def leaf(self, expr: Expr) -> Term:
        if isinstance(expr, Constant) and self.chance(50):
            return self.named(constant("int32"))
        return self.named(wildcard(any_ if self.chance(30) else "int32", shape=expr.shape if self.chance(20) else None))

    def made(self, expr: Expr, depth: int) -> Term:
        if isinstance(expr, TupleGetItem):
            index = expr.index ^ (self.odd and self.chance(10))
            return self.named(tuple_item(self.term(expr.tuple, max(depth, 1)), index))
        if not isinstance(expr, Call) or not isinstance(expr.op, Op) or depth == 0:
            return self.leaf(expr)
        args = [self.term(arg, depth - 1) for arg in expr.args]
        if self.chance(30) and len(args) == 2 and (self.odd or expr.op.commutative):
            args.reverse()
        attrs: dict[str, Any] = {k: any_ if self.chance(30) else v for k, v in expr.attrs.items}
        if self.odd and "a_min" in attrs and self.chance(30):
            attrs["a_min"] = -1
        return self.named(op(expr.op.name)(*args, **attrs))


@st.composite
def patterns(draw: st.DrawFn, odd: bool) -> tuple[list[Expr], list[Expr], Pattern]:
    """A graph, roots in it, and a pattern that was written from them."""
    values = draw(graphs())
    nodes = [e for e in post_order(values[-1]) if isinstance(e, Call)]
    if not nodes:
        values.append(call("nn.relu", values[-1]))
        nodes = [values[-1]]
    writer = Writer(draw, odd)
    root = draw(st.sampled_from(nodes[-4:]))
    term = writer.term(root, draw(st.integers(1, 4)))
    if writer.chance(30):
        inner = [e for e in nodes if e is not root and e in writer.terms and isinstance(writer.terms[e], OpTerm)]
        near = [e for e in nodes if any(child in writer.terms for child in children(e)) and e not in (root, *inner)]
        others = inner + near
        if others:
            other = draw(st.sampled_from(others))
            second = writer.term(other, 2)
            try:
                return values, [root, other], Pattern("p", outputs(term, second))
            except PluginError:
                pass  # not tied after all, or by optional parts only: one output will do
    return values, [root], Pattern("p", term)


# --- the other matcher -----------------------------------------------------------------------------------------------

Bound = Mapping[Term, Expr]


def ways(term: Term, expr: Expr, bound: Bound) -> Iterator[Bound]:
    """All ways in which a term matches, given what is bound already."""
    if term in bound:
        if bound[term] is expr:
            yield bound
        return
    type_ = expr.type
    if term.tensor.dtypes or term.tensor.shape or isinstance(term, (Wildcard, ConstantTerm)):
        if not isinstance(type_, TensorType):
            return
        if term.tensor.dtypes and type_.dtype not in term.tensor.dtypes:
            return
        if term.tensor.shape is not None and [str(n) for n in type_.shape] != [c.wanted() for c in term.tensor.shape]:
            return
    here = {**bound, term: expr}
    if isinstance(term, Wildcard) or (isinstance(term, ConstantTerm) and isinstance(expr, Constant)):
        yield here
    elif isinstance(term, AnyOf):
        for option in term.options:
            yield from ways(option, expr, here)
    elif isinstance(term, Item) and isinstance(expr, TupleGetItem) and term.index == expr.index:
        yield from ways(term.value, expr.tuple, here)
    elif (
        isinstance(term, OpTerm) and isinstance(expr, Call) and term.op is expr.op and len(term.args) == len(expr.args)
    ):
        for condition, (_, value) in zip(term.attrs, expr.attrs.items, strict=True):
            if condition is not any_ and condition.wanted() != repr(value):
                return
        swaps = term.op.name in ("add", "multiply", "minimum", "maximum")
        for order in (expr.args, expr.args[::-1]) if swaps else (expr.args,):
            level = [here]
            for part, operand in zip(term.args, order, strict=True):
                level = [dict(more) for one in level for more in ways(part, operand, one)]
            yield from level


def all_ways(pattern: Pattern, root: Expr, graph: Graph) -> set[frozenset[tuple[str, tuple[Expr, ...]]]]:
    level: list[Bound] = list(ways(pattern.roots[0], root, {}))
    for term in pattern.roots[1:]:
        level = [more for one in level for expr in graph.order for more in ways(term, expr, one)]
    return {
        frozenset((term.name or "", (expr,)) for term, expr in one.items() if term.name)
        for one in level
        if len({one[term] for term in pattern.roots}) == len(pattern.roots)
    }


# --- properties ------------------------------------------------------------------------------------------------------


@given(patterns(odd=False))
@settings(max_examples=4 * settings.default.max_examples)
def test_a_pattern_matches_what_it_was_written_from(case: tuple[list[Expr], list[Expr], Pattern]) -> None:
    values, roots, pattern = case
    graph = Graph(values[-1])
    found = list(find(pattern, roots[0], graph))
    assert any(one.roots == tuple(roots) for one in found)
    for one in found:
        assert list(one.nodes) == [e for e in graph.order if e in one.nodes]
        assert not set(one.inputs) & set(one.nodes)
        outside = {e for e in graph.order if e not in one.nodes and set(children(e)) & set(one.interior)}
        assert {e for e in one.interior if e is graph.result or any(e in children(o) for o in outside)} == set(
            one.escapes
        )


@given(patterns(odd=True), st.booleans())
@settings(max_examples=4 * settings.default.max_examples)
def test_the_other_matcher_finds_the_same(case: tuple[list[Expr], list[Expr], Pattern], elsewhere: bool) -> None:
    values, roots, pattern = case
    graph = Graph(values[-1])
    for root in graph.order if elsewhere else roots[:1]:
        found = [frozenset(one.captures.items()) for one in find(pattern, root, graph)]
        assert len(found) == len(set(found))
        assert set(found) == all_ways(pattern, root, graph)
        assert isinstance(match(pattern, root, graph), Match if found else Mismatch)


@given(patterns(odd=True))
def test_matching_is_deterministic(case: tuple[list[Expr], list[Expr], Pattern]) -> None:
    values, _, pattern = case
    table, graph = PatternTable([pattern]), Graph(values[-1])
    first, second = (list(find_matches(table, Graph(values[-1]))) for _ in range(2))
    assert first == second
    assert first == [one for root in graph.order if isinstance(one := match(pattern, root, graph), Match)]


@given(patterns(odd=True))
def test_roots_are_all_in_the_index(case: tuple[list[Expr], list[Expr], Pattern]) -> None:
    values, _, pattern = case
    graph = Graph(values[-1])
    indexed = roots_of(pattern, graph)
    assert list(indexed) == [e for e in reversed(graph.order) if e in indexed]
    assert {one.root for one in find_matches(PatternTable([pattern]), graph)} <= set(indexed)


@given(patterns(odd=False), st.data())
def test_what_is_taken_is_in_no_match(case: tuple[list[Expr], list[Expr], Pattern], data: st.DataObject) -> None:
    values, roots, pattern = case
    graph = Graph(values[-1])
    taken = data.draw(st.sets(st.sampled_from(graph.order)))
    free = [one for one in find(pattern, roots[0], graph) if not taken & set(one.nodes)]
    assert list(find(pattern, roots[0], graph, taken)) == free
