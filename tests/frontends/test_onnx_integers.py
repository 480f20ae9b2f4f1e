"""Operators on integers, of ONNX and of onnxruntime: what they compute, against onnxruntime."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from tests._support.onnx_builder import OnnxBuilder, run_onnxruntime

from uma.errors import ModelError
from uma.frontends import import_model
from uma.relay.evaluate import evaluate
from uma.relay.expr import Call
from uma.relay.transform import canonicalise
from uma.relay.visit import post_order

RNG = np.random.default_rng(0)

Made = Callable[[OnnxBuilder, Callable[..., str]], Any]
"""Takes a builder and what makes a parameter of it, a constant or an input."""


def codes(*shape: int, dtype: str = "uint8") -> np.ndarray:
    """Those of int8 of half of its range: on x86 CPUs without VNNI onnxruntime's sums of two products with those of
    uint8 saturate in 16 bits, where the weights are not constants.
    """
    low, high = (-64, 63) if dtype == "int8" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    return RNG.integers(low, high, shape, dtype, endpoint=True)


def real(value: Any) -> np.ndarray:
    return np.array(value, np.float32)


def model_of(make: Made, computed: bool, opset: int) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """The model, and what its inputs are: its parameters too, where these are ``computed``."""
    b = OnnxBuilder(opset)
    inputs: dict[str, np.ndarray] = {}

    def parameter(value: Any, name: str | None = None) -> str:
        value = np.asarray(value)
        if not computed and name is None:
            return b.constant(value)
        name = name or f"p{len(inputs)}"
        inputs[name] = value
        return b.input(name, value.shape, value.dtype.name)

    made = make(b, parameter)
    model = b.model(*([made] if isinstance(made, str) else made))
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    return model, inputs


def compared(make: Made, computed: bool = False, opset: int = 13) -> tuple[list[str], int]:
    """The ops of the canonical form; and by how much its results differ from onnxruntime's at most."""
    model, inputs = model_of(make, computed, opset)
    data = model.SerializeToString()
    module = canonicalise(import_model(data).module)
    ours, theirs = evaluate(module, inputs), run_onnxruntime(data, inputs)
    most = 0
    for one, other in zip(ours, theirs, strict=True):
        assert one.shape == other.shape and one.dtype == other.dtype
        if one.dtype.kind == "f":
            np.testing.assert_allclose(one, other, 1e-6)
        else:
            most = max(most, int(np.abs(one.astype(np.int64) - other.astype(np.int64)).max()))
    return [e.op_name or "" for e in post_order(module.main.body) if isinstance(e, Call)], most


def matmul(a: np.ndarray, b_: np.ndarray, *zero_points: Any) -> Made:
    return lambda b, p: b.node("MatMulInteger", p(a, "a"), p(b_), *map(p, zero_points))


SUMS: dict[str, Made] = {
    "MatMulInteger": matmul(codes(3, 5), codes(5, 4, dtype="int8")),
    "MatMulInteger with a zero point": matmul(codes(3, 5), codes(5, 4), np.uint8(12)),
    "MatMulInteger with zero points": matmul(codes(2, 3, 5), codes(2, 5, 4), np.uint8(12), np.uint8(200)),
    "MatMulInteger with one per column": matmul(codes(3, 5), codes(5, 4), np.uint8(7), codes(4)),
    "ConvInteger": lambda b, p: b.node(
        "ConvInteger", p(codes(1, 2, 5, 6), "x"), p(codes(3, 2, 3, 2)), pads=[1, 1, 0, 1], strides=[2, 1]
    ),
    "ConvInteger with zero points": lambda b, p: b.node(
        "ConvInteger", p(codes(1, 4, 5, 6), "x"), p(codes(4, 2, 3, 3)), p(np.uint8(9)), p(np.uint8(77)), group=2,
        pads=[1, 1, 1, 1],
    ),
}  # fmt: skip


@pytest.mark.parametrize("computed", [False, True])
@pytest.mark.parametrize("name", SUMS)
def test_sums(name: str, computed: bool) -> None:
    ops, most = compared(SUMS[name], computed, 11)
    assert most == 0 and any(op.startswith("qnn.") for op in ops)
    assert not {"matmul", "nn.dense", "nn.conv2d"}.intersection(ops)


