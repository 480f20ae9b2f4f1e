"""What is refused of operators that pick, resize, compare, normalise, and keep what they computed, and what it says."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from tests._support.tflite_builder import TFLiteBuilder
from tests.frontends.test_tflite_faults import B2, BYTES, F2, IMAGE, INTS, W2, Build, Q, message, one

from uma.errors import ModelError
from uma.frontends.tflite.supported import REFUSED
from uma.relay.expr import Var, call
from uma.relay.op import FixedPoint
from uma.relay.types import TensorType

TENTH = {"scale": 0.1}
SHORTS = ([2], "int16", TENTH)
TRANSPOSED = {"padding": 1, "strideH": 1, "strideW": 1}
REAL_KERNEL = np.zeros([1, 1, 1, 1], np.float32)


def transposed(shape: Sequence[int], weight: Any, **options: Any) -> Build:
    return one("TRANSPOSE_CONV", INTS(shape), weight, IMAGE, result=IMAGE, **{**TRANSPOSED, **options})


SOLID = {"padding": 1, "strideD": 1, "strideH": 1, "strideW": 1}
CUBE, T2, RANGE = ([1] * 5, "float32", {}), ([2], "bool", {}), {"min": -1.0, "max": 1.0, "numBits": 8}


def top(k: Any, dtype: str = "float32") -> Build:
    def build(builder: TFLiteBuilder) -> int:
        operand = builder.input(k[0], k[1]) if isinstance(k, tuple) else builder.constant(k)
        values, places = builder.tensor([1], dtype), builder.tensor([1], "int32")
        builder.op("TOPK_V2", [builder.input([2], dtype), operand], [values, places])
        return values

    return build


ONE = np.float32(1)


def hot(indices: Any, depth: Any, on: Any = ONE, axis: int = 0) -> Build:
    return one("ONE_HOT", indices, depth, on, np.float32(0), result=F2, axis=axis)


def scattered(indices: Any, updates: Any, shape: Sequence[int]) -> Build:
    return one("SCATTER_ND", INTS(indices), updates, INTS(shape), result=F2)


def turned(lengths: Any, **options: Any) -> Build:
    return one("REVERSE_SEQUENCE", ([1, 2], "float32", {}), lengths, result=([1, 2], "float32", {}), **options)


FAULTS: dict[str, tuple[Build, str]] = {
    # Picks
    "indices": (one("GATHER", F2, F2, result=F2), "its indices are float32"),
    "named outside": (one("GATHER_ND", F2, INTS([[2]]), result=([1], "float32", {})), "leave the 2 elements of axis 0"),
    "named too far": (one("GATHER_ND", F2, INTS([[0, 0]]), result=F2), r"of shape \(1, 2\) do not fit data"),
    "table": (one("EMBEDDING_LOOKUP", INTS([[0]]), F2, result=F2), "its indices have 2 dimensions, not 1"),
    "row outside": (one("EMBEDDING_LOOKUP", INTS([5]), F2, result=F2), "leave the 2 elements of axis 0"),
    "table of others": (one("EMBEDDING_LOOKUP", INTS([0]), W2, result=F2), "it turns int32 into float32"),
    "table by columns": (
        one("EMBEDDING_LOOKUP", INTS([0]), ([1, 2], "int8", {"scale": [1.0] * 2, "axis": 1}), result=F2),
        "its table has scales along axis 1, not along its rows",
    ),
    "update": (one("DYNAMIC_UPDATE_SLICE", F2, ([3], "float32", {}), INTS([0]), result=F2), "does not fit data"),
    "reversed": (one("REVERSE_V2", F2, INTS([1]), result=F2), "its axis 1 is not one of 1 dimensions"),
    # Shapes
    "broadcast arguments": (one("BROADCAST_ARGS", INTS([2]), INTS([2]), result=F2), "its result is float32"),
    "zeros of bytes": (one("ZEROS_LIKE", B2, result=B2), "it is of int8"),
    # Blocks
    "block of nothing": (one("DEPTH_TO_SPACE", IMAGE, result=IMAGE, blockSize=0), "it has blocks of 0 and data of 4"),
    "depth of blocks": (one("DEPTH_TO_SPACE", IMAGE, result=IMAGE, blockSize=2), "its 1 channels are not made of"),
    "space of blocks": (one("SPACE_TO_DEPTH", IMAGE, result=IMAGE, blockSize=3), "its 4 by 4 elements are not made of"),
    # Resizing
    "bilinear integers": (
        one("RESIZE_BILINEAR", ([1, 2, 2, 1], "int32", {}), INTS([2, 2]), result=([1, 2, 2, 1], "int32", {})),
        "it is of int32",
    ),
    "bilinear both ways": (
        one("RESIZE_BILINEAR", IMAGE, INTS([2, 2]), result=IMAGE, alignCorners=True, halfPixelCenters=True),
        "it aligns corners of pixels at their centres",
    ),
    # Tables
    "table to another": (one("EXP", B2, result=SHORTS), "it turns int8 into int16"),
    "table of int16": (one("EXP", ([2], "int16", Q), result=SHORTS), "int16 has the zero points 3 and 0, not 0"),
    "table that overflows": (one("EXP", ([2], "int16", {"scale": 1.0}), result=SHORTS), "its function overflows at"),
    "root": (one("RSQRT", ([2], "int8", {"scale": 1e-20}), result=([2], "int8", {"scale": 1e-20})), "are too small"),
    # Pairs
    "coarse comparison": (
        one("LESS", ([2], "int8", {"scale": 1.0}), B2, result=([2], "bool", {})),
        "the scale of operand 0 is 1.0.*the kernels take one below 1",
    ),
    "comparison of int16": (one("LESS", SHORTS, SHORTS, result=([2], "bool", {})), "it is of int16.*int8, uint8"),
    "fine difference": (
        one("SQUARED_DIFFERENCE", B2, B2, result=([2], "int8", {"scale": 1e-5})),
        "the factor of its result is .*the kernels take one below 1",
    ),
    "negative of codes": (one("NEG", B2, result=B2), "its int8 has a zero point that is not 0"),
    "chosen": (
        one("SELECT_V2", ([2], "bool", {}), B2, ([2], "int8", TENTH), result=B2),
        "have different scales or zero points",
    ),
    # Along an axis
    "log softmax": (one("LOG_SOFTMAX", B2, result=B2), "its result has scale 0.5 and zero point 3, not 1/16 and 127"),
    "length activation": (
        one("L2_NORMALIZATION", F2, result=F2, fusedActivationFunction=1),
        "its fused activation has the number 1",
    ),
    "length of a scalar": (one("L2_NORMALIZATION", ([], "float32", {}), result=([], "float32", {})), "no dimensions"),
    "length scale": (one("L2_NORMALIZATION", B2, result=B2), "its result has scale 0.5 and zero point 3, not 1/128"),
    "sorted": (one("TOPK_V2", F2, INTS(1), result=([1], "float32", {}), outputs=2), "its results are float32, float32"),
    "sorted too many": (top(INTS(3)), "it takes 3 of 2 elements"),
    "sorted by data": (top(([], "int32", {})), "its k is not a constant"),
    "sorted truths": (top(INTS(1), "bool"), "it takes numbers, not bool"),
    "response of codes": (one("LOCAL_RESPONSE_NORMALIZATION", BYTES, result=BYTES, radius=1), "it is of int8"),
    "response of a row": (one("LOCAL_RESPONSE_NORMALIZATION", F2, result=F2), "data of 1 dimensions, not 4"),
    "response around": (one("LOCAL_RESPONSE_NORMALIZATION", IMAGE, result=IMAGE, radius=-1), "it has the radius -1"),
    "any of numbers": (one("REDUCE_ANY", W2, INTS([0]), result=W2), "it is of int32, its result of int32"),
    "all over nothing": (one("REDUCE_ALL", T2, INTS([]), result=T2), "it reduces over no axes"),
    # Counts and tiles
    "tiles": (one("TILE", F2, INTS([2, 2]), result=F2), "its 2 multiples do not fit 1 dimensions"),
    "no tiles": (one("TILE", F2, INTS([-1]), result=F2), r"it repeats \(-1,\) times"),
    "tiles by data": (one("TILE", F2, ([1], "int32", {}), result=F2), "its multiples is not a constant"),
    "tiles of codes": (one("TILE", B2, INTS([1]), result=([2], "int8", TENTH)), "different scales or zero points"),
    "rank in floats": (one("RANK", F2, result=([], "float32", {})), "its result is float32"),
    "range of bytes": (one("RANGE", *[np.int8(1)] * 3, result=([1], "int8", {})), "it is of int8.*float32, int32"),
    "range to data": (one("RANGE", INTS(0), ([], "int32", {}), INTS(1), result=W2), "its limit is not known at import"),
    "range of rows": (one("RANGE", INTS([0, 1]), INTS(1), INTS(1), result=W2), "it takes three numbers, not 2, 1, 1"),
    "range without steps": (one("RANGE", INTS(0), INTS(1), INTS(0), result=W2), "it counts from 0 to 1 by 0"),
    "range the other way": (one("RANGE", *map(np.float32, (0, 1, -1)), result=F2), "it counts from 0.0 to 1.0 by -1.0"),
    # Places
    "hot axis": (hot(INTS([1]), INTS(2), axis=2), "it makes 2 elements along axis 2 of indices of shape"),
    "hot depth": (hot(INTS([1]), INTS(-1)), "it makes -1 elements along axis 0"),
    "hot by reals": (hot(F2, INTS(2)), "its indices are float32"),
    "hot values": (hot(INTS([1]), INTS(2), np.float32([1, 2])), "its values have 2 and 1 elements, not 1"),
    "scattered rows": (scattered([[0]], ([1, 2], "float32", {}), [2]), r"have the shape \(1, 2\), not \(1,\)"),
    "scattered outside": (scattered([[2]], ([1], "float32", {}), [2]), "leave the 2 elements of axis 0"),
    "scattered too far": (scattered([[0, 0]], ([1], "float32", {}), [2]), r"of shape \(1, 2\) do not fit data of"),
    "scattered to another": (scattered([[0]], W2, [2]), "it turns int32 into float32"),
    "sequences of one axis": (turned(INTS([1]), seqDim=0, batchDim=0), "lie along axis 0, those of axis 0, in data of"),
    "sequences elsewhere": (turned(INTS([1]), seqDim=2, batchDim=0), "lie along axis 2, those of axis 0, in data of"),
    "lengths": (turned(INTS([1, 1]), seqDim=1), r"its lengths of shape \(2,\) do not fit data of shape \(1, 2\)"),
    "lengths of reals": (turned(np.float32([1]), seqDim=1), "its lengths are float32.*supported: int32, int64"),
    "long sequence": (turned(INTS([3]), seqDim=1), "a length of 3 is over the 2 elements of axis 1"),
    # Functions of floats
    "sign of int64": (one("SIGN", np.int64([1]), result=([1], "int64", {})), "it is of int64.*float32, float64, int32"),
    "sign of codes": (one("SIGN", ([2], "int32", Q), result=([2], "int32", Q)), "' is quantised"),
    "angle of integers": (one("ATAN2", W2, W2, result=W2), "it is of int32.*supported: float32, float64"),
    "bits of truth": (one("BITCAST", T2, result=([2], "int16", {})), "it reads bool as int16.*of bool its bytes"),
    "truth of bits": (one("BITCAST", B2, result=T2), "it reads int8 as bool"),
    "bits of rows": (one("BITCAST", B2, result=([], "int32", {})), "as int32: 4 elements, along the last"),
    "fake of codes": (one("FAKE_QUANT", B2, result=B2, **RANGE), "it is of int8.*supported: float32"),
    "fake narrow": (one("FAKE_QUANT", F2, result=F2, **RANGE, narrowRange=True), "its range is narrow.*in LiteRT"),
    "fake bits": (one("FAKE_QUANT", F2, result=F2, **{**RANGE, "numBits": 17}), "it has 17 bits.*supported: 2 to 16"),
    "fake range": (one("FAKE_QUANT", F2, result=F2, min=1.0, max=1.0, numBits=8), "its range is from 1.0 to 1.0"),
    "fake infinity": (one("FAKE_QUANT", F2, result=F2, min=-3e38, max=3e38, numBits=8), "its range is from -3.* to 3"),
    # Products
    "solid rank": (one("CONV_3D", IMAGE, REAL_KERNEL, result=IMAGE, **SOLID), "must have 5 dimensions"),
    "solid codes": (one("CONV_3D", *[([1] * 5, "int8", Q)] * 2, result=([1] * 5, "int8", Q), **SOLID), "it is of int8"),
    "solid strides": (one("CONV_3D", *[CUBE] * 2, result=CUBE, **{**SOLID, "strideD": 0}), r"strides \(0, 1, 1\)"),
    "solid depth": (one("CONV_3D", CUBE, ([1, 1, 1, 2, 1], "float32", {}), result=CUBE, **SOLID), "takes 2 channels"),
    "int16 zero point": (
        one("BATCH_MATMUL", *[([2, 2], "int16", Q)] * 2, result=([2, 2], "int16", TENTH)),
        "its int16 has a zero point that is not 0",
    ),
    "int16 depth": (
        one("BATCH_MATMUL", ([2, 2], "int16", TENTH), ([3, 2], "int16", TENTH), result=([2, 2], "int16", TENTH)),
        "do not fit each other",
    ),
    "int16 factor": (
        one("BATCH_MATMUL", *[([2, 2], "int16", {"scale": 1e3})] * 2, result=([2, 2], "int16", TENTH)),
        r"its sums are scaled by 2\*\*\d+ or more",
    ),
    "transposed weight": (transposed([1, 4, 4, 1], ([1, 1, 1, 1], "float32", {})), "its weight is not a constant"),
    "transposed depth": (transposed([1, 4, 4, 1], np.zeros([1, 1, 1, 2], np.float32)), "does not fit data of shape"),
    "transposed result": (transposed([2, 4, 4, 1], REAL_KERNEL), "its result of shape .* does not fit data and weight"),
    "transposed strides": (transposed([1, 4, 4, 1], REAL_KERNEL, strideH=0), r"it has strides \(0, 1\)"),
    "root of squares": (one("L2_POOL_2D", BYTES, result=BYTES, **TRANSPOSED), "it is of int8"),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_operators_that_are_refused(name: str) -> None:
    build, expected = FAULTS[name]
    builder = TFLiteBuilder()
    assert_matches(message(builder.finish(build(builder))), expected)


def assert_matches(said: str, expected: str) -> None:
    assert re.search(expected, said, re.DOTALL), said


NOTHING, EMPTY = ([0], "float32", {}), r"of shape \(0,\) has no elements, which is not supported: remove the operator"


@pytest.mark.parametrize(
    "build",
    [
        one("FILL", INTS([0]), np.float32(1), result=NOTHING),
        one("GATHER", F2, INTS([]), result=NOTHING),
        one("SLICE", F2, INTS([0]), INTS([0]), result=NOTHING),
        one("STRIDED_SLICE", F2, INTS([1]), INTS([1]), INTS([1]), result=NOTHING),
        one("RESHAPE", F2, INTS([0, 2]), result=NOTHING),
        one("TILE", F2, INTS([0]), result=NOTHING),
        one("SCATTER_ND", INTS([[0]]), ([1], "float32", {}), INTS([0]), result=NOTHING),
        one("RANGE", *[np.float32(1)] * 3, result=NOTHING),
    ],
)
def test_results_without_elements_are_refused_by_name(build: Build) -> None:
    builder = TFLiteBuilder()
    model = builder.finish(build(builder))
    layer = builder.graph.tensors[builder.graph.operators[0].outputs[0]].name
    assert_matches(message(model), rf"  '{layer}' \(.*{EMPTY}")


@pytest.mark.parametrize("name", REFUSED)
def test_complex_numbers_are_refused_by_name(name: str) -> None:
    builder = TFLiteBuilder()
    model = builder.finish(one(name, F2, INTS([1]), result=F2)(builder))
    assert_matches(
        message(model), rf"\({name}\): this operator is not supported \(.*move the transform out of the model"
    )


# --- what keeps values -----------------------------------------------------------------------------------------------


def svdf(dtype: str = "float32", **changed: Any) -> bytes:
    """An SVDF of 2 filters; ``changed`` may be shapes and dtypes of operands, or options."""
    builder, wide = TFLiteBuilder(), "float32" if dtype == "float32" else "int16"
    own: dict[str, Any] = {} if dtype == "float32" else {"scale": 0.1}
    shapes: dict[str, Any] = {"x": [1, 3], "feature": [2, 3], "time": [2, 4], "bias": [2], "state": [1, 8]}
    dtypes = dict.fromkeys(shapes, dtype) | {"time": wide, "state": wide, "bias": "float32" if not own else "int32"}
    for name, value in changed.items():
        if name in shapes:
            (dtypes if isinstance(value, str) else shapes)[name] = value
    x = builder.input(shapes["x"], dtypes["x"], **own)
    constants = [
        builder.constant(np.zeros(shapes[name]), dtypes[name], **changed.get("weight", own))
        for name in ("feature", "time", "bias")
    ]
    state = builder.tensor(shapes["state"], dtypes["state"], variable=changed.get("variable", True), **own)
    y = builder.tensor([1, 2], changed.get("result", dtype), **own)
    options = {"rank": changed.get("rank", 1), "fusedActivationFunction": changed.get("activation", 1)}
    builder.op("SVDF", [x, *constants, state], [y], **options)
    return builder.finish(y)


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (svdf(result="int32"), "it turns float32 into int32"),
        (svdf(x=[3]), "its data and weights must have 2 dimensions"),
        (svdf(rank=0), "its rank 0 does not divide its 2 filters"),
        (svdf(rank=3), "its rank 3 does not divide its 2 filters"),
        (svdf(feature=[2, 2]), r"its weight of features is .*, not \(2, 3\) float32"),
        (svdf(state=[1, 7]), r"its state is .*, not \(1, 2, 4\) float32"),
        (svdf("int8", state="int8"), r"its state is .*, not \(1, 2, 4\) int16"),
        (svdf("int8", activation=0), "its fused activation has the number 0"),
        (svdf("int8", weight={"scale": 0.1, "zero_point": 1}), "its int8 weight has a zero point that is not 0"),
        (svdf(variable=False), "it reads 't4' before anything wrote it"),
    ],
)
def test_svdf_that_is_refused(model: bytes, expected: str) -> None:
    assert_matches(message(model), expected)


def test_what_is_kept_must_be_a_variable() -> None:
    builder = TFLiteBuilder()
    x, state = builder.input([1, 3]), builder.input([1, 8])
    weights = [builder.constant(np.zeros(shape, np.float32)) for shape in ([2, 3], [2, 4], [2])]
    y = builder.tensor([1, 2])
    builder.op("SVDF", [x, *weights, state], [y], rank=1)
    assert "'t1' is not a variable" in message(builder.finish(y))


def test_a_variable_of_an_impossible_type() -> None:
    assert "where: variable 't4'" in message(svdf(state=[0, 8]))


def lstm(dtype: str = "float32", **changed: Any) -> bytes:
    """An LSTM of one unit over two steps; ``changed`` are operands by position, options, or other parts."""
    builder = TFLiteBuilder()
    own: dict[str, Any] = {} if dtype == "float32" else {"scale": 0.1}
    kept: dict[str, Any] = {} if dtype == "float32" else {"scale": 0.1, "zero_point": 1}
    x = builder.input(changed.get("data", [1, 2, 1]), dtype, **own)
    weights = [builder.constant(np.zeros([1, 1]), dtype, **changed.get("weight", own)) for _ in range(8)]
    bias = [builder.constant(np.zeros([1]), "int32" if own else "float32") for _ in range(4)]
    hidden = builder.tensor([1, 1], dtype, variable=True, **kept)
    cell_type = "int16" if own else "float32"
    cell = builder.tensor([1, 1], cell_type, variable=True, **changed.get("cell", {"scale": 2.0**-11} if own else {}))
    operands = [x, *weights, -1, -1, -1, *bias, -1, -1, hidden, cell, -1, -1, -1, -1]
    for position, operand in changed.get("operands", {}).items():
        operands[position] = -1 if operand is None else builder.constant(operand)
    if "recurrent" in changed:
        operands[5] = builder.input([1, 1], dtype, **own)
    y = builder.tensor([1, 2, 1], changed.get("result", dtype), **changed.get("scale", kept))
    inner = [builder.tensor([], changed.get("inside", "int8"), scale=0.1)] * changed.get("inner", 5)
    options = {"fusedActivationFunction": changed.get("activation", 4), "cellClip": changed.get("clip", 0.0)}
    builder.op("UNIDIRECTIONAL_SEQUENCE_LSTM", operands, [y], intermediates=inner, **options)
    return builder.finish(y)


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (lstm(operands={16: np.float32([[1]])}), "it has a projection"),
        (lstm(operands={20: np.float32([1])}), "it has layer normalisation"),
        (lstm(operands={1: None}), "operand 1 is missing.*four gates with weights of each"),
        (lstm(data=[2, 1]), r"its data has the shape \(2, 1\), its weight \(1, 1\)"),
        (lstm(result="int32"), "it turns float32 into int32"),
        (lstm(clip=-1.0), "its cell is kept within -1.0"),
        (lstm(activation=6), "its fused activation has the number 6"),
        (lstm(operands={12: np.float32([1, 2])}), r"its bias is .*, not \(1,\) float32"),
        (lstm("int8", operands={9: np.float32([1])}), "it has peepholes and is of int8"),
        (lstm("int8", activation=1), "its fused activation has the number 1"),
        (lstm("int8", recurrent=True), "its recurrent weight is not a constant"),
        (lstm("int8", scale={"scale": 0.2}), "its result and its state have different scales or zero points"),
        (lstm("int8", cell={"scale": 0.3}), "its cell has a scale that is not a power of two"),
        (lstm("int8", cell={"scale": 2.0**-9}), r"its cell has the scale 2\*\*-9, not 2\*\*-15 .. 2\*\*-11"),
        (lstm("int8", weight={"scale": 0.1, "zero_point": 1}), "its int8 weight has a zero point that is not 0"),
        (lstm("int8", inner=4), "its intermediate tensor 4 is missing"),
        (lstm("int8", inside="float16"), "is float16, which is not a quantised type"),
        (lstm("int8", inside="resource"), "is resource, which is not a quantised type"),
    ],
)
def test_lstm_that_is_refused(model: bytes, expected: str) -> None:
    assert_matches(message(model), expected)


def test_a_bidirectional_lstm_that_is_refused() -> None:
    def model(dtype: str = "float32", auxiliary: bool = False) -> bytes:
        b = TFLiteBuilder()
        x, y = b.input([1, 2, 1], dtype), b.tensor([1, 2, 2], dtype)
        own = b.constant(np.zeros([1, 1]), dtype)
        b.op("BIDIRECTIONAL_SEQUENCE_LSTM", [x, *[-1] * 39, *[own if auxiliary else -1] * 8], [y], mergeOutputs=True)
        return b.finish(y)

    assert "it has weights of auxiliary data" in message(model(auxiliary=True))
    assert "it turns int8 into int8" in message(model("int8"))
    assert "operand 1 is missing" in message(model())


# --- ops -------------------------------------------------------------------------------------------------------------

TWICE = FixedPoint((2**30,), (20,), "double")
LSTM = {"scale": TWICE, "hidden_scale": FixedPoint((2**30,), (-20,), "double"), "cell_exponent": -11}
STATES = (((4, 12), "int16"), ((3, 12), "int8"), ((12,), "int32"), ((4, 3), "int8"), ((4, 3), "int16"))
GATES = ((5, 4, 12), "int16")


@pytest.mark.parametrize(
    ("name", "types", "attrs", "expected"),
    [
        ("qnn.log_softmax", [((2,), "uint8")], {"scale": TWICE}, "it takes int8, not uint8"),
        ("qnn.log_softmax", [((2,), "int8")], {"scale": FixedPoint((2**30,), (-1,), "double")}, "and shift >= 0"),
        ("qnn.log_softmax", [((), "int8")], {"scale": TWICE}, "at least one dimension"),
        ("qnn.l2_normalize", [((2,), "int16")], {}, "it takes int8, uint8, not int16"),
        ("qnn.l2_normalize", [((), "int8")], {}, "at most 32767 channels"),
        ("qnn.l2_normalize", [((2,), "uint8")], {"input_zero_point": -1}, "zero point -1 is not uint8"),
        ("qnn.lstm", list(STATES), LSTM, "its gates have the shape (4, 12), not (time, batch, 4 * units)"),
        ("qnn.lstm", [GATES, *STATES[1:4], ((4, 2), "int16")], LSTM, "its cell has the shape (4, 2), not (4, 3)"),
        ("qnn.lstm", [GATES, *STATES[1:]], {**LSTM, "hidden_scale": FixedPoint((2**30,), (0,), "up")}, "hidden_scale"),
        ("qnn.lstm", [GATES, *STATES[1:]], {**LSTM, "cell_exponent": -10}, "2**-10, not 2**-15 .. 2**-11"),
        ("qnn.lstm", [GATES, *STATES[1:]], {**LSTM, "cell_clip": -1}, "its cell_clip -1 is not a positive int16"),
        ("qnn.lstm", [GATES, *STATES[1:]], {**LSTM, "output_zero_point": 200}, "zero point 200 is not int8"),
    ],
)
def test_calls_that_do_not_fit(name: str, types: list[Any], attrs: dict[str, Any], expected: str) -> None:
    args = [Var(f"x{i}", TensorType(shape, dtype)) for i, (shape, dtype) in enumerate(types)]
    with pytest.raises(ModelError) as caught:
        call(name, *args, **attrs)
    assert expected in str(caught.value)
