"""Sessions in an emulator: the protocol, on this machine's own programs, and what can go wrong with an emulator."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests._support import fake_device as fake
from tests._support.c_programs import SANITIZED
from tests._support.programs import kernel
from tests._support.tools import skip_without

from uma.codegen import emit_model
from uma.errors import DeviceError, InternalError, ModelError, PluginError, RequirementError, ToolchainError, UsageError
from uma.program import Buffer, Call, Program, plan
from uma.runtime import emulator
from uma.runtime.devices import DeviceInfo
from uma.runtime.emulator import EmulatedModel, EmulatedSession
from uma.runtime.emulator_image import make_image
from uma.runtime.state import SessionState
from uma.runtime.tensors import TensorInfo
from uma.support.machines import RUNNERS, Machine
from uma.toolchain.compile import CompileUnit
from uma.toolchain.discovery import find_compiler

SH = shutil.which("sh")
SLEEP = shutil.which("sleep")
X = np.array([1, -2, 3, 2**30], np.int32)
LINUX, BOARD = RUNNERS["qemu-aarch64"], RUNNERS["qemu-mps2-an386"]

Fake = Callable[[str, str], Path]


@pytest.fixture
def fake_emulator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fake:
    """``fake_emulator(program, script)`` puts a shell script before everything else on PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", os.pathsep.join([str(folder), os.environ["PATH"]]))

    def write(name: str, script: str) -> Path:
        path = folder / name
        path.write_text(f"#!{SH}\n{script}\n")
        path.chmod(0o755)
        return path

    return write


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UMA_CACHE_DIR", str(tmp_path_factory.getbasetemp() / "cache"))


@pytest.fixture
def here(fake_emulator: Fake) -> None:
    """An emulator that this machine is itself."""
    fake_emulator("qemu-aarch64", 'exec "$1"')


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


def modelled(program: Program, **failing: tuple[str, int]) -> EmulatedModel:
    """A program for this machine, which the fixture ``here`` runs."""
    devices = fake.devices(**{label: fake.runtime(*failing.get(label, ())) for label in program.devices})
    files = emit_model(program, plan(program), devices)
    contents = {name: text if isinstance(text, bytes) else text.encode() for name, text in files.contents.items()}
    part = CompileUnit(
        find_compiler(), [*files.sources, files.entry], ["-O1", "-std=c99", "-Wall", "-Wextra", "-Werror"]
    )
    return EmulatedModel(
        make_image([part], contents, LINUX, where="model net"),
        LINUX,
        program.name,
        *(
            tuple(TensorInfo(buffer.tensor or buffer.name, buffer.dtype, buffer.shape) for buffer in buffers)
            for buffers in (program.inputs, program.outputs, program.states)
        ),
        tuple(
            DeviceInfo(device.label, f"{device.kind}, {device.impl}", device.runtime.faults, device.runtime.counters)
            for device in devices.values()
        ),
        tuple(step.layers for step in program.steps),
        (),
        plan(program).arena_bytes,
    )


