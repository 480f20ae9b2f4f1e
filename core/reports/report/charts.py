"""The pictures of the page: memory over the steps, bars of the layers, and the lanes of the graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from xml.etree.ElementTree import Element

from ...support.html import element
from ...targets.values import shorten
from .lanes import LaneRow
from .records import MemoryRow, PlacedRow

__all__ = ["Bar", "axis", "bar_chart", "lane_cell", "lanes_rem", "memory_map"]

_LANE_PX = 14
_NODE_PX = 15
"""From the upper edge of a row to its node."""

_MAX_LANES = 24
"""What lies further to the right is drawn in the last one."""

_NAMED_COLUMNS = 16
"""Of more columns only some are named."""

_DENSE = 160
"""So many buffers have no room for borders and labels."""


def memory_map(memory: MemoryRow, steps: int, colour_of: Mapping[str, str]) -> Element:
    """A memory: addresses upwards, steps to the right, the peak marked."""
    high, wide = max(memory.bytes, 1), max(steps, 1)
    is_dense = len(memory.placed) > _DENSE
    boxes = [_box(one, high, wide, colour_of, is_dense) for one in memory.placed]
    left, width = 100 * memory.peak_step / wide, 100 / wide
    side = "band left" if left < 15 else "band"
    label = element("b", None, "peak")
    band = element("div", {"class": side, "style": f"left:{left:.3f}%;width:{width:.3f}%"}, label)
    said = (
        f"Map of the memory {memory.pool}: {len(memory.placed)} buffers in {memory.bytes:,} bytes over {steps} steps; "
        f"fullest at step {memory.peak_step} with {memory.peak_bytes:,} bytes"
    )
    size = "field low" if len(memory.placed) < 4 or "." in memory.pool else "field"
    ticks = [element("span", None, f"{round(high * part / 4):,}") for part in range(5)]
    return element(
        "div",
        {"class": "map"},
        element("div", {"class": "y", "aria-hidden": "true"}, *ticks),
        element("div", {"class": size, "role": "img", "aria-label": said}, *boxes, band),
        axis([str(step) for step in range(steps)], "step "),
    )


def axis(names: Sequence[str], first: str) -> Element:
    """The names of some columns below the middles of these, from ``first`` on."""
    columns = len(names)
    shown = range(columns) if columns <= _NAMED_COLUMNS else {round((columns - 1) * part / 8) for part in range(9)}
    marks = []
    for at in sorted(shown):
        middle = 100 * (at + 0.5) / columns
        name = names[at] if at else f"{first}{names[at]}"
        # At the edges they stay inside.
        marks.append(element("span", {"style": f"left:{middle:.2f}%;transform:translateX(-{middle:.2f}%)"}, name))
    return element("div", {"class": "x", "aria-hidden": "true"}, *marks)


def _box(one: PlacedRow, high: int, wide: int, colour_of: Mapping[str, str], is_dense: bool) -> Element:
    left, width = 100 * one.first_step / wide, 100 * (one.last_step + 1 - one.first_step) / wide
    bottom, height = 100 * one.offset / high, 100 * one.bytes / high
    classes = ["buf", colour_of.get(one.target, "c0")]
    classes += ["peak"] * one.at_peak + ["work"] * (one.role == "workspace") + ["dense"] * is_dense
    place = f"{one.bytes:,} bytes at {one.offset:,}, steps {one.first_step} to {one.last_step}"
    label = one.layer[:60] if width * height > 30 and height > 5.5 and not is_dense else None
    return element(
        "div",
        {
            "class": " ".join(classes),
            "style": f"left:{left:.3f}%;width:{width:.3f}%;bottom:{bottom:.3f}%;height:{height:.3f}%",
            "title": f"{shorten(one.layer, 120)}: {one.role} {one.name}, {place}",
        },
        label,
    )


@dataclass(frozen=True)
class Bar:
    """A bar of a chart.

    Args:
        value: how high it is, from 0 on.
        label: what it is about, in words.
        colour: a class of the page's.
        row: what it leads to, ``layer`` or ``step``.
        number: of that row.
    """

    value: float
    label: str
    colour: str
    row: str
    number: int


def bar_chart(bars: Sequence[Bar], said: str, format_value: Callable[[float], str], *, linked: bool) -> Element:
    """A bar for each layer, side by side. With links each can be reached and says what it is; without, which is for
    thousands, those of one colour are one shape."""
    highest = max((bar.value for bar in bars), default=0) or 1
    gap = 0.12 if linked else 0.0

    def shape(at: int, bar: Bar) -> str:
        top = 100 - max(100 * bar.value / highest, 0.7 if bar.value else 0)
        return f"M{at + gap:g} 100V{top:.2f}H{at + 1 - gap:g}V100z"

    drawn: list[Element] = []
    if linked:
        for at, bar in enumerate(bars):
            title = element("title", None, f"{shorten(bar.label, 120)}: {format_value(bar.value)}")
            path = element("path", {"class": bar.colour, "d": shape(at, bar)}, title)
            href = f"#{bar.row}-{bar.number}"
            drawn.append(element("a", {"href": href, "aria-label": f"{bar.label}: {format_value(bar.value)}"}, path))
    else:
        for colour in dict.fromkeys(bar.colour for bar in bars):
            shapes = "".join(shape(at, bar) for at, bar in enumerate(bars) if bar.colour == colour and bar.value)
            drawn.append(element("path", {"class": colour, "d": shapes}))
    box = f"0 0 {max(len(bars), 1)} 100"
    role = {"role": "group" if linked else "img"}
    return element(
        "svg", {"class": "bars", "viewBox": box, "preserveAspectRatio": "none", "aria-label": said, **role}, *drawn
    )


def lane_cell(row: LaneRow, width: int, colour: str) -> Element:
    """The first cell of a layer's row: its node, and the lanes that come to it, leave it and pass it.

    Args:
        row: of the layer.
        width: how many lanes there are.
        colour: of its target, a class of the page's.
    """
    wide = _lanes_px(width)
    x = _x(row.lane)
    through = row.lane in row.above and row.below == row.lane
    parts = [_line(_x(lane), "0", "100%") for lane in (*row.passing, *((row.lane,) if through else ()))]
    for lane in row.above:
        if lane != row.lane:
            half = _NODE_PX / 2
            parts.append(element("path", {"d": f"M{_x(lane)} 0C{_x(lane)} {half:g} {x} {half:g} {x} {_NODE_PX}"}))
        elif not through:
            parts.append(_line(x, "0", str(_NODE_PX)))
    if row.below is not None and not through:
        parts.append(_line(x, str(_NODE_PX), "100%"))
    parts.append(element("circle", {"class": colour, "cx": x, "cy": _NODE_PX, "r": 5}))
    svg = element("svg", {"width": wide, "aria-hidden": "true"}, *parts)
    return element("td", {"class": "lanes", "style": f"min-width:{wide}px"}, svg)


def lanes_rem(width: int) -> float:
    """How wide the first cell is where there are so many lanes."""
    return _lanes_px(width) / 16


def _lanes_px(width: int) -> int:
    return (min(width, _MAX_LANES) + 1) * _LANE_PX


def _x(lane: int) -> int:
    return _LANE_PX * (min(lane, _MAX_LANES - 1) + 1)


def _line(x: int, top: str, bottom: str) -> Element:
    return element("line", {"x1": x, "x2": x, "y1": top, "y2": bottom})
