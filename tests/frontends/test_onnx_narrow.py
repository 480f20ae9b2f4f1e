"""float16, bfloat16, and integers of 4 and 2 bits: how they are stored, and what is computed of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from tests._support.onnx_builder import OnnxBuilder
from tests._support.onnx_compared import agree, of, with_

from uma.errors import ModelError
from uma.frontends import import_model
from uma.relay.evaluate import evaluate

RNG = np.random.default_rng(0)
NUMBERS = {"FLOAT16": 10, "BFLOAT16": 16, "UINT4": 21, "INT4": 22, "UINT2": 25, "INT2": 26}
TYPES: dict[str, Any] = {
    "FLOAT16": np.float16,
    "BFLOAT16": ml_dtypes.bfloat16,
    "UINT4": ml_dtypes.uint4,
    "INT4": ml_dtypes.int4,
    "UINT2": ml_dtypes.uint2,
    "INT2": ml_dtypes.int2,
}


def as_stored(array: np.ndarray, name: str) -> np.ndarray:
    """As a model takes and gives it."""
    if name == "BFLOAT16":
        return array.view(np.uint16)
    return array if name == "FLOAT16" else array.astype(np.int8 if name.startswith("I") else np.uint8)


def example(name: str, shape: tuple[int, ...] = (3, 5)) -> np.ndarray:
    if name.endswith("FLOAT16"):
        return RNG.standard_normal(shape).astype(TYPES[name])
    bits = int(name[-1])
    return RNG.integers(0, 1 << bits, shape).astype(np.uint8 if name[0] == "U" else np.int8).astype(TYPES[name])


def graph(name: str, b: OnnxBuilder, *outputs: str, shape: tuple[int, ...] = (3, 5)) -> onnx.ModelProto:
    """A model with an input ``x`` of a type that numpy has not."""
    b.inputs.insert(0, helper.make_tensor_value_info("x", NUMBERS[name], shape))
    return b.model(*outputs)


def value_of(model: onnx.ModelProto, inputs: dict[str, np.ndarray] | None = None, **options: Any) -> np.ndarray:
    (made,) = evaluate(import_model(model.SerializeToString(), **options).module, inputs or {})
    return made


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("raw", [True, False])
def test_constants(name: str, raw: bool) -> None:
    """In bytes, of which small integers share one, or in numbers; five of them, so that the last byte is not full."""
    array = example(name, (5,))
    tensor = numpy_helper.from_array(array, "c")
    if not raw:
        wide = np.frombuffer(tensor.raw_data, np.uint16 if name.endswith("FLOAT16") else np.uint8)
        tensor.ClearField("raw_data")
        tensor.int32_data.extend(wide.tolist())
    b = OnnxBuilder(25)
    b.initializers.append(tensor)
    np.testing.assert_array_equal(value_of(b.model("c")), as_stored(array, name))
    made = b.node("Constant", value=tensor)
    np.testing.assert_array_equal(value_of(b.model(made)), as_stored(array, name))


def test_constants_in_another_file(tmp_path: Path) -> None:
    array = example("INT4", (5, 3))
    tensor = numpy_helper.from_array(array, "c")
    (tmp_path / "weights").write_bytes(tensor.raw_data)
    onnx.external_data_helper.set_external_data(tensor, "weights", 0, 8)
    tensor.ClearField("raw_data")
    b = OnnxBuilder(25)
    b.initializers.append(tensor)
    path = tmp_path / "m.onnx"
    path.write_bytes(b.model("c").SerializeToString())
    (made,) = evaluate(import_model(path).module, {})
    np.testing.assert_array_equal(made, as_stored(array, "INT4"))


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("known", [True, False])
def test_casts(name: str, known: bool) -> None:
    """Floats are rounded to the nearest; of whole numbers small integers keep the low bits."""
    data = np.array([0.1, -0.3, 1.5, 2.5, -7.9, 9.2, 100.7, -300, 70000, 3e38, -3e38, np.inf, np.nan], np.float32)
    data = data if name.endswith("FLOAT16") else data[:8]
    b = OnnxBuilder(25)
    y = b.node("Cast", b.constant(data) if known else b.input("x", data.shape), to=NUMBERS[name])
    with np.errstate(all="ignore"):
        whole = data if name.endswith("FLOAT16") else data.astype(np.int32)
        wanted = whole.astype(TYPES[name])
    found = value_of(b.model(y), {} if known else {"x": data})
    np.testing.assert_array_equal(found.view(np.uint8), as_stored(wanted, name).view(np.uint8))
    back = b.node("Cast", y, to=TensorProto.FLOAT)
    found = value_of(b.model(back), {} if known else {"x": data})
    np.testing.assert_array_equal(found, wanted.astype(np.float32))


@pytest.mark.parametrize("name", NUMBERS)
def test_elements_are_moved(name: str) -> None:
    b, x = OnnxBuilder(25), example(name)
    y = b.node("Concat", b.node("Transpose", "x"), b.node("Reshape", "x", b.constant([5, 3], "int64")), axis=0)
    wanted = as_stored(np.concatenate([x.T, x.reshape(5, 3)]), name)
    np.testing.assert_array_equal(value_of(graph(name, b, y), {"x": as_stored(x, name)}), wanted)


@pytest.mark.parametrize("name", ["FLOAT16", "BFLOAT16"])
def test_each_operator_rounds_its_result(name: str) -> None:
    b, x = OnnxBuilder(22), example(name)
    total = b.node("Add", "x", b.node("Mul", "x", "x"))
    like = b.node("CastLike", b.constant(0.1, "float32"), total)
    y = b.node("Div", total, like)
    tenth = np.float32(0.1).astype(x.dtype)
    wanted = (x + x * x) / tenth
    np.testing.assert_array_equal(value_of(graph(name, b, y), {"x": as_stored(x, name)}), as_stored(wanted, name))


def test_a_short_sum_of_bfloat16_is_rounded_term_by_term() -> None:
    """As ONNX's reference adds; a long one is added up in float32."""
    for count in (40, 65):
        x = example("BFLOAT16", (3, count))
        b = OnnxBuilder(22)
        y = b.node("ReduceSum", "x", b.constant([1], "int64"), keepdims=0)
        total = x[:, 0]
        for column in x.T[1:]:
            total = total + column
        if count > 64:
            total = x.astype(np.float32).sum(1).astype(x.dtype)
        found = value_of(graph("BFLOAT16", b, y, shape=x.shape), {"x": x.view(np.uint16)})
        np.testing.assert_allclose(
            found.view(x.dtype).astype(np.float32), total.astype(np.float32), rtol=0 if count == 40 else 2**-7
        )


