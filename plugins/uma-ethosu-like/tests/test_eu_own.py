"""``uma ethosu run`` and ``uma ethosu show``, on a file as Vela writes it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from uma.errors import DeviceError, ModelError, NoCompilerError, ToolchainError, UsageError
from uma.plugins import PluginEntry, PluginHost
from uma_ethosu_like import simulate as simulator
from uma_ethosu_like.cli import main
from uma_ethosu_like.commands import Command, command, encode
from uma_ethosu_like.machine import Machine
from uma_ethosu_like.network_file import Job, Region, Tensor
from uma_ethosu_like.payload import Payload, write_payload
from uma_ethosu_like.simulate import Operation, simulate

STOP = command("OP_STOP", mask=0xFFFF)


def copies(*spans: tuple[int, int, int, int]) -> list[Command]:
    """Copies, one after the other: region and offset to read at, offset in region 1 to write at, bytes."""
    made: list[Command] = []
    for region, start, end, length in spans:
        made += [
            command("SET_DMA0_SRC_REGION", region=region, mode=0, stride_mode=0),
            command("SET_DMA0_SRC", start),
            command("SET_DMA0_DST_REGION", region=1, mode=0, stride_mode=0),
            command("SET_DMA0_DST", end),
            command("SET_DMA0_LEN", length),
            command("OP_DMA_START"),
            command("OP_DMA_WAIT", outstanding=0),
        ]
    return made


STREAM = encode([*copies((1, 0, 16, 16), (0, 0, 32, 16)), STOP])
"""The output is the input, of 16 bytes at 0, and the weights behind it."""
WEIGHTS = bytes(range(100, 116))


def job(words: list[int] = STREAM, **changes: Any) -> Job:
    inputs, outputs = (Tensor("in", (1, 8, 2), "int8", 1, 0),), (Tensor("out", (1, 16), "int16", 1, 16),)
    regions = {0: Region(16, WEIGHTS), 1: Region(64)}
    return Job(Payload(64, tuple(words)), **{"regions": regions, "inputs": inputs, "outputs": outputs, **changes})


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The same as Vela's raw output."""
    arrays: dict[str, Any] = {
        "cmd_data": np.bytes_(write_payload(STREAM, 64)),
        "weight_data": np.bytes_(WEIGHTS),
        "weight_region": 0,
        "scratch_size": 64,
        "scratch_region": 1,
        "scratch_fast_size": 0,
        "scratch_fast_region": 0,
        "variable_offset": np.zeros(0),
    }
    for prefix, shape, size, offset in (("input", [1, 8, 2], 1, 0), ("output", [1, 1, 16], 2, 16)):
        for name, value in {"shape": shape, "elem_size": size, "region": 1, "offset": offset}.items():
            arrays[f"{prefix}_{name}"] = np.array([value])
    np.savez(tmp_path / "x.npz", **arrays)
    return tmp_path / "x.npz"


@pytest.fixture(scope="module")
def compiled(
    compilers: tuple[str, ...], simulator_objects: list[Path], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[list[Path], Path], None]:
    """In the place of what compiles the simulator: it is compiled once for all tests."""
    library = tmp_path_factory.mktemp("eu_own") / "eu_sim.so"
    subprocess.run([compilers[0], "-shared", *simulator_objects, "-o", library], check=True)

    def copied(sources: list[Path], out: Path) -> None:
        assert {one.stem for one in sources} == {one.stem for one in simulator_objects}
        shutil.copy(library, out)

    return copied


@pytest.fixture(autouse=True)
def _compiled_once(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, compiled: Callable[[list[Path], Path], None]
) -> None:
    if "compiler" not in request.node.name:
        monkeypatch.setattr(simulator, "_compile", compiled)


GIVEN = np.arange(16, dtype=np.int8).reshape(8, 2) - 4


def test_a_job_runs() -> None:
    done = simulate(job(), {"in": GIVEN})
    wanted = np.frombuffer(GIVEN.tobytes() + WEIGHTS, "<i2").reshape(1, 16)
    np.testing.assert_array_equal(done.outputs["out"], wanted, strict=True)
    assert [(one.word, one.kind, one.macs) for one in done.operations] == [(8, "dma", 0), (18, "dma", 0)]
    first, second = done.operations
    assert isinstance(first, Operation) and second.start >= first.start + first.cycles
    assert (done.dma_bytes, done.cycles) == (32, second.start + second.cycles)
    assert simulate(job(), {"in": GIVEN}, Machine(macs=64, flash_latency_cycles=500)).cycles > done.cycles


@pytest.mark.parametrize(
    ("inputs", "what"),
    [
        ({}, "input 'in' is missing"),
        ({"in": GIVEN.astype(np.int16)}, "input 'in' is int8[1, 8, 2], int16[8, 2] was given"),
        ({"in": GIVEN.T}, "input 'in' is int8[1, 8, 2], int8[2, 8] was given"),
        ({"in": GIVEN, "out": GIVEN}, "there is no input 'out'"),
    ],
)
def test_inputs_that_are_others(inputs: dict[str, np.ndarray], what: str) -> None:
    with pytest.raises(UsageError, match=re.escape(what)):
        simulate(job(), inputs)


def test_a_payload_alone_does_not_run() -> None:
    with pytest.raises(ModelError, match="a payload alone does not say what memory it runs on"):
        simulate(Job(job().payload), {})


