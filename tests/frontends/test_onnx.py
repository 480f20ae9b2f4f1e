"""Import of ONNX files: structure, shapes, names, and what is computed at import."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from tests._support.onnx_builder import OnnxBuilder, run_onnxruntime

from uma.errors import ModelError, UsageError
from uma.frontends import ImportedModel, import_model
from uma.relay import Call, Constant, TensorInfo, post_order
from uma.relay.evaluate import evaluate
from uma.relay.transform import canonicalise
from uma.relay.transform.layout_propagation import permutation


def ops(model: ImportedModel) -> list[str]:
    return [expr.op_name or "" for expr in post_order(model.module.main.body) if isinstance(expr, Call)]


def value_of(data: bytes) -> np.ndarray:
    """What a model without inputs computes."""
    (result,) = evaluate(import_model(data).module, {})
    return result


# --- real models -----------------------------------------------------------------------------------------------------

FLOAT = ["mlperf-tiny-onnx/ad_fp32", "mlperf-tiny-onnx/kws_fp32", "mlperf-tiny-onnx/resnet8_fp32"]
FLOAT += ["mlperf-tiny-onnx/vww_fp32", "others/tcresnet8_fp32"]
QUANTISED = ["ad_int8", "kws_int8", "resnet8_int8", "vww_int8"]


def inputs_of(model: ImportedModel, rng: np.random.Generator) -> list[np.ndarray]:
    values: list[np.ndarray] = []
    for param in model.module.main.params:
        if param.dtype == "int8":
            values.append(rng.integers(-128, 128, param.shape, np.int8))
        else:
            values.append(rng.uniform(-1, 1, param.shape).astype(param.dtype))
    return values


def both(data: bytes, model: ImportedModel, values: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """The output of the canonical form, and onnxruntime's."""
    module = canonicalise(model.module)
    (ours,) = evaluate(module, dict(zip([p.name for p in module.main.params], values, strict=True)))
    (theirs,) = run_onnxruntime(data, dict(zip([i.name for i in model.module.signature.inputs], values, strict=True)))
    return ours, theirs


@pytest.mark.parametrize("name", FLOAT)
def test_float_models(models: Path, name: str) -> None:
    """Within 1e-5 of the largest output; in canonical form, layouts are transformed at the inputs only."""
    data = (models / f"{name}.onnx").read_bytes()
    model = import_model(data)
    rng = np.random.default_rng(0)
    for _ in range(3):
        ours, theirs = both(data, model, inputs_of(model, rng))
        assert np.abs(ours - theirs).max() <= 1e-5 * np.abs(theirs).max()
    module = canonicalise(model.module)
    moved = [found[0] for expr in post_order(module.main.body) if (found := permutation(expr)) is not None]
    assert set(moved) <= set(module.main.params)


@pytest.mark.parametrize("name", QUANTISED)
def test_quantised_models(models: Path, name: str) -> None:
    """The same answers, but for one perhaps; convolutions and products in integers."""
    data = (models / "mlperf-tiny-onnx" / f"{name}.onnx").read_bytes()
    model = import_model(data)
    assert not {"nn.conv2d", "nn.dense"}.intersection(ops(model))
    rng = np.random.default_rng(0)
    count, agreeing, equal, largest = 8, 0, 0.0, 0
    for _ in range(count):
        ours, theirs = both(data, model, inputs_of(model, rng))
        agreeing += int(ours.argmax() == theirs.argmax())
        equal += float(np.mean(ours == theirs)) / count
        largest = max(largest, int(np.abs(ours.astype(int) - theirs).max()))
    print(f"{name}: largest difference {largest}, {equal:.2%} of the bytes equal, same answer {agreeing} of {count}")
    # Of 200 inputs, onnxruntime's answers to resnet8 with and without optimisation differ in one; so may these.
    assert agreeing >= count - 1


def test_notes_name_what_stays_in_float(models: Path) -> None:
    """(Its average pool does not.)"""
    model = import_model(models / "mlperf-tiny-onnx" / "kws_int8.onnx")
    assert model.notes == ("n_Softmax_144 stays in float: nn.softmax is not exact",)
    assert "qnn.avg_pool2d" in ops(model)


