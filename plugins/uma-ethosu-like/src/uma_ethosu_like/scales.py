"""Scales of tensors, such that TFLite makes the fixed points of a region of them.

A region has multipliers of 31 bits; a TFLite file has scales in float32, of which a compiler makes the multipliers:
that of channel c of a convolution is ``s_in * w[c] / s_out``, in float64, rounded to 31 bits. So scales are looked for
that give back each multiplier to the bit. Not every region has any; one that comes from a TFLite file has those that
it was made of.

They are found by trying all significands of 24 bits, in numpy. A convolution's multipliers give the *ratio* of the
scales of its input and output: with each w[0] that there may be, the other channels say whether their weights have
scales in float32 too, and with a few channels one ratio of some 32 bits is left. Then the scale of one tensor is any
significand, those of others follow by ratios, and those are kept that are float32 to the last bit. A scale of weights
takes up any power of two, one of a sum does not.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from uma.relay import Expr, FixedPoint

__all__ = ["Scales", "Unsolved", "multipliers_of", "weight_scales"]

_SIGNIFICANDS = 1 << 23
_CHUNK = 1 << 16
_MOST_PAIRS = 1 << 23
_MOST_KEPT = 1 << 16
_FEW_RATIOS = 64
_TRIED = 1 << 16
_EFFORT = 4
_ULPS = 1e-15

_Floats = NDArray[np.float64]


class Unsolved(Exception):
    """There are no scales for a layer, with those before it.

    Args:
        at: the layer, as it was given.
    """

    def __init__(self, at: Expr) -> None:
        super().__init__()
        self.at = at


def multipliers_of(factors: _Floats) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Multiplier and shift of each factor, as TFLite's ``QuantizeMultiplier`` gives them: see `FixedPoint`."""
    significands, shifts = np.frexp(factors)
    multipliers = np.floor(significands * 2.0**31 + 0.5).astype(np.int64)
    carried = multipliers == 1 << 31
    return np.where(carried, 1 << 30, multipliers), shifts.astype(np.int64) + carried


def weight_scales(input_scale: float, output_scale: float, fixed: FixedPoint) -> NDArray[np.float32]:
    """The scale of the weights of each channel, from those of what a convolution is given and makes."""
    scales: NDArray[np.float32] = _weight_scales(np.array([input_scale]), np.array([output_scale]), fixed)[0]
    return scales


def _weight_scales(input_scales: _Floats, output_scales: _Floats, fixed: FixedPoint) -> NDArray[np.float32]:
    """(candidates, channels)."""
    wanted = np.ldexp(np.array(fixed.multiplier, np.float64), np.array(fixed.shift) - 31)
    scales: NDArray[np.float32] = (wanted[None] * (output_scales / input_scales)[:, None]).astype(np.float32)
    return scales


def _float32(values: _Floats) -> _Floats:
    return values.astype(np.float32).astype(np.float64)


@lru_cache(maxsize=1)
def _significands() -> _Floats:
    significands = 1 + np.arange(_SIGNIFICANDS) / _SIGNIFICANDS
    significands.flags.writeable = False
    return significands


@dataclass
class _Candidates:
    """Scales of some tensors: the n-th of each array belong together.

    Args:
        columns: by tensor; all of one length.
        fixed: whether they are what they are, so that a power of two more is not the same.
    """

    columns: dict[int, _Floats]
    fixed: bool = False

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def take(self, rows: NDArray[np.int64] | NDArray[np.bool_]) -> None:
        """Keeps some, which may be there several times."""
        self.columns = {tensor: values[rows] for tensor, values in self.columns.items()}

    def scaled(self, factors: _Floats) -> None:
        """Changes each by a factor."""
        self.columns = {tensor: values * factors for tensor, values in self.columns.items()}


@dataclass(frozen=True)
class _Ratio:
    """``scale[a] / scale[b]`` is within one of the intervals; or is so but for a power of two."""

    a: int
    b: int
    low: _Floats
    high: _Floats
    any_power: bool
    at: Expr


