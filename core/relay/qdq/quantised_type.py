"""Quantised numbers: what the passes over QuantizeLinear and DequantizeLinear share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...tir.form.dtype import bounds
from ..expr import Call, Constant, Expr, call, const
from ..op import Op

if TYPE_CHECKING:
    import numpy as np

__all__ = ["QuantisedType", "StaysFloat", "apply", "constant_value", "dequantised", "quantised_type"]


class StaysFloat(Exception):
    """Integers cannot do what floats do here; says why. It is an answer, and never leaves the front-end."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True)
class QuantisedType:
    """The real numbers ``scale * (q - zero_point)`` of the integers q of a dtype.

    Args:
        scale: a positive float32.
        zero_point: one of the dtype's numbers.
        dtype: int8, uint8, int16, or int32.
    """

    scale: float
    zero_point: int
    dtype: str

    def quantised(self, value: float) -> int:
        """The integer that QuantizeLinear makes of ``value``, a float32: its reference is asked."""
        import numpy as np

        attrs = {"scale": self.scale, "zero_point": self.zero_point, "rounding": "even", "dtype": self.dtype}
        quantised = apply("qnn.quantize", const(np.float32(value)), **attrs)
        assert isinstance(quantised, Constant)
        return int(quantised.data)

    def real(self, stored: int) -> float:
        """The number that DequantizeLinear makes of ``stored``."""
        import numpy as np

        return float(np.float32(stored - self.zero_point) * np.float32(self.scale))

    def clip(self, data: Expr, low: float, high: float) -> Expr:
        """``data``, integers of this type, between the integers that two real limits become.

        Rounding is monotonous, so that limits and rounding may change places.
        """
        least, greatest = bounds(self.dtype)
        a, b = (max(self.quantised(low), least), min(self.quantised(high), greatest))
        return data if (a, b) == (least, greatest) else apply("clip", data, a_min=a, a_max=b)


def apply(op: str, *args: Expr, **attrs: Any) -> Expr:
    """A call, computed at once where its arguments are constants."""
    result = call(op, *args, **attrs)
    if isinstance(result.op, Op) and all(isinstance(arg, Constant) for arg in args):
        value = result.op.reference(result.attrs, *(arg.data for arg in args if isinstance(arg, Constant)))
        return result if isinstance(value, tuple) else const(value)
    return result


def quantised_type(expr: Call) -> QuantisedType | None:
    """The quantised type of a ``qnn.quantize`` or ``qnn.dequantize``; None where it has one per channel."""
    attrs = expr.attrs
    if len(attrs.scale) > 1 or len(attrs.zero_point) > 1:
        return None
    dtype = expr.dtype if expr.op_name == "qnn.quantize" else expr.args[0].dtype
    return QuantisedType(attrs.scale[0], attrs.zero_point[0], dtype)


def dequantised(expr: Expr) -> tuple[Expr, QuantisedType] | None:
    """The integers, and their type, of a value that is a ``qnn.dequantize`` of computed ones; None for another."""
    if not isinstance(expr, Call) or expr.op_name != "qnn.dequantize" or isinstance(expr.args[0], Constant):
        return None
    qtype = quantised_type(expr)
    return None if qtype is None else (expr.args[0], qtype)


def constant_value(expr: Expr) -> np.ndarray | None:
    """The real numbers, in float32, of a constant or of a quantised constant; None for anything else."""
    if isinstance(expr, Call) and expr.op_name == "qnn.dequantize" and isinstance(expr.args[0], Constant):
        assert isinstance(expr.op, Op)
        value = expr.op.reference(expr.attrs, expr.args[0].data)
        return None if isinstance(value, tuple) else value
    return expr.data if isinstance(expr, Constant) and expr.dtype == "float32" else None