@pytest.mark.parametrize("limits", [(np.nan, 1.0), (0.0, np.nan), (np.nan, np.nan), (np.nan, None), (None, np.nan)])
def test_a_limit_of_clip_that_is_nan_is_none(limits: tuple[float | None, float | None]) -> None:
    """As in onnxruntime. (But for infinite data beside a limit that is left out: onnxruntime makes it finite.)"""
    b = OnnxBuilder()
    x = np.array([-3, -1, 0, 0.5, 2, np.nan], np.float32)
    given = ["" if limit is None else b.constant(limit, "float32") for limit in limits]
    data = b.build(b.node("Clip", b.input("x", [6]), *given))
    (ours,) = evaluate(import_model(data).module, {"x": x})
    (theirs,) = run_onnxruntime(data, {"x": x})
    assert np.array_equal(ours, theirs, equal_nan=True)


def test_a_limit_of_clip_that_is_nan_beside_one_that_is_computed() -> None:
    b = OnnxBuilder()
    inputs = {"x": np.array([-3, 0.5, 2], np.float32), "high": np.array(1, np.float32)}
    data = b.build(b.node("Clip", b.input("x", [3]), b.constant(np.nan, "float32"), b.input("high", [])))
    (ours,) = evaluate(import_model(data).module, inputs)
    assert np.array_equal(ours, run_onnxruntime(data, inputs)[0])


# --- structure -------------------------------------------------------------------------------------------------------


def test_convolution_with_bias() -> None:
    """Weights are brought into UMA's layout at once; a bias is an addition of its own."""
    b = OnnxBuilder()
    weight = np.arange(3 * 2 * 3 * 5, dtype=np.float32).reshape(3, 2, 3, 5)
    x = b.input("x:0", [1, 2, 8, 8])
    y = b.node("Conv", x, b.constant(weight), b.constant([1, 2, 3], "float32"), name="first/conv", pads=[1, 2, 3, 4])
    model = import_model(b.build(b.node("Relu", y, name="act")))
    body = canonicalise(model.module).main.body
    assert [e.op_name for e in post_order(body) if isinstance(e, Call)] == [
        "layout_transform",
        "nn.conv2d",
        "add",
        "nn.relu",
        "transpose",
    ]
    conv = next(e for e in post_order(body) if isinstance(e, Call) and e.op_name == "nn.conv2d")
    assert conv.attrs.padding == (1, 2, 3, 4)
    assert isinstance(conv.args[1], Constant) and np.array_equal(conv.args[1].data, weight.transpose(2, 3, 1, 0))
    assert model.module.main.params[0].name == "x_0"
    signature = model.module.signature
    assert signature is not None and signature.inputs == (TensorInfo("x:0"),)


def test_layers_are_nodes() -> None:
    """A node without a name is called by its first output; what merges has all names."""
    b = OnnxBuilder()
    x = b.input("x", [2, 3])
    first, second = b.node("Tanh", x, name="a"), b.node("Tanh", x, name="b")
    b.nodes[-1].ClearField("name")
    model = import_model(b.build(b.node("Add", first, second, name="sum\x07")))
    calls = [e for e in post_order(model.module.main.body) if isinstance(e, Call)]
    assert [model.module.spans[e] for e in calls] == [("a", second), ("sum\N{REPLACEMENT CHARACTER}",)]


def test_quantised_inputs_and_outputs_say_how() -> None:
    b = OnnxBuilder(13)
    x = b.dequantize(b.input("x", [4], "int8"), 0.5, 3, "int8")
    other = b.dequantize(b.input("two", [4], "int8"), 0.5, 3, "int8")
    again = b.dequantize("two", 0.25, 3, "int8")
    channels = b.dequantize(b.input("channels", [4], "int8"), [0.5] * 4, [0] * 4, "int8", axis=0)
    total = b.node("Add", b.node("Add", x, other), b.node("Add", again, channels))
    b.node("QuantizeLinear", total, b.constant(2.0, "float32"), outputs=["y"])
    signature = import_model(b.build("y", total)).module.signature
    assert signature is not None
    assert signature.inputs == (TensorInfo("x", 0.5, 3), TensorInfo("two"), TensorInfo("channels"))
    assert signature.outputs == (TensorInfo("y", 2.0, 0), TensorInfo(total))


