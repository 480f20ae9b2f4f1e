"""The cheapest placement of whole models on the accelerators that the project has, by costs that repeat."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from tests._support.conv_nets import tc_resnet8, to_onnx
from tests._support.real_models import FILES, INT8

from uma.lowering.members import Member, resolve_targets
from uma.partition import Collage, CostTable, Decision
from uma.pipeline.driver import Model, load_model, start_build
from uma.plugins import default_host
from uma.relay import Call, IRModule, post_order
from uma.relay.expr import macs_of

SLOW = {"launch_ns": 50_000, "link": {"ns": 20_000, "bytes_per_s": 50e6}}
"""An accelerator with a memory of its own, behind a slow link."""


@pytest.fixture(autouse=True)
def microcontroller(monkeypatch: pytest.MonkeyPatch) -> None:
    """The host takes what a microcontroller would: 20 ns for a multiply-accumulate, 100 ns for an element that an op
    gives, 1 us for a call."""

    def ns(module: IRModule, member: Member) -> float:
        calls = [expr for expr in post_order(module.main.body) if isinstance(expr, Call)]
        given = sum(math.prod(field.shape) for call in calls for field in getattr(call.type, "fields", (call.type,)))
        return 1000 + 100 * given + 20 * sum(map(macs_of, calls))

    monkeypatch.setattr("uma.pipeline.prices.measured_ns", ns)


def decided(model: Model, targets: list[str], **told: Any) -> Decision:
    table = CostTable.of({"schema_version": 1, "targets": told})
    members = resolve_targets([*targets, "c"], default_host(), Collage(table))
    loaded = load_model(model, members)
    build = start_build(loaded, members, "partition")
    build.run(loaded.form, "partition")
    assert build.placement is not None and isinstance(build.placement.partitioner, Collage)
    decision = build.placement.partitioner.decision
    assert decision is not None
    # What is built is what was costed: as many regions, of the same ops.
    regions = {region.owner: 0 for region in build.placement.regions.values()}
    for region in build.placement.regions.values():
        regions[region.owner] += 1
    wanted = [offer.owner for offer in decision.chosen if offer.claims]
    assert regions == {owner: wanted.count(owner) for owner in wanted}
    return decision


def check(decision: Decision, orders: int) -> None:
    """Proven, and no dearer than eager in any order, nor than the host alone."""
    assert decision.found.is_proven
    assert len(decision.eager_ns) == orders
    assert decision.cost_ns <= min(decision.eager_ns.values())
    assert decision.host_ns is not None and decision.cost_ns <= decision.host_ns


@pytest.fixture(scope="module")
def speech(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of the shape of TC-ResNet8, of 6 bits."""
    path = tmp_path_factory.mktemp("models") / "speech.onnx"
    path.write_bytes(to_onnx(tc_resnet8()))
    return path


@pytest.mark.soak
def test_two_accelerators_share_a_model(speech: Path) -> None:
    decision = decided(speech, ["ultra_trail -clock_hz=20M", "matrix_unit"])
    check(decision, 2)
    assert decision.cost_ns < min(decision.eager_ns.values())
    assert {offer.owner for offer in decision.chosen} == {"c", "matrix_unit", "ultra_trail"}


@pytest.mark.soak
@pytest.mark.parametrize("told", [{}, {"stream_machine": SLOW, "matrix_unit": SLOW, "ultra_trail": SLOW}])
def test_three_accelerators(speech: Path, told: dict[str, Any]) -> None:
    decision = decided(speech, ["ultra_trail", "matrix_unit", "stream_machine"], **told)
    check(decision, 6)
    assert 1.2 * decision.cost_ns <= min(decision.eager_ns.values())


@pytest.mark.soak
@pytest.mark.parametrize(
    "told", [{}, {"stream_machine": SLOW, "matrix_unit": SLOW}, {"matrix_unit": {"clock_hz": 2e8}}]
)
@pytest.mark.parametrize("name", INT8)
def test_real_models(models: Path, name: str, told: dict[str, Any]) -> None:
    check(decided(models / FILES[f"{name}_int8_tflite"], ["stream_machine", "matrix_unit"], **told), 2)
