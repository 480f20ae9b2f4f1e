"""How numbers are written for people."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from uma.support.formatting import format_percent


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (0, "0.0%"),
        (1, "100.0%"),
        (0.8739, "87.3%"),
        (0.29, "29.0%"),
        (0.9999999, "99.9%"),
        (2 / 3, "66.6%"),
        (3, "300.0%"),
    ],
)
def test_one_decimal_rounded_down(share: float, text: str) -> None:
    assert format_percent(share) == text


@pytest.mark.parametrize(("digits", "text"), [(0, "57%"), (1, "57.1%"), (2, "57.14%"), (3, "57.142%")])
def test_more_digits(digits: int, text: str) -> None:
    assert format_percent(4 / 7, digits) == text


@given(st.integers(0, 10**5), st.integers(1, 10**5), st.integers(0, 3))
def test_quotients_are_exact(part: int, whole: int, digits: int) -> None:
    """The percentage is at most the exact ratio, and less than one unit of its last digit below."""
    printed = Fraction(format_percent(part / whole, digits).removesuffix("%")) / 100
    assert 0 <= Fraction(part, whole) - printed < Fraction(1, 100 * 10**digits)
