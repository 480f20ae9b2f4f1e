"""Workers on this machine, for one build: processes that are asked through pipes.

They open no socket, so nobody can connect to them: neither another machine nor another user of this one. Each ends when
the process that started it does, however that ends.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from ..errors import ToolchainError
from .measurement_request import Request
from .timing_process import TimingProcess
from .workers import NoWorkers

__all__ = ["LocalWorkers"]

_LIMIT_S = 24 * 3600.0
"""For one answer, in seconds; `workers.LIMIT_S`, after which a worker is not used any more, is much shorter."""


class LocalWorkers:
    """The link to worker processes, which it starts.

    Args:
        count: the number of processes.

    Raises:
        NoWorkers: one of them cannot be started.
    """

    def __init__(self, count: int) -> None:
        self._workers = {f"local:{number}": _Worker() for number in range(1, count + 1)}
        try:
            for ready in [worker.start() for worker in self._workers.values()]:
                ready.result()
        except ToolchainError as error:
            self.close()
            raise NoWorkers(f"{count} workers cannot be started: {error.what}", where=error.where) from error
        except BaseException:
            self.close()
            raise

    def workers(self) -> Sequence[str]:
        """The names of the processes that have not ended."""
        return [name for name, worker in self._workers.items() if not worker.is_lost]

    def ask(self, worker: str, request: Request, only_build: bool) -> _Answer:
        """Hand a worker a request; it answers them one by one."""
        return self._workers[worker].ask(request, only_build)

    def close(self) -> None:
        """End the processes, whatever they do."""
        for worker in self._workers.values():
            worker.kill()
        for worker in self._workers.values():
            worker.close()


class _Worker:
    """A process, and the thread that asks it."""

    def __init__(self) -> None:
        self.is_lost = False
        self._process = TimingProcess(builds=True)
        self._thread = ThreadPoolExecutor(1, "uma-worker")

    def start(self) -> Future[None]:
        return self._thread.submit(self._process.start)

    def ask(self, request: Request, only_build: bool) -> _Answer:
        return _Answer(self, self._thread.submit(self._exchange, request, only_build))

    def _exchange(self, request: Request, only_build: bool) -> str:
        constants = base64.b64encode(request.constants).decode("ascii")
        message = {"do": "part", "text": request.text, "constants": constants, "only_build": only_build}
        answer = "it was lost" if self.is_lost else self._process.ask(message, _LIMIT_S)
        if isinstance(answer, str):
            self.is_lost = True
            raise OSError(answer)
        return str(answer["answer"])

    def kill(self) -> None:
        self.is_lost = True
        self._process.kill()

    def close(self) -> None:
        self._thread.shutdown(cancel_futures=True)
        self._process.close()


class _Answer:
    """An answer that is waited for. That of a worker that is lost never comes: `WorkerPool` asks another one."""

    def __init__(self, worker: _Worker, text: Future[str]) -> None:
        self._worker, self._text = worker, text

    def done(self) -> bool:
        return self._text.done() and not self._worker.is_lost

    def result(self) -> str:
        return self._text.result()

    def cancel(self) -> object:
        return self._text.cancel()
