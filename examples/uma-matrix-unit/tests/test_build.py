"""Real models on host and matrix unit: as LiteRT's reference kernels compute them, and mostly on the unit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests._support.onnx_builder import run_onnxruntime
from tests._support.residual_nets import SHAPE, residual_block

import uma
from uma.hookspecs import Cost
from uma.lowering.build_targets import resolve_targets
from uma.pipeline.driver import start_build
from uma.pipeline.loading import load_model
from uma.plugins import PluginEntry, PluginHost
from uma.reports.explain import explain

PLUGINS = PluginHost(
    lambda: [
        PluginEntry("c", "uma_cpu_c", "uma-cpu-c", "0.1.0"),
        PluginEntry("matrix_unit", "uma_matrix_unit", "uma-matrix-unit", "0.1.0"),
    ]
)

MODELS = {"kws_ref_model": 0.85, "vww_96_int8": 0.85, "pretrainedResnet_quant": 0.95, "ad01_int8": 0.95}
"""Least share of the multiply-accumulates that runs on the unit: depthwise convolutions stay on the host."""


def test_a_residual_block_runs_on_the_unit_alone(tmp_path: Path) -> None:
    """A convolution with bias, residual and one requantisation is taken whole."""
    path = tmp_path / "block.onnx"
    path.write_bytes(residual_block())
    members = resolve_targets(["matrix_unit", "c"], PLUGINS)
    loaded = load_model(path, members)
    build = start_build(loaded, members)
    build.run(loaded.form)
    found = explain(build)
    assert found.offloaded == 1.0 and found.macs == 3 * 81 * 16 * 16 * 9
    assert {op.op for op in found.ops if op.owner is None} <= {"layout_transform", "transpose"}
    artifact = uma.build(path, ["matrix_unit", "c"], plugins=PLUGINS)
    rng = np.random.default_rng(0)
    for _ in range(3):
        x = rng.integers(-128, 128, SHAPE).astype(np.int8)
        (made,) = artifact.run(x).values()
        np.testing.assert_array_equal(made, run_onnxruntime(path.read_bytes(), {"x": x})[0])
        assert len(np.unique(made)) > 20


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.soak] if name.startswith("vww") else []) for name in MODELS]
)
@pytest.mark.parametrize(
    "target",
    [
        "matrix_unit",
        pytest.param("matrix_unit -activation_bytes=4096 -weight_bytes=2048", marks=pytest.mark.soak),
    ],
)
def test_models_are_exact(models: Path, name: str, target: str, record_property: Callable[[str, object], None]) -> None:
    litert = pytest.importorskip("ai_edge_litert.interpreter", reason="LiteRT, the oracle here, is not installed")
    path = models / "mlperf-tiny" / f"{name}.tflite"
    resolver = litert.OpResolverType.BUILTIN_REF
    interpreter = litert.Interpreter(str(path), experimental_op_resolver_type=resolver)
    interpreter.allocate_tensors()
    (data,), (scores,) = interpreter.get_input_details(), interpreter.get_output_details()
    artifact = uma.build(path, [target, "c"], plugins=PLUGINS)
    rng = np.random.default_rng(0)
    with artifact.session() as session:
        for _ in range(3):
            x = rng.integers(-128, 128, data["shape"]).astype(np.int8)
            interpreter.set_tensor(data["index"], x)
            interpreter.invoke()
            (made,) = session.run(x).values()
            np.testing.assert_array_equal(made, interpreter.get_tensor(scores["index"]))
        counted = session.counters()["matrix_unit"]
    cost = estimated(path, target)
    ratio = f"{cost.cycles:.0f} cycles estimated, {counted['cycles']} counted: {cost.cycles / counted['cycles']:.3f}"
    record_property("measured", f"{target}, {name}: {ratio}")
    assert cost == Cost(cycles=counted["cycles"], bytes_moved=counted["bytes_in"] + counted["bytes_out"])


def estimated(path: Path, target: str) -> Cost:
    """What the unit's plugin tells of all its regions of a model."""
    members = resolve_targets([target, "c"], PLUGINS)
    loaded = load_model(path, members)
    build = start_build(loaded, members)
    build.run(loaded.form, "lower")
    unit, _ = explain(build, costs=True).shares()
    assert unit.cost is not None
    return unit.cost


@pytest.mark.few(2)
@pytest.mark.parametrize(("name", "least"), MODELS.items())
def test_most_of_the_work_is_done_by_the_unit(models: Path, name: str, least: float) -> None:
    loaded = load_model(models / "mlperf-tiny" / f"{name}.tflite")
    build = start_build(loaded, resolve_targets(["matrix_unit", "c"], PLUGINS))
    build.run(loaded.form)
    found = explain(build)
    (unit,) = (share for share in found.shares() if share.label == "matrix_unit")
    assert unit.macs >= least * found.macs