def linear_matmul(scale: Any, zero_point: Any) -> Made:
    return lambda b, p: b.node(
        "QLinearMatMul", p(codes(3, 17), "a"), p(real(0.02)), p(np.uint8(113)), p(codes(17, 4)),
        p(real(scale)), p(np.array(zero_point, np.uint8)), p(real(0.9)), p(np.uint8(100)),
    )  # fmt: skip


def linear_conv(scale: Any, zero_point: Any, bias: bool) -> Made:
    def make(b: OnnxBuilder, p: Callable[..., str]) -> Any:
        added = [p(RNG.integers(-2000, 2000, 3).astype(np.int32))] if bias else []
        given = p(codes(1, 2, 5, 6), "x"), p(real(0.05)), p(np.uint8(120)), p(codes(3, 2, 3, 3, dtype="int8"))
        result = p(real(2.3)), p(np.uint8(99))
        zeros = np.array(zero_point, np.int8)
        return b.node("QLinearConv", *given, p(real(scale)), p(zeros), *result, *added, pads=[1, 0, 1, 0])

    return make


LINEAR: dict[str, Made] = {
    "QLinearMatMul": linear_matmul(0.03, 120),
    "QLinearMatMul per column": linear_matmul([0.03, 0.01, 0.02, 0.04], [120, 0, 255, 128]),
    "QLinearConv": linear_conv(0.03, 0, False),
    "QLinearConv with bias": linear_conv(0.03, 0, True),
    "QLinearConv per channel": linear_conv([0.03, 0.001, 0.1], [0, 0, 0], True),
}


@pytest.mark.parametrize("computed", [False, True])
@pytest.mark.parametrize("name", LINEAR)
def test_layers_with_scales(name: str, computed: bool) -> None:
    """In integers, as those of a model in the QDQ form."""
    ops, most = compared(LINEAR[name], computed)
    assert most == 0 and not {"matmul", "nn.dense", "nn.conv2d"}.intersection(ops)


def operands(op: str, count: int, *shape: int, **attrs: Any) -> Made:
    def make(b: OnnxBuilder, p: Callable[..., str]) -> Any:
        given: list[str] = []
        for index in range(count):
            given += (p(codes(*shape), f"x{index}"), p(real(0.02 + index * 0.01)), p(np.uint8(100 + index)))
        result = [p(real(0.05)), p(np.uint8(90))]
        ordered = [*result, *given] if op == "QLinearConcat" else [*given, *result]
        return b.node(op, *ordered, domain="com.microsoft", **attrs)

    return make


