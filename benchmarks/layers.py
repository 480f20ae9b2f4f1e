"""Random layers: the sweep that finds the shapes at which we fall behind."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import onnx

from .nets import Net

__all__ = ["CHANNELS", "MACS", "Layer", "random_layers"]

MACS = (50_000, 200_000_000)
"""Of a layer, least and most."""

CHANNELS = (1, 512)

_IN_SCALE, _WEIGHT_SCALE = 2.0**-5, 2.0**-7


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
    """

    kind: Literal["conv", "depthwise", "dense", "matmul"]
    dtype: Literal["float32", "int8"]
    channels: tuple[int, int]
    extent: int
    batch: int = 1
    kernel: int = 1
    stride: int = 1

    @property
    def macs(self) -> int:
        """Its multiply-accumulates."""
        inner, out = (1 if self.kind == "depthwise" else self.channels[0]), self.channels[1]
        if self.kind in ("dense", "matmul"):
            return self.batch * self.extent * inner * out
        made = (self.extent - 1) // self.stride + 1
        return made * made * inner * out * self.kernel**2

    @property
    def name(self) -> str:
        """What it is, in a line."""
        sizes = f"{self.channels[0]}->{self.channels[1]}"
        if self.kind in ("dense", "matmul"):
            rows = f"{self.batch} x {self.extent}" if self.batch > 1 else f"{self.extent}"
            return f"{self.kind} {self.dtype} {sizes}, {rows} rows"
        stride = f" s{self.stride}" if self.stride > 1 else ""
        return f"{self.kind} {self.dtype} {sizes}, {self.extent}x{self.extent} k{self.kernel}{stride}"

    def model(self) -> onnx.ModelProto:
        """The layer alone, with a bias where it has weights; of int8, between tensors of int8."""
        net, (inner, out) = Net(), self.channels
        if self.kind == "matmul":
            shapes = [[self.batch] * (self.batch > 1) + shape for shape in ([self.extent, inner], [inner, out])]
            return self._wrapped(net, "MatMul", shapes, inner, None)
        if self.kind == "dense":
            return self._wrapped(net, "Gemm", [[self.extent, inner]], inner, (out, inner), transB=1)
        groups, size = inner if self.kind == "depthwise" else 1, self.kernel
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
        real = [_dequantised(net, name, _IN_SCALE, "int8") for name in given]
        scale = _IN_SCALE * _WEIGHT_SCALE
        if weight is None:
            scale = _IN_SCALE**2
        else:
            bits = net.rng.integers(-127, 128, weight)
            real.append(_dequantised(net, net.constant(bits, "int8"), _WEIGHT_SCALE, "int8"))
            bias = net.constant(net.rng.integers(-1000, 1000, weight[0]), "int32")
            real.append(_dequantised(net, bias, scale, "int32"))
        spread = scale * 74 * 74 * math.sqrt(terms) / 40  # values of both are uniform; 40 of 127 is their deviation
        zero = net.constant(0, "int8")
        return net.model(net.op("QuantizeLinear", net.op(op, *real, **how), net.constant(spread), zero))


def _dequantised(net: Net, name: str, scale: float, dtype: str) -> str:
    return net.op("DequantizeLinear", name, net.constant(scale), net.constant(0, dtype))


def random_layers(count: int, seed: int) -> Iterator[Layer]:
    """Layers in which kinds and dtypes are alike frequent, and channels and multiply-accumulates spread evenly over
    orders of magnitude. The same for the same seed.

    Args:
        count: how many.
        seed: any integer.
    """
    rng = random.Random(seed)
    made = 0
    while made < count:
        layer = _drawn(rng)
        if layer is not None:
            made += 1
            yield layer


def _drawn(rng: random.Random) -> Layer | None:
    """One layer; None where what was drawn does not go together."""
    kind = rng.choice(("conv", "depthwise", "dense", "matmul"))
    dtype = rng.choice(("float32", "int8"))
    inner, out = (_spread(rng, *CHANNELS) for _ in range(2))
    macs = _spread(rng, *MACS)
    if kind in ("dense", "matmul"):
        batch = rng.choice((1, 1, 2, 4, 8)) if kind == "matmul" else 1
        extent = round(macs / (inner * out * batch))
        layer = Layer(kind, dtype, (inner, out), extent, batch)  # type: ignore[arg-type]
        largest = 4096
    else:
        kernel, stride = rng.choice((1, 3, 3, 5, 7)), rng.choice((1, 1, 2))
        if kind == "depthwise":
            out, kernel = inner, max(kernel, 3)
        made = math.sqrt(macs / (out * (1 if kind == "depthwise" else inner) * kernel**2))
        layer = Layer(kind, dtype, (inner, out), round(made * stride), 1, kernel, stride)  # type: ignore[arg-type]
        largest = 224
    fits = 1 <= layer.extent <= largest and layer.extent >= layer.kernel // 2 + 1
    return layer if fits and MACS[0] <= layer.macs <= MACS[1] else None


def _spread(rng: random.Random, low: int, high: int) -> int:
    return round(math.exp(rng.uniform(math.log(low), math.log(high))))
