"""Networks of 1-D convolutions in the arithmetic of a fixed-scale accelerator: as numbers, as QDQ ONNX, in numpy.

Weights of w bits at 2**-(w - 1), features of f bits at 2**-(f - 1), biases of b bits at 2**-(b - 1); one rounding half
to even for each layer, after convolution, bias, residual, pool and relu.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from .onnx_builder import OnnxBuilder

__all__ = ["INPUT", "Layer", "Net", "random_net", "reference", "side_by_side", "tc_resnet8", "to_onnx"]

INPUT = -1
"""The number of the input where layers are meant."""

PoolForm = Literal["sum", "average"]

Integers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Layer:
    """One convolution with all that follows it.

    Args:
        name: of the layer.
        data: the number of the layer that it takes, or `INPUT`.
        weights: (out channels, in channels, taps).
        bias: (out channels,), None for none.
        stride, pad: of the convolution; ``pad`` on either side.
        residual: the number of the layer that is added, None for none.
        pool: p, where all frames are summed and divided by 2**p; None for no pool.
        relu: whether what is below 0 becomes 0.
    """

    name: str
    data: int
    weights: Integers
    bias: Integers | None = None
    stride: int = 1
    pad: int = 0
    residual: int | None = None
    pool: int | None = None
    relu: bool = False

    def frames(self, given: int) -> int:
        """Frames of the convolution, before the pool."""
        return (given + 2 * self.pad - self.weights.shape[2]) // self.stride + 1


@dataclass(frozen=True, eq=False)
class Net:
    """A network of one input, whose last layer is an output.

    Args:
        channels, frames: of the input.
        layers: each after what it takes.
        outputs: numbers of the layers that are outputs.
        weight_bits, feature_bits, bias_bits: see above.
    """

    channels: int
    frames: int
    layers: tuple[Layer, ...]
    outputs: tuple[int, ...]
    weight_bits: int = 6
    feature_bits: int = 8
    bias_bits: int = 8

    def shape(self, number: int) -> tuple[int, int]:
        """Channels and frames of a layer's result, or of the input."""
        if number == INPUT:
            return self.channels, self.frames
        layer = self.layers[number]
        frames = layer.frames(self.shape(layer.data)[1])
        return layer.weights.shape[0], 1 if layer.pool is not None else frames

    def inputs(self, count: int, seed: int) -> NDArray[np.int8]:
        """So many random inputs: (count, 1, channels, frames)."""
        half = 1 << (self.feature_bits - 1)
        rng = np.random.default_rng(seed)
        return rng.integers(-half, half, (count, 1, self.channels, self.frames)).astype(np.int8)


def reference(net: Net, x: NDArray[np.int8]) -> list[NDArray[np.int8]]:
    """The outputs, int8 (count, channels, frames), for inputs (count, channels, frames). Integers, step by step."""
    maps: dict[int, Integers] = {INPUT: x.astype(np.int64)}
    half = 1 << (net.feature_bits - 1)
    for number, layer in enumerate(net.layers):
        _, _, taps = layer.weights.shape
        padded = np.pad(maps[layer.data], ((0, 0), (0, 0), (layer.pad, layer.pad)))
        count = layer.frames(maps[layer.data].shape[2])
        acc = np.zeros((x.shape[0], layer.weights.shape[0], count), np.int64)
        for tap in range(taps):
            seen = padded[:, :, tap : tap + layer.stride * (count - 1) + 1 : layer.stride]
            acc += np.einsum("oc,nct->not", layer.weights[:, :, tap], seen)
        if layer.bias is not None:
            acc += layer.bias[:, None] << (net.weight_bits + net.feature_bits - 1 - net.bias_bits)
        if layer.residual is not None:
            acc += maps[layer.residual] << (net.weight_bits - 1)
        shift = net.weight_bits - 1
        if layer.pool is not None:
            acc, shift = acc.sum(axis=2, keepdims=True), shift + layer.pool
        if layer.relu:
            acc = np.maximum(acc, 0)
        quotient, rest = acc >> shift, acc & ((1 << shift) - 1)
        tie = 1 << (shift - 1)
        rounded = quotient + ((rest > tie) | ((rest == tie) & (quotient & 1 == 1)))
        maps[number] = np.clip(rounded, -half, half - 1)
    return [maps[number].astype(np.int8) for number in net.outputs]


