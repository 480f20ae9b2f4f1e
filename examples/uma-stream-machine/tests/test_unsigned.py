"""Accelerators of int8 take of a model of uint8 what they take of the same model of int8."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests._support import unsigned_twins
from tests._support.onnx_builder import run_onnxruntime
from tests._support.tflite_builder import litert

import uma
from uma.lowering.build_targets import resolve_targets
from uma.pipeline.driver import start_build
from uma.pipeline.loading import load_model
from uma.plugins import PluginEntry, PluginHost
from uma.reports.explain import explain

PLUGINS = PluginHost(
    lambda: [
        PluginEntry("c", "uma_cpu_c", "uma-cpu-c", "0.1.0"),
        PluginEntry("matrix_unit", "uma_matrix_unit", "uma-matrix-unit", "0.1.0"),
        PluginEntry("stream_machine", "uma_stream_machine", "uma-stream-machine", "0.1.0"),
    ]
)

TARGETS = {"matrix": ["matrix_unit"], "stream": ["stream_machine"]}


@pytest.fixture(autouse=True)
def matrix_unit() -> None:
    """The other accelerator is a package of its own."""
    pytest.importorskip("uma_matrix_unit", reason="the matrix unit is not installed")


def written(folder: Path, kind: str, dtype: str) -> Path:
    path = folder / f"{dtype}.{kind}"
    path.write_bytes({"tflite": unsigned_twins.tflite, "onnx": unsigned_twins.qdq}[kind](dtype))
    return path


def offloaded(model: Path, targets: list[str]) -> dict[str, int]:
    """The multiply-accumulates of each target."""
    loaded = load_model(model)
    build = start_build(loaded, resolve_targets([*targets, "c"], PLUGINS))
    build.run(loaded.form)
    return {share.label: share.macs for share in explain(build).shares()}


@pytest.mark.parametrize("kind", ["tflite", "onnx"])
@pytest.mark.parametrize("targets", TARGETS)
def test_the_offloaded_share_is_that_of_the_twin(tmp_path: Path, kind: str, targets: str) -> None:
    signed, unsigned = (offloaded(written(tmp_path, kind, dtype), TARGETS[targets]) for dtype in ("int8", "uint8"))
    assert unsigned == signed
    assert signed["c"] == 0 < sum(signed.values())


@pytest.mark.parametrize("kind", ["tflite", "onnx"])
@pytest.mark.parametrize("targets", TARGETS)
@pytest.mark.soak
def test_a_model_of_uint8_is_exact(tmp_path: Path, kind: str, targets: str) -> None:
    model = written(tmp_path, kind, "uint8")
    with uma.build(model, [*TARGETS[targets], "c"], plugins=PLUGINS).session() as session:
        for seed in range(3):
            x = unsigned_twins.frame("uint8", seed, channels_first=kind == "onnx")
            (made,) = session.run(x).values()
            if kind == "onnx":
                (wanted,) = run_onnxruntime(model.read_bytes(), {"x": x}, optimise=False)
            else:
                (wanted,) = litert(model.read_bytes(), x)
            assert made.dtype == np.uint8
            np.testing.assert_array_equal(made, wanted)
