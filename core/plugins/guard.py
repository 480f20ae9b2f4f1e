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

__all__ = ["guarded"]

_NAMES = "SIGINT SIGTERM SIGHUP SIGQUIT SIGPIPE SIGALRM SIGCHLD SIGFPE SIGUSR1 SIGUSR2"
_SIGNALS = tuple(getattr(signal, name) for name in _NAMES.split() if hasattr(signal, name))

_NUMPY_DEFAULTS = {"divide": "warn", "over": "warn", "under": "ignore", "invalid": "warn"}
"""Of ``numpy.geterr``, where the plugin is the first to import numpy."""


@contextmanager
def guarded(plugin: str) -> Iterator[None]:
    """Within, code of a plugin runs; behind it the state of the process is what it was.

    That is: the current folder, the filters of warnings, the handlers of signals and numpy's error state. A
    `RuntimeWarning` names the plugin and what it changed, but for filters, which many libraries add to when they are
    imported. Other threads must not change any of these meanwhile: what they do is put back as well.

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


class _State:
    """What it was when this was made."""

    def __init__(self) -> None:
        self._folder, self._filters, self._errors = _folder(), list(warnings.filters), _numpy_errors()
        # Handlers that are none of Python's cannot be put back, and only the main thread can set any.
        main = threading.current_thread() is threading.main_thread()
        handlers = {number: signal.getsignal(number) for number in _SIGNALS if main}
        self._handlers = {number: handler for number, handler in handlers.items() if handler is not None}

    def put_back(self) -> list[str]:
        """What had to be, in words."""
        changed = []
        if self._folder is not None and _folder() != self._folder:
            with suppress(OSError):  # it was removed: there is nothing to go back to
                os.chdir(self._folder)
            changed.append("the current folder")
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


def _folder() -> str | None:
    try:
        return os.getcwd()
    except OSError:  # it was removed
        return None


def _numpy_errors() -> dict[str, Any]:
    geterr = getattr(sys.modules.get("numpy"), "geterr", None)
    return dict(_NUMPY_DEFAULTS) if geterr is None else dict(geterr())
