"""The simulator against LiteRT: real models, compiled by Vela, give the same bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests._support.tflite_builder import litert

MODELS = ("kws_ref_model", "ad01_int8", "pretrainedResnet_quant", "vww_96_int8")
SHAPES = {"kws_ref_model": (1, 49, 10, 1), "ad01_int8": (1, 640), "vww_96_int8": (1, 96, 96, 3)}
MACS = (32, 64, 128, 256)


def model_and_input(models: Path, name: str) -> tuple[bytes, np.ndarray]:
    data = np.random.default_rng(0).integers(-128, 128, SHAPES.get(name, (1, 32, 32, 3)), dtype=np.int8)
    return (models / "mlperf-tiny" / f"{name}.tflite").read_bytes(), data


def same_as_litert(npu: Any, vela: Any, model: bytes, data: np.ndarray, macs: int, *options: str) -> None:
    compiled = vela(model, macs, *options)
    [ended] = npu.run(compiled.case(data))
    assert ended.fault == "none"
    assert compiled.results(ended) == [one.tobytes() for one in litert(model, data)]


def test_keyword_spotter(npu: Any, vela: Any, models: Path) -> None:
    same_as_litert(npu, vela, *model_and_input(models, "kws_ref_model"), 128)


@pytest.mark.soak
@pytest.mark.parametrize("macs", MACS)
@pytest.mark.parametrize("name", [name for name in MODELS if name != "ad01_int8"])
def test_models(npu: Any, vela: Any, models: Path, name: str, macs: int) -> None:
    same_as_litert(npu, vela, *model_and_input(models, name), macs)
