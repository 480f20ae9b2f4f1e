"""A trace is played back on another implementation of a device, without the model: the first difference is told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests._support import fake_device as fake
from tests._support.program_artifact import metadata_of
from tests._support.programs import kernel
from tests._support.scale_artifact import artifact_of

from uma.contract.devices import Device
from uma.contract.drivers import Implementation, Register
from uma.errors import DeviceError, ModelError, ToolchainError, UsageError
from uma.runtime.traces import Trace, parse_trace, read_trace
from uma.verification import trace_replay as replaying
from uma.verification.trace_replay import Replayed, replay

pytestmark = pytest.mark.usefixtures("cache_folder")
X = np.array([1, -2, 3, 2**30], np.int32)
REGISTERS = (
    Register(0x00, "ID"),
    Register(0x08, "DONE", "status"),
    Register(0x0C, "FAULT"),
    Register(0x28, "OPS", "count"),
    Register(0x2C, "MOVED", "count"),
)


@pytest.fixture(scope="module")
def trace(cache_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Trace:
    """Of two devices, the second one with an interrupt, over two runs."""
    return recorded(tmp_path_factory.mktemp("trace") / "a.trace")


def recorded(path: Path, phase: str = "never", code: int = 0) -> Trace:
    program = fake.chain("a", None, "b", host=kernel([4], 4))
    artifact = artifact_of(*metadata_of(program, fake.devices(a=fake.runtime(), b=fake.runtime(phase, code))))
    with artifact.session(trace=path) as session:
        session.run(X)
        session.run(-X)
        session.counters()
    return read_trace(path)


def device(
    label: str,
    machine: Mapping[str, str] | None = None,
    *,
    registers: tuple[Register, ...] = REGISTERS,
    phase: str = "never",
    code: int = 0,
) -> Device:
    """A device with another simulator: the texts in it that are replaced."""
    text = fake.MACHINE
    for old, new in (machine or {}).items():
        assert old in text
        text = text.replace(old, new)
    simulator = Implementation("fake_sim_bus", {"fake_machine.c": text, "fake_machine.h": fake.MACHINE_H}, 512)
    made = fake.runtime() if label == "a" else fake.runtime(phase, code)
    implementations = {"sim": simulator, "mmio": fake.MMIO}
    return Device(label, "fake", "sim", replace(made, implementations=implementations, registers=registers))


def test_the_same_implementation_does_the_same(trace: Trace) -> None:
    """Also for a device whose operands another one and the host have written, and without names of registers."""
    assert replay(trace, "a", device("a")) == Replayed(None, 9, 8, 2, 40, 32)
    assert replay(trace, "b", device("b")) == Replayed(None, 9, 8, 2, 40, 32)
    found = replay(trace, "a", device("a", registers=()))
    assert (found.difference, found.polls, found.uncompared) == (None, 8, 0)


def test_how_long_something_takes_does_not_count(trace: Trace) -> None:
    slow = {"% 3 == 0": "% 50 == 0"}
    assert replay(trace, "a", device("a", slow)).difference is None
    counting = {"R(FAKE_MOVED) += bytes;": "R(FAKE_MOVED) += 2 * bytes;"}
    assert replay(trace, "a", device("a", counting)).difference is None
    found = replay(trace, "a", device("a", counting, registers=REGISTERS[:3])).difference
    assert found is not None and (found.what, found.expected, found.got) == ("register 0x2c", 32, 64)
    assert found.hint == "a status or a count is declared as such in Runtime.registers"
    assert str(found.place) == "run 2, after the last step"


def test_memory_that_differs_is_told_with_its_layer(trace: Trace) -> None:
    found = replay(trace, "b", device("b", {"x += y;": "x += y + (i == 8);"})).difference
    assert found is not None
    assert (found.what, found.expected, found.got, found.count) == ("byte 8 of output y", 12, 13, 1)
    assert (found.place.run, found.place.step, found.place.layers) == (1, 2, ("layer/2",))
    assert found.line > 40


def test_a_run_that_was_stopped_is_stopped_again(tmp_path: Path) -> None:
    with pytest.raises(DeviceError, match="stopped in step 2: fault 7"):
        recorded(tmp_path / "a.trace", "step")
    trace = read_trace(tmp_path / "a.trace")
    found = replay(trace, "b", device("b", phase="step"))
    assert found.difference is None and found.reads == 4
    assert [place.step for place in trace.places if place.step is not None] == [0, 1, 2]


def test_what_is_written_where_it_should_not_be_does_no_harm(trace: Trace) -> None:
    found = replay(trace, "b", device("b", {"host : a, bytes)": "host : a, bytes + 64)"})).difference
    assert found is None


def test_a_register_that_differs_is_told_with_its_name(trace: Trace) -> None:
    faulty = {"R(FAKE_OPS) = op": "R(FAKE_FAULT) = op == FAKE_SAVE ? 9 : 0;\n    R(FAKE_OPS) = op"}
    found = replay(trace, "a", device("a", faulty)).difference
    assert found is not None and (found.what, found.expected, found.got) == ("register FAULT (0xc)", 0, 9)
    assert (found.place.step, found.hint) == (0, "")


def test_a_status_that_never_comes_is_a_difference(trace: Trace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replaying, "_POLLS", 50)
    hangs = {"R(FAKE_DONE) = 1;": "R(FAKE_DONE) = op != FAKE_ADD;"}
    for registers, label in ((REGISTERS, "b"), ((), "b")):
        found = replay(trace, label, device(label, hangs, registers=registers)).difference
        assert found is not None and (found.expected, found.got) == (1, 0)
        assert found.what.startswith("register ") and found.what.endswith(", after 50 reads")


def by_hand(*lines: str, parameters: str = "") -> Trace:
    text = ["uma-trace 1", 'model "m"', 'memory 0 8 "x"', f'device 0 "a" "fake"{parameters}', "on 0", *lines]
    return parse_trace([f"{line}\n" for line in (*text, f"end {len(text)}")])


def test_a_register_is_read_as_often_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replaying, "_READS", 4)
    found = replay(by_hand("read 0xc 0x0 1000", "wait", "take 0 0x0 8"), None, device("a"))
    assert found == Replayed(None, 4, 0, 0, 0, 8)


def test_caches_are_looked_after_and_addresses_are_the_devices(trace: Trace) -> None:
    bus = """
