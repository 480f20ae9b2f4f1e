"""What calls of the library cost: timed by collage, alone and in whole plans; estimated where a speed is given."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests._support.plugins import module_of

from uma.lowering.build_targets import resolve_targets
from uma.partition import Collage, CostTable
from uma.pipeline.driver import start_build
from uma.pipeline.loading import LoadedModel
from uma.plugins import PluginEntry, PluginHost
from uma.relay import TensorType, Var, call, const
from uma.reports.explain import explain
from uma.tuning import plan_selection, with_costs
from uma.tuning.plan_selection import select_plan

PLUGINS = PluginHost(
    lambda: [
        PluginEntry("c", "uma_cpu_c", "uma-cpu-c", "0.1.0"),
        PluginEntry("onednn", "uma_onednn", "uma-onednn", "0.1.0"),
    ]
)
X = Var("x", TensorType((1, 8, 8, 4), "float32"))
MODEL = module_of(call("nn.max_pool2d", call("tanh", X), pool_size=(2, 2), strides=(2, 2)))
OPS = ("tanh@0", "nn.max_pool2d@1")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fake_dnnl: Path) -> None:
    """A cache of the test's own, and a library that does nothing."""
    folder = tmp_path / "cache"
    folder.mkdir(mode=0o700)
    monkeypatch.setenv("UMA_CACHE_DIR", str(folder))
    monkeypatch.setenv("UMA_LIBRARY_PATH", str(fake_dnnl))


def told(**costs: int) -> CostTable:
    labels = {"onednn": costs.get("onednn"), "c": costs["host"]}
    table = {f"{label}: {op}": {"ns": ns} for label, ns in labels.items() if ns is not None for op in OPS}
    table[f"c: {' '.join(OPS)}"] = {"ns": 2 * costs["host"]}
    return CostTable.from_json({"schema_version": 1, "costs": table})


@pytest.mark.soak
def test_regions_are_timed() -> None:
    members = with_costs(resolve_targets("c -compiler=onednn", PLUGINS, Collage(told(host=10**9))))
    build = start_build(LoadedModel(MODEL, "m"), members)
    build.run(MODEL, "lower")
    assert build.placement is not None
    decision = build.placement.decision
    assert decision is not None and decision.failed == ()
    chosen = [(one.owner, one.price.source, one.price.launch_ns) for one in decision.chosen]
    assert chosen == [("onednn", "measured", 0)] * 2
    assert all(one.price.ns < 10**9 for one in decision.chosen)


def test_whole_plans_are_timed_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def in_turn(artifacts: list[object]) -> list[float]:
        asked.append(len(artifacts))
        return [9000.0 - number for number in range(len(artifacts))]

    monkeypatch.setattr(plan_selection, "run_in_turn", in_turn)
    members = with_costs(resolve_targets("c -compiler=onednn", PLUGINS, Collage(told(onednn=10, host=20), measure=3)))
    found = select_plan(LoadedModel(MODEL, "m"), members)
    assert asked == [len(found.trials)] and len(found.trials) > 1
    assert found.best == found.trials[-1].plan and all(one.why is None for one in found.trials)


def test_estimates_count_work_and_memory() -> None:
    members = with_costs(resolve_targets("onednn -gflops=2; c", PLUGINS))
    x = Var("x", TensorType((1, 32, 32, 64), "float32"))
    big = call("nn.conv2d", x, const(np.ones((3, 3, 64, 64), np.float32)))
    model = module_of(call("nn.max_pool2d", big, pool_size=(2, 2), strides=(2, 2)))
    build = start_build(LoadedModel(model, "two"), members)
    build.run(model, "lower")
    cost = explain(build, costs=True).shares()[0].cost
    assert cost is not None and cost.seconds is not None
    macs, pooled = 30 * 30 * 64 * 9 * 64, 4 * (30 * 30 + 15 * 15) * 64
    assert cost.seconds == pytest.approx(2 * macs / 2e9 + pooled / 10e9 + 2e-6, rel=1e-6)
