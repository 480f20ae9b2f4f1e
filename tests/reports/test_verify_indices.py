"""Inputs that are indices, and what other runtimes say of those that they do not take."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from tests._support.onnx_builder import OnnxBuilder
from tests._support.tflite_builder import TFLiteBuilder

import uma
from uma.errors import UsageError
from uma.pipeline.loading import load_model
from uma.relay import IRModule
from uma.verification.index_inputs import index_extents
from uma.verification.reference_runtimes import litert, onnxruntime


@pytest.fixture
def words(tmp_path: Path) -> Path:
    """Rows of a table by their numbers, of a smaller one too, and a factor that is not an index."""
    b = OnnxBuilder()
    ids = b.input("ids", (1, 5), "int64")
    kind = b.input("kind", (1, 5), "int32")
    table = b.constant(np.arange(40, dtype=np.float32).reshape(10, 4))
    small = b.constant(np.arange(12, dtype=np.float32).reshape(3, 4))
    found = b.node("Add", b.node("Gather", table, ids), b.node("Gather", small, kind))
    factor = b.node("Cast", b.input("factor", (1, 5, 1), "int32"), to=onnx.TensorProto.FLOAT)
    b.node("Mul", found, factor, outputs=["y"])
    path = tmp_path / "words.onnx"
    path.write_bytes(b.build("y"))
    return path


def test_what_indices_are(words: Path) -> None:
    form = load_model(words).form
    assert isinstance(form, IRModule)
    assert index_extents(form) == {"ids": 10, "kind": 3}


def test_generated_indices_are_within_range(words: Path) -> None:
    found = uma.verify(words, "c -opt=1", against="onnxruntime")
    assert found.ok
    assert len(found.samples) == 8


def test_what_onnxruntime_does_not_take_is_one_error(words: Path) -> None:
    with pytest.raises(UsageError, match=r"onnxruntime does not run the model: .*out of.*bounds") as caught:
        uma.verify(words, "c -opt=1", {"ids": np.full((1, 5), 100)}, samples=1, against="onnxruntime")
    assert caught.value.where == str(words)
    assert "--inputs or --input" in str(caught.value.hint)


def test_what_litert_does_not_take_is_one_error(tmp_path: Path) -> None:
    b = TFLiteBuilder()
    x, y = b.input((1, 4), name="x"), b.tensor((1, 4), name="y")
    b.op("LOGISTIC", [x], [y])
    path = tmp_path / "m.tflite"
    path.write_bytes(b.finish(y))
    with pytest.raises(UsageError, match="LiteRT does not run the model: "):
        litert(path, [(1, 4)])([np.zeros((7, 9), np.complex64)])


def test_open_extents(tmp_path: Path) -> None:
    b = OnnxBuilder()
    table = b.constant(np.arange(40, dtype=np.float32).reshape(10, 4))
    b.node("Gather", table, b.input("ids", (1, "n"), "int64"), outputs=["y"])
    path = tmp_path / "open.onnx"
    path.write_bytes(b.build("y"))
    assert uma.verify(path, "c -opt=1", shapes={"n": "1..9"}, against="onnxruntime").ok


@pytest.mark.parametrize("fault", ["InvalidProtobuf", "RuntimeException", "EngineError"])
def test_what_onnxruntime_raises_when_it_reads_a_model(
    fault: str, words: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    def raises(*given: object, **more: object) -> None:
        raise getattr(state, fault)("no kernel for it")

    monkeypatch.setattr("onnxruntime.InferenceSession", raises)
    with pytest.raises(UsageError, match="onnxruntime does not take the model: no kernel for it") as caught:
        onnxruntime(words, [])
    assert caught.value.where == str(words)
