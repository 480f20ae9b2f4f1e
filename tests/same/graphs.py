"""Random ONNX graphs: images, sequences, single operators of all kinds in a chain, control flow.

Each function takes a random generator and returns a model that the package onnx accepts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx
from benchmarks.blocks import Layers
from onnx import parser
from tests._support.onnx_builder import IR_VERSION

__all__ = ["draw_control_flow", "draw_image", "draw_operators", "draw_sequence"]


class _HalfLayers(Layers):
    """Layers whose numbers are float16."""

    def input(self, shape: Sequence[int], dtype: str = "float32") -> str:
        return super().input(shape, dtype.replace("float32", "float16"))

    def constant(self, value: object, dtype: str = "float32") -> str:
        return super().constant(value, dtype.replace("float32", "float16"))


def _pick(rng: np.random.Generator, *choices: Any) -> Any:
    return choices[rng.integers(len(choices))]


def _layers(rng: np.random.Generator, kind: type[Layers] = Layers) -> Layers:
    return kind(int(rng.integers(2**31)))


# --- images ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Map:
    """A feature map: a value and its channels, height and width."""

    value: str
    channels: int
    height: int
    width: int


CHANNELS = (1, 2, 3, 4, 6, 8, 12, 15, 16, 17, 24, 32)


def _activate(net: Layers, rng: np.random.Generator, x: str) -> str:
    kind = _pick(
        rng, "Relu", "Relu", "relu6", "silu", "HardSwish", "LeakyRelu", "Sigmoid", "Tanh", "Elu", "gelu", "none"
    )
    if kind == "none":
        return x
    named = {"relu6": net.relu6, "silu": net.silu, "gelu": net.gelu}
    return named[kind](x) if kind in named else net.op(kind, x)


def _convolve(net: Layers, rng: np.random.Generator, x: _Map) -> _Map:
    kind = _pick(rng, "dense", "dense", "depthwise", "pointwise", "grouped", "transposed")
    out = int(_pick(rng, *CHANNELS))
    size = (1, 1) if kind == "pointwise" else (int(_pick(rng, 1, 3, 3, 5)), int(_pick(rng, 1, 3, 3)))
    stride = int(_pick(rng, 1, 1, 2))
    if kind == "transposed":
        weight = net.weight((x.channels, out, 2, 2), x.channels)
        y = net.op("ConvTranspose", x.value, weight, kernel_shape=[2, 2], strides=[2, 2])
        return _Map(y, out, 2 * x.height, 2 * x.width)
    groups = {"depthwise": x.channels, "grouped": 2 if x.channels % 2 == 0 else 1}.get(kind, 1)
    out = x.channels if kind == "depthwise" else -(-out // groups) * groups
    y = net.conv(x.value, (x.channels, out), size, stride, groups)
    if rng.random() < 0.4:
        y = net.norm(y, out)
    return _Map(_activate(net, rng, y), out, (x.height - 1) // stride + 1, (x.width - 1) // stride + 1)


def _pool(net: Layers, rng: np.random.Generator, x: _Map) -> _Map:
    side, stride = int(_pick(rng, 2, 3)), int(_pick(rng, 1, 2))
    kind = _pick(rng, "MaxPool", "AveragePool")
    attrs = {"count_include_pad": int(rng.integers(2))} if kind == "AveragePool" else {}
    pads = [side // 2] * 4
    y = net.op(kind, x.value, kernel_shape=[side, side], strides=[stride, stride], pads=pads, **attrs)
    height, width = ((n + 2 * (side // 2) - side) // stride + 1 for n in (x.height, x.width))
    return _Map(y, x.channels, height, width)


def _resize(net: Layers, rng: np.random.Generator, x: _Map) -> _Map:
    mode = _pick(rng, "nearest", "linear", "cubic")
    height, width = int(rng.integers(1, 2 * x.height + 1)), int(rng.integers(1, 2 * x.width + 1))
    how = {"coordinate_transformation_mode": _pick(rng, "half_pixel", "asymmetric", "align_corners")}
    if mode == "nearest":
        how["nearest_mode"] = _pick(rng, "floor", "ceil", "round_prefer_floor", "round_prefer_ceil")
    if rng.random() < 0.5:
        y = net.op("Resize", x.value, "", "", net.ints(1, x.channels, height, width), mode=mode, **how)
        return _Map(y, x.channels, height, width)
    y = net.op("Resize", x.value, "", net.constant([1, 1, 2, 2]), mode=mode, **how)
    return _Map(y, x.channels, 2 * x.height, 2 * x.width)


def _residual(net: Layers, rng: np.random.Generator, x: _Map) -> _Map:
    y = net.conv(x.value, (x.channels, x.channels), (3, 3))
    op = _pick(rng, "Add", "Add", "Mul", "Sub", "Max")
    return _Map(_activate(net, rng, net.op(op, x.value, y)), x.channels, x.height, x.width)


def _gate(net: Layers, rng: np.random.Generator, x: _Map) -> _Map:
    y = net.conv(net.op("GlobalAveragePool", x.value), (x.channels, x.channels), (1, 1))
    y = net.op("Mul", x.value, net.op(_pick(rng, "Sigmoid", "HardSigmoid"), y))
    return _Map(y, x.channels, x.height, x.width)


def _join(net: Layers, rng: np.random.Generator, x: _Map) -> _Map:
    out = int(_pick(rng, 1, 4, 5))
    y = net.op("Concat", x.value, net.conv(x.value, (x.channels, out), (1, 1)), axis=1)
    return _Map(y, x.channels + out, x.height, x.width)


def _move(net: Layers, rng: np.random.Generator, x: _Map) -> _Map:
    """Add halves that change places, padding, a slice, or channels last for a normalisation."""
    kind = _pick(rng, "halves", "pad", "slice", "norm")
    if kind == "halves" and x.channels > 1:
        sizes = (x.channels // 2, x.channels - x.channels // 2)
        low, high = net.ops("Split", 2, x.value, net.ints(*sizes), axis=1)
        return _Map(net.op("Concat", high, low, axis=1), x.channels, x.height, x.width)
    if kind == "pad" and min(x.height, x.width) > 2:
        mode = _pick(rng, "constant", "reflect", "edge")
        y = net.op("Pad", x.value, net.ints(0, 0, 1, 2, 0, 0, 0, 1), mode=mode)
        return _Map(y, x.channels, x.height + 1, x.width + 3)
    if kind == "slice" and min(x.height, x.width) > 3:
        y = net.op("Slice", x.value, net.ints(1, 0), net.ints(x.height, x.width), net.ints(2, 3), net.ints(1, 2))
        return _Map(y, x.channels, x.height - 1, (x.width + 1) // 2)
    y = net.layer_norm(net.swap(x.value, 0, 2, 3, 1), x.channels)
    return _Map(net.swap(y, 0, 3, 1, 2), x.channels, x.height, x.width)


def _normalise(net: Layers, rng: np.random.Generator, x: _Map) -> _Map:
    if rng.random() < 0.5:
        return _Map(net.op("LRN", x.value, size=3), x.channels, x.height, x.width)
    ones, zeros = net.constant(np.linspace(0.5, 1.5, x.channels)), net.constant(np.zeros(x.channels))
    return _Map(net.op("InstanceNormalization", x.value, ones, zeros), x.channels, x.height, x.width)


_STEPS: tuple[Callable[[Layers, np.random.Generator, _Map], _Map], ...] = (
    *(_convolve, _convolve, _convolve, _pool, _residual, _gate, _join, _move, _resize, _normalise),
)


def draw_image(rng: np.random.Generator, *, half: bool = False) -> onnx.ModelProto:
    """Return a network of convolutions and what goes with them, of float32 or float16.

    It ends with classes, an image, or both.
    """
    net = _layers(rng, _HalfLayers if half else Layers)
    first = int(_pick(rng, 1, 3, 4)), int(rng.integers(4, 17)), int(rng.integers(4, 17))
    x = _Map(net.input((1, *first)), *first)
    steps = _STEPS[:-2] if half else _STEPS
    for _ in range(int(rng.integers(2, 7))):
        x = steps[rng.integers(len(steps))](net, rng, x)
        if x.height * x.width > 900:
            x = _pool(net, rng, x)
    ends = {"classes", "image"} if rng.random() < 0.2 else {_pick(rng, "classes", "classes", "image", "best")}
    outputs = []
    if "classes" in ends:
        outputs.append(net.op(_pick(rng, "Softmax", "Identity", "LogSoftmax"), net.classes(x.value, x.channels, 10)))
    if "image" in ends:
        outputs.append(net.conv(x.value, (x.channels, 2), (1, 1)))
    if "best" in ends:
        outputs += [net.op("ArgMax", x.value, axis=1), net.op("ReduceMax", x.value, axes=[1])]
    return net.model(*outputs)


# --- sequences -------------------------------------------------------------------------------------------------------


def _attend(net: Layers, rng: np.random.Generator, x: str, width: int) -> str:
    """Add attention of a sequence to itself; no shape mentions the number of steps."""
    heads = int(_pick(rng, 1, 2, 4))
    q, k, v = (
        net.swap(net.shape(net.linear(x, (width, width)), 0, -1, heads, width // heads), *axes)
        for axes in ((0, 2, 1, 3), (0, 2, 3, 1), (0, 2, 1, 3))
    )
    scores = net.op("Div", net.op("MatMul", q, k), net.number(math.sqrt(width // heads)))
    y = net.op("MatMul", net.op("Softmax", scores, axis=-1), v)
    return net.linear(net.shape(net.swap(y, 0, 2, 1, 3), 0, -1, width), (width, width))


def _forward(net: Layers, rng: np.random.Generator, x: str, width: int) -> str:
    wide = int(_pick(rng, 8, 24, 40))
    y = net.linear(x, (width, wide), bias=bool(rng.integers(2)))
    y = _pick(rng, net.gelu, net.gelu_tanh, net.silu, net.relu6)(y)
    return net.linear(y, (wide, width))


def _along(net: Layers, rng: np.random.Generator, x: str, width: int) -> str:
    """Add a convolution over time, often with a filter per channel."""
    groups = int(_pick(rng, 1, width))
    return net.swap(net.conv(net.swap(x, 0, 2, 1), (width, width), (int(_pick(rng, 1, 3, 5)),), 1, groups), 0, 2, 1)


def _remember(net: Layers, rng: np.random.Generator, x: str, width: int) -> str:
    both = bool(rng.integers(2))
    y = net.recurrent(_pick(rng, "LSTM", "GRU", "RNN"), net.swap(x, 1, 0, 2), (width, 5), both)
    return net.linear(net.swap(y, 1, 0, 2), (10 if both else 5, width))


_BLOCKS: tuple[Callable[[Layers, np.random.Generator, str, int], str], ...] = (_attend, _forward, _along, _remember)


def draw_sequence(rng: np.random.Generator, *, is_open: bool = False) -> onnx.ModelProto:
    """Return a network over time: attention, dense layers, recurrent ones, convolutions, with norms between them.

    Args:
        rng: draws it.
        is_open: whether the number of steps is left open, as ``steps``. Then nothing is recurrent.
    """
    net, width = _layers(rng), int(_pick(rng, 4, 8, 12, 16))
    steps: Any = "steps" if is_open else int(rng.integers(1, 20))
    if rng.random() < 0.3:
        x = net.op("Gather", net.constant(net.rng.standard_normal((30, width))), net.input((1, steps), "int64"), axis=0)
    else:
        x = net.input((1, steps, width))
    blocks = _BLOCKS[:-1] if is_open else _BLOCKS
    for _ in range(int(rng.integers(1, 4))):
        norm = _pick(rng, net.layer_norm, net.spelled_layer_norm, net.rms_norm)
        x = net.op("Add", x, blocks[rng.integers(len(blocks))](net, rng, norm(x, width), width))
    end = _pick(rng, "all", "last", "mean", "both")
    outputs = [net.linear(x, (width, 6))] if end in ("all", "both") else []
    if end == "last":
        outputs.append(net.linear(net.op("Gather", x, net.constant(-1, "int64"), axis=1), (width, 3)))
    if end in ("mean", "both"):
        outputs.append(net.op("Sigmoid", net.op("ReduceMean", x, axes=[1])))
    return net.model(*outputs)


# --- operators -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Value:
    """A tensor of `operators`."""

    name: str
    shape: tuple[int, ...]
    dtype: str


_UNARY: Mapping[str, Sequence[str]] = MappingProxyType(
    {
        "float32": (
            *("Abs", "Neg", "Exp", "Tanh", "Sigmoid", "Erf", "Sin", "Cos", "Atan", "Softplus", "Softsign", "Elu"),
            *("Selu", "Celu", "ThresholdedRelu", "HardSwish", "HardSigmoid", "LeakyRelu", "Floor", "Ceil", "Round"),
            *("Sign", "Relu", "Sqrt", "Log", "Reciprocal", "IsNaN", "IsInf", "Sinh", "Asinh", "Identity"),
        ),
        "int32": ("Abs", "Neg", "Sign", "Identity"),
        "int64": ("Abs", "Neg", "Sign"),
        "uint8": ("Identity",),
        "bool": ("Not",),
    }
)
_BINARY: Mapping[str, Sequence[str]] = MappingProxyType(
    {
        "float32": (
            "Add",
            "Sub",
            "Mul",
            "Div",
            "Max",
            "Min",
            "Pow",
            "PRelu",
            "Greater",
            "LessOrEqual",
            "Equal",
            "Mean",
        ),
        "int32": ("Add", "Sub", "Mul", "Div", "Max", "Min", "Mod", "Less", "GreaterOrEqual"),
        "int64": ("Add", "Sub", "Mul", "Div", "Max", "Min", "Mod", "Equal"),
        "uint8": ("Max", "Min", "Equal", "BitShift"),
        "bool": ("And", "Or", "Xor"),
    }
)
_REDUCING = ("ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceLogSumExp")


def draw_operators(rng: np.random.Generator) -> onnx.ModelProto:
    """Return a chain of single operators on small tensors of several types, often with several outputs."""
    net = _Operators(rng)
    for _ in range(int(rng.integers(1, 3))):
        shape = tuple(int(n) for n in rng.integers(1, 6, rng.integers(1, 5)))
        net.values.append(net.input_of(shape, _pick(rng, "float32", "float32", "float32", "int32", "int64", "uint8")))
    for _ in range(int(rng.integers(2, 8))):
        net.add(net.values[-1] if rng.random() < 0.7 else _pick(rng, *net.values))
    used = {name for node in net.net._nodes for name in node.input}
    loose = [value.name for value in net.values if value.name not in used]
    return net.net.model(*[name for name in loose if not name.startswith("x")])


class _Operators:
    """Adds one operator after the other."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng, self.net = rng, _layers(rng)
        self.values: list[_Value] = []

    def input_of(self, shape: tuple[int, ...], dtype: str) -> _Value:
        return _Value(self.net.input(shape, dtype), shape, dtype)

    def array(self, shape: Sequence[int], dtype: str) -> np.ndarray:
        if dtype == "float32":
            return self.rng.uniform(-2, 2, shape).astype(dtype)
        return self.rng.integers(0 if dtype in ("uint8", "bool") else -9, 2 if dtype == "bool" else 9, shape).astype(
            dtype
        )

    def give(self, kind: str, shape: Sequence[int], dtype: str, *inputs: str, **attrs: Any) -> None:
        self.values.append(_Value(self.net.op(kind, *inputs, **attrs), tuple(int(n) for n in shape), dtype))

    def add(self, x: _Value) -> None:
        """Add an operator on ``x``."""
        kinds = [self.unary, self.unary, self.binary, self.binary, self.cast, self.choose, self.gather, self.tile]
        kinds += [self.transpose, self.reshape, self.slice, self.split, self.concatenate, self.expand, self.pad]
        kinds += [self.extreme, self.scatter]
        if x.dtype == "float32":
            kinds += [self.reduce, self.reduce, self.softmax, self.multiply, self.multiply, self.quantise]
            kinds += [self.accumulate, self.largest, self.normalise, self.sum]
        kinds[self.rng.integers(len(kinds))](x)

    def axis(self, x: _Value) -> int:
        return int(self.rng.integers(len(x.shape))) if x.shape else 0

    def unary(self, x: _Value) -> None:
        kind = _pick(self.rng, *_UNARY[x.dtype])
        data = x.name
        if kind in ("Sqrt", "Log", "Reciprocal"):
            data = self.net.op("Add", self.net.op("Abs", data), self.net.number(0.1))
        self.give(kind, x.shape, "bool" if kind.startswith("Is") else x.dtype, data)

    def binary(self, x: _Value) -> None:
        kind = _pick(self.rng, *_BINARY[x.dtype])
        shape = [n if self.rng.random() < 0.7 else 1 for n in x.shape]
        array = self.array(shape, x.dtype)
        if kind in ("Div", "Mod"):
            array = np.where(array == 0, 1, array).astype(array.dtype)
        others = [v for v in self.values if v.dtype == x.dtype and v.shape == x.shape and kind not in ("Div", "Mod")]
        constant = self.rng.random() < 0.5 or not others or kind == "PRelu"
        other = self.net.constant(array, x.dtype) if constant else _pick(self.rng, *others).name
        data = self.net.op("Abs", x.name) if kind == "Pow" else x.name
        attrs = {"direction": "LEFT"} if kind == "BitShift" else {}
        compared = kind.startswith(("Greater", "Less", "Equal"))
        self.give(kind, x.shape, "bool" if compared else x.dtype, data, other, **attrs)

    def cast(self, x: _Value) -> None:
        dtype = _pick(self.rng, "float32", "float32", "int32", "int64", "uint8", "bool")
        to = int(onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))
        self.give("Cast", x.shape, dtype, x.name, to=to)

    def choose(self, x: _Value) -> None:
        condition = self.net.constant(self.array(x.shape, "bool"), "bool")
        self.give("Where", x.shape, x.dtype, condition, x.name, self.net.constant(self.array([], x.dtype), x.dtype))

    def gather(self, x: _Value) -> None:
        axis = self.axis(x)
        if self.rng.random() < 0.5:
            indices = self.rng.integers(0, x.shape[axis], (2, 3))
            shape = [*x.shape[:axis], 2, 3, *x.shape[axis + 1 :]]
            self.give("Gather", shape, x.dtype, x.name, self.net.constant(indices, "int64"), axis=axis)
        else:
            indices = self.rng.integers(0, x.shape[axis], x.shape)
            self.give("GatherElements", x.shape, x.dtype, x.name, self.net.constant(indices, "int64"), axis=axis)

    def scatter(self, x: _Value) -> None:
        axis = self.axis(x)
        shape = [1 if d == axis else n for d, n in enumerate(x.shape)]
        indices = self.net.constant(self.rng.integers(0, x.shape[axis], shape), "int64")
        updates = self.net.constant(self.array(shape, x.dtype), x.dtype)
        self.give("ScatterElements", x.shape, x.dtype, x.name, indices, updates, axis=axis)

    def tile(self, x: _Value) -> None:
        repeats = [int(self.rng.integers(1, 3)) for _ in x.shape]
        shape = [n * times for n, times in zip(x.shape, repeats, strict=True)]
        self.give("Tile", shape, x.dtype, x.name, self.net.ints(*repeats))

    def transpose(self, x: _Value) -> None:
        order = [int(axis) for axis in self.rng.permutation(len(x.shape))]
        self.give("Transpose", [x.shape[axis] for axis in order], x.dtype, x.name, perm=order)

    def reshape(self, x: _Value) -> None:
        kind = _pick(self.rng, "Flatten", "Unsqueeze", "Reshape", "Squeeze")
        ones = [axis for axis, n in enumerate(x.shape) if n == 1]
        if kind == "Flatten":
            axis = self.axis(x)
            self.give(kind, [math.prod(x.shape[:axis]), math.prod(x.shape[axis:])], x.dtype, x.name, axis=axis)
        elif kind == "Squeeze" and ones and len(x.shape) > 1:
            self.give(kind, x.shape[: ones[0]] + x.shape[ones[0] + 1 :], x.dtype, x.name, self.net.ints(ones[0]))
        elif kind == "Unsqueeze" and len(x.shape) < 5:
            self.give(kind, [1, *x.shape], x.dtype, x.name, self.net.ints(0))
        else:
            self.give("Reshape", x.shape[::-1], x.dtype, x.name, self.net.ints(*x.shape[:0:-1], -1))

    def slice(self, x: _Value) -> None:
        axis = self.axis(x)
        step = int(_pick(self.rng, 1, 2, -1))
        begin, end = (0, x.shape[axis]) if step > 0 else (x.shape[axis] - 1, -(2**31))
        shape = [-(-n // abs(step)) if d == axis else n for d, n in enumerate(x.shape)]
        ints = (self.net.ints(value) for value in (begin, end, axis, step))
        self.give("Slice", shape, x.dtype, x.name, *ints)

    def split(self, x: _Value) -> None:
        axis = self.axis(x)
        if x.shape[axis] < 2:
            return
        first = int(self.rng.integers(1, x.shape[axis]))
        sizes = (first, x.shape[axis] - first)
        names = self.net.ops("Split", 2, x.name, self.net.ints(*sizes), axis=axis)
        for name, size in zip(names, sizes, strict=True):
            self.values.append(_Value(name, (*x.shape[:axis], size, *x.shape[axis + 1 :]), x.dtype))

    def concatenate(self, x: _Value) -> None:
        axis = self.axis(x)
        other = self.net.constant(self.array(x.shape, x.dtype), x.dtype)
        shape = [2 * n if d == axis else n for d, n in enumerate(x.shape)]
        self.give("Concat", shape, x.dtype, x.name, other, axis=axis)

    def expand(self, x: _Value) -> None:
        self.give("Expand", (2, *x.shape), x.dtype, x.name, self.net.ints(2, *x.shape))

    def pad(self, x: _Value) -> None:
        if x.dtype == "bool":
            return
        amounts = [int(n) for n in self.rng.integers(0, 2, 2 * len(x.shape))]
        shape = [n + a + b for n, a, b in zip(x.shape, amounts, amounts[len(x.shape) :], strict=False)]
        self.give("Pad", shape, x.dtype, x.name, self.net.ints(*amounts), mode=_pick(self.rng, "constant", "edge"))

    def extreme(self, x: _Value) -> None:
        if x.dtype in ("bool", "uint8"):
            return
        axis = self.axis(x)
        shape = [1 if d == axis else n for d, n in enumerate(x.shape)]
        last = int(self.rng.integers(2))
        self.give(_pick(self.rng, "ArgMax", "ArgMin"), shape, "int64", x.name, axis=axis, select_last_index=last)

    def reduce(self, x: _Value) -> None:
        axes = [axis for axis in range(len(x.shape)) if self.rng.random() < 0.5] or [self.axis(x)]
        shape = [1 if d in axes else n for d, n in enumerate(x.shape)]
        self.give(_pick(self.rng, *_REDUCING), shape, x.dtype, x.name, axes=axes, keepdims=1)

    def sum(self, x: _Value) -> None:
        axis = self.axis(x)
        shape = [n for d, n in enumerate(x.shape) if d != axis]
        if shape:
            self.give("ReduceSum", shape, x.dtype, x.name, self.net.ints(axis), keepdims=0)

    def softmax(self, x: _Value) -> None:
        self.give(_pick(self.rng, "Softmax", "LogSoftmax", "Hardmax"), x.shape, x.dtype, x.name, axis=self.axis(x))

    def multiply(self, x: _Value) -> None:
        if len(x.shape) < 2:
            return
        columns = int(_pick(self.rng, 1, 3, 8, 17))
        weight = self.net.weight((x.shape[-1], columns), x.shape[-1])
        if len(x.shape) == 2 and self.rng.random() < 0.5:
            self.give("Gemm", (x.shape[0], columns), x.dtype, x.name, weight, alpha=0.5)
        else:
            self.give("MatMul", (*x.shape[:-1], columns), x.dtype, x.name, weight)

    def quantise(self, x: _Value) -> None:
        dtype = _pick(self.rng, "int8", "uint8", "int16")
        scale, zero = self.net.number(0.05), self.net.constant(0 if dtype == "int16" else 3, dtype)
        stored = self.net.op("QuantizeLinear", x.name, scale, zero)
        self.give("DequantizeLinear", x.shape, x.dtype, stored, scale, zero)

    def accumulate(self, x: _Value) -> None:
        how = {"exclusive": int(self.rng.integers(2)), "reverse": int(self.rng.integers(2))}
        self.give("CumSum", x.shape, x.dtype, x.name, self.net.constant(self.axis(x), "int64"), **how)

    def largest(self, x: _Value) -> None:
        axis = self.axis(x)
        count = int(self.rng.integers(1, x.shape[axis] + 1))
        names = self.net.ops("TopK", 2, x.name, self.net.ints(count), axis=axis, largest=int(self.rng.integers(2)))
        shape = tuple(count if d == axis else n for d, n in enumerate(x.shape))
        self.values += [_Value(names[0], shape, x.dtype), _Value(names[1], shape, "int64")]

    def normalise(self, x: _Value) -> None:
        if self.rng.random() < 0.5:
            self.values.append(_Value(self.net.layer_norm(x.name, x.shape[-1]), x.shape, x.dtype))
        else:
            self.give("LpNormalization", x.shape, x.dtype, x.name, axis=self.axis(x), p=int(_pick(self.rng, 1, 2)))


# --- control flow ----------------------------------------------------------------------------------------------------

_BODY_OPS = ("Add ({}, x)", "Mul ({0}, {0})", "Sub (x, {})", "Max ({}, x)", "Tanh ({})", "Abs ({})", "Neg ({})")


def draw_control_flow(rng: np.random.Generator) -> onnx.ModelProto:
    """Return a branch, a loop or a scan with a random body; a branch may be inside of a loop."""

    def chain(prefix: str, result: str) -> str:
        names = [f"{prefix}{n}" for n in range(int(rng.integers(0, 4)))] + [result]
        before, lines = "s", []
        for name in names:
            lines.append(f"{name} = {_pick(rng, *_BODY_OPS).format(before)}")
            before = name
        return "  ".join(lines)

    width, trips = int(_pick(rng, 1, 3, 7, 16)), int(rng.integers(0, 6))
    kind = f"float[{width}]"
    branch = f"""{{}} = If ({{}}) <
        then_branch = t () => ({kind} p) {{{{ {chain("a", "p")} }}}},
        else_branch = e () => ({kind} q) {{{{ {chain("b", "q")} }}}} >"""
    form = _pick(rng, "branch", "loop", "nested", "scan")
    if form == "branch":
        text = f"m ({kind} x, {kind} s, bool c) => ({kind} y) {{ {branch.format('y', 'c')} }}"
    elif form == "scan":
        text = f"""m ({kind} z, float[{trips + 1}, {width}] d) => ({kind} y, float[{trips + 1}, {width}] w) {{
            y, w = Scan (z, d) <num_scan_inputs = 1, body = b ({kind} s, {kind} x) => ({kind} t, {kind} u) {{
                {chain("a", "t")}  u = Identity (t) }}> }}"""
    else:
        count = "int64 n, " if rng.random() < 0.5 else ""
        inner = chain("a", "t") if form == "loop" else branch.format("t", "f")
        first = f"n = Constant <value = int64 {{{trips}}}> ()" if not count else ""
        text = f"""m ({count}{kind} x, {kind} z, bool f) => ({kind} y) {{
            {first}
            y = Loop (n, , z) <body = b (int64 i, bool c, {kind} s) => (bool d, {kind} t) {{
                d = Identity (c)  {inner} }}> }}"""
    model = parser.parse_model(f'<ir_version: {IR_VERSION}, opset_import: ["": 18]>\n{text}')
    onnx.checker.check_model(model, full_check=True)
    return model
