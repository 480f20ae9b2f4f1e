"""Workers: none of what they are asked for is lost, and none that has other versions is believed."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests._support.plugins import module_of

from uma.errors import ModelError, UsageError
from uma.lowering.build_targets import BuildTargets, resolve_targets
from uma.partition import Collage
from uma.pipeline.stages import Build
from uma.plugins import default_host
from uma.relay import TensorType, Var, call, const
from uma.support.json_record import to_json
from uma.tuning import with_costs, workers
from uma.tuning.build_costs import build_costs
from uma.tuning.dask_link import check_workers, connect
from uma.tuning.local_workers import LocalWorkers
from uma.tuning.measurement import Measurement
from uma.tuning.measurement_request import (
    Question,
    Request,
    WorkerAnswer,
    answer,
    read_answer,
    request_of,
    versions_of,
)
from uma.tuning.region_measurement import RegionRefused
from uma.tuning.workers import NoWorkers, WorkerPool

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
    return Request(Question(VERSIONS, ((kind, {"kind": kind}),), str(number)), b"")


def said(**found: Any) -> str:
    return json.dumps(to_json(WorkerAnswer(VERSIONS, **found)))


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
        number = int(request.question.model)
        if only_build:
            text = self.given[worker](-1)
            return Asked(text)
        self.asked.append((worker, number))
        return Asked(self.given[worker](number))

    def close(self) -> None:
        self.is_closed = True


def good(number: int) -> str | None:
    """A worker that is as it should be."""
    return said(digest="built") if number < 0 else said(measured=Measurement(number * 10.0, {}))


def stuck(number: int) -> str | None:
    """One that builds, and never tells a time."""
    return good(number) if number < 0 else None


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who is there is looked at each time."""
    monkeypatch.setattr(workers, "_LOOK_S", 0.0)


def results(crew: WorkerPool, numbers: Sequence[int]) -> list[float | None]:
    for number in numbers:
        crew.submit(request(number))
    found = [crew.result(request(number)) for number in numbers]
    return [None if one is None else one.ns for one in found]


