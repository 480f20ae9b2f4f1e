"""QDQ models: which arithmetic becomes that of integers, and that it gives onnxruntime's bytes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests._support.onnx_builder import OnnxBuilder, run_onnxruntime

from uma.frontends import ImportedModel, import_model
from uma.relay import Call, Constant, post_order
from uma.relay.evaluate import evaluate
from uma.relay.transform import canonicalise
from uma.relay.verify import verify

seeds = st.integers(0, 2**32 - 1)
FLOAT_OPS = {"qnn.quantize", "qnn.dequantize"}


def codes(seed: int, shape: Sequence[int], dtype: str) -> np.ndarray:
    info = np.iinfo(dtype)
    return np.random.default_rng(seed).integers(info.min, info.max, shape, dtype=dtype, endpoint=True)


def ops(model: ImportedModel) -> list[str]:
    return [expr.op_name or "" for expr in post_order(model.module.main.body) if isinstance(expr, Call)]


def run(model: ImportedModel, inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """What the model computes as imported, which is what its canonical form computes."""
    verify(model.module)
    params = [param.name for param in model.module.main.params]
    values = dict(zip(params, inputs.values(), strict=True))
    results = evaluate(model.module, values)
    again = evaluate(canonicalise(model.module), values)
    assert all(np.array_equal(a, b) for a, b in zip(results, again, strict=True))
    return list(results)


def check_bytes(
    data: bytes, inputs: Mapping[str, np.ndarray], *, levels: Sequence[bool] = (True, False)
) -> ImportedModel:
    """The model is imported without floats, and gives onnxruntime's bytes with and without its optimisations."""
    model = import_model(data)
    assert model.notes == ()
    assert not FLOAT_OPS.intersection(ops(model))
    results = run(model, inputs)
    for optimise in levels:
        expected = run_onnxruntime(data, inputs, optimise=optimise)
        for result, wanted in zip(results, expected, strict=True):
            assert (result.dtype, result.shape) == (wanted.dtype, wanted.shape)
            assert np.array_equal(result, wanted)
    return model


# --- convolutions and products as onnxruntime fuses them -------------------------------------------------------------


class Layer:
    """Draws one quantised layer. Scales are chosen so that ties are frequent: they tell roundings apart."""

    def __init__(self, draw: st.DrawFn, dtype: str) -> None:
        self.b = OnnxBuilder(13)
        self.rng = np.random.default_rng(draw(seeds))
        self.draw = draw
        self.dtype = dtype
        self.weight_dtype = draw(st.sampled_from(["int8", "uint8"] if dtype == "uint8" else ["int8"]))
        self.per_channel = draw(st.booleans())
        self.scale = np.float32(self.rng.uniform(0.005, 0.2))
        self.zero_point = draw(st.sampled_from([0, 128, 100] if dtype == "uint8" else [0, 3, -128]))

    def codes(self, shape: Sequence[int], dtype: str) -> np.ndarray:
        return codes(int(self.rng.integers(2**32)), shape, dtype)

    def data(self, shape: Sequence[int]) -> str:
        self.inputs = {"x": self.codes(shape, self.dtype)}
        return self.b.dequantize(self.b.input("x", shape, self.dtype), self.scale, self.zero_point, self.dtype)

    def weight(self, shape: Sequence[int], axis: int) -> str:
        self.units = shape[axis]
        self.scales = self.rng.uniform(0.001, 0.05, self.units if self.per_channel else ()).astype(np.float32)
        # (onnxruntime wants zero points that are alike.)
        zero_points = np.full_like(self.scales, 117 if self.weight_dtype == "uint8" else 0)
        stored = self.b.constant(self.codes(shape, self.weight_dtype))
        return self.b.dequantize(stored, self.scales, zero_points, self.weight_dtype, axis=axis)

    def bias(self) -> str:
        scales = self.scale * self.scales
        stored = self.b.constant(self.rng.integers(-3000, 3000, self.units), "int32")
        return self.b.dequantize(stored, scales, np.zeros_like(scales), "int32", axis=0)

    def finish(self, data: str, shift: int) -> bytes:
        scale = self.scale * np.ravel(self.scales)[0] * np.float32(2.0**shift)
        lowest = 0 if self.dtype == "uint8" else -128
        zero_point = self.draw(st.sampled_from([lowest, 7]))
        # (Only a relu that saturation does anyway is fused.)
        if zero_point == lowest and self.draw(st.booleans()):
            data = self.b.node("Relu", data)
        return self.b.build(self.b.quantize(data, scale, zero_point, self.dtype))


