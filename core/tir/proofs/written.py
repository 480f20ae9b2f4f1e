"""The proof that a function writes every element of its outputs, on every path and whatever its data.

Most outputs are written by nests of loops whose indices are sums of multiples: these are ranges of elements, repeated
at equal distances, and their union is looked at, however many elements there are. Where it is not the whole output
the index arithmetic is run, for all rounds of all loops at once, within a bound of work. What an `Update` writes was
written before. Under a condition that data decide counts what both branches write in the same round.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import Any

from ..form.dtype import bits, is_float, is_integer
from ..form.nodes import (
    COMPARISONS,
    INDEX,
    Bin,
    Bind,
    Buffer,
    Cast,
    Copy,
    Exec,
    Expr,
    For,
    If,
    Imm,
    PrimFunc,
    Select,
    Stmt,
    Store,
    Un,
    Var,
    View,
)
from ..form.visit import buffers_written, child_statements, operands, variables, views
from .affine import Affine
from .indices import OWN, Unproven, inlined
from .linear_prover import Facts

__all__ = ["Rounds", "Runner", "TooMuchError", "output_faults"]

_MAX_ROUNDS = 1 << 24
"""Rounds of loops that are run for one output; a quarter of a second or so."""

_CHUNK = 1 << 18
"""Rounds that are run at once, but for those of one loop."""

Range = tuple[int, int]
Array = Any
"""numpy's arrays of integers or bool."""


def output_faults(func: PrimFunc) -> Iterator[Unproven]:
    """Every output of a function that is not proven to be written in full; one that `index_faults` has nothing on.

    Outputs that may be the memory of an input are written as all others: they may have memory of their own as well.
    """
    func = func.whole()
    for output in func.buffers("output"):
        if output.name in func.partial:
            continue  # its loops go over the extents that it has, and how many these are is known to who made them
        if _is_whole(_Ranges(output).collect(func.body, Facts(), {}), output.size):
            continue
        try:
            missing = Runner(output, func.body).missing(func.body)
        except TooMuchError:
            what = (
                f"output {output.name!r} is not proven to be written in full: that takes more than {_MAX_ROUNDS} rounds"
            )
            yield Unproven(what, None, "write it in loops whose indices are sums of their variables")
            continue
        if missing is not None:
            yield Unproven(missing, None, "write every element, whatever the data are, before adding to it")


@dataclass(frozen=True)
class _Runs:
    """Ranges of equal length that are surely written.

    Args:
        first: the first element of the first range.
        length: of each range.
        steps: the distances at which the ranges repeat, and how often; the smallest first, each larger than the ranges
            that the ones before make up.
    """

    first: int
    length: int
    steps: tuple[tuple[int, int], ...] = ()


def _is_whole(runs: Sequence[_Runs], size: int) -> bool:
    return any(low <= 0 and size <= high for low, high in _covered(runs))


def _covered(runs: Sequence[_Runs]) -> list[Range]:
    """Return ranges that ``runs`` write in full, apart from one another and in order; not all that they write."""
    ranges = [(run.first, run.first + run.length) for run in runs if not run.steps]
    by_distance: dict[int, list[_Runs]] = {}
    for run in runs:
        if run.steps:
            by_distance.setdefault(run.steps[-1][0], []).append(run)
    for distance, group in by_distance.items():
        ranges += _covered_rows(group, distance)
    joined: list[Range] = []
    for low, high in sorted(ranges):
        if joined and low <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(joined[-1][1], high)
        else:
            joined.append((low, high))
    return joined


def _covered_rows(runs: Sequence[_Runs], distance: int) -> Iterator[Range]:
    """Yield ranges that runs write in full whose largest step is ``distance``.

    Memory is seen as rows of ``distance`` elements, in each of which a run writes the same. Between rows in which one
    begins or ends all rows are alike.
    """
    rows: list[tuple[int, int, _Runs]] = []
    for run in runs:
        *inner, (_, count) = run.steps
        row, first = divmod(run.first, distance)
        end = first + run.length + sum(step * (number - 1) for step, number in inner)
        if end <= distance:
            rows.append((row, row + count, _Runs(first, run.length, tuple(inner))))
        elif not inner:  # each range ends in the row after
            rows.append((row, row + count, _Runs(first, distance - first)))
            rows.append((row + 1, row + 1 + count, _Runs(0, end - distance)))
    edges = sorted({edge for begin, end, _ in rows for edge in (begin, end)})
    for begin, end in pairwise(edges):
        within = _covered([run for first, last, run in rows if first <= begin and end <= last])
        if within == [(0, distance)]:
            yield begin * distance, end * distance
        elif end == begin + 1:
            yield from ((begin * distance + low, begin * distance + high) for low, high in within)


