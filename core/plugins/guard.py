"""What a plugin may not change: state of the process that is somebody else's. It is put back, and said."""

from __future__ import annotations

import os
import signal
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from ..floating_point import put_back, read_mode, saved, shown

__all__ = ["guarded"]

_NAMES = "SIGINT SIGTERM SIGHUP SIGQUIT SIGPIPE SIGALRM SIGCHLD SIGFPE SIGUSR1 SIGUSR2"
_SIGNALS = tuple(getattr(signal, name) for name in _NAMES.split() if hasattr(signal, name))

_NUMPY_DEFAULTS = {"divide": "warn", "over": "warn", "under": "ignore", "invalid": "warn"}
"""Of ``numpy.geterr``, where the plugin is the first to import numpy."""


@contextmanager
def guarded(plugin: str) -> Iterator[None]:
    """Within, code of a plugin runs; behind it the state of the process is what it was.

    That is: the current folder, the environment variables, the limit of recursion, the filters of warnings, the
    handlers of signals, numpy's error state and the mode of floating-point arithmetic. A `RuntimeWarning` names the
    plugin and what it changed, but for filters, which many libraries add to when they are imported; and threads that
    it left running, which nobody can stop. Other threads must not change any of these, or start threads, meanwhile:
    what they do is put back, and said, as well.

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
        what = f"plugin {plugin} changed {', '.join(changed)}; it was put back as it was"
        warnings.warn(what, RuntimeWarning, stacklevel=4)
    if threads := before.left_behind():
        what = f"plugin {plugin} left threads running: {', '.join(threads)}"
        warnings.warn(what, RuntimeWarning, stacklevel=4)


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
        self._mode, self._environment = read_mode(), saved()

    def put_back(self) -> list[str]:
        """What had to be, in words."""
        changed = []
        if (mode := read_mode()) != self._mode:  # first: what follows may compute
            put_back(self._environment)
            changed.append(f"the mode of floating-point arithmetic ({shown(mode)})")
        if self._folder is not None and _folder() != self._folder:
            with suppress(OSError):  # it was removed: there is nothing to go back to
                os.chdir(self._folder)
            changed.append("the current folder")
        if variables := _put_back_variables(self._variables):
            changed.append(f"the environment ({', '.join(variables)})")
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


def _folder() -> str | None:
    try:
        return os.getcwd()
    except OSError:  # it was removed
        return None


def _numpy_errors() -> dict[str, Any]:
    geterr = getattr(sys.modules.get("numpy"), "geterr", None)
    return dict(_NUMPY_DEFAULTS) if geterr is None else dict(geterr())
