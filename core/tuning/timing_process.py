"""A process that builds, runs and times models, so that one that hangs or crashes is a result like others.

It is reached by pipes: it opens no socket, and only the process that started it can ask it for anything.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from typing import Any

from ..errors import ToolchainError
from ..toolchain.subprocesses import of_process

__all__ = ["LIMIT_S", "TimingProcess"]

LIMIT_S = 60.0
"""How long timing one part may take, in seconds, before it counts as hanging. Compilers have limits of their own."""

_START_LIMIT_S = 300.0

_START = f"""\
import json, sys
sys.path[:] = json.loads(sys.stdin.readline())["path"]
from {__package__}.timing_child import main
main()
"""
"""The process is told where to find what it imports."""


class TimingProcess:
    """The process, started when it is first needed, and again after each crash. Leave it by ``close``.

    Args:
        builds: whether it builds parts as well, for which it needs plugins: it then reads the ``.pth`` files of
            Python's ``site``, which make packages importable that are installed to be edited.
    """

    def __init__(self, *, builds: bool = False) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._log: Any = None
        self._options = ["-I"] if builds else ["-I", "-S"]

    def start(self) -> None:
        """Start the process unless it runs, and wait until it can be asked.

        Raises:
            ToolchainError: no process can be started.
        """
        self._running()

    def kill(self) -> None:
        """Kill the process from another thread than the one that asks it, which is then answered that it was killed."""
        process = self._process
        if process is not None and process.returncode is None:
            with contextlib.suppress(ProcessLookupError):  # it ended by itself
                os.killpg(process.pid, signal.SIGKILL)

    def ask(self, job: dict[str, Any], limit_s: float) -> dict[str, Any] | str:
        """What the process answers; or, in words, how it ended instead, or why the model cannot be run.

        Args:
            job: what to run, as `timing_child` has it.
            limit_s: how long that may take, in seconds.

        Raises:
            ToolchainError: no process can be started.
        """
        process = self._running()
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(json.dumps(job).encode() + b"\n")
            process.stdin.flush()
        except OSError:
            return self._ended()
        answer = self._answer(process, limit_s)
        return str(answer["error"]) if isinstance(answer, dict) and "error" in answer else answer

    def _answer(self, process: subprocess.Popen[bytes], limit_s: float) -> dict[str, Any] | str:
        assert process.stdout is not None
        line, end = b"", time.monotonic() + limit_s
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while not line.endswith(b"\n"):
                if not selector.select(max(end - time.monotonic(), 0.0)):
                    self.close()
                    return f"it did not end within {limit_s:g} s"
                piece = os.read(process.stdout.fileno(), 1 << 16)
                if not piece:
                    return self._ended()
                line += piece
        result: dict[str, Any] = json.loads(line)
        return result

    def close(self) -> None:
        """End the process, whatever it does."""
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):  # it ended by itself
            os.killpg(process.pid, signal.SIGKILL)
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):  # there is something in it that nobody reads any more
                    pipe.close()
        process.wait()
        self._log.close()

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is not None:
            return self._process
        if not sys.executable:
            raise ToolchainError("there is no Python to time parts with", hint="give a table of costs")
        self._log = tempfile.TemporaryFile(prefix="uma-timing-")  # noqa: SIM115 - until `close`
        try:
            process = subprocess.Popen(
                [sys.executable, *self._options, "-c", _START],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
                start_new_session=True,  # an interrupt is for this process, which then ends that one
            )
        except OSError as error:
            self._log.close()
            raise ToolchainError(f"cannot start a process: {error.strerror}", where=sys.executable) from error
        self._process = process
        assert process.stdin is not None
        with contextlib.suppress(OSError):  # it has ended, which its answer tells
            process.stdin.write(json.dumps({"path": sys.path}).encode() + b"\n")
            process.stdin.flush()
        ready = self._answer(process, _START_LIMIT_S)
        if isinstance(ready, str):
            raise ToolchainError(f"the process that times parts does not begin: {ready}", where=sys.executable)
        return process

    def _ended(self) -> str:
        """How the process ended by itself, in words."""
        process = self._process
        assert process is not None
        status = process.wait()
        how = of_process(status, self._log)
        self.close()
        return f"it {how}"
