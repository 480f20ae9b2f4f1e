"""Import of ONNX files: structure, shapes, names, what is computed at import, and what is refused."""

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
from uma.relay.transform.layout import permutation


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
    assert import_model(models / "mlperf-tiny-onnx" / "kws_int8.onnx").notes == (
        "n_AveragePool_121 stays in float: the scale 0.0802362 is no power of two",
        "n_Softmax_144 stays in float: nn.softmax is not exact",
    )


def test_all_unsupported_layers_are_listed(models: Path) -> None:
    with pytest.raises(ModelError) as caught:
        import_model(models / "others" / "silero_vad_static.onnx")
    lines = str(caught.value).splitlines()
    assert lines[0] == "the model has 3 operators that cannot be imported:"
    assert any("(Sqrt, opset 16): this operator is supported only for what is known" in line for line in lines)
    assert any("decoder/rnn/LSTM' (LSTM, opset 16)" in line for line in lines)
    assert any("(Pad, opset 16): its mode is 'reflect'; constant is supported" in line for line in lines)


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


def test_an_output_that_is_listed_twice() -> None:
    b = OnnxBuilder()
    y = b.node("Relu", b.input("x", [2]))
    model = import_model(b.model(y, "x", y).SerializeToString())
    assert model.module.signature is not None and [o.name for o in model.module.signature.outputs] == [y, "x"]
    assert model.notes == (f"the output {y!r} is listed 2 times, and given once",)


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
        "  hint: say it, for example --shape images=1,3,1",
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
    with pytest.raises(UsageError, match="a shape is given for 'image', which is no input") as caught:
        import_model(open_model(), shapes={"image": (1, 3, 7)})
    assert caught.value.hint == "inputs: 'images'"


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


# --- faults ----------------------------------------------------------------------------------------------------------


def refused(data: bytes) -> ModelError:
    with pytest.raises(ModelError) as caught:
        import_model(data)
    return caught.value


class Faulty:
    """Builds a node called ``bad``, of which something is wrong."""

    def __init__(self) -> None:
        self.b = OnnxBuilder(21)
        self.constant = self.b.constant

    def input(self, *shape: int, dtype: str = "float32") -> str:
        return self.b.input(f"x{len(self.b.inputs)}", shape, dtype)

    def ints(self, *values: int) -> str:
        return self.b.constant(values, "int64")

    def bad(self, op: str, *inputs: str, **attrs: Any) -> str:
        made = self.b.node(op, *inputs, name="bad", **attrs)
        return str(made if isinstance(made, str) else made[0])

    def second(self, op: str, *inputs: str, **attrs: Any) -> str:
        """The second of two results."""
        made = self.b.node(op, *inputs, name="bad", outputs=2, **attrs)
        return str(made[1])


def _conv(f: Faulty, weight: tuple[int, ...] = (2, 2, 3, 3), bias: int | None = None, **attrs: Any) -> str:
    args = [f.input(1, 2, 8, 8), f.constant(np.ones(weight), "float32")]
    return f.bad("Conv", *args, *([] if bias is None else [f.constant(np.ones(bias), "float32")]), **attrs)


def _quantised(
    f: Faulty, scale: Any = 0.5, zero: Any = 0, dtype: str = "int8", scale_dtype: str = "float32", **attrs: Any
) -> str:
    return f.bad("QuantizeLinear", f.input(2, 3), f.constant(scale, scale_dtype), f.constant(zero, dtype), **attrs)


def _dequantised(f: Faulty, dtype: str = "int8", zero: str = "int8", **attrs: Any) -> str:
    return f.bad(
        "DequantizeLinear", f.input(2, 3, dtype=dtype), f.constant(0.5, "float32"), f.constant(0, zero), **attrs
    )


def _norm(f: Faulty, variance: float = 1.0, channels: int = 2, **attrs: Any) -> str:
    values = [f.constant(np.full(channels, v), "float32") for v in (1, 0, 0, variance)]
    return f.bad("BatchNormalization", f.input(1, 2, 4), *values, **attrs)


