"""Traces of devices: what drivers do to registers and memory, as text, in C and from sessions."""

from __future__ import annotations

import errno
import gc
import subprocess
from pathlib import Path

import numpy as np
import pytest
from tests._support import fake_device as fake
from tests._support.c_programs import CSRC, SANITIZED
from tests._support.program_artifact import metadata_of
from tests._support.programs import kernel
from tests._support.scale_artifact import FILES, METADATA, artifact_of

from uma.artifact import Artifact
from uma.contract.devices import Device
from uma.errors import DeviceError, ToolchainError, UsageError
from uma.runtime import helper_library
from uma.runtime.recording import Recorder

pytestmark = pytest.mark.usefixtures("cache_folder")
X = np.array([1, -2, 3, 2**30], np.int32)

FIRMWARE = """\
uma-trace 1
model "firmware"
registers 32
memory 0 40 "buffer"
layer 0 "first"
open
device 0 "a \\"\\\\\\u0001\\u001f" "tiny" -1 -9223372036854775808
device 1 "b" "tiny"
run
begin
bytes 0 0x1 0102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f20
bytes 0 0x21 21222324252627
on 0
give 0 0x1 39
memory 1 8
bytes 1 0x0 0000000000000000
give 1 0x0 8
low 0x0 0 0x2
high 0x4 0 0x2
low 0x0 -1 0x0
high 0x4 -1 0x0
read 0x4 0x5
write 0x8 0x3
wait
read 0x8 0x3 4 3
read 0xc 0x4d
bytes 1 0x4 00000000
take 1 0x4 4
write 0x0 0x0
write 0x4 0x0
step 0
fault 0 -1 5
close
end 33
"""

SESSION = """\
uma-trace 1
model "net"
registers 32
memory 0 16 "arena"
memory 1 0 "state"
memory 2 0 "weights"
memory 3 16 "input x"
memory 4 16 "output y"
layer 0 "layer/0"
layer 1 "layer/1"
open
device 0 "a" "fake" 0 0
on 0
read 0x0 0x7a4e0001
run
write 0x8 0x0
write 0x4 0x1
read 0x8 0x0 1 1
read 0x8 0x1
read 0xc 0x0
begin
bytes 3 0x0 01000000feffffff0300000000000040
give 3 0x0 16
give 0 0x0 16
write 0x10 0x0
low 0x20 3 0x0
high 0x24 3 0x0
write 0x1c 0x10
write 0x8 0x0
write 0x4 0x2
"""


def traced(path: Path, phase: str = "never", code: int = 0) -> Artifact:
    program = fake.chain("a", None, host=kernel([4], 4))
    return artifact_of(*metadata_of(program, fake.devices(a=fake.runtime(phase, code))))


def test_firmware_records_without_memory_of_its_own(compilers: tuple[str, ...], tmp_path: Path) -> None:
    sources = [str(Path(__file__).with_name("recorded.c")), str(CSRC / "uma_trace.c")]
    for compiler in compilers:
        command = [compiler, *SANITIZED, "-I", str(CSRC), *sources, "-o", str(tmp_path / "program")]
        built = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (built.returncode, built.stderr) == (0, "")
        done = subprocess.run([tmp_path / "program"], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout, done.stderr) == (0, FIRMWARE, "")


def test_a_session_records_what_its_drivers_do(tmp_path: Path) -> None:
    """Each step is told where it has ended, and of memory what was not told yet; runs do not differ for it."""
    artifact, path = traced(tmp_path), tmp_path / "a.trace"
    with artifact.session(trace=path) as session:
        first, second = session.run(X), session.run(X)
        assert session.counters() == {"a": {"operations": 3, "bytes_moved": 32, "runs": 2}}
        assert not path.exists()
    np.testing.assert_array_equal(first["y"], artifact.run(X)["y"])
    np.testing.assert_array_equal(second["y"], first["y"])
    text = path.read_text()
    assert text.startswith(SESSION)
    runs = text.split("run\n")
    assert len(runs) == 3 and runs[1].count("bytes ") == 2 and runs[2].count("bytes ") == 0
    assert runs[2].endswith("take 0 0x0 16\nstep 0\nstep 1\nread 0x28 0x3\nread 0x2c 0x20\nclose\nend 93\n")
    assert len(text.splitlines()) == 94
    assert [one.name for one in tmp_path.iterdir() if one.name.startswith(".uma")] == []
    with artifact.session(trace=path) as session:
        session.run(X)
        session.run(X)
    assert path.read_text().splitlines()[:-2] == text.splitlines()[:-4]


