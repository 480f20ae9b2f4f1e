"""Looking for the float form of a requantisation, and proving it.

What integers are made of an accumulator by a `FixedPoint` or `FloatScale`, and what a `FloatForm` makes of it, are both
monotonous. They are equal for every accumulator if they step at the same places, of which there are at most 255: if for
each result k the float form gives k or more of the least accumulator that does, and less than k of the one before.

Multiplier and offset are looked for so. Given a multiplier, each step bounds the offset from one side; what is left
between all bounds is about the 255th part of a step. TFLite's double rounding moves all steps of positive accumulators
by the same small amount, and those of negative ones the other way: an offset absorbs the one, two offsets both.

Some scales have no form. A `FloatScale` rounds a product to float32 first: one just below a half becomes that half, and
then the even number above, while others, in line with it, stay below theirs. No multiplier and offset do that. Such a
scale is computed as it says: a product of float32, a rounding, a sum.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from ..tir.form.dtype import bounds
from .fixed_point import scale_array
from .float_requantisation import LEAST_FACTOR, MAX_LIMIT, FloatForm, SumForm, scaled
from .op import FixedPoint, FloatScale
from .thresholds import is_monotonous, thresholds

if TYPE_CHECKING:
    import numpy as np

__all__ = ["MOST_STEPS", "Requantisation", "find_form", "find_sum_form", "proven"]

MOST_STEPS = 255
"""Of a requantisation that has a float form."""

_NEIGHBOURS = 8
"""How many float32 on each side of a factor are tried as multipliers."""

_HOPELESS = 2.0**-9
"""Bounds of an offset that are farther apart than this are so for every multiplier that is tried."""

_SHIFTS = tuple(
    part / 16 for part in (16, 12, 8, 20, 4, 24, 14, 18, 10, 22, 6, 2, 15, 17, 13, 19, 11, 21, 9, 23, 7, 5, 3, 1)
)
"""Parts of an offset that are added before multiplying: what is left of it can be told more precisely."""

_LARGEST_FACTOR = 2.0**30
"""No fixed point is larger. Offsets for larger float scales exceed what a form may hold."""

_STEPS = 4
"""How many float32 on each side of the factors of a sum are tried."""

_TRIED = 4
"""How many multipliers that leave room for an offset are tried."""

Dtype = Literal["float32", "float64"]


@dataclass(frozen=True, eq=False)
class Requantisation:
    """``clip(scaled(x - shift) + zero_point, low, high)``, of the integers x that there may be.

    Args:
        scale: one for all channels, or one for each.
        zero_point: is added.
        low, high: limits of the results.
        least, greatest: int64 (channels,), the bounds of x: as many as there are scales.
        shift: int64 (channels,), or of one element.
    """

    scale: FixedPoint | FloatScale
    zero_point: int
    low: int
    high: int
    least: np.ndarray
    greatest: np.ndarray
    shift: np.ndarray


@dataclass(frozen=True, eq=False)
class _Steps:
    """Where a requantisation steps.

    Args:
        ks: int64 (results,): each is given, or more.
        at, before: int64 (channels, results): the least accumulator of which k or more is made, where there is one
            that is ``is_reached``; the greatest of which less is made, where there is one that is ``is_before``.
        is_reached, is_before: bool (channels, results).
    """

    ks: np.ndarray
    at: np.ndarray
    before: np.ndarray
    is_reached: np.ndarray
    is_before: np.ndarray

    @staticmethod
    def from_requantisation(asked: Requantisation) -> _Steps | None:
        """None where there are too many, or the scale wraps around."""
        import numpy as np

        least, greatest = bounds("int32")
        if np.any(asked.least < least) or np.any(asked.greatest > greatest):
            return None
        low, high = asked.least - asked.shift, asked.greatest - asked.shift
        if not is_monotonous(asked.scale, low, high):
            return None
        ends = [scale_array(end, asked.scale, 0) + asked.zero_point for end in (low, high)]
        first, last = (int(np.clip(end, asked.low, asked.high)) for end in (ends[0].min(), ends[1].max()))
        if last - first > MOST_STEPS:
            return None
        # With what is given of the ends, and what is not: floats must keep to that, too.
        ks = np.arange(max(asked.low + 1, first), min(asked.high, last + 1) + 1)
        crossings = thresholds(asked.scale, ks - asked.zero_point, low, high)
        lows, highs, shift = low[:, None], high[:, None], asked.shift.reshape(-1, 1)
        reached, is_before = crossings <= highs, crossings > lows
        return _Steps(ks, crossings + shift, np.minimum(crossings - 1, highs) + shift, reached, is_before)

    def shifted(self, by: int) -> _Steps:
        """The same of larger integers."""
        return replace(self, at=self.at + by, before=self.before + by)

    def only(self, channels: np.ndarray | slice) -> _Steps:
        """The same of some channels."""
        parts = (array[channels] for array in (self.at, self.before, self.is_reached, self.is_before))
        return _Steps(self.ks, *parts)

    def met(self, numbers: _Numbers) -> np.ndarray:
        """bool (channels,): whether floats step there and nowhere else."""
        import numpy as np

        columns = numbers.columns
        at, before = (scaled(values, *columns, numbers.fused) for values in (self.at, self.before))
        met: np.ndarray = np.all(((at >= self.ks) | ~self.is_reached) & ((before < self.ks) | ~self.is_before), axis=1)
        if numbers.below is not numbers.above:
            # Monotonous on both sides of zero, and from the one to the other.
            minus, zero = (scaled(np.full_like(self.at[:, :1], x), *columns, numbers.fused) for x in (-1, 0))
            met &= (minus <= zero)[:, 0]
        return met


@dataclass(frozen=True, eq=False)
class _Numbers:
    """Those of a float form: arrays (channels,), or of one element, of its dtype; ``below`` is ``above`` where one
    offset is for all."""

    factors: np.ndarray
    above: np.ndarray
    below: np.ndarray
    fused: bool

    @staticmethod
    def from_form(form: FloatForm) -> _Numbers:
        import numpy as np

        factors, above = np.array(form.multiplier, form.dtype), np.array(form.offset, form.dtype)
        below = np.array(form.offset_below, form.dtype) if form.offset_below else above
        return _Numbers(factors, above, below, form.fused)

    @property
    def columns(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The three as (channels, 1)."""
        above = self.above[:, None]
        return self.factors[:, None], above, above if self.below is self.above else self.below[:, None]

    def at(self, channel: int) -> _Numbers:
        """Those of one."""
        factors, above = self.factors[[channel]], self.above[[channel]]
        return _Numbers(factors, above, above if self.below is self.above else self.below[[channel]], self.fused)


