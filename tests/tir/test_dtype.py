"""Scalar data types: what is true of each, against NumPy's."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from uma.tir.form.dtype import DTYPES, bounds, holds, is_float


@pytest.mark.parametrize("narrow", DTYPES)
@pytest.mark.parametrize("wide", DTYPES)
def test_a_type_holds_another_where_none_of_its_values_changes(wide: str, narrow: str) -> None:
    with np.errstate(all="ignore"):
        same = all(Fraction(value.item()) == _as(value, wide) for value in _extremes(narrow))
    assert holds(wide, narrow) == same


def _extremes(dtype: str) -> list[np.generic]:
    kind = np.dtype(dtype).type
    if is_float(dtype):
        info = np.finfo(kind)
        return [kind(v) for v in (info.max, info.min, info.smallest_subnormal, 1 + info.eps, 0.5)]
    low, high = bounds(dtype)
    return [kind(v) for v in {low, low + 1, high - 1, high}]


def _as(value: np.generic, dtype: str) -> Fraction | None:
    converted = value.astype(dtype)
    return Fraction(converted.item()) if np.isfinite(converted) else None