def test_a_fault_is_in_the_trace(tmp_path: Path) -> None:
    path = tmp_path / "a.trace"
    with pytest.raises(DeviceError), traced(tmp_path, "step").session(trace=path) as session:
        session.run(X)
    assert path.read_text().endswith("read 0xc 0x7\nfault 0 0 7\nclose\nend 43\n")


def test_a_simulator_without_registers_shares_memory_all_the_same(tmp_path: Path) -> None:
    program = fake.chain("a", None, host=kernel([4], 4))
    artifact = artifact_of(*metadata_of(program, {"a": Device("a", "fake", "direct", fake.direct_runtime())}))
    with artifact.session(trace=tmp_path / "a.trace") as session:
        np.testing.assert_array_equal(session.run(X)["y"], 2 * X)
    text = (tmp_path / "a.trace").read_text()
    assert "give 3 0x0 16\n" in text and "take 0 0x0 16\nstep 0\n" in text
    assert "read" not in text and "write" not in text


def test_a_device_that_cannot_be_opened_is_tried_again(tmp_path: Path) -> None:
    path = tmp_path / "a.trace"
    with traced(tmp_path, "open", 3).session(trace=path) as session:
        for _ in range(2):
            with pytest.raises(DeviceError, match="could not be opened"):
                session.run(X)
    assert path.read_text().endswith('open\ndevice 0 "a" "fake" 1 3\nopen\nclose\nend 14\n')


def test_a_test_says_what_a_driver_reads() -> None:
    """With the devices of a session opened through a recorder of one's own."""
    text: list[bytes] = []
    recorder = Recorder("net", [["layer"], []], {}, text.append, lambda device, offset, value: device + offset + value)
    recorder.end()
    recorder.end()
    assert b"".join(text) == b'uma-trace 1\nmodel "net"\nregisters 32\nlayer 0 "layer"\nend 4\n'


def test_what_cannot_be_traced_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nothing to trace: the model runs on no device"):
        artifact_of(FILES, METADATA).session(trace=tmp_path / "a")
    artifact = traced(tmp_path)
    with pytest.raises(UsageError, match="cannot write the trace: the path is not a plain file"):
        artifact.session(trace=tmp_path)
    with pytest.raises(UsageError, match="cannot write the trace: No such file or directory"):
        artifact.session(trace=tmp_path / "missing" / "a.trace")
    with pytest.raises(UsageError, match="a trace"):
        artifact.session(trace=3)  # type: ignore[arg-type]  # a number is not a path


def test_nothing_is_left_of_a_session_that_nobody_closes(tmp_path: Path) -> None:
    session = traced(tmp_path).session(trace=tmp_path / "a.trace")
    session.run(X)
    (staged,) = tmp_path.iterdir()
    assert staged.name.startswith(".uma-")
    del session
    gc.collect()
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_told_when_the_session_is_closed(tmp_path: Path) -> None:
    class Device:
        def write(self, text: bytes) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

    session = traced(tmp_path).session(trace=tmp_path / "a.trace")
    session._file._file.close()  # type: ignore[attr-defined]  # of a `TracedSession`
    session._file._file = Device()  # type: ignore[attr-defined]  # of a `TracedSession`, and a disk that is full
    session.run(X)
    with pytest.raises(UsageError, match="cannot write the trace: No space left on device"):
        session.close()
    session.close()
    assert list(tmp_path.iterdir()) == []


def test_an_emulator_has_no_traces(tmp_path: Path) -> None:
    hosts = [{**METADATA["compile"]["hosts"][0], "machine": "arm-none-eabi cortex-m4", "runner": "qemu-mps2-an386"}]
    artifact = artifact_of(FILES, {**METADATA, "compile": {**METADATA["compile"], "hosts": hosts}})
    with pytest.raises(UsageError, match=r"runs in the emulator .*, where devices are not traced"):
        artifact.session(trace=tmp_path / "a.trace")


def test_what_records_must_load(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def broken(self: object, key: str, build: object) -> Path:
        (tmp_path / "broken.so").write_text("")
        return tmp_path / "broken.so"

    helper_library.part_of_runtime.cache_clear()
    monkeypatch.setattr(helper_library.Cache, "library", broken)
    with pytest.raises(ToolchainError, match="cannot load what records devices"):
        Recorder("net", [], {}, print)
