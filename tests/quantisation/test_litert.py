"""From float TFLite files to integer ones, by ai-edge-quantizer."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from tests._support.float_nets import samples
from tests._support.tflite_builder import TFLiteBuilder, litert

import uma
from uma.errors import ModelError, RequirementError, UsageError
from uma.frontends import import_model
from uma.quantisation import Quantised, quantize
from uma.relay.text import print_module
from uma.targets.quantised import IoDtype

ai_edge_quantizer = pytest.importorskip("ai_edge_quantizer", reason="ai-edge-quantizer is not installed")

DATA = {"x": samples(6, 1, 8, 8, 3)}
CONV = {"padding": 0, "strideH": 1, "strideW": 1}


def net() -> bytes:
    """A convolution, a mean over its pixels and two dense layers."""
    rng = np.random.default_rng(3)
    b = TFLiteBuilder()

    def weight(*shape: int) -> int:
        return b.constant(rng.standard_normal(shape) / 3, "float32")

    x = b.input([1, 8, 8, 3], name="x")
    y, mean, hidden, out = (b.tensor(shape, name=name) for name, shape in (
        ("conv", (1, 8, 8, 4)), ("mean", (1, 4)), ("hidden", (1, 6)), ("out", (1, 5)),
    ))  # fmt: skip
    b.op("CONV_2D", [x, weight(4, 3, 3, 3), weight(4)], [y], fusedActivationFunction=1, **CONV)
    b.op("MEAN", [y, b.constant([1, 2], "int32")], [mean], keepDims=False)
    b.op("FULLY_CONNECTED", [mean, weight(6, 4), weight(6)], [hidden], fusedActivationFunction=1)
    b.op("FULLY_CONNECTED", [hidden, weight(5, 6), weight(5)], [out])
    return b.finish(out)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "net.tflite"
    path.write_bytes(net())
    return path


@pytest.mark.parametrize("io_dtype", ["float32", "int8"])
def test_a_host_computes_what_litert_computes(path: Path, io_dtype: IoDtype) -> None:
    made = quantize(path, "c", DATA, io_dtype=io_dtype)
    assert made.suffix == ".tflite" and made.samples == 6 and made.offloaded == 0
    [agreement] = made.agreement
    assert agreement.output == "out" and agreement.snr_db is not None and agreement.snr_db > 20
    assert quantize(path, "c", DATA, io_dtype=io_dtype).content == made.content
    artifact = uma.build(made.save(path.parent / "q.tflite"), "c")
    [x], [y] = artifact.record.inputs, artifact.record.outputs
    assert (x.name, y.name) == ("x", "out")
    assert (x.dtype, y.dtype) == (io_dtype, io_dtype) and ((x.quantization is None) == (io_dtype == "float32"))
    rng = np.random.default_rng(0)
    given = (
        rng.standard_normal(x.shape).astype("float32") if io_dtype == "float32" else rng.integers(-128, 128, x.shape)
    )
    given = given.astype(x.dtype)
    assert np.array_equal(artifact.run({x.name: given})[y.name], litert(made.content, given)[0])


def test_an_accelerator_takes_layers(path: Path) -> None:
    """The attributes of a kind may ask for any scales: the check is on what its patterns accept."""
    made = quantize(path, ["ethosu", "c"], DATA)
    assert made.offloaded_before == 0 and made.offloaded > 0.9


def test_layers_stay_in_float(path: Path) -> None:
    made = quantize(path, "c", DATA, exclude=["hid*"])
    assert made.in_float == ("hidden",)
    model = import_model(made.save(path.parent / "q.tflite"))
    text, _ = print_module(model.module)
    assert "qnn.conv2d" in text and text.count("qnn.dense") == 1 and text.count(" nn.dense") == 1
    with pytest.raises(UsageError, match="no layer is called 'hiden'") as caught:
        quantize(path, "c", DATA, exclude=["hiden"])
    assert caught.value.hint is not None and caught.value.hint.startswith("did you mean 'hidden'? ")


def test_targets_whose_scales_it_does_not_make(path: Path) -> None:
    with pytest.raises(RequirementError, match=r"^the target needs scales that are powers of two") as caught:
        quantize(path, ["stream_machine", "c"], DATA)
    assert caught.value.hint == "export the float model to ONNX and quantise that file"
    made: Quantised = quantize(path, ["stream_machine", "c"], DATA, scales="any")
    assert made.form.scales == "any"


def test_a_model_that_is_quantised_already(path: Path) -> None:
    again = quantize(path, "c", DATA).save(path.parent / "q.tflite")
    with pytest.raises(ModelError, match=r"^the model is quantised already: tensor '.*' has a scale"):
        quantize(again, "c", DATA)


def test_without_the_quantiser_and_when_it_fails(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("no such kernel\nmore")

    monkeypatch.setattr("ai_edge_quantizer.quantizer.Quantizer", fail)
    with pytest.raises(ModelError, match=r"^ai-edge-quantizer does not accept the model: no such kernel\n") as caught:
        quantize(path, "c", DATA)
    assert caught.value.hint == "--exclude LAYER leaves a layer in float"
    monkeypatch.setitem(sys.modules, "ai_edge_quantizer", None)
    with pytest.raises(UsageError, match=r"^TFLite models are quantised by ai-edge-quantizer, which is not installed"):
        quantize(path, "c", DATA)
