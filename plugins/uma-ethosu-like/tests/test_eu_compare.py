"""``uma ethosu compare``: what both compilers make of a model is counted alike, and both are held to LiteRT."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests._support.tflite_builder import TFLiteBuilder

import uma_ethosu_like.compare
from uma.errors import ModelError, UsageError
from uma_ethosu_like.cli import comparison_lines, main
from uma_ethosu_like.compare import Comparison, Side, compare

PAGE = Path(__file__).parents[3] / "docs" / "ethosu.md"
NEEDS_VELA = pytest.mark.skipif(find_spec("ethosu") is None, reason="ethos-u-vela is not installed")


def product(name: str = "FULLY_CONNECTED") -> bytes:
    """A dense layer of int8; or an operator of one input."""
    builder = TFLiteBuilder()
    x = builder.input([1, 32], "int8", scale=0.5)
    y = builder.tensor([1, 16], "int8", scale=2.0)
    if name == "FULLY_CONNECTED":
        weights = np.random.default_rng(1).integers(-127, 128, (16, 32)).astype(np.int8)
        bias = builder.constant(np.arange(16, dtype=np.int32), scale=0.125)
        builder.op(name, [x, builder.constant(weights, scale=0.25, zero_point=0), bias], [y])
    else:
        builder.op(name, [x], [y])
    return builder.finish(y)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    (tmp_path / "dense.tflite").write_bytes(product())
    return tmp_path / "dense.tflite"


@pytest.mark.soak
@NEEDS_VELA
def test_both_compilers_are_counted_alike(model: Path) -> None:
    found = compare(model, 64)
    assert (found.model, found.macs, found.on_host) == ("dense", 64, ())
    assert found.ours.exact and found.vela.exact
    for side in (found.ours, found.vela):
        # 16 records of 10 bytes, and weights that hardly compress; 32 bytes come in, 16 go out.
        assert 16 * 10 + 300 < side.weight_bytes < 16 * 10 + 1000 and side.arena_bytes >= 48
        assert side.stream_bytes % 4 == 0 and side.stream_bytes > 100 and side.cycles > 16 * 32 // 64
    assert found.estimated_cycles is not None and found.estimated_cycles > 0


@NEEDS_VELA
@pytest.mark.soak
def test_the_real_models_side_by_side(models: Path, hold_page: Any) -> None:
    """And the page shows what the command prints of them. ``pytest --update-golden`` writes it."""
    names, every = ("kws_ref_model", "ad01_int8", "pretrainedResnet_quant", "vww_96_int8"), []
    for name in names:
        found = compare(models / "mlperf-tiny" / f"{name}.tflite", 128)
        every.append(found)
        assert found.ours.exact and not found.on_host, name
        # Fully connected layers of Vela are not those of LiteRT (README.md), which shows in this model alone.
        assert found.vela.exact or name == "ad01_int8"
        assert found.ours.weight_bytes <= 1.05 * found.vela.weight_bytes, name
        assert found.ours.cycles <= 1.25 * found.vela.cycles, name
    hold_page(PAGE, "compare", "\n".join(["```text", *comparison_lines(every), "```"]))


SIDE = Side(1234, 500, 60, 70, exact=True)


def test_the_table(model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    found = Comparison("dense", 64, SIDE, Side(99, 5, 6, 7, exact=False), 1000, ("first", "last"))
    given: list[tuple[Path, int]] = []
    monkeypatch.setattr(uma_ethosu_like.compare, "compare", lambda *args: given.append(args) or found)
    assert main("ethosu", ["compare", str(model), str(model), "--macs", "64"]) == 0
    assert given == [(model, 64)] * 2
    assert capsys.readouterr().out.splitlines()[:3] == [
        "model  compiler  cycles  Vela's estimate  arena  stream  weights  exact",
        "dense  ours       1,234                     500      60       70    yes",
        "dense  Vela          99            1,000      5       6        7     no",
    ]
    assert main("ethosu", ["compare", str(model), "--macs", "64"]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == "dense: our compiler leaves 2 layers to the host: first, last"
    assert main("ethosu", ["compare", str(model), "--macs", "64", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told == {"schema_version": 1, "macs": 64, "models": [json.loads(json.dumps(asdict(found)))]}


def test_without_litert(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ai_edge_litert", None)
    with pytest.raises(UsageError, match=r"LiteRT, whose results are the right ones, is not installed") as caught:
        compare(model, 64)
    assert caught.value.hint == "pip install 'uma-ethosu-like[compare]'"


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="it cannot be read: No such file"):
        compare(tmp_path / "none.tflite", 64)


def test_a_model_that_litert_does_not_run(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uma_ethosu_like.compare, "compile_model", lambda *args, **options: None)
    model.write_bytes(product("CONV_2D"))
    with pytest.raises(ModelError, match="LiteRT cannot run it: ") as caught:
        compare(model, 64)
    assert caught.value.where == str(model)
