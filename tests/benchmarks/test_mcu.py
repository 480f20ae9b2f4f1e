"""The benchmark of small machines: what it prints of figures, what it leaves out; and in the soak, what it finds."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from benchmarks import __main__ as bench
from benchmarks import mcu
from tests._support.tools import skip_without

import uma
from uma.errors import ToolchainError
from uma.plugins import default_host
from uma.toolchain.elf import loaded_bytes

ROW = mcu.Measured("M4F", "kws_int8", 3_848_500, 5_000_000, 53_422, 12_156, 8_000, 300, 320, True)


def test_recorded_figures_are_of_known_cores_and_models() -> None:
    recorded = mcu.peers()
    assert recorded["date"] and recorded["how"]
    for engine in recorded["engines"]:
        assert engine["core"] in mcu.CORES
        for what in ("instructions", "flash_bytes", "ram_bytes"):
            figures = engine.get(what, {})
            assert {*figures} <= {*mcu.MODELS} and all(type(value) is int for value in figures.values())


def test_targets_are_targets() -> None:
    for text in mcu.CORES.values():
        assert default_host().target(text).get_attr("runner") is not None


def test_rows_and_peers() -> None:
    head, ours, *theirs = mcu.table([ROW], mcu.peers())
    assert head.split() == ["core", "model", "instructions", "~cycles", "flash", "RAM", "stack", "used", "LiteRT's"]
    assert ours.split() == ["M4F", "kws_int8", "3,848,500", "5,000,000", "53422", "12156", "300", "320", "yes"]
    assert "ours is 0.50 of its instructions, 0.50 of its flash, 0.50 of its RAM" in theirs[0]
    assert len(theirs) == 3 and "RAM" not in theirs[1]


def test_layers_by_rows_are_told() -> None:
    _, ours, *_ = mcu.table([replace(ROW, by_rows=9, ram_bytes=5_518)], mcu.peers())
    assert "kws_int8, 9 layers by rows " in ours and " 5518 " in ours


def test_what_runs_by_rows_stands_beside_what_does_not(
    models: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where nothing runs by rows it is not said twice."""
    monkeypatch.setenv("UMA_MODELS", str(models))
    monkeypatch.setattr(shutil, "which", lambda name: name)

    def made(*given: object) -> mcu.Measured:
        return replace(ROW, by_rows=9 if given[-1] == "9K" else 0)

    monkeypatch.setattr(mcu, "measure", made)
    for limit, count in (("9K", 2), ("8K", 1)):
        _, text = run(tmp_path, capsys, "--max-ram", limit)
        assert text.count("kws_int8") == count and ("9 layers by rows" in text) == (count == 2)


def test_what_is_not_known_is_said() -> None:
    row = replace(ROW, instructions=None, cycles=None, stack_bytes=None, painted_bytes=None, equal=None)
    _, ours, theirs, *_ = mcu.table([row], mcu.peers())
    assert ours.split()[2:] == ["unknown", "unknown", "53422", "12156", "unknown", "unknown", "not", "installed"]
    assert "ours is unknown of its instructions" in theirs
    assert [*mcu.table([replace(ROW, core="M3", equal=False)], mcu.peers())][1].endswith("NO")


def run(tmp_path: Path, capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    path = str(tmp_path / "mcu.json")
    code = bench.main(["mcu", "--json", path, "--core", "M4F", "--model", "ad_int8", *arguments])
    return code, capsys.readouterr().out


def test_what_is_missing_is_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UMA_MODELS", str(tmp_path))
    code, text = run(tmp_path, capsys)
    assert code == 0 and f"left out, not in {tmp_path}: ad_int8" in text
    monkeypatch.setattr(shutil, "which", lambda _: None)
    assert "M4F: left out, qemu-system-arm is not installed" in run(tmp_path, capsys)[1]
    assert json.loads((tmp_path / "mcu.json").read_text())["rows"] == []


def test_one_that_cannot_be_compiled_and_one_that_is_wrong(
    models: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UMA_MODELS", str(models))
    monkeypatch.setattr(shutil, "which", lambda name: name)

    def fails(*_: object) -> mcu.Measured:
        raise ToolchainError("there is no compiler")

    monkeypatch.setattr(mcu, "measure", fails)
    assert "M4F, ad_int8: left out: there is no compiler" in run(tmp_path, capsys)[1]
    monkeypatch.setattr(mcu, "measure", lambda *_: replace(ROW, equal=False))
    assert run(tmp_path, capsys)[0] == 1


@pytest.mark.soak
@pytest.mark.parametrize("core", mcu.CORES)
def test_a_model_on_every_core(core: str, models: Path) -> None:
    """The stack that a run used is what was computed, but for what is around the run: up to 64 bytes more, 32 less."""
    target = default_host().target(mcu.CORES[core])
    skip_without(target.get_attr("cc"), "qemu-system-riscv64" if "qemu-virt" in mcu.CORES[core] else "qemu-system-arm")
    for name, file in (("ad_int8", "ad01_int8.tflite"), ("kws_int8", "kws_ref_model.tflite")):
        found = mcu.measure(core, name, models / "mlperf-tiny" / file, "2")
        assert found.equal is True and found.instructions is not None and found.cycles is not None
        assert found.instructions < found.cycles
        assert found.stack_bytes is not None and found.painted_bytes is not None
        assert -32 <= found.painted_bytes - found.stack_bytes <= 64


@pytest.mark.soak
@pytest.mark.parametrize("core", ["M4F", "M55"])
@pytest.mark.parametrize(
    "file", ["ad01_int8", "kws_ref_model", "pretrainedResnet_quant", "vww_96_int8"], ids=["ad", "kws", "resnet8", "vww"]
)
def test_the_option_for_flash_takes_no_more_of_it(core: str, file: str, models: Path) -> None:
    target = mcu.CORES[core]
    skip_without(str(default_host().target(target).get_attr("cc")))
    path = models / "mlperf-tiny" / f"{file}.tflite"
    made = {opt: uma.build(path, f"{target} -opt={opt}", name="m") for opt in "2s"}
    fast, small = (sum(map(loaded_bytes, made[opt].objects().values())) for opt in "2s")
    assert small <= fast
