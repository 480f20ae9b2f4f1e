"""Networks with loops that are worth several threads, and data for them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import onnx
import pytest
from tests._support.onnx_builder import OnnxBuilder

from uma.tir.schedule import parallelisation

__all__ = ["every_loop", "picture", "picture_net"]

SIZE = 24


def picture(seed: int = 0) -> np.ndarray:
    """An input of `picture_net`."""
    return np.random.default_rng(seed).uniform(-1, 1, (1, 8, SIZE, SIZE)).astype(np.float32)


def picture_net(quantised: bool = False) -> onnx.ModelProto:
    """Of ``x`` float32 [1, 8, 24, 24]: convolutions of 3x3, by channel and of 1x1, a sum, a pool, and a dense layer;
    of floats, or of int8 with scales beside it."""
    rng = np.random.default_rng(11)
    b = OnnxBuilder(17)

    def held(x: str, scale: float = 1 / 32) -> str:
        if not quantised:
            return x
        return b.dequantize(b.quantize(x, scale, 3, "int8"), scale, 3, "int8")

    def weight(*shape: int) -> str:
        if not quantised:
            return b.constant(rng.normal(0, 1 / np.sqrt(np.prod(shape[1:])), shape), "float32")
        return b.dequantize(b.constant(rng.integers(-90, 90, shape), "int8"), 1 / 512, 0, "int8")

    now = held(b.input("x", [1, 8, SIZE, SIZE]))
    first = now = held(b.node("Relu", b.node("Conv", now, weight(48, 8, 3, 3), pads=[1] * 4)))
    now = held(b.node("Conv", now, weight(48, 1, 3, 3), pads=[1] * 4, group=48))
    now = held(b.node("Conv", now, weight(48, 48, 1, 1)))
    now = held(b.node("Add", now, first))
    now = held(b.node("MaxPool", now, kernel_shape=[2, 2], strides=[2, 2]))
    now = held(b.node("Gemm", b.node("Flatten", now), weight(20, 48 * (SIZE // 2) ** 2), transB=1))
    b.node("Identity", now, outputs=["y"])
    return b.model("y")


@contextmanager
def every_loop() -> Iterator[None]:
    """Within it loops are marked however short they are."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("LEAST", 0.0), ("HANDOVER", 0.0), ("_LATE", 0.0), ("_GAIN", 1.0)):
            patch.setattr(parallelisation, name, value)
        yield
