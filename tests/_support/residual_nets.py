"""Residual networks in QDQ ONNX whose scales are powers of two: the sums of a convolution are not quantised before the
residual is added.
"""

from __future__ import annotations

import numpy as np
from tests._support.onnx_builder import OnnxBuilder

__all__ = ["SHAPE", "residual_block"]

CHANNELS = 16
SHAPE = (1, CHANNELS, 9, 9)
"""Of the input, called ``x``, and of the output."""

_GRID = 2.0**-4


def residual_block(*, depthwise: bool = False) -> bytes:
    """Three convolutions, to the third of which the first's result is added; between them all is int8 at one scale.

    Args:
        depthwise: whether a depthwise one follows, to which the second one's result is added.
    """
    rng, b = np.random.default_rng(3), OnnxBuilder()

    def conv(data: str, groups: int = 1) -> str:
        values = rng.integers(-64, 65, (CHANNELS, CHANNELS // groups, 3, 3))
        bias = b.constant(rng.integers(-900, 900, CHANNELS) * 2.0**-11, "float32")
        weight = b.dequantize(b.constant(values, "int8"), 2.0**-7, 0, "int8")
        made: str = b.node("Conv", data, weight, bias, pads=[1, 1, 1, 1], group=groups)
        return made

    def stored(value: str) -> str:
        return b.dequantize(b.quantize(value, _GRID, 0, "int8"), _GRID, 0, "int8")

    stem = stored(conv(b.dequantize(b.input("x", SHAPE, "int8"), _GRID, 0, "int8")))
    inner = stored(b.node("Relu", conv(stem)))
    total = b.node("Relu", b.node("Add", conv(inner), stem))
    if depthwise:
        total = b.node("Add", inner, conv(stored(total), CHANNELS))
    return b.build(b.quantize(total, _GRID, 0, "int8"))
