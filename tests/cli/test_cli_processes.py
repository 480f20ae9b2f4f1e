"""The command line as a process of its own: how fast it starts, signals, pipes, a full disk."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests._support.installed import install

COMMAND = (sys.executable, "-m", "uma")


def uma(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=120, check=False, **options)


def environment(**changes: str) -> Mapping[str, str]:
    return {**os.environ, **changes}


def test_help_imports_nothing_heavy() -> None:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "uma", "--help"], capture_output=True, text=True, check=True
    )
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "uma.cli" in imported
    heavy = {
        "numpy",
        "cffi",
        "pluggy",
        "onnx",
        "importlib.metadata",
        "importlib_metadata",
        "email",
        "statistics",
        "tempfile",
        "tomllib",
    }
    heavy |= {"uma.relay", "uma.plugins", "uma.runtime"}
    assert not imported & heavy


def test_the_script_and_the_module_are_one() -> None:
    script = Path(sys.executable).with_name("uma")
    if not script.exists():
        pytest.skip("uma-core is not installed beside this Python")
    done = subprocess.run([script, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == uma("--version").stdout


def test_plain_output_in_a_pipe(folder: Path) -> None:
    done = uma("build", "net.py", "--target", "c", env=environment(TERM="xterm"))
    assert done.returncode == 0
    assert done.stderr == "" and "\x1b" not in done.stdout and "\r" not in done.stdout


def test_a_reader_that_has_seen_enough(folder: Path) -> None:
    command = [*COMMAND, "build", "net.py", "--target", "c", "--stop-after", "import"]
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_a_full_disk_behind_stdout(folder: Path) -> None:
    with open("/dev/full", "w", encoding="utf-8") as full:
        done = subprocess.run([*COMMAND, "targets"], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == "uma: error: cannot write to standard output: No space left on device\n"


@pytest.mark.few(2)
@pytest.mark.parametrize("limit_bytes", [0, 2000, 10_000])
def test_a_full_disk(limit_bytes: int, folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """No file may grow beyond a limit, in this process and the compiler's."""

    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # writing fails then, as it does on a full disk
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, limit_bytes))

    cache = tmp_path_factory.mktemp("full") / "cache"
    before = sorted(folder.rglob("*"))
    variables = environment(UMA_CACHE_DIR=str(cache), PYTHONDONTWRITEBYTECODE="1")  # it would be cut off too
    done = uma("build", "net.py", "--target", "c", env=variables, preexec_fn=limit)
    assert done.returncode == 6, done.stderr
    assert done.stderr.startswith("uma: error: ") and "Traceback" not in done.stderr
    assert sorted(folder.rglob("*")) == before
    assert not any(cache.iterdir())


SLOW_COMPILER = """#!/bin/sh
case "$1" in
--version) echo Free Software Foundation;;
-dumpmachine) echo x86_64-linux-gnu;;
*) touch "$STARTED"; sleep 60;;
esac
"""


def heed_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.few(1)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_during_a_build(
    number: signal.Signals, folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    tools = tmp_path_factory.mktemp("tools")
    compiler, started, cache = tools / "cc", tools / "started", tools / "cache"
    compiler.write_text(SLOW_COMPILER)
    compiler.chmod(0o700)
    env = environment(CC=str(compiler), STARTED=str(started), UMA_CACHE_DIR=str(cache))
    before = sorted(folder.rglob("*"))
    command = [*COMMAND, "build", "net.py", "--target", "c", "-o", "new/out"]
    given: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    # Who runs the tests in the background may have Ctrl-C ignored, which is handed on.
    with subprocess.Popen(command, env=env, preexec_fn=heed_interrupts, **given) as process:
        while not started.exists():
            assert process.poll() is None, process.communicate()
            time.sleep(0.01)
        process.send_signal(number)
        out, err = process.communicate(timeout=25)  # the compiler would take a minute
    assert (process.returncode, out, err) == (128 + number, "", "uma: interrupted\n")
    assert sorted(folder.rglob("*")) == before
    assert not any(cache.iterdir())


CHATTY = """
import os, subprocess, sys
from uma.hookspecs import hookimpl
from uma.targets import TargetKind

print("imported, with print")
os.write(1, b"and to the file below\\n")
subprocess.run(["echo", "and by a tool"], check=True)

@hookimpl
def register_target():
    print("asked for its kinds")
    return [TargetKind("chatty", help="talks", device_type="npu")]

@hookimpl
def patterns(target):
    sys.stdout.write("asked for its patterns")
    return []
"""

SAID = (
    "imported, with print",
    "and to the file below",
    "and by a tool",
    "asked for its kinds",
    "asked for its patterns",
)


@pytest.mark.few(1)
@pytest.mark.parametrize("form", [[], ["--json"]])
def test_what_a_plugin_prints_goes_to_stderr(form: list[str], folder: Path) -> None:
    install(folder, "uma-chatty", ["chatty"], CHATTY)
    path = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
    done = uma("build", "net.py", "--target", "chatty", "--target", "c", *form, env=environment(PYTHONPATH=path))
    assert done.returncode == 0, done.stderr
    assert all(said in done.stderr and said not in done.stdout for said in SAID)
    if form:
        assert json.loads(done.stdout)["name"] == "net"
    else:
        assert done.stdout.startswith("net: built for chatty, c in ")


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_streams_that_are_closed(closed: str, folder: Path) -> None:
    command = f"exec {sys.executable} -m uma targets --json {closed}"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert done.stderr == "" and bool(done.stdout) == (closed == "2>&-")


def test_a_closed_stream_gives_its_number_to_no_file(folder: Path) -> None:
    code = "import os, sys, uma.cli; sys.argv[1:] = ['targets']; uma.cli.main(); print(os.readlink('/proc/self/fd/2'))"
    done = subprocess.run(["sh", "-c", f'exec {sys.executable} -c "{code}" 2>&-'], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == os.devnull
