"""Waits: where the host must wait for what it started, as late and for as little as is safe.

Two steps must not swap where one writes what the other touches. Launches of one queue never do; all else is kept in
order by waits. A launch that is n-th to last on its queue has finished once at most n - 1 are unfinished, so a wait for
it lets those after it go on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..relay.extern import Kernel, access_of
from .program import Call, Program, Step, Wait, parameters

__all__ = ["finish_positions", "place_waits"]


@dataclass(frozen=True)
class _Accesses:
    """The buffers that a call reads and writes."""

    reads: frozenset[str]
    writes: frozenset[str]

    @staticmethod
    def from_call(call: Call, function: Kernel) -> _Accesses:
        accesses = [(access_of(param.role), name) for param, name in zip(parameters(function), call.args, strict=True)]
        return _Accesses(
            frozenset(name for access, name in accesses if access != "write"),
            frozenset(name for access, name in accesses if access != "read"),
        )

    def before(self, other: _Accesses) -> bool:
        """Whether these must have happened before the other ones may."""
        return not self.writes.isdisjoint(other.reads | other.writes) or not self.reads.isdisjoint(other.writes)


def place_waits(
    calls: Sequence[Step], functions: Mapping[str, Kernel], depths: Mapping[tuple[str, str], int]
) -> tuple[Step, ...]:
    """``calls`` with the waits that they need.

    Args:
        calls: in an order that is right where each has finished before the next one begins; with branches and loops,
            before which all has.
        functions: what they call.
        depths: how many launches each queue, by device and name, takes before one is waited for.
    """
    steps: list[Step] = []
    flying: dict[tuple[str, str], list[_Accesses]] = {}

    def wait(queue: tuple[str, str], pending: int) -> None:
        launches = flying[queue]
        if pending < len(launches):
            steps.append(Wait(*queue, pending))
            del launches[: len(launches) - pending]

    for call in calls:
        if not isinstance(call, Call):
            for queue in flying:
                wait(queue, 0)
            steps.append(call)
            continue
        accesses = _Accesses.from_call(call, functions[call.function])
        for queue, launches in flying.items():
            wait(queue, _pending(call, accesses, queue, launches, depths[queue]))
        steps.append(call)
        if call.queue is not None:
            flying.setdefault((call.device or "", call.queue), []).append(accesses)
    for queue in flying:
        wait(queue, 0)
    return tuple(steps)


def _pending(call: Call, accesses: _Accesses, queue: tuple[str, str], launches: Sequence[_Accesses], depth: int) -> int:
    """Return how many launches of ``queue`` may be unfinished when ``call`` begins."""
    if queue == (call.device or "", call.queue or ""):
        return depth - 1
    if call.queue is None and call.device == queue[0]:
        return 0  # a call that is not started on a queue has the device to itself
    last = max((position for position, launch in enumerate(launches) if launch.before(accesses)), default=-1)
    return len(launches) - 1 - last


def finish_positions(program: Program) -> list[int]:
    """For each step the position of the step at whose end it has finished: itself, or for a launch the wait that covers
    it; the number of steps where none does."""
    positions = list(range(len(program.steps)))
    flying: dict[tuple[str, str], list[int]] = {}
    for position, step in enumerate(program.steps):
        if step.queue is None or step.device is None:
            continue
        launches = flying.setdefault((step.device, step.queue), [])
        if isinstance(step, Call):
            launches.append(position)
            positions[position] = len(program.steps)
        else:
            finished = launches[: max(0, len(launches) - step.pending)]
            del launches[: len(finished)]
            for launch in finished:
                positions[launch] = position
    return positions
