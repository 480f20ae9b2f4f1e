"""Sessions of models that run on devices: the real generated C, with the simulator of a small accelerator."""

from __future__ import annotations

import ctypes
import gc
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import cffi
import numpy as np
import pytest
from tests._support import fake_device as fake
from tests._support.programs import kernel

from uma.codegen import emit_model
from uma.contract.devices import Device
from uma.errors import DeviceError, InternalError, ModelError, PluginError, UsageError
from uma.program import Buffer, Call, Program, plan
from uma.runtime.native import DeviceInfo, NativeModel, Session
from uma.toolchain.compile import CompileUnit, compile_shared
from uma.toolchain.discovery import find_compiler

X = np.array([1, -2, 3, 2**30], np.int32)


class Built:
    """A library of its own for each: the log of the driver is part of it."""

    def __init__(self, program: Program, devices: Mapping[str, Device], folder: Path) -> None:
        files = emit_model(program, plan(program), devices)
        sources = [*files.sources, files.entry]
        self.path = compile_shared(
            [CompileUnit(find_compiler(), sources, ["-O1", "-std=c99"])], files.contents, folder / "m.so"
        )
        ffi = cffi.FFI()
        ffi.cdef("extern char fake_log[1024];")
        self._log = ffi.dlopen(str(self.path))
        self._ffi = ffi
        self.infos = [
            DeviceInfo(device.label, f"{device.kind}, {device.impl}", device.runtime.faults, device.runtime.counters)
            for device in (devices[label] for label in program.devices)
        ]
        self.layers = [step.layers for step in program.steps]

    def model(self) -> NativeModel:
        return NativeModel(self.path, devices=self.infos, layers=self.layers)

    def session(self) -> Session:
        return Session(self.model())

    def log(self) -> str:
        """What happened since this was asked last."""
        text = bytes(self._ffi.string(self._log.fake_log)).decode()
        self._log.fake_log[0] = b"\0"
        return text.strip()


Build = Callable[..., Built]


@pytest.fixture
def build(tmp_path_factory: pytest.TempPathFactory) -> Build:
    def build(*labels: str | None, program: Program | None = None, **failing: tuple[str, int]) -> Built:
        made = program or fake.chain(*labels, host=kernel([4], 4))
        devices = fake.devices(**{label: fake.runtime(*failing.get(label, ())) for label in made.devices})
        return Built(made, devices, tmp_path_factory.mktemp("model"))

    return build


def test_a_simulator_without_registers_is_its_own_driver(tmp_path: Path) -> None:
    runtime = fake.direct_runtime()
    program = fake.chain("a", "b")
    devices = {label: Device(label, "fake", "direct", runtime) for label in ("a", "b")}
    files = emit_model(program, plan(program), devices)
    assert not any("fake_driver.c" in name or "machine" in name for name in files.contents)
    sources = [*files.sources, files.entry]
    strict = ["-O1", "-std=c99", "-Wall", "-Wextra", "-Werror"]
    path = compile_shared([CompileUnit(find_compiler(), sources, strict)], files.contents, tmp_path / "m.so")
    infos = [DeviceInfo(label, "fake, direct", runtime.faults) for label in ("a", "b")]
    session = Session(NativeModel(path, devices=infos, layers=[step.layers for step in program.steps]))
    np.testing.assert_array_equal(session.run(X)["y"], 4 * X)
    assert session.counters() == {"a": {}, "b": {}}
    session.close()