@st.composite
def convolutions(draw: st.DrawFn, dtype: str) -> tuple[bytes, dict[str, np.ndarray]]:
    layer = Layer(draw, dtype)
    rank = draw(st.integers(1, 2))
    groups = draw(st.sampled_from([1, 1, 2, 4]))
    depth, units = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    kernel = draw(st.lists(st.integers(1, 3), min_size=rank, max_size=rank))
    data = layer.data([1, groups * depth, *draw(st.lists(st.integers(4, 8), min_size=rank, max_size=rank))])
    args = [data, layer.weight([groups * units, depth, *kernel], axis=0)]
    args += [layer.bias()] if draw(st.booleans()) else []
    pads = draw(st.lists(st.integers(0, 1), min_size=2 * rank, max_size=2 * rank))
    strides = draw(st.lists(st.integers(1, 2), min_size=rank, max_size=rank))
    sums = layer.b.node("Conv", *args, group=groups, pads=pads, strides=strides)
    return layer.finish(sums, draw(st.integers(2, 9))), layer.inputs


@st.composite
def products(draw: st.DrawFn, dtype: str) -> tuple[bytes, dict[str, np.ndarray]]:
    layer = Layer(draw, dtype)
    m, k, n = draw(st.tuples(st.integers(1, 8), st.integers(1, 40), st.integers(1, 8)))
    data = layer.data([m, k])
    if draw(st.booleans()):
        sums = layer.b.node("MatMul", data, layer.weight([k, n], axis=1))
    else:
        transposed = draw(st.booleans())
        weight = layer.weight([n, k] if transposed else [k, n], axis=0 if transposed else 1)
        args = [data, weight, *([layer.bias()] if draw(st.booleans()) else [])]
        sums = layer.b.node("Gemm", *args, transB=int(transposed))
    return layer.finish(sums, draw(st.integers(2, 9))), layer.inputs


@given(st.one_of(convolutions("uint8"), products("uint8")))
def test_fused_kernels_to_the_last_bit(layer: tuple[bytes, dict[str, np.ndarray]]) -> None:
    data, inputs = layer
    model = check_bytes(data, inputs, levels=[True])
    assert ops(model).count("qnn.requantize") == 1


@given(st.one_of(convolutions("int8"), products("int8")))
def test_signed_activations(layer: tuple[bytes, dict[str, np.ndarray]]) -> None:
    """onnxruntime fuses these on some machines only; elsewhere its floats may break a tie otherwise."""
    data, inputs = layer
    model = import_model(data)
    assert model.notes == () and not FLOAT_OPS.intersection(ops(model))
    difference = run(model, inputs)[0].astype(int) - run_onnxruntime(data, inputs)[0]
    assert np.abs(difference).max() <= 1


@given(st.tuples(*[st.integers(1, 6)] * 4), st.integers(0, 6), seeds)
def test_product_of_two_activations(sizes: tuple[int, ...], shift: int, seed: int) -> None:
    heads, m, k, n = sizes
    b = OnnxBuilder(13)
    scale = np.float32(0.037)
    a = b.dequantize(b.input("a", [heads, m, k], "uint8"), scale, 128, "uint8")
    other = b.dequantize(b.input("b", [heads, k, n], "uint8"), scale, 3, "uint8")
    y = b.quantize(b.node("MatMul", a, other), scale * scale * np.float32(2.0**shift), 128, "uint8")
    inputs = {"a": codes(seed, (heads, m, k), "uint8"), "b": codes(seed + 1, (heads, k, n), "uint8")}
    model = check_bytes(b.build(y), inputs, levels=[True])
    assert "qnn.matmul" in ops(model)


# --- what moves elements ---------------------------------------------------------------------------------------------


def _moved(b: OnnxBuilder, data: str, draw: Callable[[st.SearchStrategy[Any]], Any]) -> str:
    """One op on a value of shape (1, 4, 6, 6), of which it keeps the shape."""
    kind = draw(st.integers(0, 7))
    if kind == 0:
        made = b.node("MaxPool", data, kernel_shape=[3, 3], pads=[1] * 4)
    elif kind == 1:
        made = b.node("Transpose", data, perm=[0, 1, 3, 2])
    elif kind == 2:
        flat = b.node("Reshape", data, b.constant([4, 36], "int64"))
        made = b.node("Reshape", flat, b.constant([1, 4, 6, 6], "int64"))
    elif kind == 3:
        cut = b.node("Slice", data, b.constant([1], "int64"), b.constant([5], "int64"), b.constant([2], "int64"))
        made = b.node("Pad", cut, b.constant([0, 0, 1, 0, 0, 0, 1, 0], "int64"))
    elif kind == 4:
        first, second = b.node("Split", data, b.constant([1, 3], "int64"), outputs=2, axis=1)
        made = b.node("Concat", second, first, axis=1)
    elif kind == 5:
        made = b.node("Relu", data)
    elif kind == 6:
        squeezed = b.node("Squeeze", data, b.constant([0], "int64"))
        made = b.node("Unsqueeze", squeezed, b.constant([0], "int64"))
    else:
        made = b.node("Pad", b.node("GlobalMaxPool", data), b.constant([0, 0, 0, 0, 0, 0, 5, 5], "int64"))
    return str(made)


