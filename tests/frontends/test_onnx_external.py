"""ONNX models that keep their weights in files beside them."""

from __future__ import annotations

import os
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import external_data_helper
from tests._support.onnx_builder import OnnxBuilder

from uma.errors import ModelError
from uma.frontends import import_model
from uma.frontends.onnx import external
from uma.relay.evaluate import evaluate

WEIGHTS = (np.arange(300, dtype=np.float32), np.arange(300, 600, dtype=np.float32))


def saved(path: Path, location: str = "weights.bin") -> onnx.ModelProto:
    """A model with two weights in another file, as onnx writes it; and the same as a proto."""
    b = OnnxBuilder()
    y = b.input("x", [300])
    for index, weight in enumerate(WEIGHTS):
        y = b.node("Add", y, b.constant(weight, name=f"w{index}"))
    model = b.model(y)
    external_data_helper.convert_model_to_external_data(model, location=location, size_threshold=0)
    onnx.save(model, path)
    return onnx.load(path, load_external_data=False)


def test_weights_are_found_beside_the_model(tmp_path: Path) -> None:
    saved(tmp_path / "model.onnx")
    (result,) = evaluate(import_model(tmp_path / "model.onnx").module, {"x": np.zeros(300, np.float32)})
    assert np.array_equal(result, sum(WEIGHTS))


def test_a_folder_below(tmp_path: Path) -> None:
    """Without offset and length, which mean all of the file."""
    model = saved(tmp_path / "model.onnx")
    (tmp_path / "data").mkdir()
    for tensor, weight in zip(model.graph.initializer, WEIGHTS, strict=True):
        weight.tofile(tmp_path / "data" / tensor.name)
        del tensor.external_data[:]
        tensor.external_data.add(key="location", value=f"data/{tensor.name}")
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    (result,) = evaluate(import_model(tmp_path / "model.onnx").module, {"x": np.zeros(300, np.float32)})
    assert np.array_equal(result, sum(WEIGHTS))


def _entry(key: str, value: str) -> Callable[[onnx.ModelProto, Path], None]:
    """Changes what the model says of its first weight."""

    def change(model: onnx.ModelProto, folder: Path) -> None:
        for entry in model.graph.initializer[0].external_data:
            if entry.key == key:
                entry.value = value

    return change


def _link(model: onnx.ModelProto, folder: Path) -> None:
    (folder / "link").symlink_to(folder.parent / "secret")
    _entry("location", "link")(model, folder)


