"""Why an op is not taken: the closest pattern, the first condition that failed, and the value that failed it."""

from __future__ import annotations

import json

import numpy as np

from uma.relay import Expr, FixedPoint, TensorType, TupleGetItem, Var, call, const
from uma.relay.pattern import (
    Clause,
    Graph,
    Match,
    Mismatch,
    Pattern,
    PatternTable,
    any_,
    any_of,
    chain,
    closest_pattern,
    constant,
    match,
    op,
    optional,
    outputs,
    tuple_item,
    wildcard,
)
from uma.support.json_record import to_json

X = Var("x", TensorType((1, 8, 8, 4), "int8"))
F = Var("f", TensorType((4,), "float32"))

CONV = op("qnn.conv2d")(wildcard("int8"), constant("int8"), padding=any_)
SCALED = op("qnn.requantize")(
    optional(CONV, lambda v: op("add")(v, constant("int32").named("bias"))), scale=any_, axis=-1, dtype="int8"
)
DENSE = op("qnn.requantize")(op("qnn.dense")(wildcard("int8"), constant("int8")), scale=any_, axis=-1, dtype="int8")
TABLE = PatternTable(
    [
        Pattern("dense", DENSE),
        Pattern("conv", SCALED, [Clause("few", lambda m: m.get("bias") is None, "there is no bias")]),
        Pattern("clip", op("clip")(wildcard("int8"), a_min=any_, a_max=any_)),
    ]
)


def conv(**attrs: object) -> Expr:
    return call("qnn.conv2d", X, const(np.ones((3, 3, 4, 4), np.int8)), **attrs)


def scaled(value: Expr) -> Expr:
    return call("qnn.requantize", value, scale=FixedPoint((2**30,), (-5,), "up"), axis=-1, dtype="int8")


def test_the_pattern_that_got_farthest_is_told() -> None:
    root = scaled(conv(dilation=(2, 2)))
    told = closest_pattern(TABLE, root)
    assert told.text == (
        "pattern conv came closest to qnn.requantize: "
        "qnn.conv2d: attribute dilation is (2, 2), the pattern takes (1, 1)"
    )
    assert (told.pattern, told.root, told.matched) == ("conv", root, (root,))
    assert told.failure is not None
    assert (told.failure.kind, told.failure.actual, told.failure.wanted) == ("attribute", "(2, 2)", "(1, 1)")
    assert told.failure.at is conv(dilation=(2, 2))


def test_a_predicate_that_fails_is_closest_of_all() -> None:
    root = scaled(call("add", conv(), const(np.ones(4, np.int32))))
    told = closest_pattern(TABLE, root)
    assert told.text == "pattern conv came closest to qnn.requantize: clause few: there is no bias"
    assert len(told.matched) == 3


def test_among_equals_the_first_pattern_is_told() -> None:
    told = closest_pattern(TABLE, scaled(call("cast", X, dtype="int32")))
    assert told.text == (
        "pattern dense came closest to qnn.requantize: operand 'data' of qnn.requantize is cast, "
        "the pattern takes qnn.dense"
    )


def test_an_op_inside_of_a_pattern_is_explained_by_its_surroundings() -> None:
    inner = conv()
    biased = call("add", inner, const(np.ones(4, np.int32)))
    root = scaled(biased)
    told = closest_pattern(TABLE, inner, Graph(root))
    assert (told.pattern, told.root, told.failure and told.failure.kind) == ("conv", root, "clause")
    told = closest_pattern(TABLE, inner, Graph(call("nn.relu", inner)))
    assert told.text == "qnn.conv2d is taken by conv only on the way to qnn.requantize, which is not so here"
    assert (told.pattern, told.root, told.matched, told.failure) == (None, None, (), None)
    # Something of the pattern follows, but not as it should.
    told = closest_pattern(TABLE, inner, Graph(scaled(call("multiply", inner, const(np.ones(4, np.int32))))))
    assert told.text == (
        "pattern conv came closest to qnn.conv2d: operand 'data' of qnn.requantize is multiply, "
        "the pattern takes add or qnn.conv2d"
    )


def test_a_match_beside_the_op_is_no_match_of_it() -> None:
    gate = op("tanh")(op("sigmoid")(wildcard("float32")))
    either = any_of(gate, op("add")(wildcard("float32"), wildcard("float32")))
    table = PatternTable([Pattern("p", op("nn.relu")(either))])
    sigmoid = call("sigmoid", F)
    told = closest_pattern(table, sigmoid, Graph(call("nn.relu", call("add", F, sigmoid))))
    assert told.text == "sigmoid is taken by p only on the way to nn.relu, which is not so here"


def test_what_no_pattern_knows() -> None:
    told = closest_pattern(TABLE, call("nn.softmax", F, axis=-1))
    assert told.text == "no pattern takes nn.softmax"
    assert closest_pattern(PatternTable(), scaled(conv())).text == "no pattern takes qnn.requantize"


