"""``requantize``: what may be said, what comes of it in the artifact, and that nothing comes of it unasked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests._support.fixed_points import LAYERS, fixed_npu, residual_net
from tests._support.onnx_builder import run_onnxruntime
from tests._support.plugins import members_of, module_of, toy

import uma
from uma.errors import UsageError
from uma.partition import RoundingOptIn
from uma.pipeline.loading import load_model
from uma.pipeline.requantize import consent_to, project_requantize
from uma.program import Program
from uma.relay import TensorType, Var, call
from uma.support.project_file import ProjectError
from uma.targets import FixedPointForm

EVEN = FixedPointForm("even")


@pytest.fixture
def net(tmp_path: Path) -> Path:
    path = tmp_path / "net.onnx"
    path.write_bytes(residual_net())
    return path


def consent(net: Path, requantize: Any) -> RoundingOptIn | None:
    return load_model(net, members_of(fixed_npu("npu", EVEN)), requantize=requantize).consent


def test_what_is_consented_to(net: Path) -> None:
    assert consent(net, None) is None
    assert consent(net, {}) is None
    everything = consent(net, "fixed-point")
    assert everything is not None
    assert (everything.said, everything.covers(["n_Conv_2"]), everything.covers([])) == (("fixed-point",), True, True)
    some = consent(net, {"n_Conv*": "fixed-point", "n_Conv_7": "float"})
    assert some is not None
    assert some.said == ("n_Conv*=fixed-point", "n_Conv_7=float")
    assert [layer for layer in LAYERS if some.covers([layer])] == ["n_Conv_2"]
    assert not some.covers([])
    # The last that is about a layer counts, and * is about all.
    none = consent(net, {"n_Conv_2": "fixed-point", "*": "float"})
    assert none is not None
    assert not any(none.covers([layer]) for layer in LAYERS)
    but = consent(net, {"*": "fixed-point", "n_Add_10": "float"})
    assert but is not None
    assert [layer for layer in LAYERS if not but.covers([layer])] == ["n_Add_10"]


@pytest.mark.parametrize(
    ("requantize", "what"),
    [
        ("fixedpoint", "nothing is requantised in 'fixedpoint'"),
        ({"n_Conv_2": "double"}, "nothing is requantised in 'double'"),
        (3, "3 says nothing about requantising"),
        ({"n_Conv_2": 3}, "says nothing about requantising"),
        ({"n_Konv_2": "fixed-point"}, "no layer is called 'n_Konv_2'"),
        ({"n_Reshape_17": "fixed-point"}, "layer 'n_Reshape_17' has no float scale"),
    ],
)
def test_what_makes_no_sense(net: Path, requantize: Any, what: str) -> None:
    with pytest.raises(UsageError, match=what):
        consent(net, requantize)


def test_there_must_be_somebody_to_make_use_of_it(net: Path) -> None:
    for members in (members_of(), members_of(toy("npu", "nn.relu"))):
        with pytest.raises(UsageError, match="no accelerator of this build has fixed points of its own"):
            load_model(net, members, requantize="fixed-point")
    with pytest.raises(UsageError, match="layers are requantised for no targets"):
        load_model(net, requantize="fixed-point")


def test_a_program_is_requantised_already() -> None:
    members = members_of(fixed_npu("npu", EVEN))
    with pytest.raises(UsageError, match="a program is requantised as it says already"):
        consent_to(Program("m", (), (), {}), "fixed-point", members)


def test_of_a_model_without_float_scales() -> None:
    x = Var("x", TensorType((2,), "int8"))
    module = module_of(call("nn.relu", x), {call("nn.relu", x): ["relu"]})
    members = members_of(fixed_npu("npu", EVEN))
    assert load_model(module, members, requantize="fixed-point").consent is not None
    with pytest.raises(UsageError, match="layer 'relu' has no float scale") as caught:
        load_model(module, members, requantize={"relu": "fixed-point"})
    assert caught.value.hint == "the model has none at all"


class TestArtifacts:
    def test_without_it_not_a_byte_is_another(self, net: Path) -> None:
        plain, again = (uma.build(net, "c -accelerators=stream_machine", requantize=how) for how in (None, {}))
        assert plain.files == again.files
        assert plain.metadata["requantize"] is None
        assert {row["device"] for row in plain.metadata["calls"]} == {None}

    @pytest.mark.few(1)
    @pytest.mark.parametrize(("target", "layers"), [("stream_machine", 5), ("matrix_unit", 3)])
    def test_it_is_recorded_and_runs(self, net: Path, target: str, layers: int) -> None:
        artifact = uma.build(net, f"c -accelerators={target}", requantize="fixed-point")
        record = artifact.metadata["requantize"]
        assert record["said"] == ["fixed-point"]
        assert len(record["layers"]) == layers
        assert {row["device"] for row in record["layers"]} == {target}
        assert all(0 <= row["bound"] <= 1 for row in record["layers"])
        x = np.random.default_rng(1).integers(-128, 128, (1, 3, 8, 8)).astype(np.int8)
        (got,) = artifact.run({"x": x}).values()
        (said,) = run_onnxruntime(residual_net(), {"x": x})
        assert np.abs(got.astype(int) - said).max() <= 2

    def test_one_layer(self, net: Path) -> None:
        how = {"n_Gemm_19": "fixed-point"}
        artifact = uma.build(net, "c -accelerators=stream_machine", requantize=how)
        (row,) = artifact.metadata["requantize"]["layers"]
        assert row["layers"][0] == "n_Gemm_19"
        assert (row["what"], row["rounding"]) == ("requantisation", "even")


class TestProject:
    def test_none(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        assert project_requantize() is None
        (tmp_path / "pyproject.toml").write_text("[tool.uma]\nmax-ram = 5\n")
        assert project_requantize() is None

    def test_it(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        (tmp_path / "pyproject.toml").write_text('[tool.uma]\nrequantize = "fixed-point"\n')
        assert project_requantize() == "fixed-point"

    @pytest.mark.parametrize("value", ['"fixed"', "true", '{conv = "float"}'])
    def test_what_makes_no_sense(self, value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        (tmp_path / "pyproject.toml").write_text(f"[tool.uma]\nrequantize = {value}\n")
        with pytest.raises(ProjectError, match="nothing is requantised in"):
            project_requantize()
