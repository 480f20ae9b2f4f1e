"""Files that the TFLite front-end refuses, and what it says: each says where, and all at once."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Sequence
from typing import Any

import ai_edge_litert.schema_py_generated as schema
import flatbuffers
import numpy as np
import pytest
from tests._support.tflite_builder import TFLiteBuilder

from uma.errors import ModelError, UsageError
from uma.frontends.tflite import from_tflite, reader

Q = {"scale": 0.5, "zero_point": 3}
CONV = {"padding": 1, "strideH": 1, "strideW": 1}
POOL = {**CONV, "filterHeight": 2, "filterWidth": 2}
Build = Callable[[TFLiteBuilder], int]


def message(model: bytes) -> str:
    with pytest.raises(ModelError) as caught:
        from_tflite(model)
    return str(caught.value)


# --- operators -------------------------------------------------------------------------------------------------------


def one(name: str, *operands: Any, result: Any = ([1], "float32", {}), outputs: int = 1, **options: Any) -> Build:
    """A model of one operator.

    Operands are (shape, dtype, quantisation) of inputs, arrays and numbers for constants, or -1.
    """

    def build(builder: TFLiteBuilder) -> int:
        inputs = []
        for operand in operands:
            if isinstance(operand, tuple):
                shape, dtype, quantisation = operand
                inputs.append(builder.input(shape, dtype, **quantisation))
            elif operand is None:
                inputs.append(-1)
            else:
                inputs.append(builder.constant(np.asarray(operand)))
        shape, dtype, quantisation = result
        results = [builder.tensor(shape, dtype, **quantisation) for _ in range(outputs)]
        builder.op(name, inputs, results, **options)
        return results[0]

    return build


def weighted(name: str, weight: dict[str, Any], shape: Sequence[int], dtype: str = "int8", **options: Any) -> Build:
    """A quantised product whose weight has the quantisation ``weight``."""

    def build(builder: TFLiteBuilder) -> int:
        dense = name == "FULLY_CONNECTED"
        x = builder.input([1, 2] if dense else [1, 2, 2, 2], dtype, **Q)
        w = builder.constant(np.zeros(shape), dtype, **weight)
        y = builder.tensor([1, 2] if dense else [1, 2, 2, 2], dtype, **Q)
        builder.op(name, [x, w], [y], **options)
        return y

    return build


def shorts(inputs: int = 1, zero_point: int = 0) -> Build:
    """A FULLY_CONNECTED of int16 by weights of int8."""

    def build(builder: TFLiteBuilder) -> int:
        x = builder.input([1, inputs], "int16", scale=0.1, zero_point=zero_point)
        w = builder.constant(np.full([1, inputs], 127), "int8", scale=0.1)
        y = builder.tensor([1, 1], "int16", scale=1.0)
        builder.op("FULLY_CONNECTED", [x, w], [y])
        return y

    return build


F2, B2, W2 = ([2], "float32", {}), ([2], "int8", Q), ([2], "int32", {})
IMAGE, BYTES = ([1, 4, 4, 1], "float32", {}), ([1, 2, 2, 2], "int8", Q)
KERNEL = np.zeros([1, 1, 1, 1], np.float32)
SOFT = {"scale": 1 / 256, "zero_point": -128}
INTS = np.int32

FAULTS: dict[str, tuple[Build, str]] = {
    "unknown": (one("UNIQUE", F2, result=F2), "this operator is not supported"),
    "place dtype": (one("ARG_MAX", F2, INTS(0), result=F2), "its result is float32"),
    "running sum dtype": (one("CUMSUM", ([2], "int16", {}), INTS(0), result=([2], "int16", {})), "it is of int16"),
    "running sum of codes": (one("CUMSUM", ([2], "int32", Q), INTS(0), result=([2], "int32", Q)), "' is quantised"),
    "operand missing": (one("ADD", F2, result=F2), "operand 1 is missing"),
    "no operands": (one("CONCATENATION", result=F2), "operand 0 is missing"),
    "no summands": (one("ADD_N", result=F2), "operand 0 is missing"),
    "operand absent": (one("ADD", F2, None, result=F2), "operand 1 is missing"),
    "results": (one("TANH", F2, result=F2, outputs=2), "it has 2 results, not 1"),
    "result shape": (one("TANH", F2, result=([3], "float32", {})), r"'t1' is \(3,\) float32 in the file and Tensor"),
    "result dtype": (one("MEAN", F2, INTS([0]), result=W2), "it turns float32 into int32"),
    "dtypes": (one("ADD", F2, W2, result=F2), "it is of float32 and int32"),
    "int16": (one("RELU_N1_TO_1", ([2], "int16", Q), result=([2], "int16", Q)), "it is of int16"),
    "int16 shifted": (
        one("SUB", *[([2], "int16", {"scale": 0.5})] * 2, result=([2], "int16", {"scale": 0.25})),
        r"its scales are 2\*\*-1, 2\*\*-1, 2\*\*-2: neither operand's is the result's",
    ),
    "int16 whose zero point is not 0": (shorts(zero_point=3), "its int16 has a zero point that is not 0"),
    "int16 of very many inputs": (shorts(70_000), "its sums of bytes may be from .* to .*, which int32 does not hold"),
    "relation": (one("ADD", F2, ([3], "float32", {}), result=F2), "do not broadcast"),
    "no scale": (one("TANH", ([2], "int8", {}), result=B2), "'t0' is int8 and has no scale"),
    "infinite scale": (one("TANH", B2, result=([2], "int8", {"scale": float("inf")})), "'t1' has the scale inf"),
    "zero scale": (one("TANH", B2, result=([2], "int8", {"scale": 0.0})), "'t1' has the scale 0.0"),
    "negative scale": (one("TANH", B2, result=([2], "int8", {"scale": -1.0})), "'t1' has the scale -1.0"),
    "zero point": (
        one("TANH", B2, result=([2], "int8", {"scale": 1.0, "zero_point": 128})),
        "'t1' has the zero point 128, which is not int8",
    ),
    "channels": (
        one("TANH", B2, result=([2], "int8", {"scale": [1.0] * 3})),
        r"'t1' of shape \(2,\) has 3 scales along axis 0",
    ),
    "channel axis": (
        one("TANH", B2, result=([2], "int8", {"scale": [1.0] * 2, "axis": -1})),
        r"'t1' of shape \(2,\) has 2 scales along axis -1",
    ),
    "zero points": (
        one("QUANTIZE", F2, result=([2], "int8", {"scale": [1.0] * 2, "zero_point": [0] * 3})),
        "'t1' has 2 scales and 3 zero points",
    ),
    "one scale": (one("TANH", B2, result=([2], "int8", {"scale": [1.0] * 2})), "'t1' has 2 scales, not one"),
    "activation": (one("ADD", F2, F2, result=F2, fusedActivationFunction=4), "its fused activation has the number 4"),
    "integer activation": (
        one("ADD", W2, W2, result=W2, fusedActivationFunction=1),
        "its fused activation is of int32",
    ),
    # Convolutions and products
    "strides": (one("CONV_2D", IMAGE, KERNEL, result=IMAGE, **{**CONV, "strideH": 0}), r"it has strides \(0, 1\)"),
    "padding": (one("CONV_2D", IMAGE, KERNEL, result=IMAGE, **{**CONV, "padding": 2}), "it has the padding scheme 2"),
    "mixed": (one("CONV_2D", IMAGE, KERNEL.astype(INTS), result=IMAGE, **CONV), "its weight of int32, its result of"),
    "bias": (
        one("CONV_2D", IMAGE, KERNEL, INTS([0]), result=IMAGE, **CONV),
        "it is of float32, its weight of float32, its bias of int32, its result of float32",
    ),
    "float weight": (one("FULLY_CONNECTED", F2, ([2, 2], "int8", Q), result=F2), "'t1' is int8 beside float32, and"),
    "rank": (one("CONV_2D", F2, KERNEL, result=IMAGE, **CONV), "must have 4 dimensions"),
    "depth": (one("CONV_2D", IMAGE, np.zeros([1, 1, 1, 2], np.float32), result=IMAGE, **CONV), "the weight takes 2"),
    "uint8 channels": (
        weighted("CONV_2D", {"scale": [1.0] * 2}, [2, 1, 1, 2], "uint8", **CONV),
        "its uint8 weight has a scale per channel",
    ),
    "int8 zero point": (
        weighted("CONV_2D", {"scale": 1.0, "zero_point": 1}, [2, 1, 1, 2], **CONV),
        "its int8 weight has a zero point that is not 0",
    ),
    "weight axis": (
        weighted("CONV_2D", {"scale": [1.0] * 2, "axis": 3}, [2, 1, 1, 2], **CONV),
        "its weight has scales along axis 3",
    ),
    "scale too large": (
        weighted("CONV_2D", {"scale": 1e30}, [2, 1, 1, 2], **CONV),
        r"fixed-point scale \d+ \* 2\*\*\(\d+ - 31\) is out of range",
    ),
    "shuffled": (weighted("FULLY_CONNECTED", Q, [2, 2], weightsFormat=1), "its weight is shuffled"),
    "dense rank": (weighted("FULLY_CONNECTED", Q, [2, 1, 2]), "its weight has 3 dimensions, not 2"),
    "dense depth": (weighted("FULLY_CONNECTED", Q, [2, 3]), "its weight takes 3 inputs, its data has 2 elements"),
    "dense zero points": (
        weighted("FULLY_CONNECTED", {"scale": [1.0] * 2, "zero_point": [0, 1]}, [2, 2]),
        "its weight has several zero points",
    ),
    "matmul rank": (one("BATCH_MATMUL", F2, ([2, 2], "float32", {}), result=F2), "operand 0 has 1 dimensions"),
    # Arithmetic
    "small result": (
        one("ADD", B2, B2, result=([2], "int8", {"scale": 1e-8})),
        "its result's scale is too small beside its operands'",
    ),
    "product overflows": (
        one("MUL", *[([2], "int8", {"scale": 1e30})] * 2, result=B2),
        "fixed-point scale inf is out of range",
    ),
    "extremum": (one("MINIMUM", B2, B2, result=([2], "int8", {"scale": 1.0})), "have different scales or zero points"),
    "beta": (one("SOFTMAX", F2, result=F2, beta=float("nan")), "its beta is nan"),
    "softmax result": (one("SOFTMAX", B2, result=B2, beta=1.0), r"its result has scale 0\.5 and zero point 3, not"),
    "softmax scale": (
        one("SOFTMAX", ([2], "int8", {"scale": 1e-9}), result=([2], "int8", SOFT), beta=1.0),
        "shift >= 0",
    ),
    "quantize to": (one("QUANTIZE", F2, result=W2), "it turns float32 into int32"),
    "quantize from": (one("QUANTIZE", W2, result=W2), "it turns int32 into int32"),
    "dequantize": (one("DEQUANTIZE", W2, result=F2), "it turns int32 into float32"),
    "dequantize float16": (one("DEQUANTIZE", ([2], "float16", {}), result=F2), "t0' cannot be one: it is float16"),
    "pool rank": (one("MAX_POOL_2D", F2, result=F2, **POOL), "its data has 1 dimensions, not 4"),
    "pool window": (one("MAX_POOL_2D", IMAGE, result=IMAGE, **{**POOL, "filterWidth": 0}), r"its window is \(2, 0\)"),
    "pool large": (one("MAX_POOL_2D", IMAGE, result=IMAGE, **{**POOL, "filterWidth": 5}), "a window of 5 does not fit"),
    "pool scale": (
        one("AVERAGE_POOL_2D", BYTES, result=([1, 1, 1, 2], "int8", {"scale": 1.0}), **POOL),
        "have different scales or zero points",
    ),
    "axes": (one("MEAN", F2, INTS([1]), result=F2), r"its axes \(1,\) are not those of 1 dimensions"),
    "no axes": (one("MEAN", F2, INTS([]), result=F2), "it reduces over no axes"),
    "axes vary": (one("MEAN", F2, W2, result=F2), "its axes is not a constant"),
    "axes real": (one("MEAN", F2, np.float32([0]), result=F2), "its axes is float32, not integer"),
    "largest of truths": (
        one("REDUCE_MAX", ([2], "bool", {}), INTS([0]), result=([], "bool", {})),
        "it is of bool, its result of bool",
    ),
    "mean of integers": (one("MEAN", W2, INTS([0]), result=([], "int32", {})), "it is of int32"),
    # Movements
    "moved": (one("RESHAPE", F2, result=W2, newShape=[2]), "it turns float32 into int32"),
    "shape": (one("RESHAPE", F2, result=F2, newShape=[-1, -1]), r"its shape is \(-1, -1\)"),
    "shape sign": (one("RESHAPE", F2, result=F2, newShape=[-2]), r"its shape is \(-2,\)"),
    "shape zero": (one("RESHAPE", F2, result=F2, newShape=[0, 2]), r"its shape is \(0, 2\)"),
    "shape size": (one("RESHAPE", F2, result=F2, newShape=[3]), "2 elements do not fit"),
    "axis": (one("TRANSPOSE", F2, INTS([1]), result=F2), "its axis 1 is not one of 1 dimensions"),
    "axis count": (one("EXPAND_DIMS", F2, INTS([0, 1]), result=F2), "its axis has 2 elements, not 1"),
    "split": (one("SPLIT", INTS(0), ([3], "float32", {}), result=F2, outputs=2), "it splits 3 elements of axis 0"),
    "split sizes": (one("SPLIT_V", F2, INTS([2, 0]), INTS(0), result=F2, outputs=2), r"into 2 parts of \[2, 0\]"),
    "slice": (one("SLICE", F2, INTS([0, 0]), INTS([1]), result=F2), "do not name 1 dimensions"),
    "slice end": (one("SLICE", F2, INTS([1]), INTS([2]), result=F2), "slice 1:3:1 of dimension 0 leaves its 2"),
    "strided": (one("STRIDED_SLICE", F2, INTS([0, 0]), INTS([1]), INTS([1]), result=F2), "are not equally many"),
    "strided rank": (one("STRIDED_SLICE", F2, *[INTS([1, 1])] * 3, result=F2), "its 2 entries do not fit 1 dimensions"),
    "stride": (one("STRIDED_SLICE", F2, INTS([0]), INTS([1]), INTS([0]), result=F2), "it has the stride 0"),
    "strided empty": (one("STRIDED_SLICE", F2, *[INTS([1])] * 3, result=F2), "it takes no element at all"),
    "strided axis": (
        one("STRIDED_SLICE", F2, INTS([2]), INTS([3]), INTS([1]), result=F2, shrinkAxisMask=1),
        "its axis 2 is not one of 2 dimensions",
    ),
    "paddings": (one("PAD", F2, INTS([1]), result=F2), "its paddings are 1 numbers, not 2"),
    "negative padding": (one("PAD", F2, INTS([[-1, 1]]), result=F2), "must be 2 numbers that are not negative"),
    "pad value": (one("PADV2", F2, INTS([[0, 0]]), INTS([0]), result=F2), "its value to pad with is not a constant f"),
    "mirror mode": (one("MIRROR_PAD", F2, INTS([[0, 0]]), result=F2, mode=2), "its mode has the number 2"),
    "mirrored": (one("MIRROR_PAD", F2, INTS([[0, 2]]), result=F2), "it mirrors 0 and 2 of 2 elements of axis 0"),
    "mirrored back": (one("MIRROR_PAD", F2, INTS([[-1, 1]]), result=F2), "it mirrors -1 and 1 of 2 elements"),
    "block rank": (one("SPACE_TO_BATCH_ND", F2, INTS([1]), INTS([[0, 0]]), result=F2), "does not fit 1 dimensions"),
    "block side": (
        one("SPACE_TO_BATCH_ND", IMAGE, INTS([2, 0]), INTS([[0, 0]] * 2), result=IMAGE),
        r"its block shape \(2, 0\) does not fit 4 dimensions",
    ),
    "block crops": (
        one("BATCH_TO_SPACE_ND", IMAGE, INTS([1, 1]), INTS([[0, 0], [0, -1]]), result=IMAGE),
        r"its crops are \[\(0, 0\), \(0, -1\)\]",
    ),
    "blocks": (
        one("SPACE_TO_BATCH_ND", IMAGE, INTS([2, 2]), INTS([[0, 0], [1, 0]]), result=IMAGE),
        r"its padded data of \[4, 5\] elements is not made of blocks of \[2, 2\]",
    ),
    "block batches": (
        one("BATCH_TO_SPACE_ND", IMAGE, INTS([2, 1]), INTS([[0, 0]] * 2), result=IMAGE),
        r"its 1 batches are not made of blocks of \[2, 1\]",
    ),
    "all cropped": (
        one("BATCH_TO_SPACE_ND", IMAGE, INTS([1, 1]), INTS([[0, 0], [2, 2]]), result=IMAGE),
        r"its crops \[\(0, 0\), \(2, 2\)\] leave nothing of \[4, 4\]",
    ),
    # Shapes
    "shape of a scalar": (one("SHAPE", ([], "float32", {}), result=([1], "int32", {})), "its data has no dimensions"),
    "shape in floats": (one("SHAPE", F2, result=([1], "float32", {})), "its result is float32"),
    "of quantised numbers": (one("SQUARE", B2, result=B2), "' is quantised"),
    "negative alpha": (
        one("LEAKY_RELU", B2, result=B2, alpha=-0.5),
        "its alpha is -0.5.*quantised numbers take one from 0 on",
    ),
    "resized to nothing": (
        one("RESIZE_NEAREST_NEIGHBOR", ([1, 2, 2, 1], "float32", {}), INTS([0, 2]), result=F2),
        r"it resizes data of 4 dimensions to \(0, 2\)",
    ),
    "broadcast elsewhere": (one("BROADCAST_TO", F2, INTS([3]), result=([3], "float32", {})), "do not broadcast"),
    "product that is computed": (one("REDUCE_PROD", W2, INTS([0]), result=W2), "its data is not known at import"),
    "gathered batches": (one("GATHER", INTS([1]), INTS([0]), result=W2, batchDims=1), "no 1 dimensions of batches"),
    "gathered outside": (one("GATHER", INTS([1]), INTS([1]), result=W2), "its indices leave the 1 elements of axis 0"),
    "gathered axis": (one("GATHER", INTS([1]), INTS([0]), result=W2, axis=1), "its axis 1 is not one of 1 dimensions"),
    "product of reals": (one("REDUCE_PROD", np.float32([1]), INTS([0]), result=F2), "it is of float32"),
    "product over nothing": (one("REDUCE_PROD", INTS([1]), INTS([]), result=W2), "it reduces over no axes"),
    "filled with two": (one("FILL", INTS([2]), np.float32([1, 2]), result=F2), "it repeats 2 values, not one"),
    "filled with nothing": (one("FILL", INTS([0]), np.float32(1), result=F2), r"shape \(0,\) has an extent that"),
    "filled up": (one("FILL", INTS([2**30]), np.float32(1), result=F2), "over 2 GiB"),
    "filled in all directions": (one("FILL", INTS([1] * 99), np.float32(1), result=F2), "a tensor of 99 dimensions"),
    "concatenation": (one("CONCATENATION", B2, result=([2], "int8", {"scale": 1.0})), "have different scales"),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_operators_that_are_refused(name: str) -> None:
    build, expected = FAULTS[name]
    builder = TFLiteBuilder()
    model = builder.finish(build(builder))
    with pytest.raises(ModelError, match=expected) as caught:
        from_tflite(model)
    code = schema.BuiltinOperator
    number = builder.model.operatorCodes[0].builtinCode
    operator = next(key for key, value in vars(code).items() if value == number)
    if "cannot be one" not in caught.value.what:
        layer = builder.graph.tensors[builder.graph.operators[0].outputs[0]].name
        assert caught.value.what.splitlines()[1].startswith(f"  {layer!r} ({operator}): ")


def test_all_faults_are_told_at_once_and_none_twice() -> None:
    builder = TFLiteBuilder()
    x = builder.input([2])
    a, b, c, d, e = (builder.tensor([2], name=name) for name in "abcde")
    shapeless = builder.tensor([0], name="shapeless")
    builder.op("UNIQUE", [x], [a])
    builder.op("TANH", [a], [b])  # nothing is wrong with this one
    builder.op("WHERE", [b], [shapeless])
    builder.op("TANH", [shapeless], [c])  # nor with this: what it reads is unknown
    builder.op("CUSTOM", [x], [d])
    builder.model.operatorCodes[-1].customCode = "mine"
    builder.op("RELU", [x, x], [e])
    builder.graph.operators[-1].inputs = []
    assert message(builder.finish(b, c, d, e)).splitlines() == [
        "the model has 4 operators that cannot be imported:",
        "  'a' (UNIQUE): this operator is not supported",
        "  'shapeless' (WHERE): this operator is not supported",
        "  'd' (CUSTOM 'mine'): this operator is not supported "
        "(no plugin of this build imports it: name a target of the one that does)",
        "  'e' (RELU): operand 0 is missing",
    ]


def test_a_constant_that_an_operator_writes_is_not_known() -> None:
    builder = TFLiteBuilder()
    x, written = builder.input([2, 3]), builder.constant([2, 3], "int32", name="written")
    y = builder.tensor([2], "int32")
    builder.op("SHAPE", [x], [written])
    builder.op("ADD", [written, written], [y])
    assert "'written' (SHAPE): it writes 'written', which has a value already" in message(builder.finish(y))


def test_an_operator_that_is_newer_than_the_schema() -> None:
    builder = TFLiteBuilder()
    x, y = builder.input([2]), builder.tensor([2])
    builder.op("TANH", [x], [y])
    builder.model.operatorCodes[0].builtinCode = 999
    assert "(operator 999): this operator is not supported" in message(builder.finish(y))


# --- graphs ----------------------------------------------------------------------------------------------------------


def tanh(x: int | None = None, edit: Callable[[TFLiteBuilder], None] = lambda builder: None) -> bytes:
    """Two operators in a row, 0 -> 1 -> 2; the first one reads ``x``."""
    builder = TFLiteBuilder()
    builder.input([2])
    builder.tensor([2])
    builder.tensor([2])
    builder.op("TANH", [0 if x is None else x], [1])
    builder.op("TANH", [1], [2])
    builder.graph.outputs = [2]
    edit(builder)
    return builder.finish(*builder.graph.outputs)


def edited(path: str, value: Any) -> bytes:
    """The same with one thing changed."""

    def edit(builder: TFLiteBuilder) -> None:
        *steps, last = path.split(".")
        place: Any = builder.model
        for step in steps:
            place = place[int(step)] if step.isdigit() else getattr(place, step)
        if last.isdigit():
            place[int(last)] = value
        else:
            setattr(place, last, value)

    return tanh(edit=edit)


def test_the_graph_to_be_edited_is_right() -> None:
    from_tflite(tanh())


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        ("version", 2, "the file has schema version 2, not 3"),
        ("subgraphs", [], "the file has no graph"),
        ("subgraphs.0.operators.0.opcodeIndex", 7, "it has 2 operator codes and mentions number 7"),
        ("subgraphs.0.operators.0.inputs", [9], "it has 3 tensors and mentions number 9"),
        ("subgraphs.0.operators.0.inputs", [-2], "it has 3 tensors and mentions number -2"),
        ("subgraphs.0.operators.0.outputs", [-1], "an operator TANH lacks a result"),
        ("subgraphs.0.operators.0.outputs", [], "'operator 0' (TANH): it has no result"),
        ("subgraphs.0.operators.1.outputs", [2, 2], "it writes 't2', which has a value already"),
        ("subgraphs.0.operators.1.outputs", [1], "it writes 't1', which has a value already"),
        ("subgraphs.0.operators.1.outputs", [0], "it writes 't0', which has a value already"),
        ("subgraphs.0.operators.0.inputs", [2], "it reads 't2' before anything wrote it"),
        ("subgraphs.0.operators.0.inputs", [1], "it reads 't1' before anything wrote it"),
        ("subgraphs.0.operators", [], "it reads 't2' before anything wrote it\n  where: output 't2'"),
        ("subgraphs.0.inputs", [0, 0], "input 't0' cannot be one: the file lists it twice"),
        ("subgraphs.0.inputs", [-1], "its graph lacks an output or an input"),
        ("subgraphs.0.outputs", [], "its graph lacks an output or an input"),
        ("subgraphs.0.tensors.0.shape", [-1, 2], "shape (-1, 2) has an extent that is not a positive integer"),
        ("subgraphs.0.tensors.0.shape", [2**20, 2**20], "over 2 GiB"),
        ("subgraphs.0.tensors.0.shape", [1] * 9, "input 't0' cannot be one: it has 9 dimensions"),
        ("subgraphs.0.tensors.0.type", 5, "input 't0' cannot be one: it is string"),
        ("subgraphs.0.tensors.0.isVariable", True, "input 't0' cannot be one: it is a variable"),
        ("subgraphs.0.tensors.1.sparsity", schema.SparsityParametersT(), "'t1' (TANH): 't1': it is sparse and not"),
        ("subgraphs.0.tensors.1.type", 99, "'t1' (TANH): 't1': it is type 99"),
        ("subgraphs.0.tensors.0.buffer", 5, "it has 1 buffers and mentions number 5"),
    ],
)
def test_graphs_that_are_refused(path: str, value: Any, expected: str) -> None:
    assert expected in message(edited(path, value))


def constants(builder: TFLiteBuilder, **change: Any) -> bytes:
    c = builder.constant([1.0, 2.0], "float32")
    for key, value in change.items():
        setattr(builder.graph.tensors[c], key, value)
    y = builder.tensor([2])
    builder.op("ADD", [builder.input([2]), c], [y])
    return builder.finish(y)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"shape": [3]}, "'t0' of shape (3,) and float32 has 8 bytes"),
        ({"shape": [1]}, "'t0' of shape (1,) and float32 has 8 bytes"),
        ({"shape": [-1, -2]}, "'t0' of shape (-1, -2) and float32 has 8 bytes"),
        ({"shape": [2**31 - 1] * 8}, "has 8 bytes"),
        ({"isVariable": True}, "'t0': it is a variable"),
    ],
)
def test_constants_that_are_refused(change: dict[str, Any], expected: str) -> None:
    assert expected in message(constants(TFLiteBuilder(), **change))


def test_a_constant_of_four_bits_that_is_cut_short() -> None:
    builder = TFLiteBuilder()
    w = builder.int4(np.zeros([2, 4]), scale=1.0)
    builder.graph.tensors[w].shape = [2, 5]
    y = builder.tensor([1, 2], "int8", **Q)
    builder.op("FULLY_CONNECTED", [builder.input([1, 5], "int8", **Q), w], [y])
    assert "'t0' of shape (2, 5) and int4 has 4 bytes" in message(builder.finish(y))


def test_an_input_is_no_constant() -> None:
    builder = TFLiteBuilder()
    c = builder.constant([1.0], "float32")
    builder.graph.inputs.append(c)
    assert "input 't0' cannot be one: it is a constant" in message(builder.finish(c))


def test_scales_of_inputs_are_looked_at_though_nothing_uses_them() -> None:
    builder = TFLiteBuilder()
    x = builder.input([1], "int8", scale=float("nan"))
    assert message(builder.finish(x)) == "'t0' has the scale nan\n  where: input or output 't0'"


# --- bytes -----------------------------------------------------------------------------------------------------------


def test_other_files_are_told_apart() -> None:
    for data in (b"", b"TFL3", b"\0" * 100, b"\x08\x07TFL4"):
        assert "this is not a TFLite file" in message(data)


def test_truncated_files_are_damaged() -> None:
    model = tanh()
    for length in range(8, len(model)):
        assert message(model[:length])


def test_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tanh()
    with monkeypatch.context() as patch:
        patch.setattr(reader, "MAX_TABLES", 1)
        assert message(model) == "the file has 2 operator codes, more than 1"
    with monkeypatch.context() as patch:
        patch.setattr(reader, "MAX_BYTES", 100)
        assert message(model) == "the file is larger than 2 GiB"


def test_vectors_that_overlap_are_bounded() -> None:
    # A thousand operators name one long vector of operands.
    builder = flatbuffers.Builder()
    operands = builder.CreateNumpyVector(np.zeros(1000, np.int32))
    operators = []
    for _ in range(1000):
        schema.OperatorStart(builder)
        schema.OperatorAddInputs(builder, operands)
        operators.append(schema.OperatorEnd(builder))

    def vector(tables: list[int]) -> int:
        builder.StartVector(4, len(tables), 4)
        for table in reversed(tables):
            builder.PrependUOffsetTRelative(table)
        return int(builder.EndVector())

    listed = vector(operators)
    schema.SubGraphStart(builder)
    schema.SubGraphAddOperators(builder, listed)
    graphs = vector([schema.SubGraphEnd(builder)])
    schema.ModelStart(builder)
    schema.ModelAddVersion(builder, 3)
    schema.ModelAddSubgraphs(builder, graphs)
    builder.Finish(schema.ModelEnd(builder), b"TFL3")
    assert message(bytes(builder.Output())) == "the file is damaged: its vectors are longer than itself"


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def missing(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "tflite":
            raise ImportError("No module named 'tflite'", name="tflite")
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(UsageError, match="TFLite files need a package that is missing: tflite") as caught:
        from_tflite(tanh())
    assert caught.value.hint == "pip install 'uma-core[tflite]'"
