"""The logic of the matrix unit, made a library by Verilator: it does what the simulator does, register by register, and
what the ops mean.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import uma
from uma.cli import main
from uma.contract.devices import Device
from uma.errors import ToolchainError, UsageError
from uma.hookspecs import Library, Runtime
from uma.plugins import PluginEntry, PluginHost
from uma.relay import Expr, FixedPoint, Function, IRModule, TensorType, Tuple, Var, call, const
from uma.relay.evaluate import evaluate
from uma.runtime.traces import Trace, parse_trace, read_trace
from uma.targets import Target
from uma.toolchain.discovery import find_compiler
from uma.toolchain.libraries import require_library
from uma.verification.trace_replay import Replayed, replay
from uma_matrix_unit import KIND, rtl, runtime

PLUGINS = PluginHost(
    lambda: [
        PluginEntry("c", "uma_cpu_c", "uma-cpu-c", "0.1.0"),
        PluginEntry("matrix_unit", "uma_matrix_unit", "uma-matrix-unit", "0.1.0"),
    ]
)
SIZES = {"activation_bytes": 512, "weight_bytes": 256, "accumulator_bytes": 256}
SMALL = "matrix_unit " + " ".join(f"-{name}={size}" for name, size in SIZES.items())
MODELS = ("kws_ref_model", "pretrainedResnet_quant", "vww_96_int8", "ad01_int8")

needs_verilator = pytest.mark.skipif(
    not all(map(shutil.which, ("verilator", "make", "g++"))), reason="verilator, make or g++ is missing"
)


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """One for all tests of this file in a process, so that each unit is made once."""
    folder = tmp_path_factory.getbasetemp() / "rtl-cache"
    monkeypatch.setenv("UMA_CACHE_DIR", str(folder))


def device(impl: str, **sizes: int) -> Device:
    target = Target(KIND, {"impl": impl, **(sizes or SIZES)})
    return Device.from_target("matrix_unit", target, runtime(target))


def small_model() -> IRModule:
    """Layers that use each instruction: in tiles and in blocks of channels, with borders, a residual, each rounding."""
    rng = np.random.default_rng(7)

    def weights(*shape: int) -> Expr:
        return const(rng.integers(-128, 128, shape).astype(np.int8))

    def requantised(sums: Expr, channels: int, shift: int, rounding: str) -> Expr:
        biased = call("add", sums, const(rng.integers(-(2**14), 2**14, channels).astype(np.int32)))
        multipliers = rng.integers(2**30, 2**31, channels)
        scale = FixedPoint(tuple(multipliers.tolist()), (shift,) * channels, rounding)
        return call("qnn.requantize", biased, scale=scale, output_zero_point=3, dtype="int8")

    x, y = Var("x", TensorType((1, 9, 7, 5), "int8")), Var("y", TensorType((3, 70), "int8"))
    conv = call("qnn.conv2d", x, weights(3, 3, 5, 11), padding=(1, 1, 1, 1), input_zero_point=-7)
    first = call("nn.relu", requantised(conv, 11, -9, "double"))
    again = call("qnn.conv2d", first, weights(3, 3, 11, 11), padding=(1, 1, 1, 1), input_zero_point=3)
    second = requantised(call("add", again, call("cast", first, dtype="int32")), 11, -10, "even")
    dense = requantised(call("qnn.dense", y, weights(11, 70), input_zero_point=5), 11, -10, "up")
    z = Var("z", TensorType((1, 40, 4, 2), "int8"))  # in tiles of whole rows
    tall = requantised(call("qnn.conv2d", z, weights(3, 1, 2, 8), strides=(2, 1)), 8, -8, "even")
    return IRModule.from_functions({"main": Function([x, y, z], Tuple([second, dense, tall]))})


def given(module: IRModule) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    return {p.name: rng.integers(-128, 128, p.tensor.shape).astype(np.int8) for p in module["main"].params}


def recorded(path: Path, target: str = SMALL) -> Trace:
    """Of two runs of the small model, whose results are the reference's."""
    module = small_model()
    inputs = given(module)
    with uma.build(module, [target, "c"], name="small", plugins=PLUGINS).session(trace=path) as session:
        results = [session.run(inputs) for _ in range(2)]
        session.counters()
    expected = evaluate(module["main"], inputs)
    for made in results:
        for array, wanted in zip(made.values(), expected, strict=True):
            np.testing.assert_array_equal(array, wanted)
            assert len(np.unique(array)) > 20
    return read_trace(path)


