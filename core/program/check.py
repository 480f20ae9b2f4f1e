"""Proof that a plan is sound, by means that share nothing with the planner."""

from __future__ import annotations

from bisect import bisect_left, insort

from ..errors import InternalError
from .plan import Plan
from .program import Buffer, Call, Program, arguments

__all__ = ["check_plan"]


def check_plan(program: Program, plan: Plan) -> None:
    """Check that no two buffers that are live together overlap, but for in-place pairs that a kernel allows.

    Args:
        program: a program that `verify` accepts.
        plan: offsets for it, from any planner.

    Raises:
        InternalError: names the buffers and the step.
    """
    buffers = {buffer.name: buffer for buffer in program.buffers if buffer.in_arena}
    _check_places(program, plan, buffers)
    last = {name: position for position, step in enumerate(program.steps) for name in step.args if name in buffers}
    dying: list[list[str]] = [[] for _ in program.steps]
    for name, position in last.items():
        dying[position].append(name)
    memory = {pool: _Memory() for pool in plan.pool_bytes}
    live: set[str] = set()
    for position, step in enumerate(program.steps):
        where = f"program {program.name!r}, step {position} ({step.function})"
        new = [name for name in step.args if name in buffers and name not in live]
        # An output in place takes over from its input; all else must find its memory free while the inputs are live.
        replaced: dict[str, str] = {}
        for name in new:
            victim = memory[buffers[name].pool].at(plan.offsets[name])
            if (
                victim is not None
                and victim not in replaced.values()
                and last[victim] == position
                and buffers[victim].nbytes == buffers[name].nbytes
                and _may_replace(program, step, name, victim)
            ):
                replaced[name] = victim
        for name in new:
            pool = memory[buffers[name].pool]
            if name not in replaced:
                clash = pool.add(name, plan.offsets[name], buffers[name].nbytes)
                if clash is not None:
                    raise InternalError(f"{name!r} overlaps {clash!r}, which is live too", where=where)
        for name, victim in replaced.items():
            pool = memory[buffers[name].pool]
            pool.remove(plan.offsets[victim])
            pool.add(name, plan.offsets[name], buffers[name].nbytes)
        live.update(new)
        for name in dying[position]:
            if name not in replaced.values():
                memory[buffers[name].pool].remove(plan.offsets[name])
            live.discard(name)


def _check_places(program: Program, plan: Plan, buffers: dict[str, Buffer]) -> None:
    where = f"program {program.name!r}"
    for name in sorted(buffers.keys() ^ plan.offsets.keys()):
        fault = "has no offset" if name in buffers else "has an offset and is not in the arena"
        raise InternalError(f"{name!r} {fault}", where=where)
    for pool in sorted({buffer.pool for buffer in buffers.values()} ^ plan.pool_bytes.keys()):
        raise InternalError(f"the plan and the program do not both use pool {pool!r}", where=where)
    for device in program.devices:
        for memory in program.memories(device).values():
            needed = plan.pool_bytes.get(f"{device}.{memory.name}", 0)
            if needed > memory.nbytes:
                what = f"memory {memory.name!r} of device {device!r} has {memory.nbytes} bytes, not {needed}"
                raise InternalError(what, where=where)
    for name, buffer in buffers.items():
        offset = plan.offsets[name]
        if offset < 0 or offset + buffer.nbytes > plan.pool_bytes[buffer.pool]:
            what = f"{name!r} at {offset} with {buffer.nbytes} bytes is not within {plan.pool_bytes[buffer.pool]} bytes"
            raise InternalError(what, where=where)
        if offset % buffer.alignment:
            raise InternalError(f"{name!r} at {offset} is not aligned to {buffer.alignment}", where=where)


def _may_replace(program: Program, step: Call, out: str, victim: str) -> bool:
    """Whether the step's kernel lets its output be the memory of ``victim`` wherever that is passed."""
    allowed = program.functions[step.function].may_alias
    outs = [param.buffer.name for param, name in arguments(program, step) if name == out and param.role == "output"]
    given = [param.buffer.name for param, name in arguments(program, step) if name == victim]
    return bool(outs and given) and all((one, other) in allowed for one in outs for other in given)


class _Memory:
    """What is live in one pool, sorted by address."""

    def __init__(self) -> None:
        self._spans: list[tuple[int, int, str]] = []

    def at(self, offset: int) -> str | None:
        """The buffer that starts at ``offset``."""
        position = bisect_left(self._spans, (offset, 0, ""))
        found = position < len(self._spans) and self._spans[position][0] == offset
        return self._spans[position][2] if found else None

    def add(self, name: str, offset: int, size: int) -> str | None:
        """Make a buffer live; gives the name of one that it overlaps, if there is one."""
        position = bisect_left(self._spans, (offset, 0, ""))
        for low, high, other in self._spans[max(0, position - 1) : position + 1]:
            if low < offset + size and offset < high:
                return other
        insort(self._spans, (offset, offset + size, name))
        return None

    def remove(self, offset: int) -> None:
        """Make the buffer that starts at ``offset`` dead."""
        del self._spans[bisect_left(self._spans, (offset, 0, ""))]