@given(st.sampled_from(["int8", "uint8"]), st.integers(1, 4), st.booleans(), st.data(), seeds)
def test_moves_between_equal_scales(dtype: str, count: int, between: bool, data: st.DataObject, seed: int) -> None:
    b = OnnxBuilder(13)
    parameters = (0.043, 7, dtype)
    x = b.dequantize(b.input("x", [1, 4, 6, 6], dtype), *parameters)
    for _ in range(count):
        x = _moved(b, x, data.draw)
        if between:
            x = b.dequantize(b.quantize(x, *parameters), *parameters)
    # (Optimised, onnxruntime makes a pad with zeros that of the pool behind it, which is another function.)
    check_bytes(b.build(b.quantize(x, *parameters)), {"x": codes(seed, (1, 4, 6, 6), dtype)}, levels=[False])


@given(st.floats(-3, 0, width=32), st.floats(0, 3, width=32), st.sampled_from(["int8", "uint8"]), seeds)
def test_clip_between_equal_scales(low: float, high: float, dtype: str, seed: int) -> None:
    b = OnnxBuilder(13)
    parameters = (0.013, 9, dtype)
    x = b.dequantize(b.input("x", [40], dtype), *parameters)
    y = b.node("Clip", x, b.constant(low, "float32"), b.constant(high, "float32"))
    model = check_bytes(b.build(b.quantize(y, *parameters)), {"x": codes(seed, (40,), dtype)})
    assert set(ops(model)) <= {"clip"}


# --- arithmetic that powers of two make exact ------------------------------------------------------------------------