def values(trace: Trace, offset: int) -> set[int]:
    """What was written into a register."""
    return {entry.numbers[1] for entry in trace.entries if entry.what == "write" and entry.numbers[0] == offset}


@needs_verilator
def test_a_trace_of_each_instruction_is_played_back_without_a_difference(tmp_path: Path) -> None:
    trace = recorded(tmp_path / "sim.trace")
    assert values(trace, 0x14) == {1, 2, 3, 4, 5, 6, 7, 8, 17, 18, 19}
    assert values(trace, 0xD8) == {0, 1, 2}
    for impl in "sim", "rtl":
        found = replay(trace, None, device(impl))
        assert found.difference is None
        assert found.reads > 200 and found.polls > 200 and found.nbytes > 2 * (693 + 33) and found.uncompared == 10


@needs_verilator
@pytest.mark.soak
def test_a_trace_of_the_logic_is_played_back_on_the_simulator(tmp_path: Path) -> None:
    trace = recorded(tmp_path / "rtl.trace", f"{SMALL} -impl=rtl")
    assert replay(trace, None, device("sim")).difference is None


def by_hand(*lines: str) -> Trace:
    text = ["uma-trace 1", 'model "by hand"', "registers 32", 'memory 0 512 "arena"']
    text += ['device 0 "matrix_unit" "matrix_unit" 512 256 256', "open", "on 0", "write 0x10 0x1", *lines]
    return parse_trace([f"{line}\n" for line in (*text, f"end {len(text)}")])


NAMES = {one.name: one.offset for one in runtime(Target(KIND)).registers}


def writes(**operands: int) -> list[str]:
    return [f"write {NAMES[name]:#x} {value & 0xFFFFFFFF:#x}" for name, value in operands.items()]


BIAS = {"ACC": 0, "ACC_Y": 32, "HEIGHT": 2, "WIDTH": 2, "WGT": 0}
MAC = {**BIAS, "ACT": 0, "ACT_Y": 1, "ACT_X": 1, "ACT_T": 0, "WGT_T": 0, "TAPS": 1, "DEPTH": 8}
ROWS = {"ADDRESS": 0, "STRIDE": 8, "ROWS": 2, "ROW_BYTES": 8, "VALUE": -3}
SCALE = {**BIAS, "ADDRESS": 0, "STRIDE": 8, "STRIDE_Y": 16, "CHANNELS": 8, "ROUNDING": 0, "ZERO_POINT": 0}
SCALE |= {"LOW": -128, "HIGH": 127}
FAULTS: list[tuple[int, int, dict[str, int]]] = [
    (1, 0, {}),
    (1, 9, {}),
    (1, 20, {}),
    *((1, 4, {**ROWS, name: value}) for name, value in (("ROWS", 0), ("ROW_BYTES", 1 << 24), ("VALUE", 128))),
    *((1, 5, {**BIAS, name: value}) for name, value in (("HEIGHT", 0), ("WIDTH", 65))),
    *((1, 6, {**MAC, name: value}) for name, value in (("TAPS", 17), ("DEPTH", 0), ("DEPTH", 16385))),
    *((1, 7, {**SCALE, name: value}) for name, value in (("CHANNELS", 9), ("ROUNDING", 3), ("ZERO_POINT", -129))),
    *((1, 7, {**SCALE, name: value}) for name, value in (("LOW", 128), ("HIGH", -129), ("HIGH", 200))),
    (2, 4, {**ROWS, "ADDRESS": 497}),
    (2, 4, {**ROWS, "STRIDE": -1}),
    (2, 1, {**ROWS, "ADDRESS": 505}),
    (2, 19, {**ROWS, "ADDRESS": 512}),
    (3, 2, {**ROWS, "ADDRESS": 248}),
    (3, 18, {**ROWS, "STRIDE": 256}),
    (3, 5, {**BIAS, "WGT": 232}),
    (3, 7, {**SCALE, "WGT": 168}),
    (3, 6, {**MAC, "WGT": 200}),
    (4, 5, {**BIAS, "ACC": 192}),
    (4, 6, {**MAC, "ACC_Y": 256}),
    *((8, 2, {**ROWS, name: value}) for name, value in (("ADDRESS", 4), ("STRIDE", 12), ("ROW_BYTES", 9))),
    *((8, 5, {**BIAS, name: value}) for name, value in (("ACC", 16), ("ACC_Y", 8), ("WGT", 4))),
    *((8, 6, {**MAC, name: value}) for name, value in (("WGT", 1), ("WGT_T", 2))),
    (8, 7, {**SCALE, "WGT": 7}),
]
"""Faults, the commands that have them, and their operands."""


