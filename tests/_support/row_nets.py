"""Networks of int8 in the graph form, whose layers can be run row by row."""

from __future__ import annotations

import math

import numpy as np

from uma.relay import Expr, FixedPoint, Function, IRModule, Spans, TensorType, Var, call, const

__all__ = ["RowNet", "mobilenet", "small_net"]


class RowNet:
    """Builds a network. Its convolutions are called conv0, conv1 and so on; other layers have no names.

    Args:
        shape: of the picture that it takes, without the 1 before it.
    """

    def __init__(self, *shape: int) -> None:
        self.rng = np.random.default_rng(7)
        self.x = Var("x", TensorType((1, *shape), "int8"))
        self.spans = Spans()
        self.count = 0

    def conv(self, data: Expr, channels: int, kernel: int = 3, stride: int = 1, depthwise: bool = False) -> Expr:
        """A convolution with bias, requantised, padded so that it keeps its extents at stride 1."""
        depth = data.shape[3]
        terms = kernel * kernel * (1 if depthwise else depth)
        weight = self.rng.integers(-127, 128, (kernel, kernel, 1 if depthwise else depth, channels)).astype(np.int8)
        pad = kernel // 2
        attrs = {"strides": (stride, stride), "padding": (pad,) * 4, "groups": depth if depthwise else 1}
        products = call("qnn.conv2d", data, const(weight), **attrs)
        sums = call("add", products, const(self.rng.integers(-2000, 2000, channels).astype(np.int32)))
        shift = 1 - round(math.log2(73 * math.sqrt(terms)))  # the results spread as the data does
        scale = FixedPoint((1 << 30,), (shift,), "double")
        made = call("qnn.requantize", sums, scale=scale, output_zero_point=0, dtype="int8", axis=-1)
        for expr in (products, sums, made):
            self.spans.add(expr, (f"conv{self.count}",))
        self.count += 1
        return made

    def module(self, body: Expr) -> IRModule:
        """The network that computes ``body``."""
        return IRModule.from_functions({"main": Function([self.x], body)}, self.spans)


def small_net() -> IRModule:
    """Two convolutions, a depthwise one at stride 2, a residual block, and a maximum over rows of what is left."""
    net = RowNet(24, 20, 3)
    y = net.conv(net.conv(net.x, 8), 16, 1)
    y = net.conv(y, 16, 3, 2, depthwise=True)
    inner = net.conv(net.conv(y, 16), 16)
    y = call("maximum", inner, y)
    return net.module(net.conv(y, 6, 3, 2))


def mobilenet(extent: int = 224) -> IRModule:
    """The layers of MobileNetV2 (Sandler et al. 2018, table 2), for pictures of so many rows."""
    net = RowNet(extent, extent, 3)
    x = net.conv(net.x, 32, 3, 2)
    table = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
    for factor, out, count, first in table:
        for stride in (first, *[1] * (count - 1)):
            wide = x.shape[3] * factor
            y = x if factor == 1 else net.conv(x, wide, 1)
            y = net.conv(net.conv(y, wide, 3, stride, depthwise=True), out, 1)
            x = call("maximum", x, y) if stride == 1 and x.shape[3] == out else y
    x = net.conv(x, 1280, 1)
    return net.module(call("nn.max_pool2d", x, pool_size=x.shape[1:3], strides=x.shape[1:3]))
