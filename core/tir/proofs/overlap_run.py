"""The same distance as `overlap` finds by bounds, by running the index arithmetic of every round of all loops.

All rounds are computed at once, in arrays with an axis for each loop around: where writes to the output end, where
reads of the input begin. A write that comes before a read in the text, or in a round before it, asks for the distance
between the two. A condition that depends on nothing but the loops says which rounds access anything; another one may
hold or not. An index that depends on memory is anything within its bounds. Of a loop that no condition asks about and
that moves all indices evenly, the first two and the last two rounds stand for all: what is needed between two rounds is
greatest at a pair of these.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..form.dtype import bounds, is_float, is_integer, itemsize
from ..form.fields import Access, accesses
from ..form.nodes import Bin, Bind, Buffer, Cast, Copy, Exec, Expr, For, If, Imm, PrimFunc, Select, Stmt, Un, Var
from ..form.visit import buffers as buffers_of
from ..form.visit import operands, variables, walk
from .affine import flat_index
from .alias import reach
from .intervals import Bounds

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Numbers = NDArray[np.int64]

__all__ = ["MAX_WORK", "distance_by_running"]

MAX_WORK = 1_500_000
"""Rounds of all loops around, over all accesses: about a tenth of a second."""

_FAR = 1 << 60
"""Beyond every byte."""


def distance_by_running(out: Buffer, x: Buffer, func: PrimFunc, max_work: int = MAX_WORK) -> int | None:
    """The least distance in bytes, at least the negative size of the input; None where it takes more than ``max_work``
    accesses to say. As `overlap.distance_by_bounds`, of pairs that `overlap.may_overlap` gives.
    """
    run, body = _Run(out, x), func.whole().body
    if run.work(body, Bounds({}), {}) > max_work:
        return None
    part = run.statement(body, _Round({}, Bounds({}), (), {}))
    return max(-x.nbytes, int(part.gap))


@dataclass(frozen=True)
class _Round:
    """Where a run is: in all rounds of the loops around at once.

    Args:
        values: of variables, by round; None for those that depend on memory.
        known: bounds of these.
        active: what must hold in a round for anything to be executed.
        windows: the buffers of an intrinsic's parameters, with the first element and the strides of each.
    """

    values: Mapping[Var, Numbers | None]
    known: Bounds
    active: tuple[Numbers, ...]
    windows: Mapping[Buffer, tuple[Buffer, tuple[Numbers, Numbers], tuple[int, ...]]]


@dataclass(frozen=True)
class _Part:
    """What a part of the text does, in bytes, by round: the end of its writes, the beginning of its reads; and the
    distance that it needs in itself."""

    end: Numbers
    start: Numbers
    gap: int


class _Run:
    def __init__(self, out: Buffer, x: Buffer) -> None:
        import numpy as np

        self.np = np
        self.out, self.x = out, x
        self.depth = 0
        self.even: dict[For, bool] = {}
        self.nothing = _Part(np.int64(-_FAR), np.int64(_FAR), -_FAR)  # type: ignore[arg-type]  # arrays without axes

    def work(self, stmt: Stmt, known: Bounds, windows: Mapping[Buffer, Buffer]) -> int:
        """How many accesses, at most, a statement and those within it make."""
        if not isinstance(stmt, Exec) and {self.out, self.x}.isdisjoint(windows.get(b, b) for b in buffers_of(stmt)):
            return 0
        if isinstance(stmt, Exec):
            given = zip(stmt.intrinsic.params, stmt.args, strict=True)
            inner = Bounds({var: known.interval(n) for var, n in zip(stmt.intrinsic.vars, stmt.values, strict=True)})
            return self.work(stmt.intrinsic.description, inner, {param: view.buffer for param, view in given})
        turns = len(self.turns(stmt, known)) if isinstance(stmt, For) else 1
        return 1 + turns * sum(self.work(body, inside, windows) for body, inside in known.children(stmt))

    def statement(self, stmt: Stmt, here: _Round) -> _Part:
        memories = {here.windows[b][0] if b in here.windows else b for b in buffers_of(stmt)}
        if not isinstance(stmt, Exec) and {self.out, self.x}.isdisjoint(memories):
            return self.nothing
        if isinstance(stmt, Exec):
            return self.at_once(self.statement(stmt.intrinsic.description, self.within(stmt, here)))
        found = self.own(stmt, here)
        if isinstance(stmt, Copy):
            return self.at_once(found)
        if isinstance(stmt, For):
            return self.then(found, self.loop(stmt, here))
        if isinstance(stmt, If):
            return self.then(found, self.branches(stmt, here))
        if isinstance(stmt, Bind):
            value = self.value(stmt.value, here) if not is_float(stmt.var.dtype) else None
            here = replace(here, values={**here.values, stmt.var: value})
        for body, known in here.known.children(stmt):
            found = self.then(found, self.statement(body, replace(here, known=known)))
        return found

    def then(self, first: _Part, second: _Part) -> _Part:
        """One part of the text, and another behind it."""
        return replace(self.either(first, second), gap=max(first.gap, second.gap, self.top(first.end - second.start)))

    def either(self, first: _Part, second: _Part) -> _Part:
        """Two parts of which only one is executed in a round."""
        end, start = self.np.maximum(first.end, second.end), self.np.minimum(first.start, second.start)
        return _Part(end, start, max(first.gap, second.gap))

    def at_once(self, part: _Part) -> _Part:
        """A part that reads and writes in any order."""
        return replace(part, gap=self.top(part.end - part.start))

    def top(self, gaps: Numbers) -> int:
        return int(gaps.max())

    def loop(self, stmt: For, here: _Round) -> _Part:
        np, turns = self.np, self.turns(stmt, here.known)
        if not turns:
            return self.nothing
        ((body, known),) = here.known.children(stmt)
        # Axes of inner loops come first, so that numbers of rounds around broadcast.
        var = np.array(turns, dtype=np.int64).reshape((len(turns), *(1,) * self.depth))
        active, extent = here.active, self.value(stmt.extent, here)
        if extent is not None and not isinstance(stmt.extent, Imm):
            active = (*active, var < extent)
        self.depth += 1
        part = self.statement(body, replace(here, values={**here.values, stmt.var: var}, known=known, active=active))
        self.depth -= 1
        end, start = (n[(None,) * (self.depth + 1 - n.ndim)] for n in (part.end, part.start))
        gap = part.gap
        if len(turns) > 1:
            gap = max(gap, self.between(end, start))
            if stmt.kind == "parallel":
                gap = max(gap, self.between(end[::-1], start[::-1]))
        return _Part(end.max(axis=0), start.min(axis=0), gap)

    def turns(self, stmt: For, known: Bounds) -> Sequence[int]:
        """The rounds of a loop that stand for all of them."""
        count = max(0, known.interval(stmt.extent)[1])
        return (0, 1, count - 2, count - 1) if count > 4 and self.is_even(stmt) else range(count)

    def is_even(self, stmt: For) -> bool:
        """Whether each round moves all indices by as much, and nothing asks which round it is."""
        if stmt not in self.even:
            self.even[stmt] = self.moves_evenly(stmt)
        return self.even[stmt]

    def moves_evenly(self, stmt: For) -> bool:
        if not isinstance(stmt.extent, Imm):
            return False
        for part in walk(stmt.body):
            if isinstance(part, (If, Select)):
                asked: tuple[Expr, ...] = (part.condition,)
            elif isinstance(part, For):
                asked = (part.extent,)
            elif isinstance(part, Bind):
                asked = () if is_float(part.var.dtype) else (part.value,)
            else:
                asked = part.values if isinstance(part, Exec) else part.shape if isinstance(part, Copy) else ()
            if any(stmt.var in variables(expr) for expr in asked):
                return False
            for use in accesses(part):
                if flat_index(use.buffer, use.start).stride(stmt.var) is None:
                    return False
        return True

    def between(self, end: Numbers, start: Numbers) -> int:
        """What the reads of each round need of the writes of those before it, in arrays of several rounds or of one
        that is like all others."""
        sooner = self.np.maximum.accumulate(end[:-1], axis=0) if len(end) > 1 else end
        later = start[1:] if len(start) > 1 else start
        if len(sooner) > 1 and len(later) == 1:
            sooner = sooner[-1:]
        return self.top(sooner - later)

    def branches(self, stmt: If, here: _Round) -> _Part:
        holds = self.value(stmt.condition, here)
        found = self.nothing
        for position, (body, known) in enumerate(here.known.children(stmt)):
            inside = replace(here, known=known)
            if holds is not None:
                inside = replace(inside, active=(*here.active, (holds == 0) if position else (holds != 0)))
            found = self.either(found, self.statement(body, inside))
        return found

    def own(self, stmt: Stmt, here: _Round) -> _Part:
        """What a statement does itself: it reads, then it writes."""
        found = self.nothing
        loads = [pair for expr in operands(stmt) for pair in self.loads(expr, here, set())]
        for use, when in (*loads, *((use, here) for use in accesses(stmt))):
            memory = when.windows[use.buffer][0] if use.buffer in when.windows else use.buffer
            if memory not in (self.x, self.out):
                continue
            size = itemsize(use.buffer.dtype)
            first, last = self.place(use, when)
            if memory == self.x and use.reads:
                start = self.np.minimum(found.start, self.masked(first * size, when, _FAR))
                found = replace(found, start=start)
            if memory == self.out and use.writes:
                far = reach(use, when.known) + 1
                end = self.np.maximum(found.end, self.masked((last + far) * size, when, -_FAR))
                found = replace(found, end=end)
        return found

    def loads(self, expr: Expr, here: _Round, seen: set[Expr]) -> Iterator[tuple[Access, _Round]]:
        """What an expression reads beyond what was ``seen``, each with the rounds in which it does."""
        if expr in seen:
            return
        seen.add(expr)
        yield from ((use, here) for use in accesses(expr))
        holds = self.value(expr.condition, here) if isinstance(expr, Select) else None
        if isinstance(expr, Select) and holds is not None:
            yield from self.loads(expr.condition, here, seen)
            for part, taken in ((expr.a, holds != 0), (expr.b, holds == 0)):
                yield from self.loads(part, replace(here, active=(*here.active, taken)), set())
            return
        for part in operands(expr):
            yield from self.loads(part, here, seen)

    def masked(self, numbers: Numbers, here: _Round, otherwise: int) -> Numbers:
        for holds in here.active:
            numbers = self.np.where(holds, numbers, otherwise)
        return numbers

    def place(self, use: Access, here: _Round) -> tuple[Numbers, Numbers]:
        """The first element of its memory that a use may begin with, and the last one."""
        low = high = self.np.zeros((), self.np.int64)
        strides = _strides(use.buffer)
        if use.buffer in here.windows:
            _, (low, high), strides = here.windows[use.buffer]
        for index, extent, stride in zip(use.start, use.buffer.shape, strides, strict=True):
            exact = self.value(index, here)
            if exact is None:
                least, most = here.known.interval(index)
                low, high = low + max(0, least) * stride, high + min(most, extent - 1) * stride
            else:
                low, high = low + exact * stride, high + exact * stride
        return low, high

    def within(self, stmt: Exec, here: _Round) -> _Round:
        """In the description of an intrinsic."""
        known, values, windows = Bounds({}), {}, {}
        for var, value in zip(stmt.intrinsic.vars, stmt.values, strict=True):
            known = known.declare(var, here.known.interval(value))
            values[var] = self.value(value, here)
        for param, view in zip(stmt.intrinsic.params, stmt.args, strict=True):
            begins = self.place(Access(view.buffer, view.start, True, False), here)
            windows[param] = (view.buffer, begins, view.strides())
        return _Round(values, known, here.active, windows)

    def value(self, expr: Expr, here: _Round) -> Numbers | None:
        """An integer or bool, by round; None where that is not known, or not computed here."""
        np = self.np
        if isinstance(expr, Imm):
            return None if is_float(expr.dtype) else np.asarray(int(expr.value), np.int64)
        if isinstance(expr, Var):
            return here.values.get(expr)
        parts = [self.value(part, here) for part in operands(expr) if not is_float(part.dtype)]
        if len(parts) < len(operands(expr)) or is_float(expr.dtype):
            return None
        known = [part for part in parts if part is not None]
        if not known or len(known) < len(parts):
            return None
        found: Numbers | None = None
        if isinstance(expr, Bin):
            a, b = known
            if expr.op in _BINARY and (expr.op not in ("floordiv", "floormod") or bool((b > 0).all())):
                found = np.asarray(getattr(np, _BINARY[expr.op])(a, b), np.int64)
        elif isinstance(expr, Un):
            found = -known[0] if expr.op == "neg" else np.asarray(known[0] == 0, np.int64) if expr.op == "not" else None
        elif isinstance(expr, Select):
            found = np.where(known[0] != 0, known[1], known[2])
        elif isinstance(expr, Cast) and is_integer(expr.dtype):
            found = known[0]
        if found is None:
            return None
        low, high = bounds(expr.dtype)
        # What wraps around is not worth following.
        return found if low <= int(found.min()) and int(found.max()) <= high else None


_BINARY = {
    "add": "add",
    "sub": "subtract",
    "mul": "multiply",
    "floordiv": "floor_divide",
    "floormod": "mod",
    "min": "minimum",
    "max": "maximum",
    "lt": "less",
    "le": "less_equal",
    "gt": "greater",
    "ge": "greater_equal",
    "eq": "equal",
    "ne": "not_equal",
    "and": "logical_and",
    "or": "logical_or",
}
"""What an operation is called in numpy."""


def _strides(buffer: Buffer) -> tuple[int, ...]:
    return tuple(math.prod(buffer.shape[dim + 1 :]) for dim in range(len(buffer.shape)))
