"""Type relations of the ops: what they give, and what each of them refuses."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest

from uma.errors import ModelError
from uma.relay.expr import Call, Var, call, const
from uma.relay.op import FloatScale
from uma.relay.ops.common import broadcast_shapes, normalise_axes
from uma.relay.types import TensorType


def of(name: str, *types: tuple[tuple[int, ...], str], **attrs: Any) -> Call:
    """A call on variables of these shapes and dtypes."""
    args = [Var(f"x{i}", TensorType(shape, dtype)) for i, (shape, dtype) in enumerate(types)]
    return call(name, *args, **attrs)


F, I8, I32 = "float32", "int8", "int32"

NHWC = ((1, 6, 5, 4), F)
HWIO = ((3, 3, 4, 8), F)


@pytest.mark.parametrize(
    ("made", "shape", "dtype"),
    [
        (of("nn.conv2d", NHWC, HWIO), (1, 4, 3, 8), F),
        (of("nn.conv2d", NHWC, HWIO, padding=(1, 1, 1, 1), strides=(2, 2)), (1, 3, 3, 8), F),
        (of("nn.conv2d", NHWC, HWIO, dilation=(2, 2), padding=(0, 2, 0, 0)), (1, 2, 3, 8), F),
        (of("nn.conv2d", NHWC, ((3, 3, 1, 8), F), groups=4), (1, 4, 3, 8), F),
        (of("qnn.conv2d", ((1, 6, 5, 4), I8), ((1, 1, 4, 2), I8)), (1, 6, 5, 2), I32),
        (of("qnn.conv1d", ((2, 6, 4), "int16"), ((3, 4, 2), I8)), (2, 4, 2), I32),
        (of("nn.dense", ((5, 3), F), ((7, 3), F)), (5, 7), F),
        (of("nn.dense", ((3,), F), ((7, 3), F)), (7,), F),
        (of("qnn.dense", ((2, 5, 3), I8), ((7, 3), I8)), (2, 5, 7), I32),
        (of("matmul", ((2, 1, 4, 3), F), ((5, 3, 2), F)), (2, 5, 4, 2), F),
        (of("qnn.matmul", ((4, 3), "uint8"), ((3, 2), I8)), (4, 2), I32),
        (of("add", ((2, 1, 3), F), ((4, 1), F)), (2, 4, 3), F),
        (of("maximum", ((), I8), ((4, 1), I8)), (4, 1), I8),
        (of("take", ((5, 6, 7), I8), ((2, 3), I32), axis=-2), (5, 2, 3, 7), I8),
        (of("broadcast_to", ((3, 1), I8), shape=(2, 3, 4)), (2, 3, 4), I8),
        (of("nn.layer_norm", NHWC, axis=(-1,)), NHWC[0], F),
        (of("equal", ((3, 1), "bool"), ((4,), "bool")), (3, 4), "bool"),
        (of("where", ((3, 1), "bool"), ((4,), I8), ((), I8)), (3, 4), I8),
        (of("cast", ((2,), F), dtype="bool"), (2,), "bool"),
        (of("nn.max_pool2d", NHWC, pool_size=(2, 2), strides=(2, 2)), (1, 3, 2, 4), F),
        (of("nn.avg_pool1d", ((1, 5, 2), F), pool_size=(3,), padding=(1, 1)), (1, 5, 2), F),
        (of("nn.global_avg_pool", NHWC), (1, 1, 1, 4), F),
        (of("nn.global_max_pool", ((2, 9, 3), I8)), (2, 1, 3), I8),
        (of("sum", NHWC, axis=(1, -1)), (1, 5), F),
        (of("sum", NHWC, axis=()), (), F),
        (of("mean", NHWC, axis=(1, 2), keepdims=True), (1, 1, 1, 4), F),
        (of("nn.softmax", NHWC), NHWC[0], F),
        (of("reshape", NHWC, newshape=(6, 20)), (6, 20), F),
        (of("squeeze", ((1, 3, 1), F), axis=()), (3,), F),
        (of("squeeze", ((1, 3, 1), F), axis=(-1,)), (1, 3), F),
        (of("transpose", NHWC, axes=(0, 3, 1, 2)), (1, 4, 6, 5), F),
        (of("layout_transform", NHWC, src_layout="NHWC", dst_layout="NCHW"), (1, 4, 6, 5), F),
        (of("concatenate", ((2, 3), I8), ((2, 4), I8), axis=-1), (2, 7), I8),
        (of("strided_slice", ((7,), F), begin=(1,), end=(6,), strides=(2,)), (3,), F),
        (of("strided_slice", ((7,), F), begin=(6,), end=(-1,), strides=(-2,)), (4,), F),
        (of("nn.pad", ((2, 3), F), pad_width=(0, 1, 2, 3)), (4, 7), F),
    ],
    ids=lambda value: value.op_name if isinstance(value, Call) else "",
)
def test_types_of_results(made: Call, shape: tuple[int, ...], dtype: str) -> None:
    assert made.type is TensorType(shape, dtype)


def test_a_split_gives_a_tuple() -> None:
    made = of("split", ((2, 7), F), indices=(2, 3), axis=-1)
    assert str(made.type) == "Tuple[Tensor[(2, 2), float32], Tensor[(2, 1), float32], Tensor[(2, 4), float32]]"


CONV1D = (((1, 6, 4), F), ((3, 4, 8), F))

REFUSED: list[tuple[str, tuple[tuple[tuple[int, ...], str], ...], dict[str, Any], str]] = [
    ("add", (((2,), F), ((2,), I8)), {}, "the dtypes differ"),
    ("add", (((2,), "bool"), ((2,), "bool")), {}, "it takes numbers, not bool"),
    ("add", (((2,), F), ((3,), F)), {}, "shapes (2,), (3,) do not broadcast"),
    ("nn.relu", (((2,), "bool"),), {}, "it takes numbers, not bool"),
    ("clip", (((2,), "bool"),), {}, "it takes numbers, not bool"),
    ("clip", (((2,), F),), {"a_min": 1, "a_max": 0}, "clip to 1.0 .. 0.0, which holds nothing"),
    ("clip", (((2,), F),), {"a_min": math.nan}, "clip to nan .. inf, which holds nothing"),
    ("clip", (((2,), I8),), {"a_min": 200}, "clip to 200.0 .. inf, outside of int8"),
    ("clip", (((2,), I8),), {"a_max": -200}, "clip to -inf .. -200.0, outside of int8"),
    ("clip", (((2,), I8),), {"a_min": 0.5}, "clip of int8 to 0.5 .. inf: these must be whole numbers"),
    ("sigmoid", (((2,), I8),), {}, "it takes float tensors, not int8"),
    ("take", (((2,), F), ((1,), I8)), {"axis": 0}, "it takes int32, int64, not int8"),
    ("nn.resize_nearest", (((1, 2, 3), I8),), {"rows": (0,), "columns": (0,)}, "data must have 4 dimensions"),
    ("nn.resize_nearest", (((1, 2, 3, 1), I8),), {"rows": (2,), "columns": (0,)}, "rows (2,) are not some of 0 .. 1"),
    ("nn.resize_nearest", (((1, 2, 3, 1), I8),), {"rows": (0,), "columns": ()}, "columns () are not some of 0 .. 2"),
    ("take", (((), F), ((1,), I32)), {"axis": 0}, "there is no axis 0 in 0 dimensions"),
    ("broadcast_to", (((2,), F),), {"shape": (3,)}, "shapes (2,), (3,) do not broadcast"),
    ("broadcast_to", (((2, 1), F),), {"shape": (3,)}, "shape (2, 1) does not broadcast to (3,)"),
    ("nn.layer_norm", (((2,), F),), {"epsilon": -1, "axis": ()}, "its epsilon is -1.0"),
    ("nn.rms_norm", (((2,), F),), {"epsilon": math.inf, "axis": ()}, "its epsilon is inf"),
    ("nn.rms_norm", (((2,), I8),), {"axis": ()}, "it takes float tensors, not int8"),
    ("nn.layer_norm", (((2,), I8),), {"axis": ()}, "it takes float tensors, not int8"),
    (
        "nn.attention",
        (((2, 3), F), ((4, 3), F)),
        {},
        "it takes queries, keys, values, and perhaps a mask, not 2 tensors",
    ),
    ("nn.attention", (((2, 3), F), ((4, 2), F), ((4, 5), F)), {}, "it takes queries (..., m, d), keys (..., n, d)"),
    ("nn.attention", (((2, 3), F), ((4, 3), F), ((3, 5), F)), {}, "it takes queries (..., m, d), keys (..., n, d)"),
    ("nn.attention", (((3,), F), ((4, 3), F), ((4, 5), F)), {}, "it takes queries (..., m, d), keys (..., n, d)"),
    ("nn.attention", (((2, 3), I8), ((4, 3), I8), ((4, 5), I8)), {}, "it takes float tensors, not int8"),
    ("nn.attention", (((2, 3), F), ((4, 3), F), ((4, 5), F)), {"scale": math.inf}, "its scale is inf"),
    (
        "nn.attention",
        (((1, 3), F), ((4, 3), F), ((4, 5), F), ((2, 4), F)),
        {},
        "its mask (2, 4) does not broadcast to 1 queries and 4 keys",
    ),
    ("negative", (((2,), "uint8"),), {}, "it takes signed numbers, not uint8"),
    ("logical_or", (((2,), I8), ((2,), I8)), {}, "it takes bool, not int8"),
    ("power", (((2,), I8), ((2,), I8)), {}, "it takes float tensors, not int8"),
    ("where", (((2,), I8), ((2,), F), ((2,), F)), {}, "its condition is int8, not bool"),
    ("where", (((2,), "bool"), ((2,), F), ((2,), I8)), {}, "the dtypes differ"),
    ("tanh", (((2,), I32),), {}, "it takes float tensors, not int32"),
    ("nn.conv1d", (((1, 6, 4), F), ((3, 4), F)), {}, "data and weight must have 3 dimensions"),
    ("nn.conv2d", (((6, 5, 4), F), HWIO), {}, "data and weight must have 4 dimensions"),
    ("nn.conv1d", CONV1D, {"groups": 3}, "3 groups do not divide 4 input and 8 output channels"),
    ("nn.conv1d", CONV1D, {"groups": 0}, "0 groups do not divide"),
    ("nn.conv1d", CONV1D, {"groups": 2}, "the weight takes 4 channels, the data has 4 in 2 groups"),
    ("nn.conv1d", CONV1D, {"strides": (0,)}, "strides (0,) and dilation (1,) must be positive"),
    ("nn.conv1d", CONV1D, {"dilation": (-1,)}, "strides (1,) and dilation (-1,) must be positive"),
    ("nn.conv1d", CONV1D, {"strides": (2**31,)}, "strides (2147483648,) and dilation (1,): over 2147483647"),
    ("nn.conv1d", CONV1D, {"dilation": (2**40,)}, "strides (1,) and dilation (1099511627776,): over 2147483647"),
    (
        "nn.conv1d",
        CONV1D,
        {"padding": (2**30, 2**30), "strides": (2**30,)},
        "elements with its padding: over 2147483647",
    ),
    ("qnn.quantize", (((5, 2), F),), {"scale": 0.5, "axis": 2, "rounding": "even", "dtype": I8}, "there is no axis 2"),
    ("qnn.dequantize", (((5, 2), I8),), {"scale": 0.5, "axis": -3}, "there is no axis -3 in 2 dimensions"),
    (
        "qnn.requantize",
        (((5, 2), I8),),
        {"scale": FloatScale((0.5,)), "axis": 9, "dtype": I8},
        "there is no axis 9 in 2 dimensions",
    ),
    ("nn.conv1d", CONV1D, {"padding": (0, -1)}, "padding (0, -1) must not be negative"),
    ("nn.conv1d", CONV1D, {"dilation": (3,)}, "a window of 7 does not fit the 6 elements of dimension 1"),
    ("nn.conv1d", CONV1D, {"padding": (2**31, 0)}, "elements with its padding: over 2147483647"),
    ("nn.conv1d", (((1, 6, 4), I8), ((3, 4, 8), I8)), {}, "it takes float tensors, not int8"),
    ("nn.conv1d", (((1, 6, 4), F), ((3, 4, 8), "float64")), {}, "the dtypes differ"),
    ("qnn.conv1d", CONV1D, {}, "it takes int8, uint8, int16, not float32"),
    ("qnn.conv1d", (((1, 6, 4), I8), ((3, 4, 8), I8)), {"input_zero_point": 128}, "zero point 128 is not int8"),
    ("qnn.conv1d", (((1, 6, 4), I8), ((3, 4, 8), "uint8")), {"kernel_zero_point": -1}, "zero point -1 is not uint8"),
    ("nn.dense", (((5, 3), F), ((7, 4), F)), {}, "the weight must be (units, in)"),
    ("nn.dense", (((), F), ((7, 4), F)), {}, "the weight must be (units, in)"),
    ("nn.dense", (((5, 3), F), ((3,), F)), {}, "the weight must be (units, in)"),
    ("nn.dense", (((5, 3), I8), ((7, 3), I8)), {}, "it takes float tensors, not int8"),
    ("qnn.dense", (((5, 3), I8), ((7, 3), I32)), {}, "it takes int8, uint8, int16, not int32"),
    ("qnn.dense", (((5, 3), I8), ((7, 3), I8)), {"kernel_zero_point": 400}, "zero point 400 is not int8"),
    ("matmul", (((5, 3), F), ((4, 3), F)), {}, "it multiplies (..., m, k) by (..., k, n)"),
    ("matmul", (((3,), F), ((3, 4), F)), {}, "it multiplies (..., m, k) by (..., k, n)"),
    ("matmul", (((2, 5, 3), F), ((3, 3, 4), F)), {}, "shapes (2,), (3,) do not broadcast"),
    ("qnn.matmul", (((5, 3), F), ((3, 4), F)), {}, "it takes int8, uint8, int16, not float32"),
    ("qnn.matmul", (((5, 3), I8), ((3, 4), I8)), {"input_zero_point": -129}, "zero point -129 is not int8"),
    ("nn.max_pool1d", (((6, 4), F),), {"pool_size": (2,)}, "data must have 3 dimensions"),
    ("nn.max_pool1d", (((1, 6, 4), F),), {"pool_size": (0,)}, "pool_size (0,) must be positive"),
    ("nn.max_pool1d", (((1, 6, 4), F),), {"pool_size": (2,), "padding": (2, 0)}, "leaves windows of (2,) without any"),
    (
        "nn.max_pool1d",
        (((1, 6, 4), F),),
        {"pool_size": (2,), "padding": (0, 3), "strides": (2,)},
        "padding (0, 3) leaves windows of (2,) without any element",
    ),
    ("nn.max_pool1d", (((1, 6, 4), "bool"),), {"pool_size": (2,)}, "it takes numbers, not bool"),
    ("nn.avg_pool2d", (((1, 6, 4, 2), I8),), {"pool_size": (2, 2)}, "it takes float tensors, not int8"),
    ("nn.global_max_pool", (((1, 6), F),), {}, "data must be (batch, spatial..., channels)"),
    ("nn.global_max_pool", (((1, 6, 2), "bool"),), {}, "it takes numbers, not bool"),
    ("nn.global_avg_pool", (((1, 6, 2), I8),), {}, "it takes float tensors, not int8"),
    ("sum", (((2, 3), "bool"),), {"axis": ()}, "it takes numbers, not bool"),
    ("sum", (((2, 3), F),), {"axis": (2,)}, "there is no axis 2 in 2 dimensions"),
    ("sum", (((2, 3), F),), {"axis": (1, -1)}, "an axis is named twice in (1, -1)"),
    ("mean", (((2, 3), I8),), {"axis": ()}, "it takes float tensors, not int8"),
    ("nn.softmax", (((2, 3), I8),), {}, "it takes float tensors, not int8"),
    ("nn.softmax", (((2, 3), F),), {"axis": -3}, "there is no axis -3 in 2 dimensions"),
    ("nn.softmax", (((), F),), {}, "there is no axis -1 in 0 dimensions"),
    ("reshape", (((2, 3), F),), {"newshape": (7,)}, "6 elements do not fit shape (7,)"),
    ("reshape", (((2, 3), F),), {"newshape": (-1,)}, "shape (-1,) has an extent that is not a positive integer"),
    ("squeeze", (((2, 1), F),), {"axis": (0,)}, "axis 0 has extent 2, not 1"),
    ("squeeze", (((2, 1), F),), {"axis": (1, -1)}, "an axis is named twice in (1, -1)"),
    ("squeeze", (((2, 1), F),), {"axis": (2,)}, "there is no axis 2 in 2 dimensions"),
    ("transpose", (((2, 3), F),), {"axes": (0, 0)}, "axes (0, 0) are not a permutation of 2 dimensions"),
    ("transpose", (((2, 3), F),), {"axes": (0,)}, "axes (0,) are not a permutation of 2 dimensions"),
    (
        "layout_transform",
        (((2, 3), F),),
        {"src_layout": "NN", "dst_layout": "NN"},
        "layouts 'NN' and 'NN' do not name the same dimensions once each",
    ),
    (
        "layout_transform",
        (((2, 3), F),),
        {"src_layout": "NC", "dst_layout": "NH"},
        "layouts 'NC' and 'NH' do not name the same dimensions once each",
    ),
    (
        "layout_transform",
        (((2, 3), F),),
        {"src_layout": "NHC", "dst_layout": "NCH"},
        "layout 'NHC' does not name 2 dimensions",
    ),
    ("concatenate", (((2, 3), F), ((2, 3), I8)), {"axis": 0}, "the dtypes differ"),
    ("concatenate", (((2, 3), F), ((2, 4), F)), {"axis": 0}, "the shapes differ elsewhere than along axis 0"),
    ("concatenate", (((2, 3), F), ((2,), F)), {"axis": 0}, "the shapes differ elsewhere than along axis 0"),
    ("concatenate", (((2, 3), F),), {"axis": 2}, "there is no axis 2 in 2 dimensions"),
    ("split", (((2, 7), F),), {"indices": (3, 3), "axis": 1}, "cuts at (3, 3) do not rise within the 7 elements"),
    ("split", (((2, 7), F),), {"indices": (7,), "axis": 1}, "cuts at (7,) do not rise within the 7 elements of axis 1"),
    ("split", (((2, 7), F),), {"indices": (0,), "axis": 1}, "cuts at (0,) do not rise within the 7 elements of axis 1"),
    ("split", (((2, 7), F),), {"indices": (), "axis": 2}, "there is no axis 2 in 2 dimensions"),
    (
        "strided_slice",
        (((2, 7), F),),
        {"begin": (0,), "end": (1,), "strides": (1,)},
        "begin, end and strides must name all 2 dimensions",
    ),
    ("nn.pad", (((2,), F),), {"pad_width": (1,)}, "pad_width (1,) must be 2 numbers that are not negative"),
    ("nn.pad", (((2,), F),), {"pad_width": (1, -1)}, "pad_width (1, -1) must be 2 numbers that are not negative"),
    ("nn.pad", (((2,), I8),), {"pad_width": (1, 1), "pad_value": 128}, "pad_value 128.0 is not int8"),
    ("nn.pad", (((2,), I8),), {"pad_width": (1, 1), "pad_value": 0.5}, "pad_value 0.5 is not int8"),
    ("nn.pad", (((2,), I8),), {"pad_width": (1, 1), "pad_value": math.inf}, "pad_value inf is not int8"),
    ("nn.pad", (((2,), I8),), {"pad_width": (1, 1), "pad_value": math.nan}, "pad_value nan is not int8"),
    ("nn.pad", (((2,), F),), {"pad_width": (1, 1), "pad_value": 1e39}, "pad_value 1e+39 is not float32"),
    *(
        (
            "strided_slice",
            (((7,), F),),
            {"begin": (begin,), "end": (end,), "strides": (stride,)},
            f"slice {begin}:{end}:{stride} of dimension 0 leaves its 7 elements or is empty",
        )
        for begin, end, stride in [(0, 8, 1), (-1, 3, 1), (3, 3, 1), (0, 7, 0), (7, 0, -1), (3, -2, -1), (2, 5, -1)]
    ),
]


@pytest.mark.parametrize(("name", "types", "attrs", "message"), REFUSED, ids=[f"{r[0]}-{r[3]}"[:60] for r in REFUSED])
def test_what_does_not_fit_is_refused(
    name: str, types: tuple[tuple[tuple[int, ...], str], ...], attrs: dict[str, Any], message: str
) -> None:
    with pytest.raises(ModelError, match=re.escape(message)) as caught:
        of(name, *types, **attrs)
    given = ", ".join(f"Tensor[{shape}, {dtype}]" for shape, dtype in types)
    assert caught.value.what.startswith(f"{name}({given}): ")


@pytest.mark.parametrize(
    ("made", "macs"),
    [
        (of("nn.conv2d", NHWC, HWIO), 4 * 3 * 8 * 3 * 3 * 4),
        (of("qnn.conv1d", ((1, 6, 4), I8), ((3, 1, 4), I8), groups=4), 4 * 4 * 3),
        (of("nn.dense", ((5, 3), F), ((7, 3), F)), 5 * 7 * 3),
        (of("qnn.matmul", ((2, 4, 3), I8), ((3, 6), I8)), 2 * 4 * 6 * 3),
    ],
)
def test_multiply_accumulates_are_counted(made: Call, macs: int) -> None:
    counted = made.op.macs  # type: ignore[union-attr]  # a call of an op
    assert counted is not None
    assert counted(made.attrs, made.type, *(arg.type for arg in made.args)) == macs


def test_broadcasting_is_numpys() -> None:
    for shapes in [((2, 1), (1, 3)), ((), (4,)), ((5, 1, 1), (2, 3), (3,))]:
        assert broadcast_shapes(*shapes) == np.broadcast_shapes(*shapes)


def test_no_axes_are_all_axes() -> None:
    assert normalise_axes((), 3) == (0, 1, 2)
    assert normalise_axes((-1, 0), 3) == (0, 2)


def test_constants_can_be_arguments() -> None:
    assert call("add", const([1, 2]), const(3)).shape == (2,)
