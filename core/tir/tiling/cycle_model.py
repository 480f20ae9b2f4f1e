"""How many cycles a nest takes that is cut in some way: what loops, copies and instructions `tile_and_stage` makes of
it, added up, and followed where a queue works meanwhile. The rules of time are those of `elapsed_cycles`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

from ..form import ctext
from ..form.machine import Machine
from ..form.nodes import Queue
from ..proofs.commands import CopyCommand, ExecCommand
from .nest import Instruction, Nest, Range

__all__ = ["Costs", "Cut", "Loop", "Timeline", "parts"]


@dataclass(frozen=True)
class Costs:
    """What commands cost, as `elapsed_cycles` is told it.

    Args:
        cycles: of one execution or transfer, without ``issue``. One that does more in one go is taken to cost no more
            than several that do as much together.
        issue: cycles of the host for each command, a wait included.
        queue: what transfers may be started on, to run while the host goes on; None for none.
        copies: whether the engine of the queue also does the transfers that the host waits for.
    """

    cycles: Callable[[ExecCommand | CopyCommand], int]
    issue: int = 0
    queue: Queue | None = None
    copies: bool = True


class Loop(NamedTuple):
    """A loop of the cut nest: over tiles of an axis, or over what one instruction does within a tile (``is_step``)."""

    axis: int
    is_step: bool
    part: int


@dataclass(frozen=True)
class Cut:
    """A way to cut a nest.

    Args:
        tiles, steps: iterations of each axis in a tile, and in an instruction.
        loops: outermost first; those that have one iteration are left out.
        at: of each staged buffer how many of the loops are around the place where it is made.
        around: the number of the loop that is double-buffered; None for none.
        twice: numbers of the buffers that are there twice for it.
    """

    tiles: tuple[int, ...]
    steps: tuple[int, ...]
    loops: tuple[Loop, ...]
    at: tuple[int, ...]
    around: int | None = None
    twice: frozenset[int] = frozenset()


def parts(whole: int, part: int) -> int:
    """How many parts ``whole`` has, the last one perhaps not full."""
    return -(-whole // part)


Ranges = tuple[Range, ...]


class Timeline:
    """Costs of the parts of one nest on one machine, each computed once."""

    def __init__(self, nest: Nest, machine: Machine, costs: Costs) -> None:
        nest.check(machine)
        self.nest, self.machine, self.costs = nest, machine, costs
        self.names = [axis.name for axis in nest.axes]
        number = {name: index for index, name in enumerate(self.names)}
        self.extents = tuple([axis.extent for axis in nest.axes])
        self.whole: Ranges = tuple([(0, extent) for extent in self.extents])
        self.reductions = frozenset(number[axis.name] for axis in nest.axes if axis.is_reduction)
        self.memories = [machine.memory(one.memory) for one in nest.staged]
        self.used = [tuple(sorted(number[name] for name in one.axes())) for one in nest.staged]
        self.dims = [
            [(dim, tuple((number[name], step) for name, step in dim.steps)) for dim in one.dims] for one in nest.staged
        ]
        self.done = [tuple(sorted(number[name] for name in one.axes())) for one in nest.instructions]
        self.inside = [self._inside(axis) for axis in range(len(self.names))]
        self.takes_rows = [self._takes_rows(number) for number in range(len(nest.staged))]
        self._loads: dict[tuple[int, tuple[int, ...], Ranges], tuple[int, tuple[int, ...]]] = {}
        self._executed: dict[tuple[int, Ranges], int] = {}
        self._held: dict[tuple[int, tuple[Loop, ...]], tuple[int, ...]] = {}
        self._instructions: dict[object, int] = {}
        self._transfer_cache: dict[object, tuple[int, int, int]] = {}
        self._cycles: dict[ExecCommand | CopyCommand, int] = {}

    def _takes_rows(self, number: int) -> bool:
        text = getattr(self.memories[number], "copy_out" if self.nest.staged[number].role == "out" else "copy_in")
        return "rows" in ctext.placeholders(text)

    def can_start(self, number: int) -> bool:
        """Whether the copy of a buffer can be started on a queue."""
        one = self.nest.staged[number]
        return one.role != "made" and bool(
            getattr(self.memories[number], "start_out" if one.role == "out" else "start_in")
        )

    def _inside(self, axis: int) -> Range:
        """Iterations of an axis that are alike: nothing that they use lies outside of a buffer in host memory."""
        low, high = 0, self.extents[axis]
        for dims in self.dims:
            for dim, steps in dims:
                for one, step in steps:
                    if one == axis:
                        most = dim.span + sum(s * (self.extents[a] - 1) for a, s in steps if a != axis)
                        low = max(low, parts(max(0, -dim.offset), step))
                        high = min(high, (dim.extent - 1 - dim.offset - most) // step + 1)
        return low, max(low, high)

    # Pieces

    def cycles(self, command: ExecCommand | CopyCommand) -> int:
        """Cycles of one command, without those of its issue."""
        cycles = self._cycles.get(command)
        if cycles is None:
            cycles = self._cycles[command] = self.costs.cycles(command)
        return cycles

    def runs(self, loop: Loop, elements: Range) -> list[tuple[Range, int]]:
        """What the iterations of a loop work on, of what is given, in order: alike ones together."""
        first, count = elements
        low, high = self.inside[loop.axis]
        runs: list[tuple[Range, int]] = []
        while count > 0:
            size = min(loop.part, count)
            alike = (min(first + count, high) - first) // size if first >= low else 0
            times = max(1, min(alike, count // size))
            start = low if low <= first and first + size <= high else first
            runs.append(((start, size), times))
            first, count = first + times * size, count - times * size
        return runs

    def held(self, number: int, around: Sequence[Loop]) -> tuple[int, ...]:
        """Elements of a staged buffer along each dimension, that is made within these loops."""
        mine = tuple([loop for loop in around if loop.axis in self.used[number]])
        shape = self._held.get((number, mine))
        if shape is None:
            counts = {self.names[axis]: self.extents[axis] for axis in self.used[number]}
            for loop in mine:
                counts[self.names[loop.axis]] = min(counts[self.names[loop.axis]], loop.part)
            shape = self._held[number, mine] = self.nest.staged[number].held(counts)
        return shape

    def bytes_of(self, number: int, around: Sequence[Loop], times: int = 1) -> int:
        """Bytes of its memory that a staged buffer takes that is made within these loops, so many times."""
        nbytes = self.nest.staged[number].itemsize * times
        for size in self.held(number, around):
            nbytes *= size
        alignment = self.memories[number].alignment
        return parts(nbytes, alignment) * alignment

    def used_by(self, cut: Cut) -> dict[str, int]:
        """Bytes that are used of each memory."""
        used = {memory.name: 0 for memory in self.machine.memories}
        for number, one in enumerate(self.nest.staged):
            used[one.memory] += self.bytes_of(number, cut.loops[: cut.at[number]], 2 if number in cut.twice else 1)
        return used

    def load(self, number: int, held: tuple[int, ...], ranges: Ranges) -> tuple[int, tuple[int, ...]]:
        """Cycles of the fills around a buffer, with their issue, and of each transfer of its copy."""
        key = number, held, tuple([ranges[axis] for axis in self.used[number]])
        cycles = self._loads.get(key)
        if cycles is None:
            cycles = self._loads[key] = self._load(number, held, ranges)
        return cycles

    def _load(self, number: int, held: tuple[int, ...], ranges: Ranges) -> tuple[int, tuple[int, ...]]:
        one = self.nest.staged[number]
        sides = []  # before, copied, after
        for dim, steps in self.dims[number]:
            start = dim.offset + sum(step * ranges[axis][0] for axis, step in steps)
            end = start + 1 + dim.span + sum(step * (ranges[axis][1] - 1) for axis, step in steps)
            low, high = max(0, min(start, dim.extent)), max(0, min(end, dim.extent))
            sides.append((min(end, 0) - start if start < 0 else 0, max(0, high - low), max(0, end - max(start, high))))
        fills = 0
        if one.fill is not None:
            names = [var.name for var in one.fill.intrinsic.vars]
            for index, (before, _, after) in enumerate(sides):
                around = [side[1] if place < index else side[0] + side[1] + side[2] for place, side in enumerate(sides)]
                for size in (before, after):
                    around[index] = size
                    *outer, row = around
                    rows = outer[-1] if outer else 1
                    times = 1
                    for extent in outer[:-1]:
                        times *= extent
                    if min(rows, row, times) > 0:
                        values = {one.fill.rows: rows, one.fill.row_bytes: row * one.itemsize}
                        command = ExecCommand(one.fill.intrinsic, tuple([values.get(name, 0) for name in names]))
                        fills += times * (self.costs.issue + self.cycles(command))
        if one.role == "made":
            return 0, ()
        return fills, tuple(self._transfers(number, held, [side[1] for side in sides]))

    def _transfers(self, number: int, held: tuple[int, ...], copied: Sequence[int]) -> Iterator[int]:
        """As `transfer` cuts a copy: axes that go on where the next one ends are one, the last two are rows."""
        one = self.nest.staged[number]
        if min(copied, default=1) <= 0:
            return
        axes: list[tuple[int, int, int]] = []
        here = there = 1
        for size, held_size, dim in reversed(list(zip(copied, held, one.dims, strict=True))):
            if size > 1:
                if axes and (here, there) == (axes[-1][0] * axes[-1][1], axes[-1][0] * axes[-1][2]):
                    axes[-1] = (axes[-1][0] * size, axes[-1][1], axes[-1][2])
                else:
                    axes.append((size, here, there))
            here, there = here * held_size, there * dim.extent
        row = axes.pop(0)[0] if axes and axes[0][1:] == (1, 1) else 1
        rows = axes.pop(0)[0] if axes else 1
        times = 1
        for size, _, _ in axes:
            times *= size
        if not self.takes_rows[number]:
            times, rows = times * rows, 1
        to, source = ("global", one.memory) if one.role == "out" else (one.memory, "global")
        command = CopyCommand(to, source, rows, row * one.itemsize)
        yield from [self.cycles(command)] * times

    def execute(self, number: int, ranges: Ranges) -> int:
        """Cycles of one execution of an instruction, with its issue."""
        key = number, tuple([ranges[axis] for axis in self.done[number]])
        cycles = self._executed.get(key)
        if cycles is None:
            one: Instruction = self.nest.instructions[number]
            values = []
            for var in one.intrinsic.vars:
                value = one.values[var.name]
                values.append(ranges[self.names.index(value)][1] if isinstance(value, str) else value)
            cycles = self.costs.issue + self.cycles(ExecCommand(one.intrinsic, tuple(values)))
            self._executed[key] = cycles
        return cycles

    # Totals of what is waited for

    def total_executed(self, cut_steps: Mapping[int, tuple[int, int]]) -> int:
        """Cycles of all instructions, with their issues: of each axis the iterations of a tile and of a step."""
        total = 0
        for number, one in enumerate(self.nest.instructions):
            over = [a for a in range(len(self.names)) if one.when == "each" or a not in self.reductions]
            key = number, tuple([cut_steps[axis] for axis in over])
            cycles = self._instructions.get(key)
            if cycles is None:
                axes = self.done[number]
                times = 1
                for axis in over:
                    if axis not in axes:
                        times *= sum(n for _, n in self._sizes(axis, *cut_steps[axis]))
                cycles = 0
                ranges = list(self.whole)
                for chosen in product(*[self._sizes(axis, *cut_steps[axis]) for axis in axes]):
                    count = times
                    for axis, (size, n) in zip(axes, chosen, strict=True):
                        ranges[axis] = (0, size)
                        count *= n
                    cycles += count * self.execute(number, tuple(ranges))
                self._instructions[key] = cycles
            total += cycles
        return total

    def _sizes(self, axis: int, tile: int, step: int) -> list[tuple[int, int]]:
        """How many iterations of an axis instructions do, and how many of them do so."""
        sizes: dict[int, int] = {}
        whole, rest = divmod(self.extents[axis], tile)
        for count, times in ((tile, whole), (rest, 1)):
            if count:
                sizes[step] = sizes.get(step, 0) + times * (count // step)
                if count % step:
                    sizes[count % step] = sizes.get(count % step, 0) + times
        return [(size, times) for size, times in sizes.items() if times]

    def total_loaded(self, number: int, outer: Sequence[Loop]) -> tuple[int, int, int]:
        """Cycles of all transfers of a buffer that is made within these loops, without their issues; of the issues;
        and of the fills.
        """
        mine = [loop for loop in outer if loop.axis in self.used[number]]
        times = 1
        for loop in outer:
            if loop not in mine:
                times *= parts(self._around(outer, loop), loop.part)
        key = number, tuple(mine)
        cycles = self._transfer_cache.get(key)
        if cycles is None:
            held = self.held(number, mine)
            work = issues = fills = 0
            for ranges, count in self._iterations(mine, self.whole):
                filled, transfers = self.load(number, held, ranges)
                work += count * sum(transfers)
                issues += count * len(transfers) * self.costs.issue
                fills += count * filled
            cycles = self._transfer_cache[key] = (work, issues, fills)
        return times * cycles[0], times * cycles[1], times * cycles[2]

    def _around(self, outer: Sequence[Loop], loop: Loop) -> int:
        """The iterations of an axis that a loop divides."""
        tiles = [one.part for one in outer if one.axis == loop.axis and not one.is_step]
        return tiles[0] if loop.is_step and tiles else self.extents[loop.axis]

    def _iterations(self, loops: Sequence[Loop], ranges: Ranges) -> Iterator[tuple[Ranges, int]]:
        if not loops:
            yield ranges, 1
            return
        first, *rest = loops
        for elements, times in self.runs(first, ranges[first.axis]):
            inner = (*ranges[: first.axis], elements, *ranges[first.axis + 1 :])
            for iteration, count in self._iterations(rest, inner):
                yield iteration, times * count

    # All of it

    def elapsed(self, cut: Cut) -> int:
        """Cycles of the nest when it is cut so.

        It is what `elapsed_cycles` counts of its loops, but where there are copies to the device that are waited for
        within the loop that is double-buffered: each iteration then waits for the queue before all else, which may be
        too much.
        """
        return _Run(self, cut).body(0, self.whole)


class _Run:
    """Follows the loops of one cut."""

    def __init__(self, timeline: Timeline, cut: Cut) -> None:
        self.timeline, self.cut, self.issue = timeline, cut, timeline.costs.issue
        staged = timeline.nest.staged
        self.held = [timeline.held(number, cut.loops[: cut.at[number]]) for number in range(len(staged))]
        self.ins = [n for n, one in enumerate(staged) if one.role == "in"]
        self.outs = [n for n, one in enumerate(staged) if one.role == "out"]
        instructions = list(enumerate(timeline.nest.instructions))
        self.each = [n for n, one in instructions if one.when == "each"]
        self.once = [n for n, one in instructions if one.when != "each"]
        summed = [place for place, loop in enumerate(cut.loops) if loop.axis in timeline.reductions]
        self.sums = min(summed, default=len(cut.loops))
        self.known: dict[tuple[int, Ranges], int] = {}

    def body(self, depth: int, ranges: Ranges) -> int:
        """Cycles of what stands within the first ``depth`` loops, but for copies on the queue."""
        key = depth, ranges
        cycles = self.known.get(key)
        if cycles is None:
            cycles = self.known[key] = self._body(depth, ranges)
        return cycles

    def _body(self, depth: int, ranges: Ranges) -> int:
        cut, timeline = self.cut, self.timeline
        total = self.entered(depth, ranges) + self.left(depth, ranges)
        if depth == len(cut.loops):
            return total + sum(timeline.execute(number, ranges) for number in self.each)
        inner = self.inner(depth, ranges)
        if cut.around == depth:
            return total + self.pipeline(depth + 1, inner)
        return total + sum(times * self.body(depth + 1, iteration) for iteration, times in inner)

    def inner(self, depth: int, ranges: Ranges) -> list[tuple[Ranges, int]]:
        """What the iterations of a loop work on, alike ones together."""
        loop = self.cut.loops[depth]
        return [
            ((*ranges[: loop.axis], elements, *ranges[loop.axis + 1 :]), times)
            for elements, times in self.timeline.runs(loop, ranges[loop.axis])
        ]

    def entered(self, depth: int, ranges: Ranges) -> int:
        """Cycles of what stands before the next loop, but for copies on the queue."""
        cut, timeline = self.cut, self.timeline
        total = 0
        for number in self.ins:
            if cut.at[number] == depth:
                fills, transfers = timeline.load(number, self.held[number], ranges)
                total += fills
                if number not in cut.twice:
                    total += self.waited(transfers)
        if depth == self.sums and self.once:
            spatial = [loop for loop in cut.loops[depth:] if loop.axis not in timeline.reductions]
            for iteration, times in timeline._iterations(spatial, ranges):
                total += times * sum(timeline.execute(number, iteration) for number in self.once)
        return total

    def left(self, depth: int, ranges: Ranges) -> int:
        """Cycles of what stands behind the next loop, likewise."""
        total = 0
        for number in self.outs:
            if self.cut.at[number] == depth:
                fills, transfers = self.timeline.load(number, self.held[number], ranges)
                total += fills + (0 if number in self.cut.twice else self.waited(transfers))
        return total

    def before_out(self, depth: int, ranges: Ranges) -> int:
        """Cycles of `body` before the first transfer from the device that is waited for."""
        waits_inside = any(self.cut.at[number] > depth and number not in self.cut.twice for number in self.outs)
        if not waits_inside:
            return self.body(depth, ranges) - self.left(depth, ranges)
        return self.entered(depth, ranges) + self.before_out(depth + 1, self.inner(depth, ranges)[0][0])

    def waited(self, transfers: Sequence[int]) -> int:
        """Cycles of transfers that the host waits for."""
        return sum(transfers) + len(transfers) * self.issue

    def pipeline(self, depth: int, inner: Sequence[tuple[Ranges, int]]) -> int:
        """The iterations of the loop that is double-buffered."""
        cut, timeline = self.cut, self.timeline
        copied_in = [number for number in self.ins if number in cut.twice]
        copied_out = [number for number in self.outs if number in cut.twice]
        shared = timeline.costs.copies
        waits_first = shared and any(cut.at[n] >= depth and n not in cut.twice for n in self.ins)
        waits_out = shared and any(cut.at[n] >= depth and n not in cut.twice for n in self.outs)
        works = [
            (
                [sum(timeline.load(n, self.held[n], iteration)[1]) for n in copied_in],
                [len(timeline.load(n, self.held[n], iteration)[1]) for n in copied_in],
                self.body(depth, iteration),
                [timeline.load(n, self.held[n], iteration)[1] for n in copied_out],
                self.before_out(depth, iteration) if waits_out else 0,
            )
            for iteration, _ in inner
        ]
        order = [run for run, (_, times) in enumerate(inner) for _ in range(times)]
        issue, k, m = self.issue, len(copied_in), len(copied_out)
        now = engine = 0
        ends: list[int] = []

        def start(work: int, commands: int) -> None:
            nonlocal now, engine
            # Transfers of one copy are given one after the other.
            now += issue
            engine = max(engine, now) + work
            now += issue * max(0, commands - 1)
            ends.append(engine)

        def wait(pending: int) -> None:
            nonlocal now
            now = max(now + issue, ends[-1 - pending] if len(ends) > pending else 0)

        for work, commands in zip(*works[order[0]][:2], strict=True):
            start(work, commands)
        index, last = 0, len(order) - 1
        before: dict[object, tuple[int, int]] = {}
        while index <= last:
            run = order[index]
            if k and index < last:
                for work, commands in zip(*works[order[index + 1]][:2], strict=True):
                    start(work, commands)
                wait(k + m if index else k)
            else:
                wait(m if index or not k else 0)
            if waits_first:
                now = max(now, engine)
            if waits_out:
                # It begins when the engine is idle, and has been issued meanwhile.
                now = max(now, engine - issue - works[run][4])
            now += works[run][2]
            for transfers in works[run][3]:
                start(sum(transfers), len(transfers))
            # Where nothing changes any more, what is left of a run of equal iterations takes as long each.
            state = run, engine - now, tuple(end - now for end in ends[-(k + m) :]) if k + m else ()
            remaining = next((n for n in range(index, last + 1) if order[n] != run), last + 1) - index - 2
            if state in before and remaining > 1:
                period = index - before[state][0]
                rounds = remaining // period
                passed = rounds * (now - before[state][1])
                now, engine, index = now + passed, engine + passed, index + rounds * period
                ends = [end + passed for end in ends[-(k + m) :]]
                before.clear()
            else:
                before[state] = (index, now)
            index += 1
        if m:
            wait(0)
        return now
