"""Random layers, many in one model: convolutions and matrix products with what follows them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from uma.relay import (
    Call,
    Constant,
    Expr,
    FixedPoint,
    Function,
    IRModule,
    TensorType,
    Tuple,
    Var,
    call,
    const,
    post_order,
)

CHANNELS = (1, 2, 3, 4, 5, 7, 8, 12, 16, 20, 24, 32, 40)


class Layers:
    """One model of layers that have nothing to do with one another.

    Args:
        seed: of all that is random.
    """

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.inputs: list[Var] = []
        self.outputs: list[Expr] = []

    @property
    def module(self) -> IRModule:
        return IRModule.from_functions({"main": Function(tuple(self.inputs), Tuple(self.outputs))})

    def pick(self, *choices: Any) -> Any:
        return choices[self.rng.integers(len(choices))]

    def numbers(self, shape: tuple[int, ...], dtype: str) -> np.ndarray:
        if dtype == "float32":
            return self.rng.uniform(-1, 1, shape).astype(dtype)
        info = np.iinfo(dtype)
        edges = self.rng.random() < 0.2  # the ends alone, of which the sums are the largest
        if edges:
            return self.rng.choice(np.array([info.min, info.max], dtype), shape)
        return self.rng.integers(info.min, int(info.max) + 1, shape).astype(dtype)

    def input(self, shape: tuple[int, ...], dtype: str) -> Var:
        self.inputs.append(Var(f"x{len(self.inputs)}", TensorType(shape, dtype)))
        return self.inputs[-1]

    def values(self) -> dict[str, np.ndarray]:
        """Something for each input."""
        return {var.name: self.numbers(var.shape, var.dtype) for var in self.inputs}

    def add(self, kind: str, is_float: bool) -> None:
        """A layer: ``conv1d``, ``conv2d``, ``depthwise``, ``grouped``, ``dense``, ``matmul``, ``pool`` or
        ``transpose``.
        """
        dtype = "float32" if is_float else self.pick("int8", "int8", "uint8")
        getattr(self, kind)(dtype, "float32" if is_float else "int8")

    def _attrs(self, dtype: str, is_conv: bool = True) -> dict[str, Any]:
        if dtype == "float32":
            return {}
        zero = int(self.numbers((), dtype)) if self.pick(True, True, False) else 0
        return {"input_zero_point": zero, "kernel_zero_point": self.pick(0, 0, 0, 5)}

    def conv2d(self, dtype: str, weight: str) -> None:
        (kh, kw), (sh, sw), (dh, dw) = (
            (self.pick(*of), self.pick(*of)) for of in ((1, 2, 3, 5), (1, 1, 2), (1, 1, 1, 2))
        )
        if self.pick(True, False):
            kh = kw = sh = sw = 1
        pad = tuple(int(self.rng.integers(0, 3)) if kh > 1 else 0 for _ in range(4))
        h, w = ((k - 1) * d + int(self.rng.integers(1, 9)) for k, d in ((kh, dh), (kw, dw)))
        channels, out = self.pick(*CHANNELS), self.pick(*CHANNELS)
        x = self.input((self.pick(1, 1, 2), h, w, channels), dtype)
        data = call("nn.relu", x) if dtype == "float32" and self.pick(False, False, True) else x
        # In one group, or as many as there are channels.
        groups, out = self.pick((1, out), (1, out), (channels, channels))
        attrs = {"strides": (sh, sw), "padding": pad, "dilation": (dh, dw), "groups": groups, **self._attrs(dtype)}
        self._finish("conv2d", (data, const(self.numbers((kh, kw, channels // groups, out), weight))), attrs)

    def conv1d(self, dtype: str, weight: str) -> None:
        k, s, d = self.pick(1, 3, 9), self.pick(1, 2), self.pick(1, 1, 2)
        pad = (int(self.rng.integers(0, k)), int(self.rng.integers(0, k)))
        channels, out = self.pick(*CHANNELS), self.pick(*CHANNELS)
        x = self.input((1, (k - 1) * d + int(self.rng.integers(1, 20)), channels), dtype)
        attrs = {"strides": (s,), "padding": pad, "dilation": (d,), "groups": 1, **self._attrs(dtype)}
        self._finish("conv1d", (x, const(self.numbers((k, channels, out), weight))), attrs)

    def depthwise(self, dtype: str, weight: str) -> None:
        """Of one dimension or of two, with a filter for each channel."""
        rank, channels = self.pick(1, 2, 2), self.pick(*CHANNELS[1:])
        kernel, strides, dilation = (
            tuple(self.pick(*of) for _ in range(rank)) for of in ((1, 2, 3, 3, 5), (1, 1, 2), (1, 1, 1, 2))
        )
        extents = ((k - 1) * d + int(self.rng.integers(1, 9)) for k, d in zip(kernel, dilation, strict=True))
        x = self.input((self.pick(1, 1, 2), *extents, channels), dtype)
        padding = tuple(int(self.rng.integers(0, 3)) for _ in range(2 * rank))
        attrs = {"strides": strides, "padding": padding, "dilation": dilation, "groups": channels, **self._attrs(dtype)}
        self._finish(f"conv{rank}d", (x, const(self.numbers((*kernel, 1, channels), weight))), attrs)

    def grouped(self, dtype: str, weight: str) -> None:
        """A convolution in groups of channels, of one dimension or of two, of three for floats."""
        rank = self.pick(1, 2, 2, 2, 3) if dtype == "float32" else self.pick(1, 2, 2, 2)
        groups, channels, out = self.pick(2, 3, 4, 8), self.pick(1, 2, 3, 5, 8), self.pick(1, 2, 4, 5, 6, 8, 12, 20, 36)
        kernel, strides, dilation = (
            tuple(self.pick(*of) for _ in range(rank)) for of in ((1, 2, 3), (1, 1, 2), (1, 1, 2))
        )
        pad = tuple(int(self.rng.integers(0, 2)) for _ in range(2 * rank))
        if self.pick(True, False):  # each pixel alone
            kernel, strides, pad = (1,) * rank, (1,) * rank, (0,) * (2 * rank)
        extents = ((k - 1) * d + int(self.rng.integers(1, 9)) for k, d in zip(kernel, dilation, strict=True))
        x = self.input((self.pick(1, 1, 2), *extents, groups * channels), dtype)
        attrs = {"strides": strides, "padding": pad, "dilation": dilation, "groups": groups, **self._attrs(dtype)}
        w = const(self.numbers((*kernel, channels, groups * out), weight))
        self._finish(f"conv{rank}d", (x, w), attrs)

    def dense(self, dtype: str, weight: str) -> None:
        rows = self.pick((), (1,), (7,), (13,), (2, 9))
        inner, out = int(self.rng.integers(1, 70)), self.pick(*CHANNELS)
        x = self.input((*rows, inner), dtype)
        self._finish("dense", (x, const(self.numbers((out, inner), weight))), self._attrs(dtype))

    def matmul(self, dtype: str, weight: str) -> None:
        batch = self.pick((), (2,), (1, 3))
        m, k, n = int(self.rng.integers(1, 20)), int(self.rng.integers(1, 40)), self.pick(*CHANNELS)
        a, shape = self.input((*batch, m, k), dtype), (*self.pick(batch, ()), k, n)
        b = self.input(shape, weight) if self.pick(True, False) else const(self.numbers(shape, weight))
        self._finish("matmul", (a, b), self._attrs(dtype))

    def transpose(self, dtype: str, weight: str) -> None:
        rank = self.pick(2, 3, 4)
        x = self.input(tuple(self.pick(1, 2, 8, 11, 16, 21) for _ in range(rank)), self.pick(dtype, "int32"))
        axes = tuple(int(axis) for axis in self.rng.permutation(rank))
        if self.pick(True, False):
            made = call("transpose", x, axes=axes)
        else:
            to = "".join("NHWC"[axis] for axis in axes)
            made = call("layout_transform", x, src_layout="NHWC"[:rank], dst_layout=to)
        self.outputs.append(made)

    def pool(self, dtype: str, weight: str) -> None:
        """A maximum or a mean over windows of one dimension or of two."""
        rank, is_max = self.pick(1, 2, 2), self.pick(True, False)
        size, strides = (tuple(self.pick(*of) for _ in range(rank)) for of in ((1, 2, 3, 3, 5), (1, 1, 2, 3)))
        padding = tuple(int(self.rng.integers(0, k)) for k in size * 2)
        extents = (k + s + int(self.rng.integers(0, 14)) for k, s in zip(size, strides, strict=True))
        x = self.input((self.pick(1, 1, 2), *extents, self.pick(3, 4, 8, 17, 20, 64, 70)), dtype)
        attrs: dict[str, Any] = {"pool_size": size, "strides": strides, "padding": padding}
        if not is_max:
            attrs["count_include_pad"] = self.pick(True, False, False)
        if not is_max and dtype != "float32":
            attrs.update(rounding=self.pick("away", "even"), zero_point=self.pick(0, int(self.numbers((), dtype))))
        name = f"nn.max_pool{rank}d" if is_max else f"{'nn' if dtype == 'float32' else 'qnn'}.avg_pool{rank}d"
        made = call(name, x, **attrs)
        if self.pick(True, False):
            made = call("nn.relu", made) if dtype == "float32" else call("clip", made, a_min=3, a_max=90)
        self.outputs.append(made)

    def _finish(self, kind: str, args: tuple[Expr, ...], attrs: Mapping[str, Any]) -> None:
        is_float = args[0].dtype == "float32"
        name = kind if kind == "matmul" and is_float else f"{'nn' if is_float else 'qnn'}.{kind}"
        made: Expr = call(name, *args, **attrs)
        channels = made.shape[-1]
        after = self.pick("nothing", "bias", "all", "all")
        if after != "nothing":
            bias = self.numbers((channels,), "float32") if is_float else self.rng.integers(-9999, 9999, (channels,))
            made = call("add", made, const(bias.astype(made.dtype)))
        if after == "all" and is_float:
            if self.pick(True, False):
                made = call("add", made, self.input(made.shape, made.dtype))
            made = call("nn.relu", made)
        elif after == "all":
            count = channels if self.pick(True, True, False) else 1
            multiplier = tuple(int(m) for m in self.rng.integers(2**30, 2**31, count))
            scale = FixedPoint(
                multiplier, tuple(int(s) for s in self.rng.integers(5, 12, count)), self.pick("double", "up")
            )
            attrs = {"axis": len(made.shape) - 1, "dtype": self.pick("int8", "uint8"), "input_zero_point": 0}
            made = call("qnn.requantize", made, scale=scale, output_zero_point=int(self.rng.integers(0, 100)), **attrs)
        self.outputs.append(made)


def reference(module: IRModule, values: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """What the ops' own references give for the outputs of ``module``."""
    found: dict[Expr, Any] = {}
    for expr in post_order(module.main.body):
        if isinstance(expr, Var):
            found[expr] = values[expr.name]
        elif isinstance(expr, Constant):
            found[expr] = expr.data
        elif isinstance(expr, Call):
            found[expr] = expr.op.reference(expr.attrs, *(found[arg] for arg in expr.args))
    assert isinstance(module.main.body, Tuple)
    return [found[field] for field in module.main.body.fields]
