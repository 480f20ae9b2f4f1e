"""Pooling over windows, channels last."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any

from ...errors import ModelError
from ...tir import te
from ...tir.form.dtype import bounds, is_float
from ...tir.form.nodes import Expr, maximum, minimum
from ...tir.form.symbolic_dims import bounds_of, upper_bounds
from ..op import STEP_OPERATIONS, Attr, Attrs, Boolean, Bounds, Ints, Specials, define_op
from ..types import TensorType
from .common import Types, all_of, as_float, bounds_conditions, require_float, windows
from .reduce import IGNORES_NAN, extremum_of_floats

if TYPE_CHECKING:
    import numpy as np

__all__ = ["pool_attrs", "pool_shape", "pool_sum", "tap_count", "window_parts"]


def pool_attrs(rank: int) -> tuple[Attr, ...]:
    """Attributes of a pool over ``rank`` spatial dimensions."""
    return (
        Attr("pool_size", Ints(rank), "taps of the window"),
        Attr("strides", Ints(rank), "steps of the window", neutral=(1,) * rank),
        Attr("padding", Ints(2 * rank), "around the input: before each dimension, then after", neutral=(0,) * 2 * rank),
    )


def pool_shape(attrs: Attrs, data: TensorType) -> tuple[int, ...]:
    """Shape of a pool; ModelError where a window would lie in the padding alone, which has no value."""
    rank = len(attrs.pool_size)
    if len(data.shape) != rank + 2:
        raise ModelError(f"data must have {rank + 2} dimensions", hint="channels last")
    if min(attrs.pool_size) < 1:
        raise ModelError(f"pool_size {attrs.pool_size} must be positive")
    spatial = windows(data.shape[1:-1], attrs.pool_size, attrs.strides, attrs.padding, (1,) * rank)
    for d, extent in enumerate(spatial):
        last = (extent - 1) * attrs.strides[d] - attrs.padding[d]
        if attrs.padding[d] >= attrs.pool_size[d] or last >= data.shape[d + 1]:
            raise ModelError(f"padding {attrs.padding} leaves windows of {attrs.pool_size} without any element")
    return (data.shape[0], *spatial, data.shape[-1])


def _taps(attrs: Attrs, out: TensorType, data: te.Tensor, index: tuple[Any, ...], taps: list[te.IterVar]) -> Any:
    """The element under the window's taps, and the conditions under which there is one."""
    batch, *position, channel = index
    indices, conditions = [], []
    for d, tap in enumerate(taps):
        stride, before = attrs.strides[d], attrs.padding[d]
        indices.append(position[d] * stride + tap - before)
        last = (out.shape[d + 1] - 1) * stride + attrs.pool_size[d] - 1 - before
        conditions += bounds_conditions(indices[d], data.shape[d + 1], -before, last)
    return data[(batch, *indices, channel)], all_of(conditions)


def _max_compute(attrs: Attrs, out: TensorType, data: te.Tensor) -> te.Tensor:
    taps = [te.reduce_axis(extent, f"k{d}") for d, extent in enumerate(attrs.pool_size)]

    def at(*index: Any) -> te.Reduction:
        value, where = _taps(attrs, out, data, index, taps)
        return te.max(value, tuple(taps), where=where)

    return te.compute(out.shape, at, "max_pool")


def pool_sum(attrs: Attrs, out: TensorType, data: te.Tensor, dtype: str) -> te.Tensor:
    """Sums over windows, in ``dtype``; padding adds nothing."""
    taps = [te.reduce_axis(extent, f"k{d}") for d, extent in enumerate(attrs.pool_size)]

    def at(*index: Any) -> te.Reduction:
        value, where = _taps(attrs, out, data, index, taps)
        return te.sum(value.astype(dtype), tuple(taps), where=where)

    return te.compute(out.shape, at, "pool_sum")


def tap_count(attrs: Attrs, data_shape: tuple[int, ...], index: tuple[Any, ...]) -> Expr | int:
    """How many taps of the window at ``index`` lie on the input: an int where it is the same everywhere."""
    count: Expr | int = 1
    rank = len(attrs.pool_size)
    for d, size in enumerate(attrs.pool_size):
        if attrs.padding[d] or attrs.padding[d + rank]:
            first = index[d + 1] * attrs.strides[d] - attrs.padding[d]
            count = (minimum(first + size, data_shape[d + 1]) - maximum(first, 0)) * count
        else:
            count = count * size
    return count


