"""Attention that files spell out, put together, and what only resembles it."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tests._support.partitions import inputs_of
from tests._support.plugins import module_of
from tests.networks import NETWORKS

from uma.frontends import import_model
from uma.relay import Call, Expr, Function, IRModule, TensorType, Tuple, Var, call, const, post_order
from uma.relay.evaluate import evaluate
from uma.relay.pattern import Graph
from uma.relay.transform import canonicalise
from uma.relay.transform.attention import attentions, with_attention

HEADS, M, N, D, C = 2, 3, 5, 4, 6
Q = Var("q", TensorType((1, HEADS, M, D), "float32"))
K = Var("k", TensorType((1, HEADS, N, D), "float32"))
V = Var("v", TensorType((1, HEADS, N, C), "float32"))
MASK = Var("mask", TensorType((M, N), "float32"))
KT = call("transpose", K, axes=(0, 1, 3, 2))
SCALE = 1 / math.sqrt(3)
ROOT = math.sqrt(SCALE)


def number(value: float, *shape: int) -> Expr:
    return const(np.full(shape, value, np.float32))


def times(data: Expr, value: float) -> Expr:
    return call("multiply", data, number(value))


def over(data: Expr, value: float) -> Expr:
    return call("divide", data, number(value))


def dot(a: Expr, b: Expr) -> Expr:
    return call("matmul", a, b)


def weights(scores: Expr) -> Expr:
    return call("nn.softmax", scores, axis=-1)


def swapped(data: Expr) -> Expr:
    return call("transpose", data, axes=(0, 1, 3, 2))


ROWS = Var("rows", TensorType((1, N, HEADS * D), "float32"))
SPLIT = call("transpose", call("reshape", ROWS, newshape=(1, N, HEADS, D)), axes=(0, 2, 3, 1))
ONE_HEAD = Var("one", TensorType((N, D), "float32"))

FORMS: dict[str, tuple[Expr, float]] = {
    "no scale": (dot(Q, KT), 1.0),
    "multiplied": (times(dot(Q, KT), SCALE), SCALE),
    "divided": (over(dot(Q, KT), math.sqrt(3)), SCALE),
    "divided by a power of two": (over(dot(Q, KT), 2.0), 0.5),
    "number first": (call("multiply", number(SCALE), dot(Q, KT)), SCALE),
    "number of a shape": (call("multiply", dot(Q, KT), number(SCALE, 1, 1)), SCALE),
    "queries scaled": (dot(times(Q, SCALE), KT), SCALE),
    "queries divided": (dot(over(Q, math.sqrt(3)), KT), SCALE),
    "keys scaled": (dot(Q, swapped(times(K, SCALE))), SCALE),
    "permuted keys scaled": (dot(Q, times(KT, SCALE)), SCALE),
    "both by the root": (dot(times(Q, ROOT), swapped(times(K, ROOT))), SCALE),
    "heads split": (times(dot(Q, SPLIT), SCALE), SCALE),
    "one head": (dot(Q, call("reshape", call("transpose", ONE_HEAD, axes=(1, 0)), newshape=(1, 1, D, N))), 1.0),
    "constant keys": (dot(Q, const(np.linspace(-1, 1, D * N, dtype=np.float32).reshape(D, N))), 1.0),
}


@pytest.mark.parametrize("mask", ["none", "behind", "in front"])
@pytest.mark.parametrize("form", FORMS)
def test_forms_of_exporters(form: str, mask: str) -> None:
    scores, scale = FORMS[form]
    added = {"none": scores, "behind": call("add", scores, MASK), "in front": call("add", MASK, scores)}[mask]
    module = canonicalise(module_of(dot(weights(added), V)))
    made = with_attention(module)
    assert made.before is module
    (whole,) = made.calls.values()
    assert isinstance(whole, Call) and whole is made.module.main.body
    assert whole.op_name == "nn.attention" and len(whole.args) == (3 if mask == "none" else 4)
    assert whole.attrs.scale == pytest.approx(scale, rel=1e-6)
    assert {e.op_name for e in post_order(whole) if isinstance(e, Call)} <= {"nn.attention", "transpose", "reshape"}
    assert_equal(module, made.module)


def assert_equal(before: IRModule, after: IRModule) -> None:
    """The two give the same, to few roundings."""
    given = inputs_of(before.main)
    expected, got = (evaluate(module, given)[0] for module in (before, after))
    assert np.abs(expected - got).max() <= 1e-5 * np.abs(expected).max()


def test_by_its_definition() -> None:
    """In float64, beside numpy."""
    q, k, v, mask = (Var(one.name, TensorType(one.shape, "float64")) for one in (Q, K, V, MASK))
    kt = call("transpose", k, axes=(0, 1, 3, 2))
    scaled = call("multiply", call("matmul", q, kt), const(np.float64(0.3)))
    module = module_of(dot(weights(call("add", scaled, mask)), v))
    given = inputs_of(module.main)
    scores = given["q"] @ given["k"].swapaxes(-1, -2) * 0.3 + given["mask"]
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    expected = powers / powers.sum(-1, keepdims=True) @ given["v"]
    got = evaluate(with_attention(module).module, given)[0]
    np.testing.assert_allclose(got, expected, rtol=1e-12)


PRODUCT = times(dot(Q, KT), SCALE)
WEIGHTS = weights(PRODUCT)
SQUARE = Var("square", TensorType((1, HEADS, D, N), "float32"))

OTHERS: dict[str, Expr] = {
    "softmax over another axis": dot(call("nn.softmax", PRODUCT, axis=-2), V),
    "second use of the weights": call("multiply", dot(WEIGHTS, V), call("sum", WEIGHTS, axis=(), keepdims=False)),
    "second use of the scores": call("multiply", dot(WEIGHTS, V), call("sum", PRODUCT, axis=(), keepdims=False)),
    "keys that are not permuted": dot(weights(dot(Q, SQUARE)), V),
    "no product": dot(weights(MASK), Var("w", TensorType((N, C), "float32"))),
    "a mask that makes more of the scores": dot(
        weights(call("add", dot(Var("q1", TensorType((1, HEADS, 1, D), "float32")), KT), MASK)), V
    ),
    "scaled by a tensor": dot(weights(call("multiply", dot(Q, KT), MASK)), V),
    "scaled by nothing": dot(weights(times(dot(Q, KT), 0.0)), V),
    "rounded between": dot(weights(call("cast", call("cast", PRODUCT, dtype="float16"), dtype="float32")), V),
    "weights behind": dot(Var("x", TensorType((1, HEADS, C, M), "float32")), WEIGHTS),
}


@pytest.mark.parametrize("form", OTHERS)
def test_what_only_resembles_it_stays(form: str) -> None:
    module = module_of(OTHERS[form])
    made = with_attention(module)
    assert made.module is module and not made.calls


def test_what_is_a_result_too_stays() -> None:
    both = Tuple([dot(WEIGHTS, V), WEIGHTS])
    assert list(attentions(Graph(Function([Q, K, V], both)))) == []
    module = IRModule.from_functions({"main": Function([Q, K, V], both)})
    assert with_attention(module).module is module


def test_pins_and_layers() -> None:
    scores = dot(Q, KT)
    assert isinstance(scores, Call)

    def body(first: str | None, last: str | None) -> tuple[Expr, Expr]:
        pinned = scores.pinned(first)
        product = call("matmul", weights(times(pinned, SCALE)), V).pinned(last)
        return product, pinned

    product, pinned = body("npu", None)
    made = with_attention(module_of(product, {pinned: ["scores"], product: ["mixed"], KT: ["keys"]}))
    (whole,) = made.calls.values()
    assert isinstance(whole, Call) and whole.pin == "npu"
    assert set(made.module.spans[whole]) == {"scores", "mixed", "keys"}
    product, _ = body("npu", "other")
    assert not with_attention(module_of(product)).calls


def test_some_may_be_left_in_pieces() -> None:
    first = dot(WEIGHTS, V)
    queries = call("strided_slice", first, begin=(0, 0, 0, 0), end=(1, HEADS, M, D), strides=(1, 1, 1, 1))
    second = dot(weights(dot(queries, call("transpose", K, axes=(0, 1, 3, 2)))), V)
    # Both use kT, which is nobody's own then.
    assert not with_attention(module_of(second)).calls
    keys = call("tanh", K)
    second = dot(weights(dot(queries, swapped(keys))), V)
    module = module_of(second)
    assert set(with_attention(module).calls) == {first, second}
    made = with_attention(module, but={first})
    assert set(made.calls) == {second}
    assert made.replacements[first] is first
    assert_equal(module, made.module)


@pytest.mark.parametrize("name", ["bert", "t5_encoder", "decoder"])
def test_what_a_file_spells_out(name: str) -> None:
    module = canonicalise(import_model(NETWORKS[name]().SerializeToString()).module)
    made = with_attention(module)
    softmax = [e for e in post_order(module.main.body) if isinstance(e, Call) and e.op_name == "nn.softmax"]
    assert len(made.calls) == len(softmax) == 2
    assert not any(isinstance(e, Call) and e.op_name == "nn.softmax" for e in post_order(made.module.main.body))
