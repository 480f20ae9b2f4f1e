"""What is known of a run afterwards: how long its calls took, and what the devices counted in each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..contract.drivers import Clock
from .record import CallRecord

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from ..runtime.devices import DeviceInfo

__all__ = ["CallTime", "PartCounts", "Profile", "call_times"]


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
    """How long one call of a run takes.

    Args:
        kernel: the kernel's name.
        layers: the model's layers that it computes.
        median_ns: over all runs that were measured, in nanoseconds.
        host: label of the host that runs it, or drives the device.
        device: label of the device that it drives; None for the host alone.
        counted: what that device counted from the call before to the end of this one, in one run: name of the counter
            -> value.
        parts: what it counted of the parts of this call, where its plugin tells these apart.
    """

    kernel: str
    layers: tuple[str, ...]
    median_ns: float
    host: str
    device: str | None = None
    counted: Mapping[str, int] = field(default_factory=dict)
    parts: tuple[PartCounts, ...] = ()


@dataclass(frozen=True)
class Profile:
    """What `Artifact.profile` found.

    Args:
        calls: in the order in which they run.
        outputs: of the runs, as `Artifact.run` gives them.
        counters: what each device counted in one run: its label -> name of the counter -> value.
        clocks: what the cycles of devices are in time, by label, where their plugins say so.
    """

    calls: tuple[CallTime, ...]
    outputs: Mapping[str, npt.NDArray[np.generic]]
    counters: Mapping[str, Mapping[str, int]]
    clocks: Mapping[str, Clock] = field(default_factory=dict)


def call_times(
    calls: Sequence[CallRecord],
    medians_ns: Sequence[float],
    counts: Sequence[int],
    devices: Mapping[str, DeviceInfo],
) -> tuple[CallTime, ...]:
    """The calls of a run with what was measured of them.

    Args:
        calls: as the record of an artifact has them.
        medians_ns: of each call.
        counts: for each call of a device its counters, those of parts behind the others: see `NativeModel.step_counts`.
        devices: by label.
    """
    made, first = [], 0
    for call, ns in zip(calls, medians_ns, strict=True):
        counted: Mapping[str, int] = {}
        parts: tuple[PartCounts, ...] = ()
        if call.device is not None:
            info = devices[call.device]
            behind = first + info.n_counters
            counted, parts = _named(info, call.parts, counts[first:behind])
            first = behind
        made.append(CallTime(call.kernel, call.layers, ns, call.host, call.device, counted, parts))
    return tuple(made)


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
