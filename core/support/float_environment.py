"""The mode of a thread's floating-point arithmetic: how it rounds, and whether it flushes small numbers to zero.

Everything here computes, and every model runs, in the default mode of IEEE 754: to nearest, ties to even, with
subnormal numbers. A thread has the mode of the thread that started it; a library may change it when it is loaded (what
gcc links with ``-ffast-math`` does), and then later results are wrong wherever they are computed.
"""

from __future__ import annotations

import functools
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["DEFAULT", "default_mode", "describe_mode", "preserving_mode", "read_mode", "restore_mode", "save_mode"]

DEFAULT = ("to nearest", False)
"""The default mode, as `read_mode` gives it."""

_ENVIRONMENT_BYTES = 512  # no fenv_t is larger than 64


def read_mode() -> tuple[str, bool]:
    """How this thread rounds, and whether it flushes subnormal numbers to zero: told from what it computes."""
    one, epsilon = 1.0, sys.float_info.epsilon
    if one + epsilon / 4 > one:
        rounding = "up"
    elif -one - epsilon / 4 < -one:
        rounding = "down"
    else:
        rounding = DEFAULT[0] if one + epsilon * 0.75 > one else "to zero"
    least = sys.float_info.min
    # Of what goes in, and of what comes out.
    return rounding, 5e-324 + 0.0 * least == 0.0 or least * 0.5 == 0.0


def describe_mode(mode: tuple[str, bool]) -> str:
    """A mode, as far as it is not the default."""
    rounding, flushes = mode
    words = [f"rounding {rounding}"] if rounding != DEFAULT[0] else []
    return " and ".join([*words, *(["flushing small numbers to zero"] if flushes else [])]) or "the default"


@functools.cache
def _functions() -> tuple[Any, Any] | None:
    """C's fegetenv and fesetenv; None where they cannot be reached."""
    try:
        import ctypes

        for name in (None, "libm.so.6", "libm.so", "libSystem.dylib"):
            try:
                library = ctypes.CDLL(name)
                return library.fegetenv, library.fesetenv
            except (OSError, AttributeError):
                continue
    except ImportError:  # this Python was built without it
        pass
    return None


def save_mode() -> Any:
    """The mode of this thread, for `restore_mode`."""
    functions = _functions()
    if functions is None:
        return None
    import ctypes

    environment = ctypes.create_string_buffer(_ENVIRONMENT_BYTES)
    functions[0](environment)
    return environment


def restore_mode(environment: Any) -> None:
    """Give this thread the mode that `save_mode` found."""
    functions = _functions()
    if functions is not None and environment is not None:
        functions[1](environment)


@functools.cache
def _default() -> Any:
    """The default mode, for `restore_mode`: that of a thread that has it, or of one that C gives it."""
    if read_mode() == DEFAULT:
        return save_mode()
    import ctypes

    # FE_DFL_ENV is ((const fenv_t *) -1) of glibc and musl, and the address of an object of macOS.
    if sys.platform == "darwin":
        return ctypes.c_char.in_dll(ctypes.CDLL(None), "_FE_DFL_ENV")
    return ctypes.c_void_p(-1)


@contextmanager
def default_mode() -> Iterator[None]:
    """Within, this thread has the default mode; behind it, the one that it had."""
    if read_mode() == DEFAULT:
        yield
        return
    before = save_mode()
    restore_mode(_default())
    try:
        yield
    finally:
        restore_mode(before)


@contextmanager
def preserving_mode(who: str) -> Iterator[None]:
    """Behind it, this thread has the mode that it had before; a `RuntimeWarning` says that ``who`` changed it."""
    mode, environment = read_mode(), save_mode()
    try:
        yield
    finally:
        if (now := read_mode()) != mode:
            restore_mode(environment)
            change = f"the mode of floating-point arithmetic ({describe_mode(now)})"
            message = f"{who} changed {change}; it was put back as it was"
            warnings.warn(message, RuntimeWarning, stacklevel=3)
