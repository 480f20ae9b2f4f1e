"""Float forms of requantisation: what they compute, and the proof that it is what integers give."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from uma.errors import ModelError
from uma.relay.fixed_point import quantize_multiplier, scale_array
from uma.relay.float_requantisation import FloatForm, SumForm, fma_array
from uma.relay.op import ROUNDINGS, FixedPoint, FloatScale
from uma.relay.requantisation_proof import Requantisation, find_form, find_sum_form, proven
from uma.relay.thresholds import is_monotonous, thresholds
from uma.tir.form.functions import FUNCTIONS

BOTH = ("float32", "float64")
MULTIPLIERS = st.one_of(st.integers(2**30, 2**31 - 1), st.sampled_from([0, 1, 2**30, 2**31 - 1]), st.integers(0, 2**30))
SCALES = st.one_of(
    st.builds(lambda m, s, r: FixedPoint((m,), (s,), r), MULTIPLIERS, st.integers(-31, 30), st.sampled_from(ROUNDINGS)),
    st.builds(lambda scale: FloatScale((scale,)), st.floats(2.0**-149, 2.0**127, width=32)),
)
INT32 = st.one_of(st.integers(-(2**31), 2**31 - 1), st.integers(-(2**18), 2**18), st.integers(-300, 300))


def asked(scale: FixedPoint | FloatScale, low: Any, high: Any, zero_point: int = 0, limits: Any = (-128, 127)) -> Any:
    """That of as many channels as there are scales, all of which have these bounds, unless there are some for each."""
    ends = (np.broadcast_to(np.array(end, np.int64), (len(scale),)) for end in (low, high))
    return Requantisation(scale, zero_point, *limits, *ends, np.zeros(1, np.int64))


def wanted(one: Requantisation, x: np.ndarray) -> np.ndarray:
    """What integers give of (channels, n)."""
    shifted = x - one.shift.reshape(-1, 1)
    return (scale_array(shifted, one.scale, 0) + one.zero_point).clip(one.low, one.high)


def differing(one: Requantisation, form: FloatForm) -> int:
    """How many of all accumulators that there may be a form gets wrong. Those that were shifted are."""
    wrong = 0
    moved = np.broadcast_to(np.array(form.shift), one.least.shape) - one.shift
    for channel, (low, high, by) in enumerate(zip(one.least, one.greatest, moved, strict=True)):
        x = np.zeros((one.least.size, high - low + 1), np.int64)
        x[channel] = np.arange(low, high + 1)
        plus = np.zeros_like(x)
        plus[channel] = by
        wrong += int((form.apply(x + plus, 0)[channel] != wanted(one, x)[channel]).sum())
    return wrong


@given(SCALES, INT32, INT32, st.integers(-300, 300))
@settings(max_examples=60)
def test_thresholds_are_the_least_that_give_a_result(scale: Any, one: int, other: int, k: int) -> None:
    low, high = (np.array([end]) for end in sorted((one, other)))
    if not is_monotonous(scale, low, high):
        assert isinstance(scale, FixedPoint)
        assert (int(low[0]) << scale.shift[0] < -(2**31)) or (int(high[0]) << scale.shift[0] >= 2**31)
        return
    found = thresholds(scale, np.array([k]), low, high)
    assert low[0] <= found[0, 0] <= high[0] + 1
    if found[0, 0] <= high[0]:
        assert scale_array(found, scale, 0)[0, 0] >= k
    if found[0, 0] > low[0]:
        assert scale_array(found - 1, scale, 0)[0, 0] < k


NUMBERS = st.one_of(
    st.integers(-(2**31), 2**31 - 1).map(float),
    st.floats(-(2.0**30), 2.0**30),
    st.integers(-600, 600).map(lambda n: n / 2),
)


@given(st.lists(st.tuples(NUMBERS, NUMBERS, NUMBERS), min_size=1, max_size=8), st.sampled_from(BOTH))
@settings(max_examples=60)
def test_arrays_are_multiplied_and_added_with_one_rounding(rows: list[tuple[float, ...]], dtype: str) -> None:
    a, b, c = (np.array(column, dtype) for column in zip(*rows, strict=True))
    tiny = (np.abs(a) > 0) & (np.abs(a) < 2.0**-100) | (np.abs(b) > 0) & (np.abs(b) < 2.0**-100)
    a = np.where(tiny, np.ones_like(a), a)  # where products lose bits to underflow it says nothing
    b = np.where(tiny, np.ones_like(b), b)
    fused = FUNCTIONS["fma"].value(dtype)
    expected = [fused(*map(float, row)) for row in zip(a, b, c, strict=True)]
    made = fma_array(a, b, c)
    assert made.dtype == dtype
    assert made.tolist() == expected


def test_a_sum_halfway_between_two_floats_is_rounded_once() -> None:
    # In float64 the sum is halfway between two float32; what is left of it says which one is nearer.
    a, b, c = np.float32([1 + 2.0**-23]), np.float32(1 + 2.0**-23), np.float32(2.0**24)
    exact = Fraction(float(a[0])) ** 2 + 2**24
    assert exact > 2**24 + 1
    assert fma_array(a, b, c)[0] == 2**24 + 2
    assert np.float32(np.float64(a[0]) * np.float64(b) + np.float64(c)) in (2**24, 2**24 + 2)


def test_a_form_is_computed_as_it_says() -> None:
    form = FloatForm("float32", (0.5, 0.25), (1.0, 0.0), (0.0, -3.0), -4, 3, True)
    x = np.array([[-9, -3, 0, 1, 3, 9], [-9, -2, -1, 0, 2, 30]])
    # Halves go to the even neighbour; -9 / 4 - 3 is below the lower limit.
    assert form.apply(x, 0).tolist() == [[-4, -2, 1, 2, 2, 3], [-4, -4, -3, 0, 0, 3]]
    assert form.apply(x.T, -1).tolist() == np.array([[-4, -2, 1, 2, 2, 3], [-4, -4, -3, 0, 0, 3]]).T.tolist()
    assert SumForm(0.5, -0.25, 1.0, -1, 2, False).apply(np.array([-6, 1, 8]), np.array([0, 2, 4])).tolist() == [
        -1,
        1,
        2,
    ]


def test_twice_rounded_is_not_once_rounded() -> None:
    x, numbers = np.array([[3]]), ((1 / 3,), (-1.0,), (), -1, 1)
    assert FloatForm("float32", *numbers, True).apply(x * 1, 0).tolist() == [[0]]
    product = np.float32(1 / 3) * np.float32(3)
    assert fma_array(np.float32([3]), np.float32(1 / 3), np.float32(-1))[0] != product - 1


@pytest.mark.parametrize(
    "scale", [FixedPoint((m,), (s,), r) for m, s in ((1518500250, -8), (2**30, -6), (5 << 20, 3)) for r in ROUNDINGS]
)
@pytest.mark.parametrize("fused", [True, False])
def test_every_accumulator_of_every_rounding(scale: FixedPoint, fused: bool) -> None:
    one = asked(scale, -20000, 30000, zero_point=-8)
    form = find_form(one, BOTH, fused)
    assert form is not None
    assert form.fused <= fused
    assert differing(one, form) == 0
    assert proven(one, form).tolist() == [True]  # type: ignore[union-attr]  # there is a proof


def test_halves_that_go_to_even_before_an_odd_zero_point_have_no_form() -> None:
    scale = FixedPoint((2**30,), (-6,), "even")
    assert find_form(asked(scale, -900, 900, zero_point=-8), BOTH, True) is not None
    assert find_form(asked(scale, -900, 900, zero_point=-7), BOTH, True) is None


def test_a_factor_in_float32_is_met() -> None:
    scale = FloatScale((0.0018734, 0.0331719))
    one = asked(scale, -3000, (90000, 2000), zero_point=3, limits=(3, 127))
    form = find_form(one, BOTH, True)
    assert form is not None
    assert differing(one, form) == 0


def test_a_product_that_becomes_a_half_has_no_form() -> None:
    """One channel of resnet8. Its products are just below halves; one of them is rounded to the half, and so up."""
    scale = FloatScale((float.fromhex("0x1.36db2p-10"),))
    x = np.array([46803, 109207, 140409])
    halves = [Fraction(int(n)) * Fraction(37, 31202) for n in x]
    assert halves == [Fraction(111, 2), Fraction(259, 2), Fraction(333, 2)], "the three lie on a line"
    assert scale_array(x, scale, 0).tolist() == [55, 130, 166], "which no line is below, at or above, and below"
    one = asked(scale, 0, 220000, zero_point=-128)
    assert all(find_form(one, BOTH, fused, may_shift) is None for fused in (True, False) for may_shift in (True, False))
    # Without that one there is a form.
    assert find_form(asked(scale, 0, 109206, zero_point=-128), BOTH, True) is not None


def test_offsets_absorb_the_second_rounding() -> None:
    multiplier, shift = quantize_multiplier(0.00371)
    scale = FixedPoint((multiplier,), (shift,), "double")
    clipped = find_form(asked(scale, -50000, 90000, zero_point=-128, limits=(-128, 127)), ("float32",), True)
    assert clipped is not None
    assert not clipped.offset_below, "what is below zero is clipped anyway"
    whole = find_form(asked(scale, -50000, 90000), ("float32",), True)
    assert whole is not None
    assert whole.offset_below[0] < whole.offset[0]


def test_a_shift_finds_what_is_else_not_found() -> None:
    rng = np.random.default_rng(1)
    for multiplier in rng.integers(2**30, 2**31, 60):
        one = asked(FixedPoint((int(multiplier),), (-9,), "double"), -300000, 300000, zero_point=-128)
        plain, shifted = (find_form(one, ("float32",), True, may_shift) for may_shift in (False, True))
        if (plain is not None and plain.fused) or shifted is None or not any(shifted.shift):
            continue
        by = shifted.shift[0]
        moved = Requantisation(one.scale, -128, -128, 127, one.least + by, one.greatest + by, np.array([by]))
        assert proven(moved, shifted).all()  # type: ignore[union-attr]  # there is a proof
        assert differing(one, shifted) == 0
        return
    pytest.fail("no multiplier needs a shift")


@pytest.mark.parametrize(
    ("scale", "low", "high", "limits"),
    [
        pytest.param(FixedPoint((2**30,), (1,), "up"), -1000, 1000, (-32768, 32767), id="more than 255 steps"),
        pytest.param(FixedPoint((2**30,), (3,), "double"), -(2**30), 2**30, (-128, 127), id="wraps around"),
        pytest.param(FixedPoint((2**30,), (1,), "up"), -(2**31) - 1, 0, (-128, 127), id="is not int32"),
    ],
)
def test_what_has_no_proof_stays_as_it_is(scale: FixedPoint, low: int, high: int, limits: Any) -> None:
    one = asked(scale, low, high, limits=limits)
    assert find_form(one, BOTH, True) is None
    assert proven(one, FloatForm("float32", (1.0,), (0.0,), (), *limits, True)) is None


def test_one_result_needs_no_form() -> None:
    assert find_form(asked(FixedPoint((2**30,), (-6,), "up"), -900, 900, limits=(5, 5)), BOTH, True) is None


def test_few_steps_of_many_results_have_a_form() -> None:
    one = asked(FixedPoint((2**30,), (-3,), "double"), -900, 900, limits=(-32768, 32767))
    form = find_form(one, BOTH, True)
    assert form is not None
    assert differing(one, form) == 0


@pytest.mark.parametrize("change", [{"offset": (0.3,)}, {"multiplier": (0.00401,)}, {"low": -127}])
def test_another_form_is_not_proven(change: dict[str, Any]) -> None:
    one = asked(FixedPoint((1099511628,), (-7,), "up"), -60000, 60000)
    form = find_form(one, ("float32",), True)
    assert form is not None
    assert proven(one, form).all()  # type: ignore[union-attr]  # there is a proof
    parts = {name: getattr(form, name) for name in form.__dataclass_fields__}
    assert not proven(one, FloatForm(**{**parts, **change})).any()  # type: ignore[union-attr]  # there is an answer, and it is no


@given(
    st.one_of(
        st.builds(
            lambda points, rounding: FixedPoint(*zip(*points, strict=True), rounding),
            st.lists(st.tuples(MULTIPLIERS, st.integers(-16, 2)), min_size=1, max_size=4),
            st.sampled_from(ROUNDINGS),
        ),
        st.builds(
            lambda scales: FloatScale(tuple(scales)),
            st.lists(st.floats(2.0**-149, 2.0**127, width=32), min_size=1, max_size=4),
        ),
    ),
    st.integers(-(2**24), 2**24),
    st.integers(0, 2**24),
    st.integers(-128, 127),
    st.booleans(),
    st.booleans(),
)
@settings(max_examples=60)
def test_forms_that_are_found_hold_near_all_steps(
    scale: FixedPoint | FloatScale, low: int, wide: int, zero_point: int, fused: bool, may_shift: bool
) -> None:
    one = asked(scale, low, low + wide, zero_point)
    form = find_form(one, BOTH, fused, may_shift)
    if form is None:
        return
    ks = np.arange(-128, 129)
    steps = thresholds(scale, ks - zero_point, one.least, one.greatest)
    near = np.concatenate([steps + by for by in (-2, -1, 0, 1)] + [one.least[:, None], one.greatest[:, None]], axis=1)
    near = near.clip(one.least[:, None], one.greatest[:, None])
    moved = np.broadcast_to(np.array(form.shift), one.least.shape)[:, None]
    assert np.array_equal(form.apply(near + moved, 0), wanted(one, near))


def test_a_sum_is_proven_of_all_pairs() -> None:
    x = np.arange(-128, 128)
    table = np.rint(x[:, None] * 0.4312837 + x[None, :] * 0.7098123 - 3.2174).clip(-100, 90).astype(np.int64)
    for fused in (True, False):
        form = find_sum_form(table, -128, (0.4312837, 0.7098123), fused)
        assert form is not None
        assert (form.low, form.high) == (-100, 90)
        assert np.array_equal(form.apply(x[:, None], x[None, :]), table)
    table[17, 3] += 2
    assert find_sum_form(table, -128, (0.4312837, 0.7098123), True) is None


def test_numbers_are_held_rounded() -> None:
    form = FloatForm("float32", 0.1, (-0.0,), (), 0, 255, True)  # type: ignore[arg-type]  # one number for all channels becomes a tuple
    assert form.multiplier == (float(np.float32(0.1)),)
    assert str(form.offset) == "(0.0,)"
    assert FloatForm("float64", (0.1,), (1.0,), (), 0, 255, True).multiplier == (0.1,)


GOOD: dict[str, Any] = {
    "dtype": "float32",
    "multiplier": (1.0,),
    "offset": (0.0,),
    "offset_below": (),
    "low": 0,
    "high": 1,
    "fused": True,
    "shift": (0,),
}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dtype": "int8"}, "a float form in 'int8'"),
        ({"fused": 1}, "fused or not, not 1"),
        ({"low": 0.5}, r"limit 0\.5 of a float form is not a whole number"),
        ({"high": 2**25}, "not a whole number of at most 24 bits"),
        ({"low": 2}, r"limits 2 \.\. 1 of a float form are upside down"),
        ({"offset": ("x",)}, "offset .* of a float form: could not convert"),
        ({"offset": (float("nan"),)}, r"larger than 2\*\*62"),
        ({"offset": (0.0, 1.0)}, "1 multipliers, 2 and 0 offsets and 1 shifts"),
        ({"offset_below": (0.0, 1.0)}, "1 multipliers, 1 and 2 offsets"),
        ({"shift": (0, 1)}, "and 2 shifts"),
        ({"shift": (0.5,)}, r"shift 0\.5 of a float form is not int32"),
        ({"multiplier": (-1.0,)}, r"neither 0 nor 2\*\*-100 or more"),
    ],
)
def test_what_is_no_form_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        FloatForm(**{**GOOD, **change})


def test_what_is_no_form_of_a_sum_is_refused() -> None:
    make: Callable[..., SumForm] = SumForm
    with pytest.raises(ModelError, match="upside down"):
        make(1.0, 1.0, 0.0, 3, 2, True)
    with pytest.raises(ModelError, match=r"larger than 2\*\*62"):
        make(1.0, 2.0**63, 0.0, 0, 2, True)
