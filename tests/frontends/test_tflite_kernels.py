"""Every operator that is imported, against LiteRT's reference kernels: the same bytes, or floats as near as may be."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests._support import (  # noqa: F401 - register their cases
    tflite_indexed_cases,
    tflite_pairs_cases,
    tflite_picks_cases,
    tflite_recurrent_cases,
    tflite_sparse_cases,
    tflite_window_cases,
)
from tests._support.tflite_builder import TFLiteBuilder, litert
from tests._support.tflite_cases import CASES, Case

import uma
from uma.errors import ModelError
from uma.frontends.tflite import from_tflite
from uma.frontends.tflite.convert import CUSTOM_OPERATORS, OPERATORS
from uma.frontends.tflite.reader import read
from uma.frontends.tflite.supported import DTYPES_OF
from uma.relay.evaluate import evaluate
from uma.relay.transform import canonicalise

NO_REFERENCE = ("CEIL", "ELU", "LOCAL_RESPONSE_NORMALIZATION", "ROUND")
"""Operators of which LiteRT has but one kernel, which is not among its reference kernels, or whose reference kernel is
not TensorFlow's operator: the window of LOCAL_RESPONSE_NORMALIZATION lacks its last channel there.
"""


RUNS = 3
"""Of models that keep something between them."""


def ours(model: bytes, *inputs: np.ndarray) -> tuple[np.ndarray, ...]:
    """What the model computes; uint8 becomes int8 in its canonical form, which computes the same."""
    module = from_tflite(model).module
    signature = module.signature
    assert signature is not None
    given = {param.name: x for param, x in zip(module.main.params, inputs, strict=False)}
    for state in signature.states:
        param = module.main.params[state.input]
        given[param.name] = np.frombuffer(state.initial, param.dtype).reshape(param.shape)
    for _ in range(RUNS - 1 if signature.states else 0):
        kept = evaluate(module, given)
        given.update({module.main.params[state.input].name: kept[state.output] for state in signature.states})
    results = evaluate(module, given)[: len(signature.outputs)]
    if any(x.dtype == np.uint8 for x in inputs):
        for result, again in zip(results, evaluate(canonicalise(module), given), strict=True):
            np.testing.assert_array_equal(result, again)
    return results


def compare(model: bytes, *inputs: np.ndarray, reference: bool = True) -> None:
    for got, expected in zip(ours(model, *inputs), litert(model, *inputs, reference=reference, runs=RUNS), strict=True):
        assert (got.shape, got.dtype) == (expected.shape, expected.dtype)
        if expected.dtype.kind == "f":
            np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5 * max(1, float(np.abs(expected).max())))
        else:
            np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("name", sorted(CASES))
def test_operators(name: str) -> None:
    @settings(max_examples=settings.default.max_examples // 2)
    @given(CASES[name])
    def check(drawn: Case) -> None:
        compare(drawn[0], *drawn[1], reference=name not in NO_REFERENCE)
        dtypes = {tensor.dtype for tensor in read(drawn[0]).tensors.values()}
        assert dtypes & {*DTYPES_OF[name]}, "the documentation has not all that is imported"

    check()


def test_every_operator_has_cases() -> None:
    assert {*CASES, *ELEMENTWISE} == set(OPERATORS) == set(DTYPES_OF) - set(CUSTOM_OPERATORS)


ELEMENTWISE = (
    "ADD_N",
    "CEIL",
    "COS",
    "DIV",
    "ELU",
    "EQUAL",
    "EXP",
    "FLOOR",
    "FLOOR_DIV",
    "FLOOR_MOD",
    "GELU",
    "GREATER",
    "GREATER_EQUAL",
    "LESS",
    "LESS_EQUAL",
    "LOG",
    "LOGICAL_AND",
    "LOGICAL_NOT",
    "LOGICAL_OR",
    "NEG",
    "NOT_EQUAL",
    "POW",
    "PRELU",
    "ROUND",
    "RSQRT",
    "SELECT",
    "SELECT_V2",
    "SIN",
    "SQRT",
    "SQUARE",
    "SQUARED_DIFFERENCE",
)
"""Operators of floats, element by element."""


INTEGERS = ("ADD_N", "DIV", "FLOOR_DIV", "FLOOR_MOD", "SQUARED_DIFFERENCE")
"""Some that take them."""


def elementwise(name: str, dtype: str) -> tuple[bytes, list[np.ndarray]]:
    """A model of one operator, and data."""
    builder, rng, shapes = TFLiteBuilder(), np.random.default_rng(0), ([2, 3, 4], [3, 4])
    shapes = ([2, 3, 4], [2, 3, 4]) if name == "ADD_N" else shapes  # which broadcasts nothing
    count = (
        2
        if name in (*INTEGERS, "POW", "PRELU") or "EQUAL" in name or name in ("GREATER", "LESS") or "AL_" in name
        else 1
    )
    count = 1 if name == "LOGICAL_NOT" else count
    arrays = [np.asarray(rng.normal(size=shape) * 3).astype(dtype) for shape in shapes[:count]]
    if name.startswith("LOGICAL"):
        arrays = [array > 0 for array in arrays]
    elif name in ("LOG", "SQRT", "RSQRT", "POW"):
        arrays = [np.abs(array) + np.float32(0.1) for array in arrays]
    elif dtype == "int32":
        arrays[1][arrays[1] == 0] = 5  # which the kernels refuse
    if name.startswith("SELECT"):
        arrays = [rng.integers(0, 2, [2] if name == "SELECT" else [3, 1]) > 0, arrays[0], arrays[0] + 1]
    result = "bool" if "EQUAL" in name or name in ("GREATER", "LESS") else arrays[-1].dtype.name
    inputs = [builder.input(array.shape, array.dtype.name) for array in arrays]
    relu = {"fusedActivationFunction": 1} if dtype == "float32" else {}
    options: dict[str, dict[str, object]] = {"LEAKY_RELU": {"alpha": 0.3}, "GELU": {"approximate": True}, "DIV": relu}
    y = builder.tensor([2, 3, 4], result)
    builder.op(name, inputs, [y], **options.get(name, {}))
    return builder.finish(y), arrays


@pytest.mark.parametrize(
    ("name", "dtype"), [*((name, "float32") for name in ELEMENTWISE), *((name, "int32") for name in INTEGERS)]
)
def test_elementwise_operators(name: str, dtype: str) -> None:
    model, arrays = elementwise(name, dtype)
    compare(model, *arrays, reference=name not in NO_REFERENCE)


# --- where arithmetic is at its limits -------------------------------------------------------------------------------


Scales = tuple[float, float, float]
"""Of the data, the weight and the result."""


def sums(name: str, dtype: str, scales: Scales, accumulators: list[int]) -> bytes:
    """A model whose sums are these, whatever its input: the weights are 0, the biases differ."""
    in_scale, weight_scale, out_scale = scales
    builder, count = TFLiteBuilder(), len(accumulators)
    zero = 0 if dtype == "int8" else 128
    shape, weight, axis = {
        "FULLY_CONNECTED": ([1, 1], [count, 1], 0),
        "CONV_2D": ([1, 1, 1, 1], [count, 1, 1, 1], 0),
        "DEPTHWISE_CONV_2D": ([1, 1, 1, 1], [1, 1, 1, count], 3),
    }[name]
    x = builder.input(shape, dtype, scale=in_scale, zero_point=zero)
    w = builder.constant(np.full(weight, zero), dtype, scale=weight_scale, zero_point=zero, axis=axis)
    bias = builder.constant(accumulators, "int32", scale=float(np.float32(in_scale) * np.float32(weight_scale)))
    y = builder.tensor([*shape[:-1], count], dtype, scale=out_scale, zero_point=zero)
    options = {} if name == "FULLY_CONNECTED" else {"padding": 1, "strideH": 1, "strideW": 1}
    if name == "DEPTHWISE_CONV_2D":
        options["depthMultiplier"] = count
    builder.op(name, [x, w, bias], [y], **options)
    return builder.finish(y)


SCALE = st.one_of(st.floats(2.0**-12, 2.0**-3, width=32), st.integers(-11, -2).map(lambda e: 2.0**e))
SCALES = st.tuples(SCALE, SCALE, st.floats(2.0**-6, 2.0**-3, width=32))


@pytest.mark.parametrize("name", ["FULLY_CONNECTED", "CONV_2D", "DEPTHWISE_CONV_2D"])
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@given(SCALES)
@settings(max_examples=20)
def test_sums_are_rounded_alike_at_every_threshold(name: str, dtype: str, scales: Scales) -> None:
    factor = scales[0] * scales[1] / scales[2]
    turns = [round((k + 0.5) / factor) for k in range(-129, 128)]
    accumulators = sorted({turn + step for turn in turns for step in (-1, 0, 1) if abs(turn) < 2**23})
    shape = [1, 1] if name == "FULLY_CONNECTED" else [1, 1, 1, 1]
    compare(sums(name, dtype, scales, accumulators), np.full(shape, 0 if dtype == "int8" else 128, dtype))


def test_convolutions_wrap_what_is_scaled_up_and_overflows() -> None:
    accumulators = [2**28, 2**30, 3 * 2**28, -(2**29) - 777, 2**31 - 1, -(2**31), 5, -5]
    compare(sums("CONV_2D", "int8", (3.5, 2.0, 1.0), accumulators), np.zeros([1, 1, 1, 1], np.int8))


def test_a_product_that_no_fixed_point_scales_exactly_is_scaled_in_float64() -> None:
    data = sums("FULLY_CONNECTED", "int8", (0.001, 2.0**-17, 0.09375), [2**29, -(2**29), 2**29 - 12345, 77])
    compare(data, np.zeros([1, 1], np.int8))
    assert from_tflite(data).notes[0].startswith("sums are scaled in float64")


@pytest.mark.parametrize("name", ["FULLY_CONNECTED", "CONV_2D", "DEPTHWISE_CONV_2D"])
def test_a_channel_of_zeros_may_have_the_scale_0(name: str) -> None:
    builder, random = TFLiteBuilder(), np.random.default_rng(0)
    shape, weight, axis = {
        "FULLY_CONNECTED": ([1, 2], [2, 2], 0),
        "CONV_2D": ([1, 1, 1, 2], [2, 1, 1, 2], 0),
        "DEPTHWISE_CONV_2D": ([1, 1, 1, 2], [1, 1, 1, 2], 3),
    }[name]
    values = random.integers(-127, 128, weight)
    values[(*[slice(None)] * axis, 0)] = 0
    x = builder.input(shape, "int8", scale=0.1, zero_point=7)
    w = builder.constant(values, "int8", scale=[0.0, 0.02], axis=axis)
    b = builder.constant([5, -6], "int32", scale=[0.0, 0.002])
    y = builder.tensor(shape, "int8", scale=0.5, zero_point=-9)
    builder.op(name, [x, w, b], [y], **({} if len(shape) == 2 else {"padding": 1, "strideH": 1, "strideW": 1}))
    if name == "DEPTHWISE_CONV_2D":
        builder.graph.operators[0].builtinOptions.depthMultiplier = 1
    compare(builder.finish(y), random.integers(-128, 128, shape, np.int8))


@pytest.mark.parametrize("name", ["FULLY_CONNECTED", "CONV_2D", "DEPTHWISE_CONV_2D"])
def test_weights_of_four_bits(name: str) -> None:
    builder, random = TFLiteBuilder(), np.random.default_rng(0)
    shape, weight, axis = {
        "FULLY_CONNECTED": ([2, 5], [3, 5], 0),
        "CONV_2D": ([1, 4, 4, 5], [3, 1, 1, 5], 0),
        "DEPTHWISE_CONV_2D": ([1, 4, 4, 3], [1, 1, 3, 3], 3),
    }[name]
    x = builder.input(shape, "int8", scale=0.1, zero_point=7)
    w = builder.int4(random.integers(-8, 8, weight), scale=[0.1, 0.2, 0.3], axis=axis)
    b = builder.constant([5, -6, 7], "int32", scale=[0.01, 0.02, 0.03])
    result = [2, 3] if len(shape) == 2 else [1, 4, 4 if name == "CONV_2D" else 2, 3]
    y = builder.tensor(result, "int8", scale=0.1, zero_point=-9)
    builder.op(name, [x, w, b], [y], **({} if len(shape) == 2 else {"padding": 1, "strideH": 1, "strideW": 1}))
    if name == "DEPTHWISE_CONV_2D":
        builder.graph.operators[0].builtinOptions.depthMultiplier = 1
    compare(builder.finish(y), random.integers(-128, 128, shape, np.int8))


def joined(*given: tuple[float, int]) -> bytes:
    """Operands of 256 numbers with these scales and zero points, the last ones those of the result too."""
    builder = TFLiteBuilder()
    parts = [builder.input([256], "uint8", scale=scale, zero_point=zero_point) for scale, zero_point in given]
    y = builder.tensor([256 * len(given)], "uint8", scale=given[-1][0], zero_point=given[-1][1])
    builder.op("CONCATENATION", parts, [y], axis=0)
    return builder.finish(y)


@pytest.mark.parametrize("seed", range(20))
def test_a_concatenation_of_uint8_scales_its_operands(seed: int) -> None:
    random = np.random.default_rng(seed)
    scales, zero_points = np.exp(random.uniform(np.log(1e-3), np.log(0.5), 3)), random.integers(0, 256, 3)
    model = joined(*zip(scales.astype(np.float32).tolist(), zero_points.tolist(), strict=True))
    compare(model, *[np.arange(256, dtype=np.uint8)] * 3)


@pytest.mark.parametrize("scales", [(0.00044776618597097695, 0.0017910647438839078), (1e30, 1e-30)])
def test_a_scaled_concatenation_that_no_fixed_point_equals_is_refused(scales: tuple[float, float]) -> None:
    # In float32 some of the halves of the first are none any more, and the second overflows.
    with pytest.raises(ModelError, match="operand 0 is scaled by a float32 that no fixed point equals"):
        from_tflite(joined((scales[0], 5), (scales[1], 195)))


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("scale", [4.0, 7.9, 8.0, 15.9, 16.0, 20.0, 31.9, 32.0, 1000.0, 1e30])
def test_softmax_of_a_coarse_scale(scale: float, dtype: str) -> None:
    """From 16 on any difference makes the smaller one nothing; what is largest shares the sum."""
    lowest = np.iinfo(dtype).min
    builder = TFLiteBuilder()
    x = builder.input([60, 4], dtype, scale=scale, zero_point=lowest + 3)
    y = builder.tensor([60, 4], dtype, scale=1 / 256, zero_point=lowest)
    builder.op("SOFTMAX", [x], [y], beta=1.0)
    values = np.random.default_rng(0).integers(0, 4, (60, 4)) + lowest
    values[0] = [lowest, lowest + 255, lowest, lowest + 255]
    compare(builder.finish(y), values.astype(dtype))


def test_sum_of_int8() -> None:
    # LiteRT 2.3 reads int8 as uint8 here: what the two have in common is compared.
    builder = TFLiteBuilder()
    x = builder.input([8, 4], "int8", scale=0.1, zero_point=3)
    y = builder.tensor([8], "int8", scale=0.45, zero_point=5)
    builder.op("SUM", [x, builder.constant([1], "int32")], [y])
    model = builder.finish(y)
    compare(model, np.random.default_rng(0).integers(3, 127, [8, 4], np.int8))
    (negative,) = ours(model, np.full([8, 4], -97, np.int8))
    assert negative.tolist() == [5 + round(-400 * 0.1 / 0.45)] * 8
    told = "int8 is summed as int8, which LiteRT's kernels take for uint8, in 1 layers: 't1'"
    assert from_tflite(model).notes == (told,)


def shorts(name: str, *, bias: int | None, depth: int) -> tuple[bytes, list[np.ndarray]]:
    """An operator of int16 by weights of int8, with a bias of int64, which is an input where there is no number."""
    b, rng = TFLiteBuilder(), np.random.default_rng(depth)
    dense = name == "FULLY_CONNECTED"
    x = b.input([1, depth] if dense else [1, 2, 2, depth], "int16", scale=0.013)
    scales = [float(np.float32(scale)) for scale in rng.uniform(0.01, 0.3, 3)]
    weights = rng.integers(-127, 128, [3, depth] if dense else [3, 2, 2, depth])
    w = b.constant(weights, "int8", scale=scales)
    quantised = {"scale": [0.013 * scale for scale in scales]}
    own = b.input([3], "int64", **quantised) if bias is None else b.constant([bias] * 3, "int64", **quantised)
    y = b.tensor([1, 3] if dense else [1, 2, 2, 3], "int16", scale=3.0)
    options = {} if dense else {"strideH": 1, "strideW": 1, "padding": 0}
    operands = [b.constant([1, 2, 2, 3], "int32"), w, x, own] if name == "TRANSPOSE_CONV" else [x, w, own]
    b.op(name, operands, [y], **options)
    data = b.finish(y)
    values = [rng.integers(-(2**15), 2**15, b.graph.tensors[x].shape).astype(np.int16)]
    return data, values if bias is not None else [*values, rng.integers(-(2**33), 2**33, 3)]


@pytest.mark.parametrize("name", ["CONV_2D", "FULLY_CONNECTED", "TRANSPOSE_CONV"])
@pytest.mark.parametrize(("bias", "depth"), [(2**31 - 5, 1), (-(2**40), 3), (0, 700), (None, 2)])
def test_sums_of_int16_beyond_int32(name: str, bias: int | None, depth: int) -> None:
    data, values = shorts(name, bias=bias, depth=depth)
    compare(data, *values)


@pytest.mark.parametrize("has_bias", [True, False])
def test_int32_sums_of_int16_in_transposed_convolutions(has_bias: bool) -> None:
    """If the operator asks for int32 sums, LiteRT scales them by 31 bits, also without a bias."""
    b, rng = TFLiteBuilder(), np.random.default_rng(5)
    x = b.input([1, 4, 4, 1], "int16", scale=0.013)
    w = b.constant(rng.integers(-127, 128, [3, 2, 2, 1]), "int8", scale=0.17)
    bias = [b.constant(rng.integers(-(2**22), 2**22, 3), "int32", scale=0.013 * 0.17)] if has_bias else []
    y = b.tensor([1, 4, 4, 3], "int16", scale=0.7)
    operands = [b.constant([1, 4, 4, 3], "int32"), w, x, *bias]
    b.op("TRANSPOSE_CONV", operands, [y], strideH=1, strideW=1, padding=0, quantizedBiasType=2)
    compare(b.finish(y), rng.integers(-(2**15), 2**15, (1, 4, 4, 1)).astype(np.int16))


def test_sums_of_int16_are_scaled_in_float64_in_c(tmp_path: Path) -> None:
    for name, depth in (("FULLY_CONNECTED", 9), ("FULLY_CONNECTED", 700), ("CONV_2D", 200)):
        data, values = shorts(name, bias=77, depth=depth)
        model = tmp_path / f"{name}_{depth}.tflite"
        model.write_bytes(data)
        (result,) = uma.build(model, target="c").run({"t0": values[0]}).values()
        np.testing.assert_array_equal(result, litert(data, *values)[0])
    remark = "sums are scaled in float64, as no fixed point is proven to give what LiteRT computes, in 1 layers: 't3'"
    assert from_tflite(shorts("FULLY_CONNECTED", bias=77, depth=9)[0]).notes == (remark,)


def test_products_of_int16_and_int8_are_scaled_by_15_bits() -> None:
    b, rng = TFLiteBuilder(), np.random.default_rng(0)
    x, w = b.input([2, 64], "int16", scale=0.01), b.constant(rng.integers(-127, 128, (64, 99)), "int8", scale=0.02)
    y = b.tensor([2, 99], "int16", scale=0.3)
    b.op("BATCH_MATMUL", [x, w], [y])
    compare(b.finish(y), rng.integers(-(2**15), 2**15, (2, 64)).astype(np.int16))
