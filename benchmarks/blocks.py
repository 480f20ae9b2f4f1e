"""What networks are made of, as exporters write it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from .nets import Net

__all__ = ["Layers"]


class Layers(Net):
    """A graph, layer by layer. Pictures are (batch, channels, height, width), sequences (batch, steps, features)."""

    def ints(self, *values: int) -> str:
        """A constant list of int64."""
        return self.constant(values, "int64")

    def number(self, value: float) -> str:
        """A constant number."""
        return self.constant(value)

    def norm(self, x: str, channels: int) -> str:
        """Batch normalisation with the statistics of training."""
        draw = self.rng.uniform
        parts = [
            draw(0.5, 1.5, channels),
            draw(-0.2, 0.2, channels),
            draw(-0.2, 0.2, channels),
            draw(0.5, 1.5, channels),
        ]
        return self.op("BatchNormalization", x, *(self.constant(part) for part in parts), epsilon=1e-5)

    def silu(self, x: str) -> str:
        """x * sigmoid(x)."""
        return self.op("Mul", x, self.op("Sigmoid", x))

    def gelu(self, x: str) -> str:
        """Spelled out by erf, as before opset 20."""
        ramp = self.op("Add", self.op("Erf", self.op("Div", x, self.number(math.sqrt(2)))), self.number(1.0))
        return self.op("Mul", self.op("Mul", x, ramp), self.number(0.5))

    def gelu_tanh(self, x: str) -> str:
        """The approximation by tanh, spelled out."""
        cube = self.op("Mul", self.op("Pow", x, self.number(3.0)), self.number(0.044715))
        inner = self.op("Mul", self.op("Add", x, cube), self.number(math.sqrt(2 / math.pi)))
        ramp = self.op("Add", self.op("Tanh", inner), self.number(1.0))
        return self.op("Mul", self.op("Mul", x, self.number(0.5)), ramp)

    def linear(self, x: str, sizes: tuple[int, int], bias: bool = True) -> str:
        """A dense layer over the last axis."""
        y = self.op("MatMul", x, self.weight(sizes, 2 * sizes[0]))
        return self.op("Add", y, self.constant(self.rng.standard_normal(sizes[1]) * 0.1)) if bias else y

    def layer_norm(self, x: str, size: int, epsilon: float = 1e-5) -> str:
        """The operator."""
        scale, shift = self.rng.uniform(0.5, 1.5, size), self.rng.uniform(-0.2, 0.2, size)
        return self.op("LayerNormalization", x, self.constant(scale), self.constant(shift), axis=-1, epsilon=epsilon)

    def spelled_layer_norm(self, x: str, size: int, epsilon: float = 1e-12) -> str:
        """Spelled out, as before opset 17."""
        centred = self.op("Sub", x, self.op("ReduceMean", x, axes=[-1]))
        variance = self.op("ReduceMean", self.op("Pow", centred, self.number(2.0)), axes=[-1])
        root = self.op("Sqrt", self.op("Add", variance, self.number(epsilon)))
        scale, shift = self.rng.uniform(0.5, 1.5, size), self.rng.uniform(-0.2, 0.2, size)
        scaled = self.op("Mul", self.op("Div", centred, root), self.constant(scale))
        return self.op("Add", scaled, self.constant(shift))

    def rms_norm(self, x: str, size: int, epsilon: float = 1e-6) -> str:
        """Spelled out: no mean is taken away (Zhang and Sennrich 2019)."""
        mean = self.op("ReduceMean", self.op("Pow", x, self.number(2.0)), axes=[-1])
        root = self.op("Sqrt", self.op("Add", mean, self.number(epsilon)))
        scaled = self.op("Mul", x, self.op("Reciprocal", root))
        return self.op("Mul", self.constant(self.rng.uniform(0.5, 1.5, size)), scaled)

    def shape(self, x: str, *extents: int) -> str:
        """A reshape."""
        return self.op("Reshape", x, self.ints(*extents))

    def swap(self, x: str, *axes: int) -> str:
        """A permutation of the axes."""
        return self.op("Transpose", x, perm=list(axes))

    def heads(self, x: str, steps: int, heads: int, size: int, last: Sequence[int] = (0, 2, 1, 3)) -> str:
        """(1, steps, heads * size) as (1, heads, steps, size), or with the last two swapped."""
        return self.swap(self.shape(x, 1, steps, heads, size), *last)

    def attend(
        self, q: str, k: str, v: str, steps: tuple[int, int], heads: int, size: int, added: str = "", scale: bool = True
    ) -> str:
        """Scaled dot-product attention: sequences of ``steps`` (asked, known), what is ``added`` to the scores."""
        asked, known = steps
        keys = self.heads(k, known, heads, size, (0, 2, 3, 1))
        scores = self.op("MatMul", self.heads(q, asked, heads, size), keys)
        if scale:
            scores = self.op("Div", scores, self.number(math.sqrt(size)))
        if added:
            scores = self.op("Add", scores, added)
        mixed = self.op("MatMul", self.op("Softmax", scores, axis=-1), self.heads(v, known, heads, size))
        return self.shape(self.swap(mixed, 0, 2, 1, 3), 1, asked, heads * size)

    def attention(self, x: str, steps: int, heads: int, size: int, added: str = "", bias: bool = True) -> str:
        """Attention of a sequence to itself, from its three dense layers to the fourth."""
        width = heads * size
        q, k, v = (self.linear(x, (width, width), bias) for _ in range(3))
        return self.linear(self.attend(q, k, v, (steps, steps), heads, size, added, scale=bias), (width, width), bias)

    def causal(self, steps: int) -> str:
        """What hides the future: 0, and a large negative number above the diagonal."""
        return self.constant(np.triu(np.full((1, 1, steps, steps), -1e9), 1))

    def recurrent(self, kind: str, x: str, sizes: tuple[int, int], both: bool = False) -> str:
        """An LSTM or GRU over (steps, batch, features); gives (steps, batch, states of all directions)."""
        features, hidden = sizes
        gates, ways = {"LSTM": 4, "GRU": 3, "RNN": 1}[kind], 1 + both
        weights = (
            self.weight((ways, gates * hidden, features), 2 * features),
            self.weight((ways, gates * hidden, hidden), 2 * hidden),
            self.constant(self.rng.standard_normal((ways, 2 * gates * hidden)) * 0.1),
        )
        how: dict[str, Any] = {"hidden_size": hidden, "direction": "bidirectional" if both else "forward"}
        if kind == "GRU":
            how["linear_before_reset"] = 1
        y = self.op(kind, x, *weights, **how)
        return self.op("Squeeze", y, self.ints(1)) if not both else self.joined(y, hidden)

    def joined(self, y: str, hidden: int) -> str:
        """(steps, 2, 1, hidden) as (steps, 1, 2 * hidden)."""
        return self.op("Reshape", self.swap(y, 0, 2, 1, 3), self.ints(0, 0, 2 * hidden))
