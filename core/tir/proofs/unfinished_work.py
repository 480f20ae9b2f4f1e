"""What is in flight, followed through the text: the missing `Wait` that can be shown without running anything.

What is known of a queue is what was started last, copies and executions, as far as the text tells. A fault is reported
where one of them is surely in flight when a statement touches, or ceases to hold, what it uses. Where that depends on
data, on indices, or on rounds of a loop that differ, nothing is reported: the interpreter is the judge.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod

from ..form.dtype import is_float
from ..form.exprs import flat_element
from ..form.nodes import (
    Alloc,
    Bind,
    Buffer,
    Copy,
    Exec,
    Expr,
    For,
    If,
    Imm,
    Load,
    PrimFunc,
    Queue,
    Stmt,
    View,
    Wait,
)
from ..form.printer import in_flight
from ..form.visit import accesses, child_statements, operands, unguarded, views, walk
from .intervals import Bounds

__all__ = ["flight_faults"]

_MAX_STEPS = 20_000
"""Statements that are looked at, counting again in each round of a loop that is; nothing is reported beyond them."""


@dataclass(frozen=True)
class _Access:
    """The use of a buffer: of all of it, or at least of the element at ``first``, or of some element."""

    buffer: Buffer
    writes: bool
    all: bool = False
    first: Expr | None = None


@dataclass(frozen=True)
class _Flight:
    """A copy or an execution that was started, and what it surely uses."""

    stmt: Copy | Exec
    uses: tuple[_Access, ...]

    def __str__(self) -> str:
        return in_flight(self.stmt)


@dataclass(frozen=True)
class _Started:
    """What is in flight on one queue, the last one last; others before them unless that is ``all``."""

    flights: tuple[_Flight, ...] = ()
    all: bool = True

    def start(self, flight: _Flight) -> _Started:
        return _Started((*self.flights, flight), self.all)

    def wait(self, pending: int) -> _Started:
        left = self.flights[max(0, len(self.flights) - pending) :]
        return _Started(left, self.all or len(left) == pending)

    def join(self, other: _Started) -> _Started:
        """What holds in either case."""
        same: list[_Flight] = []
        for a, b in zip(reversed(self.flights), reversed(other.flights), strict=False):
            if a.stmt is not b.stmt:
                break
            same.insert(0, _Flight(a.stmt, tuple(use for use in a.uses if use in b.uses)))
        whole = len(same) == len(self.flights) == len(other.flights)
        return _Started(tuple(same), self.all and other.all and whole)


_UNKNOWN = _Started((), all=False)
_State = Mapping[Queue, _Started]


def flight_faults(func: PrimFunc) -> Iterator[tuple[str, Stmt]]:
    """What is surely not waited for in time: what is wrong, and the statement."""
    follower = _Follower(func)
    state = follower.follow(func.body, dict.fromkeys(func.queues, _Started()), Bounds({}), certain=True)
    for started in state.values():
        for flight in started.flights:
            follower.report(f"{flight} is never waited for", flight.stmt)
    yield from follower.found


class _Follower:
    def __init__(self, func: PrimFunc) -> None:
        self.found: dict[tuple[str, Stmt], None] = {}
        self.steps = 0
        self.waits = {part.queue for part in walk(func.body) if isinstance(part, Wait)}
        self.moves: set[Stmt] = set()
        _note_moves(func.body, self.moves)

    def report(self, what: str, stmt: Stmt) -> None:
        self.found[what, stmt] = None

    def follow(self, stmt: Stmt, state: _State, known: Bounds, certain: bool) -> _State:
        """What is in flight after ``stmt``; faults within it are reported if it is ``certain`` to be executed."""
        if stmt not in self.moves and not any(started.flights for started in state.values()):
            return state
        self.steps += 1
        if self.steps > _MAX_STEPS:
            return dict.fromkeys(state, _UNKNOWN)
        if certain:
            self.check(stmt, state, known)
        if isinstance(stmt, Wait):
            return {**state, stmt.queue: state[stmt.queue].wait(stmt.pending)}
        if isinstance(stmt, (Copy, Exec)) and stmt.queue is not None:
            if stmt.queue not in self.waits:
                self.report(f"{in_flight(stmt)} is never waited for", stmt)
                return state
            return {**state, stmt.queue: state[stmt.queue].start(_Flight(stmt, tuple(_uses(stmt, known))))}
        if isinstance(stmt, For):
            return self.loop(stmt, state, known, certain)
        if isinstance(stmt, If):
            return self.condition(stmt, state, known, certain)
        if isinstance(stmt, Bind) and not is_float(stmt.var.dtype):
            known = known.declare(stmt.var, known.interval(stmt.value))
        for inner in child_statements(stmt):
            state = self.follow(inner, state, known, certain)
        return self.end(stmt.buffer, state, certain) if isinstance(stmt, Alloc) else state

    def loop(self, stmt: For, state: _State, known: Bounds, certain: bool) -> _State:
        low, high = known.interval(stmt.extent)
        if high <= 0:
            return state

        def rounds(before: _State, first: int, last: int, sure: bool) -> _State:
            return self.follow(stmt.body, before, known.declare(stmt.var, (first, last)), sure)

        if stmt.body not in self.moves:
            return rounds(state, 0, high - 1, certain and low >= 1)
        one = rounds(state, 0, 0, certain and low >= 1)
        after = one if low >= 1 else _join(state, one)
        if high >= 2:
            more = _join(after, rounds(one, 1, high - 1, certain and low >= 2))
            # A third round must not unlearn what two agree on.
            again = _join(more, rounds(more, 1, high - 1, sure=False))
            after = {q: started if again[q] == started else _UNKNOWN for q, started in more.items()}
        return after

    def condition(self, stmt: If, state: _State, known: Bounds, certain: bool) -> _State:
        decided = known.decide(stmt.condition)
        ends = []
        for holds, inner in ((True, stmt.then), (False, stmt.otherwise)):
            if decided is not None and decided is not holds:
                continue
            inside = known.assume(stmt.condition, holds) or known
            ends.append(state if inner is None else self.follow(inner, state, inside, certain and decided is not None))
        return ends[0] if len(ends) == 1 else _join(*ends)

    def end(self, buffer: Buffer, state: _State, certain: bool) -> _State:
        left = {}
        for queue, started in state.items():
            bad = [flight for flight in started.flights if buffer in (view.buffer for view in views(flight.stmt))]
            for flight in bad if certain else ():
                self.report(f"{buffer.name!r} ceases to exist, and {flight} has not been waited for", flight.stmt)
            left[queue] = _UNKNOWN if bad else started
        return left

    def check(self, stmt: Stmt, state: _State, known: Bounds) -> None:
        accesses = list(_accesses(stmt, known))
        for started in state.values():
            for flight, use in [(one, use) for one in started.flights for use in one.uses]:
                for access in accesses:
                    if (access.writes or use.writes) and _overlap(access, use):
                        does, verb = "written" if access.writes else "read", "writes" if use.writes else "reads"
                        self.report(f"{access.buffer.name!r} is {does} while {flight} {verb} it", stmt)


def _note_moves(stmt: Stmt, moves: set[Stmt]) -> bool:
    """Collect the statements that start something or wait for it, or hold one that does."""
    inner = [_note_moves(body, moves) for body in child_statements(stmt)]
    if (isinstance(stmt, (Copy, Exec, Wait)) and stmt.queue is not None) or any(inner):
        moves.add(stmt)
    return stmt in moves


def _join(a: _State, b: _State) -> _State:
    return {queue: started.join(b[queue]) for queue, started in a.items()}


def _accesses(stmt: Stmt, known: Bounds) -> Iterator[_Access]:
    """What a statement itself surely reads and writes."""
    for expr in operands(stmt):
        for part in unguarded(expr):
            if isinstance(part, Load):
                yield _element(part.buffer, part.indices, False)
    if isinstance(stmt, (Copy, Exec)):
        yield from _uses(stmt, known)
    else:
        yield from (_element(use.buffer, use.start, use.writes) for use in accesses(stmt))


def _uses(stmt: Copy | Exec, known: Bounds) -> Iterator[_Access]:
    """What a copy or an intrinsic surely reads and writes."""
    if isinstance(stmt, Copy):
        yield from _copied(stmt, known)
    else:
        intrinsic = stmt.intrinsic
        given = dict(zip(intrinsic.params, stmt.args, strict=True))
        values = {var: known.interval(value) for var, value in zip(intrinsic.vars, stmt.values, strict=True)}
        for param, writes in dict.fromkeys(_touched(intrinsic.description, Bounds(values))):
            if param in given:
                yield _Access(given[param].buffer, writes)


def _touched(stmt: Stmt, known: Bounds) -> Iterator[tuple[Buffer, bool]]:
    """The buffers that a description surely reads or writes elements of, and whether it writes."""
    for expr in operands(stmt):
        for part in unguarded(expr):
            if isinstance(part, Load):
                yield part.buffer, False
    yield from ((use.buffer, use.writes) for use in accesses(stmt))
    if isinstance(stmt, For) and known.interval(stmt.extent)[0] <= 0:
        return
    decided = known.decide(stmt.condition) if isinstance(stmt, If) else None
    for body, inside in known.children(stmt):
        if not isinstance(stmt, If) or decided is (body is stmt.then):
            yield from _touched(body, inside)


def _copied(copy: Copy, known: Bounds) -> tuple[_Access, ...]:
    """What a copy writes, and what it reads; nothing where it may be empty."""
    if any(known.interval(extent)[0] <= 0 for extent in copy.shape):
        return ()
    return tuple(
        _Access(view.buffer, view is copy.to, _is_all(view, copy.shape), flat_element(view.buffer, view.start))
        for view in (copy.to, copy.source)
    )


def _is_all(view: View, shape: tuple[Expr, ...]) -> bool:
    extents = [int(extent.value) for extent in shape if isinstance(extent, Imm)]
    apart = len({axis.dim for axis in view.axes}) == len(view.axes) and all(axis.step == 1 for axis in view.axes)
    return apart and len(extents) == len(shape) and prod(extents) == view.buffer.size


def _element(buffer: Buffer, indices: tuple[Expr, ...], writes: bool) -> _Access:
    return _Access(buffer, writes, buffer.size == 1, flat_element(buffer, indices))


def _overlap(a: _Access, b: _Access) -> bool:
    if a.buffer is not b.buffer:
        return False
    return a.all or b.all or (isinstance(a.first, Imm) and a.first is b.first)
