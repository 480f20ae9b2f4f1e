"""Workers: none of what they are asked for is lost, and none that has other versions is believed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests._support.plugins import module_of

from uma.errors import ModelError, UsageError
from uma.lowering.members import Members, resolve_targets
from uma.partition import Collage
from uma.pipeline import workers
from uma.pipeline.alone import RegionRefused
from uma.pipeline.dask_link import check_workers, connect
from uma.pipeline.measured import Ran
from uma.pipeline.request import Request, answer, read_answer, request_of, versions_of
from uma.pipeline.stages import Build
from uma.pipeline.workers import Crew, NoWorkers
from uma.plugins import default_host
from uma.relay import TensorType, Var, call, const

VERSIONS = {"uma-core": "1", "toy": "2"}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cache of the test's own, and a part that is built here as it should be."""
    folder = tmp_path / "cache"
    folder.mkdir(mode=0o700)
    monkeypatch.setenv("UMA_CACHE_DIR", str(folder))
    monkeypatch.setattr(workers, "answer", lambda *_, **__: said(digest="built"))
    yield folder / "costs"


def request(number: int, kind: str = "toy") -> Request:
    told = {"form": 1, "versions": VERSIONS, "targets": [[kind, {"kind": kind}]], "model": str(number)}
    return Request(json.dumps(told), b"")


def said(**found: Any) -> str:
    return json.dumps({"versions": VERSIONS, **found})


class Asked:
    def __init__(self, text: str | None) -> None:
        self.text = text

    def done(self) -> bool:
        return self.text is not None

    def result(self) -> str:
        assert self.text is not None
        if not self.text:
            raise ModuleNotFoundError("No module named 'uma'")
        return self.text

    def cancel(self) -> None:
        self.text = None


class Link:
    """Workers that answer at once, each as a function says; None for one that never does."""

    def __init__(self, **given: Callable[[int], str | None]) -> None:
        self.given, self.there = given, list(given)
        self.asked: list[tuple[str, int]] = []
        self.is_closed = False

    def workers(self) -> Sequence[str]:
        if not self.there:
            raise OSError("their scheduler does not answer")
        return self.there

    def ask(self, worker: str, request: Request, only_build: bool) -> Asked:
        number = int(request.told["model"])
        if only_build:
            text = self.given[worker](-1)
            return Asked(text)
        self.asked.append((worker, number))
        return Asked(self.given[worker](number))

    def close(self) -> None:
        self.is_closed = True


def good(number: int) -> str | None:
    """A worker that is as it should be."""
    return said(digest="built") if number < 0 else said(ns=number * 10.0, cycles={})


