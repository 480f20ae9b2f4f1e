"""``uma run --device-trace`` and ``uma trace``: recording what drivers do, reading it, and playing it back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests._support.residual_nets import residual_block

from uma.cli import main
from uma.plugins import LoadedPlugin

TARGETS = ("--target", "matrix_unit", "--target", "c")


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trace")
    (folder / "block.onnx").write_bytes(residual_block())
    path = folder / "block.trace"
    assert main(["run", str(folder / "block.onnx"), *TARGETS, "--device-trace", str(path), "-q"]) == 0
    return path


def said(capsys: pytest.CaptureFixture[str], *argv: str | Path) -> tuple[int, str, str]:
    code = main(["trace", *map(str, argv)])
    return code, *capsys.readouterr()


def test_a_trace_is_shown_by_steps(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = said(capsys, trace)
    lines = out.splitlines()
    assert (code, err) == (0, "") and lines[0] == "model block: matrix_unit (matrix_unit)"
    assert lines[1] == "opening: 1 writes, 5 reads"
    assert lines[2] == "run 1, activation: 1 writes, 1 reads"
    assert all(line.startswith("run 1, step ") and "bytes taken" in line for line in lines[3:]) and len(lines) > 3
    code, out, _ = said(capsys, trace, "--json")
    told = json.loads(out)
    assert told["model"] == "block" and told["devices"] == [{"label": "matrix_unit", "kind": "matrix_unit"}]
    assert told["places"][1] == {
        "run": 1,
        "where": "run 1, activation",
        "step": None,
        "layers": [],
        "accesses": {"writes": 1, "reads": 1},
    }
    assert told["places"][2]["layers"] and told["places"][2]["accesses"]["bytes taken"] > 0


def test_each_access_is_shown(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = said(capsys, trace, "-v")
    assert code == 0 and "    read  0x0 0x4d585531\n" in out
    assert "    read  0x18 0x1, waiting\n" in out and "    take  " in out
    code, out, _ = said(capsys, trace, "--target", "matrix_unit", "-v")
    assert code == 0 and "    read  STATUS 0x1, waiting\n" in out
    assert "    low   HOST_LOW of weights+0x" in out and "    write COMMAND 0x6\n" in out


def test_it_is_played_back(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = said(capsys, trace, "--target", "matrix_unit")
    assert (code, err) == (0, "") and "bytes of memory compared" in out and "0 counts not compared" in out
    code, out, _ = said(capsys, trace, "--target", "matrix_unit", "--device", "matrix_unit", "--json")
    assert code == 0 and json.loads(out)["difference"] is None


def test_a_difference_is_an_error_with_its_layer(
    trace: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    lines = trace.read_text().splitlines(keepends=True)
    at = next(n for n, line in enumerate(lines) if line.startswith("take "))
    memory, first = lines[at].split()[1:3]
    lines.insert(at, f"bytes {memory} {first} 5a5b\n")
    lines[-1] = f"end {len(lines) - 1}\n"
    changed = tmp_path / "changed.trace"
    changed.write_text("".join(lines))
    code, out, err = said(capsys, changed, "--target", "matrix_unit")
    assert code == 7 and "the first difference is byte " in err and ", and 0x5a in the trace; so do 1 more of" in err
    assert "where: run 1, step " in err and f"changed.trace, line {at + 2}" in err
    code, out, err = said(capsys, changed, "--target", "matrix_unit", "--json")
    told = json.loads(out)
    assert code == 7 and told["difference"]["layers"] and told["difference"]["expected"] == 0x5A
    lines = trace.read_text().replace("read 0x4 0x8000", "read 0x4 0x4000", 1)
    changed.write_text(lines)
    code, out, err = said(capsys, changed, "--target", "matrix_unit")
    assert code == 7 and "the first difference is register ACT_BYTES (0x4): 0x00008000, and 0x00004000 in the tr" in err


def test_what_is_asked_for_is_checked(
    trace: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, _, err = said(capsys, trace, "--device", "npu")
    assert code == 2 and "--device chooses what is played back, and there is no --target" in err
    for target in "c", "c -accelerators=matrix_unit":
        code, _, err = said(capsys, trace, "--target", target)
        assert code == 2 and "is not an accelerator to play the trace back on" in err
    model = trace.with_name("block.onnx")
    for option in (["--repeat", "2"], ["--profile"], ["--trace", "x.json"]):
        assert main(["run", str(model), *TARGETS, "--device-trace", "x.trace", *option]) == 2
        assert "--device-trace records one run, and times are measured without it" in capsys.readouterr().err
    call = LoadedPlugin.call
    monkeypatch.setattr(
        LoadedPlugin, "call", lambda self, hook, **given: None if hook == "runtime" else call(self, hook, **given)
    )
    code, _, err = said(capsys, trace, "--target", "matrix_unit")
    assert code == 5 and "gave nothing from hook runtime" in err
