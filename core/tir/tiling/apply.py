"""Loops of a schedule cut as tiles say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..form.machine import Machine
from ..form.nodes import Queue, Var
from ..schedule import Schedule
from .nest import StagedBuffer
from .search import Tiles

__all__ = ["StagedLoops", "TiledLoops", "double_buffer", "tile_and_stage", "tile_reduction_loops", "tile_spatial_loops"]


@dataclass(frozen=True)
class TiledLoops:
    """The loops of a nest that was cut.

    Args:
        tiles: how.
        order: the loops of the spatial axes, outermost first: over tiles that are all of their axis; as
            `Tiles.loops` has them; within an instruction.
        named: the loops by the names that `Tiles.loops` has for them.
        once: how many of ``order`` have one iteration, the first ones.
        parts: the loops within an instruction by the names of their axes, reductions included once they are cut.
    """

    tiles: Tiles
    order: tuple[Var, ...]
    named: dict[str, Var]
    once: int
    parts: dict[str, Var]

    def at(self, buffer: str) -> Var | None:
        """The loop in each of whose iterations a staged buffer is made; None where it is made outside of all loops."""
        name = self.tiles.at[buffer]
        return self.named[name] if name is not None else self.order[self.once - 1] if self.once else None

    @property
    def summed(self) -> Var | None:
        """The first loop within which there are reductions: what sums begin with is decomposed there. None where only
        loops of reductions are.
        """
        sums = {f"{axis.name}_o" for axis in self.tiles.nest.axes if axis.is_reduction}
        before = next((n for n, name in enumerate(self.tiles.loops) if name in sums), len(self.tiles.loops))
        place = self.once + before
        return self.order[place] if place < len(self.order) else None


def tile_spatial_loops(schedule: Schedule, tiles: Tiles) -> TiledLoops:
    """The spatial loops of a nest, split and reordered as ``tiles`` say; those of reductions stay within.

    Raises:
        ScheduleError: the schedule has no such loops, or the order is not legal.
    """
    once: list[Var] = []
    named: dict[str, Var] = {}
    inner_loops: dict[str, Var] = {}
    loops = {var.name: var for label in schedule.blocks() for var in schedule.loops(label)}
    for axis in tiles.nest.axes:
        if axis.is_reduction:
            continue
        name, size, step = axis.name, tiles.sizes[axis.name], tiles.steps[axis.name]
        if axis.is_whole:
            inner_loops[name] = loops[name]
            continue
        # An instruction that does several iterations of an axis has a loop for it, even where it does only one.
        stays = any(name in one.axes() for one in tiles.nest.instructions) or step > 1
        outer, inner = schedule.split(name, size) if stays or size > 1 else (loops[name], None)
        if size < axis.extent:
            named[f"{name}_o"] = outer
        else:
            once.append(outer)
        if inner is not None and step < size:
            named[f"{name}_i"], inner = schedule.split(inner, step) if stays else (inner, None)
        if inner is not None:
            inner_loops[name] = inner
    ordered = [named[name] for name in tiles.loops if name in named]
    order = (*once, *ordered, *inner_loops.values())
    schedule.reorder(*order)
    return TiledLoops(tiles, order, named, len(once), inner_loops)


def tile_reduction_loops(
    schedule: Schedule, label: str, cut: TiledLoops, axes: Sequence[str] | None = None
) -> TiledLoops:
    """The reductions of a block split and reordered: within an instruction they come last, in the order of the axes.

    What the block begins with is decomposed before, at the loop `TiledLoops.summed`.

    Args:
        schedule: that was given to `tile_spatial_loops`.
        label: the block that has the sums.
        cut: what that gave.
        axes: names of the reductions that the block has; None for all that are not whole.

    Returns:
        The same with the loops that the block has now.

    Raises:
        ScheduleError: the block has not these loops, or the order is not legal.
    """
    tiles = cut.tiles
    mine = schedule.loops(label)
    renamed = dict(zip(cut.order, mine, strict=False))
    named = {name: renamed[var] for name, var in cut.named.items()}
    parts = {name: renamed[var] for name, var in cut.parts.items()}
    if axes is None:
        axes = [axis.name for axis in tiles.nest.axes if axis.is_reduction and not axis.is_whole]
    for name, var in zip(axes, mine[len(cut.order) :], strict=False):
        parts[name] = var
        if tiles.steps[name] < tiles.nest.axis(name).extent:
            named[f"{name}_o"], parts[name] = schedule.split(var, tiles.steps[name])
    first = next((place for place, name in enumerate(tiles.loops) if name[:-2] in axes), len(tiles.loops))
    steps = [named[name] for name in tiles.loops[first:] if name in named]
    schedule.reorder(*steps, *parts.values())
    order = tuple(renamed[var] for var in cut.order)
    return replace(cut, order=order, named=named, parts=parts)


def double_buffer(schedule: Schedule, cut: TiledLoops, buffers: dict[str, str], queue: Queue) -> None:
    """What ``tiles`` have twice, copied by the queue while the loop computes; nothing where they have nothing twice.

    Args:
        schedule: in which all buffers are where `TiledLoops.at` says.
        cut: its loops.
        buffers: for the names of staged buffers the names of those that were made in the memories; one that is not here
            kept its own.
        queue: the one that `Costs` had.

    Raises:
        ScheduleError: not one copy in each iteration of the loop moves a buffer.
    """
    if cut.tiles.around is not None:
        twice = [buffers.get(name, name) for name in cut.tiles.twice]
        schedule.double_buffer(twice, cut.named[cut.tiles.around], queue)


@dataclass(frozen=True)
class StagedLoops:
    """A nest that was cut and staged.

    Args:
        cut: its loops.
        label: the block that has the sums, or all of it where there is no reduction.
        init: the block of what they begin with; None where there is no reduction.
        buffers: for the names of staged buffers the names of those in the memories.
    """

    cut: TiledLoops
    label: str
    init: str | None
    buffers: dict[str, str]


def tile_and_stage(schedule: Schedule, label: str, tiles: Tiles, machine: Machine) -> StagedLoops:
    """One block cut, its buffers brought to the memories: what it reads by `Schedule.cache_read`, what it writes by
    `Schedule.cache_write`, each at the loop that the tiles say. Instructions, and `double_buffer` after them, are left.

    A layer of several blocks is for `tile_spatial_loops`, `tile_reduction_loops` and the primitives, in the order that
    it needs.

    Args:
        schedule: of the function that the nest was derived from, untouched.
        label: the block.
        tiles: how it is cut.
        machine: that has the memories.

    Raises:
        ScheduleError: a step is not legal.
    """
    nest = tiles.nest
    written = [buffer.name for buffer in schedule.block(label).writes]
    buffers: dict[str, str] = {}

    def bring(one: StagedBuffer, at: Var | None) -> None:
        way = schedule.cache_write if one.name in written else schedule.cache_read
        buffers[one.name] = way(label, one.name, machine.memory(one.memory), at=at).name

    if not any(tiles.sizes[axis.name] == axis.extent for axis in nest.axes if not (axis.is_reduction or axis.is_whole)):
        # All loops have several iterations: what is outside of them is outside of the block.
        for one in nest.staged:
            if tiles.at[one.name] is None:
                bring(one, None)
    cut = tile_spatial_loops(schedule, tiles)
    init = None
    if any(axis.is_reduction for axis in nest.axes):
        init = schedule.decompose_reduction(label, cut.summed or schedule.loops(label)[len(cut.order)])
        cut = tile_reduction_loops(schedule, label, cut)
    for one in sorted(nest.staged, key=lambda one: one.name not in written):
        if one.name not in buffers:
            bring(one, cut.at(one.name))
    return StagedLoops(cut, label, init, buffers)
