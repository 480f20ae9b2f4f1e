"""Random networks that onnxruntime's own quantiser made QDQ models of, and what exact arithmetic makes of these."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
from tests._support.onnx_builder import OnnxBuilder

__all__ = ["QuantisedNet", "exact_outputs", "quantised_net"]


@dataclass(frozen=True)
class QuantisedNet:
    """A QDQ model.

    Args:
        model: the file.
        inputs: something to run it on.
        options: how it was quantised, and what it is made of, for messages.
    """

    model: bytes
    inputs: Mapping[str, np.ndarray]
    options: str


def quantised_net(seed: int) -> QuantisedNet:
    """A random network of convolutions, depthwise and dense ones, pools, sums, products, concatenations and
    activations, calibrated on random data and quantised by onnxruntime.
    """
    rng = np.random.default_rng(seed)
    net = _Net(rng, f"x{seed}")
    model = net.model()
    shape = net.shape
    batches = [rng.normal(0, 1, shape).astype(np.float32) for _ in range(3)]
    # (Data of int8 and weights of uint8 are what onnxruntime has no kernels for.)
    data, weight = [("QUInt8", "QUInt8"), ("QUInt8", "QInt8"), ("QInt8", "QInt8")][int(rng.integers(3))]
    options = {
        "per_channel": bool(rng.integers(2)),
        "reduce_range": bool(rng.integers(4) == 0),
        "activation_type": getattr(QuantType, data),
        "weight_type": getattr(QuantType, weight),
    }
    extra = {"ActivationSymmetric": bool(rng.integers(2)), "WeightSymmetric": bool(rng.integers(2))}
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "float.onnx"), Path(folder, "qdq.onnx")
        source.write_bytes(model)
        reader = _Reader(net.input, batches)
        quantize_static(source, target, reader, quant_format=QuantFormat.QDQ, extra_options=extra, **options)
        made = target.read_bytes()
    shown = f"{data}/{weight}, per_channel={options['per_channel']}, reduce_range={options['reduce_range']}, {extra}"
    return QuantisedNet(
        made, {net.input: rng.normal(0, 1.2, shape).astype(np.float32)}, f"{shown}: {' '.join(net.kinds)}"
    )


class _Reader(CalibrationDataReader):  # type: ignore[misc]  # it has no types
    def __init__(self, name: str, batches: Sequence[np.ndarray]) -> None:
        self._name = name
        self._batches: Iterator[np.ndarray] = iter(batches)

    def get_next(self) -> dict[str, np.ndarray] | None:
        batch = next(self._batches, None)
        return None if batch is None else {self._name: batch}


class _Net:
    """Draws one network, channels second, of one input."""

    def __init__(self, rng: np.random.Generator, name: str) -> None:
        self.rng = rng
        self.input = name
        self.b = OnnxBuilder(int(rng.choice([13, 17])))
        self.kinds: list[str] = []
        self.shape = (1, int(rng.integers(1, 5)), int(rng.integers(6, 11)), int(rng.integers(6, 11)))

    def model(self) -> bytes:
        now = self.b.input(self.input, self.shape)
        channels, height, width = self.shape[1:]
        before: tuple[str, tuple[int, int, int]] | None = None
        for _ in range(int(self.rng.integers(2, 7))):
            now, size = self.layer(now, (channels, height, width), before)
            before = (now, size)
            channels, height, width = size
        return self.b.build(self.head(now, channels, height, width))

    def number(self, low: int, high: int) -> int:
        return int(self.rng.integers(low, high + 1))

    def weight(self, *shape: int) -> str:
        spread = self.rng.uniform(0.3, 1.5) / math.sqrt(math.prod(shape[1:]))
        return self.b.constant(self.rng.normal(0, spread, shape), "float32")

    def layer(
        self, x: str, size: tuple[int, int, int], before: tuple[str, tuple[int, int, int]] | None
    ) -> tuple[str, tuple[int, int, int]]:
        b, (channels, height, width) = self.b, size
        kinds = ["conv", "conv", "depthwise", "max_pool", "average_pool", "average_pool", "activation", "add", "mul"]
        kind = str(self.rng.choice([*kinds, "concat"]))
        if min(height, width) < 3 and kind.endswith("pool"):
            kind = "conv"
        self.kinds.append(kind)
        if kind in ("conv", "depthwise"):
            grouped = kind == "depthwise"
            units = channels if grouped else self.number(1, 9)
            kernel = [min(self.number(1, 3), height), min(self.number(1, 3), width)]
            pads = [self.number(0, k // 2) for k in kernel] * 2
            strides = [self.number(1, 2)] * 2
            args = [x, self.weight(units, 1 if grouped else channels, *kernel)]
            if self.rng.integers(2):
                args.append(b.constant(self.rng.normal(0, 0.2, units), "float32"))
            groups = channels if grouped else 1
            made = b.node("Conv", *args, kernel_shape=kernel, pads=pads, strides=strides, group=groups)
            spatial = self.windows((height, width), kernel, pads, strides)
            return self.activated(made) if self.rng.integers(3) else made, (units, *spatial)
        if kind.endswith("pool"):
            kernel, strides = [self.number(2, 3), self.number(2, 3)], [self.number(1, 2), self.number(1, 2)]
            pads = [self.number(0, 1), self.number(0, 1)] * 2
            attrs = {"kernel_shape": kernel, "pads": pads, "strides": strides}
            if kind == "average_pool":
                attrs["count_include_pad"] = self.number(0, 1)
            made = b.node("MaxPool" if kind == "max_pool" else "AveragePool", x, **attrs)
            return made, (channels, *self.windows((height, width), kernel, pads, strides))
        if kind == "activation":
            return self.activated(x, every=True), size
        if kind == "concat":
            other = self.activated(x) if self.rng.integers(2) else x
            made = b.node("Concat", x, b.node("Conv", other, self.weight(2, channels, 1, 1)), axis=1)
            return made, (channels + 2, height, width)
        op = "Add" if kind == "add" else "Mul"
        if before is not None and before[1] == size and before[0] != x:
            return b.node(op, before[0], x), size
        other = b.node("Conv", x, self.weight(channels, channels, 1, 1))
        return b.node(op, *([x, other] if self.rng.integers(2) else [other, x])), size

    def activated(self, x: str, every: bool = False) -> str:
        b = self.b
        kind = str(self.rng.choice(["Relu", "Clip", "LeakyRelu", "Sigmoid"] if every else ["Relu", "Relu", "Clip"]))
        self.kinds.append(kind)
        if kind == "Clip":
            return str(b.node("Clip", x, b.constant(0.0, "float32"), b.constant(6.0, "float32")))
        return str(b.node(kind, x, **({"alpha": 0.125} if kind == "LeakyRelu" else {})))

    def head(self, x: str, channels: int, height: int, width: int) -> str:
        b = self.b
        kind = str(self.rng.choice(["global", "global", "flat", "conv"]))
        self.kinds.append(kind)
        if kind == "conv":
            return str(b.node("Conv", x, self.weight(self.number(1, 4), channels, 1, 1)))
        pooled = b.node("GlobalAveragePool", x) if kind == "global" else x
        depth = channels if kind == "global" else channels * height * width
        flat = b.node("Flatten", pooled)
        units = self.number(2, 10)
        if self.rng.integers(2):
            return str(b.node("MatMul", flat, self.weight(depth, units)))
        args = [flat, self.weight(units, depth), b.constant(self.rng.normal(0, 0.2, units), "float32")]
        return str(b.node("Gemm", *args, transB=1))

    @staticmethod
    def windows(extents: Sequence[int], kernel: list[int], pads: list[int], strides: list[int]) -> tuple[int, int]:
        counts = [(n + 2 * p - k) // s + 1 for n, k, p, s in zip(extents, kernel, pads, strides, strict=False)]
        return counts[0], counts[1]


# --- exact arithmetic ------------------------------------------------------------------------------------------------


def exact_outputs(model: bytes, inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """What a QDQ model gives in exact arithmetic: scales are the float32 numbers that they are, nothing is rounded but
    by QuantizeLinear, half to even, and by the last DequantizeLinear. Inputs and outputs may be quantised.
    """
    proto = onnx.load_from_string(model)
    graph = onnx.shape_inference.infer_shapes(proto).graph
    arrays = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    values: dict[str, np.ndarray] = {name: _fractions(array) for name, array in inputs.items()}
    stored: dict[str, np.ndarray] = dict(inputs)
    for node in graph.node:
        attrs = {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in node.attribute}
        output = node.output[0]
        if node.op_type == "QuantizeLinear":
            scale, zero = (arrays[name] for name in node.input[1:3])
            stored[output] = _quantised(values[node.input[0]], scale, zero)
        elif node.op_type == "DequantizeLinear":
            source = stored[node.input[0]] if node.input[0] in stored else arrays[node.input[0]]
            scale = arrays[node.input[1]]
            zero = arrays[node.input[2]] if len(node.input) > 2 else np.zeros_like(scale, source.dtype)
            shape = [1] * source.ndim
            if scale.size > 1:
                shape[attrs.get("axis", 1)] = -1
            scale, zero = (a.reshape(shape if a.size > 1 else [1] * source.ndim) for a in (scale, zero))
            centred = source.astype(np.int64) - zero.astype(np.int64)
            values[output] = centred.astype(object) * _fractions(scale)
            if output in {value.name for value in graph.output}:
                arrays[output] = (centred.astype(np.float32) * scale).astype(np.float32)
        else:
            args = [values[n] if n in values else _fractions(arrays[n]) for n in node.input if n]
            values[output] = _OPS[node.op_type](attrs, *args)
    return [{**arrays, **stored}[value.name] for value in graph.output]


def _fractions(array: np.ndarray) -> np.ndarray:
    return np.array([Fraction(value) for value in array.ravel().tolist()], object).reshape(array.shape)


def _quantised(real: np.ndarray, scale: np.ndarray, zero: np.ndarray) -> np.ndarray:
    unit, info = Fraction(float(scale.item())), np.iinfo(zero.dtype)
    whole = [min(max(round(value / unit) + zero.item(), info.min), info.max) for value in real.ravel()]
    return np.array(whole, zero.dtype).reshape(real.shape)


def _windows(attrs: Mapping[str, Any], data: np.ndarray, fill: Any) -> tuple[list[np.ndarray], tuple[int, ...]]:
    """What lies under each tap of a window, and the taps."""
    kernel = attrs["kernel_shape"]
    strides, pads = attrs.get("strides", [1, 1]), attrs.get("pads", [0, 0, 0, 0])
    sides = [(0, 0), (0, 0), (pads[0], pads[2]), (pads[1], pads[3])]
    padded = np.pad(data, sides, constant_values=fill)
    counts = [(n - k) // s + 1 for n, k, s in zip(padded.shape[2:], kernel, strides, strict=True)]
    spans = [
        [slice(tap, tap + (n - 1) * s + 1, s) for tap in range(k)]
        for k, n, s in zip(kernel, counts, strides, strict=False)
    ]
    return [padded[:, :, rows, columns] for rows, columns in product(*spans)], tuple(kernel)


def _conv(attrs: Mapping[str, Any], x: np.ndarray, weight: np.ndarray, bias: np.ndarray | None = None) -> np.ndarray:
    taps, kernel = _windows({"kernel_shape": weight.shape[2:], **attrs}, x, Fraction(0))
    groups = attrs.get("group", 1)
    units, depth = weight.shape[0] // groups, weight.shape[1]
    parts = []
    for group in range(groups):
        total: Any = 0
        for tap, (row, column) in zip(taps, product(*map(range, kernel)), strict=True):
            seen = tap[0, group * depth : (group + 1) * depth]
            total = total + np.tensordot(weight[group * units : (group + 1) * units, :, row, column], seen, 1)
        parts.append(total)
    made = np.concatenate(parts)[None]
    return made if bias is None else made + bias.reshape(1, -1, 1, 1)


def _average(attrs: Mapping[str, Any], x: np.ndarray) -> np.ndarray:
    taps, _ = _windows(attrs, x, Fraction(0))
    inside, _ = _windows(attrs, np.ones(x.shape, object), attrs.get("count_include_pad", 0))
    return np.asarray(sum(taps) / sum(inside))


def _largest(attrs: Mapping[str, Any], x: np.ndarray) -> np.ndarray:
    taps, _ = _windows(attrs, x, Fraction(-(2**60)))
    return np.maximum.reduce(taps)


def _elementwise(function: Callable[[Fraction], Any]) -> Callable[..., np.ndarray]:
    def apply(attrs: Mapping[str, Any], x: np.ndarray) -> np.ndarray:
        return np.array([Fraction(function(value)) for value in x.ravel()], object).reshape(x.shape)

    return apply


def _gemm(attrs: Mapping[str, Any], x: np.ndarray, weight: np.ndarray, bias: np.ndarray | None = None) -> np.ndarray:
    made = x @ (weight.T if attrs.get("transB") else weight)
    return made if bias is None else made + bias


_OPS: Mapping[str, Callable[..., np.ndarray]] = {
    "Add": lambda attrs, a, b: a + b,
    "AveragePool": _average,
    "Clip": lambda attrs, x, low, high: np.minimum(np.maximum(x, low), high),
    "Concat": lambda attrs, *parts: np.concatenate(parts, attrs["axis"]),
    "Conv": _conv,
    "Flatten": lambda attrs, x: x.reshape(x.shape[0], -1),
    "Gemm": _gemm,
    "GlobalAveragePool": lambda attrs, x: x.sum(axis=(2, 3), keepdims=True) / math.prod(x.shape[2:]),
    "LeakyRelu": lambda attrs, x: np.where(x < 0, x * Fraction(attrs["alpha"]), x),
    "MatMul": _gemm,
    "MaxPool": _largest,
    "Mul": lambda attrs, a, b: a * b,
    "ReduceMean": lambda attrs, x: (
        x.sum(axis=tuple(attrs["axes"]), keepdims=bool(attrs["keepdims"]))
        / math.prod(x.shape[axis] for axis in attrs["axes"])
    ),
    "Relu": lambda attrs, x: np.maximum(x, Fraction(0)),
    "Sigmoid": _elementwise(lambda value: 1 / (1 + math.exp(-value))),
}
