"""Pins of calls: part of what they are, printed with them, and handed on by whatever rewrites them."""

from __future__ import annotations

import copy

import numpy as np
import pytest

from uma.errors import TextError
from uma.relay import Call, Expr, Function, IRModule, Spans, TensorType, Tuple, TupleGetItem, Var, call, const
from uma.relay.evaluate import evaluate
from uma.relay.text import parse_module, print_module
from uma.relay.transform import canonicalise
from uma.relay.visit import post_order, rewrite, substitute, with_children, with_pin, without_pin

X = Var("x", TensorType((2, 4), "int32"))
Y = Var("y", TensorType((2, 4), "int32"))
IMAGE = Var("image", TensorType((1, 8, 8, 4), "int8"))


def module_of(body: Expr, *params: Var) -> IRModule:
    return IRModule.from_functions({"main": Function(params, body)}, Spans({e: ["layer"] for e in post_order(body)}))


def canonical(body: Expr, *params: Var) -> list[tuple[str | None, str | None]]:
    """The ops of the canonical form and their pins; it computes the same, and is what it is."""
    module = module_of(body, *params)
    made = canonicalise(module)
    assert canonicalise(made) == made
    rng = np.random.default_rng(0)
    inputs = {p.name: rng.integers(-100, 100, p.shape).astype(p.dtype) for p in params}
    for got, expected in zip(evaluate(made, inputs), evaluate(module, inputs), strict=True):
        np.testing.assert_array_equal(got, expected)
    return [(e.op_name, e.pin) for e in post_order(made.main.body) if isinstance(e, Call)]


class TestIdentity:
    def test_a_pin_is_part_of_the_call(self) -> None:
        plain = call("add", X, Y)
        assert plain.pin is None
        pinned = plain.pinned("npu")
        assert (pinned.pin, pinned.op, pinned.args, pinned.type) == ("npu", plain.op, plain.args, plain.type)
        assert pinned is not plain and pinned is call("add", X, Y).pinned("npu")
        assert pinned.pinned("npu") is pinned and pinned.pinned(None) is plain
        assert pinned.pinned("c") is Call(plain.op, [X, Y], None, "c")
        assert copy.deepcopy(pinned) is pinned

    def test_it_stays_with_other_children(self) -> None:
        pinned = call("add", X, Y).pinned("npu")
        assert with_children(pinned, [Y, X]) is call("add", Y, X).pinned("npu")
        assert substitute(pinned, {X: Y}) is call("add", Y, Y).pinned("npu")

    def test_helpers(self) -> None:
        plain, pinned = call("add", X, Y), call("add", X, Y).pinned("npu")
        assert with_pin(plain, "npu") is pinned and with_pin(pinned, "c") is pinned and with_pin(plain, None) is plain
        assert with_pin(X, "npu") is X
        nested = Call(Function([X], X), [Y])
        assert with_pin(nested, "npu") is nested.pinned("npu")
        assert without_pin(pinned) is plain and without_pin(X) is X

    def test_a_rewrite_hands_it_on(self) -> None:
        def rule(expr: Expr) -> Expr | None:
            if isinstance(expr, Call) and expr.op_name == "add":
                return call("subtract", *expr.args)
            return expr.args[0] if isinstance(expr, Call) and expr.op_name == "nn.relu" else None

        body = call("add", X, call("nn.relu", call("maximum", X, Y)).pinned("c")).pinned("npu")
        made = rewrite(body, rule)
        assert made is call("subtract", X, call("maximum", X, Y)).pinned("npu")
        assert rewrite(body, lambda expr: None) is body


class TestText:
    def test_it_stands_behind_the_call(self) -> None:
        module = module_of(call("nn.relu", call("add", X, Y).pinned("npu0")).pinned("C"), X, Y)
        text, constants = print_module(module)
        assert "= add(x, y) @ 'npu0'\n" in text and "@ 'C'\n" in text
        assert parse_module(text, constants) == module

    @pytest.mark.parametrize(
        ("written", "what"),
        [
            ("x @ 'npu'", "expected a call and the label that it is pinned to"),
            ("nn.relu(x) @ npu", "expected a literal"),
            ("nn.relu(x) @ 3", "expected a call and the label that it is pinned to"),
            ("nn.relu(x) @ 'a' @ 'b'", "expected a call and the label that it is pinned to"),
            ("nn.relu(x) @ 'a b'", "'a b' is not a label to pin a call to"),
            ("nn.relu(x) + 'a'", "expected a call, a name, a tuple or a field"),
            ("const(1, int32) @ 'a'", "expected a call and the label that it is pinned to"),
        ],
    )
    def test_what_is_none(self, written: str, what: str) -> None:
        text = (
            "@function\ndef main(x: Tensor[(2, 4), int32]) -> Tensor[(2, 4), int32]:\n"
            f"    v0 = {written}\n    return v0\n"
        )
        with pytest.raises(TextError) as caught:
            parse_module(text)
        assert what in caught.value.what
        assert caught.value.line == 3


