"""Chains of operators as both importers read them: pairs and triples that kernels are fused from, many in one model.

A chain begins with an input of ``channels`` channels. Each of its operators is applied to the result of the one before.
Between two of them may stand a change of the format: a cast, a requantisation, a dequantisation.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np
from onnx import helper
from tests._support.onnx_builder import OnnxBuilder
from tests._support.tflite_builder import TYPES, TFLiteBuilder

__all__ = ["CHANNELS", "FORMATS", "Chain", "model_of", "pairs", "suffix_of", "triples"]

CHANNELS = (1, 3, 4, 7, 8, 9, 15, 16, 17, 31, 32, 33, 64, 65)
"""Around the widths of vectors: of 4, 8, 16, 32 and 64 lanes."""

HEIGHT, WIDTH = 4, 6
"""Of an image: a tile of pixels and a tail."""

FORMATS = ("tflite int8", "tflite int16", "tflite float32", "onnx float32", "onnx int8")
"""Of the first operator's data; ``onnx int8`` has QuantizeLinear and DequantizeLinear around each operator."""

_WIDE = (*CHANNELS, 16, 17, 32, 33, 64, 64, 65, 65)
"""Those of chains: more of the widths from which on there are vectors along rows, and several of them."""


@dataclass(frozen=True)
class Chain:
    """Operators that are applied one after the other.

    Args:
        format: one of `FORMATS`.
        ops: their names, changes of the format among them.
        channels: of the input.
        seed: of the constants.
        is_image: of ONNX, whether the input is an image, or rows of ``channels`` elements.
    """

    format: str
    ops: tuple[str, ...]
    channels: int
    seed: int = 0
    is_image: bool = True

    def __str__(self) -> str:
        kind = "" if self.is_image else " rows of"
        return f"{self.format}: {' -> '.join(self.ops)},{kind} {self.channels} channels, seed {self.seed}"


@dataclass(frozen=True)
class Value:
    """A tensor of a model that is built.

    Args:
        name: of ONNX, or the index of TFLite.
        shape, dtype: of the tensor.
        scale, zero_point: of a quantised one; of others None and 0.
    """

    name: Any
    shape: tuple[int, ...]
    dtype: str
    scale: float | None = None
    zero_point: int = 0

    @property
    def quantisation(self) -> dict[str, Any]:
        """Arguments of `TFLiteBuilder.tensor`."""
        return {} if self.scale is None else {"scale": self.scale, "zero_point": self.zero_point}

    @property
    def is_image(self) -> bool:
        return len(self.shape) == 4 and min(self.shape) > 0


class NotApplicableError(Exception):
    """The operator does not take such data."""


