"""Quantised ops: their loops against their references, their type relations, their bounds.

That the references are TFLite's arithmetic is shown in tests/frontends/test_tflite_kernels.py.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from uma.errors import ModelError
from uma.relay.expr import Call, Var, call, const
from uma.relay.float_requantisation import FloatForm, SumForm
from uma.relay.op import ROUNDINGS, Bounds, FixedPoint, FloatScale, get_op
from uma.relay.transform.value_range import value_range
from uma.relay.types import TensorType
from uma.tir import te
from uma.tir.form.interp import interpret

HALF = FixedPoint((2**30,), (0,), "double")
QUARTER = FixedPoint((2**30,), (-1,), "double")
ZERO_POINTS = {"int8": st.integers(-128, 127), "uint8": st.integers(0, 255)}
SHAPES = hnp.array_shapes(min_dims=0, max_dims=3, max_side=4)


def of(op: str, *arrays: np.ndarray, **attrs: Any) -> Call:
    """A call of `op` on inputs like `arrays`."""
    return call(op, *(Var(f"x{i}", const(array).type) for i, array in enumerate(arrays)), **attrs)


def check(op: str, *arrays: np.ndarray, **attrs: Any) -> np.ndarray:
    """The result of the reference, which the loops that the op states give too."""
    made = of(op, *arrays, **attrs)
    declared = get_op(op)
    assert declared.compute is not None
    inputs = [te.placeholder(array.shape, array.dtype.name, f"x{i}") for i, array in enumerate(arrays)]
    kernel = te.prim_func(inputs, [declared.compute(made.attrs, made.type, *inputs)])
    names = [param.buffer.name for param in kernel.func.params if param.role in ("input", "constant")]
    (computed,) = interpret(kernel.func, dict(zip(names, [*arrays, *kernel.bind()], strict=True))).values()
    expected = declared.reference(made.attrs, *arrays)
    np.testing.assert_array_equal(computed, expected)
    assert isinstance(expected, (np.ndarray, np.generic))
    assert TensorType(expected.shape, expected.dtype.name) is made.type
    return np.asarray(expected)


def quantised(dtype: str, shape: tuple[int, ...], seed: int) -> np.ndarray:
    info = np.iinfo(dtype)
    return np.random.default_rng(seed).integers(info.min, info.max, shape, dtype, endpoint=True)


SEEDS = st.integers(0, 2**32 - 1)
DTYPES = st.sampled_from(["int8", "uint8"])


def fixed_points(rounding: str, count: int = 1, shifts: tuple[int, int] = (-31, 30)) -> st.SearchStrategy[FixedPoint]:
    one = st.tuples(st.one_of(st.integers(2**30, 2**31 - 1), st.integers(0, 2**31 - 1)), st.integers(*shifts))
    points = st.lists(one, min_size=count, max_size=count)
    return points.map(lambda made: FixedPoint(*zip(*made, strict=True), rounding))


# --- requantize, quantize, dequantize --------------------------------------------------------------------------------


@given(st.data(), st.sampled_from(ROUNDINGS), SEEDS)
def test_requantize_by_fixed_points(data: st.DataObject, rounding: str, seed: int) -> None:
    channels = data.draw(st.integers(1, 4))
    values = quantised("int32", (3, channels), seed) >> data.draw(st.integers(0, 30))
    values[0, 0] = data.draw(st.sampled_from([-(2**31), 2**31 - 1, 0, -1]))
    # All factors below a half, all of 1, all above, and mixtures are different kernels.
    shifts = data.draw(st.sampled_from([(-31, -1), (0, 0), (1, 30), (-3, 3), (-10, 0)]))
    scale = data.draw(fixed_points(rounding, data.draw(st.sampled_from([1, channels])), shifts))
    dtype = data.draw(st.sampled_from(["int8", "uint8", "int16", "int32"]))
    zero = data.draw(st.integers(0, 127) if dtype != "int32" else st.sampled_from([0, 2**31 - 1, -(2**31)]))
    check("qnn.requantize", values, scale=scale, output_zero_point=zero, dtype=dtype)


@given(st.data(), DTYPES, DTYPES, SEEDS)
def test_requantize_of_small_integers(data: st.DataObject, dtype: str, target: str, seed: int) -> None:
    zeros = {"input_zero_point": data.draw(ZERO_POINTS[dtype]), "output_zero_point": data.draw(ZERO_POINTS[target])}
    scale = data.draw(fixed_points("double", 2, (-8, 8)))
    check("qnn.requantize", quantised(dtype, (2, 3), seed), scale=scale, axis=0, dtype=target, **zeros)


@given(st.data(), SEEDS)
def test_requantize_by_floats(data: st.DataObject, seed: int) -> None:
    values = quantised("int32", (3, 2), seed) >> data.draw(st.integers(0, 30))
    factors = data.draw(st.lists(st.floats(2.0**-40, 2.0**100, width=32), min_size=2, max_size=2))
    dtype = data.draw(st.sampled_from(["int8", "uint8", "int16", "int32"]))
    zero = data.draw(st.integers(0, 127))
    check("qnn.requantize", values, scale=FloatScale(tuple(factors)), output_zero_point=zero, dtype=dtype)


def test_float_scales_round_half_to_even() -> None:
    halves = np.array([-3, -1, 1, 3, 5], np.int32)
    assert check("qnn.requantize", halves, scale=FloatScale((0.5,)), dtype="int8").tolist() == [-2, 0, 0, 2, 2]


@given(st.data(), st.sampled_from(["away", "even"]), st.sampled_from(["int8", "uint8", "int16", "int32"]))
def test_quantize(data: st.DataObject, rounding: str, dtype: str) -> None:
    many = data.draw(st.booleans())
    scale = data.draw(st.lists(st.floats(2.0**-20, 2.0**20, width=32), min_size=3, max_size=3)) if many else 0.25
    zero = data.draw(st.lists(st.integers(0, 127), min_size=3, max_size=3)) if many else data.draw(st.integers(0, 127))
    floats = st.one_of(st.floats(width=32), st.integers(-2000, 2000).map(lambda i: i / 8))
    values = data.draw(hnp.arrays(np.float32, (2, 3), elements=floats))
    check("qnn.quantize", values, scale=scale, zero_point=zero, rounding=rounding, dtype=dtype)


def test_where_quantize_rounds_halves_and_what_it_makes_of_odd_numbers() -> None:
    # 0.49999997 + 0.5 is 1.0 in float32: adding a half and cutting off is not rounding.
    values = np.array([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 0.49999997, np.nan, np.inf, -np.inf, 1e30], np.float32)
    attrs = {"scale": 1.0, "zero_point": 1, "dtype": "int8"}
    away = check("qnn.quantize", values, rounding="away", **attrs)
    assert away.tolist() == [-2, -1, 0, 2, 3, 4, 1, -128, 127, -128, 127]
    even = check("qnn.quantize", values, rounding="even", **attrs)
    assert even.tolist() == [-1, -1, 1, 1, 3, 3, 1, -128, 127, -128, 127]


@given(st.data(), st.sampled_from(["int8", "uint8", "int16", "int32"]), SEEDS)
def test_dequantize(data: st.DataObject, dtype: str, seed: int) -> None:
    many = data.draw(st.booleans())
    scale = data.draw(st.lists(st.floats(2.0**-20, 2.0**20, width=32), min_size=2, max_size=2)) if many else 0.1
    zero = data.draw(st.sampled_from([0, 5, (3, 7) if many else 9]))
    check("qnn.dequantize", quantised(dtype, (2, 3), seed), scale=scale, zero_point=zero, axis=0)


def test_scalars_have_no_channels() -> None:
    assert check("qnn.quantize", np.float32(3), scale=2.0, rounding="even", dtype="int8").tolist() == 2
    assert check("qnn.dequantize", np.int8(3), scale=2.0).tolist() == 6.0
    assert check("qnn.requantize", np.array(3, np.int32), scale=HALF, dtype="int8").tolist() == 2


# --- add, subtract, multiply, sum ------------------------------------------------------------------------------------


def zero_points(data: st.DataObject, dtype: str) -> dict[str, int]:
    return {f"{name}_zero_point": data.draw(ZERO_POINTS[dtype]) for name in ("lhs", "rhs", "output")}


@given(st.data(), st.sampled_from(["qnn.add", "qnn.subtract"]), DTYPES, SEEDS)
def test_sums(data: st.DataObject, op: str, dtype: str, seed: int) -> None:
    lhs, rhs = data.draw(hnp.mutually_broadcastable_shapes(num_shapes=2, max_dims=3, max_side=3)).input_shapes
    scales = {f"{name}_scale": data.draw(fixed_points("double", 1, (-12, 0))) for name in ("lhs", "rhs", "output")}
    arrays = quantised(dtype, lhs, seed), quantised(dtype, rhs, seed + 1)
    check(op, *arrays, left_shift=data.draw(st.integers(0, 20)), **scales, **zero_points(data, dtype))


@given(st.data(), DTYPES, SEEDS)
def test_products(data: st.DataObject, dtype: str, seed: int) -> None:
    lhs, rhs = data.draw(hnp.mutually_broadcastable_shapes(num_shapes=2, max_dims=3, max_side=3)).input_shapes
    scale = data.draw(fixed_points(data.draw(st.sampled_from(ROUNDINGS)), 1, (-16, 4)))
    arrays = quantised(dtype, lhs, seed), quantised(dtype, rhs, seed + 1)
    check("qnn.multiply", *arrays, scale=scale, **zero_points(data, dtype))


@given(st.data(), SHAPES, DTYPES, SEEDS)
def test_sums_over_axes(data: st.DataObject, shape: tuple[int, ...], dtype: str, seed: int) -> None:
    axes = data.draw(st.lists(st.integers(0, len(shape) - 1), unique=True)) if shape else []
    attrs = {"axis": axes, "keepdims": data.draw(st.booleans()), "input_zero_point": data.draw(ZERO_POINTS[dtype])}
    check("qnn.sum", quantised(dtype, shape, seed), **attrs)


# --- pools and activations -------------------------------------------------------------------------------------------


@given(st.data(), st.sampled_from([1, 2]), st.sampled_from(["int8", "uint8", "int16"]), SEEDS)
def test_average_pools(data: st.DataObject, rank: int, dtype: str, seed: int) -> None:
    def draw(low: int, high: int) -> list[int]:
        return data.draw(st.lists(st.integers(low, high), min_size=rank, max_size=rank))

    size, strides, extents = draw(1, 3), draw(1, 2), draw(3, 5)
    padding = [data.draw(st.integers(0, s - 1)) for s in size] + [0] * rank
    values = quantised(dtype, (2, *extents, 2), seed)
    zero_point = data.draw(ZERO_POINTS.get(dtype, st.integers(-(2**15), 2**15 - 1)))
    attrs = {"rounding": data.draw(st.sampled_from(["away", "even"])), "zero_point": zero_point}
    attrs |= {"count_include_pad": data.draw(st.booleans())}
    check(f"qnn.avg_pool{rank}d", values, pool_size=size, strides=strides, padding=padding, **attrs)


@pytest.mark.parametrize(("values", "mean"), [([1, 2], 2), ([-1, -2], -2), ([1, -2], -1), ([1, 1, 2], 1), ([127], 127)])
def test_means_round_half_away_from_zero(values: list[int], mean: int) -> None:
    data = np.array(values, np.int8).reshape(1, -1, 1)
    assert check("qnn.avg_pool1d", data, pool_size=[len(values)]).tolist() == [[[mean]]]


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16"])
@pytest.mark.parametrize("rounding", ["away", "even"])
def test_halves_of_means_are_told_from_the_zero_point(dtype: str, rounding: str) -> None:
    """All sums of some windows, against fractions."""
    info = np.iinfo(dtype)
    for zero_point in (0, 7, info.min, info.max):
        for count in (2, 6):
            low = np.array([[info.min, info.max, zero_point, 3, 4, 5, 6, 7, 8, 9]], dtype)
            data = np.array([np.roll(low, shift)[0, :count] for shift in range(10)], dtype).reshape(10, count, 1)
            made = check("qnn.avg_pool1d", data, pool_size=[count], rounding=rounding, zero_point=zero_point)
            for row, mean in zip(data.reshape(10, count).tolist(), made.ravel().tolist(), strict=True):
                exact = Fraction(sum(row), count) - zero_point
                away = int(math.copysign(math.floor(abs(exact) + Fraction(1, 2)), exact))
                assert mean == zero_point + (round(exact) if rounding == "even" else away)


def test_padding_of_a_mean_counts_as_the_zero_point() -> None:
    data = np.array([10, 20], np.uint8).reshape(1, 2, 1)
    attrs = {"pool_size": [2], "padding": [1, 1], "zero_point": 5, "rounding": "even"}
    assert check("qnn.avg_pool1d", data, **attrs).ravel().tolist() == [10, 15, 20]
    # (10 + 5) / 2 - 5 is 2.5 above the zero point, (20 + 5) / 2 - 5 is 7.5.
    assert check("qnn.avg_pool1d", data, **attrs, count_include_pad=True).ravel().tolist() == [7, 15, 13]


@given(st.data(), st.sampled_from(["qnn.sigmoid", "qnn.tanh", "qnn.hard_swish"]), DTYPES)
def test_activations(data: st.DataObject, op: str, dtype: str) -> None:
    attrs = {f"{name}_zero_point": data.draw(ZERO_POINTS[dtype]) for name in ("input", "output")}
    scales = {f"{name}_scale": data.draw(st.floats(2.0**-9, 4, width=32)) for name in ("input", "output")}
    if op == "qnn.hard_swish":
        scales["output_scale"] = max(scales["output_scale"], scales["input_scale"] / 127)
    info = np.iinfo(dtype)
    check(op, np.arange(info.min, info.max + 1, 5).astype(dtype), **attrs, **scales)


def test_a_hard_swish_is_that_of_real_numbers() -> None:
    """All of its steps are rounded: within two of what is exact."""
    made = check("qnn.hard_swish", np.arange(-128, 128).astype(np.int8), input_scale=1 / 16, output_scale=1 / 14)
    x = np.arange(-128, 128) / 16
    exact = np.clip(np.rint(x * np.clip(x + 3, 0, 6) / 6 * 14), -128, 127)
    assert np.abs(made - exact).max() <= 2


@pytest.mark.few(2)
@pytest.mark.parametrize("scale", [2.0**-12, 2.0**-11, 1 / 3000, 0.3])
@pytest.mark.parametrize("op", ["qnn.sigmoid", "qnn.tanh"])
def test_curves_of_int16_are_those_of_real_numbers(op: str, scale: float) -> None:
    data = np.arange(-32768, 32768).astype(np.int16)
    made = check(op, data, input_scale=scale, output_scale=2.0**-15).astype(int)
    x = np.clip(data * scale, -60, 60)
    exact = 1 / (1 + np.exp(-x)) if op == "qnn.sigmoid" else np.tanh(x)
    assert np.abs(made - exact * 32768).max() < 20


def test_either_side_of_the_zero_point_has_a_scale() -> None:
    data, scales = np.array([-100, -3, -2, -1, 0, 7], np.int8), {"scale": HALF, "negative_scale": QUARTER}
    attrs = {"input_zero_point": -1, "output_zero_point": 10}
    assert check("qnn.leaky_relu", data, **scales, **attrs).tolist() == [-15, 9, 10, 10, 11, 14]
    assert check("qnn.abs", data, scale=HALF, **attrs).tolist() == [60, 11, 11, 10, 11, 14]


@given(DTYPES, st.integers(2**30, 2**31 - 1), st.integers(0, 30), st.integers(1, 20), SEEDS)
def test_softmax(dtype: str, multiplier: int, shift: int, channels: int, seed: int) -> None:
    scale = FixedPoint((multiplier,), (shift,), "double")
    result = check("qnn.softmax", quantised(dtype, (2, channels), seed), scale=scale)
    total = (result.astype(int) - np.iinfo(dtype).min).sum(axis=-1)
    # The largest result is cut off at 255/256, the others are off by at most a half each.
    assert (abs(total - 256) <= 1 + channels / 2).all()


@given(st.integers(2**30, 2**31 - 1), st.integers(-3, 4), st.integers(1, 40), SEEDS)
def test_softmax_of_int16(multiplier: int, shift: int, channels: int, seed: int) -> None:
    scale = FixedPoint((multiplier,), (shift,), "double")
    data = quantised("int16", (2, channels), seed)
    x = (data - data.max(axis=-1, keepdims=True).astype(int)) * (multiplier * 2.0 ** (shift - 31) / 6553.5)
    exact = np.exp(x) / np.exp(x).sum(axis=-1, keepdims=True)
    # e ** -10, about 1.5, is the least that a channel counts for.
    assert np.abs(check("qnn.softmax", data, scale=scale) - exact * 32768).max() < 8 + 2 * channels


@pytest.mark.parametrize("channels", [1, 512, 4095])
def test_softmax_of_equal_channels(channels: int) -> None:
    result = check("qnn.softmax", np.zeros((1, channels), np.int8), scale=FixedPoint((2**30,), (20,), "double"))
    assert set(result.ravel().tolist()) == {min(127, round(256 / channels) - 128)}


# --- type relations --------------------------------------------------------------------------------------------------

FLOATS, BYTES, WORDS = np.zeros((2, 3), np.float32), np.zeros((2, 3), np.int8), np.zeros((2, 3), np.int32)
SHORTS = np.zeros((2, 3), np.int16)
IMAGE = np.zeros((1, 4, 4, 1), np.int8)
SUM = {"lhs_scale": HALF, "rhs_scale": HALF, "output_scale": HALF, "left_shift": 20}
TWO = FixedPoint((2**30,) * 2, (0,) * 2, "up")
TO_BYTES = {"scale": 1, "rounding": "even", "dtype": "int8"}
TO_HALF = {"scale": HALF, "dtype": "int8"}
SHORT = {"input_scale": 0.1, "output_scale": 2.0**-15}
REAL = {"input_scale": 0.1, "output_scale": 0.1}


@pytest.mark.parametrize(
    ("op", "arrays", "attrs", "message"),
    [
        ("qnn.quantize", [BYTES], TO_BYTES, "it takes float32, not int8"),
        ("qnn.quantize", [FLOATS], {**TO_BYTES, "dtype": "int64"}, "not int64"),
        ("qnn.quantize", [FLOATS], {**TO_BYTES, "scale": 0}, "'scale' of qnn.quantize is 0"),
        ("qnn.quantize", [FLOATS], {**TO_BYTES, "scale": ()}, "not positive finite numbers"),
        ("qnn.quantize", [FLOATS], {**TO_BYTES, "scale": float("nan")}, "not positive finite"),
        ("qnn.quantize", [FLOATS], {**TO_BYTES, "zero_point": ()}, "no number at all"),
        ("qnn.quantize", [FLOATS], {**TO_BYTES, "zero_point": 128}, "zero point 128 is not int8"),
        ("qnn.quantize", [FLOATS], {**TO_BYTES, "rounding": "up"}, "not one of away, even"),
        ("qnn.dequantize", [FLOATS], {"scale": 1}, "it takes int8, uint8, int16, int32, not float32"),
        ("qnn.dequantize", [BYTES], {"scale": (1, 2)}, "2 scales and 1 zero points for the 3 elements of axis 1"),
        ("qnn.dequantize", [BYTES], {"scale": (1, 2, 3), "zero_point": (1, 2)}, "3 scales and 2 zero points"),
        ("qnn.dequantize", [BYTES], {"scale": (1, 2, 3), "axis": 2}, "there is no axis 2 in 2 dimensions"),
        ("qnn.dequantize", [BYTES], {"scale": 1, "zero_point": 128}, "zero point 128 is not int8"),
        ("qnn.requantize", [FLOATS], {"scale": HALF, "dtype": "int8"}, "not float32"),
        ("qnn.requantize", [WORDS], {"scale": HALF, "dtype": "bool"}, "not bool"),
        ("qnn.requantize", [WORDS], {"scale": TWO, "dtype": "int8"}, "2 scales for the 3 elements of axis 1"),
        ("qnn.requantize", [WORDS], {"scale": TWO, "axis": 5, "dtype": "int8"}, "there is no axis 5"),
        ("qnn.requantize", [WORDS], {**TO_HALF, "output_zero_point": 200}, "zero point 200 is not int8"),
        ("qnn.requantize", [BYTES], {**TO_HALF, "input_zero_point": 200}, "zero point 200 is not int8"),
        ("qnn.requantize", [WORDS], {"scale": 0.5, "dtype": "int8"}, "not a FixedPoint or FloatScale"),
        ("qnn.add", [BYTES, WORDS], SUM, "the dtypes differ"),
        ("qnn.add", [WORDS, WORDS], SUM, "it takes int8, uint8, int16, not int32"),
        ("qnn.add", [SHORTS, SHORTS], {**SUM, "left_shift": 16}, "left_shift 16 is not in 0 .. 15"),
        ("qnn.multiply", [SHORTS, SHORTS], {"scale": HALF, "lhs_zero_point": 1}, "int16 has the zero point 1, not 0"),
        ("qnn.add", [BYTES, BYTES[:, :2]], SUM, "do not broadcast"),
        ("qnn.add", [BYTES, BYTES], {**SUM, "left_shift": 21}, "left_shift 21 is not in 0 .. 20"),
        ("qnn.add", [BYTES, BYTES], {**SUM, "rhs_zero_point": 128}, "zero point 128 is not int8"),
        ("qnn.subtract", [BYTES, BYTES], {**SUM, "lhs_scale": FixedPoint((2**30,), (1,), "up")}, "scaled by 1 or more"),
        ("qnn.subtract", [BYTES, BYTES], {**SUM, "output_scale": TWO}, "output_scale must be one fixed point"),
        ("qnn.multiply", [BYTES, BYTES], {"scale": FloatScale((1.0,))}, "scale must be one fixed point"),
        ("qnn.sum", [WORDS], {"axis": (0,)}, "it takes int8, uint8, int16, not int32"),
        ("qnn.sum", [BYTES], {"axis": (2,)}, "there is no axis 2"),
        ("qnn.sum", [BYTES], {"axis": (0,), "input_zero_point": -129}, "zero point -129 is not int8"),
        ("qnn.avg_pool2d", [IMAGE.astype(np.int32)], {"pool_size": (2, 2)}, "not int32"),
        ("qnn.avg_pool2d", [IMAGE], {"pool_size": (0, 2)}, "must be positive"),
        ("qnn.avg_pool2d", [IMAGE], {"pool_size": (2, 2), "zero_point": 128}, "zero point 128 is not int8"),
        ("qnn.avg_pool2d", [IMAGE], {"pool_size": (2, 2), "rounding": "up"}, "not one of away, even"),
        ("qnn.softmax", [WORDS], {"scale": HALF}, "it takes int8, uint8, int16, not int32"),
        ("qnn.softmax", [SHORTS], {"scale": FixedPoint((2**30,), (15,), "double")}, "'double' and shift <= 14"),
        ("qnn.softmax", [np.int16(0)], {"scale": HALF}, "at most 65535 channels of int16"),
        ("qnn.softmax", [BYTES], {"scale": TWO}, "scale must be one fixed point of rounding 'double' and shift >= 0"),
        ("qnn.softmax", [np.int8(0)], {"scale": HALF}, "at least one dimension"),
        ("qnn.softmax", [np.zeros((1, 4096), np.int8)], {"scale": HALF}, "at most 4095 channels"),
        ("qnn.sigmoid", [WORDS], REAL, "it takes int8, uint8, int16, not int32"),
        ("qnn.sigmoid", [SHORTS], REAL, "the result of int16 has the scale 0.1, not 2**-15"),
        ("qnn.tanh", [SHORTS], {**SHORT, "input_scale": 2.5}, "data of int16 have the scale 2.5, more than 2"),
        ("qnn.tanh", [SHORTS], {**SHORT, "output_zero_point": 1}, "int16 has the zero point 1, not 0"),
        ("qnn.sigmoid", [BYTES], {**REAL, "output_zero_point": 128}, "zero point 128 is not int8"),
        ("qnn.tanh", [BYTES], {**REAL, "output_scale": 0.0}, "scale 0.0 is not a positive float32"),
        ("qnn.tanh", [BYTES], {**REAL, "input_scale": float("nan")}, "scale nan is not a positive float32"),
        ("qnn.hard_swish", [BYTES], {**REAL, "output_scale": 1e-4}, "scale 0.0001 is too small beside the data's 0.1"),
        ("qnn.abs", [WORDS], {"scale": HALF}, "it takes int8, uint8, int16, not int32"),
        ("qnn.abs", [BYTES], {"scale": TWO}, "scale must be one fixed point"),
        ("qnn.leaky_relu", [BYTES], {"scale": HALF, "negative_scale": FloatScale((1.0,))}, "negative_scale must be"),
    ],
)  # fmt: skip
def test_ill_typed_calls_say_why(op: str, arrays: list[np.ndarray], attrs: Mapping[str, Any], message: str) -> None:
    with pytest.raises(ModelError) as caught:
        of(op, *arrays, **attrs)
    assert message in caught.value.what


@pytest.mark.parametrize(
    ("op", "shape", "dtype", "attrs"),
    [
        ("qnn.sum", (2**24, 1), "int8", {"axis": (0,)}),
        ("qnn.avg_pool1d", (1, 2**16, 1), "int16", {"pool_size": (2**16,)}),
        ("qnn.avg_pool1d", (1, 2**24, 1), "int8", {"pool_size": (2**24,)}),
    ],
)
def test_sums_that_may_overflow_are_refused(op: str, shape: tuple[int, ...], dtype: str, attrs: dict[str, Any]) -> None:
    with pytest.raises(ModelError, match="may overflow int32"):
        call(op, Var("x", TensorType(shape, dtype)), **attrs)


# --- value_range -----------------------------------------------------------------------------------------------------


@given(st.data(), st.sampled_from(ROUNDINGS), st.integers(-(2**31), 2**31 - 1), st.integers(0, 2**31), SEEDS)
def test_bounds_of_requantize_hold(data: st.DataObject, rounding: str, low: int, size: int, seed: int) -> None:
    high = min(low + size, 2**31 - 1)
    scale = data.draw(fixed_points(rounding, 2, (-20, 10)))
    x = Var("x", TensorType((50, 2), "int32"))
    made = call("qnn.requantize", x, scale=scale, output_zero_point=3, dtype="int16")
    found = value_range(made, {x: Bounds(low, high)})
    values = np.random.default_rng(seed).integers(low, high, (50, 2), np.int32, endpoint=True)
    values[:2, 0] = values[:2, 1] = low, high
    result = get_op("qnn.requantize").reference(made.attrs, values)
    assert found.low <= result.min()
    assert result.max() <= found.high


def test_bounds_of_requantize_are_tight() -> None:
    x = Var("x", TensorType((1,), "int32"))
    made = call("qnn.requantize", x, scale=HALF, output_zero_point=3, dtype="int8")
    assert tuple(value_range(made, {x: Bounds(-10, 20)})) == (-2, 13)
    assert tuple(value_range(made, {x: Bounds(-1000, 20)})) == (-128, 13)
    # Nothing is told of floats, nor of what may wrap.
    for scale in (FloatScale((0.5,)), FixedPoint((2**30,), (10,), "double")):
        other = call("qnn.requantize", x, scale=scale, dtype="int8")
        assert tuple(value_range(other, {x: Bounds(-(2**25), 20)})) == (-128, 127)


def test_a_mean_is_within_its_data() -> None:
    x = Var("x", TensorType((1, 4, 1), "int8"))
    assert tuple(value_range(call("qnn.avg_pool1d", x, pool_size=(2,)), {x: Bounds(-3, 5)})) == (-3, 5)
    attrs = {"pool_size": (2,), "padding": (1, 0), "zero_point": 9, "count_include_pad": True}
    assert tuple(value_range(call("qnn.avg_pool1d", x, **attrs), {x: Bounds(-3, 5)})) == (-3, 9)


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("below", [(), (-1.25, 7.0, 0.5)])
def test_requantise_in_floats(dtype: Any, below: tuple[float, ...], fused: bool) -> None:
    form = FloatForm(dtype, (0.1, 0.0071, 2.0**-9), (-3.25, 100.1, 0.5), below, -100, 90, fused)
    values = np.concatenate(
        [quantised("int32", (4, 3), 1) >> 18, np.array([[2**31 - 1, -(2**31), 256]] * 2)], dtype=np.int32
    )
    check("qnn.requantize", values, scale=HALF, dtype="int8", form=form)
    check("qnn.requantize", values.T, scale=HALF, dtype="int16", axis=0, form=form)
    one = FloatForm(dtype, (0.5,), (0.0,), below[:1], -2, 2, fused)
    assert check("qnn.requantize", np.array(3, np.int32), scale=HALF, dtype="int8", form=one).tolist() == 2


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize(("name", "dtype"), [("qnn.add", "int8"), ("qnn.subtract", "uint8")])
def test_sums_in_floats(name: str, dtype: str, fused: bool) -> None:
    attrs = {"lhs_scale": HALF, "rhs_scale": HALF, "output_scale": HALF, "left_shift": 20}
    form = SumForm(0.43, -0.71, 7.3, 3, 90, fused)
    check(name, quantised(dtype, (4, 1, 9), 2), quantised(dtype, (3, 1), 3), **attrs, form=form)
