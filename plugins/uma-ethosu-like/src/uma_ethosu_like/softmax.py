"""Softmax as commands: fixed-point arithmetic on int32, as gemmlowp and TFLite's reference kernel have it.

e ** (x - max) is a table; the sum of a row becomes a number from 1/2 to 1 by its leading zeros; Newton's division gives
one over it; and each power is multiplied by that, and shifted back. A number of format Qm.n is an int32 with n bits
behind the point, and a product of two is the rounded upper half of twice the product (``SaturatingRoundingDoubling
HighMul``): for the machine a product with a shift of 31.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from uma.relay import FixedPoint
from uma.relay.pattern import Match

from .operations import FeatureMap, Kind, Operation, Rounding, Scale, Storage, Window

__all__ = ["exp_table", "softmax"]

_UNSCALED = Scale(1, 0)
_DOUBLING_HIGH = Scale(1 << 30, 31)
_HALF = Scale(1, 1)
_ONE = (1 << 31) - 1
_SUM_BITS = 12
"""Integer bits of the sum of a row."""

_48_OVER_17, _MINUS_32_OVER_17 = 1515870810, -1010580540  # Q2.29
_STEPS = 3

_EXP_MINUS_EIGHTH, _THIRD = 1895147668, 715827883  # Q0.31
# By the exponent of a power of two, from -2 on: e to the minus that power, Q0.31.
_EXPS = (1672461947, 1302514674, 790015084, 290630308, 39332535, 720401, 242)
_FRACTION_BITS = 26


def _high(a: NDArray[np.int64], b: NDArray[np.int64] | int) -> NDArray[np.int64]:
    return (a * b + (1 << 30)) >> 31


def _away(values: NDArray[np.int64], bits: int) -> NDArray[np.int64]:
    return (values + (1 << bits - 1) - (values < 0)) >> bits


def exp_table(scale: FixedPoint) -> NDArray[np.int32]:
    """e ** (scale * n / 2**26) as Q0.31, for n from -255 to 0. (gemmlowp, ``exp_on_negative_values``.)

    Args:
        scale: one fixed point that rounds ``double``, of a shift from 0 on.
    """
    multiplier, shift = scale.multiplier[0], scale.shift[0]
    differences = np.arange(-255, 1, dtype=np.int64)
    least = -((31 << _FRACTION_BITS) >> shift)
    x = _high(np.maximum(differences, least) << shift, multiplier)
    # A part from -1/4 to 0, by a polynomial around -1/8, and powers of two, by a factor for each.
    quarter = 1 << _FRACTION_BITS - 2
    part = (x & quarter - 1) - quarter
    y = (part << 5) + (1 << 28)
    square = _high(y, y)
    tail = _away(_high(_away(_high(square, square), 2) + _high(square, y), _THIRD) + square, 1)
    values = _EXP_MINUS_EIGHTH + _high(y + tail, _EXP_MINUS_EIGHTH)
    for bit, factor in enumerate(_EXPS, start=_FRACTION_BITS - 2):
        values = np.where((part - x) >> bit & 1, _high(values, factor), values)
    values = np.where(x == 0, _ONE, values)
    return np.where(differences < least, 0, values).astype(np.int32)


def softmax(match: Match, inputs: Sequence[Storage], out: Storage) -> Iterator[Operation]:
    """The operations of a softmax over the last dimension."""
    core = match.call("core")
    channels = core.shape[-1]
    rows = math.prod(core.shape[:-1])
    deep, flat = (1, rows, channels), (1, rows, 1)
    data = FeatureMap.whole(inputs[0], deep)
    operations: list[Operation] = []

    def do(
        kind: Kind,
        ifm: FeatureMap,
        second: FeatureMap | int | None = None,
        *,
        scale: Scale = _UNSCALED,
        reversed: bool = False,
        rounding: Rounding = "tfl",
    ) -> FeatureMap:
        shape = flat if kind == "reduce_sum" else ifm.shape
        ofm = FeatureMap.whole(Storage(f"softmax{len(operations)}", 4 * math.prod(shape)), shape, "int32")
        operations.append(Operation(kind, ofm, ifm, second, scale=scale, reversed=reversed, rounding=rounding))
        return ofm

    def number(value: int) -> FeatureMap:
        return FeatureMap.whole(Storage(str(value), 4, value.to_bytes(4, "little", signed=True)), (1, 1, 1), "int32")

    def product(a: FeatureMap, b: FeatureMap) -> FeatureMap:
        return do("mul", a, b, scale=_DOUBLING_HIGH)

    largest = Storage("largest", rows)
    operations.append(
        Operation(
            "max_pool",
            FeatureMap.whole(largest, (rows, 1, 1)),
            FeatureMap.whole(inputs[0], (rows, channels, 1)),
            window=Window((1, channels)),
        )
    )
    powers = FeatureMap.whole(Storage("powers", 4 * rows * channels), deep, "int32", 127)
    table = exp_table(core.attrs.scale).astype("<i4").tobytes()
    operations.append(
        Operation("sub", powers, data, FeatureMap.whole(largest, flat), scale=_UNSCALED, table=table),
    )
    powers = FeatureMap.whole(powers.storage, deep, "int32")
    total = do("reduce_sum", do("shr", powers, _SUM_BITS, rounding="natural"))
    zeros = do("clz", total)
    shift = do("sub", zeros, _SUM_BITS + 31 - 8, reversed=True)
    shifted = do("shl", total, do("sub", zeros, 1))
    rest = do("shl", do("sub", shifted, number(1 << 30)), 1)
    half = do("add", rest, number(_ONE), scale=_HALF)
    x = do("add", product(half, number(_MINUS_32_OVER_17)), number(_48_OVER_17))
    for _ in range(_STEPS):
        error = do("sub", product(x, half), number(1 << 29), reversed=True)
        x = do("add", x, do("mul", product(x, error), 4))
    # 2 * x, but for x = 1 that is one less than what int32 cannot hold: what it saturates to.
    saturated = do("add", do("sub", x, do("shr", x, 30, rounding="truncate")), x)
    parts = product(powers, saturated)
    ofm = FeatureMap.whole(out, deep, zero_point=-128)
    yield from operations
    yield Operation("shr", ofm, parts, shift, scale=_UNSCALED, rounding="natural")
