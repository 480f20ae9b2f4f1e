"""Canonical relay: every rule by example, and what holds of random graphs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, note
from hypothesis import strategies as st
from tests._support.relay_strategies import Choice, assert_same, modules, random_array, values_of

from uma.relay.evaluate import evaluate
from uma.relay.expr import Call, Constant, Expr, Function, Tuple, TupleGetItem, Var, call, const
from uma.relay.module import IRModule, Spans
from uma.relay.op import FixedPoint
from uma.relay.text import print_module
from uma.relay.transform import canonical, canonicalise
from uma.relay.transform.canonical import arrange
from uma.relay.transform.layout_propagation import permutation
from uma.relay.types import TensorType
from uma.relay.verify import verify
from uma.relay.visit import free_vars, post_order

F, I8, I32 = "float32", "int8", "int32"


def var(shape: tuple[int, ...], dtype: str = F, name: str = "x") -> Var:
    return Var(name, TensorType(shape, dtype))


def weights(*shape: int, dtype: str = F) -> Constant:
    return const(random_array(shape, dtype, 1))


def of(body: Expr, spans: Spans | None = None) -> IRModule:
    return IRModule.from_functions({"main": Function(free_vars(body), body)}, spans)


def canonical_of(body: Expr) -> Expr:
    """`body` in canonical form, which computes the same and has none that is more so."""
    before = of(body)
    after = canonicalise(before)
    verify(after)
    assert canonicalise(after).main is after.main
    inputs, expected, largest = values_of(before, 3)
    with np.errstate(all="ignore"):
        assert_same(evaluate(after, inputs), expected, largest)
    return after.main.body


def nchw(x: Expr) -> Expr:
    return call("layout_transform", x, src_layout="NHWC", dst_layout="NCHW")


def nhwc(x: Expr) -> Expr:
    return call("layout_transform", x, src_layout="NCHW", dst_layout="NHWC")


def resized(x: Expr) -> Call:
    rows, columns = ([place for place in range(extent) for _ in range(2)] for extent in x.shape[1:3])
    return call("nn.resize_nearest", x, rows=rows, columns=columns)


def transpose(x: Expr, *axes: int) -> Expr:
    return call("transpose", x, axes=axes)


def reshape(x: Expr, *shape: int) -> Expr:
    return call("reshape", x, newshape=shape)


X = var((1, 4, 5, 3))
X8 = var((1, 4, 5, 3), I8)
H = var((1, 4, 5, 3), "float16")
Y = var((1, 4, 5, 3), name="y")
S = var((1, 1, 1, 3), name="s")
S8 = var((1, 1, 1, 3), I8, name="s8")
IMAGE = var((1, 3, 4, 5))
WORD = var((1, 18, 3))
FIRST = var((1, 3, 18))
FLAT = var((6,))
ONES = var((1, 3, 1))
PAD = (0, 1, 2, 0, 0, 3, 1, 0)  # before N, H, W, C, then after
PADDED = call("nn.pad", X, pad_width=PAD)
LEAST = {"pad_value": -math.inf}
LOWEST = call("nn.pad", X, pad_width=PAD, **LEAST)
W = weights(3, 3, 3, 2)
W8 = weights(3, 3, 3, 2, dtype=I8)
D = weights(2, 60)
HALF = FixedPoint((2**30,), (0,), "up")
MANY = FixedPoint((2**30, 2**30, 2**30 + 1), (0, -1, -2), "up")
PARTS = call("split", X, indices=(1,), axis=3)
POOLED = call("nn.global_avg_pool", X)


def conv(x: Expr, **attrs: Any) -> Call:
    return call("nn.conv2d", x, W, **attrs)


def window(x: Expr, **attrs: Any) -> Call:
    return call("nn.max_pool2d", x, pool_size=(4, 1), **attrs)


PLANES = var((2, 3, 4, 5))

RULES: dict[str, tuple[Expr, Expr]] = {
    # Constants are folded.
    "fold": (call("add", const([1.0, 2.0]), const(3.0)), const([4.0, 5.0])),
    "fold below": (call("add", FLAT, call("nn.relu", const(-1.0))), call("add", FLAT, const(0.0))),
    "fold parts": (
        call("add", FLAT, call("tanh", TupleGetItem(call("split", const([0.0, 1.0]), indices=(1,), axis=0), 0))),
        call("add", FLAT, const([0.0])),
    ),
    "fold overflow": (call("multiply", const(np.float32(3e38)), const(10.0)), const(math.inf)),
    # What does nothing is left out.
    "cast": (call("cast", X, dtype=F), X),
    "cast back": (call("cast", call("cast", X8, dtype="float16"), dtype="int8"), X8),
    "cast back, moved": (call("cast", nchw(call("cast", H, dtype=F)), dtype="float16"), transpose(H, 0, 3, 1, 2)),
    "clip": (call("clip", X), X),
    "clip to all of the dtype": (call("clip", X8, a_min=-128, a_max=200), X8),
    "clip to less": (call("clip", X8, a_min=-127, a_max=200), call("clip", X8, a_min=-127, a_max=200)),
    "concatenate": (call("concatenate", X, axis=1), X),
    "pad": (call("nn.pad", X, pad_width=(0,) * 8, pad_value=3), X),
    "slice": (call("strided_slice", FLAT, begin=(0,), end=(6,), strides=(1,)), FLAT),
    "slice of one": (call("strided_slice", S, begin=(0,) * 4, end=(-1, 1, 1, 3), strides=(-1, 5, 1, 1)), S),
    "broadcast": (call("broadcast_to", X, shape=X.shape), X),
    # What an op says is not spelled out.
    "ones": (
        call("multiply", const(np.ones((2, 6), np.float32)), FLAT),
        call("broadcast_to", FLAT, shape=(2, 6)),
    ),
    "division by powers of two": (
        call("divide", FLAT, const(np.array([1, -2, 4, 0.5, 2.0**-100, 8], np.float32))),
        call("multiply", FLAT, const(np.array([1, -0.5, 0.25, 2, 2.0**100, 0.125], np.float32))),
    ),
    "division by another number": (call("divide", FLAT, const(3.0)), call("divide", FLAT, const(3.0))),
    "division by what has no inverse": (
        call("divide", FLAT, const(2.0**127)),
        call("divide", FLAT, const(2.0**127)),
    ),
    "square": (call("power", FLAT, const(2.0)), call("multiply", FLAT, FLAT)),
    "cube": (call("power", FLAT, const(3.0)), call("multiply", call("multiply", FLAT, FLAT), FLAT)),
    "first power": (call("nn.relu", call("power", FLAT, const(1.0))), call("nn.relu", FLAT)),
    "root": (call("power", FLAT, const(0.5)), call("power", FLAT, const(0.5))),
    "run of indices": (
        call("take", FLAT, const(np.array([[-1, 3]])), axis=0),
        reshape(call("strided_slice", FLAT, begin=(5,), end=(2,), strides=(-2,)), 1, 2),
    ),
    "one index": (
        call("take", WORD, const(np.int32(2)), axis=-1),
        reshape(call("strided_slice", WORD, begin=(0, 0, 2), end=(1, 18, 3), strides=(1, 1, 1)), 1, 18),
    ),
    "indices here and there": (
        call("take", FLAT, const(np.array([0, 2, 3])), axis=0),
        call("take", FLAT, const(np.array([0, 2, 3])), axis=0),
    ),
    "index outside": (call("take", FLAT, const(np.int64(6)), axis=0), call("take", FLAT, const(np.int64(6)), axis=0)),
    # Permutations go through what normalises and what broadcasts.
    "norm": (
        call("nn.layer_norm", transpose(X, 0, 3, 1, 2), axis=(1,)),
        transpose(call("nn.layer_norm", X, axis=(3,)), 0, 3, 1, 2),
    ),
    "rms norm": (
        call("nn.rms_norm", transpose(X, 0, 3, 1, 2), axis=(1,)),
        transpose(call("nn.rms_norm", X, axis=(3,)), 0, 3, 1, 2),
    ),
    "stretched": (
        call("broadcast_to", transpose(X, 0, 3, 1, 2), shape=(2, 1, 3, 4, 5)),
        transpose(call("broadcast_to", X, shape=(2, 1, 4, 5, 3)), 0, 1, 4, 2, 3),
    ),
    "reversal": (
        call("strided_slice", FLAT, begin=(5,), end=(-1,), strides=(-1,)),
        call("strided_slice", FLAT, begin=(5,), end=(-1,), strides=(-1,)),
    ),
    "split": (call("nn.relu", TupleGetItem(call("split", X, indices=(), axis=1), 0)), call("nn.relu", X)),
    "field of a tuple": (TupleGetItem(Tuple([X, S]), 1), S),
    "pool": (call("nn.max_pool2d", X8, pool_size=(1, 1)), X8),
    "global maximum": (call("nn.global_max_pool", S8), S8),
    # It makes -inf of NaN.
    "pool of floats": (call("nn.max_pool2d", X, pool_size=(1, 1)), call("nn.max_pool2d", X, pool_size=(1, 1))),
    "global maximum of floats": (call("nn.global_max_pool", S), call("nn.global_max_pool", S)),
    "average pool": (call("nn.avg_pool2d", X, pool_size=(1, 1)), X),
    "strided pool": (
        call("nn.max_pool2d", X, pool_size=(1, 1), strides=(2, 1)),
        call("nn.max_pool2d", X, pool_size=(1, 1), strides=(2, 1)),
    ),
    "sum": (call("sum", S, axis=(0, 1), keepdims=True), S),
    "global pool": (call("nn.global_avg_pool", S), S),
    "sum of what has the type of its data": (call("sum", FLAT, axis=(0,)), call("sum", FLAT, axis=(0,))),
    # Relu has one spelling.
    "relu": (call("clip", X, a_min=0), call("nn.relu", X)),
    "relu of relu": (call("nn.relu", call("nn.relu", X)), call("nn.relu", X)),
    "relu of integers": (call("clip", X8, a_min=0, a_max=127), call("nn.relu", X8)),
    "relu6": (call("clip", X, a_min=0, a_max=6), call("clip", X, a_min=0, a_max=6)),
    # Extents of 1 come and go by reshape, never by two in a row.
    "squeeze": (call("squeeze", ONES, axis=(2,)), reshape(ONES, 1, 3)),
    "two reshapes": (reshape(reshape(FLAT, 2, 3), 3, 2), reshape(FLAT, 3, 2)),
    "there and back": (reshape(reshape(FLAT, 2, 3), 6), FLAT),
    "same shape": (reshape(FLAT, 6), FLAT),
    "permutation of ones": (transpose(ONES, 1, 0, 2), reshape(ONES, 3, 1, 1)),
    "sum of ones": (call("sum", ONES, axis=(0, 2)), reshape(ONES, 3)),
    "mean of ones": (call("mean", ONES, axis=(0,)), reshape(ONES, 3, 1)),
    # Permutations combine and cancel.
    "no permutation": (transpose(X, 0, 1, 2, 3), X),
    "a permutation": (nchw(X), nchw(X)),
    "two permutations": (transpose(transpose(X, 0, 2, 1, 3), 0, 3, 1, 2), transpose(X, 0, 3, 2, 1)),
    "inverse": (nhwc(nchw(X)), X),
    # They sink through what can do without them.
    "sink unary": (call("tanh", nchw(X)), transpose(call("tanh", X), 0, 3, 1, 2)),
    "sink cast": (call("cast", nchw(X), dtype=I8), transpose(call("cast", X, dtype=I8), 0, 3, 1, 2)),
    "sink binary": (call("add", nchw(X), nchw(Y)), transpose(call("add", X, Y), 0, 3, 1, 2)),
    "sink scalar": (
        call("add", nchw(X), const(1.0)),
        transpose(call("add", X, const([[[[1.0]]]])), 0, 3, 1, 2),
    ),
    "sink channels": (
        call("multiply", nchw(X), const([[[1.0]], [[2.0]], [[3.0]]])),
        transpose(call("multiply", X, const([[[[1.0, 2.0, 3.0]]]])), 0, 3, 1, 2),
    ),
    "sink row": (
        call("multiply", nchw(X), const([1.0, 2.0, 3.0, 4.0, 5.0])),
        transpose(call("multiply", X, const([[[[1.0], [2.0], [3.0], [4.0], [5.0]]]])), 0, 3, 1, 2),
    ),
    "sink with what is only reshaped": (
        call("multiply", nchw(X), reshape(S, 1, 3, 1, 1)),
        transpose(call("multiply", X, S), 0, 3, 1, 2),
    ),
    "no sinking with a stranger": (
        call("add", nchw(X), var((1, 3, 4, 5), name="z")),
        call("add", nchw(X), var((1, 3, 4, 5), name="z")),
    ),
    "no sinking with another permutation": (
        call("add", transpose(X, 0, 2, 1, 3), transpose(var((1, 4, 3, 5), name="z"), 0, 3, 1, 2)),
        call("add", transpose(X, 0, 2, 1, 3), transpose(var((1, 4, 3, 5), name="z"), 0, 3, 1, 2)),
    ),
    "no sinking of a part": (
        call("add", transpose(var((4, 5)), 1, 0), var((2, 5, 4), name="z")),
        call("add", transpose(var((4, 5)), 1, 0), var((2, 5, 4), name="z")),
    ),
    "sink concatenate": (
        call("concatenate", nchw(X), nchw(Y), axis=1),
        transpose(call("concatenate", X, Y, axis=3), 0, 3, 1, 2),
    ),
    "sink softmax": (call("nn.softmax", nchw(X), axis=1), transpose(call("nn.softmax", X, axis=3), 0, 3, 1, 2)),
    "sink sum": (
        call("sum", nchw(X), axis=(1,)),
        call("sum", X, axis=(3,)),
    ),
    "sink sum over what moves": (
        call("sum", transpose(var((2, 4, 5, 3)), 0, 3, 2, 1), axis=(0,)),
        transpose(call("sum", var((2, 4, 5, 3)), axis=(0,)), 2, 1, 0),
    ),
    "sink mean": (
        call("mean", transpose(X, 0, 3, 2, 1), axis=(1,), keepdims=True),
        transpose(call("mean", X, axis=(3,), keepdims=True), 0, 3, 2, 1),
    ),
    "sink pad": (
        call("nn.pad", nchw(X), pad_width=(0, 0, 1, 2, 0, 0, 3, 4)),
        transpose(call("nn.pad", X, pad_width=(0, 1, 2, 0, 0, 3, 4, 0)), 0, 3, 1, 2),
    ),
    "sink slice": (
        call("strided_slice", nchw(X), begin=(0, 1, 0, 2), end=(1, 3, 4, 5), strides=(1, 1, 2, 1)),
        transpose(call("strided_slice", X, begin=(0, 0, 2, 1), end=(1, 4, 5, 3), strides=(1, 2, 1, 1)), 0, 3, 1, 2),
    ),
    "sink quantize": (
        call("qnn.quantize", nchw(X), scale=(1.0, 2.0, 4.0), axis=1, rounding="even", dtype=I8),
        transpose(call("qnn.quantize", X, scale=(1.0, 2.0, 4.0), axis=3, rounding="even", dtype=I8), 0, 3, 1, 2),
    ),
    "sink requantize": (
        call("qnn.requantize", nchw(X8), scale=MANY, axis=1, dtype=I8),
        transpose(call("qnn.requantize", X8, scale=MANY, axis=3, dtype=I8), 0, 3, 1, 2),
    ),
    "sink quantised sum": (
        call("qnn.sum", nchw(X8), axis=(2, 3), keepdims=True, input_zero_point=1),
        reshape(call("qnn.sum", X8, axis=(1, 2), keepdims=True, input_zero_point=1), 1, 3, 1, 1),
    ),
    "sink split": (
        TupleGetItem(call("split", nchw(X), indices=(1,), axis=1), 1),
        transpose(TupleGetItem(call("split", X, indices=(1,), axis=3), 1), 0, 3, 1, 2),
    ),
    "no sinking through a product": (
        call("nn.dense", nchw(X), weights(2, 5)),
        call("nn.dense", nchw(X), weights(2, 5)),
    ),
    "convolution between layouts": (
        nchw(call("nn.relu", nhwc(nchw(conv(nhwc(var((1, 3, 4, 5)))))))),
        nchw(call("nn.relu", conv(nhwc(var((1, 3, 4, 5)))))),
    ),
    # A reshape of what calls give comes after what is done element by element.
    "sink reshape": (call("tanh", reshape(POOLED, 3)), reshape(call("tanh", POOLED), 3)),
    "sink reshape of extents of 1": (call("tanh", nchw(POOLED)), reshape(call("tanh", POOLED), 1, 3, 1, 1)),
    "sink reshape through several": (
        reshape(call("nn.relu", reshape(call("nn.relu", reshape(POOLED, 3)), 3, 1)), 1, 3),
        reshape(call("nn.relu", POOLED), 1, 3),
    ),
    "sink reshape with a scalar": (
        call("subtract", const([[2.0]]), reshape(POOLED, 1, 3)),
        reshape(call("subtract", const(2.0), POOLED), 1, 3),
    ),
    "sink reshapes": (
        call("multiply", reshape(POOLED, 3), call("clip", reshape(POOLED, 3), a_min=-1, a_max=1)),
        reshape(call("multiply", POOLED, call("clip", POOLED, a_min=-1, a_max=1)), 3),
    ),
    "sink reshapes of calls and inputs": (
        call("add", reshape(POOLED, 3), reshape(S, 3)),
        reshape(call("add", POOLED, S), 3),
    ),
    "sink reshape through quantize": (
        call("qnn.quantize", reshape(POOLED, 3, 1), scale=0.5, axis=0, rounding="even", dtype=I8),
        reshape(call("qnn.quantize", POOLED, scale=0.5, rounding="even", dtype=I8), 3, 1),
    ),
    "sink reshape through requantize": (
        call("qnn.requantize", reshape(call("nn.global_max_pool", X8), 3), scale=HALF, dtype=I8),
        reshape(call("qnn.requantize", call("nn.global_max_pool", X8), scale=HALF, dtype=I8), 3),
    ),
    "no sinking of a reshape through scales of channels": (
        call("qnn.quantize", reshape(POOLED, 3), scale=(1.0, 2.0, 4.0), rounding="even", dtype=I8),
        call("qnn.quantize", reshape(POOLED, 3), scale=(1.0, 2.0, 4.0), rounding="even", dtype=I8),
    ),
    "no sinking of a reshape through zero points of channels": (
        call("qnn.quantize", reshape(POOLED, 3), scale=1.0, zero_point=(1, 2, 3), rounding="even", dtype=I8),
        call("qnn.quantize", reshape(POOLED, 3), scale=1.0, zero_point=(1, 2, 3), rounding="even", dtype=I8),
    ),
    "no sinking of a reshape of what has no axis": (
        call("qnn.quantize", reshape(call("sum", FLAT, axis=(0,)), 1), scale=1.0, rounding="even", dtype=I8),
        call("qnn.quantize", reshape(call("sum", FLAT, axis=(0,)), 1), scale=1.0, rounding="even", dtype=I8),
    ),
    "no sinking of a reshape through what widens": (
        call("qnn.dequantize", reshape(call("nn.global_max_pool", X8), 3), scale=0.5),
        call("qnn.dequantize", reshape(call("nn.global_max_pool", X8), 3), scale=0.5),
    ),
    "no sinking of a reshape of an input": (call("tanh", reshape(X, 60)), call("tanh", reshape(X, 60))),
    "no sinking of a reshape with a stranger": (
        call("add", reshape(POOLED, 3), var((3,), name="z")),
        call("add", reshape(POOLED, 3), var((3,), name="z")),
    ),
    "no sinking of reshapes from other shapes": (
        call("add", reshape(POOLED, 3), reshape(var((1, 3, 1), name="y"), 3)),
        call("add", reshape(POOLED, 3), reshape(var((1, 3, 1), name="y"), 3)),
    ),
    "no sinking of a reshape that is broadcast": (
        call("add", reshape(POOLED, 3, 1), reshape(POOLED, 1, 3)),
        call("add", reshape(POOLED, 3, 1), reshape(POOLED, 1, 3)),
    ),
    # Padding is an attribute.
    "pad into convolution": (conv(PADDED, padding=(1, 0, 0, 1)), conv(X, padding=(2, 2, 3, 2))),
    "pad that is permuted": (
        conv(nhwc(call("nn.pad", IMAGE, pad_width=(0, 0, 1, 2, 0, 0, 3, 1)))),
        conv(transpose(IMAGE, 0, 2, 3, 1), padding=(1, 2, 3, 1)),
    ),
    "pad that is given an extent of 1": (
        conv(reshape(call("nn.pad", WORD, pad_width=(0, 2, 0, 0, 1, 0)), 1, 1, 21, 3), padding=(1, 1, 1, 1)),
        conv(reshape(WORD, 1, 1, 18, 3), padding=(1, 3, 1, 2)),
    ),
    "pad that is permuted and given an extent of 1": (
        window(reshape(transpose(call("nn.pad", FIRST, pad_width=(0, 0, 2, 0, 0, 1), **LEAST), 0, 2, 1), 1, 21, 1, 3)),
        window(reshape(transpose(FIRST, 0, 2, 1), 1, 18, 1, 3), padding=(2, 0, 1, 0)),
    ),
    "pad that is given another shape": (
        conv(reshape(call("nn.pad", WORD, pad_width=(0, 2, 0, 0, 1, 0)), 1, 3, 7, 3)),
        conv(reshape(call("nn.pad", WORD, pad_width=(0, 2, 0, 0, 1, 0)), 1, 3, 7, 3)),
    ),
    "pad of channels that is permuted": (
        conv(nhwc(call("nn.pad", var((1, 2, 4, 5)), pad_width=(0, 0, 1, 0, 0, 1, 0, 0)))),
        conv(nhwc(call("nn.pad", var((1, 2, 4, 5)), pad_width=(0, 0, 1, 0, 0, 1, 0, 0)))),
    ),
    "pad with something else": (conv(LOWEST), conv(LOWEST)),
    "pad of channels": (
        call("nn.conv2d", call("nn.pad", X, pad_width=(0, 0, 0, 0, 0, 0, 0, 1)), weights(1, 1, 4, 2)),
        call("nn.conv2d", call("nn.pad", X, pad_width=(0, 0, 0, 0, 0, 0, 0, 1)), weights(1, 1, 4, 2)),
    ),
    "pad with the zero point": (
        call("qnn.conv2d", call("nn.pad", X8, pad_width=PAD, pad_value=-3), W8, input_zero_point=-3),
        call("qnn.conv2d", X8, W8, input_zero_point=-3, padding=(1, 2, 3, 1)),
    ),
    "pad with another point": (
        call("qnn.conv2d", call("nn.pad", X8, pad_width=PAD), W8, input_zero_point=-3),
        call("qnn.conv2d", call("nn.pad", X8, pad_width=PAD), W8, input_zero_point=-3),
    ),
    "pad into maximum": (
        call("nn.max_pool2d", LOWEST, pool_size=(4, 3)),
        call("nn.max_pool2d", X, pool_size=(4, 3), padding=(1, 2, 3, 1)),
    ),
    "pad into maximum of integers": (
        call("nn.max_pool2d", call("nn.pad", X8, pad_width=PAD, pad_value=-128), pool_size=(4, 3)),
        call("nn.max_pool2d", X8, pool_size=(4, 3), padding=(1, 2, 3, 1)),
    ),
    "pad with zeros before a maximum": (
        call("nn.max_pool2d", PADDED, pool_size=(4, 3)),
        call("nn.max_pool2d", PADDED, pool_size=(4, 3)),
    ),
    "windows in the padding alone": (
        call("nn.max_pool2d", LOWEST, pool_size=(2, 2)),
        call("nn.max_pool2d", LOWEST, pool_size=(2, 2)),
    ),
    "pad into average": (
        call("nn.avg_pool2d", PADDED, pool_size=(4, 3)),
        call("nn.avg_pool2d", X, pool_size=(4, 3), padding=(1, 2, 3, 1), count_include_pad=True),
    ),
    "pad into average that counts": (
        call("nn.avg_pool2d", PADDED, pool_size=(4, 3), padding=(0, 0, 0, 1), count_include_pad=True),
        call("nn.avg_pool2d", X, pool_size=(4, 3), padding=(1, 2, 3, 2), count_include_pad=True),
    ),
    "pad before an average that does not count": (
        call("nn.avg_pool2d", PADDED, pool_size=(4, 3), padding=(0, 0, 0, 1)),
        call("nn.avg_pool2d", PADDED, pool_size=(4, 3), padding=(0, 0, 0, 1)),
    ),
    # A mean over all of the spatial dimensions is a global pool.
    "mean": (call("mean", X, axis=(1, 2), keepdims=True), call("nn.global_avg_pool", X)),
    "mean without extents of 1": (call("mean", X, axis=(2, -3)), reshape(call("nn.global_avg_pool", X), 1, 3)),
    "mean of the spatial dimensions of another layout": (
        call("mean", nchw(X), axis=(2, 3)),
        reshape(call("nn.global_avg_pool", X), 1, 3),
    ),
    "mean of channels": (call("mean", X, axis=(3,)), call("mean", X, axis=(3,))),
    "whole average": (call("nn.avg_pool2d", X, pool_size=(4, 5), strides=(2, 2)), call("nn.global_avg_pool", X)),
    "whole maximum": (call("nn.max_pool2d", X8, pool_size=(4, 5)), call("nn.global_max_pool", X8)),
    "whole with padding": (
        call("nn.avg_pool2d", X, pool_size=(4, 5), padding=(0, 0, 0, 1)),
        call("nn.avg_pool2d", X, pool_size=(4, 5), padding=(0, 0, 0, 1)),
    ),
    # A dense layer takes its weights in the order of its data.
    "dense": (
        call("nn.dense", reshape(nchw(X), 1, 60), D),
        call("nn.dense", reshape(X, 1, 60), const(D.data.reshape(2, 3, 4, 5).transpose(0, 2, 3, 1).reshape(2, 60))),
    ),
    "dense of what is done to a flattened permutation": (
        call("nn.dense", call("nn.relu", reshape(nchw(X), 1, 60)), D),
        call(
            "nn.dense",
            reshape(call("nn.relu", X), 1, 60),
            const(D.data.reshape(2, 3, 4, 5).transpose(0, 2, 3, 1).reshape(2, 60)),
        ),
    ),
    "dense of a batch that moves": (
        call("nn.dense", reshape(transpose(var((2, 3, 4)), 1, 0, 2), 3, 8), weights(2, 8)),
        call("nn.dense", reshape(transpose(var((2, 3, 4)), 1, 0, 2), 3, 8), weights(2, 8)),
    ),
    # What is between a permutation and its inverse.
    "resize of planes": (
        nchw(resized(nhwc(PLANES))),
        reshape(resized(reshape(PLANES, 6, 4, 5, 1)), 2, 3, 8, 10),
    ),
    "resize of what is permuted": (resized(nhwc(PLANES)), resized(nhwc(PLANES))),
    "resize that is permuted in another way": (
        transpose(resized(nhwc(PLANES)), 0, 3, 2, 1),
        transpose(resized(nhwc(PLANES)), 0, 3, 2, 1),
    ),
    "dense of computed weights": (
        call("nn.dense", reshape(nchw(X), 1, 60), var((2, 60), name="w")),
        call("nn.dense", reshape(nchw(X), 1, 60), var((2, 60), name="w")),
    ),
}


@pytest.mark.parametrize("name", RULES)
def test_rules(name: str) -> None:
    before, after = RULES[name]
    found = canonical_of(before)
    assert found is after, print_module(of(found))[0] + print_module(of(after))[0]


def test_what_is_large_is_not_folded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(canonical, "FOLD_LIMIT_BYTES", 7)
    body = call("broadcast_to", const([1.0, 2.0]), shape=(2, 2))
    assert canonicalise(of(body)).main.body is body
    # What has no more elements than there are anyway is, however many bytes these take.
    assert canonicalise(of(call("nn.relu", const([-1.0, 2.0])))).main.body is const([0.0, 2.0])
    weights = call("multiply", call("cast", const(np.ones((2, 2), np.int8)), dtype="float32"), const([[3.0], [4.0]]))
    assert canonicalise(of(weights)).main.body is const([[3.0, 3.0], [4.0, 4.0]])


def test_arranging_folds_nothing() -> None:
    real = call("qnn.dequantize", const(np.zeros(3, np.int8)), scale=0.5)
    body = call("add", nchw(X), reshape(real, 1, 3, 1, 1))
    expected = transpose(call("add", X, reshape(real, 1, 1, 1, 3)), 0, 3, 1, 2)
    assert arrange(of(body)).main.body is expected


def test_functions_keep_their_attributes_and_kernels_are_left_alone() -> None:
    inner = Function([X], reshape(X, 1, 4, 5, 3), {"Primitive": "1"})
    main = Function([X], Call(inner, [X]), {"global_symbol": "m"})
    assert canonicalise(IRModule.from_functions({"main": main})).main is main


# --- layers ----------------------------------------------------------------------------------------------------------


def layers_of(body: Expr, **names: Expr) -> dict[str, list[str]]:
    """The layers of the canonical form of `body` by op, where those of `body` are `names`."""
    after = canonicalise(of(body, Spans({expr: (name,) for name, expr in names.items()})))
    found: dict[str, list[str]] = {}
    for expr in post_order(after.main.body):
        if isinstance(expr, Call) and expr.op_name:
            found.setdefault(expr.op_name, []).extend(after.spans[expr])
    return found


def test_a_permutation_keeps_its_layer_and_leaves_others_theirs() -> None:
    moved = nchw(X)
    tanh = call("tanh", moved)
    relu = call("nn.relu", tanh)
    assert layers_of(relu, t=moved, tanh=tanh, relu=relu) == {"tanh": ["tanh"], "nn.relu": ["relu"], "transpose": ["t"]}


def test_a_permutation_that_meets_its_inverse_is_gone() -> None:
    there = nchw(X)
    tanh = call("tanh", there)
    back = nhwc(tanh)
    assert layers_of(back, there=there, tanh=tanh, back=back) == {"tanh": ["tanh"]}


def test_layers_of_the_same_computation_merge() -> None:
    one = call("tanh", X)
    other = call("tanh", nchw(X))
    both = call("add", one, nhwc(other))
    assert layers_of(both, one=one, other=other, both=both) == {"tanh": ["one", "other"], "add": ["both"]}


def test_movements_that_combine_merge_their_layers() -> None:
    first = transpose(X, 0, 2, 1, 3)
    second = transpose(first, 0, 3, 1, 2)
    assert layers_of(second, first=first, second=second) == {"transpose": ["first", "second"]}
    one = reshape(FLAT, 2, 3)
    two = reshape(one, 3, 2)
    assert layers_of(two, one=one, two=two) == {"reshape": ["one", "two"]}


def test_a_pad_hands_its_layer_to_the_convolution() -> None:
    made = conv(PADDED)
    assert layers_of(made, pad=PADDED, conv=made) == {"nn.conv2d": ["pad", "conv"]}


def test_layers_of_what_is_spelt_in_another_way() -> None:
    mean = call("mean", X, axis=(1, 2))
    assert layers_of(mean, mean=mean) == {"nn.global_avg_pool": ["mean"], "reshape": ["mean"]}
    flat = reshape(nchw(X), 1, 60)
    dense = call("nn.dense", flat, D)
    assert layers_of(dense, t=flat.args[0], flat=flat, dense=dense) == {"reshape": ["flat"], "nn.dense": ["dense"]}  # type: ignore[attr-defined]  # `reshape` makes a call
    part = TupleGetItem(call("split", nchw(X), indices=(1,), axis=1), 1)
    assert layers_of(part, split=part.tuple, part=part) == {"split": ["split"], "transpose": []}


def test_what_does_nothing_hands_its_layer_to_what_it_does_it_to() -> None:
    tanh = call("tanh", X)
    cast = call("cast", tanh, dtype=F)
    assert layers_of(cast, tanh=tanh, cast=cast) == {"tanh": ["tanh", "cast"]}


@given(modules())
def test_no_layer_is_lost_unless_its_op_is(module: IRModule) -> None:
    after = canonicalise(module)
    left = {name for _, names in after.spans for name in names}
    kept = {expr for expr in post_order(after.main.body) if not isinstance(expr, (Var, Constant))}
    assert all(expr in kept for expr, _ in after.spans), "none is of what is gone"
    for expr, names in module.spans:
        if expr in kept or (isinstance(expr, Call) and expr.op_name in COMPUTING and not _folds(expr)):
            assert left.issuperset(names)


COMPUTING = ("add", "multiply", "subtract", "tanh", "sigmoid", "nn.softmax", "nn.conv2d", "qnn.conv2d", "nn.dense")
"""Ops that no rule leaves out."""


def _folds(expr: Expr) -> bool:
    return not free_vars(expr)


# --- what holds of every graph ---------------------------------------------------------------------------------------


def test_layers_stay_where_a_uint8_is_reshaped_on_its_way_out() -> None:
    x = Var("x", TensorType((1, 3, 4, 2), "uint8"))
    relu = call("nn.relu", x)
    flat = reshape(relu, 1, 24)
    conv = call("qnn.conv2d", relu, const(np.array([95, 130], "uint8").reshape(1, 1, 2, 1)))
    spans = Spans({relu: ["relu"], flat: ["flat"], conv: ["conv"]})
    after = canonicalise(of(Tuple([flat, conv]), spans))
    assert canonicalise(after).spans == after.spans


@given(modules(), st.integers(0, 2**16))
def test_random_graphs_compute_the_same_and_are_canonical_at_once(module: IRModule, seed: int) -> None:
    inputs, expected, largest = values_of(module, seed)
    assume(math.isfinite(largest))
    after = canonicalise(module)
    verify(after)
    assert_same(evaluate(after, inputs), expected, largest)
    again = canonicalise(after)
    assert again.main is after.main
    assert again.spans == after.spans


@given(modules())
def test_what_the_documentation_claims_holds(module: IRModule) -> None:
    for expr in post_order(canonicalise(module).main.body):
        if not isinstance(expr, Call):
            assert not (isinstance(expr, TupleGetItem) and isinstance(expr.tuple, Tuple))
            continue
        names = [arg.op_name for arg in expr.args if isinstance(arg, Call)]
        assert not all(isinstance(arg, Constant) for arg in expr.args)
        assert expr.op_name != "squeeze"
        assert not (expr.op_name == "reshape" and "reshape" in names)
        moved = permutation(expr)
        if moved is not None:
            assert permutation(moved[0]) is None
            kept = [axis for axis in moved[1] if moved[0].shape[axis] > 1]
            assert kept != sorted(kept)
        if expr.op_name in ("cast", "nn.pad", "concatenate"):
            assert expr.type is not expr.args[0].type or len(expr.args) > 1


@st.composite
def channels_first_networks(draw: st.DrawFn) -> Function:
    """A network as ONNX has it: a convolution, and more layers, each between permutations from and to NCHW.

    It has several channels throughout: with one, both layouts are the same elements in the same order.
    """
    c = Choice(draw)
    start: Expr = var((1, 3, 6, 6))
    for kind in c.of((), ("pad",), ("relu", "pad")):
        start = call("nn.pad", start, pad_width=(0, 0, 1, 0, 0, 0, 0, 1)) if kind == "pad" else call("nn.relu", start)
    x = conv_of(c, start)
    before: list[Expr] = []
    for _ in range(c.number(1, 8)):
        kind = c.of("conv", "conv", "pool", "bias", "relu", "residual", "concat", "gate", "pad", "split", "softmax")
        channels = x.shape[1]
        if kind == "conv":
            made = conv_of(c, x)
        elif kind == "pool":
            made = nchw(call("nn.max_pool2d", nhwc(x), pool_size=(2, 2), padding=(1, 1, 0, 0)))
        elif kind == "bias":
            made = call("add", x, const(c.array((1, channels, 1, 1), F)))
        elif kind == "gate":
            pooled = nchw(call("nn.global_avg_pool", nhwc(x)))
            made = call("multiply", x, call("sigmoid", pooled))
        elif kind == "residual":
            alike = [v for v in before if v.type is x.type]
            made = call("add", x, c.of(*alike) if alike else x)
        elif kind == "concat":
            made = call("concatenate", x, call("tanh", x), axis=1)
        elif kind == "pad":
            made = call("nn.pad", x, pad_width=(0, 0, 1, 0, 0, 0, 0, 1))
        elif kind == "split" and channels > 2:
            parts = call("split", x, indices=(1,), axis=1)
            made = call("concatenate", TupleGetItem(parts, 1), TupleGetItem(parts, 0), axis=1)
        elif kind == "softmax":
            made = call("nn.softmax", x, axis=1)
        else:
            made = call("nn.relu", x)
        before.append(x)
        x = made if math.prod(made.shape) < 2000 else call("nn.relu", x)
    end = c.of("as it is", "dense", "mean")
    if end == "dense":
        x = call("nn.dense", reshape(x, 1, math.prod(x.shape)), const(c.array((2, math.prod(x.shape)), F)))
    elif end == "mean":
        x = call("mean", x, axis=(2, 3))
    main = Function(free_vars(x), x)
    note(print_module(IRModule.from_functions({"main": main}))[0])
    return main


def conv_of(c: Choice, x: Expr) -> Expr:
    weight = const(c.array((2, 2, x.shape[1], c.number(2, 3)), F))
    return nchw(call("nn.conv2d", nhwc(x), weight, padding=(1, 1, 0, 0)))


def is_before_layers(expr: Expr) -> bool:
    """Whether it is an input, or what elementwise calls and pads make of one."""
    return all(
        isinstance(e, Var) or (isinstance(e, Call) and e.op_name in ("nn.relu", "nn.pad")) for e in post_order(expr)
    )


@given(channels_first_networks(), st.integers(0, 2**16))
def test_channels_first_networks_are_permuted_at_their_ends_only(main: Function, seed: int) -> None:
    module = IRModule.from_functions({"main": main})
    after = canonicalise(module).main
    note(print_module(IRModule.from_functions({"main": after}))[0])
    for expr in post_order(after.body):
        moved = permutation(expr)
        assert moved is None or is_before_layers(moved[0]) or expr is after.body
        if isinstance(expr, Call) and expr.op_name == "nn.conv2d":
            assert not (isinstance(expr.args[0], Call) and expr.args[0].op_name == "nn.pad")
    inputs, expected, largest = values_of(module, seed)
    assert_same(evaluate(after, inputs), expected, largest)
