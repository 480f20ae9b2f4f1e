"""The schedule of a resize by whole factors: each element is read once and written to all of its places."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from uma.hookspecs import Fusion, ScheduledKernel
from uma.tir.schedule import Schedule

__all__ = ["resized"]

_MOST_PLACES = 16
"""Of an element, which are written out."""


def resized(fusion: Fusion) -> ScheduledKernel | None:
    """The loops of a fusion whose anchor is a resize; None where something is computed in the same loops, and where
    the plain ones are as good: where elements are left out or repeated unequally.

    Args:
        fusion: whose anchor it is.
    """
    call = fusion.anchor
    assert call is not None
    if fusion.prologue or fusion.epilogue:
        return None
    high, wide = (
        _times(places, extent)
        for places, extent in zip((call.attrs.rows, call.attrs.columns), call.args[0].shape[1:3], strict=True)
    )
    if not 1 < high * wide <= _MOST_PLACES:
        return None
    kernel = fusion.plain()
    (label,) = kernel.labels.values()
    s = Schedule(kernel.func)
    _, row, column, channel = s.loops(label)
    row, down = s.split(row, high)
    column, across = s.split(column, wide)
    s.reorder(row, column, channel, down, across)
    s.unroll(down)
    s.unroll(across)
    return ScheduledKernel(replace(kernel, func=s.func))


def _times(places: Sequence[int], extent: int) -> int:
    """How often each element is repeated; 0 where that is not the same for all, and where some are left out."""
    times = len(places) // extent
    return times if list(places) == [place for place in range(extent) for _ in range(times)] else 0
