"""The files of the version before are read, and those of another format are refused with the command to run."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path

import pytest
from tests._support.residual_nets import residual_block
from tests._support.version_files import ACCELERATED

from uma.artifact.record_verifier import parse_record
from uma.cli import main
from uma.errors import ModelError, UmaError, UsageError
from uma.partition import SavedPlan
from uma.pipeline.dump import read_dump
from uma.program import Program
from uma.relay.module import IRModule
from uma.runtime.state import SessionState
from uma.runtime.traces import parse_trace, read_trace
from uma.testing.fuzz.reproducers import read_file
from uma.tuning.measurement import read_kept

FILES = Path(__file__).parent / "version_files"


def test_artifact(capsys: pytest.CaptureFixture[str]) -> None:
    """Its metadata has three keys that ``allowed`` replaced."""
    assert main(["run", str(FILES / "artifact.zip")]) == 3
    message = capsys.readouterr().err
    assert "made by an older version of UMA" in message and "build the model again with uma build" in message


def test_plan(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    model = tmp_path / "block.onnx"
    model.write_bytes(residual_block())
    assert main(["explain", str(model), *ACCELERATED, "--plan", str(FILES / "plan.json"), "--json"]) == 0
    owners = {op["owner"] for op in json.loads(capsys.readouterr().out)["ops"]}
    parts = json.loads((FILES / "plan.json").read_text())["parts"]
    assert owners == {part["target"] for part in parts}


def test_kept_cost() -> None:
    cost = read_kept(FILES / "cost.json")
    assert cost is not None and cost.ns > 0


def test_dump(tmp_path: Path) -> None:
    with zipfile.ZipFile(FILES / "dump.zip") as archive:
        archive.extractall(tmp_path)
    forms = [read_dump(path) for path in sorted(tmp_path.glob("*.py"))]
    assert len(forms) == 9 and isinstance(forms[0], IRModule) and isinstance(forms[-1], Program)


def test_trace() -> None:
    trace = read_trace(FILES / "device.trace")
    assert trace.model == "block" and [one.kind for one in trace.devices] == ["matrix_unit"] and trace.entries


def test_state() -> None:
    assert SessionState.read(FILES / "state.npz").arrays["s"].tolist() == [0, 1, 2]


def refusal(error: pytest.ExceptionInfo[UmaError]) -> str:
    return str(error.value.hint)


def test_another_artifact_version() -> None:
    with zipfile.ZipFile(FILES / "artifact.zip") as archive:
        name = next(name for name in archive.namelist() if name.endswith("metadata.json"))
        record = json.loads(archive.read(name))
    for version in (record["schema_version"] - 1, record["schema_version"] + 2):
        with pytest.raises(ModelError) as error:
            parse_record(json.dumps({**record, "schema_version": version}).encode(), Path("metadata.json"))
        assert "uma build" in refusal(error)


def test_another_plan_version() -> None:
    record = json.loads((FILES / "plan.json").read_text())
    with pytest.raises(UsageError) as error:
        SavedPlan.from_record({**record, "plan_version": 0})
    assert "uma plan" in refusal(error)


def test_another_trace_version() -> None:
    with pytest.raises(ModelError) as error:
        parse_trace(io.StringIO("uma-trace 0\n"))
    assert "uma run --device-trace" in refusal(error)


def test_another_version_of_a_failure(tmp_path: Path) -> None:
    path = tmp_path / "lowering.json"
    path.write_text('{"schema_version": 0}')
    with pytest.raises(ModelError) as error:
        read_file(path)
    assert "uma check" in refusal(error)
