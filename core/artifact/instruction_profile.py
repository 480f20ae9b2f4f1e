"""The profile of a model in an emulator: instructions of each call, and what they are in time, roughly."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING

from .execution_counts import control_times, count_runs, has_control_flow
from .profile import CallTime, Profile, RunCounts, call_times, clocks_of
from .record import ArtifactRecord

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from ..runtime.emulator import EmulatedSession
    from ..runtime.instruction_counting import Counts

__all__ = ["counted_profile"]


def counted_profile(
    record: ArtifactRecord,
    session: EmulatedSession,
    outputs: Mapping[str, npt.NDArray[np.generic]],
    stacks: Mapping[str, int],
) -> Profile:
    """What a session counted in its last run.

    Args:
        record: of the artifact.
        session: of the model with marks.
        outputs: of the run.
        stacks: what kernels take of the stack, by name, in bytes.
    """
    devices = {info.label: info for info in session.model.devices}
    counters, clocks = session.counters(), clocks_of(record)
    counts = session.counts
    times: list[int] = []
    if counts is not None and counts.steps and has_control_flow(record.calls):
        passed = [counts.steps[at].times if at in counts.steps else 0 for at in range(len(record.calls))]
        times = count_runs(record.calls, passed)
    plain = call_times(record, [0.0] * len(record.calls), None, devices, times)
    bare = tuple(dataclasses.replace(call, stack_bytes=stacks.get(call.kernel)) for call in plain)
    if counts is None:
        return Profile(bare, outputs, counters, clocks, uncounted=session.uncounted)
    clock_hz = record.compile.hosts[0].clock_hz or 1.0
    calls = [_counted(call, counts, number, clock_hz) for number, call in enumerate(bare)]
    simulated = [counts.steps[at] for at, call in enumerate(bare) if call.is_simulated and at in counts.steps]
    whole = counts.whole
    ours = RunCounts(
        session.model.runner.name,
        whole.instructions - sum(one.instructions for one in simulated),
        whole.cycles - sum(one.cycles for one in simulated),
        clock_hz,
        _less(whole.functions, [one.functions for one in simulated]),
        _less(whole.mnemonics, [one.mnemonics for one in simulated]),
        session.stack_bytes,
    )
    ways = control_times(record.calls, calls) if counts.steps else ()
    return Profile(tuple(calls), outputs, counters, clocks, ways=ways, counts=ours)


def _counted(call: CallTime, counts: Counts, number: int, clock_hz: float) -> CallTime:
    if call.is_simulated or not counts.steps:
        return call
    if number not in counts.steps:  # a side of a branch that was not taken
        return dataclasses.replace(call, instructions=0, cycles=0)
    step = counts.steps[number]
    return dataclasses.replace(
        call, instructions=step.instructions, cycles=step.cycles, median_ns=step.cycles / clock_hz * 1e9
    )


def _less(whole: Mapping[str, int], others: list[Mapping[str, int]]) -> dict[str, int]:
    rest = {name: count - sum(one.get(name, 0) for one in others) for name, count in whole.items()}
    return {name: count for name, count in rest.items() if count}
