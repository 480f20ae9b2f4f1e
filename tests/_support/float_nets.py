"""Small float networks with random weights, as exporters write them, and data for them."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import onnx
from tests._support.onnx_builder import OnnxBuilder

__all__ = ["calibration_file", "conv_net", "line_net", "samples", "saved"]


def saved(model: onnx.ModelProto, path: Path) -> Path:
    """The file of a model."""
    onnx.save(model, path)
    return path


def samples(count: int, *shape: int, seed: int = 0) -> np.ndarray:
    """Data in [-1, 1), of which the first axis counts samples."""
    return np.random.default_rng(seed).uniform(-1, 1, (count, *shape)).astype(np.float32)


def calibration_file() -> bytes:
    """An ``.npz`` of 16 samples for `conv_net`."""
    content = io.BytesIO()
    np.savez(content, x=samples(16, 3, 8, 8))
    return content.getvalue()


def conv_net(
    opset: int = 17, *, names: bool = True, batch: int | str = 1, limit: str = "Relu", normalised: bool = False
) -> onnx.ModelProto:
    """Of ``x`` float32 [batch, 3, 8, 8]: a convolution of 3x3, a depthwise one, one of 1x1, each with a limit; then an
    average, and a dense layer with ``scores`` of 5 classes.
    """
    rng = np.random.default_rng(7)
    b = OnnxBuilder(opset)

    def weight(*shape: int) -> str:
        spread = 1.5 / np.sqrt(np.prod(shape[1:]))
        return b.constant(rng.normal(0, spread, shape), "float32")

    def limited(x: str) -> str:
        if limit == "Clip":
            return str(b.node("Clip", x, b.constant(0.0, "float32"), b.constant(0.5, "float32")))
        return str(b.node(limit, x))

    now = b.input("x", [batch, 3, 8, 8])
    now = b.node("Conv", now, weight(8, 3, 3, 3), b.constant(rng.normal(0, 0.2, 8), "float32"), pads=[1] * 4)
    if normalised:
        numbers = [rng.uniform(0.5, 1.5, 8), rng.normal(0, 0.1, 8), rng.normal(0, 0.1, 8), rng.uniform(0.5, 2, 8)]
        now = b.node("BatchNormalization", now, *(b.constant(n, "float32") for n in numbers))
    now = limited(now)
    now = limited(b.node("Conv", now, weight(8, 1, 3, 3), pads=[1] * 4, group=8))
    now = limited(b.node("Conv", now, weight(16, 8, 1, 1), b.constant(rng.normal(0, 0.2, 16), "float32")))
    flat = b.node("Flatten", b.node("GlobalAveragePool", now))
    scores = b.constant(rng.normal(0, 0.2, 5), "float32")
    b.node("Gemm", flat, weight(5, 16), scores, outputs=["scores"], transB=1)
    model = b.model("scores")
    if not names:
        for node in model.graph.node:
            node.name = ""
    return model


def line_net(gain: float = 0.4) -> onnx.ModelProto:
    """Of ``x`` float32 [1, 8, 16]: two convolutions of three taps in one dimension, with ReLUs; gives ``y``.

    Args:
        gain: how far weights reach.
    """
    rng = np.random.default_rng(3)
    b = OnnxBuilder(17)
    now = b.input("x", [1, 8, 16])
    for count, (outputs, inputs) in enumerate(((16, 8), (8, 16))):
        weight = rng.uniform(-gain, gain, (outputs, inputs, 3)) / np.sqrt(inputs)
        bias = b.constant(rng.uniform(-0.2, 0.2, outputs), "float32")
        now = b.node("Conv", now, b.constant(weight, "float32"), bias, pads=[1, 1], name=f"conv{count}")
        now = b.node("Relu", now, outputs=["y"] if count else 1)
    return b.model("y")