@dataclass
class TFLite:
    """TFLite operators on images of shape [1, height, width, channels]."""

    builder: TFLiteBuilder = field(default_factory=TFLiteBuilder)
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))

    def input(self, dtype: str, channels: int) -> Value:
        shape = (1, HEIGHT, WIDTH, channels)
        scale, zero = {"int8": (0.05, 3), "int16": (2.0**-11, 0)}.get(dtype, (None, 0))
        quantised = {} if scale is None else {"scale": scale, "zero_point": zero}
        return Value(self.builder.input(shape, dtype, **quantised), shape, dtype, scale, zero)

    def apply(self, op: str, value: Value) -> Value:
        """The result of an operator.

        Raises:
            NotApplicableError: it does not take this value.
        """
        return TFLITE[op](self, op, value)

    # What the operators below are made of

    def result(
        self, like: Value, shape: Sequence[int] | None = None, dtype: str | None = None, **quantisation: Any
    ) -> Value:
        """Add a tensor of the shape and format of ``like``, except for what the other arguments say."""
        if dtype is None or dtype == like.dtype:
            quantisation = {"scale": like.scale, "zero_point": like.zero_point, **quantisation}
        else:
            quantisation = {"scale": None, "zero_point": 0, **quantisation}
        value = Value(None, like.shape if shape is None else tuple(shape), dtype or like.dtype, **quantisation)
        return replace(value, name=self.builder.tensor(value.shape, value.dtype, **value.quantisation))

    def wide(self, like: Value, shape: Sequence[int] | None = None) -> Value:
        """A result with a quantisation of its own."""
        if like.dtype == "int16":
            return self.result(like, shape, scale=2.0**-9)
        return self.result(like, shape, **({} if like.dtype == "float32" else {"scale": 0.11, "zero_point": -7}))

    def fixed(self, like: Value, scale: float, zero_point: int) -> Value:
        """A result of the quantisation that an operator prescribes for int8; for int16 a power of two."""
        if like.dtype == "int16":
            return self.result(like, scale=2.0**-15)
        return self.result(like, **({} if like.dtype == "float32" else {"scale": scale, "zero_point": zero_point}))

    def numbers(self, like: Value, shape: Sequence[int]) -> int:
        """A constant of the format of ``like``."""
        if like.dtype == "float32":
            return self.builder.constant(self.rng.normal(size=shape), "float32")
        most = 100 if like.dtype == "int8" or like.scale is None else 9000
        values = self.rng.integers(-most, most, shape)
        return self.builder.constant(values, like.dtype, **like.quantisation)

    def weights(self, like: Value, shape: Sequence[int], count: int, axis: int) -> tuple[int, int]:
        """Weights, with a scale for each of ``count`` channels, and a bias."""
        if like.dtype == "float32":
            scale = 1 / np.sqrt(np.prod(shape) / count)
            return self.builder.constant(self.rng.normal(0, scale, shape), "float32"), self.numbers(like, (count,))
        scales = [float(s) for s in self.rng.uniform(0.002, 0.004, count).astype(np.float32)]
        if like.dtype == "int16":  # of int16 results few other factors have an equal fixed point
            scales = [2.0**-8] * count
        weight = self.builder.constant(self.rng.integers(-127, 128, shape), "int8", scale=scales, axis=axis)
        sums = [float(np.float32(like.scale) * np.float32(s)) for s in scales]
        bias = self.rng.integers(-900, 900, (count,))
        return weight, self.builder.constant(bias, "int64" if like.dtype == "int16" else "int32", scale=sums)


TFLITE: dict[str, Callable[[TFLite, str, Value], Value]] = {}


def _tflite(names: str, *dtypes: str) -> Callable[[Callable[[TFLite, str, Value], Value]], None]:
    def register(make: Callable[[TFLite, str, Value], Value]) -> None:
        def checked(net: TFLite, op: str, value: Value) -> Value:
            is_plain = value.dtype.startswith("int") and value.scale is None
            if (f"plain {value.dtype}" if is_plain else value.dtype) not in dtypes:
                raise NotApplicableError
            return make(net, op, value)

        TFLITE.update(dict.fromkeys(names.split(), checked))

    return register


_INTS, _BYTES, _FLOAT = ("int8", "int16"), ("int8",), ("float32",)
_PLAIN = ("plain int32",)
_ANY = (*_INTS, *_FLOAT, *_PLAIN)


@_tflite("CONV_2D CONV_2D:3x3 DEPTHWISE_CONV_2D TRANSPOSE_CONV FULLY_CONNECTED", *_INTS, *_FLOAT)
def _tflite_product(net: TFLite, op: str, x: Value) -> Value:
    name, _, size = op.partition(":")
    channels = x.shape[-1]
    count = channels if name == "DEPTHWISE_CONV_2D" else CHANNELS[int(net.rng.integers(len(CHANNELS)))]
    if name == "FULLY_CONNECTED":
        weight, bias = net.weights(x, (count, channels), count, 0)
        y = net.result(x, (*x.shape[:-1], count)) if x.dtype == "int16" else net.wide(x, (*x.shape[:-1], count))
        net.builder.op(name, [x.name, weight, bias], [y.name], keepNumDims=True)
        return y
    if not x.is_image:
        raise NotApplicableError
    side = 3 if size or name == "DEPTHWISE_CONV_2D" else 1
    strides = {"padding": 0, "strideH": 1, "strideW": 1}
    if name == "TRANSPOSE_CONV":
        weight, bias = net.weights(x, (count, 2, 2, channels), count, 0)
        y = net.wide(x, (1, 2 * x.shape[1], 2 * x.shape[2], count))
        shape = net.builder.constant(y.shape, "int32")
        net.builder.op(name, [shape, weight, x.name, bias], [y.name], padding=0, strideH=2, strideW=2)
        return y
    y = net.wide(x, (*x.shape[:-1], count))
    if name == "CONV_2D":
        weight, bias = net.weights(x, (count, side, side, channels), count, 0)
        strides["fusedActivationFunction"] = int(net.rng.integers(2))
    else:
        weight, bias = net.weights(x, (1, side, side, count), count, 3)
        strides["depthMultiplier"] = 1
    net.builder.op(name, [x.name, weight, bias], [y.name], **strides)
    return y