class TestRun:
    def test_devices_are_opened_by_the_first_run(self, build: Build) -> None:
        built = build("a", None, "b")
        session = built.session()
        assert built.log() == ""
        for _ in range(2):
            np.testing.assert_array_equal(session.run(X)["y"], 4 * X)
        run = "a.activate b.activate b.deactivate a.deactivate"
        assert built.log() == f"a.open b.open {run} {run}"
        session.close()
        assert built.log() == "b.close a.close"

    def test_invoke_opens_too(self, build: Build) -> None:
        session = build("a").session()
        session.inputs["x"][...] = X
        session.invoke()
        np.testing.assert_array_equal(session.outputs["y"], 2 * X)

    def test_sessions_have_simulators_of_their_own(self, build: Build) -> None:
        built = build("a")
        one, two = built.session(), built.session()
        one.run(X)
        one.run(X)
        two.run(X)
        assert (one.counters()["a"]["runs"], two.counters()["a"]["runs"]) == (2, 1)
        one.close()
        np.testing.assert_array_equal(two.run(X)["y"], 2 * X)

    def test_two_models_run_on_one_kind(self, build: Build) -> None:
        one, two = build("a").session(), build("a", "b").session()
        for _ in range(2):
            np.testing.assert_array_equal(one.run(X)["y"], 2 * X)
            np.testing.assert_array_equal(two.run(X)["y"], 4 * X)

    def test_counters_are_of_the_last_run(self, build: Build) -> None:
        session = build("a", "a", "b").session()
        with pytest.raises(UsageError, match="there are no counters: nothing was run yet"):
            session.counters()
        for run in (1, 2):
            session.run(X)
            assert session.counters() == {
                "a": {"operations": 6, "bytes_moved": 64, "runs": run},
                "b": {"operations": 3, "bytes_moved": 32, "runs": run},
            }
        session.close()
        with pytest.raises(UsageError, match="there are no counters: the session was closed"):
            session.counters()

    def test_a_model_without_devices_has_no_counters(self, build: Build) -> None:
        with build(None).session() as session:
            session.run(X)
            assert session.counters() == {}


def remembering(*labels: str) -> Program:
    """`fake.chain`, and before it a step that adds x to a state."""
    program = fake.chain(*labels)
    state = Buffer("h", "state", (4,), "int32", 16, data=np.arange(4, dtype=np.int32).tobytes())
    return replace(
        program,
        buffers=(state, *program.buffers),
        steps=(Call("add", ("x", "h", "h"), ("sum",)), *program.steps),
        functions={**program.functions, "add": kernel([4, 4], 4, in_place=True)},
    )


class TestState:
    def test_goes_on_and_back(self, build: Build) -> None:
        built = build(program=remembering("a"))
        with built.session() as session:
            assert session.save().arrays["h"].tolist() == [0, 1, 2, 3]
            assert built.log() == "a.open"
            session.run(X)
            session.run(X)
            state = session.save()
            np.testing.assert_array_equal(state.arrays["h"], np.arange(4) + 2 * X)
            session.reset()
            assert session.save().arrays["h"].tolist() == [0, 1, 2, 3]
            session.restore(state)
            session.run(X)
            np.testing.assert_array_equal(session.save().arrays["h"], (np.arange(4) + 3 * X).astype(np.int32))

    @pytest.mark.parametrize("phase", ["step", "deactivate"])
    def test_a_run_that_was_stopped_half_way(self, build: Build, phase: str) -> None:
        session = build(program=remembering("a"), a=(phase, 0 if phase == "step" else 5)).session()
        state = session.save()
        for mend in (session.reset, lambda: session.restore(state)):
            with pytest.raises(DeviceError):
                session.run(X)
            for use in (lambda: session.run(X), session.invoke, session.save):
                with pytest.raises(UsageError, match="needs a state that was not left half-way") as caught:
                    use()
                assert caught.value.hint == "reset the session, or restore a state that was saved"
            mend()
            np.testing.assert_array_equal(session.save().arrays["h"], np.arange(4))

    def test_a_run_that_did_not_begin(self, build: Build) -> None:
        session = build(program=remembering("a"), a=("activate", 5)).session()
        for _ in range(2):
            with pytest.raises(DeviceError):
                session.run(X)
            assert session.save().arrays["h"].tolist() == [0, 1, 2, 3]

    def test_a_device_that_cannot_be_opened(self, build: Build) -> None:
        session = build(program=remembering("a"), a=("open", 3)).session()
        for use in (session.reset, session.save):
            with pytest.raises(DeviceError, match="could not be opened"):
                use()