@pytest.mark.usefixtures("here")
class TestRunning:
    def test_a_run_and_its_counters(self) -> None:
        session = modelled(fake.chain("a", None, "b", host=kernel([4], 4))).session()
        with pytest.raises(UsageError, match="there are no counters: nothing was run yet"):
            session.counters()
        for _ in range(2):
            np.testing.assert_array_equal(session.run(X)["y"], 4 * X)
        counted = {"operations": 3, "bytes_moved": 32, "runs": 1}
        assert session.counters() == {"a": counted, "b": counted}
        session.close()
        with pytest.raises(UsageError, match="there are no counters: the session was closed"):
            session.counters()
        with pytest.raises(UsageError, match="the session was closed"):
            session.run(X)
        with pytest.raises(UsageError, match="the session was closed"):
            session.invoke()

    def test_buffers_arena_and_a_model_without_devices(self) -> None:
        program = fake.chain(None, None, host=kernel([4], 4))
        with modelled(program).session() as session:
            session.inputs["x"][...] = X
            session.invoke()
            np.testing.assert_array_equal(session.outputs["y"], X)
            offset = plan(program).offsets["t0"]
            np.testing.assert_array_equal(session.read_arena(offset, (4,), "int32"), X)
            assert session.counters() == {}
            with pytest.raises(UsageError, match="are not in an arena of"):
                session.read_arena(1 << 20, (4,), "int32")

    def test_an_input_of_another_type(self) -> None:
        with pytest.raises(ModelError, match=r"input 'x' is float32\[4\], expected int32\[4\]"):
            modelled(fake.chain("a")).session().run(X.astype(np.float32))

    def test_a_state(self) -> None:
        model = modelled(remembering("a"))
        session, other = model.session(), model.session()
        np.testing.assert_array_equal(session.save().arrays["h"], np.arange(4))
        session.run(X)
        kept = session.save()
        np.testing.assert_array_equal(kept.arrays["h"], np.arange(4) + X)
        session.run(X)
        np.testing.assert_array_equal(session.save().arrays["h"], np.arange(4) + 2 * X)
        other.restore(kept)
        other.run(X)
        np.testing.assert_array_equal(other.save().arrays["h"], np.arange(4) + 2 * X)
        session.reset()
        np.testing.assert_array_equal(session.save().arrays["h"], np.arange(4))
        with pytest.raises(ModelError, match="the state does not fit: the model keeps 'h': int32"):
            session.restore(SessionState(None, {"g": X}))

    def test_one_session_in_two_threads_is_noticed(self, fake_emulator: Fake, tmp_path: Path) -> None:
        session = modelled(fake.chain(None, host=kernel([4], 4))).session()
        loop = f"touch '{tmp_path}/busy'; while [ -e '{tmp_path}/busy' ]; do :; done; exec \"$1\""
        fake_emulator("qemu-aarch64", loop)
        thread = threading.Thread(target=session.run, args=(X,))
        thread.start()
        while not (tmp_path / "busy").exists():
            pass
        with pytest.raises(UsageError, match="used by two threads at once"):
            session.run(X)
        (tmp_path / "busy").unlink()
        thread.join()
        np.testing.assert_array_equal(session.outputs["y"], X)


@pytest.mark.parametrize("header", [b"", b"#define UMA_ABI_VERSION 1\n"])
def test_a_model_of_another_version(header: bytes) -> None:
    with pytest.raises(ModelError, match=r"the model has version \d of the ABI, this UMA reads version \d"):
        make_image(
            [CompileUnit(find_compiler(), ["m.c"])], {"m.c": b"", "uma_runtime.h": header}, LINUX, where="model m"
        )