class TestCrew:
    def test_all_work_and_times_come_in_the_order_in_which_they_are_asked_for(self) -> None:
        link = Link(a=good, b=good)
        crew = WorkerPool(lambda: link)
        assert results(crew, range(6)) == [0, 10, 20, 30, 40, 50]
        assert {worker for worker, _ in link.asked} == {"a", "b"} and len(link.asked) == 6
        assert crew.failed == []
        crew.close()
        assert link.is_closed

    def test_what_is_known_from_disk_needs_no_worker(self) -> None:
        results(WorkerPool(lambda: Link(a=good)), range(3))

        def nobody() -> Link:
            raise NoWorkers("nobody is there")

        assert results(WorkerPool(nobody), range(3)) == [0, 10, 20]
        with pytest.raises(NoWorkers, match="nobody is there"):
            results(WorkerPool(nobody), [3])

    def test_a_time_is_on_disk_when_it_arrives(self, cache: Path) -> None:
        crew = WorkerPool(lambda: Link(a=lambda number: good(number) if number < 1 else None))
        crew.submit(request(0))
        crew.submit(request(1))
        assert crew.result(request(0)) == Measurement(0.0, {})
        crew.close()  # as where it is interrupted
        assert [path.stem for path in cache.iterdir()] == [request(0).digest]

    def test_what_a_lost_worker_was_asked_for_another_one_tells(self) -> None:
        link = Link(a=stuck, b=good)
        crew = WorkerPool(lambda: link)
        for number in range(6):
            crew.submit(request(number))
        link.there.remove("a")
        assert results(crew, range(6)) == [0, 10, 20, 30, 40, 50]
        assert crew.failed == ["worker a is lost, and what it had not answered is asked for again"]

    def test_what_two_lost_workers_were_asked_for_is_measured_here(self) -> None:
        link = Link(a=stuck, b=stuck, c=good)
        crew = WorkerPool(lambda: link)
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
        crew = WorkerPool(lambda: link)
        for number in range(3):
            crew.submit(request(number))
        link.there.clear()
        assert results(crew, range(4)) == [None] * 4
        assert crew.failed == [
            "the workers are gone: their scheduler does not answer; what they were asked for is measured here"
        ]

    def test_one_that_does_not_answer_counts_as_lost(self, monkeypatch: pytest.MonkeyPatch) -> None:
        link = Link(a=stuck, b=good)
        crew = WorkerPool(lambda: link)
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
            ("[]", "does not answer: ValueError: '[]' is not an answer"),
        ],
    )
    def test_one_that_is_otherwise_is_not_used(self, text: str, why: str) -> None:
        link = Link(a=lambda number: text, b=good)
        crew = WorkerPool(lambda: link)
        assert results(crew, range(4)) == [0, 10, 20, 30]
        assert {worker for worker, _ in link.asked} == {"b"}
        assert crew.failed == [f"worker a {why}; it is not used for toy: toy"]
        with pytest.raises(NoWorkers, match=r"(?s)no worker can be used.*worker a "):
            results(WorkerPool(lambda: Link(a=lambda number: text)), [9])

    def test_versions_are_looked_at_in_each_answer(self) -> None:
        answered = WorkerAnswer({**VERSIONS, "toy": "3"}, measured=Measurement(1.0, {}))
        later = json.dumps(to_json(answered))
        link = Link(a=lambda number: good(number) if number < 1 else later, b=good)
        crew = WorkerPool(lambda: link)
        assert results(crew, range(6)) == [0, 10, 20, 30, 40, 50]
        assert crew.failed == ["worker a has toy 3, and here it is 2; it is not used for toy: toy"]

    def test_one_that_is_otherwise_for_one_target_is_used_for_others(self) -> None:
        def only_toy(number: int) -> str:
            return said(lacks="no other") if number == -1 and link.probed == "other" else good(number) or ""

        class Probed(Link):
            probed = ""

            def ask(self, worker: str, request: Request, only_build: bool) -> Asked:
                self.probed = request.question.targets[0][0]
                return super().ask(worker, request, only_build)

        link = Probed(a=only_toy)
        crew = WorkerPool(lambda: link)
        assert results(crew, [1]) == [10]
        assert crew.result(request(1, "other")) is None
        assert crew.failed == ["worker a cannot build for it: no other; it is not used for other: other"]

    def test_what_cannot_be_built_is_an_error_as_here(self) -> None:
        error = {"kind": "ModelError", "what": "it is too large", "where": "conv1", "hint": None}
        crew = WorkerPool(lambda: Link(a=lambda number: good(number) if number < 0 else said(error=error)))
        with pytest.raises(ModelError, match="it is too large") as found:
            crew.result(request(0))
        assert found.value.where == "conv1"
        crew = WorkerPool(lambda: Link(a=lambda number: good(number) if number < 0 else said(refused=True)))
        with pytest.raises(RegionRefused):
            crew.result(request(1))

    def test_what_a_worker_cannot_run_is_measured_here(self) -> None:
        error = {"kind": None, "what": "no emulator", "where": None, "hint": None}
        crew = WorkerPool(lambda: Link(a=lambda number: good(number) if number < 0 else said(error=error)))
        assert crew.result(request(0)) is None
        assert crew.failed == ["worker a cannot measure a part, which is measured here: no emulator"]


@pytest.mark.parametrize("text", ["", "local", "local:0", "local:1000", "tcp://lab", "tcp://lab:0", "tls://lab:99999"])
def test_addresses_are_checked(text: str) -> None:
    with pytest.raises(UsageError, match="is not an address of workers"):
        check_workers(text, insecure=True)
    assert check_workers("tls://lab-1.example:8786") and check_workers("tls://[fe80::1]:8786")
    assert check_workers("local:2")


@pytest.mark.parametrize("host", ["lab", "10.0.0.7", "0.0.0.0", "127.0.0.1.example", "[::]", "[fe80::1]"])
def test_tcp_to_another_machine_needs_permission(host: str) -> None:
    address = f"tcp://{host}:8786"
    with pytest.raises(UsageError, match="tcp:// to another machine is neither encrypted nor authenticated") as found:
        check_workers(address)
    assert found.value.where == address
    assert found.value.hint is not None and f"tls://{host}:8786" in found.value.hint
    assert "--insecure-workers" in found.value.hint
    with pytest.raises(UsageError, match="tcp:// to another machine"):
        build_costs(resolve_targets("c", default_host(), Collage(workers=address)))
    assert check_workers(address, insecure=True) == address
    assert build_costs(resolve_targets("c", default_host(), Collage(workers=address, insecure_workers=True)))


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "localhost", "LocalHost", "[::1]"])
def test_tcp_on_this_machine_needs_none(host: str) -> None:
    assert check_workers(f"tcp://{host}:8786")


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        '{"versions": {}, "measured": {"ns": 1, "cycles": {}}}',
        '{"versions": {}, "measured": {"ns": -1, "cycles": {}, "clock_hz": null}}',
        '{"versions": {}, "measured": {"ns": 1, "cycles": {"npu": true}, "clock_hz": null}}',
        '{"versions": {}, "error": {}}',
    ],
)
def test_what_is_no_answer(text: str) -> None:
    with pytest.raises(ValueError, match="is not an answer"):
        read_answer(text)