def test_further_results_may_be_unused() -> None:
    b = OnnxBuilder()
    x = b.node("Dropout", b.input("x", [1, 2, 8]), outputs=["kept", "mask"])[0]
    assert (
        ops(import_model(b.build(b.node("MaxPool", x, outputs=["y", ""], kernel_shape=[2])[0])))[1] == "nn.max_pool1d"
    )


def test_nodes_in_any_order_and_unused_ones() -> None:
    """Nodes are sorted; what no output needs is not looked at."""
    b = OnnxBuilder()
    y = b.node("Relu", b.node("Tanh", b.input("x", [3])))
    b.node("LSTM", "nowhere")
    model = b.model(y)
    model.graph.node.reverse()
    assert ops(import_model(model.SerializeToString())) == ["tanh", "nn.relu"]


def test_initialisers_listed_as_inputs() -> None:
    b = OnnxBuilder()
    b.input("w", [3])
    y = b.node("Add", b.input("x", [3]), b.constant([1, 2, 3], "float32", name="w"))
    assert [p.name for p in import_model(b.build(y)).module.main.params] == ["x"]


def test_outputs_may_be_inputs_or_constants() -> None:
    b = OnnxBuilder()
    x = b.input("x", [3])
    data = b.build(x, b.constant([1, 2], "int64"), b.node("Identity", x))
    results = evaluate(import_model(data).module, {"x": np.ones(3, np.float32)})
    assert [r.tolist() for r in results] == [[1, 1, 1], [1, 2], [1, 1, 1]]


def test_batch_normalisation_moves_into_the_weights() -> None:
    b = OnnxBuilder()
    y = b.node("Conv", b.input("x", [1, 2, 4, 4]), b.constant(np.ones((3, 2, 1, 1)), "float32"), name="conv")
    parameters = [b.constant(v, "float32") for v in ([2, 2, 2], [1, 1, 1], [0, 0, 0], [1, 1, 1])]
    model = import_model(b.build(b.node("BatchNormalization", y, *parameters, epsilon=0.0, name="norm")))
    assert ops(model) == ["layout_transform", "nn.conv2d", "add", "layout_transform"]
    conv = next(e for e in post_order(model.module.main.body) if isinstance(e, Call) and e.op_name == "nn.conv2d")
    assert model.module.spans[conv] == ("norm", "conv")


@pytest.mark.parametrize("kind", ["pool", "computed weight"])
def test_batch_normalisation_that_stays(kind: str) -> None:
    b = OnnxBuilder()
    x = b.input("x", [1, 2, 4])
    y = b.node("GlobalMaxPool", x) if kind == "pool" else b.node("Conv", x, b.input("w", [2, 2, 1]))
    parameters = [b.constant(v, "float32") for v in ([2, 3], [1, 1], [0, 0], [1, 1])]
    assert {"multiply", "add"} <= set(ops(import_model(b.build(b.node("BatchNormalization", y, *parameters)))))


def test_padding_counts_in_an_average_but_not_what_ceil_mode_adds() -> None:
    """(Versions of onnxruntime disagree about it.)"""
    b = OnnxBuilder()
    attrs = {"kernel_shape": [3], "strides": [3], "pads": [1, 1], "ceil_mode": 1, "count_include_pad": 1}
    model = import_model(b.build(b.node("AveragePool", b.input("x", [1, 1, 6]), **attrs)))
    (result,) = evaluate(model.module, {"x": np.arange(1, 7, dtype=np.float32).reshape(1, 1, 6)})
    assert result.ravel().tolist() == [(0 + 1 + 2) / 3, (3 + 4 + 5) / 3, (6 + 0) / 2]


@pytest.mark.parametrize("kind", ["raw", "typed"])
@pytest.mark.parametrize(
    "dtype", ["float32", "float64", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "bool"]
)
def test_elements_of_every_type(dtype: str, kind: str) -> None:
    value = np.array([[0, 1, 2], [100, 0, 1]]).astype(dtype)
    b = OnnxBuilder()
    elem_type = helper.np_dtype_to_tensor_dtype(value.dtype)
    raw = kind == "raw"
    content: Any = value.tobytes() if raw else value.reshape(-1).tolist()
    b.initializers.append(helper.make_tensor("c", elem_type, value.shape, content, raw=raw))
    result = value_of(b.model("c").SerializeToString())
    assert result.dtype == value.dtype and np.array_equal(result, value)


