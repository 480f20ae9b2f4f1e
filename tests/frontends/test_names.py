"""Inputs and outputs of one name are numbered, and keep their count and order; open dimensions of TFLite files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests._support.onnx_builder import OnnxBuilder
from tests._support.tflite_builder import TFLiteBuilder, litert

import uma
from uma.errors import ModelError
from uma.frontends import import_model
from uma.frontends.model import distinct_names

X = np.array([0.5, -1.0, 2.0], np.float32)


def test_numbers_do_not_repeat_other_names() -> None:
    names = ["o", "o_1", "o", "p", "o", "o_1", "p"]
    assert distinct_names(names) == ["o", "o_1", "o_2", "p", "o_3", "o_1_1", "p_1"]


def twice() -> bytes:
    """One tensor twice among the outputs, and another one of its name."""
    b = TFLiteBuilder()
    x, y, z = b.input([3], name="x"), b.tensor([3], name="o"), b.tensor([3], name="o")
    b.op("EXP", [x], [y])
    b.op("NEG", [x], [z])
    return b.finish(y, y, z, x)


def test_tflite_outputs_of_one_name(tmp_path: Path) -> None:
    model = tmp_path / "twice.tflite"
    model.write_bytes(twice())
    results = uma.build(model, target="c").run({"x": X})
    assert list(results) == ["o", "o_1", "o_2", "x"]
    for result, expected in zip(results.values(), litert(twice(), X), strict=True):
        np.testing.assert_allclose(result, expected, rtol=1e-6)


def test_one_tensor_twice_among_the_inputs() -> None:
    b = TFLiteBuilder()
    x, y = b.input([3], name="x"), b.tensor([3], name="y")
    b.op("NEG", [x], [y])
    b.graph.inputs.append(x)
    with pytest.raises(ModelError, match="input 'x' cannot be one: the file lists it twice"):
        import_model(b.finish(y))


def test_tflite_inputs_of_one_name(tmp_path: Path) -> None:
    b = TFLiteBuilder()
    x, y, z = b.input([3], name="a"), b.input([3], name="a"), b.tensor([3], name="z")
    b.op("SUB", [x, y], [z])
    model = tmp_path / "pair.tflite"
    model.write_bytes(b.finish(z))
    assert uma.build(model, target="c").run({"a": X, "a_1": X + 1})["z"].tolist() == [-1, -1, -1]
    fixed = import_model(model, constants={"a_1": 0.0})
    assert [param.name for param in fixed.module.main.params] == ["a"]


def test_an_onnx_output_that_is_listed_twice(tmp_path: Path) -> None:
    b = OnnxBuilder()
    y = b.node("Relu", b.input("x", [3]))
    model = tmp_path / "twice.onnx"
    model.write_bytes(b.model(y, "x", y).SerializeToString())
    results = uma.build(model, target="c").run({"x": X})
    assert list(results) == [y, "x", f"{y}_1"]
    assert [result.tolist() for result in results.values()] == [[0.5, 0, 2], X.tolist(), [0.5, 0, 2]]


def opened(*shape: int, stored: tuple[int, ...] | None = None) -> bytes:
    b = TFLiteBuilder()
    x, y = b.input(shape, name="x"), b.tensor([-1] * len(shape), name="y")
    if stored is not None:
        b.graph.tensors[x].shape = list(stored)
    b.op("EXP", [x], [y])
    return b.finish(y)


@pytest.mark.parametrize(("shape", "hint"), [((1, -1, 3), "x=1,N,3"), ((-1,), "x=N"), ((-1, -1, 2), "x=N,N,2")])
def test_a_dimension_that_a_tflite_file_leaves_open_is_asked_for(shape: tuple[int, ...], hint: str) -> None:
    data = opened(*shape)
    with pytest.raises(ModelError, match="leaves the shape of its input 'x' open") as caught:
        import_model(data)
    assert caught.value.hint == f"say it, as --shape {hint}"
    asked = tuple(extent if extent > 0 else 5 for extent in shape)
    assert import_model(data, shapes={"x": asked}).module.main.body.shape == asked
    values = np.ones(asked, np.float32)
    assert import_model(data, constants={"x": values}).module.main.body.shape == asked


@pytest.mark.parametrize(("shape", "stored"), [((-1, 3), (1, 3)), ((-1, -1, 2), (1, 7, 2))])
def test_the_batch_and_sizes_that_a_tflite_file_stores_are_used(
    shape: tuple[int, ...], stored: tuple[int, ...]
) -> None:
    imported = import_model(opened(*shape, stored=stored))
    assert imported.module.main.body.shape == stored
    assert imported.simplified[0].startswith("the model leaves the shape of its input 'x' open: (?, ")
    assert f"{stored} is built; another shape is asked for by --shape x=N," in imported.simplified[0]
