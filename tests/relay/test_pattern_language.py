"""The words of the pattern language: what each matches, and what cannot be said."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from uma.errors import PluginError
from uma.relay import Expr, TensorType, TupleGetItem, Var, call, const, registered_ops
from uma.relay.pattern import (
    Graph,
    Match,
    Mismatch,
    Outputs,
    Pattern,
    Term,
    any_,
    any_of,
    chain,
    constant,
    find,
    match,
    op,
    optional,
    outputs,
    tuple_item,
    where,
    wildcard,
)

X = Var("x", TensorType((2, 4), "float32"))
Y = Var("y", TensorType((2, 4), "float32"))
ONES = const(np.ones(4, np.float32))
F = wildcard("float32")


def relu(x: Any) -> Any:
    return call("nn.relu", x) if isinstance(x, Expr) else op("nn.relu")(x)


def add(x: Any, y: Any) -> Any:
    return call("add", x, y) if isinstance(x, Expr) else op("add")(x, y)


def laid(term: Term | Outputs, expr: Expr, *results: Expr) -> Match | Mismatch:
    """A pattern over an expression, in a graph with more results where some are given."""
    root = expr
    for result in results:
        root = call("concatenate", root, result, axis=0)
    return match(Pattern("p", term), expr, Graph(root))


def matches(term: Term | Outputs, expr: Expr) -> bool:
    return isinstance(laid(term, expr), Match)


def reason(term: Term | Outputs, expr: Expr, *results: Expr) -> str:
    found = laid(term, expr, *results)
    assert isinstance(found, Mismatch)
    return found.failure.reason


# --- leaves ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("leaf", "fits"),
    [
        (wildcard("float32"), True),
        (wildcard(["int8", "float32"]), True),
        (wildcard(any_), True),
        (wildcard("int8"), False),
        (wildcard(any_, rank=2), True),
        (wildcard(any_, rank=3), False),
        (wildcard(any_, shape=(2, 4)), True),
        (wildcard(any_, shape=(2, 5)), False),
        (wildcard(any_, shape=(2,)), False),
        (wildcard(any_, shape=(any_, 4)), True),
        (wildcard(any_, shape=(any_, where(lambda n: n % 4 == 0, "a multiple of 4"))), True),
        (wildcard(any_, shape=(any_, where(lambda n: n % 8 == 0, "a multiple of 8"))), False),
        (constant("float32"), False),
    ],
)
def test_leaves(leaf: Term, fits: bool) -> None:
    assert matches(relu(leaf), relu(X)) == fits


def test_constants_are_constants_and_wildcards_take_them_too() -> None:
    found = laid(add(F, constant("float32", shape=(4,))), add(X, ONES))
    assert isinstance(found, Match)
    assert (found.inputs, found.constants) == ((X,), (ONES,))
    assert not matches(add(F, constant("float32", rank=2)), add(X, ONES))
    found = laid(add(F, wildcard("float32")), add(X, ONES))
    assert isinstance(found, Match)
    assert (found.inputs, found.constants) == ((X, ONES), ())


@pytest.mark.parametrize(
    ("leaf", "said"),
    [
        (wildcard("int8"), "nn.relu: dtype is float32, the pattern takes int8"),
        (wildcard(any_, shape=(2, 5)), "extent 1 of shape is 4 (shape (2, 4)), the pattern takes 5"),
        (wildcard(any_, shape=(2,)), "rank is 2 (shape (2, 4)), the pattern takes 1"),
        (wildcard(any_, rank=3), "rank is 2 (shape (2, 4)), the pattern takes 3"),
        (wildcard(any_, shape=(2, where(lambda n: n == 8, "eight"))), "is 4 (shape (2, 4)), the pattern takes eight"),
        (constant(any_), "operand 'data' of nn.relu is an input of the function, the pattern takes a constant"),
    ],
)
def test_leaves_say_why(leaf: Term, said: str) -> None:
    assert said in reason(relu(leaf), relu(X))


# --- ops and attributes ----------------------------------------------------------------------------------------------


def test_an_op_matches_its_calls_only() -> None:
    assert matches(relu(F), relu(X))
    assert reason(relu(F), call("sigmoid", X)) == "the result is sigmoid, the pattern takes nn.relu"
    assert not matches(relu(F), X)


def clipped(low: float, high: float) -> Expr:
    return call("clip", X, a_min=low, a_max=high)


def test_attributes_are_fixed_opened_or_tested() -> None:
    clip = op("clip")
    assert matches(clip(F, a_min=0, a_max=6), clipped(0, 6))
    assert not matches(clip(F, a_min=0, a_max=6), clipped(0, 7))
    assert matches(clip(F, a_min=any_, a_max=any_), clipped(-3, 7))
    below = clip(F, a_min=any_, a_max=where(lambda v: v < 7, "below 7"))
    assert matches(below, clipped(0, 6))
    assert reason(below, clipped(0, 7)) == "clip: attribute a_max is 7.0, the pattern takes below 7"
    assert matches(clip(F, a_min=any_, a_max=where(lambda v: np.float32(v) < 7, "numpy's bool")), clipped(0, 6))


def test_a_fixed_float_is_exact() -> None:
    zero = op("clip")(F, a_min=0.0, a_max=any_)
    assert matches(zero, clipped(0.0, 1))
    assert not matches(zero, clipped(-0.0, 1))


def test_operands_of_variadic_ops_are_counted() -> None:
    two = op("concatenate")(F, wildcard("float32"), axis=0)
    assert matches(two, call("concatenate", X, Y, axis=0))
    three = call("concatenate", X, Y, X, axis=0)
    assert reason(two, three) == "concatenate: the number of operands is 3, the pattern takes 2"
    said = "operand 1 of concatenate: dtype is float32, the pattern takes int8"
    assert said in reason(op("concatenate")(F, wildcard("int8"), axis=0), call("concatenate", X, Y, axis=0))


def test_calls_of_functions_are_no_ops_but_may_be_inputs() -> None:
    from uma.relay import Call, Function

    made = Call(Function([X], relu(X)), [Y])
    assert reason(relu(F), made) == "the result is a call of a function, the pattern takes nn.relu"
    assert matches(relu(F), relu(made))


def test_results_can_be_typed() -> None:
    term = relu(wildcard(any_)).typed("float32", shape=(any_, 4))
    assert matches(term, relu(X))
    assert "nn.relu: dtype is float32" in reason(relu(F).typed("int8"), relu(X))
    either = any_of(relu(F), call_sigmoid()).typed(any_, rank=2)
    assert matches(either, relu(X))
    assert "rank is 2" in reason(either.typed(any_, rank=1), relu(X))


def call_sigmoid() -> Term:
    return op("sigmoid")(F)


# --- commutative ops -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["add", "multiply", "minimum", "maximum"])
def test_operands_of_commutative_ops_come_in_any_order(name: str) -> None:
    term = op(name)(relu(F), constant("float32"))
    assert matches(term, call(name, relu(X), ONES))
    assert matches(term, call(name, ONES, relu(X)))


def test_subtract_is_not_commutative() -> None:
    term = op("subtract")(relu(F), constant("float32"))
    assert matches(term, call("subtract", relu(X), ONES))
    assert not matches(term, call("subtract", ONES, relu(X)))


def test_ops_that_are_declared_commutative_are() -> None:
    rng = np.random.default_rng(0)
    names = []
    for name, declared in registered_ops().items():
        if declared.commutative:
            names.append(name)
            a, b = rng.integers(-128, 128, (2, 3, 5)).astype(np.int8)
            attrs = declared.make_attrs({})
            assert np.array_equal(declared.reference(attrs, a, b), declared.reference(attrs, b, a)), name
    logical = ["logical_and", "logical_or", "logical_xor"]
    bitwise = ["bitwise_and", "bitwise_or", "bitwise_xor"]
    assert names == ["add", *bitwise, "equal", *logical, "maximum", "minimum", "multiply", "not_equal"]


def test_the_order_that_fits_more_comes_first() -> None:
    term = add(optional(F, relu), wildcard("float32"))
    for expr in (add(relu(X), Y), add(Y, relu(X))):
        found = [m.nodes for m in find(Pattern("p", term), expr)]
        assert found[0] == (relu(X), expr)
        assert found[-1] == (expr,)


# --- optional parts, alternatives ------------------------------------------------------------------------------------


def test_optional_prefers_what_is_there() -> None:
    term = relu(optional(call_sigmoid().named("inner"), lambda v: add(v, constant("float32").named("bias"))))
    with_bias = laid(term, relu(add(call("sigmoid", X), ONES)))
    without = laid(term, relu(call("sigmoid", X)))
    assert isinstance(with_bias, Match)
    assert isinstance(without, Match)
    assert with_bias.get("bias") is with_bias["bias"] is ONES
    assert without.get("bias") is None
    assert with_bias["inner"] is without["inner"]
    assert without.all("bias") == ()


def test_all_ways_come_from_larger_to_smaller() -> None:
    pattern = Pattern("p", relu(optional(F, lambda v: op("sigmoid")(v))))
    root = relu(call("sigmoid", X))
    assert [m.nodes for m in find(pattern, root)] == [(call("sigmoid", X), root), (root,)]
    assert [m.inputs for m in find(pattern, root)] == [(X,), (call("sigmoid", X),)]


def test_the_first_alternative_wins_and_the_others_follow() -> None:
    first, second = wildcard("float32").named("first"), wildcard("float32").named("second")
    found = list(find(Pattern("p", relu(any_of(first, second))), relu(X)))
    assert [dict(m.captures) for m in found] == [{"first": (X,)}, {"second": (X,)}]


def test_the_same_match_comes_once() -> None:
    term = any_of(relu(F), relu(wildcard(any_)), relu(F).typed("float32"))
    assert len(list(find(Pattern("p", term), relu(X)))) == 1


def test_a_later_alternative_is_taken_where_the_whole_needs_it() -> None:
    shared = any_of(wildcard("float32", shape=(any_, any_)), op("nn.relu")(F))
    term = add(shared, op("sigmoid")(op("nn.relu")(F)))
    assert matches(term, add(relu(X), call("sigmoid", relu(X))))


def test_alternatives_may_share_a_name() -> None:
    term = any_of(relu(F).named("act"), op("sigmoid")(F).named("act"))
    for expr in (relu(X), call("sigmoid", X)):
        found = laid(term, expr)
        assert isinstance(found, Match)
        assert found["act"] is expr


def test_what_fits_no_alternative_is_told_all_of_them() -> None:
    term = relu(optional(call_sigmoid(), lambda v: add(v, constant("float32"))))
    assert reason(term, relu(call("tanh", X))) == (
        "operand 'data' of nn.relu is tanh, the pattern takes add or sigmoid"
    )


# --- chains ----------------------------------------------------------------------------------------------------------


def tower(height: int) -> Expr:
    value: Expr = X
    for number in range(height):
        value = relu(add(value, const(np.full(4, number, np.float32))))
    return value


def block(v: Term) -> Term:
    return relu(add(v, constant("float32").named("bias")))


@pytest.mark.parametrize(
    ("least", "most", "height", "blocks"),
    [(1, 4, 3, 3), (1, 4, 4, 4), (1, 4, 6, 4), (3, 3, 3, 3), (2, 3, 1, None), (4, 5, 3, None)],
)
def test_a_chain_takes_as_many_blocks_as_there_are(least: int, most: int, height: int, blocks: int | None) -> None:
    found = laid(chain(F, block, least=least, most=most), tower(height))
    assert (len(found.all("bias")) if isinstance(found, Match) else None) == blocks


def test_chains_may_be_empty_inside_of_a_pattern() -> None:
    term = op("sigmoid")(chain(call_sigmoid(), block, least=0, most=3))
    assert matches(term, call("sigmoid", call("sigmoid", X)))


def test_a_shorter_chain_is_the_next_best() -> None:
    pattern = Pattern("p", chain(F, block, most=5))
    assert [len(m.nodes) for m in find(pattern, tower(3))] == [6, 4, 2]


def test_blocks_capture_in_the_order_of_computation() -> None:
    found = laid(chain(F, block, most=5), tower(3))
    assert isinstance(found, Match)
    assert [c.data[0] for c in found.constants] == [0, 1, 2]
    biases = found.all("bias")
    assert [int(b.data[0]) for b in biases if hasattr(b, "data")] == [0, 1, 2]


def test_residual_blocks_are_diamonds() -> None:
    value: Expr = X
    for _ in range(3):
        value = add(value, relu(value))
    found = laid(chain(F, lambda v: add(v, relu(v)), most=10), value)
    assert isinstance(found, Match)
    assert (len(found.nodes), found.inputs, found.escapes) == (6, (X,), ())


def test_what_is_made_outside_of_the_block_is_one_node() -> None:
    bias = constant("float32")
    same = chain(F, lambda v: relu(add(v, bias)), least=2, most=4)
    value = relu(add(relu(add(X, ONES)), ONES))
    assert matches(same, value)
    assert reason(same, tower(2)).startswith("operand 'b' of add is a constant, the pattern takes the very node of")


def test_chains_of_hundreds() -> None:
    found = laid(chain(F, block, most=1000), tower(700))
    assert isinstance(found, Match)
    assert len(found.nodes) == 1400
    exact = laid(chain(F, block, least=700, most=700), tower(700))
    assert isinstance(exact, Match)
    assert isinstance(laid(chain(F, block, least=701, most=900), tower(700)), Mismatch)


# --- shared parts ----------------------------------------------------------------------------------------------------


def test_a_term_used_twice_is_one_node() -> None:
    y = wildcard("float32")
    swish = op("multiply")(y, op("sigmoid")(y))
    assert matches(swish, call("multiply", X, call("sigmoid", X)))
    assert matches(swish, call("multiply", call("sigmoid", X), X))
    assert not matches(swish, call("multiply", Y, call("sigmoid", X)))
    assert matches(op("multiply")(y, y), call("multiply", X, X))
    assert not matches(op("multiply")(y, y), call("multiply", X, Y))


def test_an_interior_diamond() -> None:
    inner = relu(F).named("inner")
    term = add(op("sigmoid")(inner), op("tanh")(inner))
    found = laid(term, add(call("sigmoid", relu(X)), call("tanh", relu(X))))
    assert isinstance(found, Match)
    assert len(found.nodes) == 4
    assert isinstance(laid(term, add(call("sigmoid", relu(X)), call("tanh", relu(Y)))), Mismatch)


# --- several outputs -------------------------------------------------------------------------------------------------


def test_outputs_tied_by_a_shared_node() -> None:
    inner = op("sigmoid")(F)
    term = outputs(relu(inner).named("a"), op("tanh")(inner).named("b"))
    s = call("sigmoid", X)
    found = laid(term, relu(s), call("tanh", s))
    assert isinstance(found, Match)
    assert found.roots == (relu(s), call("tanh", s))
    assert found.interior == (s,)
    assert found.escapes == ()
    assert found["a"] is found.root


def test_outputs_of_split() -> None:
    halves = op("split")(F, indices=any_, axis=0)
    term = outputs(op("sigmoid")(tuple_item(halves, 0)), op("tanh")(tuple_item(halves, 1)))
    split = call("split", X, indices=(1,), axis=0)
    a, b = (TupleGetItem(split, i) for i in range(2))
    found = laid(term, call("sigmoid", a), call("tanh", b))
    assert isinstance(found, Match)
    assert found.nodes[0] is split
    assert set(found.nodes[1:]) == {a, b, call("sigmoid", a), call("tanh", b)}
    wrong = reason(term, call("sigmoid", b), call("tanh", a))
    assert wrong == "operand 'data' of sigmoid: the field of split is 1, the pattern takes 0"


def test_an_output_may_be_inside_of_another() -> None:
    inner = op("sigmoid")(F)
    s = call("sigmoid", X)
    found = laid(outputs(relu(inner), inner), relu(s), call("tanh", s))
    assert isinstance(found, Match)
    assert (found.roots, found.escapes) == ((relu(s), s), ())
    assert isinstance(laid(outputs(inner, relu(inner)), s, relu(s)), Match)


def test_a_missing_output_is_told() -> None:
    inner = op("sigmoid")(F)
    term = outputs(relu(inner), op("tanh")(inner))
    said = reason(term, relu(call("sigmoid", X)))
    assert said == "there is no tanh for output 1 of the pattern, different from the others"


def test_outputs_are_different_nodes() -> None:
    inner = op("sigmoid")(F)
    s = call("sigmoid", X)
    twice = outputs(any_of(relu(inner), op("tanh")(inner)), relu(inner))
    assert isinstance(laid(twice, call("tanh", s), relu(s)), Match)
    assert "different from the others" in reason(twice, relu(s))
    # The second output is bound while the first is matched, to the same node.
    second = relu(inner)
    nested = outputs(any_of(second, op("tanh")(inner)), second)
    assert "different from the others" in reason(nested, relu(s), call("tanh", s))
    assert isinstance(laid(nested, call("tanh", s), relu(s)), Match)


# --- items -----------------------------------------------------------------------------------------------------------


def test_a_root_may_be_all_of_the_results() -> None:
    split = call("split", X, indices=(1,), axis=0)
    assert matches(op("split")(F, indices=any_, axis=0), split)
    assert "type is Tuple" in reason(op("split")(F, indices=any_, axis=0).typed("float32"), split)


def test_a_tuple_is_no_tensor_for_a_wildcard() -> None:
    term = tuple_item(any_of(op("split")(F, indices=(1,), axis=0), op("split")(F, indices=(3,), axis=1)), 0)
    assert matches(term, TupleGetItem(call("split", X, indices=(3,), axis=1), 0))
    said = reason(term, TupleGetItem(call("split", X, indices=(2,), axis=1), 0))
    assert said == "split: attribute indices is (2,), the pattern takes (1,)"


# --- what cannot be said ---------------------------------------------------------------------------------------------

CONV = op("nn.conv2d")


@pytest.mark.parametrize(
    ("make", "said", "hint"),
    [
        (lambda: op("nn.conv2"), "unknown op 'nn.conv2'", "did you mean 'nn.conv"),
        (lambda: CONV(F, F, stride=(1, 1)), "nn.conv2d has no attribute 'stride'", "did you mean 'strides'?"),
        (lambda: relu(F) and op("nn.relu")(F, alpha=1), "nn.relu has no attribute 'alpha'", "it has none"),
        (lambda: CONV(F, F, strides=(1, 1, 1)), "attribute 'strides' of nn.conv2d is (1, 1, 1)", "2 ints"),
        (lambda: CONV(F, F, groups="two"), "attribute 'groups' of nn.conv2d is 'two'", "it takes int"),
        (lambda: CONV(F, F, groups=len), "attribute 'groups' of nn.conv2d is <built-in", "where(function, reason)"),
        (lambda: CONV(F, F, groups=F), "attribute 'groups' of nn.conv2d is <Wildcard>", "where(function, reason)"),
        (lambda: CONV(F), "nn.conv2d takes data, weight; the pattern gives 1 operands", "attributes are keywords"),
        (lambda: op("concatenate")(axis=0), "concatenate takes *data; the pattern gives 0", ""),
        (lambda: CONV(F, 3), "operand 1 of nn.conv2d is 3, not a pattern", ""),
        (lambda: relu(outputs(F, relu(F))), "operand 0 of nn.relu is Outputs", "several outputs are a whole pattern"),
        (lambda: wildcard("int9"), "unknown dtype 'int9'", "int8"),
        (lambda: wildcard([]), "takes no dtype", "any_"),
        (lambda: wildcard(8), "8 is not dtypes", "a tuple or a list"),
        (lambda: wildcard(any_, shape=4), "4 is not a shape", "a tuple or a list"),
        (lambda: wildcard(any_, shape=(0,)), "extent 0", "positive"),
        (lambda: constant(any_, shape=(True,)), "extent True", "positive"),
        (lambda: wildcard(any_, rank=-1), "rank -1", ""),
        (lambda: wildcard(any_, rank=2, shape=(1, 2)), "a shape and a rank", "how many dimensions"),
        (lambda: where(3, "three"), "where(3, ...) needs a function", ""),
        (lambda: where(len, ""), "where() needs a reason on one line, not ''", "say what"),
        (lambda: where(len, "a\nb"), "needs a reason on one line", "say what"),
        (lambda: F.named("a b"), "'a b' cannot name a part", "letters"),
        (lambda: F.named(3), "3 cannot name a part", "letters"),
        (lambda: F.named("a").named("b"), "is named 'a' already", ""),
        (lambda: any_of(F, 3), "alternative 1 is 3, not a pattern", ""),
        (lambda: optional(3, relu), "the first argument of optional() is 3", ""),
        (lambda: optional(F, 3), "optional() needs a function", ""),
        (lambda: optional(F, lambda v: None), "what follows in optional() is None, not a pattern", ""),
        (lambda: optional(F, lambda v: v), "does not use the value that it follows", ""),
        (lambda: optional(F, lambda v: relu(wildcard("int8"))), "does not use the value", ""),
        (lambda: chain(F, relu, most=0), "a chain of 1 to 0 blocks", "0 <= least <= most"),
        (lambda: chain(F, relu, least=-1, most=2), "a chain of -1 to 2 blocks", "0 <= least"),
        (lambda: chain(F, relu, most=5000), "a chain of 1 to 5000 blocks", "most <= 4096"),
        (lambda: chain(F, relu, most="many"), "a chain of 1 to 'many' blocks", "most <= 4096"),
        (lambda: chain(F, lambda v: optional(v, relu), most=3), "may be empty", "least=0"),
        (lambda: chain(F, lambda v: relu(wildcard("int8")), most=3), "does not use the value", ""),
        (lambda: tuple_item(F, 0), "which is one tensor", "has items"),
        (lambda: tuple_item(constant("int8"), 0), "which is one tensor", "has items"),
        (lambda: tuple_item(relu(F), -1), "item -1 of a tuple", "counted from 0"),
        (lambda: tuple_item(relu(F), True), "item True of a tuple", "counted from 0"),
        (lambda: outputs(relu(F), relu(wildcard("int8"))), "output 1 of a pattern is the same", "same term in both"),
        (
            lambda: outputs(relu(F), any_of(call_sigmoid(), relu(wildcard(any_)))),
            "not always tied",
            "same term in both",
        ),
        (lambda: outputs(optional(relu(wildcard(any_)), lambda v: add(v, F)), call_sigmoid()), "not always tied", ""),
        (lambda: outputs(F, F), "output 1 of a pattern is the same", "same term in both"),
        (lambda: outputs(relu(F), None), "output 1 is None, not a pattern", ""),
    ],
)
def test_faults_of_a_pattern(make: Callable[[], object], said: str, hint: str) -> None:
    with pytest.raises(PluginError) as caught:
        make()
    assert said in caught.value.what
    assert hint in (caught.value.hint or "")


def test_a_repr_that_raises_does_no_harm() -> None:
    class Odd:
        def __repr__(self) -> str:
            raise ValueError

    with pytest.raises(PluginError, match="is a value of type Odd, not a pattern"):
        any_of(F, Odd())  # type: ignore[arg-type]  # no pattern


def test_the_users_interrupt_is_no_fault_of_a_test() -> None:
    def test(value: Any) -> bool:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        laid(op("clip")(F, a_min=where(test, "slow"), a_max=any_), clipped(0, 1))


def test_tests_that_are_at_fault() -> None:
    raising = op("clip")(F, a_min=any_, a_max=where(lambda v: 1 / 0, "well made"))
    with pytest.raises(PluginError, match="a test raised ZeroDivisionError") as caught:
        laid(raising, clipped(0, 1))
    assert caught.value.where == "pattern 'p', at clip: test 'well made', given 1.0"
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    with pytest.raises(PluginError, match="a test gave 1, not True or False"):
        laid(relu(wildcard(any_, shape=(any_, where(lambda n: 1, "one")))), relu(X))


def test_terms_print_shortly() -> None:
    assert repr(relu(F)) == "<nn.relu>"
    assert repr(relu(F).named("act")) == "<nn.relu 'act'>"
    assert repr(chain(F, relu, least=0, most=1000)) == "<AnyOf>"
    assert repr(F.named("x")) == "<Wildcard 'x'>"
    assert repr(any_) == "any_"
