"""Layers of float32 with int8 weights, computed as LiteRT's reference kernels compute them: the same numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests._support.tflite_builder import TFLiteBuilder, litert
from tests._support.tflite_cases import RELUS

from uma.errors import ModelError
from uma.frontends.tflite import from_tflite
from uma.relay.evaluate import evaluate


def ours(model: bytes, data: np.ndarray, hybrid: bool = True) -> np.ndarray:
    module = from_tflite(model, hybrid=hybrid).module
    return evaluate(module, {module.main.params[0].name: data})[0]


class Layers:
    """Draws a model of one layer."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.builder = TFLiteBuilder()

    def one(self, *choices: Any) -> Any:
        return choices[self.rng.integers(len(choices))]

    def extents(self, *most: int) -> list[int]:
        return [int(self.rng.integers(1, end + 1)) for end in most]

    def data(self, shape: Sequence[int]) -> np.ndarray:
        made = self.rng.normal(size=shape) * 10.0 ** self.rng.uniform(-3, 3)
        if self.one(True, False, False):
            made = np.abs(made) * self.one(1, -1)
        made = np.where(self.rng.random(shape) < self.one(0, 0.1), 0, made)
        if self.one(True, False, False, False):
            made[0] = 0
        return np.asarray(made, np.float32)

    def weight(self, shape: Sequence[int], axis: int, per_channel: bool) -> int:
        scales = np.float32(10.0 ** self.rng.uniform(-4, 0, shape[axis] if per_channel else 1)).tolist()
        return self.builder.constant(self.rng.integers(-127, 128, shape).astype(np.int8), scale=scales, axis=axis)

    def bias(self, count: int) -> int:
        return self.builder.constant(self.rng.normal(size=count).astype(np.float32))

    def activation(self) -> dict[str, int]:
        return {"fusedActivationFunction": self.one(*RELUS)}


def dense(seed: int) -> tuple[bytes, np.ndarray]:
    d = Layers(seed)
    batch, rows, depth, units = d.extents(4, 3, 70, 20)
    shape = [batch, rows, depth] if d.one(True, False) else [batch, depth]
    keeps = len(shape) == 3 and d.one(True, False)
    result = [*shape[:-1], units] if keeps else [int(np.prod(shape[:-1])), units]
    operands = [d.builder.input(shape), d.weight([units, depth], 0, d.one(True, False))]
    operands.append(d.bias(units) if d.one(True, False) else -1)
    y = d.builder.tensor(result)
    options = {"keepNumDims": keeps, "asymmetricQuantizeInputs": d.one(True, False)}
    d.builder.op("FULLY_CONNECTED", operands, [y], **options, **d.activation())
    return d.builder.finish(y), d.data(shape)


