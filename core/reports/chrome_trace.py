"""A run as tracks of a trace viewer: JSON of Chrome's Trace Event Format, which Perfetto opens."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ..artifact.execution_counts import chains_of, in_chain

if TYPE_CHECKING:
    from ..artifact import ArtifactRecord, CallRecord, CallTime, Profile

__all__ = ["trace"]

_HOSTS, _QUEUES, _DEVICES = 1, 2, 3
"""Processes: what hosts do, what is under way on queues, and from there on one for each device."""


def trace(record: ArtifactRecord, profile: Profile) -> dict[str, Any]:
    """One run, call after call, each as long as the median of those that were measured.

    Hosts are tracks of one process, in microseconds; a wait is among the calls of the host that waits. Layers that run
    row by row take turns: each is shown at once, for as long as its rows take in all. What is started
    on a queue is under way from then to the end of the wait for it: when in between a device works on it is not known.
    A device that counts cycles is a process of its own, whose time is these cycles, one for each microsecond that the
    viewer shows: its calls one behind the other, and under them their parts, where its plugin tells these.

    Args:
        record: of the artifact.
        profile: of its calls.

    Returns:
        What the file holds, as plain data.
    """
    return {
        "displayTimeUnit": "ns",
        "otherData": {"model": record.name, "targets": list(record.targets)},
        "traceEvents": [*_of_hosts(record, profile), *_of_devices(record, profile)],
    }


def _of_hosts(record: ArtifactRecord, profile: Profile) -> Iterator[dict[str, Any]]:
    hosts = list(dict.fromkeys(call.host for call in record.calls))
    queues = list(dict.fromkeys((call.device or "", call.queue) for call in record.calls if call.queue is not None))
    yield _named("process_name", _HOSTS, 0, "hosts")
    yield from (_named("thread_name", _HOSTS, number, label) for number, label in enumerate(hosts))
    if queues:
        yield _named("process_name", _QUEUES, 0, "queues")
    starts_us, now_us = [], 0.0
    for time in profile.calls:
        starts_us.append(now_us)
        now_us += time.median_ns / 1e3
    chains = chains_of(record.calls)
    for position, (call, time) in enumerate(zip(record.calls, profile.calls, strict=True)):
        waits = call.kernel == f"wait_{call.queue}" and not call.arguments
        name = f"wait for {call.queue}" if waits else in_chain(_label(time), call, chains[position])
        common = {"ph": "X", "pid": _HOSTS, "tid": hosts.index(call.host), "cat": "wait" if waits else "call"}
        length_us = time.median_ns / 1e3
        arguments = _arguments(call, time, chains[position])
        yield {"name": name, **common, "ts": starts_us[position], "dur": length_us, "args": arguments}
        if call.queue is None or waits:
            continue
        last = call.finished_step
        on = {"pid": _QUEUES, "tid": 0, "cat": f"{call.device}.{call.queue}", "id": position, "name": name}
        yield {"ph": "b", "ts": starts_us[position], **on, "args": {"queue": call.queue, "device": call.device}}
        yield {"ph": "e", "ts": starts_us[last] + profile.calls[last].median_ns / 1e3, **on}


def _of_devices(record: ArtifactRecord, profile: Profile) -> Iterator[dict[str, Any]]:
    for number, (label, clock) in enumerate(profile.clocks.items()):
        pid, now = _DEVICES + number, 0
        yield _named("process_name", pid, 0, f"{label}: cycles at {clock.hz:g} Hz, as microseconds")
        for time in profile.calls:
            cycles = time.counted.get(clock.cycles, 0) if time.device == label else 0
            if not cycles:
                continue
            common = {"ph": "X", "pid": pid, "tid": 0, "cat": "device"}
            yield {"name": _label(time), **common, "ts": now, "dur": cycles, "args": dict(time.counted)}
            part_begin = now
            for part in time.parts:
                length = part.counted.get(clock.cycles, 0)
                if 0 < length <= now + cycles - part_begin:
                    shown = {**common, "cat": "part", "ts": part_begin, "dur": length}
                    yield {"name": part.layer, **shown, "args": dict(part.counted)}
                    part_begin += length
            now += cycles


def _named(kind: str, pid: int, tid: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": pid, "tid": tid, "args": {"name": name}}


def _label(time: CallTime) -> str:
    if not time.layers:
        return time.kernel
    more = f" and {len(time.layers) - 1} more" if len(time.layers) > 1 else ""
    return f"{time.layers[0]}{more}"


def _arguments(call: CallRecord, time: CallTime, chain: int | None) -> dict[str, Any]:
    return {
        "kernel": call.kernel,
        "layers": list(call.layers),
        "device": call.device,
        "op": call.op,
        "macs": call.macs,
        "bytes": time.nbytes,
        "simulator": time.is_simulated,
        "times": time.times,
        "chain": chain,
    }
