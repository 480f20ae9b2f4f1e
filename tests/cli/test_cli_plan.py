"""``uma plan``, ``--partition collage``, ``--costs`` and ``--plan``."""

from __future__ import annotations

import json
import os
import re
import resource
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import fromstring

import pytest
from tests._support.plugins import HOST, entry_of, toy
from tests._support.small_models import Uma

from uma.hookspecs import Cost
from uma.plugins import PluginHost
from uma.tuning.measurement import Measurement

MODEL = """\
@function
def main(x: Tensor[(2, 4), int32], y: Tensor[(2, 4), int32]) -> Tensor[(2, 4), int32]:
    v0: ('first',) = nn.relu(x)
    v1: ('sum',) = add(v0, y)
    v2: ('last',) = nn.relu(v1)
    return v2
"""
TARGETS = ("--target", "npu", "--target", "plain")
COSTS = {"plain: nn.relu@0": 3000, "plain: add@1": 3000, "plain: nn.relu@2": 3000}


@pytest.fixture
def model(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model, an accelerator that takes a microsecond for each op, and a table of what its host takes."""

    def estimate(region: Any) -> Cost:
        return Cost(seconds=1e-6 * len(region.matches))

    install(monkeypatch, "nn.relu", "add", estimate=estimate)
    table = {"schema_version": 1, "costs": {name: {"ns": ns} for name, ns in COSTS.items()}}
    (folder / "costs.json").write_text(json.dumps(table))
    (folder / "m.py").write_text(MODEL)
    return folder


def install(monkeypatch: pytest.MonkeyPatch, *ops: str, estimate: Any) -> None:
    host = PluginHost(lambda: [*toy("npu", *ops, estimate_cost=estimate), *entry_of(HOST)])
    monkeypatch.setattr("uma.plugins.default_host", lambda: host)


def test_a_plan_is_found_told_kept_and_repeated(uma: Uma, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = uma("plan", "m.py", *TARGETS, "--costs", "costs.json", "-o", "plan.json", "--timeline", "plan.svg")
    assert done.code == 0
    assert done.out.splitlines() == [
        "m: the cheapest placement on npu, plain",
        "  target  part                us  by         runner-up                                us more",
        "  npu     first, sum, last  5.00  estimated  plain: nn.relu@0 | npu: add@1 nn.relu@2     2.00",
        "  placement         us  compute  launches  copies",
        "  the plan        5.00     3.00      2.00    0.00",
        "  eager, npu      5.00     3.00      2.00    0.00",
        "  the host alone  9.00     9.00      0.00    0.00",
        "  target  times                    MHz",
        "  npu     estimated by its plugin    -",
        "  plain   from the table of costs    -",
        "regions that are larger or smaller, and by what they take more:",
        "  target  part              instead  ops              us more  compute  launches  copies",
        "  npu     first, sum, last  smaller  add@1 nn.relu@2     2.00     2.00      0.00    0.00",
        "the plan, 0 to 5.00 us:",
        f"  npu  {'#' * 60}",
        "eager, npu, 0 to 5.00 us:",
        f"  npu  {'#' * 60}",
        "in: plan.json",
        "in: plan.svg",
    ]
    drawn = fromstring((model / "plan.svg").read_text())
    texts = [one.text for one in drawn.iter() if one.tag.endswith("}text")]
    assert texts == ["m: the plan, 5.00 us", "npu", "m: eager, npu, 5.00 us", "npu"]
    titles = [one.text for one in drawn.iter() if one.tag.endswith("}title")]
    assert titles == ["npu: nn.relu@0 add@1 nn.relu@2: 5.00 us from 0.00 us on"] * 2
    kept = json.loads((model / "plan.json").read_text())
    record = uma("plan", "m.py", *TARGETS, "--costs", "costs.json", "--json").json
    assert {name: record[name] for name in kept} == kept

    # Repeated without asking anybody what anything costs.
    install(monkeypatch, "nn.relu", "add", estimate=lambda region: pytest.fail("asked"))
    built = uma("build", "m.py", *TARGETS, "--plan", "plan.json", "--no-compile", "--json")
    assert [share["ops"] for share in built.json["accelerators"]] == [3] and built.err == ""
    warned = uma("build", "m.py", "--target", "npu -launch_ns=1", *TARGETS[2:], "--plan", "plan.json", "--no-compile")
    assert warned.err == ("uma: warning: the plan was made with target npu npu, which is npu -launch_ns=1 now\n")
    (model / "m.py").write_text(MODEL.replace("add(v0, y)", "multiply(v0, y)"))
    said = uma("build", "m.py", *TARGETS, "--plan", "plan.json").error(2)
    assert said.startswith("the plan is for another model: op 1 of the model is 'multiply Tensor[(2, 4), int32]'")
    assert "where: plan.json" in said


def test_times_of_this_machine_and_of_a_device(uma: Uma, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, "nn.relu", "add", estimate=lambda region: Cost(cycles=100))
    monkeypatch.setattr("uma.tuning.build_costs.ran_on", lambda module, member: Measurement(50.0, {}))
    note = (
        "note: the times of plain are of this machine, those of npu of a simulated or estimated device; if the product "
        "has another CPU, name it and an emulator in the target, or give plain a factor in a table of costs (--costs)\n"
    )
    rows = ["  npu     estimated by its plugin  100", "  plain   timed on this machine      -"]
    for command in ("plan", "explain"):
        done = uma(command, "m.py", *TARGETS, "--partition", "collage")
        assert done.err == note
        at = done.out.splitlines().index("  target  times                    MHz")
        assert done.out.splitlines()[at + 1 : at + 3] == rows
    assert uma("plan", "m.py", *TARGETS, "-q").err == ""
    table = {"schema_version": 1, "targets": {"plain": {"factor": 20}}}
    (model / "costs.json").write_text(json.dumps(table))
    done = uma("plan", "m.py", *TARGETS, "--costs", "costs.json")
    assert done.err == "" and "  plain   timed on this machine, times 20    -" in done.out.splitlines()


def test_a_build_by_costs(uma: Uma, model: Path) -> None:
    options: Sequence[str] = ("--partition", "collage", "--costs", "costs.json")
    built = uma("build", "m.py", *TARGETS, *options, "--no-compile", "--json").json
    assert [share["ops"] for share in built["accelerators"]] == [3]
    slow = uma("build", "m.py", "--target", "npu -launch_ns=6500", *TARGETS[2:], *options, "--no-compile")
    assert "npu  0.0% of the ops" in slow.out
    assert "--partition collage" in slow.out and "--costs costs.json" in slow.out
    assert uma("verify", "m.py", *TARGETS, *options, "--json").code == 0


def test_the_best_plans_are_built_and_timed(uma: Uma, model: Path) -> None:
    options: Sequence[str] = (*TARGETS, "--costs", "costs.json", "--measure-plan", "2")
    done = uma("plan", "m.py", *options, "-o", "plan.json")
    at = done.out.splitlines().index("plans that were built:")
    head, *rows, _ = done.out.splitlines()[at + 1 :]
    assert re.split("  +", head.strip()) == ["plan", "us by costs", "us measured", "bytes of RAM"]
    told = [re.split("  +", row.strip())[:2] for row in rows]
    assert told == [["1 (eager, npu)", "5.00"], ["2", "7.00"], ["6 (the host alone)", "9.00"]]
    taken = [row.endswith("taken: it is the fastest") for row in rows]
    assert taken.count(True) == 1
    kept = json.loads((model / "plan.json").read_text())
    assert [trial["cost_ns"] for trial in kept["trials"]] == [5000, 7000, 9000]
    assert kept["cost_ns"] == kept["trials"][taken.index(True)]["cost_ns"]
    assert kept["taken"] == {**kept["taken"], "source": "measured", "plan": (1, 2, 6)[taken.index(True)]}
    assert uma("build", "m.py", *TARGETS, "--plan", "plan.json", "--no-compile").code == 0
    built = uma("build", "m.py", *options, "--partition", "collage", "--json").json
    assert [plan["measured_ns"] for plan in built["plans"]] == [plan["measured_ns"] for plan in kept["trials"]]


def test_what_accelerators_must_have(uma: Uma, model: Path) -> None:
    slow = ("--target", "npu -launch_ns=9000", *TARGETS[2:], "--partition", "collage", "--costs", "costs.json")

    def ops(*options: str) -> list[int]:
        built = uma("build", "m.py", *slow, *options, "--no-compile", "--json").json
        return [share["ops"] for share in built["accelerators"]]

    assert ops() == [0] and ops("--require-offload", "30%") == [3]


def test_plans_that_take_too_much(uma: Uma, model: Path) -> None:
    options: Sequence[str] = (*TARGETS, "--partition", "collage", "--costs", "costs.json")
    assert uma("build", "m.py", *options, "--max-ram", "64K").code == 0
    said = uma("build", "m.py", *options, "--max-ram", "8").error(4)
    assert said.startswith("none of the 6 plans takes as little RAM as --max-ram allows, 8 bytes")


def test_what_a_project_says(uma: Uma, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = model / "pyproject.toml"
    project.write_text('[tool.uma]\npartition = "collage"\ncosts = "costs.json"\n')
    (model / "below").mkdir()
    monkeypatch.chdir(model / "below")  # files are the project's, wherever it is built

    def ops(*options: str) -> list[int]:
        built = uma("build", "../m.py", *TARGETS, *options, "--no-compile", "--json").json
        return [share["ops"] for share in built["accelerators"]]

    slow = ("--target", "npu -launch_ns=6500", *TARGETS[2:])
    assert ops() == [3]
    assert "npu  0.0% of the ops" in uma("build", "../m.py", *slow, "--no-compile").out
    assert "npu  100.0% of the ops" in uma("build", "../m.py", *slow, "--partition", "eager", "--no-compile").out
    assert uma("plan", "../m.py", *TARGETS, "-o", "../plan.json").code == 0
    project.write_text('[tool.uma]\nplan = "plan.json"\n')
    install(monkeypatch, "nn.relu", "add", estimate=lambda region: pytest.fail("asked"))
    assert ops() == [3] and ops("--partition", "eager") == [3]
    for text, what in (
        ("partition = 3", "partition is 3"),
        ('costs = ""', "costs is ''"),
        ('costs = "costs.json"', "costs are for the partitioner 'collage'"),
        ('plan = "plan.json"\npartition = "eager"', "plan says what goes where"),
        ('partition = "none"', "there is no partitioner 'none'"),
        ('plan = "none.json"', "the plan does not exist"),
    ):
        project.write_text(f"[tool.uma]\n{text}\n")
        assert uma("build", "../m.py", *TARGETS).error(2).startswith(what)


def test_explain(uma: Uma, model: Path) -> None:
    done = uma("explain", "m.py", *TARGETS, "--partition", "collage", "--costs", "costs.json")
    assert "what the placement costs, and what each part won by:" in done.out
    assert "the host alone  9.00     9.00" in done.out
    record = uma("explain", "m.py", *TARGETS, "--partition", "collage", "--costs", "costs.json", "--json").json
    assert record["placement"]["cost_ns"] == 5000
    assert "placement" not in uma("explain", "m.py", *TARGETS, "--json").json


def test_what_costs_do_not_tell_is_said(uma: Uma, model: Path) -> None:
    table = json.loads((model / "costs.json").read_text())
    (model / "other.json").write_text(json.dumps({**table, "targets": {"n": {}}}))
    what = "uma: warning: the table of costs tells of 'n', which is not a target of this build: there are plain, npu\n"
    given = ("--partition", "collage", "--costs", "other.json")
    for command in ("build", "run", "verify", "report", "explain", "plan"):
        done = uma(command, "m.py", *TARGETS, *given, *(("-o", "page.html") if command == "report" else ()))
        assert (command, done.code, done.err) == (command, 0, what)


def test_explain_tells_where_eager_is_dear(uma: Uma, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Eager gives the first accelerator all; another one, and the host by a table, would be cheaper."""
    slow, fast = (
        toy(label, *ops, estimate_cost=lambda region, ns=ns: Cost(seconds=ns * 1e-9 * len(region.matches)))
        for label, ops, ns in (("slow", ("nn.relu", "add"), 5000), ("fast", ("add",), 100))
    )
    silent = toy("silent", "nn.relu")
    monkeypatch.setattr(
        "uma.plugins.default_host", lambda: PluginHost(lambda: [*slow, *fast, *silent, *entry_of(HOST)])
    )
    both = ("--target", "slow", "--target", "fast", "--target", "plain")
    less = "by costs that are known another placement takes {} us less, of {} us:"
    assert less.format("0.90", "17.00") in uma("explain", "m.py", *both).out
    lines = uma("explain", "m.py", *both, "--costs", "costs.json").out.splitlines()
    at = lines.index(less.format("8.90", "17.00"))
    assert lines[at + 1 : at + 5] == [
        "  target  part     us  by         instead of",
        "  plain   first  3.00  table      slow",
        "  fast    sum    2.10  estimated  slow",
        "  plain   last   3.00  table      slow",
    ]
    record = uma("explain", "m.py", *both, "--costs", "costs.json", "--json").json["otherwise"]
    assert (record["eager_ns"], record["ns"], record["unknown"]) == (17_000, 8_100, [])
    assert record["parts"][1]["name"] == "fast: add@1" and record["parts"][1]["instead"] == ["slow"]
    # What nobody tells the cost of stays as it is; who decides by costs has no need of it.
    quiet = ("--target", "silent", *both)
    assert less.format("4.90", "7.00") in uma("explain", "m.py", *quiet).out
    by_costs = uma("explain", "m.py", *both, "--partition", "collage", "--costs", "costs.json")
    assert by_costs.code == 0 and "by costs that are known" not in by_costs.out
    (model / "other.json").write_text('{"schema_version": 1, "targets": {"n": {}}}')
    done = uma("explain", "m.py", "--target", "fast", "--target", "plain", "--costs", "other.json")
    assert "tells of 'n', which is not a target" in done.err and "by costs that are known" not in done.out


@pytest.mark.parametrize(
    ("options", "what"),
    [
        (("build", "--costs", "costs.json"), "--costs is for the partitioner 'collage'"),
        (("build", "--plan", "plan.json", "--partition", "collage"), "--plan says what goes where"),
        (("build", "--measure-plan", "2"), "--measure-plan is for the partitioner 'collage'"),
        (("build", "--measure-plan", "2", "--plan", "plan.json"), "--plan says what goes where"),
        (("build", "--workers", "local:2"), "--workers is for the partitioner 'collage'"),
        (("build", "--workers", "local:2", "--plan", "plan.json"), "--plan says what goes where"),
        (("plan", "--workers", "local:0"), "'local:0' is not an address of workers"),
        (("plan", "--workers", "tcp://lab:8786"), "tcp:// to another machine is neither encrypted nor authenticated"),
        (("plan", "--insecure-workers"), "--insecure-workers is for --workers tcp://HOST:PORT"),
        (("plan", "--measure-plan", "0"), "argument --measure-plan: '0' is not a number of plans"),
        (("build", "--plan", "none.json"), "the plan does not exist"),
        (("build", "--plan", "costs.json"), "the file holds no plan"),
        (("build", "--partition", "collage", "--costs", "m.py"), "the table of costs is not JSON"),
        (("plan", "--plan", "costs.json"), "uma plan makes plans, and repeats none"),
        (("plan", "--partition", "other"), "plans are made by the partitioner 'collage'"),
        (("plan", "--costs", "costs.json", "-o", "none/plan.json"), "the plan cannot be written: No such file"),
        (("plan", "--costs", "costs.json", "--timeline", "none/p.svg"), "the timeline cannot be written: No such file"),
    ],
)
def test_options_that_do_not_go_together(uma: Uma, model: Path, options: Sequence[str], what: str) -> None:
    command, *rest = options
    assert uma(command, "m.py", *TARGETS, *rest).error(2).startswith(what)


@pytest.mark.parametrize(("option", "file"), [("-o", "plan.json"), ("--timeline", "plan.svg")])
def test_a_file_is_written_whole_or_not_at_all(
    uma: Uma, model: Path, option: str, file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # it would be cut off too
    path, before = model / file, set(model.iterdir())
    path.write_text("the one before")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    try:
        said = uma("plan", "m.py", *TARGETS, "--costs", "costs.json", option, file).error(2)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert "cannot be written: File too large" in said
    assert path.read_text() == "the one before" and set(model.iterdir()) == {*before, path}


def test_a_plan_into_a_pipe(uma: Uma, model: Path) -> None:
    os.mkfifo(model / "pipe")
    content: list[bytes] = []
    reader = threading.Thread(target=lambda: content.append((model / "pipe").read_bytes()))
    reader.start()
    assert uma("plan", "m.py", *TARGETS, "--costs", "costs.json", "-o", "pipe").code == 0
    reader.join()
    assert "trials" in json.loads(content[0])


def test_a_form_that_was_lowered_has_nothing_to_place(uma: Uma, model: Path) -> None:
    assert uma("build", "m.py", "--target", "plain", "--dump", "d", "--no-compile").code == 0
    said = uma("plan", "d/5-lower.py", "--target", "plain").error(2)
    assert said.startswith("there is nothing to place")