X = Var("x", TensorType((4, 8), "float32"))
CHAIN = module_of(call("add", call("nn.relu", X), const(np.arange(80, dtype=np.float32)[:8])))


class TestRequests:
    def test_versions_of_others_are_answered_without_building(self) -> None:
        members = resolve_targets("c", default_host())
        asked = request_of(CHAIN, BuildTargets((members.host,)))
        versions = versions_of(members)
        assert asked.question.versions == versions and {"uma-core", "uma-cpu-c"} <= versions.keys()
        other = Request(replace(asked.question, versions={"uma-core": "0"}), asked.constants)
        assert read_answer(answer(other.text, other.constants)) == WorkerAnswer(versions)
        other = Request(replace(asked.question, targets=(("none", {"kind": "none_such"}),)), asked.constants)
        assert "none_such" in str(read_answer(answer(other.text, other.constants)).lacks)
        former = read_answer(answer(json.dumps({"form": 1}), b""))
        assert former == WorkerAnswer({"uma-core": versions["uma-core"]})

    def test_a_part_is_built_as_it_is_here(self) -> None:
        big = const(np.arange(8 * 64, dtype=np.float32).reshape(64, 8))
        members = BuildTargets((resolve_targets("c", default_host()).host,))
        asked = request_of(module_of(call("nn.dense", X, big)), members)
        assert asked.constants
        found = json.loads(answer(asked.text, asked.constants, only_build=True))
        assert len(found["digest"]) == 64
        lost = json.loads(answer(asked.text, b"", only_build=True))
        assert lost["error"]["kind"] == "ModelError"


def test_a_scheduler_needs_dask(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(NoWorkers, match="not installed") as found:
        connect("tls://lab:8786")
    assert found.value.hint is not None and found.value.hint.startswith("pip install 'uma-core[distributed]'")


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="the system does not say who listens")
@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_a_port_of_another_user(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def reached(*_: object, **__: object) -> None:
        raise OSError("it is reached")

    monkeypatch.setitem(sys.modules, "distributed", SimpleNamespace(Client=reached))
    try:
        server = socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError:
        pytest.skip(f"this machine has no {host}")
    with server:
        name = f"[{host}]" if ":" in host else host
        address, me = f"tcp://{name}:{server.getsockname()[1]}", os.geteuid()
        with pytest.raises(NoWorkers, match="no workers answer"):
            connect(address)
        if me == 0:
            os.chown(server.fileno(), 12345, -1)
        else:
            monkeypatch.setattr(os, "geteuid", lambda: me + 1)
        with pytest.raises(NoWorkers, match=f"user {12345 if me == 0 else me} listens at this port") as found:
            connect(address)
        assert found.value.hint is not None and "--insecure-workers" in found.value.hint
        with pytest.raises(NoWorkers, match="no workers answer"):
            connect(address, insecure=True)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "TLS to the workers needs a certificate authority and a certificate"),
        ({"tls_ca_file": "ca.pem"}, "TLS to the workers needs a certificate$"),
        ({"tls_ca_file": "ca.pem", "tls_client_cert": "me.pem"}, "cannot be read: No such file"),
    ],
)
def test_tls_needs_certificates(files: dict[str, str], message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Security:
        def __init__(self, *, require_encryption: bool) -> None:
            assert require_encryption
            self.tls_ca_file, self.tls_client_cert = files.get("tls_ca_file"), files.get("tls_client_cert")
            self.tls_client_key = None

        def get_connection_args(self, role: str) -> None:
            assert role == "client"
            raise FileNotFoundError(2, "No such file or directory")

    monkeypatch.setitem(sys.modules, "distributed", SimpleNamespace(Security=Security))
    with pytest.raises(NoWorkers) as found:
        connect("tls://lab:8786")
    assert re.search(message, found.value.what)
    assert found.value.hint is not None and "DASK_DISTRIBUTED__COMM__TLS__CA_FILE" in found.value.hint
    assert found.value.where == (", ".join(files.values()) if len(files) == 2 else "tls://lab:8786")


def process_tree() -> set[int]:
    """This process and those below it."""
    parents = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError):  # it ended just now
            continue
    tree, size = {os.getpid()}, 0
    while len(tree) > size:
        size = len(tree)
        tree |= {process for process, parent in parents.items() if parent in tree}
    return tree


