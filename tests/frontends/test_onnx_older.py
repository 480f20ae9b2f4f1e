"""Operators in the forms of older operator sets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests._support.onnx_builder import OnnxBuilder, run_onnxruntime

from uma.errors import ModelError
from uma.frontends import import_model
from uma.relay.evaluate import evaluate

F = np.float32
DATA = np.random.default_rng(0).standard_normal((2, 3, 4, 4)).astype(F)

Build = Callable[[OnnxBuilder, str], Any]


def of(op: str, *constants: Any, **attrs: Any) -> Build:
    return lambda b, x: b.node(op, x, *(b.constant(value) for value in constants), **attrs)


def both_results(b: OnnxBuilder, x: str) -> Any:
    data, mask = b.node("Dropout", x, outputs=2, ratio=0.5)
    return b.node("Mul", data, b.node("Cast", mask, to=1))


CASES: dict[str, tuple[int, Build]] = {
    "Clip on both sides": (10, of("Clip", min=-0.5, max=0.25)),
    "Clip below": (7, of("Clip", min=-0.5)),
    "Clip of nothing": (7, of("Clip")),
    "Pad": (10, of("Pad", pads=[0, 0, 1, 2, 0, 0, 0, 1], value=3.0)),
    "Pad by zeros": (7, of("Pad", pads=[0, 0, 1, 2, 0, 0, 0, 1], mode="constant")),
    "Slice of axes": (9, of("Slice", starts=[1, -3], ends=[3, 9], axes=[1, 3])),
    "Slice of the first axes": (7, of("Slice", starts=[0, 1], ends=[1, 3])),
    "Upsample by an attribute": (7, of("Upsample", scales=[1.0, 1.0, 2.0, 3.0])),
    "Upsample by an input": (9, of("Upsample", np.array([1, 1, 2, 1.5], F), mode="nearest")),
    "Resize down": (10, of("Resize", np.array([1, 1, 0.6, 0.5], F))),
    "Dropout with its mask": (10, both_results),
    "Dropout": (7, of("Dropout", ratio=0.5)),
    "BatchNormalization": (
        7,
        of("BatchNormalization", *np.array([[1, 2, 3], [0, 1, -1], [1, 0, 2], [4, 1, 2]], F), epsilon=1e-5),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_results_are_those_of_onnxruntime(name: str) -> None:
    opset, build = CASES[name]
    b = OnnxBuilder(opset)
    data = b.build(build(b, b.input("x", DATA.shape)))
    (ours,) = evaluate(import_model(data).module, {"x": DATA})
    np.testing.assert_allclose(ours, run_onnxruntime(data, {"x": DATA})[0], 1e-5, 1e-5, strict=True)


# onnxruntime computes them as later sets have them.
ADDED = np.array([1, 2, 3], F)
SIXTH: dict[str, tuple[Build, np.ndarray]] = {
    "an operand along an axis": (of("Add", ADDED, broadcast=1, axis=1), DATA + ADDED[:, None, None]),
    "an operand along the last axes": (of("Mul", DATA[0, 0], broadcast=1), DATA * DATA[0, 0]),
    "a number": (of("Sub", F(3), broadcast=1, axis=1), DATA - 3),
    "a slope for each channel": (of("PRelu", ADDED), np.where(DATA < 0, DATA * ADDED[:, None, None], DATA)),
    "one slope": (of("PRelu", ADDED[1:2]), np.where(DATA < 0, DATA * 2, DATA)),
    "Dropout": (of("Dropout", is_test=1), DATA),
}


@pytest.mark.parametrize("name", SIXTH)
def test_the_sixth_operator_set(name: str) -> None:
    build, wanted = SIXTH[name]
    b = OnnxBuilder(6)
    data = b.model(build(b, b.input("x", DATA.shape))).SerializeToString()
    np.testing.assert_allclose(evaluate(import_model(data).module, {"x": DATA})[0], wanted, 1e-6, 1e-6)


REFUSED: dict[str, tuple[int, Build]] = {
    "it normalises each element of a channel on its own (spatial=0)": (
        7,
        of("BatchNormalization", *np.ones((4, 3), F), spatial=0),
    ),
    "'n_Dropout_0' (Dropout, opset 6): it is in training mode": (6, of("Dropout")),
    "'n_BatchNormalization_0' (BatchNormalization, opset 6): it is in training mode": (
        6,
        of("BatchNormalization", *np.ones((4, 3), F)),
    ),
    "(Upsample, opset 11): this operator is not supported": (11, of("Upsample", np.ones(4, F))),
    "up and down at once": (10, of("Resize", np.array([1, 1, 0.5, 2], F))),
    "it needs the attribute 'pads'": (10, of("Pad")),
    "it has the unknown mode 'X'": (28, of("SpaceToDepth", blocksize=2, mode="X")),
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_is_refused(message: str) -> None:
    opset, build = REFUSED[message]
    b = OnnxBuilder(opset)
    data = b.model(build(b, b.input("x", DATA.shape))).SerializeToString()
    with pytest.raises(ModelError) as caught:
        import_model(data)
    assert message in str(caught.value)


def test_blocks_of_space_in_both_orders() -> None:
    """Of operator set 28, which not every onnxruntime knows: columns, rows and channels from the slowest on."""
    b = OnnxBuilder(28)
    data = b.model(b.node("SpaceToDepth", b.input("x", DATA.shape), blocksize=2, mode="CRD")).SerializeToString()
    apart = DATA.reshape(2, 3, 2, 2, 2, 2).transpose(0, 1, 3, 5, 2, 4)
    assert np.array_equal(evaluate(import_model(data).module, {"x": DATA})[0], apart.reshape(2, 12, 2, 2))
