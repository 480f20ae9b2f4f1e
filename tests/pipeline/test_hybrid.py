"""``hybrid``: how layers of float data and integer weights are computed, of everything that builds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests._support.tflite_builder import TFLiteBuilder, litert

import uma
from uma.errors import UsageError
from uma.relay import IRModule

SHAPE = (2, 5, 4, 3)


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A convolution with a scale per channel, and a product whose data have a zero point."""
    monkeypatch.chdir(tmp_path)
    rng, builder = np.random.default_rng(0), TFLiteBuilder()

    def weight(shape: list[int], scale: Any) -> int:
        return builder.constant(rng.integers(-127, 128, shape).astype(np.int8), scale=scale)

    def bias(count: int) -> int:
        return builder.constant(rng.normal(size=count).astype(np.float32))

    x, inner, y = builder.input(SHAPE), builder.tensor([2, 5, 4, 7]), builder.tensor([2, 6])
    options = {"strideH": 1, "strideW": 1, "dilationHFactor": 1, "dilationWFactor": 1, "padding": 0}
    scales = [0.01 * (1 + i) for i in range(7)]
    builder.op("CONV_2D", [x, weight([7, 3, 3, 3], scales), bias(7)], [inner], fusedActivationFunction=1, **options)
    builder.op("FULLY_CONNECTED", [inner, weight([6, 140], 0.003), bias(6)], [y], asymmetricQuantizeInputs=True)
    path = tmp_path / "m.tflite"
    path.write_bytes(builder.finish(y))
    return path


def test_what_is_built_equals_litert(model: Path) -> None:
    x = np.random.default_rng(1).normal(size=SHAPE).astype(np.float32)
    (expected,) = litert(model.read_bytes(), x)
    artifact = uma.build(model, "c", allow={"hybrid": "litert"})
    allowed = artifact.metadata["allowed"]
    (row,) = allowed["differences"]
    assert (allowed["options"], row["how"], len(row["layers"]), row["steps"]) == (["hybrid=litert"], "litert", 2, None)
    (got,) = artifact.run(x).values()
    np.testing.assert_array_equal(got, expected)
    plain = uma.build(model, "c")
    assert plain.metadata["allowed"] == {"options": [], "differences": []}
    assert plain.metadata["constant_bytes"] > 2 * artifact.metadata["constant_bytes"]
    assert not np.array_equal(next(iter(plain.run(x).values())), expected)


def test_it_is_for_tflite_files(model: Path, tmp_path: Path) -> None:
    for wrong in ("int8", 5):
        with pytest.raises(UsageError, match="is not a value of hybrid in allow"):
            uma.build(model, "c", allow={"hybrid": wrong})  # type: ignore[dict-item]  # no way to compute them, and no text
    module = uma.build(model, "c", stop_after="import")
    assert isinstance(module, IRModule)
    with pytest.raises(UsageError, match="allow hybrid=litert was given for a module or a text form"):
        uma.build(module, "c", allow={"hybrid": "litert"})
    other = tmp_path / "m.onnx"
    other.write_bytes(b"no TFLite file")
    with pytest.raises(UsageError, match="allow hybrid=litert is for TFLite files, and this is none"):
        uma.build(other, "c", allow={"hybrid": "litert"})
