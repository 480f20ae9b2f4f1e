"""Logarithms of softmax, and vectors of length 1, of quantised tensors, in fixed points."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...errors import ModelError
from ...tir import te
from ...tir.form.dtype import bounds
from ...tir.form.nodes import Expr, Select, maximum, minimum
from ..fixed_point import quantize_multiplier, scale_array
from ..op import Attr, Attrs, FixedPoint, Int, Scale, define_op
from ..types import TensorType
from .common import require_integers
from .gemmlowp import ARRAYS, LOOPS, ROOT_STEPS, away, inverse_root, log, root_begin, root_end, root_step, scaled
from .qnn import check_zero_point
from .qnn_softmax import MAX_CHANNELS, SUM_BITS, exps

if TYPE_CHECKING:
    import numpy as np

__all__: list[str] = []

# --- logarithms of softmax -------------------------------------------------------------------------------------------

_BITS = 22
"""Between a Q5.26 and the scale of the result, 1/16."""

_ZERO = 127
"""The zero point of the result."""


def _infer_log(attrs: Attrs, data: TensorType) -> TensorType:
    """Data is int8, of one dimension at least, and the result of its type. ``scale`` is one `FixedPoint` of rounding
    ``double`` and a shift from 0 on.
    """
    require_integers(data, allowed=("int8",))
    scale = attrs.scale
    fits = isinstance(scale, FixedPoint) and len(scale) == 1 and scale.rounding == "double" and scale.shift[0] >= 0
    if not fits:
        raise ModelError(f"scale must be one fixed point of rounding 'double' and shift >= 0, not {scale}")
    if not data.shape or data.shape[-1] > MAX_CHANNELS:
        raise ModelError(f"it takes at least one dimension, and at most {MAX_CHANNELS} channels")
    return data


def _of_differences(scale: FixedPoint) -> tuple[np.ndarray, np.ndarray, int]:
    """For differences 0, -1, ... -255: their powers as Q12.19, and they as Q5.26; and the least that counts."""
    import numpy as np

    differences = -np.arange(256)
    powers = (exps(scale, differences) + (1 << (SUM_BITS - 1))) >> SUM_BITS
    least = -((31 << 26) >> scale.shift[0])
    places = scale_array(np.maximum(differences, least), scale, 0)
    return powers, places, least


def _backwards(scale: FixedPoint) -> tuple[int, int]:
    """From a Q5.26 to a difference."""
    return quantize_multiplier((1 << (31 - scale.shift[0])) / scale.multiplier[0])


def _log_reference(attrs: Attrs, data: np.ndarray) -> np.ndarray:
    import numpy as np

    powers, places, least = _of_differences(attrs.scale)
    wide = data.astype(np.int64)
    size = wide.max(axis=-1, keepdims=True) - wide
    total = log(ARRAYS, powers[size].sum(axis=-1, keepdims=True), SUM_BITS)
    multiplier, shift = _backwards(attrs.scale)
    nearest = scaled(ARRAYS, total - (1 << 31), multiplier, np.int64(shift))
    first = np.maximum(nearest, least - 1)
    logs_in_steps = np.clip(away(ARRAYS, places[size] - total, _BITS) + _ZERO, *bounds("int8"))
    result: np.ndarray = np.where(-size > first, logs_in_steps, bounds("int8")[0]).astype(np.int8)
    return result


def _log_compute(attrs: Attrs, out: TensorType, data: te.Tensor) -> te.Tensor:
    import numpy as np

    powers, places, least = _of_differences(attrs.scale)
    multiplier, shift = _backwards(attrs.scale)
    power = te.constant(powers.astype(np.int32), "power")
    place = te.constant(places.astype(np.int32), "place")
    numbers = te.constant(np.array([multiplier, shift, least - 1], np.int64), "numbers")
    outer, channels = out.shape[:-1], out.shape[-1]
    k, j = te.reduce_axis(channels, "k"), te.reduce_axis(channels, "j")
    low, high = bounds("int8")
    greatest = te.compute(outer, lambda *i: te.max(data[(*i, k)], k), "greatest")

    def size(row: tuple[Any, ...], channel: Any) -> Expr:
        # Nothing is greater than the greatest; the clamp says so to whoever proves the index.
        return maximum(greatest[row].astype("int32") - data[(*row, channel)].astype("int32"), 0)

    total = te.compute(outer, lambda *row: te.sum(power[size(row, j)], j), "total")
    logs = te.compute(outer, lambda *row: log(LOOPS, total[row].astype("int64"), SUM_BITS), "logs")

    def first_of(*row: Any) -> Expr:
        nearest: Expr = scaled(LOOPS, logs[row] - (1 << 31), numbers[0], numbers[1])
        return maximum(nearest, numbers[2]).astype("int32")

    first = te.compute(outer, first_of, "first")

    def at(*index: Any) -> Expr:
        *rows, channel = index
        row = tuple(rows)
        steps: Expr = away(LOOPS, place[size(row, channel)].astype("int64") - logs[row], _BITS) + _ZERO
        steps = minimum(maximum(steps, low), high).astype("int32")
        return Select(0 - size(row, channel) > first[row], steps, steps * 0 + low).astype(out.dtype)

    return te.compute(out.shape, at, "log_softmax")


define_op(
    name="qnn.log_softmax",
    doc=(
        "x - max - log(sum(exp(x - max))) over the last dimension, with x = data * s, to a result of scale 1/16 "
        "and zero point 127. ``scale`` is s * 2**26. TFLite's reference LOG_SOFTMAX of int8, in fixed points."
    ),
    inputs=("data",),
    attrs=(Attr("scale", Scale, "the data's scale, times 2**26, at least 1/2"),),
    infer=_infer_log,
    reference=_log_reference,
    compute=_log_compute,
    kind="opaque",
)

# --- vectors of length 1 ---------------------------------------------------------------------------------------------

_LENGTH_BITS = 7
"""Behind the point of the result."""


def _infer_unit(attrs: Attrs, data: TensorType) -> TensorType:
    """Data is int8 or uint8, of one dimension at least and at most 32,767 channels, and the result of its type."""
    require_integers(data, allowed=("int8", "uint8"))
    check_zero_point(attrs.input_zero_point, data.dtype)
    if not data.shape or data.shape[-1] > 2**15 - 1:
        raise ModelError("it takes at least one dimension, and at most 32767 channels")
    return data


def _unit_reference(attrs: Attrs, data: np.ndarray) -> np.ndarray:
    import numpy as np

    x = data.astype(np.int64) - attrs.input_zero_point
    multiplier, shift = inverse_root(ARRAYS, (x * x).sum(axis=-1, keepdims=True))
    low, high = bounds(data.dtype.name)
    if data.dtype == np.uint8:
        scaled_values = scaled(ARRAYS, x << _LENGTH_BITS, multiplier, shift) + 128
    else:
        scaled_values = scaled(ARRAYS, x, multiplier, shift + _LENGTH_BITS)
    result: np.ndarray = np.clip(scaled_values, low, high).astype(data.dtype)
    return result


def _unit_compute(attrs: Attrs, out: TensorType, data: te.Tensor) -> te.Tensor:
    outer, channels = out.shape[:-1], out.shape[-1]
    k = te.reduce_axis(channels, "k")
    low, high = bounds(out.dtype)

    def centred(row: tuple[Any, ...], channel: Any) -> Expr:
        value = data[(*row, channel)].astype("int32")
        return value - attrs.input_zero_point if attrs.input_zero_point else value

    total = te.compute(outer, lambda *row: te.sum(centred(row, k) * centred(row, k), k), "total")
    wide = te.compute(outer, lambda *row: total[row].astype("int64"), "wide")
    half = te.compute(outer, lambda *row: root_begin(LOOPS, wide[row])[0], "half")
    places = te.compute(outer, lambda *row: root_begin(LOOPS, wide[row])[1], "places")
    x = te.compute(outer, lambda *row: half[row] * 0 + (1 << 28), "first")
    for _ in range(ROOT_STEPS):
        x = te.compute(outer, lambda *row, x=x: root_step(LOOPS, half[row], x[row]), "nearer")

    def ended(*row: Any) -> tuple[Expr, Expr]:
        return root_end(LOOPS, wide[row], x[row], places[row])

    root = te.compute(outer, lambda *row: ended(*row)[0], "root")
    shift = te.compute(outer, lambda *row: ended(*row)[1], "shift")

    def at(*index: Any) -> Expr:
        *rows, channel = index
        row = tuple(rows)
        value = centred(row, channel).astype("int64")
        if out.dtype == "uint8":
            scaled_value: Expr = scaled(LOOPS, value << _LENGTH_BITS, root[row], shift[row]) + 128
        else:
            scaled_value = scaled(LOOPS, value, root[row], shift[row] + _LENGTH_BITS)
        return minimum(maximum(scaled_value, low), high).astype(out.dtype)

    return te.compute(out.shape, at, "l2_normalize")


define_op(
    name="qnn.l2_normalize",
    doc=(
        "x / sqrt(sum(x * x)) over the last dimension, with x = data - input_zero_point, to a result of scale "
        "1/128 and zero point 0, of uint8 128. TFLite's reference L2_NORMALIZATION, in fixed points."
    ),
    inputs=("data",),
    attrs=(Attr("input_zero_point", Int, "subtracted from every element", neutral=0),),
    infer=_infer_unit,
    reference=_unit_reference,
    compute=_unit_compute,
    kind="opaque",
)
