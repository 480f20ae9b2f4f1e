"""Nets of TFLite's 16x8, compiled: the same bytes as LiteRT's reference kernels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests._support.tflite_builder import TFLiteBuilder, litert

import uma


class Net:
    """A chain of layers on a picture of 12 x 12."""

    def __init__(self, seed: int, channels: int) -> None:
        self.random, self.builder = np.random.default_rng(seed), TFLiteBuilder()
        self.scale, self.shape = self.real(1e-4, 1e-3), [1, 12, 12, channels]
        self.value = self.input = self.builder.input(self.shape, "int16", scale=self.scale)

    def real(self, low: float, high: float) -> float:
        return float(np.float32(np.exp(self.random.uniform(np.log(low), np.log(high)))))

    def layer(self, name: str, operands: list[int], shape: list[int], scale: float, **options: object) -> None:
        result = self.builder.tensor(shape, "int16", scale=scale)
        self.builder.op(name, [self.value, *operands], [result], **options)
        self.value, self.shape, self.scale = result, shape, scale

    def convolution(self, out: int, depthwise: bool = False) -> None:
        channels, random = self.shape[3], self.random
        scales = [self.real(0.002, 0.02) for _ in range(out)]
        weights = random.integers(-127, 128, [1, 3, 3, out] if depthwise else [out, 3, 3, channels])
        biases = [float(np.float32(self.scale) * np.float32(scale)) for scale in scales]
        operands = [
            self.builder.constant(weights, "int8", scale=scales, axis=3 if depthwise else 0),
            self.builder.constant(random.integers(-(2**24), 2**24, out), "int64", scale=biases),
        ]
        options: dict[str, object] = {"padding": 0, "strideH": 1, "strideW": 1, "fusedActivationFunction": 1}
        if depthwise:
            options["depthMultiplier"] = 1
        grown = self.scale * self.real(2, 8)
        shape = [*self.shape[:3], out]
        self.layer("DEPTHWISE_CONV_2D" if depthwise else "CONV_2D", operands, shape, grown, **options)

    def model(self) -> bytes:
        self.convolution(16)
        skipped, own = self.value, self.scale
        self.convolution(16, depthwise=True)
        self.layer("ADD", [skipped], self.shape, max(own, self.scale) * 1.3)
        windows = {"padding": 1, "strideH": 2, "strideW": 2, "filterHeight": 2, "filterWidth": 2}
        self.layer("AVERAGE_POOL_2D", [], [1, 6, 6, 16], self.scale, **windows)
        self.layer("LEAKY_RELU", [], self.shape, self.scale * 1.1, alpha=0.1)
        self.layer("MEAN", [self.builder.constant([1, 2], "int32")], [1, 16], self.scale * 0.6)
        self.layer("TANH", [], [1, 16], 2.0**-15)
        weights = self.builder.constant(self.random.integers(-127, 128, [10, 16]), "int8", scale=2.0**-6)
        self.layer("FULLY_CONNECTED", [weights, -1], [1, 10], 2.0**-9)
        self.layer("SOFTMAX", [], [1, 10], 2.0**-15, beta=1.0)
        return self.builder.finish(self.value)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(6))
def test_nets_of_int16(tmp_path: Path, seed: int) -> None:
    net = Net(seed, 1 + 3 * seed)
    data = np.random.default_rng(seed).integers(-32768, 32768, net.shape).astype(np.int16)
    model = net.model()
    file = tmp_path / "net.tflite"
    file.write_bytes(model)
    [result] = uma.build(file, target="c").run(data).values()
    np.testing.assert_array_equal(result, litert(model, data)[0])
