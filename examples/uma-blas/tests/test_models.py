"""Blocks of an encoder, as ONNX has them, against onnxruntime."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import uma
from uma.lowering.build_targets import resolve_targets
from uma.pipeline.driver import start_build
from uma.pipeline.loading import load_model
from uma.plugins import PluginEntry, PluginHost
from uma.reports.explain import explain

onnx = pytest.importorskip("onnx", reason="onnx is not installed")
onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime, the oracle here, is not installed")

PLUGINS = PluginHost(
    lambda: [
        PluginEntry("c", "uma_cpu_c", "uma-cpu-c", "0.1.0"),
        PluginEntry("blas", "uma_blas", "uma-blas", "0.1.0"),
    ]
)


class Encoder:
    """One block of an encoder, without what lies between the products: attention of several heads, two dense layers.

    Args:
        batch, length, width: of the input.
        heads: of the attention.
    """

    def __init__(self, batch: int, length: int, width: int, heads: int) -> None:
        self.rng = np.random.default_rng(0)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.shape = (batch, length, width)
        split = (batch, length, heads, width // heads)
        q, k, v = (
            self.add("Reshape", self.dense("x", width, width), self.ints(f"{name}_split", split)) for name in "qkv"
        )
        scores = self.add("MatMul", self.turned(q, (0, 2, 1, 3)), self.turned(k, (0, 2, 3, 1)))
        scaled = self.add("Mul", scores, self.floats("scale", np.float32((width // heads) ** -0.5)))
        mixed = self.add("MatMul", self.add("Softmax", scaled, axis=-1), self.turned(v, (0, 2, 1, 3)))
        joined = self.add("Reshape", self.turned(mixed, (0, 2, 1, 3)), self.ints("joined", self.shape))
        hidden = self.add("Relu", self.dense(joined, width, 4 * width))
        self.result = self.dense(hidden, 4 * width, width)

    def add(self, op: str, *inputs: str, **attrs: object) -> str:
        name = f"{op.lower()}{len(self.nodes)}"
        self.nodes.append(onnx.helper.make_node(op, inputs, [name], name, **attrs))
        return name

    def turned(self, value: str, perm: tuple[int, ...]) -> str:
        return self.add("Transpose", value, perm=perm)

    def floats(self, name: str, value: np.ndarray) -> str:
        self.weights.append(onnx.numpy_helper.from_array(np.asarray(value, np.float32), name))
        return name

    def ints(self, name: str, value: tuple[int, ...]) -> str:
        self.weights.append(onnx.numpy_helper.from_array(np.array(value, np.int64), name))
        return name

    def dense(self, value: str, width: int, made: int) -> str:
        name = f"w{len(self.weights)}"
        weight = self.floats(name, self.rng.normal(0, width**-0.5, (width, made)))
        bias = self.floats(f"{name}_bias", self.rng.normal(0, 1, made))
        return self.add("Add", self.add("MatMul", value, weight), bias)

    def save(self, path: Path) -> Path:
        ports = [
            onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, self.shape) for name in ("x", self.result)
        ]
        graph = onnx.helper.make_graph(self.nodes, "encoder", ports[:1], ports[1:], self.weights)
        model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
        onnx.checker.check_model(model)
        onnx.save(model, str(path))
        return path


@pytest.mark.few(4)
@pytest.mark.parametrize(
    ("batch", "length", "width", "heads"), [(1, 128, 128, 2), (3, 17, 60, 5), (2, 1, 24, 3), (1, 7, 5, 1)]
)
@pytest.mark.soak
def test_blocks_are_those_of_onnxruntime(
    target: str,
    tmp_path: Path,
    record_property: Callable[[str, object], None],
    batch: int,
    length: int,
    width: int,
    heads: int,
) -> None:
    path = Encoder(batch, length, width, heads).save(tmp_path / "encoder.onnx")
    members = resolve_targets([target, "c"], PLUGINS)
    loaded = load_model(path, members)
    build = start_build(loaded, members)
    build.run(loaded.form, "lower")
    found = explain(build, costs=True)
    assert found.offloaded == 1.0
    artifact = uma.build(path, [target, "c"], plugins=PLUGINS)
    oracle = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    rng = np.random.default_rng(1)
    for _ in range(3):
        x = rng.normal(0, 1, (batch, length, width)).astype(np.float32)
        (expected,) = oracle.run(None, {"x": x})
        (made,) = artifact.run(x).values()
        assert np.abs(made - expected).max() <= 1e-5 * np.abs(expected).max()
    cost = found.shares()[0].cost
    assert cost is not None and cost.seconds is not None
    calls = [call for call in artifact.profile(x, repeat=5).calls if call.kernel.startswith("matmul")]
    us = sum(call.median_ns for call in calls) / 1e3
    if target == "blas":  # the other one is slow
        shape = f"{batch}x{length}x{width}, {heads} heads"
        record_property(
            "measured", f"blas, encoder {shape}: {cost.seconds * 1e6:.1f} us estimated, {us:.1f} us measured"
        )


def test_a_real_model_is_that_of_onnxruntime(target: str, models: Path) -> None:
    path = models / "mlperf-tiny-onnx" / "ad_fp32.onnx"
    artifact = uma.build(path, [target, "c"], plugins=PLUGINS)
    oracle = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    (info,) = oracle.get_inputs()
    x = np.random.default_rng(0).normal(0, 1, [d if isinstance(d, int) else 1 for d in info.shape]).astype(np.float32)
    (expected,) = oracle.run(None, {info.name: x})
    (made,) = artifact.run(x).values()
    assert np.abs(made - expected).max() <= 1e-5 * np.abs(expected).max()
