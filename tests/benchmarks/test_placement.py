"""The benchmark of placements: hosts whose costs repeat, and what it prints."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from benchmarks import __main__ as bench
from benchmarks import growth, placement
from benchmarks.hosts import KEPT, Formula, Kept, OnHost, key_of

from uma.partition import Collage
from uma.relay import Call, Expr, TensorType, Var, call

X = Var("x", TensorType((1, 4, 4, 8), "int8"))
WEIGHT = Var("w", TensorType((1, 1, 1, 8), "int8"))
RELU = call("nn.relu", X)
DEPTHWISE = call("qnn.conv2d", X, WEIGHT, groups=8)


def calls(*given: Expr) -> list[Call]:
    return [one for one in given if isinstance(one, Call)]


def test_a_host_by_a_formula() -> None:
    host = Formula(kernel=1000, product=10, depthwise=20, element=3)
    assert host.kernel_ns(calls(RELU)) == 1000 + 3 * 128
    assert host.kernel_ns(calls(DEPTHWISE, RELU)) == 1000 + 20 * 128 + 3 * 128 * 2


def test_a_host_of_which_times_were_kept(tmp_path: Path) -> None:
    path = tmp_path / "times.json"
    path.write_text(json.dumps({"kernels": [[*key_of(calls(DEPTHWISE)[0]), 500.0]]}))
    host = Kept(path, factor=0.5, element=2.0, kernel=7.0)
    assert host.kernel_ns(calls(DEPTHWISE, RELU)) == 250
    assert host.kernel_ns(calls(RELU)) == 7 + 2 * 128


def test_the_times_that_are_kept_are_times() -> None:
    kept = json.loads(KEPT.read_text())["kernels"]
    assert len({(op, macs, given) for op, macs, given, _ in kept}) == len(kept) > 20
    assert all(ns > 0 and macs >= 0 for _, macs, _, ns in kept)


def test_without_a_host_the_sources_are_those_of_collage(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    monkeypatch.setattr(Collage, "__call__", lambda self, problem: asked.append(problem.costs))
    costs = object()
    for partitioner in (OnHost(), OnHost(host=Formula(1, 1, 1, 1))):
        partitioner(SimpleNamespace(costs=costs))  # type: ignore[arg-type]  # only its costs matter
    assert asked[0] is costs and asked[1] is not costs


def test_what_is_printed(models: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """And that too small a gain is a failure."""
    monkeypatch.setenv("UMA_MODELS", str(models))
    given = replace(placement.SCENARIOS["m4f"], models=("kws_int8",))
    monkeypatch.setattr(placement, "SCENARIOS", {"small": given})
    assert bench.main(["placement", "small"]) == 0
    title, head, row = capsys.readouterr().out.splitlines()
    assert title == "small: like a Cortex-M4F at 120 MHz, both examples at 100 MHz"
    assert head.split()[:4] == ["model", "plan", "us", "gain"]
    assert row.split()[0] == "kws_int8" and "stream_machine first 1.01, matrix_unit first 1.31" in row
    monkeypatch.setattr(placement, "SCENARIOS", {"small": replace(given, least={"kws_int8": 2.0})})
    assert bench.main(["placement"]) == 1


def test_growth(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(growth, "SIZES", (12,))
    monkeypatch.setattr(placement, "SCENARIOS", {})
    assert bench.main(["placement", "growth"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(",")[0] for line in lines if not line.startswith(" ")] == list(growth.KINDS)
    costs = [line.partition("s: ")[2].partition(",")[0] for line in lines if line.startswith(" ")]
    assert costs[::2] == costs[1::2]


def test_a_name_that_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        bench.main(["placement", "m5f"])
    assert "there is no m5f; there are m4f, m4f-far" in capsys.readouterr().err
