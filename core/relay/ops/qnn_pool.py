"""Average pools of quantised tensors. (A maximum needs no scale: ``nn.max_pool`` takes integers.)"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ...errors import ModelError
from ...tir import te
from ...tir.form.dtype import bits, bounds
from ...tir.form.nodes import Bin, Expr, Select, const
from ..op import Attr, Attrs, Boolean, Bounds, Choice, Int, define_op
from ..types import TensorType
from .common import Types, require_integers
from .pool import pool_attrs, pool_effort, pool_shape, pool_sum, tap_count, window_parts
from .qnn import QUANTISED, check_zero_point

if TYPE_CHECKING:
    import numpy as np

__all__: list[str] = []


def _infer(attrs: Attrs, data: TensorType) -> TensorType:
    """Data (batch, spatial..., channels) is int8, uint8 or int16, and so is the result. A spatial extent is ``(extent +
    before + after - pool_size) // stride + 1``; padding is smaller than the window, no sum under one may overflow
    int32.
    """
    require_integers(data, allowed=QUANTISED)
    shape = pool_shape(attrs, data)
    check_zero_point(attrs.zero_point, data.dtype)
    taps = math.prod(attrs.pool_size)
    # Half of the taps is added to round.
    if taps * 2 ** bits(data.dtype) >= 2**31:
        raise ModelError(f"a sum of {taps} elements may overflow int32")
    return TensorType(shape, data.dtype)


def _reference(attrs: Attrs, data: np.ndarray) -> np.ndarray:
    import numpy as np

    total = window_parts(attrs, data.astype(np.int64) - attrs.zero_point, 0).sum(axis=0)
    fill = int(attrs.count_include_pad)
    count = window_parts(attrs, np.ones((1, *data.shape[1:-1], 1), np.int64), fill).sum(axis=0)
    if attrs.rounding == "away":
        mean = np.sign(total) * ((2 * np.abs(total) + count) // (2 * count))
    else:
        below, rest = np.divmod(total, count)
        mean = below + (2 * rest + below % 2 > count)
    result: np.ndarray = (mean + attrs.zero_point).astype(data.dtype)
    return result


def _compute(attrs: Attrs, out: TensorType, data: te.Tensor) -> te.Tensor:
    total = pool_sum(attrs, out, data, "int32")
    least = bounds(out.dtype)[0] - attrs.zero_point

    def at(*index: Any) -> Expr:
        taps = _as_expr(tap_count(attrs, data.shape, index))
        count = const(math.prod(attrs.pool_size), "int32") if attrs.count_include_pad else taps
        centred: Expr = total[index]
        if attrs.zero_point:
            centred = centred - taps * attrs.zero_point
        if attrs.rounding == "away":
            half = count // 2
            # Half is added on the side of the sign, and truncdiv drops the rest.
            rounded = centred + half if least == 0 else Select(centred > 0, centred + half, centred - half)
            mean: Expr = Bin("truncdiv", rounded, count)
        else:
            # Counted from the least element nothing is negative: truncdiv rounds down, by ``rest`` parts of ``count``.
            shifted = centred - count * least if least else centred
            below = Bin("truncdiv", shifted, count)
            rest = shifted - below * count
            odd = (below + least) & 1 if least % 2 else below & 1
            mean = below + (rest * 2 + odd > count).astype("int32")
            mean = mean + least if least else mean
        return (mean + attrs.zero_point if attrs.zero_point else mean).astype(out.dtype)

    return te.compute(out.shape, at, "avg_pool")


def _as_expr(count: Expr | int) -> Expr:
    return const(count, "int32") if isinstance(count, int) else count


def _range(attrs: Attrs, out: TensorType, types: Types, data: Bounds) -> Bounds:
    if attrs.count_include_pad and any(attrs.padding):
        return Bounds(min(data.low, attrs.zero_point), max(data.high, attrs.zero_point))
    return Bounds(data.low, data.high)


for _rank in (1, 2):
    define_op(
        name=f"qnn.avg_pool{_rank}d",
        doc=(
            "zero_point + round(mean(data - zero_point)) of the elements under each window, in exact arithmetic. "
            "Padding does not count, or, with count_include_pad, counts as the zero point. Scale and zero point "
            "stay as they are. TFLite's reference AVERAGE_POOL_2D rounds half away from zero, whatever the zero "
            "point; an average pool between ONNX's DequantizeLinear and QuantizeLinear half to even."
        ),
        inputs=("data",),
        attrs=(
            *pool_attrs(_rank),
            # Neutral, as there was no other: patterns that say nothing of it take what they always took.
            Attr("rounding", Choice("away", "even"), "where halves go", neutral="away"),
            Attr("zero_point", Int, "what halves are told from", neutral=0),
            Attr("count_include_pad", Boolean, "divide by the window's size at the borders too", neutral=False),
        ),
        infer=_infer,
        reference=_reference,
        compute=_compute,
        kind="reduction",
        value_range=_range,
        effort=pool_effort,
    )
