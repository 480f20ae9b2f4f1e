"""Networks that are quantised to uint8 or to int8, and are the same but for that."""

from __future__ import annotations

import numpy as np
from tests._support.onnx_builder import OnnxBuilder
from tests._support.tflite_builder import TFLiteBuilder

SHAPE = (1, 9, 8, 3)
"""Of the input of both; the one in ONNX has its channels first."""

CHANNELS = 16
CLASSES = 10

_OFFSET = {"int8": 0, "uint8": 128}


def tflite(dtype: str) -> bytes:
    """Convolutions with and without padding, a residual, a maximum pool and a dense layer, as a TFLite file."""
    rng, b, offset = np.random.default_rng(7), TFLiteBuilder(), _OFFSET[dtype]

    def tensor(shape: tuple[int, ...], scale: float, zero_point: int) -> int:
        return b.tensor(shape, dtype, scale=scale, zero_point=zero_point + offset)

    def weights(*shape: int) -> int:
        return b.constant(rng.integers(-127, 128, shape) + offset, dtype, scale=0.004, zero_point=offset)

    def biases(count: int, scale: float) -> int:
        return b.constant(rng.integers(-2000, 2000, count), "int32", scale=scale * 0.004)

    def convolve(x: int, depth: int, size: int, scale: float, result: int, padding: int, activation: int) -> None:
        given = [x, weights(CHANNELS, size, size, depth), biases(CHANNELS, scale)]
        options = {"padding": padding, "strideH": 1, "strideW": 1, "fusedActivationFunction": activation}
        b.op("CONV_2D", given, [result], **options)

    wide = (1, 9, 8, CHANNELS)
    x = b.input(SHAPE, dtype, scale=0.05, zero_point=offset - 3)
    first, second, third, added = (
        tensor(wide, scale, zero) for scale, zero in ((0.06, -128), (0.05, 9), (0.04, 2), (0.07, -5))
    )
    convolve(x, 3, 3, 0.05, first, 0, 1)
    convolve(first, CHANNELS, 3, 0.06, second, 0, 0)
    convolve(second, CHANNELS, 1, 0.05, third, 1, 0)
    b.op("ADD", [first, third], [added])
    pooled = tensor((1, 3, 3, CHANNELS), 0.07, -5)
    window = {"filterHeight": 3, "filterWidth": 2, "strideH": 3, "strideW": 3, "padding": 1}
    b.op("MAX_POOL_2D", [added], [pooled], **window)
    scores = tensor((1, CLASSES), 0.2, 11)
    b.op("FULLY_CONNECTED", [pooled, weights(CLASSES, 9 * CHANNELS), biases(CLASSES, 0.07)], [scores])
    return b.finish(scores)


def qdq(dtype: str) -> bytes:
    """Two convolutions, a relu, a maximum pool and a dense layer between QuantizeLinear and DequantizeLinear, at scales
    that are powers of two.
    """
    rng, b, offset = np.random.default_rng(8), OnnxBuilder(13), _OFFSET[dtype]

    def weights(*shape: int) -> str:
        return b.dequantize(b.constant(rng.integers(-7, 8, shape), "int8"), 2.0**-6, 0, "int8")

    def biases(count: int, scale: float) -> str:
        return b.dequantize(b.constant(rng.integers(-200, 200, count), "int32"), scale * 2.0**-6, 0, "int32")

    def through(value: str, scale: float, zero_point: int) -> str:
        return b.dequantize(b.quantize(value, scale, zero_point + offset, dtype), scale, zero_point + offset, dtype)

    batch, height, width, channels = SHAPE
    x = b.dequantize(b.input("x", (batch, channels, height, width), dtype), 2.0**-4, offset, dtype)
    y = b.node("Conv", x, weights(CHANNELS, 3, 3, 3), biases(CHANNELS, 2.0**-4), pads=[1, 1, 1, 1])
    y = through(b.node("Relu", y), 2.0**-5, -128)
    y = b.node("Conv", y, weights(CHANNELS, CHANNELS, 3, 3), biases(CHANNELS, 2.0**-5), pads=[1, 0, 1, 1])
    y = through(b.node("MaxPool", through(y, 2.0**-4, 4), kernel_shape=[3, 2], strides=[3, 2]), 2.0**-4, 4)
    flat = b.node("Flatten", y)
    scores = b.node("Gemm", flat, weights(3 * 3 * CHANNELS, CLASSES), biases(CLASSES, 2.0**-4))
    return b.build(b.quantize(scores, 2.0**-2, offset - 7, dtype))


def frame(dtype: str, seed: int, *, channels_first: bool = False) -> np.ndarray:
    """An input; those of the two dtypes with one seed stand for the same numbers."""
    signed = np.random.default_rng(seed).integers(-128, 128, SHAPE)
    made = (signed + _OFFSET[dtype]).astype(dtype)
    return made.transpose(0, 3, 1, 2) if channels_first else made
