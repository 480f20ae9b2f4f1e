"""Trees, and values that nothing outside of a match uses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from uma.errors import PluginError
from uma.relay import Call, Expr, FixedPoint, TensorType, TupleGetItem, Var, call, const
from uma.relay.pattern import (
    Graph,
    Match,
    Mismatch,
    Pattern,
    PatternTable,
    Term,
    any_,
    any_of,
    chain,
    closest,
    constant,
    find,
    item,
    match,
    op,
    optional,
    outputs,
    roots_of,
    tree,
    where,
    wildcard,
)

TYPE = TensorType((2, 4), "float32")
X, Y, Z = (Var(name, TYPE) for name in "xyz")
F = wildcard("float32")
W = const(np.ones((4, 4), np.float32))


def relu(x: Any) -> Any:
    return call("nn.relu", x) if isinstance(x, Expr) else op("nn.relu")(x)


def tanh(x: Any) -> Any:
    return call("tanh", x) if isinstance(x, Expr) else op("tanh")(x)


def add(x: Any, y: Any) -> Any:
    return call("add", x, y) if isinstance(x, Expr) else op("add")(x, y)


def dense(x: Any) -> Any:
    return call("nn.dense", x, W) if isinstance(x, Expr) else op("nn.dense")(x, constant("float32"))


def block(value: Term) -> Term:
    return any_of(relu(value), tanh(value), add(value, value))


def both(*exprs: Expr) -> Expr:
    return call("concatenate", *exprs, axis=0)


def graph_of(expr: Expr, *results: Expr) -> Graph:
    return Graph(both(expr, *results) if results else expr)


def laid(term: Term, expr: Expr, *results: Expr) -> Match | Mismatch:
    return match(Pattern("p", term), expr, graph_of(expr, *results))


def nodes(term: Term, expr: Expr, *results: Expr) -> set[Expr]:
    found = laid(term, expr, *results)
    return set(found.nodes) if isinstance(found, Match) else set()


def reason(term: Term, expr: Expr, *results: Expr) -> str:
    found = laid(term, expr, *results)
    assert isinstance(found, Mismatch)
    return found.failure.reason


TREE = tree(block, F, most=8)
FROM_DENSE = tree(block, F, start=dense(F), most=8)


# --- private ---------------------------------------------------------------------------------------------------------


def test_a_private_value_is_used_by_the_match_alone() -> None:
    inner = relu(X)
    term = tanh(relu(F).private())
    assert isinstance(laid(term, tanh(inner)), Match)
    assert reason(term, tanh(inner), add(inner, Y)) == (
        "operand 'data' of tanh is used by add as well, the pattern takes a value that nothing else uses"
    )
    assert reason(term, tanh(inner), inner).startswith("operand 'data' of tanh is used by concatenate as well")
    assert isinstance(laid(tanh(relu(F)), tanh(inner), inner), Match)


def test_a_private_value_is_no_result() -> None:
    found = match(Pattern("p", relu(F).private()), relu(X), Graph(relu(X)))
    assert isinstance(found, Mismatch)
    assert found.failure.kind == "private"
    assert found.failure.reason == (
        "the result is given out by the function, the pattern takes a value that nothing else uses"
    )


def test_a_private_value_may_be_used_in_several_places_of_the_match() -> None:
    value = relu(X)
    inner = relu(F).private()
    term = op("multiply")(inner, tanh(inner))
    assert isinstance(laid(term, call("multiply", value, tanh(value))), Match)
    assert isinstance(laid(term, call("multiply", tanh(value), value)), Match)
    # The other use is one that the pattern might have, and has not.
    other = tanh(add(value, Y))
    taken = laid(any_of(term, tanh(add(F, F))), call("multiply", value, tanh(value)), other)
    assert isinstance(taken, Mismatch)
    assert taken.failure.kind == "private"
    assert taken.failure.reason.endswith("used by add as well, the pattern takes a value that nothing else uses")


def test_leaves_and_fields_may_be_private() -> None:
    assert isinstance(laid(relu(F.private()), relu(tanh(X))), Match)
    assert isinstance(laid(relu(F.private()), relu(X), tanh(X)), Mismatch)
    halves = call("split", X, indices=(2,), axis=1)
    left, right = (TupleGetItem(halves, i) for i in range(2))
    term = relu(item(op("split")(F, indices=any_, axis=1).private(), 0))
    assert isinstance(laid(term, relu(left)), Match)
    assert isinstance(laid(term, relu(left), relu(right)), Mismatch)


def test_private_outputs_parts_and_alternatives() -> None:
    value = relu(X)
    inner = relu(F).private()
    two = Pattern("p", outputs(tanh(inner), op("sigmoid")(inner)))
    top = tanh(value), call("sigmoid", value)
    assert isinstance(match(two, top[0], Graph(both(*top))), Match)
    assert isinstance(match(two, top[0], Graph(both(*top, value))), Mismatch)
    term = optional(F, lambda v: any_of(relu(v), add(v, v)).private())
    assert nodes(tanh(term), tanh(value)) == {tanh(value), value}
    assert nodes(tanh(term), tanh(value), value) == {tanh(value)}
    long = chain(F, lambda v: relu(v).private(), most=4)
    assert len(nodes(tanh(long), tanh(relu(relu(relu(X)))), relu(relu(X)))) == 2


# --- what a tree is --------------------------------------------------------------------------------------------------


def test_a_tree_has_any_shape() -> None:
    a = tanh(add(relu(X), tanh(Y)))
    for whole in (a, add(a, X), add(X, a), add(relu(Z), a), add(a, a), relu(X)):
        found = laid(TREE, whole)
        assert isinstance(found, Match)
        assert found.nodes == tuple(e for e in Graph(whole).order if isinstance(e, Call))
        assert found.root is whole


def test_what_it_gives() -> None:
    term = tree(
        lambda v: any_of(relu(v).named("relus"), add(v, v)),
        any_of(constant("float32").named("known"), F.named("in")),
        most=8,
    ).named("whole")
    whole = add(relu(add(X, W.data.sum().item() and const(np.ones((2, 4), np.float32)))), relu(tanh(Y)))
    found = laid(term, whole)
    assert isinstance(found, Match)
    assert found["whole"] is whole
    assert found.all("relus") == tuple(e for e in Graph(whole).order if isinstance(e, Call) and e.op_name == "nn.relu")
    assert found.all("in") == (X, tanh(Y)) == found.inputs
    assert [c.shape for c in found.constants] == [(2, 4)]
    assert found.escapes == ()


def test_a_value_that_is_used_twice_within_is_inside() -> None:
    value = tanh(X)
    assert nodes(TREE, add(value, relu(value))) == {value, relu(value), add(value, relu(value))}
    top = add(add(value, relu(value)), relu(add(value, relu(value))))
    assert len(nodes(TREE, top)) == 5
    assert nodes(TREE, add(value, relu(value)), value) == {relu(value), add(value, relu(value))}


def test_what_is_used_outside_or_is_a_result_or_of_another_shape_is_a_leaf() -> None:
    inner = tanh(X)
    assert nodes(TREE, relu(inner), inner) == {relu(inner)}
    row = tanh(Var("row", TensorType((4,), "float32")))
    assert nodes(TREE, add(relu(X), row)) == {add(relu(X), row), relu(X)}
    # Growing from further down, the result is no part of the tree.
    graph = Graph(inner)
    found = match(Pattern("p", TREE), inner, graph)
    assert isinstance(found, Match)


def test_a_tree_has_only_so_many_blocks_those_computed_last_first() -> None:
    value: Expr = X
    chain_ = [value := (relu if i % 2 else tanh)(value) for i in range(12)]
    assert nodes(TREE, value) == set(chain_[-8:])
    left, right = tanh(tanh(X)), relu(relu(Y))
    top = add(left, right)
    assert nodes(tree(block, F, most=3), top) == {top, right, relu(Y)}


def test_smaller_trees_are_next() -> None:
    top = relu(tanh(relu(X)))
    sizes = [len(found.nodes) for found in find(Pattern("p", TREE), top)]
    assert sizes == [3, 2, 1]
    even = Pattern("p", TREE, lambda m: len(m.nodes) % 2 == 0)
    assert [len(found.nodes) for found in find(even, top)] == [2]


def test_a_tree_does_not_grow_into_what_is_taken() -> None:
    parts = relu(X), tanh(relu(X)), relu(tanh(relu(X)))
    graph = Graph(parts[2])
    assert [found.nodes for found in find(Pattern("p", TREE), parts[2], graph, {parts[0]})] == [parts[1:], parts[2:]]
    assert not list(find(Pattern("p", TREE), parts[2], graph, {parts[2]}))


def test_blocks_are_closed_and_say_what_they_take() -> None:
    clips = tree(lambda v: any_of(op("clip")(v, a_min=0, a_max=any_), relu(v)), F, most=4)
    assert len(nodes(clips, relu(call("clip", X, a_min=0, a_max=6)))) == 2
    assert len(nodes(clips, relu(call("clip", X, a_min=1, a_max=6)))) == 1
    assert reason(clips, call("clip", X, a_min=1, a_max=6)) == "clip: attribute a_min is 1.0, the pattern takes 0.0"
    with pytest.raises(PluginError, match="must say what it takes of 'scale'"):
        tree(lambda v: op("qnn.dequantize")(v, axis=-1), F, most=4)
    narrow = tree(lambda v: relu(v).typed("int8"), wildcard("int8"), most=4)
    assert reason(narrow, relu(X)) == "nn.relu: dtype is float32, the pattern takes int8"
    typed = tree(block, F, most=4).typed("float32", rank=3)
    assert reason(typed, relu(X)) == "the result: rank is 2 (shape (2, 4)), the pattern takes 3"


def test_a_leaf_that_does_not_fit_is_a_reason() -> None:
    term = tree(lambda v: any_of(add(v, v), op("cast")(v, dtype=any_)), wildcard("int8"), most=4)
    narrow = Var("n", TensorType((2, 4), "int8"))
    assert isinstance(laid(term, call("cast", narrow, dtype="float32")), Match)
    assert reason(term, add(call("cast", narrow, dtype="float32"), X)) == (
        "operand 'b' of add: dtype is float32, the pattern takes int8"
    )
    known = tree(lambda v: add(v, v), constant("float32"), most=4)
    assert reason(known, add(X, Y)) == "operand 'a' of add is an input of the function, the pattern takes a constant"


def test_a_block_may_have_leaves_of_its_own() -> None:
    bias = any_of(constant("float32").named("bias"), wildcard("float32", shape=(1, 4)))
    term = tree(lambda v: any_of(add(v, bias), relu(v)), F, most=4)
    row, one = const(np.ones(4, np.float32)), Var("one", TensorType((1, 4), "float32"))
    for operands in ((relu(X), row), (row, relu(X))):
        found = laid(term, relu(add(*operands)))
        assert isinstance(found, Match)
        assert len(found.nodes) == 3
        assert found.all("bias") == (row,) == found.constants
    assert len(nodes(term, add(one, relu(X)))) == 2
    assert reason(term, add(X, Y)) == "operand 'b' of add: extent 0 of shape is 2 (shape (2, 4)), the pattern takes 1"
    ordered = tree(lambda v: op("subtract")(v, constant("float32")), F, most=4)
    assert len(nodes(ordered, call("subtract", X, row))) == 1
    assert reason(ordered, call("subtract", row, X)) == (
        "operand 'b' of subtract is an input of the function, the pattern takes a constant"
    )


def test_a_tree_may_be_a_part_and_have_parts() -> None:
    pool = op("nn.softmax")(any_of(tree(block, F, most=4).private(), F), axis=any_)
    body = tanh(relu(X))
    soft = call("nn.softmax", body, axis=-1)
    assert nodes(pool, soft) == {soft, body, relu(X)}
    assert nodes(pool, soft, body) == {soft}
    after = any_of(tree(block, F, start=pool, most=4), pool)
    assert nodes(after, relu(soft)) == {relu(soft), soft, body, relu(X)}
    assert nodes(after, soft) == {soft, body, relu(X)}
    # A tree is one node to whoever names it.
    shared = tree(block, F, most=4)
    swish = op("multiply")(shared, op("sigmoid")(shared))
    value = relu(add(X, Y))
    assert len(nodes(swish, call("multiply", value, call("sigmoid", value)))) == 4
    assert not nodes(swish, call("multiply", value, call("sigmoid", tanh(X))))


# --- starts ----------------------------------------------------------------------------------------------------------


def test_a_start_stands_at_one_end() -> None:
    first = dense(X)
    for top in (relu(first), add(first, Y), add(Y, first), relu(add(tanh(Y), tanh(first)))):
        found = laid(FROM_DENSE, top)
        assert isinstance(found, Match)
        assert first in found.nodes
        assert found.nodes == tuple(e for e in Graph(top).order if isinstance(e, Call))
    assert len(nodes(FROM_DENSE, add(first, first))) == 2


def test_without_a_start_there_is_no_tree() -> None:
    assert reason(FROM_DENSE, relu(tanh(X))) == (
        "operand 'data' of tanh is an input of the function, the pattern takes nn.dense"
    )
    assert reason(FROM_DENSE, add(X, call("sigmoid", Y))) == (
        "operand 'b' of add is sigmoid, the pattern takes nn.dense"
    )
    assert reason(FROM_DENSE, relu(dense(X)), dense(X)) == (
        "operand 'data' of nn.relu is used by concatenate as well, the pattern takes a value that nothing else uses"
    )
    row = call("nn.dense", Var("v", TensorType((1, 4), "float32")), W)
    assert reason(FROM_DENSE, add(X, row)) == "operand 'b' of add: shape is (1, 4), the pattern takes (2, 4)"
    assert reason(FROM_DENSE, dense(X)) == "the result is nn.dense, the pattern takes add or nn.relu or tanh"
    value: Expr = dense(X)
    for i in range(9):
        value = (relu if i % 2 else tanh)(value)
    assert isinstance(laid(FROM_DENSE, value), Mismatch)


def test_what_kept_a_start_from_matching_is_the_reason() -> None:
    softmax = op("nn.softmax")(F, axis=0)
    term = tree(block, F, start=softmax, most=4)
    top = add(call("nn.softmax", X, axis=1), tanh(Y))
    assert reason(term, top) == "nn.softmax: attribute axis is 1, the pattern takes 0"
    found = closest(PatternTable([Pattern("p", term)]), top.args[0], Graph(top))
    assert (found.root, found.text) == (
        top,
        "pattern p came closest to nn.softmax: nn.softmax: attribute axis is 1, the pattern takes 0",
    )
    # Another start is tried where the first does not fit after all.
    other = call("nn.softmax", Y, axis=0)
    assert nodes(term, add(call("nn.softmax", X, axis=1), other)) == {add(call("nn.softmax", X, axis=1), other), other}


def test_of_two_starts_one_begins_the_tree_and_the_other_keeps_what_is_its() -> None:
    first, second = dense(X), dense(Y)
    top = relu(add(tanh(first), tanh(relu(second))))
    found = [found.nodes for found in find(Pattern("p", FROM_DENSE), top)]
    assert set(found[0]) == {top, top.args[0], tanh(first), first}
    assert any(second in more and first not in more for more in found)
    assert nodes(FROM_DENSE, add(first, second)) == {add(first, second), first}
    shared = add(first, second)
    assert nodes(FROM_DENSE, add(relu(shared), tanh(shared))) == {
        add(relu(shared), tanh(shared)),
        relu(shared),
        tanh(shared),
        shared,
        first,
    }


def quantised(x: Expr) -> Call:
    sums = call("qnn.dense", x, const(np.ones((4, 4), np.int8)))
    scaled = call("qnn.requantize", add(sums, const(1)), scale=FixedPoint((2**30,), (-5,), "up"), dtype="int8")
    return call("qnn.dequantize", scaled, scale=0.5)


def quantised_block(v: Term) -> Term:
    return any_of(
        add(v, v),
        op("qnn.dequantize")(v, scale=any_, axis=any_, zero_point=any_),
        op("qnn.requantize")(v, scale=any_, axis=any_, dtype=any_),
    )


def test_what_leads_elsewhere_is_cut_where_it_takes_the_fewest_bytes() -> None:
    a, b = (quantised(Var(name, TensorType((2, 4), "int8"))) for name in "ab")
    start = op("qnn.dense")(wildcard("int8"), constant("int8"))
    top = add(a, b)
    narrow = b.args[0]
    graph = Graph(top)
    for term in (
        tree(quantised_block, wildcard(any_), start=start, most=16),
        tree(quantised_block, wildcard(any_), start=start, others=start, most=16),
    ):
        found = match(Pattern("p", term), top, graph)
        assert isinstance(found, Match)
        assert narrow in found.inputs
        assert b in found.nodes
        assert len(found.nodes) == 6
    # Without a start it is cut off on both sides.
    found = match(Pattern("p", tree(quantised_block, wildcard(any_), others=start, most=16)), top, graph)
    assert isinstance(found, Match)
    assert set(found.nodes) == {top, a, b}


def test_where_all_leads_elsewhere_there_is_no_tree() -> None:
    term = tree(block, F, others=any_of(dense(F), op("sigmoid")(F)), most=8)
    top = tanh(relu(dense(X)))
    assert (
        reason(term, top) == "operand 'data' of nn.relu is nn.dense, the pattern takes what no other tree starts with"
    )
    assert not list(find(Pattern("p", term), top))
    assert nodes(term, tanh(relu(X))) == {tanh(relu(X)), relu(X)}
    # What others cannot have either is nobody's.
    assert nodes(term, top, dense(X)) == {top, relu(dense(X))}
    # One that the tree needs for itself as well is cut further down.
    mixed = add(relu(dense(X)), tanh(Y))
    assert not nodes(term, mixed)


def test_a_block_may_be_a_start_too() -> None:
    term = tree(block, F, start=relu(F).named("start"), most=8)
    found = laid(term, tanh(relu(tanh(X))))
    assert isinstance(found, Match)
    assert found["start"] is relu(tanh(X))
    assert set(found.nodes) == {tanh(relu(tanh(X))), relu(tanh(X))}


# --- where roots are -------------------------------------------------------------------------------------------------


def test_only_what_is_near_a_start_is_tried() -> None:
    value: Expr = dense(X)
    values = [value := (relu if i % 2 else tanh)(value) for i in range(20)]
    graph = Graph(add(value, Y))
    pattern = Pattern("p", FROM_DENSE)
    assert roots_of(pattern, graph) == tuple(reversed(values[:8]))
    assert roots_of(Pattern("p", dense(F)), graph) == (dense(X),)
    assert roots_of(Pattern("p", op("sigmoid")(F)), graph) == ()
    assert len(roots_of(Pattern("p", TREE), graph)) == 21
    # Nothing is known of an alternative; of both, one of theirs.
    assert len(roots_of(Pattern("p", relu(any_of(dense(F), F))), graph)) == 10
    assert roots_of(Pattern("p", relu(any_of(dense(F), tanh(dense(F))))), graph) == (values[1],)
    assert roots_of(Pattern("p", item(op("split")(F, indices=any_, axis=1), 0)), graph) == ()


def test_a_long_chain_is_quick_to_search() -> None:
    value: Expr = dense(X)
    for i in range(30_000):
        value = (relu if i % 2 else tanh)(value)
    graph = Graph(value)
    assert len(roots_of(Pattern("p", FROM_DENSE), graph)) == 8
    found = match(Pattern("p", tree(block, F, start=dense(F), most=4096)), graph.order[4096], graph)
    assert isinstance(found, Match)
    assert len(found.nodes) == 4095


# --- what cannot be said ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda: tree(block, F, most=0), "a tree of 0 blocks"),
        (lambda: tree(block, F, most=True), "a tree of True blocks"),
        (lambda: tree(block, F, most=5000), "a tree of 5000 blocks"),
        (lambda: tree(relu(F), F, most=4), "tree() needs a function that gives its blocks, not <nn.relu>"),
        (lambda: tree(lambda v: 3, F, most=4), "a block of tree() is 3, not a pattern"),
        (lambda: tree(lambda v: v, F, most=4), "a block of tree() is <Branch>"),
        (lambda: tree(lambda v: F, F, most=4), "a block of tree() is <Wildcard>"),
        (lambda: tree(lambda v: relu(F), F, most=4), "a block of tree() is <nn.relu>"),
        (lambda: tree(lambda v: any_of(relu(v), v), F, most=4), "a block of tree() is <Branch>"),
        (
            lambda: tree(lambda v: add(v, relu(v)), F, most=4),
            "an operand of <add>, a block of tree(), is <nn.relu>",
        ),
        (lambda: tree(lambda v: relu(v).private(), F, most=4), "a block of tree() is private"),
        (
            lambda: tree(lambda v: any_of(relu(v), tanh(v)).named("n"), F, most=4),
            "a block of tree() is a named or typed choice",
        ),
        (
            lambda: tree(lambda v: any_of(relu(v), tanh(v)).typed("float32"), F, most=4),
            "a block of tree() is a named or typed choice",
        ),
        (lambda: tree(block, relu(F), most=4), "the leaf of tree() is <nn.relu>"),
        (lambda: tree(block, F.private(), most=4), "the leaf of tree() is private"),
        (lambda: tree(block, 3, most=4), "the leaf of tree() is 3, not a pattern"),
        (lambda: tree(block, F, start=F, most=4), "the start of a tree may be any input"),
        (lambda: tree(block, F, start=3, most=4), "the start of tree() is 3, not a pattern"),
        (lambda: tree(block, F, others=F, most=4), "others may start with any input"),
        (lambda: tree(block, F, others=3, most=4), "the others of tree() is 3, not a pattern"),
    ],
)
def test_what_is_no_tree_is_refused(make: Callable[[], Any], what: str) -> None:
    with pytest.raises(PluginError) as caught:
        make()
    assert caught.value.what == what


def test_what_a_block_is_given_stays_in_the_tree() -> None:
    leaked: list[Term] = []

    def leak(value: Term) -> Term:
        leaked.append(value)
        return block(value)

    made = tree(leak, F, most=4)
    for term in (relu(leaked[0]), add(made, relu(leaked[0])), tree(block, F, start=dense(leaked[0]), most=4)):
        with pytest.raises(PluginError, match="has what a block of a tree was given outside of that tree"):
            Pattern("p", term)
    with pytest.raises(PluginError, match="an operand of <add>, a block of tree"):
        tree(lambda v: add(v, leaked[0]), F, most=4)


def test_several_outputs_are_tied_by_a_start_and_not_by_leaves() -> None:
    source = dense(F)
    grown = tree(block, F, start=source, most=4)
    pattern = Pattern("p", outputs(grown, op("sigmoid")(source)))
    value = dense(X)
    top = relu(value), call("sigmoid", value)
    found = match(pattern, top[0], Graph(both(*top)))
    # The other output, which uses the start, is matched after the tree.
    assert isinstance(found, Mismatch)
    assert found.failure.kind == "private"
    after = Pattern("p", outputs(op("sigmoid")(source), grown))
    assert isinstance(match(after, top[1], Graph(both(*top))), Match)
    with pytest.raises(PluginError, match="not always tied"):
        outputs(tree(block, F, most=4), op("sigmoid")(F))


def test_a_test_at_fault_names_the_pattern() -> None:
    def broken(value: Any) -> bool:
        raise ValueError("no")

    term = tree(lambda v: any_of(relu(v), op("clip")(v, a_min=where(broken, "odd"), a_max=any_)), F, most=4)
    with pytest.raises(PluginError) as caught:
        laid(term, relu(call("clip", X, a_min=0, a_max=6)))
    assert caught.value.what == "a test raised ValueError: no"
    assert (caught.value.where or "").startswith("pattern 'p', at nn.relu: test 'odd'")


# --- every graph -----------------------------------------------------------------------------------------------------


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    values: list[Expr] = [X, Y]
    for _ in range(draw(st.integers(2, 14))):
        a, b = (values[-1 - draw(st.integers(0, min(3, len(values) - 1)))] for _ in range(2))
        kind = draw(st.sampled_from([relu, tanh, "add", "add", dense]))
        values.append(add(a, b) if kind == "add" else kind(a))  # type: ignore[operator]
    return Graph(both(*values[-draw(st.integers(1, 2)) :]))


@given(graphs(), st.integers(1, 6), st.booleans(), st.booleans())
def test_trees_are_what_they_say(graph: Graph, most: int, started: bool, apart: bool) -> None:
    start = dense(F)
    term = tree(block, F, start=start if started else None, others=start if apart else None, most=most)
    pattern = Pattern("p", term)
    roots = set(roots_of(pattern, graph))
    for root in graph.order:
        found = list(find(pattern, root, graph))
        assert found == list(find(pattern, root, graph))
        assert root in roots or not found
        for one in found:
            blocks = [node for node in one.nodes if node.op_name != "nn.dense"]  # type: ignore[attr-defined]
            assert 1 <= len(blocks) <= most
            assert len(one.nodes) - len(blocks) == started
            assert one.root is root
            assert not one.escapes
            assert set(one.nodes) == {e for e in Graph(root).order if e in one.nodes}
            uses = {arg for node in blocks for arg in node.args}  # type: ignore[attr-defined]
            assert uses == {e for e in (*one.inputs, *one.interior) if e in uses}
        if found and not started and not apart:
            assert [len(one.nodes) for one in found] == list(range(len(found[0].nodes), 0, -1))
            largest = found[0]
            more = [e for e in largest.inputs if isinstance(e, Call) and e.op_name in ("add", "nn.relu", "tanh")]
            inside = set(largest.nodes)
            assert len(inside) == most or all(any(u not in inside for u in graph.users(e)) for e in more)