HALF: dict[str, Any] = {
    "sum": (of("Add"), ((3, 4), (4,))),
    "product of matrices": (of("MatMul"), ((3, 4), (4, 5))),
    "Gemm": (of("Gemm", transB=1), ((3, 4), (5, 4), (5,))),
    "convolution": (of("Conv", pads=[1, 1, 1, 1]), ((1, 3, 6, 6), (4, 3, 3, 3), (4,))),
    "average pool": (of("AveragePool", kernel_shape=[2, 2]), ((1, 3, 6, 6),)),
    "exponential": (of("Exp"), ((3, 4),)),
    "normalisation": (of("LayerNormalization"), ((3, 8), (8,), (8,))),
    "softmax": (of("Softmax"), ((3, 8),)),
    "mean": (with_("ReduceMean", np.array([1])), ((3, 8),)),
    "sigmoid": (of("Sigmoid"), ((3, 8),)),
    "Where": (lambda b, x, y: b.node("Where", b.node("Less", x, y), x, y), ((3, 8), (3, 8))),
}


@pytest.mark.parametrize("name", HALF)
def test_float16_against_onnxruntime(name: str) -> None:
    build, shapes = HALF[name]
    inputs = {f"x{i}": RNG.standard_normal(shape).astype(np.float16) for i, shape in enumerate(shapes)}
    agree(build, inputs, tolerance=2.0**-9)


@pytest.mark.parametrize("name", ["INT4", "UINT4"])
def test_quantised_to_four_bits_against_onnxruntime(name: str) -> None:
    zero = np.array(3).astype(np.uint8).astype(TYPES[name])

    def build(b: OnnxBuilder, x: str) -> Any:
        scale = b.constant(0.3, "float32")
        b.initializers.append(numpy_helper.from_array(zero, "zero"))
        q = b.node("QuantizeLinear", x, scale, "zero")
        weight = numpy_helper.from_array(example(name, (4, 3)), "w")
        b.initializers.append(weight)
        each = b.constant([0.1, 0.2, 0.3], "float32")
        w = b.node("DequantizeLinear", "w", each, axis=1)
        return b.node("MatMul", b.node("DequantizeLinear", q, scale, "zero"), w)

    agree(build, {"x0": (RNG.standard_normal((5, 4)) * 2).astype(np.float32)}, 21)


