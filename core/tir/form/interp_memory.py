"""Memory as the interpreter sees it: parts that are held, views, and accesses that are in flight."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

from .nodes import Axis, Buffer, Copy, Exec, Queue
from .printer import headline, in_flight
from .scalar_semantics import UndefinedResult

__all__ = ["BufferUse", "Flight", "Flights", "PartialMemory", "StartedMemory", "Value", "Window", "out_of_bounds"]

Value = Any


class PartialMemory(list[Value]):
    """The memory of a buffer of which a part is held.

    Args:
        elements: the part.
        first: the position of its first element.
        name: of the buffer.
    """

    def __init__(self, elements: list[Value], first: int, name: str) -> None:
        super().__init__()
        self.elements, self.first, self.name = elements, first, name

    def _at(self, position: int) -> int:
        if not 0 <= position - self.first < len(self.elements):
            raise UndefinedResult(f"element {position} of {self.name!r} lies in a row that is not held")
        return position - self.first

    def __getitem__(self, position: Any) -> Value:
        return self.elements[self._at(position)]

    def __setitem__(self, position: Any, value: Value) -> None:
        self.elements[self._at(position)] = value


@dataclass(frozen=True)
class Window:
    """A view while the machine stands at it."""

    buffer: Buffer
    start: tuple[int, ...]
    axes: tuple[Axis, ...]

    def position(self, indices: Sequence[int]) -> int:
        """Of an element of the view within the memory of its buffer."""
        place = list(self.start)
        for axis, index in zip(self.axes, indices, strict=True):
            place[axis.dim] += index * axis.step
        position = 0
        for dimension, (value, extent) in enumerate(zip(place, self.buffer.shape, strict=True)):
            if not 0 <= value < extent:
                raise out_of_bounds(self.buffer, dimension, value)
            position = position * extent + value
        return position


class StartedMemory(list[Value]):
    """The memory of a buffer as an instruction sees it that was started: what it writes arrives later."""

    def __init__(self, elements: list[Value]) -> None:
        super().__init__()
        self.elements = elements
        self.read: set[int] = set()
        self.arriving: dict[int, Value] = {}

    def __getitem__(self, position: Any) -> Value:
        if position in self.arriving:
            return self.arriving[position]
        self.read.add(position)
        return self.elements[position]

    def __setitem__(self, position: Any, value: Value) -> None:
        self.arriving[position] = value


@dataclass(frozen=True)
class BufferUse:
    """What is in flight of one buffer: the positions that are read, and the values that will be written."""

    elements: list[Value]
    read: Set[int] = frozenset()
    arriving: Mapping[int, Value] = field(default_factory=dict)


@dataclass(frozen=True)
class Flight:
    """A copy or an execution that was started and has not been waited for, with its use of each buffer."""

    stmt: Copy | Exec
    uses: tuple[BufferUse, ...]

    def __str__(self) -> str:
        return in_flight(self.stmt)


class Flights:
    """What is in flight, by queue, in the order in which it was started."""

    def __init__(self) -> None:
        self.queues: dict[Queue, list[Flight]] = {}

    def uses_in(self, elements: list[Value]) -> Iterator[tuple[Flight, BufferUse]]:
        """The uses of some memory."""
        under = elements.elements if isinstance(elements, StartedMemory) else elements
        for flights in self.queues.values():
            for flight in flights:
                yield from ((flight, use) for use in flight.uses if use.elements is under)

    def writing(self, elements: list[Value], position: int) -> Flight | None:
        """The one that writes an element."""
        return next((flight for flight, use in self.uses_in(elements) if position in use.arriving), None)

    def check_free(self, buffer: Buffer, elements: list[Value], positions: Iterable[int]) -> None:
        """Raise a fault if elements cannot be written now."""
        for flight, use in self.uses_in(elements):
            for used, does in ((use.arriving.keys(), "writes"), (use.read, "reads")):
                if not used.isdisjoint(positions):
                    what = f"an element of {buffer.name!r} is written while {flight} {does} it"
                    raise UndefinedResult(f"{what}: {headline(flight.stmt)}")

    def start(self, queue: Queue, flight: Flight) -> None:
        for use in flight.uses:
            for position in use.arriving:
                use.elements[position] = None
        self.queues.setdefault(queue, []).append(flight)

    def wait(self, queue: Queue, pending: int) -> None:
        flights = self.queues.pop(queue, [])
        ended = len(flights) - min(pending, len(flights))
        for use in (use for flight in flights[:ended] for use in flight.uses):
            for position, value in use.arriving.items():
                use.elements[position] = value
        if flights[ended:]:
            self.queues[queue] = flights[ended:]


def out_of_bounds(buffer: Buffer, dimension: int, index: int) -> UndefinedResult:
    """Return the fault of an access with ``index`` along one dimension of ``buffer``."""
    return UndefinedResult(
        f"index {index} is outside dimension {dimension} of {buffer.name!r}, of {buffer.shape[dimension]}"
    )
