"""The losses of ONNX, against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests._support.onnx_builder import OnnxBuilder
from tests._support.onnx_compared import agree, of

from uma.errors import ModelError
from uma.frontends import import_model

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("op", ["NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"])
@pytest.mark.parametrize("reduction", ["mean", "none", "sum"])
def test_losses(op: str, reduction: str) -> None:
    """With and without a space, weights, targets that are ignored, and the logarithms."""
    for space in ((), (4,), (3, 2)):
        x = RNG.standard_normal((5, 6, *space)).astype(np.float32)
        target = RNG.integers(0, 6, (5, *space), dtype=np.int64)
        weight = RNG.uniform(0.1, 2, 6).astype(np.float32)
        for ignore, weighted in ((None, False), (2, False), (None, True), (2, True)):
            attrs: dict[str, Any] = {"reduction": reduction} | ({} if ignore is None else {"ignore_index": ignore})
            if op.startswith("Softmax") and weighted:
                attrs["outputs"] = 2
            inputs = {"x": x, "target": target} | ({"weight": weight} if weighted else {})
            agree(of(op, **attrs), inputs, 13)


def test_targets_that_are_no_class_may_be_ignored() -> None:
    target = np.array([-100, 1, -100, 0])
    x = RNG.standard_normal((4, 3)).astype(np.float32)
    agree(of("SoftmaxCrossEntropyLoss", ignore_index=-100), {"x": x, "target": target}, 13)


REFUSED: dict[str, tuple[str, tuple[int, ...], tuple[tuple[int, ...], str], dict[str, str]]] = {
    "its reduction is 'max', not 'mean', 'none' or 'sum'": (
        "NegativeLogLikelihoodLoss",
        (2, 3),
        ((2,), "int64"),
        {"reduction": "max"},
    ),
    "it takes floats and a target of integers, not float32 and float32": (
        "NegativeLogLikelihoodLoss",
        (2, 3),
        ((2,), "float32"),
        {},
    ),
    "its target of shape (3,) does not fit scores of shape (2, 3)": (
        "SoftmaxCrossEntropyLoss",
        (2, 3),
        ((3,), "int32"),
        {},
    ),
    "its scores have the shape (2,), without classes": ("SoftmaxCrossEntropyLoss", (2,), ((2,), "int32"), {}),
    "its target of shape (2,) does not fit scores of shape (2,)": (
        "NegativeLogLikelihoodLoss",
        (2,),
        ((2,), "int32"),
        {},
    ),
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_is_refused(message: str) -> None:
    op, shape, target, attrs = REFUSED[message]
    b = OnnxBuilder(13)
    data = b.model(b.node(op, b.input("x", shape), b.input("t", *target), **attrs)).SerializeToString()
    with pytest.raises(ModelError) as caught:
        import_model(data)
    assert message in str(caught.value)


def test_weights_are_those_of_the_classes() -> None:
    b = OnnxBuilder(13)
    inputs = b.input("x", (2, 3)), b.input("t", (2,), "int64"), b.input("w", (2,))
    data = b.model(b.node("SoftmaxCrossEntropyLoss", *inputs)).SerializeToString()
    with pytest.raises(ModelError, match=r"its weight of shape \(2,\) does not fit 3 classes"):
        import_model(data)
