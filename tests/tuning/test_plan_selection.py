"""The cheapest plans, built: the first that fits into memory, or the fastest one of those that do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests._support.plugins import HOST, entry_of, module_of, taking, toy

from uma.artifact import Artifact
from uma.contract.lowered import Refuse
from uma.errors import ModelError, NoCompilerError, RequirementError, UsageError
from uma.hookspecs import Cost
from uma.lowering.build_targets import BuildTargets, resolve_targets
from uma.option_values import Limit
from uma.partition import Collage, CostTable, SavedPlan
from uma.pipeline.driver import build_loaded
from uma.pipeline.loading import LoadedModel, with_max_ram
from uma.plugins import PluginHost, default_host
from uma.relay import TensorType, Var, call
from uma.support.json_record import to_json
from uma.tuning import build, build_best, measurement, plan_selection, timing_process, with_costs
from uma.tuning.measurement import Measurement
from uma.tuning.plan_selection import select_plan

X = Var("x", TensorType((4096,), "int8"))
Y = Var("y", TensorType((1,), "int32"))
MODEL = module_of(call("cast", call("add", call("cast", X, dtype="int32"), Y), dtype="int8"))
"""Apart, its kernels need an array of four times the size of what is given."""

OPS = ("cast@0", "add@1", "cast@2")
LOADED = LoadedModel(MODEL, "m")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cache of the test's own."""
    folder = tmp_path / "cache"
    folder.mkdir(mode=0o700)
    monkeypatch.setenv("UMA_CACHE_DIR", str(folder))
    yield folder / "costs"


def collage(**given: int) -> Collage:
    """By a table that has the kernels apart cheapest, then all in one."""
    costs = {f"c: {op}": {"ns": 100} for op in OPS} | {"c: " + " ".join(OPS): {"ns": 320}}
    return Collage(CostTable.from_json({"schema_version": 1, "costs": costs}), **given)


def host(**given: int) -> BuildTargets:
    return with_costs(resolve_targets("c", default_host(), collage(**given)))


def test_the_fastest_of_the_best_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_selection, "run_in_turn", lambda artifacts: [9000.0, 7000.0][: len(artifacts)])
    found = select_plan(LOADED, host(measure=3))
    assert [(one.plan, one.cost_ns, one.measured_ns, one.why) for one in found.trials] == [
        (1, 300, 9000.0, None),
        (2, 320, 7000.0, None),
    ]
    assert found.best == 2 and found.decision is not None and found.decision.cost_ns == 320
    assert to_json(found.choice) == {"plan": 2, "known_as": ["the host alone"], "source": "measured"}
    assert len(build(MODEL, "c", partition=collage(measure=3)).record.calls) == 1
    assert len(build(MODEL, "c", partition=collage()).record.calls) == 3


