"""The int8 MLPerf Tiny models on a host, two matrix units that differ, and a stream machine, a layer pinned to each."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from uma.errors import RequirementError
from uma.lowering.build_targets import BuildTargets, resolve_targets
from uma.option_values import Pins
from uma.pipeline.driver import finish_build, start_build
from uma.pipeline.loading import load_model
from uma.plugins import PluginEntry, PluginHost
from uma.reports.explain import Explanation, explain
from uma.verification.reference_runtimes import litert

MODULES = {"c": "uma_cpu_c", "matrix_unit": "uma_matrix_unit", "stream_machine": "uma_stream_machine"}
MODELS = ("ad01_int8", "kws_ref_model", "pretrainedResnet_quant", "vww_96_int8")
TARGET = (
    "c -accelerators='large: matrix_unit','small: matrix_unit -activation_bytes=4096 -weight_bytes=2048',stream_machine"
)
"""One composite string: two instances of one kind, and one of another, beside their host."""

pytestmark = pytest.mark.skipif(
    any(find_spec(module) is None for module in MODULES.values()), reason="the examples are not installed"
)


@pytest.fixture(scope="module")
def members() -> BuildTargets:
    entries = [PluginEntry(kind, module, f"example-{kind}", "0.1.0") for kind, module in MODULES.items()]
    return resolve_targets(TARGET, PluginHost(lambda: entries))


def explained(path: Path, members: BuildTargets, pins: Pins | None = None) -> Explanation:
    loaded = load_model(path, members, pins=pins)
    build = start_build(loaded, members, "lower")
    build.run(loaded.form, "lower")
    return explain(build)


@pytest.mark.few(1)
@pytest.mark.parametrize("name", [*MODELS[:2], *(pytest.param(name, marks=pytest.mark.soak) for name in MODELS[2:])])
@pytest.mark.soak
def test_a_layer_is_pinned_to_each(name: str, models: Path, members: BuildTargets) -> None:
    path = models / "mlperf-tiny" / f"{name}.tflite"
    labels = ("small", "stream_machine", "c", "large")
    assert [member.label for member in members.all] == ["large", "small", "stream_machine", "c"]
    large = dict.fromkeys(layer for op in explained(path, members).ops if op.owner == "large" for layer in op.layers)
    pins = dict(zip(large, labels, strict=False))
    assert len(pins) == len(labels)

    loaded = load_model(path, members, pins=pins)
    build = start_build(loaded, members)
    artifact = finish_build(build, loaded)
    found = explain(build)
    lines = list(found.lines())
    for layer, label in pins.items():
        ops = [op for op in found.ops if layer in op.layers and op.macs]
        assert ops and all(op.owner == (None if label == "c" else label) and op.pin == label for op in ops)
        assert any(line.startswith(f"{layer}: ") and line.endswith(f", pinned to {label}") for line in lines)
    shares = {share.label: share.macs for share in found.shares()}
    pinned_to_small = sum(op.macs for op in found.ops if op.pin == "small")
    assert shares["small"] == pinned_to_small > 0

    rows = {row["label"]: row for row in artifact.metadata["devices"]}
    assert rows["large"]["kind"] == rows["small"]["kind"] == "matrix_unit"
    assert rows["small"]["parameters"][:2] == [4096, 2048] != rows["large"]["parameters"][:2]
    assert artifact.metadata["compile"]["hosts"][0]["sources"].count("mxu_driver.c") == 1

    [row] = artifact.metadata["inputs"]
    reference = litert(path, [tuple(row["shape"])])
    rng = np.random.default_rng(0)
    with artifact.session() as session:
        for _ in range(3):
            x = rng.integers(-128, 127, row["shape"], np.int8, endpoint=True)
            (made,) = session.run({row["name"]: x}).values()
            np.testing.assert_array_equal(made, reference([x])[0])
            counters = session.counters()
            assert set(counters) == {"large", "small", "stream_machine"}
            assert counters["small"]["macs"] == pinned_to_small > 0, "it counts each run"
            assert counters["large"]["macs"] >= shares["large"] > 0
            assert counters["stream_machine"]["macs"] >= shares["stream_machine"] > 0


def test_a_pin_that_cannot_be(models: Path, members: BuildTargets) -> None:
    """Float scales are none that the units multiply with: the error says so, with layer, label, clause and value."""
    path = models / "mlperf-tiny-onnx" / "kws_int8.onnx"
    with pytest.raises(RequirementError) as caught:
        explained(path, members, {"n_Conv_11": "small"})
    lines = caught.value.what.splitlines()
    assert lines[0] == "3 ops cannot run where they are pinned to"
    assert lines[1].startswith(
        "    n_Conv_11: qnn.conv2d is pinned to 'small', which does not take it: matrix_unit.conv2d: clause "
        "powers_of_two: float scales are powers of two, 2**-32 to 2**29; 0."
    )
    assert lines[1].endswith(" is not one")
