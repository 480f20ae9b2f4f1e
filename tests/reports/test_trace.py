"""A profile as tracks of a trace viewer."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from tests._support import fake_device as fake
from tests._support.program_artifact import metadata_of

from uma.artifact import ArtifactRecord, CallTime, PartCounts, Profile
from uma.contract.drivers import Clock
from uma.reports.chrome_trace import trace
from uma.support import json_record

_, METADATA = metadata_of(fake.chain("a", "a", "a"), fake.devices(a=fake.runtime()))
PLAIN: ArtifactRecord = json_record.from_json(ArtifactRecord, {**METADATA, "files": {}})
LAUNCH, HOST, _ = PLAIN.calls
WAIT = replace(LAUNCH, kernel="wait_q", arguments=(), op=None, shape=None, macs=0)
RECORD = replace(
    PLAIN,
    calls=(
        replace(LAUNCH, layers=("x", "y"), queue="q", finished_step=2),
        replace(HOST, device=None, finished_step=1),
        replace(WAIT, layers=("x", "y"), queue="q", finished_step=2),
    ),
)
"""What is started first is under way until the end of the wait."""


def time(number: int, median_ns: float, cycles: int = 0, *parts: tuple[str, int]) -> CallTime:
    call = RECORD.calls[number]
    counted = {"operations": cycles} if cycles else {}
    found = tuple(PartCounts(layer, {"operations": count}) for layer, count in parts)
    return CallTime(call.kernel, call.layers, median_ns, call.host, call.device, counted, found)


def events(*times: CallTime, clock: Clock | None = None, phases: str = "Xbe") -> list[dict[str, Any]]:
    profile = Profile(times, {}, {}, {} if clock is None else {"a": clock})
    made = trace(RECORD, profile)
    assert json.loads(json.dumps(made, allow_nan=False)) == made
    return [event for event in made["traceEvents"] if event["ph"] in phases]


TIMES = time(0, 1_000.0, 40, ("x", 30), ("y", 10)), time(1, 3_000.0), time(2, 500.0, 7)


def test_calls_of_a_host_are_one_behind_the_other() -> None:
    found = [event for event in events(*TIMES) if event["ph"] == "X"]
    rows = [(event["name"], event["cat"], event["ts"], event["dur"]) for event in found]
    assert rows == [("x and 1 more", "call", 0, 1), (HOST.layers[0], "call", 1, 3), ("wait for q", "wait", 4, 0.5)]
    assert [event["args"]["device"] for event in found] == ["a", None, "a"]


def test_what_is_on_a_queue_is_under_way_until_the_end_of_its_wait() -> None:
    begin, end = (event for event in events(*TIMES) if event["ph"] in "be")
    assert (begin["ts"], end["ts"]) == (0, 4.5)
    assert begin["id"] == end["id"] and begin["cat"] == end["cat"] == "a.q" and begin["name"] == "x and 1 more"


def test_a_device_has_its_own_cycles() -> None:
    found = [event for event in events(*TIMES, clock=Clock(2e3, "operations", None)) if event["pid"] == 3]
    rows = [(event["name"], event["ts"], event["dur"]) for event in found]
    assert rows == [("x and 1 more", 0, 40), ("x", 0, 30), ("y", 30, 10), ("x and 1 more", 40, 7)]


def test_parts_beyond_the_cycles_of_their_call_are_left_out() -> None:
    times = (time(0, 1_000.0, 40, ("x", 30), ("y", 11)), *TIMES[1:])
    found = [event for event in events(*times, clock=Clock(2e3, "operations", None)) if event["cat"] == "part"]
    assert [event["name"] for event in found] == ["x"]


def test_tracks_have_names() -> None:
    found = events(*TIMES, clock=Clock(2e3, "operations", None), phases="M")
    names = [event["args"]["name"] for event in found]
    assert names == ["hosts", "c", "queues", "a: cycles at 2000 Hz, as microseconds"]
