"""Walking and rewriting expressions."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given
from tests._support.relay_strategies import modules

from uma.relay.expr import Call, Expr, Function, Tuple, TupleGetItem, Var, call, const
from uma.relay.module import IRModule, Spans
from uma.relay.types import TensorType
from uma.relay.visit import (
    children,
    free_vars,
    nested_functions,
    post_order,
    rewrite,
    substitute,
    users,
    with_children,
)

T = TensorType((2, 4), "float32")
X, Y = Var("x", T), Var("y", T)
RELU = call("nn.relu", X)
SUM = call("add", RELU, Y)


def same(expr: Expr) -> Expr | None:
    return None


def test_children() -> None:
    assert children(X) == ()
    assert children(const(1)) == ()
    assert children(SUM) == (RELU, Y)
    assert children(Tuple([X, Y])) == (X, Y)
    assert children(TupleGetItem(Tuple([X, Y]), 1)) == (Tuple([X, Y]),)
    inner = Function([X], RELU)
    assert children(inner) == (), "functions are closed"
    assert children(Call(inner, [Y])) == (Y,)


def test_children_are_replaced() -> None:
    assert with_children(SUM, (RELU, Y)) is SUM
    assert with_children(SUM, (X, X)) is call("add", X, X)
    assert with_children(Tuple([X, Y]), (Y, X)) is Tuple([Y, X])
    assert with_children(TupleGetItem(Tuple([X, Y]), 0), (Tuple([Y, X]),)) is TupleGetItem(Tuple([Y, X]), 0)
    assert with_children(X, ()) is X
    clip = call("clip", X, a_min=1)
    assert with_children(clip, (Y,)) is call("clip", Y, a_min=1)


def test_post_order_has_children_first_and_each_expression_once() -> None:
    assert post_order(SUM) == [X, RELU, Y, SUM]
    both = call("multiply", SUM, SUM)
    assert post_order(both) == [X, RELU, Y, SUM, both]
    assert post_order(Y, SUM) == [Y, X, RELU, SUM]
    assert post_order() == []


def test_post_order_leaves_out_what_is_known() -> None:
    assert post_order(SUM, known=lambda e: e is RELU) == [Y, SUM]
    assert post_order(SUM, known=lambda e: e is SUM) == []
    assert post_order(call("add", RELU, X), known=lambda e: e is RELU) == [X, call("add", RELU, X)]


@given(modules())
def test_post_order_is_an_order(module: IRModule) -> None:
    order = post_order(module.main.body)
    position = {expr: i for i, expr in enumerate(order)}
    assert len(position) == len(order)
    assert order[-1] is module.main.body
    assert all(position[child] < position[expr] for expr in order for child in children(expr))


def test_users_are_named_once_for_each_use() -> None:
    square = call("multiply", RELU, RELU)
    assert users(post_order(square)) == {X: [RELU], RELU: [square, square], square: []}
    assert users([SUM]) == {SUM: [], RELU: [SUM], Y: [SUM]}


def test_free_variables_come_in_the_order_of_their_use() -> None:
    assert free_vars(SUM) == [X, Y]
    assert free_vars(call("add", Y, RELU)) == [Y, X]
    assert free_vars(const(1)) == []


def test_nested_functions() -> None:
    inner = Function([X], RELU, {"Primitive": "1"})
    middle = Function([X], Call(inner, [Call(inner, [X])]))
    outer = Function([X, Y], call("add", Call(middle, [X]), Call(inner, [Y])))
    assert set(nested_functions(outer)) == {outer, middle, inner}
    assert len(nested_functions(outer)) == 3
    assert nested_functions(inner) == [inner]


def test_a_rewrite_is_applied_to_rewritten_children() -> None:
    def twice(expr: Expr) -> Expr | None:
        return call("tanh", expr.args[0]) if isinstance(expr, Call) and expr.op_name == "nn.relu" else None

    body = call("nn.relu", RELU)
    assert rewrite(body, twice) is call("tanh", call("tanh", X))
    assert rewrite(SUM, same) is SUM


def test_what_a_rule_gives_is_not_rewritten_again() -> None:
    def grow(expr: Expr) -> Expr | None:
        return call("nn.relu", expr) if expr is X else None

    assert rewrite(RELU, grow) is call("nn.relu", RELU)


def test_layers_are_handed_on_by_an_observer() -> None:
    spans = Spans({RELU: ("r",), SUM: ("s",)})
    new = rewrite(SUM, lambda e: Y if e is X else None, spans.record_rewrite)
    assert new is call("add", call("nn.relu", Y), Y)
    assert spans[new] == ("s",)
    assert spans[call("nn.relu", Y)] == ("r",)


def test_substitution_replaces_what_it_is_told_and_looks_no_deeper() -> None:
    assert substitute(SUM, {X: Y}) is call("add", call("nn.relu", Y), Y)
    assert substitute(SUM, {X: Y, RELU: X}) is call("add", X, Y), "what lies below a key is not looked at"
    assert substitute(SUM, {SUM: X}) is X
    assert substitute(SUM, {}) is SUM
    assert substitute(RELU, {X: call("tanh", X)}) is call("nn.relu", call("tanh", X)), "values are not looked at"


@given(modules())
def test_rewriting_with_a_rule_that_does_nothing_gives_the_same(module: IRModule) -> None:
    assert rewrite(module.main.body, same) is module.main.body
    assert substitute(module.main.body, {v: v for v in module.main.params}) is module.main.body


def chain(length: int) -> Expr:
    expr: Expr = X
    for i in range(length):
        expr = call(("nn.relu", "tanh")[i % 2], expr)
    return expr


def test_a_deep_chain_is_walked_without_recursion() -> None:
    deep = chain(10_000)
    steps: list[Callable[[], object]] = [
        lambda: post_order(deep),
        lambda: users(post_order(deep)),
        lambda: free_vars(deep),
        lambda: rewrite(deep, same),
        lambda: substitute(deep, {X: Y}),
        lambda: nested_functions(Function([X], deep)),
    ]
    for step in steps:
        step()