def window_parts(attrs: Attrs, data: np.ndarray, fill: Any) -> np.ndarray:
    """The taps of every window, padding filled in: (taps, batch, *spatial, channels)."""
    import numpy as np

    rank = len(attrs.pool_size)
    sides = zip(attrs.padding[:rank], attrs.padding[rank:], strict=True)
    padded = np.pad(data, [(0, 0), *sides, (0, 0)], constant_values=fill)
    spatial = windows(data.shape[1:-1], attrs.pool_size, attrs.strides, attrs.padding, (1,) * rank)
    parts = []
    for tap in itertools.product(*map(range, attrs.pool_size)):
        window = zip(tap, spatial, attrs.strides, strict=True)
        parts.append(padded[(slice(None), *(slice(t, t + (n - 1) * s + 1, s) for t, n, s in window))])
    return np.stack(parts)


def pool_effort(attrs: Attrs, out: TensorType, data: TensorType) -> int:
    """The padded data, and what `window_parts` stacks: see `uma.relay.op.Op`."""
    rank, taps = len(attrs.pool_size), math.prod(attrs.pool_size)
    sides = zip(upper_bounds(data.shape[1:-1]), attrs.padding[:rank], attrs.padding[rank:], strict=True)
    padded: int = math.prod(upper_bounds((data.shape[0], data.shape[-1]))) * math.prod(sum(side) for side in sides)
    effort: int = padded + taps * (STEP_OPERATIONS + math.prod(upper_bounds(out.shape)))
    return effort


def _infer_max(attrs: Attrs, data: TensorType) -> TensorType:
    """Data (batch, spatial..., channels) of any dtype but bool, which the result has. A spatial extent is ``(extent +
    before + after - pool_size) // stride + 1``; padding is smaller than the window.
    """
    if data.dtype == "bool":
        raise ModelError("it takes numbers, not bool")
    return TensorType(pool_shape(attrs, data), data.dtype)


def _max_reference(attrs: Attrs, data: np.ndarray) -> np.ndarray:
    if is_float(data.dtype.name):
        return extremum_of_floats("max", window_parts(attrs, data, float("-inf")), (0,), keepdims=False)
    result: np.ndarray = window_parts(attrs, data, bounds(data.dtype.name)[0]).max(axis=0)
    return result


def _same_range(attrs: Attrs, out: TensorType, types: Types, data: Bounds | None) -> Bounds | None:
    return None if data is None else Bounds(data.low, data.high)


def _infer_average(attrs: Attrs, data: TensorType) -> TensorType:
    """Data (batch, spatial..., channels) of a float dtype, which the result has. A spatial extent is ``(extent + before
    + after - pool_size) // stride + 1``; padding is smaller than the window.
    """
    return TensorType(pool_shape(attrs, data), require_float(data))


def _average_reference(attrs: Attrs, data: np.ndarray) -> np.ndarray:
    import numpy as np

    wide = data.astype(np.float64)
    total = window_parts(attrs, wide, 0.0).sum(axis=0)
    counted = np.ones((1, *data.shape[1:-1], 1))
    count = window_parts(attrs, counted, 1.0 if attrs.count_include_pad else 0.0).sum(axis=0)
    result: np.ndarray = (total / count).astype(data.dtype)
    return result


def _average_compute(attrs: Attrs, out: TensorType, data: te.Tensor) -> te.Tensor:
    total = pool_sum(attrs, out, data, out.dtype)
    taps = 1
    for size in attrs.pool_size:
        taps *= size

    def at(*index: Any) -> Expr:
        count = taps if attrs.count_include_pad else tap_count(attrs, data.shape, index)
        return total[index] / (float(count) if isinstance(count, int) else count.astype(out.dtype))

    return te.compute(out.shape, at, "avg_pool")


