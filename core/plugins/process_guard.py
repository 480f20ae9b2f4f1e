"""What a plugin may not change: state of the process that is somebody else's. It is put back, and said."""

from __future__ import annotations

import os
import resource
import signal
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from ..support.float_environment import describe_mode, read_mode, restore_mode, save_mode

__all__ = ["guarded"]

_NAMES = "SIGINT SIGTERM SIGHUP SIGQUIT SIGPIPE SIGALRM SIGCHLD SIGFPE SIGUSR1 SIGUSR2"
_SIGNALS = tuple(getattr(signal, name) for name in _NAMES.split() if hasattr(signal, name))

_NUMPY_DEFAULTS = {"divide": "warn", "over": "warn", "under": "ignore", "invalid": "warn"}
"""Of ``numpy.geterr``, where the plugin is the first to import numpy."""


_LIMITS = {name: getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")}
_TIMERS = {
    name: (getattr(signal, name), clock)
    for name, clock in (
        ("ITIMER_REAL", time.monotonic),
        ("ITIMER_VIRTUAL", lambda: os.times().user),
        ("ITIMER_PROF", time.process_time),
    )
}
"""Each interval timer of the process, and the clock that it counts, in seconds."""

_TIMER_SLACK_S = 0.1
"""How far a timer may be from the expected remaining time: the clocks of the kernel tick up to every 10 ms, and the
timer and its clock are not read at the same moment."""


@contextmanager
def guarded(plugin: str) -> Iterator[None]:
    """Within, code of a plugin runs; behind it the state of the process is what it was.

    That is: the current folder, the environment variables, the umask, the resource limits, the interval timers, the
    limit of recursion, the filters of warnings, the handlers of signals, the entries of ``sys.modules`` that were there
    before, numpy's error state and the mode of floating-point arithmetic. A `RuntimeWarning` names the plugin and what
    it changed, except filters, which many libraries add to when they are imported; a hard limit that it lowered and
    that this process may not raise again; and threads that it left running, which nobody can stop. Other threads must
    not change any of these, or start threads, meanwhile: what they do is put back, and said, as well.

    Args:
        plugin: its name and version.
    """
    before = _State()
    try:
        yield
    except BaseException:
        before.put_back()
        raise
    if changed := before.put_back():
        text = f"plugin {plugin} changed {', '.join(changed)}; it was put back as it was"
        warnings.warn(text, RuntimeWarning, stacklevel=4)
    if before.lost_limits:
        text = f"plugin {plugin} lowered {', '.join(before.lost_limits)}, which this process may not raise again"
        warnings.warn(text, RuntimeWarning, stacklevel=4)
    if threads := before.left_behind():
        text = f"plugin {plugin} left threads running: {', '.join(threads)}"
        warnings.warn(text, RuntimeWarning, stacklevel=4)


class _State:
    """What it was when this was made."""

    def __init__(self) -> None:
        self._folder, self._filters, self._errors = _folder(), list(warnings.filters), _numpy_errors()
        # Handlers that are none of Python's cannot be put back, and only the main thread can set any.
        main = threading.current_thread() is threading.main_thread()
        handlers = {number: signal.getsignal(number) for number in _SIGNALS if main}
        self._handlers = {number: handler for number, handler in handlers.items() if handler is not None}
        self._variables, self._recursion = dict(os.environ), sys.getrecursionlimit()
        self._threads = set(threading.enumerate())
        self._mode, self._environment = read_mode(), save_mode()
        self._umask, self._modules = _umask(), dict(sys.modules)
        self._limits = {name: resource.getrlimit(number) for name, number in _LIMITS.items()}
        self._timers = {name: (clock(), signal.getitimer(timer)) for name, (timer, clock) in _TIMERS.items()}
        self.lost_limits: list[str] = []

    def put_back(self) -> list[str]:
        """What had to be, in words."""
        changed = []
        if (mode := read_mode()) != self._mode:  # first: what follows may compute
            restore_mode(self._environment)
            changed.append(f"the mode of floating-point arithmetic ({describe_mode(mode)})")
        if self._folder is not None and _folder() != self._folder:
            with suppress(OSError):  # it was removed: there is nothing to go back to
                os.chdir(self._folder)
            changed.append("the current folder")
        if variables := _put_back_variables(self._variables):
            changed.append(f"the environment ({', '.join(variables)})")
        if _umask() != self._umask:
            os.umask(self._umask)
            changed.append("the umask")
        if limits := self._put_back_limits():
            changed.append(f"the resource limits ({', '.join(limits)})")
        if timers := self._put_back_timers():
            changed.append(f"the interval timers ({', '.join(timers)})")
        return changed + self._put_back_interpreter()

    def _put_back_interpreter(self) -> list[str]:
        """Set the state of Python and numpy back and return what had changed."""
        changed = []
        if not self._modules.items() <= sys.modules.items():
            modules = [name for name, module in self._modules.items() if sys.modules.get(name, self) is not module]
            sys.modules.update((name, self._modules[name]) for name in modules)
            changed.append(f"the imported modules ({', '.join(sorted(modules))})")
        if sys.getrecursionlimit() != self._recursion:
            sys.setrecursionlimit(self._recursion)
            changed.append("the limit of recursion")
        for number, handler in self._handlers.items():
            if signal.getsignal(number) is not handler:
                signal.signal(number, handler)
                changed.append(f"the handler of {number.name}")
        if _numpy_errors() != self._errors:
            sys.modules["numpy"].seterr(**self._errors)
            changed.append("numpy's error state")
        if warnings.filters != self._filters:
            warnings.filters[:] = self._filters  # type: ignore[index]  # a list, which typeshed keeps to itself
            with warnings.catch_warnings():
                pass  # has Python look at the filters anew
        return changed

    def _put_back_limits(self) -> list[str]:
        """Set the resource limits back and return the names of those that had changed. A hard limit that this process
        may not raise goes to `lost_limits`; its soft limit is raised as far as it can be."""
        changed = []
        for name, before in self._limits.items():
            now = resource.getrlimit(_LIMITS[name])
            if now == before:
                continue
            try:
                resource.setrlimit(_LIMITS[name], before)
                changed.append(name)
            except (ValueError, OSError):
                self.lost_limits.append(name)
                soft, hard = before[0], now[1]
                if soft == resource.RLIM_INFINITY or (hard != resource.RLIM_INFINITY and soft > hard):
                    soft = hard
                with suppress(ValueError, OSError):
                    resource.setrlimit(_LIMITS[name], (soft, hard))
        return changed

    def _put_back_timers(self) -> list[str]:
        """Set the interval timers to what they would be by now and return the names of those that had changed."""
        changed = []
        for name, (start_s, (first_s, interval_s)) in self._timers.items():
            timer, clock = _TIMERS[name]
            left_s, now_interval_s = signal.getitimer(timer)
            expected_s = first_s - (clock() - start_s) if first_s else 0.0
            if first_s and expected_s <= _TIMER_SLACK_S:  # it may have expired, and a periodic one has started again
                expected_s = interval_s or max(expected_s, 0.0)
                is_same = bool(interval_s) or left_s <= _TIMER_SLACK_S
            else:
                is_same = bool(left_s) == bool(first_s) and abs(left_s - expected_s) <= _TIMER_SLACK_S
            if not is_same or now_interval_s != interval_s:
                signal.setitimer(timer, expected_s, interval_s)
                changed.append(name)
        return changed

    def left_behind(self) -> list[str]:
        """The names of the threads that were started since then and still run."""
        return sorted(thread.name for thread in threading.enumerate() if thread not in self._threads)


def _put_back_variables(before: dict[str, str]) -> list[str]:
    """The names of the environment variables that are not what they were, and are again."""
    changed = sorted(name for name in {*before, *os.environ} if before.get(name) != os.environ.get(name))
    for name in changed:
        if name in before:
            os.environ[name] = before[name]
        else:
            del os.environ[name]
    return changed


def _umask() -> int:
    """The umask, which can only be read by setting it; files that another thread makes meanwhile are private."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _folder() -> str | None:
    try:
        return os.getcwd()
    except OSError:  # it was removed
        return None


def _numpy_errors() -> dict[str, Any]:
    geterr = getattr(sys.modules.get("numpy"), "geterr", None)
    return dict(_NUMPY_DEFAULTS) if geterr is None else dict(geterr())
