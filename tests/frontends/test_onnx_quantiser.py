"""QDQ models in the forms that onnxruntime's quantiser gives them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
from tests._support.onnx_builder import OnnxBuilder, run_onnxruntime

import uma
from uma.errors import ModelError
from uma.frontends import import_model
from uma.relay import Call, post_order
from uma.relay.evaluate import evaluate
from uma.relay.transform import canonicalise
from uma.relay.transform.float_requantisation import check_forms, requantise_in_floats

SCALE, ZERO_POINT = 0.1, 3


def check(data: bytes, x: np.ndarray) -> list[str]:
    """The model gives onnxruntime's bytes, without notes and without floats; its ops."""
    model = import_model(data)
    assert model.notes == ()
    module = canonicalise(model.module)
    (ours,) = evaluate(module, {"x": x})
    (theirs,) = run_onnxruntime(data, {"x": x})
    assert ours.dtype == theirs.dtype and np.array_equal(ours, theirs)
    ops = [e.op_name or "" for e in post_order(module.main.body) if isinstance(e, Call)]
    assert not {"qnn.quantize", "qnn.dequantize"}.intersection(ops)
    return ops


def codes(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(-128, 128, shape, np.int8)


def dense(weight: Callable[[OnnxBuilder], str], bias: Callable[[OnnxBuilder], str]) -> OnnxBuilder:
    """A dense layer between DequantizeLinear and QuantizeLinear, with the result ``y``."""
    b = OnnxBuilder(13)
    x = b.dequantize(b.input("x", [2, 5], "int8"), SCALE, ZERO_POINT, "int8")
    made = b.node("Gemm", x, weight(b), bias(b))
    b.node("QuantizeLinear", made, b.constant(0.3, "float32"), b.constant(-5, "int8"), outputs=["y"])
    return b


def stored_weight(b: OnnxBuilder) -> str:
    return b.dequantize(b.constant(codes(5, 4), "int8"), 0.02, 0, "int8")


def float_weight(b: OnnxBuilder) -> str:
    """Quantised and dequantised in the model."""
    wanted = np.random.default_rng(1).normal(size=(5, 4))
    return b.dequantize(b.quantize(b.constant(wanted, "float32"), 0.02, 0, "int8"), 0.02, 0, "int8")


def bias_of(scale_shape: tuple[int, ...], zero_point_shape: tuple[int, ...]) -> Callable[[OnnxBuilder], str]:
    def build(b: OnnxBuilder) -> str:
        scale = np.full(scale_shape, np.float32(SCALE) * np.float32(0.02))
        stored = b.constant([100, -200, 300, 0], "int32")
        return b.dequantize(stored, scale, np.zeros(zero_point_shape), "int32")

    return build


@pytest.mark.parametrize("shapes", [((1,), ()), ((), (1,)), ((1,), (1,))])
def test_one_scale_of_one_dimension_or_none(shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    assert "qnn.dense" in check(dense(stored_weight, bias_of(*shapes)).model("y").SerializeToString(), codes(2, 5))


def test_a_weight_that_is_kept_in_float() -> None:
    assert "qnn.dense" in check(dense(float_weight, bias_of((), ())).model("y").SerializeToString(), codes(2, 5))


def test_operators_of_onnxruntimes_own_domain() -> None:
    model = dense(stored_weight, bias_of((), ())).model("y")
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    for node in model.graph.node:
        if node.op_type.endswith("quantizeLinear") or node.op_type.endswith("QuantizeLinear"):
            node.domain = "com.microsoft"
    plain = dense(stored_weight, bias_of((), ())).model("y")
    other = import_model(model.SerializeToString()).module
    assert other.main.body is import_model(plain.SerializeToString()).module.main.body


def between(build: Callable[[OnnxBuilder, str], str], *shape: int) -> bytes:
    """What ``build`` does, between equal scales."""
    b = OnnxBuilder(18)
    x = b.dequantize(b.input("x", shape, "int8"), SCALE, ZERO_POINT, "int8")
    model = b.model(b.quantize(build(b, x), SCALE, ZERO_POINT, "int8"))
    return onnx.shape_inference.infer_shapes(model).SerializeToString()


def test_padding_with_a_quantised_constant() -> None:
    def pad(b: OnnxBuilder, x: str) -> str:
        value = b.dequantize(b.constant(13, "int8"), SCALE, ZERO_POINT, "int8")
        return str(b.node("Pad", x, b.constant([0, 1, 2, 0]), value))

    assert check(between(pad, 3, 4), codes(3, 4)) == ["nn.pad"]


@pytest.mark.parametrize("first", [True, False])
def test_repetition_of_integers(first: bool) -> None:
    """A product with ones; it may be written in either order."""

    def expand(b: OnnxBuilder, x: str) -> str:
        ones = b.constant(np.ones((3, 1, 4)), "float32")
        return str(b.node("Mul", *((ones, x) if first else (x, ones))))

    assert check(between(expand, 2, 1), codes(2, 1)) == ["broadcast_to"]


def test_nearest_neighbours_of_integers() -> None:
    def resize(b: OnnxBuilder, x: str) -> str:
        return str(b.node("Resize", x, "", b.constant([1, 1, 2, 2], "float32"), mode="nearest"))

    assert "nn.resize_nearest" in check(between(resize, 1, 2, 3, 4), codes(1, 2, 3, 4))


def test_a_product_with_other_numbers_is_no_repetition() -> None:
    data = between(lambda b, x: str(b.node("Mul", x, b.constant([1, 1.5], "float32"))), 3, 2)
    assert "stays in float" in import_model(data).notes[0]


def test_other_forms_than_qdq_that_are_not_known_are_refused() -> None:
    """One error names all layers, and what to do."""
    b = OnnxBuilder(13)
    x = b.node("QLinearReduceMean", b.input("x", [1, 4], "int8"), name="mean", domain="com.microsoft")
    y = b.node("QLinearWhere", x, name="choice", domain="com.microsoft")
    model = b.model(y)
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    with pytest.raises(ModelError) as caught:
        import_model(model.SerializeToString())
    assert caught.value.what.splitlines() == [
        "the model has 2 operators that cannot be imported:",
        "  'mean' (com.microsoft.QLinearReduceMean, opset 1): this operator is not supported",
        "  'choice' (com.microsoft.QLinearWhere, opset 1): this operator is not supported",
    ]
    assert caught.value.hint is not None and "quant_format=QuantFormat.QDQ" in caught.value.hint


# Of each operator: shapes of its data and its weight, the axis of the weight's output channels, and attributes.
WITH_DEAD_FILTERS: dict[str, tuple[str, tuple[int, ...], tuple[int, ...], int, dict[str, Any]]] = {
    "conv2d": ("Conv", (1, 2, 6, 6), (4, 2, 3, 3), 0, {"pads": [1] * 4}),
    "conv1d": ("Conv", (1, 2, 9), (4, 2, 3), 0, {}),
    "depthwise": ("Conv", (1, 4, 6, 6), (4, 1, 3, 3), 0, {"group": 4}),
    "transposed": ("ConvTranspose", (1, 2, 4, 4), (2, 4, 2, 2), 1, {"strides": [2, 2]}),
    "gemm": ("Gemm", (3, 6), (4, 6), 0, {"transB": 1}),
    "matmul": ("MatMul", (3, 6), (6, 4), 1, {}),
}


class Data(CalibrationDataReader):  # type: ignore[misc]  # it has no types
    def __init__(self, batch: np.ndarray) -> None:
        self.batches = iter([{"x": batch}])

    def get_next(self) -> dict[str, np.ndarray] | None:
        return next(self.batches, None)


@pytest.mark.parametrize("layer", WITH_DEAD_FILTERS)
@pytest.mark.parametrize(
    ("form", "per_channel"), [(QuantFormat.QDQ, True), (QuantFormat.QOperator, True), (QuantFormat.QDQ, False)]
)
@pytest.mark.parametrize("size", [1e-33, 1e-36])
def test_dead_filters(layer: str, form: QuantFormat, per_channel: bool, size: float, tmp_path: Path) -> None:
    """Weights of one output channel, or all of them, are tiny: the channel equals its bias."""
    op, shape, weight_shape, axis, attrs = WITH_DEAD_FILTERS[layer]
    rng = np.random.default_rng(0)
    weight = np.moveaxis(rng.normal(size=weight_shape), axis, -1)
    weight[..., slice(1, 2) if per_channel else slice(None)] *= size
    weight = np.moveaxis(weight, -1, axis)
    b = OnnxBuilder(17)
    args = [b.input("x", shape), b.constant(weight, "float32")]
    if op != "MatMul":
        args.append(b.constant([0.1, 0, -0.2, 0.3], "float32"))
    (tmp_path / "f.onnx").write_bytes(b.build(b.node("Relu", b.node(op, *args, **attrs))))
    batch = rng.normal(size=shape).astype(np.float32)
    # (Data of int8 is what onnxruntime has no QLinearConv per channel for.)
    types = {"weight_type": QuantType.QInt8, "activation_type": QuantType.QUInt8}
    paths = tmp_path / "f.onnx", tmp_path / "q.onnx"
    quantize_static(*paths, Data(batch), quant_format=form, per_channel=per_channel, **types)
    data = paths[1].read_bytes()
    module = canonicalise(import_model(data).module)
    in_floats = requantise_in_floats(module, lambda call: frozenset({"float32", "float64", "fma"}))
    assert not any(check.wrong for check in check_forms(in_floats))
    (theirs,) = run_onnxruntime(data, {"x": batch})
    for one in (module, in_floats):
        (ours,) = evaluate(one, {"x": batch})
        np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-6)
    if (layer, form, per_channel, size) == ("conv2d", QuantFormat.QDQ, True, 1e-33):
        (built,) = uma.build(paths[1], target="c").run(batch).values()
        np.testing.assert_array_equal(built, theirs)
