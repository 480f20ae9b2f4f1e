"""Mutated ONNX files: a module or a clear error, nothing else."""

from __future__ import annotations

import functools
import random
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from tests._support.fuzz import fuzz
from tests._support.onnx_builder import OnnxBuilder
from tests._support.onnx_suite import load as load_cases

from uma.frontends.onnx import from_onnx
from uma.relay.verify import verify


def load(data: bytes) -> None:
    verify(from_onnx(data).module)


def _quantised() -> bytes:
    """Convolution, pool, residual, sum and product, quantised with scales that are and are not powers of two."""
    rng = np.random.default_rng(0)
    b = OnnxBuilder(13)
    x = b.dequantize(b.input("x", [1, 3, 9], "int8"), 2.0**-7, 0, "int8")
    weight = b.dequantize(b.constant(rng.integers(-32, 32, (4, 3, 3)), "int8"), 2.0**-5, 0, "int8")
    y = b.node("Conv", x, weight, b.constant(np.arange(4) / 128, "float32"), pads=[1, 1])
    q = b.dequantize(b.quantize(b.node("Relu", y), 2.0**-6, -128, "int8"), 2.0**-6, -128, "int8")
    y = b.node("AveragePool", b.node("Add", q, y), kernel_shape=[16], pads=[3, 4], count_include_pad=1)
    q = b.dequantize(b.quantize(y, 0.1, 3, "int8"), 0.1, 3, "int8")
    scales = np.array([0.1, 0.2, 0.3, 0.4, 0.5])
    weight = b.constant(rng.integers(-128, 128, (5, 4)), "int8")
    weight = b.dequantize(weight, scales, np.zeros(5), "int8", axis=0)
    bias = b.dequantize(
        b.constant(rng.integers(-99, 99, 5), "int32"), np.float32(0.1) * scales, np.zeros(5), "int32", axis=0
    )
    y = b.node("Gemm", b.node("Flatten", q), weight, bias, transB=1)
    return b.build(b.quantize(y, 0.7, 0, "int8"))


def _shapes() -> bytes:
    """Shape arithmetic, and ops that move elements."""
    b = OnnxBuilder(18)
    x = b.input("x", [2, 3, 4])
    shape = b.node("Shape", x)
    size = b.node("Mul", *(b.node("Gather", shape, b.constant(i, "int64")) for i in (1, 2)))
    asked = b.node("Concat", b.node("Unsqueeze", size, b.constant([0], "int64")), b.constant([-1], "int64"), axis=0)
    y = b.node("Transpose", b.node("Reshape", x, asked), perm=[1, 0])
    first, second = b.node("Split", y, outputs=2, num_outputs=2, axis=1)
    y = b.node("Concat", first, b.node("Slice", second, *(b.constant([v], "int64") for v in (9, -9, 1, -1))), axis=0)
    y = b.node(
        "Pad", b.node("Clip", y, b.constant(-1, "float32"), b.constant(1, "float32")), b.constant([1, 0, 0, 2], "int64")
    )
    ones = b.node("ConstantOfShape", b.constant([8, 3], "int64"), value=numpy_helper.from_array(np.ones(1, np.float32)))
    y = b.node("MatMul", b.node("ReduceMean", y, b.constant([0], "int64")), ones)
    grown = b.node(
        "Expand",
        b.node("Cast", b.node("Range", *(b.constant(v, "int64") for v in (0, 3, 1))), to=1),
        b.constant([1, 3], "int64"),
    )
    return b.build(b.node("Softmax", b.node("Max", y, grown)), b.node("ReduceSum", y))