@pytest.mark.parametrize(
    ("words", "code", "what", "where"),
    [
        (encode(copies((0, 0, 16, 32))), 8, "bytes outside of its region", "word 8 of the stream, OP_DMA_START; "),
        ([0x3FF], 2, "a command that the machine does not know", "word 0 of the stream"),
        (encode([command("OP_CONV")]), 5, "a register that the stream never set", "OP_CONV; register "),
        (STREAM[:-1], 7, "the stream has no end", f"word {len(STREAM) - 1} of the stream"),
    ],
)
def test_streams_that_trap(words: list[int], code: int, what: str, where: str) -> None:
    with pytest.raises(DeviceError, match=re.escape(what)) as caught:
        simulate(job(words), {"in": GIVEN})
    assert caught.value.code == code and where in str(caught.value.where)


def test_without_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(NoCompilerError, match="the simulator needs a C compiler"):
        simulate(job(), {"in": GIVEN})


def test_with_a_compiler_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: "false")
    with pytest.raises(ToolchainError, match="the simulator cannot be compiled"):
        simulate(job(), {"in": GIVEN})


# --- The command -----------------------------------------------------------------------------------------------------


def test_run_prints_outputs_and_cycles(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save(file.with_name("in.npy"), GIVEN)
    out = file.with_name("out.npz")
    assert (
        main("ethosu", ["run", str(file), "--input", f"input0={file.with_name('in.npy')}", "--outputs", str(out)]) == 0
    )
    text = capsys.readouterr().out
    first, cycles, dma = text.splitlines()
    assert re.fullmatch(r"output0: int16\[1, 1, 16\]( -?\d+){16}", first)
    assert re.fullmatch(r"[\d,]+ cycles on the machine of 64 multipliers", cycles)
    assert re.fullmatch(r"  dma +2 +\d+ cycles +0 products", dma)
    with np.load(out) as written:
        assert written["output0"].tobytes() == GIVEN.tobytes() + WEIGHTS


def test_run_gives_json(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main("ethosu", ["run", str(file), "--json", "--input", "input0=random:3"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["schema_version"], found["macs"], found["words"]) == (1, 64, len(STREAM))
    assert found["kinds"]["dma"]["count"] == 2 and len(found["operations"]) == 2
    assert found["outputs"]["output0"]["shape"] == [1, 1, 16] and found["cycles"] > 0
    assert main("ethosu", ["run", str(file), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["outputs"] != found["outputs"], "another seed"


def test_show_prints_the_stream(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main("ethosu", ["show", str(file)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:5] == [
        f"{len(STREAM)} words for the machine of 64 multipliers",
        "region 0: 16 bytes",
        "region 1: 64 bytes to work in",
        "input input0: int8[1, 8, 2] in region 1 at 0x0",
        "output output0: int16[1, 1, 16] in region 1 at 0x10",
    ]
    assert lines[5] == "0x000000  SET_DMA0_SRC_REGION region=1 mode=external stride_mode=1d"
    assert lines[-1] == f"{4 * (len(STREAM) - 1):#08x}  OP_STOP mask=65535"


def test_show_gives_json_and_takes_a_payload(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x.bin").write_bytes(write_payload(STREAM, 256))
    assert main("ethosu", ["show", "--json", str(tmp_path / "x.bin")]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["macs"], found["regions"], found["architecture"]) == (256, {}, [1, 0, 6])
    assert found["commands"][1] == {"word": 1, "name": "SET_DMA0_SRC", "fields": {"value": 0}}


@pytest.mark.parametrize(
    ("options", "error", "what"),
    [
        (["--input", "input0"], UsageError, "--input input0 names no input"),
        (["--input", "x=random:1"], UsageError, "--input x=random:1 names no input"),
        (["--input", "input0=random:x"], UsageError, "random:x is not a seed"),
        (["--input", "input0=none.npy"], UsageError, "none.npy cannot be read: No such file"),
        (["--input", "input0={file}"], ModelError, "is no .npy, but several arrays"),
        (["--input", "input0={here}/bad.npy"], ModelError, "bad.npy is no .npy"),
        (["--input", "input0={here}/wide.npy"], UsageError, "int64[4] was given"),
        (["--outputs", "{here}"], UsageError, "the outputs cannot be written"),
    ],
)
def test_options_that_are_wrong(file: Path, options: list[str], error: type[Exception], what: str) -> None:
    file.with_name("bad.npy").write_bytes(b"no array")
    np.save(file.with_name("wide.npy"), np.zeros(4, np.int64))
    filled = [one.format(file=file, here=file.parent) for one in options]
    with pytest.raises(error, match=re.escape(what)):
        main("ethosu", ["run", str(file), *filled])


@pytest.mark.parametrize("arguments", [[], ["fly"], ["run"]])
def test_what_it_does_not_do(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main("ethosu", arguments)
    assert ended.value.code == 2 and "usage: uma ethosu" in capsys.readouterr().err


def test_the_plugin_has_the_command(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = ("ethosu", "ethosu_like", "vela")
    host = PluginHost(lambda: [PluginEntry(name, "uma_ethosu_like", "uma-ethosu-like", "0.1.0") for name in names])
    assert host.plugin_for("ethosu").call("command", name="ethosu", arguments=("show", str(file))) == 0
    assert "OP_STOP" in capsys.readouterr().out