@pytest.mark.parametrize("raw", [True, False])
def test_half_floats_are_cast_at_import(raw: bool) -> None:
    value = np.array([0.5, -2.0], np.float16)
    b = OnnxBuilder()
    content: Any = value.tobytes() if raw else value.tolist()
    b.initializers.append(helper.make_tensor("c", onnx.TensorProto.FLOAT16, (2,), content, raw=raw))
    assert value_of(b.build(b.node("Cast", "c", to=1))).tolist() == [0.5, -2.0]


# --- shapes of inputs ------------------------------------------------------------------------------------------------


def open_model() -> bytes:
    b = OnnxBuilder()
    return b.build(b.node("Relu", b.input("images", ["batch", 3, None])))


def test_open_dimensions_are_given() -> None:
    assert import_model(open_model(), shapes={"images": (2, 3, 7)}).module.main.params[0].shape == (2, 3, 7)


def test_open_dimensions_must_be_given() -> None:
    with pytest.raises(ModelError) as caught:
        import_model(open_model())
    assert str(caught.value).splitlines() == [
        "the model leaves the shape of its input 'images' open: (batch, 3, ?)",
        "  hint: say it, for example --shape images=1,3,224",
    ]


def test_an_input_without_a_shape() -> None:
    b = OnnxBuilder()
    y = b.node("Relu", b.input("x", [1]))
    b.inputs[0].type.tensor_type.ClearField("shape")
    data = b.model(y).SerializeToString()
    assert import_model(data, shapes={"x": (4, 4)}).module.main.params[0].shape == (4, 4)
    with pytest.raises(ModelError, match="'x' open: of any shape") as caught:
        import_model(data)
    assert "--shape x=1,3,224,224" in str(caught.value.hint)


@pytest.mark.parametrize("shape", [(1, 4, 7), (1, 3), (1, 3, 7, 7)])
def test_a_shape_that_contradicts_the_model(shape: tuple[int, ...]) -> None:
    with pytest.raises(UsageError, match=r"does not fit input 'images', which is \(batch, 3, \?\)"):
        import_model(open_model(), shapes={"images": shape})


def test_a_shape_for_no_input() -> None:
    with pytest.raises(UsageError, match="a shape is given for 'image', which is not an input") as caught:
        import_model(open_model(), shapes={"image": (1, 3, 7)})
    assert caught.value.hint == "did you mean 'images'? inputs: 'images'; dimensions: 'batch'"


def test_a_shape_that_is_too_large() -> None:
    with pytest.raises(ModelError, match="over 2 GiB") as caught:
        import_model(open_model(), shapes={"images": (2**20, 3, 2**20)})
    assert caught.value.where == "input 'images'"


# --- what is computed at import --------------------------------------------------------------------------------------


def test_shapes_are_computed_at_import() -> None:
    """A flatten as exporters write it: of pieces of the shape, joined and multiplied."""
    b = OnnxBuilder(13)
    x = b.input("x", ["n", 4, 6])
    shape = b.node("Shape", x)
    batch = b.node("Gather", shape, b.constant(0, "int64"), axis=0)
    rest = b.node("Slice", shape, *(b.constant([v], "int64") for v in (1, 3)))
    size = b.node("Mul", *(b.node("Gather", rest, b.constant(i, "int64")) for i in range(2)))
    halved = b.node("Div", size, b.constant(2, "int64"))
    parts = [b.node("Unsqueeze", part, b.constant([0], "int64")) for part in (batch, halved)]
    joined = b.node("Concat", *parts, b.constant([-1], "int64"), b.constant([], "int64"), axis=0)
    data = b.build(b.node("Reshape", x, joined))
    model = import_model(data, shapes={"x": (5, 4, 6)})
    assert ops(model) == ["reshape"] and model.module.main.body.shape == (5, 12, 2)


