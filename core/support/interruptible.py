"""Calls that may take long without Python's attention, and that signals must be able to end.

Python runs the handlers of signals in the main thread, between two bytecodes. While the main thread is in native code,
a signal is only noted: Ctrl-C waits until that returns. So the main thread has another thread make such a call, and
waits for it: waiting for a lock ends when a signal comes. What the handler raises ends the wait. The call itself cannot
be ended from outside: it goes on until it returns or asks `is_abandoned`.
"""

from __future__ import annotations

import _thread
import contextvars
import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar

__all__ = ["SIGNAL_POLL_S", "Detached", "call_interruptibly", "has_running_calls", "is_abandoned", "is_main_thread"]

T = TypeVar("T")

SIGNAL_POLL_S = 0.25
"""The longest wait of the main thread without a look for signals: one that arrives just before a wait begins does not
end it."""

_GRACE_S = 0.25
"""How long an abandoned call may take to notice it before its caller leaves it behind."""

_calls: dict[int, Detached[Any]] = {}
"""The calls under way, by their threads."""


def is_main_thread() -> bool:
    """Whether this is the thread in which Python runs the handlers of signals."""
    return _thread.get_ident() == threading.main_thread().ident


def is_abandoned() -> bool:
    """Whether this thread makes a call that its caller has left: then it should end soon."""
    call = _calls.get(_thread.get_ident())
    return call is not None and call.is_abandoned


def has_running_calls() -> bool:
    """Whether a call is under way in a thread of its own."""
    return bool(_calls)


class Detached(Generic[T]):
    """A call that a thread of its own makes.

    Args:
        function: what to call. It has the caller's context variables.

    Attributes:
        is_running: whether the call has begun and not returned.
        is_abandoned: whether its caller has stopped waiting for the result.
    """

    def __init__(self, function: Callable[[], T]) -> None:
        self._function: Callable[[], T] | None = function
        self._lock, self._ended = threading.Lock(), _thread.allocate_lock()
        self._result: list[T] = []
        self._error: BaseException | None = None
        self._then: Callable[[], None] | None = None
        self.is_running = self.is_abandoned = False

    def wait(self) -> T:
        """Make the call and return its result. Call this once.

        Raises:
            BaseException: what the call raises, or what the handler of a signal raises meanwhile. Then the call may
                still be running.
        """
        self._ended.acquire()
        try:
            self.is_running = True
            try:
                _thread.start_new_thread(contextvars.copy_context().run, (self._run,))
            except RuntimeError:  # the system gives no thread
                self._run()
            while not self._ended.acquire(timeout=SIGNAL_POLL_S):
                pass
        except BaseException:
            self.is_abandoned = True
            if self.is_running:
                self._ended.acquire(timeout=_GRACE_S)
            raise
        if self._error is not None:
            raise self._error
        return self._result[0]

    def after(self, then: Callable[[], None]) -> None:
        """Call ``then`` when the call has returned: at once, or in its thread."""
        with self._lock:
            if self.is_running:
                self._then = then
                return
        then()

    def _run(self) -> None:
        function, self._function = self._function, None  # what it refers to lives until it returns, and no longer
        assert function is not None
        thread = _thread.get_ident()
        _calls[thread] = self
        try:
            self._result.append(function())
        except BaseException as error:  # noqa: BLE001 - `wait` raises it in the caller's thread
            self._error = error
        finally:
            del function, _calls[thread]
        with self._lock:
            self.is_running = False
            then = self._then
        try:
            if then is not None:
                then()  # Python prints what it raises: there is no caller to raise it in
        finally:
            self._ended.release()


def call_interruptibly(function: Callable[[], T]) -> T:
    """Call ``function`` so that a signal whose handler raises something ends the wait for its result.

    It is called in another thread, if this is the main one. After a signal it may still be running: it must touch
    nothing that the caller uses again.
    """
    return Detached(function).wait() if is_main_thread() else function()
