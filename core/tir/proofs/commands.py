"""What a function has an accelerator do, and how long that takes, counted without running it.

Only the index arithmetic of loops, conditions and operands is done, and that once for each combination of values that
tells anything: a loop whose iterations are all alike costs one of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...errors import InternalError
from ..form import ctext
from ..form.dtype import itemsize
from ..form.nodes import (
    HOST_SCOPES,
    Bin,
    Bind,
    Copy,
    Exec,
    Expr,
    For,
    If,
    Imm,
    Intrinsic,
    Load,
    PrimFunc,
    Queue,
    Select,
    Stmt,
    Var,
    Wait,
)
from ..form.printer import headline
from ..form.scalar_semantics import UndefinedResult
from ..form.transfers import transfer
from ..form.visit import child_statements, operands, variables

__all__ = ["CopyCommand", "ExecCommand", "count_commands", "elapsed_cycles"]


@dataclass(frozen=True)
class ExecCommand:
    """One execution of an instruction.

    Args:
        intrinsic: the instruction.
        values: of its variables, in their order.
        queue: that it is started on; None where it is waited for.
    """

    intrinsic: Intrinsic
    values: tuple[int, ...]
    queue: Queue | None = None

    def __getitem__(self, name: str) -> int:
        """The value of a variable of the instruction; a KeyError where it has none of that name."""
        return {var.name: value for var, value in zip(self.intrinsic.vars, self.values, strict=True)}[name]


@dataclass(frozen=True)
class CopyCommand:
    """One transfer, as the generated C asks for it: a `Copy` may be several.

    Args:
        to, source: the scopes that it copies to and from.
        rows: how many rows it copies; 1 where the text of the memory takes one at a time.
        row_bytes: the bytes of a row, which lie side by side on either side.
        queue: that it is started on; None where it is waited for.
    """

    to: str
    source: str
    rows: int
    row_bytes: int
    queue: Queue | None = None

    @property
    def nbytes(self) -> int:
        """All its bytes."""
        return self.rows * self.row_bytes


Counted = Counter[ExecCommand | CopyCommand]


def count_commands(func: PrimFunc) -> Counter[ExecCommand | CopyCommand]:
    """Which executions of intrinsics and which transfers a call of ``func`` consists of, and how many of each.

    Copies of nothing are none. Of a copy within the host's memory the rows are those that a transfer would have.

    Raises:
        InternalError: how often something is done, or on how much, depends on data.
    """
    return _Commands(func).of(func.whole().body, {})


class _Commands:
    """Counts within the statements of one function."""

    def __init__(self, func: PrimFunc) -> None:
        self.memories = {memory.name: memory for memory in func.memories}
        self.told: dict[Stmt, tuple[Var, ...] | None] = {}
        self.found: dict[tuple[Stmt, tuple[int, ...]], Counted] = {}

    def telling(self, stmt: Stmt) -> tuple[Var, ...] | None:
        """The variables from around ``stmt`` that its commands depend on; None where it has no commands."""
        if stmt not in self.told:
            self.told[stmt] = self._telling(stmt)
        return self.told[stmt]

    def _telling(self, stmt: Stmt) -> tuple[Var, ...] | None:
        if isinstance(stmt, Exec):
            return _variables(stmt.values)
        if isinstance(stmt, Copy):
            return _variables(stmt.shape)
        if isinstance(stmt, Wait):
            return ()
        inner = [told for body in child_statements(stmt) if (told := self.telling(body)) is not None]
        if not inner:
            return None
        used = [var for told in inner for var in told]
        if isinstance(stmt, (For, Bind)):
            is_used, used = stmt.var in used, [var for var in used if var is not stmt.var]
            own: tuple[Expr, ...] = (stmt.extent,) if isinstance(stmt, For) else (stmt.value,) if is_used else ()
        else:
            own = (stmt.condition,) if isinstance(stmt, If) else ()
        return tuple(dict.fromkeys([*_variables(own), *used]))

    def of(self, stmt: Stmt, values: Mapping[Var, Any]) -> Counted:
        """The commands of ``stmt`` where variables have these values."""
        telling = self.telling(stmt)
        if telling is None:
            return Counter()
        key = stmt, tuple([values[var] for var in telling])
        if key not in self.found:
            try:
                self.found[key] = self._of(stmt, values)
            except UndefinedResult as fault:
                raise InternalError(f"commands cannot be counted: {fault}", where=headline(stmt)) from None
        return self.found[key]

    def _of(self, stmt: Stmt, values: Mapping[Var, Any]) -> Counted:
        if isinstance(stmt, Exec):
            given = tuple([_value(value, values) for value in stmt.values])
            return Counter({ExecCommand(stmt.intrinsic, given, stmt.queue): 1})
        if isinstance(stmt, Copy):
            return self.transfers(stmt, values)
        if isinstance(stmt, For):
            extent = max(0, _value(stmt.extent, values))
            if stmt.var in (self.telling(stmt.body) or ()):
                return _total(self.of(stmt.body, {**values, stmt.var: index}) for index in range(extent))
            return Counter({one: extent * times for one, times in self.of(stmt.body, values).items() if extent})
        if isinstance(stmt, If):
            branch = stmt.then if _value(stmt.condition, values) else stmt.otherwise
            return self.of(branch, values) if branch is not None else Counter()
        if isinstance(stmt, Bind) and stmt.var in (self.telling(stmt.body) or ()):
            return self.of(stmt.body, {**values, stmt.var: _value(stmt.value, values)})
        return _total(self.of(body, values) for body in child_statements(stmt))

    def transfers(self, stmt: Copy, values: Mapping[Var, Any]) -> Counted:
        work, queue, to, source = transfer(stmt), stmt.queue, stmt.to.buffer.scope, stmt.source.buffer.scope
        rows, row = _value(work.rows.extent, values), _value(work.row, values)
        times = 1
        for axis in work.loops:
            times *= max(0, _value(axis.extent, values))
        memory = self.memories.get(to if to not in HOST_SCOPES else source)
        if memory is not None:
            way = "copy" if queue is None else "start"
            text = getattr(memory, f"{way}_{'in' if to == memory.name else 'out'}")
            if "rows" not in ctext.placeholders(text):
                rows, times = 1, times * max(0, rows)
        one = CopyCommand(to, source, rows, row * itemsize(stmt.to.buffer.dtype), queue)
        return Counter({one: times} if min(times, rows, row) > 0 else {})


def elapsed_cycles(
    func: PrimFunc, cycles: Callable[[ExecCommand | CopyCommand], int], *, issue: int = 0, copies: Queue | None = None
) -> int:
    """How long a call of ``func`` takes on a device that overlaps what is in queues with all else.

    The host gives one command after the other, waits included; each takes it ``issue`` cycles. What is started in a
    queue begins when the queue has ended all that was started before, and the host goes on. All else begins at once,
    and the host waits for it.

    Args:
        func: the loops.
        cycles: of one execution or transfer, without ``issue``.
        issue: cycles of the host for each command, a `Wait` included.
        copies: a queue whose engine also does the transfers that the host waits for: they begin when it is idle.

    Raises:
        InternalError: how often something is done, or on how much, depends on data.
    """
    return _Timeline(func, cycles, issue, copies).after(func.whole().body, {}, ())[0]


Unfinished = tuple[tuple[Queue, int], ...]
"""What was started and has not ended, in that order: its queue, and in how many cycles from now it ends."""


class _Timeline(_Commands):
    """Follows the text with the time at which what was started ends. What stands in a loop is followed until the queues
    are as they were before: from there on iterations repeat.
    """

    def __init__(
        self, func: PrimFunc, cycles: Callable[[ExecCommand | CopyCommand], int], issue: int, copies: Queue | None
    ) -> None:
        super().__init__(func)
        self.cycles, self.issue, self.copies = cycles, issue, copies
        self.known: dict[tuple[Stmt, tuple[int, ...], Unfinished], tuple[int, Unfinished]] = {}

    def after(self, stmt: Stmt, values: Mapping[Var, Any], queued: Unfinished) -> tuple[int, Unfinished]:
        """The cycles that ``stmt`` takes the host, and what is unfinished then."""
        telling = self.telling(stmt)
        if telling is None:
            return 0, queued
        key = stmt, tuple([values[var] for var in telling]), queued
        if key not in self.known:
            self.known[key] = self._after(stmt, values, queued)
        return self.known[key]

    def _after(self, stmt: Stmt, values: Mapping[Var, Any], queued: Unfinished) -> tuple[int, Unfinished]:
        if isinstance(stmt, (Copy, Exec)):
            return self.commands(stmt, self.of(stmt, values), queued)
        if isinstance(stmt, Wait):
            ends = [end for queue, end in queued if queue is stmt.queue]
            return _passed(queued, max([self.issue, *ends[: max(0, len(ends) - stmt.pending)]]))
        if isinstance(stmt, For):
            extent = range(max(0, _value(stmt.extent, values)))
            return self.several(((stmt.body, {**values, stmt.var: index}) for index in extent), queued)
        if isinstance(stmt, If):
            branch = stmt.then if _value(stmt.condition, values) else stmt.otherwise
            return (0, queued) if branch is None else self.after(branch, values, queued)
        if isinstance(stmt, Bind) and stmt.var in (self.telling(stmt.body) or ()):
            values = {**values, stmt.var: _value(stmt.value, values)}
        return self.several(((body, values) for body in child_statements(stmt)), queued)

    def several(self, parts: Iterable[tuple[Stmt, Mapping[Var, Any]]], queued: Unfinished) -> tuple[int, Unfinished]:
        total = 0
        for stmt, values in parts:
            cycles, queued = self.after(stmt, values, queued)
            total += cycles
        return total, queued

    def commands(self, stmt: Copy | Exec, counted: Counted, queued: Unfinished) -> tuple[int, Unfinished]:
        total, queue = 0, stmt.queue
        end = max([0, *(end for one, end in queued if one is queue)])  # also of a copy of nothing
        for command, times in counted.items():
            for _ in range(times):
                work, taken = self.cycles(command), self.issue
                if queue is None:
                    idle = [end for one, end in queued if one is self.copies and isinstance(command, CopyCommand)]
                    taken = max([taken, *idle]) + work
                passed, queued = _passed(queued, taken)
                total += passed
                end = max(0, end - taken) + work
        return total, queued if queue is None else (*queued, (queue, end))


def _passed(queued: Unfinished, cycles: int) -> tuple[int, Unfinished]:
    """What is unfinished some cycles later, beside these."""
    return cycles, tuple([(queue, end - cycles) for queue, end in queued if end > cycles])


def _total(parts: Iterable[Counted]) -> Counted:
    total: Counted = Counter()
    for part in parts:
        total.update(part)
    return total


def _variables(exprs: Sequence[Expr]) -> tuple[Var, ...]:
    return tuple(dict.fromkeys(var for expr in exprs for var in variables(expr)))


def _value(expr: Expr, values: Mapping[Var, Any]) -> Any:
    """What ``expr`` is; a `Fault` where that has no value, or is not known before there is data."""
    return _evaluated(expr, values, {})


def _evaluated(expr: Expr, values: Mapping[Var, Any], done: dict[Expr, Any]) -> Any:
    if expr not in done:
        if isinstance(expr, Imm):
            return expr.value
        if isinstance(expr, Var):
            return values[expr]
        if isinstance(expr, Load):
            raise UndefinedResult(f"they depend on what {expr.buffer.name!r} holds")
        first = operands(expr)[0]
        if isinstance(expr, Select):
            done[expr] = _evaluated(expr.a if _evaluated(first, values, done) else expr.b, values, done)
        elif isinstance(expr, Bin) and expr.op in ("and", "or"):
            a = _evaluated(first, values, done)
            done[expr] = a if a == (expr.op == "or") else _evaluated(expr.b, values, done)
        else:
            assert expr.meaning is not None  # all others are functions of their operands
            done[expr] = expr.meaning(*[_evaluated(part, values, done) for part in operands(expr)])
    return done[expr]