def convolution(seed: int) -> tuple[bytes, np.ndarray]:
    d = Layers(seed)
    batch, height, width, channels, units = d.extents(3, 9, 9, 6, 9)
    groups = 1
    per_channel, depthwise = d.one(True, False), d.one(True, False)
    taps, strides, dilation = d.extents(3, 3), d.extents(2, 2), d.extents(2, 2)
    if depthwise:
        per_channel, units = True, channels * d.extents(3)[0]
    padding = d.one(0, 1)
    spans = [(tap - 1) * step + 1 for tap, step in zip(taps, dilation, strict=True)]
    extents = [height, width]
    if padding == 1:
        extents = [max(pair) for pair in zip(extents, spans, strict=True)]
    sides = zip(extents, spans, strides, strict=True)
    made = [-(-(e - (s - 1 if padding else 0)) // step) for e, s, step in sides]
    shape = [batch, *extents, channels * groups]
    weight = d.weight([1, *taps, units], 3, True) if depthwise else d.weight([units, *taps, channels], 0, per_channel)
    operands = [d.builder.input(shape), weight, d.bias(units)]
    y = d.builder.tensor([batch, *made, units])
    options = dict(zip(("strideH", "strideW", "dilationHFactor", "dilationWFactor"), strides + dilation, strict=True))
    if depthwise:
        options["depthMultiplier"] = units // channels
    name = "DEPTHWISE_CONV_2D" if depthwise else "CONV_2D"
    d.builder.op(name, operands, [y], padding=padding, **options, **d.activation())
    return d.builder.finish(y), d.data(shape)


def matmul(seed: int) -> tuple[bytes, np.ndarray]:
    d = Layers(seed)
    batch, rows, depth, units = d.extents(3, 5, 40, 9)
    x = d.builder.input([batch, rows, depth])
    swapped = d.one(True, False)
    leading = d.one([batch], [1], [])
    weight = d.weight([*leading, units, depth] if swapped else [*leading, depth, units], 0, False)
    y = d.builder.tensor([batch, rows, units])
    options = {"adjY": swapped, "asymmetricQuantizeInputs": d.one(True, False)}
    d.builder.op("BATCH_MATMUL", [x, weight], [y], **options)
    return d.builder.finish(y), d.data([batch, rows, depth])


def svdf(seed: int) -> tuple[bytes, np.ndarray]:
    d = Layers(seed)
    batch, features, units, rank, memory = d.extents(3, 20, 5, 3, 9)
    filters = units * rank
    x = d.builder.input([batch, features])
    operands = [x, d.weight([filters, features], 0, False), d.weight([filters, memory], 0, False)]
    operands += [d.bias(units) if d.one(True, False) else -1]
    operands += [d.builder.tensor([batch, filters * memory], variable=True)]
    y = d.builder.tensor([batch, units])
    options = {"rank": rank, "asymmetricQuantizeInputs": d.one(True, False)}
    d.builder.op("SVDF", operands, [y], **options, **d.activation())
    return d.builder.finish(y), d.data([batch, features])


@pytest.mark.parametrize("draw", [dense, convolution])
def test_equals_litert(draw: Any) -> None:
    @given(st.integers(0, 2**32 - 1))
    def check(seed: int) -> None:
        model, data = draw(seed)
        np.testing.assert_array_equal(ours(model, data), litert(model, data)[0])

    check()


def test_svdf_equals_litert() -> None:
    """The features are the same numbers; their sums over time are of floats, whose order LiteRT does not say."""

    @given(st.integers(0, 2**32 - 1))
    def check(seed: int) -> None:
        model, data = svdf(seed)
        module = from_tflite(model, hybrid=True).module
        x, state = module.main.params
        kept = np.zeros(state.shape, np.float32)
        for runs in (1, 2, 3):
            got, kept = evaluate(module, {x.name: data, state.name: kept})
            expected = litert(model, data, runs=runs)[0]
            size = float(np.abs(kept).max() * 127e-6)
            np.testing.assert_allclose(got, expected, rtol=1e-6, atol=max(size, 1e-30))

    check()


def layer(name: str, **given: Any) -> bytes:
    """A layer of 2 x 3 x 3 x 4 data, or 2 x 4 ones, with a weight of int8 that may have anything wrong."""
    builder = TFLiteBuilder()
    options = {"padding": 1, "strideH": 1, "strideW": 1, "dilationHFactor": 1, "dilationWFactor": 1}
    shape = {"CONV_2D": [6, 1, 1, 4], "DEPTHWISE_CONV_2D": [1, 1, 1, 4], "BATCH_MATMUL": [4, 6]}.get(name, [6, 4])
    x = builder.input([2, 3, 3, 4] if "CONV" in name else [2, 4])
    dtype = given.pop("dtype", "int8")
    given = {"scale": 0.1, **given}
    shape = given.pop("shape", shape)
    if dtype == "int4":
        w = builder.int4(np.ones(shape, np.int8), **given)
    elif dtype == "input":
        w = builder.input(shape, "int8", **given)
    else:
        w = builder.constant(np.full(shape, 127, dtype), **given)
    depth = 4 if name == "DEPTHWISE_CONV_2D" else 6
    y = builder.tensor([2, 3, 3, depth] if "CONV" in name else [2, 6])
    bias = [] if name == "BATCH_MATMUL" else [builder.constant(np.zeros(depth, np.float32))]
    builder.op(name, [x, w, *bias], [y], **(options if "CONV" in name else {}))
    return builder.finish(y)


@pytest.mark.parametrize(
    ("model", "what"),
    [
        (layer("FULLY_CONNECTED", dtype="uint8"), "its weight is of uint8, which is not computed with as LiteRT does"),
        (layer("FULLY_CONNECTED", dtype="int4"), "its weight is of int4, which is not computed with as LiteRT does"),
        (layer("FULLY_CONNECTED", dtype="input"), "its weight is int8 beside float32, and no constant"),
        (layer("FULLY_CONNECTED", zero_point=3), "its int8 weight has a zero point that is not 0"),
        (
            layer("FULLY_CONNECTED", scale=[0.1] * 4, axis=1),
            "its weight has scales along axis 1, not along",
        ),
        (layer("BATCH_MATMUL", scale=[0.1] * 6, axis=1), "its weight has 6 scales, of which LiteRT has no kernel"),
        (layer("DEPTHWISE_CONV_2D"), "its weight has one scale for all channels, of which LiteRT has no kernel"),
        (layer("CONV_2D", shape=[6, 1, 1, 2]), "it has groups and one scale for all channels"),
    ],
)
def test_what_litert_has_not(model: bytes, what: str) -> None:
    with pytest.raises(ModelError) as caught:
        from_tflite(model, hybrid=True)
    assert what in str(caught.value)


def test_sums_that_int32_does_not_hold() -> None:
    builder = TFLiteBuilder()
    depth = 2**31 // (255 * 127) + 1
    x, y = builder.input([1, depth]), builder.tensor([1, 1])
    builder.op("FULLY_CONNECTED", [x, builder.constant(np.full([1, depth], 127, np.int8), scale=1.0), -1], [y])
    with pytest.raises(ModelError, match="its sums may be up to 2147514120, which int32 does not hold"):
        from_tflite(builder.finish(y), hybrid=True)


def test_other_layers_are_dequantised_or_refused() -> None:
    builder = TFLiteBuilder()
    x, y = builder.input([1, 2, 2, 3]), builder.tensor([1, 4, 4, 5])
    weight = builder.constant(np.ones([5, 2, 2, 3], np.int8), scale=1.0)
    shape = builder.constant(np.array([1, 4, 4, 5], np.int32))
    builder.op("TRANSPOSE_CONV", [shape, weight, x], [y], padding=0, strideH=2, strideW=2)
    model = builder.finish(y)
    assert from_tflite(model).notes
    with pytest.raises(ModelError, match="is int8 beside float32, which is not computed with as LiteRT does"):
        from_tflite(model, hybrid=True)


def test_it_is_said() -> None:
    (note,) = from_tflite(layer("FULLY_CONNECTED"), hybrid=True).notes
    assert note.startswith(
        "data of float32 are quantised when the model runs, as LiteRT does beside integer weights, in"
    )
