"""How results show themselves in Python and in notebooks; `uma.plan` and `uma.report`; names of inputs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests._support.plugins import entry_of, host_kind, module_of, toy
from tests._support.reports import HOSTILE, Page
from tests._support.small_models import NET, PAIR

import uma as package
from uma.api import InstalledTargets
from uma.errors import ModelError, PluginError, UsageError
from uma.partition import Collage, SavedPlan, place
from uma.plugins import PluginHost
from uma.relay import TensorType, Var, call
from uma.reports.overviews import PlacementPlan
from uma.reports.report import Report
from uma.runtime.tensors import UnknownNameError
from uma.targets import Alias, Attribute, Target, TargetKind
from uma.verification.results import Difference, KernelCheck, OutputCheck, Overrun, StepStop, Verification

HOST = "c -mcpu=x86-64 -opt=1"
EVIL = HOSTILE[0]
AGREES = Difference(None, None, None, 0, 4, 0.0)
ONE = """\
signature(inputs=[tensor('x')], outputs=[tensor('y')])

@function
def main(x: Tensor[(4,), float32]) -> Tensor[(4,), float32]:
    v0: ({!r},) = nn.relu(x)
    return v0
"""
DIFFERS = Difference((1,), 3.0, 4.0, 1, 4, 1.0)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "net.py"
    path.write_text(NET.replace("'block/relu;twice'", repr(EVIL)))
    return path


def kind() -> TargetKind:
    return TargetKind("npu", (Attribute("size", int, help=f"{EVIL}", default=4),), help="an array")


def installed() -> InstalledTargets:
    board = Alias("board", "npu", help=EVIL)
    return InstalledTargets({"npu": kind()}, {}, {"board": board}, {"lost": PluginError(EVIL)})


def verification(ok: bool) -> Verification:
    difference = AGREES if ok else DIFFERS
    stops = () if ok else (StepStop(1, "k", ("a",), "npu", EVIL, "s"),)
    overruns = () if ok else (Overrun(1, "k", ("a",), "npu", EVIL, "s"),)
    outputs = (OutputCheck(EVIL, "references", difference),)
    return Verification((KernelCheck("k", "npu", (EVIL,), difference),), (), outputs, overruns=overruns, stops=stops)


@pytest.mark.parametrize(
    ("shown", "text", "cells"),
    [
        (kind(), "<TargetKind npu: accelerator>", {"size", "4", EVIL}),
        (Target(kind(), {"size": 8}), "<Target npu -size=8>", {"size", "8"}),
        (installed(), "<InstalledTargets: npu, board>", {"npu", "accelerator", "lost", EVIL}),
        (verification(True), "<Verification: ok, 1 results of kernels over 1 samples>", {EVIL, "equal"}),
        (verification(False), "<Verification: differs, 1 results of kernels over 1 samples>", {EVIL, "references"}),
    ],
)
def test_results_are_short_and_have_a_table(shown: Any, text: str, cells: set[str]) -> None:
    assert repr(shown) == text
    page = Page(shown._repr_html_())
    assert page.tags["table"] == 1 and not page.scripts
    assert all(cell in page.text for cell in cells)


def test_a_session_shows_its_tensors(pair: package.Artifact) -> None:
    with pair.session() as session:
        assert repr(session) == f"<Session pair: scan, bias -> sum, {EVIL}, file>"
        page = Page(session._repr_html_())
        assert EVIL in page.text and "int8[4]" in page.text and not page.scripts
    assert repr(session).endswith(", closed>") and "closed" in Page(session._repr_html_()).text


def test_a_placement_shows_its_regions() -> None:
    host = PluginHost(lambda: [*toy("npu", "nn.relu"), *entry_of(host_kind("plain"))])
    form = package.build(_relu(), ["npu", "plain"], plugins=host, stop_after="import")
    placement = place(form, (), ("plain",))
    assert repr(placement) == "<Placement: no regions, the rest on plain>"
    assert Page(placement._repr_html_()).tags["table"] == 1


def _relu() -> Any:
    return module_of(call("nn.relu", Var("x", TensorType((4,), "float32"))))


def test_a_plan_is_made_kept_and_repeated(plan: PlacementPlan, one_layer: Path, tmp_path: Path) -> None:
    assert isinstance(plan, PlacementPlan) and plan.targets == {"c": HOST} and plan.cost_us > 0
    assert repr(plan).startswith("<PlacementPlan net: ") and isinstance(plan.partitioner, SavedPlan)
    page = Page(plan._repr_html_())
    assert EVIL in page.text and page.tags["table"] == 2 and not page.scripts
    plan.save(tmp_path / "plan.json")
    assert json.loads((tmp_path / "plan.json").read_text()) == json.loads(json.dumps(plan.record))
    assert plan.timeline().startswith("<svg")
    again = package.build(one_layer, HOST, partition=plan.partitioner)
    assert again.files == package.build(one_layer, HOST, partition=SavedPlan.read(tmp_path / "plan.json")).files


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"partition": "eager"}, "'eager' makes no plan"),
        ({"target": None}, "a model needs a target"),
        ({"shapes": {"image:0": (1, 2)}}, "shapes were given for a model that leaves none open"),
    ],
)
def test_bad_options_of_plan(file: Path, change: dict[str, Any], what: str) -> None:
    with pytest.raises(UsageError, match=what):
        package.plan(file, **{"target": HOST, **change})


def test_plans_are_of_models(file: Path, plan: PlacementPlan, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="an artifact is placed already"):
        package.plan(package.build(file, HOST), HOST)  # type: ignore[arg-type]  # an artifact is not a model
    lowered = package.build(file, HOST, stop_after="lower")
    assert not isinstance(lowered, package.Artifact)
    with pytest.raises(UsageError, match="there is nothing to place"):
        package.plan(lowered, HOST, partition=Collage())  # type: ignore[arg-type]  # a program is none either
    with pytest.raises(UsageError, match="the plan cannot be written"):
        plan.save(tmp_path)


def test_a_report_is_returned_and_written(file: Path, tmp_path: Path) -> None:
    report = package.report(file, HOST, tmp_path / "net.html", max_ram="64K", name="other")
    assert isinstance(report, Report) and report.name == "other" and report.footprint.code_bytes
    assert repr(report) == "<Report other: 6 layers on c>"
    assert report.html() == (tmp_path / "net.html").read_text(encoding="utf-8")
    page = Page(report._repr_html_())
    assert page.tags["table"] == 1 and report.summary[0] in page.text and not page.scripts
    report.save(tmp_path / "net.json")
    assert json.loads((tmp_path / "net.json").read_text())["name"] == "other"


def test_bad_options_of_report(file: Path) -> None:
    with pytest.raises(UsageError, match=r"a report cannot be a file '\.pdf'"):
        package.report(file, HOST, "x.pdf")
    with pytest.raises(UsageError, match="a profile runs the model, and it is not to be compiled"):
        package.report(file, HOST, profile=True, compiled=False)
    with pytest.raises(package.UmaError, match="max_ram"):
        package.report(file, HOST, max_ram=16, compiled=False)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> package.Artifact:
    path = tmp_path_factory.mktemp("pair") / "pair.py"
    path.write_text(PAIR.replace("'a'", "'scan'").replace("'b'", "'bias'").replace("'a again'", repr(EVIL)))
    return package.build(path, HOST)


@pytest.fixture(scope="module")
def one_layer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of one kernel, which is soon timed."""
    path = tmp_path_factory.mktemp("one") / "net.py"
    path.write_text(ONE.format(EVIL))
    return path


