"""How kernels scale integers: the formulas of `FixedPoint` and `FloatScale` as loop expressions without branches."""

from __future__ import annotations

from typing import Any

from ...errors import ModelError
from ...tir import te
from ...tir.form.dtype import bits, bounds
from ...tir.form.nodes import Call, Expr, Imm, Select, const, maximum, minimum
from ..fixed_point import scale_integer
from ..float_requantisation import FloatForm, SumForm
from ..op import Attr, AttrType, Bounds, FixedPoint, FloatScale

__all__ = [
    "FloatScaler",
    "Scaler",
    "check_channels",
    "check_form",
    "clip_float",
    "form_attr",
    "has_short_form",
    "in_floats",
    "multiply_add",
    "saturate",
    "scaled_bounds",
]


class Scaler:
    """Scales integers in a kernel. The numbers are a table of constants: kernels do not differ by them.

    Args:
        scale: one number for all, or one per channel.
        name: of the table, for messages.
        is_narrow: whether all integers are smaller than 2**30 in size, and the scale `has_short_form`.
    """

    def __init__(self, scale: FixedPoint | FloatScale, name: str = "scale", is_narrow: bool = False) -> None:
        import numpy as np

        self._scale, self._half = scale, None
        if isinstance(scale, FloatScale):
            self._factor = te.constant(np.array(scale.scale, np.float32), name)
            return
        self._multiplier = te.constant(np.array(scale.multiplier, np.int32), f"{name}_multiplier")
        lefts = [max(shift, 0) for shift in scale.shift] if scale.rounding == "double" else [0] * len(scale)
        rights = [31 - shift + left for shift, left in zip(scale.shift, lefts, strict=True)]
        # The high half of the product and 32-bit arithmetic on it are enough, and what C compilers vectorise well.
        self._high = scale.rounding == "double" or (scale.rounding == "up" and min(rights) > 31)
        self._exact = self._high and max(rights) == 31
        self._fits = min(rights) >= 31
        table = np.array(rights, np.int32) - (31 if self._high else 0)
        self._right = te.constant(table, f"{name}_shift")
        self._left_shifts = te.constant(np.array(lefts, np.int32), f"{name}_left") if any(lefts) else None
        if is_narrow:
            self._half = te.constant((1 << (table - 1)).astype(np.int32), f"{name}_half")

    def __call__(self, x: Expr, channel: Any = 0) -> Expr:
        """``x``, an int32, scaled and rounded; before rounding to the dtype of a float.

        Gives int32 where every result fits it, else int64; of a `FloatScale` a float32 that is a whole number.
        """
        at = channel if len(self._scale) > 1 else 0
        if isinstance(self._scale, FloatScale):
            return Call("round_even", x.astype("float32") * self._factor[at])
        if self._half is not None:
            return self._short(x, at)
        if self._left_shifts is not None:
            x = x << self._left_shifts[at]
        product = x.astype("int64") * self._multiplier[at].astype("int64")
        if self._high:
            return self._from_high(product, at)
        right = self._right[at].astype("int64")
        result = self._round(product, right) >> right
        return result.astype("int32") if self._fits else result

    def _short(self, x: Expr, at: Any) -> Expr:
        """``double`` or ``up`` of what does not overflow where it is doubled, nor where a half is added to it then: the
        high half of the product is what its bits 31 and up were, and a half less where it is negative goes away from
        zero, as a sum whose last place is a half does not reach it."""
        assert isinstance(self._scale, FixedPoint) and self._half is not None
        product = (x << 1).astype("int64") * self._multiplier[at].astype("int64")
        if self._scale.rounding == "up":
            high = (product >> 32).astype("int32")
        else:
            high = ((product + (1 << 31)) >> 32).astype("int32")
            high = high + (high >> 31)
        return (high + self._half[at]) >> self._right[at]

    def _from_high(self, product: Expr, at: Any) -> Expr:
        """``double`` or ``up`` from bits 31 and up of the product, which fit int32: multipliers are below 2**31."""
        assert isinstance(self._scale, FixedPoint)
        if self._scale.rounding == "up":
            # What is below bit 31 does not matter: half of the last place is above it.
            high, right = (product >> 31).astype("int32"), self._right[at]
            return (high >> right) + ((high >> (right - 1)) & 1)
        high = ((product + (1 << 30)) >> 31).astype("int32")
        if self._exact:
            return high
        # A rounding right shift, half away from zero: compare what is shifted out with a half.
        right = self._right[at]
        mask = (const(1, "int32") << right) - 1
        half = (mask >> 1) + (high < 0).astype("int32")
        return (high >> right) + ((high & mask) > half).astype("int32")

    def _round(self, product: Expr, right: Expr) -> Expr:
        """What shifted right by ``right``, which rounds down, is ``product`` rounded as asked."""
        assert isinstance(self._scale, FixedPoint)
        half = const(1, "int64") << (right - 1)
        if self._scale.rounding == "even":
            return product + half - 1 + ((product >> right) & 1)
        if self._scale.rounding == "away":
            return product + half + (product >> 63)
        return product + half


