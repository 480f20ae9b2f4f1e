"""Float arithmetic that is exact, done in integers.

Where scales are powers of two, every value between DequantizeLinear and QuantizeLinear is an integer times a power of
two. As long as the integers stay below 2**24, so do those of every partial sum, and float32 holds each of them: then
floats are exact, whatever the order in which they add, and int32 gives the same numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ...tir.form.scalar_semantics import round_float32
from ..expr import Call, Constant, Expr, TupleGetItem, const
from ..op import Bounds, FloatScale
from ..ops.common import normalise_axes
from ..transform import value_range
from ..visit import children
from .average_pools import window_sums
from .dyadic import EXPONENTS, LIMIT, dyadic_number, exponent_of, narrow, shifted, stored_constant
from .fused import KERNELS
from .quantised_type import QuantisedType, StaysFloat, apply, dequantised

__all__ = ["PowersOfTwo"]

_LIMITS_NOTHING = 2.0**127
"""Limits of such a size are above all numbers here: that is also how a limit is spelled that was left out."""


@dataclass(frozen=True)
class _Number:
    """``value * 2**exponent``, where value is an int32 expression with elements below 2**24 in size.

    Where there are ``shifts``, channel c, of the last dimension, is ``value * 2**(exponent + shifts[c])``. The least of
    them is 0.
    """

    value: Expr
    exponent: int
    shifts: tuple[int, ...] = ()


class PowersOfTwo:
    """Integers for floats, for as many values of one graph as are asked for.

    Args:
        lower: gives what became of an integer expression that is dequantised.
        moved: is told of every expression that became another one.
        ranges: bounds of integer expressions, as `value_range` keeps them.
    """

    def __init__(
        self, lower: Callable[[Expr], Expr], record: Callable[[Expr, Expr], None], ranges: dict[Expr, Bounds]
    ) -> None:
        self._lower = lower
        self._record = record
        self._converted: dict[Expr, _Number | StaysFloat] = {}
        self._ranges = ranges

    def quantised(self, data: Expr, output: QuantisedType) -> Expr:
        """``data``, floats, of type ``output``.

        Raises:
            StaysFloat: that cannot be had exactly from integers.
        """
        number = self._number(data)
        exponent = exponent_of(output.scale)
        if exponent is None:
            raise StaysFloat(f"the scale {output.scale:g} of its result is not a power of two")
        factors = [number.exponent + shift - exponent for shift in number.shifts or (0,)]
        if any(factor not in EXPONENTS for factor in factors):
            raise StaysFloat("its numbers leave the range of float32")
        attrs = {"output_zero_point": output.zero_point, "dtype": output.dtype}
        scale = FloatScale(tuple(2.0**factor for factor in factors))
        return apply("qnn.requantize", number.value, scale=scale, **attrs)

    def _number(self, root: Expr) -> _Number:
        stack = [root]
        while stack:
            expr = stack[-1]
            waiting = [child for child in self._inputs(expr) if child not in self._converted]
            if waiting and expr not in self._converted:
                stack += waiting
                continue
            stack.pop()
            if expr not in self._converted:
                self._converted[expr] = self._try(expr)
        result = self._converted[root]
        if isinstance(result, StaysFloat):
            raise StaysFloat(result.reason)
        return result

    def _inputs(self, expr: Expr) -> tuple[Expr, ...]:
        """The floats that ``expr`` is computed from."""
        if isinstance(expr, Call) and expr.op_name == "qnn.dequantize":
            return ()
        if isinstance(expr, TupleGetItem) and isinstance(expr.tuple, Call):
            return expr.tuple.args
        if isinstance(expr, Call) and expr.op_name in KERNELS:
            return ()
        if isinstance(expr, Call) and expr.op_name == "take":
            return expr.args[:1]
        return children(expr)

    def _try(self, expr: Expr) -> _Number | StaysFloat:
        try:
            number = self._convert(expr)
            self._bounded(number.value)
            if number.exponent not in EXPONENTS:
                raise StaysFloat("its numbers leave the range of float32")
        except StaysFloat as reason:
            return reason
        self._record(expr, number.value)
        return number

    def _convert(self, expr: Expr) -> _Number:
        if (constant := stored_constant(expr)) is not None:
            constant = constant.along(-1)
            return _Number(const(constant.integers), constant.exponent, constant.shifts)
        if (dequantisation := dequantised(expr)) is not None:
            data, qtype = self._lower(dequantisation[0]), dequantisation[1]
            wide = data if data.dtype == "int32" else apply("cast", data, dtype="int32")
            return _Number(_difference(wide, qtype.zero_point), _unit(qtype))
        source = expr.tuple if isinstance(expr, TupleGetItem) else expr
        rule = _RULES.get(source.op_name or "") if isinstance(source, Call) else None
        if rule is None or not isinstance(source, Call):
            raise StaysFloat(_not_exact(source))
        numbers = []
        for child in self._inputs(expr):
            number = self._converted[child]
            if isinstance(number, StaysFloat):
                raise StaysFloat(number.reason)
            numbers.append(number if rule is PowersOfTwo.plus else self._uniform(number))
        number = rule(self, source, numbers)
        if isinstance(expr, TupleGetItem) and isinstance(number.value, Call):
            part = TupleGetItem(number.value, expr.index)
            self._ranges[part] = value_range(number.value.args[0], self._ranges)
            return _Number(part, number.exponent)
        return number

    # --- bounds ------------------------------------------------------------------------------------------------------

    def _largest(self, value: Expr) -> int:
        low, high = value_range(value, self._ranges)
        return max(-low, high)

    def _bounded(self, value: Expr, times: int = 1) -> None:
        if self._largest(value) * times >= LIMIT:
            raise StaysFloat("its numbers may need more than the 24 bits of a float32")

    def _uniform(self, number: _Number) -> _Number:
        """The same with one unit for all channels."""
        import numpy as np

        if not number.shifts:
            return number
        if isinstance(number.value, Constant):
            return _Number(const(shifted(number.value.data, np.array(number.shifts))), number.exponent)
        self._bounded(number.value, 1 << max(number.shifts))
        factors = const(np.array([1 << min(shift, 24) for shift in number.shifts], np.int32))
        return _Number(apply("multiply", number.value, factors), number.exponent)

    def _aligned(self, numbers: Sequence[_Number], *exponents: int) -> tuple[list[Expr], int]:
        """The numbers in their smallest unit, which is no larger than any of ``exponents``."""
        unit = min([*(number.exponent for number in numbers), *exponents])
        values = []
        for number in numbers:
            factor = 2 ** min(number.exponent - unit, 24)
            if self._largest(number.value):
                self._bounded(number.value, factor)
            values.append(_times(number.value, factor))
        return values, unit

    # --- rules -------------------------------------------------------------------------------------------------------

    def same(self, expr: Call, numbers: Sequence[_Number]) -> _Number:
        """The same op on the integers; all of them in one unit."""
        values, unit = self._aligned(numbers)
        return _Number(apply(expr.op_name or "", *values, **dict(expr.attrs.items)), unit)

    def pick(self, expr: Call, numbers: Sequence[_Number]) -> _Number:
        """What stands at indices, which are integers anyway."""
        (number,), indices = numbers, self._lower(expr.args[1])
        return _Number(apply("take", number.value, indices, axis=expr.attrs.axis), number.exponent)

    def plus(self, expr: Call, numbers: Sequence[_Number]) -> _Number:
        """A sum or a difference. A unit per channel stays, where the other operand has the same or is a constant that
        has multiples of it.
        """
        shifts = next((number.shifts for number in numbers if number.shifts), ())
        units = [_in_units(number, shifts) if shifts else number for number in numbers]
        if not shifts or any(number is None for number in units):
            return self.same(expr, [self._uniform(number) for number in numbers])
        values, unit = self._aligned([number for number in units if number is not None])
        return _Number(apply(expr.op_name or "", *values), unit, shifts)

    def multiply(self, expr: Call, numbers: Sequence[_Number]) -> _Number:
        """Products; a factor that is one power of two changes the unit only."""
        a, b = numbers
        exponent = a.exponent + b.exponent
        for one, other in ((a.value, b.value), (b.value, a.value)):
            single = isinstance(one, Constant) and one.data.size == 1 and one.data.item() == 1
            if single and len(one.shape) <= len(other.shape):
                return _Number(other, exponent)
        if self._largest(a.value) * self._largest(b.value) >= LIMIT:
            raise StaysFloat("its numbers may need more than the 24 bits of a float32")
        return _Number(apply("multiply", a.value, b.value), exponent)

    def divide(self, expr: Call, numbers: Sequence[_Number]) -> _Number:
        """A quotient by one power of two, which changes the unit only."""
        data, by = numbers
        single = isinstance(by.value, Constant) and by.value.data.size == 1 and by.value.data.item() == 1
        if not single or data.value.shape != expr.shape:
            raise StaysFloat(_not_exact(expr))
        return _Number(data.value, data.exponent - by.exponent)

    def leaky(self, expr: Call, numbers: Sequence[_Number]) -> _Number:
        """What is negative, times the slope, and what is not."""
        (number,) = numbers
        slope, exponent = dyadic_number(round_float32(expr.attrs.alpha))
        below = apply("minimum", number.value, const(0))
        self._bounded(below, abs(slope))
        parts = _Number(apply("nn.relu", number.value), number.exponent), _times(below, slope)
        values, unit = self._aligned([parts[0], _Number(parts[1], number.exponent + exponent)])
        return _Number(apply("add", *values), unit)

    def clip(self, expr: Call, numbers: Sequence[_Number]) -> _Number:
        """Limits, which must be multiples of the unit."""
        limits = {name: value for name, value in expr.attrs.items if abs(value) < _LIMITS_NOTHING}
        exact = [dyadic_number(value) for value in limits.values()]
        (value,), unit = self._aligned(numbers, *(exponent for _, exponent in exact))
        scaled = {name: limit * 2.0**-unit for name, limit in limits.items()}
        if any(abs(limit) >= LIMIT for limit in scaled.values()):
            raise StaysFloat("its limits need more than the 24 bits of a float32")
        return _Number(apply("clip", value, **scaled), unit)

    def pad(self, expr: Call, numbers: Sequence[_Number]) -> _Number:
        """A pad with a multiple of the unit."""
        (value,), unit = self._aligned(numbers, dyadic_number(expr.attrs.pad_value)[1])
        scaled = expr.attrs.pad_value * 2.0**-unit
        if abs(scaled) >= LIMIT:
            raise StaysFloat("its padding needs more than the 24 bits of a float32")
        return _Number(apply("nn.pad", value, **expr.attrs.replace(pad_value=scaled)), unit)

    def total(self, expr: Call, numbers: Sequence[_Number]) -> _Number:
        """A sum, or a mean of as many elements as a power of two."""
        data = expr.args[0]
        count = math.prod(data.shape[axis] for axis in normalise_axes(expr.attrs.axis, len(data.shape)))
        value = self._sum(numbers[0], count, expr.attrs.axis, expr.attrs.keepdims)
        return _divided(value, count) if expr.op_name == "mean" else value

    def global_average(self, expr: Call, numbers: Sequence[_Number]) -> _Number:
        """A mean over as many positions as a power of two."""
        spatial = expr.args[0].shape[1:-1]
        count = math.prod(spatial)
        return _divided(self._sum(numbers[0], count, range(1, len(spatial) + 1), keepdims=True), count)

    def _sum(self, number: _Number, count: int, axis: Sequence[int], keepdims: bool) -> _Number:
        self._bounded(number.value, count)
        sums = apply("sum", number.value, axis=axis, keepdims=keepdims)
        low, high = value_range(number.value, self._ranges)
        self._ranges[sums] = Bounds(low * count, high * count)
        return _Number(sums, number.exponent)

    def average(self, expr: Call, numbers: Sequence[_Number]) -> _Number:
        """A mean of as many taps as a power of two: a sum where there is one window, else a convolution."""
        attrs, extents = expr.attrs, expr.args[0].shape[1:-1]
        rank = len(extents)
        size = math.prod(attrs.pool_size)
        if expr.shape[1:-1] != (1,) * rank:
            if any(attrs.padding) and not attrs.count_include_pad:
                raise StaysFloat("its windows at the borders have other sizes")
            return _divided(self._window_sums(expr), size)
        taps = [min(taps_in_window - attrs.padding[d], extents[d]) for d, taps_in_window in enumerate(attrs.pool_size)]
        number = numbers[0]
        if tuple(taps) != extents:
            batch, *_, channels = expr.shape
            begin, strides = (0,) * (rank + 2), (1,) * (rank + 2)
            end = (batch, *taps, channels)
            seen = apply("strided_slice", number.value, begin=begin, end=end, strides=strides)
            number = _Number(seen, number.exponent)
        summed = self._sum(number, math.prod(taps), range(1, rank + 1), keepdims=True)
        return _divided(summed, size if attrs.count_include_pad else math.prod(taps))

    def _window_sums(self, expr: Call) -> _Number:
        """Sums under windows, by a depthwise convolution with ones."""
        dequantisation = dequantised(expr.args[0])
        if dequantisation is None or dequantisation[1].dtype == "int32":
            raise StaysFloat("it averages windows of what is computed in between")
        data, qtype = self._lower(dequantisation[0]), dequantisation[1]
        self._product_bound(data, qtype.zero_point, math.prod(expr.attrs.pool_size))
        return _Number(window_sums(expr, data, qtype), _unit(qtype))

    def product(self, expr: Call, numbers: Sequence[_Number]) -> _Number:
        """A convolution or product of quantised data with a constant weight."""
        import numpy as np

        dequantisation = dequantised(expr.args[0])
        if dequantisation is None or dequantisation[1].dtype == "int32":
            raise StaysFloat("its data is computed in between, not quantised")
        data, qtype = self._lower(dequantisation[0]), dequantisation[1]
        constant = stored_constant(expr.args[1])
        if constant is None:
            raise StaysFloat("its weight is not a constant multiple of a power of two")
        # The weight of a dense layer is (units, in).
        constant = constant.along(0 if expr.op_name == "nn.dense" else -1)
        weight = constant.integers
        # The dimensions that are summed over: all but the channels, of a stack of matrices the rows.
        summed = {"nn.dense": (1,), "matmul": (-2,)}.get(expr.op_name or "", tuple(range(weight.ndim - 1)))
        largest = int(np.abs(weight.astype(np.int64)).sum(axis=summed).max())
        bound = self._product_bound(data, qtype.zero_point, largest)
        stored, zero_point = narrow(weight, expr.args[1], constant)
        attrs = {**dict(expr.attrs.items), "input_zero_point": qtype.zero_point, "kernel_zero_point": zero_point}
        product = apply(KERNELS[expr.op_name or ""], data, const(stored), **attrs)
        if weight.ndim > 2 and expr.op_name == "matmul":
            self._ranges[product] = Bounds(-bound, bound)
        return _Number(product, _unit(qtype) + constant.exponent, constant.shifts)

    def _product_bound(self, data: Expr, zero_point: int, weights: int) -> int:
        """The largest size of sums of data times weights whose sizes add up to ``weights``; StaysFloat if too large."""
        low, high = value_range(data, self._ranges)
        bound = max(abs(low - zero_point), abs(high - zero_point)) * weights
        if bound >= LIMIT:
            raise StaysFloat("its sums may need more than the 24 bits of a float32")
        return bound


Rule = Callable[[PowersOfTwo, Call, Sequence[_Number]], _Number]

_RULES: Mapping[str, Rule] = {
    **dict.fromkeys(
        (
            "abs",
            "negative",
            "minimum",
            "maximum",
            "nn.relu",
            "nn.max_pool1d",
            "nn.max_pool2d",
            "nn.global_max_pool",
            "broadcast_to",
            "reshape",
            "squeeze",
            "transpose",
            "layout_transform",
            "strided_slice",
            "concatenate",
            "split",
        ),
        PowersOfTwo.same,
    ),
    **dict.fromkeys(("add", "subtract"), PowersOfTwo.plus),
    **dict.fromkeys(KERNELS, PowersOfTwo.product),
    "multiply": PowersOfTwo.multiply,
    "divide": PowersOfTwo.divide,
    "nn.leaky_relu": PowersOfTwo.leaky,
    "take": PowersOfTwo.pick,
    "clip": PowersOfTwo.clip,
    "nn.pad": PowersOfTwo.pad,
    "sum": PowersOfTwo.total,
    "mean": PowersOfTwo.total,
    "nn.global_avg_pool": PowersOfTwo.global_average,
    "nn.avg_pool1d": PowersOfTwo.average,
    "nn.avg_pool2d": PowersOfTwo.average,
}


def _not_exact(expr: Expr) -> str:
    if isinstance(expr, Call) and expr.op_name == "qnn.dequantize":
        return "it has a scale per channel"
    if isinstance(expr, Call):
        return f"{expr.op_name} is not exact"
    return "it takes floats from outside"


def _unit(qtype: QuantisedType) -> int:
    exponent = exponent_of(qtype.scale)
    if exponent is None:
        raise StaysFloat(f"the scale {qtype.scale:g} is not a power of two")
    return exponent


def _difference(value: Expr, zero_point: int) -> Expr:
    return apply("subtract", value, const(zero_point)) if zero_point else value


def _times(value: Expr, factor: int) -> Expr:
    return apply("multiply", value, const(factor)) if factor != 1 else value


def _divided(number: _Number, count: int) -> _Number:
    if count & (count - 1):
        raise StaysFloat(f"it divides by {count}, which is not a power of two")
    return _Number(number.value, number.exponent - (count.bit_length() - 1))


def _in_units(number: _Number, shifts: tuple[int, ...]) -> _Number | None:
    """``number`` with these shifts; None where it has others, or is not a constant that has them exactly."""
    import numpy as np

    if number.shifts == shifts:
        return number
    most = max(shifts)
    if number.shifts or not isinstance(number.value, Constant) or most > 30:
        return None
    # First in a unit so fine that it divides all, then in the largest that does.
    data = number.value.data.astype(np.int64) << np.array([most - shift for shift in shifts])
    used = data[data != 0]
    coarse = int((used & -used).min()).bit_length() - 1 if used.size else 2 * most
    data >>= coarse
    if np.abs(data).max() >= LIMIT:
        return None
    return _Number(const(data.astype(np.int32)), number.exponent - most + coarse, shifts)
