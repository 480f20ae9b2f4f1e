"""Layers with 2^24 elements or more: they are proven to be safe without going through their elements."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests._support.built_layers import PLUGINS, target_for
from tests._support.onnx_builder import OnnxBuilder

import uma
from uma.errors import ModelError
from uma.relay import IRModule

TARGETS = ("c -mcpu=x86-64-v3", "c -mcpu=x86-64-v4", "c -mtriple=aarch64-linux-gnu -mcpu=cortex-a53")


def convolution(channels: int, outputs: int, height: int, width: int, side: int) -> bytes:
    b, shape = OnnxBuilder(), (outputs, channels, side, side)
    weight = b.constant(np.arange(np.prod(shape)).reshape(shape) % 7 - 3, "float32")
    return b.build(b.node("Conv", b.input("x", (1, channels, height, width)), weight, pads=[side // 2] * 4))


def pool() -> bytes:
    b = OnnxBuilder()
    return b.build(b.node("MaxPool", b.input("x", (1, 64, 514, 517)), kernel_shape=[3, 3], strides=[1, 1]))


def logits() -> bytes:
    b = OnnxBuilder()
    return b.build(b.node("MatMul", b.input("x", (512, 8)), b.constant(np.ones((8, 50257)), "float32")))


LARGE: dict[str, Callable[[], bytes]] = {
    "1x1 of 64 channels": lambda: convolution(64, 64, 512, 512, 1),
    "3x3 of 64 channels": lambda: convolution(64, 64, 512, 512, 3),
    "an image of 720p": lambda: convolution(3, 20, 720, 1280, 3),
    "a pool": pool,
    "logits of 50257 words": logits,
}


@pytest.mark.few(3)
@pytest.mark.parametrize(("target", "case"), [(target, case) for case in LARGE for target in TARGETS])
def test_a_large_layer_is_safe_at_every_stage(target: str, case: str, tmp_path: Path) -> None:
    """No strategy fails either: there would be a warning, which is an error here."""
    (tmp_path / "m.onnx").write_bytes(LARGE[case]())
    module = uma.build(tmp_path / "m.onnx", target, plugins=PLUGINS, stop_after="flatten")
    assert isinstance(module, IRModule)


@pytest.mark.soak
def test_a_row_of_many_pixels_is_computed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "m.onnx").write_bytes(convolution(2, 8, 1, (1 << 21) + 3, 1))
    data = np.random.default_rng(1).integers(-9, 10, (1, 2, 1, (1 << 21) + 3)).astype(np.float32)
    (found,) = (
        uma.build(tmp_path / "m.onnx", target_for("avx2", "gcc", monkeypatch), plugins=PLUGINS).run(data).values()
    )
    weight = (np.arange(16).reshape(8, 2) % 7 - 3).astype(np.float32)
    np.testing.assert_array_equal(found, np.einsum("oc,nchw->nohw", weight, data))


def test_a_tensor_of_2_gib_is_refused(tmp_path: Path) -> None:
    b = OnnxBuilder()
    (tmp_path / "m.onnx").write_bytes(b.build(b.node("Relu", b.input("x", (1, 1 << 29)))))
    with pytest.raises(ModelError, match=r"shape \(1, 536870912\) and float32 needs 2147483648 bytes: over 2 GiB"):
        uma.build(tmp_path / "m.onnx", TARGETS[0], plugins=PLUGINS)
