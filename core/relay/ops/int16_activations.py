"""Sigmoid and tanh of int16: a table of one half of the curve, and straight lines between its elements.

TFLite's ``reference_integer_ops::Logistic`` and ``Tanh`` of int16: data are brought to the scale 1/12288 by a factor of
15 bits, where the table has an element for every 512 (of tanh, as tanh(x) is 2 sigmoid(2 x) - 1, for every 256).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...errors import ModelError
from ...tir import te
from ...tir.form.nodes import Expr, Select, const, maximum, minimum
from ..op import Attrs
from ..types import TensorType

if TYPE_CHECKING:
    import numpy as np

__all__ = ["SIGMOID_INT16", "TANH_INT16", "Int16Curve", "near_log2"]

_CORRECTIONS = {3: -1, 35: 1, 174: -1, 255: 1}


def _half_sigmoid() -> np.ndarray:
    """65536 * sigmoid(i / 24), int32 (256,): off by up to 1.1, as in TFLite's kernels."""
    import numpy as np

    curve: np.ndarray = np.floor(65535.5 / (1 + np.exp(-0.041668 * np.arange(256))) + 1).astype(np.int32)
    for place, correction in _CORRECTIONS.items():
        curve[place] += correction
    return curve


def near_log2(scale: float) -> int | None:
    """The exponent of a scale that is a power of two, or off by less than a thousandth of an exponent; else None.

    TFLite's ``CheckedLog2``.
    """
    exponent = math.log2(scale)
    return round(exponent) if abs(exponent - round(exponent)) < 1e-3 else None


@dataclass(frozen=True)
class Int16Curve:
    """One of the two.

    Args:
        name: for messages.
        bits: of a number in the table's scale, those below the ones that say which element.
        shifts: exponents above -12 of scales that are powers of two, whose factor is exact.
        middle: what is subtracted from the curve's upper half, scaled by ``2**bits``.
        drop: bits that are rounded off the result.
    """

    name: str
    bits: int
    shifts: tuple[int, ...]
    middle: int
    drop: int

    def check(self, attrs: Attrs) -> None:
        """ModelError unless zero points are 0, and scales what the kernel takes."""
        for zero_point in (attrs.input_zero_point, attrs.output_zero_point):
            if zero_point:
                raise ModelError(f"int16 has the zero point {zero_point}, not 0")
        if near_log2(attrs.output_scale) != -15:
            raise ModelError(f"the result of int16 has the scale {attrs.output_scale}, not 2**-15")
        if attrs.input_scale > 2:
            raise ModelError(f"data of int16 have the scale {attrs.input_scale}, more than 2")

    def factor(self, scale: float) -> tuple[int, int]:
        """What data of this scale are multiplied by, and the shift to the right after it."""
        near = near_log2(scale)
        if near is not None and near + 12 in self.shifts:
            return 3 << (near + 12), 0
        factor, shift = scale * 4096 * 3, 0
        while factor <= 32767 / 2 and shift <= 30:
            factor, shift = factor * 2, shift + 1
        return int(factor), shift

    def reference(self, attrs: Attrs, data: np.ndarray) -> np.ndarray:
        """The curve of data, in numpy."""
        import numpy as np

        multiplier, shift = self.factor(attrs.input_scale)
        value = (data.astype(np.int64) * multiplier + ((1 << shift) >> 1)) >> shift
        size, table = np.abs(value), _half_sigmoid().astype(np.int64)
        place = size >> self.bits
        low = np.minimum(place, 254)
        line = (table[low] << self.bits) + (size & ((1 << self.bits) - 1)) * (table[low + 1] - table[low])
        upper = np.where(place >= 255, self._most, line) - self.middle
        result = np.where(value >= 0, upper, self._whole - upper - 1) + self._half
        return np.asarray((result >> self.drop).astype(np.int16))

    def compute(self, attrs: Attrs, out: TensorType, data: te.Tensor) -> te.Tensor:
        """The same as a tensor expression, all of it in int32."""
        multiplier, shift = self.factor(attrs.input_scale)
        table = te.constant(_half_sigmoid(), "half_sigmoid")

        def at(*index: Expr) -> Expr:
            value = data[index].astype("int32") * multiplier
            if shift:
                value = (value + ((1 << shift) >> 1)) >> shift
            size = Select(value < 0, 0 - value, value)
            place = size >> self.bits
            # (The other limit is for the proof that no index leaves the table.)
            low = maximum(minimum(place, 254), 0)
            line = (table[low] << self.bits) + (size & ((1 << self.bits) - 1)) * (table[low + 1] - table[low])
            upper = Select(place >= 255, const(self._most, "int32"), line) - self.middle
            result = Select(value >= 0, upper, (self._whole - 1) - upper) + self._half
            return (result >> self.drop).astype("int16")

        return te.compute(out.shape, at, self.name)

    @property
    def _most(self) -> int:
        """Where the table ends."""
        return (0x7FFF << 10) if self.middle == 0 else 0xFFFF << self.bits

    @property
    def _whole(self) -> int:
        """What the two halves of the curve add up to."""
        return (1 << 16 + self.bits) if self.middle == 0 else 0

    @property
    def _half(self) -> int:
        return 1 << (self.drop - 1)


SIGMOID_INT16 = Int16Curve("sigmoid", bits=9, shifts=(0,), middle=0, drop=10)
TANH_INT16 = Int16Curve("tanh", bits=8, shifts=(0, 1), middle=1 << 23, drop=8)