static void look_after(void *self, const void *at, size_t bytes)
{
    (void)at;
    ((fake_machine *)self)->registers[10] += (uint32_t)bytes;
}
static void arrive(void *self, void *at, size_t bytes) { look_after(self, at, bytes); }
static int32_t place(void *self, const void *host, uint64_t *at)
{
    (void)self;
    *at = (uint64_t)(uintptr_t)host;
    return FAILS;
}
int32_t fake_sim_bus(uma_device *device, void *memory, size_t bytes)
{
    device->bus.clean = look_after;
    device->bus.invalidate = arrive;
    device->bus.address = place;
"""
    old = "int32_t fake_sim_bus(uma_device *device, void *memory, size_t bytes)\n{\n"
    given = by_hand("give 0 0x0 8", "low 0x20 0 0x4", "take 0 0x0 3", "read 0x28 0xb")
    found = replay(given, None, device("a", {old: bus.replace("FAILS", "0")}, registers=()))
    assert found.difference is None
    with pytest.raises(UsageError, match=r"the device does not reach memory of this process \(code 3\)"):
        replay(given, None, device("a", {old: bus.replace("FAILS", "3")}))


@pytest.mark.parametrize(
    ("label", "changes", "message"),
    [
        (None, {}, "the trace has 2 devices of kind 'fake'"),
        ("c", {}, "the trace has no device 'c'"),
        (None, {"kind": "other"}, "the trace is of no device of kind 'other'"),
        ("a", {"kind": "other"}, "device 'a' of the trace is of kind 'fake', not of kind 'other'"),
        ("b", {}, "the trace is of a device with the parameters (0, 0), and this target has ()"),
        ("a", {"impl": "mmio", "base": 4096}, "implementation 'mmio' of 'fake' has no registers that Python reaches"),
    ],
)
def test_what_does_not_fit_the_trace(trace: Trace, label: str | None, changes: dict[str, Any], message: str) -> None:
    with pytest.raises((ModelError, UsageError)) as caught:
        replay(trace, label, replace(device("a"), **changes))
    assert message in str(caught.value)


def test_memory_that_the_trace_does_not_hold() -> None:
    with pytest.raises(ModelError, match="the device is given the address of memory that the trace does not hold"):
        replay(by_hand("low 0x20 -1 0x0"), None, device("a"))


def test_a_device_that_does_not_open_or_close(tmp_path: Path, trace: Trace) -> None:
    with pytest.raises(DeviceError, match="could not be opened: fault 3, this is not a fake device"):
        replay(trace, "a", device("a", {"R(FAKE_ID) = FAKE_ID_VALUE": "R(FAKE_ID) = 1"}))
    with pytest.raises(DeviceError, match="could not be closed"):
        recorded(tmp_path / "a.trace", "close", 4)
    with pytest.raises(DeviceError, match="could not be closed: fault 4"):
        replay(read_trace(tmp_path / "a.trace"), "b", device("b", phase="close", code=4))


def test_a_device_that_does_not_load(tmp_path: Path, trace: Trace, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(device: Device) -> Path:
        (tmp_path / "broken.so").write_text("")
        return tmp_path / "broken.so"

    monkeypatch.setattr(replaying, "_library", broken)
    with pytest.raises(ToolchainError, match="cannot load the compiled device"):
        replay(trace, "a", device("a"))
