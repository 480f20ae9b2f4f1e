"""Quotients of uint8: TFLite's ``DivElementwise`` of quantised numbers.

The reciprocal of the divisor is a fixed point of 31 bits, of which there are 255 with as many shifts; the dividend is
shifted as far up as it can be. Both are looked up, what is left are two products. Where the shift back is of 32 bits or
more, which C does not define and LiteRT does not look after, the quotient is below half a step, and is 0 here; by 0 it
is as by the least step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...errors import ModelError
from ...relay.expr import Expr, call, const
from ...relay.fixed_point import fixed_point
from ...relay.ops.gemmlowp import ARRAYS, inverse_of_one_plus
from .layer import Layer, quantisation

if TYPE_CHECKING:
    import numpy as np

__all__ = ["quotient_of_uint8"]


def quotient_of_uint8(layer: Layer) -> Expr:
    """Of two operands that broadcast, with the fused activation.

    Raises:
        ModelError: the result's scale is too small beside the operands'.
    """
    import numpy as np

    (a_scale, a_zero), (b_scale, b_zero) = (quantisation(layer.tensor(i)) for i in (0, 1))
    scale, zero = quantisation(layer.output())
    with np.errstate(over="ignore", under="ignore"):
        factor = float(np.float32(a_scale) / (np.float32(b_scale) * np.float32(scale)))
    scaler = fixed_point([factor], "double")
    # Dividends are shifted by 23 bits or more.
    if scaler.shift[0] > 22:
        raise ModelError("its result's scale is too small beside its operands'")
    codes = np.arange(256)
    divisors = codes - b_zero
    inverses, shifts = _inverses(np.maximum(np.abs(divisors), 1))
    a, b = (call("cast", layer.value(i), dtype="int32") for i in (0, 1))
    # The sign of the divisor becomes that of the dividend.
    sides = [_leading_signs(sign * (codes - a_zero)) for sign in (1, -1)]
    place = call("add", a, _looked_up(np.where(divisors < 0, 256, 0), b, "int32"))
    dividend = _looked_up(np.concatenate([numbers << by for numbers, by in sides]), place)
    by = call("add", _looked_up(np.concatenate([by for _, by in sides]), place), _looked_up(shifts, b))
    quotient = _high_product(dividend, _looked_up(inverses, b))
    scaled = _high_product(quotient, const(scaler.multiplier[0], "int64"))
    # (No int32 is left of 62 bits.)
    right = call("minimum", call("subtract", by, const(scaler.shift[0], "int64")), const(62, "int64"))
    rounded = call("cast", call("add", _away(scaled, right), const(zero, "int64")), dtype="int32")
    return layer.activated(call("cast", call("clip", rounded, a_min=0, a_max=255), dtype="uint8"))


def _looked_up(table: np.ndarray, place: Expr, dtype: str = "int64") -> Expr:
    import numpy as np

    narrow = const(np.asarray(table, np.int32))
    return call("cast", call("take", narrow, place, axis=0), dtype=dtype)


def _inverses(divisors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """2**31 / divisor without their powers of two, and these: ``GetReciprocal``."""
    import numpy as np

    leading = ARRAYS.leading(divisors)
    inverses = inverse_of_one_plus(ARRAYS, (divisors.astype(np.int64) << leading) - (1 << 31))
    return inverses, 31 - leading


def _leading_signs(numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Numbers, and how far they can be shifted without a change of sign: ``CountLeadingSignBits``."""
    import numpy as np

    sizes = np.where(numbers < 0, ~numbers, numbers)
    return numbers, np.where(sizes == 0, 31, ARRAYS.leading(np.maximum(sizes, 1)) - 1)


def _high_product(a: Expr, b: Expr) -> Expr:
    """Of two int32 in int64, the upper half of the doubled product, rounded."""
    product = call("add", call("multiply", a, b), const(1 << 30, "int64"))
    return call("right_shift", product, const(31, "int64"))


def _away(value: Expr, bits: Expr) -> Expr:
    """``value / 2**bits``, of int64 and 1 bit or more, rounded half away from zero."""
    one, nothing = const(1, "int64"), const(0, "int64")
    half = call("left_shift", one, call("subtract", bits, one))
    below = call("where", call("less", value, nothing), one, nothing)
    return call("right_shift", call("subtract", call("add", value, half), below), bits)