def proven(asked: Requantisation, form: FloatForm) -> np.ndarray | None:
    """Of each channel, whether a form gives of every accumulator what is asked; None where there is no proof.

    Args:
        asked: by integers.
        form: as many channels, or one of each where there is one scale.
    """
    import numpy as np

    if (form.low, form.high) != (asked.low, asked.high) or len(form) not in (1, asked.least.size):
        return np.zeros(asked.least.size, bool)
    steps = _Steps.from_requantisation(asked)
    return None if steps is None else steps.met(_Numbers.from_form(form))


def find_form(asked: Requantisation, dtypes: Sequence[Dtype], fused: bool, may_shift: bool = False) -> FloatForm | None:
    """The form that is proven of all channels, float32 and one offset before all else; None where there is none, or
    where every result is the same.

    Args:
        asked: by integers.
        dtypes: those that may be computed in.
        fused: whether product and sum are rounded once.
        may_shift: whether something may be added to x beforehand: the ``shift`` of the form less that of ``asked``.
    """
    if max(-asked.low, asked.high) > MAX_LIMIT or asked.low == asked.high:
        return None  # Nothing steps where there is one result.
    if isinstance(asked.scale, FloatScale) and max(asked.scale.scale) > _LARGEST_FACTOR:
        return None
    steps = _Steps.from_requantisation(asked)
    if steps is None:
        return None
    for dtype, once, two_offsets in itertools.product(dtypes, (True, False) if fused else (False,), (False, True)):
        shifts = _SHIFTS if may_shift and dtype == "float32" and not two_offsets else ()
        form = _Search(asked, steps, dtype, once, two_offsets).run(shifts)
        if form is not None:
            return form
    return None


