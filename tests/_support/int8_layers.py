"""Random layers as functions of relay, one of a kind each: what an accelerator for int8 may take, or for int16 with
weights of int8.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from uma.relay import Expr, FixedPoint, FloatScale, Function, TensorType, Var, call, const

__all__ = ["KINDS", "Random"]


class Random:
    """Draws functions of one layer."""

    def __init__(self, seed: Sequence[int], dtype: str = "int8") -> None:
        self.rng, self.dtype = np.random.default_rng(seed), dtype

    def draw(self, kind: str) -> Function:
        """A function with that layer."""
        return KINDS[kind](self)

    def chance(self, share: float) -> bool:
        return bool(self.rng.random() < share)

    def upto(self, most: int, least: int = 1) -> int:
        return int(self.rng.integers(least, most + 1))

    def int8(self, *shape: int) -> np.ndarray:
        """Weights; with data of int16 small, so that sums fit int32."""
        most = 127 if self.dtype == "int8" else 12
        return self.rng.integers(-most, most + 1, shape).astype(np.int8)

    def data(self, *shape: int) -> np.ndarray:
        """A constant operand."""
        info = np.iinfo(self.dtype)
        return self.rng.integers(info.min + 1, info.max + 1, shape).astype(self.dtype)

    def tensor(self, *shape: int, name: str = "x") -> Var:
        return Var(name, TensorType(shape, self.dtype))

    def picture(self, least: int = 1, channels: int = 40) -> Var:
        shape = (
            self.upto(2) if self.chance(0.3) else 1,
            self.upto(19, 3),
            self.upto(19, 3),
            self.upto(channels, least),
        )
        return self.tensor(*shape)

    def scale(self, low: int, high: int, count: int = 1, rounding: str = "double") -> FixedPoint:
        multipliers = self.rng.integers(2**30, 2**31, count).tolist()
        return FixedPoint(tuple(multipliers), tuple(self.rng.integers(low, high, count).tolist()), rounding)

    def zeros(self, *names: str) -> dict[str, int]:
        return {f"{name}_zero_point": self.upto(127, -128) if self.dtype == "int8" else 0 for name in names}

    def clipped(self, value: Expr) -> Expr:
        chance = self.rng.random()
        if chance < 0.25:
            times = 1 if self.dtype == "int8" else 200
            return call("clip", value, a_min=-20.0 * times, a_max=90.0 * times)
        return call("nn.relu", value) if chance < 0.4 else value

    def requantised(self, sums: Expr) -> Expr:
        """A layer behind its sums."""
        channels = sums.shape[-1]
        if self.chance(0.8):
            sums = call("add", sums, const(self.rng.integers(-20000, 20000, channels).astype(np.int32)))
        scale = self.scale(-9, -3, channels if self.chance(0.6) else 1, "double" if self.chance(0.7) else "up")
        zero = self.upto(30, -30) if self.dtype == "int8" else 0
        made = call("qnn.requantize", sums, scale=scale, output_zero_point=zero, dtype=self.dtype, axis=-1)
        return self.clipped(made)

    def window(self, extents: Sequence[int], most: int) -> dict[str, Any]:
        """Of a convolution, and its kernel."""
        kernel = tuple(self.upto(min(extent, most)) for extent in extents)
        dilation = tuple(
            self.upto(2) if 2 * k - 1 <= n and self.chance(0.4) else 1 for k, n in zip(kernel, extents, strict=True)
        )
        return {
            "kernel": kernel,
            "strides": tuple(self.upto(3) for _ in extents),
            "padding": tuple(self.upto(k, 1) - 1 for k in kernel * 2),
            "dilation": dilation,
        }

    def conv_of(self, data: Expr, channels: int, stride: int = 1, groups: int = 1) -> Expr:
        """A convolution of 3 x 3, padded, or depthwise."""
        weight = const(self.int8(3, 3, data.shape[3] // groups, channels))
        attrs = {"strides": (stride, stride), "padding": (1, 1, 1, 1), "groups": groups}
        return self.requantised(call("qnn.conv2d", data, weight, **attrs, **self.zeros("input")))

    def conv(self) -> Function:
        x = self.picture()
        attrs = self.window(x.shape[1:3], 6)
        weight = const(self.int8(*attrs.pop("kernel"), x.shape[3], self.upto(50)))
        return Function([x], self.requantised(call("qnn.conv2d", x, weight, **attrs, **self.zeros("input"))))

    def wide(self) -> Function:
        x = self.tensor(1, self.upto(5), self.upto(5), self.upto(200, 60))
        weight = const(self.int8(1, 1, x.shape[3], self.upto(300, 30)))
        return Function([x], self.requantised(call("qnn.conv2d", x, weight, **self.zeros("input"))))

    def depthwise(self) -> Function:
        x = self.picture(least=2)
        attrs = self.window(x.shape[1:3], 8)
        weight = const(self.int8(*attrs.pop("kernel"), 1, x.shape[3]))
        sums = call("qnn.conv2d", x, weight, groups=x.shape[3], **attrs, **self.zeros("input"))
        return Function([x], self.requantised(sums))

    def conv1d(self) -> Function:
        x = self.tensor(self.upto(2), self.upto(19, 2), self.upto(40))
        attrs = self.window(x.shape[1:2], 12)
        weight = const(self.int8(*attrs.pop("kernel"), x.shape[2], self.upto(20)))
        return Function([x], self.requantised(call("qnn.conv1d", x, weight, **attrs, **self.zeros("input"))))

    def dense(self) -> Function:
        x = self.tensor(self.upto(3), self.upto(40))
        weight = const(self.int8(self.upto(200), x.shape[1]))
        return Function([x], self.requantised(call("qnn.dense", x, weight, **self.zeros("input"))))

    def _pool(self, name: str) -> Function:
        x = self.picture()
        size = tuple(self.upto(min(extent, 8)) for extent in x.shape[1:3])
        padding = tuple(self.upto(min(2, k), 1) - 1 for k in size * 2) if self.chance(0.5) else (0, 0, 0, 0)
        attrs = {"pool_size": size, "strides": (self.upto(3), self.upto(3)), "padding": padding}
        return Function([x], self.clipped(call(name, x, **attrs)))

    def max_pool(self) -> Function:
        return self._pool("nn.max_pool2d")

    def average_pool(self) -> Function:
        return self._pool("qnn.avg_pool2d")

    def global_max(self) -> Function:
        x = self.tensor(1, self.upto(19), self.upto(19), self.upto(40))
        return Function([x], call("nn.global_max_pool", x))

    def mean(self) -> Function:
        x = self.tensor(1, self.upto(9), self.upto(9), self.upto(7))
        axes = [(1, 2), (1,), (2,), (3,), (2, 3), (1, 2, 3)][self.upto(5, 0)]
        sums = call("qnn.sum", x, axis=axes, keepdims=self.chance(0.5), **self.zeros("input"))
        attrs = {"scale": self.scale(-9, -2), "dtype": self.dtype, "axis": -1, **self.zeros("output")}
        return Function([x], self.clipped(call("qnn.requantize", sums, **attrs)))

    def _binary(self, name: str, **attrs: Any) -> Function:
        x = self.picture()
        n, h, w, c = x.shape
        shapes = [(n, h, w, c), (n, h, w, c), (n, 1, 1, c), (1, 1, 1, 1), (n, h, w, 1), (c,), (1, h, w, c)]
        shape = shapes[self.upto(6, 0)]
        other = self.tensor(*shape, name="y") if self.chance(0.7) else const(self.data(*shape))
        operands = [x, other] if self.chance(0.6) else [other, x]
        params = [one for one in (x, other) if isinstance(one, Var)]
        return Function(params, self.clipped(call(name, *operands, **attrs)))

    def _sum(self, name: str) -> Function:
        half = FixedPoint((2**30,), (0,), "double")
        scales = [half, self.scale(-6, 0) if self.chance(0.8) else half]
        self.rng.shuffle(scales)
        left = 20 if self.dtype == "int8" else 15
        attrs = {"lhs_scale": scales[0], "rhs_scale": scales[1], "output_scale": self.scale(-left, 4 - left)}
        return self._binary(name, left_shift=left, **attrs, **self.zeros("lhs", "rhs", "output"))

    def add(self) -> Function:
        return self._sum("qnn.add")

    def subtract(self) -> Function:
        return self._sum("qnn.subtract")

    def multiply(self) -> Function:
        scale = self.scale(-9, -3) if self.dtype == "int8" else self.scale(-17, -11)
        return self._binary("qnn.multiply", scale=scale, **self.zeros("lhs", "rhs", "output"))

    def minimum(self) -> Function:
        return self._binary("minimum")

    def maximum(self) -> Function:
        return self._binary("maximum")

    def table(self) -> Function:
        x = self.picture()
        value: Expr = x
        for _ in range(self.upto(3)):
            value = self.unary(value)
        return Function([x], value)

    def unary(self, value: Expr) -> Expr:
        points = self.zeros("input", "output")
        floats = {"input_scale": 0.05, "output_scale": 1 / 128, **points}
        scale = FloatScale((float(self.rng.uniform(0.3, 2)),)) if self.chance(0.5) else self.scale(-1, 2, 1, "away")
        choices: list[tuple[str, dict[str, Any]]] = [
            *((name, floats) for name in ("qnn.sigmoid", "qnn.tanh", "qnn.hard_swish")),
            ("qnn.leaky_relu", {"scale": self.scale(0, 2), "negative_scale": self.scale(-3, 0), **points}),
            ("qnn.abs", {"scale": self.scale(0, 2), **points}),
            ("qnn.requantize", {"scale": scale, "dtype": "int8", "axis": -1, **points}),
            ("clip", {"a_min": -100.0, "a_max": 60.0}),
        ]
        name, attrs = choices[self.upto(len(choices)) - 1]
        return call(name, value, **attrs)

    def concatenate(self) -> Function:
        axis, shape = self.upto(3, 0), list(self.picture().shape)
        parts: list[Expr] = []
        for number in range(self.upto(4, 2)):
            shape[axis] = self.upto(12)
            fixed = number == 1 and self.chance(0.3)
            parts.append(const(self.data(*shape)) if fixed else self.tensor(*shape, name=f"x{number}"))
        params = [one for one in parts if isinstance(one, Var)]
        return Function(params, call("concatenate", *parts, axis=axis))

    def slice(self) -> Function:
        x = self.picture()
        cut = self.upto(2)  # rows or columns, and perhaps another dimension
        begin, end = [0] * 4, list(x.shape)
        for axis in {cut, self.upto(3, 0)}:
            begin[axis] = self.upto(x.shape[axis], 1 + (axis == cut)) - 1
            end[axis] = self.upto(x.shape[axis], begin[axis] + 1)
        return Function([x], call("strided_slice", x, begin=begin, end=end, strides=(1,) * 4))

    def resize(self) -> Function:
        x = self.picture()
        factors = (self.upto(3), self.upto(3))
        rows, columns = (sorted([*range(extent)] * f) for extent, f in zip(x.shape[1:3], factors, strict=True))
        return Function([x], call("nn.resize_nearest", x, rows=rows, columns=columns))

    def softmax(self) -> Function:
        channels = [1, 2, 10, self.upto(300)][self.upto(3, 0)]
        x = Var("x", TensorType((self.upto(6), channels), "int8"))
        return Function([x], call("qnn.softmax", x, scale=self.scale(15, 27)))


KINDS: dict[str, Callable[[Random], Function]] = {
    one.__name__: one
    for one in (
        *(Random.conv, Random.wide, Random.depthwise, Random.conv1d, Random.dense),
        *(Random.max_pool, Random.average_pool, Random.global_max, Random.mean),
        *(Random.add, Random.subtract, Random.multiply, Random.minimum, Random.maximum),
        *(Random.table, Random.softmax, Random.concatenate, Random.slice, Random.resize),
    )
}
"""What can be drawn, by name."""
