"""Networks whose files leave extents open, in the form in which PyTorch's exporter writes them: shapes are computed."""

from __future__ import annotations

import numpy as np
import onnx
from benchmarks.blocks import Layers
from onnx import helper

__all__ = ["bert_tiny"]

_PLACES = 512


class _Open(Layers):
    """A graph of which shapes are computed from those of its inputs."""

    def extent(self, x: str, axis: int) -> str:
        """The extent of an axis, as a list of one."""
        found = self.op("Gather", self.op("Shape", x), self.constant(axis, "int64"), axis=0)
        return self.op("Unsqueeze", found, self.ints(0))

    def shaped(self, x: str, *extents: str | int) -> str:
        """A reshape to extents some of which are computed."""
        parts = [extent if isinstance(extent, str) else self.ints(extent) for extent in extents]
        return self.op("Reshape", x, self.op("Concat", *parts, axis=0))

    def split_heads(self, x: str, heads: int, size: int, *axes: int) -> str:
        """(batch, steps, heads * size) as (batch, steps, heads, size), with the axes moved."""
        return self.swap(self.shaped(x, self.extent(x, 0), self.extent(x, 1), heads, size), *axes)


def bert_tiny(layers: int = 2, width: int = 128, heads: int = 2, words: int = 400) -> onnx.ModelProto:
    """BERT (Devlin et al. 2018) with random weights: two layers, 128 wide, of two heads; batch and tokens are open.

    Inputs: words, a mask of 0 and 1, and sentences, all int64 (batch, tokens). Outputs: (batch, tokens, width), and
    what is pooled of the first token, (batch, width).
    """
    net = _Open(41)
    size = width // heads
    ids, mask, kind = (net.input(("batch", "tokens"), "int64") for _ in range(3))
    tokens = net.extent(ids, 1)
    table, kinds = (net.constant(net.rng.standard_normal((count, width))) for count in (words, 2))
    places = net.op(
        "Slice", net.constant(np.arange(_PLACES)[None], "int64"), net.ints(0), tokens, net.ints(1), net.ints(1)
    )
    x = net.op("Add", net.op("Gather", table, ids), net.op("Gather", kinds, kind))
    x = net.op("Add", x, net.op("Gather", net.constant(net.rng.standard_normal((_PLACES, width)) * 0.1), places))
    x = net.spelled_layer_norm(x, width)

    wide = net.op("Unsqueeze", mask, net.ints(1, 2))
    asked = net.op("Concat", net.extent(ids, 0), net.ints(-1), tokens, tokens, axis=0)
    as_it_is = net.op("Equal", asked, net.ints(-1))
    shape = net.op("Where", as_it_is, net.op("ConstantOfShape", net.op("Shape", asked), value=_one()), asked)
    seen = net.op("Cast", net.op("Expand", wide, shape), to=onnx.TensorProto.FLOAT)
    hidden = net.op("Sub", net.number(1.0), seen)
    least = net.number(float(np.finfo(np.float32).min))
    added = net.op("Where", net.op("Cast", hidden, to=onnx.TensorProto.BOOL), least, hidden)

    for _ in range(layers):
        q, k, v = (net.linear(x, (width, width)) for _ in range(3))
        scores = net.op(
            "MatMul", net.split_heads(q, heads, size, 0, 2, 1, 3), net.split_heads(k, heads, size, 0, 2, 3, 1)
        )
        scores = net.op("Add", net.op("Div", scores, net.number(size**0.5)), added)
        y = net.op("MatMul", net.op("Softmax", scores, axis=-1), net.split_heads(v, heads, size, 0, 2, 1, 3))
        y = net.swap(y, 0, 2, 1, 3)
        y = net.shaped(y, net.extent(y, 0), net.extent(y, 1), width)
        x = net.spelled_layer_norm(net.op("Add", net.linear(y, (width, width)), x), width)
        y = net.linear(net.gelu(net.linear(x, (width, 4 * width))), (4 * width, width))
        x = net.spelled_layer_norm(net.op("Add", y, x), width)
    first = net.op("Gather", x, net.constant(0, "int64"), axis=1)
    pooled = net.op("Gemm", first, net.weight((width, width), 2 * width), net.constant(np.zeros(width)), transB=1)
    return net.model(x, net.op("Tanh", pooled))


def _one() -> onnx.TensorProto:
    return helper.make_tensor("value", onnx.TensorProto.INT64, [1], [1])