def _constant(b: OnnxBuilder, **value: Any) -> str:
    return str(b.node("Constant", **value))


FOLDED: dict[str, tuple[Callable[[OnnxBuilder], str], Any]] = {
    "Constant of a tensor": (lambda b: _constant(b, value=numpy_helper.from_array(np.eye(2))), np.eye(2)),
    "Constant of a float": (lambda b: _constant(b, value_float=0.5), np.float32(0.5)),
    "Constant of floats": (lambda b: _constant(b, value_floats=[0.5, 1.0]), np.array([0.5, 1], np.float32)),
    "Constant of an int": (lambda b: _constant(b, value_int=7), np.int64(7)),
    "Constant of ints": (lambda b: _constant(b, value_ints=[7, 8]), np.array([7, 8])),
    "ConstantOfShape": (
        lambda b: b.node(
            "ConstantOfShape", b.constant([2, 3], "int64"), value=numpy_helper.from_array(np.array([7], np.int32))
        ),
        np.full((2, 3), 7, np.int32),
    ),
    "ConstantOfShape of zeros": (
        lambda b: b.node("ConstantOfShape", b.constant([2], "int64")),
        np.zeros(2, np.float32),
    ),
    "Shape of a part": (lambda b: b.node("Shape", b.constant(np.zeros((2, 3, 4))), start=-2, end=3), np.array([3, 4])),
    "Size": (lambda b: b.node("Size", b.constant(np.zeros((2, 3, 4)))), np.int64(24)),
    "Range": (lambda b: b.node("Range", *(b.constant(v, "int64") for v in (10, 0, -3))), np.array([10, 7, 4, 1])),
    "Gather": (
        lambda b: b.node("Gather", b.constant([[1, 2], [3, 4]], "int64"), b.constant([[-1, 0]], "int64"), axis=1),
        np.array([[[2, 1]], [[4, 3]]]),
    ),
    "Squeeze": (lambda b: b.node("Squeeze", b.constant([[[5]]], "int64"), b.constant([0, -1], "int64")), np.array([5])),
    "Squeeze of all": (lambda b: b.node("Squeeze", b.constant([[5]], "int64")), np.int64(5)),
    "Slice backwards": (
        lambda b: b.node(
            "Slice", b.constant([1, 2, 3, 4], "int64"), *(b.constant([v], "int64") for v in (-1, -9, 0, -2))
        ),
        np.array([4, 2]),
    ),
    "Transpose": (lambda b: b.node("Transpose", b.constant([[1, 2, 3]], "int64")), np.array([[1], [2], [3]])),
    "Reshape": (
        lambda b: b.node("Reshape", b.constant([1, 2], "int64"), b.constant([2, -1], "int64")),
        np.array([[1], [2]]),
    ),
    "Expand": (
        lambda b: b.node("Expand", b.constant([[1], [2]], "int64"), b.constant([2, 1, 2], "int64")),
        np.array([[[1, 1], [2, 2]]] * 2),
    ),
    "Cast": (lambda b: b.node("Cast", b.constant([1.7, -1.7], "float32"), to=7), np.array([1, -1])),
    "Div of integers": (
        lambda b: b.node("Div", b.constant([7, -7, 7], "int64"), b.constant([2, 2, 0], "int64")),
        np.array([3, -3, 0]),
    ),
    "Div of floats": (
        lambda b: b.node("Div", b.constant(1, "float32"), b.constant(3, "float32")),
        np.float32(1) / np.float32(3),
    ),
    "Mod": (
        lambda b: b.node("Mod", b.constant([7, -7, 7], "int64"), b.constant([4, 4, -4], "int64")),
        np.array([3, 1, -1]),
    ),
    "Mod as in C": (
        lambda b: b.node("Mod", b.constant([7, -7, 7], "float32"), b.constant([4, 4, -4], "float32"), fmod=1),
        np.array([3, -3, 3], np.float32),
    ),
    "Sqrt": (lambda b: b.node("Sqrt", b.constant([4, 9], "float32")), np.array([2, 3], np.float32)),
    "Neg of integers": (lambda b: b.node("Neg", b.constant([4, -9], "int64")), np.array([-4, 9])),
    "Pow": (lambda b: b.node("Pow", b.constant([4, 9], "int64"), b.constant(2, "int64")), np.array([16, 81])),
    "Pow of integers, by many": (
        lambda b: b.node("Pow", b.constant([3, -2], "int64"), b.constant([[11.0]], "float32")),
        np.array([[177147, -2048]]),
    ),
    "Elementwise, of nothing": (
        lambda b: b.node(
            "Concat", b.node("Mul", b.constant([], "int64"), b.constant(2, "int64")), b.constant([3]), axis=0
        ),
        np.array([3]),
    ),
    "Pow of a float": (
        lambda b: b.node("Pow", b.constant([4, 9], "float32"), b.constant(-0.5, "float32")),
        np.array([0.5, np.float32(1) / 3], np.float32),
    ),
    "Not": (
        lambda b: b.node("Not", b.node("Less", b.constant([1, 2], "int64"), b.constant(2, "int64"))),
        np.array([False, True]),
    ),
    "ReduceProd": (
        lambda b: b.node("ReduceProd", b.constant([[2, 3], [4, 5]], "int64"), b.constant([1], "int64"), keepdims=0),
        np.array([6, 20]),
    ),
    "ReduceL2": (lambda b: b.node("ReduceL2", b.constant([3, 4], "float32")), np.array([5], np.float32)),
    "ReduceProd of nothing": (
        lambda b: b.node("ReduceProd", b.constant([2, 3], "int64"), noop_with_empty_axes=1),
        np.array([2, 3]),
    ),
    "Trilu": (
        lambda b: b.node("Trilu", b.constant(np.ones((2, 3)), "float32"), b.constant(1, "int64")),
        np.array([[0, 1, 1], [0, 0, 1]], np.float32),
    ),
    "Trilu, lower, from afar": (
        lambda b: b.node("Trilu", b.constant(np.ones((2, 2)), "float32"), b.constant(2**40, "int64"), upper=0),
        np.ones((2, 2), np.float32),
    ),
    "ReduceMax, which has a rule of its own": (
        lambda b: b.node("ReduceMax", b.constant([[2, 3], [4, 5]], "int64"), b.constant([0], "int64"), keepdims=0),
        np.array([4, 5]),
    ),
    "Split": (lambda b: b.node("Split", b.constant([1, 2, 3], "int64"), outputs=2, num_outputs=2)[1], np.array([3])),
    "CastLike": (
        lambda b: b.node("CastLike", b.constant([1.7], "float32"), b.constant([0], "int64")),
        np.array([1]),
    ),
    "Where": (
        lambda b: b.node(
            "Where",
            b.node("Equal", b.constant([1, -1], "int64"), b.constant(-1, "int64")),
            b.node("Sub", b.constant(5, "int64"), b.constant(2, "int64")),
            b.node("Add", b.constant([1, 2], "int64"), b.node("Identity", b.constant([5, 6], "int64"))),
        ),
        np.array([6, 3]),
    ),
}


@pytest.mark.parametrize("name", FOLDED)
def test_folding(name: str) -> None:
    build, expected = FOLDED[name]
    b = OnnxBuilder(18)
    data = b.build(build(b))
    model = import_model(data)
    assert ops(model) == []
    result = evaluate(model.module, {})[0]
    assert result.dtype == expected.dtype and np.array_equal(result, expected)
    # onnxruntime has no answer to a division by 0, and before 1.24 none to a reduction over no axes.
    if name not in ("Div of integers", "ReduceProd of nothing"):
        assert np.array_equal(result, run_onnxruntime(data, {})[0])


# --- the package, and long models ------------------------------------------------------------------------------------


def test_the_package_onnx_is_an_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    data = open_model()
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(UsageError, match="needs the package 'onnx', which is not installed") as caught:
        import_model(data)
    assert caught.value.hint == "pip install 'uma-core[onnx]'"


def test_a_long_chain() -> None:
    b = OnnxBuilder()
    value = b.input("x", [1])
    for _ in range(5_000):
        value = b.node("Tanh", value)
    model = b.model(value)
    model.graph.node.reverse()
    assert len(ops(import_model(model.SerializeToString()))) == 5_000
