"""Proof that a plan is sound, by means that share nothing with the planner."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from ..errors import InternalError
from .constants import relocated_buffers
from .control_flow import blocks, has_control, live_after
from .line_buffer_verifier import check_rows
from .memory_plan import Plan
from .overlap_verifier import overlap_fault
from .program import Buffer, Call, Program, Rows, arguments
from .race_check import MemoryAccess, find_races, step_events
from .row_schedule import positions_in_rows

__all__ = ["verify_plan"]


def verify_plan(program: Program, plan: Plan) -> None:
    """Check that no two buffers that are live together overlap, but for in-place pairs that a kernel allows; and that
    nothing touches memory that a launch may still be at. Inputs in the arena are live before the first step, outputs
    there to the end.

    Args:
        program: a program that `verify` accepts.
        plan: offsets for it, from any planner.

    Raises:
        InternalError: names the buffers and the steps.
    """
    buffers = {buffer.name: buffer for buffer in program.buffers if buffer.in_arena}
    states = {buffer.name: buffer for buffer in program.states}
    _check_places(program, plan, buffers | states)
    _check_together(program, plan, program.states)
    _check_constants(program, plan)
    _check_order(program, plan)
    _check_together(program, plan, [buffer for buffer in program.placed if buffer.role == "input"])
    if has_control(program):
        _check_ways(program, plan, buffers)
    else:
        _LiveMemory(program, plan, buffers).check()


def _check_together(program: Program, plan: Plan, buffers: Iterable[Buffer]) -> None:
    """Check that buffers which are all live before the first step do not overlap."""
    memory = defaultdict[str, _Memory](_Memory)
    for buffer in buffers:
        clash = memory[buffer.pool].add(buffer.name, plan.offsets[buffer.name], buffer.nbytes)
        if clash is not None:
            why = ": the caller writes both before the run" if buffer.role == "input" else ""
            what = f"{buffer.role} {buffer.name!r} overlaps {buffer.role} {clash!r}{why}"
            raise InternalError(what, where=f"program {program.name!r}")


class _LiveMemory:
    """What is live from step to step, in a program without branches and loops."""

    def __init__(self, program: Program, plan: Plan, buffers: Mapping[str, Buffer]) -> None:
        self.program, self.plan, self.buffers = program, plan, buffers
        self.memory = {pool: _Memory() for pool in plan.pool_bytes}
        self.inner = positions_in_rows(program)
        self.ends = {block.begin: block.end for block in blocks(program.steps) if block.is_rows}
        self.last = {name: position for position, step in program.calls for name in step.args if name in buffers}
        self.last |= {buffer.name: len(program.steps) for buffer in program.placed if buffer.role == "output"}
        self.dying: list[list[str]] = [[] for _ in program.steps]
        for name, position in self.last.items():
            if position < len(program.steps):
                self.dying[self.inner.get(position, position)].append(name)
        self.live = {buffer.name for buffer in program.placed if buffer.role == "input" and buffer.name in self.last}
        for name in self.live:
            self.memory[buffers[name].pool].add(name, plan.offsets[name], buffers[name].nbytes)

    def check(self) -> None:
        """Raise InternalError where a step needs memory that something live is in."""
        for position, step in enumerate(self.program.steps):
            if isinstance(step, Rows):
                self.check_rows(position)
            elif isinstance(step, Call) and position not in self.inner:
                self.check_call(position, step)

    def check_rows(self, position: int) -> None:
        used = {name for at, call in self.program.calls if self.inner.get(at) == position for name in call.args}
        before = self.live | ({buffer.name for buffer in self.program.states} & used)
        self.end(name for name in self.dying[position] if name in self.live)
        self.live.difference_update(self.dying[position])
        new = [name for name in self.buffers if name in used and name not in self.live]
        self.begin([name for name in new if self.last[name] > self.ends[position]], f"step {position} (rows)")
        check_rows(self.program, self.plan, position, before, self.live)

    def check_call(self, position: int, step: Call) -> None:
        """Check one call: an output takes over from inputs that die, in place or by a distance; all else must find its
        memory free while the inputs are live."""
        where = f"step {position} ({step.function})"
        new = [name for name in step.args if name in self.buffers and name not in self.live]
        replaced: dict[str, None] = {}
        for name in new:
            buffer = self.buffers[name]
            for other in self.memory[buffer.pool].overlapping(self.plan.offsets[name], buffer.nbytes):
                dies = self.last[other] == position
                fault = _clash(self.program, self.plan, step, buffer, self.buffers[other], dies)
                if fault:
                    raise InternalError(fault, where=f"program {self.program.name!r}, {where}")
                replaced[other] = None
        self.end(replaced)
        self.begin(new, where)
        self.end(name for name in self.dying[position] if name not in replaced)
        self.live.difference_update(self.dying[position])

    def begin(self, names: Sequence[str], where: str) -> None:
        """Make buffers live."""
        for name in names:
            buffer = self.buffers[name]
            clash = self.memory[buffer.pool].add(name, self.plan.offsets[name], buffer.nbytes)
            if clash is not None:
                where = f"program {self.program.name!r}, {where}"
                raise InternalError(f"{name!r} overlaps {clash!r}, which is live too", where=where)
        self.live.update(names)

    def end(self, names: Iterable[str]) -> None:
        """Make the memory of buffers free."""
        for name in names:
            self.memory[self.buffers[name].pool].remove(self.plan.offsets[name])


def _check_ways(program: Program, plan: Plan, buffers: dict[str, Buffer]) -> None:
    """The same for a program with branches and loops: no step writes over what some way from it still reads."""
    after = live_after(program)
    inner = positions_in_rows(program)
    for position, step in enumerate(program.steps):
        if isinstance(step, Rows):
            calls = [call for at, call in program.calls if inner.get(at) == position]
            pairs = [(param.role, name) for call in calls for param, name in arguments(program, call)]
            written_in_rows = {name for role, name in pairs if role in ("output", "workspace")}
            needed = {name for role, name in pairs if role == "input"} | after[position]
            check_rows(
                program, plan, position, needed & buffers.keys() - written_in_rows, after[position] & buffers.keys()
            )
            continue
        if not isinstance(step, Call) or position in inner:
            continue
        where = f"program {program.name!r}, step {position} ({step.function})"
        passed = [name for name in dict.fromkeys(step.args) if name in buffers]
        written = {name for param, name in arguments(program, step) if param.role in ("output", "workspace")}
        others = list(dict.fromkeys([*passed, *sorted(after[position] & buffers.keys())]))
        for name in passed:
            mine = buffers[name]
            low, high = plan.offsets[name], plan.offsets[name] + mine.nbytes
            for other in others if name in written else ():
                theirs = buffers[other]
                start = plan.offsets[other]
                if other == name or theirs.pool != mine.pool or start >= high or low >= start + theirs.nbytes:
                    continue
                dies = other not in written and other not in after[position]
                fault = _clash(program, plan, step, mine, theirs, dies)
                if fault:
                    raise InternalError(fault, where=where)


def _check_places(program: Program, plan: Plan, buffers: dict[str, Buffer]) -> None:
    where = f"program {program.name!r}"
    for name in sorted(buffers.keys() ^ plan.offsets.keys()):
        fault = "has no offset" if name in buffers else "has an offset and no memory is planned for it"
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


def _check_constants(program: Program, plan: Plan) -> None:
    where = f"program {program.name!r}"
    relocated = relocated_buffers(program)
    end, before = 0, ""
    constants = sorted(program.role("constant"), key=lambda buffer: plan.constants.get(buffer.name, -1))
    starts: dict[int, Buffer] = {}
    for buffer in constants:
        start = plan.constants.get(buffer.name, -1)
        if start < 0 or start % buffer.alignment or start + buffer.nbytes > plan.constant_bytes:
            what = (
                f"constant {buffer.name!r} is at {start}, in {plan.constant_bytes} bytes aligned to {buffer.alignment}"
            )
            raise InternalError(what, where=where)
        other = starts.setdefault(start, buffer)
        shared = other.data == buffer.data and not {other.name, buffer.name} & relocated.keys()
        if (other is buffer and start < end) or (other is not buffer and not shared):
            raise InternalError(f"constant {buffer.name!r} overlaps {before!r}", where=where)
        end, before = max(end, start + buffer.nbytes), buffer.name


def _check_order(program: Program, plan: Plan) -> None:
    """What is started on queues, against the bytes that every step touches."""
    buffers = {buffer.name: buffer for buffer in program.buffers}

    def touch(name: str, writes: bool) -> MemoryAccess:
        low = plan.offsets.get(name)  # an array of the caller is a space of its own
        space = f"the array {name}" if low is None else f"the pool {buffers[name].pool}"
        return MemoryAccess(name, space, low or 0, (low or 0) + buffers[name].nbytes, writes)

    events = step_events(program, touch)
    depths = {(queue.device, queue.name): queue.depth for queue in program.queues}
    for position, what in find_races(events, depths):
        raise InternalError(what, where=f"program {program.name!r}, step {position} ({events[position].name})")


def _may_replace(program: Program, step: Call, out: str, victim: str) -> bool:
    """Whether the step's kernel lets its output be the memory of ``victim`` wherever that is passed."""
    allowed = program.functions[step.function].may_alias
    outs = [param.buffer.name for param, name in arguments(program, step) if name == out and param.role == "output"]
    inputs = [param.buffer.name for param, name in arguments(program, step) if name == victim]
    return bool(outs and inputs) and all((one, other) in allowed for one in outs for other in inputs)


def _clash(program: Program, plan: Plan, step: Call, mine: Buffer, theirs: Buffer, dies: bool) -> str:
    """What is wrong with a buffer that the step needs from now on over another one that is live; empty where nothing
    is: it may be in place of one that dies, or over it by a distance."""
    if not dies:
        return f"{mine.name!r} overlaps {theirs.name!r}, which is live too"
    same = plan.offsets[mine.name] == plan.offsets[theirs.name] and mine.nbytes == theirs.nbytes
    if same and _may_replace(program, step, mine.name, theirs.name):
        return ""
    return overlap_fault(program, plan, step, mine.name, theirs.name)


class _Memory:
    """What is live in one pool, sorted by address."""

    def __init__(self) -> None:
        self._spans: list[tuple[int, int, str]] = []

    def overlapping(self, offset: int, size: int) -> list[str]:
        """The buffers that ``size`` bytes from ``offset`` on overlap."""
        first = max(0, bisect_left(self._spans, (offset, 0, "")) - 1)
        last = bisect_left(self._spans, (offset + size, 0, ""))
        return [name for low, high, name in self._spans[first:last] if low < offset + size and offset < high]

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