def _pads(f: Faulty, *pads: int, **attrs: Any) -> str:
    return f.bad("Pad", f.input(2, 3), f.ints(*pads), **attrs)


def _without(f: Faulty, data: str, attribute: str) -> str:
    del f.b.nodes[-1].attribute[[a.name for a in f.b.nodes[-1].attribute].index(attribute)]
    return data


def _with_type(f: Faulty, data: str, value: Any) -> str:
    f.b.nodes[-1].attribute[0].CopyFrom(helper.make_attribute(f.b.nodes[-1].attribute[0].name, value))
    return data


FAULTS: dict[str, list[Callable[[Faulty], str]]] = {
    "this operator is not supported": [
        lambda f: f.bad("Erf", f.input(2)),
        lambda f: f.bad("Relu", f.input(2), domain="com.example"),
    ],
    "this operator is supported only for what is known at import": [lambda f: f.bad("Sqrt", f.input(2))],
    "it has 2 results; one is supported": [lambda f: f.second("Sqrt", f.ints(1))],
    "its input 0 is missing": [lambda f: f.bad("Relu"), lambda f: f.bad("Relu", "")],
    "its input 'x1' is computed at run time": [lambda f: f.bad("Reshape", f.input(2), f.input(1, dtype="int64"))],
    "is float64 of shape (1,), not a list of integers": [lambda f: f.bad("Reshape", f.input(2), f.constant([2.0]))],
    "its result 1 is used, which is not supported": [
        lambda f: f.second("Relu", f.input(2)),
        lambda f: f.second("MaxPool", f.input(1, 2, 8), kernel_shape=[2]),
        lambda f: f.second("Dropout", f.input(2)),
    ],
    "it needs the attribute 'kernel_shape'": [lambda f: f.bad("MaxPool", f.input(1, 2, 8))],
    "it needs the attribute 'to'": [
        lambda f: f.bad("Cast", f.input(2)),
        lambda f: f.bad("Cast", f.constant([1.0], "float32")),
    ],
    "its attribute 'axis' has the wrong type": [
        lambda f: f.bad("Softmax", f.input(2), axis=1.0),
        lambda f: f.bad("Softmax", f.input(2), axis="1"),
    ],
    "unknown dtype 'float16'": [lambda f: f.bad("Relu", f.constant([1.0], "float16"))],
    "is 'float16': not one of": [lambda f: f.bad("Cast", f.input(2), to=10)],
    "its result has elements of ONNX's type BFLOAT16, which is not supported": [
        lambda f: f.bad("Cast", f.input(2), to=16),
        lambda f: f.bad("Cast", f.constant([1.0]), to=16),
    ],
    # Arithmetic.
    "it divides no floats of one dtype": [
        lambda f: f.bad("Div", f.input(2, dtype="int32"), f.constant(2, "int32")),
        lambda f: f.bad("Div", f.input(2), f.constant(2, "float64")),
    ],
    "it divides by numbers that have no inverse": [
        lambda f, by=by: f.bad("Div", f.input(2), f.constant(by, "float32"))
        for by in ([1, 0], np.nan, np.inf, 1e-40, 3e38)
    ],
    "its limits are scalars": [lambda f: f.bad("Clip", f.input(2), f.constant([0, 0], "float32"))],
    "it multiplies no scalars": [lambda f: f.bad("MatMul", f.input(2), f.input())],
    "it multiplies matrices, not (2,) and (2, 3)": [lambda f: f.bad("Gemm", f.input(2), f.input(2, 3))],
    "its addend of shape (3, 4) does not fit its product of shape (1, 4)": [
        lambda f: f.bad("Gemm", f.input(1, 2), f.input(2, 4), f.input(3, 4))
    ],
    "do not broadcast": [
        lambda f: f.bad("Add", f.input(2), f.input(3)),
        lambda f: f.bad("Add", f.ints(1, 2), f.ints(1, 2, 3)),
    ],
    "there is no axis 2 in 2 dimensions": [lambda f: f.bad("Softmax", f.input(2, 3), axis=2)],
    # Windows.
    "it has 3 spatial dimensions, not 1 or 2": [lambda f: f.bad("GlobalMaxPool", f.input(1, 2, 3, 4, 5))],
    "it has 0 spatial dimensions, not 1 or 2": [lambda f: f.bad("GlobalMaxPool", f.input(1, 2))],
    "it has strides (1,) for 2 spatial dimensions": [lambda f: _conv(f, strides=[1])],
    "it has strides (0, 1) for 2 spatial dimensions": [lambda f: _conv(f, strides=[0, 1])],
    "it has dilations (1, -1) for 2 spatial dimensions": [lambda f: _conv(f, dilations=[1, -1])],
    "it has pads (0, 0, 0, -1) for 2 spatial dimensions": [lambda f: _conv(f, pads=[0, 0, 0, -1])],
    "it has kernel_shape (3,) for 2 spatial dimensions": [
        lambda f: f.bad("MaxPool", f.input(1, 2, 8, 8), kernel_shape=[3])
    ],
    "it has kernel_shape (3, 3) and a weight of shape (2, 2, 1, 1)": [
        lambda f: _conv(f, (2, 2, 1, 1), kernel_shape=[3, 3])
    ],
    "it has the unknown auto_pad 'SAME'": [lambda f: _conv(f, auto_pad="SAME")],
    "its weight of shape (2, 2, 3) does not fit data of shape (1, 2, 8, 8)": [lambda f: _conv(f, (2, 2, 3))],
    "it has a bias of shape (3,) for 2 channels": [lambda f: _conv(f, bias=3)],
    "the weight takes 3 channels, the data has 2 in 1 groups": [lambda f: _conv(f, (2, 3, 3, 3))],
    "0 groups do not divide": [lambda f: _conv(f, group=0)],
    "a window of 9 does not fit": [lambda f: _conv(f, (2, 2, 9, 9))],
    "it has dilations (2,)": [lambda f: f.bad("AveragePool", f.input(1, 2, 8), kernel_shape=[2], dilations=[2])],
    "it is in training mode": [
        lambda f: _norm(f, training_mode=1),
        lambda f: f.bad("Dropout", f.input(2), f.constant(0.5, "float32"), f.constant(True)),
    ],
    "its parameters do not fit data of shape (1, 2, 4)": [lambda f: _norm(f, channels=3)],
    "its variance is not positive everywhere": [lambda f: _norm(f, -1.0), lambda f: _norm(f, float("nan"))],
    # Shapes.
    "its data of shape (6,) cannot become (4, -1)": [lambda f: f.bad("Reshape", f.input(6), f.ints(4, -1))],
    "its data of shape (6,) cannot become (-1, -1)": [lambda f: f.bad("Reshape", f.input(6), f.ints(-1, -1))],
    "its data of shape (6,) cannot become (0, -1)": [
        lambda f: f.bad("Reshape", f.input(6), f.ints(0, -1), allowzero=1)
    ],
    "its data of shape (2,) cannot become (3,)": [lambda f: f.bad("Reshape", f.ints(1, 2), f.ints(3))],
    "it names no axes": [lambda f: f.bad("Unsqueeze", f.input(2), f.ints())],
    "its result has 34 dimensions": [lambda f: f.bad("Unsqueeze", f.input(1), f.ints(*range(33)))],
    "cannot become (1, 1, ": [lambda f: f.bad("Reshape", f.input(1), f.ints(*[1] * 40))],
    "it makes 34 dimensions of 1": [lambda f: f.bad("Unsqueeze", f.ints(1), f.ints(*range(33)))],
    "an axis is named twice": [
        lambda f: f.bad("Unsqueeze", f.input(2), f.ints(0, 0)),
        lambda f: f.bad("Slice", f.input(2), f.ints(0, 0), f.ints(1, 1), f.ints(0, -1)),
    ],
    "axis 0 has extent 2, not 1": [lambda f: f.bad("Squeeze", f.input(2), f.ints(0))],
    "not all of the axes (0,) of shape (2,) are 1": [lambda f: f.bad("Squeeze", f.ints(1, 2), f.ints(0))],
    "it splits 4 elements into 2 parts of (1, 2)": [lambda f: f.bad("Split", f.input(4), f.ints(1, 2), outputs=2)],
    "it splits 4 elements into 2 parts of (4, 0)": [lambda f: f.bad("Split", f.input(4), f.ints(4, 0), outputs=2)],
    "it splits 2 elements into 4 parts of (1, 1, 1, -1)": [lambda f: f.bad("Split", f.input(2), outputs=4)],
    "it slices from (0,) to (1, 2) by (1,) along (0,)": [lambda f: f.bad("Slice", f.input(4), f.ints(0), f.ints(1, 2))],
    "by (0,) along (0,)": [lambda f: f.bad("Slice", f.input(4), f.ints(0), f.ints(1), f.ints(0), f.ints(0))],
    "dimension 0 of its result is empty": [lambda f: f.bad("Slice", f.input(4), f.ints(2), f.ints(2))],
    "its mode is 'edge'; constant is supported": [lambda f: _pads(f, 0, 0, 1, 1, mode="edge")],
    "it has pads (1,) for 2 dimensions": [lambda f: _pads(f, 1)],
    "its constant_value has the shape (2,)": [
        lambda f: f.bad("Pad", f.input(2), f.ints(1, 1), f.constant([0, 1], "float32"))
    ],
    "over 2 GiB": [lambda f: _pads(f, 0, 0, 2**40, 0), lambda f: f.bad("Pad", f.input(2), f.ints(2**31, 2**31))],
    # Quantisation.
    "it has scales per block": [lambda f: _quantised(f, block_size=2)],
    "its scales are float64, not float32": [lambda f: _quantised(f, scale_dtype="float64")],
    "its scales have the shape (2,), its zero points ()": [lambda f: _quantised(f, [0.5, 0.5])],
    "its scales have the shape (1, 2), its zero points (1, 2)": [lambda f: _quantised(f, [[0.5, 0.5]], [[0, 0]])],
    "a scale is not a positive finite number": [
        lambda f, scale=scale: _quantised(f, scale) for scale in (0.0, -1.0, np.inf, np.nan)
    ],
    "its zero points are int8 of shape (1, 1)": [lambda f: _quantised(f, zero=[[0]])],
    "its zero points are float32": [lambda f: _quantised(f, zero=0.0, dtype="float32")],
    "2 scales and 2 zero points for the 3 elements of axis 1": [lambda f: _quantised(f, [0.5, 0.5], [0, 0])],
    "there is no axis 3 in 2 dimensions": [lambda f: _quantised(f, [0.5, 0.5], [0, 0], axis=3)],
    "its output_dtype is uint8, its zero point int8": [lambda f: _quantised(f, output_dtype=2)],
    "it quantises to uint16; int8, uint8 and int16 are supported": [lambda f: _quantised(f, dtype="uint16")],
    "it dequantises to float16; float32 is supported": [lambda f: _dequantised(f, output_dtype=10)],
    "its data is int8, its zero point uint8": [lambda f: _dequantised(f, zero="uint8")],
    "it dequantises uint16; int8, uint8, int16 and int32 are supported": [
        lambda f: _dequantised(f, "uint16", "uint16")
    ],
    "it takes float32, not float64": [
        lambda f: f.bad("QuantizeLinear", f.input(2, dtype="float64"), f.constant(0.5, "float32"))
    ],
    # What is computed at import.
    "its result has the impossible shape (-1,)": [lambda f: f.bad("ConstantOfShape", f.ints(-1))],
    "its result has the impossible shape (1, 1, ": [lambda f: f.bad("ConstantOfShape", f.ints(*[1] * 40))],
    "it makes a constant of shape (1099511627776,), which is too large": [
        lambda f: f.bad("ConstantOfShape", f.ints(2**40)),
        lambda f: f.bad("Expand", f.ints(1), f.ints(2**40)),
        lambda f: f.bad("Range", *(f.constant(v, "int64") for v in (0, 2**40, 1))),
    ],
    "it repeats 2 values, not one": [
        lambda f: f.bad("ConstantOfShape", f.ints(2), value=numpy_helper.from_array(np.zeros(2)))
    ],
    "its value is neither a dense tensor nor numbers": [lambda f: f.bad("Constant", value_string="x")],
    "it takes three numbers, the last not 0": [lambda f: f.bad("Range", *(f.constant(v, "int64") for v in (0, 2, 0)))],
    "its result has nan elements": [lambda f: f.bad("Range", *(f.constant(v, "float32") for v in (0, np.nan, 1)))],
    "its indices leave the 2 elements of axis 0": [
        lambda f: f.bad("Gather", f.ints(1, 2), f.ints(2)),
        lambda f: f.bad("Gather", f.ints(1, 2), f.constant([0.0])),
    ],
    "it takes tensors of one dtype and rank, at least one": [
        lambda f: f.bad("Concat", f.ints(1), f.constant([[1]], "int64"), axis=0)
    ],
    "the shapes differ elsewhere than along axis 0": [
        lambda f: f.bad("Concat", f.constant([[1]]), f.constant([[1, 2]]), axis=0),
        lambda f: f.bad("Concat", f.input(1, 1), f.input(1, 2), axis=0),
    ],
    "its perm (0, 0) is no permutation of 2 dimensions": [lambda f: f.bad("Transpose", f.constant([[1]]), perm=[0, 0])],
    "axes (0, 0) are no permutation of 2 dimensions": [lambda f: f.bad("Transpose", f.input(1, 2), perm=[0, 0])],
    "it takes no int64": [lambda f: f.bad("Sqrt", f.ints(4))],
    "it takes no bool and int64": [lambda f: f.bad("Pow", f.constant([True]), f.ints(2))],
    "it takes no bool": [lambda f: f.bad("ReduceProd", f.constant([True]))],
    "it takes matrices and one diagonal, not (2,) and (0,)": [lambda f: f.bad("Trilu", f.ints(1, 2))],
    "it takes matrices and one diagonal, not (1, 1) and (0, 0)": [
        lambda f: f.bad("Trilu", f.constant([[1]]), f.ints(0, 0))
    ],
    "it takes two tensors of one dtype": [lambda f: f.bad("Add", f.ints(1), f.constant([1.0]))],
    "it takes a bool and two tensors of one dtype": [lambda f: f.bad("Where", f.ints(1), f.ints(1), f.ints(1))],
    "its attribute 'value' has 3 bytes, its shape (1,) 4": [
        lambda f: f.bad("Constant", value=onnx.TensorProto(data_type=1, dims=[1], raw_data=b"abc"))
    ],
}