def _units(buffer: Buffer) -> list[int]:
    return [prod(buffer.shape[dim + 1 :]) for dim in range(len(buffer.shape))]


class _Ranges:
    """Ranges of elements that are surely written.

    Args:
        output: whose elements.
        written: the buffer through which they are written: the output, or a parameter of an intrinsic.
        start: the element of the output that is the first one of ``written``.
        strides: for each dimension of ``written``, the elements of the output that one step goes.
    """

    def __init__(
        self, output: Buffer, written: Buffer | None = None, start: Affine | None = None, strides: Sequence[int] = ()
    ) -> None:
        self.output = output
        self.written = written or output
        self.start = start or Affine({}, 0)
        self.strides = strides if written else _units(output)

    def collect(self, stmt: Stmt, facts: Facts, loops: Mapping[Var, int]) -> list[_Runs]:
        """What ``stmt`` writes within ``loops`` and their least extents."""
        if isinstance(stmt, For):
            least = facts.bounds.interval(stmt.extent)[0]
            inside = facts.loop(stmt.var, stmt.extent)
            if inside is None or least <= 0:
                return []
            return self.collect(stmt.body, inside, {**loops, stmt.var: least})
        if isinstance(stmt, If):
            return self.condition(stmt, facts, loops)
        if isinstance(stmt, Store):
            return self.range(self.flat(stmt.indices, facts), loops) if stmt.buffer is self.written else []
        if isinstance(stmt, Copy):
            return self.copy(stmt, facts, loops) if stmt.to.buffer is self.written else []
        if isinstance(stmt, Exec):
            return self.exec(stmt, facts, loops)
        inner = facts.bind(stmt.var, stmt.value) if isinstance(stmt, Bind) else facts
        return [found for body in child_statements(stmt) for found in self.collect(body, inner, loops)]

    def condition(self, stmt: If, facts: Facts, loops: Mapping[Var, int]) -> list[_Runs]:
        decided = facts.bounds.decide(stmt.condition)
        sides: list[list[_Runs]] = []
        for body, holds in ((stmt.then, True), (stmt.otherwise, False)):
            inside = facts.assume(stmt.condition, holds)
            if inside is None or decided is (not holds):
                continue
            # Of the rounds of loops around a branch, nobody knows here which take it.
            sides.append([] if body is None else self.collect(body, inside, loops if decided is holds else {}))
        if decided is not None:
            return sides[0] if sides else []
        return (
            [_Runs(0, self.output.size)] if all(_is_whole(side, self.output.size) for side in sides) and sides else []
        )

    def flat(self, indices: Sequence[Expr], facts: Facts) -> Affine:
        total = self.start
        for stride, index in zip(self.strides, indices, strict=True):
            total += facts.linear(index).scaled(stride)
        return total

    def range(self, form: Affine, loops: Mapping[Var, int]) -> list[_Runs]:
        """The elements at ``form``, where data decide none of them."""
        first, steps = form.constant, []
        for term, factor in form.terms.items():
            if not isinstance(term, Var) or term not in loops:
                return []
            rounds = loops[term] - 1
            first += min(0, factor * rounds)
            if rounds:
                steps.append((abs(factor), rounds + 1))
        length, apart = 1, [(0, 0)]
        for step, count in sorted(steps):
            before, number = apart[-1]
            if step <= length:
                length += step * (count - 1)
            elif step == before * number:
                apart[-1] = before, number * count
            else:
                apart.append((step, count))
        return [_Runs(first, length, tuple(apart[1:]))]

    def copy(self, stmt: Copy, facts: Facts, loops: Mapping[Var, int]) -> list[_Runs]:
        form, inside = self.flat(stmt.to.start, facts), dict(loops)
        for number, (extent, stride) in enumerate(zip(stmt.shape, stmt.to.strides(), strict=True)):
            var = Var(f"{OWN}{number}")
            inside[var] = facts.bounds.interval(extent)[0]
            if inside[var] <= 0:
                return []
            form += Affine({var: stride} if stride else {}, 0)
        return self.range(form, inside)

    def exec(self, stmt: Exec, facts: Facts, loops: Mapping[Var, int]) -> list[_Runs]:
        runs: list[_Runs] = []
        for param, view in zip(stmt.intrinsic.params, views(stmt), strict=True):
            if view.buffer is self.written:
                inside = facts
                for var, value in zip(stmt.intrinsic.vars, stmt.values, strict=True):
                    inside = inside.bind(Var(OWN + var.name), value)
                through = _Ranges(self.output, param, self.flat(view.start, facts), view.strides())
                runs += through.collect(inlined(stmt.intrinsic), inside, loops)
        return runs


