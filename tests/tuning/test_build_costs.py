"""What parts of a model cost: by a table, by the plugins' estimates, by what is run here; and what is built of it."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests._support.plugins import HOST, entry_of, module_of, taking, toy

from uma.artifact import Artifact, Profile
from uma.contract.lowered import Refuse
from uma.errors import ModelError, NoCompilerError, PluginError, UsageError
from uma.hookspecs import Cost
from uma.lowering.build_targets import BuildTargets, resolve_targets
from uma.partition import Collage, CostTable, Decision, Problem, SavedPlan
from uma.partition.collage import plan_record
from uma.partition.cost_provider import Clock
from uma.pipeline.stages import Build
from uma.plugins import PluginHost, default_host
from uma.relay import Call, Expr, IRModule, TensorType, Var, call, post_order
from uma.support.json_record import to_json
from uma.tuning import build, with_costs
from uma.tuning.build_costs import extract_submodel
from uma.tuning.measurement import Measurement, measure_artifact, ran_on

X = Var("x", TensorType((2, 4), "int32"))
Y = Var("y", TensorType((2, 4), "int32"))
CHAIN = module_of(call("nn.relu", call("add", call("nn.relu", X), Y)))
HOSTS = {f"plain: {op}": {"ns": 9000} for op in ("nn.relu@0", "add@1", "nn.relu@2", "nn.relu@0 add@1 nn.relu@2")}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cache of the test's own."""
    folder = tmp_path / "cache"
    folder.mkdir(mode=0o700)
    monkeypatch.setenv("UMA_CACHE_DIR", str(folder))
    yield folder


def table(costs: dict[str, dict[str, float]] | None = None, **targets: dict[str, Any]) -> CostTable:
    return CostTable.from_json({"schema_version": 1, "targets": targets, "costs": HOSTS if costs is None else costs})


def members(estimate: Callable[..., Any] | None, costs: CostTable | None, *targets: str) -> BuildTargets:
    hooks = {} if estimate is None else {"estimate_cost": estimate}
    host = PluginHost(lambda: [*toy("npu", "nn.relu", "add", **hooks), *entry_of(HOST)])
    return resolve_targets([*(targets or ("npu",)), "plain"], host, Collage(costs))


def decided(given: BuildTargets, module: IRModule = CHAIN) -> tuple[Build, Decision]:
    made = Build("m", with_costs(given))
    made.run(module)
    assert made.placement is not None and made.placement.decision is not None
    return made, made.placement.decision


def priced(decision: Decision) -> list[tuple[str, int, int, str]]:
    pool = decision.pool
    return [
        (pool.key(one.owner, one.ops), one.price.ns, one.price.launch_ns, one.price.source) for one in decision.chosen
    ]


def cycles(region: Any) -> Cost:
    """A hundred cycles for each match."""
    return Cost(cycles=100 * len(region.matches))


