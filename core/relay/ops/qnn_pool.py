"""Average pools of quantised tensors. (A maximum needs no scale: ``nn.max_pool`` takes integers.)"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ...errors import ModelError
from ...tir import te
from ...tir.dtype import bounds
from ...tir.nodes import Bin, Expr, Select, const
from ..op import Attrs, Bounds, Op, register_op
from ..types import TensorType
from .common import Types, require_integers
from .pool import pool_attrs, pool_shape, pool_sum, tap_count, window_parts
from .qnn import QUANTISED

if TYPE_CHECKING:
    import numpy as np

__all__: list[str] = []


def _infer(attrs: Attrs, data: TensorType) -> TensorType:
    """Data (batch, spatial..., channels) is int8, uint8 or int16, and so is the result. A spatial extent is ``(extent +
    before + after - pool_size) // stride + 1``; padding is smaller than the window, no sum under one may overflow
    int32.
    """
    require_integers(data, within=QUANTISED)
    shape = pool_shape(attrs, data)
    taps = math.prod(attrs.pool_size)
    if taps * (bounds("uint16")[1] if data.dtype == "int16" else bounds("uint8")[1]) >= 2**31:
        raise ModelError(f"a sum of {taps} elements may overflow int32")
    return TensorType(shape, data.dtype)


def _reference(attrs: Attrs, data: np.ndarray) -> np.ndarray:
    import numpy as np

    total = window_parts(attrs, data.astype(np.int64), 0).sum(axis=0)
    count = window_parts(attrs, np.ones((1, *data.shape[1:-1], 1), np.int64), 0).sum(axis=0)
    mean = np.sign(total) * ((2 * np.abs(total) + count) // (2 * count))
    result: np.ndarray = mean.astype(data.dtype)
    return result


def _compute(attrs: Attrs, out: TensorType, data: te.Tensor) -> te.Tensor:
    total = pool_sum(attrs, out, data, "int32")

    def at(*index: Any) -> Expr:
        taps = tap_count(attrs, data.shape, index)
        count = const(taps, "int32") if isinstance(taps, int) else taps
        half = count // 2
        acc = total[index]
        # Half away from zero: half is added on the side of the sign, and truncdiv drops the rest.
        rounded = acc + half if out.dtype == "uint8" else Select(acc > 0, acc + half, acc - half)
        return Bin("truncdiv", rounded, count).astype(out.dtype)

    return te.compute(out.shape, at, "avg_pool")


def _range(attrs: Attrs, out: TensorType, types: Types, data: Bounds) -> Bounds:
    return Bounds(data.low, data.high)


for _rank in (1, 2):
    register_op(
        Op(
            name=f"qnn.avg_pool{_rank}d",
            doc=(
                "The mean of the elements under each window, rounded half away from zero; padding does not count. "
                "Scale and zero point stay as they are. TFLite's reference AVERAGE_POOL_2D."
            ),
            inputs=("data",),
            attrs=pool_attrs(_rank),
            infer=_infer,
            reference=_reference,
            compute=_compute,
            kind="reduction",
            value_range=_range,
        )
    )
