"""An accelerator's fixed points: the nearest to float scales, and how far they are off, over all there may be."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from uma.errors import PluginError
from uma.relay.fixed_point import quantize_multiplier, scale_array
from uma.relay.fixed_point_approximation import largest_deviation, nearest
from uma.relay.op import Bounds, FixedPoint, FloatScale
from uma.support.rounding import ROUNDINGS, FixedPointForm

SCALES = st.lists(st.floats(2**-18, 4, width=32), min_size=1, max_size=4)
FORMS = st.builds(
    FixedPointForm, st.sampled_from(ROUNDINGS), st.integers(2, 31), st.tuples(st.integers(-31, 4), st.just(30))
)


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        ({"rounding": "down"}, "rounds 'down'"),
        ({"multiplier_bits": 32}, "multipliers of 32 bits"),
        ({"multiplier_bits": True}, "multipliers of True bits"),
        ({"shifts": (-32, 0)}, r"has shifts \(-32, 0\)"),
        ({"shifts": (1, 0)}, r"has shifts \(1, 0\)"),
        ({"shifts": 3}, "has shifts 3"),
        ({"shifts": (0.0, 1)}, "has shifts"),
        ({"additions": 1}, "'additions' of a fixed-point form is 1"),
        ({"averages": None}, "'averages' of a fixed-point form is None"),
    ],
)
def test_forms_that_make_no_sense(fields: dict[str, Any], what: str) -> None:
    with pytest.raises(PluginError, match=what):
        FixedPointForm(**{"rounding": "up", **fields})


def test_of_31_bits_it_is_what_tflite_has() -> None:
    form, scales = FixedPointForm("up"), FloatScale((0.1, 1e-6, 0.75, 1.0, 3.25))
    found = nearest(form, scales)
    assert found is not None
    assert list(zip(found.multiplier, found.shift, strict=True)) == [quantize_multiplier(s) for s in scales.scale]
    assert str(form) == "fixed point of 31 bits, rounding up"


@given(SCALES, FORMS)
def test_no_other_multiplier_is_nearer(scales: list[float], form: FixedPointForm) -> None:
    found = nearest(form, FloatScale(tuple(scales)))
    if found is None:
        return
    times = len(scales) // len(found)
    for factor, multiplier, shift in zip(scales, found.multiplier * times, found.shift * times, strict=True):
        assert multiplier < 1 << form.multiplier_bits
        assert form.shifts[0] <= shift <= form.shifts[1]
        unit = Fraction(2) ** (shift - 31)
        assert abs(multiplier * unit - Fraction(factor)) <= unit / 2
        # A finer unit has no room for it, or the machine has none.
        assert shift == form.shifts[0] or Fraction(factor) / unit >= (1 << (form.multiplier_bits - 1)) - 1


def test_what_is_out_of_reach() -> None:
    assert nearest(FixedPointForm("up", shifts=(-31, 0)), FloatScale((0.5, 1.5))) is None
    assert nearest(FixedPointForm("up", 8, (8, 30)), FloatScale((2.0**-26,))) is None
    assert nearest(FixedPointForm("up"), FloatScale((3e38,))) is None
    # Half of the least that there is becomes that.
    assert nearest(FixedPointForm("up", 8, (8, 30)), FloatScale((2.0**-24,))) == FixedPoint((1,), (8,), "up")
    # Rounded up to one bit more, it is the same with another shift.
    assert nearest(FixedPointForm("up", 4), FloatScale((0.99,))) == FixedPoint((8,), (28,), "up")


@settings(max_examples=150)
@given(SCALES, FORMS, st.integers(-4000, 0), st.integers(0, 4000), st.integers(-128, 127))
def test_the_bound_is_the_largest_difference_of_all(
    scales: list[float], form: FixedPointForm, low: int, high: int, zero_point: int
) -> None:
    """Every accumulator there may be is tried: the bound is met, and by nothing exceeded."""
    asked = FloatScale(tuple(scales))
    made = nearest(form, asked)
    if made is None:
        return
    found = largest_deviation(asked, made, Bounds(low, high), zero_point, "int8")
    every = np.broadcast_to(np.arange(low, high + 1), (len(scales), high - low + 1))
    results = [np.clip(scale_array(every, one, 0) + zero_point, -128, 127) for one in (asked, made)]
    if found is None:
        assert form.rounding == "double"
        assert any(high << max(shift, 0) > 2**31 - 1 or low << max(shift, 0) < -(2**31) for shift in made.shift)
    else:
        assert found == int(np.abs(results[0] - results[1]).max())


@pytest.mark.parametrize(("dtype", "form"), [("uint8", ("away", 9)), ("int16", ("up", 12)), ("int16", ("double",))])
def test_of_other_results(dtype: str, form: Any) -> None:
    rng = np.random.default_rng(7)
    asked = FloatScale(tuple(rng.uniform(0.001, 0.5, 5).tolist()))
    made = nearest(FixedPointForm(*form), asked)
    assert made is not None
    found = largest_deviation(asked, made, Bounds(-90000, 100000), 3, dtype)
    every = np.broadcast_to(np.arange(-90000, 100001), (5, 190001))
    info = np.iinfo(dtype)
    results = [np.clip(scale_array(every, one, 0) + 3, info.min, info.max) for one in (asked, made)]
    assert found == int(np.abs(results[0] - results[1]).max())


def test_where_nothing_is_known() -> None:
    scale, made = FloatScale((0.5,)), FixedPoint((1 << 30,), (0,), "even")
    assert largest_deviation(scale, made, Bounds(-(2**31), 2**31 - 1), 0, "int8") == 0
    assert largest_deviation(scale, made, Bounds(-(2**31) - 1, 0), 0, "int8") is None
    double = FixedPoint((1 << 30,), (3,), "double")
    assert largest_deviation(FloatScale((4.0,)), double, Bounds(0, 2**28), 0, "int8") is None
