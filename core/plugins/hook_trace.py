"""A trace of hook calls: the plugin, the hook, a summary of arguments and result, and the time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from ..contract.cost import Cost
from ..targets import Target
from ..targets.values import shorten, shown
from .entry import PluginEntry, brief

__all__ = ["call_traced", "tracing_hooks"]

_MAX_ITEMS = 3
_MAX_CHARS = 100


_REPORT: ContextVar[Callable[[str], None] | None] = ContextVar("hook_trace", default=None)


@contextmanager
def tracing_hooks(report: Callable[[str], None]) -> Iterator[None]:
    """Report each hook call of the current context after it ended. Other threads and processes are not traced.

    Args:
        report: receives a line with the plugin and its version, the hook, summaries of its arguments and of its result
            or exception, and the wall-clock time in milliseconds.
    """
    token = _REPORT.set(report)
    try:
        yield
    finally:
        _REPORT.reset(token)


def call_traced(entry: PluginEntry, hook: str, function: Callable[..., Any], arguments: Mapping[str, object]) -> Any:
    """Call a hook that its plugin implements, and report the call if the context is traced.

    Args:
        entry: the plugin.
        hook: the name of the hook.
        function: the hook.
        arguments: its keywords.
    """
    report = _REPORT.get()
    if report is None:
        return function(**arguments)
    start = time.perf_counter()
    outcome: object = None
    try:
        outcome = function(**arguments)
        return outcome
    except BaseException as error:
        outcome = error
        raise
    finally:
        ms = (time.perf_counter() - start) * 1e3
        words = ", ".join(f"{name}={_summary(value)}" for name, value in arguments.items())
        report(f"{entry.distribution} {entry.version}: {hook}({words}) -> {_summary(outcome)}, {ms:.2f} ms")


def _summary(value: object) -> str:
    """Return numbers, texts, targets and costs as they are, the first items of a list, and the type and name of other
    records."""
    if isinstance(value, Cost):
        return f"Cost({', '.join(f'{name}={part}' for name, part in vars(value).items() if part is not None)})"
    if value is None or isinstance(value, Target):
        return shorten(str(value), _MAX_CHARS)
    if isinstance(value, (str, int, float)):
        return shown(value)
    if isinstance(value, BaseException):
        return f"raised {shorten(brief(value), _MAX_CHARS)}"
    if isinstance(value, (list, tuple)):
        rest = [f"... {len(value)} items"] if len(value) > _MAX_ITEMS else []
        return f"[{', '.join([*map(_summary, value[:_MAX_ITEMS]), *rest])}]"
    name = getattr(value, "name", None)
    return f"{type(value).__name__} {name}" if isinstance(name, str) else type(value).__name__
