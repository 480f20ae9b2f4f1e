"""What pieces of a placement cost, whoever tells: the interface between the search and the sources of costs."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, Protocol

from ..errors import UsageError
from ..relay.expr import Expr
from ..targets.values import shown
from .record import Candidate

if TYPE_CHECKING:
    from .candidates import Problem
    from .collage.table import CostTable

__all__ = ["Clock", "CostEstimate", "CostProvider", "Link", "Source", "whole_ns"]

Source = Literal["estimated", "measured", "table", "free"]
"""Who tells what something costs: the target's plugin, a run here, a table that was given, or nobody, as it is a view,
a tuple, or a function that runs where the model has it in any case."""


@dataclass(frozen=True)
class CostEstimate:
    """What running something once takes.

    Args:
        ns: nanoseconds of computing, copies within a region included.
        source: who says so.
        launch_ns: nanoseconds of starting it, and of noticing that it has ended.
    """

    ns: int
    source: Source
    launch_ns: int = 0

    @property
    def total_ns(self) -> int:
        """Both together."""
        return self.ns + self.launch_ns


@dataclass(frozen=True)
class Clock:
    """How the times of a target's parts are known.

    Args:
        label: of the target.
        source: ``machine`` where they are timed on this machine, ``emulator`` and ``simulator`` where one counts
            cycles, ``plugin`` for estimates, ``table`` for a table of costs.
        hz: cycles per second, by which cycles are time; None where the source has times.
        factor: the times are multiplied by it.
    """

    label: str
    source: Literal["machine", "emulator", "simulator", "plugin", "table"]
    hz: float | None = None
    factor: float = 1.0

    @property
    def is_unscaled_machine(self) -> bool:
        """Whether they are times of this machine, which no factor makes those of another one."""
        return self.source == "machine" and self.factor == 1.0

    json_fields: ClassVar = ("target=label", "source", "hz", "factor")


@dataclass(frozen=True)
class Link:
    """The way between the memory of hosts and that of an accelerator that has one of its own.

    Args:
        ns: nanoseconds that each copy takes, however small.
        bytes_per_s: how much is copied in a second.
    """

    ns: int
    bytes_per_s: float

    def copy_ns(self, nbytes: int) -> int:
        """What copying bytes takes; nothing is copied in no time."""
        return self.ns + math.ceil(nbytes * 1e9 / self.bytes_per_s) if nbytes else 0


class CostProvider(Protocol):
    """The source of costs of one build. Partitioners receive it with their `Problem`."""

    @property
    def table(self) -> CostTable:
        """The table that overrides other sources, by the labels of the build's targets; empty without one."""

    @property
    def prefetch(self) -> CostProvider | None:
        """A provider to be asked first for every cost, so that workers begin to measure; its answers are not costs."""

    def measuring(self) -> AbstractContextManager[None]:
        """Return a context in which costs may be measured; on exit it ends the processes that measured."""

    @property
    def failed(self) -> Sequence[str]:
        """What could not be measured so far, and why, in sentences."""

    @property
    def clocks(self) -> Sequence[Clock]:
        """How the times so far are known, in the order of the targets."""

    @property
    def hosts(self) -> Sequence[str]:
        """The labels of the hosts, first that which takes an op of which nothing is said."""

    def link(self, label: str) -> Link | None:
        """How an accelerator is reached; None where it works in the memory of the hosts."""

    def region(
        self, problem: Problem, claims: Sequence[Candidate], name: str
    ) -> CostEstimate | Sequence[Candidate] | None:
        """What candidates of one owner cost as one region, in an order in which they can be computed. Where the owner
        would refuse it: those that it would give back. None where nobody tells. In tables it has this name."""

    def kernels(self, problem: Problem, free: Collection[Expr], label: str | None = None) -> Sequence[tuple[Expr, ...]]:
        """What the hosts would compute together of some calls, if these were all that is left to them; with a label
        what that host would, if all were its own."""

    def kernel(self, problem: Problem, nodes: Sequence[Expr], label: str, name: str) -> CostEstimate | None:
        """What calls cost that a host is given together; None where it cannot be built, or where nobody tells, and the
        host is not the first. In tables it has this name."""


def whole_ns(ns: float, subject: str) -> int:
    """A time as a whole number of nanoseconds, the nearest.

    Raises:
        UsageError: it is not a number, or none from 0 on, or longer than a hundred years.
    """
    value: object = ns
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 3e18:
        raise UsageError(f"the cost of {subject} is {shown(value)}, not a number of nanoseconds from 0 on")
    return round(value)
