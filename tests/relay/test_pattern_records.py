"""Triples: patterns with names, predicates and their clauses, tables, and what a match says."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from uma.errors import PluginError
from uma.relay import Expr, Function, TensorType, Tuple, Var, call, const
from uma.relay.pattern import (
    Clause,
    Failed,
    Graph,
    Match,
    Mismatch,
    Pattern,
    PatternTable,
    Rejection,
    any_,
    any_of,
    chain,
    constant,
    find,
    find_matches,
    match,
    op,
    optional,
    outputs,
    wildcard,
)

X = Var("x", TensorType((2, 4), "float32"))
F = wildcard("float32").named("x")
RELU = op("nn.relu")(F).named("relu")
ROOT = call("nn.relu", X)


def why(predicate: Any, expr: Expr = ROOT, term: Any = RELU) -> Any:
    found = match(Pattern("dev.p", term, predicate), expr)
    return found.failure if isinstance(found, Mismatch) else None


# --- predicates ------------------------------------------------------------------------------------------------------


def test_all_clauses_must_hold_and_the_first_that_does_not_is_told() -> None:
    wide = Clause("wide", lambda m: m["x"].shape[-1] >= 4, "four columns or more")
    even = Clause("even", lambda m: m["x"].shape[0] % 2 == 0, "rows come in pairs")
    three = Clause("three", lambda m: m["x"].shape[0] == 3 or Failed(m["x"].shape[0]), "three rows, not {value}")
    assert why([wide, even]) is None
    assert why((wide, even)) is None
    assert why([]) is None
    failure = why([wide, three, even])
    assert (failure.kind, failure.at, failure.actual) == ("clause", ROOT, "2")
    assert failure.reason == "clause three: three rows, not 2"


def test_numpy_bools_are_bools() -> None:
    assert why([Clause("c", lambda m: np.float32(1) < 2, "less")]) is None
    assert why([Clause("c", lambda m: np.float32(3) < 2, "less")]).reason == "clause c: less"
    assert why(lambda m: np.bool_(True)) is None


def small(found: Match) -> object:
    """At most one row.

    More text.
    """
    return found["x"].shape[0] <= 1


def test_a_predicate_may_be_a_function() -> None:
    assert why(lambda m: True) is None
    assert why(lambda m: "it is Monday").reason == "clause <lambda>: it is Monday"
    assert why(small).reason == "clause small: At most one row."
    assert why(lambda m: False).reason == "clause <lambda>: <lambda> does not hold"


def test_a_rejection_carries_the_value() -> None:
    pattern = Pattern("p", RELU, [Clause("c", lambda m: Failed([1, 2]), "no {value}")])
    found = next(find(Pattern("q", RELU), ROOT))
    assert pattern.rejection(found) == Rejection("c", "no [1, 2]", [1, 2])


def test_a_value_that_the_reason_does_not_mention_follows_behind() -> None:
    even = Clause("even", lambda m: Failed("same"), "rows come in pairs")
    failure = why([even])
    assert (failure.actual, failure.wanted) == ("same", "rows come in pairs (found same)")
    assert failure.reason == "clause even: rows come in pairs (found same)"


def test_a_failed_predicate_falls_back_to_a_smaller_match() -> None:
    def short(found: Match) -> bool:
        return len(found.nodes) <= 2

    value: Expr = X
    for _ in range(4):
        value = call("sigmoid", call("tanh", value))
    term = chain(wildcard("float32"), lambda v: op("sigmoid")(op("tanh")(v)), most=9)
    found = match(Pattern("p", term, short), value)
    assert isinstance(found, Match)
    assert len(found.nodes) == 2
    assert len(list(find(Pattern("p", term, short), value))) == 1
    assert len(list(find(Pattern("p", term), value))) == 4


def test_a_failed_predicate_falls_back_to_the_other_order_of_operands() -> None:
    y = Var("y", TensorType((1, 4), "float32"))
    term = op("add")(wildcard("float32").named("a"), wildcard("float32").named("b"))
    found = match(Pattern("p", term, lambda m: m["a"].shape == (1, 4)), call("add", X, y))
    assert isinstance(found, Match)
    assert found["a"] is y


def test_where_all_ways_are_rejected_the_reason_is_that_of_the_best() -> None:
    term = op("nn.relu")(optional(wildcard("float32"), lambda v: op("sigmoid")(v)))
    failure = why(lambda m: f"{len(m.nodes)} nodes", call("nn.relu", call("sigmoid", X)), term)
    assert failure.reason == "clause <lambda>: 2 nodes"


@pytest.mark.parametrize(
    ("predicate", "said", "hint"),
    [
        ([Clause("c", lambda m: None, "r")], "a clause gave None", "Failed(value)"),
        ([Clause("c", lambda m: 1, "r")], "a clause gave 1", "Failed(value)"),
        ([Clause("c", lambda m: "text", "r")], "a clause gave 'text'", "Failed(value)"),
        ([Clause("c", lambda m: False, "is {value}")], "gave False, but its reason shows a value", "Failed(value)"),
        ([Clause("c", lambda m: 1 / 0, "r")], "a predicate raised ZeroDivisionError: division by zero", None),
        (
            [Clause("c", lambda m: m["y"], "r")],
            "a predicate raised PluginError: pattern 'dev.p' names no part 'y'",
            None,
        ),
        (lambda m: 3, "a predicate gave 3", "or the reason"),
        (lambda m: "", "a predicate gave ''", "or the reason"),
    ],
)
def test_predicates_at_fault(predicate: Any, said: str, hint: str | None) -> None:
    with pytest.raises(PluginError) as caught:
        why(predicate)
    assert said in caught.value.what
    assert (caught.value.hint is None) if hint is None else hint in (caught.value.hint or "")
    assert (caught.value.where or "").startswith("pattern 'dev.p', ")
    if "raised" in said:
        assert caught.value.__cause__ is not None


def test_the_users_interrupt_is_no_fault_of_a_predicate() -> None:
    def predicate(match: Match) -> bool:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        why(predicate)


# --- records ---------------------------------------------------------------------------------------------------------

YES = Clause("yes", lambda m: True, "always")


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Pattern("Dev", RELU), "'Dev' cannot name a pattern"),
        (lambda: Pattern("", RELU), "'' cannot name a pattern"),
        (lambda: Pattern("a" * 101, RELU), "cannot name a pattern"),
        (lambda: Pattern(3, RELU), "3 cannot name a pattern"),  # type: ignore[arg-type]  # a number is not a name
        (lambda: Pattern("p", "nn.relu"), "pattern 'p' is 'nn.relu', not made of"),  # type: ignore[arg-type]  # the name of an op is not a pattern
        (lambda: Pattern("p", RELU, None, 3), "lower of pattern 'p' is 3, not a function"),  # type: ignore[arg-type]  # a number is not a function
        (lambda: Pattern("p", F), "computes nothing"),
        (lambda: Pattern("p", constant(any_)), "computes nothing"),
        (lambda: Pattern("p", any_of(RELU, constant(any_))), "computes nothing"),
        (lambda: Pattern("p", optional(F, lambda v: op("nn.relu")(v))), "computes nothing"),
        (lambda: Pattern("p", chain(F, lambda v: op("nn.relu")(v), least=0, most=3)), "computes nothing"),
        (lambda: Pattern("p", outputs(RELU, F)), "computes nothing"),
        (lambda: Pattern("p", RELU, "yes"), "the predicate of pattern 'p' is 'yes'"),  # type: ignore[arg-type]  # text is not a predicate
        (lambda: Pattern("p", RELU, [YES, len]), "the predicate of pattern 'p' is"),  # type: ignore[list-item]  # `len` takes no match
        (lambda: Pattern("p", RELU, [YES, YES]), "two clauses 'yes'"),
        (lambda: Clause("Yes", lambda m: True, "always"), "'Yes' cannot name a clause"),
        (lambda: Clause(3, lambda m: True, "always"), "3 cannot name a clause"),  # type: ignore[arg-type]  # a number is not a name
        (lambda: Clause("yes", True, "always"), "the test of clause 'yes' is True"),  # type: ignore[arg-type]  # a bool is not a function
        (lambda: Clause("yes", lambda m: True, " "), "clause 'yes' needs a reason"),
        (lambda: PatternTable([Pattern("p", RELU), Pattern("p", RELU)]), "two patterns 'p'"),
        (lambda: PatternTable([RELU]), "<nn.relu 'relu'> is not a Pattern"),  # type: ignore[list-item]  # what a `Pattern` is made of is none
        (lambda: PatternTable([Pattern("p", RELU)])["q"], "there is no pattern 'q'"),
    ],
)
def test_faults_of_a_record(make: Callable[[], object], said: str) -> None:
    with pytest.raises(PluginError) as caught:
        make()
    assert said in caught.value.what


def test_a_pattern_knows_its_names() -> None:
    assert Pattern("p", RELU).names == ("relu", "x")
    assert Pattern("p", RELU, lower=len).lower is len


def test_a_table_keeps_the_order() -> None:
    patterns = [Pattern(name, RELU) for name in ("c", "a", "b")]
    table = PatternTable(patterns[:2])
    table.add(patterns[2])
    assert list(table) == patterns
    assert (len(table), table["a"]) == (3, patterns[1])
    assert table.rooted_at(ROOT) == tuple(patterns)
    assert table.rooted_at(X) == ()


def test_matches_of_a_table_come_by_root_and_then_by_pattern() -> None:
    sigmoid = Pattern("sigmoid", op("sigmoid")(wildcard("float32")))
    table = PatternTable(
        [Pattern("two", op("nn.relu")(op("sigmoid")(wildcard("float32")))), Pattern("one", RELU), sigmoid]
    )
    root = call("nn.relu", call("sigmoid", ROOT))
    found = [(m.pattern.name, m.root) for m in find_matches(table, Graph(Function([X], root)))]
    assert found == [("one", ROOT), ("sigmoid", call("sigmoid", ROOT)), ("two", root), ("one", root)]


# --- matches ---------------------------------------------------------------------------------------------------------


def test_what_escapes() -> None:
    term = op("sigmoid")(op("tanh")(op("nn.relu")(wildcard("float32"))))
    r = call("nn.relu", X)
    t = call("tanh", r)
    root = call("sigmoid", t)
    assert escaping(term, root, root) == ()
    assert escaping(term, root, Tuple([root, t])) == (t,)
    assert escaping(term, root, Tuple([call("add", r, root), t])) == (r, t)
    # Used twice, but by the match alone.
    y = op("nn.relu")(wildcard("float32"))
    squared = op("sigmoid")(op("multiply")(y, y))
    root = call("sigmoid", call("multiply", r, r))
    assert escaping(squared, root, root) == ()


def escaping(term: Any, root: Expr, result: Expr) -> tuple[Expr, ...]:
    found = match(Pattern("p", term), root, Graph(result))
    assert isinstance(found, Match)
    return found.escapes


def test_a_result_of_the_function_escapes() -> None:
    inner = op("tanh")(wildcard("float32"))
    t = call("tanh", X)
    # An output of the pattern is not an escape; what lies below it and is the result of the function is one.
    found = match(Pattern("p", outputs(op("sigmoid")(inner), inner)), call("sigmoid", t))
    assert isinstance(found, Match)
    assert found.escapes == ()


def test_what_a_match_says_of_names() -> None:
    pattern = Pattern("p", chain(F, lambda v: op("nn.relu")(op("sigmoid")(v)).named("block"), most=3))
    two = call("nn.relu", call("sigmoid", call("nn.relu", call("sigmoid", X))))
    found = match(pattern, two)
    assert isinstance(found, Match)
    assert found["x"] is X
    assert found.all("block")[-1] is found.root is two
    with pytest.raises(PluginError, match="matches 2 nodes here") as caught:
        found["block"]
    assert caught.value.hint == "match.all('block') gives them all"
    with pytest.raises(PluginError, match="names no part 'blok'") as caught:
        found.get("blok")
    assert caught.value.hint == "did you mean 'block'?"
    term = optional(RELU, lambda v: op("sigmoid")(v).named("after"))
    found = match(Pattern("p", term), ROOT)
    assert isinstance(found, Match)
    with pytest.raises(PluginError, match="'after' of pattern 'p' matches no nodes here"):
        found["after"]
    with pytest.raises(PluginError, match="names no part 3"):
        found.get(3)  # type: ignore[arg-type]  # a number names no part


def test_captures_are_typed() -> None:
    product = op("nn.dense")(wildcard("float32").named("data"), constant("float32").named("weight")).named("product")
    biased = optional(product, lambda value: op("add")(value, constant("float32").named("bias")))
    weight = const(np.ones((3, 2), np.float32))
    root = call("nn.dense", Var("d", TensorType((4, 2), "float32")), weight)
    found = match(Pattern("p.dense", biased), root)
    assert isinstance(found, Match)
    assert (found.call("product"), found.constant("weight")) == (root, weight)
    assert "weight" in found and "bias" not in found
    for name, ask, said in (
        ("weight", found.call, "'weight' of pattern 'p.dense' is not a call here, but a constant"),
        ("product", found.constant, "'product' of pattern 'p.dense' is not a constant here, but nn.dense"),
        ("bias", found.constant, "'bias' of pattern 'p.dense' matches no nodes here"),
        ("bais", found.__contains__, "pattern 'p.dense' names no part 'bais'"),
    ):
        with pytest.raises(PluginError, match=re.escape(said)):
            ask(name)
    with pytest.raises(PluginError, match="is asked for its function before it was taken"):
        _ = found.function


def test_inputs_are_given_once_and_never_what_is_computed() -> None:
    r = call("nn.relu", X)
    found = match(Pattern("p", op("add")(op("nn.relu")(wildcard("float32")), wildcard("float32"))), call("add", r, r))
    assert isinstance(found, Match)
    assert (found.inputs, found.nodes) == ((X,), (r, call("add", r, r)))
    three = op("concatenate")(*[wildcard("float32") for _ in range(3)], axis=0)
    found = match(Pattern("p", three), call("concatenate", X, r, X, axis=0))
    assert isinstance(found, Match)
    assert found.inputs == (X, r)
    one = const(np.ones(4, np.float32))
    found = match(Pattern("p", op("add")(constant("float32"), constant("float32"))), call("add", one, one))
    assert isinstance(found, Match)
    assert found.constants == (one,)


def test_matches_are_values() -> None:
    pattern = Pattern("p", RELU)
    assert match(pattern, ROOT) == match(pattern, ROOT)
    assert len({match(pattern, ROOT), match(pattern, ROOT)}) == 1
    found = match(pattern, ROOT)
    assert isinstance(found, Match)
    with pytest.raises(TypeError):
        found.captures["x"] = ()  # type: ignore[index]  # read-only: the test is about that


def test_a_root_must_be_in_the_graph() -> None:
    with pytest.raises(PluginError, match="is not part of the graph in which pattern 'p' is sought"):
        match(Pattern("p", RELU), ROOT, Graph(X))
