"""Starting compilers, linkers and emulators: without a shell, with limits on time and output."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import IO, cast

from ..errors import RequirementError, ToolchainError

__all__ = ["Running", "ending", "excerpt", "no_thread", "of_process", "run"]

_MAX_OUTPUT_BYTES = 1 << 20


class Running:
    """The tools that work on one thing, each the leader of a process group, so that they can be stopped together."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._leaders: set[int] = set()
        self._stopped = False

    def add(self, leader: int) -> None:
        with self._lock:
            self._leaders.add(leader)
            if self._stopped:
                _kill(leader)

    def remove(self, leader: int) -> None:
        """Before its process is waited for: until then nothing else has its number."""
        with self._lock:
            self._leaders.discard(leader)

    def stop(self) -> None:
        """Kill all that were added, and all that will be."""
        with self._lock:
            self._stopped = True
            for leader in self._leaders:
                _kill(leader)


def _kill(leader: int) -> None:
    try:
        os.killpg(leader, signal.SIGKILL)
    except ProcessLookupError:
        pass  # it ended by itself just now


def run(
    command: Sequence[str],
    *,
    cwd: Path | None,
    timeout_s: float,
    temporary: Path | None = None,
    running: Running | None = None,
    hint: str | None = None,
) -> tuple[int, str]:
    """Exit status and merged output of a tool; it and its children are killed when it hangs or floods.

    Args:
        command: an absolute path, and arguments.
        cwd: the folder that it works in; None for this process's.
        timeout_s: seconds that it may take.
        temporary: the folder for its temporary files, which it leaves there when it is killed; None for the usual one.
        running: what it belongs to.
        hint: what to do where it cannot be started.

    Raises:
        ToolchainError: it cannot be started, hung, or printed more than a megabyte.
        RequirementError: there is no room for a thread, which keeps the time.
    """
    running = running or Running()
    try:
        process = subprocess.Popen(
            command,
            cwd=cwd,
            env={**os.environ, "LC_ALL": "C", **({} if temporary is None else {"TMPDIR": str(temporary)})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # a compiler has children that hold the pipe: they must go with it
        )
    except OSError as error:
        raise ToolchainError(
            f"cannot start {Path(command[0]).name}: {error.strerror}", where=command[0], hint=hint
        ) from error
    running.add(process.pid)
    expired = threading.Event()

    def expire() -> None:
        expired.set()
        _kill(process.pid)

    timer = threading.Timer(timeout_s, expire)
    pipe = cast("IO[bytes]", process.stdout)
    flooded = True
    try:
        try:
            timer.start()
        except RuntimeError as error:
            raise no_thread(error) from error
        output = pipe.read(_MAX_OUTPUT_BYTES + 1)
        flooded = len(output) > _MAX_OUTPUT_BYTES
    finally:
        if flooded:
            _kill(process.pid)
        pipe.close()
        running.remove(process.pid)
        process.wait()
        timer.cancel()
        if timer.ident is not None:
            timer.join()  # a plugin that has something compiled must not seem to leave it behind
    if expired.is_set():
        raise ToolchainError(
            f"{Path(command[0]).name} did not finish within {timeout_s:g} s and was stopped", where=shlex.join(command)
        )
    if flooded:
        raise ToolchainError(
            f"{Path(command[0]).name} printed more than {_MAX_OUTPUT_BYTES} bytes and was stopped",
            where=shlex.join(command),
        )
    return process.returncode, output.decode("utf-8", "replace")


def no_thread(error: RuntimeError) -> RequirementError:
    """What Python says where the system has no room for one more thread."""
    hint = "raise the limits on memory and processes (ulimit -a), or end something else"
    return RequirementError(f"the C compiler cannot be watched: {error}", hint=hint)


def ending(status: int) -> str:
    """How a tool ended, in words."""
    return f"killed by signal {-status}" if status < 0 else f"exit status {status}"


def of_process(status: int, log: IO[bytes]) -> str:
    """How a process ended that ran compiled code, in words that follow its name, with the beginning of what it said."""
    log.seek(0)
    text = excerpt(log.read(1 << 16).decode("utf-8", "replace"))
    how = f"ended the process with exit status {status}"
    if status < 0:
        names = {int(one): one.name for one in signal.Signals}
        how = f"crashed: {names.get(-status, 'signal')} ({-status})"
    return f"{how}\n{text}" if text else how


def excerpt(text: str, lines: int = 10, columns: int = 200) -> str:
    """The first lines of what a tool printed, for an error."""
    shown = [line[:columns] for line in text.splitlines() if line.strip()]
    more = [f"... {len(shown) - lines} more lines"] if len(shown) > lines else []
    return "\n".join(f"    {line}" for line in [*shown[:lines], *more])
