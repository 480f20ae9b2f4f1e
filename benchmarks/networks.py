"""Whole networks in the shape of known ones, of blocks: attention, gates, hard swish. Weights are random."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import numpy as np
import onnx

from .blocks import Layers

__all__ = ["NETWORKS"]

Stage = tuple[int, int, int, int, bool, bool]
"""Of a block of MobileNetV3: kernel, inner channels, channels it gives, stride, whether hard swish, whether gated."""

_SMALL: Sequence[Stage] = (
    (3, 16, 16, 2, False, True),
    (3, 72, 24, 2, False, False),
    (3, 88, 24, 1, False, False),
    (5, 96, 40, 2, True, True),
    (5, 240, 40, 1, True, True),
    (5, 240, 40, 1, True, True),
    (5, 120, 48, 1, True, True),
    (5, 144, 48, 1, True, True),
    (5, 288, 96, 2, True, True),
    (5, 576, 96, 1, True, True),
    (5, 576, 96, 1, True, True),
)
"""Howard et al. 2019, table 2."""


def _mobilenetv3() -> onnx.ModelProto:
    """MobileNetV3-Small for pictures of 224 x 224."""
    net = Layers(3)
    x = net.op("HardSwish", net.conv(net.input((1, 3, 224, 224)), (3, 16), (3, 3), 2))
    x, channels = _stages(net, x, 16, _SMALL, (1.0, 4))
    x = net.op("HardSwish", net.conv(x, (channels, 576), (1, 1)))
    x = net.op("Flatten", net.op("GlobalAveragePool", x))
    x = net.op("HardSwish", net.linear(x, (576, 1024)))
    return net.model(net.linear(x, (1024, 1000)))


def _ppocr() -> onnx.ModelProto:
    """As PP-OCR tells whether a line of text is upside down (Du et al. 2020): a third of MobileNetV3-Small's channels,
    lines of 48 x 192, whose heights alone are halved, and hard swish spelled out."""
    net = Layers(4)
    x = _spelled_swish(net, net.conv(net.input((1, 3, 48, 192)), (3, 8), (3, 3), 2))
    x, channels = _stages(net, x, 8, _SMALL, (0.35, 4), spelled=True)
    x = _spelled_swish(net, net.conv(x, (channels, 200), (1, 1)))
    x = net.op("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2], pads=[0, 0, 1, 1])
    x = net.op("Flatten", net.op("GlobalAveragePool", x))
    return net.model(net.op("Softmax", net.linear(x, (200, 2)), axis=-1))


def _stages(
    net: Layers, x: str, channels: int, stages: Sequence[Stage], scale: tuple[float, int], spelled: bool = False
) -> tuple[str, int]:
    """Blocks of MobileNetV3; what they give and its channels.

    Args:
        net: which they become part of.
        x: a picture.
        channels: of it.
        stages: the blocks.
        scale: a factor for all channels, and what they are a multiple of.
        spelled: as exporters without an operator for hard swish have it; then strides are of heights alone.
    """
    factor, multiple = scale
    for kernel, wide, out, stride, hard, gated in stages:
        wide, out = (max(multiple, round(each * factor / multiple) * multiple) for each in (wide, out))
        y = _active(net, net.conv(x, (channels, wide), (1, 1)), hard, spelled)
        weight = net.weight((wide, 1, kernel, kernel), kernel**2)
        how = {"kernel_shape": [kernel] * 2, "pads": [kernel // 2] * 4, "group": wide}
        strides = [stride, 1 if spelled else stride]
        y = net.op("Conv", y, weight, net.constant(np.zeros(wide)), strides=strides, **how)
        y = _active(net, y, hard, spelled)
        if gated:
            gate = net.op("Relu", net.conv(net.op("GlobalAveragePool", y), (wide, wide // 4), (1, 1)))
            gate = net.conv(gate, (wide // 4, wide), (1, 1))
            y = net.op("Mul", y, net.op("HardSigmoid", gate, alpha=1 / 6, beta=0.5))
        y = net.conv(y, (wide, out), (1, 1))
        x, channels = net.op("Add", x, y) if stride == 1 and channels == out else y, out
    return x, channels


def _active(net: Layers, x: str, hard: bool, spelled: bool) -> str:
    if not hard:
        return net.op("Relu", x)
    return _spelled_swish(net, x) if spelled else net.op("HardSwish", x)


def _spelled_swish(net: Layers, x: str) -> str:
    """x * min(max(x + 3, 0), 6) / 6."""
    cut = net.relu6(net.op("Add", x, net.number(3.0)))
    return net.op("Div", net.op("Mul", x, cut), net.number(6.0))


def _bert_tiny() -> onnx.ModelProto:
    """Turc et al. 2019, its tiny one, for 128 tokens that are vectors already."""
    net = Layers(5)
    steps, heads, size = 128, 2, 64
    width = heads * size
    x = net.input((1, steps, width))
    for _ in range(2):
        x = net.layer_norm(net.op("Add", net.attention(x, steps, heads, size), x), width, 1e-12)
        y = net.linear(net.gelu(net.linear(x, (width, 4 * width))), (4 * width, width))
        x = net.layer_norm(net.op("Add", y, x), width, 1e-12)
    return net.model(x)


def _vit_tiny() -> onnx.ModelProto:
    """Dosovitskiy et al. 2020, of the width of Touvron et al. 2021 (DeiT-Ti), for pictures of 224 x 224."""
    net = Layers(6)
    heads, size, patches = 3, 64, 196
    width, steps = heads * size, patches + 1
    weight = net.weight((width, 3, 16, 16), 3 * 256)
    x = net.op("Conv", net.input((1, 3, 224, 224)), weight, kernel_shape=[16, 16], strides=[16, 16])
    x = net.swap(net.shape(x, 1, width, patches), 0, 2, 1)
    x = net.op("Concat", net.constant(net.rng.standard_normal((1, 1, width))), x, axis=1)
    x = net.op("Add", x, net.constant(net.rng.standard_normal((1, steps, width)) * 0.1))
    for _ in range(12):
        x = net.op("Add", x, net.attention(net.layer_norm(x, width, 1e-6), steps, heads, size))
        y = net.gelu(net.linear(net.layer_norm(x, width, 1e-6), (width, 4 * width)))
        x = net.op("Add", x, net.linear(y, (4 * width, width)))
    x = net.op("Gather", net.layer_norm(x, width, 1e-6), net.constant(0, "int64"), axis=1)
    return net.model(net.linear(x, (width, 1000)))


NETWORKS: Mapping[str, Callable[[], onnx.ModelProto]] = MappingProxyType(
    {"mobilenetv3": _mobilenetv3, "ppocr": _ppocr, "bert_tiny": _bert_tiny, "vit_tiny": _vit_tiny}
)
"""Float models."""