@needs_verilator
def test_faults_are_those_of_the_data_sheet() -> None:
    """What follows one does nothing, until a reset."""
    lines = ["read 0x0 0x4d585531", "read 0x4 0x200", "read 0x8 0x100", "read 0xc 0x100"]
    for code, command, operands in FAULTS:
        lines += [*writes(**operands, COMMAND=command), "read 0x18 0x0", f"read 0x1c {code:#x}"]
        lines += [
            *writes(**ROWS, COMMAND=4),
            "read 0x18 0x0",
            f"read 0x1c {code:#x}",
            "write 0x10 0x1",
            "read 0x1c 0x0",
        ]
    wide = {**ROWS, "ROWS": 1, "ROW_BYTES": 512}
    lines += [*writes(**wide, COMMAND=4), *writes(VALUE=1), "read 0x18 0x0", "read 0x1c 0x9", "write 0x10 0x1"]
    for odd in (
        "read 0x48 0x0",
        "read 0x80 0x0",
        "write 0x0 0x1",
        "write 0xec 0x0",
        "write 0x82 0x0",
        "write 0x10 0x2",
    ):
        lines += [odd, "read 0x1c 0xa", "write 0x10 0x1"]
    for impl in "sim", "rtl":
        found = replay(by_hand(*lines), None, device(impl))
        assert found.difference is None and found.reads > 3 * len(FAULTS)


@needs_verilator
def test_a_queue_that_is_full_makes_the_next_one_wait() -> None:
    lines = [f"bytes 0 {at:#x} {bytes(range(at, at + 32)).hex()}" for at in (0, 32)] + ["give 0 0x0 512"]
    for n in range(20):
        lines += [*writes(ADDRESS=2 * n, ROWS=1, ROW_BYTES=2), f"low 0x80 0 {n:#x}", f"high 0x84 0 {n:#x}"]
        lines += ["write 0x14 0x11", "read 0x18 0x0", "read 0x1c 0x0"]
    lines += [*writes(PENDING=3, COMMAND=8), "read 0x18 0x0", *writes(PENDING=0, COMMAND=8), "read 0x18 0x0"]
    lines += [
        *writes(ADDRESS=0, STRIDE=8, ROWS=5, ROW_BYTES=7, HOST_STRIDE=-9),
        "low 0x80 0 0x164",
        "high 0x84 0 0x164",
    ]
    lines += ["write 0x14 0x3", "read 0x18 0x0", "read 0x1c 0x0"]
    stored = {0x164 - 9 * row + i: (8 * row + i) // 2 + (8 * row + i) % 2 for row in range(5) for i in range(7)}
    lines += [f"bytes 0 {at:#x} {value:02x}" for at, value in stored.items()] + ["take 0 0x0 512"]
    for impl in "sim", "rtl":
        assert replay(by_hand(*lines), None, device(impl)).difference is None


def test_what_makes_the_logic_is_said_where_it_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UMA_CACHE_DIR", str(tmp_path))
    real = shutil.which
    monkeypatch.setattr(rtl.shutil, "which", lambda name: None if name in ("verilator", "make") else real(name))
    with pytest.raises(ToolchainError) as caught:
        uma.build(small_model(), [f"{SMALL} -impl=rtl", "c"], plugins=PLUGINS)
    assert "impl=rtl needs verilator and make, which are not there" in str(caught.value)
    assert "install Verilator from the system's packages" in str(caught.value)
    uma.build(small_model(), [SMALL, "c"], plugins=PLUGINS)
    monkeypatch.setattr(rtl.shutil, "which", lambda name: name)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ToolchainError, match="verilator could not be run"):
        rtl.verilate({}, (8, 8, 8), tmp_path / "x.so")