def test_what_there_is_anyway_is_timed_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each plan once, whatever its costs; and each is what eager, or the host alone, builds."""
    plugins = PluginHost(lambda: [*toy("one", "add"), *toy("two", "add", "cast"), *entry_of(HOST)])
    # Every kernel and region has a cost, so nothing is measured and the order does not depend on this machine.
    parts = [OPS[start:end] for start in range(3) for end in range(start + 1, 4)]
    regions = {f"{label}: {' '.join(ops)}": {"ns": 50 * len(ops)} for label in ("one", "two") for ops in parts}
    costs = {f"plain: {' '.join(ops)}": {"ns": 9 * len(ops)} for ops in parts} | regions
    built: list[Artifact] = []

    def in_turn(artifacts: list[Artifact]) -> list[float]:
        built[:] = artifacts
        return [float(10 - number) for number in range(len(artifacts))]

    monkeypatch.setattr(plan_selection, "_real", lambda members: frozenset(("one", "two")))
    monkeypatch.setattr(plan_selection, "run_in_turn", in_turn)
    partition = Collage(CostTable.from_json({"schema_version": 1, "costs": costs}), measure=1)
    found = select_plan(LOADED, with_costs(resolve_targets(("one", "two", "plain"), plugins, partition)))
    assert [one.known_as for one in found.trials] == [
        ("the host alone",),
        ("eager, one alone",),
        ("eager, two before one", "eager, two alone"),
        ("eager, one before two",),
    ]
    costs_ns = [one.cost_ns for one in found.trials]
    assert costs_ns == sorted(costs_ns) and found.trials[1].plan > 2  # what is between is not built
    assert found.decision is not None and found.decision.cost_ns == costs_ns[-1]
    assert found.best == found.trials[-1].plan and to_json(found.choice) == {
        "plan": found.best,
        "known_as": ["eager, one before two"],
        "source": "measured",
    }
    for artifact, targets in zip(built, (("plain",), ("one", "plain"), ("two", "plain")), strict=False):
        other = build_loaded(LOADED, resolve_targets(targets, plugins))
        assert [(call.kernel, call.device) for call in artifact.record.calls] == [
            (call.kernel, call.device) for call in other.record.calls
        ]
    # What accelerators must have, these must have as well.
    condition = Collage(CostTable.from_json({"schema_version": 1, "costs": costs}), measure=1, offload=0.5)
    found = select_plan(LOADED, with_costs(resolve_targets(("one", "two", "plain"), plugins, condition)))
    names = [name for one in found.trials for name in one.known_as]
    assert "eager, one before two" in names and not {"the host alone", "eager, one alone"} & {*names}


def test_a_build_searches_no_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    """It builds the cheapest one; who calls it selects."""
    monkeypatch.setattr(plan_selection, "run_in_turn", lambda artifacts: [9000.0, 7000.0][: len(artifacts)])
    assert len(build_loaded(LOADED, host(measure=3)).record.calls) == 3
    assert len(build_best(LOADED, host(measure=3)).record.calls) == 1


def test_they_are_timed_in_turn_once(monkeypatch: pytest.MonkeyPatch) -> None:
    found = select_plan(LOADED, host(measure=2))
    times = [one.measured_ns for one in found.trials]
    assert all(ns is not None and ns > 0 for ns in times)
    assert found.trials[found.best - 1].measured_ns == min(times)  # type: ignore[type-var]  # none of them is None, as was just seen
    monkeypatch.setattr(timing_process.TimingProcess, "ask", lambda *_: pytest.fail("measured again"))
    assert select_plan(LOADED, host(measure=2)).trials == found.trials
    artifact = build(MODEL, "c", name="m", partition="eager")
    monkeypatch.setattr(timing_process.TimingProcess, "ask", lambda *_: {"ns": [5.0]})
    assert measurement.run_in_turn([artifact]) == [5.0]
    monkeypatch.setattr(timing_process.TimingProcess, "ask", lambda *_: {"ns": [6.0]})
    assert measurement.run_in_turn([artifact]) == [5.0]
    assert measurement.run_in_turn([artifact], again=True) == [6.0]
    # And what is built computes what the model says.
    rng = np.random.default_rng(0)
    given = {"x": rng.integers(-128, 128, 4096, np.int8), "y": np.full(1, 3, np.int32)}
    outputs = [build(MODEL, "c", name="m", partition=one).run(given) for one in (collage(measure=2), "eager")]
    np.testing.assert_array_equal(*(next(iter(one.values())) for one in outputs))


def test_memory_is_looked_at_best_first() -> None:
    trials = select_plan(with_max_ram(LOADED, Limit(1 << 20, "max_ram")), host()).trials
    assert [one.plan for one in trials] == [1]
    first = trials[0].ram_bytes
    assert first is not None
    found = select_plan(with_max_ram(LOADED, Limit(first - 1, "max_ram")), host())
    assert found.best == 2 and found.trials[0].why == "it takes too much RAM"
    second = found.trials[1].ram_bytes
    assert second is not None and second < first
    assert len(build(MODEL, "c", partition=collage(), max_ram=first - 1).record.calls) == 1
    with pytest.raises(RequirementError, match="none of the 2 plans takes as little RAM as max_ram allows") as error:
        build(MODEL, "c", partition=collage(), max_ram=second - 1)
    assert f"    plan 2 (the host alone), 0.32 us: {second:,} bytes" in error.value.what
    # What takes too much is not timed.
    found = select_plan(with_max_ram(LOADED, Limit(second, "max_ram")), host(measure=2))
    assert [one.measured_ns is None for one in found.trials] == [True, False]


def test_what_cannot_be_built_is_out(monkeypatch: pytest.MonkeyPatch) -> None:
    real = plan_selection._built

    def fails(loaded: LoadedModel, members: BuildTargets) -> Artifact:
        assert isinstance(members.partition, SavedPlan)
        if len(members.partition.record["parts"]) in broken:
            raise ModelError("it is too large")
        return real(loaded, members)

    monkeypatch.setattr(plan_selection, "_built", fails)
    monkeypatch.setattr(plan_selection, "run_in_turn", lambda artifacts: [1.0] * len(artifacts))
    broken = [3]
    found = select_plan(LOADED, host(measure=2))
    assert [one.why for one in found.trials] == ["it is too large", None] and found.best == 2
    broken = [1, 3]
    with pytest.raises(ModelError, match="it is too large"):
        select_plan(LOADED, host(measure=2))


class TestDevices:
    """What has devices is not timed as a whole: simulators take other times than what they stand for."""

    def contest(self, **told: Any) -> plan_selection.PlanSelection:
        def estimate(region: Any) -> Cost:
            return Cost(cycles=100 * len(region.matches))

        plugins = PluginHost(lambda: [*toy("npu", "add", estimate_cost=estimate), *entry_of(HOST)])
        costs = {f"plain: {op}": {"ns": 9000} for op in OPS}
        table = CostTable.from_json({"schema_version": 1, "targets": told, "costs": costs})
        return select_plan(LOADED, with_costs(resolve_targets(["npu", "plain"], plugins, Collage(table, measure=2))))

    def ran(self, monkeypatch: pytest.MonkeyPatch, *found: Measurement | Exception) -> None:
        answers = list(found)

        def ran(artifact: Artifact, real: object) -> Measurement:
            answer = answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer

        monkeypatch.setattr(plan_selection, "run_in_turn", lambda artifacts: None)
        monkeypatch.setattr(plan_selection, "measure_artifact", ran)

    def test_cycles_by_the_clock_launches_and_copies(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ran(monkeypatch, Measurement(500.0, {"npu": 50}), Measurement(4000.0, {}))
        found = self.contest()
        assert [one.measured_ns for one in found.trials] == [500 + 500 + 2000, 4000]
        assert found.best == 1
        self.ran(monkeypatch, Measurement(500.0, {"npu": 50}), Measurement(1000.0, {}))
        link = {"ns": 10, "bytes_per_s": 1e12}
        found = self.contest(npu={"clock_hz": 5e7, "launch_ns": 3, "link": link}, plain={"factor": 2.0})
        assert [one.measured_ns for one in found.trials] == [1000 + 1000 + 3 + 2 * (10 + 17) + 10 + 1, 2000]

    def test_what_cannot_be_told(self, monkeypatch: pytest.MonkeyPatch) -> None:
        hangs = measurement.Unmeasured("it did not end within 60 s")
        self.ran(monkeypatch, hangs, Measurement(4000.0, {}))
        found = self.contest()
        assert [one.why for one in found.trials] == ["it did not end within 60 s", None] and found.best == 2
        self.ran(monkeypatch, hangs, Measurement(1.0, {"npu": None}))
        with pytest.raises(UsageError, match="no plan can be timed") as error:
            self.contest()
        assert error.value.hint == "the first: it did not end within 60 s"
        self.ran(monkeypatch, NoCompilerError("there is no C compiler"))
        with pytest.raises(NoCompilerError):
            self.contest()


def test_one_that_hangs_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def ask(self: timing_process.TimingProcess, told: dict[str, Any], limit_s: float) -> dict[str, Any] | str:
        asked.append(told["do"])
        whole = {"ns": 5.0, "counters": {}}
        return "it did not end" if told["do"] == "whole" or len(asked) == 2 else whole

    monkeypatch.setattr(timing_process.TimingProcess, "ask", ask)
    found = select_plan(LOADED, host(measure=2))
    assert asked == ["whole", "calls", "calls", "calls"]
    assert [one.why for one in found.trials] == ["it did not end", None]


def test_where_there_is_no_contest() -> None:
    eager = resolve_targets("c", default_host())
    assert select_plan(with_max_ram(LOADED, Limit(1, "max_ram")), eager) == plan_selection.PlanSelection(eager)
    given = host()
    assert select_plan(LOADED, given) == plan_selection.PlanSelection(given)


def test_what_is_refused_is_in_no_plan() -> None:
    def refuses(match: Any) -> Any:
        raise Refuse("never")

    hooks = {"patterns": lambda: [taking("npu", "add", refuses)], "estimate_cost": lambda region: Cost(cycles=1)}
    plugins = PluginHost(lambda: [*toy("npu", **hooks), *entry_of(HOST)])
    costs = {f"plain: {op}": {"ns": 9000} for op in OPS}
    given = resolve_targets(
        ["npu", "plain"], plugins, Collage(CostTable.from_json({"schema_version": 1, "costs": costs}))
    )
    given = with_costs(given)
    found = select_plan(with_max_ram(LOADED, Limit(1 << 20, "max_ram")), given)
    assert found.decision is not None and found.decision.cost_ns == 27_000
    assert found.decision.failed == ()