def test_what_is_taken_after_all() -> None:
    root = scaled(conv())
    for expr in (root, conv()):
        told = closest_pattern(TABLE, expr, Graph(root))
        assert (told.pattern, told.root, told.failure) == ("conv", root, None)
    assert told.text == "pattern conv takes qnn.conv2d"


def test_records_are_plain_data() -> None:
    record = to_json(closest_pattern(TABLE, scaled(conv(groups=1, strides=(2, 2)))))
    assert json.loads(json.dumps(record)) == {
        "op": "qnn.requantize",
        "pattern": "conv",
        "matched": ["qnn.requantize"],
        "failure": {
            "kind": "attribute",
            "at": "qnn.conv2d",
            "subject": "qnn.conv2d: attribute strides",
            "found": "(2, 2)",
            "wanted": "(1, 1)",
            "reason": "qnn.conv2d: attribute strides is (2, 2), the pattern takes (1, 1)",
        },
        "text": "pattern conv came closest to qnn.requantize: "
        "qnn.conv2d: attribute strides is (2, 2), the pattern takes (1, 1)",
    }
    assert to_json(closest_pattern(TABLE, F))["failure"] is None


def test_fields_of_tuples_are_described() -> None:
    split = call("split", F, indices=(2,), axis=0)
    halves = op("split")(wildcard("float32"), indices=any_, axis=0)
    table = PatternTable([Pattern("p", op("tanh")(tuple_item(halves, 0)))])
    told = closest_pattern(table, call("tanh", TupleGetItem(split, 1)))
    assert told.text.endswith("operand 'data' of tanh: the field of split is 1, the pattern takes 0")
    told = closest_pattern(table, call("tanh", call("nn.relu", TupleGetItem(split, 1))))
    assert told.text.endswith("operand 'data' of tanh is nn.relu, the pattern takes a field of a tuple")
    told = closest_pattern(
        PatternTable([Pattern("p", op("tanh")(op("sigmoid")(wildcard(any_))))]), call("tanh", TupleGetItem(split, 1))
    )
    assert told.text.endswith("operand 'data' of tanh is field 1 of split, the pattern takes sigmoid")
    pair = Var("pair", split.type)
    told = closest_pattern(table, call("tanh", TupleGetItem(pair, 0)))
    assert told.text.endswith("the tuple of field 0 is an input of the function, the pattern takes split")


def test_a_pattern_that_can_be_laid_in_too_many_ways_is_given_up() -> None:
    g = Var("g", F.type)
    sums = [op("add")(wildcard("float32"), wildcard("float32")) for _ in range(30)]
    values = [call("add", F, g)] * 30
    pattern = Pattern("p", op("concatenate")(*sums, constant("float32"), axis=0))
    found = match(pattern, call("concatenate", *values, F, axis=0))
    assert isinstance(found, Mismatch)
    assert found.failure.kind == "steps"
    assert "the pattern can be laid in too many ways here" in found.failure.reason
    assert isinstance(match(pattern, call("concatenate", *values, const(np.ones(4, np.float32)), axis=0)), Match)


def test_other_outputs_are_not_sought_everywhere() -> None:
    inner = op("tanh")(wildcard("float32"))
    pattern = Pattern("p", outputs(op("nn.relu")(inner), op("sigmoid")(inner)))
    value = call("tanh", F)
    uses = [call("clip", value, a_min=-number, a_max=1) for number in range(3000)]
    root = call("nn.relu", value)
    few, many = (Graph(call("concatenate", *uses[:n], root, call("sigmoid", value), axis=0)) for n in (10, 3000))
    assert isinstance(match(pattern, root, few), Match)
    found = match(pattern, root, many)
    assert isinstance(found, Mismatch)
    assert found.failure.kind == "steps"


def test_graphs_are_only_looked_at_nearby() -> None:
    inner = conv()
    results = [call("clip", inner, a_min=-number, a_max=number) for number in range(1, 100)]
    for a in results[1:]:
        results[0] = call("maximum", results[0], a)
    told = closest_pattern(TABLE, inner, Graph(scaled(results[0])))
    assert told.pattern is None
    chained = PatternTable([Pattern("p", chain(wildcard("int32"), lambda v: op("nn.relu")(v), most=100))])
    assert closest_pattern(chained, inner, Graph(scaled(results[0]))).text == "no pattern takes qnn.conv2d"


def test_the_outputs_that_are_missing_are_told() -> None:
    inner = op("tanh")(wildcard("float32"))
    table = PatternTable([Pattern("p", outputs(op("sigmoid")(inner), op("nn.relu")(inner)))])
    told = closest_pattern(table, call("sigmoid", call("tanh", F)))
    assert told.text == (
        "pattern p came closest to sigmoid: there is no nn.relu for output 1 of the pattern, different from the others"
    )
