"""Networks for pictures: classes, boxes, masks, and pictures again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np
import onnx
from benchmarks.blocks import Layers

__all__ = ["PICTURES"]


def _resnet() -> onnx.ModelProto:
    """He et al. 2015: bottlenecks with normalisation beside the convolutions."""
    net = Layers(1)
    x = net.op("Relu", net.norm(net.conv(net.input((1, 3, 32, 32)), (3, 16), (3, 3), 2), 16))
    x, channels = net.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4), 16
    for middle, stride in ((8, 1), (16, 2)):
        out = 4 * middle
        y = net.op("Relu", net.norm(net.conv(x, (channels, middle), (1, 1)), middle))
        y = net.op("Relu", net.norm(net.conv(y, (middle, middle), (3, 3), stride), middle))
        y = net.norm(net.conv(y, (middle, out), (1, 1)), out)
        side = net.norm(net.conv(x, (channels, out), (1, 1), stride), out)
        x, channels = net.op("Relu", net.op("Add", y, side)), out
    return net.model(net.classes(x, channels, 10))


def _gate(net: Layers, x: str, channels: int, inner: int, hard: bool) -> str:
    """Squeeze and excitation (Hu et al. 2017)."""
    y = net.op("GlobalAveragePool", x)
    y = net.op("Relu", net.conv(y, (channels, inner), (1, 1)))
    y = net.conv(y, (inner, channels), (1, 1))
    return net.op("Mul", x, net.op("HardSigmoid", y, alpha=1 / 6, beta=0.5) if hard else net.op("Sigmoid", y))


def _mobilenetv3() -> onnx.ModelProto:
    """Howard et al. 2019: hard swish, gates by hard sigmoid."""
    net = Layers(2)
    x = net.op("HardSwish", net.norm(net.conv(net.input((1, 3, 32, 32)), (3, 16), (3, 3), 2), 16))
    channels = 16
    for wide, out, kernel, stride, hard, gated in (
        (16, 16, 3, 2, False, True),
        (40, 24, 3, 1, False, False),
        (64, 24, 5, 2, True, True),
        (96, 24, 5, 1, True, True),
    ):
        swish = "HardSwish" if hard else "Relu"
        y = net.op(swish, net.norm(net.conv(x, (channels, wide), (1, 1)), wide))
        y = net.op(swish, net.norm(net.conv(y, (wide, wide), (kernel, kernel), stride, wide), wide))
        if gated:
            y = _gate(net, y, wide, 8, True)
        y = net.norm(net.conv(y, (wide, out), (1, 1)), out)
        x, channels = net.op("Add", x, y) if stride == 1 and channels == out else y, out
    return net.model(net.classes(net.op("HardSwish", net.conv(x, (channels, 96), (1, 1))), 96, 10))


def _efficientnet_lite() -> onnx.ModelProto:
    """Tan and Le 2019, without gates, with ReLU6."""
    net = Layers(3)
    x, channels = net.relu6(net.norm(net.conv(net.input((1, 3, 40, 40)), (3, 16), (3, 3), 2), 16)), 16
    for factor, out, kernel, stride, count in ((1, 8, 3, 1, 1), (6, 12, 3, 2, 2), (6, 20, 5, 2, 2)):
        for step in range(count):
            wide, y = channels * factor, x
            if factor != 1:
                y = net.relu6(net.norm(net.conv(y, (channels, wide), (1, 1)), wide))
            y = net.relu6(net.norm(net.conv(y, (wide, wide), (kernel, kernel), 1 if step else stride, wide), wide))
            y = net.norm(net.conv(y, (wide, out), (1, 1)), out)
            x, channels = net.op("Add", x, y) if step else y, out
    return net.model(net.classes(net.relu6(net.conv(x, (channels, 64), (1, 1))), 64, 10))


def _convnext() -> onnx.ModelProto:
    """Liu et al. 2022: large depthwise kernels, layer normalisation with the channels last, a scale per channel."""
    net = Layers(4)
    width = 24
    x = net.op("Conv", net.input((1, 3, 32, 32)), net.weight((width, 3, 4, 4), 48), kernel_shape=[4, 4], strides=[4, 4])
    x = net.swap(net.layer_norm(net.swap(x, 0, 2, 3, 1), width, 1e-6), 0, 3, 1, 2)
    for _ in range(2):
        y = net.layer_norm(net.swap(net.conv(x, (width, width), (7, 7), 1, width), 0, 2, 3, 1), width, 1e-6)
        y = net.linear(net.gelu(net.linear(y, (width, 4 * width))), (4 * width, width))
        y = net.swap(net.op("Mul", y, net.constant(net.rng.uniform(0.1, 0.5, width))), 0, 3, 1, 2)
        x = net.op("Add", x, y)
    x = net.op("Flatten", net.op("GlobalAveragePool", x))
    return net.model(net.linear(net.layer_norm(x, width, 1e-6), (width, 10)))


def _unet() -> onnx.ModelProto:
    """Ronneberger et al. 2015: the way down, the way up by transposed convolutions, a mask for each class."""
    net = Layers(5)

    def twice(x: str, channels: int, out: int) -> str:
        for given in (channels, out):
            x = net.op("Relu", net.norm(net.conv(x, (given, out), (3, 3)), out))
        return x

    def up(x: str, channels: int, out: int) -> str:
        return net.op(
            "ConvTranspose", x, net.weight((channels, out, 2, 2), channels), kernel_shape=[2, 2], strides=[2, 2]
        )

    first = twice(net.input((1, 1, 32, 32)), 1, 8)
    second = twice(net.op("MaxPool", first, kernel_shape=[2, 2], strides=[2, 2]), 8, 16)
    deep = twice(net.op("MaxPool", second, kernel_shape=[2, 2], strides=[2, 2]), 16, 32)
    x = twice(net.op("Concat", second, up(deep, 32, 16), axis=1), 32, 16)
    x = twice(net.op("Concat", first, up(x, 16, 8), axis=1), 16, 8)
    return net.model(net.op("ArgMax", x, axis=1, keepdims=0), net.op("Softmax", net.conv(x, (8, 3), (1, 1)), axis=1))


def _ssd_head() -> onnx.ModelProto:
    """Liu et al. 2016: scores and boxes of two maps, decoded with the priors."""
    net = Layers(6)
    x = net.op("Relu", net.conv(net.input((1, 3, 48, 48)), (3, 16), (3, 3), 4))
    maps = [x, net.op("Relu", net.conv(x, (16, 24), (3, 3), 2))]
    scores: list[str] = []
    places: list[str] = []
    boxes = 0
    for data, channels, side in zip(maps, (16, 24), (12, 6), strict=True):
        boxes += side * side * 3
        for rows, count in ((scores, 4), (places, 4)):
            y = net.swap(net.conv(data, (channels, 3 * count), (3, 3)), 0, 2, 3, 1)
            rows.append(net.shape(y, 1, -1, count))
    place = net.op("Concat", *places, axis=1)
    prior = net.constant(net.rng.uniform(0.1, 0.9, (1, boxes, 4)))
    centre, size = (net.op("Slice", place, net.ints(a), net.ints(b), net.ints(2)) for a, b in ((0, 2), (2, 4)))
    at, wide = (net.op("Slice", prior, net.ints(a), net.ints(b), net.ints(2)) for a, b in ((0, 2), (2, 4)))
    centre = net.op("Add", net.op("Mul", net.op("Mul", centre, net.number(0.1)), wide), at)
    half = net.op("Div", net.op("Mul", net.op("Exp", net.op("Mul", size, net.number(0.2))), wide), net.number(2.0))
    corners = net.op("Concat", net.op("Sub", centre, half), net.op("Add", centre, half), axis=2)
    return net.model(net.op("Softmax", net.op("Concat", *scores, axis=1), axis=2), corners)


def _yolo_head() -> onnx.ModelProto:
    """Redmon and Farhadi 2018, in the form of later exports: sigmoid, a grid that is added, anchors."""
    net = Layers(7)
    x = net.silu(net.norm(net.conv(net.input((1, 3, 64, 64)), (3, 16), (3, 3), 4), 16))
    small = net.silu(net.norm(net.conv(x, (16, 32), (3, 3), 2), 32))
    pools = [small]
    for _ in range(2):
        pools.append(net.op("MaxPool", pools[-1], kernel_shape=[5, 5], strides=[1, 1], pads=[2] * 4))
    small = net.silu(net.conv(net.op("Concat", *pools, axis=1), (96, 32), (1, 1)))
    wide = net.op("Resize", small, "", net.constant([1, 1, 2, 2]), mode="nearest", nearest_mode="floor",
                  coordinate_transformation_mode="asymmetric")  # fmt: skip
    large = net.silu(net.conv(net.op("Concat", x, wide, axis=1), (48, 16), (3, 3)))
    found = []
    for data, channels, side, stride in ((large, 16, 16, 4.0), (small, 32, 8, 8.0)):
        y = net.shape(net.conv(data, (channels, 3 * 7), (1, 1)), 1, 3, 7, side, side)
        y = net.op("Sigmoid", net.swap(y, 0, 1, 3, 4, 2))
        centre, size, rest = net.ops("Split", 3, y, net.ints(2, 2, 3), axis=4)
        grid = np.stack(np.meshgrid(np.arange(side), np.arange(side)), -1).reshape(1, 1, side, side, 2) - 0.5
        centre = net.op(
            "Mul", net.op("Add", net.op("Mul", centre, net.number(2.0)), net.constant(grid)), net.number(stride)
        )
        anchors = net.constant(net.rng.uniform(4, 24, (1, 3, 1, 1, 2)))
        size = net.op("Mul", net.op("Pow", net.op("Mul", size, net.number(2.0)), net.number(2.0)), anchors)
        found.append(net.shape(net.op("Concat", centre, size, rest, axis=4), 1, -1, 7))
    return net.model(net.op("Concat", *found, axis=1))


def _autoencoder() -> onnx.ModelProto:
    """Convolutions down, a few numbers, convolutions after enlarging up."""
    net = Layers(8)
    x = net.op("Relu", net.conv(net.input((1, 1, 28, 28)), (1, 8), (3, 3), 2))
    x = net.op("Relu", net.conv(x, (8, 16), (3, 3), 2))
    x = net.op("Gemm", net.op("Flatten", x), net.weight((12, 784), 784), net.constant(np.zeros(12)), transB=1)
    x = net.op("Relu", net.op("Gemm", x, net.weight((12, 784), 12), net.constant(np.zeros(784))))
    x = net.shape(x, 1, 16, 7, 7)
    for channels, out, last in ((16, 8, "Relu"), (8, 1, "Sigmoid")):
        x = net.op(
            "Resize", x, "", net.constant([1, 1, 2, 2]), mode="linear", coordinate_transformation_mode="half_pixel"
        )
        x = net.op(last, net.conv(x, (channels, out), (3, 3)))
    return net.model(x)


PICTURES: Mapping[str, Callable[[], onnx.ModelProto]] = MappingProxyType(
    {
        "resnet": _resnet,
        "mobilenetv3": _mobilenetv3,
        "efficientnet_lite": _efficientnet_lite,
        "convnext": _convnext,
        "unet": _unet,
        "ssd_head": _ssd_head,
        "yolo_head": _yolo_head,
        "autoencoder": _autoencoder,
    }
)