def to_onnx(net: Net, pool: PoolForm = "sum", *, dense: Sequence[str] = ()) -> bytes:
    """The network as ONNX with QuantizeLinear and DequantizeLinear; input ``x`` and outputs are int8.

    Args:
        net: the network.
        pool: ``ReduceSum`` times 2**-p, or an ``AveragePool`` over 2**p frames, those that there are not being 0, if
            these are not fewer than there are.
        dense: names of layers that are written as ``Gemm``, of all frames of what they take.
    """
    b = OnnxBuilder(17)
    return b.build(*_written(b, net, pool, dense, ""))


def side_by_side(nets: Sequence[Net], pools: Sequence[PoolForm]) -> bytes:
    """Several networks in one file; inputs and layers have the number of the network behind their names."""
    b = OnnxBuilder(17)
    pairs = zip(nets, pools, strict=True)
    return b.build(*(output for n, (net, pool) in enumerate(pairs) for output in _written(b, net, pool, (), str(n))))


def _written(b: OnnxBuilder, net: Net, pool: PoolForm, dense: Sequence[str], suffix: str) -> list[str]:
    """Writes a network; gives its outputs."""
    feature, weight = 2.0 ** (1 - net.feature_bits), 2.0 ** (1 - net.weight_bits)
    half = 1 << (net.feature_bits - 1)
    limits = b.constant(-half * feature, "float32"), b.constant((half - 1) * feature, "float32")
    given = b.dequantize(b.input(f"x{suffix}", [1, net.channels, net.frames], "int8"), feature, 0, "int8")
    if net.feature_bits < 8:
        given = b.dequantize(b.quantize(b.node("Clip", given, *limits), feature, 0, "int8"), feature, 0, "int8")
    maps, outputs = {INPUT: given}, []
    for number, layer in enumerate(net.layers):
        as_dense = layer.name in dense
        bias = () if layer.bias is None else (b.constant(layer.bias * 2.0 ** (1 - net.bias_bits), "float32"),)
        if as_dense:
            units = layer.weights.shape[0]
            stored = b.dequantize(b.constant(layer.weights.reshape(units, -1), "int8"), weight, 0, "int8")
            flat = b.node("Flatten", maps[layer.data])
            value = b.node("Gemm", flat, stored, *bias, transB=1, name=layer.name + suffix)
        else:
            stored = b.dequantize(b.constant(layer.weights, "int8"), weight, 0, "int8")
            attrs = {"strides": [layer.stride], "pads": [layer.pad, layer.pad]}
            value = b.node("Conv", maps[layer.data], stored, *bias, name=layer.name + suffix, **attrs)
        if layer.residual is not None:
            value = b.node("Add", value, maps[layer.residual])
        if layer.pool is not None:
            value = _pooled(b, value, layer.frames(net.shape(layer.data)[1]), layer.pool, pool)
        if layer.relu:
            value = b.node("Relu", value)
        if net.feature_bits < 8:
            value = b.node("Clip", value, *limits)
        stored = b.quantize(value, feature, 0, "int8")
        if number in net.outputs:
            outputs.append(stored)
        maps[number] = b.dequantize(stored, feature, 0, "int8")
    return outputs


