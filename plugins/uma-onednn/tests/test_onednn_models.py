"""Whole models: floats against onnxruntime, int8 against LiteRT and onnxruntime, bit for bit."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import uma
from uma.plugins import PluginEntry, PluginHost

PLUGINS = PluginHost(
    lambda: [
        PluginEntry("c", "uma_cpu_c", "uma-cpu-c", "0.1.0"),
        PluginEntry("onednn", "uma_onednn", "uma-onednn", "0.1.0"),
    ]
)

FLOATS = ("mlperf-tiny-onnx/resnet8_fp32", "mlperf-tiny-onnx/kws_fp32", "mlperf-tiny-onnx/vww_fp32")
OTHERS = ("mlperf-tiny-onnx/ad_fp32", "others/tcresnet8_fp32", "others/bert_tiny_s128_fp32")
INT8 = ("pretrainedResnet_quant", "kws_ref_model", "vww_96_int8", "ad01_int8")


def owners(artifact: uma.Artifact) -> Counter[str]:
    """How many calls each has."""
    return Counter("onednn" if one["kernel"].startswith("onednn") else "c" for one in artifact.metadata["calls"])


@pytest.mark.soak
@pytest.mark.parametrize("name", [*FLOATS, *OTHERS])
def test_floats_are_those_of_onnxruntime(real: str, models: Path, name: str) -> None:
    onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime, the oracle here, is not installed")
    path = models / f"{name}.onnx"
    oracle = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    artifact = uma.build(path, real, plugins=PLUGINS)
    assert owners(artifact)["onednn"] >= 9
    rng = np.random.default_rng(0)
    given = {}
    for info in oracle.get_inputs():
        shape = [extent if isinstance(extent, int) else 1 for extent in info.shape]
        is_int = "int" in info.type
        given[info.name] = (
            rng.integers(0, 2, shape, dtype=np.int64) if is_int else rng.normal(0, 1, shape).astype(np.float32)
        )
    made = artifact.run(given)
    for info, wanted in zip(oracle.get_outputs(), oracle.run(None, given), strict=True):
        assert np.abs(made[info.name] - wanted).max() <= 1e-5 * np.abs(wanted).max()


@pytest.mark.soak
@pytest.mark.parametrize("name", INT8)
def test_int8_is_that_of_litert(real: str, models: Path, name: str) -> None:
    interpreter = pytest.importorskip("ai_edge_litert.interpreter", reason="LiteRT, the oracle here, is not installed")
    path = models / "mlperf-tiny" / f"{name}.tflite"
    kernels = interpreter.OpResolverType.BUILTIN_REF
    oracle = interpreter.Interpreter(str(path), experimental_op_resolver_type=kernels, num_threads=1)
    oracle.allocate_tensors()
    (taken,), (made,) = oracle.get_input_details(), oracle.get_output_details()
    artifact = uma.build(path, real, plugins=PLUGINS)
    assert owners(artifact)["onednn"] >= 5
    rng = np.random.default_rng(0)
    with artifact.session() as session:
        for turn in range(4):
            values = [rng.integers(-128, 128, taken["shape"]), rng.choice([-128, 127], taken["shape"])][turn % 2]
            given = values.astype(taken["dtype"])
            oracle.set_tensor(taken["index"], given)
            oracle.invoke()
            (got,) = session.run(given).values()
            np.testing.assert_array_equal(got, oracle.get_tensor(made["index"]))


@pytest.mark.soak
@pytest.mark.parametrize("name", ["resnet8_int8", "kws_int8", "vww_int8", "ad_int8"])
def test_qdq_is_what_the_host_alone_gives(real: str, models: Path, name: str) -> None:
    path = models / "mlperf-tiny-onnx" / f"{name}.onnx"
    artifact, alone = (uma.build(path, target, plugins=PLUGINS) for target in (real, "c"))
    assert owners(artifact)["onednn"] >= 5
    (taken,) = artifact.metadata["inputs"]
    rng = np.random.default_rng(0)
    for _ in range(4):
        given = rng.normal(0, 1, math.prod(taken["shape"])).astype(taken["dtype"]).reshape(taken["shape"])
        for got, wanted in zip(artifact.run(given).values(), alone.run(given).values(), strict=True):
            np.testing.assert_array_equal(got, wanted)