@pytest.mark.parametrize(("message", "number"), [(m, i) for m, builds in FAULTS.items() for i in range(len(builds))])
def test_a_layer_at_fault(message: str, number: int) -> None:
    """The message names the layer and its operator."""
    f = Faulty()
    output = FAULTS[message][number](f)
    model = f.b.model(output)
    model.opset_import.append(helper.make_opsetid("com.example", 1))
    first, *lines = refused(model.SerializeToString()).what.splitlines()
    assert first == "the model has an operator that cannot be imported:"
    op = next(node for node in f.b.nodes if node.name == "bad").op_type
    assert len(lines) == 1 and lines[0].startswith("  'bad' (") and f"{op}, opset " in lines[0]
    assert message in lines[0]


def test_computed_constants_have_a_budget() -> None:
    b = OnnxBuilder()
    parts = [b.node("ConstantOfShape", b.constant([1 << 24, i], "int64")) for i in (1, 2)]
    assert "with it, the constants that are computed at import exceed 128 MiB" in str(refused(b.build(*parts)))


def test_parts_were_equal_before_opset_18() -> None:
    b = OnnxBuilder(13)
    parts = b.node("Split", b.input("x", [5]), outputs=2)
    assert "it splits 5 elements into 2 equal parts" in refused(b.model(*parts).SerializeToString()).what