@needs_verilator
def test_what_verilator_says_is_told(tmp_path: Path) -> None:
    broken = rtl.sources() | {"matrix_unit.sv": "module matrix_unit; oops"}
    with pytest.raises(ToolchainError, match=r"verilator could not make the unit \(exit status 1\)\n.*syntax error"):
        rtl.verilate(broken, (8, 8, 8), tmp_path / "x.so")
    assert not (tmp_path / "x.so").exists()


FAKE = """\
#!/bin/sh
mkdir -p made
touch made/unit.cpp made/more.cpp
test -e made/unit.o && { echo library > made/library.so; exit 0; }
touch made/unit.o
sleep 60
"""


def test_a_second_attempt_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The limit is one of the environment; what was compiled by then, and only that, is kept."""
    real, tools = shutil.which, tmp_path / "tools"
    tools.mkdir()
    (tools / "verilator").write_text(FAKE)
    (tools / "verilator").chmod(0o755)
    monkeypatch.setattr(rtl.shutil, "which", lambda name: real(name) or name)
    monkeypatch.setenv("PATH", str(tools), prepend=os.pathsep)
    monkeypatch.setenv("UMA_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("UMA_MATRIX_UNIT_VERILATOR_S", "40")
    ticks: list[float] = []

    def monotonic() -> float:
        """Time passes once a file is compiled."""
        ticks.append(10.0 if [*tmp_path.rglob("unit.o")] else 0.0)
        return sum(ticks)

    monkeypatch.setattr(rtl.time, "monotonic", monotonic)
    monkeypatch.setattr(rtl, "_SAY_S", 0.01)
    made = Library("mxu_fake", make=partial(rtl.verilate, {"unit.sv": "module"}, (8, 8, 8)))
    with pytest.raises(ToolchainError, match=r"did not finish within 40 s and was stopped; 1 of 3 files") as caught:
        require_library(made, find_compiler(), "here")
    assert caught.value.hint == "run it again, which continues, or raise the limit: UMA_MATRIX_UNIT_VERILATOR_S=80"
    err = capsys.readouterr().err
    assert "matrix_unit: verilator compiles impl=rtl, " in err and " of at most 40 s; 1 of 3 files are compiled" in err
    folder = tmp_path / "cache" / "libraries"
    assert [path.name for path in folder.iterdir()] == [".partial-mxu_fake"]
    monkeypatch.undo()
    monkeypatch.setattr(rtl.shutil, "which", lambda name: real(name) or name)
    monkeypatch.setenv("PATH", str(tools), prepend=os.pathsep)
    monkeypatch.setenv("UMA_CACHE_DIR", str(tmp_path / "cache"))
    with pytest.raises(ToolchainError, match="the C library 'mxu_fake' is missing or cannot be used"):
        require_library(made, find_compiler(), "here")  # it is made now, and is not a library
    assert [path.name for path in folder.iterdir()] == ["libmxu_fake.so"]
    for text in "soon", "0", "inf":
        monkeypatch.setenv("UMA_MATRIX_UNIT_VERILATOR_S", text)
        with pytest.raises(UsageError, match="is not a number of seconds"):
            rtl.verilate({}, (8, 8, 8), tmp_path / "x.so")


def test_the_name_of_the_library_says_what_it_is_made_from() -> None:
    names = {rtl.library((512, 256, 256)).name, rtl.library((512, 256, 512)).name, rtl.library((512, 256, 256)).name}
    assert len(names) == 2
    assert runtime(Target(KIND, {"impl": "rtl"})).libraries and not runtime(Target(KIND)).libraries


def changed(old: str, new: str, name: str) -> Device:
    """The unit with one line of it changed."""
    texts = rtl.sources()
    assert texts["matrix_unit.sv"].count(old) == 1
    texts["matrix_unit.sv"] = texts["matrix_unit.sv"].replace(old, new)
    made = device("rtl")
    library = replace(
        made.runtime.libraries[0],
        name=f"mxu_rtl_{name}",
        make=partial(rtl.verilate, texts, (512, 256, 256)),
    )
    told: Runtime = replace(made.runtime, libraries=(library,))
    return replace(made, runtime=told)


CHANGES: Sequence[tuple[str, str, str, str]] = [
    ("depth", "k + i < r[DEPTH]", "k + i <= r[DEPTH]", "byte"),
    ("stride", "act_pixel <= act_row + r[ACT_Y];", "act_pixel <= act_row + r[ACT_X];", "byte"),
    ("limit", "is_size(r[TAPS], 16)", "is_size(r[TAPS], 2)", "register FAULT (0x1c)"),
    ("end", "8: state <= PENDED;", "8: state <= PUSH;", "byte"),
]


@needs_verilator
@pytest.mark.soak
@pytest.mark.parametrize(("name", "old", "new", "what"), CHANGES)
def test_a_changed_line_is_a_first_difference_with_its_layer(
    tmp_path: Path, name: str, old: str, new: str, what: str
) -> None:
    trace = recorded(tmp_path / "sim.trace")
    found: Replayed = replay(trace, None, changed(old, new, name))
    assert found.difference is not None
    assert found.difference.what.startswith(what)
    assert found.difference.place.run == 1 and found.difference.place.step is not None
    assert found.difference.expected != found.difference.got


@needs_verilator
@pytest.mark.soak
@pytest.mark.few(1)
@pytest.mark.parametrize("name", MODELS)
def test_models_are_played_back_without_a_difference(models: Path, tmp_path: Path, name: str) -> None:
    path = models / "mlperf-tiny" / f"{name}.tflite"
    artifact = uma.build(path, ["matrix_unit", "c"], plugins=PLUGINS)
    rng = np.random.default_rng(0)
    inputs = {one.name: rng.integers(-128, 128, one.shape).astype(np.int8) for one in artifact.record.inputs}
    with artifact.session(trace=tmp_path / "sim.trace") as session:
        expected = session.run(inputs)
    found = replay(read_trace(tmp_path / "sim.trace"), None, device("rtl", activation_bytes=32768))
    assert found.difference is None and found.reads > 100 and found.nbytes > 100
    made = uma.build(path, ["matrix_unit -impl=rtl", "c"], plugins=PLUGINS).run(inputs)
    for output, array in made.items():
        np.testing.assert_array_equal(array, expected[output])


@needs_verilator
@pytest.mark.soak
def test_resnet8_is_verified_on_the_logic(models: Path) -> None:
    path = models / "mlperf-tiny" / "pretrainedResnet_quant.tflite"
    assert main(["verify", str(path), "--target", "matrix_unit -impl=rtl", "--target", "c", "-q"]) == 0
