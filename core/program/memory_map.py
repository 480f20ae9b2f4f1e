"""Where everything is in memory, and when: a plan as rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .plan import Plan, live_ranges
from .program import Program

__all__ = ["Placed", "memory_map"]


@dataclass(frozen=True)
class Placed:
    """A buffer in its place.

    Args:
        pool: the memory that it is in: of the host, or ``DEVICE.MEMORY``; for states the pool of all states.
        buffer: its name in the program.
        role: ``intermediate``, ``workspace`` or ``state``.
        offset: of its first byte in its pool.
        nbytes: what its elements take, in bytes.
        first, last: the steps of the program between which it holds something, both included; a state always does.
    """

    pool: str
    buffer: str
    role: str
    offset: int
    nbytes: int
    first: int
    last: int

    def record(self) -> dict[str, Any]:
        """The same as plain data, for JSON."""
        return {
            "pool": self.pool,
            "buffer": self.buffer,
            "role": self.role,
            "offset": self.offset,
            "bytes": self.nbytes,
            "first_step": self.first,
            "last_step": self.last,
        }


def memory_map(program: Program, plan: Plan) -> tuple[Placed, ...]:
    """All that ``plan`` gives an offset in a pool, by pool, offset and first step."""
    ranges, end = live_ranges(program), max(len(program.steps) - 1, 0)
    placed = [
        Placed(buffer.pool, buffer.name, buffer.role, plan.offsets[buffer.name], buffer.nbytes, *span)
        for buffer in program.buffers
        if buffer.name in plan.offsets and (span := ranges.get(buffer.name, (0, end)))
    ]
    return tuple(sorted(placed, key=lambda one: (one.pool, one.offset, one.first, one.buffer)))
