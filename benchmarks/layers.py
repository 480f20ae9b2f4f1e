"""Random layers: the sweep that finds the shapes at which we fall behind."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import onnx

from .nets import Net
from .tflite_op import Tensor, one_op

__all__ = [
    "CHANNELS",
    "IN_SCALE",
    "KINDS",
    "MACS",
    "WEIGHT_SCALE",
    "Layer",
    "dequantised",
    "random_layers",
    "spread_of",
]

KINDS = ("conv", "depthwise", "grouped", "dense", "matmul")
"""The kinds of layers that are drawn."""

MACS = (50_000, 200_000_000)
"""Of a layer, least and most."""

CHANNELS = (1, 512)

GROUPS = (2, 2, 3, 4, 5, 8)
"""Of grouped convolutions, as often as they are drawn."""

LEAST_OF_GROUP = 5
"""Channels of a group, in or out: with fewer, a grouped convolution is close to a depthwise one."""

IN_SCALE, WEIGHT_SCALE = 2.0**-5, 2.0**-7
"""Of tensors of int8: the data's, the weights'."""


@dataclass(frozen=True)
class Layer:
    """One layer.

    Args:
        kind: what it computes; a product of matrices has no constant.
        dtype: of its data.
        channels: in and out.
        extent: height and width of a picture; rows of a dense layer or of a product; else 1.
        batch: how many products of matrices there are.
        kernel, stride: of a convolution.
        groups: of a convolution with several groups of channels.
    """

    kind: Literal["conv", "depthwise", "grouped", "dense", "matmul"]
    dtype: Literal["float32", "int8"]
    channels: tuple[int, int]
    extent: int
    batch: int = 1
    kernel: int = 1
    stride: int = 1
    groups: int = 1

    @property
    def is_conv(self) -> bool:
        """Whether it is a convolution of any kind."""
        return self.kind in ("conv", "depthwise", "grouped")

    @property
    def macs(self) -> int:
        """Its multiply-accumulates."""
        window = self.kernel**2 if self.is_conv else 1
        return self._results * window * (self.channels[0] // self._groups)

    @property
    def _groups(self) -> int:
        return self.channels[0] if self.kind == "depthwise" else self.groups

    @property
    def _results(self) -> int:
        """How many sums of products it computes."""
        made = (self.extent - 1) // self.stride + 1
        rows = self.batch * self.extent if self.kind in ("dense", "matmul") else made * made
        return rows * self.channels[1]

    @property
    def name(self) -> str:
        """What it is, in a line."""
        sizes = f"{self.channels[0]}->{self.channels[1]}"
        if self.kind in ("dense", "matmul"):
            rows = f"{self.batch} x {self.extent}" if self.batch > 1 else f"{self.extent}"
            return f"{self.kind} {self.dtype} {sizes}, {rows} rows"
        stride = f" s{self.stride}" if self.stride > 1 else ""
        groups = f" g{self.groups}" if self.groups > 1 else ""
        return f"{self.kind} {self.dtype} {sizes}, {self.extent}x{self.extent} k{self.kernel}{stride}{groups}"

    def model(self) -> onnx.ModelProto:
        """The layer alone, with a bias where it has weights; of int8, between tensors of int8."""
        net, (inner, out) = Net(), self.channels
        if self.kind == "matmul":
            shapes = [[self.batch] * (self.batch > 1) + shape for shape in ([self.extent, inner], [inner, out])]
            return self._wrapped(net, "MatMul", shapes, inner, None)
        if self.kind == "dense":
            return self._wrapped(net, "Gemm", [[self.extent, inner]], inner, (out, inner), transB=1)
        groups, size = self._groups, self.kernel
        weight = (out, inner // groups, size, size)
        how = {"kernel_shape": [size] * 2, "strides": [self.stride] * 2, "pads": [size // 2] * 4, "group": groups}
        picture = [1, inner, self.extent, self.extent]
        return self._wrapped(net, "Conv", [picture], inner // groups * size * size, weight, **how)

    def _wrapped(
        self, net: Net, op: str, shapes: list[list[int]], terms: int, weight: tuple[int, ...] | None, **how: Any
    ) -> onnx.ModelProto:
        given = [net.input(shape, self.dtype) for shape in shapes]
        if self.dtype == "float32":
            if weight is not None:
                given += [net.weight(weight, terms), net.constant(net.rng.standard_normal(weight[0]))]
            return net.model(net.op(op, *given, **how))
        real = [dequantised(net, name, IN_SCALE, "int8") for name in given]
        if weight is not None:
            bits = net.rng.integers(-127, 128, weight)
            real.append(dequantised(net, net.constant(bits, "int8"), WEIGHT_SCALE, "int8"))
            bias = net.constant(net.rng.integers(-1000, 1000, weight[0]), "int32")
            real.append(dequantised(net, bias, IN_SCALE * WEIGHT_SCALE, "int32"))
        spread = net.constant(spread_of(terms, weight is None))
        return net.model(net.op("QuantizeLinear", net.op(op, *real, **how), spread, net.constant(0, "int8")))

    def tflite(self) -> bytes:
        """The same as a TFLite model, with the channels last."""
        rng, (inner, out) = np.random.default_rng(0), self.channels
        terms, made = self.macs // self._results, (self.extent - 1) // self.stride + 1
        quantised = self.dtype == "int8"
        scale, weight_scale = (IN_SCALE, WEIGHT_SCALE) if quantised else (None, None)
        spread = spread_of(terms, self.kind == "matmul") if quantised else None

        def given(*shape: int) -> Tensor:
            return Tensor(shape, self.dtype, scale)

        def weight(*shape: int) -> Tensor:
            if quantised:
                return Tensor(shape, "int8", weight_scale, rng.integers(-127, 128, shape))
            return Tensor(shape, "float32", None, rng.standard_normal(shape) * math.sqrt(2 / terms))

        if quantised:
            bias = Tensor((out,), "int32", IN_SCALE * WEIGHT_SCALE, rng.integers(-1000, 1000, out))
        else:
            bias = Tensor((out,), "float32", None, rng.standard_normal(out))
        if self.kind == "matmul":
            lead = [self.batch] * (self.batch > 1)
            both = [given(*lead, self.extent, inner), given(*lead, inner, out)]
            return one_op(
                "BATCH_MATMUL", "BatchMatMulOptions", both, Tensor([*lead, self.extent, out], self.dtype, spread)
            )
        if self.kind == "dense":
            product = [given(self.extent, inner), weight(out, inner), bias]
            result = Tensor((self.extent, out), self.dtype, spread)
            return one_op("FULLY_CONNECTED", "FullyConnectedOptions", product, result)
        how: dict[str, object] = {"strideH": self.stride, "strideW": self.stride}  # the default padding is SAME
        picture, result = given(1, self.extent, self.extent, inner), Tensor((1, made, made, out), self.dtype, spread)
        if self.kind == "depthwise":
            kernel = weight(1, self.kernel, self.kernel, out)
            how["depthMultiplier"] = 1
            return one_op("DEPTHWISE_CONV_2D", "DepthwiseConv2DOptions", [picture, kernel, bias], result, **how)
        kernel = weight(out, self.kernel, self.kernel, inner // self.groups)
        return one_op("CONV_2D", "Conv2DOptions", [picture, kernel, bias], result, **how)


def dequantised(net: Net, name: str, scale: float, dtype: str) -> str:
    """The real values of a tensor of whole numbers."""
    return net.op("DequantizeLinear", name, net.constant(scale), net.constant(0, dtype))


def spread_of(terms: int, of_inputs: bool) -> float:
    """The scale of a result that uses its range: bytes of both factors are uniform, and so have a deviation of 74, and
    40 is to be that of the result."""
    return IN_SCALE * (IN_SCALE if of_inputs else WEIGHT_SCALE) * 74 * 74 * math.sqrt(terms) / 40


def random_layers(count: int, seed: int, kinds: Sequence[str] = KINDS) -> Iterator[Layer]:
    """Layers in which kinds and dtypes are alike frequent, and channels and multiply-accumulates spread evenly over
    orders of magnitude. The same for the same seed.

    Args:
        count: how many.
        seed: any integer.
        kinds: the kinds to draw from.
    """
    rng = random.Random(seed)
    made = 0
    while made < count:
        layer = _drawn(rng, kinds)
        if layer is not None:
            made += 1
            yield layer


def _drawn(rng: random.Random, kinds: Sequence[str]) -> Layer | None:
    """One layer; None where what was drawn does not go together."""
    kind = rng.choice(kinds)
    dtype = rng.choice(("float32", "int8"))
    inner, out = (_spread(rng, *CHANNELS) for _ in range(2))
    macs = _spread(rng, *MACS)
    if kind in ("dense", "matmul"):
        batch = rng.choice((1, 1, 2, 4, 8)) if kind == "matmul" else 1
        extent = round(macs / (inner * out * batch))
        layer = Layer(kind, dtype, (inner, out), extent, batch)  # type: ignore[arg-type]  # one of the dtypes
        largest = 4096
    else:
        kernel, stride = rng.choice((1, 3, 3, 5, 7)), rng.choice((1, 1, 2))
        groups = 1
        if kind == "depthwise":
            out, kernel = inner, max(kernel, 3)
        elif kind == "grouped":
            groups = rng.choice(GROUPS)
            inner, out = (groups * _spread(rng, LEAST_OF_GROUP, CHANNELS[1] // groups) for _ in range(2))
        terms = (1 if kind == "depthwise" else inner // groups) * kernel**2
        extent = round(math.sqrt(macs / (out * terms)) * stride)
        layer = Layer(kind, dtype, (inner, out), extent, 1, kernel, stride, groups)  # type: ignore[arg-type]  # one of the dtypes
        largest = 224
    fits = 1 <= layer.extent <= largest and layer.extent >= layer.kernel // 2 + 1
    return layer if fits and MACS[0] <= layer.macs <= MACS[1] else None


def _spread(rng: random.Random, low: int, high: int) -> int:
    return round(math.exp(rng.uniform(math.log(low), math.log(high))))
