"""What the TFLite front-end makes of a file: names, types, notes, real models, and what it says of bad ones."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

import ai_edge_litert.schema_py_generated as schema
import numpy as np
import pytest
from tests._support.tflite_builder import TFLiteBuilder, litert

from uma.errors import ModelError, UsageError
from uma.frontends.tflite import from_tflite
from uma.relay.evaluate import evaluate
from uma.relay.expr import Call, Constant
from uma.relay.module import TensorInfo
from uma.relay.op import FixedPoint
from uma.relay.visit import post_order

Q = {"scale": 0.5, "zero_point": 3}
CONV = {"padding": 1, "strideH": 1, "strideW": 1}


def test_the_newer_field_of_a_code_counts_alone() -> None:
    """Google's quantiser leaves the older field at 0, which is ADD."""
    b = TFLiteBuilder()
    x, y = b.input([2, 3]), b.tensor([2, 3], "int8", scale=0.5, zero_point=3)
    b.op("QUANTIZE", [x], [y])
    b.model.operatorCodes[0].deprecatedBuiltinCode = 0
    model = b.finish(y)
    numbers = np.array([[-1.25, 0, 0.3], [70, -90, 2]], np.float32)
    assert np.array_equal(run(model, numbers), litert(model, numbers)[0])


def run(model: bytes, *inputs: np.ndarray) -> np.ndarray:
    module = from_tflite(model).module
    return evaluate(module, {p.name: x for p, x in zip(module.main.params, inputs, strict=True)})[0]


def calls(model: bytes) -> list[Call]:
    return [expr for expr in post_order(from_tflite(model).module.main.body) if isinstance(expr, Call)]


# --- what is made ----------------------------------------------------------------------------------------------------


def test_a_quantised_convolution() -> None:
    builder = TFLiteBuilder()
    x = builder.input([1, 4, 4, 1], "int8", name="serving_default_x:0", **Q)
    w = builder.constant(np.ones([2, 3, 3, 1]), "int8", scale=[0.25, 0.5], axis=0)
    b = builder.constant([10, 20], "int32", scale=[0.125, 0.25])
    y = builder.tensor([1, 4, 4, 2], "int8", scale=1.0, zero_point=-7, name="conv/relu")
    builder.op("CONV_2D", [x, w, b], [y], padding=0, strideH=1, strideW=1, fusedActivationFunction=1)
    imported = from_tflite(builder.finish(y))
    main, signature = imported.module.main, imported.module.signature
    assert signature is not None
    assert signature.inputs == (TensorInfo("serving_default_x:0", 0.5, 3),)
    assert signature.outputs == (TensorInfo("conv/relu", 1.0, -7),)
    assert imported.notes == ()
    assert [param.name for param in main.params] == ["serving_default_x_0"]
    conv, bias, requantize, clip = made = [e for e in post_order(main.body) if isinstance(e, Call)]
    assert [call.op_name for call in made] == ["qnn.conv2d", "add", "qnn.requantize", "clip"]
    assert all(imported.module.spans[call] == ("conv/relu",) for call in made)
    assert conv.args[1].shape == (3, 3, 1, 2)
    assert (conv.attrs.padding, conv.attrs.input_zero_point) == ((1, 1, 1, 1), 3)
    assert requantize.attrs.scale == FixedPoint((2**30, 2**30), (-2, -1), "double")
    assert requantize.attrs.output_zero_point == clip.attrs.a_min == -7
    assert isinstance(bias.args[1], Constant)


def test_an_activation_that_does_nothing_is_left_out() -> None:
    builder = TFLiteBuilder()
    x = builder.input([2], "int8", scale=0.02, zero_point=-128)
    y = builder.tensor([2], "int8", scale=0.02, zero_point=-128)
    builder.op("RELU6", [x], [y])  # 5.1 is the largest number there is
    assert calls(builder.finish(y)) == []