def has_short_form(scale: FixedPoint | FloatScale) -> bool:
    """Whether fewer operations do for integers smaller than 2**30 in size: all are shifted right after multiplying."""
    return isinstance(scale, FixedPoint) and scale.rounding in ("double", "up") and max(scale.shift) < 0


class FloatScaler:
    """Scales int32 as a `FloatForm` says. Its numbers are tables of constants: kernels do not differ by them.

    Args:
        form: one number for all, or one per channel.
    """

    def __init__(self, form: FloatForm) -> None:
        import numpy as np

        self._form = form
        self._multiplier = te.constant(np.array(form.multiplier, form.dtype), "factor")
        self._offset = te.constant(np.array(form.offset, form.dtype), "offset")
        self._below = te.constant(np.array(form.offset_below, form.dtype), "below") if form.offset_below else None

    def __call__(self, x: Expr, channel: Any = 0) -> Expr:
        """``x``, an int32, scaled, rounded and within the limits: an int32."""
        at = channel if len(self._form) > 1 else 0
        offset: Expr = self._offset[at]
        if self._below is not None:
            offset = Select(x < 0, self._below[at], offset)
        real = multiply_add(x.astype(self._form.dtype), self._multiplier[at], offset, self._form.fused)
        return in_floats(real, self._form)


def multiply_add(x: Expr, factor: Expr, offset: Expr, fused: bool) -> Expr:
    """``x * factor + offset`` of floats, rounded once or twice."""
    return Call("fma", x, factor, offset) if fused else x * factor + offset


def in_floats(real: Expr, form: FloatForm | SumForm) -> Expr:
    """A float as the int32 that a form makes of it. Limits are whole: whether they or the rounding come first is one,
    and what is within limits is converted by one instruction."""
    low, high = (Imm(float(limit), real.dtype) for limit in (form.low, form.high))
    return Call("round_even", minimum(maximum(real, low), high)).astype("int32")


def form_attr(record: type[FloatForm | SumForm]) -> Attr:
    """The attribute ``form`` of an op that can be computed in floats."""

    def normalise(value: Any) -> FloatForm | SumForm | None:
        if value is not None and not isinstance(value, record):
            raise TypeError(f"not a {record.__name__}, nor None")
        return value

    doc = "how it is computed in floats instead, where that is proven to give the same; None for in integers"
    return Attr("form", AttrType(f"{record.__name__} or None", normalise), doc, neutral=None)


def check_form(form: FloatForm | SumForm | None, dtype: str) -> None:
    """ModelError unless ``dtype`` holds what a form gives."""
    low, high = bounds(dtype)
    if form is not None and not low <= form.low <= form.high <= high:
        raise ModelError(f"a form that gives {form.low} .. {form.high}, which are not {dtype}")


def saturate(value: Expr, zero_point: int, dtype: str) -> Expr:
    """``value``, of int32, int64 or whole numbers in float32, plus ``zero_point``, saturated to ``dtype``."""
    low, high = bounds(dtype)
    if bits(dtype) == 32:
        wide = clip_float(value).astype("int64") if value.dtype == "float32" else value.astype("int64")
        return minimum(maximum(wide + zero_point if zero_point else wide, low), high).astype(dtype)
    # Limits moved by the zero point: then nothing overflows on the way, and floats hold them exactly.
    if value.dtype == "float32":
        value = minimum(maximum(value, float(low - zero_point)), float(high - zero_point))
    else:
        value = minimum(maximum(value, low - zero_point), high - zero_point)
    value = value.astype("int32")
    return (value + zero_point if zero_point else value).astype(dtype)


def clip_float(value: Expr) -> Expr:
    """``value``, a float32, cut off where no dtype reaches, so that nothing overflows as int64."""
    return minimum(maximum(value, -(2.0**40)), 2.0**40)


def scaled_bounds(data: Bounds, scale: FixedPoint | FloatScale) -> Bounds | None:
    """Bounds of scaled int32 within ``data``; None where they may wrap, before they are scaled too, or are floats."""
    least, greatest = bounds("int32")
    if isinstance(scale, FloatScale) or data.low < least or data.high > greatest:
        return None
    if scale.rounding == "double":
        shift = max(0, *scale.shift)
        if data.low << shift < least or data.high << shift > greatest:
            return None
    ends = [
        scale_integer(end, m, s, scale.rounding)
        for m, s in set(zip(scale.multiplier, scale.shift, strict=True))
        for end in (data.low, data.high)
    ]
    return Bounds(min(ends), max(ends))


def check_channels(scale: FixedPoint | FloatScale | FloatForm, shape: tuple[int, ...], axis: int) -> None:
    """ModelError unless there is one scale, or one for each element of dimension ``axis``."""
    if len(scale) > 1 and len(scale) != shape[axis]:
        raise ModelError(f"{len(scale)} scales for the {shape[axis]} elements of axis {axis}")
