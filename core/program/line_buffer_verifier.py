"""Proof that a plan is sound within rows: every event of `schedule` on memory byte by byte, each with what it holds."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from ..errors import InternalError
from ..tir.form.nodes import PrimFunc
from .memory_plan import Plan
from .program import Call, Program, arguments
from .row_schedule import Chain, Move, Run, chain, schedule

__all__ = ["check_rows"]

_Key = tuple[str, int, int]
"""What bytes hold: a buffer, its row (0 of what does not lie by rows), and how many calls have written that row."""


def check_rows(program: Program, plan: Plan, begin: int, kept: Collection[str], after: Collection[str]) -> None:
    """Check that every row that a block reads is held, is what was written, and was not written over.

    Args:
        program: a program that `verify` accepts.
        plan: offsets for it, from any planner.
        begin: position of the `Rows`.
        kept: the buffers of the arena that hold before the block what is needed in it or behind it.
        after: those of which the value is needed behind it.

    Raises:
        InternalError: names the buffers, the rows and the step.
    """
    _Walk(program, plan, chain(program, begin)).run(kept, after)


class _Walk:
    """The memory while a block runs."""

    def __init__(self, program: Program, plan: Plan, chain: Chain) -> None:
        import numpy as np

        self.program, self.plan, self.chain = program, plan, chain
        self.buffers = {buffer.name: buffer for buffer in program.buffers}
        spaces = {buffer.name: buffer.nbytes for buffer in program.outputs}  # each a space of its own
        self.memory = {name: np.zeros(size, np.int32) for name, size in {**spaces, **plan.pool_bytes}.items()}
        self.ids: dict[_Key, int] = {}
        self.held = dict.fromkeys(chain.lines, 0)
        self.makers: dict[str, list[int]] = {}
        for position, call in self.calls():
            for param, name in arguments(program, call):
                if param.role == "output":
                    self.makers.setdefault(name, []).append(position)

    def calls(self) -> Iterator[tuple[int, Call]]:
        return ((at, step) for at, step in self.program.calls if at in self.chain.calls)

    def run(self, kept: Collection[str], after: Collection[str]) -> None:
        for name in kept:
            self.fill(name, 0, self.buffers[name].nbytes, (name, 0, 0))
        for event in schedule(self.program, self.chain.begin):
            if isinstance(event, Move):
                self.move(event)
            else:
                self.step(event)
        where = f"program {self.program.name!r}, behind step {self.chain.end}"
        for name in sorted(after):
            line = self.chain.lines.get(name)
            for row in range(1 if line is None else line.height):
                self.expect(name, *self.place(name, row), self.key(name, row, self.chain.end), where)

    def space(self, name: str) -> tuple[str, int]:
        """The memory that a buffer is in, and where."""
        offset = self.plan.offsets.get(name)
        return (name, 0) if offset is None else (self.buffers[name].pool, offset)

    def place(self, name: str, row: int) -> tuple[int, int]:
        """Where a row of a buffer is in it, and its size; all of it where it does not lie by rows."""
        line = self.chain.lines.get(name)
        if line is None:
            return 0, self.buffers[name].nbytes
        return (row - self.held[name]) * line.row_bytes, line.row_bytes

    def key(self, name: str, row: int, position: int) -> _Key:
        """What a call reads of a buffer."""
        return name, row, sum(maker < position for maker in self.makers.get(name, ()))

    def fill(self, name: str, first: int, size: int, key: _Key) -> None:
        space, begin, end = self.span(name, first, size)
        self.memory[space][begin:end] = self.ids.setdefault(key, len(self.ids) + 1)

    def expect(self, name: str, first: int, size: int, key: _Key, where: str) -> None:
        space, begin, end = self.span(name, first, size)
        found = self.memory[space][begin:end]
        wanted = self.ids.get(key, -1)
        if first < 0 or first + size > self.buffers[name].nbytes or (found != wanted).any():
            who = {number: one for one, number in self.ids.items()}
            other = next((who.get(int(one)) for one in found if one != wanted), None)
            by = f"; {other[0]!r}, row {other[1]}, is there" if other is not None else ""
            what = f"row {key[1]} of {name!r}" if name in self.chain.lines else repr(name)
            raise InternalError(f"{what} is not there where it is needed{by}", where=where)

    def move(self, event: Move) -> None:
        line = self.chain.lines[event.buffer]
        space, offset = self.space(event.buffer)
        memory, size = self.memory[space], event.rows * line.row_bytes
        begin = offset + (event.first - event.held) * line.row_bytes
        memory[offset : offset + size] = memory[begin : begin + size].copy()
        self.held[event.buffer] = event.first

    def step(self, event: Run) -> None:
        step = self.program.steps[event.position]
        assert isinstance(step, Call)
        where = f"program {self.program.name!r}, step {event.position} ({step.function}), row {event.row}"
        call = self.chain.calls[event.position]
        for (_, name), first in zip(call.passed, event.first, strict=True):
            if name in self.held:
                self.held[name] = first
        forms = {rows.name: rows for rows, _ in call.passed}
        read: list[tuple[str, int, int]] = []
        for param, name in arguments(self.program, step):
            if param.role != "input" or name not in self.plan.offsets or self.buffers[name].role == "state":
                continue
            form, line = forms.get(param.buffer.name), self.chain.lines.get(name)
            if line is not None:
                rows = range(line.height) if form is None else form.touched(event.row)
                for row in rows:
                    read.append((name, *self.place(name, row)))
                    self.expect(*read[-1], self.key(name, row, event.position), where)
            else:
                whole = self.buffers[name].nbytes
                rows = range(1) if form is None else form.touched(event.row)
                size = whole if form is None else whole // form.height
                if len(rows):
                    read.append((name, rows[0] * size, len(rows) * size))
                    self.expect(*read[-1], self.key(name, 0, event.position), where)
        self.write(event, step, read, where)

    def write(self, event: Run, step: Call, read: list[tuple[str, int, int]], where: str) -> None:
        """What a call writes must lie apart from what it reads, but where its function allows it."""
        function = self.program.functions[step.function]
        kept = function.rows.kept if isinstance(function, PrimFunc) and function.rows is not None else ()
        written: list[tuple[str, int, int]] = []
        for param, name in arguments(self.program, step):
            if param.role not in ("output", "workspace"):
                continue
            line = self.chain.lines.get(name)
            row = event.row if line is not None else 0
            first, size = self.place(name, row)
            if line is not None and (first < 0 or first + size > self.buffers[name].nbytes):
                raise InternalError(f"row {row} of {name!r} is written outside of it", where=where)
            mine = self.span(name, first, size)
            for other, at, count in (*read, *written):
                theirs = self.span(other, at, count)
                if mine[0] != theirs[0] or mine[2] <= theirs[1] or theirs[2] <= mine[1]:
                    continue
                if mine == theirs and (other, at, count) in read and _may_be_over(self.program, step, name, other):
                    continue
                raise InternalError(f"{name!r} overlaps {other!r}, which is live too", where=where)
            if param.buffer.name in kept and event.row:
                self.expect(name, first, size, (name, 0, -1), where)
            _, _, before = self.key(name, row, event.position)
            self.fill(name, first, size, (name, row, -1 if param.role == "workspace" else before + 1))
            written.append((name, first, size))

    def span(self, name: str, first: int, size: int) -> tuple[str, int, int]:
        space, offset = self.space(name)
        return space, offset + first, offset + first + size


def _may_be_over(program: Program, step: Call, out: str, given: str) -> bool:
    """Whether the function of a call lets what is passed as ``out`` be the memory of ``given``."""
    allowed = program.functions[step.function].may_alias
    outs = [param.buffer.name for param, name in arguments(program, step) if name == out and param.role == "output"]
    ins = [param.buffer.name for param, name in arguments(program, step) if name == given and param.role == "input"]
    return bool(outs and ins) and all((one, other) in allowed for one in outs for other in ins)
