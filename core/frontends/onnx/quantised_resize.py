"""Interpolation of quantised data in integers: weights that are ratios of small integers need no floats."""

from __future__ import annotations

from collections.abc import Mapping

from ...relay.expr import Call, Expr
from ...relay.qdq import QuantisedType, dequantised
from ...tir.form.dtype import bounds
from .context import Context
from .resize_axes import Taps

__all__ = ["between_quantised"]

MAX_TAPS = 8
"""Elements that each one of an interpolation is added up of."""


def between_quantised(c: Context, data: Expr, taps: Mapping[int, Taps]) -> Expr | None:
    """Interpolate dequantised data exactly: an int32 sum with integer weights, dequantised and divided by their sum.

    A QuantizeLinear of that is rounded in exact arithmetic (see `uma.relay.qdq.quotients`).

    Args:
        c: the node.
        data: what to interpolate.
        taps: by dimension.

    Returns:
        float32; None where ``data`` is not dequantised with one scale and zero point, or the sums may need more than 32
        bits.
    """
    import numpy as np

    source = _integers(c, data)
    if source is None or source[1].dtype == "int32" or not taps:
        return None
    integers, qtype = source
    low, high = bounds(qtype.dtype)
    largest, divisor, weights = max(-low, high, high - qtype.zero_point, qtype.zero_point - low), 1, {}
    for d, one in taps.items():
        scaled = one.scaled(2**31)
        if scaled is None:
            return None
        weights[d], denominator = scaled
        largest *= int(np.abs(weights[d]).sum(axis=1).max())
        divisor *= denominator
    if largest >= 2**31 or any(np.count_nonzero(one.any(axis=0)) > MAX_TAPS for one in weights.values()):
        return None
    values: Expr = integers
    for d, one in taps.items():
        total: Expr | None = None
        for tap in np.flatnonzero(weights[d].any(axis=0)):
            part: Expr = c.call("take", values, c.constant(one.places[:, tap].astype(np.int32)), axis=d)
            weight = weights[d][:, tap].astype(np.int32)
            if (weight != 1).any():
                shape = [-1 if e == d else 1 for e in range(len(data.shape))]
                part = c.call("multiply", c.cast(part, "int32"), c.constant(weight.reshape(shape)))
            total = part if total is None else c.call("add", c.cast(total, "int32"), c.cast(part, "int32"))
        if total is None:
            return None
        values = total
    real = c.call("qnn.dequantize", values, scale=(qtype.scale,), zero_point=(divisor * qtype.zero_point,))
    return real if divisor == 1 else c.call("divide", real, c.scalar(divisor, real))


def _integers(c: Context, data: Expr) -> tuple[Expr, QuantisedType] | None:
    """The integers of dequantised data and their type; data that was moved afterwards is moved as integers."""
    moves = []
    while isinstance(data, Call) and data.op_name in ("transpose", "reshape", "squeeze"):
        moves.append(data)
        data = data.args[0]
    source = dequantised(data)
    if source is None:
        return None
    integers, qtype = source
    for move in reversed(moves):
        integers = c.call(move.op_name or "", integers, **dict(move.attrs.items))
    return integers, qtype
