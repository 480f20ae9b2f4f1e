"""Vela as a program: what it compiles runs on the simulator and is LiteRT's; whatever goes wrong is one error."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import PackageNotFoundError
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests._support.tflite_builder import TFLiteBuilder, litert

import uma_ethosu_like.vela
from uma.errors import ModelError, ToolchainError, UmaError, UsageError
from uma_ethosu_like.job import parse_job
from uma_ethosu_like.own import main
from uma_ethosu_like.payload import read_payload
from uma_ethosu_like.simulate import simulate
from uma_ethosu_like.vela import compile_model

NEEDS_VELA = pytest.mark.skipif(find_spec("ethosu") is None, reason="ethos-u-vela is not installed")


def addition(last: str | None = None) -> bytes:
    """A sum of int8 with itself; and an operator of floats behind it."""
    builder = TFLiteBuilder()
    x = builder.input([1, 4, 4, 8], "int8", scale=0.1, zero_point=3)
    y = builder.tensor([1, 4, 4, 8], "int8", scale=0.25, zero_point=-5)
    builder.op("ADD", [x, x], [y])
    if last is not None:
        real, made = builder.tensor([1, 4, 4, 8]), builder.tensor([1, 4, 4, 8])
        builder.op("DEQUANTIZE", [y], [real])
        builder.op(last, [real], [made])
        y = made
    return builder.finish(y)


def stand_in(monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """A program in the place of Vela, which is installed."""
    real = subprocess.run

    def run(command: list[str], **options: Any) -> Any:
        if "ethosu.vela" not in command:
            return real(command, **options)
        out = command[command.index("--output-dir") + 1]
        return real([sys.executable, "-S", "-c", script, out], **options)

    monkeypatch.setattr(uma_ethosu_like.vela.subprocess, "run", run)
    monkeypatch.setattr(uma_ethosu_like.vela, "version", lambda name: "5.2.0")


def again(monkeypatch: pytest.MonkeyPatch, folder: Path, raw: bytes) -> None:
    """In the place of Vela what writes that again: a run of Vela takes seconds."""
    kept = folder / "model_vela.npz"
    kept.write_bytes(raw)
    script = f"import os, shutil, sys; os.mkdir(sys.argv[1]); shutil.copy({str(kept)!r}, sys.argv[1])"
    stand_in(monkeypatch, script)


@pytest.fixture(scope="module")
def compiled() -> bytes:
    """What Vela makes of `addition` for 64 multipliers. (That such streams compute what they should: `test_models`.)"""
    if find_spec("ethosu") is None:
        pytest.skip("ethos-u-vela is not installed")
    return compile_model(addition(), 64).raw


def test_the_command_compiles_what_run_reads(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], compiled: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, raw, payload = tmp_path / "add.tflite", tmp_path / "add.npz", tmp_path / "add.bin"
    model.write_bytes(addition())
    again(monkeypatch, tmp_path, compiled)
    assert main("ethosu", ["compile", str(model), "-o", str(raw), "--macs", "64"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"{raw}: {raw.stat().st_size:,} bytes"
    job = parse_job(raw.read_bytes(), "add")
    assert [(one.nbytes, one.dtype) for one in (*job.inputs, *job.outputs)] == [(128, "int8")] * 2
    assert main("ethosu", ["compile", str(model), "-o", str(payload), "--macs", "64", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["macs"], told["bytes"], told["file"]) == (64, payload.stat().st_size, str(payload))
    assert read_payload(payload.read_bytes()) == job.payload


@NEEDS_VELA
@pytest.mark.soak
@pytest.mark.parametrize("arena_cache_bytes", [None, 8000])
def test_a_keyword_spotter(models: Path, arena_cache_bytes: int | None) -> None:
    model = (models / "mlperf-tiny" / "kws_ref_model.tflite").read_bytes()
    made = compile_model(model, 128, arena_cache_bytes=arena_cache_bytes)
    [tensor] = made.job.inputs
    data = np.random.default_rng(0).integers(-128, 128, (1, 49, 10, 1), np.int8)
    [result] = simulate(made.job, {tensor.name: data}).outputs.values()
    np.testing.assert_array_equal(result.ravel(), litert(model, data)[0].ravel())


@NEEDS_VELA
@pytest.mark.parametrize(
    ("model", "kind", "message"),
    [
        (addition("SIN"), ModelError, "Vela leaves some of it to a CPU: DEQUANTIZE, SIN"),
        (b"\x20\0\0\0TFL3" + bytes(range(200)), ToolchainError, "Vela was killed by signal|Vela failed"),
    ],
)
def test_what_vela_does_not_compile(model: bytes, kind: type[UmaError], message: str) -> None:
    with pytest.raises(kind, match=message) as caught:
        compile_model(model, 128, where="x.tflite")
    assert caught.value.where == "x.tflite"


def test_what_is_no_model_for_it() -> None:
    with pytest.raises(ModelError, match="this is no TFLite file"):
        compile_model(b"PK\3\4 and more", 128)
    with pytest.raises(UsageError, match="there is no machine with 512 multipliers"):
        compile_model(addition(), 512)


def test_a_file_that_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uma_ethosu_like.vela, "MAX_BYTES", 100)
    with pytest.raises(ModelError, match="it has more than 100 bytes"):
        compile_model(addition(), 128)


def test_vela_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(uma_ethosu_like.vela, "version", absent)
    with pytest.raises(UsageError, match="Vela is not installed") as caught:
        compile_model(addition(), 128)
    assert caught.value.hint == "pip install 'uma-ethosu-like[vela]'"


@pytest.mark.parametrize("found", ["3.12.0", "5.1.9", "6.0"])
def test_vela_of_another_version(monkeypatch: pytest.MonkeyPatch, found: str) -> None:
    monkeypatch.setattr(uma_ethosu_like.vela, "version", lambda name: found)
    with pytest.raises(UsageError, match=f"Vela {found} is installed; 5.2 is known"):
        compile_model(addition(), 128)


def test_vela_writes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, "pass")
    with pytest.raises(ToolchainError, match="Vela wrote 0 files of raw output, not one"):
        compile_model(addition(), 128)


def test_vela_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, "raise SystemExit(3)")
    with pytest.raises(ToolchainError, match=r"Vela failed \(3\): it said nothing"):
        compile_model(addition(), 128)


def test_vela_does_not_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uma_ethosu_like.vela, "_TIMEOUT_SECONDS", 0.2)
    stand_in(monkeypatch, "import time; time.sleep(60)")
    with pytest.raises(ToolchainError, match=r"Vela did not end within 0.2 seconds"):
        compile_model(addition(), 128)


def test_vela_compiles_for_another_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, compiled: bytes) -> None:
    again(monkeypatch, tmp_path, compiled)
    with pytest.raises(ToolchainError, match="Vela compiled for 64 multipliers, not for 128"):
        compile_model(addition(), 128)


@pytest.mark.parametrize(
    ("model", "out", "message"),
    [
        ("add.tflite", "add.tar", "there is no format for add.tar"),
        ("none.tflite", "add.npz", "it cannot be read: No such file"),
    ],
)
def test_files_that_the_command_does_not_take(tmp_path: Path, model: str, out: str, message: str) -> None:
    (tmp_path / "add.tflite").write_bytes(addition())
    with pytest.raises(UsageError, match=message):
        main("ethosu", ["compile", str(tmp_path / model), "-o", str(tmp_path / out)])


def test_a_result_that_cannot_be_written(tmp_path: Path, compiled: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "add.tflite").write_bytes(addition())
    again(monkeypatch, tmp_path, compiled)
    out = tmp_path / "none" / "add.npz"
    with pytest.raises(UsageError, match="it cannot be written: No such file"):
        main("ethosu", ["compile", str(tmp_path / "add.tflite"), "-o", str(out), "--macs", "64"])
