"""Vela as a program: what it compiles runs on the simulator and is LiteRT's; whatever goes wrong is one error."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from tests._support.tflite_builder import TFLiteBuilder, litert

import uma_ethosu_like.vela
from uma.errors import ModelError, ToolchainError, UmaError, UsageError
from uma_ethosu_like.cli import main
from uma_ethosu_like.network_file import parse_job
from uma_ethosu_like.payload import accelerator_of, read_payload
from uma_ethosu_like.simulate import simulate
from uma_ethosu_like.vela import EXPORTED, compile_model, export_model

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


def again(stand_in: Callable[[str], None], folder: Path, raw: bytes) -> None:
    """In the place of Vela what writes that again: a run of Vela takes seconds."""
    kept = folder / "model_vela.npz"
    kept.write_bytes(raw)
    script = f"import os, shutil, sys; os.mkdir(sys.argv[1]); shutil.copy({str(kept)!r}, sys.argv[1])"
    stand_in(script)


@pytest.fixture(scope="module")
def compiled() -> bytes:
    """What Vela makes of `addition` for 64 multipliers. (That such streams compute what they should: `test_models`.)"""
    if find_spec("ethosu") is None:
        pytest.skip("ethos-u-vela is not installed")
    return compile_model(addition(), 64).raw


def test_the_command_compiles_what_run_reads(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], compiled: bytes, stand_in: Callable[[str], None]
) -> None:
    model, raw, payload = tmp_path / "add.tflite", tmp_path / "add.npz", tmp_path / "add.bin"
    model.write_bytes(addition())
    again(stand_in, tmp_path, compiled)
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
@pytest.mark.few(1)
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
    with pytest.raises(ModelError, match="this is not a TFLite file"):
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


def test_vela_writes_nothing(stand_in: Callable[[str], None]) -> None:
    stand_in("pass")
    with pytest.raises(ToolchainError, match="Vela wrote 0 files of raw output, not one"):
        compile_model(addition(), 128)


def test_vela_says_nothing(stand_in: Callable[[str], None]) -> None:
    stand_in("raise SystemExit(3)")
    with pytest.raises(ToolchainError, match=r"Vela failed \(3\): it said nothing"):
        compile_model(addition(), 128)


def test_vela_does_not_end(monkeypatch: pytest.MonkeyPatch, stand_in: Callable[[str], None]) -> None:
    monkeypatch.setattr(uma_ethosu_like.vela, "_TIMEOUT_SECONDS", 0.2)
    stand_in("import time; time.sleep(60)")
    with pytest.raises(ToolchainError, match=r"Vela did not end within 0.2 seconds"):
        compile_model(addition(), 128)


def test_vela_compiles_for_another_machine(stand_in: Callable[[str], None], tmp_path: Path, compiled: bytes) -> None:
    again(stand_in, tmp_path, compiled)
    with pytest.raises(ToolchainError, match="Vela compiled for 64 multipliers, not for 128"):
        compile_model(addition(), 128)


# --- larger machines, for which files are written only ---------------------------------------------------------------


def payload_for(config: int) -> bytes:
    """A payload of nothing for the machine whose register ``CONFIG`` holds that."""
    return b"COP1" + struct.pack("<3I", 0x00100001, config, 0x20007000)


def raw_of(payload: bytes) -> bytes:
    """The raw output that has it, without the rest."""
    file = io.BytesIO()
    np.savez(file, cmd_data=np.frombuffer(payload, np.uint8))
    return file.getvalue()


@pytest.mark.parametrize(("name", "config"), [("ethos-u65-256", 0x10003008), ("ethos-u85-1024", 0x2000251A)])
def test_the_command_exports_for_larger_machines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], stand_in: Callable[[str], None], name: str, config: int
) -> None:
    model, payload, raw = tmp_path / "add.tflite", tmp_path / "add.bin", tmp_path / "add.npz"
    model.write_bytes(addition())
    again(stand_in, tmp_path, raw_of(payload_for(config)))
    assert main("ethosu", ["compile", str(model), "-o", str(payload), "--accelerator", name]) == 0
    assert capsys.readouterr().out == f"for {name}, which is not simulated here\n{payload}: 16 bytes\n"
    assert payload.read_bytes() == payload_for(config)
    assert main("ethosu", ["compile", str(model), "-o", str(raw), "--accelerator", name, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["accelerator"] == name
    assert raw.read_bytes() == raw_of(payload_for(config))
    with pytest.raises(ModelError, match=rf"it is for Ethos-{name[6:9].upper()}, and only streams for Ethos-U55 run"):
        main("ethosu", ["run", str(payload)])


@NEEDS_VELA
@pytest.mark.soak
@pytest.mark.parametrize("name", EXPORTED)
def test_velas_payload_is_for_the_machine_that_is_asked_for(models: Path, name: str) -> None:
    made = export_model((models / "mlperf-tiny" / "kws_ref_model.tflite").read_bytes(), name)
    assert accelerator_of(made.payload) == name and len(made.payload) > 1000


def test_vela_exports_for_another_machine(stand_in: Callable[[str], None], tmp_path: Path) -> None:
    again(stand_in, tmp_path, raw_of(payload_for(0x10003008)))
    with pytest.raises(ToolchainError, match="Vela compiled for ethos-u65-256, not for ethos-u65-512"):
        export_model(addition(), "ethos-u65-512")
    (tmp_path / "model_vela.npz").write_bytes(raw_of(b"COP1"))
    with pytest.raises(ModelError, match="it does not begin as a payload does, with COP1 and for which machine"):
        export_model(addition(), "ethos-u65-512")
    with pytest.raises(UsageError, match="there is no machine 'ethos-u55-128'") as caught:
        export_model(addition(), "ethos-u55-128")
    assert caught.value.hint == ", ".join(EXPORTED)


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


def test_a_result_that_cannot_be_written(tmp_path: Path, compiled: bytes, stand_in: Callable[[str], None]) -> None:
    (tmp_path / "add.tflite").write_bytes(addition())
    again(stand_in, tmp_path, compiled)
    out = tmp_path / "none" / "add.npz"
    with pytest.raises(UsageError, match="it cannot be written: No such file"):
        main("ethosu", ["compile", str(tmp_path / "add.tflite"), "-o", str(out), "--macs", "64"])