class Exact:
    """Builds arithmetic on values of shape (1, 4, 13) whose scales are powers of two."""

    def __init__(self, seed: int, dtype: str = "int8") -> None:
        self.b = OnnxBuilder(13)
        self.rng = np.random.default_rng(seed)
        self.dtype = dtype
        self.inputs: dict[str, np.ndarray] = {}

    def input(self, exponent: int, zero_point: int = 0, shape: Sequence[int] = (1, 4, 13)) -> str:
        name = f"x{len(self.inputs)}"
        self.inputs[name] = codes(int(self.rng.integers(2**32)), shape, self.dtype)
        return self.b.dequantize(self.b.input(name, shape, self.dtype), 2.0**exponent, zero_point, self.dtype)

    def conv(self, data: str, exponent: int, bias: str | None = "float32", taps: int = 3) -> str:
        weight = self.rng.integers(-32, 32, (4, 4, taps))
        args = [data, self.b.dequantize(self.b.constant(weight, "int8"), 2.0**exponent, 0, "int8")]
        stored = self.rng.integers(-128, 128, 4)
        if bias == "float32":
            args.append(self.b.constant(stored * 2.0**-7, "float32"))
        elif bias is not None:
            args.append(self.b.dequantize(self.b.constant(stored, bias), 2.0**-7, 0, bias))
        return str(self.b.node("Conv", *args, pads=[taps // 2] * 2))

    def check(
        self, data: str, exponent: int, zero_point: int = 0, levels: Sequence[bool] = (False, True)
    ) -> ImportedModel:
        y = self.b.quantize(data, 2.0**exponent, zero_point, self.dtype)
        # Optimised, onnxruntime adds two quantised tensors of uint8 with other roundings than the model's.
        levels = [False] if self.dtype == "uint8" else levels
        return check_bytes(self.b.build(y), self.inputs, levels=levels)


@given(st.sampled_from([None, "float32", "int8", "int32"]), st.booleans(), st.integers(0, 4), st.booleans(), seeds)
def test_a_layer_of_a_keyword_spotter(bias: str | None, residual: bool, shift: int, relu: bool, seed: int) -> None:
    """Sum of products, bias, residual, a sum over frames divided by a power of two: rounded once."""
    e = Exact(seed)
    value = e.conv(e.input(-7), -5, bias, taps=9)
    if residual:
        value = e.b.node("Add", value, e.input(-7))
    if shift:
        value = e.b.node("ReduceSum", value, e.b.constant([2], "int64"), keepdims=1)
        value = e.b.node("Mul", value, e.b.constant(2.0**-shift, "float32"))
    if relu:
        value = e.b.node("Relu", value)
    model = e.check(value, -7)
    assert ops(model).count("qnn.requantize") == 1 and ops(model).count("qnn.conv1d") == 1


def test_a_pool_of_13_frames_divided_by_16() -> None:
    e = Exact(1)
    attrs = {"kernel_shape": [16], "pads": [1, 2], "count_include_pad": 1}
    model = e.check(e.b.node("AveragePool", e.conv(e.input(-7), -5), **attrs), -7)
    assert ops(model) == ["layout_transform", "qnn.conv1d", "add", "sum", "qnn.requantize", "reshape"]


def _exact_op(e: Exact, kind: str, x: str, y: str) -> str:
    b = e.b
    if kind in ("Add", "Sub", "Min", "Max", "Mul"):
        return str(b.node(kind, x, y))
    if kind == "scale":
        return str(b.node("Mul", x, b.constant(e.rng.choice([-0.5, 0.75, 3.0], (4, 1)), "float32")))
    if kind == "Clip":
        return str(b.node("Clip", x, b.constant(-0.4375, "float32"), b.constant(0.625, "float32")))
    if kind == "windows":
        return str(b.node("AveragePool", x, kernel_shape=[2], pads=[1, 0], count_include_pad=1))
    if kind == "window":
        return str(b.node("AveragePool", x, kernel_shape=[8], strides=[8]))
    if kind == "MatMul":
        weight = b.dequantize(b.constant(e.rng.integers(-9, 9, (1, 13, 13)), "int8"), 2.0**-4, 0, "int8")
        return str(b.node("MatMul", x, weight))
    if kind == "ReduceMean":
        return str(b.node("ReduceMean", x, axes=[1], keepdims=1))
    if kind == "Pad":
        cut = b.node("Slice", b.node("Add", x, y), *(b.constant([v], "int64") for v in (2, 9, 2)))
        return str(b.node("Pad", cut, b.constant([0, 0, 3, 0, 0, 3], "int64"), b.constant(0.375, "float32")))
    if kind == "Concat":
        first, second = b.node("Split", b.node("Concat", x, y, axis=1), b.constant([4, 4], "int64"), outputs=2, axis=1)
        return str(b.node("Sub", second, first))
    if kind == "GlobalAveragePool":
        cut = b.node("Slice", x, b.constant([0], "int64"), b.constant([8], "int64"), b.constant([2], "int64"))
        return str(b.node("GlobalAveragePool", cut))
    if kind == "MaxPool":
        return str(b.node("MaxPool", x, kernel_shape=[3], pads=[1, 1]))
    assert kind == "Div"
    return str(b.node("Div", x, b.constant(4.0, "float32")))


EXACT_OPS = [
    "Add",
    "Sub",
    "Min",
    "Max",
    "Mul",
    "scale",
    "Clip",
    "windows",
    "window",
    "MatMul",
    "ReduceMean",
    "Pad",
    "Concat",
    "GlobalAveragePool",
    "MaxPool",
    "Div",
]


@pytest.mark.parametrize("kind", EXACT_OPS)
@given(
    st.sampled_from(["int8", "uint8"]),
    st.integers(-8, -3),
    st.integers(-8, -3),
    st.booleans(),
    st.integers(-9, -2),
    seeds,
)
def test_exact_ops(kind: str, dtype: str, first: int, second: int, relu: bool, result: int, seed: int) -> None:
    """Each op with an addition of a third value behind it, so that no single op's rule applies."""
    e = Exact(seed, dtype)
    value = _exact_op(e, kind, e.input(first, 3), e.input(second, 100))
    value = e.b.node("Add", value, e.input(-5, 1))
    if relu:
        value = e.b.node("Relu", value)
    e.check(value, result, 5)


@given(st.integers(-8, -3), seeds)
def test_exact_products_with_scales_per_channel(result: int, seed: int) -> None:
    e = Exact(seed)
    x = e.input(-6, 5, (3, 8))
    weight = e.b.constant(e.rng.integers(-128, 128, (8, 4)), "int8")
    scales = 2.0 ** e.rng.integers(-7, -4, 4)
    made = e.b.node("Gemm", x, e.b.dequantize(weight, scales, np.zeros(4), "int8", axis=1))
    e.check(e.b.node("Add", made, e.input(-6, 0, (3, 4))), result)


@given(
    st.sampled_from(["Conv", "depthwise", "MatMul", "Gemm"]),
    st.sampled_from([None, "its own", "float32", "zero", "coarse"]),
    st.sampled_from(["relu", "residual", "pool", None]),
    st.sampled_from([("int8", 0), ("int8", 3), ("uint8", 128), ("uint8", 117)]),
    seeds,
)
def test_eight_bits_stay_eight_bits(
    kind: str, bias: str | None, then: str | None, stored: tuple[str, int], seed: int
) -> None:
    """Whatever powers of two a weight's channels are scaled by, it keeps its bits; they are told apart afterwards."""
    e = Exact(seed)
    b, channels, (dtype, zero_point) = e.b, 4, stored
    exponents = e.rng.integers(-7, -3, channels)
    shape, axis = {"Conv": ((4, 4, 3), 0), "depthwise": ((4, 1, 3), 0), "MatMul": ((13, 4), 1), "Gemm": ((4, 13), 0)}[
        kind
    ]
    flat = kind in ("MatMul", "Gemm")
    values = codes(seed + 5, shape, dtype)
    # Sums of sums of the largest ones need more than the 24 bits that floats have.
    if then == "pool" or (bias == "float32" and then == "residual"):
        values = np.clip(values, zero_point - 5, zero_point + 5)
    weight = b.constant(values)
    weight = b.dequantize(weight, 2.0**exponents, np.full(4, zero_point), dtype, axis=axis)
    data = e.input(-7, 1, (2, 13) if flat else (1, 4, 13))
    wide = "float32"
    biases = {
        "its own": lambda: b.dequantize(
            b.constant(e.rng.integers(-3000, 3000, channels), "int32"),
            2.0 ** (exponents - 7),
            np.zeros(4),
            "int32",
            axis=0,
        ),
        "float32": lambda: b.constant(e.rng.integers(-128, 128, channels) * 2.0**-15, wide),
        "zero": lambda: b.constant(np.zeros(channels), wide),
        "coarse": lambda: b.constant(e.rng.integers(-3, 4, channels) * 1.0, wide),
    }
    if flat:
        args = [] if bias is None else [biases[bias]()]
        if kind == "Gemm":
            value = b.node("Gemm", data, weight, *args, transB=1)
        else:
            value = b.node("MatMul", data, weight)
            value = b.node("Add", value, *args) if args else value
    else:
        args = [] if bias is None else [biases[bias]()]
        value = b.node("Conv", data, weight, *args, pads=[1, 1], group=4 if kind == "depthwise" else 1)
    if then == "residual":
        value = b.node("Add", value, e.input(-6, 0, (2, 4) if flat else (1, 4, 13)))
    elif then == "pool" and not flat:
        value = b.node("Mul", b.node("ReduceSum", value, b.constant([2], "int64"), keepdims=1), b.constant(0.25, wide))
    elif then is not None:
        value = b.node("Relu", value)
    # Optimised, onnxruntime rounds a bias of floats to the scale of the sums.
    model = e.check(value, -4, levels=[False] if bias == "float32" else [False, True])
    weights = [x for x in post_order(model.module.main.body) if isinstance(x, Constant) and len(x.shape) > 1]
    assert {x.dtype for x in weights if x.tensor.size == math.prod(shape)} <= {"int8", "uint8"}


def test_shifts_per_channel_are_in_the_requantisation() -> None:
    """Nothing else is between the sums, the bias and the result; what the channels share is the unit."""
    scales = np.array([2.0**-4, 2.0**-7])
    model = import_model(
        conv_layer(
            input_scale=2.0**-3,
            weight_scale=scales,
            weight_zero_point=[0, 0],
            bias=int_bias(scales * 2.0**-3),
            between=relu,
        )
    )
    made = text(model).splitlines()
    assert made[1:3] == ["qnn.conv2d(input_zero_point=3) conv", "add() conv"]
    assert "scale=FloatScale(scale=(0.015625, 0.001953125))" in made[3]
    (weight, bias) = (e for e in post_order(model.module.main.body) if isinstance(e, Constant))
    assert (weight.dtype, bias.data.tolist()) == ("int8", [5, -7])


# --- what it becomes, and why not ------------------------------------------------------------------------------------


def conv_layer(
    *,
    input_scale: float = 0.1,
    zero_point: int = 3,
    weight_scale: Any = 0.02,
    weight_zero_point: Any = 0,
    weight_axis: int = 0,
    bias: Any = None,
    output: tuple[Any, Any] | None = (0.5, -128),
    between: Callable[[OnnxBuilder, str], str] | None = None,
    float_too: bool = False,
) -> bytes:
    """A convolution of int8 (1, 2, 5, 5) with a (2, 2, 3, 3) weight of ones, with what the arguments say around it."""
    b = OnnxBuilder(13)
    x = b.dequantize(b.input("x", [1, 2, 5, 5], "int8"), input_scale, zero_point, "int8")
    stored = b.constant(np.ones((2, 2, 3, 3)), "int8")
    weight = b.dequantize(stored, weight_scale, weight_zero_point, "int8", axis=weight_axis)
    made = b.node("Conv", x, weight, *([] if bias is None else [bias(b)]), name="conv")
    result = made if between is None else between(b, made)
    if output is not None:
        scale, zero = output
        result = b.quantize(result, scale, zero, "int8", **({"axis": 1} if np.ndim(scale) else {}))
    return b.build(result, *([made] if float_too else []))


def float_bias(*values: float) -> Callable[[OnnxBuilder], str]:
    return lambda b: b.constant(values, "float32")


def int_bias(scale: Any, stored: Sequence[int] = (5, -7), axis: int = 0) -> Callable[[OnnxBuilder], str]:
    return lambda b: b.dequantize(b.constant(stored, "int32"), scale, np.zeros_like(scale), "int32", axis=axis)


def text(model: ImportedModel) -> str:
    """The ops in order, with what tells layers apart."""
    shown = {"a_min": "{:g}", "a_max": "{:g}", "input_zero_point": "{}", "scale": "{}", "output_zero_point": "{}"}
    lines = []
    for expr in post_order(model.module.main.body):
        if isinstance(expr, Call):
            attrs = [f"{name}={shown[name].format(value)}" for name, value in expr.attrs.items if name in shown]
            lines.append(f"{expr.op_name}({', '.join(attrs)}) {','.join(model.module.spans[expr])}")
    return "\n".join(lines)


def relu(b: OnnxBuilder, data: str) -> str:
    return str(b.node("Relu", data, name="relu"))


def test_convolution_bias_and_relu() -> None:
    """A relu to which saturation comes anyway vanishes; layers say what became what."""
    scale = np.float32(0.1) * np.float32(0.02)
    model = import_model(conv_layer(bias=int_bias(scale), between=relu))
    factor = float(scale / np.float32(0.5))
    requantised = f"qnn.requantize(scale=FloatScale(scale=({factor},)), input_zero_point=0, output_zero_point=-128)"
    assert text(model).splitlines() == [
        "layout_transform() conv",
        "qnn.conv2d(input_zero_point=3) conv",
        "add() conv",
        f"{requantised} conv,relu,n_QuantizeLinear_5",
        "transpose() conv",
    ]


def test_relu_above_the_lowest_number_is_a_clip() -> None:
    model = import_model(conv_layer(output=(0.5, 7), between=relu))
    assert "clip(a_min=7, a_max=127) relu" in text(model)


def test_limits_are_quantised() -> None:
    def limit(b: OnnxBuilder, data: str) -> Any:
        return b.node("Clip", data, b.constant(0.0, "float32"), b.constant(6.0, "float32"))

    model = import_model(conv_layer(output=(0.5, -100), between=limit))
    assert "clip(a_min=-100, a_max=-88)" in text(model)


@pytest.mark.parametrize(
    ("bias", "stored"),
    [
        (float_bias(0.5, -1.0), [64, -128]),  # multiples of 2**-7
        (int_bias(2.0**-7), [5, -7]),
        (int_bias([2.0**-7, 2.0**-7]), [5, -7]),
        (int_bias(2.0**-6), [10, -14]),
        (int_bias(np.float32(2.0**-7) * (1 + 2.0**-23)), [5, -7]),  # one unit in the last place off
        (int_bias(2.0**-7, [2**30, 1]), [2**30, 1]),
    ],
)
def test_bias_in_units_of_the_sums(bias: Callable[[OnnxBuilder], str], stored: list[int]) -> None:
    model = import_model(conv_layer(input_scale=2.0**-4, weight_scale=2.0**-3, bias=bias, output=(0.3, 0)))
    assert model.notes == ()
    added = [e for e in post_order(model.module.main.body) if isinstance(e, Call) and e.op_name == "add"]
    assert added[0].args[1].data.tolist() == stored  # type: ignore[attr-defined]  # a bias is a constant


class Island:
    """Builds what is between one or more DequantizeLinear and a QuantizeLinear."""

    def __init__(self, opset: int = 21) -> None:
        self.b = OnnxBuilder(opset)

    def input(self, *shape: int, scale: Any = 0.25, dtype: str = "int8", **attrs: Any) -> str:
        data = self.b.input(f"x{len(self.b.inputs)}", shape, dtype)
        return self.b.dequantize(data, scale, np.zeros_like(scale), dtype, **attrs)

    def floats(self, *shape: int) -> str:
        return self.b.input(f"x{len(self.b.inputs)}", shape)

    def constant(self, value: Any) -> str:
        return self.b.constant(value, "float32")

    def quantised(self, value: Any, scale: Any, dtype: str = "int8", axis: int = 1) -> str:
        return self.b.dequantize(self.b.constant(value, dtype), scale, np.zeros_like(scale), dtype, axis=axis)

    def op(self, op: str, *args: str, **attrs: Any) -> str:
        return str(self.b.node(op, *args, name="op", **attrs))

    def plus(self, data: str, *shape: int) -> str:
        """An addition, so that what is before it is not a layer by itself."""
        return str(self.b.node("Add", data, self.input(*shape), name="plus"))

    def windows(self, data: str, **attrs: Any) -> str:
        return self.op("AveragePool", data, kernel_shape=[2], strides=[2], **attrs)


OP = "op stays in float: "
PLUS = "op, plus stay in float: "
NO_POWER = "is not a power of two"
BITS = "its numbers may need more than the 24 bits of a float32"
SUMS = "its sums may need more than the 24 bits of a float32"
CONSTANTS = "its constants need more than 24 bits"
RANGE = "its numbers leave the range of float32"
W = np.ones((8, 4))

REASONS: list[tuple[str, Callable[[Island], str]]] = [
    (OP + "the scale 0.3 " + NO_POWER, lambda i: i.op("Add", i.input(4), i.input(4, scale=0.3))),
    (OP + "sigmoid is not exact", lambda i: i.op("Sigmoid", i.input(4))),
    (OP + "it takes floats from outside", lambda i: i.op("Add", i.input(4), i.floats(4))),
    (
        OP + "it has a scale per channel",
        lambda i: i.op("Add", i.input(2, 4, scale=[0.5, 0.25], axis=0), i.input(2, 4)),
    ),
    (OP + BITS, lambda i: i.op("Add", i.input(4), i.input(4, scale=2.0**20))),
    (OP + BITS, lambda i: i.op("Mul", *(i.input(4, dtype="int16") for _ in "ab"))),
    (OP + BITS, lambda i: i.op("ReduceSum", i.input(2**18), keepdims=0)),
    (OP + BITS, lambda i: i.op("Add", i.input(4, dtype="int32"), i.input(4))),
    (OP + RANGE, lambda i: i.op("Mul", *(i.input(4, scale=2.0**-60) for _ in "ab"))),
    (OP + RANGE, lambda i: i.op("Add", i.input(4, scale=2.0**99), i.input(4, scale=2.0**99))),
    (
        PLUS + "its limits need more than the 24 bits of a float32",
        lambda i: i.plus(i.op("Clip", i.input(4), i.constant(0.0), i.constant(2.0**23)), 4),
    ),
    (
        OP + "its padding needs more than the 24 bits of a float32",
        lambda i: i.op("Pad", i.input(4), i.b.constant([1, 1], "int64"), i.constant(2.0**40)),
    ),
    (
        PLUS + RANGE,
        lambda i: i.plus(i.op("MatMul", i.input(1, 1, scale=2.0**-60), i.quantised([[1]], 2.0**-60)), 1, 1),
    ),
    (
        "plus, op stay in float: it divides by 3, which is not a power of two",
        lambda i: i.op("ReduceMean", i.plus(i.input(3), 3)),
    ),
    (OP + "a constant is not finite", lambda i: i.op("Mul", i.input(4), i.constant(np.inf))),
    (OP + CONSTANTS, lambda i: i.op("Mul", i.input(4), i.constant([1, 2**-25, 0, 0]))),
    (OP + CONSTANTS, lambda i: i.op("Add", i.input(1, 2), i.quantised([[1, 1]], [2.0**-20, 2.0**10]))),
    (OP + CONSTANTS, lambda i: i.op("Add", i.input(1), i.quantised([2**24], 1.0, "int32"))),
    (
        OP + "a scale of a constant " + NO_POWER,
        lambda i: i.op("Add", i.input(1, 2), i.quantised([[1, 1]], [0.5, 0.3])),
    ),
    (
        OP + "its windows at the borders have other sizes, and its scales differ",
        lambda i: i.windows(i.input(1, 2, 6), pads=[1, 1]),
    ),
    (
        "plus, op stay in float: its windows at the borders have other sizes",
        lambda i: i.windows(i.plus(i.input(1, 2, 6), 1, 2, 6), pads=[1, 1]),
    ),
    (
        "plus, op stay in float: it averages windows of what is computed in between",
        lambda i: i.windows(i.plus(i.input(1, 2, 6), 1, 2, 6)),
    ),
    (
        OP + "its windows are too large",
        lambda i: i.op("AveragePool", i.input(1, 2**14, 66), kernel_shape=[65]),
    ),
    (
        PLUS + SUMS,
        lambda i: i.plus(i.op("AveragePool", i.input(1, 1, 2**17 + 1), kernel_shape=[2**17]), 1, 1, 2),
    ),
    (PLUS + SUMS, lambda i: i.plus(i.op("MatMul", i.input(1, 2000), i.quantised(np.full((2000, 1), 127), 0.5)), 1, 1)),
    (
        PLUS + "its weight needs more than 16 bits",
        lambda i: i.plus(i.op("MatMul", i.input(1, 2), i.constant([[40001], [1]])), 1, 1),
    ),
    (
        PLUS + "its weight is not a constant multiple of a power of two",
        lambda i: i.plus(i.op("MatMul", i.input(1, 2), i.input(2, 1)), 1, 1),
    ),
    (
        "plus, op, sum stay in float: its data is computed in between, not quantised",
        lambda i: str(
            i.b.node("Add", i.op("MatMul", i.plus(i.input(2, 8), 2, 8), i.quantised(W, 0.5)), i.input(2, 4), name="sum")
        ),
    ),
    # Layers that onnxruntime would fuse.
    (OP + "its weight is not quantised", lambda i: i.op("MatMul", i.input(2, 8), i.constant(W / 3))),
    (
        "plus, op stay in float: its data is not quantised, with one scale and zero point",
        lambda i: i.op("MatMul", i.plus(i.input(2, 8), 2, 8), i.quantised(W, 0.3)),
    ),
    (
        OP + "the scales of its weight are not those of its output channels",
        lambda i: i.op("MatMul", i.input(2, 8), i.quantised(W, np.arange(1, 9) / 10, axis=0)),
    ),
    (
        OP + "its second operand is computed and has a scale per channel",
        lambda i: i.op("MatMul", i.input(2, 3), i.input(3, 2, scale=[0.1, 0.2])),
    ),
    (
        OP + "its sums may overflow 32 bits",
        lambda i: i.op("MatMul", i.input(1, 3, dtype="int16"), i.quantised(np.full((3, 1), 2**15 - 1), 0.3, "int16")),
    ),
    (
        OP + "its sums may overflow 32 bits",
        lambda i: i.op("MatMul", i.input(1, 3, dtype="int16"), i.input(3, 1, dtype="int16", scale=0.3)),
    ),
]


@pytest.mark.parametrize(("note", "build"), REASONS, ids=[note for note, _ in REASONS])
def test_what_stays_in_float(note: str, build: Callable[[Island], str]) -> None:
    i = Island()
    data = i.b.build(i.b.quantize(build(i), 2.0**-9, 0, "int8"))
    model = import_model(data)
    assert model.notes == (note,)
    assert "qnn.quantize" in ops(model)
    verify(model.module)


def test_a_limit_that_is_left_out_limits_no_integers() -> None:
    """Its value, the largest finite number, is not a multiple of anything within 24 bits."""
    i = Island()
    data = i.b.build(i.b.quantize(i.plus(i.op("Clip", i.input(4), i.constant(0.0)), 4), 2.0**-9, 0, "int8"))
    model = import_model(data)
    assert model.notes == ()
    verify(model.module)


def test_a_result_with_another_scale() -> None:
    i = Island()
    data = i.b.build(i.b.quantize(i.op("Add", i.input(4), i.input(4)), 0.3, 0, "int8"))
    assert import_model(data).notes == (OP + "the scale 0.3 of its result is not a power of two",)


@pytest.mark.parametrize(
    ("reason", "layer"),
    [
        ("its result has a scale per channel", {"output": ([0.5, 0.25], [0, 0])}),
        ("its result is used as a float too", {"float_too": True}),
        ("its result is not quantised", {"output": None}),
        ("its weight has a zero point per channel", {"weight_scale": [0.1, 0.1], "weight_zero_point": [0, 1]}),
        ("its scales leave the range of float32", {"input_scale": 1e30, "weight_scale": 1e30}),
        ("its bias is not a multiple of the product of the scales", {"bias": float_bias(0.1003, 0.2)}),
        ("its bias is not a multiple of the product of the scales", {"bias": float_bias(1e30, 0)}),
    ],
)
def test_a_convolution_that_stays_in_float(reason: str, layer: dict[str, Any]) -> None:
    model = import_model(conv_layer(**layer))
    assert model.notes == (f"conv stays in float: {reason}",)
    assert "nn.conv2d" in ops(model)
    verify(canonicalise(model.module))


def test_a_product_of_scales_below_every_float_is_computed_in_integers() -> None:
    data = conv_layer(input_scale=1e-30, weight_scale=[0.02, 1e-30], weight_zero_point=[0, 0])
    model = import_model(data)
    assert (model.notes, "qnn.conv2d" in ops(model)) == ((), True)
    inputs = {"x": np.random.default_rng(0).integers(-128, 128, (1, 2, 5, 5), np.int8)}
    np.testing.assert_array_equal(evaluate(model.module, inputs), run_onnxruntime(data, inputs))


def test_a_dequantised_output_is_no_loss() -> None:
    """What is dequantised at the end of a model stays as it is."""
    b = OnnxBuilder(13)
    x = b.dequantize(b.input("x", [4], "int8"), 0.25, 0, "int8")
    model = import_model(b.build(b.node("Relu", x)))
    assert (ops(model), model.notes) == (["clip", "qnn.dequantize"], ())


def test_a_quantised_float_input_needs_no_note() -> None:
    b = OnnxBuilder(13)
    model = import_model(b.build(b.quantize(b.node("Relu", b.input("x", [4])), 0.25, 0, "int8")))
    assert (ops(model), model.notes) == (["nn.relu", "qnn.quantize"], ())


def test_every_call_has_a_layer() -> None:
    e = Exact(3)
    value = e.b.node("Add", e.conv(e.input(-7), -5, taps=3), e.input(-7, 5))
    module = e.check(e.b.node("Relu", value), -7, 3).module
    for form in (module, canonicalise(module)):
        assert all(form.spans[expr] for expr in post_order(form.main.body) if isinstance(expr, Call))


def test_many_layers() -> None:
    b = OnnxBuilder(13)
    value = b.input("x", [1, 4], "int8")
    weight = b.dequantize(b.constant(np.eye(4), "int8"), 0.3, 0, "int8")
    for _ in range(700):
        product = b.node("MatMul", b.dequantize(value, 0.1, 0, "int8"), weight)
        value = b.quantize(product, 0.1, 0, "int8")
    model = import_model(b.build(value))
    assert ops(model) == ["qnn.dense", "qnn.requantize"] * 700


def test_many_quantisations_of_one_long_sum() -> None:
    """Time is linear in the length of what stays in float."""
    b = OnnxBuilder(13)
    value = b.dequantize(b.input("x", [1], "int8"), 0.3, 0, "int8")
    outputs = []
    for _ in range(1500):
        value = b.node("Tanh", value)
        outputs.append(b.quantize(value, 0.1, 0, "int8"))
    assert len(import_model(b.build(*outputs)).notes) == 1500
