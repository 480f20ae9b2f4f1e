"""Tables behind what gives their input: the machine looks results up on their way out, and so saves a pass."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from .operations import Operation, Storage, Window

__all__ = ["fuse_tables"]


def fuse_tables(
    operations: Sequence[Operation], fixed: Collection[Storage], cycles: Callable[[Operation], int]
) -> dict[int, Operation]:
    """What is left of operations by number, where those take the tables along whose results nothing else needs, if
    that takes no more cycles.

    Args:
        operations: in order.
        fixed: storages that are needed from outside.
        cycles: of an operation.
    """
    remaining = dict(enumerate(operations))
    for number, one in enumerate(operations):
        if not _looks_up(one) or one.ifm.storage in fixed:
            continue
        uses = {
            at: [written for fm, written in other.maps if fm.storage is one.ifm.storage]
            for at, other in remaining.items()
            if at != number
        }
        writers = [at for at, uses_here in uses.items() if uses_here]
        if not writers or any(uses[at] != [True] or remaining[at].ofm.dtype != "int8" for at in writers):
            continue
        fused = {at: _with_table(remaining[at], one) for at in writers}
        if sum(map(cycles, fused.values())) <= cycles(one) + sum(cycles(remaining[at]) for at in writers):
            remaining |= fused
            del remaining[number]
    return remaining


def _looks_up(one: Operation) -> bool:
    """Whether all that an operation does is to look up each element of a storage."""
    whole = one.ifm.offset == one.ofm.offset == 0 and math.prod(one.ifm.shape) == one.ifm.storage.nbytes
    return one.table is not None and one.kind == "average_pool" and one.window == Window() and whole


def _with_table(one: Operation, behind: Operation) -> Operation:
    """An operation that gives what the one behind it, a table, makes of its results."""
    assert behind.table is not None
    table = behind.table
    if one.table is not None:
        table = bytes(table[byte ^ 0x80] for byte in one.table)  # entries begin with -128
    return replace(
        one,
        ofm=replace(one.ofm, storage=behind.ofm.storage),
        table=table,
        layers=(*one.layers, *(layer for layer in behind.layers if layer not in one.layers)),
    )
