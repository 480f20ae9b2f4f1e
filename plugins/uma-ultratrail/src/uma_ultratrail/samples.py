"""Layers that the machine takes, for those who check it: few scales are the machine's own, and are hit by chance."""

from __future__ import annotations

import numpy as np

from uma.relay import Call, Expr, FloatScale, TensorType, Var, call, const

__all__ = ["samples"]


def samples() -> list[Expr]:
    """A convolution alone, with stride and padding, with a bias and a residual, with a pool; a dense layer."""
    plain = _conv(20, 16, 8, 3)
    strided = _conv(21, 8, 16, 3, strides=(2,), padding=(1, 1))
    summed = call("add", _conv(13, 8, 8, 3, padding=(1, 1)), _biases(8))
    residual = call("cast", _data(1, 13, 8, name="r"), dtype="int32")
    added = call("add", summed, call("multiply", residual, const(np.array(32, np.int32))))
    pooled = call("sum", _conv(10, 16, 8, 3), axis=(1,), keepdims=True)
    wide = call("qnn.dense", _data(1, 16), const(_weights(8, 16)))
    dense = call("qnn.dense", _data(1, 24), const(_weights(12, 24)))
    return [
        _scaled(plain),
        call("nn.relu", _scaled(strided)),
        call("nn.relu", _scaled(added)),
        _scaled(pooled, 3),
        _scaled(call("add", dense, _biases(12))),
        _scaled(wide),
    ]


def _data(*shape: int, name: str = "x") -> Var:
    return Var(name, TensorType(shape, "int8"))


def _weights(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(-8, 8, shape).astype(np.int8)


def _biases(count: int) -> Expr:
    return const((32 * np.random.default_rng(1).integers(-64, 64, count)).astype(np.int32))


def _conv(
    frames: int, channels: int, out: int, taps: int, strides: tuple[int, ...] = (1,), padding: tuple[int, ...] = (0, 0)
) -> Call:
    weights = const(_weights(taps, channels, out))
    return call("qnn.conv1d", _data(1, frames, channels), weights, strides=strides, padding=padding)


def _scaled(sums: Expr, pooled_bits: int = 0) -> Call:
    return call("qnn.requantize", sums, scale=FloatScale((2.0 ** -(5 + pooled_bits),)), dtype="int8")