class _Search:
    """For one kind of form."""

    def __init__(self, asked: Requantisation, steps: _Steps, dtype: Dtype, fused: bool, two_offsets: bool) -> None:
        import numpy as np

        self.asked, self.steps, self.dtype, self.fused, self.two_offsets = asked, steps, dtype, fused, two_offsets
        halves = (steps.ks - 0.5).astype(dtype)
        even = steps.ks % 2 == 0
        # A half goes to the even neighbour.
        least = np.where(even, halves, np.nextafter(halves, halves + 1))
        most = np.where(even, np.nextafter(halves, halves - 1), halves)
        self.least, self.most = least.astype(np.float64), most.astype(np.float64)
        if dtype == "float32":
            # The sum may be as far off as half of its last place.
            self.least = (self.least + np.nextafter(least, least - 1)) / 2
            self.most = (self.most + np.nextafter(most, most + 1)) / 2

    def run(self, shifts: Sequence[float]) -> FloatForm | None:
        """The form, proven of all channels.

        Args:
            shifts: parts of the offset that may be added to x, each in the channels that need it.
        """
        import numpy as np

        numbers, gaps = self._offsets(self.steps, self._factors())
        shift = np.broadcast_to(self.asked.shift, gaps.shape).copy()
        is_proven = (gaps <= 0) & self.steps.met(numbers)
        missing = np.flatnonzero(~is_proven)
        if missing.size and (self.dtype == "float64" or np.any(gaps > _HOPELESS)):
            return None
        for channel in missing:
            steps, factor = self.steps.only(slice(channel, channel + 1)), numbers.factors[channel]
            offset = float(numbers.above[channel])
            for part in (0.0, *shifts):
                added = round(part * offset / float(factor)) if part else 0
                better = self._neighbour(steps.shifted(added), factor) if abs(added) < 2**24 else None
                if better is not None:
                    for mine, its in zip(numbers.columns, better.columns, strict=True):
                        mine[channel] = its[0]
                    shift[channel] += added
                    break
            else:
                return None
        return self._form(numbers, shift)

    def _factors(self) -> np.ndarray:
        """The nearest to what is asked, (channels,) of the dtype."""
        import numpy as np

        scale = self.asked.scale
        if isinstance(scale, FloatScale):
            return np.array([max(factor, LEAST_FACTOR) for factor in scale.scale], self.dtype)
        factors: np.ndarray = np.ldexp(np.array(scale.multiplier, np.float64), np.array(scale.shift) - 31)
        return factors.astype(self.dtype)

    def _offsets(self, steps: _Steps, factors: np.ndarray) -> tuple[_Numbers, np.ndarray]:
        """The best offsets for each factor, and how far they are beyond what may be, 0 or less where they are not.

        Args:
            steps: of n channels, or of one.
            factors: (n,).
        """
        import numpy as np

        at, before = (self._product(values, factors) for values in (steps.at, steps.before))
        lower = np.where(steps.is_reached, self.least - at, -np.inf)
        upper = np.where(steps.is_before, self.most - before, np.inf)
        if not self.two_offsets:
            above, gap = self._between(lower.max(1), upper.min(1))
            return _Numbers(factors, above, above, self.fused), gap
        ends = [
            (np.where(at_side, lower, -np.inf).max(1), np.where(before_side, upper, np.inf).min(1))
            for at_side, before_side in ((steps.at >= 0, steps.before >= 0), (steps.at < 0, steps.before < 0))
        ]
        (above, gap), (below, other) = (self._between(*pair) for pair in ends)
        # An offset that is bounded from one side only keeps to the other one, so that all of it is monotonous.
        above, below = (
            np.where(np.isfinite(low) & np.isfinite(high), mine, its.clip(low + 0.25, high - 0.25)).astype(self.dtype)
            for (low, high), mine, its in ((ends[0], above, below), (ends[1], below, above))
        )
        return _Numbers(factors, above, below, self.fused), np.maximum(gap, other)

    def _product(self, values: np.ndarray, factors: np.ndarray) -> np.ndarray:
        """As floats have it; in float64 as near as that is known."""
        import numpy as np

        x = values.astype(self.dtype)
        if self.fused and self.dtype == "float32":
            x = x.astype(np.float64)
        product: np.ndarray = (x * factors[:, None]).astype(np.float64)
        return product

    def _between(self, lower: np.ndarray, upper: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The offset in the middle between bounds, and how far it is beyond either."""
        import numpy as np

        # Where nothing bounds it from one side: a half from the other.
        is_below, is_above = np.isfinite(lower), np.isfinite(upper)
        low = np.where(is_below, lower, np.where(is_above, upper - 1, 0))
        high = np.where(is_above, upper, np.where(is_below, lower + 1, 0))
        middle = ((low + high) / 2).astype(self.dtype)
        return middle, np.maximum(lower - middle, middle - upper)

    def _neighbour(self, steps: _Steps, factor: np.floating) -> _Numbers | None:
        """Those of one channel, of a factor near to its own."""
        import numpy as np

        bits = factor.view(np.int32) + np.arange(-_NEIGHBOURS, _NEIGHBOURS + 1)
        numbers, gaps = self._offsets(steps, bits.clip(min=0).astype(np.int32).view(np.float32))
        for at in np.argsort(gaps)[:_TRIED]:
            if gaps[at] <= 0 and steps.met(numbers.at(at))[0]:
                return numbers.at(at)
        return None

    def _form(self, numbers: _Numbers, shift: np.ndarray) -> FloatForm:
        below = numbers.below.tolist() if self.two_offsets else ()
        shifts = shift[:1] if (shift == shift[0]).all() else shift
        limits = (self.asked.low, self.asked.high)
        return FloatForm(
            self.dtype, numbers.factors.tolist(), numbers.above.tolist(), below, *limits, self.fused, shifts.tolist()
        )


def find_sum_form(table: np.ndarray, first: int, factors: tuple[float, float], fused: bool) -> SumForm | None:
    """The form that is proven to give ``table[i, j]`` of ``first + i`` and ``first + j``, if one is found.

    Args:
        table: integers of at most 16 bits; its least and its greatest are where results are clipped.
        first: the integer that the first row and the first column belong to.
        factors: about what rows and columns are multiplied by.
        fused: whether products and sums are rounded once.
    """
    import numpy as np

    low, high = int(table.min()), int(table.max())
    integers = np.arange(first, first + len(table))
    x, y = integers[:, None], integers[None, :]
    least = np.where(table > low, table - 0.5, -np.inf)
    most = np.where(table < high, table + 0.5, np.inf)
    tries = sorted(
        itertools.product(range(-_STEPS, _STEPS + 1), repeat=2), key=lambda by: (abs(by[0]) + abs(by[1]), by)
    )
    for once, by in itertools.product((True, False) if fused else (False,), tries):
        lhs, rhs = (_stepped(factor, step) for factor, step in zip(factors, by, strict=True))
        product = x * float(lhs) + y * float(rhs)
        lower, upper = float((least - product).max()), float((most - product).min())
        # Where nothing bounds the offset from one side: a half from the other.
        lower, upper = max(lower, min(upper, 2.0**20) - 1), min(upper, max(lower, -(2.0**20)) + 1)
        if lower - upper > _HOPELESS:
            continue
        form = SumForm(float(lhs), float(rhs), (lower + upper) / 2, low, high, once)
        if np.array_equal(form.apply(x, y), table):
            return form
    return None


def _stepped(factor: float, steps: int) -> np.floating:
    """The float32 that many places beside the nearest to a factor."""
    import numpy as np

    bits = np.float32(factor).view(np.int32) + steps
    return np.int32(bits).view(np.float32)
