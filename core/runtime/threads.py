"""Threads that run the loops of models in this process: ``csrc/uma_pool.c``."""

from __future__ import annotations

import errno
import os
import weakref
from typing import Any

from ..errors import UsageError
from ..support.formatting import format_value
from .abi import abi
from .helper_library import part_of_runtime

__all__ = ["Pool", "threads_of"]

_SOURCE, _HEADERS = "uma_pool.c", ("uma_pool.h", "uma_runtime.h", "uma_math.h")


def threads_of(asked: int | None, marked: int, where: str, emulator: str | None = None) -> int:
    """How many threads a session has.

    Args:
        asked: how many the user wants; None for as many as the model's loops are marked for, and this process may use
            processors.
        marked: for how many that is, 1 for none.
        where: names the model in errors.
        emulator: that it runs in, where it does; there is one thread there.

    Raises:
        UsageError: that is not a number of threads, or the model's loops are marked for fewer.
    """
    if asked is None:
        return min(marked, _processors())
    value: object = asked
    if isinstance(value, bool) or not isinstance(value, int) or asked < 1:
        raise UsageError(f"{format_value(asked)} is not a number of threads", where=where, hint="give 1 or more")
    if emulator is not None and asked > 1:
        text = f"the model runs in {emulator}, which has one thread and not {asked}"
        raise UsageError(text, where=where, hint="leave out the threads")
    if asked > marked:
        built = "one thread" if marked == 1 else f"{marked} threads"
        raise UsageError(
            f"the model was built for {built}, and cannot be run by {asked}",
            where=where,
            hint=f"build it for a host with -threads={asked}, or ask for fewer",
        )
    return asked


def _processors() -> int:
    """That this process may use, where the system tells."""
    affinity = getattr(os, "sched_getaffinity", None)
    return (os.cpu_count() or 1) if affinity is None else len(affinity(0))


class Pool:
    """Threads that wait for loops to run, until `end` is called, or nobody has the pool any more.

    Args:
        threads: how many, 2 or more; whoever runs the model is one of them.

    Raises:
        UsageError: the system does not give so many.
        ToolchainError: the C cannot be compiled or loaded.
    """

    def __init__(self, threads: int) -> None:
        ffi, library = abi().ffi, part_of_runtime(_SOURCE, _HEADERS, "the threads that run models")
        ffi.errno = 0
        pool = library.uma_pool_make(threads)
        if pool == ffi.NULL:
            why = errno.errorcode.get(ffi.errno, str(ffi.errno))
            raise UsageError(
                f"the system gives this process no {threads} threads ({why})", hint="ask for fewer, or for 1"
            )
        self._pool = pool
        self._run = library.uma_pool_run
        # What ends the threads must not need the library to be found any more.
        self._ended = weakref.finalize(self, library.uma_pool_end, pool)
        self._ended.atexit = False  # they end with the process, which need not wait for a run that is under way

    def serve(self, threads: Any) -> None:
        """Have the pool run the loops of a context, by its ``uma_threads *``. The pool must outlive the context."""
        threads.parallel_for, threads.user = self._run, self._pool

    def end(self) -> None:
        """End the threads; nobody may be running a model with them. Ending it again has no effect."""
        self._ended()
