"""Patterns are closed: what the author of a pattern forgot, it never takes.

The careless plugin below describes a convolution in the fewest words that the language accepts. Each case is a model
that hardware without the forgotten ability would compute wrongly.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from uma.errors import PluginError
from uma.relay import Attr, Expr, FixedPoint, FloatScale, TensorType, Var, call, const, registered_ops
from uma.relay.evaluate import evaluate
from uma.relay.op import MISSING
from uma.relay.pattern import Match, Mismatch, Pattern, any_, constant, match, op, wildcard

X = Var("x", TensorType((1, 6, 6, 4), "int8"))
DOUBLE = FixedPoint((2**30 + 12345,), (-3,), "double")


def layer(
    data: Expr = X,
    depth: int = 4,
    weight_dtype: str = "int8",
    scale: FixedPoint | FloatScale = DOUBLE,
    dtype: str = "int8",
    zero_point: int = 0,
    **conv: Any,
) -> Expr:
    rng = np.random.default_rng(0)
    weight = const(rng.integers(0, 100, (3, 3, depth, 4)).astype(weight_dtype))
    sums = call("qnn.conv2d", data, weight, **conv)
    return call("qnn.requantize", sums, scale=scale, dtype=dtype, axis=-1, output_zero_point=zero_point)


CARELESS = Pattern(
    "careless.conv2d",
    op("qnn.requantize")(op("qnn.conv2d")(wildcard("int8"), constant("int8")), scale=DOUBLE, axis=-1, dtype="int8"),
)


def test_the_careless_pattern_takes_what_it_says() -> None:
    assert isinstance(match(CARELESS, layer()), Match)


@pytest.mark.parametrize(
    ("forgotten", "expr", "said"),
    [
        ("strides", layer(strides=(2, 2)), "qnn.conv2d: attribute strides is (2, 2), the pattern takes (1, 1)"),
        ("padding", layer(padding=(1, 1, 1, 1)), "attribute padding is (1, 1, 1, 1), the pattern takes (0, 0, 0, 0)"),
        ("dilation", layer(dilation=(2, 2)), "qnn.conv2d: attribute dilation is (2, 2), the pattern takes (1, 1)"),
        ("groups", layer(depth=1, groups=4), "qnn.conv2d: attribute groups is 4, the pattern takes 1"),
        ("input zero point", layer(input_zero_point=3), "attribute input_zero_point is 3, the pattern takes 0"),
        ("weight zero point", layer(kernel_zero_point=3), "attribute kernel_zero_point is 3, the pattern takes 0"),
        ("output zero point", layer(zero_point=3), "attribute output_zero_point is 3, the pattern takes 0"),
        ("rounding", layer(scale=FixedPoint(DOUBLE.multiplier, DOUBLE.shift, "up")), "rounding='up'"),
        ("float scale", layer(scale=FloatScale((0.1,))), "attribute scale is FloatScale"),
        ("input dtype", layer(Var("x", TensorType((1, 6, 6, 4), "uint8"))), "dtype is uint8, the pattern takes int8"),
        ("weight dtype", layer(weight_dtype="uint8"), "dtype is uint8, the pattern takes int8"),
        ("output dtype", layer(dtype="uint8"), "attribute dtype is uint8, the pattern takes int8"),
    ],
)
def test_what_was_forgotten_is_not_taken(forgotten: str, expr: Expr, said: str) -> None:
    found = match(CARELESS, expr)
    assert isinstance(found, Mismatch), forgotten
    assert said in found.failure.reason


@pytest.mark.parametrize(
    "attrs",
    [dict(strides=(2, 2)), dict(padding=(1, 1, 1, 1)), dict(dilation=(2, 2)), dict(input_zero_point=3),
     dict(kernel_zero_point=3), dict(zero_point=3), dict(scale=FixedPoint(DOUBLE.multiplier, DOUBLE.shift, "up"))],
    ids=lambda attrs: next(iter(attrs)),
)  # fmt: skip
def test_taking_it_would_have_been_wrong(attrs: dict[str, Any]) -> None:
    from uma.relay import Function

    data = np.random.default_rng(1).integers(-20, 20, X.shape).astype(np.int8)
    right, careless = (evaluate(Function([X], layer(**a)), {"x": data}) for a in (attrs, {}))
    assert not np.array_equal(right, careless)


@pytest.mark.parametrize(
    ("make", "op_name", "attr"),
    [
        (lambda x: op("qnn.requantize")(x, axis=-1, dtype="int8"), "qnn.requantize", "scale"),
        (lambda x: op("qnn.requantize")(x, axis=-1, scale=any_), "qnn.requantize", "dtype"),
        (lambda x: op("qnn.requantize")(x, scale=any_, dtype="int8"), "qnn.requantize", "axis"),
        (lambda x: op("qnn.quantize")(x, scale=any_, axis=-1, dtype="int8"), "qnn.quantize", "rounding"),
        (lambda x: op("nn.softmax")(x), "nn.softmax", "axis"),
        (lambda x: op("nn.max_pool2d")(x), "nn.max_pool2d", "pool_size"),
    ],
)
def test_what_has_no_neutral_value_must_be_said(make: Callable[[Any], object], op_name: str, attr: str) -> None:
    with pytest.raises(PluginError) as caught:
        make(wildcard(any_))
    assert caught.value.what == f"a pattern of {op_name} must say what it takes of {attr!r}, which has no neutral value"
    assert caught.value.hint is not None
    assert f"{attr}=any_" in caught.value.hint


def test_dtypes_must_be_said() -> None:
    for leaf in (wildcard, constant):
        with pytest.raises(TypeError, match="dtype"):
            leaf()  # type: ignore[call-arg]  # no dtype: the test is about that


ATTRS = [(declared.name, attr) for declared in registered_ops().values() for attr in declared.attrs]


@pytest.mark.parametrize(("name", "attr"), ATTRS, ids=[f"{name}-{attr.name}" for name, attr in ATTRS])
def test_every_attribute_of_every_op_is_closed(name: str, attr: Attr) -> None:
    declared = registered_ops()[name]
    others = {other.name: any_ for other in declared.attrs if other is not attr}
    leaves = [wildcard(any_)] * (1 if declared.inputs == ("*data",) else len(declared.inputs))
    if attr.neutral is MISSING:
        with pytest.raises(PluginError, match=attr.name):
            op(name)(*leaves, **others)
    else:
        term = op(name)(*leaves, **others)
        condition = term.attrs[declared.attrs.index(attr)]
        assert condition.holds(attr.neutral)
        assert not condition.holds("anything else")
