"""Random float networks of several kinds, as ONNX files."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from tests._support.onnx_builder import OnnxBuilder

__all__ = ["KINDS", "random_float_net"]

_ACTIVATIONS = ("Relu", "Tanh", "Sigmoid", "Softplus", "Elu", "HardSwish", "Erf")


class _Net:
    """One network on its way."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.b = OnnxBuilder(17)

    def draw(self, *choices: int) -> int:
        return int(self.rng.choice(choices))

    def weight(self, *shape: int, fan: int | None = None) -> str:
        spread = self.rng.uniform(0.5, 2.0) / np.sqrt(fan or np.prod(shape[1:]))
        return self.b.constant(self.rng.normal(0, spread, shape), "float32")

    def near(self, centre: float, *shape: int) -> str:
        return self.b.constant(self.rng.normal(centre, 0.3, shape), "float32")

    def activation(self, x: str) -> str:
        return str(self.b.node(str(self.rng.choice(_ACTIVATIONS)), x))


def _conv(n: _Net) -> str:
    channels, size = n.draw(1, 3, 8), n.draw(7, 8, 12)
    x = n.b.input("x", [1, channels, size, size])
    for _ in range(n.draw(1, 2, 4)):
        wide, kernel = n.draw(4, 8, 20), n.draw(1, 3, 5)
        pads = [kernel // 2] * 4
        x = n.b.node("Conv", x, n.weight(wide, channels, kernel, kernel), n.near(0, wide), pads=pads)
        channels = wide
        if n.rng.random() < 0.4:
            statistics = (
                n.near(1, wide),
                n.near(0, wide),
                n.near(0, wide),
                n.b.constant(n.rng.uniform(0.2, 3, wide), "float32"),
            )
            x = n.b.node("BatchNormalization", x, *statistics)
        x = n.activation(x)
        if n.rng.random() < 0.4:
            x = n.b.node("Conv", x, n.weight(wide, 1, 3, 3), pads=[1] * 4, group=wide)
    pool = str(n.rng.choice(["GlobalAveragePool", "MaxPool", "AveragePool"]))
    x = n.b.node(pool, x, **({} if pool.startswith("Global") else {"kernel_shape": [2, 2]}))
    return str(x)


def _dense(n: _Net) -> str:
    width, rows = n.draw(5, 16, 100), n.draw(1, 3)
    x = n.b.input("x", [rows, width])
    for _ in range(n.draw(1, 3, 8)):
        wide = n.draw(7, 16, 64)
        y = n.activation(n.b.node("Gemm", x, n.weight(wide, width), n.near(0, wide), transB=1))
        x, width = n.b.node("Add", x, y) if wide == width else y, wide
    return str(n.b.node("Softmax", x, axis=-1)) if n.rng.random() < 0.5 else x


def _recurrent(n: _Net) -> str:
    op = str(n.rng.choice(["LSTM", "GRU", "RNN"]))
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[op]
    steps, width, hidden = n.draw(3, 10), n.draw(4, 12), n.draw(5, 16)
    x = n.b.input("x", [steps, 1, width])
    weights = n.weight(1, gates * hidden, width, fan=width), n.weight(1, gates * hidden, hidden, fan=hidden)
    outputs = n.b.node(
        op, x, *weights, n.near(0, 1, 2 * gates * hidden), outputs=3 if op == "LSTM" else 2, hidden_size=hidden
    )
    flat = n.b.node("Reshape", outputs[0], n.b.constant([steps, hidden], "int64"))
    return n.activation(n.b.node("MatMul", flat, n.weight(hidden, 6, fan=hidden)))


def _attention(n: _Net) -> str:
    length, width = n.draw(4, 9), n.draw(8, 16)
    x = n.b.input("x", [length, width])
    for _ in range(n.draw(1, 2)):
        q, k, v = (n.b.node("MatMul", x, n.weight(width, width, fan=width)) for _ in range(3))
        scores = n.b.node("MatMul", q, n.b.node("Transpose", k, perm=[1, 0]))
        scores = n.b.node("Mul", scores, n.b.constant(width**-0.5, "float32"))
        x = n.b.node("Add", x, n.b.node("MatMul", n.b.node("Softmax", scores, axis=-1), v))
        x = n.b.node("LayerNormalization", x, n.near(1, width), n.near(0, width), axis=-1)
    return str(x)


def _norms(n: _Net) -> str:
    rows, width = n.draw(2, 5), n.draw(6, 32)
    x = n.b.input("x", [1, rows, width])
    for _ in range(n.draw(1, 2, 4)):
        kind = n.draw(0, 1, 2)
        if kind == 0:
            x = n.b.node("LayerNormalization", x, n.near(1, width), n.near(0, width), axis=-1)
        elif kind == 1:
            x = n.b.node("InstanceNormalization", x, n.near(1, rows), n.near(0, rows))
        else:
            mean = n.b.node("ReduceMean", n.b.node("Mul", x, x), axes=[-1])
            root = n.b.node("Sqrt", n.b.node("Add", mean, n.b.constant(1e-5, "float32")))
            x = n.b.node("Div", x, root)
        x = n.activation(n.b.node("MatMul", x, n.weight(width, width, fan=width)))
    return str(x)


KINDS: dict[str, Callable[[_Net], str]] = {
    "dense": _dense,
    "conv": _conv,
    "recurrent": _recurrent,
    "attention": _attention,
    "norms": _norms,
}


def random_float_net(kind: str, seed: int) -> bytes:
    """The file of a network with one input ``x`` and one output."""
    net = _Net(seed)
    output = KINDS[kind](net)
    return net.b.build(output)