def _pooled(b: OnnxBuilder, value: str, frames: int, exponent: int, form: PoolForm) -> str:
    if form == "sum" or 1 << exponent < frames:
        summed = b.node("ReduceSum", value, b.constant([2], "int64"), keepdims=1)
        return str(b.node("Mul", summed, b.constant(2.0**-exponent, "float32")))
    missing = (1 << exponent) - frames
    pads = [missing // 2, missing - missing // 2]
    return str(b.node("AveragePool", value, kernel_shape=[1 << exponent], pads=pads, count_include_pad=1))


# --- Networks --------------------------------------------------------------------------------------------------------


class _Writer:
    """Adds layers with random weights to a network, as large as the accumulator allows for every input.

    Args:
        net: what to begin with.
        rng: draws weights.
        accumulator_bits: of the machine.
    """

    def __init__(self, net: Net, rng: np.random.Generator, accumulator_bits: int = 20) -> None:
        self.net, self.rng = net, rng
        self.limit = 1 << (accumulator_bits - 1)

    def add(self, name: str, data: int, out: int, taps: int, *, bias: bool = True, **how: Any) -> int:
        """Adds a layer; gives its number. ``how`` is for `Layer`."""
        net, rng = self.net, self.rng
        channels = net.shape(data)[0]
        half = 1 << (net.weight_bits - 1)
        # Results are about as large as what they are computed from: neither all saturated nor all 0.
        spread = 1.2 * half / math.sqrt(channels * taps)
        weights = np.clip(np.rint(rng.normal(0, spread, (out, channels, taps))), -half, half - 1).astype(np.int64)
        # What bias and residual may add is left free.
        room = (self.limit >> 1) // (1 << (net.feature_bits - 1))
        largest = int(np.abs(weights).sum(axis=(1, 2)).max())
        if largest > room:
            weights = (weights * (room / largest)).astype(np.int64)
        most = 1 << (net.bias_bits - 1)
        numbers = np.clip(np.rint(rng.normal(0, most / 4, out)), -most, most - 1).astype(np.int64) if bias else None
        layer = Layer(name, data, weights, numbers, **how)
        self.net = replace(net, layers=(*net.layers, layer), outputs=(len(net.layers),))
        return len(net.layers)


def tc_resnet8(seed: int = 0, classes: int = 12) -> Net:
    """TC-ResNet8 for 40 coefficients of 101 frames, with random weights."""
    w = _Writer(Net(40, 101, (), ()), np.random.default_rng(seed))
    value = w.add("conv0", INPUT, 16, 3)
    for number, out in enumerate((24, 32, 48), 1):
        first = w.add(f"b{number}.conv1", value, out, 9, stride=2, pad=4, relu=True)
        down = w.add(f"b{number}.down", value, out, 1, stride=2, relu=True)
        pool = 4 if number == 3 else None
        value = w.add(f"b{number}.conv2", first, out, 9, pad=4, residual=down, pool=pool, relu=True)
    w.add("fc", value, classes, 1)
    return w.net


def random_net(
    seed: int, depth: int, *, array_dim: int = 8, weight_bits: int = 6, feature_bits: int = 8, most_frames: int = 40
) -> Net:
    """A network of ``depth`` layers: chains, blocks with residuals (projected or not), pools, several outputs.

    Args:
        seed: draws everything.
        depth: number of layers.
        array_dim: channels are about multiples of it, just below and just above included.
        weight_bits, feature_bits: of the machine.
        most_frames: of the input.
    """
    rng = np.random.default_rng(seed)

    def channels() -> int:
        near = int(rng.integers(1, 4)) * array_dim + int(rng.integers(-1, 2))
        return max(1, min(near, 15 * array_dim))

    frames = int(rng.integers(1, most_frames + 1))
    bias_bits = int(rng.integers(4, min(8, weight_bits + feature_bits - 1) + 1))
    start = Net(channels(), frames, (), (), weight_bits, feature_bits, bias_bits)
    w = _Writer(start, rng)
    value, free = INPUT, []
    while len(w.net.layers) < depth:
        number, (width, length) = len(w.net.layers), w.net.shape(value)
        taps = int(rng.choice([1, 2, 3, 5, 9, 15]))
        pad = (taps - 1) // 2 if taps % 2 and rng.random() < 0.6 else 0
        if length + 2 * pad < taps:
            taps, pad = 1, 0
        stride = int(rng.choice([1, 1, 2, 3, 7])) if length > 1 else 1
        how = {"stride": stride, "pad": pad, "relu": bool(rng.random() < 0.5), "bias": bool(rng.random() < 0.8)}
        if rng.random() < 0.3 and len(w.net.layers) + 2 <= depth and stride == 1 and length > 1:
            # A block: its input is added again, through a convolution of one tap or as it is.
            same = pad * 2 == taps - 1
            project = not same or value == INPUT or rng.random() < 0.5
            first = w.add(f"l{number}", value, width, taps, **how)
            if project and same:
                side = w.add(f"l{number}.side", value, width, 1, bias=False)
            else:
                side = value if same else first
            if len(w.net.layers) < depth and side != first:
                value = w.add(f"l{number}.sum", first, width, 1, residual=side, relu=how["relu"])
            else:
                value = first
            continue
        pool = None
        count = (length + 2 * pad - taps) // stride + 1
        if rng.random() < 0.12 and count <= 64:
            pool = min(7, math.ceil(math.log2(count)) + int(rng.integers(0, 2)))
        value = w.add(f"l{number}", value, channels(), taps, pool=pool, **how)
        if rng.random() < 0.08:
            free.append(value)
    last = len(w.net.layers) - 1
    used = {layer.data for layer in w.net.layers} | {layer.residual for layer in w.net.layers}
    loose = [number for number in range(last) if number not in used]
    return replace(w.net, outputs=tuple(sorted({*loose, *free, last})))
