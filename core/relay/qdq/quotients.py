"""Integer sums that are dequantised, divided by an integer and quantised again, in integers: interpolation of quantised
data, whose weights are ratios of small integers.

In float32 a sum times its scale, over the divisor and over the scale of the result, rounds three times, so that noise
decides where halves go; here it is exact arithmetic, rounded half to even once.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from math import ceil

from ...tir.form.dtype import bounds
from ..expr import Call, Constant, Expr, const
from ..fixed_point import exact_fixed_point
from ..op import Bounds
from ..transform import value_range
from .dyadic import exponent_of
from .quantised_type import QuantisedType, StaysFloat, apply, dequantised

__all__ = ["quotient"]


def quotient(
    core: Expr, output: QuantisedType, lower: Callable[[Expr], Expr], ranges: dict[Expr, Bounds]
) -> Expr | None:
    """Quantise a quotient of a dequantised int32 sum and an integer, exactly.

    It is a ``qnn.requantize`` whose fixed point is proven to give, for every sum that there may be, what exact
    arithmetic does; where there is none, an integer division.

    Args:
        core: what is quantised.
        output: the type of the results.
        lower: returns what became of an expression.
        ranges: bounds of integer expressions, as `value_range` keeps them.

    Returns:
        Integers of type ``output``; None where ``core`` is something else.

    Raises:
        StaysFloat: the sums, or the numbers that their division needs, may overflow.
    """
    dividend, divisor = _dividend(core)
    source = None if dividend is None else dequantised(dividend)
    if source is None or source[1].dtype != "int32":
        return None
    sums, zero_point = lower(source[0]), source[1].zero_point
    low, high = value_range(sums, ranges)
    sides = Bounds(low - zero_point, high - zero_point)
    low, high = bounds("int32")
    if not low <= sides.low <= sides.high <= high:
        raise StaysFloat("its sums may overflow 32 bits")
    factor = Fraction(source[1].scale) / Fraction(output.scale) / divisor
    least, most = bounds(output.dtype)
    scale = exact_fixed_point(factor, sides, Bounds(least - output.zero_point, most - output.zero_point))
    if scale is None:
        return _divided(sums, zero_point, sides, factor, output)
    zero_points = {"input_zero_point": zero_point, "output_zero_point": output.zero_point}
    return apply("qnn.requantize", sums, scale=scale, **zero_points, dtype=output.dtype)


def _dividend(core: Expr) -> tuple[Expr | None, int]:
    """The dividend and the divisor, an integer above 1, of a quotient; None where ``core`` is something else. The
    canonical form multiplies by the inverse of a power of two."""
    if not isinstance(core, Call) or core.op_name not in ("divide", "multiply"):
        return None, 1
    is_product = core.op_name == "multiply"
    for dividend, other in (core.args, core.args[::-1]) if is_product else (core.args,):
        if not isinstance(other, Constant) or other.shape != () or other.dtype != "float32":
            continue
        number = other.data.item()
        if not 2.0**-31 <= number <= 2.0**31 or (is_product and exponent_of(number) is None):
            continue
        divisor = 1 / Fraction(number) if is_product else Fraction(number)
        if divisor.denominator == 1 and divisor > 1:
            return dividend, divisor.numerator
    return None, 1


def _divided(sums: Expr, zero_point: int, sides: Bounds, factor: Fraction, output: QuantisedType) -> Expr:
    """``(sums - zero_point) * factor``, rounded half to even, by division of integers that are not negative."""
    multiplier, divisor = factor.numerator, factor.denominator
    # An even number of steps moves no tie to the other side.
    steps = 2 * ceil(max(-sides.low, 0) * factor / 2)
    largest = 2 * (max(sides.high, 0) * multiplier + steps * divisor) + 2 * divisor
    dtype = "int32" if largest < 2**31 else "int64"
    if largest >= 2**63:
        raise StaysFloat(f"the exact division of its sums by {float(1 / factor):g} needs more than 64 bits")

    def number(value: int) -> Constant:
        import numpy as np

        return const(np.array(value, dtype))

    wide = sums if dtype == "int32" else apply("cast", sums, dtype=dtype)
    dividend = apply("multiply", wide, number(multiplier)) if multiplier > 1 else wide
    dividend = apply("add", dividend, number(steps * divisor - zero_point * multiplier))
    is_odd = apply("bitwise_and", apply("divide", dividend, number(divisor)), number(1))
    # A half more is the next integer, which a tie reaches only if the integer before it is odd.
    twice = apply("add", apply("multiply", dividend, number(2)), number(divisor - 1))
    rounded = apply("divide", apply("add", twice, is_odd), number(2 * divisor))
    stored = apply("add", rounded, number(output.zero_point - steps))
    low, high = bounds(output.dtype)
    return apply("cast", apply("clip", stored, a_min=low, a_max=high), dtype=output.dtype)
