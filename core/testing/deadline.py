"""How long a check may take: then what is left is left out, and said. What does not come to that is stopped."""

from __future__ import annotations

import math
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType

__all__ = ["DEFAULT_SECONDS", "OUT_OF_TIME", "Deadline", "OutOfTime", "place_in", "stopped_after"]

DEFAULT_SECONDS = 600.0
"""Of one check of one target."""

OUT_OF_TIME = "out of time: "
"""How the notes of what was left out begin."""

_AGAIN_S = 5.0
"""A signal may come where an exception is lost, in a finaliser: there is one more then."""

_LOADED = 4
"""So many times as long is waited where others have the processors."""


class OutOfTime(KeyboardInterrupt):
    """One step of a check took so long that it was stopped, as a user would: that passes through everything that takes
    the errors of plugins."""


class Deadline:
    """A moment from which on nothing new is begun.

    Args:
        seconds: from now; infinite for none.
    """

    def __init__(self, seconds: float = math.inf) -> None:
        self._start, self._seconds = time.monotonic(), seconds

    @property
    def seconds_left(self) -> float:
        """Seconds; below 0 behind it."""
        return self._seconds - (time.monotonic() - self._start)

    @property
    def is_over(self) -> bool:
        """Whether it is past."""
        return self.seconds_left <= 0

    def part(self, share: float) -> Deadline:
        """One before: from now on, a share of what is left."""
        return Deadline(max(0.0, share * self.seconds_left))


@contextmanager
def stopped_after(seconds: float) -> Iterator[None]:
    """OutOfTime in the middle of what runs inside, once it has taken so long; where others have the processors, so that
    it had not half of that time, later. Nothing is stopped in threads but the main one, where there are no timers of
    this kind, and where somebody else has set one."""
    here = threading.current_thread() is threading.main_thread() and hasattr(signal, "setitimer")
    if not here or signal.getsignal(signal.SIGALRM) is not signal.SIG_DFL or signal.getitimer(signal.ITIMER_REAL)[0]:
        yield
        return

    start, before = time.monotonic(), sum(os.times()[:4])

    def stop(number: int, frame: FrameType | None) -> None:
        used, passed = sum(os.times()[:4]) - before, time.monotonic() - start
        if used >= seconds / 2 or passed >= _LOADED * seconds:
            raise OutOfTime

    signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds, min(_AGAIN_S, max(1.0, seconds)))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)


def place_in(package: str, traceback: TracebackType | None) -> str:
    """Where code of a package was when it was stopped, as file:line; empty where none of it was running."""
    location = ""
    while traceback is not None:
        name = str(traceback.tb_frame.f_globals.get("__name__", ""))
        if name.partition(".")[0] == package:
            location = f"{traceback.tb_frame.f_code.co_filename}:{traceback.tb_lineno}"
        traceback = traceback.tb_next
    return location
