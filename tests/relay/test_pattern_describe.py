"""A pattern as text that people read."""

from __future__ import annotations

from uma.relay.pattern import (
    Pattern,
    Term,
    any_,
    any_of,
    chain,
    constant,
    describe,
    op,
    optional,
    outputs,
    tuple_item,
    where,
    wildcard,
)


def described(term: Term) -> list[str]:
    return describe(Pattern("device.p", term)).split("\n")


def test_calls_show_every_attribute_and_leaves_their_types() -> None:
    weight = constant("int8", shape=(3, any_, where(lambda n: n % 8 == 0, "a multiple of 8"), 8)).named("weight")
    conv = op("qnn.conv2d")(
        wildcard(("int8", "uint8"), rank=4).named("data"),
        weight,
        strides=where(lambda s: s[0] == s[1], "equal strides"),
        padding=any_,
    ).named("conv")
    assert described(optional(conv, lambda sums: op("add")(sums, constant("int32")))) == [
        "data: int8 or uint8 of rank 4",
        "weight: constant int8[3, any, <a multiple of 8>, 8]",
        "conv = qnn.conv2d(data, weight, strides=<equal strides>, padding=any, dilation=(1, 1), groups=1, "
        "input_zero_point=0, kernel_zero_point=0)",
        "v1 = add(conv, constant int32)",
        "v2 = v1 | conv",
        "result: v2",
    ]


def test_what_is_open_throughout_is_short_and_what_is_asked_of_a_value_stands_behind_its_name() -> None:
    assert described(op("clip")(wildcard(any_), a_min=any_, a_max=any_).typed("int8").private()) == [
        "v1: int8 = clip(any, ...)  # nothing else uses it",
        "result: v1",
    ]


def test_what_stands_at_two_places_has_a_line_of_its_own() -> None:
    y = wildcard("float32")
    assert described(op("multiply")(y, op("sigmoid")(y))) == [
        "v1: float32",
        "v2 = sigmoid(v1)",
        "v3 = multiply(v1, v2)",
        "result: v3",
    ]


def test_terms_that_share_a_name_are_told_apart() -> None:
    x = wildcard("int8").named("x")
    limit = any_of(op("clip")(x, a_min=0, a_max=any_).named("limit"), op("nn.relu")(x).named("limit"))
    assert described(limit) == [
        "x: int8",
        "v1 as limit = clip(x, a_min=0.0, a_max=any)",
        "v2 as limit = nn.relu(x)",
        "v3 = v1 | v2",
        "result: v3",
    ]


def test_a_chain_is_shown_once() -> None:
    x = wildcard("int8").named("x")
    assert described(chain(x, lambda value: op("nn.relu")(value), least=2, most=5)) == [
        "x: int8",
        "v1 = nn.relu(x)",
        "v2 = v1 | x",
        "v3 = nn.relu(v2)",
        "... and the same 2 times more, up to v7",
        "v8 = nn.relu(v7)",
        "result: v8",
    ]
    start = op("tanh")(x).named("start")
    assert described(chain(start, lambda value: op("nn.relu")(op("sigmoid")(value)), least=0, most=1000)) == [
        "x: int8",
        "start = tanh(x)",
        "v1 = sigmoid(start)",
        "v2 = nn.relu(v1)",
        "v3 = v2 | start",
        "v4 = sigmoid(v3)",
        "... and the same 998 times more, up to v2998",
        "v2999 = nn.relu(v2998)",
        "v3000 = v2999 | start",
        "result: v3000",
    ]


def test_several_results() -> None:
    halves = op("split")(wildcard("float32"), indices=any_, axis=-1)
    gates = Pattern("device.gates", outputs(op("sigmoid")(tuple_item(halves, 0)), op("tanh")(tuple_item(halves, 1))))
    assert describe(gates).split("\n") == [
        "v1 = split(float32, indices=any, axis=-1)",
        "v2 = v1[0]",
        "v3 = sigmoid(v2)",
        "v4 = v1[1]",
        "v5 = tanh(v4)",
        "result: v3, v5",
    ]
