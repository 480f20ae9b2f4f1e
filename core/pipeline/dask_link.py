"""Workers by Dask: of a scheduler that has an address, or of a cluster on this machine that is there for one build."""

from __future__ import annotations

import asyncio
import contextlib
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from typing import Any

from ..errors import UsageError
from ..quiet import quietly
from . import request as requests
from .request import Request
from .workers import Asked, Link, NoWorkers

__all__ = ["check_workers", "connect"]

_ADDRESS = re.compile(r"tcp://([A-Za-z0-9.-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\]):([0-9]{1,5})")
_LOCAL = re.compile(r"local:([1-9][0-9]{0,2})")
_MOST_LOCAL = 256
_GONE = (OSError, asyncio.TimeoutError)
_CONNECT_S = 10.0
_START_S = 60.0


def check_workers(text: str) -> str:
    """The address of workers, which it is.

    Args:
        text: ``tcp://HOST:PORT`` of a scheduler of Dask, or ``local:COUNT``.

    Raises:
        UsageError: it is none.
    """
    address, local = _ADDRESS.fullmatch(text), _LOCAL.fullmatch(text)
    if not ((address and 1 <= int(address[2]) <= 65535) or (local and int(local[1]) <= _MOST_LOCAL)):
        hint = f"write tcp://HOST:PORT for a scheduler of Dask, or local:2 for two here (at most {_MOST_LOCAL})"
        raise UsageError(f"{text[:60]!r} is no address of workers", hint=hint)
    return text


def connect(text: str) -> Link:
    """The workers of an address.

    Raises:
        UsageError: it is no address.
        NoWorkers: Dask is not installed, nobody answers there, no worker is there, or none can be started here.
    """
    check_workers(text)
    try:
        import distributed  # noqa: F401 - whether it is there
    except ImportError as error:
        what = "workers need Dask, which is not installed"
        raise NoWorkers(what, hint="pip install 'uma-core[distributed]'") from error
    with quietly():
        return _Dask(text)


class _Dask:
    """The link that `connect` gives."""

    def __init__(self, text: str) -> None:
        import distributed

        self._left = contextlib.ExitStack()
        local = _LOCAL.fullmatch(text)
        count = int(local[1]) if local else 1
        try:
            address = self._cluster(count) if local else text
            client: Any = distributed.Client
            self._client = client(address, timeout=_CONNECT_S, set_as_default=False)
            self._left.callback(self._client.close)
            self._client.wait_for_workers(count, timeout=_START_S if local else _CONNECT_S)
        except _GONE as error:
            self.close()
            if local:
                raise NoWorkers(f"{count} workers do not start within {_START_S:g} s", where=text) from error
            what = f"no workers answer within {_CONNECT_S:g} s"
            hint = "is the scheduler running (dask scheduler), and on each machine dask worker ADDRESS?"
            raise NoWorkers(what, where=text, hint=hint) from error
        except BaseException:
            self.close()
            raise

    def _cluster(self, count: int) -> str:
        """Start workers here; the address of their scheduler."""
        import distributed

        local: Any = distributed.LocalCluster
        cluster = local(
            n_workers=0,
            processes=False,
            protocol="tcp://",
            host="127.0.0.1",
            dashboard_address=None,
            silence_logs=False,
        )
        self._left.callback(cluster.close)
        folder = self._left.enter_context(
            tempfile.TemporaryDirectory(prefix="uma-workers-", ignore_cleanup_errors=True)
        )
        address = str(cluster.scheduler_address)
        for _ in range(count):
            # Processes of their own kind: none begins by importing the program that this one runs.
            command = [sys.executable, "-m", "distributed.cli.dask_worker", address, "--nthreads", "1"]
            options = ["--no-nanny", "--no-dashboard", "--memory-limit", "0", "--local-directory", folder]
            process = subprocess.Popen(
                [*command, *options],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # an interrupt is for this process, which then ends that one
            )
            self._left.callback(partial(_end, process))
        return address

    def workers(self) -> Sequence[str]:
        """The addresses of those that are there; OSError where the scheduler is gone."""
        with quietly():
            if self._client.status != "running":
                raise OSError("their scheduler does not answer")
            try:
                return list(self._client.nthreads())
            except _GONE as error:
                raise OSError("their scheduler does not answer") from error

    def ask(self, worker: str, request: Request, only_build: bool) -> Asked:
        """Hand a worker a request: a name, and text and numbers."""
        with quietly():  # constants are large
            asked: Asked = self._client.submit(
                requests.answer,
                request.text,
                request.constants,
                only_build,
                workers=[worker],
                allow_other_workers=False,
                pure=False,
            )
        return asked

    def close(self) -> None:
        """Leave the workers, and end those that were started here."""
        with quietly():
            self._left.close()


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
