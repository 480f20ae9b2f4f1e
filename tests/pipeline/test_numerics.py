"""Opt-ins to different rounding: their values, their effect in the artifact, and none without them."""

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
from uma.option_values import Allowed
from uma.options import project_options
from uma.partition import RoundingOptIn
from uma.pipeline.loading import load_model
from uma.pipeline.numerics import find_rounding
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


def consent(net: Path, allow: Any) -> RoundingOptIn | None:
    return load_model(net, members_of(fixed_npu("npu", EVEN)), allow=allow).consent


def test_what_is_consented_to(net: Path) -> None:
    assert consent(net, None) is None
    assert consent(net, {}) is None
    everything = consent(net, {"rounding": "fixed-point"})
    assert everything is not None
    assert (everything.covers(["n_Conv_2"]), everything.covers([])) == (True, True)
    some = consent(net, {"rounding:n_Conv*": "fixed-point", "rounding:n_Conv_7": "float"})
    assert some is not None
    assert [layer for layer in LAYERS if some.covers([layer])] == ["n_Conv_2"]
    assert not some.covers([])
    # The last that is about a layer counts, and * is about all.
    none = consent(net, {"rounding:n_Conv_2": "fixed-point", "rounding": "float"})
    assert none is not None
    assert not any(none.covers([layer]) for layer in LAYERS)
    but = consent(net, {"rounding:*": "fixed-point", "rounding:n_Add_10": "float"})
    assert but is not None
    assert [layer for layer in LAYERS if not but.covers([layer])] == ["n_Add_10"]


@pytest.mark.parametrize(
    ("allow", "what"),
    [
        ({"rounding": "fixedpoint"}, "'fixedpoint' is not a value of rounding in allow"),
        ({"rounding:n_Conv_2": "double"}, "'double' is not a value of rounding:n_Conv_2 in allow"),
        (3, "allow is 3, not a mapping of texts"),
        ({"rounding:n_Conv_2": 3}, "3 is not a value of rounding:n_Conv_2"),
        ({3: "float"}, "allow is a value of type dict, not a mapping of texts"),
        ({"rounding:n_Konv_2": "fixed-point"}, "no layer is called 'n_Konv_2'"),
        ({"rounding:n_Reshape_17": "fixed-point"}, "layer 'n_Reshape_17' has no float scale"),
        ({"roundin": "declared"}, "no pass that declares a tolerance is called 'roundin'"),
    ],
)
def test_what_makes_no_sense(net: Path, allow: Any, what: str) -> None:
    with pytest.raises(UsageError, match=what):
        consent(net, allow)


@pytest.mark.parametrize("name", ["requantize", "tolerate", "hybrid"])
def test_a_replaced_option_names_the_new_one(net: Path, name: str) -> None:
    with pytest.raises(UsageError, match=f"the option {name} of uma.build was replaced by allow") as caught:
        uma.build(net, "c", **{name: "x"})  # type: ignore[call-overload]  # what is tested
    assert str(caught.value.hint).startswith('write allow={"')


def test_there_must_be_somebody_to_make_use_of_it(net: Path) -> None:
    for members in (members_of(), members_of(toy("npu", "nn.relu"))):
        with pytest.raises(UsageError, match="no accelerator of this build has fixed points of its own"):
            load_model(net, members, allow={"rounding": "fixed-point"})
    with pytest.raises(UsageError, match="different results are allowed for no targets"):
        load_model(net, allow={"rounding": "fixed-point"})


def test_a_program_is_requantised_already() -> None:
    members = members_of(fixed_npu("npu", EVEN))
    with pytest.raises(UsageError, match="the rounding of a program is fixed"):
        find_rounding(Program("m", (), (), {}), Allowed({"rounding": "fixed-point"}), members)


def test_of_a_model_without_float_scales() -> None:
    x = Var("x", TensorType((2,), "int8"))
    module = module_of(call("nn.relu", x), {call("nn.relu", x): ["relu"]})
    members = members_of(fixed_npu("npu", EVEN))
    assert load_model(module, members, allow={"rounding": "fixed-point"}).consent is not None
    with pytest.raises(UsageError, match="layer 'relu' has no float scale") as caught:
        load_model(module, members, allow={"rounding:relu": "fixed-point"})
    assert caught.value.hint == "the model has none at all"


class TestArtifacts:
    def test_without_it_not_a_byte_is_another(self, net: Path) -> None:
        plain = uma.build(net, "c -accelerators=stream_machine")
        again = uma.build(net, "c -accelerators=stream_machine", allow={})
        assert plain.files == again.files
        assert plain.metadata["allowed"] == {"options": [], "differences": []}
        assert {row["device"] for row in plain.metadata["calls"]} == {None}

    @pytest.mark.few(1)
    @pytest.mark.parametrize(("target", "layers"), [("stream_machine", 5), ("matrix_unit", 3)])
    def test_it_is_recorded_and_runs(self, net: Path, target: str, layers: int) -> None:
        artifact = uma.build(net, f"c -accelerators={target}", allow={"rounding": "fixed-point"})
        record = artifact.metadata["allowed"]
        assert record["options"] == ["rounding=fixed-point"]
        assert len(record["differences"]) == layers
        assert {(row["opt_in"], row["device"]) for row in record["differences"]} == {("rounding", target)}
        assert all(0 <= row["steps"] <= 1 and row["relative"] is None for row in record["differences"])
        x = np.random.default_rng(1).integers(-128, 128, (1, 3, 8, 8)).astype(np.int8)
        (got,) = artifact.run({"x": x}).values()
        (said,) = run_onnxruntime(residual_net(), {"x": x})
        assert np.abs(got.astype(int) - said).max() <= 2

    def test_one_layer(self, net: Path) -> None:
        how = {"rounding:n_Gemm_19": "fixed-point"}
        artifact = uma.build(net, "c -accelerators=stream_machine", allow=how)
        (row,) = artifact.metadata["allowed"]["differences"]
        assert row["layers"][0] == "n_Gemm_19"
        assert (row["what"], row["how"]) == ("requantisation", "even")


class TestProject:
    def test_none(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        assert project_options() == {}
        (tmp_path / "pyproject.toml").write_text("[tool.uma]\nmax-ram = 5\n")
        assert project_options() == {}

    def test_it(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        (tmp_path / "pyproject.toml").write_text('[tool.uma]\nallow = {rounding = "fixed-point"}\n')
        assert project_options() == {"allow": Allowed({"rounding": "fixed-point"})}

    @pytest.mark.parametrize(
        ("setting", "what"),
        [
            ('allow = "fixed-point"', "allow is 'fixed-point', not a mapping of texts"),
            ("allow = {rounding = true}", "True is not a value of rounding in allow"),
            ('allow = {hybrid = "fixed-point"}', "'fixed-point' is not a value of hybrid in allow"),
            ('requantize = "fixed-point"', "the setting 'requantize' of .* was replaced by 'allow'"),
            ('hybrid = "litert"', "the setting 'hybrid' of .* was replaced by 'allow'"),
        ],
    )
    def test_what_makes_no_sense(
        self, setting: str, what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        (tmp_path / "pyproject.toml").write_text(f"[tool.uma]\n{setting}\n")
        with pytest.raises(ProjectError, match=what) as caught:
            project_options()
        assert str(tmp_path) in str(caught.value.where)