@pytest.mark.few(1)
@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_the_program_is_clean(compiler: str, fake_emulator: Fake, tmp_path: Path) -> None:
    """Under sanitizers, which do not go into a static program: another one runs in its place."""
    skip_without(compiler)
    fake_emulator("qemu-aarch64", f"exec '{tmp_path}/program'")
    folder = Path(emulator.__file__).parent
    for program in (remembering("a", "b"), fake.chain(None, host=kernel([4], 4))):
        devices = fake.devices(**{label: fake.runtime() for label in program.devices})
        files = emit_model(program, plan(program), devices)
        own = {path.name: path.read_text() for path in (folder / "emulation").iterdir() if path.is_file()}
        for name, text in {**files.contents, **own}.items():
            (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
        sources = [*files.sources, files.entry, "uma_emulated.c", "uma_emulated_linux.c"]
        command = [compiler, *SANITIZED, "-I", str(folder / "csrc"), *sources, "-o", "program", "-lm"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        session = modelled(program).session()
        for _ in range(2):
            np.testing.assert_array_equal(session.run(X)["y"], 2 ** len(program.devices) * X)
        assert all(counted["operations"] == 3 for counted in session.counters().values())


@pytest.mark.usefixtures("here")
class TestDeviceFaults:
    @pytest.mark.few(2)
    @pytest.mark.parametrize(
        ("phase", "what"),
        [
            ("open", r"device 'b' \(fake, sim\) could not be opened: fault 3, this is not a fake device"),
            ("bus", r"device 'b' \(fake, sim\) could not be opened: fault 3, this is not a fake device"),
            ("activate", r"device 'b' \(fake, sim\) could not be activated: fault 3, this is not a fake device"),
            ("deactivate", r"device 'b' \(fake, sim\) could not be deactivated: fault 3, this is not a fake device"),
            ("close", r"device 'b' \(fake, sim\) could not be closed: fault 3, this is not a fake device"),
            ("step", r"device 'b' \(fake, sim\) stopped in step 1: fault 7, an address outside of the scratchpad"),
        ],
    )
    def test_each_phase(self, phase: str, what: str) -> None:
        with pytest.raises(DeviceError, match=what) as error:
            modelled(fake.chain("a", "b"), b=(phase, 3)).session().run(X)
        assert error.value.device == "b"
        assert error.value.layers == (("layer/1",) if phase == "step" else ())

    def test_a_run_that_is_stopped_half_way_needs_a_reset(self) -> None:
        session = modelled(remembering("a"), a=("step", 3)).session()
        with pytest.raises(DeviceError):
            session.run(X)
        for act in (lambda: session.run(X), session.save):
            with pytest.raises(UsageError, match="needs a state that was not left half-way"):
                act()
        session.reset()
        np.testing.assert_array_equal(session.save().arrays["h"], np.arange(4))

    def test_a_run_that_does_not_begin_changes_nothing(self) -> None:
        session = modelled(remembering("a"), a=("activate", 3)).session()
        with pytest.raises(DeviceError):
            session.run(X)
        np.testing.assert_array_equal(session.save().arrays["h"], np.arange(4))

    def test_a_driver_that_counts_something_else(self) -> None:
        model = modelled(fake.chain("a"))
        model = replace(model, devices=(replace(model.devices[0], counters=("one",)),))
        with pytest.raises(PluginError, match=r"the driver of device 'a' .* has 3 counters, its plugin names 1"):
            model.session().run(X)


def answering(fake_emulator: Fake, tmp_path: Path, response: bytes, model: EmulatedModel) -> EmulatedSession:
    """A session of which each run has one answer."""
    (tmp_path / "answer").write_bytes(response)
    fake_emulator(model.runner.program, f"cp '{tmp_path}/answer' response")
    return model.session()


PLAIN = EmulatedModel(
    Path("image"), BOARD, "net", (TensorInfo("x", "int32", (4,)),), (TensorInfo("y", "int32", (4,)),), (), (), (), (), 0
)
GOOD = struct.pack("<Q4q3Q", 0, 0, 0, 0, 0, 64, 128, 0) + X.tobytes() + struct.pack("<2q", 0, 0)


class TestEmulators:
    def test_the_answer(self, fake_emulator: Fake, tmp_path: Path) -> None:
        np.testing.assert_array_equal(answering(fake_emulator, tmp_path, GOOD, PLAIN).run(X)["y"], X)

    @pytest.mark.parametrize("response", [b"", GOOD[:40], GOOD[:-1], GOOD + b"\0"])
    def test_an_answer_of_another_length(self, response: bytes, fake_emulator: Fake, tmp_path: Path) -> None:
        with pytest.raises(ToolchainError, match=f"the program's result has {len(response)} bytes"):
            answering(fake_emulator, tmp_path, response, PLAIN).run(X)

    @pytest.mark.parametrize(
        ("outcome", "status", "error", "what"),
        [
            (1, 0, RequirementError, "the model needs 64 bytes of RAM .*, and qemu-mps2-an386 has 128 left"),
            (2, 0, ModelError, "the sources hold another model than the metadata says"),
            (4, 2, InternalError, "initialisation of model 'net' failed with UMA_ERR_ARENA"),
            (0, 1, InternalError, "a run of model 'net' failed with UMA_ERR_ARGUMENT"),
            (0, 77, InternalError, r"a run of model 'net' failed with an unknown status \(77\)"),
        ],
    )
    def test_bad_news(
        self, outcome: int, status: int, error: type[Exception], what: str, fake_emulator: Fake, tmp_path: Path
    ) -> None:
        response = struct.pack("<Q4q3Q", outcome, status, 0, 0, 0, 64, 128, 0) + GOOD[64:]
        with pytest.raises(error, match=what):
            answering(fake_emulator, tmp_path, response, PLAIN).run(X)

    @pytest.mark.parametrize(
        ("script", "what"),
        [
            (
                "echo no such machine; exit 1",
                r"the program stopped without a result \(exit status 1\)\n\s+no such machine",
            ),
            ("exit 99", "a fault stopped the CPU of qemu-mps2-an386"),
            ("kill -6 $$", "a fault stopped the CPU of qemu-mps2-an386"),
            ("exit 0", "cannot write what the emulator reads, or read what it writes: No such file"),
            (f"{SLEEP} 100", "qemu-system-arm did not finish within 0.3 s and was stopped"),
            (
                "while :; do echo yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy; done",
                "printed more than 1048576 bytes",
            ),
        ],
    )
    def test_emulators_that_fail(
        self, script: str, what: str, fake_emulator: Fake, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        fake_emulator("qemu-system-arm", script)
        monkeypatch.setattr(emulator, "_TIMEOUT_S", 0.3 if "sleep" in script else 60.0)
        with pytest.raises(ToolchainError, match=what) as error:
            PLAIN.session().run(X)
        assert ("its stack has 65,536 bytes" in str(error.value)) == ("a fault" in what)

    def test_one_that_is_not_installed(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setenv("PATH", str(tmp_path))
        with pytest.raises(ToolchainError, match="the emulator 'qemu-system-arm' is not installed") as error:
            PLAIN.session()
        assert error.value.hint == "install it: its package is often called qemu-system-arm"
        with pytest.raises(ToolchainError, match="the emulator 'qemu-aarch64' is not installed") as error:
            replace(PLAIN, runner=LINUX).session()
        assert error.value.hint == "install it: its package is often called qemu-user"

    def test_static_ones_go_by_another_name(self, fake_emulator: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
        path = fake_emulator("qemu-riscv64-static", "exit 1")
        monkeypatch.setenv("PATH", str(path.parent))
        assert replace(PLAIN, runner=RUNNERS["qemu-riscv64"]).session()._command[0] == str(path)


MAIN = """\
#include "uma_runtime.h"
const uma_model *uma_model_entry(void);
static const uma_model nothing;
const uma_model *uma_model_entry(void) { return &nothing; }
"""


class TestBoards:
    """What the linker makes of a board's memory; this needs the cross compiler, and no emulator."""

    def image(self, extra: str) -> Path:
        skip_without("arm-none-eabi-gcc")
        compiler = find_compiler(None, Machine.parse("arm-none-eabi cortex-m0"))
        header = (Path(emulator.__file__).parent / "csrc" / "uma_runtime.h").read_bytes()
        files = {"m.c": (MAIN + extra).encode(), "uma_runtime.h": header}
        flags = ["-mcpu=cortex-m0", "-mthumb", "-Os", "-std=c99"]
        return make_image([CompileUnit(compiler, ["m.c"], flags)], files, RUNNERS["qemu-microbit"], where="model m")

    def test_what_fits(self) -> None:
        assert self.image("").is_file()

    @pytest.mark.parametrize(
        ("extra", "what"),
        [
            ("const char table[262144] = {1};", r"takes 26\d,\d\d\d bytes of flash, and qemu-microbit has 262,144"),
            ("char memory[16384];", r"takes \d\d,\d\d\d bytes of RAM, and qemu-microbit has 16,384"),
            ("char memory[16384] = {1};", r"takes \d\d,\d\d\d bytes of RAM, and qemu-microbit has 16,384"),
        ],
    )
    def test_what_does_not(self, extra: str, what: str) -> None:
        with pytest.raises(RequirementError, match=what) as error:
            self.image(extra)
        assert error.value.exit_code == 4
