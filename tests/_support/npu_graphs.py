"""Random quantised TFLite graphs of the operators that an NPU has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from .tflite_builder import TFLiteBuilder

SAME, VALID = 0, 1
ACTIVATIONS = (0, 0, 1, 2, 3)
"""Of the schema: none, RELU, RELU_N1_TO_1, RELU6."""

_CASES: dict[str, Callable[[Graph, Value], Value]] = {}


@dataclass(frozen=True)
class Value:
    """A tensor: rows, columns and channels of one image."""

    index: int
    shape: tuple[int, ...]
    scale: float
    zero_point: int


class Graph:
    """One graph of random operators, in int8 or in int16 (as TFLite's 16x8)."""

    def __init__(self, seed: int, operators: Sequence[str], dtype: str = "int8", length: int = 4) -> None:
        self.rng = np.random.default_rng(seed)
        self.builder, self.dtype = TFLiteBuilder(), dtype
        shape = (1, self.number(1, 16), self.number(1, 16), self.number(1, 40))
        first = self.value(shape, _input=True)
        self.values, self.names = [first], []
        self.strides = 1  # the largest
        for _ in range(self.number(1, length)):
            name = operators[self.rng.integers(len(operators))]
            self.values.append(_CASES[name](self, self.values[-1]))
            self.names.append(name)
        self.model = self.builder.finish(self.values[-1].index)
        info = np.iinfo(dtype)
        self.data = self.rng.integers(info.min, info.max + 1, shape).astype(dtype)

    def number(self, low: int, high: int) -> int:
        return int(self.rng.integers(low, high + 1))

    def one(self, *values: object) -> object:
        return values[self.rng.integers(len(values))]

    @property
    def levels(self) -> float:
        """How many more steps than int8 has fit the type."""
        return 1 if self.dtype == "int8" else 256

    def value(
        self, shape: Sequence[int], scale: float | None = None, zero_point: int | None = None, _input: bool = False
    ) -> Value:
        """A new tensor, with a random quantisation where none is given."""
        shape = tuple(int(extent) for extent in shape)
        if scale is None:
            scale = float(np.float32(self.rng.uniform(0.005, 0.2) / self.levels))
        if zero_point is None:
            zero_point = self.number(-128, 127) if self.dtype == "int8" else 0
        make = self.builder.input if _input else self.builder.tensor
        index = make(shape, self.dtype, scale=scale, zero_point=zero_point)
        return Value(index, shape, float(np.float32(scale)), zero_point)

    def beside(self, x: Value) -> Value:
        """A value with this shape: an earlier one, or a constant, which may be broadcast."""
        for earlier in self.values[:-1]:
            if earlier.shape == x.shape and self.rng.random() < 0.7:
                return earlier
        shape = [extent if self.rng.random() < 0.7 else 1 for extent in x.shape]
        info = np.iinfo(self.dtype)
        data = self.rng.integers(info.min, info.max + 1, shape).astype(self.dtype)
        zero_point = self.number(-128, 127) if self.dtype == "int8" else 0
        scale = float(np.float32(self.rng.uniform(0.005, 0.2) / self.levels))
        return Value(self.builder.constant(data, scale=scale, zero_point=zero_point), tuple(shape), scale, zero_point)

    def weights(self, shape: Sequence[int], axis: int, x: Value, terms: int) -> tuple[int, int, float]:
        """Weights and biases of a convolution, and a scale for what comes out."""
        channels = shape[axis]
        kind = self.number(0, 2)
        data = self.rng.integers(-127, 128, shape) if kind < 2 else self.rng.normal(0, 8, shape).round().clip(-127, 127)
        if kind == 1:
            data = data * (self.rng.random(shape) < 0.2)
        scales = self.rng.uniform(0.001, 0.02, channels if self.rng.random() < 0.7 else 1)
        scales = [float(np.float32(one)) for one in scales]
        weights = self.builder.constant(data.astype(np.int8), scale=scales, axis=axis)
        spread = max(float(np.std(data)), 4.0)
        biases = self.rng.normal(0, spread * 70 * np.sqrt(terms) * self.levels / 2, channels).astype(np.int64)
        bias = self.builder.constant(
            biases.astype("int32" if self.dtype == "int8" else "int64"), scale=[x.scale * one for one in scales]
        )
        out = x.scale * max(scales) * np.sqrt(terms) * spread * self.rng.uniform(0.7, 3)
        return weights, bias, float(np.float32(out))

    def window(self, x: Value, most: int = 5) -> tuple[tuple[int, int], tuple[int, int], int]:
        """Kernel, stride and padding that fit."""
        kernel = tuple(self.number(1, min(most, extent)) for extent in x.shape[1:3])
        stride = (self.number(1, 3), self.number(1, 3))
        self.strides = max(self.strides, *stride)
        return kernel, stride, self.number(0, 1)


def case(*names: str) -> Callable[[Callable[[Graph, Value], Value]], Callable[[Graph, Value], Value]]:
    def named(function: Callable[..., Value]) -> Callable[..., Value]:
        for name in names:
            _CASES[name] = lambda g, x, name=name: function(g, x, name)
        return function

    return named


def spatial(
    x: Value, kernel: Sequence[int], stride: Sequence[int], padding: int, dilation: Sequence[int] = (1, 1)
) -> list[int]:
    """Rows and columns that come out."""
    spans = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    return [
        -(-extent // step) if padding == SAME else (extent - span) // step + 1
        for extent, span, step in zip(x.shape[1:3], spans, stride, strict=True)
    ]


@case("CONV_2D", "DEPTHWISE_CONV_2D")
def convolution(g: Graph, x: Value, name: str) -> Value:
    kernel, stride, padding = g.window(x, 9 if g.rng.random() < 0.2 else 4)
    dilation = (1, 1)
    if stride == (1, 1) and g.rng.random() < 0.5:
        dilation = (g.number(1, 2), g.number(1, 2))
        kernel = tuple(
            min(k, (extent - 1) // d + 1) for k, extent, d in zip(kernel, x.shape[1:3], dilation, strict=True)
        )
    channels = x.shape[3] if name == "DEPTHWISE_CONV_2D" else g.number(1, 48)
    shape = (1, *kernel, channels) if name == "DEPTHWISE_CONV_2D" else (channels, *kernel, x.shape[3])
    terms = int(np.prod(kernel)) * (1 if name == "DEPTHWISE_CONV_2D" else x.shape[3])
    weights, bias, scale = g.weights(shape, 3 if name == "DEPTHWISE_CONV_2D" else 0, x, terms)
    y = g.value((1, *spatial(x, kernel, stride, padding, dilation), channels), scale)
    options = {"depthMultiplier": 1} if name == "DEPTHWISE_CONV_2D" else {}
    g.builder.op(
        name,
        [x.index, weights, bias],
        [y.index],
        padding=padding,
        strideH=stride[0],
        strideW=stride[1],
        dilationHFactor=dilation[0],
        dilationWFactor=dilation[1],
        fusedActivationFunction=g.one(*ACTIVATIONS),
        **options,
    )
    return y


@case("TRANSPOSE_CONV")
def transposed(g: Graph, x: Value, name: str) -> Value:
    kernel, padding = (g.number(2, 4), g.number(2, 4)), g.number(0, 1)
    channels = g.number(1, 24)
    weights, bias, scale = g.weights((channels, *kernel, x.shape[3]), 0, x, x.shape[3] * 2)
    rows = [
        extent * 2 if padding == SAME else extent * 2 + max(k - 2, 0)
        for extent, k in zip(x.shape[1:3], kernel, strict=True)
    ]
    y = g.value((1, *rows, channels), scale)
    shape = g.builder.constant(np.asarray(y.shape, np.int32))
    g.builder.op(name, [shape, weights, x.index, bias], [y.index], padding=padding, strideH=2, strideW=2)
    return y


@case("MAX_POOL_2D", "AVERAGE_POOL_2D")
def pooled(g: Graph, x: Value, name: str) -> Value:
    kernel, stride, padding = g.window(x)
    y = g.value((1, *spatial(x, kernel, stride, padding), x.shape[3]), x.scale, x.zero_point)
    sizes = {"strideH": stride[0], "strideW": stride[1], "filterHeight": kernel[0], "filterWidth": kernel[1]}
    g.builder.op(name, [x.index], [y.index], padding=padding, fusedActivationFunction=g.one(*ACTIVATIONS), **sizes)
    return y


@case("ADD", "SUB", "MUL")
def arithmetic(g: Graph, x: Value, name: str) -> Value:
    other = g.beside(x)
    scale = x.scale + other.scale if name != "MUL" else x.scale * other.scale * 60 * g.levels
    y = g.value(x.shape, float(np.float32(scale * g.rng.uniform(0.4, 2))))
    operands = [x.index, other.index]
    if g.rng.random() < 0.4:
        operands.reverse()
    g.builder.op(name, operands, [y.index], fusedActivationFunction=g.one(*ACTIVATIONS))
    return y


@case("MINIMUM", "MAXIMUM")
def extremum(g: Graph, x: Value, name: str) -> Value:
    shape = [extent if g.rng.random() < 0.7 else 1 for extent in x.shape]
    info = np.iinfo(g.dtype)
    data = g.rng.integers(info.min, info.max + 1, shape).astype(g.dtype)
    other = g.builder.constant(data, scale=x.scale, zero_point=x.zero_point)
    y = g.value(x.shape, x.scale, x.zero_point)
    g.builder.op(name, [x.index, other], [y.index])
    return y


@case("ABS", "HARD_SWISH")
def unary(g: Graph, x: Value, name: str) -> Value:
    y = g.value(x.shape, float(np.float32(x.scale * g.rng.uniform(0.6, 1.5))))
    g.builder.op(name, [x.index], [y.index])
    return y


@case("LEAKY_RELU")
def leaky(g: Graph, x: Value, name: str) -> Value:
    y = g.value(x.shape, float(np.float32(x.scale * g.rng.uniform(0.6, 1.5))))
    if g.rng.random() < 0.3:
        y = g.value(x.shape, x.scale, x.zero_point)
    g.builder.op(name, [x.index], [y.index], alpha=float(np.float32(g.rng.uniform(0.01, 0.9))))
    return y


@case("RELU", "RELU6", "RELU_N1_TO_1")
def clipped(g: Graph, x: Value, name: str) -> Value:
    y = g.value(x.shape, float(np.float32(x.scale * g.rng.uniform(0.6, 1.5))))
    g.builder.op(name, [x.index], [y.index])
    return y


@case("QUANTIZE")
def quantised(g: Graph, x: Value, name: str) -> Value:
    y = g.value(x.shape, float(np.float32(x.scale * g.rng.uniform(0.3, 3))))
    g.builder.op(name, [x.index], [y.index])
    return y


@case("LOGISTIC", "TANH", "SOFTMAX")
def table(g: Graph, x: Value, name: str) -> Value:
    steps = 256 if g.dtype == "int8" else 65536
    if name == "TANH":
        scale, zero_point = 2 / steps, 0
    else:
        scale, zero_point = (1 / steps, -128) if g.dtype == "int8" else (1 / 32768, 0)
    y = g.value(x.shape, scale, zero_point)
    g.builder.op(name, [x.index], [y.index], **({"beta": 1.0} if name == "SOFTMAX" else {}))
    return y


@case("CONCATENATION")
def concatenated(g: Graph, x: Value, name: str) -> Value:
    axis = g.number(1, 3)
    shape = list(x.shape)
    shape[axis] = g.number(1, 6)
    info = np.iinfo(g.dtype)
    other = g.builder.constant(
        g.rng.integers(info.min, info.max + 1, shape).astype(g.dtype), scale=x.scale, zero_point=x.zero_point
    )
    shape[axis] += x.shape[axis]
    y = g.value(shape, x.scale, x.zero_point)
    g.builder.op(name, [x.index, other], [y.index], axis=axis)
    return y


@case("MEAN")
def mean(g: Graph, x: Value, name: str) -> Value:
    y = g.value((1, 1, 1, x.shape[3]), float(np.float32(x.scale * g.rng.uniform(0.2, 1.2))))
    g.builder.op(name, [x.index, g.builder.constant(np.asarray([1, 2], np.int32))], [y.index], keepDims=True)
    return y


@case("RESIZE_NEAREST_NEIGHBOR")
def resized(g: Graph, x: Value, name: str) -> Value:
    y = g.value((1, x.shape[1] * 2, x.shape[2] * 2, x.shape[3]), x.scale, x.zero_point)
    g.builder.op(name, [x.index, g.builder.constant(np.asarray(y.shape[1:3], np.int32))], [y.index])
    return y


@case("RESHAPE")
def reshaped(g: Graph, x: Value, name: str) -> Value:
    shape = (1, x.shape[2], x.shape[1], x.shape[3])
    y = g.value(shape, x.scale, x.zero_point)
    g.builder.op(name, [x.index, g.builder.constant(np.asarray(shape, np.int32))], [y.index], newShape=list(shape))
    return y


@case("PAD")
def padded(g: Graph, x: Value, name: str) -> Value:
    amounts = np.asarray([[0, 0], [g.number(0, 2), g.number(0, 2)], [g.number(0, 2), g.number(0, 2)], [0, 0]], np.int32)
    y = g.value(np.asarray(x.shape) + amounts.sum(1), x.scale, x.zero_point)
    g.builder.op(name, [x.index, g.builder.constant(amounts)], [y.index])
    return y


OPERATORS = tuple(_CASES)
"""All of them."""
