"""What the partitioner ``collage`` decided in a build, for people and as data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..lowering.graph_queries import has_loops
from ..partition import Decision, plan_record
from ..pipeline.stages import Build

__all__ = [
    "PART_HEAD",
    "PLACEMENT_HEAD",
    "clock_rows",
    "decision_of",
    "decision_record",
    "part_rows",
    "placement_rows",
    "rival_rows",
]


PART_HEAD = ("target", "part", "us", "by", "runner-up", "us more")
PLACEMENT_HEAD = ("placement", "us", "compute", "launches", "copies")
"""The heads of the columns that `part_rows` and `placement_rows` give."""


def decision_of(build: Build) -> Decision | None:
    """What was decided; None where somebody else decides, or nothing was yet."""
    placement = build.placement
    if placement is None or has_loops(placement.source):
        return None
    return placement.decision


def decision_record(build: Build) -> dict[str, Any] | None:
    """The decision of a build as plain data, which is a plan to repeat; None where there is none."""
    decision = decision_of(build)
    return None if decision is None else plan_record(decision, build.members.texts, build.members.versions)


def part_rows(plan: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Of each part of a plan: target, layers or ops, microseconds, who says so, and the runner-up and what it costs
    more."""
    rows: list[tuple[str, ...]] = []
    for part in plan["parts"]:
        other = part["runner_up"]
        names = "-" if other is None else " | ".join(_short(name) for name in other["parts"])
        more = "-" if other is None else _us(other["more_ns"])
        ns = part["ns"] + part["launch_ns"]
        rows.append(
            (part["target"], _short(", ".join(part["layers"]) or part["name"]), _us(ns), part["source"], names, more)
        )
    return rows


_TIMES = {
    "machine": "timed on this machine",
    "emulator": "cycles, estimated from the instructions that its emulator counts",
    "simulator": "cycles of its simulator",
    "plugin": "estimated by its plugin",
    "table": "from the table of costs",
}
"""How times are known, by the source of a `Clock`."""


def clock_rows(plan: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Return the source of the times of each target, and its clock in MHz where these are cycles."""
    rows: list[tuple[str, ...]] = []
    for clock in plan["clocks"]:
        times = _TIMES[clock["source"]]
        if clock["factor"] != 1:
            times += f", times {clock['factor']:g}"
        rows.append((clock["target"], times, "-" if clock["hz"] is None else f"{clock['hz'] / 1e6:g}"))
    return rows


def placement_rows(plan: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """What placements cost, in microseconds, and what of it is computing, launches and copies: the plan, eager's in
    every order, and the host alone."""
    rows: list[tuple[str, ...]] = [("the plan", _us(plan["cost_ns"]), *_split(plan))]
    if plan["bound_ns"] != plan["cost_ns"]:
        rows.append(("none is below", _us(plan["bound_ns"]), "", "", ""))
    rows += [
        (f"eager, {' before '.join(one['order'])}", _us(one["ns"]), *_split(one))
        for one in plan["eager_ns"]
        if one["order"]
    ]
    if plan["host_ns"] is not None:
        rows.append(("the host alone", _us(plan["host_ns"]), *_split(plan["host_split"])))
    return rows


def rival_rows(plan: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """For each region of a plan the best larger one and the best smaller one of its target: what the plan with it takes
    more, in microseconds, and by what; less where there is a minus."""
    rows: list[tuple[str, ...]] = []
    for part in plan["parts"]:
        for side in ("larger", "smaller"):
            if (other := part[side]) is not None:
                ops = _short(other["name"].partition(": ")[2])
                named = _short(", ".join(part["layers"]) or part["name"], 40)
                rows.append((part["target"], named, side, ops, _us(other["more_ns"]), *_split(other)))
    return rows


def _split(record: Mapping[str, Any]) -> tuple[str, str, str]:
    return _us(record["compute_ns"]), _us(record["launch_ns"]), _us(record["copies_ns"])


def _us(ns: int) -> str:
    return f"{ns / 1e3:.2f}"


def _short(text: str, most: int = 60) -> str:
    return text if len(text) <= most else f"{text[: most - 3]}..."
