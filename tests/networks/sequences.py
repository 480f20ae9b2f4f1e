"""Networks for sound, signals and lines of text: convolutions over time, recurrent layers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np
import onnx
from benchmarks.blocks import Layers

__all__ = ["SEQUENCES"]


def _tcn() -> onnx.ModelProto:
    """Bai et al. 2018: convolutions with gaps that see the past only, and what is padded cut off again."""
    net = Layers(11)
    x, channels = net.input((1, 6, 64)), 6
    for dilation in (1, 2, 4):
        y = x
        for given in (channels, 12):
            pads = 2 * dilation
            weight, bias = net.weight((12, given, 3), 3 * given), net.constant(net.rng.standard_normal(12) * 0.1)
            y = net.op("Conv", y, weight, bias, kernel_shape=[3], dilations=[dilation], pads=[pads, pads])
            y = net.op("Relu", net.op("Slice", y, net.ints(0), net.ints(-pads), net.ints(2)))
        side = x if channels == 12 else net.conv(x, (channels, 12), (1,))
        x, channels = net.op("Relu", net.op("Add", y, side)), 12
    last = net.op("Gather", x, net.constant(-1, "int64"), axis=2)
    return net.model(net.linear(last, (12, 5)))


def _ds_cnn() -> onnx.ModelProto:
    """Zhang et al. 2017: a keyword spotter of separable convolutions."""
    net = Layers(12)
    x = net.shape(net.input((1, 49, 10)), 1, 1, 49, 10)
    x = net.op("Conv", x, net.weight((16, 1, 10, 4), 40), kernel_shape=[10, 4], strides=[2, 2], pads=[4, 1, 5, 1])
    x = net.op("Relu", net.norm(x, 16))
    for _ in range(2):
        x = net.op("Relu", net.norm(net.conv(x, (16, 16), (3, 3), 1, 16), 16))
        x = net.op("Relu", net.norm(net.conv(x, (16, 16), (1, 1)), 16))
    return net.model(net.op("Softmax", net.classes(x, 16, 12), axis=-1))


def _crnn() -> onnx.ModelProto:
    """Shi et al. 2015: convolutions, then LSTMs in both directions over the columns of a line of text."""
    net = Layers(13)
    x = net.op("Relu", net.conv(net.input((1, 1, 16, 64)), (1, 8), (3, 3)))
    x = net.op("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    x = net.op("Relu", net.norm(net.conv(x, (8, 16), (3, 3)), 16))
    x = net.op("MaxPool", x, kernel_shape=[8, 2], strides=[8, 2])
    x = net.swap(net.op("Squeeze", x, net.ints(2)), 2, 0, 1)
    x = net.recurrent("LSTM", net.recurrent("LSTM", x, (16, 12), both=True), (24, 12), both=True)
    return net.model(net.op("LogSoftmax", net.linear(x, (24, 11)), axis=2))


def _lstm() -> onnx.ModelProto:
    """Two layers over a signal; the last step decides."""
    net = Layers(14)
    x = net.swap(net.input((1, 20, 9)), 1, 0, 2)
    x = net.recurrent("LSTM", net.recurrent("LSTM", x, (9, 16)), (16, 16))
    return net.model(net.linear(net.op("Gather", x, net.constant(-1, "int64"), axis=0), (16, 6)))


def _gru() -> onnx.ModelProto:
    """One layer in both directions, and the mean over time."""
    net = Layers(15)
    x = net.op("Gather", net.constant(net.rng.standard_normal((50, 12))), net.input((24, 1), "int64"))
    x = net.recurrent("GRU", x, (12, 10), both=True)
    return net.model(net.op("Sigmoid", net.linear(net.op("ReduceMean", x, axes=[0], keepdims=0), (20, 1))))


def _conformer() -> onnx.ModelProto:
    """Gulati et al. 2020: half a feed-forward layer, attention, a gated convolution, the other half."""
    net = Layers(16)
    steps, heads, size = 16, 2, 12
    width = heads * size

    def forward(x: str) -> str:
        y = net.silu(net.linear(net.layer_norm(x, width), (width, 2 * width)))
        return net.op("Add", x, net.op("Mul", net.linear(y, (2 * width, width)), net.number(0.5)))

    x = forward(net.input((1, steps, width)))
    x = net.op("Add", x, net.attention(net.layer_norm(x, width), steps, heads, size))
    y = net.swap(net.layer_norm(x, width), 0, 2, 1)
    value, gate = net.ops("Split", 2, net.conv(y, (width, 2 * width), (1,)), net.ints(width, width), axis=1)
    y = net.conv(net.op("Mul", value, net.op("Sigmoid", gate)), (width, width), (7,), 1, width)
    y = net.conv(net.silu(net.norm(y, width)), (width, width), (1,))
    x = forward(net.op("Add", x, net.swap(y, 0, 2, 1)))
    return net.model(net.layer_norm(x, width))


def _whisper() -> onnx.ModelProto:
    """Radford et al. 2022, the encoder: two convolutions, places that are added, blocks with the norm first."""
    net = Layers(17)
    steps, heads, size = 24, 2, 16
    width = heads * size
    x = net.gelu(net.conv(net.input((1, 20, 2 * steps)), (20, width), (3,)))
    x = net.swap(net.gelu(net.conv(x, (width, width), (3,), 2)), 0, 2, 1)
    angle = np.arange(steps)[:, None] / 10 ** (np.arange(width // 2)[None] / 4)
    x = net.op("Add", x, net.constant(np.concatenate([np.sin(angle), np.cos(angle)], 1)))
    for _ in range(2):
        x = net.op("Add", x, net.attention(net.layer_norm(x, width), steps, heads, size))
        y = net.gelu(net.linear(net.layer_norm(x, width), (width, 2 * width)))
        x = net.op("Add", x, net.linear(y, (2 * width, width)))
    return net.model(net.layer_norm(x, width))


SEQUENCES: Mapping[str, Callable[[], onnx.ModelProto]] = MappingProxyType(
    {
        "tcn": _tcn,
        "ds_cnn": _ds_cnn,
        "crnn": _crnn,
        "lstm": _lstm,
        "gru": _gru,
        "conformer": _conformer,
        "whisper_encoder": _whisper,
    }
)
