"""Softmax of int16: exp(x) and 1 / (1 + x) as tables of 513 numbers, and straight lines between them.

TFLite's ``reference_ops::SoftmaxInt16``. Numbers have 15 bits behind the point.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...errors import ModelError
from ...tir import te
from ...tir.form.nodes import Call, Expr, const, maximum, minimum
from ..fixed_point import scale_array
from ..op import Attrs, FixedPoint
from ..types import TensorType
from .qnn_scale import Scaler

if TYPE_CHECKING:
    import numpy as np

__all__ = ["check", "compute", "reference"]

_LOW, _HIGH = -(1 << 15), (1 << 15) - 1
_SEGMENTS = 512

MAX_CHANNELS = (1 << 16) - 1
"""The sum of so many ones still fits."""

_MOST_SHIFT = 14
"""Of the scale: a difference of 17 bits still fits int32 then."""


def _table(function: Callable[[float], float], start: float) -> np.ndarray:
    """A function on ``start`` .. ``start + length``, length 10 or 1, as the ends of segments: int32 (513,).

    Each is moved by half of what a line is off in the middle of its segment. (TFLite, ``LUTPopulate``.)
    """
    import numpy as np

    step = max(1.0, -start) / _SEGMENTS
    entries = []
    for segment in range(_SEGMENTS):
        segment_start = start + segment * step
        exact = [_away(function(segment_start + part * step) * 2**15) for part in (0, 0.5)]
        middle = _away((function(segment_start + step) * 2**15 + exact[0]) / 2)
        entries.append(exact[0] - _away((middle - exact[1]) / 2))
    entries.append(_away(function(start + _SEGMENTS * step) * 2**15))
    result: np.ndarray = np.clip(np.array(entries), _LOW, _HIGH).astype(np.int32)
    return result


def _away(value: float) -> int:
    whole = math.floor(abs(value) + 0.5)
    return whole if value >= 0 else -whole


def _exp() -> np.ndarray:
    return _table(math.exp, -10.0)


def _inverse() -> np.ndarray:
    return _table(lambda x: 1 / (1 + x), 0.0)


def check(attrs: Attrs, data: TensorType) -> None:
    """ModelError unless there is one scale that fits, and not too many channels."""
    scale = attrs.scale
    fits = isinstance(scale, FixedPoint) and len(scale) == 1 and scale.rounding == "double"
    if not fits or scale.shift[0] > _MOST_SHIFT:
        raise ModelError(f"scale must be one fixed point of rounding 'double' and shift <= {_MOST_SHIFT}, not {scale}")
    if not data.shape or data.shape[-1] > MAX_CHANNELS:
        raise ModelError(f"it takes at least one dimension, and at most {MAX_CHANNELS} channels of int16")


def reference(attrs: Attrs, data: np.ndarray) -> np.ndarray:
    """In numpy."""
    import numpy as np

    def line(values: np.ndarray, table: np.ndarray) -> np.ndarray:
        values = np.clip(values, _LOW, _HIGH)
        place, rest = (values >> 7) + _SEGMENTS // 2, values & 127
        interpolated: np.ndarray = table[place] + (((table[place + 1] - table[place]) * rest + 64) >> 7)
        return interpolated

    wide = data.astype(np.int64)
    scaled = scale_array(wide - wide.max(axis=-1, keepdims=True), attrs.scale, 0)
    exps = line(scaled + _HIGH, _exp().astype(np.int64))
    total = exps.sum(axis=-1, keepdims=True)
    bits = np.vectorize(lambda value: int(value).bit_length() - 1, otypes=[np.int64])(total)
    # The sum as 1 .. 2; from it 1 and half of the range are taken.
    whole = ((total << (30 - bits)) + (1 << 13)) >> 14
    reciprocal = line(whole - (1 << 16) - (1 << 15), _inverse().astype(np.int64))
    result = (exps * reciprocal + (1 << (bits - 1))) >> bits
    return np.asarray(np.clip(result, 0, _HIGH).astype(np.int16))


def compute(attrs: Attrs, out: TensorType, data: te.Tensor) -> te.Tensor:
    """The same as a tensor expression."""
    exp, inverse = te.constant(_exp(), "exp"), te.constant(_inverse(), "inverse")
    outer, channels = out.shape[:-1], out.shape[-1]
    k, j = te.reduce_axis(channels, "k"), te.reduce_axis(channels, "j")
    scaler = Scaler(attrs.scale)
    greatest = te.compute(outer, lambda *row: te.max(data[(*row, k)], k), "greatest")

    def line(value: Expr, table: te.Tensor) -> Expr:
        value = minimum(maximum(value, _LOW), _HIGH)
        # Limits are for the proof that no index leaves the table.
        place = minimum(maximum((value >> 7) + _SEGMENTS // 2, 0), _SEGMENTS - 1)
        return table[place] + (((table[place + 1] - table[place]) * (value & 127) + 64) >> 7)

    def power(row: tuple[Any, ...], channel: Any) -> Expr:
        difference = data[(*row, channel)].astype("int32") - greatest[row].astype("int32")
        return line(scaler(difference) + _HIGH, exp)

    total = te.compute(outer, lambda *row: te.sum(power(row, j), j), "total")

    def reciprocal_of(*row: Any) -> Expr:
        left_shift = (Call("clz", total[row]) - 1).astype("int64")
        whole = ((total[row].astype("int64") << left_shift) + (1 << 13)) >> 14
        return line(whole.astype("int32") - (1 << 16) - (1 << 15), inverse)

    reciprocal = te.compute(outer, reciprocal_of, "reciprocal")

    def at(*index: Any) -> Expr:
        *first, channel = index
        row = tuple(first)
        bits = 31 - Call("clz", total[row])
        result = (power(row, channel) * reciprocal[row] + (const(1, "int32") << (bits - 1))) >> bits
        return minimum(maximum(result, 0), _HIGH).astype("int16")

    return te.compute(out.shape, at, "softmax")