class TestFaults:
    def test_of_a_step(self, build: Build) -> None:
        built = build("a", None, "b", b=("step", 0))
        session = built.session()
        for _ in range(2):  # a fault leaves the devices such that the next run is as good as the first one
            with pytest.raises(DeviceError) as caught:
                session.run(X)
            error = caught.value
            assert (error.device, error.layers, error.code) == ("b", ("layer/2",), 7)
            assert error.exit_code == PluginError.exit_code
            assert str(error) == (
                "device 'b' (fake, sim) stopped in step 2: fault 7, an address outside of the scratchpad\n"
                "  where: model net, layer layer/2"
            )
        run = "a.activate b.activate b.deactivate a.deactivate"
        assert built.log() == f"a.open b.open {run} {run}"
        session.close()
        assert built.log() == "b.close a.close"

    @pytest.mark.parametrize(
        ("phase", "what", "log"),
        [
            ("bus", "could not be opened", "a.open a.close"),
            ("open", "could not be opened", "a.open b.open a.close"),
            ("activate", "could not be activated", "a.open b.open a.activate b.activate a.deactivate"),
            (
                "deactivate",
                "could not be deactivated",
                "a.open b.open a.activate b.activate b.deactivate a.deactivate",
            ),
        ],
    )
    def test_outside_of_steps(self, build: Build, phase: str, what: str, log: str) -> None:
        built = build("a", "b", b=(phase, -9))
        session = built.session()
        with pytest.raises(DeviceError) as caught:
            session.run(X)
        assert (caught.value.device, caught.value.layers, caught.value.code) == ("b", (), -9)
        assert caught.value.what == f"device 'b' (fake, sim) {what}: fault -9, which its plugin does not explain"
        assert caught.value.where == "model net"
        assert built.log() == log

    def test_one_that_cannot_be_opened_is_tried_again(self, build: Build) -> None:
        built = build("a", "b", b=("open", 3))
        session = built.session()
        for _ in range(2):
            with pytest.raises(DeviceError, match="fault 3, this is not a fake device"):
                session.invoke()
            assert built.log() == "a.open b.open a.close"
        session.close()
        assert built.log() == ""

    def test_of_closing(self, build: Build) -> None:
        built = build("a", "b", b=("close", 4))
        session = built.session()
        session.run(X)
        with pytest.raises(DeviceError, match=r"device 'b' \(fake, sim\) could not be closed: fault 4"):
            session.close()
        assert built.log().endswith("b.close a.close")
        session.close()
        assert built.log() == ""

    def test_of_closing_what_nobody_has_any_more(self, build: Build) -> None:
        built = build("a", a=("close", 4))
        session = built.session()
        session.run(X)
        with pytest.warns(RuntimeWarning, match=r"device 'a' \(fake, sim\) could not be closed: fault 4"):
            del session
            gc.collect()

    def test_a_refusal_of_the_model_is_no_fault_of_a_device(self, build: Build) -> None:
        session = build("a").session()
        session.run(X)
        session._tables[0][0] = cffi.FFI().NULL
        with pytest.raises(InternalError, match="UMA_ERR_ARGUMENT"):
            session.invoke()


class TestLifetime:
    def test_closed(self, build: Build) -> None:
        for labels in (("a",), (None,)):
            session = build(*labels).session()
            session.close()
            session.close()
            with pytest.raises(UsageError, match="the session was closed") as caught:
                session.run(X)
            assert "make another one" in str(caught.value)
            with pytest.raises(UsageError, match="the session was closed"):
                session.invoke()

    def test_with(self, build: Build) -> None:
        built = build("a")
        with pytest.raises(ModelError), built.session() as session:
            session.run(X)
            session.run(X[:2])
        assert built.log() == "a.open a.activate a.deactivate a.close"

    def test_with_says_what_went_wrong_first(self, build: Build) -> None:
        built = build("a", a=("close", 4))
        closing = pytest.warns(RuntimeWarning, match="could not be closed")
        with closing, pytest.raises(ModelError), built.session() as session:
            session.run(X)
            session.run(X[:2])
        with pytest.raises(DeviceError, match="could not be closed"), built.session() as session:
            session.run(X)

    def test_an_open_that_failed_closes_what_is_open(self, build: Build) -> None:
        session = build("a", "b", a=("close", 4), b=("open", 5)).session()
        closing = pytest.warns(RuntimeWarning, match=r"device 'a' .* could not be closed: fault 4")
        with closing, pytest.raises(DeviceError, match=r"device 'b' .* could not be opened: fault 5"):
            session.run(X)

    def test_what_nobody_has_any_more_is_closed(self, build: Build) -> None:
        built = build("a")
        session = built.session()
        session.run(X)
        del session
        gc.collect()
        assert built.log() == "a.open a.activate a.deactivate a.close"

    def test_devices_are_closed_at_the_end_of_the_program(self, build: Build) -> None:
        built = build("a", a=("close", 4))
        script = (
            "import numpy\n"
            "from uma.runtime.native import NativeModel, Session\n"
            f"session = Session(NativeModel({str(built.path)!r}))\n"
            "session.run(numpy.zeros(4, numpy.int32))\n"
        )
        done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
        assert "RuntimeWarning: device 'a' (fake) could not be closed: fault 4" in done.stderr