def _pipe(model: onnx.ModelProto, folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    _entry("location", "pipe")(model, folder)


def _remove(model: onnx.ModelProto, folder: Path) -> None:
    (folder / "weights.bin").unlink()


def _cut(model: onnx.ModelProto, folder: Path) -> None:
    data = (folder / "weights.bin").read_bytes()
    (folder / "weights.bin").write_bytes(data[:-1])


def _no_rights(model: onnx.ModelProto, folder: Path) -> None:
    """Something in the way, for root as well: a name that is too long."""
    _entry("location", "w" * 300)(model, folder)


def _again(model: onnx.ModelProto, folder: Path) -> None:
    """All weights are the whole file, more than once in sum."""
    for tensor in model.graph.initializer:
        del tensor.external_data[:]
        tensor.external_data.add(key="location", value="weights.bin")


def _twice(model: onnx.ModelProto, folder: Path) -> None:
    """Both weights are the whole file."""
    _again(model, folder)
    for tensor in model.graph.initializer:
        tensor.dims[:] = [600]


def _type(model: onnx.ModelProto, folder: Path) -> None:
    model.graph.initializer[0].data_type = onnx.TensorProto.STRING


def _shape(model: onnx.ModelProto, folder: Path) -> None:
    model.graph.initializer[0].dims.append(-1)


FAULTS: list[tuple[str, Callable[[onnx.ModelProto, Path], None]]] = [
    ("'w0' is stored in 'weights.bin', which is not there", _remove),
    ("'w1' needs more bytes than 'weights.bin' has", _cut),
    ("'w0' has 2400 bytes in 'weights.bin', its shape (300,) 1200", _again),
    ("'w1' needs more bytes than 'weights.bin' has", _twice),
    ("'w0' needs more bytes than 'weights.bin' has", _entry("offset", "9" * 19)),
    ("'w0' has 8 bytes in 'weights.bin', its shape (300,) 1200", _entry("length", "8")),
    ("'w0' has elements of ONNX's type STRING, which is not supported", _type),
    ("'w0' has the impossible shape (300, -1)", _shape),
    ("'w0' is stored in another file, at an offset or length '-1'", _entry("offset", "-1")),
    ("'w0' is stored in '../secret', which is not in the model's folder", _entry("location", "../secret")),
    ("'w0' is stored in 'link', which is not in the model's folder", _link),
    ("'w0' is stored in '', which cannot be read: Is a directory", _entry("location", "")),
    ("which cannot be read", _no_rights),
    ("'w0' is stored in 'pipe', which cannot be read: it is not a plain file", _pipe),
    ("'w0' is stored in '\\x00', which cannot be read: ", _entry("location", "\0")),
]


@pytest.mark.parametrize(("message", "change"), FAULTS)
def test_faults(message: str, change: Callable[[onnx.ModelProto, Path], None], tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"\0" * 2400)
    folder = tmp_path / "models"
    folder.mkdir()
    model = saved(folder / "model.onnx")
    change(model, folder)
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(ModelError) as caught:
        import_model(folder / "model.onnx")
    assert message in str(caught.value)


def test_an_absolute_path(tmp_path: Path) -> None:
    """Even one into the model's folder."""
    model = saved(tmp_path / "model.onnx")
    _entry("location", str(tmp_path / "weights.bin"))(model, tmp_path)
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(ModelError, match="which is not in the model's folder"):
        import_model(tmp_path / "model.onnx")


def test_a_model_that_is_no_file_has_none_beside_it(tmp_path: Path) -> None:
    model = saved(tmp_path / "model.onnx")
    with pytest.raises(ModelError, match="'w0' is stored in another file"):
        import_model(model.SerializeToString())


def test_a_file_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved(tmp_path / "model.onnx")

    def broken(path: str) -> object:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(external, "open_plain", broken)
    with pytest.raises(ModelError, match=r"'w0' is stored in 'weights.bin', which cannot be read: Input/output error"):
        import_model(tmp_path / "model.onnx")


def test_files_that_are_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved(tmp_path / "model.onnx")
    monkeypatch.setattr(external, "MAX_FILE_BYTES", 2399)
    with pytest.raises(ModelError, match="the files beside the model are larger than 2 GiB"):
        import_model(tmp_path / "model.onnx")


@pytest.mark.parametrize("length", [None, 2**31 - 1])
def test_not_a_byte_is_read_that_no_shape_asks_for(
    length: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A small model beside a sparse file: its length is checked against the shape first."""
    model = saved(tmp_path / "model.onnx")
    first = model.graph.initializer[0]
    del first.external_data[:]
    first.external_data.add(key="location", value="sparse.bin")
    if length is not None:
        first.external_data.add(key="length", value=str(length))
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    with (tmp_path / "sparse.bin").open("wb") as file:
        file.truncate(2**31 - 1)
    monkeypatch.setattr(external.Stored, "read", lambda self: pytest.fail("it was read"))
    with pytest.raises(ModelError, match=r"'w0' has 2147483647 bytes in 'sparse.bin', its shape \(300,\) 1200"):
        import_model(tmp_path / "model.onnx")


def test_a_weight_that_nothing_needs_is_not_read(tmp_path: Path) -> None:
    model = saved(tmp_path / "model.onnx")
    unused = model.graph.initializer.add(name="unused", data_type=onnx.TensorProto.INT8, dims=[2**31 - 2401])
    unused.data_location = external.EXTERNAL
    unused.external_data.add(key="location", value="sparse.bin")
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    with (tmp_path / "sparse.bin").open("wb") as file:
        file.truncate(2**31 - 2401)
    tracemalloc.start()
    try:
        import_model(tmp_path / "model.onnx")
        assert tracemalloc.get_traced_memory()[1] < 2**26
    finally:
        tracemalloc.stop()


def test_a_file_that_became_shorter(tmp_path: Path) -> None:
    stored = external.Stored("'w0'", "weights.bin", str(tmp_path / "weights.bin"), 0, 1200)
    (tmp_path / "weights.bin").write_bytes(b"abc")
    with pytest.raises(ModelError, match=r"'w0' needs more bytes than 'weights\.bin' has"):
        stored.read()