@pytest.mark.parametrize("name", ["CONV_2D", "DEPTHWISE_CONV_2D"])
def test_a_convolution_without_bias(name: str) -> None:
    def model(bias: bool) -> bytes:
        builder = TFLiteBuilder()
        x = builder.input([1, 3, 3, 2], "int8", **Q)
        shape = [2, 2, 2, 2] if name == "CONV_2D" else [1, 2, 2, 2]
        operands = [x, builder.constant(np.arange(np.prod(shape)).reshape(shape), "int8", scale=0.1)]
        if bias:
            operands.append(builder.constant([0, 0], "int32", scale=0.05))
        y = builder.tensor([1, 2, 2, 2], "int8", **Q)
        builder.op(name, operands, [y], **CONV)
        return builder.finish(y)

    data = np.random.default_rng(0).integers(-128, 128, [1, 3, 3, 2], np.int8)
    np.testing.assert_array_equal(run(model(False), data), litert(model(True), data)[0])


@pytest.mark.parametrize("name", ["CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "BATCH_MATMUL"])
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_weights_beside_floats_are_dequantised_and_that_is_told(name: str, dtype: str) -> None:
    builder = TFLiteBuilder()
    data, weight, axis, result = {
        "CONV_2D": ([1, 1, 1, 2], [2, 1, 1, 2], 0, [1, 1, 1, 2]),
        "DEPTHWISE_CONV_2D": ([1, 1, 1, 2], [1, 1, 1, 2], 3, [1, 1, 1, 2]),
        "FULLY_CONNECTED": ([1, 2], [2, 2], 0, [1, 2]),
        "BATCH_MATMUL": ([1, 2], [2, 2], 1, [1, 2]),
    }[name]
    stored = np.array([1, 2, 3, 4], dtype)[: np.prod(weight)].reshape(weight)
    x = builder.input(data)
    w = builder.constant(stored, scale=[0.5, 0.25], zero_point=[1, 2], axis=axis)
    y = builder.tensor(result, name="layer")
    builder.op(name, [x, w], [y], **({} if len(data) == 2 else CONV))
    imported = from_tflite(builder.finish(y))
    assert imported.notes == ("integer weights beside float activations were dequantised in 1 layers: 'layer'",)
    shape = [-1 if i == axis else 1 for i in range(len(weight))]
    real = (stored - np.array([1.0, 2.0]).reshape(shape)) * np.array([0.5, 0.25]).reshape(shape)
    values = np.array([3.0, 5.0], np.float32)
    (got,) = evaluate(imported.module, {"t0": values.reshape(data)})
    expected = {
        "DEPTHWISE_CONV_2D": lambda: values * real.ravel(),
        "BATCH_MATMUL": lambda: values @ real,
    }.get(name, lambda: real.reshape(2, 2) @ values)()
    np.testing.assert_allclose(got.ravel(), expected)


@pytest.mark.parametrize("name", ["CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED"])
@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_a_weight_may_be_computed(name: str, dtype: str) -> None:
    quantisation = {"scale": 0.05, "zero_point": 0} if dtype == "int8" else {}
    data, shape, result = {
        "CONV_2D": ([1, 3, 3, 2], [3, 2, 2, 2], [1, 2, 2, 3]),
        "DEPTHWISE_CONV_2D": ([1, 3, 3, 2], [1, 2, 2, 4], [1, 2, 2, 4]),
        "FULLY_CONNECTED": ([1, 4], [3, 4], [1, 3]),
    }[name]
    random = np.random.default_rng(0)
    values = random.integers(-100, 100, data).astype(dtype)
    weight, bias = random.integers(-100, 100, shape).astype(dtype), random.integers(-100, 100, result[-1:])

    def model(computed: bool) -> bytes:
        builder = TFLiteBuilder()
        x = builder.input(data, dtype, **quantisation)
        w = builder.input(shape, dtype, **quantisation) if computed else builder.constant(weight, **quantisation)
        b = builder.constant(bias, "int32" if dtype == "int8" else dtype, scale=0.05 * 0.05)
        y = builder.tensor(result, dtype, **quantisation)
        builder.op(name, [x, w, b], [y], **({} if name == "FULLY_CONNECTED" else CONV))
        return builder.finish(y)

    np.testing.assert_array_equal(run(model(True), values, weight), run(model(False), values))


def test_an_old_spelling_of_a_scalar() -> None:
    builder = TFLiteBuilder()
    x, y = builder.input([1]), builder.tensor([])
    builder.op("RESHAPE", [x], [y], newShape=[0])
    assert from_tflite(builder.finish(y)).module.main.body.shape == ()


def test_float16_weights_are_made_float32() -> None:
    builder = TFLiteBuilder()
    x, half = builder.input([2]), builder.constant(np.array([0.5, 1.5], np.float16))
    full, y = builder.tensor([2]), builder.tensor([2])
    builder.op("DEQUANTIZE", [half], [full])
    builder.op("ADD", [x, full], [y])
    assert [call.op_name for call in calls(builder.finish(y))] == ["add"]
    assert run(builder.finish(y), np.array([1, 2], np.float32)).tolist() == [1.5, 3.5]


def test_several_results_and_a_constant_result() -> None:
    builder = TFLiteBuilder()
    x, c = builder.input([4], name="x"), builder.constant([7.0], "float32")
    parts = [builder.tensor([2], name=f"part{i}") for i in range(2)]
    builder.op("SPLIT", [builder.constant(0, "int32"), x], parts, numSplits=2)
    module = from_tflite(builder.finish(parts[1], c, x, parts[0])).module
    results = evaluate(module, {"x": np.arange(4, dtype=np.float32)})
    assert [result.tolist() for result in results] == [[2, 3], [7], [0, 1, 2, 3], [0, 1]]
    assert all(module.spans[expr] == ("part0",) for expr in post_order(module.main.body) if isinstance(expr, Call))


def test_layers_that_are_one_computation_share_their_names() -> None:
    builder = TFLiteBuilder()
    x, first, second, y = builder.input([2]), *(builder.tensor([2], name=name) for name in ("a", "b", "c"))
    builder.op("TANH", [x], [first])
    builder.op("TANH", [x], [second])
    builder.op("ADD", [first, second], [y])
    module = from_tflite(builder.finish(y)).module
    tanh = post_order(module.main.body)[1]
    assert module.spans[tanh] == ("a", "b")


@pytest.mark.parametrize(
    ("names", "variables"),
    [
        (["a/b:0", "a_b_0", "a b-0"], ["a_b_0", "a_b_0_2", "a_b_0_3"]),
        (["", "for", "9", "Ä", "_x_"], ["tensor_0", "x_for", "x_9", "x", "x_2"]),
    ],
)
def test_inputs_become_different_identifiers(names: Sequence[str], variables: Sequence[str]) -> None:
    builder = TFLiteBuilder()
    inputs = [builder.input([1], name=name) for name in names]
    assert [param.name for param in from_tflite(builder.finish(*inputs)).module.main.params] == variables


def test_names_are_shown_without_control_characters() -> None:
    builder = TFLiteBuilder()
    x = builder.input([1], name="a\n\x1b[31m")
    signature = from_tflite(builder.finish(x)).module.signature
    assert signature is not None
    assert signature.inputs[0].name == "a\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}[31m"


def test_inputs_with_scales_per_channel_have_none_to_tell() -> None:
    builder = TFLiteBuilder()
    x, y = builder.input([2], "int8", scale=[1.0, 2.0], name="x"), builder.tensor([2])
    builder.op("DEQUANTIZE", [x], [y])
    signature = from_tflite(builder.finish(y)).module.signature
    assert signature is not None
    assert signature.inputs == (TensorInfo("x"),)


def test_shapes_can_be_given() -> None:
    builder = TFLiteBuilder()
    x, y, z = builder.input([1, 4], name="x"), builder.tensor([1, 4]), builder.tensor([2, 2])
    builder.op("TANH", [x], [y])
    builder.op("RESHAPE", [y], [z], newShape=[-1, 2])
    model = builder.finish(z)
    assert from_tflite(model, shapes={"x": (3, 4)}).module.main.body.shape == (6, 2)
    with pytest.raises(UsageError, match="a shape is given for 'y', which is not an input"):
        from_tflite(model, shapes={"y": (3, 4)})
    with pytest.raises(ModelError, match=r"\(3, 0\) has an extent"):
        from_tflite(model, shapes={"x": (3, 0)})


def test_open_extents_of_results_are_inferred() -> None:
    builder = TFLiteBuilder()
    x, y, z = builder.input([2, 3]), builder.tensor([0, 3]), builder.tensor([])
    builder.op("TANH", [x], [y])
    builder.op("TANH", [y], [z])
    assert from_tflite(builder.finish(z)).module.main.body.shape == (2, 3)


def flattened(per_axis: bool) -> bytes:
    """What converters make of a flattened image whose batch is open: the new shape is computed from the old one."""
    builder = TFLiteBuilder()
    x = builder.input([-1, 2, 3], name="x")
    y, shape, batch = builder.tensor([-1, 2, 3]), builder.tensor([3], "int32"), builder.tensor([], "int32")
    builder.op("TANH", [x], [y])
    builder.op("SHAPE", [y], [shape], outType=schema.TensorType.INT32)
    new, result = builder.tensor([2], "int32"), builder.tensor([-1, -1] if per_axis else [-1, 6], name="flat")
    if per_axis:
        kept, rest = builder.tensor([2], "int32"), builder.tensor([], "int32")
        builder.op("GATHER", [shape, builder.constant([0, 1], "int32")], [kept])
        builder.op("REDUCE_PROD", [kept, builder.constant([0], "int32")], [batch])
        builder.op("GATHER", [shape, builder.constant(2, "int32")], [rest])
        builder.op("PACK", [batch, rest], [new], valuesCount=2)
    else:
        begin, end = builder.constant([0], "int32"), builder.constant([1], "int32")
        builder.op("STRIDED_SLICE", [shape, begin, end, end], [batch], shrinkAxisMask=1)
        builder.op("PACK", [batch, builder.constant(6, "int32")], [new], valuesCount=2)
    builder.op("RESHAPE", [y, new], [result])
    return builder.finish(result)


@pytest.mark.parametrize("per_axis", [False, True])
@pytest.mark.parametrize("batch", [None, 1, 5])
def test_shapes_that_a_model_computes_are_known(per_axis: bool, batch: int | None) -> None:
    model = flattened(per_axis)
    module = from_tflite(model, shapes={"x": (batch, 2, 3)} if batch else None).module
    x = np.random.default_rng(0).normal(size=(batch or 1, 2, 3)).astype(np.float32)
    (got,), (expected,) = evaluate(module, {"x": x}), litert(model, x)
    assert got.shape == expected.shape
    np.testing.assert_allclose(got, expected, rtol=1e-6)
    made = [expr.op_name for expr in post_order(module.main.body) if isinstance(expr, Call)]
    assert made == ["tanh", "reshape"]


def test_what_follows_a_fault_of_an_open_shape_is_not_blamed() -> None:
    builder = TFLiteBuilder()
    x, y, z = builder.input([-1, 2]), builder.tensor([-1, 2], name="y"), builder.tensor([-1, 4])
    builder.op("UNIQUE", [x], [y])
    builder.op("RESHAPE", [y], [z], newShape=[-1, 4])
    with pytest.raises(ModelError, match=r"^the model has an operator that cannot be imported:\n  'y' "):
        from_tflite(builder.finish(z))


def test_graphs_of_other_signatures_are_named() -> None:
    builder = TFLiteBuilder()
    builder.initialise(kept=np.zeros([2], np.float32))
    x, old, y = builder.input([2]), builder.read(builder.handle("kept"), [2]), builder.tensor([2])
    builder.op("ADD", [x, old], [y])
    graphs = builder.model.subgraphs
    for name in ("decode", ""):
        graphs.append(schema.SubGraphT())
        graphs[-1].name = name
    told = "the first of the file's graphs is imported, and nothing of 'decode', 'graph 3'"
    assert from_tflite(builder.finish(y)).notes == (told,)


def test_options_of_another_operator_count_as_none() -> None:
    builder = TFLiteBuilder()
    x, y = builder.input([4]), builder.tensor([4])
    builder.op("SOFTMAX", [x], [y], beta=2.0)
    operator = builder.graph.operators[0]
    operator.builtinOptions, operator.builtinOptionsType = schema.AddOptionsT(), schema.BuiltinOptions.AddOptions
    with pytest.raises(ModelError, match=r"its beta is 0\.0"):
        from_tflite(builder.finish(y))


def test_data_behind_the_flatbuffer() -> None:
    builder = TFLiteBuilder()
    x, c, y = builder.input([2]), builder.constant([0.0, 0.0], "float32"), builder.tensor([2])
    builder.op("ADD", [x, c], [y])
    buffer = builder.model.buffers[1]
    buffer.data, buffer.size, buffer.offset = None, 8, 10**6
    offset = len(builder.finish(y))
    buffer.offset = offset
    model = builder.finish(y)
    assert len(model) == offset
    assert run(model + struct.pack("<ff", 1, 2), np.zeros(2, np.float32)).tolist() == [1, 2]
    with pytest.raises(ModelError, match="lie behind its end"):
        from_tflite(model)


# --- real models -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["kws_ref_model", "ad01_int8", "pretrainedResnet_quant", "vww_96_int8"])
def test_int8_models_are_equal_to_litert_to_the_last_bit(models: Path, name: str) -> None:
    data = (models / "mlperf-tiny" / f"{name}.tflite").read_bytes()
    module = from_tflite(data).module
    (param,), signature = module.main.params, module.signature
    assert signature is not None
    random = np.random.default_rng(0)
    inputs = [random.integers(-128, 128, param.shape, np.int8) for _ in range(2)]
    inputs += [np.full(param.shape, value, np.int8) for value in (-128, 127, signature.inputs[0].zero_point)]
    for x in inputs:
        np.testing.assert_array_equal(evaluate(module, {param.name: x})[0], litert(data, x)[0])


@pytest.mark.parametrize("name", ["ad01_fp32", "pretrainedResnet", "vww_96_float"])
def test_float_models_are_as_near_to_litert_as_floats_are(models: Path, name: str) -> None:
    data = (models / "mlperf-tiny" / f"{name}.tflite").read_bytes()
    module = from_tflite(data).module
    (param,) = module.main.params
    x = np.random.default_rng(0).normal(size=param.shape).astype(np.float32)
    (got,), (expected,) = evaluate(module, {param.name: x}), litert(data, x)
    assert np.abs(got - expected).max() <= 1e-5 * np.abs(expected).max()


def test_a_streaming_model_keeps_its_windows(models: Path) -> None:
    made = from_tflite((models / "others" / "okay_nabu.tflite").read_bytes()).module
    assert made.signature is not None
    assert [(s.name, len(s.initial)) for s in made.signature.states] == [
        ("stream_10/states", 896),
        ("stream_11/states", 1024),
        ("stream_6/states", 80),
        ("stream_7/states", 128),
        ("stream_8/states", 512),
        ("stream_9/states", 768),
    ]
    assert {bytes(set(state.initial)) for state in made.signature.states} == {b"\x80"}, "the zero point of each"
