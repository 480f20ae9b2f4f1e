"""Where onnxruntime deviates from the text of an operator, verification says so, and which value is exact."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from tests._support.onnx_builder import OnnxBuilder

from uma.cli import main
from uma.verification import models
from uma.verification.known_deviations import KnownDeviation, find_deviations


def saved(folder: Path, data: bytes) -> Path:
    path = folder / "model.onnx"
    path.write_bytes(data)
    return path


def resize(scale: float, **attrs: Any) -> bytes:
    b = OnnxBuilder(18)
    y = b.node("Resize", b.input("x", (1, 1, 7)), "", b.constant([1, 1, scale], "float32"), name="half", **attrs)
    return b.build(y)


def described(folder: Path, data: bytes, runtime: str = "onnxruntime") -> list[str]:
    return [str(one) for one in find_deviations(saved(folder, data), runtime)]


def test_ties_of_the_nearest_element(tmp_path: Path) -> None:
    """(1 + 0.5) / 0.6 - 0.5 is below 2: the float32 scale is more than 0.6."""
    (deviation,) = described(tmp_path, resize(0.6, nearest_mode="floor"))
    assert deviation.startswith("layer half (Resize): onnxruntime rounds coordinates to float32, which moves ties")
    assert described(tmp_path, resize(0.5, nearest_mode="floor")) == []


def test_weights_and_lengths(tmp_path: Path) -> None:
    aligned = {"mode": "linear", "coordinate_transformation_mode": "align_corners"}
    (deviation,) = described(tmp_path, resize(0.6, **aligned))
    assert "the lengths that scales give to integers" in deviation
    assert described(tmp_path, resize(2.0, mode="linear")) == []


def quantised(folder: Path, bias: float) -> list[KnownDeviation]:
    b = OnnxBuilder(17)
    x = b.dequantize(b.input("x", (1, 2, 8, 8), "int8"), 0.1, 3, "int8")
    weights = np.random.default_rng(0).integers(-9, 9, (3, 2, 3, 3))
    y = b.node("Conv", x, b.dequantize(b.constant(weights, "int8"), 0.3, 0, "int8"), b.constant([bias] * 3, "float32"))
    return list(find_deviations(saved(folder, b.build(b.quantize(y, 0.05, 1, "int8"))), "onnxruntime"))


def test_a_float_bias(tmp_path: Path) -> None:
    """0.1 * 0.3 * 100.4 is not a multiple of the product of the scales, and moves results."""
    (deviation,) = quantised(tmp_path, 0.1 * 0.3 * 100.4)
    assert "a float bias" in deviation.rule.description
    assert quantised(tmp_path, 0.0) == []


def test_what_is_not_looked_at(tmp_path: Path) -> None:
    data = resize(0.6, nearest_mode="floor")
    assert described(tmp_path, data, "litert") == []
    assert described(tmp_path, data[:50]) == []
    assert find_deviations(tmp_path / "model.tflite", "onnxruntime") == ()
    assert find_deviations(tmp_path / "missing.onnx", "onnxruntime") == ()
    model = onnx.load_from_string(data)
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "n"
    assert described(tmp_path, model.SerializeToString()) == []
    b = OnnxBuilder(18)
    fed = b.node("Resize", b.input("x", (1, 1, 7)), "", b.input("scales", (3,)), nearest_mode="floor")
    assert described(tmp_path, b.model(fed).SerializeToString()) == []


def test_a_layer_that_the_runtime_does_not_run(tmp_path: Path) -> None:
    b = OnnxBuilder(18)
    y = b.node("Resize", b.input("x", (1, 1, 7), "bool"), "", b.constant([1, 1, 0.6], "float32"), nearest_mode="floor")
    assert described(tmp_path, b.build(y)) == []
    b = OnnxBuilder(18)
    y = b.node("Resize", b.input("x", (1, 1, 7), "int64"), "", b.constant([1, 1, 0.6], "float32"), nearest_mode="floor")
    assert described(tmp_path, b.build(y)) == []


def test_verification_names_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = saved(tmp_path, resize(0.6, nearest_mode="floor"))
    command = ["verify", str(model), "--target", "c", "--against", "onnxruntime", "--samples", "1"]
    known = "layer half (Resize): onnxruntime rounds coordinates to float32, which moves ties; the element that the"
    assert main(command) == 0
    out, err = capsys.readouterr()
    assert f"known deviation in {known}" in out and "UMA's value is exact" in out and not err
    # Of a model that cannot be evaluated exactly nobody knows whose value is right.
    monkeypatch.setattr(models, "exact_outputs", lambda *given: None)
    assert main(command) == 7
    out, err = capsys.readouterr()
    assert f"known deviation in {known}" in out
    assert "onnxruntime is known to deviate in layer half" in " ".join(err.split())