@dataclass(frozen=True)
class _Layer:
    """A convolution of ``a`` that makes ``b``."""

    a: int
    b: int
    fixed: FixedPoint
    at: Expr

    def holds(self, a: _Floats, b: _Floats) -> NDArray[np.bool_]:
        """For which candidates there are scales of weights that give all multipliers. Each channel leaves about one of
        a hundred, so one after the other is looked at.
        """
        rows = np.arange(len(a))
        for multiplier, shift in dict.fromkeys(zip(self.fixed.multiplier, self.fixed.shift, strict=True)):
            one = FixedPoint((multiplier,), (shift,), self.fixed.rounding)
            weights = _weight_scales(a[rows], b[rows], one)[:, 0].astype(np.float64)
            multipliers, shifts = multipliers_of(a[rows] * weights / b[rows])
            rows = rows[(multipliers == multiplier) & (shifts == shift)]
        mask = np.zeros(len(a), np.bool_)
        mask[rows] = True
        return mask


@dataclass
class Scales:
    """What must hold of the scales of tensors, which are numbers from 0 on."""

    count: int = 0
    ratios: list[_Ratio] = field(default_factory=list)
    layers: list[_Layer] = field(default_factory=list)
    pins: dict[int, float] = field(default_factory=dict)

    def tensor(self) -> int:
        """A new one."""
        self.count += 1
        return self.count - 1

    def pin(self, tensor: int, scale: float, at: Expr) -> None:
        """Its scale is known.

        Raises:
            Unsolved: it is another one already.
        """
        if self.pins.setdefault(tensor, scale) != scale:
            raise Unsolved(at)

    def layer(self, source: int, result: int, fixed: FixedPoint, at: Expr) -> None:
        """A convolution: one fixed point, or one for each channel."""
        self.layers.append(_Layer(source, result, fixed, at))

    def ratio(self, a: int, b: int, fixed: FixedPoint, power: int, at: Expr) -> None:
        """``scale[a] / scale[b]`` is a fixed point, times two to that power."""
        [multiplier], [shift] = fixed.multiplier, fixed.shift
        bounds = [np.array([math.ldexp(multiplier + half, shift - 31 + power)]) for half in (-0.5, 0.5)]
        if multiplier == 1 << 30:
            bounds[0] = np.array([math.ldexp(multiplier - 0.25, shift - 31 + power)])
        self.ratios.append(_Ratio(a, b, bounds[0], bounds[1], False, at))

    def equal(self, a: int, b: int, at: Expr) -> None:
        """Both have one scale."""
        one = np.ones(1)
        self.ratios.append(_Ratio(a, b, one * (1 - 2.0**-32), one * (1 + 2.0**-32), False, at))

    def solve(self) -> list[float]:
        """The scale of each tensor, a float32.

        Raises:
            Unsolved: there are none.
        """
        search = _Search(self)
        search.run()
        return [float(search.sets[n].columns[n][0]) if n in search.sets else 1.0 for n in range(self.count)]


