"""The process in which `timing` runs compiled models, and in which a local worker builds parts.

It is told what to run in lines of JSON on stdin, and answers each with one on what was its stdout; what models print
goes to stderr.
"""

from __future__ import annotations

import base64
import json
import os
import resource
import statistics
import sys
import threading
import time
from typing import Any

from ..artifact import load
from ..artifact.random_inputs import random_inputs
from ..errors import UmaError

__all__ = ["main"]


def _calls(job: dict[str, Any]) -> dict[str, Any]:
    """What the calls of a model take, one by one, in nanoseconds, and what its devices count."""
    artifact = load(job["folder"])
    profile = artifact.profile(random_inputs(artifact.record.inputs), repeat=job["repeat"])
    ns = sum(call.median_ns * call.times for call in profile.calls if not call.is_simulated)
    return {"ns": float(ns), "counters": {label: dict(counters) for label, counters in profile.counters.items()}}


def _whole(job: dict[str, Any]) -> dict[str, Any]:
    """What whole runs of some models take in turn, each the median, in nanoseconds."""
    sessions = []
    for folder in job["folders"]:
        artifact = load(folder)
        session = artifact.session()
        session.run(random_inputs(artifact.record.inputs))
        sessions.append(session)
    times: list[list[int]] = [[] for _ in sessions]
    end = time.monotonic() + job["seconds"]
    while not times[0] or (len(times[0]) < job["repeat"] and time.monotonic() < end):
        for session, samples in zip(sessions, times, strict=True):
            begin = time.perf_counter_ns()
            session.invoke()
            samples.append(time.perf_counter_ns() - begin)
    for session in sessions:
        session.close()
    return {"ns": [float(statistics.median(samples)) for samples in times]}


def _part(job: dict[str, Any]) -> dict[str, Any]:
    """Answer a request of `local_workers`; the answer is text."""
    from .measurement_request import answer

    return {"answer": answer(job["text"], base64.b64decode(job["constants"]), job["only_build"])}


_WORK = {"calls": _calls, "whole": _whole, "part": _part}


def _answer(job: dict[str, Any]) -> dict[str, Any]:
    try:
        return _WORK[job["do"]](job)
    except UmaError as error:
        return {"error": error.what}


def _watch(parent: int) -> None:
    """End with the process that started this one, whatever is run meanwhile."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


def main() -> None:
    """Answer until nothing is asked any more."""
    # What C code prints is not an answer.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    threading.Thread(target=_watch, args=(os.getppid(),), daemon=True).start()
    print("{}", file=answers, flush=True)  # it is ready
    for line in sys.stdin:
        print(json.dumps(_answer(json.loads(line))), file=answers, flush=True)
    answers.flush()
    os._exit(0)  # what a driver left behind is not waited for
