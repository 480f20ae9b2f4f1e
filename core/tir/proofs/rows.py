"""The proof of what a function with rows promises: a round touches no other rows than it says, and finds nothing in a
workspace that rounds before it have left, unless it says so.

A window clipped to the rows that there are is enough: that indices stay within their buffers is proven of the whole
function, by `index_faults`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from ..form.dtype import itemsize
from ..form.nodes import Alloc, Bind, Block, Buffer, Exec, For, If, PrimFunc, RowForm, Seq, Stmt, Var, const
from ..form.visit import buffers_read, buffers_written, child_statements, statements
from .indices import Unproven
from .linear_prover import Facts
from .touched import holds, touched
from .written import Rounds, Runner, TooMuchError

__all__ = ["around", "is_made_anew", "row_faults"]


def around(rows: RowForm) -> Facts:
    """What is known in each round."""
    facts = Facts().loop(rows.var, const(rows.extent))
    assert facts is not None
    return facts


def row_faults(func: PrimFunc) -> Iterator[Unproven]:
    """What a function says of its rows that is not proven; one that `index_faults` has nothing on."""
    rows = func.rows
    if rows is None:
        return
    facts, buffers = around(rows), {param.buffer.name: param.buffer for param in func.params}
    for row in rows.params:
        buffer = buffers[row.name]
        unit, promised = buffer.size // row.height, (row.window, row.stride, row.before)
        for touch in touched(func.body, (buffer,), facts):
            if not holds(touch, rows.var, unit, promised):
                what = f"a round touches rows of {row.name!r} other than those that it says, or is not proven not to"
                yield Unproven(what, touch.stmt, f"by_rows({row.name}, ..) promises too few rows, or others")
        for stmt in statements(func.body):
            if isinstance(stmt, Exec):
                yield from _alignment_faults(stmt, buffer, unit * itemsize(buffer.dtype))
    for param in func.params:
        name = param.buffer.name
        if param.role == "workspace" and name not in rows.kept and not is_made_anew(param.buffer, func.body, facts):
            what = f"workspace {name!r} is not proven to be written in each round before it is read there"
            yield Unproven(what, None, f"write it first, or say kept({name}), so that its contents last")


def _alignment_faults(stmt: Exec, buffer: Buffer, row_bytes: int) -> Iterator[Unproven]:
    for param, view in zip(stmt.intrinsic.params, stmt.args, strict=True):
        if view.buffer is buffer and row_bytes % param.alignment:
            what = f"{stmt.intrinsic.name!r} takes as {param.name!r} what is aligned to {param.alignment} bytes"
            hint = "leave it whole, or align it less"
            yield Unproven(f"{what}; rows of {buffer.name!r}, held from any one on, have {row_bytes}", stmt, hint)


def is_made_anew(buffer: Buffer, body: Stmt, facts: Facts) -> bool:
    """Whether all that ``body`` reads of a buffer it has surely written before."""
    import numpy as np

    if buffer not in buffers_read(body):
        return True
    once = Rounds(1, {}, np.zeros(1, np.int64))
    try:
        with np.errstate(all="ignore"):
            _Follower(buffer, Runner(buffer, body)).after(body, _Place(once, facts), np.zeros(buffer.size, bool))
    except (_NotShownError, TooMuchError):
        return False
    return True


class _NotShownError(Exception):
    """Something may be read that was not written."""


@dataclass(frozen=True)
class _Place:
    """A place of the program in one round of the loops around it, as far as they are known."""

    rounds: Rounds
    facts: Facts

    def having(self, var: Var, value: int) -> _Place:
        import numpy as np

        return _Place(self.rounds.having(var, np.array([value], np.int32)), self.facts.bind(var, const(value)))


_MAX_STEPS = 2000
"""Rounds of loops that are followed one by one."""


@dataclass
class _Follower:
    """Follows what is written of a buffer, an element being true where it surely is.

    Args:
        buffer: the buffer.
        runner: of what the body writes to it.
        left: rounds of loops that may still be followed.
    """

    buffer: Buffer
    runner: Runner
    left: int = field(default=_MAX_STEPS)

    def after(self, stmt: Stmt, place: _Place, written: Any) -> Any:
        """What is written after ``stmt`` where ``written`` is before it."""
        reads, writes = self.buffer in buffers_read(stmt), self.buffer in buffers_written(stmt)
        if written.all() or not (reads or writes):
            return written
        if isinstance(stmt, (Seq, Block, Alloc)) and reads:
            for inner in child_statements(stmt):
                written = self.after(inner, place, written)
            return written
        if reads and writes and isinstance(stmt, For):
            return self.loop(stmt, place, written)
        if reads and writes and isinstance(stmt, Bind):
            return self.bind(stmt, place, written)
        if reads and writes and isinstance(stmt, If) and self.buffer not in buffers_read(stmt.condition):
            return self.condition(stmt, place, written)
        if reads:
            for touch in touched(stmt, (self.buffer,), place.facts):
                low, high = touch.facts.span(touch.terms)
                if not written[max(0, low + touch.low) : high + touch.high + 1].all():
                    raise _NotShownError
        if writes:
            written = written.copy()
            for _, elements in self.runner.written(stmt, place.rounds, {}, place.facts):
                written[elements] = True
        return written

    def loop(self, stmt: For, place: _Place, written: Any) -> Any:
        count = self.runner.value(stmt.extent, place.rounds)
        if count is None:
            raise _NotShownError
        for number in range(int(count[0])):
            if written.all():
                break
            self.left -= 1
            if self.left < 0:
                raise _NotShownError
            written = self.after(stmt.body, place.having(stmt.var, number), written)
        return written

    def bind(self, stmt: Bind, place: _Place, written: Any) -> Any:
        if self.buffer in buffers_read(stmt.value):
            raise _NotShownError
        value = self.runner.value(stmt.value, place.rounds)
        rounds = place.rounds if value is None else place.rounds.having(stmt.var, value)
        return self.after(stmt.body, _Place(rounds, place.facts.bind(stmt.var, stmt.value)), written)

    def condition(self, stmt: If, place: _Place, written: Any) -> Any:
        decided = self.runner.value(stmt.condition, place.rounds)
        found = None
        for body, holds_there in ((stmt.then, True), (stmt.otherwise, False)):
            inside = place.facts.assume(stmt.condition, holds_there)
            if inside is None or (decided is not None and bool(decided[0]) is not holds_there):
                continue
            after = written if body is None else self.after(body, _Place(place.rounds, inside), written)
            found = after if found is None else found & after
        return written if found is None else found
