"""Finding and reading model files, whatever their format."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests._support.tflite_builder import TFLiteBuilder

import uma.frontends
from uma.errors import ModelError, UsageError
from uma.frontends import import_model


def tflite() -> bytes:
    builder = TFLiteBuilder()
    x, y = builder.input([2], name="x"), builder.tensor([2])
    builder.op("TANH", [x], [y])
    return builder.finish(y)


def test_formats_are_told_by_content(tmp_path: Path) -> None:
    path = tmp_path / "model.bin"
    path.write_bytes(tflite())
    expected = import_model(tflite()).module.main
    assert import_model(path).module.main is expected
    assert import_model(str(path)).module.main is expected


def test_shapes_are_passed_on() -> None:
    assert import_model(tflite(), shapes={"x": (5,)}).module.main.body.shape == (5,)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"there is no file .*model\.onnx"):
        import_model(tmp_path / "model.onnx")
    with pytest.raises(UsageError, match="is a folder"):
        import_model(tmp_path)
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(UsageError, match="cannot read the file: Not a directory"):
        import_model(tmp_path / "file" / "model.tflite")
    with pytest.raises(UsageError, match=r"cannot read the file: its path has a null"):
        import_model("model\0.tflite")


def test_files_that_are_no_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    empty = tmp_path / "empty.tflite"
    empty.write_bytes(b"")
    with pytest.raises(ModelError, match="the model file is empty") as caught:
        import_model(empty)
    assert caught.value.where == str(empty)
    with pytest.raises(ModelError):
        import_model(b"no model at all")
    large = tmp_path / "large.tflite"
    large.write_bytes(tflite())
    monkeypatch.setattr(uma.frontends, "MAX_FILE_BYTES", 10)
    with pytest.raises(ModelError, match="larger than 2 GiB") as caught:
        import_model(large)
    assert caught.value.where == str(large)


def test_errors_name_the_file(tmp_path: Path) -> None:
    path = tmp_path / "model.tflite"
    builder = TFLiteBuilder()
    path.write_bytes(builder.finish(builder.input([0], name="x")))
    with pytest.raises(ModelError) as caught:
        import_model(path)
    assert caught.value.where == f"{path}: input 'x'"
