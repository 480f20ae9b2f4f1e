"""Scaled sums of integers as TFLite's reference kernels have them where one 31-bit fixed point is not enough.

Sums of int16 data are int64 in the kernels. Where int32 may not hold them, data are taken as ``256 * high + low``, of
int8 and uint8, whose sums int32 holds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...errors import ModelError
from ...relay.expr import Constant, Expr, Var, call, const
from ...relay.op import Bounds, FixedPoint
from ...relay.transform.value_range import value_range
from ...tir.form.dtype import bounds
from .layer import Layer, quantisation

__all__ = ["int16_sums", "of_15_bits", "scaled_by_15_bits", "scaled_in_float64"]


def int16_sums(layer: Layer, data: Expr, sums_of: Callable[[Expr], Expr]) -> Expr:
    """Return sums of int16 data with the bias, operand 2, if there is one: int32 where that is proven to hold them for
    any data, otherwise int64.

    Args:
        layer: the operator.
        data: its data.
        sums_of: returns the int32 sums for such data, or for data of int8 or uint8 of its shape.

    Raises:
        ModelError: the data has a zero point, or not even sums of bytes of it are proven to fit int32.
    """
    import numpy as np

    if quantisation(layer.tensor(0))[1]:
        raise ModelError("its int16 has a zero point that is not 0")
    bias = layer.constant(2) if layer.has(2) else np.zeros(1, np.int64)
    least, greatest = bounds("int32")
    if bias is not None:
        low, high = _bounds(layer, sums_of, data)
        if least <= low + int(bias.min()) and high + int(bias.max()) <= greatest:
            sums = sums_of(data)
            return call("add", sums, const(bias.astype(np.int32))) if layer.has(2) else sums
    halves = (
        call("cast", call("right_shift", data, const(8, "int16")), dtype="int8"),
        call("cast", data, dtype="uint8"),
    )
    parts = []
    for half in halves:
        low, high = _bounds(layer, sums_of, half)
        if low < least or high > greatest:
            raise ModelError(f"its sums of bytes may be from {low} to {high}, which int32 does not hold")
        parts.append(call("cast", sums_of(half), dtype="int64"))
    wide = call("add", call("multiply", parts[0], const(256, "int64")), parts[1])
    return call("add", wide, call("cast", layer.value(2), dtype="int64")) if layer.has(2) else wide


def _bounds(layer: Layer, sums_of: Callable[[Expr], Expr], data: Expr) -> tuple[int, int]:
    """Return bounds of the sums for any data, and for any weight if the weight is not a constant."""
    weight = layer.value(1)
    ranges = {} if isinstance(weight, Constant) else {weight: Bounds(*bounds(weight.dtype))}
    proven = value_range(sums_of(Var("any", data.type)), ranges)
    return proven.low, proven.high


def of_15_bits(scale: FixedPoint) -> FixedPoint:
    """Multipliers rounded to 15 bits, and one rounding: TFLite's ``MultiplyByQuantizedMultiplier`` of an int64."""
    most = (1 << 15) - 1
    short = [most if m >= most << 16 else (m + (1 << 15)) >> 16 for m in scale.multiplier]
    return FixedPoint(tuple(m << 16 for m in short), scale.shift, "up")


def scaled_by_15_bits(sums: Expr, scale: FixedPoint) -> Expr:
    """Return int64 sums as int16, multiplied by fixed points `of_15_bits`: one, or one for each of the last dimension.

    Raises:
        ModelError: a scale is 2**15 or more.
    """
    import numpy as np

    rights = [15 - shift for shift in scale.shift]
    if min(rights) < 1:
        raise ModelError(f"its sums are scaled by 2**{-min(rights)} or more")

    def table(numbers: Sequence[int]) -> Constant:
        return const(numbers[0] if len(numbers) == 1 else np.array(numbers), "int64")

    product = call("multiply", sums, table([multiplier >> 16 for multiplier in scale.multiplier]))
    half = table([1 << (right - 1) for right in rights])
    shifted = call("right_shift", call("add", product, half), table(rights))
    # (The kernel has it in an int32 then, whatever is lost.)
    least, greatest = bounds("int16")
    return call("cast", call("clip", call("cast", shifted, dtype="int32"), a_min=least, a_max=greatest), dtype="int16")


def scaled_in_float64(sums: Expr, factors: Sequence[float], zero_point: int, dtype: str) -> Expr:
    """Return ``round(float64(sums) * factor) + zero_point``, halves away from zero, saturated to ``dtype``: what
    TFLite's reference kernel of FULLY_CONNECTED computes.

    Args:
        sums: int32 or int64.
        factors: one for all, or one for each of the last dimension.
        zero_point: of the result.
        dtype: of the result, of 8 or 16 bits.
    """
    low, high = bounds(dtype)
    real = call("multiply", call("cast", sums, dtype="float64"), const(list(factors), "float64"))
    size = call("abs", real)
    floor = call("floor", size)
    up = call("greater_equal", call("subtract", size, floor), const(0.5, "float64"))
    rounded = call("add", floor, call("cast", up, dtype="float64"))
    signed = call("where", call("less", real, const(0.0, "float64")), call("negative", rounded), rounded)
    limited = call("cast", call("clip", signed, a_min=low - zero_point, a_max=high - zero_point), dtype="int32")
    return call("cast", call("add", limited, const(zero_point, "int32")) if zero_point else limited, dtype=dtype)
