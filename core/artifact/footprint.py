"""The memory that a model takes: what counts as ROM and as RAM, and what is alive where most of a memory is in use.

This is the one definition: builds, limits and reports take it from here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from ..program.program import STATE_POOL
from .record import ArtifactRecord, BufferRecord

__all__ = ["Footprint", "MemoryPeak", "footprint", "memory_peaks"]


@dataclass(frozen=True)
class Footprint:
    """The memory of one model with one context, on its host, in bytes. Memories of devices are their own.

    Args:
        constant_bytes: weights and tables.
        code_bytes: machine code; None where nothing was compiled.
        arena_bytes: working memory of one run.
        state_bytes: what one context keeps from one run to the next.
        input_bytes, output_bytes: the arrays that the caller gives; nothing where these are in the arena.
        stack_bytes: of one run; None where the compiler does not tell, or nothing was compiled.
    """

    constant_bytes: int
    code_bytes: int | None
    arena_bytes: int
    state_bytes: int
    input_bytes: int
    output_bytes: int
    stack_bytes: int | None

    @property
    def rom_bytes(self) -> int:
        """Weights and code; the weights alone where the code is not known."""
        return self.constant_bytes + (self.code_bytes or 0)

    @property
    def ram_bytes(self) -> int:
        """Arena, state, inputs, outputs, and the stack where the compiler tells it."""
        return self.arena_bytes + self.state_bytes + self.input_bytes + self.output_bytes + (self.stack_bytes or 0)

    json_fields: ClassVar = ("rom_bytes", "ram_bytes", "...")


def footprint(record: ArtifactRecord, code_bytes: int | None = None, stack_bytes: int | None = None) -> Footprint:
    """What a model takes.

    Args:
        record: of its artifact.
        code_bytes, stack_bytes: as `Artifact.code_bytes` and `Artifact.stack_bytes` have them; None where nothing was
            compiled.
    """
    outside = [one for one in record.buffers if one.pool is None]
    inputs, outputs = (sum(one.bytes for one in outside if one.role == role) for role in ("input", "output"))
    state_bytes = 0 if record.state is None else record.state.bytes
    return Footprint(record.constant_bytes, code_bytes, record.arena_bytes, state_bytes, inputs, outputs, stack_bytes)


@dataclass(frozen=True)
class MemoryPeak:
    """Where a run has most of one memory in use.

    Args:
        pool: the memory: one of the arena's, which is the host's, or ``DEVICE.MEMORY``.
        bytes: what the plan takes of it in all.
        alive_bytes: what is in use at the worst step; where it is less than ``bytes``, the rest lies between buffers.
        step: the first of the worst steps, by its position in the record's calls.
        alive: the buffers in use there, the largest first.
    """

    pool: str
    bytes: int
    alive_bytes: int
    step: int
    alive: tuple[BufferRecord, ...]

    @property
    def is_device(self) -> bool:
        """Whether it is a device's own memory."""
        return "." in self.pool

    json_fields: ClassVar = ("pool", "bytes", "alive_bytes", "step", "alive=_alive_rows")

    @property
    def _alive_rows(self) -> list[dict[str, Any]]:
        return [{"buffer": one.name, "role": one.role, "offset": one.offset, "bytes": one.bytes} for one in self.alive]


def memory_peaks(record: ArtifactRecord) -> tuple[MemoryPeak, ...]:
    """The peak of every memory that a run works in, by name: those of the arena and of devices."""
    pools: dict[str, list[BufferRecord]] = {}
    for buffer in record.buffers:
        if buffer.pool is not None and buffer.offset is not None and buffer.role not in ("constant", STATE_POOL):
            pools.setdefault(buffer.pool, []).append(buffer)
    return tuple(_peak(pool, buffers) for pool, buffers in sorted(pools.items()))


def _peak(pool: str, buffers: list[BufferRecord]) -> MemoryPeak:
    step, alive = max(_alive(buffers), key=lambda entry: (_in_use(entry[1]), -entry[0]))
    named = tuple(sorted(alive, key=lambda one: (-one.bytes, one.name)))
    return MemoryPeak(pool, max(map(_end, buffers)), _in_use(alive), step, named)


def _alive(buffers: list[BufferRecord]) -> Iterator[tuple[int, list[BufferRecord]]]:
    """What is in use at each step at which something new is; at all others it is no more than at one of these."""
    waiting = sorted(buffers, key=lambda one: -one.first_step)
    alive: list[BufferRecord] = []
    while waiting:
        step = waiting[-1].first_step
        alive = [one for one in alive if one.last_step >= step]
        while waiting and waiting[-1].first_step == step:
            alive.append(waiting.pop())
        yield step, alive


def _in_use(alive: list[BufferRecord]) -> int:
    """Bytes that some buffers take; what two have in common, one in the place of the other, counts once."""
    total = end = 0
    for one in sorted(alive, key=lambda one: one.offset or 0):
        total += max(0, _end(one) - max(end, one.offset or 0))
        end = max(end, _end(one))
    return total


def _end(buffer: BufferRecord) -> int:
    assert buffer.offset is not None
    return buffer.offset + buffer.bytes
