"""Mutated TFLite files: only clear errors, no crash, no hang, no memory."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from tests._support.fuzz import fuzz
from tests._support.tflite_builder import TFLiteBuilder
from tests._support.tflite_control import nested_control

from uma.frontends.tflite import from_tflite
from uma.relay.verify import verify

Q = {"scale": 0.1, "zero_point": 3}


def quantised_network() -> bytes:
    builder = TFLiteBuilder()
    random = np.random.default_rng(0)

    def weight(*shape: int, axis: int = 0) -> int:
        scale = list(random.random(shape[axis]) + 0.1)
        return builder.constant(random.integers(-127, 128, shape, np.int8), scale=scale, axis=axis)

    def bias(count: int) -> int:
        return builder.constant(random.integers(-99, 99, count), "int32", scale=[0.01] * count)

    x = builder.input([1, 6, 6, 2], "int8", **Q)
    conv, depthwise, pooled = (builder.tensor([1, s, s, 4], "int8", **Q) for s in (6, 3, 1))
    flat, dense = builder.tensor([1, 4], "int8", **Q), builder.tensor([1, 3], "int8", **Q)
    soft = builder.tensor([1, 3], "int8", scale=1 / 256, zero_point=-128)
    one = {"strideH": 1, "strideW": 1}
    builder.op("CONV_2D", [x, weight(4, 3, 3, 2), bias(4)], [conv], padding=0, fusedActivationFunction=3, **one)
    builder.op(
        "DEPTHWISE_CONV_2D",
        [conv, weight(1, 3, 3, 4, axis=3), bias(4)],
        [depthwise],
        strideH=2,
        strideW=2,
        depthMultiplier=1,
    )
    builder.op("AVERAGE_POOL_2D", [depthwise], [pooled], filterHeight=3, filterWidth=3, padding=1, **one)
    builder.op("RESHAPE", [pooled, builder.constant([1, 4], "int32")], [flat])
    builder.op("FULLY_CONNECTED", [flat, weight(3, 4), bias(3)], [dense])
    builder.op("SOFTMAX", [dense], [soft], beta=1.0)
    return builder.finish(soft)


def float_network() -> bytes:
    builder = TFLiteBuilder()
    x = builder.input([1, 4, 4, 2])
    padded, conv, left, right = (builder.tensor([1, s, s, c]) for s, c in ((6, 2), (4, 4), (4, 2), (4, 2)))
    total, mean, scaled = builder.tensor([1, 4, 4, 2]), builder.tensor([1, 2]), builder.tensor([1, 2])
    weight = builder.constant(np.ones([4, 3, 3, 2]), "int8", scale=0.1)
    builder.op("PAD", [x, builder.constant([[0, 0], [1, 1], [1, 1], [0, 0]], "int32")], [padded])
    builder.op("CONV_2D", [padded, weight, -1], [conv], padding=1, strideH=1, strideW=1, fusedActivationFunction=1)
    builder.op("SPLIT", [builder.constant(3, "int32"), conv], [left, right], numSplits=2)
    builder.op("ADD", [left, right], [total], fusedActivationFunction=2)
    builder.op("MEAN", [total, builder.constant([1, 2], "int32")], [mean])
    builder.op("MUL", [mean, builder.constant([0.5, 2.0], "float32")], [scaled])
    return builder.finish(scaled, total)


def movements() -> bytes:
    builder = TFLiteBuilder()
    x = builder.input([2, 3, 4], "int8", **Q)
    turned, cut, joined = (builder.tensor(shape, "int8", **Q) for shape in ([4, 3, 2], [3, 2], [6, 2]))
    real, small = builder.tensor([6, 2]), builder.tensor([6, 2], "uint8", **Q)
    builder.op("TRANSPOSE", [x, builder.constant([2, 1, 0], "int32")], [turned])
    bounds = [builder.constant(values, "int32") for values in ([1, 0, 0], [2, 3, 2], [1, 1, 1])]
    builder.op("STRIDED_SLICE", [turned, *bounds], [cut], shrinkAxisMask=1)
    builder.op("CONCATENATION", [cut, cut], [joined], axis=0)
    builder.op("DEQUANTIZE", [joined], [real])
    builder.op("QUANTIZE", [real], [small])
    return builder.finish(small)


def variables() -> bytes:
    builder = TFLiteBuilder()
    builder.initialise(**{"a/b": np.ones((2, 4), np.float32), "c": np.zeros((1, 4), np.float32)})
    x = builder.input([1, 4])
    window, last = builder.handle("a/b"), builder.handle("c", "")
    joined, new, total = (builder.tensor(shape) for shape in ([3, 4], [2, 4], [1, 4]))
    builder.op("CONCATENATION", [builder.read(window, [2, 4]), x], [joined], axis=0)
    builder.op("SLICE", [joined, builder.constant([1, 0], "int32"), builder.constant([2, 4], "int32")], [new])
    builder.assign(window, new)
    builder.op("ADD", [x, builder.read(last, [1, 4])], [total])
    builder.assign(last, total)
    return builder.finish(total, joined)


def picture() -> bytes:
    """What goes through images of other sizes, and tables."""
    builder = TFLiteBuilder()
    x = builder.input([1, 2, 3, 4], "int8", **Q)
    apart, large, wide, spread = (
        builder.tensor(s, "int8", **Q) for s in ([1, 4, 6, 1], [1, 5, 7, 1], [1, 7, 5, 1], [8])
    )
    turned, grown = builder.tensor([1, 7, 5, 1], "int8", **Q), builder.tensor([1, 13, 9, 2], "int8", **Q)
    sizes, soft = builder.constant([5, 7], "int32"), builder.tensor([1, 13, 9, 2], "int8", scale=1 / 16, zero_point=127)
    weight = builder.constant(np.ones([2, 3, 3, 1]), "int8", scale=[0.1, 0.2])
    unit, least = builder.tensor([1, 13, 9, 2], "int8", scale=1 / 128), builder.tensor([1, 13, 9, 2], "bool")
    builder.op("DEPTH_TO_SPACE", [x], [apart], blockSize=2)
    builder.op("RESIZE_BILINEAR", [apart, sizes], [large], halfPixelCenters=True)
    builder.op("TRANSPOSE", [large, builder.constant([0, 2, 1, 3], "int32")], [wide])
    builder.op("REVERSE_V2", [wide, builder.constant([1], "int32")], [turned])
    shape = builder.constant([1, 13, 9, 2], "int32")
    builder.op("TRANSPOSE_CONV", [shape, weight, turned], [grown], padding=0, strideH=2, strideW=2)
    builder.op("LOG_SOFTMAX", [grown], [soft])
    builder.op("L2_NORMALIZATION", [grown], [unit])
    builder.op("LESS", [soft, unit], [least])
    picked = builder.constant([[0, 6, 4, 0]] * 8, "int32")
    builder.op("GATHER_ND", [turned, picked], [spread])
    curve = builder.tensor([8], "int8", **Q)
    builder.op("EXP", [spread], [curve])
    return builder.finish(least, curve)


def kept() -> bytes:
    """What keeps values in tensors."""
    builder = TFLiteBuilder()
    x = builder.input([1, 2, 3], "int8", **Q)

    def weight(*shape: int) -> int:
        return builder.constant(np.ones(shape), "int8", scale=0.1)

    bias = [builder.constant(np.ones(2), "int32", scale=0.01) for _ in range(4)]
    states = [
        builder.tensor([1, 2], "int8", variable=True, **Q),
        builder.tensor([1, 2], "int16", variable=True, scale=2.0**-11),
        builder.tensor([2, 8], "int16", variable=True, scale=0.1),
    ]
    weights = [*(weight(2, 3) for _ in range(4)), *(weight(2, 2) for _ in range(4))]
    steps, rows, last = (builder.tensor(s, "int8", **Q) for s in ([1, 2, 2], [2, 2], [2, 2]))
    inner = [builder.tensor([], "int16", scale=2.0**-12) for _ in range(4)] + [builder.tensor([], "int8", **Q)]
    operands = [x, *weights, -1, -1, -1, *bias, -1, -1, *states[:2], -1, -1, -1, -1]
    builder.op("UNIDIRECTIONAL_SEQUENCE_LSTM", operands, [steps], intermediates=inner, fusedActivationFunction=4)
    builder.op("RESHAPE", [steps, builder.constant([2, 2], "int32")], [rows])
    time = builder.constant(np.ones([2, 4]), "int16", scale=0.01)
    builder.op("SVDF", [rows, weight(2, 2), time, -1, states[2]], [last], rank=1, fusedActivationFunction=1)
    return builder.finish(last)


def sorted_rows() -> bytes:
    """What is tiled, sorted, counted and scattered."""
    builder = TFLiteBuilder()
    x = builder.input([2, 3])
    tiles, bits, rows = builder.tensor([2, 6]), builder.tensor([2, 2], "int32"), builder.tensor([4, 3])
    values, places, signs = builder.tensor([2, 2]), builder.tensor([2, 2], "int32"), builder.tensor([2, 2])
    hot, turned, angles, near = builder.tensor([2, 2, 3]), *(builder.tensor([2, 2]) for _ in range(3))
    builder.op("TILE", [x, builder.constant([1, 2], "int32")], [tiles])
    builder.op("TOPK_V2", [tiles, builder.constant(2, "int32")], [values, places])
    limits = [builder.constant(number, "float32") for number in (2.0, -1.0)]
    builder.op("ONE_HOT", [places, builder.constant(3, "int32"), *limits], [hot], axis=-1)
    builder.op("REVERSE_SEQUENCE", [values, builder.constant([1, 2], "int32")], [turned], seqDim=1, batchDim=0)
    builder.op("SIGN", [turned], [signs])
    builder.op("ATAN2", [signs, values], [angles])
    builder.op("FAKE_QUANT", [angles], [near], min=-3.0, max=3.0, numBits=8)
    builder.op("BITCAST", [near], [bits])
    builder.op("SCATTER_ND", [builder.constant([[3], [0]], "int32"), x, builder.constant([4, 3], "int32")], [rows])
    return builder.finish(hot, bits, rows)


@functools.cache
def seeds() -> tuple[bytes, ...]:
    return (
        quantised_network(),
        float_network(),
        movements(),
        variables(),
        picture(),
        kept(),
        nested_control(),
        sorted_rows(),
    )


def load(data: bytes) -> None:
    verify(from_tflite(data).module)


def test_the_seeds_are_right() -> None:
    for seed in seeds():
        load(seed)


def test_mutated_files() -> None:
    outcomes = fuzz(load, seeds(), range(1200))
    # Neither are all files refused at the door, nor do the mutations do nothing.
    assert min(outcomes["loaded"], outcomes["refused"]) > 100, outcomes


@pytest.mark.soak
@pytest.mark.parametrize("part", range(10))
def test_many_mutated_files(part: int) -> None:
    fuzz(load, seeds(), range(10_000 * part, 10_000 * (part + 1)))