@pytest.fixture(scope="module")
def plan(one_layer: Path) -> PlacementPlan:
    return package.plan(one_layer, HOST)


class TestNamesOfInputs:
    """``run({'scna': x})`` names the key that is unknown, the nearest one, and all that are missing."""

    @pytest.mark.parametrize("entry", ["run", "session", "profile"])
    def test_an_unknown_name(self, entry: str, pair: package.Artifact) -> None:
        a = np.zeros(4, np.int8)
        run: Callable[[Any], object] = {
            "run": pair.run,
            "session": lambda x: pair.session().run(x),
            "profile": pair.profile,
        }[entry]
        with pytest.raises(
            ModelError, match="there is no input 'scna', and input 'scan' is missing, expected"
        ) as found:
            run({"scna": a, "bias": a})
        assert found.value.hint == "did you mean 'scan'?"

    def test_missing_names(self, pair: package.Artifact) -> None:
        with pytest.raises(ModelError, match="the inputs 'scan', 'bias' are missing, expected 'scan': int8"):
            pair.run({})

    def test_buffers_of_a_session(self, pair: package.Artifact) -> None:
        with pair.session() as session:
            with pytest.raises(UnknownNameError, match="there is no input 'bais'") as found:
                session.inputs["bais"][...] = 1
            assert isinstance(found.value, KeyError)
            assert found.value.hint == "did you mean 'bias'? the inputs are 'scan', 'bias'"
            with pytest.raises(UnknownNameError, match="there is no output 'sam'"):
                session.outputs["sam"]
            assert "bais" not in session.inputs and session.inputs.get("bais") is None

    def test_verify(self, pair: package.Artifact) -> None:
        with pytest.raises(ModelError, match="there is no input 'scna'") as found:
            package.verify(pair, inputs={"scna": np.zeros(4, np.int8)})
        assert found.value.hint == "did you mean 'scan'? the inputs are 'scan', 'bias'"
