"""Fixed points against exact fractions: every rounding, and the proof that one equals a float64 factor."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from uma.errors import ModelError
from uma.relay.fixed_point import (
    exact_fixed_point,
    find_fixed_point,
    fixed_point,
    prove_fixed_point,
    quantize_multiplier,
    scale_array,
    scale_integer,
)
from uma.relay.op import ROUNDINGS, Bounds, FixedPoint, FloatScale

INT32 = st.one_of(st.integers(-(2**31), 2**31 - 1), st.integers(-300, 300), st.sampled_from([-(2**31), 2**31 - 1]))
MULTIPLIERS = st.one_of(st.integers(2**30, 2**31 - 1), st.sampled_from([0, 1, 2**30, 2**31 - 1]), st.integers(0, 2**30))


def nearest(value: Fraction, halves: str) -> int:
    """The integer nearest to `value`; `halves` says where they go."""
    floor = math.floor(value)
    rest = value - floor
    up = {"up": True, "even": floor % 2 == 1, "away": value > 0}[halves]
    return floor + (rest > Fraction(1, 2) or (rest == Fraction(1, 2) and up))


def defined(value: int, multiplier: int, shift: int, rounding: str) -> int:
    """FixedPoint's definition, in fractions."""
    if rounding != "double":
        return nearest(Fraction(value * multiplier) * Fraction(2) ** (shift - 31), rounding)
    wrapped = ((value << max(shift, 0)) + 2**31) % 2**32 - 2**31
    high = nearest(Fraction(wrapped * multiplier, 2**31), "up")
    return nearest(Fraction(high, 2 ** max(-shift, 0)), "away")


@given(INT32, MULTIPLIERS, st.integers(-31, 30), st.sampled_from(ROUNDINGS))
def test_scalars_and_arrays_are_scaled_as_defined(value: int, multiplier: int, shift: int, rounding: str) -> None:
    expected = defined(value, multiplier, shift, rounding)
    assert scale_integer(value, multiplier, shift, rounding) == expected
    array = scale_array(np.array([value], np.int32), FixedPoint((multiplier,), (shift,), rounding), 0)
    assert array.dtype == np.int64
    assert array.tolist() == [expected]


@pytest.mark.parametrize(
    ("rounding", "expected"),
    [
        # Halves of                -2.5 -1.5 -0.5  0.5  1.5  2.5
        ("up", [-2, -1, 0, 1, 2, 3]),
        ("even", [-2, -2, 0, 0, 2, 2]),
        ("away", [-3, -2, -1, 1, 2, 3]),
        ("double", [-2, -1, 0, 1, 2, 3]),
    ],
)
def test_where_halves_go(rounding: str, expected: list[int]) -> None:
    assert [scale_integer(x, 2**30, 0, rounding) for x in (-5, -3, -1, 1, 3, 5)] == expected


def test_rounding_twice_is_not_rounding_once() -> None:
    # 11 * 0.135 = 1.485: first to 6 quarters, then to 2.
    multiplier, shift = quantize_multiplier(0.135)
    assert (multiplier, shift) == (round(0.54 * 2**31), -2)
    assert scale_integer(11, multiplier, shift, "double") == 2
    assert scale_integer(11, multiplier, shift, "up") == 1


def test_channels_lie_along_the_axis() -> None:
    values = np.full((2, 3), 100, np.int32)
    scale = fixed_point([0.5, 0.25, 0.01], "even")
    assert scale_array(values, scale, 1).tolist() == [[50, 25, 1]] * 2
    assert scale_array(values.T.copy(), scale, 0).tolist() == [[50] * 2, [25] * 2, [1] * 2]


@given(st.lists(INT32, min_size=1, max_size=5), st.floats(2.0**-100, 2.0**100, width=32))
def test_float_scales_multiply_in_float32_and_round_half_to_even(values: list[int], factor: float) -> None:
    with np.errstate(over="ignore"):
        product = [float(np.float32(v) * np.float32(factor)) for v in values]
    whole = [round(p) if math.isfinite(p) else int(math.copysign(2**63, p)) for p in product]
    expected = [max(-(2**62), min(2**62, value)) for value in whole]
    assert scale_array(np.array(values, np.int32), FloatScale((factor,)), 0).tolist() == expected


def test_float_scales_are_held_as_float32() -> None:
    assert FloatScale((0.1,)) == FloatScale((float(np.float32(0.1)),))


@pytest.mark.parametrize(
    ("factor", "expected"),
    [
        (1.0, (2**30, 1)),
        (0.5, (2**30, 0)),
        (0.75, (3 * 2**29, 0)),
        (3.0, (3 * 2**29, 2)),
        (1 - 2.0**-40, (2**30, 1)),
        (0.0, (0, 0)),
        (2.0**-32, (2**30, -31)),
        (2.0**-33, (0, 0)),
    ],
)
def test_factors_become_fixed_points(factor: float, expected: tuple[int, int]) -> None:
    assert quantize_multiplier(factor) == expected


def test_equal_channels_are_one() -> None:
    assert fixed_point([0.25, 0.25], "up") == FixedPoint((2**30,), (-1,), "up")


def test_too_large_factors_are_refused() -> None:
    with pytest.raises(ModelError, match=r"fixed-point scale 1073741824 \* 2\*\*\(31 - 31\) is out of range"):
        fixed_point([2.0**30], "up")


# --- prove_fixed_point -----------------------------------------------------------------------------------------------