def listeners(processes: set[int]) -> set[str]:
    """The addresses at which processes can be reached: of TCP, UDP and Unix sockets, those without a name included."""
    inodes = set()
    for process in processes:
        for file in Path(f"/proc/{process}/fd").glob("*"):
            try:
                inodes.add(os.readlink(file).removeprefix("socket:[").removesuffix("]"))
            except OSError:  # it was closed just now
                continue
    addresses = set()
    for name in ("tcp", "tcp6", "udp", "udp6"):
        for line in Path("/proc/net", name).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[9] in inodes and fields[3] in ("0A", "07"):  # LISTEN; of UDP, not connected
                addresses.add(f"{name} {fields[1]}")
    for line in Path("/proc/net/unix").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[6] in inodes and int(fields[3], 16) & 0x10000:  # __SO_ACCEPTCON
            addresses.add(f"unix {' '.join(fields[7:])}")
    return addresses


EMPTY = Request(Question({}, (), "", form=0), b"constants")
"""A request that is answered without building anything."""


def wait_for(condition: Callable[[], object]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, "it does not happen"
        time.sleep(0.01)


class TestLocal:
    @pytest.mark.skipif(not Path("/proc/net/unix").exists(), reason="there is no /proc to read sockets from")
    def test_nobody_can_connect_to_local_workers(self) -> None:
        processes, addresses = process_tree(), listeners(process_tree())
        link = connect("local:2")
        try:
            workers_here = process_tree() - processes
            asked = [link.ask(worker, EMPTY, True) for worker in link.workers()]
            wait_for(lambda: all(one.done() for one in asked))
            assert [set(read_answer(one.result()).versions) for one in asked] == [{"uma-core"}] * 2
            assert len(workers_here) == 2 and listeners(process_tree()) == addresses

            os.kill(min(workers_here), signal.SIGKILL)  # one that is lost has no answer
            asked = [link.ask(worker, EMPTY, True) for worker in link.workers()]
            wait_for(lambda: len(link.workers()) == 1 and any(one.done() for one in asked))
            lost, other = sorted(asked, key=lambda one: one.done())
            assert not lost.done() and other.done() and read_answer(other.result())
            with pytest.raises(OSError, match="SIGKILL"):
                lost.result()
        finally:
            link.close()
        assert not process_tree() & workers_here and link.workers() == []

    def test_workers_that_cannot_be_started(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sys, "executable", "/nowhere/python")
        with pytest.raises(NoWorkers, match="2 workers cannot be started: cannot start a process: No such file"):
            connect("local:2")

    def test_an_interrupt_while_they_start_leaves_none(self, monkeypatch: pytest.MonkeyPatch) -> None:
        closed = []
        monkeypatch.setattr("uma.tuning.timing_process.TimingProcess.close", lambda self: closed.append(self))

        def interrupt(self: object) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr("uma.tuning.timing_process.TimingProcess.start", interrupt)
        with pytest.raises(KeyboardInterrupt):
            LocalWorkers(2)
        assert len(closed) == 2

    @pytest.mark.soak
    def test_they_end_with_the_process_that_started_them(self) -> None:
        program = "from uma.tuning.dask_link import connect; link = connect('local:1'); print('ready', flush=True)"
        with subprocess.Popen(
            [sys.executable, "-c", f"{program}; input()"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as process:
            assert process.stdout is not None and process.stdout.readline() == b"ready\n"
            tree = process_tree() - {os.getpid(), process.pid}
            process.kill()
        wait_for(lambda: not any(Path(f"/proc/{one}").exists() for one in tree))

    @pytest.mark.soak
    def test_a_killed_worker_loses_nothing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(workers, "answer", answer)
        made = Build("m", with_costs(resolve_targets("c", default_host(), Collage(workers="local:2"))))
        killed: list[int] = []
        take, before = WorkerPool._take, process_tree()

        def taken(self: WorkerPool, one: Any) -> None:
            take(self, one)
            if not killed and not one.only_build:
                parent = f"PPid:\t{os.getpid()}\n"
                started = process_tree() - before
                killed.append(min(pid for pid in started if parent in Path(f"/proc/{pid}/status").read_text()))
                os.kill(killed[0], signal.SIGKILL)

        monkeypatch.setattr(WorkerPool, "_take", taken)
        value: Any = X
        for number in range(6):
            value = call("add", call("nn.relu" if number % 2 else "tanh", value), const(np.full(8, number, np.float32)))
        made.run(module_of(value))
        placement = made.placement
        assert killed and placement is not None
        decision = placement.decision
        assert decision is not None
        assert all(one.price.source in ("measured", "free") for one in decision.pool.offers)
        assert decision.failed and all("is lost" in sentence for sentence in decision.failed)


def certificate(folder: Path, name: str) -> dict[str, str]:
    """A certificate authority and what it signed, as Dask's configuration has it; for the client and all others."""
    authority, key, request, signed = (str(folder / f"{name}.{end}") for end in ("ca", "key", "csr", "pem"))
    new = ["openssl", "req", "-newkey", "rsa:2048", "-nodes", "-subj"]
    sign = ["openssl", "x509", "-req", "-in", request, "-CA", authority, "-CAkey", f"{authority}.key", "-out", signed]
    for command in (
        [*new, f"/CN={name} authority", "-keyout", f"{authority}.key", "-x509", "-out", authority],
        [*new, f"/CN={name}", "-keyout", key, "-out", request],
        [*sign, "-CAcreateserial"],
    ):
        subprocess.run(command, check=True, capture_output=True)
    roles = ("client", "scheduler", "worker")
    files = {f"tls_{role}_cert": signed for role in roles} | {f"tls_{role}_key": key for role in roles}
    return {"tls_ca_file": authority, **files}


@pytest.mark.soak
@pytest.mark.filterwarnings("ignore")
class TestDask:
    def test_nobody_at_the_address(self, monkeypatch: pytest.MonkeyPatch) -> None:
        pytest.importorskip("distributed", reason="Dask is not installed: uma-core[distributed]")
        monkeypatch.setattr("uma.tuning.dask_link._CONNECT_S", 1.0)
        with pytest.raises(NoWorkers, match="no workers answer within 1 s"):
            connect("tcp://127.0.0.1:9")

    @pytest.mark.skipif(shutil.which("openssl") is None, reason="there is no openssl to make certificates with")
    def test_a_scheduler_by_tls(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        distributed: Any = pytest.importorskip("distributed", reason="Dask is not installed: uma-core[distributed]")
        dask: Any = pytest.importorskip("dask")
        monkeypatch.setattr("uma.tuning.dask_link._CONNECT_S", 5.0)
        good, other = certificate(tmp_path, "good"), certificate(tmp_path, "other")

        def configured(files: dict[str, str]) -> Any:
            prefix = "distributed.comm.tls"
            settings = {f"{prefix}.ca-file": files["tls_ca_file"], f"{prefix}.client.cert": files["tls_client_cert"]}
            return dask.config.set({**settings, f"{prefix}.client.key": files["tls_client_key"]})

        addresses = listeners(process_tree())
        with distributed.LocalCluster(
            n_workers=1,
            processes=False,
            protocol="tls://",
            host="127.0.0.1",
            dashboard_address=None,
            security=distributed.Security(require_encryption=True, **good),
        ) as cluster:
            servers = listeners(process_tree())
            address = cluster.scheduler_address
            with configured(good):
                link = connect(address)
                try:
                    asked = link.ask(link.workers()[0], EMPTY, True)
                    wait_for(asked.done)
                    assert set(read_answer(asked.result()).versions) == {"uma-core"}
                    assert listeners(process_tree()) == servers > addresses, "the client listens"
                finally:
                    link.close()
            with configured(other), pytest.raises(NoWorkers, match="no workers answer") as found:
                connect(address)
            assert found.value.hint is not None and "signed by the same authority" in found.value.hint
            with pytest.raises(NoWorkers, match="no workers answer"):
                connect(address.replace("tls://", "tcp://"))
            with pytest.raises(NoWorkers, match="needs a certificate authority and a certificate"):
                connect(address)