class TestSources:
    def test_cycles_by_the_clock_and_launches_by_the_attribute(self) -> None:
        whole = "npu: nn.relu@0 add@1 nn.relu@2"
        _, decision = decided(members(cycles, table()))
        assert priced(decision) == [(whole, 3000, 2000, "estimated")]
        _, decision = decided(members(cycles, table(), "npu -clock_hz=1M -launch_ns=7"))
        assert [one[:2] for one in priced(decision)] == [(name, 9000) for name in list(HOSTS)[:3]]
        _, decision = decided(members(cycles, table(), "npu -clock_hz=50M -launch_ns=7"))
        assert priced(decision) == [(whole, 6000, 7, "estimated")]
        _, decision = decided(members(cycles, table(npu={"clock_hz": 1e9, "launch_ns": 1})))
        assert priced(decision) == [(whole, 300, 1, "estimated")]

    def test_seconds(self) -> None:
        _, decision = decided(members(lambda region: Cost(seconds=1e-6, cycles=5), table()))
        assert priced(decision) == [("npu: nn.relu@0 add@1 nn.relu@2", 1000, 2000, "estimated")]

    def test_a_table_goes_first(self) -> None:
        told = table({**HOSTS, "npu: nn.relu@0 add@1 nn.relu@2": {"ns": 5}, "npu: add@1": {"cycles": 2}})
        _, decision = decided(members(cycles, told))
        assert priced(decision) == [("npu: nn.relu@0 add@1 nn.relu@2", 5, 2000, "table")]
        prices = {decision.pool.key(one.owner, one.ops): one.price for one in decision.pool.offers}
        assert (prices["npu: add@1"].ns, prices["npu: add@1"].source) == (20, "table")

    def test_a_table_of_a_model(self) -> None:
        """It names targets by their models; what it says of a label goes first."""
        whole = "nn.relu@0 add@1 nn.relu@2"
        told = table({**HOSTS, f"k210: {whole}": {"ns": 5}, "k210: add@1": {"cycles": 2}}, k210={"launch_ns": 3})
        _, decision = decided(members(cycles, told, "npu -model=k210"))
        assert priced(decision) == [(f"npu: {whole}", 5, 3, "table")] and decision.unknown == ()
        _, decision = decided(members(cycles, told, "npu -model=k230"))
        assert len(decision.unknown) == 1 and "tells of 'k210'" in decision.unknown[0]
        labelled = told.by_label({"one": "k210", "two": "k210"})
        assert set(labelled.ns) - set(HOSTS) == {f"one: {whole}", f"two: {whole}"} and set(labelled.cycles) == {
            "one: add@1", "two: add@1"
        }  # fmt: skip
        both = table({f"npu: {whole}": {"ns": 7}, f"k210: {whole}": {"ns": 5}}).by_label({"npu": "k210"})
        assert dict(both.ns) == {f"npu: {whole}": 7}
        # A label that is another target's model keeps its costs.
        assert set(told.by_label({"k210": "x", "npu": "k210"}).targets) == {"k210", "npu"}

    def test_cycles_and_launches_of_a_host(self) -> None:
        told = {**HOSTS, "plain: add@1": {"cycles": 70}}

        def price(costs: CostTable) -> tuple[int, int]:
            _, decision = decided(members(cycles, costs))
            prices = {decision.pool.key(one.owner, one.ops): one.price for one in decision.pool.offers}
            return prices["plain: add@1"].ns, prices["plain: add@1"].launch_ns

        assert price(table(told)) == (700, 0)
        assert price(table(told, plain={"clock_hz": 1e6, "launch_ns": 30})) == (70_000, 30)

    def test_clocks_and_the_note_where_this_machine_is_compared_with_a_device(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def known(estimate: Callable[..., Any] | None, costs: CostTable) -> tuple[list[Clock], list[str]]:
            _, decision = decided(members(estimate, costs))
            record = plan_record(decision, {}, {})
            assert record["clocks"] == [to_json(clock) for clock in decision.clocks]
            assert record["notes"] == list(decision.notes)
            return list(decision.clocks), [note.partition(";")[0] for note in decision.notes]

        npu = Clock("npu", "plugin", 1e8)
        assert known(cycles, table()) == ([npu, Clock("plain", "table")], [])
        ran = Measurement(4.0, {})
        monkeypatch.setattr("uma.tuning.build_costs.ran_on", lambda module, member: ran)
        monkeypatch.setattr(
            "uma.tuning.build_costs.measure_region", lambda module, members, consent: Measurement(4.0, {"npu": 9})
        )
        note = "the times of plain are of this machine, those of npu of a simulated or estimated device"
        assert known(cycles, table({})) == ([npu, Clock("plain", "machine")], [note])
        seconds = Clock("npu", "plugin")
        assert known(lambda region: Cost(seconds=1.0), table({})) == ([seconds, Clock("plain", "machine")], [note])
        simulator = Clock("npu", "simulator", 2e8)
        assert known(None, table({}, npu={"clock_hz": 2e8})) == ([simulator, Clock("plain", "machine")], [note])
        scaled = Clock("plain", "machine", None, 20.0)
        assert known(cycles, table({}, plain={"factor": 20})) == ([npu, scaled], [])
        monkeypatch.setattr("uma.tuning.build_costs.measure_region", lambda module, members, consent: ran)
        assert known(None, table({})) == ([Clock("npu", "machine"), Clock("plain", "machine")], [])
        ran = Measurement(4.0, {}, 25e6)
        assert known(cycles, table({})) == ([npu, Clock("plain", "emulator", 25e6)], [])

    def test_what_a_table_tells_of_that_there_is_not(self) -> None:
        told = {**HOSTS, "plain: add@0": {"ns": 1}, "plain: add@1 nn.relu@0": {"ns": 1}, "npu: add@01": {"cycles": 1}}
        given = table({**told, "plane: add@1": {"ns": 1}}, npv={"launch_ns": 1})
        chosen = members(cycles, given)
        _, decision = decided(chosen)
        hint = "which is not a target of this build: did you mean"
        assert (
            decision.unknown
            == decision.cautions
            == (
                f"the table of costs tells of 'npv', {hint} 'npu'? there are plain, npu",
                f"the table of costs tells of 'plane', {hint} 'plain'? there are plain, npu",
                "the table of costs tells of 3 parts that are none of this model: 'plain: add@0'",
            )
        )
        assert isinstance(chosen.partition, Collage) and chosen.partition.decision is decision
        _, decision = decided(members(cycles, table({**HOSTS, "plain: 1": {"ns": 1}})))
        assert decision.cautions == ("the table of costs tells of a part that is none of this model: 'plain: 1'",)

    def test_copies_by_the_link_of_a_table(self) -> None:
        link = {"ns": 100, "bytes_per_s": 32e6}  # 32 bytes in a microsecond
        _, decision = decided(members(cycles, table(npu={"link": link, "launch_ns": 0})))
        assert priced(decision) == [("npu: nn.relu@0 add@1 nn.relu@2", 3000, 0, "estimated")]
        assert decision.copies_ns == 3 * 1100

    def test_what_nobody_estimates_is_measured(self, monkeypatch: pytest.MonkeyPatch) -> None:
        found = Measurement(44.4, {})
        monkeypatch.setattr("uma.tuning.region_measurement.measure_artifact", lambda artifact, real: found)
        for estimate in (None, lambda region: None):
            _, decision = decided(members(estimate, table()))
            # It computes on the host: nothing else is launched.
            assert priced(decision) == [("npu: nn.relu@0 add@1 nn.relu@2", 44, 0, "measured")]
        found = Measurement(44.4, {"npu": 100})
        _, decision = decided(members(None, table()))
        assert priced(decision) == [("npu: nn.relu@0 add@1 nn.relu@2", 1044, 2000, "measured")]
        found = Measurement(44.4, {"npu": None})
        what = "nobody tells what a region of 'npu' costs: its plugin does not estimate it, and it cannot be measured: "
        with pytest.raises(UsageError, match=f"{what}the simulator of 'npu' counts no cycles"):
            decided(members(None, table()))
        with pytest.raises(
            UsageError, match="nobody tells what a region of 'npu' costs: it cannot be measured: the sim"
        ):
            decided(members(cycles, table(npu={"source": "measured"})))
        monkeypatch.undo()
        device = SimpleNamespace(label="npu", shown="npu mmio", simulated=False)
        artifact: Any = SimpleNamespace(record=SimpleNamespace(devices=[device]))
        with pytest.raises(UsageError, match=r"device 'npu' \(npu mmio\) has no simulator here"):
            measure_artifact(artifact)

    def test_what_cannot_be_measured_without_a_compiler(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def fails(artifact: Artifact, real: object = ()) -> Measurement:
            raise NoCompilerError("there is no C compiler")

        monkeypatch.setattr("uma.tuning.region_measurement.measure_artifact", fails)
        with pytest.raises(UsageError, match=r"nobody tells .* cannot be measured: there is no C compiler"):
            decided(members(None, table()))
        monkeypatch.setattr("uma.tuning.measurement.measure_artifact", fails)
        with pytest.raises(UsageError, match=r"nobody tells what 'plain: nn\.relu@0' costs, .* there is no C compiler"):
            decided(members(cycles, None))

    def test_what_is_refused_when_it_is_built_alone_is_no_part(self) -> None:
        def refuses(match: Any) -> Any:
            raise Refuse("never")

        host = PluginHost(lambda: [*toy("npu", patterns=lambda: [taking("npu", "add", refuses)]), *entry_of(HOST)])
        _, decision = decided(resolve_targets(["npu", "plain"], host, Collage(table())))
        assert {offer.owner for offer in decision.pool.offers} == {"plain"} and decision.failed == ()

    def test_what_has_another_form_alone(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def other(problem: Problem, nodes: Sequence[Expr]) -> tuple[IRModule, dict[Expr, Expr]]:
            module, became = extract_submodel(problem, nodes)
            return module, dict.fromkeys(became, X)

        monkeypatch.setattr("uma.tuning.build_costs.extract_submodel", other)
        _, decision = decided(members(None, table()))
        assert {offer.owner for offer in decision.chosen} == {"plain"}
        assert (
            "npu: nn.relu@0 could not be measured: alone it has another form, which its patterns do not match"
            in decision.failed
        )

    def test_what_is_refused_when_it_is_estimated_is_no_part(self) -> None:
        def estimate(region: Any) -> Cost:
            if len(region.matches) > 1:
                raise Refuse("one at a time")
            return Cost(cycles=1)

        _, decision = decided(members(estimate, table(npu={"launch_ns": 0})))
        assert [one[0] for one in priced(decision)] == ["npu: nn.relu@0", "npu: add@1", "npu: nn.relu@2"]

    def test_an_estimate_that_fails(self) -> None:
        with pytest.raises(PluginError, match="failed in hook estimate_cost: ZeroDivisionError"):
            decided(members(lambda region: 1 / 0, table()))


class TestMeasured:
    def test_a_host_is_timed_here_once(self, monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
        given = members(cycles, None, "npu -launch_ns=2000000000")
        _, decision = decided(given)
        assert {one[3] for one in priced(decision)} == {"measured"}
        assert all(0 < one[1] < 1e9 for one in priced(decision))
        kept = sorted((cache / "costs").glob("*.json"))
        assert len(kept) == 2  # a relu, and an addition: each a kernel of its own
        monkeypatch.setattr("uma.tuning.timing_process.TimingProcess.ask", lambda *_: pytest.fail("measured again"))
        again = decided(members(cycles, None, "npu -launch_ns=2000000000"))[1]
        assert priced(again) == priced(decision)
        slow = decided(members(cycles, table({}, plain={"factor": 3.0}), "npu -launch_ns=2000000000"))[1]
        assert slow.host_ns == pytest.approx(3 * (decision.host_ns or 0), abs=3)
        kept[0].write_text("nothing")  # what is damaged is measured anew
        with pytest.raises(pytest.fail.Exception, match="measured again"):
            decided(members(cycles, None, "npu -launch_ns=2000000000"))

    def test_where_it_cannot_be_run(self) -> None:
        given = resolve_targets("c -mcpu=cortex-m7", default_host(), Collage())
        with pytest.raises(UsageError, match=r"'c: nn\.relu@0' costs, and it cannot be measured") as error:
            decided(given)
        assert (error.value.hint or "").startswith("give a table of costs, or the factor of its target in one")

    def test_several_that_cannot_be_built_are_costed_apart(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def ran_on(module: IRModule, member: object) -> Measurement:
            if sum(isinstance(expr, Call) for expr in post_order(module.main.body)) > most:
                raise ModelError("too large")
            return Measurement(70.4, {})

        monkeypatch.setattr("uma.tuning.build_costs.ran_on", ran_on)
        most = 1
        _, decision = decided(resolve_targets("c", default_host(), Collage()))
        assert [one[1] for one in priced(decision)] == [70, 70, 70]
        most = 0
        with pytest.raises(ModelError, match="too large"):
            decided(resolve_targets("c", default_host(), Collage()))

    def test_what_is_not_counted(self, monkeypatch: pytest.MonkeyPatch) -> None:
        uncounted = Profile((), {}, {}, uncounted="the emulator has no counters")
        monkeypatch.setattr(Artifact, "profile", lambda *_, **__: uncounted)
        monkeypatch.setattr(Artifact, "is_native", False)
        with pytest.raises(
            UsageError, match="cannot be measured: its instructions cannot be counted: the emulator has"
        ):
            decided(resolve_targets("c", default_host(), Collage()))

    def test_a_kernel_is_timed_by_itself(self) -> None:
        member = resolve_targets("c", default_host()).host
        assert 0 <= ran_on(CHAIN, member).ns < 1e9


class TestBuilt:
    def test_hosts_compute_together_what_was_chosen(self) -> None:
        parts = {"c: nn.relu@0": 4, "c: add@1": 4, "c: nn.relu@2": 4, "c: nn.relu@0 add@1 nn.relu@2": 50}
        kernels = {}
        for whole in (50, 5):
            parts["c: nn.relu@0 add@1 nn.relu@2"] = whole
            told = table({name: {"ns": ns} for name, ns in parts.items()})
            made = build(CHAIN, "c", partition=Collage(told))
            kernels[whole] = len(made.record.calls)
            given = {"x": np.arange(8, dtype=np.int32).reshape(2, 4) - 4, "y": np.ones((2, 4), np.int32)}
            (found,) = made.run(given).values()
            np.testing.assert_array_equal(found, np.maximum(np.maximum(given["x"], 0) + 1, 0))
        assert kernels == {50: 3, 5: 1}

    def test_another_host_computes_what_it_is_cheaper_at(self) -> None:
        told = {f"{host}: {op}": {"ns": ns} for host, ns in (("c", 9), ("other", 7)) for op in ("nn.relu@0", "add@1")}
        told |= {"c: nn.relu@2": {"ns": 3}, "other: nn.relu@2": {"ns": 8}, "other: nn.relu@0 add@1": {"ns": 5}}
        told |= {f"{host}: nn.relu@0 add@1 nn.relu@2": {"ns": 50} for host in ("c", "other")}
        targets = ["c", "other: c -opt=1"]
        given = {"x": np.arange(8, dtype=np.int32).reshape(2, 4) - 4, "y": np.ones((2, 4), np.int32)}
        chosen = resolve_targets(targets, default_host(), Collage(table(told)))
        _, decision = decided(chosen)
        assert [one[0] for one in priced(decision)] == ["other: nn.relu@0", "other: add@1", "c: nn.relu@2"]
        plan = SavedPlan(json.loads(json.dumps(plan_record(decision, chosen.texts, chosen.versions))))
        for partition in (Collage(table(told)), plan):
            artifact = build(CHAIN, targets, partition=partition)
            assert [call.host for call in artifact.record.calls] == ["other", "other", "c"]
            (found,) = artifact.run(given).values()
            np.testing.assert_array_equal(found, np.maximum(np.maximum(given["x"], 0) + 1, 0))

    def test_of_another_host_nothing_need_be_known(self) -> None:
        told = {name.replace("plain", "c"): cost for name, cost in HOSTS.items()}
        given = resolve_targets(["c", "other: c -mcpu=cortex-m7"], default_host(), Collage(table(told)))
        _, decision = decided(given)
        assert {offer.owner for offer in decision.pool.offers} == {"c"}
        assert decision.failed[0].startswith("other: nn.relu@0 could not be measured: ")

    def test_what_is_refused_when_it_is_lowered_is_placed_anew(self) -> None:
        def refuses(match: Any) -> Any:
            raise Refuse("never")

        patterns = [taking("npu", "nn.relu"), taking("npu", "add", refuses)]
        host = PluginHost(lambda: [*toy("npu", patterns=lambda: patterns, estimate_cost=cycles), *entry_of(HOST)])
        given = resolve_targets(["npu -launch_ns=0", "plain"], host, Collage(table()))
        made, decision = decided(given)
        assert [one[0].partition(":")[0] for one in priced(decision)] == ["npu", "plain", "npu"]
        assert made.placement is not None and [one.reason for one in made.placement.withdrawn].count("never")


class TestPlans:
    def plan(self, **given: Any) -> dict[str, Any]:
        chosen = members(cycles, table())
        _, decision = decided(chosen)
        plan = plan_record(decision, chosen.texts, chosen.versions)
        again: dict[str, Any] = json.loads(json.dumps(plan))
        assert again == plan
        return {**again, **given}

    def replayed(self, plan: dict[str, Any], module: IRModule = CHAIN, *ops: str) -> Build:
        host = PluginHost(lambda: [*toy("npu", *(ops or ("nn.relu", "add"))), *entry_of(HOST)])
        made = Build("m", resolve_targets(["npu", "plain"], host, SavedPlan(plan)))
        made.run(module)
        return made

    def test_a_plan_is_repeated_without_costs(self) -> None:
        plan = self.plan()
        assert (plan["cost_ns"], plan["bound_ns"], plan["copies_ns"]) == (5000, 5000, 0)
        assert [(one["order"], one["ns"]) for one in plan["eager_ns"]] == [(["npu"], 5000)]
        assert plan["host_ns"] == 27_000
        (part,) = plan["parts"]
        assert (part["queue"], part["start_ns"], part["duration_ns"]) == ("npu", 0, 5000)
        assert part["name"] == "npu: nn.relu@0 add@1 nn.relu@2" and part["source"] == "estimated"
        assert part["runner_up"]["more_ns"] > 0
        placement = self.replayed(plan).placement
        assert placement is not None and [len(one.claims) for one in placement.regions.values()] == [3]
        # Its costs are a table.
        costs = CostTable.from_json({"schema_version": 1, "costs": plan["costs"]})
        assert costs.ns["plain: add@1"] == 9000

    def test_hosts_repeat_what_they_computed_together(self) -> None:
        names = ["nn.relu@0", "add@1", "nn.relu@2", "nn.relu@0 add@1 nn.relu@2"]
        told = table({f"c: {name}": {"ns": 4 if " " not in name else 50} for name in names})
        chosen = resolve_targets("c", default_host(), Collage(told))
        _, decision = decided(chosen)
        plan = SavedPlan(plan_record(decision, chosen.texts, chosen.versions))
        assert len(build(CHAIN, "c", partition=plan).record.calls) == 3
        assert str(plan) == "the plan" and str(SavedPlan({}, "p.json")) == "the plan p.json"

    def test_another_model(self) -> None:
        with pytest.raises(UsageError, match="the plan is for another model: op 1 of the model is 'multiply Tensor"):
            self.replayed(self.plan(), module_of(call("nn.relu", call("multiply", call("nn.relu", X), Y))))
        with pytest.raises(UsageError, match="another model: the model has 2 ops, and the plan 3"):
            self.replayed(self.plan(), module_of(call("add", call("nn.relu", X), Y)))

    @pytest.mark.parametrize(
        ("change", "what"),
        [
            (lambda parts: parts.clear(), r"op 0, 'nn\.relu Tensor\[\(2, 4\), int32\]', is in no part of it"),
            (lambda parts: parts.append(parts[0]), r"op 0 is in 'npu: nn\.relu@0 add@1 .*' and in 'npu: nn\.relu@0 "),
            (lambda parts: parts[0]["ops"].pop(), "the patterns of 'npu: nn.relu@0 .*' have other ops than it"),
            (lambda parts: parts[0]["patterns"].clear(), "without a pattern on 'npu', which is not a host"),
        ],
    )
    def test_parts_that_are_not_the_model(self, change: Callable[[list[dict[str, Any]]], None], what: str) -> None:
        plan = self.plan()
        change(plan["parts"])
        with pytest.raises(UsageError, match=what):
            self.replayed(plan)

    def test_a_target_that_takes_less(self) -> None:
        with pytest.raises(UsageError, match=r"the plan does not fit: 'npu' does not take 'npu: nn\.relu@0 add@1"):
            self.replayed(self.plan(), CHAIN, "nn.relu")

    def test_a_target_that_refuses_what_it_has_in_the_plan(self) -> None:
        def refuses(match: Any) -> Any:
            raise Refuse("not any more")

        patterns = [taking("npu", "nn.relu"), taking("npu", "add", refuses)]
        host = PluginHost(lambda: [*toy("npu", patterns=lambda: patterns), *entry_of(HOST)])
        made = Build("m", resolve_targets(["npu", "plain"], host, SavedPlan(self.plan())))
        with pytest.raises(
            UsageError, match=r"the plan does not fit: 'npu' does not take 'npu: nn\.relu@0 add@1"
        ) as error:
            made.run(CHAIN)
        assert "not any more" in str(error.value)

    def test_other_targets_and_versions(self) -> None:
        plan = SavedPlan(self.plan(), "p.json")
        texts, versions = plan.record["targets"], plan.record["plugins"]
        assert plan.differences(texts, versions) == []
        assert plan.differences({**texts, "npu": "npu -launch_ns=1"}, {**versions, "uma-npu": "2.0"}) == [
            "the plan was made with target npu npu, which is npu -launch_ns=1 now",
            "the plan was made with plugin uma-npu 1.0, which is 2.0 now",
        ]
        assert plan.differences(texts, {}) == [
            f"the plan was made with plugin {name} 1.0, which is not there now" for name in versions
        ]
        with pytest.raises(UsageError, match="on 'npu', which is not a target of this build"):
            plan.differences({"plain": "plain"}, versions)
        with pytest.raises(UsageError, match="the plan has parts on 'npu', which is not an accelerator"):
            build(CHAIN, "c", partition=plan)

    @pytest.mark.parametrize(
        "change",
        [
            {"plan_version": 2},
            {"parts": [{"name": "p", "target": "npu", "ops": [3], "patterns": []}]},
            {"parts": [{"name": "p", "target": "npu", "ops": [0], "patterns": [{"pattern": 1, "ops": [0]}]}]},
            {"parts": None},
            {"ops": {}},
            {"plugins": {"a": 1}},
        ],
    )
    def test_files_that_hold_none(self, change: dict[str, Any], tmp_path: Path) -> None:
        path = tmp_path / "plan.json"
        path.write_text(json.dumps(self.plan()))
        assert SavedPlan.read(path).record == self.plan()
        path.write_text(json.dumps(self.plan(**change)))
        what = (
            "is of version 2, and this UMA repeats those of version 1" if "plan_version" in change else "holds no plan"
        )
        with pytest.raises(UsageError, match=what):
            SavedPlan.read(path)


class TestTables:
    @pytest.mark.parametrize(
        ("given", "what"),
        [
            ([], "a table of costs is a list|a table of costs is .*, not a JSON object"),
            ({}, "does not say that its schema_version is 1"),
            ({"schema_version": 1, "prices": {}}, "has 'prices', which is nothing"),
            ({"schema_version": 1, "costs": {"c: add@0": 5}}, "the cost of 'c: add@0' is 5, not a JSON object"),
            ({"schema_version": 1, "costs": {"c: add@0": {}}}, "the table has no cost of 'c: add@0'"),
            ({"schema_version": 1, "costs": {"a": {"ns": 1, "cycles": 2}}}, "the table has two costs of 'a'"),
            ({"schema_version": 1, "costs": {"a": {"ns": -1}}}, "the cost of 'a' is -1, not a number of nanoseconds"),
            ({"schema_version": 1, "costs": {"a": {"ns": math.nan}}}, "the cost of 'a' is nan, not a number"),
            ({"schema_version": 1, "costs": {"a": {"ns": True}}}, "the cost of 'a' is True, not a number"),
            ({"schema_version": 1, "costs": {"a": {"cycles": math.inf}}}, "the cycles of 'a' is inf, not a number"),
            ({"schema_version": 1, "targets": {"n": {"clock_hz": 0}}}, "clock_hz of 'n' is 0, not a number from 1 on"),
            ({"schema_version": 1, "targets": {"n": {"factor": "2"}}}, "the factor of 'n' is '2', not a number"),
            ({"schema_version": 1, "targets": {"n": {"link": {"ns": 1}}}}, "the link of 'n' has no bytes_per_s"),
        ],
    )
    def test_what_is_none(self, given: object, what: str) -> None:
        with pytest.raises(UsageError, match=what):
            CostTable.from_json(given)

    def test_files(self, tmp_path: Path) -> None:
        path = tmp_path / "costs.json"
        for text, what in (
            ('{"schema_version": 1, "costs": {"a": {"ns": 1}, "a": {"ns": 2}}}', "has 'a' twice in one object"),
            ("{", "the table of costs is not JSON"),
            ("[" * 100_000, "the table of costs is not JSON"),
            ('{"schema_version": 1, "costs": {"a": {"ns": NaN}}}', "the cost of 'a' is nan"),
        ):
            path.write_text(text)
            with pytest.raises(UsageError, match=what) as error:
                CostTable.read(path)
            assert error.value.where == str(path)
        with pytest.raises(UsageError, match="the table of costs does not exist"):
            CostTable.read(tmp_path / "none.json")
        path.write_text('{"schema_version": 1, "costs": {"a": {"ns": 2.5}}, "targets": {"n": {"launch_ns": 3}}}')
        read = CostTable.read(path)
        assert (read.ns["a"], read.targets["n"].launch_ns) == (2, 3)

    def test_collage_takes_a_path(self, tmp_path: Path) -> None:
        path = tmp_path / "costs.json"
        parts = {"nn.relu@0": 4, "add@1": 4, "nn.relu@2": 4, "nn.relu@0 add@1 nn.relu@2": 50}
        costs = {f"c: {name}": {"ns": ns} for name, ns in parts.items()}
        path.write_text(json.dumps({"schema_version": 1, "costs": costs}))
        for given in (path, str(path)):
            assert Collage(costs=given).table == CostTable.read(path)
        partitioner = Collage(costs=path)
        path.unlink()  # it was read
        _, decision = decided(resolve_targets("c", default_host(), partitioner))
        assert [one[0] for one in priced(decision)] == ["c: nn.relu@0", "c: add@1", "c: nn.relu@2"]

    def test_collage_takes_no_other_costs(self, tmp_path: Path) -> None:
        """The caller is to blame, also for costs that are set later."""
        with pytest.raises(UsageError, match="the table of costs does not exist") as caught:
            Collage(costs=tmp_path / "none.json")
        assert caught.value.where == str(tmp_path / "none.json")
        wrong: Any = {"schema_version": 1}
        with pytest.raises(UsageError, match="costs of Collage is a value of type dict, not a CostTable or the path"):
            Collage(costs=wrong)
        partitioner = Collage()
        partitioner.costs = wrong
        with pytest.raises(UsageError, match="costs of Collage is a value of type dict"):
            build(CHAIN, "c", partition=partitioner)

    def test_a_table_that_is_too_large(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("uma.partition.collage.table._MOST_BYTES", 10)
        (tmp_path / "costs.json").write_text(" " * 11)
        with pytest.raises(UsageError, match="is larger than"):
            CostTable.read(tmp_path / "costs.json")


def test_a_partitioner_receives_the_costs() -> None:
    """Of the plugin, without a table."""
    told: list[object] = []

    def asking(problem: Problem) -> list[tuple[Any, ...]]:
        (owner,) = problem.owners
        region = [next(iter(problem.candidates(owner)))]
        assert problem.costs is not None
        price = problem.costs.region(problem, region, "a part")
        told.append((list(problem.costs.hosts), getattr(price, "ns", None)))
        return []

    host = PluginHost(lambda: [*toy("npu", "nn.relu", "add", estimate_cost=cycles), *entry_of(HOST)])
    made = Build("m", with_costs(resolve_targets(["npu", "plain"], host, asking)))
    made.run(CHAIN, "partition")
    assert told == [(["plain"], 1000)] and made.placement is not None and made.placement.decision is None
