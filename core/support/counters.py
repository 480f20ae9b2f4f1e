"""Counters of a build: the time of each stage and pass, and how often each rewrite rule was tried and applied.

Counting is off unless `counting` is active in the current context; a rule then costs one comparison with None.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import CodeType
from typing import Any, Literal

__all__ = ["Counters", "RuleCount", "StepTime", "active_counters", "counting", "timed"]

StepKind = Literal["step", "stage", "pass"]
RuleKind = Literal["loops", "identity", "canonical", "relay", "pattern"]


@dataclass
class StepTime:
    """How often a part of a build ran, and for how long.

    Args:
        kind: ``step`` of the command, ``stage`` of the pipeline, or ``pass`` of a plugin.
        name: its name; of a pass ``label.pass``.
        runs: the number of runs.
        seconds: the wall-clock time of all runs.
    """

    kind: StepKind
    name: str
    runs: int = 0
    seconds: float = 0.0


@dataclass
class RuleCount:
    """How often a rewrite rule was tried and applied.

    Args:
        kind: ``loops`` and ``identity`` rewrite expressions of the loop IR, ``canonical`` and ``relay`` rewrite graph
            expressions, ``pattern`` is matched against graph expressions.
        name: the name of the function, the text of the identity, or the name of the pattern.
        source: ``module:line`` of the function; empty where the rule is not a function.
        tried: the number of expressions that it was tried on.
        applied: the number of expressions that it replaced or matched.
    """

    kind: RuleKind
    name: str
    source: str = ""
    tried: int = 0
    applied: int = 0


@dataclass
class Counters:
    """The counters of one command."""

    _times: dict[tuple[StepKind, str], StepTime] = field(default_factory=dict)
    _rules: dict[tuple[RuleKind, CodeType | str], RuleCount] = field(default_factory=dict)

    @property
    def times(self) -> list[StepTime]:
        """The times, in the order in which the parts first ended."""
        return list(self._times.values())

    @property
    def rules(self) -> list[RuleCount]:
        """The counts by kind; within a kind the rule that was tried most often comes first."""
        return sorted(self._rules.values(), key=lambda rule: (rule.kind, -rule.tried, rule.name, rule.source))

    def add_time(self, kind: StepKind, name: str, seconds: float) -> None:
        """Add one run to the time of a part."""
        step = self._times.setdefault((kind, name), StepTime(kind, name))
        step.runs += 1
        step.seconds += seconds

    def add_rule(self, kind: RuleKind, rule: Callable[..., Any] | str, is_applied: bool) -> None:
        """Count one try of ``rule``: a function, also as `functools.partial`, or a name."""
        function = getattr(rule, "func", rule)
        key = rule if isinstance(rule, str) else getattr(function, "__code__", None) or type(function).__qualname__
        count = self._rules.get((kind, key))
        if count is None:
            name = getattr(function, "__qualname__", str(key)).replace(".<locals>", "")
            source = f"{function.__module__}:{key.co_firstlineno}" if isinstance(key, CodeType) else ""
            count = self._rules[kind, key] = RuleCount(kind, name, source)
        count.tried += 1
        count.applied += is_applied


_ACTIVE: ContextVar[Counters | None] = ContextVar("counters", default=None)


def active_counters() -> Counters | None:
    """Return the counters of the current context; None while nothing is counted."""
    return _ACTIVE.get()


@contextmanager
def counting() -> Iterator[Counters]:
    """Count in the current context. Threads that are started inside are not counted."""
    token = _ACTIVE.set(counters := Counters())
    try:
        yield counters
    finally:
        _ACTIVE.reset(token)


@contextmanager
def timed(kind: StepKind, name: str) -> Iterator[None]:
    """Add the time until the end of the block, or of the decorated function, to the active counters."""
    counters = _ACTIVE.get()
    start = time.perf_counter()
    try:
        yield
    finally:
        if counters is not None:
            counters.add_time(kind, name, time.perf_counter() - start)