class TestCanonical:
    def test_what_stays_as_it_is(self) -> None:
        body = call("nn.relu", call("add", X, Y).pinned("npu")).pinned("c")
        assert canonical(body, X, Y) == [("add", "npu"), ("nn.relu", "c")]

    def test_a_clip_that_is_a_relu(self) -> None:
        assert canonical(call("clip", X, a_min=0, a_max=2**40).pinned("npu"), X) == [("nn.relu", "npu")]

    def test_what_does_nothing_hands_on_nothing(self) -> None:
        assert canonical(call("cast", call("add", X, Y), dtype="int32").pinned("npu"), X, Y) == [("add", None)]

    def test_a_relu_of_a_relu(self) -> None:
        assert canonical(call("nn.relu", call("nn.relu", X)).pinned("npu"), X) == [("nn.relu", None)]

    @pytest.mark.parametrize(("outer", "inner", "pin"), [("a", None, "a"), (None, "a", "a"), ("a", "b", "a")])
    def test_movements_that_become_one(self, outer: str | None, inner: str | None, pin: str) -> None:
        flat = call("reshape", X, newshape=(8,)).pinned(inner)
        assert canonical(call("reshape", flat, newshape=(4, 2)).pinned(outer), X) == [("reshape", pin)]
        turned = call("transpose", X, axes=(1, 0)).pinned(inner)
        cube = Var("cube", TensorType((2, 3, 4), "int32"))
        turned = call("transpose", cube, axes=(1, 0, 2)).pinned(inner)
        assert canonical(call("transpose", turned, axes=(0, 2, 1)).pinned(outer), cube) == [("transpose", pin)]

    def test_a_squeeze(self) -> None:
        thin = Var("thin", TensorType((1, 4), "int32"))
        assert canonical(call("squeeze", thin, axis=(0,)).pinned("npu"), thin) == [("reshape", "npu")]

    def test_permutations_that_move_on(self) -> None:
        turned = call("transpose", X, axes=(1, 0)).pinned("c")
        assert canonical(call("nn.relu", turned).pinned("npu"), X) == [("nn.relu", "npu"), ("transpose", "c")]

    def test_parts_of_a_split(self) -> None:
        turned = call("transpose", X, axes=(1, 0))
        parts = call("split", turned, indices=(2,), axis=0).pinned("npu")
        body = Tuple([TupleGetItem(parts, 0), TupleGetItem(parts, 1)])
        assert ("split", "npu") in canonical(body, X)

    def test_reshapes_that_move_on(self) -> None:
        flat = call("reshape", call("add", X, Y), newshape=(8,)).pinned("c")
        assert canonical(call("nn.relu", flat).pinned("npu"), X, Y) == [
            ("add", None),
            ("nn.relu", "npu"),
            ("reshape", "c"),
        ]

    @pytest.mark.parametrize(("pad", "pool", "pin"), [("a", None, "a"), (None, "a", "a"), ("a", "a", "a")])
    def test_a_pad_that_becomes_padding(self, pad: str | None, pool: str | None, pin: str) -> None:
        assert canonical(padded(pad, pool), IMAGE) == [("nn.max_pool2d", pin)]

    def test_a_pad_of_another_target(self) -> None:
        assert canonical(padded("a", "b"), IMAGE) == [("nn.pad", "a"), ("nn.max_pool2d", "b")]

    def test_global_pools(self) -> None:
        x = Var("x", TensorType((1, 4, 4, 2), "float32"))
        body = call("mean", x, axis=(1, 2)).pinned("npu")
        made = canonicalise(module_of(body, x)).main.body
        calls = [(e.op_name, e.pin) for e in post_order(made) if isinstance(e, Call)]
        assert calls == [("nn.global_avg_pool", "npu"), ("reshape", None)]
        body = call("nn.max_pool2d", IMAGE, pool_size=(8, 8)).pinned("npu")
        assert canonical(body, IMAGE)[0] == ("nn.global_max_pool", "npu")

    def test_a_mean_over_nothing(self) -> None:
        thin = Var("thin", TensorType((1, 4), "int32"))
        assert canonical(call("sum", thin, axis=(0,), keepdims=False).pinned("npu"), thin) == [("reshape", "npu")]

    def test_a_dense_layer_of_a_permutation(self) -> None:
        image = Var("image", TensorType((1, 2, 3, 4), "int8"))
        turned = call("transpose", image, axes=(0, 3, 1, 2))
        flat = call("reshape", turned, newshape=(1, 24)).pinned("c")
        weight = const(np.arange(48, dtype=np.int8).reshape(2, 24))
        body = call("qnn.dense", flat, weight).pinned("npu")
        assert canonical(body, image) == [("reshape", "c"), ("qnn.dense", "npu")]


def padded(pad: str | None, pool: str | None) -> Expr:
    data = call("nn.pad", IMAGE, pad_width=(0, 1, 1, 0, 0, 1, 1, 0), pad_value=-128).pinned(pad)
    return call("nn.max_pool2d", data, pool_size=(3, 3), strides=(2, 2)).pinned(pool)
