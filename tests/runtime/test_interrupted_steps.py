"""Ctrl-C and SIGTERM end what runs long within one step: native code, a reference, a child process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests._support.onnx_builder import OnnxBuilder

from uma.support.interruptible import Detached, call_interruptibly, is_abandoned

SIZE = 4000
"""One product of two such squares takes minutes in C without optimisation, and half a minute in the reference."""
T = f"Tensor[({SIZE}, {SIZE}), float32]"
MODEL = f"""\
@function
def main(x: {T}) -> {T}:
    return nn.dense(x, x)
"""
PATIENCE_S = 10
"""Of the test, on a machine that has other things to do. The product takes less than a second."""


def marked(mark: str) -> list[int]:
    """The processes that have a mark in their environment."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and f"UMA_TEST_MARK={mark}".encode() in (entry / "environ").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue  # it has ended, or is somebody else's
    return found


def busy_s(mark: str) -> float:
    """How much time of processors the marked processes have used."""
    ticks = 0
    for pid in marked(mark):
        try:
            ticks += sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]))
        except OSError:
            continue
    return ticks / os.sysconf("SC_CLK_TCK")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    cache = tmp_path / "cache"
    cache.mkdir(mode=0o700)
    monkeypatch.setenv("UMA_CACHE_DIR", str(cache))
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    (work / "long.py").write_text(MODEL)
    yield work


def interrupted(arguments: list[str], number: int, seconds: float) -> tuple[int, str, float]:
    """The exit status, stderr and time to the end of a process that gets a signal after it has worked so long."""
    mark = uuid.uuid4().hex
    process = subprocess.Popen(
        [sys.executable, *arguments],
        env={**os.environ, "UMA_TEST_MARK": mark},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL) and None,
    )
    with process:
        while busy_s(mark) < seconds:
            assert process.poll() is None, process.communicate()
            time.sleep(0.05)
        process.send_signal(number)
        start = time.monotonic()
        try:
            _, err = process.communicate(timeout=60)
        finally:
            process.kill()
        took_s = time.monotonic() - start
    end = time.monotonic() + PATIENCE_S
    while marked(mark) and time.monotonic() < end:
        time.sleep(0.05)
    assert marked(mark) == []  # no child is left
    return process.returncode, err, took_s


def matmul_net() -> bytes:
    b = OnnxBuilder()
    x = b.input("x", [SIZE, SIZE])
    return b.build(b.node("MatMul", x, b.constant(np.eye(SIZE), "float32")))


TARGETS = ("--target", "matrix_unit", "--target", "c")
COMMANDS = {
    "run": (["run", "long.py", "--target", "c -opt=0"], 4.0),
    "verify": (["verify", "long.py", "--target", "c -opt=0", "--samples", "1"], 5.0),
    "verify's reference": (["verify", "long.py", "--target", "c -opt=3", "--samples", "1"], 16.0),
    "quantize": (
        ["quantize", "net.onnx", "--data", "data.npz", *TARGETS, "-o", "out.onnx"],
        8.0,
    ),
    "plan": (["plan", "long.py", "--target", "onednn", "--target", "c -opt=0", "-o", "plan.json"], 6.0),
    "check": (["check", "uma-matrix-unit"], 8.0),
}


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="there is no /proc")
@pytest.mark.soak
@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_command(command: str, number: signal.Signals, folder: Path) -> None:
    arguments, seconds = COMMANDS[command]
    if command == "quantize":
        (folder / "net.onnx").write_bytes(matmul_net())
        np.savez(folder / "data.npz", x=np.ones((2, SIZE, SIZE), np.float32))
    before = sorted(folder.iterdir())
    code, err, took_s = interrupted(["-m", "uma", *arguments], number, seconds)
    assert (code, err.splitlines()[-1]) == (128 + number, "uma: interrupted"), err
    assert "Traceback" not in err and took_s < PATIENCE_S
    assert sorted(folder.iterdir()) == before


SCRIPT = """
import numpy as np, uma
artifact = uma.build("long.py", "c -opt=0")
artifact.run(np.ones((4000, 4000), np.float32))
"""


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="there is no /proc")
@pytest.mark.soak
def test_a_program_of_the_user(folder: Path) -> None:
    """Python's own handler of SIGINT raises KeyboardInterrupt, which ends the program as it ends any other."""
    code, err, took_s = interrupted(["-c", SCRIPT], signal.SIGINT, 4.0)
    assert code == -signal.SIGINT and err.splitlines()[-1] == "KeyboardInterrupt" and took_s < PATIENCE_S


class Handled(Exception):
    """What a handler raises."""


def raise_handled(number: int, frame: object) -> None:
    raise Handled


@pytest.fixture
def handler() -> Iterator[None]:
    before = signal.signal(signal.SIGUSR1, raise_handled)
    yield
    signal.signal(signal.SIGUSR1, before)


class TestDetached:
    def test_a_result_and_an_error(self) -> None:
        assert call_interruptibly(threading.get_ident) != threading.get_ident()
        with pytest.raises(ZeroDivisionError):
            call_interruptibly(lambda: 1 // 0)

    def test_another_thread_calls_by_itself(self) -> None:
        found: list[bool] = []
        thread = threading.Thread(
            target=lambda: found.append(call_interruptibly(threading.get_ident) == threading.get_ident())
        )
        thread.start()
        thread.join()
        assert found == [True]

    def test_a_signal_ends_the_wait_and_the_call_learns_of_it(self, handler: None) -> None:
        abandoned, after = threading.Event(), threading.Event()

        def work() -> None:
            os.kill(os.getpid(), signal.SIGUSR1)
            while not is_abandoned():
                time.sleep(0.001)
            abandoned.set()

        call = Detached(work)
        with pytest.raises(Handled):
            call.wait()
        assert abandoned.wait(PATIENCE_S)
        while call.is_running:
            time.sleep(0.001)
        call.after(after.set)
        assert after.is_set() and not is_abandoned()

    def test_what_follows_is_called_when_the_call_ends(self, handler: None) -> None:
        go, after = threading.Event(), threading.Event()

        def work() -> None:
            os.kill(os.getpid(), signal.SIGUSR1)
            go.wait(PATIENCE_S)

        call = Detached(work)
        with pytest.raises(Handled):
            call.wait()
        assert call.is_running
        call.after(after.set)
        assert not after.is_set()
        go.set()
        assert after.wait(PATIENCE_S)

    def test_without_a_thread_it_is_called_here(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def none(*_: object) -> int:
            raise RuntimeError("can't start new thread")

        monkeypatch.setattr("uma.support.interruptible._thread.start_new_thread", none)
        assert call_interruptibly(threading.get_ident) == threading.get_ident()
