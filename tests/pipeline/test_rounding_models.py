"""Consent on real models, and on random ones: offloaded as their TFLite twins are, and right."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests._support.quantised_nets import quantised_net
from tests._support.real_models import FILES, INT8

import uma
from uma.lowering.build_targets import resolve_targets
from uma.pipeline.driver import start_build
from uma.pipeline.loading import load_model
from uma.plugins import default_host
from uma.reports.explain import explain

TARGETS = ("matrix_unit", "stream_machine")
ROUNDING = {"rounding": "fixed-point"}


def offloaded(path: Path, target: str, allow: dict[str, str] | None) -> float:
    members = resolve_targets(f"c -accelerators={target}", default_host())
    loaded = load_model(path, members, allow=allow)
    build = start_build(loaded, members)
    build.run(loaded.form, "lower")
    return explain(build, reasons=False).offloaded


@pytest.mark.soak
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", INT8)
def test_onnx_is_offloaded_as_tflite_is(models: Path, name: str, target: str) -> None:
    """The four int8 MLPerf Tiny models; and nothing of them without consent."""
    tflite, onnx = (models / FILES[f"{name}_int8_{suffix}"] for suffix in ("tflite", "onnx"))
    assert offloaded(onnx, target, None) == 0
    assert offloaded(onnx, target, ROUNDING) == offloaded(tflite, target, None) > 0.89


@pytest.mark.soak
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", INT8)
def test_real_models_are_within_their_bounds(models: Path, name: str, target: str) -> None:
    path = models / FILES[f"{name}_int8_onnx"]
    found = uma.verify(path, f"c -accelerators={target}", allow=ROUNDING, samples=3)
    assert found.ok
    assert found.allowed
    assert max(check.steps for check in found.allowed) <= 1


def check(seed: int, target: str, tmp_path: Path) -> None:
    """Verified; and where nothing can be off, the bytes are those without consent."""
    net, path = quantised_net(seed), tmp_path / "net.onnx"
    path.write_bytes(net.model)
    found = uma.verify(path, f"c -accelerators={target}", net.inputs, allow=ROUNDING, samples=2)
    assert found.ok, net.options
    (plain,), (got,) = (
        uma.build(path, f"c -accelerators={target}", allow=how).run(dict(net.inputs)).values()
        for how in (None, ROUNDING)
    )
    assert got.shape == plain.shape
    if all(one.bound.steps == 0 for one in found.allowed):
        np.testing.assert_array_equal(got, plain)


def test_a_random_network(tmp_path: Path) -> None:
    check(4, "stream_machine", tmp_path)


@pytest.mark.soak
@pytest.mark.parametrize("target", [*TARGETS, "ethosu_like"])
@pytest.mark.parametrize("seed", range(20))
def test_random_networks(seed: int, target: str, tmp_path: Path) -> None:
    check(seed, target, tmp_path)