OWN: dict[str, Made] = {
    "QLinearAdd": operands("QLinearAdd", 2, 3, 40),
    "QLinearMul": operands("QLinearMul", 2, 3, 40),
    "QLinearConcat": operands("QLinearConcat", 3, 2, 3, axis=1),
    "QLinearSigmoid": operands("QLinearSigmoid", 1, 3, 40),
    "QLinearLeakyRelu": operands("QLinearLeakyRelu", 1, 3, 40, alpha=0.3),
    "QLinearSoftmax": operands("QLinearSoftmax", 1, 3, 9, axis=-1, opset=13),
    "QLinearAveragePool": operands("QLinearAveragePool", 1, 1, 2, 6, 6, kernel_shape=[3, 3]),
    "QLinearGlobalAveragePool": operands("QLinearGlobalAveragePool", 1, 1, 2, 6, 6),
    "QGemm": lambda b, p: b.node(
        "QGemm", p(codes(3, 17), "a"), p(real(0.02)), p(np.uint8(113)), p(codes(4, 17, dtype="int8")),
        p(real(0.03)), p(np.int8(0)), p(np.array([100, -100, 2000, 0], np.int32)), p(real(0.9)), p(np.uint8(100)),
        transB=1, domain="com.microsoft",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", OWN)
def test_onnxruntimes_own(name: str) -> None:
    """Within one step: onnxruntime computes some of them in an order of its own."""
    _, most = compared(OWN[name])
    assert most <= (0 if name in ("QGemm", "QLinearConcat", "QLinearLeakyRelu") else 1)


def test_quantisation_by_the_range_of_the_data() -> None:
    for x in ([0, 2, -3, -2.5, 1.34, 0.5], [-1.0, -2.1, -1.3], [1, 2.1, 1.3, 2.5, 3.34, 4.0], [0, 0]):
        value = real(x)
        _, most = compared(
            lambda b, p, value=value: b.node("DynamicQuantizeLinear", p(value, "x"), outputs=3), opset=11
        )
        assert most == 0


@pytest.mark.parametrize("computed", [False, True])
@pytest.mark.parametrize("extent", [6, 5])
def test_scales_per_block(computed: bool, extent: int) -> None:
    scale, zero = real(RNG.uniform(0.01, 0.1, (3, 2))), codes(3, 2)
    how = {"axis": 1, "block_size": 3}
    x, q = real(RNG.normal(size=(3, extent))), codes(3, extent)
    _, most = compared(lambda b, p: b.node("QuantizeLinear", p(x, "x"), p(scale), p(zero), **how), computed, 21)
    assert most == 0
    compared(lambda b, p: b.node("DequantizeLinear", p(q, "q"), p(scale), p(zero), **how), computed, 21)


@pytest.mark.parametrize("dtype", ["int8", "uint16"])
def test_parameters_that_are_computed(dtype: str) -> None:
    x, q = real(RNG.normal(size=(3, 5))), codes(3, 5, dtype=dtype)
    zero = codes(3, dtype=dtype)
    _, most = compared(
        lambda b, p: b.node("QuantizeLinear", p(x, "x"), p(real([0.1, 0.01, 1e-4])), p(zero), axis=0), True, 21
    )
    assert most == 0
    compared(lambda b, p: b.node("DequantizeLinear", p(q, "q"), p(real(0.3)), p(zero[0])), True, 21)


REFUSED: dict[str, Made] = {
    "it takes int8 and uint8, not int16": lambda b, p: b.node(
        "MatMulInteger", p(codes(2, 2, dtype="int16"), "a"), p(codes(2, 2, dtype="int16"))
    ),
    "it multiplies no scalars": lambda b, p: b.node("MatMulInteger", p(codes(), "a"), p(codes(2, 2))),
    "its weight of shape (2, 2, 1) does not fit data of shape (1, 2, 3, 3)": lambda b, p: b.node(
        "ConvInteger", p(codes(1, 2, 3, 3), "x"), p(codes(2, 2, 1))
    ),
    "its data has zero points of shape (2,), not one": lambda b, p: b.node(
        "ConvInteger", p(codes(1, 2, 3, 3), "x"), p(codes(2, 2, 1, 1)), p(codes(2))
    ),
    "it has 4 inputs: two, and three for each tensor": lambda b, p: b.node(
        "QLinearConcat", p(real(1)), p(np.uint8(0)), p(codes(2), "x"), p(real(1)), axis=0, domain="com.microsoft"
    ),
    "its channels are last": lambda b, p: operands("QLinearGlobalAveragePool", 1, 1, 2, 6, 6, channels_last=1)(b, p),
    "its scales have the shape (2,), its data (3, 4), with channels in dimension 1": lambda b, p: b.node(
        "QuantizeLinear", p(real(np.ones((3, 4))), "x"), p(real([1, 2]), "s")
    ),
    "its scales have the shape (3, 2), its data (3, 4), in blocks of 3": lambda b, p: b.node(
        "QuantizeLinear", p(real(np.ones((3, 4))), "x"), p(real(np.ones((3, 2))), "s"), block_size=3, axis=0
    ),
    "its scales are int32, not floats": lambda b, p: b.node(
        "DequantizeLinear", p(codes(3, 4), "x"), p(np.array([1, 2, 3, 4], np.int32), "s")
    ),
    "its scales have the shape (4,), its zero points (2,)": lambda b, p: b.node(
        "DequantizeLinear", p(codes(3, 4), "x"), p(real([1, 2, 3, 4]), "s"), p(codes(2))
    ),
}  # fmt: skip


@pytest.mark.parametrize("message", REFUSED)
def test_what_is_refused(message: str) -> None:
    model, _ = model_of(REFUSED[message], False, 21)
    with pytest.raises(ModelError) as caught:
        import_model(model.SerializeToString())
    assert message in str(caught.value)