def _floats() -> bytes:
    """A small network with a batch normalisation."""
    b = OnnxBuilder(11)
    y = b.node(
        "Conv", b.input("x", [1, 2, 8, 8]), b.constant(np.ones((4, 1, 3, 3)), "float32"), group=2, auto_pad="SAME_UPPER"
    )
    y = b.node("BatchNormalization", y, *(b.constant(np.full(4, v), "float32") for v in (1, 0, 0, 1)))
    y = b.node("MaxPool", b.node("Relu", y), kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1)
    y = b.node("Sigmoid", b.node("Squeeze", b.node("GlobalAveragePool", y), axes=[2, 3]))
    return b.build(
        b.node("Softmax", b.node("Gemm", y, b.constant(np.ones((4, 3)), "float32"), b.constant(np.ones(3), "float32")))
    )


def _composed() -> bytes:
    """Operators that become several of the core's, and those that are for what is known at import."""
    b = OnnxBuilder(18)
    x = b.input("x", [1, 4, 4, 6])
    y = b.node("DepthToSpace", b.node("HardSwish", b.node("LeakyRelu", x, alpha=0.1)), blocksize=2)
    y = b.node("Tile", b.node("PRelu", y, b.constant([0.5], "float32")), b.constant([1, 2, 1, 1], "int64"))
    y = b.node("Resize", y, "", b.constant([1, 1, 2, 1], "float32"), mode="nearest")
    y = b.node("MaxPool", y, kernel_shape=[2, 2], dilations=[2, 1], pads=[1, 0, 1, 0], strides=[2, 1])
    y = b.node("Gather", y, b.constant([1, 0, 0], "int64"), axis=1)
    y = b.node(
        "Div", b.node("Pow", b.node("SpaceToDepth", y, blocksize=1), b.constant(2, "float32")), b.constant(3, "float32")
    )
    y = b.node("ReduceMax", b.node("Expand", y, b.constant([2, 3, 1, 1], "int64")), b.constant([0, 2], "int64"))
    kept = b.node("Trilu", b.node("Exp", b.constant(np.ones((3, 3)), "float32")), b.constant(0, "int64"))
    length = b.node("ReduceL2", b.node("Mod", kept, b.constant(2, "float32"), fmod=1), b.constant([1], "int64"))
    power = b.node("Sqrt", b.node("Pow", length, b.constant([2], "int64")))
    return b.build(b.node("ReduceMin", b.node("Mul", b.node("Neg", y), power), keepdims=0))


_NUMBERS = (-(2**63), -(2**31), -2, -1, 0, 1, 2, 3, 7, 255, 2**31 - 1, 2**31, 2**62, 2**63 - 1)
_REALS = (float("nan"), float("inf"), -1.0, 0.0, 1e-45, 3e38)


def _narrow() -> bytes:
    """Elements of 16 and 4 bits, a transform, regions, and a convolution whose taps move."""
    rng = np.random.default_rng(0)
    b = OnnxBuilder(22)
    x = b.input("x", [1, 2, 4, 4], "float16")
    weight = helper.make_tensor("w", onnx.TensorProto.INT4, [2, 2, 3, 3], rng.integers(-8, 8, 36).tolist())
    b.initializers.append(weight)
    w = b.node("DequantizeLinear", "w", b.constant(0.1, "float16"))
    y = b.node("DeformConv", x, w, b.constant(rng.standard_normal((1, 18, 2, 2)), "float16"))
    regions = b.constant([[0, 0, 2, 2], [1, 1, 3, 3]], "float16"), b.constant([0, 0], "int64")
    y = b.node("RoiAlign", y, *regions, output_height=2, sampling_ratio=1)
    y = b.node("DFT", b.node("Cast", y, to=1), b.constant(3, "int64"), b.constant(2, "int64"), onesided=1)
    grid = b.node("AffineGrid", b.input("t", [1, 2, 3]), b.constant([1, 1, 2, 2], "int64"))
    return b.model(y, grid, b.node("Cast", w, to=16)).SerializeToString()


