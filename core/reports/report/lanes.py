"""The graph of a model as lanes beside a list: each layer has a row, each value that is still needed a lane."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["LaneRow", "lanes"]


@dataclass(frozen=True)
class LaneRow:
    """What is drawn in the row of one layer.

    Args:
        lane: the lane of the layer itself.
        above: the lanes from which what it takes comes in, at the upper edge.
        below: the lane that leads on from it; None where nobody takes what it gives.
        passing: the lanes of other values, from edge to edge.
    """

    lane: int
    above: tuple[int, ...]
    below: int | None
    passing: tuple[int, ...]


def lanes(inputs: Sequence[Sequence[int]]) -> tuple[LaneRow, ...]:
    """The rows of a graph.

    Args:
        inputs: for each layer, in the order of the rows, the positions of those whose values it takes; each is before.
            What comes later is not drawn.
    """
    last = {source: row for row, sources in enumerate(inputs) for source in sources if source < row}
    lane_values: list[int | None] = []  # of each lane the layer whose value it has
    rows = []
    for row, sources in enumerate(inputs):
        above = tuple(sorted(lane for lane, value in enumerate(lane_values) if value is not None and value in sources))
        for lane, value in enumerate(lane_values):
            if value is not None and last[value] <= row:
                lane_values[lane] = None
        passing = tuple(lane for lane, value in enumerate(lane_values) if value is not None)
        ending = [lane for lane in above if lane_values[lane] is None]
        lane_here = min(ending, default=None)
        if lane_here is None:
            lane_here = next((lane for lane, value in enumerate(lane_values) if value is None), len(lane_values))
        if lane_here == len(lane_values):
            lane_values.append(None)
        below = None
        if row in last:
            lane_values[lane_here] = row
            below = lane_here
        rows.append(LaneRow(lane_here, above, below, passing))
    return tuple(rows)