for _rank in (1, 2, 3):
    define_op(
        name=f"nn.max_pool{_rank}d",
        doc="The largest element under each window; padding is never the largest. NaN is ignored, and -inf is the "
        "largest where all are NaN.",
        inputs=("data",),
        attrs=pool_attrs(_rank),
        infer=_infer_max,
        reference=_max_reference,
        compute=_max_compute,
        kind="reduction",
        specials=IGNORES_NAN,
        value_range=_same_range,
        effort=pool_effort,
    )
    define_op(
        name=f"nn.avg_pool{_rank}d",
        doc="The mean under each window, for floats. Padding counts only with count_include_pad.",
        inputs=("data",),
        attrs=(
            *pool_attrs(_rank),
            Attr("count_include_pad", Boolean, "divide by the window's size at the borders too", neutral=False),
        ),
        infer=_infer_average,
        reference=_average_reference,
        compute=_average_compute,
        kind="reduction",
        specials=Specials("kept"),
        effort=pool_effort,
    )


def _global_shape(data: TensorType) -> tuple[int, ...]:
    if len(data.shape) < 3:
        raise ModelError("data must be (batch, spatial..., channels)")
    return (data.shape[0], *(1 for _ in data.shape[1:-1]), data.shape[-1])


def _infer_global_max(attrs: Attrs, data: TensorType) -> TensorType:
    """Data (batch, spatial..., channels) of any dtype but bool, which the result has."""
    if data.dtype == "bool":
        raise ModelError("it takes numbers, not bool")
    return TensorType(_global_shape(data), data.dtype)


def _infer_global_average(attrs: Attrs, data: TensorType) -> TensorType:
    """Data (batch, spatial..., channels) of a float dtype, which the result has."""
    return TensorType(_global_shape(data), require_float(data))


def _global_max_reference(attrs: Attrs, data: np.ndarray) -> np.ndarray:
    axes = tuple(range(1, data.ndim - 1))
    if is_float(data.dtype.name):
        return extremum_of_floats("max", data, axes, keepdims=True)
    result: np.ndarray = data.max(axis=axes, keepdims=True)
    return result


def _global_average_reference(attrs: Attrs, data: np.ndarray) -> np.ndarray:
    import numpy as np

    mean = data.astype(np.float64).mean(axis=tuple(range(1, data.ndim - 1)), keepdims=True)
    result: np.ndarray = mean.astype(data.dtype)
    return result


def _everywhere(data: te.Tensor) -> list[te.IterVar]:
    return [te.reduce_axis(extent, f"k{d}") for d, extent in enumerate(data.shape[1:-1])]


def _global_max_compute(attrs: Attrs, out: TensorType, data: te.Tensor) -> te.Tensor:
    taps = _everywhere(data)
    return te.compute(out.shape, lambda *i: te.max(data[(i[0], *taps, i[-1])], tuple(taps)), "global_max")


_MANY = 512
"""Of more elements of a picture the sums of rows are added up: in one long sum the last ones lose their digits."""


def _global_average_compute(attrs: Attrs, out: TensorType, data: te.Tensor) -> te.Tensor:
    count = math.prod(data.shape[1:-1])
    if bounds_of(count)[1] > _MANY and len(data.shape) > 3:
        inner = te.reduce_axis(data.shape[-2], "row")
        shape = (*data.shape[:-2], data.shape[-1])
        data = te.compute(shape, lambda *i: te.sum(data[(*i[:-1], inner, i[-1])], (inner,)), "rows")
    taps = _everywhere(data)
    total = te.compute(out.shape, lambda *i: te.sum(data[(i[0], *taps, i[-1])], tuple(taps)), "total")
    return te.compute(out.shape, lambda *i: total[i] / as_float(count, out.dtype), "global_avg")


define_op(
    name="nn.global_max_pool",
    doc=(
        "The largest element of each channel: (batch, spatial..., channels) to (batch, 1..., channels). NaN is "
        "ignored, and -inf is the largest where all are NaN."
    ),
    inputs=("data",),
    infer=_infer_global_max,
    reference=_global_max_reference,
    compute=_global_max_compute,
    kind="reduction",
    specials=IGNORES_NAN,
    value_range=_same_range,
)
define_op(
    name="nn.global_avg_pool",
    doc="The mean of each channel, for floats: (batch, spatial..., channels) to (batch, 1..., channels).",
    inputs=("data",),
    infer=_infer_global_average,
    reference=_global_average_reference,
    compute=_global_average_compute,
    kind="reduction",
    specials=Specials("kept"),
)
