"""Softmax of quantised tensors in the fixed-point arithmetic of gemmlowp, as TFLite's reference SOFTMAX computes it.

A number of format Qm.n is an int32 with n bits behind the point. The product of two of them is their rounding doubling
high product, ``(a * b + 2**30) >> 31``; their integer bits add up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...errors import ModelError
from ...tir import te
from ...tir.form.dtype import bits, bounds
from ...tir.form.nodes import Call, Expr, const, maximum, minimum
from ..fixed_point import scale_array
from ..op import Attr, Attrs, Boolean, FixedPoint, Scale, define_op
from ..types import TensorType
from . import int16_softmax
from .common import require_integers
from .qnn import QUANTISED

if TYPE_CHECKING:
    import numpy as np

__all__ = ["MAX_CHANNELS", "SUM_BITS", "exps"]

# The exponents of two of the format Q5.26 of a difference, and e ** -(2 ** exponent) as Q0.31.
_POWERS = {
    -2: 1672461947,
    -1: 1302514674,
    0: 790015084,
    1: 290630308,
    2: 39332535,
    3: 720401,
    4: 242,
}
_EXP_MINUS_EIGHTH = 1895147668  # e ** -(1/8), Q0.31
_THIRD = 715827883  # 1/3, Q0.31
_48_OVER_17, _MINUS_32_OVER_17 = 1515870810, -1010580540  # Q2.29
_ONE = 2**31 - 1  # 1, Q0.31

SUM_BITS = 12
"""Integer bits of the sum: it is a Q12.19."""

MAX_CHANNELS = 2**SUM_BITS - 1
"""The sum of so many ones still fits."""


def _product(a: np.ndarray, b: np.ndarray | int) -> np.ndarray:
    return (a * b + 2**30) >> 31


def _halve(values: np.ndarray, bits: int) -> np.ndarray:
    """``values / 2**bits``, half away from zero."""
    return (values + (1 << (bits - 1)) - (values < 0)) >> bits


def _exp(a: np.ndarray) -> np.ndarray:
    """e ** a of a Q5.26 that is not positive, as Q0.31. (gemmlowp, ``exp_on_negative_values``.)

    a is split into -1/4 <= x < 0, whose power is a Taylor polynomial around -1/8, and a sum of powers of two.
    """
    import numpy as np

    quarter = 1 << 24
    fraction = (a & (quarter - 1)) - quarter
    x = (fraction << 5) + (1 << 28)
    x2 = _product(x, x)
    x3, x4 = _product(x2, x), _product(x2, x2)
    tail = _halve(_product(_halve(x4, 2) + x3, _THIRD) + x2, 1)
    result = _EXP_MINUS_EIGHTH + _product(x + tail, _EXP_MINUS_EIGHTH)
    rest = fraction - a
    for exponent, power in _POWERS.items():
        result = np.where(rest >> (26 + exponent) & 1, _product(result, power), result)
    return np.where(a == 0, _ONE, result)


def exps(scale: FixedPoint, differences: np.ndarray) -> np.ndarray:
    """e ** (scale * difference) as Q0.31; 0 where the difference is too large to count."""
    import numpy as np

    # What lies below would, scaled, not fit the Q5.26. (TFLite, ``CalculateInputRadius``.)
    least = -((31 << 26) >> scale.shift[0])
    scaled = scale_array(np.maximum(differences, least), scale, 0)
    return np.where(differences < least, 0, _exp(scaled))


def _infer(attrs: Attrs, data: TensorType) -> TensorType:
    """Data is int8, uint8 or int16, of one dimension at least, and the result of its type. ``scale`` is one
    `FixedPoint` of rounding ``double`` and a shift from 0 on, of int16 up to 14. With ``wide`` data is int8 and the
    result int16.
    """
    require_integers(data, allowed=("int8",) if attrs.wide else QUANTISED)
    if data.dtype == "int16":
        int16_softmax.check(attrs, data)
        return data
    scale = attrs.scale
    fits = isinstance(scale, FixedPoint) and len(scale) == 1 and scale.rounding == "double" and scale.shift[0] >= 0
    if not fits:
        raise ModelError(f"scale must be one fixed point of rounding 'double' and shift >= 0, not {scale}")
    if not data.shape or data.shape[-1] > MAX_CHANNELS:
        raise ModelError(f"it takes at least one dimension, and at most {MAX_CHANNELS} channels")
    return TensorType(data.shape, _result(attrs, data.dtype))


def _result(attrs: Attrs, dtype: str) -> str:
    return "int16" if attrs.wide else dtype


def _reference(attrs: Attrs, data: np.ndarray) -> np.ndarray:
    import numpy as np

    if data.dtype.name == "int16":
        return int16_softmax.reference(attrs, data)
    wide = data.astype(np.int64)
    powers = exps(attrs.scale, wide - wide.max(axis=-1, keepdims=True))
    total = _halve(powers, SUM_BITS).sum(axis=-1, keepdims=True)
    headroom = np.vectorize(lambda value: 32 - int(value).bit_length(), otypes=[np.int64])(total)
    half = (total << headroom) >> 1
    x = _48_OVER_17 + _product(half, _MINUS_32_OVER_17)
    for _ in range(3):
        x = x + (_product(x, 2**29 - _product(half, x)) << 2)
    reciprocal = np.minimum(x << 1, _ONE)
    dtype = _result(attrs, data.dtype.name)
    shift = SUM_BITS - headroom + 31 - bits(dtype)
    low, high = bounds(dtype)
    parts = _product(powers, reciprocal)
    rounded = (parts >> shift) + ((parts >> (shift - 1)) & 1)
    result: np.ndarray = np.clip(rounded + low, low, high).astype(dtype)
    return result


def _compute(attrs: Attrs, out: TensorType, data: te.Tensor) -> te.Tensor:
    import numpy as np

    if data.dtype == "int16":
        return int16_softmax.compute(attrs, out, data)
    # A difference is -255 .. 0, so the powers are a table.
    table = te.constant(exps(attrs.scale, -np.arange(256)).astype(np.int32), "exp")
    outer, channels = out.shape[:-1], out.shape[-1]
    k, j = te.reduce_axis(channels, "k"), te.reduce_axis(channels, "j")
    low, high = bounds(out.dtype)
    greatest = te.compute(outer, lambda *i: te.max(data[(*i, k)], k), "greatest")

    def power(row: tuple[Any, ...], channel: Any) -> Expr:
        # Nothing is greater than the greatest; the clamp says so to whoever proves the index.
        return table[maximum(greatest[row].astype("int32") - data[(*row, channel)].astype("int32"), 0)]

    def part(*row: Any) -> te.Reduction:
        term = power(row, j)  # adding a half first would overflow: the largest term is 2**31 - 1
        return te.sum((term >> SUM_BITS) + ((term >> (SUM_BITS - 1)) & 1), j)

    total = te.compute(outer, part, "total")

    def inverse(*row: Any) -> Expr:
        """1 / (1 + x) for the x = sum / 2**n - 1 in 0 .. 1, Q0.31: Newton's division.

        (gemmlowp, ``one_over_one_plus_x_for_x_in_0_1``.)
        """
        half = ((total[row].astype("int64") << Call("clz", total[row]).astype("int64")) >> 1).astype("int32")
        x = _48_OVER_17 + _high(half, const(_MINUS_32_OVER_17))
        for _ in range(3):
            x = x + (_high(x, 2**29 - _high(half, x)) << 2)
        return minimum(x.astype("int64") << 1, _ONE).astype("int32")

    reciprocal = te.compute(outer, inverse, "reciprocal")
    # Bits to drop from a product of Q0.31: 31 of the product itself, and those that make 1 / sum of the reciprocal.
    # From 63 on nothing is left.
    dropped = 31 + SUM_BITS + 31 - bits(out.dtype)
    shift = te.compute(outer, lambda *row: minimum(dropped - Call("clz", total[row]), 63), "shift")

    def at(*index: Any) -> Expr:
        *first, channel = index
        row = tuple(first)
        right = shift[row].astype("int64")
        product = power(row, channel).astype("int64") * reciprocal[row].astype("int64")
        # Nothing is negative, so both roundings add half, and round down at once.
        rounded = (product + (1 << 30) + (const(1, "int64") << (right - 1))) >> right
        return (minimum(rounded.astype("int32"), high - low) + low).astype(out.dtype)

    return te.compute(out.shape, at, "softmax")


def _high(a: Expr, b: Expr) -> Expr:
    """The rounding doubling high product of two int32."""
    return ((a.astype("int64") * b.astype("int64") + (1 << 30)) >> 31).astype("int32")


define_op(
    name="qnn.softmax",
    doc=(
        "exp(x) / sum(exp(x)) over the last dimension, with x = data * s, to a result of scale 1/256 and the least "
        "value of the dtype as zero point. ``scale`` is s * 2**26. TFLite's reference SOFTMAX in fixed point, from "
        "gemmlowp's ``exp_on_negative_values`` and ``one_over_one_plus_x_for_x_in_0_1``. Of int16 the result has "
        "the scale 2**-15 and the zero point 0, ``scale`` is s * 6553.5, and both functions are tables with lines "
        "between."
    ),
    inputs=("data",),
    attrs=(
        Attr("scale", Scale, "the data's scale times beta, times 2**26, at least 1/2; of int16 times 6553.5"),
        Attr("wide", Boolean, "a result of int16, of scale 1/65536 and zero point -32768", neutral=False),
    ),
    infer=_infer,
    reference=_reference,
    compute=_compute,
    kind="opaque",
)