class TestDescription:
    def test_without_an_artifact(self, build: Build) -> None:
        model = NativeModel(build("a", "b").path)
        assert model.devices == (DeviceInfo("a", "fake"), DeviceInfo("b", "fake"))
        session = Session(model)
        np.testing.assert_array_equal(session.run(X)["y"], 4 * X)
        assert session.counters() == {"a": {}, "b": {}}

    def test_other_devices_than_the_artifact_says(self, build: Build) -> None:
        built = build("a", "b")
        with pytest.raises(ModelError, match=r"the library has the devices \(a, b\), expected \(b, a\)"):
            NativeModel(built.path, devices=built.infos[::-1])
        with pytest.raises(ModelError, match=r"the library has the devices \(\), expected \(a, b\)"):
            NativeModel(build(None).path, devices=built.infos)

    def test_other_counters_than_the_plugin_says(self, build: Build) -> None:
        built = build("a")
        wrong = [DeviceInfo("a", "fake, sim", {}, ("operations",))]
        with pytest.raises(PluginError, match=r"'a' \(fake, sim\) has 3 counters, its plugin names 1") as caught:
            NativeModel(built.path, devices=wrong)
        assert "Runtime.counters" in str(caught.value)


class Hardware(threading.Thread):
    """The registers of a fake device as memory, and what is behind them: no simulator in C is involved."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.registers = np.zeros(12, np.uint32)
        self.registers[0] = fake.ID
        self.spad = np.zeros(fake.SPAD_BYTES, np.uint8)
        self.running = True

    @property
    def base(self) -> int:
        return int(self.registers.ctypes.data)

    def run(self) -> None:
        registers = self.registers
        while self.running:
            op = int(registers[1])
            if op == 0:
                continue
            registers[1] = registers[3] = 0
            registers[10] = 0 if op == 1 else registers[10] + 1
            to, a, b, size = (int(value) for value in registers[4:8])
            host = int(registers[8]) | int(registers[9]) << 32
            if op == 1:
                registers[11] = 0
            elif op == 4:
                sums = self.spad[a : a + size].view(np.uint32) + self.spad[b : b + size].view(np.uint32)
                self.spad[to : to + size] = sums.view(np.uint8)
            else:
                memory = np.frombuffer((ctypes.c_uint8 * size).from_address(host), np.uint8)
                pair = (self.spad[to : to + size], memory) if op == 2 else (memory, self.spad[a : a + size])
                pair[0][...] = pair[1]
                registers[11] += size
            registers[2] = 1


class TestMemoryMapped:
    @pytest.fixture
    def hardware(self) -> Iterator[Hardware]:
        hardware = Hardware()
        hardware.start()
        yield hardware
        hardware.running = False
        hardware.join()

    def test_the_driver_of_the_simulator(self, hardware: Hardware, tmp_path: Path) -> None:
        device = Device("npu", "fake", "mmio", fake.runtime(), hardware.base)
        built = Built(fake.chain("npu", "npu"), {"npu": device}, tmp_path)
        with built.session() as session:
            np.testing.assert_array_equal(session.run(X)["y"], 4 * X)
            assert session.counters() == {"npu": {"operations": 6, "bytes_moved": 64, "runs": 1}}

    def test_other_hardware(self, hardware: Hardware, tmp_path: Path) -> None:
        hardware.registers[0] = 0
        device = Device("npu", "fake", "mmio", fake.runtime(), hardware.base)
        session = Built(fake.chain("npu"), {"npu": device}, tmp_path).session()
        with pytest.raises(DeviceError) as caught:
            session.run(X)
        assert caught.value.what == "device 'npu' (fake, mmio) could not be opened: fault 3, this is not a fake device"