class TooMuchError(Exception):
    """More rounds than anybody wants to wait for."""


@dataclass(frozen=True)
class Rounds:
    """Rounds of the loops around a statement.

    Args:
        count: how many.
        values: of variables, one for each round.
        owner: the round, of those at an outer place, that each is part of.
    """

    count: int
    values: Mapping[Var, Array]
    owner: Array

    def take(self, which: Array) -> Rounds:
        """Those at some positions, perhaps repeated, or where an array of bool says so."""
        owner = self.owner[which]
        return Rounds(len(owner), {var: values[which] for var, values in self.values.items()}, owner)

    def having(self, var: Var, values: Array) -> Rounds:
        return Rounds(self.count, {**self.values, var: values}, self.owner)


Written = Iterator[tuple[Array, Array]]
"""Arrays of rounds, and of elements that are written in them."""


class Runner:
    """Runs the index arithmetic of what a function writes to one output.

    Args:
        output: the output.
        body: of the function.
    """

    def __init__(self, output: Buffer, body: Stmt) -> None:
        self.output = output
        self.left = _MAX_ROUNDS
        self.needed: set[Var] = set()
        self.relevant: dict[Stmt, bool] = {}
        while True:  # what a bound variable is computed from may be bound itself
            known = len(self.needed)
            self.need(body)
            if len(self.needed) == known:
                break

    def writes(self, stmt: Stmt) -> bool:
        found = self.relevant.get(stmt)
        if found is None:
            found = self.relevant[stmt] = self.output in buffers_written(stmt)
        return found

    def need(self, stmt: Stmt, params: tuple[Buffer, ...] = ()) -> None:
        """Note the variables that decide what is written, also of ``params`` where ``stmt`` is in a description."""
        if not any(param in buffers_written(stmt) for param in params) if params else not self.writes(stmt):
            return
        if isinstance(stmt, Bind):
            if stmt.var in self.needed:
                self.needed.update(variables(stmt.value))
        elif isinstance(stmt, Store):
            self.needed.update(var for index in stmt.indices for var in variables(index))
        else:
            self.needed.update(var for expr in operands(stmt) for var in variables(expr))
        if isinstance(stmt, Exec):
            shown = zip(stmt.intrinsic.params, views(stmt), strict=True)
            self.need(inlined(stmt.intrinsic), tuple(param for param, view in shown if view.buffer is self.output))
        for body in child_statements(stmt):
            self.need(body, params)

    def missing(self, body: Stmt) -> str | None:
        """What to say of elements that are not written; None where there is none."""
        import numpy as np

        if self.output.size > _MAX_ROUNDS:  # a round writes one element
            raise TooMuchError
        written = np.zeros(self.output.size, bool)
        with np.errstate(all="ignore"):
            for _, elements in self.written(body, Rounds(1, {}, np.zeros(1, np.int64)), {}, Facts()):
                written[elements] = True
        count = self.output.size - int(written.sum())
        if not count:
            return None
        first = [int(i) for i in np.unravel_index(int(written.argmin()), self.output.shape)]
        others = f", nor are {count - 1} others of its {self.output.size}" if count > 1 else ""
        return f"element {first} of output {self.output.name!r} is not surely written{others}"

    # Statements

    def written(self, stmt: Stmt, rounds: Rounds, windows: Mapping[Buffer, Window], facts: Facts) -> Written:
        if rounds.count == 0 or (not windows and not self.writes(stmt)):
            return
        if isinstance(stmt, For):
            inside = facts.loop(stmt.var, stmt.extent)
            if inside is not None:
                for inner in self.expanded(stmt.var, self.extents(stmt.extent, rounds, facts), rounds):
                    yield from self.written(stmt.body, inner, windows, inside)
        elif isinstance(stmt, If):
            yield from self.condition(stmt, rounds, windows, facts)
        elif isinstance(stmt, Store):
            yield from self.store(stmt, rounds, windows)
        elif isinstance(stmt, Copy):
            yield from self.copy(stmt, rounds, facts)
        elif isinstance(stmt, Exec):
            yield from self.exec(stmt, rounds)
        else:
            if isinstance(stmt, Bind):
                facts = facts.bind(stmt.var, stmt.value)
                value = self.value(stmt.value, rounds) if stmt.var in self.needed else None
                rounds = rounds if value is None else rounds.having(stmt.var, value)
            for body in child_statements(stmt):
                yield from self.written(body, rounds, windows, facts)

    def extents(self, extent: Expr, rounds: Rounds, facts: Facts) -> Array:
        """How often a loop surely runs."""
        import numpy as np

        found = self.value(extent, rounds)
        if found is None:
            found = np.full(rounds.count, facts.bounds.interval(extent)[0], np.int64)
        return np.maximum(found.astype(np.int64), 0)

    def expanded(self, var: Var, extents: Array, rounds: Rounds) -> Iterator[Rounds]:
        """The rounds of a loop of these extents within other rounds; one for each of these if all do the same."""
        import numpy as np

        if var not in self.needed:
            yield rounds.take(extents > 0)
            return
        total = int(extents.sum())
        if total > _CHUNK and rounds.count > 1:
            middle = rounds.count // 2
            for part in (slice(None, middle), slice(middle, None)):
                yield from self.expanded(var, extents[part], rounds.take(part))
            return
        self.left -= total
        if self.left < 0:
            raise TooMuchError
        starts = np.repeat(np.cumsum(extents) - extents, extents)
        inner = rounds.take(np.repeat(np.arange(rounds.count), extents))
        yield inner.having(var, (np.arange(total) - starts).astype(INDEX))

    def condition(self, stmt: If, rounds: Rounds, windows: Mapping[Buffer, Window], facts: Facts) -> Written:
        import numpy as np

        sides = ((stmt.then, True), (stmt.otherwise, False))
        decided = self.value(stmt.condition, rounds)
        if decided is not None:
            for body, holds in sides:
                inside = facts.assume(stmt.condition, holds)
                if body is not None and inside is not None:
                    yield from self.written(body, rounds.take(decided == holds), windows, inside)
            return
        own = Rounds(rounds.count, rounds.values, np.arange(rounds.count))
        both: Array = None
        for body, holds in sides:
            inside = facts.assume(stmt.condition, holds)
            if inside is None:
                continue  # never so
            found = [] if body is None else list(self.written(body, own, windows, inside))
            codes = np.unique(np.concatenate([o * self.output.size + e for o, e in found] or [np.zeros(0, np.int64)]))
            both = codes if both is None else np.intersect1d(both, codes, assume_unique=True)
        if both is not None:
            yield rounds.owner[both // self.output.size], both % self.output.size

    def store(self, stmt: Store, rounds: Rounds, windows: Mapping[Buffer, Window]) -> Written:
        window = windows.get(stmt.buffer) if windows else None
        if windows and window is None:
            return
        start, strides = window or (None, _units(self.output))
        yield from self.elements(start, strides, [self.value(index, rounds) for index in stmt.indices], rounds)

    def elements(self, start: Var | None, strides: Sequence[int], indices: Sequence[Array], rounds: Rounds) -> Written:
        import numpy as np

        if any(index is None for index in indices):
            return  # data decide
        total = np.zeros(rounds.count, np.int64) if start is None else rounds.values[start]
        for stride, index in zip(strides, indices, strict=True):
            total = total + stride * index.astype(np.int64)
        yield rounds.owner, total

    def copy(self, stmt: Copy, rounds: Rounds, facts: Facts) -> Written:
        placed = self.placed(stmt.to, Var(f"{OWN}at"), rounds)
        if placed is None:
            return
        axes = [Var(f"{OWN}{number}") for number in range(len(stmt.shape))]
        self.needed.update(axes)
        parts = [placed]
        for var, extent in zip(axes, stmt.shape, strict=True):
            parts = [i for part in parts for i in self.expanded(var, self.extents(extent, part, facts), part)]
        for part in parts:
            indices = [part.values[var] for var in axes]
            yield from self.elements(Var(f"{OWN}at"), stmt.to.strides(), indices, part)

    def placed(self, view: View, var: Var, rounds: Rounds) -> Rounds | None:
        """The rounds with the element that a view begins at as the value of ``var``; None where data decide."""
        import numpy as np

        total = np.zeros(rounds.count, np.int64)
        for unit, index in zip(_units(view.buffer), view.start, strict=True):
            value = self.value(index, rounds)
            if value is None:
                return None
            total = total + unit * value.astype(np.int64)
        return rounds.having(var, total)

    def exec(self, stmt: Exec, rounds: Rounds) -> Written:
        facts = Facts()
        for var, value in zip(stmt.intrinsic.vars, stmt.values, strict=True):
            own, found = Var(OWN + var.name), self.value(value, rounds)
            rounds = rounds if found is None else rounds.having(own, found)
        windows: dict[Buffer, Window] = {}
        for param, view in zip(stmt.intrinsic.params, views(stmt), strict=True):
            at = Var(f"{OWN}at_{param.name}")
            placed = self.placed(view, at, rounds) if view.buffer is self.output else None
            if placed is not None:
                rounds, windows[param] = placed, (at, view.strides())
        if windows:
            yield from self.written(inlined(stmt.intrinsic), rounds, windows, facts)

    # Expressions

    def value(self, expr: Expr, rounds: Rounds) -> Array | None:
        """One value for each round, of the expression's dtype; None where that depends on data."""
        import numpy as np

        found = self.computed(expr, rounds)
        return None if found is None else np.broadcast_to(found, (rounds.count,))

    def computed(self, expr: Expr, rounds: Rounds) -> Array | None:
        import numpy as np

        if isinstance(expr, Imm):
            return None if is_float(expr.dtype) else np.array(expr.value, expr.dtype)
        if isinstance(expr, Var):
            return rounds.values.get(expr)
        if not isinstance(expr, (Bin, Un, Cast, Select)) or is_float(expr.dtype):
            return None
        values: list[Array] = [self.computed(part, rounds) for part in operands(expr)]
        if any(value is None for value in values):
            return None
        if isinstance(expr, Select):
            return np.where(*values)
        if isinstance(expr, Cast):
            return values[0].astype(expr.dtype) if expr.dtype != "bool" else values[0] != 0
        if isinstance(expr, Un):
            functions: dict[str, Any] = {"neg": np.negative, "abs": np.abs, "not": np.logical_not}
            return functions[expr.op](values[0])
        return _binary(expr, *values)


Window = tuple[Var, Sequence[int]]
"""Of a parameter of an intrinsic: the variable that holds where its view begins in the output, and its strides."""


def _binary(expr: Bin, a: Array, b: Array) -> Array | None:
    """Integers wrap around in numpy as they do here, and dividing by zero gives 0."""
    import numpy as np

    op = expr.op
    if op in COMPARISONS:
        compare: dict[str, Any] = {"eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal}
        compare |= {"gt": np.greater, "ge": np.greater_equal}
        return compare[op](a, b)
    if op in ("and", "or"):
        return np.logical_and(a, b) if op == "and" else np.logical_or(a, b)
    if not is_integer(expr.dtype):
        return None
    if op in ("shl", "shr"):
        if ((b < 0) | (b >= bits(expr.dtype))).any():
            return None
        return np.left_shift(a, b) if op == "shl" else np.right_shift(a, b)
    if op == "truncdiv":
        quotient = np.floor_divide(a, b)
        return quotient + ((np.remainder(a, b) != 0) & ((a < 0) != (b < 0))).astype(expr.dtype)
    functions: dict[str, Any] = {
        "add": np.add,
        "sub": np.subtract,
        "mul": np.multiply,
        "min": np.minimum,
        "max": np.maximum,
    }
    functions |= {"floordiv": np.floor_divide, "floormod": np.remainder}
    functions |= {"bitand": np.bitwise_and, "bitor": np.bitwise_or, "bitxor": np.bitwise_xor}
    return functions[op](a, b)
