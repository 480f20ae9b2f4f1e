"""How often the steps of a run are run, where branches and loops are among them, and what these take in all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from .record import CallRecord

if TYPE_CHECKING:
    from .profile import CallTime

__all__ = ["ControlFlowTime", "chains_of", "control_times", "count_runs", "has_control_flow", "in_chain", "is_nested"]


_ROWS = ("rows", "rows_end")


@dataclass(frozen=True)
class ControlFlowTime:
    """What the branches, or the loops, of the same layers take in one run.

    Args:
        way: which of the two they are.
        layers: the model's.
        entered: how often a run comes to them.
        times: turns of the loops in all; or how often the condition of the branches holds.
        median_ns: of all steps within them, in all turns, those that decide included; without simulated devices.
    """

    way: Literal["branch", "loop"]
    layers: tuple[str, ...]
    entered: int
    times: int
    median_ns: float

    json_fields: ClassVar = ("way", "layers", "entered", "times", "median_us")

    @property
    def median_us(self) -> float:
        """`median_ns` in microseconds."""
        return self.median_ns / 1e3


def has_control_flow(calls: Sequence[CallRecord]) -> bool:
    """Whether branches or loops are among the calls."""
    return any(call.way is not None and call.way not in _ROWS for call in calls)


def chains_of(calls: Sequence[CallRecord]) -> list[int | None]:
    """For each call which chain of layers it is in that run row by row, from 0; None where it is in none. Where a chain
    begins and ends is of it too."""
    chains: list[int | None] = []
    count = 0
    inside = False
    for call in calls:
        inside = inside or call.way == "rows"
        chains.append(count if inside else None)
        if call.way == "rows_end":
            count, inside = count + 1, False
    return chains


def in_chain(name: str, call: CallRecord, chain: int | None) -> str:
    """What a call is called, with the chain that it is in.

    Args:
        name: without.
        call: itself.
        chain: from `chains_of`.
    """
    if chain is None:
        return name
    edge = {"rows": "begins", "rows_end": "ends"}.get(call.way or "")
    return f"{name} (chain {chain})" if edge is None else f"chain {chain} {edge}"


def is_nested(calls: Sequence[CallRecord]) -> bool:
    """Whether branches, loops and rows begin and end as they should."""
    open_: list[str] = []
    for call in calls:
        if call.way in ("branch", "loop", "rows"):
            open_.append(call.way)
        elif call.way is not None and (call.way == "rows_end") != (open_[-1:] == ["rows"]):
            return False
        elif call.way is not None:
            if not open_ or (call.way == "otherwise" and open_[-1] != "branch"):
                return False
            open_.pop()
            if call.way == "otherwise":
                open_.append(call.way)
    return not open_


def count_runs(calls: Sequence[CallRecord], counted: Sequence[int]) -> list[int]:
    """How often each call is run in one run: of a loop its turns; of a branch how often its condition holds, and of
    what is for the other case how often it does not.

    Args:
        calls: well nested ones.
        counted: how often the step went on to the one behind it. Not said of what ends, nor of what is for the other
            case of a branch.
    """
    times: list[int] = []
    runs = [1]
    for call, count in zip(calls, counted, strict=True):
        if call.way in ("branch", "loop"):
            runs.append(count)
        elif call.way == "otherwise":
            runs[-1] = runs[-2] - runs[-1]
        elif call.way == "end":
            runs.pop()
        times.append(count if call.way is None else runs[-1])
    return times


def control_times(calls: Sequence[CallRecord], measured: Sequence[CallTime]) -> tuple[ControlFlowTime, ...]:
    """What branches and loops take in all, in the order in which the first of their layers begin.

    Args:
        calls: well nested ones.
        measured: of each of them.
    """
    by_way: dict[tuple[Literal["branch", "loop"], tuple[str, ...]], list[tuple[int, int, float]]] = {}
    open_: list[tuple[Literal["branch", "loop"], int, int]] = []
    runs = [1]
    spent_ns = [0.0]
    for position, (call, time) in enumerate(zip(calls, measured, strict=True)):
        if call.way in ("branch", "loop"):
            way: Literal["branch", "loop"] = "loop" if call.way == "loop" else "branch"
            open_.append((way, position, runs[-1]))
            by_way.setdefault((way, call.layers), [])
            spent_ns.append(0.0)
        spent_ns[-1] += 0.0 if time.is_simulated else time.median_ns
        if call.way == "end":
            way, begin, entered = open_.pop()
            runs.pop()
            took_ns = spent_ns.pop()
            spent_ns[-1] += took_ns
            is_counted = any((outer, calls[at].layers) == (way, call.layers) for outer, at, _ in open_)
            by_way[way, call.layers].append((entered, measured[begin].times, 0.0 if is_counted else took_ns))
        elif call.way == "otherwise":
            runs[-1] = time.times
        elif call.way is not None and call.way not in _ROWS:
            runs.append(time.times)
    summaries = []
    for (way, layers), rows in by_way.items():
        entered, times = sum(row[0] for row in rows), sum(row[1] for row in rows)
        summaries.append(ControlFlowTime(way, layers, entered, times, sum(row[2] for row in rows)))
    return tuple(summaries)
