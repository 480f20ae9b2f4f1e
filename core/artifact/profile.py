"""What is known of a run afterwards: how long its calls took, for how much work, and what the devices counted."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from ..contract.drivers import Clock
from ..errors import ModelError
from ..runtime.peaks import Peaks
from .execution_counts import ControlFlowTime
from .record import ArtifactRecord

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from ..runtime.devices import DeviceInfo
    from ..runtime.native import NativeModel

__all__ = ["CallTime", "PartCounts", "Profile", "RunCounts", "Ticks", "TicksSince", "call_times", "clocks_of"]

_LEAST_COUNTED_S = 0.02
"""In so long a time a counter is compared with the system's clock to a part in ten thousand."""

_READINGS = 8


@dataclass(frozen=True)
class PartCounts:
    """What a device counted of one part of a call.

    Args:
        layer: the model's layer that it computes.
        counted: name of the counter -> value, in one run.
    """

    layer: str
    counted: Mapping[str, int]


@dataclass(frozen=True)
class CallTime:
    """How long one call of a run takes, and for what.

    Args:
        kernel: the kernel's name.
        layers: the model's layers that it computes.
        median_ns: over all runs that were measured, in nanoseconds.
        host: label of the host that runs it, or drives the device.
        device: label of the device that it drives; None for the host alone.
        counted: what that device counted from the call before to the end of this one, in one run: name of the counter
            -> value.
        parts: what it counted of the parts of this call, where its plugin tells these apart.
        op: what most of its work is; None for a wait, a copy, and where only loops are known.
        macs: multiply-accumulates of the model that it computes; None where only loops are known.
        nbytes: of the buffers that it is given, workspaces included: what it reads and writes at least.
        constant_bytes: of the constants among these.
        is_simulated: a simulator stands in for the device, and the time is that of the simulator on this machine.
        times: how often it is run in one run, which all else is of: of a loop its turns, of a branch how often its
            condition holds, of what is for the other case how often it does not. Of several runs the median.
        instructions: of the machine that the model is compiled for, counted in its emulator; None where they were not,
            as for a model that runs on this machine, and for a simulator.
        cycles: roughly, of these instructions (`runtime.mnemonics`). Then the time is this at the host's ``clock_hz``.
        stack_bytes: what the kernel takes of that machine's stack, with what it calls, as the compiler tells it; None
            where it does not, or made the kernel a part of the run.
    """

    kernel: str
    layers: tuple[str, ...]
    median_ns: float
    host: str
    device: str | None = None
    counted: Mapping[str, int] = field(default_factory=dict)
    parts: tuple[PartCounts, ...] = ()
    op: str | None = None
    macs: int | None = None
    nbytes: int = 0
    constant_bytes: int = 0
    is_simulated: bool = False
    times: int = 1
    instructions: int | None = None
    cycles: int | None = None
    stack_bytes: int | None = None

    @property
    def gops(self) -> float | None:
        """1e9 operations per second, two for each multiply-accumulate; None where there are none, or no time of its
        own is known."""
        if not self.macs or not self.median_ns or self.is_simulated:
            return None
        return 2 * self.macs * self.times / self.median_ns

    def peak_gops(self, peaks: Peaks) -> float | None:
        """The peak that counts for it: that of bytes for the ops on quantised numbers, else that of floats."""
        return peaks.int8_gops if self.op is not None and self.op.startswith("qnn.") else peaks.float32_gops


@dataclass(frozen=True)
class Ticks:
    """By what a profile was timed.

    Args:
        what: the counter, in words.
        hz: its ticks in a second; where it does not know that itself, as they were counted beside the system's clock.
        cost_ns: how long one reading takes at least. The time of every call has one in it.
    """

    what: str
    hz: float
    cost_ns: float


class TicksSince:
    """What the counter of a model's profile counts from now on.

    Args:
        model: from the library that measures.
    """

    def __init__(self, model: NativeModel) -> None:
        self._model = model
        self._first = self._read()

    def ticks(self) -> Ticks:
        """How fast it counts, waiting until that can be told.

        Raises:
            ModelError: it does not count.
        """
        time.sleep(max(0.0, (self._first[0] - time.perf_counter_ns()) / 1e9 + _LEAST_COUNTED_S))
        (first_ns, (_, first, _, _)), (now_ns, (clock, now, hz, cost)) = self._first, self._read()
        rate = hz or (now - first) * 1e9 / (now_ns - first_ns)
        if rate <= 0:
            raise ModelError(f"what the profile is timed by does not count: {clock}", where=self._model.name)
        return Ticks(clock, rate, cost / rate * 1e9)

    def _read(self) -> tuple[int, tuple[str, int, int | None, int]]:
        """The system's clock, and what the counter says: of some readings the shortest, which nothing came between."""
        readings = []
        for _ in range(_READINGS):
            begin_ns = time.perf_counter_ns()
            said = self._model.tick_counter()
            readings.append((time.perf_counter_ns() - begin_ns, begin_ns, said))
        _, begin_ns, said = min(readings)
        return begin_ns, said


