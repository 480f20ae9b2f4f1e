"""Workers: processes, here or on other machines, that build parts and tell what these take.

Each is handed a few requests at a time. What a worker that is lost was given another one gets; what none can tell is
measured here. A worker counts for a target when it has the same versions, compiler and CPU as this process, and builds
the same program from one part that is built here as well. Times are kept on disk as they arrive.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ..errors import UsageError
from ..support.json_record import to_json
from .measurement import Measurement, costs_folder, read_kept, write_kept
from .measurement_request import REMOTE_ERRORS, Request, WorkerAnswer, answer, read_answer
from .region_measurement import RegionRefused

__all__ = ["Link", "NoWorkers", "WorkerPool", "WorkerRequest"]

AT_ONCE = 2
"""How many requests a worker is given, so that it has the next when it has answered one."""

LIMIT_S = 600.0
"""After how many seconds a worker that has not answered is given up."""

_LOOK_S = 0.5
_NAP_S = 0.005
_MOST_LOST = 2


class NoWorkers(UsageError):
    """There are no workers where they are said to be, or none can be used."""


class WorkerRequest(Protocol):
    """A question to a worker."""

    def done(self) -> bool:
        """Whether there is an answer, or will be none."""

    def result(self) -> str:
        """The answer; any error where there is none."""

    def cancel(self) -> object:
        """The answer is not waited for any more."""


class Link(Protocol):
    """The way to workers. Each of these may raise OSError where it is gone."""

    def workers(self) -> Sequence[str]:
        """The addresses of those that are there."""

    def ask(self, worker: str, request: Request, only_build: bool) -> WorkerRequest:
        """Hand a worker a request, see `answer`."""

    def close(self) -> None:
        """Leave."""


@dataclass(frozen=True)
class _Assignment:
    worker: str
    request: Request
    asked: WorkerRequest
    since: float
    only_build: bool


class WorkerPool:
    """The workers of one build.

    Args:
        connect: reaches them; it is not called while all that is asked for is known from disk.

    Attributes:
        failed: what became of workers, in sentences.
    """

    def __init__(self, connect: Callable[[], Link]) -> None:
        self._connect = connect
        self._link: Link | None = None
        self._is_gone = False
        self.failed: list[str] = []
        self._answers: dict[str, WorkerAnswer | None] = {}
        self._asked: set[str] = set()
        self._waiting: deque[Request] = deque()
        self._assignments: list[_Assignment] = []
        self._there: list[str] = []
        self._looked = 0.0
        self._lost: dict[str, int] = {}
        self._left: set[str] = set()
        self._samples: dict[str, tuple[Request, str | None]] = {}
        self._fits: dict[tuple[str, str], bool] = {}

    def submit(self, request: Request) -> None:
        """Have a part measured, unless that was asked for or is known.

        Raises:
            NoWorkers: there are none, or none can be used.
        """
        if request.digest in self._answers or self._is_known(request):
            return
        self._waiting.append(request)
        self._asked.add(request.digest)
        self._step()

    def result(self, request: Request) -> Measurement | None:
        """What a part takes; None where it is to be measured here.

        Raises:
            RegionRefused: the owner of a region refuses it.
            ModelError, PluginError, ToolchainError: it cannot be built, or running it has no end.
            NoWorkers: there are none, or none can be used.
        """
        self.submit(request)
        while request.digest not in self._answers:
            if not self._step():
                time.sleep(_NAP_S)
        result = self._answers[request.digest]
        if result is None:
            return None
        if result.refused:
            raise RegionRefused("a region is refused")
        if (error := result.error) is not None and error.kind is not None:
            raise REMOTE_ERRORS[error.kind](error.what, where=error.where, hint=error.hint)
        return result.measured

    def close(self) -> None:
        """Leave the workers; what was not answered is asked again when it is wanted."""
        for one in self._assignments:
            one.asked.cancel()
        self._assignments, link, self._link = [], self._link, None
        self._waiting.clear()
        self._asked.clear()
        self._fits.clear()
        self._there, self._looked = [], 0.0
        if link is not None:
            link.close()

    def _is_known(self, request: Request) -> bool:
        if request.digest in self._asked:
            return True
        kept = read_kept(_file(request))
        if kept is not None:
            self._answers[request.digest] = WorkerAnswer({}, measured=kept)
        return kept is not None

    def _step(self) -> bool:
        """Take what was answered, and hand out what waits; whether there was anything."""
        try:
            if self._link is None and not self._is_gone:
                self._link = self._connect()
            before = len(self._assignments), len(self._waiting)
            if self._link is not None:
                self._look(self._link)
                for one in [one for one in self._assignments if one.asked.done()]:
                    self._take(one)
                self._hand_out(self._link)
        except OSError as error:
            self.failed.append(f"the workers are gone: {error}; what they were asked for is measured here")
            self._is_gone = True
            self._waiting.extend(one.request for one in self._assignments if not one.only_build)
            self._assignments = []
        if self._is_gone:
            self._here(list(self._waiting))
        return before != (len(self._assignments), len(self._waiting)) if not self._is_gone else True

    def _look(self, link: Link) -> None:
        """Who is there, and who has not answered for too long."""
        now = time.monotonic()
        if now - self._looked < _LOOK_S and self._there:
            return
        self._looked = now
        for one in self._assignments:
            if now - one.since > LIMIT_S and one.worker not in self._left:
                self._leave(one.worker, f"has not answered for {LIMIT_S:g} s")
        there = [worker for worker in sorted(link.workers()) if worker not in self._left]
        for worker in self._there:
            if worker not in there and worker not in self._left:
                self.failed.append(f"worker {worker} is lost, and what it had not answered is asked for again")
        self._there = there
        lost = [one for one in self._assignments if one.worker not in there]
        self._assignments = [one for one in self._assignments if one.worker in there]
        for one in reversed(lost):
            one.asked.cancel()
            if not one.only_build:
                self._again(one.request)
        if not there:
            raise OSError("none is left")

    def _leave(self, worker: str, why: str) -> None:
        self.failed.append(f"worker {worker} {why}; it is not used")
        self._left.add(worker)

    def _again(self, request: Request) -> None:
        """Ask for something again whose worker is lost, unless that has happened before."""
        count = self._lost[request.digest] = self._lost.get(request.digest, 0) + 1
        if count < _MOST_LOST:
            self._waiting.appendleft(request)
        else:
            self.failed.append(f"{count} workers were lost while they measured a part; it is measured here")
            self._answers[request.digest] = None

    def _hand_out(self, link: Link) -> None:
        for request in list(self._waiting):
            if len(self._assignments) >= AT_ONCE * len(self._there):
                break
            if self._answers.get(request.digest, self) is None:
                continue  # of one target with another before it, which nobody can build for
            fit = [worker for worker in self._there if self._fits.get((worker, request.targets), True)]
            if not fit:
                if not any(self._fits.values()):
                    raise NoWorkers("\n".join(["no worker can be used", *dict.fromkeys(self.failed)]))
                self._here([one for one in self._waiting if one.targets == request.targets])
                continue
            loads = {worker: sum(one.worker == worker for one in self._assignments) for worker in fit}
            worker = min(fit, key=lambda one: (loads[one], one))
            if loads[worker] >= AT_ONCE:
                continue
            if (worker, request.targets) in self._fits:
                self._waiting.remove(request)
                self._give(link, worker, request, only_build=False)
            elif not any(one.worker == worker and one.only_build for one in self._assignments):
                self._give(link, worker, self._samples.setdefault(request.targets, (request, None))[0], only_build=True)

    def _give(self, link: Link, worker: str, request: Request, *, only_build: bool) -> None:
        asked = link.ask(worker, request, only_build)
        self._assignments.append(_Assignment(worker, request, asked, time.monotonic(), only_build))

    def _here(self, requests: Sequence[Request]) -> None:
        """Have some measured here, by whoever wants them."""
        for request in requests:
            self._answers[request.digest] = None
            self._waiting.remove(request)

    def _take(self, one: _Assignment) -> None:
        """Look at what was answered."""
        self._assignments.remove(one)
        result = WorkerAnswer({})
        try:
            result = read_answer(one.asked.result())
            fault = _differing(result, one.request)
            if fault is None and one.only_build:
                fault = self._built_otherwise(result, one.request)
        except Exception as error:  # noqa: BLE001 - whatever the worker raised: it has no uma, or another one
            words = (f"{type(error).__name__}: {error}".splitlines() or [""])[0]
            fault = f"does not answer: {words[:200]}"
        key = one.worker, one.request.targets
        if fault is not None:
            sentence = f"worker {one.worker} {fault}; it is not used for {one.request.targets}"
            if self._fits.get(key, True):
                self.failed.append(sentence)
            self._fits[key] = False
            if not one.only_build:
                self._waiting.appendleft(one.request)
            return
        self._fits[key] = True
        if one.only_build:
            return
        failure = result.error
        if failure is not None and failure.kind not in REMOTE_ERRORS:  # it has no emulator: perhaps there is one here
            self.failed.append(f"worker {one.worker} cannot measure a part, which is measured here: {failure.what}")
            self._answers[one.request.digest] = None
            return
        self._answers[one.request.digest] = result
        if result.measured is not None:
            write_kept(_file(one.request), to_json(result.measured))

    def _built_otherwise(self, result: WorkerAnswer, request: Request) -> str | None:
        """What is wrong with what a worker built of a part that is built here as well."""
        sample, local = self._samples[request.targets]
        if local is None:
            local = _built(read_answer(answer(sample.text, sample.constants, only_build=True)))
            self._samples[request.targets] = sample, local
        if _built(result) == local:
            return None
        return "builds something else from the same part: its versions are not what it says"


def _built(result: WorkerAnswer) -> str:
    """Return the outcome of a build, to be compared."""
    return str(result.digest or (result.error and result.error.what) or result.refused)


def _differing(result: WorkerAnswer, request: Request) -> str | None:
    """Return the difference between the versions of a worker and those of a request; None where there is none."""
    if result.lacks is not None:
        return f"cannot build for it: {result.lacks}"
    for name, wanted in request.question.versions.items():
        has = result.versions.get(name)
        if has != wanted:
            return f"has {name} {has}, and here it is {wanted}" if has else f"has no {name}, and here it is {wanted}"
    return None


def _file(request: Request) -> Path:
    return costs_folder() / f"{request.digest}.json"
