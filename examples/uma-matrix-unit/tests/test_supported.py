"""What the machine refuses, and what it says then: a test for every clause and for all that closed patterns stop."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from uma.hookspecs import Pattern
from uma.relay import Expr, FixedPoint, FloatScale, TensorType, Var, call, const
from uma.relay.pattern import Match, Mismatch, match
from uma_matrix_unit.machine import Machine
from uma_matrix_unit.supported import make_patterns

MACHINE = Machine(activation_bytes=1024, weight_bytes=1024, accumulator_bytes=1024)
PATTERNS = {pattern.name: pattern for pattern in make_patterns(MACHINE)}
CONV, CONV1D, DENSE = (PATTERNS[f"matrix_unit.{name}"] for name in ("conv2d", "conv1d", "dense"))

DOUBLE = FixedPoint((2**30,), (-7,), "double")


def conv(
    data: tuple[int, ...] = (1, 6, 6, 4),
    weight: tuple[int, ...] = (3, 3, 4, 8),
    dtypes: tuple[str, str] = ("int8", "int8"),
    weights: Any = None,
    **attrs: Any,
) -> Expr:
    x = Var("x", TensorType(data, dtypes[0]))
    w = const(np.ones(weight, dtypes[1]) if weights is None else weights)
    return call("qnn.conv2d", x, w, **attrs)


def scaled(sums: Expr, **attrs: Any) -> Expr:
    return call("qnn.requantize", sums, **{"scale": DOUBLE, "dtype": "int8", **attrs})


def dense(*shape: int, channels: int = 8) -> Expr:
    return call("qnn.dense", Var("x", TensorType(shape, "int8")), const(np.ones((channels, shape[-1]), np.int8)))


def bias(sums: Expr, *shape: int) -> Expr:
    return call("add", sums, const(np.zeros(shape, np.int32)))


def residual(sums: Expr, factor: object = 1, shape: tuple[int, ...] | None = None) -> Expr:
    wide = call("cast", Var("r", TensorType(shape or sums.shape, "int8")), dtype="int32")
    return call("add", sums, wide if factor == 1 else call("multiply", wide, const(np.array(factor, np.int32))))


def reason(pattern: Pattern, expr: Expr) -> str:
    found = match(pattern, expr)
    assert isinstance(found, Mismatch)
    return found.failure.reason


@pytest.mark.parametrize(
    ("pattern", "expr"),
    [
        (CONV, scaled(conv())),
        (CONV, scaled(conv(padding=(1, 2, 2, 0), strides=(2, 3), input_zero_point=-128), output_zero_point=127)),
        (CONV, call("nn.relu", scaled(bias(conv(), 8)))),
        (CONV, call("clip", scaled(bias(conv(), 1, 1, 8)), a_min=-3.0, a_max=300.0)),
        (CONV, scaled(residual(bias(conv(), 8)))),
        (CONV, scaled(residual(conv(), factor=-128))),
        (CONV, call("nn.relu", scaled(residual(conv(), factor=14 * 127)))),
        (DENSE, scaled(residual(dense(3, 5), factor=64))),
        (CONV, scaled(conv(), scale=FixedPoint((5,) * 8, (1,) * 8, "even"), axis=3)),
        (CONV, scaled(conv(), scale=FixedPoint((0,), (30,), "up"), axis=1)),
        (CONV, scaled(conv(), scale=FloatScale((2.0**-32, *(1.0,) * 6, 2.0**29)))),
        (
            CONV1D,
            scaled(call("qnn.conv1d", Var("x", TensorType((2, 9, 4), "int8")), const(np.ones((3, 4, 5), np.int8)))),
        ),
        *((DENSE, scaled(dense(*(2,) * n, 5))) for n in range(4)),
    ],
)
def test_what_it_takes(pattern: Pattern, expr: Expr) -> None:
    found = match(pattern, expr)
    assert isinstance(found, Match) and found.root is expr


def test_a_bias_has_a_number_for_each_channel() -> None:
    text = "clause bias_per_channel: a bias has one number per output channel; this has shape {}"
    assert reason(CONV, scaled(bias(conv(), 4, 8))) == text.format("(4, 8)")
    assert reason(CONV, scaled(bias(conv(), 4, 1))) == text.format("(4, 1)")
    # One output channel, and a bias by which there are five.
    one = dense(3, 7, channels=1)
    assert reason(DENSE, scaled(bias(one, 5))) == text.format("(5,)")
    assert reason(DENSE, scaled(bias(one, 1, 1, 1))) == text.format("(1, 1, 1)")


def test_a_residual_has_the_shape_of_the_sums_and_one_factor() -> None:
    text = (
        "clause residual_shape: a residual has the shape of the sums, one factor and one zero point; this has shape {}"
    )
    assert reason(CONV, scaled(residual(conv(), shape=(1, 1, 1, 8)))) == text.format((1, 1, 1, 8))
    assert reason(CONV, scaled(residual(conv(), shape=(2, 4, 4, 8)))) == text.format((2, 4, 4, 8))
    assert reason(CONV, scaled(residual(conv(), factor=[2] * 8))) == text.format((8,))


def test_what_multiplies_a_residual_fits_the_weight_scratchpad() -> None:
    text = (
        "clause residual_factor: a residual is multiplied by at most 1778, for which the weight scratchpad has room; "
        "this one by {}"
    )
    for factor in 14 * 127 + 1, -14 * 127 - 1, 2**30:
        assert reason(CONV, scaled(residual(conv(), factor=factor))) == text.format(factor)


def test_scales_go_along_the_channels() -> None:
    along_width = scaled(conv(weight=(3, 3, 4, 4)), scale=FixedPoint((1,) * 4, (0,) * 4, "up"), axis=2)
    assert (
        reason(CONV, along_width)
        == "clause scale_per_channel: scales go along the output channels; these go along axis 2"
    )


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
        (
            FloatScale((2.0**-33,)),
            f"powers_of_two: float scales are powers of two, 2**-32 to 2**29; {2.0**-33} is not one",
        ),
        (
            FloatScale((2.0**30,)),
            f"powers_of_two: float scales are powers of two, 2**-32 to 2**29; {2.0**30} is not one",
        ),
    ],
)
def test_the_requantiser_is_exact_or_refuses(scale: FixedPoint | FloatScale, why: str) -> None:
    assert reason(CONV, scaled(conv(), scale=scale)) == f"clause {why}"


def test_powers_of_two_scale_only_sums_that_a_float32_holds() -> None:
    def sums(bias: int) -> Expr:
        # At most 9 * 4 * 128 of the products.
        return scaled(call("add", conv(), const(np.full(8, bias, np.int32))), scale=FloatScale((0.5,)))

    most = 2**24 - 9 * 4 * 127
    assert isinstance(match(CONV, sums(most)), Match)
    text = "clause exact_sums: float scales are for sums of up to 2**24; these may reach 16777217"
    assert reason(CONV, sums(most + 1)) == text


def test_the_window_of_a_pixel_fits_the_scratchpad() -> None:
    fits, too_large = (
        call("qnn.dense", Var("x", TensorType((1, n), "int8")), const(np.ones((9, n), np.int8))) for n in (1016, 1017)
    )
    assert isinstance(match(DENSE, scaled(fits)), Match)
    assert reason(DENSE, scaled(too_large)) == (
        "clause window_fits: the input under one pixel and 8 channels of its output share the 1024 bytes of the "
        "activation scratchpad; they take 1025"
    )


@pytest.mark.parametrize("padding", [(3, 0, 0, 0), (0, 3, 0, 0), (0, 0, 3, 0), (0, 0, 0, 3)])
def test_no_window_lies_in_the_padding_altogether(padding: tuple[int, ...]) -> None:
    assert isinstance(match(CONV, scaled(conv(padding=tuple(min(p, 2) for p in padding)))), Match)
    text = f"clause windows_meet_the_data: padding is less than the window's taps; this is {padding}"
    assert reason(CONV, scaled(conv(padding=padding))) == text


def test_data_has_at_most_four_dimensions() -> None:
    expr = scaled(dense(1, 1, 1, 1, 8))
    assert reason(DENSE, expr) == "clause few_dimensions: the data has at most 4 dimensions; this has 5"


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


def test_weights_and_biases_are_constants() -> None:
    x, w, b = (
        Var(n, TensorType(s, t)) for n, s, t in (("x", (1, 8), "int8"), ("w", (4, 8), "int8"), ("b", (4,), "int32"))
    )
    assert "weight" in reason(DENSE, scaled(call("qnn.dense", x, w)))
    sums = call("qnn.dense", x, const(np.ones((4, 8), np.int8)))
    assert isinstance(match(DENSE, scaled(call("add", sums, b))), Mismatch)