def test_what_depends_on_a_fault_is_not_blamed() -> None:
    b = OnnxBuilder()
    bad = b.node("Erf", b.input("x", [2]), name="one")
    y = b.node("Sqrt", b.node("Relu", bad, name="innocent"), name="two")
    assert refused(b.build(y)).what.splitlines() == [
        "the model has 2 operators that cannot be imported:",
        "  'one' (Erf, opset 17): this operator is not supported",
        "  'two' (Sqrt, opset 17): this operator is supported only for what is known at import",
    ]


def test_what_is_known_of_a_fault_is_not_blamed() -> None:
    """The square root of an extent is computed at import, when the extent is known."""
    b = OnnxBuilder()
    shape = b.node("Shape", b.node("Erf", b.input("x", [2]), name="one"))
    data = b.build(b.node("Sqrt", b.node("Cast", shape, to=1), name="innocent"))
    assert len(refused(data).what.splitlines()) == 2


def broken(change: Callable[[onnx.ModelProto], object]) -> bytes:
    """A model, correct but for ``change``."""
    b = OnnxBuilder()
    y = b.node("Add", b.input("x", [2, 3]), b.constant(np.ones((2, 3)), "float32", name="c"), name="sum")
    model = b.model(b.node("Relu", y, name="last"))
    change(model)
    return model.SerializeToString()


