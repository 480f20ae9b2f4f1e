"""The address of workers: processes on this machine, or those of a Dask scheduler.

Dask runs what any client sends, and clients unpickle what a scheduler answers. So a scheduler is reached by TLS, which
authenticates both sides by certificates; the exceptions are a scheduler on this machine and the user's permission.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
from collections.abc import Sequence
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from ..errors import UsageError
from ..support.suppress_logging import suppress_logging
from . import measurement_request as requests
from .local_workers import LocalWorkers
from .measurement_request import Request
from .workers import Link, NoWorkers, WorkerRequest

__all__ = ["check_workers", "connect"]

_ADDRESS = re.compile(r"(tcp|tls)://([A-Za-z0-9.-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\]):([0-9]{1,5})")
_LOCAL = re.compile(r"local:([1-9][0-9]{0,2})")
_MOST_LOCAL = 256
_GONE = (OSError, asyncio.TimeoutError)
_CONNECT_S = 10.0
_LISTENING = "0A"
"""A state of sockets in Linux's ``/proc/net/tcp``."""

_TLS_HINT = (
    "set DASK_DISTRIBUTED__COMM__TLS__CA_FILE, DASK_DISTRIBUTED__COMM__TLS__CLIENT__CERT and "
    "DASK_DISTRIBUTED__COMM__TLS__CLIENT__KEY to files, or write the same into Dask's configuration"
)


def check_workers(text: str, insecure: bool = False) -> str:
    """Return the address of workers if it is one that may be used.

    Args:
        text: ``tls://HOST:PORT`` or ``tcp://HOST:PORT`` of a Dask scheduler, or ``local:COUNT``.
        insecure: whether ``tcp://`` may lead to another machine.

    Raises:
        UsageError: it is not an address, or it leads to another machine without encryption and authentication.
    """
    address, local = _ADDRESS.fullmatch(text), _LOCAL.fullmatch(text)
    if not ((address and 1 <= int(address[3]) <= 65535) or (local and int(local[1]) <= _MOST_LOCAL)):
        hint = f"write tls://HOST:PORT for a scheduler of Dask, or local:2 for two here (at most {_MOST_LOCAL})"
        raise UsageError(f"{text[:60]!r} is not an address of workers", hint=hint)
    if address and address[1] == "tcp" and not insecure and not _is_loopback(address[2]):
        what = "tcp:// to another machine is neither encrypted nor authenticated: who answers there can run code here"
        hint = f"use tls://{address[2]}:{address[3]}, or allow it with --insecure-workers (insecure_workers=True)"
        raise UsageError(what, where=text, hint=hint)
    return text


def _is_loopback(host: str) -> bool:
    """Return whether a host's name can only mean this machine. Names other than ``localhost`` are not looked up."""
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def connect(text: str, insecure: bool = False) -> Link:
    """Reach the workers of an address.

    Args:
        text, insecure: as for `check_workers`.

    Raises:
        UsageError: as `check_workers`.
        NoWorkers: Dask is not installed, the certificates for TLS are missing or cannot be read, another user of this
            machine listens at the port, nobody answers there, no worker is there, or none can be started here.
    """
    check_workers(text, insecure)
    if local := _LOCAL.fullmatch(text):
        return LocalWorkers(int(local[1]))
    try:
        import distributed  # noqa: F401 - whether it is there
    except ImportError as error:
        what = "a scheduler of workers needs Dask, which is not installed"
        hint = "pip install 'uma-core[distributed]'; or use workers on this machine: local:2"
        raise NoWorkers(what, where=text, hint=hint) from error
    if text.startswith("tcp://") and not insecure:
        _check_listener(text)
    with suppress_logging():
        return _Dask(text)


def _check_listener(text: str) -> None:
    """Check that no other user of this machine listens at a port of it, as far as Linux says who does.

    Raises:
        NoWorkers: another user does.
    """
    port = int(text.rpartition(":")[2])
    for table in (Path("/proc/net/tcp"), Path("/proc/net/tcp6")):
        try:
            rows = [line.split() for line in table.read_text(encoding="ascii").splitlines()[1:]]
        except OSError:
            continue
        for row in rows:
            owner = int(row[7])
            if row[3] == _LISTENING and int(row[1].rpartition(":")[2], 16) == port and owner not in (os.geteuid(), 0):
                what = f"user {owner} listens at this port, not you, and could run code here"
                hint = "use another port, or tls://; or allow it with --insecure-workers (insecure_workers=True)"
                raise NoWorkers(what, where=text, hint=hint)


class _Dask:
    """The link to the workers of a Dask scheduler."""

    def __init__(self, text: str) -> None:
        import distributed

        is_tls = text.startswith("tls://")
        security = _tls_security(text) if is_tls else None
        self._left = contextlib.ExitStack()
        try:
            client: Any = distributed.Client
            self._client = client(text, timeout=_CONNECT_S, set_as_default=False, security=security)
            self._left.callback(self._client.close)
            self._client.wait_for_workers(1, timeout=_CONNECT_S)
        except _GONE as error:
            self.close()
            what = f"no workers answer within {_CONNECT_S:g} s"
            hint = "is the scheduler running (dask scheduler), and on each machine dask worker ADDRESS?"
            if is_tls:
                hint += " are all certificates signed by the same authority?"
            raise NoWorkers(what, where=text, hint=hint) from error
        except BaseException:
            self.close()
            raise

    def workers(self) -> Sequence[str]:
        """The addresses of those that are there; OSError where the scheduler is gone."""
        with suppress_logging():
            if self._client.status != "running":
                raise OSError("their scheduler does not answer")
            try:
                return list(self._client.nthreads())
            except _GONE as error:
                raise OSError("their scheduler does not answer") from error

    def ask(self, worker: str, request: Request, only_build: bool) -> WorkerRequest:
        """Hand a worker a request: a name, and text and numbers."""
        with suppress_logging():  # constants are large
            asked: WorkerRequest = self._client.submit(
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
        """Leave the workers."""
        with suppress_logging():
            self._left.close()


def _tls_security(where: str) -> Any:
    """Return the client's side of TLS, as Dask's configuration has it.

    Raises:
        NoWorkers: a certificate or key is missing, or cannot be read.
    """
    import distributed

    make: Any = distributed.Security
    security = make(require_encryption=True)
    missing = [
        name
        for name, value in (("certificate authority", security.tls_ca_file), ("certificate", security.tls_client_cert))
        if not value
    ]
    if missing:
        raise NoWorkers(f"TLS to the workers needs a {' and a '.join(missing)}", where=where, hint=_TLS_HINT)
    try:
        security.get_connection_args("client")
    except OSError as error:  # an ssl.SSLError is one
        what = f"the certificates for TLS to the workers cannot be read: {error.strerror or error}"
        files = ", ".join(filter(None, (security.tls_ca_file, security.tls_client_cert, security.tls_client_key)))
        raise NoWorkers(what, where=files, hint=_TLS_HINT) from error
    return security
