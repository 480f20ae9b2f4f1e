"""Choosing tiles: all ways to cut a nest, the most promising first, until none can be better than the best one found.

A choice of tiles is known by the least that it may cost: all instructions, and every element moved as often as its
tiles must be, whatever the order of the loops. Choices for a few axes, the others as large as can be, are told likewise
(`_Search.least`), so most are never looked at. What is left is cut in every order of loops, with each buffer made at
every loop that tells.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, combinations, permutations, product
from itertools import count as counter
from typing import NamedTuple

from ..form.exprs import require
from ..form.machine import Machine
from .cycle_model import Costs, Cut, Loop, Timeline, parts
from .nest import Nest

__all__ = ["Constraints", "Tiles", "TilingFailure", "choose_tiles", "search_exhaustively"]


@dataclass(frozen=True)
class Constraints:
    """What the author of a lowering decides himself.

    Args:
        tiles: of an axis the iterations of a tile, or those that it may have.
        at_most: of an axis the most iterations of a tile.
        steps: of an axis the iterations of an instruction.
        multiples: of an axis of what tiles and steps are a multiple, unless they are all of it or less than that.
        order: names of axes, whose loops over tiles are in this order, outermost first; others are in any.
        at: of a staged buffer the axes in whose loops over tiles it may be made; None among them: outside of all loops.
            Without it, in any loop that tells which elements are used, those over the steps of a tile included.
        double_buffer: whether loops may be double-buffered.
        along: axes whose loops over tiles may be; None for all, steps of reductions included.
        together: buffers that are made at the same loop.
        sums_innermost: whether the steps of a tile are never within the loops of reductions.
        tries: how many cuts of double-buffered loops are followed at most.
    """

    tiles: Mapping[str, int | Sequence[int]] = field(default_factory=dict)
    at_most: Mapping[str, int] = field(default_factory=dict)
    steps: Mapping[str, int] = field(default_factory=dict)
    multiples: Mapping[str, int] = field(default_factory=dict)
    order: Sequence[str] = ()
    at: Mapping[str, Sequence[str | None]] = field(default_factory=dict)
    double_buffer: bool = True
    along: Sequence[str] | None = None
    together: Sequence[Sequence[str]] = ()
    sums_innermost: bool = False
    tries: int = 1500


@dataclass(frozen=True)
class Tiles:
    """How a nest is cut.

    Args:
        nest: what is cut.
        sizes: iterations of each axis in a tile. Tiles have all iterations of a reduction.
        steps: iterations of each axis in one instruction.
        loops: outermost first, those that have several iterations: ``x_o`` over the tiles of an axis ``x``, or over the
            steps of a reduction; ``x_i`` over the steps of a tile.
        at: of each staged buffer the loop in each of whose iterations it is made, the last one around it; None outside
            of all.
        around: the loop that is double-buffered; None for none.
        twice: the buffers that are there twice for it.
        cycles: how long it takes.
        least: none of the cuts that were left, of those that there are to choose from, takes less.
        used: bytes of each memory.
        binding: the memory of which a larger one would have had most to give: the one that is filled most.
    """

    nest: Nest
    sizes: Mapping[str, int]
    steps: Mapping[str, int]
    loops: tuple[str, ...]
    at: Mapping[str, str | None]
    around: str | None
    twice: tuple[str, ...]
    cycles: int
    least: int
    used: Mapping[str, int]
    binding: str

    def __str__(self) -> str:
        cut = ", ".join(f"{axis} {size}" for axis, size in self.sizes.items())
        ahead = f"; {', '.join(self.twice)} twice, around {self.around}" if self.around else ""
        return f"tiles of {cut}; loops {', '.join(self.loops) or 'none'}{ahead}: {self.cycles} cycles"


@dataclass(frozen=True)
class TilingFailure:
    """Why no cut fits: the smallest tiles take more of a memory than there is.

    Args:
        memory: its name.
        least_bytes: that the smallest tiles take.
        nbytes: that it has.
        buffers: what is in it.
    """

    memory: str
    least_bytes: int
    nbytes: int
    buffers: tuple[str, ...]

    def __str__(self) -> str:
        names = ", ".join(self.buffers)
        return f"the smallest tiles of {names} take {self.least_bytes} of the {self.nbytes} bytes of {self.memory!r}"


def choose_tiles(
    nest: Nest, machine: Machine, costs: Costs, constraints: Constraints | None = None
) -> Tiles | TilingFailure:
    """The cut of a nest that takes the fewest cycles; a `TilingFailure` where none fits the memories.

    It is the best of all that `Constraints` allow, where costs are as `Costs` asks for, and ``tries`` were enough;
    `Tiles.least` tells how far from it it may be.

    Args:
        nest: what is cut.
        machine: its memories, with their sizes and alignments.
        costs: cycles of its commands.
        constraints: what is decided already.

    Raises:
        InternalError: the nest names a memory that there is not, or the constraints an axis or a buffer; or no size
            meets the constraints.
    """
    return _Search(nest, machine, costs, constraints or Constraints()).best()


def find_misfit(
    nest: Nest, machine: Machine, costs: Costs, constraints: Constraints | None = None
) -> TilingFailure | None:
    """Why `choose_tiles` would find no cut; None where it would. Nothing is looked for, so that the predicate of a
    pattern may ask.

    Args:
        nest, machine, costs, constraints: as of `choose_tiles`.

    Raises:
        InternalError: as `choose_tiles`.
    """
    return _Search(nest, machine, costs, constraints or Constraints()).least_misfit()


def search_exhaustively(
    nest: Nest, machine: Machine, costs: Costs, constraints: Constraints | None = None
) -> Tiles | TilingFailure:
    """As `choose_tiles`, but every size of every tile and step is tried, which takes minutes: to see what that misses.

    Args:
        nest, machine, costs, constraints: as of `choose_tiles`; no multiples and no ``tries`` hold.

    Raises:
        InternalError: as `choose_tiles`.
    """
    return _Search(nest, machine, costs, constraints or Constraints(), close=0.0).best_of_all()


class StagingPoint(NamedTuple):
    """Where a buffer may be made.

    Args:
        depth: within so many of the loops.
        nbytes: of its memory that it takes.
        work: cycles of all its transfers, without their issues.
        waited: cycles of the issues, and of fills.
    """

    depth: int
    nbytes: int
    work: int
    waited: int


_CLOSE = 0.02
"""What may be gained by looking on, as a share, that is not worth it."""


RankedCut = tuple[tuple[int, int, int, int], Cut]
"""A cut, after what it is ranked by: its cycles, those of its transfers, whether it is double-buffered, its number."""


class _Search:
    def __init__(
        self, nest: Nest, machine: Machine, costs: Costs, constraints: Constraints, close: float = _CLOSE
    ) -> None:
        self.close, self.tries = close, 0
        self.nest, self.machine, self.costs, self.constraints = nest, machine, costs, constraints
        self.timeline = Timeline(nest, machine, costs)
        self.names = self.timeline.names
        self.reductions = self.timeline.reductions
        self._check()
        self.at = {name: tuple(allowed) for name, allowed in constraints.at.items()}
        most = nest.steps()
        self.limits = [most[name] or extent for name, extent in zip(self.names, self.timeline.extents, strict=True)]
        index = {one.name: number for number, one in enumerate(nest.staged)}
        groups = [[index[name] for name in names] for names in constraints.together]
        self.same = [[n for group in groups if number in group for n in group] for number in index.values()]
        self.choices = [self._choices(axis) for axis in range(len(self.names))]
        self.sizes = {memory.name: memory.nbytes for memory in machine.memories}
        self.moves: dict[tuple[int, tuple[Loop, ...]], tuple[int, int, int]] = {}
        self.transferred = [n for n, one in enumerate(nest.staged) if one.role != "made"]

    def _check(self) -> None:
        constraints, axes = self.constraints, set(self.names)
        buffers = {one.name for one in self.nest.staged}
        named = [
            *constraints.tiles,
            *constraints.at_most,
            *constraints.steps,
            *constraints.multiples,
            *constraints.order,
            *(constraints.along or ()),
        ]
        named += [name for allowed in constraints.at.values() for name in allowed if name is not None]
        for name in named:
            require(name in axes, f"the constraints name an axis {name!r}, which the nest has not: it has {self.names}")
        for name in (*constraints.at, *chain(*constraints.together)):
            require(name in buffers, f"the constraints name a buffer {name!r}, which is not staged")

    def _choices(self, axis: int) -> list[tuple[int, int]]:
        """Sizes of a tile and of a step of it, the largest first. Of tiles that are as many the smallest is enough,
        and those that are a multiple of what an instruction does.
        """
        name, extent, limit = self.names[axis], self.timeline.extents[axis], self.limits[axis]
        constraints, multiple = self.constraints, self.constraints.multiples.get(self.names[axis], 1)

        def fits(size: int) -> int:
            return size if size < multiple else min(extent, parts(size, multiple) * multiple)

        if self.nest.axes[axis].is_whole:
            tiles = [extent]
        elif name in constraints.tiles:
            sizes = constraints.tiles[name]
            tiles = [min(extent, size) for size in ([sizes] if isinstance(sizes, int) else sizes)]
        elif axis in self.reductions:
            tiles = [extent]
        else:
            even = {parts(extent, n) for n in range(1, extent + 1)}
            tiles = [fits(size) for one in even for size in (one, min(extent, parts(one, limit) * limit))]
            tiles = [size for size in tiles if size <= constraints.at_most.get(name, extent)]
        pairs: set[tuple[int, int]] = set()
        for tile in tiles:
            if name in constraints.steps:
                steps = {min(tile, constraints.steps[name])}
            elif axis in self.reductions:
                even = {parts(tile, n) for n in range(parts(tile, limit), tile + 1)}
                steps = {fits(one) for one in even} | {min(tile, limit)}
                steps |= {limit // multiple * multiple} if multiple <= limit < tile else set()
            else:
                even = {parts(tile, parts(tile, limit)), min(tile, limit)}
                steps = {min(tile, fits(one)) for one in even}
            pairs |= {(tile, step) for step in steps if 0 < step <= limit and self._is_even(axis, tile, step)}
        what = f"no size of axis {name!r} meets the constraints: an instruction does at most {limit}"
        require(bool(pairs), what)
        return sorted(pairs, reverse=True)

    def _is_even(self, axis: int, tile: int, step: int) -> bool:
        """Whether loops over tiles and over their steps can be scheduled as they are told: a last tile or step that is
        smaller is the rest of one loop, not of two within one another."""
        extent = self.timeline.extents[axis]
        return axis in self.reductions or tile in (step, extent) or tile % step == extent % tile == 0

    # Bounds

    def least(self, chosen: Sequence[tuple[int, int]]) -> int:
        """The least cycles of a cut with these sizes, of the first axes; the others are as large as can be."""
        timeline = self.timeline
        sizes = {axis: chosen[axis] if axis < len(chosen) else self.choices[axis][0] for axis in range(len(self.names))}
        for axis in range(len(chosen), len(self.names)):
            sizes[axis] = (sizes[axis][0], max(step for _, step in self.choices[axis]))
        executed = timeline.total_executed(sizes)
        transferred = issued = 0
        for number in self.transferred:
            work, issues, fills = self.least_moved(number, self.loops_of(number, sizes))
            transferred += work
            issued += issues
            executed += fills
        executed += issued
        return self.bound(executed, transferred)

    def least_moved(self, number: int, loops: Sequence[Loop]) -> tuple[int, int, int]:
        """The least that moving a buffer costs that is made within some of these loops: see `Timeline.total_loaded`."""
        key = number, tuple(loops)
        cycles = self.moves.get(key)
        if cycles is None:
            timeline, size = self.timeline, self.sizes[self.nest.staged[number].memory]
            some = chain.from_iterable(combinations(loops, count) for count in range(len(loops) + 1))
            fitting = [around for around in some if timeline.bytes_of(number, around) <= size]
            totals = [timeline.total_loaded(number, around) for around in fitting or [tuple(loops)]]
            work, issues, fills = (min(column) for column in zip(*totals, strict=True))
            cycles = self.moves[key] = work, issues, fills
        return cycles

    def loops_of(self, number: int, sizes: Mapping[int, tuple[int, int]]) -> list[Loop]:
        """The loops over tiles that tell which elements of a buffer are used."""
        return [
            Loop(axis, False, sizes[axis][0])
            for axis in self.timeline.used[number]
            if sizes[axis][0] < self.timeline.extents[axis]
        ]

    def fits(self, chosen: Sequence[tuple[int, int]]) -> bool:
        """Whether the memories hold what a cut with these sizes needs at least, the other axes as small as can be."""
        return self.misfit(self.smallest(chosen)) is None

    def smallest(self, chosen: Sequence[tuple[int, int]]) -> Cut:
        """What takes the least: each buffer is made within all loops."""
        rest = [
            (min(tile for tile, _ in self.choices[axis]), min(step for _, step in self.choices[axis]))
            for axis in range(len(chosen), len(self.names))
        ]
        tiles, steps = zip(*chosen, *rest, strict=True) if self.names else ((), ())
        loops = self.all_loops(tiles, steps)
        spatial = [loop for loop in loops if loop.axis not in self.reductions]
        ordered = (*spatial, *(loop for loop in loops if loop.axis in self.reductions))
        at = []
        for number in range(len(self.nest.staged)):
            depth = len(ordered) if self.nest.staged[number].role == "in" else len(spatial)
            allowed = self.allowed(number, ordered)
            at.append(max([place for place in allowed if place <= depth], default=depth))
        return Cut(tiles, steps, ordered, tuple(at))

    def misfit(self, cut: Cut) -> TilingFailure | None:
        """The first memory that a cut takes too much of."""
        for name, used in self.timeline.used_by(cut).items():
            if used > self.sizes[name]:
                held = tuple([one.name for one in self.nest.staged if one.memory == name])
                return TilingFailure(name, used, self.sizes[name], held)
        return None

    def least_misfit(self) -> TilingFailure | None:
        """The memory for which even the smallest tiles are too large."""
        return self.misfit(self.smallest(()))

    # Loops

    def all_loops(self, tiles: Sequence[int], steps: Sequence[int]) -> list[Loop]:
        """The loops that have several iterations, in the order of the axes: over tiles, then within a tile."""
        outer: list[Loop] = []
        inner: list[Loop] = []
        sums: list[Loop] = []
        for axis, (tile, step, extent) in enumerate(zip(tiles, steps, self.timeline.extents, strict=True)):
            if tile < extent:
                outer.append(Loop(axis, False, tile))
            if step < tile:
                (sums if axis in self.reductions else inner).append(Loop(axis, True, step))
        return [*outer, *inner, *sums]

    def orders(self, loops: Sequence[Loop]) -> Iterator[tuple[Loop, ...]]:
        """The orders of the loops: those over tiles in any, then the steps of a tile, within or around the sums."""
        outer = [loop for loop in loops if not loop.is_step]
        inner = [loop for loop in loops if loop.is_step and loop.axis not in self.reductions]
        sums = [loop for loop in loops if loop.is_step and loop.axis in self.reductions]
        wanted = [self.names.index(name) for name in self.constraints.order]
        fixed = [axis for axis in wanted if any(loop.axis == axis for loop in outer)]
        for order in permutations(outer):
            if [loop.axis for loop in order if loop.axis in fixed] != fixed:
                continue
            yield (*order, *inner, *sums)
            if inner and sums and not self.constraints.sums_innermost:
                yield (*order, *sums, *inner)

    def allowed(self, number: int, loops: Sequence[Loop]) -> list[int]:
        """Within how many of the loops a buffer may be made."""
        one = self.nest.staged[number]
        sums = min((place for place, loop in enumerate(loops) if loop.axis in self.reductions), default=len(loops))
        if one.role == "made" and one.name not in self.constraints.at:
            return [sums]
        last = len(loops) if one.role == "in" else sums
        depths = []
        for depth in range(last + 1):
            if self._may_be(number, loops[depth - 1] if depth else None, loops):
                depths.append(depth)
        return depths

    def _may_be(self, number: int, loop: Loop | None, loops: Sequence[Loop]) -> bool:
        """Whether a buffer may be made right within a loop."""
        allowed = self.at.get(self.nest.staged[number].name)
        if loop is None:
            # Loops that have one iteration are around all others.
            return allowed is None or None in allowed or any(name and self._is_one(name, loops) for name in allowed)
        if loop.axis not in self.timeline.used[number]:
            return False
        return allowed is None or (self.names[loop.axis] in allowed and not self._is_inner(loop))

    def _is_inner(self, loop: Loop) -> bool:
        """Whether a loop is over the steps of a tile."""
        return loop.is_step and loop.axis not in self.reductions

    def _is_one(self, name: str, loops: Sequence[Loop]) -> bool:
        axis = self.names.index(name)
        return not any(loop.axis == axis and not loop.is_step for loop in loops)

    def cuts(self, tiles: tuple[int, ...], steps: tuple[int, ...], below: float = math.inf) -> Iterator[Cut]:
        """The cuts of these sizes that fit, with nothing double-buffered; but for those that surely take ``below``
        cycles or more, however much of them is double-buffered.
        """
        seen: set[object] = set()
        executed = self.timeline.total_executed(dict(enumerate(zip(tiles, steps, strict=True))))
        for loops in self.orders(self.all_loops(tiles, steps)):
            places = [self.places(number, loops) for number in range(len(self.nest.staged))]
            if not all(places):
                continue
            for at in self._placed(places, (), dict.fromkeys(self.sizes, 0), executed, 0, below):
                # Where nothing else tells them apart, the first order will do.
                key = tuple([(frozenset(loops[:depth]), loops[depth - 1] if depth else None) for depth in at])
                if key not in seen:
                    seen.add(key)
                    yield Cut(tiles, steps, loops, at)

    def places(self, number: int, loops: Sequence[Loop]) -> list[StagingPoint]:
        """Where a buffer may be made, and what that takes."""
        points = []
        for depth in self.allowed(number, loops):
            around = loops[:depth]
            work, issues, fills = (0, 0, 0)
            if self.nest.staged[number].role != "made":
                work, issues, fills = self.timeline.total_loaded(number, around)
            points.append(StagingPoint(depth, self.timeline.bytes_of(number, around), work, issues + fills))
        return points

    def _placed(
        self,
        places: Sequence[Sequence[StagingPoint]],
        at: tuple[int, ...],
        used: Mapping[str, int],
        waited: int,
        transferred: int,
        below: float,
    ) -> Iterator[tuple[int, ...]]:
        number = len(at)
        if number == len(places):
            yield at
            return
        memory = self.nest.staged[number].memory
        rest = places[number + 1 :]
        least_moved = sum(min(place.work for place in some) for some in rest)
        least_waited = sum(min(place.waited for place in some) for some in rest)
        fixed = [at[other] for other in self.same[number] if other < number]
        for place in places[number]:
            if fixed and place.depth != fixed[0]:
                continue
            taken = used[memory] + place.nbytes
            waits, moves = waited + place.waited, transferred + place.work
            if taken > self.sizes[memory] or self.bound(waits + least_waited, moves + least_moved) >= below:
                continue
            yield from self._placed(places, (*at, place.depth), {**used, memory: taken}, waits, moves, below)

    def bound(self, waited: int, transferred: int) -> int:
        """The least that a cut takes of which so many cycles are not transfers, and so many are."""
        return (
            waited + transferred
            if self.costs.queue is None or not self.constraints.double_buffer
            else max(waited, transferred)
        )

    def buffered(self, cut: Cut) -> Iterator[Cut]:
        """The cut with as much double-buffered, around one loop, as there is room for."""
        if self.costs.queue is None or not self.constraints.double_buffer:
            return
        along = None if self.constraints.along is None else [self.names.index(name) for name in self.constraints.along]
        used = self.timeline.used_by(cut)
        for place, loop in enumerate(cut.loops):
            if along is not None and (loop.axis not in along or self._is_inner(loop)):
                continue
            there = [n for n in self.transferred if cut.at[n] == place + 1 and self.timeline.can_start(n)]
            more = {
                n: self.timeline.bytes_of(n, cut.loops[: place + 1], 2)
                - self.timeline.bytes_of(n, cut.loops[: place + 1])
                for n in there
            }
            fitting: list[frozenset[int]] = []
            for size in range(len(there), 0, -1):
                for some in map(frozenset, combinations(there, size)):
                    taken = dict(used)
                    for number in some:
                        taken[self.nest.staged[number].memory] += more[number]
                    if not any(some < larger for larger in fitting) and all(
                        taken[name] <= self.sizes[name] for name in taken
                    ):
                        fitting.append(some)
                        yield Cut(cut.tiles, cut.steps, cut.loops, cut.at, place, some)

    # The search

    def best(self) -> Tiles | TilingFailure:
        """The best cut."""
        misfit = self.least_misfit()
        if misfit is not None:
            return misfit
        order = counter()
        heap: list[tuple[int, int, int, tuple[tuple[int, int], ...]]] = [(self.least(()), 0, next(order), ())]
        best_cut: RankedCut | None = None
        least = heap[0][0]
        while heap:
            bound, _, _, chosen = heapq.heappop(heap)
            least = bound
            if best_cut is not None and (bound >= self.worth(best_cut) or self.tries >= self.constraints.tries):
                break
            if len(chosen) < len(self.names):
                for choice in self.choices[len(chosen)]:
                    longer = (*chosen, choice)
                    if self.fits(longer):
                        entry = max(bound, self.least(longer)), -len(longer), next(order), longer
                        heapq.heappush(heap, entry)
                continue
            best_cut = self.better(chosen, best_cut)
        else:
            least = best_cut[0][0] if best_cut else least
        assert best_cut is not None  # the smallest tiles fit
        return self._tiles(best_cut[1], best_cut[0][0], min(least, best_cut[0][0]))

    def best_of_all(self) -> Tiles | TilingFailure:
        """The best cut of all sizes, none of which is left out for what others cost."""
        misfit = self.least_misfit()
        if misfit is not None:
            return misfit
        every = []
        for axis, (name, limit) in enumerate(zip(self.names, self.limits, strict=True)):
            largest = max(tile for tile, _ in self.choices[axis])
            fixed = name in self.constraints.tiles or axis in self.reductions or self.nest.axes[axis].is_whole
            tiles = {tile for tile, _ in self.choices[axis]} if fixed else set(range(1, largest + 1))
            steps = {step for _, step in self.choices[axis]} if name in self.constraints.steps else range(1, limit + 1)
            pairs = ((tile, step) for tile in sorted(tiles) for step in steps if step <= tile)
            every.append([(tile, step) for tile, step in pairs if self._is_even(axis, tile, step)])
        best_cut: RankedCut | None = None
        for chosen in product(*every):
            if self.fits(chosen):
                best_cut = self.better(chosen, best_cut)
        assert best_cut is not None  # the smallest tiles fit
        return self._tiles(best_cut[1], best_cut[0][0], best_cut[0][0])

    def worth(self, best_cut: RankedCut | None) -> float:
        """What a cut must surely not reach to be looked at."""
        return math.inf if best_cut is None else best_cut[0][0] * (1 - self.close)

    def better(self, chosen: tuple[tuple[int, int], ...], best_cut: RankedCut | None) -> RankedCut | None:
        """The best cut of these sizes, where it is better than one that was found before."""
        timeline = self.timeline
        executed = timeline.total_executed(dict(enumerate(chosen)))
        tiles, steps = zip(*chosen, strict=True) if chosen else ((), ())
        promising = []
        for number, cut in enumerate(self.cuts(tiles, steps, self.worth(best_cut))):
            loads = {n: timeline.total_loaded(n, cut.loops[: cut.at[n]]) for n in self.transferred}
            waited = executed + sum(map(sum, loads.values()))
            rank = waited, sum(work for work, _, _ in loads.values()), 0, number
            if best_cut is None or rank[:3] < best_cut[0][:3]:
                best_cut = rank, cut
            if self.bound(waited - rank[1], rank[1]) >= self.worth(best_cut):
                continue
            for variant, variant_cut in enumerate(self.buffered(cut)):
                bound = max(waited - sum(loads[n][0] for n in variant_cut.twice), rank[1])
                if bound < self.worth(best_cut):
                    promising.append((bound, rank[1], number, variant, variant_cut))
        for bound, transferred, number, _, variant_cut in sorted(promising, key=lambda one: one[:4]):
            if bound >= self.worth(best_cut):
                break
            self.tries += 1
            rank = timeline.elapsed(variant_cut), transferred, 1, number
            if best_cut is None or rank[:3] < best_cut[0][:3]:
                best_cut = rank, variant_cut
        return best_cut

    def _tiles(self, cut: Cut, cycles: int, least: int) -> Tiles:
        """Return a cut as tiles, with its cycles and its use of memories."""
        names = [f"{self.names[loop.axis]}_{'i' if self._is_inner(loop) else 'o'}" for loop in cut.loops]
        used = self.timeline.used_by(cut)
        return Tiles(
            nest=self.nest,
            sizes=dict(zip(self.names, cut.tiles, strict=True)),
            steps=dict(zip(self.names, cut.steps, strict=True)),
            loops=tuple(names),
            at={
                one.name: names[depth - 1] if depth else None
                for one, depth in zip(self.nest.staged, cut.at, strict=True)
            },
            around=None if cut.around is None else names[cut.around],
            twice=tuple([one.name for number, one in enumerate(self.nest.staged) if number in cut.twice]),
            cycles=cycles,
            least=least,
            used=used,
            binding=max(used, key=lambda name: used[name] / self.sizes[name], default=""),
        )
