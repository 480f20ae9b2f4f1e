"""Models that onnxruntime's optimiser wrote: they build, and compute what the models before it do."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper
from tests._support.onnx_builder import OnnxBuilder, run_onnxruntime
from tests.networks import NETWORKS

import uma
from uma.frontends import import_model
from uma.relay.evaluate import evaluate
from uma.relay.transform import canonicalise

LEVELS = ("ORT_ENABLE_EXTENDED", "ORT_ENABLE_ALL")

Inputs = dict[str, np.ndarray]


def optimised(data: bytes, level: str, folder: Path) -> onnx.ModelProto:
    """Return the model that onnxruntime makes of `data`."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
    options.optimized_model_filepath = str(folder / "optimised.onnx")
    options.log_severity_level = 4
    onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    return onnx.load(options.optimized_model_filepath)


def contributed(model: onnx.ModelProto) -> set[str]:
    return {node.op_type for node in model.graph.node if node.domain == "com.microsoft"}


class Network(OnnxBuilder):
    """A network with random weights, in the forms in which onnxruntime finds its operators."""

    def __init__(self, opset: int) -> None:
        super().__init__(opset)
        self.rng = np.random.default_rng(0)

    def weight(self, *shape: int) -> str:
        return self.constant(self.rng.normal(0, 0.3, shape), "float32")

    def linear(self, x: str, width: int, outputs: int) -> str:
        return str(self.node("Add", self.node("MatMul", x, self.weight(width, outputs)), self.weight(outputs)))

    def layer_norm(self, x: str, width: int) -> str:
        centred = self.node("Sub", x, self.node("ReduceMean", x, axes=[-1]))
        squares = self.node("Pow", centred, self.constant(2, "float32"))
        spread = self.node("Add", self.node("ReduceMean", squares, axes=[-1]), self.constant(1e-5, "float32"))
        scaled = self.node("Mul", self.node("Div", centred, self.node("Sqrt", spread)), self.weight(width))
        return str(self.node("Add", scaled, self.weight(width)))

    def gelu(self, x: str) -> str:
        erf = self.node("Erf", self.node("Div", x, self.constant(np.sqrt(2), "float32")))
        made = self.node("Mul", x, self.node("Add", erf, self.constant(1, "float32")))
        return str(self.node("Mul", made, self.constant(0.5, "float32")))

    def attention(self, x: str, mask: str, width: int, heads: int) -> str:
        def by_head(order: list[int]) -> str:
            shape = self.constant([0, 0, heads, width // heads], "int64")
            apart = self.node("Reshape", self.linear(x, width, width), shape)
            return str(self.node("Transpose", apart, perm=order))

        queries, keys, values = by_head([0, 2, 1, 3]), by_head([0, 2, 3, 1]), by_head([0, 2, 1, 3])
        root = self.constant(np.sqrt(width // heads), "float32")
        scores = self.node("Div", self.node("MatMul", queries, keys), root)
        weights = self.node("Softmax", self.node("Add", scores, mask), axis=3)
        mixed = self.node("Transpose", self.node("MatMul", weights, values), perm=[0, 2, 1, 3])
        return self.linear(self.node("Reshape", mixed, self.constant([0, 0, width], "int64")), width, width)


def transformer() -> bytes:
    """A text encoder with a mask, whose batch is open."""
    words, width, heads = 6, 16, 4
    b = Network(11)
    ids, mask = b.input("ids", ["batch", words], "int64"), b.input("mask", ["batch", words], "int64")
    x = b.node("Add", b.node("Gather", b.weight(20, width), ids), b.weight(1, words, width))
    x = b.layer_norm(x, width)
    wide = b.node("Cast", b.node("Unsqueeze", b.node("Unsqueeze", mask, axes=[1]), axes=[2]), to=1)
    away = b.node("Mul", b.node("Sub", b.constant(1, "float32"), wide), b.constant(-10000, "float32"))
    for _ in range(2):
        x = b.layer_norm(b.node("Add", b.attention(x, away, width, heads), x), width)
        inner = b.linear(b.gelu(b.linear(x, width, 2 * width)), 2 * width, width)
        x = b.layer_norm(b.node("Add", inner, x), width)
    return b.build(x)


def conv_net() -> bytes:
    """Convolutions with activations and a residual."""
    b = Network(13)
    x = b.node("Conv", b.input("x", [1, 3, 9, 9]), b.weight(4, 3, 3, 3), b.weight(4), pads=[1, 1, 1, 1])
    x = b.node("Relu", x)
    y = b.node("LeakyRelu", b.node("Conv", x, b.weight(4, 4, 3, 3), b.weight(4), pads=[1, 1, 1, 1]), alpha=0.2)
    x = b.node("Relu", b.node("Add", b.node("Conv", y, b.weight(4, 4, 1, 1), b.weight(4)), x))
    limits = b.constant(0, "float32"), b.constant(6, "float32")
    x = b.node("Clip", b.node("Conv", x, b.weight(4, 1, 3, 3), group=4, strides=[2, 2]), *limits)
    x = b.node("Flatten", b.node("GlobalAveragePool", x))
    return b.build(b.node("Sigmoid", b.node("Gemm", x, b.weight(4, 5), b.weight(5))))


def words(batch: int) -> Inputs:
    chance = np.random.default_rng(batch)
    mask = (np.arange(6) < chance.integers(1, 7, (batch, 1))).astype(np.int64)
    return {"ids": chance.integers(0, 20, (batch, 6)), "mask": mask}


def images(batch: int) -> Inputs:
    return {"x": np.random.default_rng(0).standard_normal((batch, 3, 9, 9)).astype(np.float32)}


def agree(ours: Iterable[np.ndarray], theirs: Iterable[np.ndarray]) -> None:
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5 * float(np.abs(other).max()))


@pytest.mark.parametrize("level", LEVELS)
def test_a_transformer(level: str, tmp_path: Path) -> None:
    data, inputs = transformer(), words(2)
    model = optimised(data, level, tmp_path)
    assert {"Attention", "BiasGelu", "SkipLayerNormalization"} <= contributed(model)
    module = canonicalise(import_model(model.SerializeToString(), shapes={"batch": 2}).module)
    agree(evaluate(module, inputs), run_onnxruntime(data, inputs))


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("network", "inputs", "shapes", "operators"),
    [
        (conv_net, images, {}, {"FusedConv", "FusedGemm"}),
        (transformer, words, {"batch": 2}, {"Attention", "BiasGelu", "SkipLayerNormalization"}),
    ],
)
def test_what_is_built(
    network: Callable[[], bytes],
    inputs: Callable[[int], Inputs],
    shapes: Mapping[str, int],
    operators: set[str],
    tmp_path: Path,
) -> None:
    data, values = network(), inputs(shapes.get("batch", 1))
    model = optimised(data, "ORT_ENABLE_EXTENDED", tmp_path)
    assert operators == contributed(model)
    agree(uma.build(model, "c", shapes=shapes).run(values).values(), run_onnxruntime(data, values))


def random_inputs(model: onnx.ModelProto) -> Inputs:
    """Return normal floats and integers that are 0 or 1, as masks and words may be."""
    chance = np.random.default_rng(0)
    made: Inputs = {}
    for value in model.graph.input:
        tensor = value.type.tensor_type
        shape, dtype = [dim.dim_value for dim in tensor.shape.dim], helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        array = chance.standard_normal(shape) if dtype.kind == "f" else np.minimum(chance.integers(0, 5, shape), 1)
        made[value.name] = array.astype(dtype)
    return made


@pytest.mark.few(2)
@pytest.mark.parametrize("name", NETWORKS)
def test_other_networks(name: str, tmp_path: Path) -> None:
    network = NETWORKS[name]()
    data, inputs = network.SerializeToString(), random_inputs(network)
    model = optimised(data, "ORT_ENABLE_EXTENDED", tmp_path)
    module = canonicalise(import_model(model.SerializeToString()).module)
    agree(evaluate(module, inputs), run_onnxruntime(data, inputs))
