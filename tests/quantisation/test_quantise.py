"""From float models to those of integers, by onnxruntime's quantiser."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from tests._support.float_nets import conv_net, line_net, samples, saved
from tests._support.onnx_builder import OnnxBuilder, run_onnxruntime

from uma import quantize
from uma.errors import ModelError, RequirementError, UsageError
from uma.frontends import import_model
from uma.quantisation import Quantised
from uma.relay.evaluate import evaluate
from uma.relay.transform import canonicalise

DATA = {"x": samples(6, 3, 8, 8)}


@pytest.fixture
def net(tmp_path: Path) -> Path:
    return saved(conv_net(), tmp_path / "net.onnx")


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> Quantised:
    """The model of `net` for an accelerator of shifts."""
    folder = tmp_path_factory.mktemp("usual")
    return quantize(saved(conv_net(), folder / "net.onnx"), ["stream_machine", "c"], DATA)


def made(model: onnx.ModelProto, folder: Path, target: Any, data: Any = DATA, **options: Any) -> Quantised:
    return quantize(saved(model, folder / "m.onnx"), target, data, **options)


def scales_of(made: Quantised) -> dict[str, np.ndarray]:
    tensors = onnx.load_from_string(made.content).graph.initializer
    return {t.name: numpy_helper.to_array(t) for t in tensors if t.name.endswith("_scale")}


def are_powers_of_two(array: np.ndarray) -> bool:
    return bool((np.frexp(array)[0] == 0.5).all())


# --- what accelerators ask for ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("target", "share"), [("stream_machine", 1.0), ("matrix_unit", 0.82)])
def test_layers_get_to_accelerators_of_shifts(net: Path, target: str, share: float) -> None:
    found = quantize(net, [target, "c"], DATA)
    assert found.offloaded_before == 0 and found.offloaded >= share
    scales = scales_of(found)
    assert scales and all(are_powers_of_two(array) for array in scales.values())
    assert any(array.size == 8 for array in scales.values())  # of the weights of 8 output channels
    [scores] = found.agreement
    assert (scores.output, scores.samples, scores.top1) == ("scores", 6, 1.0)
    assert 0 < scores.mean < scores.largest < 0.05 and (scores.snr_db or 0) > 30
    assert found.samples == 6 and found.notes == () and found.in_float == ()


def test_a_repr_is_short(usual: Quantised) -> None:
    assert "content" not in repr(usual) and len(repr(usual)) < 1_000


def test_what_was_made_is_computed_as_onnxruntime_does(usual: Quantised) -> None:
    x = 2 * samples(1, 3, 8, 8, seed=5)
    [ours] = evaluate(canonicalise(import_model(usual.content).module), {"x": x})
    [theirs] = run_onnxruntime(usual.content, {"x": x})
    np.testing.assert_array_equal(ours, theirs)


def test_agreement_is_that_of_the_two_files(net: Path, usual: Quantised) -> None:
    pairs = [
        [run_onnxruntime(content, {"x": x[None]})[0] for x in DATA["x"]]
        for content in (net.read_bytes(), usual.content)
    ]
    was, now = (np.stack(side).astype(np.float64) for side in pairs)
    [scores] = usual.agreement
    assert scores.largest == abs(was - now).max() and scores.mean == pytest.approx(abs(was - now).mean())
    assert scores.snr_db == pytest.approx(10 * np.log10((was**2).sum() / ((was - now) ** 2).sum()))


def test_any_scales_are_finer(net: Path, usual: Quantised) -> None:
    rough, fine = usual, quantize(net, ["stream_machine", "c"], DATA, scales="any")
    assert rough.form.scales == "power-of-two" and fine.form.scales == "any"
    assert not all(are_powers_of_two(array) for array in scales_of(fine).values())
    assert (fine.agreement[0].snr_db or 0) > (rough.agreement[0].snr_db or 0)
    assert (rough.offloaded, rough.offloaded_with_consent) == (1, None)
    assert fine.offloaded < 1 == fine.offloaded_with_consent


def test_an_accelerator_that_takes_fixed_points_only(net: Path) -> None:
    found = quantize(net, "ethosu_like", DATA)
    assert found.form.scales == "any" and (found.offloaded, found.offloaded_with_consent) == (0, 1)


def test_several_accelerators_have_one_form(net: Path) -> None:
    found = quantize(net, ["matrix_unit", "stream_machine", "c"], DATA)
    assert found.offloaded == 1 and found.form.scales == "power-of-two"


def test_an_accelerator_with_scales_of_its_own(tmp_path: Path) -> None:
    data = {"x": samples(6, 8, 16)}
    found = made(line_net(), tmp_path, "ultra_trail", data)
    assert found.offloaded == 1 and found.notes == ()
    assert {float(v) for a in scales_of(found).values() for v in a.reshape(-1)} == {2.0**-5, 2.0**-7, 2.0**-12}
    weights = [
        numpy_helper.to_array(t)
        for t in onnx.load_from_string(found.content).graph.initializer
        if t.name.endswith("_quantized") and t.data_type == onnx.TensorProto.INT8
    ]
    assert len(weights) == 2 and all(-32 <= w.min() and w.max() <= 31 for w in weights)
    assert found.agreement[0].largest < 0.1 and found.agreement[0].top1 is None


def test_what_its_scales_do_not_hold_is_said(tmp_path: Path) -> None:
    found = made(line_net(gain=5), tmp_path, "ultra_trail", {"x": samples(6, 8, 16)})
    assert found.offloaded == 1
    constants, activations = found.notes
    assert constants.startswith("2 constants reach further than the accelerator's scale, and are cut off: 'c1' 1.")
    assert activations.startswith("4 activations reach further") and activations.endswith("and 1 more")


def test_a_channel_that_is_nearly_zero_keeps_its_layer_on_the_accelerator(tmp_path: Path) -> None:
    """Its bias, counted in steps of its weights, would exceed what sums in float32 hold."""
    model = conv_net()
    for tensor in model.graph.initializer:
        array = numpy_helper.to_array(tensor).copy()
        if array.shape == (8, 3, 3, 3):
            array[2] *= 1e-9
            tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    found = made(model, tmp_path, ["stream_machine", "c"])
    assert found.offloaded == 1 and (found.agreement[0].snr_db or 0) > 30


def test_a_limit_stays_where_the_scale_goes_on(tmp_path: Path) -> None:
    """Powers of two cover more than the range up to the limit."""
    found = made(conv_net(limit="Clip"), tmp_path, ["stream_machine", "c"])
    assert found.offloaded == 1
    x = 20 * samples(1, 3, 8, 8, seed=2)
    [ours], [float_] = (run_onnxruntime(m, {"x": x}) for m in (found.content, (tmp_path / "m.onnx").read_bytes()))
    assert abs(ours - float_).max() < 0.05


@pytest.mark.few(1)
@pytest.mark.parametrize("opset", [9, 12, 21])
def test_old_and_new_models(tmp_path: Path, opset: int) -> None:
    assert made(conv_net(opset), tmp_path, ["stream_machine", "c"]).offloaded == 1


def test_a_normalisation_goes_into_its_convolution(tmp_path: Path) -> None:
    found = made(conv_net(normalised=True), tmp_path, ["stream_machine", "c"])
    assert found.offloaded == 1
    assert "BatchNormalization" not in {node.op_type for node in onnx.load_from_string(found.content).graph.node}


def test_samples_go_in_as_many_at_once_as_the_model_takes(tmp_path: Path) -> None:
    assert made(conv_net(batch=2), tmp_path, ["stream_machine", "c"]).samples == 3
    given = {"shapes": {"x": (1, 3, 8, 8)}}
    assert made(conv_net(batch="n"), tmp_path, ["stream_machine", "c"], **given).samples == 6


# --- layers that stay ------------------------------------------------------------------------------------------------


def test_excluded_layers_stay_in_float(net: Path) -> None:
    found = quantize(net, ["stream_machine", "c"], DATA, exclude=["n_Conv_2", "n_G*"])
    assert found.in_float == ("n_Conv_2", "n_GlobalAveragePool_6")
    assert 0 < found.offloaded < 1
    nodes = {node.name: node for node in onnx.load_from_string(found.content).graph.node}
    assert "c2" in nodes["n_Conv_2"].input  # its weights, as they were
    assert "c0_DequantizeLinear_Output" in nodes["n_Conv_0"].input


def test_layers_without_names_have_that_of_their_output(tmp_path: Path) -> None:
    found = made(conv_net(names=False), tmp_path, ["stream_machine", "c"], exclude=["Conv_2"])
    assert found.in_float == ("Conv_2",)


def test_what_went_into_another_layer_leaves_that_in_float(tmp_path: Path) -> None:
    given = {"exclude": ["n_BatchNormalization_1"]}
    assert made(conv_net(normalised=True), tmp_path, ["stream_machine", "c"], **given).in_float == ("n_Conv_0",)


def test_a_layer_that_is_not_there(net: Path) -> None:
    with pytest.raises(UsageError, match="no layer is called 'Conv', which is to stay in float") as caught:
        quantize(net, ["stream_machine", "c"], DATA, exclude=["Conv"])
    assert caught.value.hint is not None and "n_Conv_" in caught.value.hint


# --- the same bytes --------------------------------------------------------------------------------------------------


def test_the_same_input_gives_the_same_bytes(net: Path, usual: Quantised) -> None:
    assert quantize(net, ["stream_machine", "c"], DATA).content == usual.content


@pytest.mark.soak
def test_the_same_in_other_processes(net: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", **DATA)
    script = "import sys, uma; uma.quantize(sys.argv[1], ['stream_machine', 'c'], sys.argv[2]).save(sys.argv[3])"
    files = []
    for seed in ("1", "2"):
        out = tmp_path / f"{seed}.onnx"
        command = [sys.executable, "-c", script, str(net), str(tmp_path / "d.npz"), str(out)]
        subprocess.run(command, check=True, env={"PYTHONHASHSEED": seed, "PATH": ""}, capture_output=True)
        files.append(out.read_bytes())
    assert files[0] == files[1]


# --- what cannot be --------------------------------------------------------------------------------------------------


def broken(value: float) -> np.ndarray:
    array = DATA["x"].copy()
    array[3, 1, 2, 4] = value
    return array


@pytest.mark.parametrize(
    ("data", "what"),
    [
        ({"x": samples(6, 3, 9, 8)}, r"^'x' has the shape \[6, 3, 9, 8\], and the model's input \[1, 3, 8, 8\]"),
        ({"x": DATA["x"][:1]}, "^the data has one sample, which says nothing of how far others reach"),
        ({"x": DATA["x"][:0]}, r"^'x' has the shape \[0, 3, 8, 8\]"),
        ({"x": broken(np.nan)}, r"^'x' holds nan at \[3, 1, 2, 4\], which has no range"),
        ({"x": broken(-np.inf)}, r"^'x' holds -inf at \[3, 1, 2, 4\]"),
        ({}, "^there is no data for input 'x'"),
        ({**DATA, "y": DATA["x"]}, "^the model has no input 'y'"),
        ({"x": DATA["x"].astype(np.float64)}, "^'x' is float64, the model takes float32"),
    ],
)
def test_data_that_does_not_fit(net: Path, data: dict[str, np.ndarray], what: str) -> None:
    with pytest.raises(ModelError, match=what) as caught:
        quantize(net, ["stream_machine", "c"], data)
    assert caught.value.where == "the data"


def test_files_that_are_no_data(net: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "one.npy", DATA["x"])
    np.savez(tmp_path / "objects.npz", x=np.array([{}, []], object))
    (tmp_path / "text.npz").write_text("x: 1, 2, 3")
    for name, what in (
        ("one.npy", "the data is one array, without a name"),
        ("objects.npz", "the file does not hold arrays: Object arrays cannot be loaded"),
        ("text.npz", "the file does not hold arrays: it begins like neither"),
    ):
        with pytest.raises(ModelError, match=what) as caught:
            quantize(net, ["stream_machine", "c"], tmp_path / name)
        assert caught.value.where == str(tmp_path / name)
    with pytest.raises(UsageError, match="there is no file"):
        quantize(net, ["stream_machine", "c"], tmp_path / "none.npz")


def test_a_model_that_is_quantised_already(usual: Quantised, tmp_path: Path) -> None:
    again = usual.save(tmp_path / "deep" / "q.onnx")
    with pytest.raises(ModelError, match=r"^the model is quantised already: '.*' is a DequantizeLinear"):
        quantize(again, ["stream_machine", "c"], DATA)


def test_a_model_of_another_format(tmp_path: Path) -> None:
    (tmp_path / "m.h5").write_bytes(b"\x89HDF")
    with pytest.raises(ModelError, match="not a model file of a format"):
        quantize(tmp_path / "m.h5", ["stream_machine", "c"], DATA)
    with pytest.raises(UsageError, match=r"^there is no file "):
        quantize(tmp_path / "none.onnx", ["stream_machine", "c"], DATA)


def test_targets_that_take_none(net: Path) -> None:
    with pytest.raises(RequirementError, match=r"^activations of 6 bits are asked for"):
        quantize(net, "ultra_trail -feature_bits=6", DATA)
    with pytest.raises(UsageError, match=r"^the accelerator has scales of its own"):
        quantize(net, "ultra_trail", DATA, scales="any")
    with pytest.raises(UsageError, match=r"^'round' are not scales"):
        quantize(net, ["stream_machine", "c"], DATA, scales="round")  # type: ignore[arg-type]  # no such scales


@pytest.fixture(scope="module")
def for_host(tmp_path_factory: pytest.TempPathFactory) -> Quantised:
    """The model of `net` for a host alone, with int8 inputs and outputs."""
    folder = tmp_path_factory.mktemp("host")
    return quantize(saved(conv_net(), folder / "net.onnx"), "c -mcpu=cortex-m4", DATA, io_dtype="int8")


def test_a_host_alone_computes_what_onnxruntime_does(for_host: Quantised) -> None:
    assert for_host.form.scales == "any" and for_host.form.per_channel and for_host.notes == ()
    imported = import_model(for_host.content).module
    assert imported.signature is not None
    (x,), (scores,) = imported.signature.inputs, imported.signature.outputs
    assert [p.dtype for p in imported.main.params] == ["int8"] and x.scale is not None and scores.scale is not None
    data = np.random.default_rng(1).integers(-128, 128, (1, 3, 8, 8), np.int8)
    [ours] = evaluate(canonicalise(imported), {"x": data})
    [theirs] = run_onnxruntime(for_host.content, {"x": data}, optimise=False)
    assert ours.dtype == np.int8
    np.testing.assert_array_equal(ours, theirs)


def test_integer_inputs_and_outputs_leave_the_arithmetic_alone(for_host: Quantised, net: Path) -> None:
    in_float = quantize(net, "c -mcpu=cortex-m4", DATA)
    graph = onnx.load_from_string(for_host.content).graph
    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    [reader] = [node for node in graph.node if "x" in node.input]
    [writer] = [node for node in graph.node if "scores" in node.output]
    assert (reader.op_type, writer.op_type) == ("DequantizeLinear", "QuantizeLinear")
    scale, zero = constants[reader.input[1]], constants[reader.input[2]]
    x = np.clip(np.rint(DATA["x"][:1] / scale) + zero, -128, 127).astype(np.int8)
    [integers] = run_onnxruntime(for_host.content, {"x": x}, optimise=False)
    [floats] = run_onnxruntime(in_float.content, {"x": DATA["x"][:1]}, optimise=False)
    scale, zero = constants[writer.input[1]], constants[writer.input[2]]
    np.testing.assert_array_equal((integers.astype(np.float32) - zero) * scale, floats)
    assert for_host.agreement == in_float.agreement


def test_what_no_quantised_layer_reads_stays_float(net: Path) -> None:
    found = quantize(net, "c", DATA, io_dtype="int8", exclude=["n_Conv_0"])
    [note] = found.notes
    assert note == "these stay float32, because no quantised layer is next to them: x"
    with pytest.raises(UsageError, match=r"^inputs and outputs cannot be 'int4'"):
        quantize(net, "c", DATA, io_dtype="int4")  # type: ignore[arg-type]  # no such type


def test_an_output_that_a_layer_reads_as_well(tmp_path: Path) -> None:
    b = OnnxBuilder()
    weights = [b.constant(samples(4, 4, seed=seed), "float32") for seed in (1, 2)]
    first = b.node("MatMul", b.input("x", [1, 4]), weights[0])
    model = b.model(first, b.node("MatMul", first, weights[1]))
    found = made(model, tmp_path, "c", {"x": samples(4, 4)}, io_dtype="int8")
    assert found.notes == () and all(
        r.dtype == np.int8 for r in run_onnxruntime(found.content, {"x": np.ones((1, 4), np.int8)})
    )


def test_without_the_quantiser(net: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime.quantization", None)
    with pytest.raises(UsageError, match=r"^models are quantised by onnxruntime, which is not installed") as caught:
        quantize(net, ["stream_machine", "c"], DATA)
    assert caught.value.hint is not None and caught.value.hint.startswith("pip install")


def test_what_the_quantiser_does_not_take(net: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One error, whatever it raises, and its words."""
    import onnxruntime.quantization as quantiser

    def fail(*args: Any, **options: Any) -> None:
        raise ValueError("no such tensor\nand more")

    monkeypatch.setattr(quantiser, "quantize_static", fail)
    with pytest.raises(ModelError) as caught:
        quantize(net, ["stream_machine", "c"], DATA)
    assert caught.value.what == "onnxruntime's quantiser does not take the model: no such tensor"

    def exhausted(*args: Any, **options: Any) -> None:
        raise MemoryError

    monkeypatch.setattr(quantiser, "quantize_static", exhausted)
    with pytest.raises(MemoryError):
        quantize(net, ["stream_machine", "c"], DATA)


def test_a_file_that_cannot_be_written(net: Path, usual: Quantised, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    for path, why in ((tmp_path / "folder", "not a plain file"), (net / "q.onnx", ""), (tmp_path / "a\0b", "null")):
        with pytest.raises(UsageError, match=f"^cannot write the model: .*{why}"):
            usual.save(path)
    with pytest.raises(UsageError, match=r"^3 is not a path of a file"):
        usual.save(3)  # type: ignore[arg-type]  # a number is not a path


def test_a_model_without_differences_has_no_noise(tmp_path: Path) -> None:
    """Nothing in it is quantised."""
    b = OnnxBuilder(17)
    b.node("Neg", b.input("x", [1, 4]), outputs=["y"])
    found = made(b.model("y"), tmp_path, ["stream_machine", "c"], {"x": samples(3, 4)})
    [y] = found.agreement
    assert (y.largest, y.mean, y.snr_db, y.top1) == (0, 0, None, None)
