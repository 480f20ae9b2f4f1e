"""The schedule that makes the loops of a kernel where nobody else has made them: such as a C compiler turns into vector
code, whatever the machine.

- Stages that follow one another share their outer loops as far as each reads the others at the very element, or row,
  that these loops stand at. What passes between them is then a row, on the stack where it is small, else in a
  workspace. So a convolution with bias and requantisation is one nest: per pixel a row of accumulators, then a row of
  results; and a softmax is maximum, exponentials, sum and quotients, row by row.
- Rows that only pass through are cut into blocks of constant length, which fit registers.
- A reduction accumulates a row at a time, by several steps at once, where all that it reads lies still or side by side
  along the row; otherwise an element at a time, the axis along which it reads side by side innermost. Where it reads
  one tensor, axes before that are one with it if they go on where it ends. A float reduction then has several partial
  results, so that the compiler need not reorder anything, and folds them pairwise at the end.
- Conditions of a reduction stand innermost here: `simplify` asks them as far out as they can be decided.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ..form.dtype import is_float, itemsize
from ..form.nodes import PrimFunc, Var
from ..schedule.schedule import Schedule
from .canonical_names import merge_stage_blocks, rename_canonically
from .finalisation import STACK_BYTES
from .stage_analysis import Stage, extent_of, stages_of

__all__ = ["DefaultSchedule"]


@dataclass(frozen=True)
class DefaultSchedule:
    """The numbers of the schedule.

    Args:
        block: elements of a row of accumulators: four vectors of 512 bits, or eight of 256, of 32-bit elements.
        steps: most steps of a reduction that are added to a row of accumulators at once.
        lanes_bytes: of partial results of a float reduction: two vectors of 512 bits.
        stack_bytes: what a kernel takes of the stack for rows; what goes beyond is in workspaces.
    """

    block: int = 64
    steps: int = 8
    lanes_bytes: int = 128
    stack_bytes: int = STACK_BYTES

    def applied(self, func: PrimFunc) -> PrimFunc:
        """A function in the plain form, scheduled. All is named by its order: equal computations stay equal."""
        scheduling = _Scheduling(self, func)
        scheduling.fused(scheduling.stages, 0, None)
        scheduled = scheduling.s.func
        return rename_canonically(
            replace(scheduled, body=merge_stage_blocks(scheduled.body, scheduling.owners)), scheduling.splits
        )

    def block_length(self, extent: int) -> int:
        """A length, at most ``block``, that divides ``extent`` and fills vectors; else ``block``, with a tail."""
        for length in range(self.block, self.block // 2, -8):
            if extent % length == 0:
                return length
        return self.block


class _Scheduling:
    """The schedule of one function.

    `targets` has for the label of a stage, or of a copy of it, the buffer that it writes now; `owners` for the label of
    any block that of the stage which it is part of; `splits` for the loop within the blocks of a split that over them.
    """

    def __init__(self, numbers: DefaultSchedule, func: PrimFunc) -> None:
        self.numbers = numbers
        # Whoever lowers kernels simplifies and verifies them.
        self.s = Schedule(func, simplify=False)
        self.stages = stages_of(func)
        self.users = {
            stage.buffer: [user for user in self.stages if stage.buffer in user.reads] for stage in self.stages
        }
        self.placed = {param.buffer for param in func.params}
        self.stack_bytes = 0
        self.splits: dict[Var, Var] = {}
        self.owners = {stage.label: stage.label for stage in self.stages}
        self.targets = {stage.label: stage.buffer for stage in self.stages}

    # Shared loops

    def fused(self, stages: Sequence[Stage], depth: int, at: Var | None) -> None:
        """Stages within the loops over their first ``depth`` dimensions, of which ``at`` is the innermost."""
        runs = self.runs(stages, depth)
        shared = [
            stage
            for run in runs
            for stage in run
            if stage.buffer not in self.placed and any(user not in run for user in self.users[stage.buffer])
        ]
        self.placed.update(stage.buffer for stage in shared)
        self.stored(shared, at, None, depth)
        for stage in shared:
            target = self.targets[stage.label]
            if self.stack_bytes + target.nbytes > self.numbers.stack_bytes:
                self.targets[stage.label] = self.s.set_scope(target, "global")
            else:
                self.stack_bytes += target.nbytes
        for run in runs:
            self.run(run, depth, at)

    def runs(self, stages: Sequence[Stage], depth: int) -> list[list[Stage]]:
        """The stages divided into runs that can share a loop over dimension ``depth``."""
        runs: list[list[Stage]] = []
        for stage in stages:
            if runs and _joins(runs[-1], stage, depth):
                runs[-1].append(stage)
            else:
                runs.append([stage])
        return runs

    def run(self, run: Sequence[Stage], depth: int, at: Var | None) -> None:
        """Stages that share the loop over dimension ``depth``, or one of them."""
        first = run[0]
        rank = max(stage.rank for stage in run)
        if len(run) == 1 and (rank == depth or not first.is_reduction):
            if first.is_reduction:
                self.reduction(first, first.label, by_row=False)
        elif rank == depth + 1:
            self.rows(run, depth, at)
        else:
            levels = 1
            # Where the next loops are shared by all as well, nothing is to be done between.
            while depth + levels + 1 < rank and self.runs(run, depth + levels) == [list(run)]:
                levels += 1
            loops = [nest.axes[depth].var for stage in run for nest in stage.nests]
            merged = self.s.merge(*loops, levels=levels)
            self.fused(run, depth + levels, merged[-1])

    def stored(self, stages: Sequence[Stage], at: Var | None, before: str | None, depth: int) -> None:
        """What some stages make, made anew in each iteration of a loop."""
        if stages and (at is not None or before is not None):
            buffers = [self.targets[stage.label] for stage in stages]
            new_buffers = self.s.store_at(buffers, at, before=before, dims_from=depth)
            self.targets.update(zip((stage.label for stage in stages), new_buffers, strict=True))

    def rows(self, run: Sequence[Stage], depth: int, at: Var | None) -> None:
        """Stages that have one loop left, in which each reads the others at the same element only."""
        passing = [stage for stage in run if stage.buffer not in self.placed]
        extent = run[0].buffer.shape[depth]
        if extent <= self.numbers.block or not (passing or any(stage.by_row for stage in run)):
            self.stored(passing, at, run[0].label, depth)
            self.reductions(run, {})
            return
        length = self.numbers.block_length(extent)
        parts = [self.s.split(nest.axes[depth].var, length, tail="peel") for stage in run for nest in stage.nests]
        (block,) = self.s.merge(*(outer for outer, _ in parts))
        self.splits.update((inner, block) for _, inner in parts)
        self.stored(passing, block, None, depth)
        if extent % length == 0:
            self.reductions(run, {})
            return
        _, rest = self.s.peel(block)
        copies = dict(zip(self.s.blocks(block), self.s.blocks(rest), strict=True))
        self.owners.update((copies[stage.label], copies[stage.label]) for stage in run)
        self.targets.update((copies[stage.label], self.targets[stage.label]) for stage in run)
        if passing:
            new_buffers = self.s.store_at(self.s.buffers(rest), rest, dims_from=0)
            self.targets.update(
                (copies[stage.label], buffer) for stage, buffer in zip(passing, new_buffers, strict=True)
            )
        self.reductions(run, {})
        self.reductions(run, copies)

    # Reductions

    def reductions(self, run: Sequence[Stage], labels: Mapping[str, str]) -> None:
        """The reductions among stages, whose blocks have other ``labels`` in a copy."""
        for stage in run:
            if stage.is_reduction:
                self.reduction(stage, labels.get(stage.label, stage.label), stage.by_row)

    def reduction(self, stage: Stage, label: str, by_row: bool) -> None:
        """A stage that is a reduction."""
        before = {*self.s.blocks()}
        if by_row:
            self.row(stage, label)
        else:
            self.element(stage, label)
        self.owners.update((new_label, label) for new_label in self.s.blocks() if new_label not in before)

    def row(self, stage: Stage, label: str) -> None:
        """A reduction that accumulates a row at a time."""
        (nest,) = stage.nests
        around, (row, *steps) = self.parted(label, len(nest.steps) + 1)
        if stage.buffer in self.placed:
            sums = self.s.cache_write(label, self.targets[label], "local", at=self.innermost_around(label, around))
            if around and around[-1] in self.splits.values():
                self.splits[self.s.loops(f"{sums.name}_out")[-1]] = around[-1]
        self.s.decompose_reduction(label, row)
        several = [number for number, loop in enumerate(nest.steps) if extent_of(loop) > 1]
        at_once = 1
        if several and not nest.asks_for(nest.steps[several[-1]]):
            extent = extent_of(nest.steps[several[-1]])
            at_once = max(n for n in range(1, self.numbers.steps + 1) if extent % n == 0)
        if at_once > 1:
            block, step = self.s.split(steps.pop(several[-1]), at_once)
            self.splits[step] = block
            self.s.reorder(*steps, block, row, step)
            self.s.unroll(step)
        elif steps:
            self.s.reorder(*steps, row)

    def element(self, stage: Stage, label: str) -> None:
        """A reduction that sums up one element at a time."""
        (nest,) = stage.nests
        around, steps = self.parted(label, len(nest.steps))
        target = self.targets[label]
        if target.scope != "local" or target.shape:
            self.s.cache_write(label, target, "local", at=self.innermost_around(label, around))
        inner = stage.contiguous
        if inner is None:
            return
        wholes = (inner, *nest.going_on(inner))
        var, *outer = (steps[nest.steps.index(loop)] for loop in wholes)
        inside = [*reversed(outer), var]
        if steps[len(steps) - len(inside) :] != inside:
            self.s.reorder(*(loop for loop in steps if loop not in inside), *inside)
        for before in outer:
            var = self.s.fuse(before, var)
        extent = math.prod(map(extent_of, wholes))
        lanes = self.numbers.lanes_bytes // itemsize(stage.buffer.dtype)
        while lanes >= 8 and extent < 2 * lanes:
            lanes //= 2
        if is_float(stage.buffer.dtype) and lanes >= 8 and not nest.asks_for(inner):
            block, lane = self.s.split(var, lanes, tail="peel")
            self.splits[lane] = block
            self.s.rfactor(lane, pairwise=True)

    def parted(self, label: str, count: int) -> tuple[list[Var], list[Var]]:
        """The loops of a block, and the innermost ``count`` of them apart."""
        loops = self.s.loops(label)
        return loops[: len(loops) - count], loops[len(loops) - count :]

    def innermost_around(self, label: str, around: Sequence[Var]) -> Var | None:
        """The innermost of some loops, if it stands in the block."""
        return around[-1] if around and label not in self.s.blocks(around[-1]) else None


def _joins(run: Sequence[Stage], stage: Stage, depth: int) -> bool:
    """Whether a stage can share the loop of others over a dimension, with no more than a row to pass on."""
    first = run[0]
    if min(first.rank, stage.rank) <= depth or first.buffer.shape[depth] != stage.buffer.shape[depth]:
        return False
    if not all(nest.covers(depth) for one in (first, stage) for nest in one.nests):
        return False
    buffers = {member.buffer for member in run}
    return all(nest.owns(load, depth) for nest in stage.nests for load in nest.loads if load.buffer in buffers)