def _tensor(**fields: Any) -> Callable[[onnx.ModelProto], object]:
    def change(model: onnx.ModelProto) -> None:
        model.graph.initializer[0].CopyFrom(onnx.TensorProto(name="c", **fields))

    return change


def _external(model: onnx.ModelProto) -> None:
    model.graph.initializer[0].data_location = onnx.TensorProto.EXTERNAL


def _segment(model: onnx.ModelProto) -> None:
    model.graph.initializer[0].segment.begin = 0


def _cycle(model: onnx.ModelProto) -> None:
    model.graph.node[0].input[0] = model.graph.node[1].output[0]


BROKEN: dict[str, Callable[[onnx.ModelProto], object]] = {
    "this is no model file of a format that can be read": lambda m: m.ClearField("graph"),
    "the model names no version of the operator set 'ai.onnx'": lambda m: setattr(m.opset_import[0], "domain", "other"),
    "the model uses opset 10: versions 11 to 26 are supported": lambda m: setattr(m.opset_import[0], "version", 10),
    "the model uses opset 27: versions 11 to 26 are supported": lambda m: setattr(m.opset_import[0], "version", 27),
    "the model names two versions of the operator set 'ai.onnx'": lambda m: m.opset_import.append(
        helper.make_opsetid("ai.onnx", 18)
    ),
    "sparse initialisers are not supported": lambda m: m.graph.sparse_initializer.add(),
    "two initialisers are called 'c'": lambda m: m.graph.initializer.append(m.graph.initializer[0]),
    "two inputs share a name": lambda m: m.graph.input.append(m.graph.input[0]),
    "the model has no outputs": lambda m: m.graph.ClearField("output"),
    "'y' is defined nowhere": lambda m: setattr(m.graph.output[0], "name", "y"),
    "'d' is defined nowhere": lambda m: m.graph.node[0].input.__setitem__(1, "d"),
    "'x' is defined twice": lambda m: m.graph.node[0].output.__setitem__(0, "x"),
    "the model has a cycle: a layer needs its own result": _cycle,
    "Relu has an attribute twice": lambda m: m.graph.node[1].attribute.extend([helper.make_attribute("a", 1)] * 2),
    "input 'x' has 99 dimensions": lambda m: m.graph.input[0].type.tensor_type.shape.dim.extend(
        [onnx.TensorShapeProto.Dimension(dim_value=1)] * 97
    ),
    "input 'x' is not a tensor": lambda m: m.graph.input[0].type.sequence_type.elem_type.tensor_type.SetInParent(),
    "input 'x' has elements of ONNX's type STRING": lambda m: setattr(
        m.graph.input[0].type.tensor_type, "elem_type", 8
    ),
    "unknown dtype 'float16'": lambda m: setattr(m.graph.input[0].type.tensor_type, "elem_type", 10),
    "'c' is stored in another file": _external,
    "'c' is stored in segments, which is not supported": _segment,
    "'c' has elements of ONNX's type BFLOAT16": _tensor(data_type=16, dims=[1], raw_data=b"ab"),
    "'c' has the impossible shape (-1,)": _tensor(data_type=1, dims=[-1], raw_data=b""),
    "'c' has the impossible shape (4611686018427387904, 4)": _tensor(data_type=1, dims=[2**62, 4], raw_data=b""),
    "'c' has the impossible shape (1, 1, ": _tensor(data_type=1, dims=[1] * 40, raw_data=b"abcd"),
    "'c' has 3 bytes, its shape (1,) 4": _tensor(data_type=1, dims=[1], raw_data=b"abc"),
    "'c' has 1 elements, its shape (2,) 2": _tensor(data_type=1, dims=[2], float_data=[1.0]),
    "'c' has elements that are no int8": _tensor(data_type=3, dims=[1], int32_data=[128]),
    "has an extent that is not a positive integer": _tensor(data_type=1, dims=[0], raw_data=b""),
}


