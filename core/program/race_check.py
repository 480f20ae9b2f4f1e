"""Whether steps that run while others do get in each other's way. Knows nothing of how waits are placed.

A queue of a device runs its launches one after the other. A launch may happen at any time between its step and the wait
that covers it; so whatever else happens in between must not touch what it writes, nor write what it touches.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

__all__ = ["Event", "MemoryAccess", "find_races"]


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
            if event.is_barrier and launches:
                busy = f"step {launches[-1]} ({events[launches[-1]].name}) on queue {queue[1]!r} of {queue[0]!r}"
                yield position, f"a branch or a loop begins or ends while {busy} may go on: a wait is missing"
            if queue == key:
                continue
            if event.queue is None and event.device == queue[0] and launches:
                busy = f"step {launches[-1]} ({events[launches[-1]].name}) on its queue {queue[1]!r}"
                yield position, f"device {event.device!r} may still be at {busy}: a wait is missing"
            for other in launches:
                clash = _clash(events[other], event)
                if clash is not None:
                    early, late = clash
                    does, did = ("writes" if one.writes else "reads" for one in (late, early))
                    started = f"step {other} ({events[other].name}) on queue {queue[1]!r} of {queue[0]!r}"
                    same = f" the memory of {early.what!r}," if early.what != late.what else ""
                    yield (
                        position,
                        f"{does} {late.what!r},{same} which {started} may still {did[:-1]}: a wait is missing",
                    )
                    break
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


def _clash(early: Event, late: Event) -> tuple[MemoryAccess, MemoryAccess] | None:
    pairs = ((one, other) for one in early.touches for other in late.touches)
    return next((pair for pair in pairs if pair[0].conflicts(pair[1])), None)
