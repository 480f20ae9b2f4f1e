"""Idioms that are put back together, and what only resembles them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tests._support.relay_strategies import assert_same, values_of

from uma.relay.evaluate import evaluate
from uma.relay.expr import Call, Expr, Function, Var, call, const
from uma.relay.module import IRModule, Spans
from uma.relay.transform import canonicalise
from uma.relay.types import TensorType
from uma.relay.visit import post_order

X = Var("x", TensorType((2, 3, 4), "float32"))
Y = call("tanh", X)
PRODUCT = call("multiply", X, Y)


def f32(value: float) -> Expr:
    return const(np.float32(value))


def mul(*factors: Expr | float) -> Expr:
    first, *rest = [f if isinstance(f, Expr) else f32(f) for f in factors]
    for factor in rest:
        first = call("multiply", first, factor)
    return first


def div(a: Expr, b: Expr | float) -> Expr:
    return call("divide", a, b if isinstance(b, Expr) else f32(b))


def plus(a: Expr | float, b: Expr | float) -> Expr:
    return call("add", *(v if isinstance(v, Expr) else f32(v) for v in (a, b)))


def erf(x: Expr) -> Expr:
    return call("erf", x)


def tanh(x: Expr) -> Expr:
    return call("tanh", x)


def power(x: Expr, exponent: float) -> Expr:
    return call("power", x, f32(exponent))


def ramp(x: Expr, low: float, high: float) -> Expr:
    return call("clip", x, a_min=low, a_max=high)


def mean(x: Expr, *axes: int, keepdims: bool = True) -> Expr:
    return call("mean", x, axis=axes, keepdims=keepdims)


def centred(x: Expr, *axes: int) -> Expr:
    return call("subtract", x, mean(x, *axes))


def root(x: Expr, *axes: int, epsilon: float = 1e-5) -> Expr:
    return call("sqrt", plus(mean(power(centred(x, *axes), 2), *axes), epsilon))


PI = math.sqrt(2 / math.pi)
ROOT = math.sqrt(2)
ZERO = f32(0)
EPSILON = float(np.float32(1e-5))

GELU, BY_TANH = call("nn.gelu", X), call("nn.gelu", X, approximate="tanh")
SWISH = call("nn.hard_swish", X)
LEAKY = call("nn.leaky_relu", X, alpha=float(np.float32(0.1)))
NORM = call("nn.layer_norm", X, axis=(-1,), epsilon=EPSILON)
RMS = call("nn.rms_norm", X, axis=(-1,), epsilon=EPSILON)
SQUARES = plus(mean(mul(X, X), -1), EPSILON)

TOGETHER: dict[str, tuple[Expr, Expr]] = {
    "gelu as of PyTorch": (mul(mul(X, plus(erf(div(X, ROOT)), 1)), 0.5), GELU),
    "gelu, half first": (mul(mul(0.5, X), plus(1, erf(mul(X, 1 / ROOT)))), GELU),
    "gelu, half inside": (mul(X, mul(0.5, plus(1, erf(mul(1 / ROOT, X))))), GELU),
    "gelu, divided by two": (div(mul(X, plus(erf(div(X, ROOT)), 1)), 2), GELU),
    "gelu of a product": (mul(PRODUCT, plus(erf(div(PRODUCT, ROOT)), 1), 0.5), call("nn.gelu", PRODUCT)),
    "gelu, twice over": (mul(X, plus(erf(div(X, ROOT)), 1), 0.5, 3), mul(GELU, 3)),
    "gelu by tanh": (
        mul(mul(0.5, X), plus(1, tanh(mul(PI, plus(X, mul(0.044715, power(X, 3))))))),
        BY_TANH,
    ),
    "gelu by tanh, multiplied out": (mul(X, plus(tanh(mul(plus(mul(X, X, X, 0.044715), X), PI)), 1), 0.5), BY_TANH),
    "gelu by tanh, as of Keras": (
        mul(mul(0.5, X), plus(1, tanh(mul(X, PI, plus(1, mul(0.044715, X, X)))))),
        BY_TANH,
    ),
    "hard swish as of PyTorch": (div(mul(X, ramp(plus(X, 3), 0, 6)), 6), SWISH),
    "hard swish, sixth first": (mul(X, mul(ramp(plus(3, X), 0, 6), 1 / 6)), SWISH),
    "hard swish of a hard sigmoid": (mul(X, ramp(plus(mul(X, 1 / 6), 0.5), 0, 1)), SWISH),
    "leaky relu": (call("maximum", X, mul(X, 0.1)), LEAKY),
    "leaky relu, other way around": (call("maximum", mul(0.1, X), X), LEAKY),
    "leaky relu by choice": (call("where", call("greater", X, ZERO), X, mul(X, 0.1)), LEAKY),
    "leaky relu by the other choice": (call("where", call("less", X, ZERO), mul(X, 0.1), X), LEAKY),
    "leaky relu of halves": (plus(call("nn.relu", X), mul(call("minimum", X, ZERO), 0.1)), LEAKY),
    "layer norm": (div(centred(X, -1), root(X, -1)), NORM),
    "layer norm by a product": (mul(div(f32(1), root(X, -1)), centred(X, -1)), NORM),
    "layer norm by rsqrt": (
        mul(centred(X, -1), call("rsqrt", plus(EPSILON, mean(mul(centred(X, -1), centred(X, -1)), -1)))),
        NORM,
    ),
    "layer norm over two axes": (
        div(centred(X, 0, 2), root(X, 0, 2)),
        call("nn.layer_norm", X, axis=(0, 2), epsilon=EPSILON),
    ),
    "rms norm": (div(X, call("sqrt", SQUARES)), RMS),
    "rms norm of a power": (div(X, call("sqrt", plus(EPSILON, mean(power(X, 2), -1)))), RMS),
    "rms norm by rsqrt": (mul(call("rsqrt", SQUARES), X), RMS),
    "rms norm by a product": (mul(X, div(f32(1), call("sqrt", SQUARES))), RMS),
}

APART: dict[str, Expr] = {
    "gelu with another half": mul(X, plus(erf(div(X, ROOT)), 1), 0.51),
    "gelu with another root": mul(X, plus(erf(div(X, 1.4142)), 1), 0.5),
    "gelu of another number": mul(X, plus(erf(div(Y, ROOT)), 1), 0.5),
    "gelu with another one": mul(X, plus(erf(div(X, ROOT)), 2), 0.5),
    "gelu by tanh with another cube": mul(0.5, X, plus(1, tanh(mul(PI, plus(X, mul(0.0447, X, X, X)))))),
    "gelu by tanh of a square": mul(0.5, X, plus(1, tanh(mul(PI, plus(X, mul(0.044715, X, X)))))),
    "hard swish with another offset": mul(X, ramp(plus(X, 2), 0, 6), 1 / 6),
    "hard swish with another limit": mul(X, ramp(plus(X, 3), 0, 5), 1 / 6),
    "hard swish of another number": mul(Y, ramp(plus(X, 3), 0, 6), 1 / 6),
    "leaky relu that is steeper below": call("maximum", X, mul(X, 1.5)),
    "leaky relu of another number": call("maximum", X, mul(Y, 0.1)),
    "leaky relu at another place": call("where", call("greater", X, f32(1)), X, mul(X, 0.1)),
    "leaky relu with a slope per channel": call("maximum", X, mul(X, const(np.full(4, 0.1, np.float32)))),
    "layer norm of other axes": div(centred(X, -1), root(X, -2)),
    "layer norm of another number": div(centred(X, -1), root(Y, -1)),
    "layer norm without a root": div(centred(X, -1), plus(mean(mul(centred(X, -1), centred(X, -1)), -1), 1e-5)),
    "rms norm of another number": div(Y, call("sqrt", SQUARES)),
    "rms norm of fourth powers": div(X, call("sqrt", plus(mean(mul(mul(X, X), mul(X, X)), -1), EPSILON))),
    "rms norm without a root": div(X, SQUARES),
    "rms norm with the root inside": div(X, plus(call("sqrt", mean(mul(X, X), -1)), EPSILON)),
    "layer norm with epsilons": div(
        centred(X, -1), call("sqrt", plus(mean(mul(centred(X, -1), centred(X, -1)), -1), const(np.ones(4, np.float32))))
    ),
}


def canonical_of(body: Expr, spans: Spans | None = None) -> IRModule:
    """The canonical form, which computes the same."""
    before = IRModule.from_functions({"main": Function([X], body)}, spans)
    after = canonicalise(before)
    assert canonicalise(after).main is after.main
    inputs, expected, largest = values_of(before, 3)
    assert_same(evaluate(after, inputs), expected, largest)
    return after


@pytest.mark.parametrize("name", TOGETHER)
def test_idioms(name: str) -> None:
    spelled, wanted = TOGETHER[name]
    assert canonical_of(spelled).main.body is wanted


@pytest.mark.parametrize("name", APART)
def test_what_only_resembles_an_idiom_stays(name: str) -> None:
    ops = {e.op_name for e in post_order(canonical_of(APART[name]).main.body) if isinstance(e, Call)}
    assert not ops & {"nn.gelu", "nn.hard_swish", "nn.leaky_relu", "nn.layer_norm", "nn.rms_norm"}


def test_an_idiom_has_the_layers_and_the_pin_of_all_that_it_was() -> None:
    quotient = call("divide", X, f32(ROOT))
    inner = call("add", call("erf", quotient), f32(1))
    product = call("multiply", X, inner).pinned("npu")
    body = call("multiply", product, f32(0.5))
    spans = Spans()
    for number, expr in enumerate((quotient, inner, product, body)):
        spans.add(expr, [f"layer{number}"])
    made = canonical_of(body, spans)
    assert made.main.body is GELU.pinned("npu")
    assert set(made.spans[made.main.body]) == {f"layer{number}" for number in range(4)}


def test_an_idiom_that_is_pinned_to_two_targets_stays() -> None:
    inner = call("add", call("erf", call("divide", X, f32(ROOT))), f32(1)).pinned("a")
    body = call("multiply", call("multiply", X, inner).pinned("b"), f32(0.5))
    assert "nn.gelu" not in {e.op_name for e in post_order(canonical_of(body).main.body) if isinstance(e, Call)}


def test_a_long_product_is_looked_at_once() -> None:
    body: Expr = X
    for _ in range(2_000):
        body = call("multiply", body, Y)
    assert canonicalise(IRModule.from_functions({"main": Function([X], body)})).main.body is body
