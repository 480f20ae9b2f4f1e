"""Verification of what is rounded otherwise by consent: exact by its own form, and within its bound of the model's."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests._support.fixed_points import fixed_npu, residual_net
from tests._support.plugins import HOST, entry_of

import uma
from uma.plugins import PluginHost
from uma.relay.transform import fixed_point_view
from uma.targets import FixedPointForm
from uma.verification.numerics_drift import Drifts
from uma.verification.results import Verification

NARROW = FixedPointForm("even", 7)
"""Of which results may be several steps off."""

ROUNDING = {"rounding": "fixed-point"}


@pytest.fixture
def net(tmp_path: Path) -> Path:
    path = tmp_path / "net.onnx"
    path.write_bytes(residual_net())
    return path


def verified(net: Path, form: FixedPointForm = NARROW, **given: Any) -> Verification:
    against = given.pop("against", "builtin")
    entries = [*fixed_npu("npu", form, **given), *entry_of(HOST)]
    plugins = PluginHost(lambda: entries)
    return uma.verify(net, ["npu", "plain"], plugins=plugins, allow=ROUNDING, samples=2, against=against)


def test_what_agrees(net: Path) -> None:
    found = verified(net, against="onnxruntime")
    assert found.ok
    assert [check.layers[0] for check in found.allowed] == ["n_Conv_2", "n_Conv_7", "n_Gemm_19"]
    for check in found.allowed:
        assert (check.ok, check.region[:4]) == (True, "npu_")
        assert 0 < check.equal <= check.compared
    # With multipliers of 7 bits there is something to see: the layers differ, and so does what comes out.
    conv = found.allowed[0]
    assert conv.bound.steps is not None and 1 <= conv.steps <= conv.bound.steps
    assert conv.equal < conv.compared
    assert conv.sample
    (drift,) = found.drifts
    assert (drift.role, drift.compared) == ("output", 6)
    against = dict.fromkeys(check.against for check in found.outputs)
    assert list(against) == ["inspected", "consented", "canonical", "onnxruntime", "first run"]


def test_an_accelerator_that_computes_something_else(net: Path) -> None:
    """One step off is within the bound, and nevertheless wrong: its own fixed points are to be computed exactly."""
    found = verified(net, wrong=True)
    assert not found.ok
    assert any(not check.difference.ok for check in found.kernels)
    assert all(check.ok for check in found.allowed)


def test_a_difference_beyond_the_bound(net: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fixed_point_view, "largest_deviation", lambda *given: 0)
    found = verified(net)
    assert not found.ok
    assert all(check.difference.ok for check in (*found.kernels, *found.outputs))
    assert not found.allowed[0].ok


def test_without_consent_there_is_nothing_of_it(net: Path) -> None:
    entries = [*fixed_npu("npu", NARROW), *entry_of(HOST)]
    found = uma.verify(net, ["npu", "plain"], plugins=PluginHost(lambda: entries), samples=1)
    assert (found.ok, found.allowed, found.drifts) == (True, (), ())
    assert {check.against for check in found.outputs} == {"inspected", "references", "first run"}


def test_drift_of_floats() -> None:
    drifts = Drifts()
    nan, inf = float("nan"), float("inf")
    drifts.add("output", {"y": np.array([1, nan, 2, inf])}, {"y": np.array([1, nan, 2.5, inf])})
    assert [dataclasses.astuple(one) for one in drifts.all] == [("output", "y", 4, 3, 0.5)]
    drifts.add("output", {"y": np.array([1, 2, 3, 4.0])}, {"y": np.array([[1, 2], [3, nan]])})
    assert [dataclasses.astuple(one) for one in drifts.all] == [("output", "y", 8, 6, inf)]