@pytest.mark.parametrize("message", BROKEN)
def test_a_broken_file(message: str) -> None:
    error = refused(broken(BROKEN[message]))
    assert message in str(error)


def test_an_empty_output() -> None:
    b = OnnxBuilder()
    error = refused(b.build(b.constant(np.zeros((0, 3)), "float32")))
    assert error.where == "output 'c0'" and "not a positive integer" in error.what


@pytest.mark.parametrize("data", [b"\x00", b"not a model", b"\x08\x08", b"\x0a" * 400])
def test_no_model_at_all(data: bytes) -> None:
    assert refused(data).hint == "ONNX (.onnx) and TFLite (.tflite) can be read"


def test_names_that_are_no_text() -> None:
    """Bytes that are no UTF-8 are names like others."""
    b = OnnxBuilder()
    y = b.node("Tanh", b.node("Relu", b.input("input??", [2]), outputs=["inner??"], name="layer??"))
    model = import_model(b.build(y).replace(b"??", b"\xff\xfe"))
    call = next(e for e in post_order(model.module.main.body) if isinstance(e, Call))
    assert model.module.spans[call] == ("layer\\xff\\xfe",)
    assert model.module.signature is not None and model.module.signature.inputs[0].name == "input\\xff\\xfe"


def test_errors_name_the_file(tmp_path: Path) -> None:
    file = tmp_path / "broken.onnx"
    file.write_bytes(broken(_cycle))
    with pytest.raises(ModelError) as caught:
        import_model(file)
    assert caught.value.where == f"{file}: last"


def test_the_package_onnx_is_an_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    data = open_model()
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(UsageError, match="needs the package 'onnx', which is not installed") as caught:
        import_model(data)
    assert caught.value.hint == "pip install 'uma-core[onnx]'"


def test_deeply_nested_files_do_not_recurse() -> None:
    """A graph in an attribute in a graph in an attribute, and a chain of 20,000 nodes."""
    inner = b""
    for _ in range(5000):
        # AttributeProto.g = 6, NodeProto.attribute = 5, GraphProto.node = 1
        for tag in (0x32, 0x2A, 0x0A):
            size = len(inner)
            length = b""
            while size >= 128:
                length, size = length + bytes([size % 128 + 128]), size // 128
            inner = bytes([tag]) + length + bytes([size]) + inner
    refused(bytes([0x3A]) + inner)


def test_a_long_chain() -> None:
    b = OnnxBuilder()
    value = b.input("x", [1])
    for _ in range(20_000):
        value = b.node("Tanh", value)
    model = b.model(value)
    model.graph.node.reverse()
    assert len(ops(import_model(model.SerializeToString()))) == 20_000