def _recurrent() -> bytes:
    """Layers over time, both ways, and an attention, whose operator is its body."""
    rng = np.random.default_rng(3)
    b = OnnxBuilder(23)
    x = b.input("x", [4, 1, 6])
    lstm = [b.constant(rng.standard_normal(shape), "float32") for shape in ((2, 8, 6), (2, 8, 2), (2, 16))]
    y = b.node("LSTM", x, *lstm, outputs=3, hidden_size=2, direction="bidirectional")[0]
    gru = [b.constant(rng.standard_normal(shape), "float32") for shape in ((1, 6, 4), (1, 6, 2))]
    rows = b.node("Reshape", y, b.constant([4, 1, 4], "int64"))
    z = b.node("GRU", rows, *gru, outputs=2, hidden_size=2, clip=3.0, activations=["HardSigmoid", "Elu"])[1]
    heads = b.node("Transpose", rows, perm=[1, 0, 2])
    attended = b.node("Attention", heads, heads, heads, q_num_heads=2, kv_num_heads=2, is_causal=1)
    sums = b.node("ReduceSum", attended, b.constant([1], "int64"), keepdims=0)
    return b.build(b.node("Einsum", sums, z, equation="ij,bkl->il"))


def damaged(seeds: Sequence[bytes], case: int) -> bytes:
    """A file with a few of its fields changed, which parses; damage to bytes seldom gets behind the parser."""
    chance = random.Random(case)
    model = onnx.ModelProto.FromString(chance.choice(seeds))
    graph = model.graph
    for _ in range(chance.choice((1, 1, 1, 2, 4))):
        node = chance.choice(graph.node)
        attributes = [a for n in graph.node for a in n.attribute]
        kind = chance.randrange(9)
        if kind == 0 and attributes:
            attribute = chance.choice(attributes)
            attribute.i, attribute.f = chance.choice(_NUMBERS), chance.choice(_REALS)
            for index in range(len(attribute.ints)):
                attribute.ints[index] = chance.choice((attribute.ints[index], *_NUMBERS))
        elif kind == 1 and attributes:
            chance.choice(attributes).type = chance.randrange(1, 15)
        elif kind == 2:
            dims = chance.choice(graph.initializer).dims
            dims[:] = (
                [chance.choice((d, *_NUMBERS)) for d in dims]
                if chance.randrange(2)
                else [*dims, chance.choice(_NUMBERS)]
            )
        elif kind == 3:
            tensor = chance.choice(graph.initializer)
            value = chance.choice(_NUMBERS)
            size = len(tensor.raw_data) if tensor.data_type != 7 else 8 * chance.randrange(1, 4)
            tensor.raw_data = (struct.pack("<q", value) * (size // 8 + 1))[:size]
        elif kind == 4:
            tensor = chance.choice(graph.initializer)
            tensor.raw_data = (struct.pack("<f", chance.choice(_REALS)) * (len(tensor.raw_data) // 4 + 1))[
                : len(tensor.raw_data)
            ]
        elif kind == 5:
            chance.choice(graph.initializer).data_type = chance.randrange(25)
        elif kind == 6:
            dims = chance.choice(graph.input).type.tensor_type.shape.dim
            chance.choice(dims).dim_value = chance.choice(_NUMBERS)
        elif kind == 7:
            other = chance.choice(graph.node)
            node.input[:] = [*node.input[: chance.randrange(4)], *other.input[chance.randrange(3) :]]
        else:
            node.op_type = chance.choice(graph.node).op_type
    return model.SerializeToString()


def _controlled() -> bytes:
    """A loop of a number of turns that a run says, a branch in it, and a scan."""
    made = onnx.parser.parse_model(
        """<ir_version: 9, opset_import: ["": 18]>
        m (int64[1] n, float[3] x, float[3, 70] z) => (float[3] y, float[3] s, float[70, 3] p) <int64 l = {2}> {
            y = Loop (n, , x) <body = b (int64 i, bool c, float[3] u) => (bool d, float[3] v) {
                d = Less (i, l)
                e = Equal (i, l)
                v = If (e) <then_branch = t () => (float[3] q) { q = Add (u, x) },
                            else_branch = o () => (float[3] q) { q = Neg (u) }>
            }>
            s, p = Scan (x, z) <num_scan_inputs = 1, scan_input_axes = [1],
                body = t (float[3] a, float[3] b) => (float[3] o, float[3] w) { o = Mul (a, b)  w = Neg (o) }>
        }"""
    )
    data: bytes = made.SerializeToString()
    return data


def _optimised() -> bytes:
    """Operators that onnxruntime's optimiser writes."""
    rng = np.random.default_rng(5)
    own: dict[str, Any] = {"domain": "com.microsoft"}
    b = OnnxBuilder(17, **{"com.microsoft": 1})

    def weight(*shape: int) -> str:
        return b.constant(rng.standard_normal(shape), "float32")

    x = b.node(
        "FusedConv", b.input("x", [1, 2, 4, 4]), weight(4, 2, 3, 3), weight(4), weight(1, 4, 2, 2),
        activation="LeakyRelu", activation_params=[0.1], **own,
    )  # fmt: skip
    rows = b.node("FastGelu", b.node("Reshape", x, b.constant([4, 4], "int64")), weight(4), **own)
    rows = b.node(
        "FusedGemm", rows, weight(4, 4), weight(4), transB=1, activation="Elu", activation_alpha=0.5, **own
    )  # fmt: skip
    rows = b.node("QuickGelu", b.node("FusedMatMul", rows, rows, transB=1, alpha=0.5, **own), alpha=1.5, **own)
    ids, mask = b.input("ids", [1, 4], "int32"), b.constant([[1, 1, 1, 0]], "int32")
    tables = weight(5, 4), weight(4, 4), weight(2, 4)
    words = b.node("EmbedLayerNormalization", ids, ids, *tables, weight(4), weight(4), mask, outputs=2, **own)
    mixed = b.node(
        "Attention", words[0], weight(4, 12), weight(12), words[1], num_heads=2, unidirectional=1, scale=0.3,
        qkv_hidden_sizes=[4, 4, 4], **own,
    )  # fmt: skip
    mixed = b.node("BiasGelu", b.node("Add", mixed, rows), weight(4), **own)
    mixed = b.node("SkipLayerNormalization", mixed, mixed, weight(4), weight(4), epsilon=1e-5, **own)
    mixed = b.node("SkipSimplifiedLayerNormalization", mixed, mixed, weight(4), **own)
    mixed = b.node("SimplifiedLayerNormalization", mixed, weight(4), axis=-1)
    packed = b.constant(rng.integers(0, 255, (3, 1, 8)), "uint8"), weight(3, 1), b.constant([[3], [4], [5]], "uint8")
    return b.model(
        b.node("MatMulNBits", mixed, *packed, N=3, K=4, bits=4, block_size=16, **own), x
    ).SerializeToString()  # fmt: skip


def _qonnx() -> bytes:
    """A convolution and a product of QONNX."""
    rng = np.random.default_rng(6)
    own: dict[str, Any] = {"domain": "qonnx.custom_op.general"}
    b = OnnxBuilder(17, **{"qonnx.custom_op.general": 2})

    def numbers(*values: float) -> list[str]:
        return [b.constant(value, "float32") for value in values]

    x = b.node("Quant", b.input("x", [1, 2, 4, 4]), *numbers(0.25, 1, 8), signed=1, narrow=0, **own)
    scales = b.constant(rng.uniform(0.1, 0.2, (3, 1, 1, 1)), "float32")
    weight = b.constant(rng.standard_normal((3, 2, 3, 3)), "float32")
    weight = b.node("Quant", weight, scales, *numbers(0, 3), signed=1, narrow=1, rounding_mode="HALF_UP", **own)
    y = b.node("Relu", b.node("Conv", x, weight))
    y = b.node("Quant", y, *numbers(0.1, 0, 8), signed=0, narrow=0, **own)
    y = b.node("Trunc", y, *numbers(0.1, 0, 8, 0.4, 6), signed=0, rounding_mode="FLOOR", **own)
    matrix = b.node("BipolarQuant", b.constant(rng.standard_normal((12, 5)), "float32"), *numbers(0.5), **own)
    y = b.node("MatMul", b.node("Reshape", y, b.constant([1, 12], "int64")), matrix)
    return b.model(b.node("Quant", y, *numbers(0.5, 0, 4), signed=1, narrow=1, **own)).SerializeToString()


def _integers() -> bytes:
    """Sparse weights of both forms, products of integers, and an LSTM with integer weights."""
    rng = np.random.default_rng(4)
    b = OnnxBuilder(18)
    x = b.input("x", [3, 2, 4])
    weight = np.where(rng.random((4, 4)) < 1 / 2, rng.normal(size=(4, 4)), 0).astype(np.float32)
    first, second = (b.sparse_constant(weight, linear) for linear in (True, False))
    y = b.node("MatMul", b.node("MatMul", x, first), second)
    codes = [b.constant(rng.integers(-99, 99, (2, n, 8)), "int8") for n in (4, 2)]
    scales = b.constant([0.01, 0.02], "float32"), b.constant([0, 3], "int8")
    bias, lengths = b.constant(rng.normal(size=(2, 16)), "float32"), b.constant([3, 1], "int32")
    given = (y, *codes, bias, lengths, "", "", "", *scales, *scales)
    attrs = {"domain": "com.microsoft", "hidden_size": 2, "direction": "bidirectional", "clip": 3.0}
    made = b.node("DynamicQuantizeLSTM", *given, outputs=3, **attrs)
    i = b.node("Cast", x, to=7)
    product = b.node("MatMul", i, b.constant(rng.integers(-9, 9, (4, 5)), "int64"))
    rows = b.node("Reshape", product, b.constant([6, 5], "int64"))
    added = b.constant([1, 2, 3, 4, 5, 6], "int64")
    product = b.node("Gemm", rows, rows, added, transB=1, alpha=2.0, beta=3.0)
    model = b.model(*made, product)
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    return bytes(model.SerializeToString())


@functools.cache
def seeds() -> tuple[bytes, ...]:
    return (
        _quantised(),
        _shapes(),
        _floats(),
        _composed(),
        _recurrent(),
        _controlled(),
        _narrow(),
        _integers(),
        _optimised(),
        _qonnx(),
    )


def test_the_seeds_are_right() -> None:
    for seed in seeds():
        load(seed)


def test_mutated_files() -> None:
    outcomes = fuzz(load, seeds(), range(500))
    # Neither are all files refused at the door, nor do the mutations do nothing.
    assert min(outcomes["loaded"], outcomes["refused"]) > 25, outcomes


def test_damaged_fields() -> None:
    outcomes = fuzz(load, seeds(), range(200), damaged)
    assert min(outcomes["loaded"], outcomes["refused"]) > 20, outcomes


@pytest.mark.soak
@pytest.mark.parametrize("part", range(10))
def test_many_mutated_files(models: Path, part: int) -> None:
    real = [(models / "mlperf-tiny-onnx" / f"{name}.onnx").read_bytes() for name in ("kws_int8", "resnet8_int8")]
    cases = range(5_000 * part, 5_000 * (part + 1))
    fuzz(load, (*seeds(), *real), cases)
    fuzz(load, (*seeds(), *real), cases, damaged)


@pytest.mark.soak
@pytest.mark.parametrize("part", range(4))
def test_many_mutated_cases_of_the_suite(part: int) -> None:
    """ONNX's backend tests: every operator."""
    small = [data for case in load_cases(["node"]) if len(data := case.model.SerializeToString()) < 20_000]
    fuzz(load, small, range(5_000 * part, 5_000 * (part + 1)))
