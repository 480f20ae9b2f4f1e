"""What the machine refuses, and what it says then: a test for every clause and for all that closed patterns stop."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from uma.hookspecs import Pattern
from uma.relay import Expr, FixedPoint, FloatScale, TensorType, Var, call, const
from uma.relay.pattern import Match, Mismatch, match
from uma_stream_machine.supported import make_patterns

PATTERNS = {pattern.name.partition(".")[2]: pattern for pattern in make_patterns(1024)}
CONV, CONV1D, DEPTHWISE, DENSE, ADD, MAX, AVERAGE = (
    PATTERNS[name] for name in ("conv2d", "conv1d", "depthwise2d", "dense", "add", "max_pool2d", "average_pool2d")
)

DOUBLE = FixedPoint((2**30,), (-7,), "double")
ONE = FixedPoint((2**30,), (0,), "double")


def data(*shape: int, dtype: str = "int8") -> Expr:
    return Var("x", TensorType(shape, dtype))


def conv(
    shape: tuple[int, ...] = (1, 6, 6, 4),
    weight: tuple[int, ...] = (3, 3, 4, 8),
    dtypes: tuple[str, str] = ("int8", "int8"),
    **attrs: Any,
) -> Expr:
    return call("qnn.conv2d", data(*shape, dtype=dtypes[0]), const(np.ones(weight, dtypes[1])), **attrs)


def scaled(sums: Expr, **attrs: Any) -> Expr:
    return call("qnn.requantize", sums, **{"scale": DOUBLE, "dtype": "int8", **attrs})


def dense(*shape: int, channels: int = 8, weight: int = 1) -> Expr:
    return call("qnn.dense", data(*shape), const(np.full((channels, shape[-1]), weight, np.int8)))


def bias(sums: Expr, *shape: int) -> Expr:
    return call("add", sums, const(np.zeros(shape, np.int32)))


def residual(
    sums: Expr,
    factor: object = 1,
    shape: tuple[int, ...] | None = None,
    dtype: str = "int8",
    zero_point: object = None,
) -> Expr:
    wide: Expr = call("cast", Var("r", TensorType(shape or sums.shape, dtype)), dtype="int32")
    if zero_point is not None:
        wide = call("subtract", wide, const(np.array(zero_point, np.int32)))
    return call("add", sums, wide if factor == 1 else call("multiply", wide, const(np.array(factor, np.int32))))


def add(left: tuple[int, ...] = (2, 3), right: tuple[int, ...] = (2, 3), **attrs: Any) -> Expr:
    operands = data(*left), Var("y", TensorType(right, "int8"))
    scales = {"lhs_scale": ONE, "rhs_scale": ONE, "output_scale": DOUBLE, "left_shift": 20}
    return call("qnn.add", *operands, **{**scales, **attrs})


def reason(pattern: Pattern, expr: Expr) -> str:
    found = match(pattern, expr)
    assert isinstance(found, Mismatch)
    return found.failure.reason


@pytest.mark.parametrize(
    ("pattern", "expr"),
    [
        (CONV, scaled(conv())),
        (CONV, scaled(conv(padding=(1, 2, 3, 4), strides=(2, 3), input_zero_point=-128), output_zero_point=127)),
        (CONV, call("nn.relu", scaled(bias(conv(), 8)))),
        (CONV, call("clip", scaled(bias(conv(), 1, 1, 8)), a_min=-3.0, a_max=300.0)),
        (CONV, scaled(residual(bias(conv(), 8)))),
        (CONV, call("nn.relu", scaled(residual(conv(), factor=2**23)))),
        (CONV, call("clip", scaled(residual(conv(), factor=-(2**23)), output_zero_point=3), a_min=-3.0, a_max=3.0)),
        (CONV, scaled(residual(conv(), factor=[[5]], shape=(1, 4, 4, 8)))),
        (DEPTHWISE, scaled(residual(conv(weight=(3, 3, 1, 4), groups=4), factor=-3))),
        (DENSE, scaled(residual(bias(dense(3, 5), 8), factor=64, zero_point=-128))),
        (CONV, scaled(residual(conv(), zero_point=[300]))),
        (CONV, scaled(conv(), scale=FixedPoint((5,) * 8, (1,) * 8, "even"), axis=3)),
        (CONV, scaled(conv(), scale=FloatScale((2.0**-32, *(1.0,) * 6, 2.0**29)))),
        (DEPTHWISE, scaled(conv(weight=(3, 3, 1, 4), groups=4))),
        (CONV1D, scaled(call("qnn.conv1d", data(2, 9, 4), const(np.ones((3, 4, 5), np.int8))))),
        *((DENSE, scaled(dense(*(2,) * n, 5))) for n in range(4)),
        (ADD, add()),
        (ADD, call("clip", add(lhs_zero_point=3), a_min=0.0, a_max=6.0)),
        (MAX, call("nn.max_pool2d", data(1, 4, 4, 3), pool_size=(2, 2), padding=(1, 0, 0, 1))),
        (AVERAGE, call("nn.relu", call("qnn.avg_pool2d", data(1, 4, 4, 3), pool_size=(2, 2), strides=(2, 2)))),
    ],
)
def test_what_it_takes(pattern: Pattern, expr: Expr) -> None:
    found = match(pattern, expr)
    assert isinstance(found, Match) and found.root is expr


def test_what_is_flattened_before_a_dense_layer_is_taken_along() -> None:
    flat = call("reshape", call("reshape", data(2, 2, 3), newshape=(4, 3)), newshape=(2, 6))
    expr = scaled(call("qnn.dense", flat, const(np.ones((4, 6), np.int8))))
    found = match(DENSE, expr)
    assert isinstance(found, Match) and found["data"].shape == (2, 2, 3)


def test_a_bias_has_a_number_for_each_channel() -> None:
    text = "clause bias_per_channel: a bias has one number per output channel; this has shape {}"
    assert reason(CONV, scaled(bias(conv(), 4, 8))) == text.format("(4, 8)")
    one = dense(3, 7, channels=1)
    assert reason(DENSE, scaled(bias(one, 5))) == text.format("(5,)")


def test_a_residual_has_the_shape_of_the_sums_one_factor_and_one_zero_point() -> None:
    text = (
        "clause residual_shape: a residual has the shape of the sums, one factor and one zero point; this has shape {}"
    )
    assert reason(CONV, scaled(residual(conv(), shape=(1, 1, 1, 8)))) == text.format((1, 1, 1, 8))
    assert reason(CONV, scaled(residual(conv(), shape=(2, 4, 4, 8)))) == text.format((2, 4, 4, 8))
    assert reason(CONV, scaled(residual(conv(), factor=[2] * 8))) == text.format((8,))
    assert reason(CONV, scaled(residual(conv(), zero_point=[2] * 8))) == text.format((8,))


def test_what_multiplies_a_residual_fits_its_field() -> None:
    text = "clause residual_factor: a residual is multiplied by -8388608 to 8388608; this one by {}"
    for factor in 2**23 + 1, -(2**23) - 1, -(2**31), 2**31 - 1:
        assert reason(CONV, scaled(residual(conv(), factor=factor))) == text.format(factor)


def test_a_residual_is_computed_of_int8_and_the_only_one() -> None:
    assert "dtype is uint8" in reason(CONV, scaled(residual(conv(), dtype="uint8")))
    constant = call("cast", const(np.ones((1, 4, 4, 8), np.int8)), dtype="int32")
    text = "clause computed: operands are computed; residual is constant"
    assert reason(CONV, scaled(call("add", conv(), constant))) == text
    twice = residual(residual(conv()))
    assert isinstance(match(CONV, scaled(twice)), Mismatch)


def test_powers_of_two_scale_sums_with_a_residual_that_a_float32_holds() -> None:
    # The products reach 9 * 4 * 128, the residual 128 times its factor.
    most = (2**24 - 9 * 4 * 128) // 128
    assert isinstance(match(CONV, scaled(residual(conv(), factor=most), scale=FloatScale((0.5,)))), Match)
    text = "clause exact_sums: float scales are for sums of up to 2**24; these may reach {}"
    wide = scaled(residual(conv(), factor=most + 1), scale=FloatScale((0.5,)))
    assert reason(CONV, wide) == text.format(2**24 + 128)


def test_scales_go_along_the_channels() -> None:
    along_width = scaled(conv(weight=(3, 3, 4, 4)), scale=FixedPoint((1,) * 4, (0,) * 4, "up"), axis=2)
    text = "clause scale_per_channel: scales go along the output channels; these go along axis 2"
    assert reason(CONV, along_width) == text


@pytest.mark.parametrize(
    ("scale", "why"),
    [
        (
            FixedPoint((2**30,), (0,), "away"),
            "rounding: fixed-point scales round double, up, even; this one rounds away",
        ),
        (
            FloatScale((0.5, *(0.75,) * 7)),
            "powers_of_two: float scales are powers of two, 2**-32 to 2**29; 0.75 is not one",
        ),
    ],
)
def test_the_requantiser_is_exact_or_refuses(scale: FixedPoint | FloatScale, why: str) -> None:
    assert reason(CONV, scaled(conv(), scale=scale)) == f"clause {why}"


def test_powers_of_two_scale_only_sums_that_a_float32_holds() -> None:
    def sums(number: int) -> Expr:
        # The products reach 9 * 4 * 128.
        return scaled(call("add", conv(), const(np.full(8, number, np.int32))), scale=FloatScale((0.5,)))

    most = 2**24 - 9 * 4 * 127
    assert isinstance(match(CONV, sums(most)), Match)
    text = "clause exact_sums: float scales are for sums of up to 2**24; these may reach 16777217"
    assert reason(CONV, sums(most + 1)) == text


def test_a_block_of_weights_fits_half_of_the_memory() -> None:
    for depth, weight in ((118, 127), (236, -8), (944, -1)):
        assert isinstance(match(DENSE, scaled(dense(1, depth, weight=weight))), Match)
    assert reason(DENSE, scaled(dense(1, 119, weight=64))) == (
        "clause block_fits: 8 output channels have 1024 bytes for their weights, half of the memory; these take 1040"
    )


@pytest.mark.parametrize(
    ("pattern", "expr", "value"),
    [
        (CONV, scaled(conv((1, 600, 6, 1), (300, 1, 1, 8))), "pad_top, pad_left: at most 255; 300"),
        (CONV, scaled(conv((1, 600, 6, 4), strides=(256, 1))), "pad_top, pad_left: at most 255; 256"),
        (CONV, scaled(conv((1, 6, 65536, 1), (1, 1, 1, 8))), "channels: at most 65535; 65536"),
        (DENSE, scaled(dense(1, 1, channels=65536)), "depth, out_channels: at most 65535; 65536"),
        (MAX, call("nn.max_pool2d", data(1, 300, 4, 3), pool_size=(256, 1)), "pad_top, pad_left: at most 255; 256"),
    ],
)
def test_numbers_fit_their_fields(pattern: Pattern, expr: Expr, value: str) -> None:
    text = reason(pattern, expr)
    assert text.startswith("clause at_most_") and text.endswith(f"{value} is more")


def test_a_depthwise_convolution_has_one_filter_per_channel() -> None:
    text = "clause one_filter: groups, channels and filters are as many; these are {}"
    two_each = scaled(conv(weight=(3, 3, 1, 8), groups=4))
    assert reason(DEPTHWISE, two_each) == text.format((4, 4, 8))
    two_groups = scaled(conv(weight=(3, 3, 2, 4), groups=2))
    assert reason(DEPTHWISE, two_groups) == text.format((2, 4, 4))


def test_additions_do_not_broadcast_and_round_double() -> None:
    text = "clause same_shapes: both operands have one shape; the right one has (3,)"
    assert reason(ADD, add(right=(3,))) == text
    text = "clause rounds_double: additions round double; this one rounds up"
    assert reason(ADD, add(output_scale=FixedPoint((2**30,), (-7,), "up"))) == text


@pytest.mark.parametrize(
    ("expr", "why"),
    [
        (scaled(conv(dilation=(2, 1))), "dilation"),
        (scaled(conv(weight=(3, 3, 1, 4), groups=4)), "groups"),
        (scaled(conv(kernel_zero_point=1)), "kernel_zero_point"),
        (scaled(conv(), input_zero_point=1), "input_zero_point"),
        (scaled(conv(), dtype="uint8"), "dtype"),
        (scaled(conv(), dtype="int16"), "dtype"),
        (scaled(conv(dtypes=("uint8", "int8"))), "operand 'data' of qnn.conv2d: dtype is uint8"),
        (scaled(conv(dtypes=("int8", "int16"))), "operand 'weight' of qnn.conv2d: dtype is int16"),
    ],
)
def test_what_no_pattern_names_must_do_nothing(expr: Expr, why: str) -> None:
    assert why in reason(CONV, expr)


def test_what_is_constant_is_the_hosts() -> None:
    scales = {"lhs_scale": ONE, "rhs_scale": ONE, "output_scale": DOUBLE, "left_shift": 20}
    expr = call("qnn.add", data(2, 3), const(np.ones((2, 3), np.int8)), **scales)
    assert reason(ADD, expr) == "clause computed: operands are computed; right is constant"


def test_other_dtypes_stay_on_the_host() -> None:
    pool = call("nn.max_pool2d", data(1, 4, 4, 3, dtype="float32"), pool_size=(2, 2))
    assert "dtype is float32" in reason(MAX, pool)


def test_weights_and_biases_are_constants() -> None:
    w, b = Var("w", TensorType((4, 8), "int8")), Var("b", TensorType((4,), "int32"))
    assert "weight" in reason(DENSE, scaled(call("qnn.dense", data(1, 8), w)))
    sums = call("qnn.dense", data(1, 8), const(np.ones((4, 8), np.int8)))
    assert isinstance(match(DENSE, scaled(call("add", sums, b))), Mismatch)
