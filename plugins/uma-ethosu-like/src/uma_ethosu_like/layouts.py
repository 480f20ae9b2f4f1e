"""Layouts: maps between steps lie in bricks of 16 channels where that takes fewer cycles.

Some of a map's channels are read or written at a time. In ``nhwc`` these are contiguous for one pixel only, in
``nhcwb16`` for a row of them, which fills bursts. Inputs and outputs are ``nhwc``, as the model has them, and so are
maps that are read in another shape or written in parts. All bricks are full: such a map takes no more memory.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from .blocks import Block
from .operations import BRICK, DTYPE_BYTES, LIMITS, FeatureMap, Operation, Step, Storage

__all__ = ["in_bricks"]


def in_bricks(
    steps: Sequence[tuple[Step, Block]], fixed: Collection[Storage], choose: Callable[[Step], tuple[Block, int]]
) -> list[tuple[Step, Block]]:
    """The steps, with those maps in bricks with which they take fewer cycles.

    Args:
        steps: in order, on maps in ``nhwc``, with their blocks.
        fixed: storages that are needed from outside.
        choose: the block for a step, and its cycles.
    """
    done = list(steps)
    users: dict[Storage, dict[int, None]] = {}
    for number, (step, _) in enumerate(steps):
        for one, _ in step.operation.maps:
            users.setdefault(one.storage, {})[number] = None
    for held, numbers in users.items():
        before = [done[number][0] for number in numbers]
        maps = [one for step in before for one, _ in step.operation.maps if one.storage is held]
        if held in fixed or any(not _admits_bricks(one) or one.shape != maps[0].shape for one in maps):
            continue
        turned: dict[Operation, Operation] = {}
        after = []
        for step in before:
            operation = turned.setdefault(step.operation, _with_bricks(step.operation, held))
            after.append(Step(operation, step.box))
        if sum(choose(step)[1] for step in after) < sum(choose(step)[1] for step in before):
            for number, step in zip(numbers, after, strict=True):
                done[number] = step, choose(step)[0]
    return done


def _admits_bricks(one: FeatureMap) -> bool:
    """Whether a map is all of its storage, and its channels fill bricks."""
    rows, dense = one.ring or one.shape[0], FeatureMap.whole(one.storage, one.shape, one.dtype)
    whole = one.offset == 0 and one.strides == dense.strides and rows * one.strides[0] == one.storage.nbytes
    return whole and one.storage.data is None and one.dtype in LIMITS and one.shape[2] % BRICK == 0


def _with_bricks(one: Operation, held: Storage) -> Operation:
    """An operation to which a storage is in bricks."""

    def turned(fm: FeatureMap) -> FeatureMap:
        if fm.storage is not held:
            return fm
        by_column = BRICK * DTYPE_BYTES[fm.dtype]
        return replace(fm, strides=(fm.strides[0], by_column, fm.shape[1] * by_column), layout="nhcwb16")

    second = turned(one.ifm2) if isinstance(one.ifm2, FeatureMap) else one.ifm2
    return replace(one, ofm=turned(one.ofm), ifm=turned(one.ifm), ifm2=second)
