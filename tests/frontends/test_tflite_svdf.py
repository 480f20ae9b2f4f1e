"""SVDF with int8 time weights: TFLite Micro's kernel, step by step. (LiteRT writes outside of its memory there.)"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest
from tests._support.tflite_builder import TFLiteBuilder

from uma.frontends.tflite import from_tflite
from uma.relay.evaluate import evaluate
from uma.relay.fixed_point import quantize_multiplier, scale_integer

STEPS = 6


@dataclass(frozen=True)
class Layer:
    """Sizes, and zero points of data, state and result."""

    batch: int = 1
    inputs: int = 3
    units: int = 2
    rank: int = 1
    memory: int = 4
    bias: bool = True
    zeros: tuple[int, int, int] = (5, 0, -7)
    seed: int = 0


LAYERS = [
    Layer(),
    Layer(batch=2, inputs=5, units=3, rank=2, memory=5, bias=False, seed=1),
    Layer(memory=1, zeros=(-128, 0, 127), seed=2),
    Layer(batch=2, inputs=4, units=3, rank=2, memory=3, seed=4),
    Layer(batch=2, rank=3, zeros=(0, 9, 0), seed=3),
]
SCALES = {"x": 0.07, "feature": 0.03, "time": 0.011, "state": 0.09, "y": 0.4}


def drawn(layer: Layer) -> tuple[bytes, list[np.ndarray], dict[str, np.ndarray]]:
    """The file, inputs of each step, and the weights."""
    rng, b = np.random.default_rng(layer.seed), TFLiteBuilder()
    filters = layer.units * layer.rank
    arrays = {
        "feature": rng.integers(-127, 128, (filters, layer.inputs)).astype(np.int8),
        "time": rng.integers(-127, 128, (filters, layer.memory)).astype(np.int8),
        "bias": rng.integers(-900, 900, layer.units).astype(np.int32),
    }
    x = b.input([layer.batch, layer.inputs], "int8", scale=SCALES["x"], zero_point=layer.zeros[0], name="x")
    feature, time = (b.constant(arrays[name], scale=SCALES[name]) for name in ("feature", "time"))
    bias = b.constant(arrays["bias"], scale=SCALES["state"] * SCALES["time"]) if layer.bias else -1
    kept = {"scale": SCALES["state"], "zero_point": layer.zeros[1], "variable": True}
    state = b.tensor([layer.batch, filters * layer.memory], "int8", **kept)
    y = b.tensor([layer.batch, layer.units], "int8", scale=SCALES["y"], zero_point=layer.zeros[2])
    b.op("SVDF", [x, feature, time, bias, state], [y], rank=layer.rank, fusedActivationFunction=1)
    steps = [rng.integers(-128, 128, (layer.batch, layer.inputs)).astype(np.int8) for _ in range(STEPS)]
    return b.finish(y), steps, arrays


def scaled(value: int, factor: float) -> int:
    return scale_integer(value, *quantize_multiplier(factor), "double")


def micro(layer: Layer, steps: list[np.ndarray], arrays: dict[str, np.ndarray]) -> list[np.ndarray]:
    """What TFLite Micro's ``EvalIntegerSvdfReference<int8_t>`` computes."""
    f32 = np.float32
    into = float(f32(SCALES["x"]) * f32(SCALES["feature"]) / f32(SCALES["state"]))
    out = float(f32(SCALES["state"]) * f32(SCALES["time"]) / f32(SCALES["y"]))
    filters, (zero, state_zero, out_zero) = layer.units * layer.rank, layer.zeros
    state = np.full((layer.batch, filters, layer.memory), state_zero, np.int64)
    results = []
    for x in steps:
        state[..., :-1] = state[..., 1:].copy()
        result = np.zeros((layer.batch, layer.units), np.int8)
        for row, values in enumerate(x):
            for i in range(filters):
                dot = scaled(int(arrays["feature"][i].astype(int) @ (values.astype(int) - zero)), into)
                wrapped = min(max(dot, -128), 127) + state_zero
                state[row, i, -1] = (wrapped + 128) % 256 - 128
            products = ((state[row] - state_zero) * arrays["time"]).sum(axis=1).reshape(layer.units, layer.rank)
            sums = products.sum(axis=1) + (arrays["bias"] if layer.bias else 0)
            for unit, total in enumerate(sums):
                result[row, unit] = min(max(scaled(int(total), out) + out_zero, -128), 127)
        results.append(result)
    return results


@pytest.mark.parametrize("layer", LAYERS)
def test_time_weights_of_int8(layer: Layer) -> None:
    data, steps, arrays = drawn(layer)
    module = from_tflite(data).module
    assert module.signature is not None
    (kept,) = module.signature.states
    state_var, x_var = module.main.params[kept.input], module.main.params[0]
    state = np.frombuffer(kept.initial, np.int8).reshape(state_var.shape)
    assert set(state.ravel().tolist()) == {layer.zeros[1]} and state.size == math.prod(state_var.shape)
    for x, expected in zip(steps, micro(layer, steps, arrays), strict=True):
        result, state = evaluate(module, {x_var.name: x, state_var.name: state})
        np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("layer", [layer for layer in LAYERS if layer.bias])  # without one it crashes
def test_the_formula_is_that_of_tflite_micro(layer: Layer) -> None:
    runtime = pytest.importorskip("tflite_micro").runtime
    data, steps, arrays = drawn(layer)
    interpreter = runtime.Interpreter.from_bytes(data)
    for x, expected in zip(steps, micro(layer, steps, arrays), strict=True):
        interpreter.set_input(x, 0)
        interpreter.invoke()
        np.testing.assert_array_equal(interpreter.get_output(0), expected)