def stuck(number: int) -> str | None:
    """One that builds, and never tells a time."""
    return good(number) if number < 0 else None


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who is there is looked at each time."""
    monkeypatch.setattr(workers, "_LOOK_S", 0.0)


def results(crew: Crew, numbers: Sequence[int]) -> list[float | None]:
    for number in numbers:
        crew.submit(request(number))
    found = [crew.result(request(number)) for number in numbers]
    return [None if one is None else one.ns for one in found]


class TestCrew:
    def test_all_work_and_times_come_in_the_order_in_which_they_are_asked_for(self) -> None:
        link = Link(a=good, b=good)
        crew = Crew(lambda: link)
        assert results(crew, range(6)) == [0, 10, 20, 30, 40, 50]
        assert {worker for worker, _ in link.asked} == {"a", "b"} and len(link.asked) == 6
        assert crew.failed == []
        crew.close()
        assert link.is_closed

    def test_what_is_known_from_disk_needs_no_worker(self) -> None:
        results(Crew(lambda: Link(a=good)), range(3))

        def nobody() -> Link:
            raise NoWorkers("nobody is there")

        assert results(Crew(nobody), range(3)) == [0, 10, 20]
        with pytest.raises(NoWorkers, match="nobody is there"):
            results(Crew(nobody), [3])

    def test_a_time_is_on_disk_when_it_arrives(self, cache: Path) -> None:
        crew = Crew(lambda: Link(a=lambda number: good(number) if number < 1 else None))
        crew.submit(request(0))
        crew.submit(request(1))
        assert crew.result(request(0)) == Ran(0.0, {})
        crew.close()  # as where it is interrupted
        assert [path.stem for path in cache.iterdir()] == [request(0).digest]

    def test_what_a_lost_worker_was_asked_for_another_one_tells(self) -> None:
        link = Link(a=stuck, b=good)
        crew = Crew(lambda: link)
        for number in range(6):
            crew.submit(request(number))
        link.there.remove("a")
        assert results(crew, range(6)) == [0, 10, 20, 30, 40, 50]
        assert crew.failed == ["worker a is lost, and what it had not answered is asked for again"]

    def test_what_two_lost_workers_were_asked_for_is_measured_here(self) -> None:
        link = Link(a=stuck, b=stuck, c=good)
        crew = Crew(lambda: link)
        link.there[:] = ["a"]
        crew.submit(request(0))
        crew.submit(request(0))
        crew._step()
        link.there[:] = ["b"]
        crew._step()
        crew._step()
        crew._step()
        link.there[:] = ["c"]
        assert results(crew, [0, 1]) == [None, 10]
        assert crew.failed[-1] == "2 workers were lost while they measured a part; it is measured here"

    def test_where_none_is_left_all_is_measured_here(self) -> None:
        link = Link(a=stuck)
        crew = Crew(lambda: link)
        for number in range(3):
            crew.submit(request(number))
        link.there.clear()
        assert results(crew, range(4)) == [None] * 4
        assert crew.failed == [
            "the workers are gone: their scheduler does not answer; what they were asked for is measured here"
        ]

    def test_one_that_does_not_answer_counts_as_lost(self, monkeypatch: pytest.MonkeyPatch) -> None:
        link = Link(a=stuck, b=good)
        crew = Crew(lambda: link)
        for number in range(4):
            crew.submit(request(number))
        monkeypatch.setattr(workers, "LIMIT_S", -1.0)
        crew._step()
        monkeypatch.setattr(workers, "LIMIT_S", 600.0)
        assert "worker a has not answered for -1 s; it is not used" in crew.failed

    @pytest.mark.parametrize(
        ("text", "why"),
        [
            (json.dumps({"versions": {**VERSIONS, "toy": "3"}}), "has toy 3, and here it is 2"),
            (json.dumps({"versions": {"uma-core": "1"}}), "has no toy, and here it is 2"),
            (said(lacks="there is no target kind 'toy'"), "cannot build for it: there is no target kind 'toy'"),
            (said(digest="other"), "builds something else from the same part: its versions are not what it says"),
            ("", "does not answer: ModuleNotFoundError: No module named 'uma'"),
            ("[]", "does not answer: ValueError: '[]' is no answer"),
        ],
    )
    def test_one_that_is_otherwise_is_not_used(self, text: str, why: str) -> None:
        link = Link(a=lambda number: text, b=good)
        crew = Crew(lambda: link)
        assert results(crew, range(4)) == [0, 10, 20, 30]
        assert {worker for worker, _ in link.asked} == {"b"}
        assert crew.failed == [f"worker a {why}; it is not used for toy: toy"]
        with pytest.raises(NoWorkers, match=r"(?s)no worker can be used.*worker a "):
            results(Crew(lambda: Link(a=lambda number: text)), [9])

    def test_versions_are_looked_at_in_each_answer(self) -> None:
        later = json.dumps({"versions": {**VERSIONS, "toy": "3"}, "ns": 1.0, "cycles": {}})
        link = Link(a=lambda number: good(number) if number < 1 else later, b=good)
        crew = Crew(lambda: link)
        assert results(crew, range(6)) == [0, 10, 20, 30, 40, 50]
        assert crew.failed == ["worker a has toy 3, and here it is 2; it is not used for toy: toy"]

    def test_one_that_is_otherwise_for_one_target_is_used_for_others(self) -> None:
        def only_toy(number: int) -> str:
            return said(lacks="no other") if number == -1 and link.probed == "other" else good(number) or ""

        class Probed(Link):
            probed = ""

            def ask(self, worker: str, request: Request, only_build: bool) -> Asked:
                self.probed = request.told["targets"][0][0]
                return super().ask(worker, request, only_build)

        link = Probed(a=only_toy)
        crew = Crew(lambda: link)
        assert results(crew, [1]) == [10]
        assert crew.result(request(1, "other")) is None
        assert crew.failed == ["worker a cannot build for it: no other; it is not used for other: other"]

    def test_what_cannot_be_built_is_an_error_as_here(self) -> None:
        error = {"kind": "ModelError", "what": "it is too large", "where": "conv1", "hint": None}
        crew = Crew(lambda: Link(a=lambda number: good(number) if number < 0 else said(error=error)))
        with pytest.raises(ModelError, match="it is too large") as found:
            crew.result(request(0))
        assert found.value.where == "conv1"
        crew = Crew(lambda: Link(a=lambda number: good(number) if number < 0 else said(refused=True)))
        with pytest.raises(RegionRefused):
            crew.result(request(1))

    def test_what_a_worker_cannot_run_is_measured_here(self) -> None:
        error = {"kind": None, "what": "no emulator", "where": None, "hint": None}
        crew = Crew(lambda: Link(a=lambda number: good(number) if number < 0 else said(error=error)))
        assert crew.result(request(0)) is None
        assert crew.failed == ["worker a cannot measure a part, which is measured here: no emulator"]


@pytest.mark.parametrize("text", ["", "local", "local:0", "local:1000", "tcp://lab", "tcp://lab:0", "tcp://lab:99999"])
def test_addresses_are_checked(text: str) -> None:
    with pytest.raises(UsageError, match="is no address of workers"):
        check_workers(text)
    assert check_workers("tcp://lab-1.example:8786") and check_workers("tcp://[::1]:8786") and check_workers("local:2")


@pytest.mark.parametrize("text", ["{}", '{"versions": {}, "ns": -1, "cycles": {}}', '{"versions": {}, "error": {}}'])
def test_what_is_no_answer(text: str) -> None:
    with pytest.raises(ValueError, match="is no answer"):
        read_answer(text)


X = Var("x", TensorType((4, 8), "float32"))
CHAIN = module_of(call("add", call("nn.relu", X), const(np.arange(80, dtype=np.float32)[:8])))


class TestRequests:
    def test_versions_of_others_are_answered_without_building(self) -> None:
        members = resolve_targets("c", default_host())
        asked = request_of(CHAIN, Members((members.host,)))
        assert (
            asked.told["versions"] == versions_of(members) and {"uma-core", "uma-cpu-c"} <= versions_of(members).keys()
        )
        other = {**asked.told, "versions": {"uma-core": "0"}}
        assert json.loads(answer(json.dumps(other), asked.constants)) == {"versions": versions_of(members)}
        other = {**asked.told, "targets": [["none", {"kind": "none_such"}]]}
        assert "none_such" in json.loads(answer(json.dumps(other), asked.constants))["lacks"]
        assert set(json.loads(answer(json.dumps({"form": 2}), b""))) == {"versions"}

    def test_a_part_is_built_as_it_is_here(self) -> None:
        big = const(np.arange(8 * 64, dtype=np.float32).reshape(64, 8))
        members = Members((resolve_targets("c", default_host()).host,))
        asked = request_of(module_of(call("nn.dense", X, big)), members)
        assert asked.constants
        found = json.loads(answer(asked.text, asked.constants, only_build=True))
        assert len(found["digest"]) == 64
        lost = json.loads(answer(asked.text, b"", only_build=True))
        assert lost["error"]["kind"] == "ModelError"


def test_without_dask_there_are_no_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "distributed", None)
    with pytest.raises(NoWorkers, match="not installed") as found:
        connect("local:2")
    assert found.value.hint == "pip install 'uma-core[distributed]'"


@pytest.mark.soak
@pytest.mark.filterwarnings("ignore")
class TestDask:
    def test_a_killed_worker_loses_nothing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        pytest.importorskip("distributed", reason="Dask is not installed: uma-core[distributed]")
        import psutil

        monkeypatch.setattr(workers, "answer", answer)
        made = Build("m", resolve_targets("c", default_host(), Collage(workers="local:2")))
        killed: list[int] = []
        take = Crew._take

        def taken(self: Crew, one: Any) -> None:
            take(self, one)
            if not killed and not one.only_build:
                found = [p for p in psutil.Process().children() if "distributed.cli.dask_worker" in p.cmdline()]
                killed.append(found[0].pid)
                found[0].kill()

        monkeypatch.setattr(Crew, "_take", taken)
        value: Any = X
        for number in range(6):
            value = call("add", call("nn.relu" if number % 2 else "tanh", value), const(np.full(8, number, np.float32)))
        made.run(module_of(value))
        placement = made.placement
        assert killed and placement is not None and isinstance(placement.partitioner, Collage)
        decision = placement.partitioner.decision
        assert decision is not None
        assert all(one.price.source in ("measured", "free") for one in decision.pool.offers)
        assert all("is lost" in sentence for sentence in decision.failed)

    def test_nobody_at_the_address(self, monkeypatch: pytest.MonkeyPatch) -> None:
        pytest.importorskip("distributed", reason="Dask is not installed: uma-core[distributed]")
        monkeypatch.setattr("uma.pipeline.dask_link._CONNECT_S", 1.0)
        with pytest.raises(NoWorkers, match="no workers answer within 1 s"):
            connect("tcp://127.0.0.1:9")