class _Search:
    """Candidates for tensors, put together one condition after the other."""

    def __init__(self, problem: Scales) -> None:
        self.problem = problem
        self.sets: dict[int, _Candidates] = {}

    def run(self) -> None:
        for tensor, scale in self.problem.pins.items():
            self.sets[tensor] = _Candidates({tensor: np.array([scale])}, fixed=True)
        weak = [one for one in self.problem.layers if len(set(one.fixed.multiplier)) < 3]
        strong = [*self.problem.ratios, *(_ratios(one) for one in self.problem.layers if one not in weak)]
        for edge in _side_by_side(strong):
            self.ratio(edge)
        self.layers(self.problem.layers)

    def layers(self, layers: Sequence[_Layer]) -> None:
        """All convolutions. Where the candidates that are kept at first do not do, more are tried: first by what leaves
        the fewest, last by what has a tensor that nothing else has.
        """
        groups = {id(one): _Candidates(dict(one.columns), one.fixed) for one in self.sets.values()}
        before = {tensor: groups[id(one)] for tensor, one in self.sets.items()}
        with suppress(Unsolved):
            for layer in layers:
                self.layer(layer)
            return
        self.sets = before
        ends = Counter(end for one in layers for end in (one.a, one.b))
        ends.update(end for one in self.problem.ratios for end in (one.a, one.b))

        def late(one: _Layer) -> tuple[bool, int]:
            return min(ends[one.a], ends[one.b]) == 1, -len(set(one.fixed.multiplier))

        for layer in sorted(layers, key=late):
            self.layer(layer, _EFFORT)

    def ratio(self, edge: _Ratio) -> None:
        """One more ratio."""
        if edge.a == edge.b:
            held = np.any((edge.low <= 1) & (1 <= edge.high)) or edge.any_power
            if not held:
                raise Unsolved(edge.at)
        elif self.sets.get(edge.a) is self.sets.get(edge.b) is not None:
            self.keep(
                edge.a, _fits(self.sets[edge.a].columns[edge.a], self.sets[edge.b].columns[edge.b], edge), edge.at
            )
        elif edge.a in self.sets or edge.b not in self.sets:
            self.derive(edge)
        else:
            turned = _Ratio(edge.b, edge.a, 1 / edge.high, 1 / edge.low, edge.any_power, edge.at)
            self.derive(turned)

    def derive(self, edge: _Ratio) -> None:
        """``b`` from ``a``, of which candidates may be known."""
        if edge.a not in self.sets:
            self.sets[edge.a] = _Candidates({edge.a: _significands()})
        one, other = self.sets[edge.a], self.sets.get(edge.b)
        if len(one) * len(edge.low) > 2 * _SIGNIFICANDS:
            one.take(np.arange(max(1, 2 * _SIGNIFICANDS // len(edge.low))))
        values = one.columns[edge.a]
        rows, columns = [], []
        for low, high in zip(edge.low, edge.high, strict=True):
            for start in range(0, len(values), _CHUNK):
                some = values[start : start + _CHUNK]
                b = _float32(some / ((low + high) / 2))
                right = np.flatnonzero((low * b <= some) & (some <= high * b))
                rows.append(right + start)
                columns.append(b[right])
        one.take(np.concatenate(rows))
        self.join(edge.a, edge.b, np.concatenate(columns), other, edge)

    def join(self, a: int, b: int, values: _Floats, other: _Candidates | None, edge: _Ratio) -> None:
        """What ``b`` would be for each candidate of ``a``, with what it may be."""
        one = self.sets[a]
        if other is None:
            one.columns[b] = values
            self.sets[b] = one
            self.checked(one, edge.at)
            return
        theirs = np.frexp(other.columns[b])[0]
        order = np.argsort(theirs, kind="stable")
        wanted, sorted_theirs = np.frexp(values)[0], theirs[order]
        first, last = (np.searchsorted(sorted_theirs, wanted, side=side) for side in ("left", "right"))
        counts = last - first
        rows = np.repeat(np.arange(len(values)), counts)
        offsets = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        one.take(rows)
        other.take(order[np.repeat(first, counts) + offsets])
        if not edge.any_power and len(rows):
            factors = values[rows] / other.columns[b]
            if one.fixed and other.fixed:
                same = factors == 1
                one.take(same)
                other.take(same)
            elif other.fixed:
                one.scaled(1 / factors)
            else:
                other.scaled(factors)
        self.merge(one, other, edge.at)

    def merge(self, one: _Candidates, other: _Candidates, at: Expr) -> None:
        """Two that have been made to belong together."""
        one.columns |= other.columns
        one.fixed |= other.fixed
        self.sets |= dict.fromkeys(other.columns, one)
        self.checked(one, at)

    def checked(self, one: _Candidates, at: Expr) -> None:
        if not len(one):
            raise Unsolved(at)

    def keep(self, tensor: int, right: NDArray[np.bool_], at: Expr) -> None:
        self.sets[tensor].take(right)
        self.checked(self.sets[tensor], at)

    def layer(self, layer: _Layer, effort: int = 1) -> None:
        """Candidates for which a convolution's weights have scales; of so many times as many pairs."""
        for tensor, beside in ((layer.a, layer.b), (layer.b, layer.a)):
            if tensor not in self.sets:
                step = min(len(self.sets[beside]), _CHUNK) if beside in self.sets else _CHUNK
                self.sets[tensor] = _Candidates({tensor: _significands()[:: max(1, step // effort)]})
        one, other = self.sets[layer.a], self.sets[layer.b]
        a, b = one.columns[layer.a], other.columns[layer.b]
        count = len(a) if one is other else len(a) * len(b)
        rows, others, kept = [], [], 0
        for start in range(0, count, _TRIED):
            numbers = np.arange(start, min(start + _TRIED, count))
            row, column = (numbers, numbers) if one is other else np.divmod(numbers, len(b))
            hits = np.flatnonzero(layer.holds(a[row], b[column]))
            rows.append(row[hits])
            others.append(column[hits])
            kept += len(hits)
            if kept > _MOST_KEPT or start > effort * _MOST_PAIRS:
                break
        one.take(np.concatenate(rows))
        if one is not other:
            other.take(np.concatenate(others))
        self.merge(one, other, layer.at)


def _fits(a: _Floats, b: _Floats, edge: _Ratio) -> NDArray[np.bool_]:
    mask = np.zeros(len(a), np.bool_)
    quotient = a / b
    for low, high in zip(edge.low, edge.high, strict=True):
        power = np.floor(np.log2(quotient / low) + 0.5) if edge.any_power else np.zeros(len(a))
        shifted = np.ldexp(quotient, -power.astype(np.int64))
        mask |= (low * (1 - _ULPS) <= shifted) & (shifted <= high * (1 + _ULPS))
    return mask


def _side_by_side(edges: Sequence[_Ratio]) -> Iterator[_Ratio]:
    """Those that fix powers of two first, then those with few intervals; and each beside one that was before, where
    there is one.
    """
    reached: set[int] = set()
    groups = [[one for one in edges if not one.any_power]]
    groups += [
        [one for one in edges if one.any_power and (len(one.low) > _FEW_RATIOS) == many] for many in (False, True)
    ]
    for remaining in groups:
        while remaining:
            edge = next((one for one in remaining if not reached.isdisjoint((one.a, one.b))), remaining[0])
            remaining.remove(edge)
            reached |= {edge.a, edge.b}
            yield edge


def _ratios(layer: _Layer) -> _Ratio:
    """The ratios of input and output, but for powers of two, with which each channel has a scale of its weights.

    Of the first channel each significand is tried.
    """
    first, *others = sorted(set(layer.fixed.multiplier))
    lows, highs = [], []
    for start in range(_SIGNIFICANDS, 2 * _SIGNIFICANDS, _CHUNK):
        weight = np.arange(start, start + _CHUNK, dtype=np.float64)
        low, high = (first - 0.5) / weight, (first + 0.5) / weight
        for multiplier in others:
            exact = multiplier / first * weight
            power = np.where(exact < _SIGNIFICANDS, 0.5, np.where(exact >= 2 * _SIGNIFICANDS, 2.0, 1.0))
            rounded = np.rint(exact / power) * power
            inside = np.flatnonzero(np.abs(exact - rounded) <= exact * (0.5 / first + 0.5 / multiplier))
            weight, rounded = weight[inside], rounded[inside]
            low = np.maximum(low[inside], (multiplier - 0.5) / rounded)
            high = np.minimum(high[inside], (multiplier + 0.5) / rounded)
            some = low <= high * (1 + _ULPS)
            weight, low, high = weight[some], low[some], high[some]
        lows.append(low)
        highs.append(high)
    limits = np.concatenate(lows), np.concatenate(highs)
    if not len(limits[0]):
        raise Unsolved(layer.at)
    scale = 2.0 ** -np.floor(np.log2(limits[0]))
    return _Ratio(layer.a, layer.b, limits[0] * scale, limits[1] * scale, True, layer.at)