@dataclass(frozen=True)
class RunCounts:
    """The instructions of one run in an emulator, from the call of the model to its return, without calls of devices
    that simulators stand in for.

    Args:
        runner: the emulator.
        instructions: how many; those of the calls, and of the way into the run, between them and out of it.
        cycles: roughly, by the table of `runtime.mnemonics`.
        clock_hz: of the host, as its target says: by it cycles are seconds.
        functions: instructions by the function of C, the most first.
        mnemonics: the same by what they are; ``?`` and bytes for what the emulator has no name for.
        stack_bytes: of the stack, what the run took, where the emulated machine has no operating system; else None.
    """

    runner: str
    instructions: int
    cycles: int
    clock_hz: float
    functions: Mapping[str, int]
    mnemonics: Mapping[str, int]
    stack_bytes: int | None

    json_fields: ClassVar = ("...", "seconds")

    @property
    def seconds(self) -> float:
        """Roughly, what the run takes on the machine."""
        return self.cycles / self.clock_hz


@dataclass(frozen=True)
class Profile:
    """What `Artifact.profile` found.

    Args:
        calls: in the order in which they run.
        outputs: of the runs, as `Artifact.run` gives them.
        counters: what each device counted in one run: its label -> name of the counter -> value.
        clocks: what the cycles of devices are in time, by label, where their plugins say so.
        ticks: by what the calls were timed; None where that is not known.
        ways: the branches and loops, and what they take in all.
        counts: of a model in an emulator, the instructions of the whole run.
        uncounted: of such a model, why they were not counted; else None. Then its calls have no times either.
    """

    calls: tuple[CallTime, ...]
    outputs: Mapping[str, npt.NDArray[np.generic]]
    counters: Mapping[str, Mapping[str, int]]
    clocks: Mapping[str, Clock] = field(default_factory=dict)
    ticks: Ticks | None = None
    ways: tuple[ControlFlowTime, ...] = ()
    counts: RunCounts | None = None
    uncounted: str | None = None

    @property
    def is_emulated(self) -> bool:
        """Whether it is of a model in an emulator, so that no time was measured."""
        return self.counts is not None or self.uncounted is not None

    @property
    def instructions(self) -> int | None:
        """Of the whole run, by the machine that the model is compiled for; None where they were not counted."""
        return None if self.counts is None else self.counts.instructions

    def _repr_html_(self) -> str:
        from .notebook import profile_html

        return profile_html(self)


def clocks_of(record: ArtifactRecord) -> dict[str, Clock]:
    """What the cycles of devices are in time, by label, where their plugins say so."""
    rows = ((row.label, row.clock) for row in record.devices)
    return {label: Clock(clock.hz, clock.cycles, clock.busy) for label, clock in rows if clock is not None}


def call_times(
    record: ArtifactRecord,
    medians_ns: Sequence[float],
    counts: Sequence[int] | None,
    devices: Mapping[str, DeviceInfo],
    times: Sequence[int] = (),
) -> tuple[CallTime, ...]:
    """The calls of a run with what was measured of them.

    Args:
        record: of the artifact.
        medians_ns: of each call.
        counts: for each call of a device its counters, those of parts behind the others: see `NativeModel.step_counts`;
            None where that is known of whole runs only.
        devices: by label.
        times: how often each call is run in a run; by default once.
    """
    call_rows, first = [], 0
    sizes = {buffer.name: buffer.bytes for buffer in record.buffers}
    simulated = {device.label for device in record.devices if device.simulated}
    for call, ns, often in zip(record.calls, medians_ns, times or [1] * len(record.calls), strict=True):
        counted: Mapping[str, int] = {}
        parts: tuple[PartCounts, ...] = ()
        if call.device is not None and counts is not None:
            info = devices[call.device]
            behind = first + info.n_counters
            counted, parts = _named(info, call.parts, counts[first:behind])
            first = behind
        nbytes = sum(sizes[name] for name in set(call.arguments))
        work = (call.op, call.macs, nbytes, call.constant_bytes)
        is_simulated = call.device in simulated
        where = (call.host, call.device, counted, parts)
        call_rows.append(CallTime(call.kernel, call.layers, ns, *where, *work, is_simulated, often))
    return tuple(call_rows)


def _named(
    info: DeviceInfo, layers: Sequence[str], counts: Sequence[int]
) -> tuple[Mapping[str, int], tuple[PartCounts, ...]]:
    """What the counters of a device say of one call, and of its parts, which are those layers."""
    first = len(info.counters)
    counted = dict(zip(info.counters, counts[:first], strict=True))
    if info.parts is None:
        return counted, ()
    parts = []
    # A network may have fewer layers than the device counts, a stream more marks.
    for layer in layers[: info.parts.count]:
        values = counts[first : first + len(info.parts.counters)]
        parts.append(PartCounts(layer, dict(zip(info.parts.counters, values, strict=True))))
        first += len(values)
    return counted, tuple(parts)
