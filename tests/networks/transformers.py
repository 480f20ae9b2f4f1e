"""Networks of attention: pictures in patches, text, one token after the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np
import onnx
from benchmarks.blocks import Layers

__all__ = ["KEPT", "TRANSFORMERS", "WORDS"]

WORDS = 60
"""How many words networks of text know."""

KEPT = 24
"""Tokens that the small decoder remembers."""


def _words(net: Layers, ids: str, width: int) -> str:
    """The vectors of words."""
    return net.op("Gather", net.constant(net.rng.standard_normal((WORDS, width))), ids)


def _hidden(net: Layers, mask: str, steps: int) -> str:
    """What is added to scores for a mask of 0 and 1 over words."""
    wide = net.op("Cast", net.op("Unsqueeze", mask, net.ints(1, 2)), to=onnx.TensorProto.FLOAT)
    wide = net.op("Expand", wide, net.ints(1, 1, steps, steps))
    return net.op("Mul", net.op("Sub", net.number(1.0), wide), net.number(-1e9))


def _vit() -> onnx.ModelProto:
    """Dosovitskiy et al. 2020: patches by a convolution, one more token that gathers."""
    net = Layers(21)
    heads, size, steps = 2, 12, 17
    width = heads * size
    x = net.op(
        "Conv", net.input((1, 3, 32, 32)), net.weight((width, 3, 8, 8), 192), kernel_shape=[8, 8], strides=[8, 8]
    )
    x = net.swap(net.shape(x, 1, width, 16), 0, 2, 1)
    x = net.op("Concat", net.constant(net.rng.standard_normal((1, 1, width))), x, axis=1)
    x = net.op("Add", x, net.constant(net.rng.standard_normal((1, steps, width)) * 0.1))
    for _ in range(2):
        x = net.op("Add", x, net.attention(net.layer_norm(x, width, 1e-6), steps, heads, size))
        y = net.gelu(net.linear(net.layer_norm(x, width, 1e-6), (width, 2 * width)))
        x = net.op("Add", x, net.linear(y, (2 * width, width)))
    x = net.op("Gather", net.layer_norm(x, width, 1e-6), net.constant(0, "int64"), axis=1)
    return net.model(net.linear(x, (width, 10)))


def _after(net: Layers, x: str, steps: int, heads: int, size: int, added: str) -> str:
    """A block with the norm, spelled out, behind each half."""
    width = heads * size
    x = net.spelled_layer_norm(net.op("Add", net.attention(x, steps, heads, size, added), x), width)
    y = net.linear(net.gelu(net.linear(x, (width, 2 * width))), (2 * width, width))
    return net.spelled_layer_norm(net.op("Add", y, x), width)


def _bert() -> onnx.ModelProto:
    """Devlin et al. 2018: words, places and sentences are added; a mask; the first token pooled."""
    net = Layers(22)
    steps, heads, size = 16, 2, 16
    width = heads * size
    ids, mask, kind = (net.input((1, steps), "int64") for _ in range(3))
    x = net.op(
        "Add", _words(net, ids, width), net.op("Gather", net.constant(net.rng.standard_normal((2, width))), kind)
    )
    x = net.op("Add", x, net.constant(net.rng.standard_normal((1, steps, width))))
    x, added = net.spelled_layer_norm(x, width), _hidden(net, mask, steps)
    for _ in range(2):
        x = _after(net, x, steps, heads, size, added)
    first = net.op("Gather", x, net.constant(0, "int64"), axis=1)
    pooled = net.op("Gemm", first, net.weight((width, width), 2 * width), net.constant(np.zeros(width)), transB=1)
    return net.model(x, net.op("Tanh", pooled))


def _distilbert() -> onnx.ModelProto:
    """Sanh et al. 2019: no sentences; queries are scaled, and a Where hides; a class for each word."""
    net = Layers(23)
    steps, heads, size = 12, 3, 8
    width = heads * size
    ids, mask = (net.input((1, steps), "int64") for _ in range(2))
    x = net.op("Add", _words(net, ids, width), net.constant(net.rng.standard_normal((1, steps, width))))
    x = net.layer_norm(x, width, 1e-12)
    no = net.op(
        "Expand", net.shape(net.op("Equal", mask, net.ints(0)), 1, 1, 1, steps), net.ints(1, heads, steps, steps)
    )
    for _ in range(2):
        q, k, v = (net.linear(x, (width, width)) for _ in range(3))
        q = net.op("Div", net.heads(q, steps, heads, size), net.number(size**0.5))
        scores = net.op("MatMul", q, net.heads(k, steps, heads, size, (0, 2, 3, 1)))
        scores = net.op("Where", no, net.number(float(np.finfo(np.float32).min)), scores)
        y = net.op("MatMul", net.op("Softmax", scores, axis=3), net.heads(v, steps, heads, size))
        y = net.linear(net.shape(net.swap(y, 0, 2, 1, 3), 1, steps, width), (width, width))
        x = net.layer_norm(net.op("Add", y, x), width, 1e-12)
        y = net.linear(net.gelu(net.linear(x, (width, 2 * width))), (2 * width, width))
        x = net.layer_norm(net.op("Add", y, x), width, 1e-12)
    return net.model(net.linear(x, (width, 5)))


def _gpt2_block() -> onnx.ModelProto:
    """Radford et al. 2019: queries, keys and values by one product, the future hidden, one table of words."""
    net = Layers(24)
    steps, heads, size = 10, 2, 12
    width = heads * size
    table = net.constant(net.rng.standard_normal((WORDS, width)))
    x = net.op("Gather", table, net.input((1, steps), "int64"))
    x = net.op("Add", x, net.constant(net.rng.standard_normal((1, steps, width))))
    rows = net.shape(net.layer_norm(x, width), -1, width)
    wide = net.op("Gemm", rows, net.weight((width, 3 * width), 2 * width), net.constant(np.zeros(3 * width)))
    q, k, v = net.ops("Split", 3, net.shape(wide, 1, steps, 3 * width), net.ints(width, width, width), axis=2)
    y = net.linear(net.attend(q, k, v, (steps, steps), heads, size, net.causal(steps)), (width, width))
    x = net.op("Add", y, x)
    y = net.gelu_tanh(net.linear(net.layer_norm(x, width), (width, 4 * width)))
    x = net.layer_norm(net.op("Add", x, net.linear(y, (4 * width, width))), width)
    return net.model(net.op("MatMul", x, net.swap(table, 1, 0)))


def _t5_encoder() -> onnx.ModelProto:
    """Raffel et al. 2019: RMS norms, no biases, no scale, places in buckets of distances, a gated layer."""
    net = Layers(25)
    steps, heads, size = 14, 2, 12
    width = heads * size
    x = _words(net, net.input((1, steps), "int64"), width)
    away = np.clip(np.abs(np.subtract.outer(np.arange(steps), np.arange(steps))), 0, 7)
    places = net.op("Gather", net.constant(net.rng.standard_normal((8, heads))), net.constant(away, "int64"))
    places = net.op("Unsqueeze", net.swap(places, 2, 0, 1), net.ints(0))
    for _ in range(2):
        x = net.op("Add", x, net.attention(net.rms_norm(x, width), steps, heads, size, places, bias=False))
        y = net.rms_norm(x, width)
        gate = net.gelu_tanh(net.linear(y, (width, 2 * width), bias=False))
        y = net.op("Mul", gate, net.linear(y, (width, 2 * width), bias=False))
        x = net.op("Add", x, net.linear(y, (2 * width, width), bias=False))
    return net.model(net.rms_norm(x, width))


def _decoder() -> onnx.ModelProto:
    """One token at a time: rotated queries and keys (Su et al. 2021), RMS norms, what is remembered goes in and out.

    Inputs: the token (1, 1), its place (1,), the keys and values of all layers (1, heads, `KEPT`, size). Outputs: the
    scores of words, the new keys and values.
    """
    net = Layers(26)
    heads, size = 2, 12
    width = heads * size
    token, place = net.input((1, 1), "int64"), net.input((1,), "int64")
    kept = [net.input((1, heads, KEPT, size)) for _ in range(4)]
    x = _words(net, token, width)
    angle = np.arange(KEPT)[:, None] / 100 ** (np.arange(size // 2)[None] / (size // 2))
    cosine, sine = (net.op("Gather", net.constant(np.concatenate([f(angle)] * 2, 1)), place) for f in (np.cos, np.sin))
    future = net.op("Greater", net.constant(np.arange(KEPT), "int64"), place)
    added = net.op("Where", future, net.number(-1e9), net.number(0.0))

    def turned(y: str) -> str:
        low, high = net.ops("Split", 2, y, net.ints(size // 2, size // 2), axis=3)
        swapped = net.op("Concat", net.op("Neg", high), low, axis=3)
        return net.op("Add", net.op("Mul", y, cosine), net.op("Mul", swapped, sine))

    at = net.op("Reshape", place, net.ints(1, 1, 1, 1))
    at = net.op("Expand", at, net.ints(1, heads, 1, size))
    made = []
    for layer in range(2):
        y = net.rms_norm(x, width)
        q, k, v = (net.heads(net.linear(y, (width, width), bias=False), 1, heads, size) for _ in range(3))
        keys = net.op("ScatterElements", kept[2 * layer], at, turned(k), axis=2)
        values = net.op("ScatterElements", kept[2 * layer + 1], at, v, axis=2)
        made += [keys, values]
        scores = net.op("Div", net.op("MatMul", turned(q), net.swap(keys, 0, 1, 3, 2)), net.number(size**0.5))
        y = net.op("MatMul", net.op("Softmax", net.op("Add", scores, added), axis=-1), values)
        y = net.linear(net.shape(net.swap(y, 0, 2, 1, 3), 1, 1, width), (width, width), bias=False)
        x = net.op("Add", x, y)
        y = net.rms_norm(x, width)
        gate = net.silu(net.linear(y, (width, 2 * width), bias=False))
        y = net.op("Mul", gate, net.linear(y, (width, 2 * width), bias=False))
        x = net.op("Add", x, net.linear(y, (2 * width, width), bias=False))
    return net.model(net.linear(net.rms_norm(x, width), (width, WORDS), bias=False), *made)


TRANSFORMERS: Mapping[str, Callable[[], onnx.ModelProto]] = MappingProxyType(
    {
        "vit": _vit,
        "bert": _bert,
        "distilbert": _distilbert,
        "gpt2_block": _gpt2_block,
        "t5_encoder": _t5_encoder,
        "decoder": _decoder,
    }
)