def float64_rounded(x: int, factor: float) -> int:
    """C's ``round(x * factor)`` in double precision."""
    return nearest(Fraction(x * factor), "away")


FACTORS = st.one_of(
    st.floats(1e-9, 4, exclude_min=True),
    st.integers(-28, 3).map(lambda e: 2.0**e),  # the products of these hit halves
    st.tuples(st.integers(1, 200), st.integers(0, 12)).map(lambda t: t[0] / 2 ** t[1]),
)


@given(FACTORS, st.sampled_from([2**29, 2**24, 2**12]), st.integers(-128, 127))
def test_a_proven_fixed_point_gives_what_float64_does(factor: float, size: int, zero_point: int) -> None:
    results = Bounds(-128 - zero_point, 127 - zero_point)
    scale = prove_fixed_point([factor], Bounds(-size, size - 1), results)
    # Of few factors there is none: 15 * 0.7 is 10.5 in float64, and 45 * 0.7 is less than 31.5.
    assume(scale is not None)
    assert scale is not None and scale.rounding == "up"
    for k in range(results.low - 1, results.high + 2):
        # Where the result changes from k - 1 to k, and around it.
        turn = math.ceil((k - 0.5) / factor)
        for x in (turn - 1, turn, turn + 1):
            if -size <= x < size:
                got = scale_integer(x, scale.multiplier[0], scale.shift[0], "up")
                low, high = results
                assert max(low, min(high, got)) == max(low, min(high, float64_rounded(x, factor)))


def test_a_fixed_point_moves_where_the_nearest_one_is_not_exact() -> None:
    # -1 / 2 goes away from zero, which rounding up does of a product a little beyond a half.
    scale = prove_fixed_point([0.5], Bounds(-1000, 1000), Bounds(-128, 127))
    assert scale == FixedPoint((2**30 + 1,), (0,), "up")


def test_a_factor_of_zero_makes_zeros() -> None:
    assert prove_fixed_point([0.0], Bounds(-1000, 1000), Bounds(-128, 127)) == FixedPoint((0,), (0,), "up")


def test_channels_are_proven_one_by_one() -> None:
    scale = prove_fixed_point([0.3, 0.01, 0.3], Bounds(-1000, 1000), Bounds(-128, 127))
    assert scale is not None
    assert len(scale) == 3
    assert scale.multiplier[0] == scale.multiplier[2]


@pytest.mark.parametrize("table", [[-1, -1, 0, 1, 1], [-1, 0, 0, 0, 1], [-1, 0, 0, 1, 1]])
def test_a_table_is_met_where_it_is_that_of_a_fixed_point(table: list[int]) -> None:
    found = find_fixed_point(np.array(table), -2, 0.5, Bounds(-128, 127))
    assert found is not None and found.rounding == "up"
    assert scale_array(np.arange(-2, 3), found, 0).tolist() == table


def test_a_table_that_no_fixed_point_gives() -> None:
    assert find_fixed_point(np.array([0, 0, 0, 1, 1]), -2, 0.5, Bounds(-128, 127)) is None


@pytest.mark.parametrize(
    ("factor", "results"),
    [
        (2.0**30, Bounds(-128, 127)),  # no fixed point is so large
        # Halves below zero would need one that is larger than 2**-23 by less than its last place.
        (2.0**-23, Bounds(-129, 126)),
    ],
)
def test_what_no_fixed_point_does_is_said(factor: float, results: Bounds) -> None:
    assert prove_fixed_point([factor], Bounds(-(2**31), 2**31 - 1), results) is None


# --- exact factors ---------------------------------------------------------------------------------------------------


@given(
    st.one_of(st.fractions(Fraction(1, 4000), 40, max_denominator=5000), st.floats(2.0**-12, 40).map(Fraction)),
    st.integers(-3000, 0),
    st.integers(0, 3000),
)
def test_what_is_found_for_an_exact_factor_is_exact(factor: Fraction, low: int, high: int) -> None:
    results = Bounds(-128, 127)
    found = exact_fixed_point(factor, Bounds(low, high), results)
    values = np.arange(low, high + 1, dtype=np.int32)
    wanted = np.clip([nearest(x * factor, "even") for x in values.tolist()], *results)
    if found is not None:
        assert np.array_equal(np.clip(scale_array(values, found, 0), *results), wanted)
    else:
        # One is missing only where halves go to even that are not told apart from below and above.
        assert any((2 * x * factor).denominator == 1 and (2 * x * factor) % 2 == 1 for x in values.tolist())


@pytest.mark.parametrize("exponent", [-31, -4, 0, 29])
def test_powers_of_two_round_even(exponent: int) -> None:
    found = exact_fixed_point(Fraction(2) ** exponent, Bounds(-(2**31), 2**31 - 1), Bounds(-128, 127))
    assert found == FixedPoint((2**30,), (exponent + 1,), "even")


@pytest.mark.parametrize("factor", [Fraction(1, 6), Fraction(2**40), Fraction(1, 2**60)])
def test_halves_that_go_to_even_have_no_fixed_point(factor: Fraction) -> None:
    """Nor have factors that leave the range of the shifts."""
    found = exact_fixed_point(factor, Bounds(-1000, 1000), Bounds(-128, 127))
    assert found is None or factor.denominator == 2**60
    if found is not None:
        assert not scale_array(np.arange(-1000, 1001, dtype=np.int32), found, 0).any()