@_tflite("BATCH_MATMUL", *_BYTES, *_FLOAT)
def _tflite_batch_matmul(net: TFLite, op: str, x: Value) -> Value:
    y = net.wide(x, (*x.shape[:-1], 17))
    net.builder.op(op, [x.name, net.numbers(x, (*x.shape[:-2], x.shape[-1], 17))], [y.name])
    return y


@_tflite("MAX_POOL_2D MAX_POOL_2D:3x3 AVERAGE_POOL_2D AVERAGE_POOL_2D:3x3", *_INTS, *_FLOAT)
def _tflite_pool(net: TFLite, op: str, x: Value) -> Value:
    name, _, size = op.partition(":")
    if not x.is_image:
        raise NotApplicableError
    side, stride = (3, 1) if size else (2, 2)
    y = net.result(x, (1, -(-x.shape[1] // stride), -(-x.shape[2] // stride), x.shape[3]))
    window = {"strideH": stride, "strideW": stride, "filterHeight": side, "filterWidth": side}
    net.builder.op(name, [x.name], [y.name], padding=0, **window)
    return y


@_tflite("MEAN SUM:last REDUCE_MAX REDUCE_MAX:last", *_INTS, *_FLOAT)
def _tflite_reduction(net: TFLite, op: str, x: Value) -> Value:
    name, _, last = op.partition(":")
    if (name == "SUM" and x.dtype == "int16") or (not last and not x.is_image):
        raise NotApplicableError
    axes = [len(x.shape) - 1] if last else [1, 2]
    shape = [1 if axis in axes else extent for axis, extent in enumerate(x.shape)]
    y = net.result(x, shape) if name == "REDUCE_MAX" or x.dtype == "int16" else net.wide(x, shape)
    net.builder.op(name, [x.name, net.builder.constant(axes, "int32")], [y.name], keepDims=True)
    return y


@_tflite("ARG_MAX", *_BYTES, *_FLOAT, *_PLAIN)
def _tflite_place(net: TFLite, op: str, x: Value) -> Value:
    y = net.result(x, x.shape[:-1], "int32")
    net.builder.op(op, [x.name, net.builder.constant(len(x.shape) - 1, "int32")], [y.name], outputType=TYPES["int32"])
    return y


@_tflite("TANH LOGISTIC SOFTMAX LEAKY_RELU RELU RELU6", *_INTS, *_FLOAT)
def _tflite_curve(net: TFLite, op: str, x: Value) -> Value:
    prescribed = {"TANH": (1 / 128, 0), "LOGISTIC": (1 / 256, -128), "SOFTMAX": (1 / 256, -128)}
    y = net.fixed(x, *prescribed[op]) if op in prescribed else net.result(x)
    net.builder.op(op, [x.name], [y.name], **({"beta": 1.0} if op == "SOFTMAX" else {}))
    return y


@_tflite("HARD_SWISH ELU L2_NORMALIZATION LOG_SOFTMAX GELU EXP ABS", *_BYTES, *_FLOAT)
def _tflite_curve_of_bytes(net: TFLite, op: str, x: Value) -> Value:
    prescribed = {"L2_NORMALIZATION": (1 / 128, 0), "LOG_SOFTMAX": (16 / 256, 127)}
    y = net.fixed(x, *prescribed[op]) if op in prescribed else net.wide(x)
    net.builder.op(op, [x.name], [y.name])
    return y


@_tflite("ADD MUL SUB MAXIMUM ADD:input", *_ANY)
def _tflite_pair(net: TFLite, op: str, x: Value) -> Value:
    name, _, other = op.partition(":")
    is_same = name == "MAXIMUM" or x.dtype == "int16"
    y = net.result(x) if is_same else net.wide(x) if x.scale is not None else net.result(x)
    second = net.builder.input(x.shape, x.dtype, **x.quantisation) if other else net.numbers(x, x.shape[-1:])
    net.builder.op(name, [x.name, second], [y.name])
    return y


@_tflite("PRELU SQUARED_DIFFERENCE", *_BYTES, *_FLOAT)
def _tflite_pair_of_bytes(net: TFLite, op: str, x: Value) -> Value:
    y = net.wide(x)
    net.builder.op(op, [x.name, net.numbers(x, x.shape[-1:])], [y.name])
    return y


@_tflite("TRANSPOSE RESHAPE PAD CONCATENATION STRIDED_SLICE SPACE_TO_DEPTH", *_ANY)
def _tflite_move(net: TFLite, op: str, x: Value) -> Value:
    ints = partial(net.builder.constant, dtype="int32")
    if op == "CONCATENATION":
        y = net.result(x, (*x.shape[:-1], 2 * x.shape[-1]))
        net.builder.op(op, [x.name, x.name], [y.name], axis=len(x.shape) - 1)
        return y
    if not x.is_image:
        raise NotApplicableError
    n, h, w, c = x.shape
    if op == "TRANSPOSE":
        shape, operands, options = (n, w, h, c), [ints([0, 2, 1, 3])], {}
    elif op == "RESHAPE":
        shape, operands, options = (n, h * w, c), [ints([n, h * w, c])], {}
    elif op == "PAD":
        shape, operands, options = (n, h + 1, w + 2, c), [ints([[0, 0], [1, 0], [1, 1], [0, 0]])], {}
    elif op == "STRIDED_SLICE":
        shape, options = (n, h, -(-w // 2), c), {}
        operands = [ints([0, 0, 0, 0]), ints([n, h, w, c]), ints([1, 1, 2, 1])]
    else:
        if h % 2 or w % 2:
            raise NotApplicableError
        shape, operands, options = (n, h // 2, w // 2, 4 * c), [], {"blockSize": 2}
    y = net.result(x, shape)
    net.builder.op(op, [x.name, *operands], [y.name], **options)
    return y


@_tflite("RESIZE_NEAREST_NEIGHBOR RESIZE_BILINEAR", *_INTS, *_FLOAT)
def _tflite_resize(net: TFLite, op: str, x: Value) -> Value:
    if not x.is_image:
        raise NotApplicableError
    sides = [2 * x.shape[1], 2 * x.shape[2]]
    y = net.result(x, (1, *sides, x.shape[3]))
    net.builder.op(op, [x.name, net.builder.constant(sides, "int32")], [y.name], halfPixelCenters=True)
    return y


@_tflite("to:int8 to:int16 to:float32 to:int32", *_ANY)
def _tflite_format(net: TFLite, op: str, x: Value) -> Value:
    """Requantisation, quantisation, dequantisation, or a cast."""
    dtype = op.partition(":")[2]
    given = {"int8": {"scale": 0.07, "zero_point": -4}, "int16": {"scale": 2.0**-10}}.get(dtype, {})
    y = net.result(Value(None, x.shape, "none"), None, dtype, **given)
    if dtype in _INTS:
        if x.dtype == "int32":
            raise NotApplicableError
        net.builder.op("QUANTIZE", [x.name], [y.name])
    elif dtype == "float32" and x.scale is not None:
        net.builder.op("DEQUANTIZE", [x.name], [y.name])
    elif x.scale is None and x.dtype != dtype:
        net.builder.op("CAST", [x.name], [y.name])
    else:
        raise NotApplicableError
    return y


# --- ONNX ------------------------------------------------------------------------------------------------------------


@dataclass
class Onnx:
    """ONNX operators on images of shape [1, channels, height, width], and on rows [height, channels].

    Args:
        is_quantised: whether there are QuantizeLinear and DequantizeLinear behind every result of float32.
    """

    is_quantised: bool = False
    builder: OnnxBuilder = field(default_factory=OnnxBuilder)
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))

    def input(self, channels: int, is_image: bool) -> Value:
        shape = (1, channels, HEIGHT, WIDTH) if is_image else (HEIGHT, channels)
        name = self.builder.input(f"x{len(self.builder.inputs)}", shape)
        return self.quantised(Value(name, shape, "float32"))

    def quantised(self, x: Value, scale: float = 0.05, zero_point: int = 3) -> Value:
        if not self.is_quantised or x.dtype != "float32":
            return x
        codes = self.builder.quantize(x.name, scale, zero_point, "int8")
        return Value(self.builder.dequantize(codes, scale, zero_point, "int8"), x.shape, "float32")

    def weights(self, shape: Sequence[int], axis: int = 0) -> str:
        if not self.is_quantised:
            return self.builder.constant(self.rng.normal(0, 1 / np.sqrt(np.prod(shape[1:])), shape), "float32")
        codes = self.builder.constant(self.rng.integers(-127, 128, shape), "int8")
        scales = self.builder.constant(self.rng.uniform(0.002, 0.004, shape[axis]), "float32")
        zeros = self.builder.constant(np.zeros(shape[axis]), "int8")
        weights: str = self.builder.node("DequantizeLinear", codes, scales, zeros, axis=axis)
        return weights

    def numbers(self, *shape: int) -> str:
        return self.builder.constant(self.rng.normal(size=shape), "float32")

    def apply(self, op: str, value: Value) -> Value:
        """The result of an operator.

        Raises:
            NotApplicableError: it does not take this value.
        """
        return self.quantised(ONNX[op](self, op, value), 0.04, -5)


ONNX: dict[str, Callable[[Onnx, str, Value], Value]] = {}


def _onnx(names: str, *dtypes: str) -> Callable[[Callable[[Onnx, str, Value], Value]], None]:
    def register(make: Callable[[Onnx, str, Value], Value]) -> None:
        def checked(net: Onnx, op: str, value: Value) -> Value:
            if value.dtype not in (dtypes or ("float32",)):
                raise NotApplicableError
            return make(net, op, value)

        ONNX.update(dict.fromkeys(names.split(), checked))

    return register


_CAST = ("float32", "int32", "int64", "float64")


@_onnx("Conv Conv:3x3 Conv:depthwise ConvTranspose")
def _onnx_convolution(net: Onnx, op: str, x: Value) -> Value:
    name, _, kind = op.partition(":")
    if not x.is_image:
        raise NotApplicableError
    _, channels, h, w = x.shape
    count = CHANNELS[int(net.rng.integers(len(CHANNELS)))]
    if name == "ConvTranspose":
        y = net.builder.node(name, x.name, net.weights((channels, count, 2, 2), 1), strides=[2, 2])
        return Value(y, (1, count, 2 * h, 2 * w), "float32")
    if kind == "depthwise":
        y = net.builder.node(name, x.name, net.weights((channels, 1, 3, 3)), pads=[1] * 4, group=channels)
        return Value(y, x.shape, "float32")
    side = 3 if kind else 1
    y = net.builder.node(name, x.name, net.weights((count, channels, side, side)), pads=[side // 2] * 4)
    return Value(y, (1, count, h, w), "float32")


@_onnx("MatMul Gemm")
def _onnx_product(net: Onnx, op: str, x: Value) -> Value:
    count, depth = CHANNELS[int(net.rng.integers(len(CHANNELS)))], x.shape[-1]
    if op == "Gemm":
        if len(x.shape) != 2:
            raise NotApplicableError
        operands = (net.weights((count, depth)), net.numbers(count))
        return Value(net.builder.node(op, x.name, *operands, transB=1), (x.shape[0], count), "float32")
    return Value(net.builder.node(op, x.name, net.weights((depth, count), 1)), (*x.shape[:-1], count), "float32")


@_onnx("MaxPool MaxPool:3x3 AveragePool AveragePool:3x3")
def _onnx_pool(net: Onnx, op: str, x: Value) -> Value:
    name, _, size = op.partition(":")
    if not x.is_image or (not size and min(x.shape[2:]) < 2):
        raise NotApplicableError
    side, stride, pad = (3, 1, 1) if size else (2, 2, 0)
    y = net.builder.node(name, x.name, kernel_shape=[side] * 2, strides=[stride] * 2, pads=[pad] * 4)
    return Value(y, (*x.shape[:2], *(extent // stride for extent in x.shape[2:])), "float32")


@_onnx("GlobalAveragePool ReduceMean:last ReduceMax ReduceSum:last", *_CAST)
def _onnx_reduction(net: Onnx, op: str, x: Value) -> Value:
    name, _, last = op.partition(":")
    if (not last and not x.is_image) or (x.dtype != "float32" and name != "ReduceSum"):
        raise NotApplicableError
    if name == "GlobalAveragePool":
        return Value(net.builder.node(name, x.name), (*x.shape[:2], 1, 1), x.dtype)
    axes = [len(x.shape) - 1] if last else [2, 3]
    shape = tuple(1 if axis in axes else extent for axis, extent in enumerate(x.shape))
    if name == "ReduceSum":
        y = net.builder.node(name, x.name, net.builder.constant(axes, "int64"), keepdims=1)
    else:
        y = net.builder.node(name, x.name, axes=axes, keepdims=1)
    return Value(y, shape, x.dtype)


@_onnx("ArgMax", *_CAST)
def _onnx_place(net: Onnx, op: str, x: Value) -> Value:
    return Value(net.builder.node(op, x.name, axis=len(x.shape) - 1, keepdims=1), (*x.shape[:-1], 1), "int64")


@_onnx("Softmax Softmax:channels LogSoftmax")
def _onnx_softmax(net: Onnx, op: str, x: Value) -> Value:
    name, _, channels = op.partition(":")
    return Value(net.builder.node(name, x.name, axis=1 if channels else -1), x.shape, "float32")


@_onnx("LayerNormalization InstanceNormalization BatchNormalization")
def _onnx_norm(net: Onnx, op: str, x: Value) -> Value:
    if op == "LayerNormalization":
        scale, bias = net.numbers(x.shape[-1]), net.numbers(x.shape[-1])
        return Value(net.builder.node(op, x.name, scale, bias, axis=-1), x.shape, "float32")
    if not x.is_image:
        raise NotApplicableError
    c = x.shape[1]
    operands = [net.numbers(c), net.numbers(c)]
    if op == "BatchNormalization":
        operands += [net.numbers(c), net.builder.constant(net.rng.uniform(0.5, 2, c), "float32")]
    return Value(net.builder.node(op, x.name, *operands), x.shape, "float32")


@_onnx("Relu Sigmoid Tanh HardSwish HardSigmoid Erf Exp Elu LeakyRelu Softplus Abs Neg Floor Sin")
def _onnx_curve(net: Onnx, op: str, x: Value) -> Value:
    return Value(net.builder.node(op, x.name), x.shape, "float32")


@_onnx("Clip Sqrt Gelu")
def _onnx_composed_curve(net: Onnx, op: str, x: Value) -> Value:
    if op == "Clip":
        limits = (net.builder.constant(0.0, "float32"), net.builder.constant(6.0, "float32"))
        return Value(net.builder.node(op, x.name, *limits), x.shape, "float32")
    if op == "Sqrt":
        return Value(net.builder.node(op, net.builder.node("Abs", x.name)), x.shape, "float32")
    erf = net.builder.node("Erf", net.builder.node("Mul", x.name, net.builder.constant(0.7071, "float32")))
    half = net.builder.node("Mul", x.name, net.builder.constant(0.5, "float32"))
    one = net.builder.node("Add", erf, net.builder.constant(1.0, "float32"))
    return Value(net.builder.node("Mul", half, one), x.shape, "float32")


@_onnx("Add Mul Sub Div Max Add:input PRelu Where")
def _onnx_pair(net: Onnx, op: str, x: Value) -> Value:
    name, _, other = op.partition(":")
    if other:
        second = net.builder.input(f"x{len(net.builder.inputs)}", x.shape)
        second = net.quantised(Value(second, x.shape, "float32")).name
    elif x.is_image:
        second = net.numbers(x.shape[1], 1, 1)
    else:
        second = net.numbers(x.shape[-1])
    if name == "Where":
        return Value(
            net.builder.node(name, net.builder.node("Greater", x.name, second), x.name, second), x.shape, x.dtype
        )
    return Value(net.builder.node(name, x.name, second), x.shape, "float32")


@_onnx("Transpose Flatten Pad Concat Slice Resize:nearest Resize:linear DepthToSpace", *_CAST)
def _onnx_move(net: Onnx, op: str, x: Value) -> Value:
    name, _, mode = op.partition(":")
    if name == "Concat":
        return Value(
            net.builder.node(name, x.name, x.name, axis=1), (x.shape[0], 2 * x.shape[1], *x.shape[2:]), x.dtype
        )
    if name == "Slice":
        starts, ends, axes, steps = (net.builder.constant([i], "int64") for i in (0, x.shape[-1], len(x.shape) - 1, 2))
        y = net.builder.node(name, x.name, starts, ends, axes, steps)
        return Value(y, (*x.shape[:-1], -(-x.shape[-1] // 2)), x.dtype)
    if not x.is_image:
        raise NotApplicableError
    n, c, h, w = x.shape
    if name == "Transpose":
        return Value(net.builder.node(name, x.name, perm=[0, 2, 3, 1]), (n, h, w, c), x.dtype)
    if name == "Flatten":
        return Value(net.builder.node(name, x.name, axis=2), (n * c, h * w), x.dtype)
    if name == "Pad":
        pads = net.builder.constant([0, 0, 1, 0, 0, 0, 1, 2], "int64")
        return Value(net.builder.node(name, x.name, pads), (n, c, h + 2, w + 2), x.dtype)
    if name == "DepthToSpace":
        if c % 4:
            raise NotApplicableError
        return Value(net.builder.node(name, x.name, blocksize=2), (n, c // 4, 2 * h, 2 * w), x.dtype)
    if x.dtype != "float32":
        raise NotApplicableError
    sizes = net.builder.constant([n, c, 2 * h, 2 * w], "int64")
    return Value(net.builder.node(name, x.name, "", "", sizes, mode=mode), (n, c, 2 * h, 2 * w), x.dtype)


@_onnx("to:int64 to:float64 to:int32 to:float16 to:bool to:float32", *_CAST)
def _onnx_format(net: Onnx, op: str, x: Value) -> Value:
    """A cast; to the formats that few operators take, and back again."""
    dtype = op.partition(":")[2]
    if dtype == x.dtype:
        raise NotApplicableError
    number = {"float64": "DOUBLE", "float32": "FLOAT"}.get(dtype, dtype.upper())
    y = net.builder.node("Cast", x.name, to=getattr(helper.TensorProto, number))
    if dtype in ("float16", "bool"):
        return Value(net.builder.node("Cast", y, to=helper.TensorProto.FLOAT), x.shape, "float32")
    return Value(y, x.shape, dtype)


# --- Models ----------------------------------------------------------------------------------------------------------


def model_of(chains: Sequence[Chain]) -> bytes:
    """The file of a model that computes chains, all of one importer, side by side; each is an output.

    Raises:
        NotApplicableError: an operator does not take what the one before it gives.
    """
    if chains[0].format.startswith("tflite"):
        net = TFLite()
        ends = [_tflite_chain(net, chain) for chain in chains]
        return net.builder.finish(*ends)
    builder = OnnxBuilder(17)
    outputs = [_onnx_chain(builder, chain, number) for number, chain in enumerate(chains)]
    return builder.build(*outputs)


def _tflite_chain(net: TFLite, chain: Chain) -> int:
    net.rng = np.random.default_rng(chain.seed)
    value = net.input(chain.format.split()[1], chain.channels)
    for op in chain.ops:
        value = net.apply(op, value)
    index: int = value.name
    return index


def _onnx_chain(builder: OnnxBuilder, chain: Chain, number: int) -> str:
    net = Onnx(chain.format.endswith("int8"), builder, np.random.default_rng(chain.seed))
    value = net.input(chain.channels, chain.is_image)
    for op in chain.ops:
        value = net.apply(op, value)
    name: str = builder.node("Identity", value.name, outputs=[f"y{number}"])
    return name


def suffix_of(chain: Chain) -> str:
    """The suffix of the file of a model with that chain."""
    return ".tflite" if chain.format.startswith("tflite") else ".onnx"


def pairs(format: str) -> Iterator[Chain]:
    """All pairs of operators and changes of the format, one after the other, as far as they go together.

    Args:
        format: of the first one's data, of `FORMATS`.
    """
    choice = random.Random(format)
    for ops in product(_table(format), repeat=2):
        chain = _chain(format, ops, choice)
        if chain is not None:
            yield chain


def triples(format: str, count: int, seed: int) -> Iterator[Chain]:
    """So many random chains of three, as far as they go together."""
    choice, names = random.Random(f"{format} {seed}"), list(_table(format))
    while count:
        chain = _chain(format, choice.choices(names, k=3), choice)
        if chain is not None:
            count -= 1
            yield chain


def _table(format: str) -> Sequence[str]:
    return tuple(TFLITE if format.startswith("tflite") else ONNX)


def _chain(format: str, ops: Sequence[str], choice: random.Random) -> Chain | None:
    """A chain of these operators on a random number of channels; None where they do not go together."""
    for is_image in choice.sample([True, False], 2) if format.startswith("onnx") else [True]:
        chain = Chain(format, tuple(ops), choice.choice(_WIDE), choice.randrange(1 << 16), is_image)
        try:
            model_of([chain])
        except NotApplicableError:
            continue
        return chain
    return None
