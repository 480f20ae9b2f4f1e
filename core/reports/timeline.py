"""When what of a plan runs where, for people: lines for a terminal, and a picture."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from xml.etree.ElementTree import Element, tostring

from ..support.html import element
from ..targets.values import shorten

__all__ = ["lanes_of", "timeline_lines", "timeline_svg"]

_COLUMNS = 60
_COPIES = " copies"
_WIDE_PX, _LABEL_PX, _LANE_PX, _HEAD_PX = 1000, 180, 24, 34
_COLOURS = ("#3b6ea5", "#c05f2e", "#4a8f5b", "#8a5a9e", "#a88a1f", "#3f8f95", "#a54a63", "#5f6b78")
_COPY_COLOUR = "#b9bec4"
_STYLE = (
    "text{font:13px sans-serif;fill:#222}.n{fill:#666}rect{stroke:#fff;stroke-width:.5}.b{fill:#fff}.l{fill:#f1f2f4}"
)


def lanes_of(plan: Mapping[str, Any]) -> list[tuple[str, list[Mapping[str, Any]]]]:
    """The timelines that a plan has, each with what it is of: its own, and eager's in the order of the targets."""
    timelines = [("the plan", plan["timeline"])]
    if plan["eager_timeline"]:
        timelines.append((f"eager, {' before '.join(plan['eager_ns'][0]['order'])}", plan["eager_timeline"]))
    return timelines


def timeline_lines(plan: Mapping[str, Any]) -> Iterator[str]:
    """A line for each queue of each timeline, in which ``#`` is where it is busy; all on one scale."""
    timelines = lanes_of(plan)
    end = max([1, *(_end(steps) for _, steps in timelines)])
    width = max(len(queue) for _, steps in timelines for queue in _queues(steps) or [""])
    for title, steps in timelines:
        yield f"{title}, 0 to {_end(steps) / 1e3:.2f} us:"
        for queue in _queues(steps):
            busy = {
                column
                for step in steps
                if step["queue"] == queue and step["duration_ns"]
                for column in range(
                    step["start_ns"] * _COLUMNS // end,
                    (step["start_ns"] + step["duration_ns"] - 1) * _COLUMNS // end + 1,
                )
            }
            bar = "".join("#" if column in busy else "." for column in range(_COLUMNS))
            yield f"  {queue.ljust(width)}  {bar}"


def timeline_svg(plan: Mapping[str, Any], name: str) -> str:
    """The picture: a lane for each queue, the plan above and eager's placement below it, on one scale; what a box is
    stands in its title.

    Args:
        plan: as `uma.partition.plan_record` gives it.
        name: of the model.
    """
    timelines = lanes_of(plan)
    end = max([1, *(_end(steps) for _, steps in timelines)])
    labels = list(dict.fromkeys(queue.removesuffix(_COPIES) for _, steps in timelines for queue in _queues(steps)))
    drawn: list[Element] = []
    top = 8
    for plan_name, steps in timelines:
        title = f"{name}: {plan_name}, {_end(steps) / 1e3:,.2f} us"
        drawn.append(element("text", {"x": "8", "y": str(top + 18)}, title))
        top += _HEAD_PX
        for queue in _queues(steps):
            drawn.extend(_lane(queue, [step for step in steps if step["queue"] == queue], top, end, labels))
            top += _LANE_PX
    size = {"viewBox": f"0 0 {_WIDE_PX} {top + 8}", "width": str(_WIDE_PX), "height": str(top + 8)}
    back = element("rect", {"class": "b", "width": "100%", "height": "100%"})
    root = element("svg", {"xmlns": "http://www.w3.org/2000/svg", **size}, element("style", None, _STYLE), back, *drawn)
    return tostring(root, encoding="unicode") + "\n"


def _lane(
    queue: str, steps: Sequence[Mapping[str, Any]], top: int, end: int, labels: Sequence[str]
) -> Iterator[Element]:
    colour = _COLOURS[labels.index(queue.removesuffix(_COPIES)) % len(_COLOURS)]
    wide = _WIDE_PX - _LABEL_PX - 8
    yield element("text", {"class": "n", "x": "16", "y": str(top + 16)}, shorten(queue, 24))
    yield _box(_LABEL_PX, top, wide, {"class": "l"})
    for step in steps:
        start, width = step["start_ns"] * wide / end, step["duration_ns"] * wide / end
        text = f"{step['name']}: {step['duration_ns'] / 1e3:,.2f} us from {step['start_ns'] / 1e3:,.2f} us on"
        fill = {"fill": _COPY_COLOUR if queue.endswith(_COPIES) else colour}
        yield _box(_LABEL_PX + start, top, width, fill, element("title", None, shorten(text, 400)))


def _box(start: float, top: int, width: float, attributes: Mapping[str, str], *children: Element) -> Element:
    place = {"x": f"{start:.2f}", "y": str(top + 2), "width": f"{width:.2f}", "height": str(_LANE_PX - 4)}
    return element("rect", {**attributes, **place}, *children)


def _end(steps: Sequence[Mapping[str, Any]]) -> int:
    return max((step["start_ns"] + step["duration_ns"] for step in steps), default=0)


def _queues(steps: Sequence[Mapping[str, Any]]) -> list[str]:
    """In the order in which they are first busy."""
    return list(dict.fromkeys(step["queue"] for step in steps))
