"""Running what may never end, or end the process, in a child: a plugin that is imported may do either."""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time
import warnings
from collections.abc import Callable
from contextlib import redirect_stderr
from functools import partial
from io import StringIO
from typing import TYPE_CHECKING, Any

from ..errors import UmaError
from ..support.json_record import to_json
from .output import Output

if TYPE_CHECKING:
    from ..plugins import PluginHost

__all__ = ["PLUGIN_SECONDS", "ChildFailed", "print_from_child", "run_in_child"]

PLUGIN_SECONDS = 30.0
"""How long importing one plugin may take."""


class ChildFailed(Exception):
    """The child gave nothing: the message says how it ended, as a predicate."""


def run_in_child(action: Callable[[], Any], seconds: float) -> Any:
    """What ``action`` gives, from a child of this process, in which all is as it is here.

    Args:
        action: gives what JSON can hold. What it changes is gone with the child.
        seconds: how long it may take.

    Raises:
        ChildFailed: it took longer, ended its process, or raised something.
    """
    reader, writer = os.pipe()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:  # None where the parent process has closed it
            stream.flush()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of threads, which the child does without
        child = os.fork()
    if child == 0:
        _run(action, reader, writer)
    os.close(writer)
    try:
        data = _read(reader, time.monotonic() + seconds)
    except BaseException:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        raise
    finally:
        os.close(reader)
    if data is None:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        raise ChildFailed(f"did not finish in {seconds:g} s")
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    try:
        return json.loads(data)
    except ValueError:
        how = f"with {signal.Signals(-status).name}" if status < 0 else f"with status {status}"
        raise ChildFailed(f"ended the process {how}") from None


def print_from_child(command: Callable[[Output], int], out: Output, host: PluginHost) -> int:
    """Run a command that imports plugins and prints in a child, and print here what it printed there.

    If the child ends, each plugin is imported in a child of its own. One that ends that too is at fault: it is not
    imported here, where the command then runs.

    Args:
        command: prints to what it is given, and returns its exit code.
        out: where to print.
        host: the plugins.

    Raises:
        UmaError: raised by the command.
    """

    def run() -> tuple[int, str, str] | None:
        stdout, stderr = StringIO(), StringIO()
        with redirect_stderr(stderr):
            try:
                code = command(Output(stdout, as_json=out.as_json, quiet=out.quiet, verbose=out.verbose))
            except UmaError:
                return None  # it is raised here, with its cause
        return code, stdout.getvalue(), stderr.getvalue()

    try:
        printed = run_in_child(run, PLUGIN_SECONDS * max(1, len(host.names())))
    except ChildFailed:
        _set_aside(host)
        return command(out)
    if printed is None:
        return command(out)
    code, text, complaints = printed
    if complaints:
        out.complain(complaints.removesuffix("\n"))
    out.relay(text)
    return int(code)


def _set_aside(host: PluginHost) -> None:
    """Have the plugins that end a child not be imported here."""
    for status in host.plugins():
        if status.state in ("disabled", "quarantined"):
            continue
        try:
            run_in_child(partial(_import, host, status.entry.distribution), PLUGIN_SECONDS)
        except ChildFailed as how:
            host.set_aside(status.entry, str(how))


def _import(host: PluginHost, name: str) -> None:
    host.examine(name)


def _run(action: Callable[[], Any], reader: int, writer: int) -> None:
    """The child's life, which ends here whatever happens."""
    status = 1
    try:
        os.close(reader)
        data = json.dumps(to_json(action())).encode()
        while data:
            data = data[os.write(writer, data) :]
        status = 0
    except BaseException:  # noqa: BLE001 - nothing of the parent's may go on in the child
        pass
    finally:
        os._exit(status)


def _read(reader: int, deadline_s: float) -> bytes | None:
    """All that is written until the other end is closed; None where that is not by the deadline."""
    data = b""
    while True:
        ready, _, _ = select.select([reader], [], [], max(deadline_s - time.monotonic(), 0))
        if not ready:
            return None
        part = os.read(reader, 1 << 16)
        if not part:
            return data
        data += part
