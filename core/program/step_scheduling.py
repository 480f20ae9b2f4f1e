"""Another order of the calls of a program, in which less memory is needed at once.

A dynamic program over the sets of calls that can be done at some time, with branch and bound: of the ways to one such
set, that with the lowest peak is kept, where it is below that of the order there is. Where the sets are too many, the
most promising ones of each size are kept, and the result is an order, not the best one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

from ..packing.problem import round_up
from .memory_plan import live_ranges, plan
from .overlap_constraints import of_step
from .program import Buffer, Call, Program, Rows, Step, arguments

__all__ = ["Peak", "order_peak", "reordered"]

_MAX_SETS = 60_000
"""Sets of calls looked at in a run of calls, at most; half a second or so."""

_MAX_CALLS = 4_000
"""A run of more calls stays as it is."""


@dataclass(frozen=True)
class Peak:
    """What the order of a program's calls has to do with the memory that they need.

    Args:
        nbytes: needed at once at the worst step, each buffer rounded up to the least alignment, but for what packing
            adds.
        bound: no order needs less. That is ``nbytes`` where the order is known to be the best one.
    """

    nbytes: int
    bound: int

    json_fields: ClassVar = ("bytes=nbytes", "bound")


def reordered(program: Program) -> Program:
    """``program`` with its calls in an order in which its plan takes less memory, or as it is where none was found.

    Calls go past each other only between two steps of another kind, and where neither writes what the other uses; those
    for one device stay in their order. A program that starts something on a queue, or runs row by row, stays as it is.

    Args:
        program: a program that `verify` accepts.
    """
    if not _may_change(program):
        return program
    runs = _runs(program)
    orders = [run.best_order() for run in runs]
    least = max((order.peak for order in orders), default=0)
    if least >= max((run.peak for run in runs), default=0):
        return program
    steps = list(program.steps)
    for run, order in zip(runs, orders, strict=True):
        if run.peak > least:
            steps[run.begin : run.begin + len(order.calls)] = [program.steps[run.begin + i] for i in order.calls]
    candidate = replace(program, steps=tuple(steps))
    return candidate if plan(candidate).arena_bytes < plan(program).arena_bytes else program


def order_peak(program: Program) -> Peak | None:
    """How much memory a program's order asks for, and how much every order does; None where it has to stay as it is."""
    if not _may_change(program):
        return None
    orders = [(run.peak, run.best_order().bound) for run in _runs(program)]
    return Peak(max((peak for peak, _ in orders), default=0), max((bound for _, bound in orders), default=0))


def _may_change(program: Program) -> bool:
    return not any(isinstance(step, Rows) or step.queue is not None for step in program.steps)


@dataclass(frozen=True)
class _Order:
    """Calls, by their position in their run; the peak; and a peak that no order is below."""

    calls: Sequence[int]
    peak: int
    bound: int


class _Reached(NamedTuple):
    """A set of calls that are done: the peak on the best way to it, the bytes that are live behind it, the calls that
    can come next, as a set; which call was the last, and what was done before it."""

    peak: int
    live: int
    ready: int
    last: int = -1
    before: _Reached | None = None

    def calls(self) -> list[int]:
        calls: list[int] = []
        at: _Reached | None = self
        while at is not None and at.before is not None:
            calls.append(at.last)
            at = at.before
        return calls[::-1]


