"""How often the steps of branches and loops are run, and what they take in all."""

from __future__ import annotations

import pytest

from uma.artifact.execution_counts import (
    ControlFlowTime,
    control_times,
    count_runs,
    has_control_flow,
    is_nested,
)
from uma.artifact.profile import CallTime
from uma.artifact.record import CallRecord


def call(way: str | None = None, layer: str = "") -> CallRecord:
    layers = (layer,) if layer else ()
    return CallRecord(way or "k", layers, "c", None, (), (), None, None, 0, 0, None, 0, way)


CALLS = (
    call(),
    call("loop", "turns"),
    call("branch", "choice"),
    call(),
    call("otherwise", "choice"),
    call("branch", "choice"),
    call(),
    call("end", "choice"),
    call("end", "choice"),
    call("end", "turns"),
    call(),
)
"""A branch within a branch of the same layer, in a loop."""

COUNTED = (1, 7, 3, 3, 0, 1, 1, 0, 0, 0, 1)


def test_what_is_not_counted_follows() -> None:
    assert count_runs(CALLS, COUNTED) == [1, 7, 3, 3, 4, 1, 1, 4, 7, 1, 1]
    assert has_control_flow(CALLS) and not has_control_flow(CALLS[:1])


def test_branches_of_one_layer_are_added_up() -> None:
    times = [
        CallTime("k", (), 10.0 * (number + 1), "c", times=often, is_simulated=number == 3)
        for number, often in enumerate(count_runs(CALLS, COUNTED))
    ]
    found = control_times(CALLS, times)
    inner = 60.0 + 70.0 + 80.0
    outer = 30.0 + 50.0 + inner + 90.0
    assert found == (
        ControlFlowTime("loop", ("turns",), 1, 7, 20.0 + outer + 100.0),
        ControlFlowTime("branch", ("choice",), 7 + 4, 3 + 1, outer),
    )


@pytest.mark.parametrize(
    "ways",
    [
        ("end",),
        ("otherwise", "end"),
        ("loop",),
        ("loop", "otherwise", "end"),
        ("branch", "otherwise", "otherwise", "end"),
    ],
)
def test_what_is_not_nested(ways: tuple[str, ...]) -> None:
    assert is_nested(CALLS) and is_nested(())
    assert not is_nested([call(way) for way in ways])
