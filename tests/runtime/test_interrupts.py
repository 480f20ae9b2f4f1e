"""Ctrl-C and SIGTERM end a model that runs in C, behind the step in which they come."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import uma
from uma.errors import UsageError
from uma.runtime.session import ModelSession

LAYERS, SIZE = 60, 500
"""Each step takes some tenths of a second, and all of them minutes."""
TARGET = "c -opt=0"
T = f"Tensor[({SIZE}, {SIZE}), float32]"
MODEL = f"""\
@function
def main(x: {T}) -> Tuple[{T}, {T}]:
    v0 = nn.dense(x, x)
{"".join(f"    v{n} = nn.dense(v{n - 1}, x){chr(10)}" for n in range(1, LAYERS))}\
    return (v{LAYERS - 1}, v{LAYERS - 2})
"""


class Handled(Exception):
    """What a handler of a caller's own raises."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with pytest.MonkeyPatch.context() as patch:
        cache = tmp_path_factory.mktemp("cache")
        cache.chmod(0o700)
        patch.setenv("UMA_CACHE_DIR", str(cache))
        file = tmp_path_factory.mktemp("long") / "long.py"
        file.write_text(MODEL)
        yield file


@pytest.fixture(scope="module")
def artifact(model: Path) -> uma.Artifact:
    return uma.build(model, TARGET)


def wait_for_step(session: ModelSession) -> None:
    """Until the step has ended in which a run was interrupted."""
    while True:
        try:
            session.save()
        except UsageError as error:
            if "still in one of its steps" not in error.what:
                return
        time.sleep(0.01)


@contextmanager
def interrupted() -> Iterator[None]:
    """Within, what takes long is ended by a signal, the handler of which raises `Handled`."""

    def handle(number: int, frame: object) -> None:
        raise Handled

    before = signal.signal(signal.SIGINT, handle)
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    try:
        with pytest.raises(Handled):
            yield
    finally:
        timer.cancel()
        signal.signal(signal.SIGINT, before)


def test_in_python(artifact: uma.Artifact) -> None:
    with artifact.session() as session:
        with interrupted():
            session.run(np.eye(SIZE, dtype=np.float32))
        assert not any(array.any() for array in session.outputs.values())  # the last step never ran


def test_a_state_that_was_left_half_way_needs_a_reset(model: Path, artifact: uma.Artifact) -> None:
    output, _ = artifact.metadata["outputs"]
    with uma.build(model, TARGET, states={"x": output["name"]}).session() as session:
        with interrupted():
            session.run()
        wait_for_step(session)
        for what, use in (("a run", session.run), ("saving the state", session.save)):
            with pytest.raises(UsageError, match=f"{what} needs a state that was not left half-way"):
                use()
        session.reset()
        assert not session.save().arrays["x"].any()


def wait_for_work(process: subprocess.Popen[str], seconds: int) -> None:
    """Until a process has used so much time of a processor, however busy the machine is, or has ended."""
    stat = Path(f"/proc/{process.pid}/stat")
    if not stat.exists():
        time.sleep(seconds)
        return
    while process.poll() is None:
        times = stat.read_text().rpartition(")")[2].split()[11:13]
        if sum(map(int, times)) >= seconds * os.sysconf("SC_CLK_TCK"):
            return
        time.sleep(0.05)


@pytest.mark.few(1)
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_on_the_command_line(model: Path, number: int, code: int) -> None:
    folder = model.parent
    command = [sys.executable, "-m", "uma", "run", str(model), "--target", TARGET, "--outputs", "out.npz"]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        wait_for_work(process, 2)  # what was compiled before is taken from the cache
        process.send_signal(number)
        _, err = process.communicate(timeout=60)
    assert process.returncode == code and err.splitlines()[-1] == "uma: interrupted" and "Traceback" not in err
    assert sorted(path.name for path in folder.iterdir()) == ["long.py"]
