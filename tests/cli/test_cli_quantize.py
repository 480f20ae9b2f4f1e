"""``uma quantize``."""

from __future__ import annotations

import shlex
from pathlib import Path

import numpy as np
import pytest
from tests._support.float_nets import conv_net, line_net, samples, saved
from tests._support.small_models import Uma

GIVEN = ("quantize", "float.onnx", "--data", "d.npz", "--target", "stream_machine", "--target", "c")


@pytest.fixture
def model(folder: Path) -> Path:
    np.savez(folder / "d.npz", x=samples(4, 3, 8, 8))
    return saved(conv_net(), folder / "float.onnx")


def test_what_it_says(uma: Uma, model: Path) -> None:
    done = uma(*GIVEN, "-o", "q.onnx")
    assert done.code == 0, done
    assert done.out.splitlines() == [
        "m_float: quantised for stream_machine over 4 samples, to q.onnx",
        "  activations  int8, zero points where ranges ask for them; of weights 0",
        "  weights      int8, scales one for each output channel",
        "  scales       powers of two",
        "agreement with the float model, over these samples:",
        "  output  same class  largest difference  mean difference  signal to noise",
        done.out.splitlines()[6],
        "accelerators have 100.0% of the multiply-accumulates; of the float model 0.0%",
        "to build it: uma build q.onnx --target stream_machine --target c",
    ]
    assert done.out.splitlines()[6].split()[:2] == ["scores", "100.0%"]
    assert done.out.splitlines()[6].endswith(" dB")


def test_the_command_that_it_names_builds_it(uma: Uma, model: Path) -> None:
    found = uma(*GIVEN, "--exclude", "n_Conv_0", "--json").json
    assert found["file"] == "build/float-int8.onnx" and Path(found["file"]).is_file()
    assert found["in_float"] == ["n_Conv_0"] and found["samples"] == 4 and found["form"]["scales"] == "power-of-two"
    assert 0 == found["offloaded_before"] < found["offloaded"] < 1
    command, *words = shlex.split(found["build"])
    built = uma(*words, "--no-compile", "--json").json
    assert command == "uma" and built["name"] == "float_int8"
    assert sum(one["macs_share"] for one in built["accelerators"]) == pytest.approx(found["offloaded"])


def test_for_a_host_with_integer_inputs(uma: Uma, model: Path) -> None:
    given = ("quantize", "float.onnx", "--data", "d.npz", "--target", "c", "--io-dtype", "int8", "-o", "q.onnx")
    lines = uma(*given).out.splitlines()
    assert lines[0] == "m_float: quantised for c over 4 samples, to q.onnx"
    assert lines[-1] == "to build it: uma build q.onnx --target c" and not any("accelerators have" in x for x in lines)
    built = uma("build", "q.onnx", "--target", "c", "--no-compile", "--json").json
    assert [(one["dtype"], one["quantization"] is None) for one in built["inputs"]] == [("int8", False)]


def test_a_layer_in_float_is_named(uma: Uma, model: Path) -> None:
    assert "left in float: n_Conv_0, n_Conv_2, n_Conv_4" in uma(*GIVEN, "--exclude", "n_Conv*").out


def test_a_target_with_scales_of_its_own(uma: Uma, folder: Path) -> None:
    np.savez(folder / "d.npz", x=samples(4, 8, 16))
    saved(line_net(5), folder / "float.onnx")
    lines = uma("quantize", "float.onnx", "--data", "d.npz", "--target", "ultra_trail").out.splitlines()
    assert lines[1:4] == [
        "  activations  int8, zero points all 0",
        "  weights      int8, 6 bits of it, scales one for all channels",
        "  scales       activations at 0.0078125, weights at 0.03125, biases at 0.0078125",
    ]
    assert lines[6].split()[:2] == ["y", "-"]
    assert sum(line.startswith("note: ") and "cut off" in line for line in lines) == 2


def test_what_it_is_made_of_is_not_written_over(model: Path, uma: Uma) -> None:
    before = model.read_bytes()
    for name in ("float.onnx", "./d.npz"):
        assert "would be written over what it is made of" in uma(*GIVEN, "-o", name).error(2)
    assert "does not hold arrays" in uma("quantize", "float.onnx", "--data", "float.onnx", *GIVEN[4:]).error(3)
    assert model.read_bytes() == before


def test_a_file_that_is_there_is_replaced(model: Path, uma: Uma) -> None:
    Path("q.onnx").write_text("old")
    assert uma(*GIVEN, "-o", "q.onnx").code == 0
    assert Path("q.onnx").read_bytes()[:3] != b"old"


def test_what_consent_brings(uma: Uma, model: Path) -> None:
    lines = uma(*GIVEN, "--scales", "any", "-o", "q.onnx").out.splitlines()
    assert lines[-2:] == [
        "accelerators have 0.0% of the multiply-accumulates, 100.0% with --allow rounding=fixed-point; of the float "
        "model 0.0%",
        "to build it: uma build q.onnx --target stream_machine --target c --allow rounding=fixed-point",
    ]
    built = uma(*shlex.split(lines[-1])[4:], "--no-compile", "--json").json
    assert [one["macs_share"] for one in built["accelerators"]] == [1.0]


def test_a_file_is_not_named_like_one_of_another_format(model: Path, uma: Uma) -> None:
    said = uma(*GIVEN, "-o", "q.tflite").error(2)
    assert "q.tflite would hold a model in the format of float.onnx" in said and "name the file q.onnx" in said
    assert not Path("q.tflite").exists()