class _Run:
    """Calls that follow one another.

    Args:
        program: all of it.
        begin: position of the first of them.
        calls: them.
        ranges: lives of all buffers.

    Attributes:
        peak: bytes needed at once at the worst of them.
        least: no order of them has a lower one.
    """

    def __init__(
        self, program: Program, begin: int, calls: Sequence[Call], ranges: Mapping[str, tuple[int, int]]
    ) -> None:
        self.begin, self.count = begin, len(calls)
        buffers = {buffer.name: buffer for buffer in program.buffers}
        pool = _largest_pool(program)
        grain = min((buffer.alignment for buffer in program.buffers if buffer.in_arena), default=1)

        def size(name: str) -> int:
            buffer = buffers[name]
            return round_up(buffer.nbytes, grain) if buffer.in_arena and buffer.pool == pool else 0

        end = begin + self.count
        writers: dict[str, list[int]] = {}
        readers: dict[str, list[int]] = {}
        for i, call in enumerate(calls):
            for param, name in arguments(program, call):
                kind = writers if param.role in ("output", "workspace") else readers
                kind.setdefault(name, []).append(i)
        self.before = _dependencies(program, calls, writers, readers)
        self.behind: list[list[int]] = [[] for _ in calls]
        for i, others in enumerate(self.before):
            for j in _members(others):
                self.behind[j].append(i)
        self.always = 0  # bytes of what is there all the time
        self.base = 0  # bytes of what is there at first, and dies within
        self.born = [0] * self.count  # bytes made by a call
        self.staying = [0] * self.count  # of these, bytes that somebody reads
        self.dying: list[list[tuple[int, int]]] = [[] for _ in calls]  # by reader: all readers, as a set, and bytes
        local: set[str] = set()
        for name, (first, last) in ranges.items():
            if last < begin or first >= end or size(name) == 0:
                continue
            makers, users = writers.get(name, []), readers.get(name, [])
            if buffers[name].role == "workspace":
                self.born[makers[0]] += size(name)
                continue
            if len(makers) != int(first >= begin) or (first < begin and last >= end):
                self.always += size(name)
                continue
            local.add(name)
            if makers:
                self.born[makers[0]] += size(name)
                self.staying[makers[0]] += size(name) if users or last >= end else 0
            else:
                self.base += size(name)
            if last < end:
                everyone = sum(1 << i for i in dict.fromkeys(users))
                for i in dict.fromkeys(users):
                    self.dying[i].append((everyone & ~(1 << i), size(name)))
        # For each output that may lie over inputs: its bytes, and for each input its other readers and the bytes saved.
        self.sharing: list[list[tuple[int, list[tuple[int, int]]]]] = [[] for _ in calls]
        for i, call in enumerate(calls):
            pairs: dict[str, list[tuple[int, int]]] = {}
            for (out, source), distance in _may_overlap(program, call, buffers).items():
                if out in local and source in local and ranges[source][1] < end and len(writers.get(out, ())) == 1:
                    everyone = sum(1 << j for j in dict.fromkeys(readers[source]))
                    saved = min(size(source), size(out) - min(size(out), round_up(distance, grain)))
                    pairs.setdefault(out, []).append((everyone & ~(1 << i), saved))
            self.sharing[i] = [(size(out), rows) for out, rows in pairs.items()]
        self.least = max((self._least(i) for i in range(self.count)), default=0)
        self.peak = self._peak()

    def best_order(self) -> _Order:
        """The order with the lowest peak, the one that there is where none is below its own."""
        if self.peak <= self.least or self.count > _MAX_CALLS:
            return _Order(range(self.count), self.peak, self.least)
        width = max(16, _MAX_SETS // self.count)
        layer = {0: _Reached(0, self.always + self.base, sum(1 << i for i in range(self.count) if not self.before[i]))}
        dropped = self.peak  # lowest peak of a way that was given up
        for _ in range(self.count):
            following: dict[int, _Reached] = {}
            for done, one in layer.items():
                for i, at, after in self._next(done, one):
                    top, behind = max(one.peak, at), done | 1 << i
                    known = following.get(behind)
                    if top < self.peak and (known is None or top < known.peak):
                        ready = one.ready & ~(1 << i)
                        for j in self.behind[i]:
                            if not self.before[j] & ~behind:
                                ready |= 1 << j
                        following[behind] = _Reached(top, after, ready, i, one)
            if len(following) > width:
                ways = sorted(following.items(), key=lambda way: (way[1].peak, way[1].live, way[0]))
                dropped = min(dropped, ways[width][1].peak)
                following = dict(ways[:width])
            layer = following
        for one in layer.values():
            return _Order(one.calls(), one.peak, max(self.least, min(one.peak, dropped)))
        return _Order(range(self.count), self.peak, max(self.least, dropped))

    def _next(self, done: int, reached: _Reached) -> list[tuple[int, int, int]]:
        """The calls that can come next, each with the bytes needed in it and behind it; one alone where it cannot be
        wrong to do it now: it needs no more than every order does, and leaves no more behind than there was."""
        candidates: list[tuple[int, int, int]] = []
        for i in _members(reached.ready):
            at, after = self._cost(i, done, reached.live)
            if at <= self.least and after <= reached.live:
                return [(i, at, after)]
            candidates.append((i, at, after))
        return candidates

    def _cost(self, i: int, done: int, live: int) -> tuple[int, int]:
        """The bytes needed in a call, and behind it, where others are done and so much is live."""
        shared = 0
        for output_bytes, rows in self.sharing[i]:
            shared += min(output_bytes, sum(saved for others, saved in rows if not others & ~done))
        after = live + self.staying[i] - sum(size for others, size in self.dying[i] if not others & ~done)
        return live + self.born[i] - shared, after

    def _least(self, i: int) -> int:
        """The bytes needed in a call whatever the order: what it uses itself, where all that it reads dies in it."""
        shared = sum(min(output_bytes, sum(saved for _, saved in rows)) for output_bytes, rows in self.sharing[i])
        return self.always + self.born[i] + sum(size for _, size in self.dying[i]) - shared

    def _peak(self) -> int:
        """The peak of the order that there is."""
        done, live, peak = 0, self.always + self.base, 0
        for i in range(self.count):
            at, live = self._cost(i, done, live)
            done, peak = done | 1 << i, max(peak, at)
        return peak


def _may_overlap(program: Program, call: Call, buffers: Mapping[str, Buffer]) -> dict[tuple[str, str], int]:
    """Which outputs of a call may lie over which of its inputs that die in it, each with the bytes that the input must
    begin behind the output: intermediates of one pool, by what the function says of all parameters that they are given
    for."""
    distances = {(out, source): max(0, distance) for out, source, distance in of_step(program, call)}
    may_alias = set(program.functions[call.function].may_alias)
    passed: dict[str, list[str]] = {}
    for param, name in arguments(program, call):
        passed.setdefault(name, []).append(param.buffer.name)
    for param, out in arguments(program, call):
        for name, params in passed.items():
            same = name != out and buffers[name].nbytes == buffers[out].nbytes
            if param.role == "output" and same and all((param.buffer.name, source) in may_alias for source in params):
                distances[out, name] = 0
    return {
        (out, source): distance
        for (out, source), distance in distances.items()
        if buffers[out].role == buffers[source].role == "intermediate" and buffers[out].pool == buffers[source].pool
    }


def _members(calls: int) -> Iterator[int]:
    while calls:
        yield (calls & -calls).bit_length() - 1
        calls &= calls - 1


def _largest_pool(program: Program) -> str:
    """The pool of the host that most is in."""
    totals: dict[str, int] = {}
    for buffer in program.buffers:
        if buffer.in_arena and not buffer.in_scratch:
            totals[buffer.pool] = totals.get(buffer.pool, 0) + buffer.nbytes
    return max(sorted(totals), key=lambda pool: totals[pool], default="")


def _dependencies(
    program: Program, calls: Sequence[Call], writers: Mapping[str, list[int]], readers: Mapping[str, list[int]]
) -> list[int]:
    """For each call those that must be done before it, as a set."""
    before = [0] * len(calls)
    for name, makers in writers.items():
        for maker in makers:
            for other in (*makers, *readers.get(name, ())):
                if other != maker:
                    before[max(other, maker)] |= 1 << min(other, maker)
    last: dict[str, int] = {}
    for i, call in enumerate(calls):
        if call.device is not None:
            before[i] |= 1 << last[call.device] if call.device in last else 0
            last[call.device] = i
    return before


def _runs(program: Program) -> list[_Run]:
    """The calls between steps of another kind."""
    ranges = live_ranges(program)
    runs: list[_Run] = []
    calls: list[Call] = []
    steps: list[Step | None] = [*program.steps, None]
    for position, step in enumerate(steps):
        if isinstance(step, Call):
            calls.append(step)
        elif calls:
            runs.append(_Run(program, position - len(calls), calls, ranges))
            calls = []
    return runs
