"""Mutated ONNX files: a module or a clear error, nothing else."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
import pytest
from onnx import numpy_helper
from tests._support.fuzz import fuzz
from tests._support.onnx_builder import OnnxBuilder

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


@functools.cache
def seeds() -> tuple[bytes, ...]:
    return _quantised(), _shapes(), _floats()


def test_the_seeds_are_right() -> None:
    for seed in seeds():
        load(seed)


def test_mutated_files() -> None:
    outcomes = fuzz(load, seeds(), range(1000))
    # Neither are all files refused at the door, nor do the mutations do nothing.
    assert min(outcomes["loaded"], outcomes["refused"]) > 100, outcomes


@pytest.mark.soak
@pytest.mark.parametrize("part", range(10))
def test_many_mutated_files(models: Path, part: int) -> None:
    real = [(models / "mlperf-tiny-onnx" / f"{name}.onnx").read_bytes() for name in ("kws_int8", "resnet8_int8")]
    fuzz(load, (*seeds(), *real), range(10_000 * part, 10_000 * (part + 1)))