@pytest.mark.parametrize(("name", "low", "high"), [("INT4", -8, 7), ("UINT2", 0, 3), ("INT2", -2, 1)])
def test_quantised_numbers_saturate(name: str, low: int, high: int) -> None:
    b = OnnxBuilder(25)
    x = b.input("x", (6,))
    y = b.node("QuantizeLinear", x, b.constant(0.5, "float32"), output_dtype=NUMBERS[name])
    data = np.array([-100, -0.5, 0.2, 0.5, 1, 1e9], np.float32)
    wanted = np.clip(np.rint(data / 0.5), low, high)
    np.testing.assert_array_equal(value_of(b.model(y), {"x": data}), wanted)


def test_scales_of_float16() -> None:
    """The result is of the scale's type, or the one that is asked for."""
    data = RNG.integers(-128, 128, (4,)).astype(np.int8)
    for opset, asked, wanted in ((21, {}, np.float16), (23, {}, np.float16), (23, {"output_dtype": 1}, np.float32)):
        b = OnnxBuilder(opset)
        y = b.node("DequantizeLinear", b.input("x", (4,), "int8"), b.constant(0.1, "float16"), **asked)
        found = value_of(b.model(y), {"x": data})
        assert found.dtype == wanted
        np.testing.assert_array_equal(found, (data * np.float32(np.float16(0.1))).astype(wanted))


@pytest.mark.parametrize("name", NUMBERS)
def test_inputs_that_are_fixed(name: str) -> None:
    """To an array as the model takes it, or to a number."""
    x = example(name)
    fixed = import_model(graph(name, OnnxBuilder(25), "x").SerializeToString(), constants={"x": as_stored(x, name)})
    (found,) = evaluate(fixed.module, {})
    np.testing.assert_array_equal(found, as_stored(x, name))
    np.testing.assert_array_equal(fixed.constants["x"], as_stored(x, name))
    number = 0.1 if name.endswith("FLOAT16") else 1
    found = value_of(graph(name, OnnxBuilder(25), "x"), constants={"x": number})
    np.testing.assert_array_equal(found, as_stored(np.full((3, 5), number, np.float32).astype(x.dtype), name))


@pytest.mark.parametrize("name", ["FLOAT16", "BFLOAT16", "INT4"])
def test_states_begin_with_their_initialisers(name: str) -> None:
    x = example(name)
    b = OnnxBuilder(25)
    b.initializers.append(numpy_helper.from_array(x, "x"))
    new, y = b.node("Identity", "x"), b.node("Cast", "x", to=TensorProto.FLOAT)
    data = graph(name, b, new, y).SerializeToString()
    (state,) = import_model(data, states={"x": new}).module.signature.states  # type: ignore[union-attr]  # what is imported has a signature
    assert state.initial == as_stored(x, name).tobytes()


def test_an_empty_input_is_known() -> None:
    b = OnnxBuilder(25)
    y = b.node("CastLike", b.input("y", (2,)), "x")
    data = np.array([0.1, 3], np.float32)
    found = value_of(graph("BFLOAT16", b, y, shape=(0,)), {"y": data}, shapes={"x": (0,)})
    np.testing.assert_array_equal(found, data.astype(ml_dtypes.bfloat16).view(np.uint16))


def test_operators_of_other_domains_take_no_narrow_types() -> None:
    b = OnnxBuilder(17)
    model = graph("FLOAT16", b, b.node("Mine", "x", domain="com.example"))
    model.opset_import.append(helper.make_opsetid("com.example", 1))

    def find(kind: str, name: str) -> Any:
        return lambda layer: layer.inputs[0]

    with pytest.raises(ModelError, match="is float16, which operators of other domains do not take"):
        import_model(model.SerializeToString(), custom=find)


def test_onnxruntimes_own_operators_take_no_narrow_types() -> None:
    b = OnnxBuilder(17)
    model = graph("INT4", b, b.node("QLinearSigmoid", *["x"] * 5, domain="com.microsoft"))
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    with pytest.raises(ModelError, match="nothing is known of its types"):
        import_model(model.SerializeToString())


@pytest.mark.parametrize(
    ("op", "attrs", "expected"),
    [
        ("DequantizeLinear", {}, "its input 1 is missing"),
        ("Constant", {"value_int": 1}, "it takes no inputs, and is given 1"),
    ],
)
def test_nodes_that_are_given_another_number_of_inputs(op: str, attrs: dict[str, Any], expected: str) -> None:
    b = OnnxBuilder(21)
    with pytest.raises(ModelError, match=expected):
        import_model(graph("INT4", b, b.node(op, "x", **attrs)).SerializeToString())
