"""Whether steps that run while others do get in each other's way. Knows nothing of how waits are placed.

A queue of a device runs its launches one after the other. A launch may happen at any time between its step and the wait
that covers it; so whatever else happens in between must not touch what it writes, nor write what it touches.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from .control_flow import blocks
from .program import Call, Program, Wait, arguments

__all__ = ["Event", "MemoryAccess", "find_races", "step_events"]


@dataclass(frozen=True)
class MemoryAccess:
    """Bytes ``low`` to ``high`` (excluded) of a space, which are written, or only read. ``what`` names them."""

    what: str
    space: str
    low: int
    high: int
    writes: bool

    def conflicts(self, other: MemoryAccess) -> bool:
        """Whether the order of the two matters."""
        apart = self.space != other.space or self.low >= other.high or other.low >= self.high
        return not apart and (self.writes or other.writes)


@dataclass(frozen=True)
class Event:
    """What a step does, as far as its order matters.

    Args:
        name: of the step, for messages.
        device: which it is for; None for the host alone.
        queue: on which it is started, or which it waits for; None where it has happened when the step ends.
        pending: how many launches a wait leaves unfinished; None where the step is none.
        touches: the memory that it works on.
        is_barrier: whether nothing may be unfinished where it stands.
    """

    name: str
    device: str | None = None
    queue: str | None = None
    pending: int | None = None
    touches: tuple[MemoryAccess, ...] = ()
    is_barrier: bool = False


def step_events(program: Program, touch: Callable[[str, bool], MemoryAccess]) -> list[Event]:
    """Return an event for each step of ``program``.

    Args:
        program: the program.
        touch: returns the memory of a buffer, by its name, with whether it is written.
    """
    events = []
    rows_ends = {at for block in blocks(program.steps) if block.is_rows for at in (block.begin, block.end)}
    for position, step in enumerate(program.steps):
        if isinstance(step, Wait):
            events.append(Event("wait", step.device, step.queue, step.pending))
        elif isinstance(step, Call):
            pairs = [(param.role, name) for param, name in arguments(program, step) if param.role != "constant"]
            touches = tuple(touch(name, role in ("output", "workspace")) for role, name in pairs)
            events.append(Event(step.function, step.device, step.queue, None, touches))
        else:
            events.append(Event("branch", is_barrier=position not in rows_ends))
    return events


def find_races(events: Sequence[Event], depths: Mapping[tuple[str, str], int]) -> Iterator[tuple[int, str]]:
    """What is wrong with an order of steps, each with the position of the later of the two steps.

    Args:
        events: of the steps.
        depths: how many launches each queue, by device and name, takes before one is waited for.
    """
    flying: dict[tuple[str, str], deque[int]] = {queue: deque() for queue in depths}
    for position, event in enumerate(events):
        key = (event.device or "", event.queue or "")
        if event.pending is not None:
            while len(flying[key]) > event.pending:
                flying[key].popleft()
            continue
        for queue, launches in flying.items():
            if launches:
                yield from ((position, what) for what in _queue_races(events, event, queue, launches))
        if event.queue is not None:
            if len(flying[key]) == depths[key]:
                yield (
                    position,
                    f"queue {key[1]!r} of {key[0]!r} takes {depths[key]} launches: a wait is missing",
                )
            flying[key].append(position)
    for (device, name), launches in flying.items():
        if launches:
            started = f"step {launches[-1]} ({events[launches[-1]].name})"
            yield launches[-1], f"queue {name!r} of {device!r} is never waited for after {started}"


def _queue_races(
    events: Sequence[Event], event: Event, queue: tuple[str, str], launches: Sequence[int]
) -> Iterator[str]:
    """Return the conflicts of an event with the unfinished launches of one queue."""
    device, name = queue
    last = f"step {launches[-1]} ({events[launches[-1]].name})"
    if event.is_barrier:
        busy = f"{last} on queue {name!r} of {device!r}"
        yield f"a branch or a loop begins or ends while {busy} may go on: a wait is missing"
    if (event.device or "", event.queue or "") == queue:
        return
    if event.queue is None and event.device == device:
        yield f"device {event.device!r} may still be at {last} on its queue {name!r}: a wait is missing"
    for position in launches:
        clash = _clash(events[position], event)
        if clash is not None:
            early, late = clash
            does, did = ("writes" if one.writes else "reads" for one in (late, early))
            started = f"step {position} ({events[position].name}) on queue {name!r} of {device!r}"
            same = f" the memory of {early.what!r}," if early.what != late.what else ""
            yield f"{does} {late.what!r},{same} which {started} may still {did[:-1]}: a wait is missing"
            return


def _clash(early: Event, late: Event) -> tuple[MemoryAccess, MemoryAccess] | None:
    pairs = ((one, other) for one in early.touches for other in late.touches)
    return next((pair for pair in pairs if pair[0].conflicts(pair[1])), None)
