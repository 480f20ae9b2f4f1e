"""What plans are said to take of devices, and what their simulators count of the whole."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from benchmarks import planned
from tests._support.conv_nets import tc_resnet8, to_onnx

from uma.artifact.random_inputs import random_inputs
from uma.lowering.build_targets import BuildTarget, resolve_targets
from uma.partition import Collage, CostTable
from uma.pipeline.loading import load_model
from uma.plugins import default_host
from uma.relay import Call, IRModule, post_order
from uma.relay.expr import macs_of
from uma.tuning import with_costs
from uma.tuning.measurement import Measurement


@pytest.fixture(autouse=True)
def microcontroller(monkeypatch: pytest.MonkeyPatch) -> None:
    """The host takes what a microcontroller would: 20 ns for a multiply-accumulate, 100 ns for an element that an op
    gives, 1 us for a call."""

    def ran_on(module: IRModule, member: BuildTarget) -> Measurement:
        calls = [expr for expr in post_order(module.main.body) if isinstance(expr, Call)]
        given = sum(math.prod(field.shape) for call in calls for field in getattr(call.type, "fields", (call.type,)))
        return Measurement(1000 + 100 * given + 20 * sum(map(macs_of, calls)), {})

    monkeypatch.setattr("uma.tuning.build_costs.ran_on", ran_on)


@pytest.mark.soak
@pytest.mark.parametrize(
    ("targets", "source"),
    [
        (["ultra_trail -clock_hz=20M", "matrix_unit"], "estimated"),
        (["stream_machine"], "estimated"),
        (["stream_machine"], "measured"),
    ],
)
def test_cycles_are_as_predicted(tmp_path: Path, targets: list[str], source: str) -> None:
    path = tmp_path / "speech.onnx"
    path.write_bytes(to_onnx(tc_resnet8()))
    labels = [target.split()[0] for target in targets]
    table = CostTable.from_json({"schema_version": 1, "targets": {label: {"source": source} for label in labels}})
    members = with_costs(resolve_targets([*targets, "c"], default_host(), Collage(table, most_unions=10)))
    decision, artifact = planned.decided(load_model(path, members), members)
    assert decision.failed == ()
    profile = artifact.profile(random_inputs(artifact.record.inputs), repeat=1)
    found = {label: profile.counters[label]["cycles"] for label in labels}
    assert planned.cycles_of(decision, members) == found and all(found.values())
