"""Between real numbers and quantised ones: real = scale * (stored - zero point)."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ...errors import ModelError
from ...tir import te
from ...tir.form.dtype import bounds
from ...tir.form.nodes import Call, Expr, Imm, Select, maximum, minimum
from ...tir.form.scalar_semantics import round_float32
from ..fixed_point import scale_array
from ..float_requantisation import FloatForm
from ..op import Attr, Attrs, AttrType, Boolean, Bounds, Choice, Dtype, Int, Scale, Specials, define_op
from ..types import TensorType
from .common import Types, normalise_axis, require_integers
from .qnn_scale import (
    FloatScaler,
    Scaler,
    check_channels,
    check_form,
    clip_float,
    form_attr,
    has_short_form,
    saturate,
    scaled_bounds,
)

if TYPE_CHECKING:
    import numpy as np

__all__ = ["QUANTISED", "check_zero_point"]

QUANTISED = ("int8", "uint8", "int16")
"""dtypes of quantised tensors."""


def _scales(value: Any) -> tuple[float, ...]:
    scales = tuple(round_float32(float(v)) for v in (value if isinstance(value, Iterable) else (value,)))
    if not scales or not all(math.isfinite(scale) and scale > 0 for scale in scales):
        raise ValueError("not positive finite numbers")
    return scales


def _zero_points(value: Any) -> tuple[int, ...]:
    points = tuple(value) if isinstance(value, Iterable) else (value,)
    if not points:
        raise ValueError("no number at all")
    return tuple(map(Int.normalise, points))


_SCALES = AttrType("float, or floats", _scales)
_ZERO_POINTS = AttrType("int, or ints", _zero_points)

_PARAMETERS = (
    Attr("scale", _SCALES, "one for all, or one per channel; held rounded to float32"),
    Attr("zero_point", _ZERO_POINTS, "one for all, or one per channel", neutral=(0,)),
    Attr("axis", Int, "the dimension of the channels", default=-1),
)


def check_zero_point(zero_point: int, dtype: str) -> None:
    """ModelError unless ``dtype`` holds ``zero_point``."""
    low, high = bounds(dtype)
    if not low <= zero_point <= high:
        raise ModelError(f"zero point {zero_point} is not {dtype}")


def _channel_axis(attrs: Attrs, shape: tuple[int, ...], per_channel: bool) -> int:
    """The dimension of the channels; ModelError where there is none. One parameter for all is for a scalar, too."""
    return normalise_axis(attrs.axis, len(shape)) if shape or per_channel else 0


def _check_parameters(attrs: Attrs, shape: tuple[int, ...], dtype: str) -> None:
    counts = {len(attrs.scale), len(attrs.zero_point)} - {1}
    axis = _channel_axis(attrs, shape, bool(counts))
    if counts and counts != {shape[axis]}:
        lengths = f"{len(attrs.scale)} scales and {len(attrs.zero_point)} zero points"
        raise ModelError(f"{lengths} for the {shape[axis]} elements of axis {axis}")
    for zero_point in attrs.zero_point:
        check_zero_point(zero_point, dtype)


def _parameters(attrs: Attrs, rank: int) -> tuple[np.ndarray, np.ndarray]:
    """Scales (float32) and zero points (int64), shaped to broadcast with the data."""
    import numpy as np

    def shaped(values: tuple[Any, ...], dtype: Any) -> np.ndarray:
        shape = [1] * rank
        if len(values) > 1:
            shape[attrs.axis] = len(values)
        return np.array(values, dtype).reshape(shape)

    return shaped(attrs.scale, np.float32), shaped(attrs.zero_point, np.int64)


class _Table:
    """Numbers of a kernel, one for all or one per channel."""

    def __init__(self, values: tuple[Any, ...], dtype: str, name: str) -> None:
        import numpy as np

        self._one = Imm(values[0], dtype) if len(values) == 1 else None
        self._many = te.constant(np.array(values, dtype), name) if len(values) > 1 else None

    def __getitem__(self, channel: Expr) -> Expr:
        if self._one is not None:
            return self._one
        assert self._many is not None
        return self._many[channel]


# --- quantize --------------------------------------------------------------------------------------------------------


def _infer_quantize(attrs: Attrs, data: TensorType) -> TensorType:
    """Data is float32; the result has its shape, and is int8, uint8, int16 or int32, as ``dtype`` says. There is one
    scale and one zero point, or one for each element of ``axis``.
    """
    if data.dtype != "float32":
        raise ModelError(f"it takes float32, not {data.dtype}")
    out = TensorType(data.shape, attrs.dtype)
    require_integers(out, allowed=(*QUANTISED, "int32"))
    _check_parameters(attrs, data.shape, attrs.dtype)
    return out


def _quantize_reference(attrs: Attrs, data: np.ndarray) -> np.ndarray:
    import numpy as np

    scale, zero_point = _parameters(attrs, data.ndim)
    with np.errstate(over="ignore", invalid="ignore"):
        real = (data / scale).astype(np.float64)
        # float64 holds a float32 and its half exactly, so adding 0.5 there does not round.
        away = np.copysign(np.floor(np.abs(real) + 0.5), real)
        whole = away if attrs.rounding == "away" else np.rint(real)
    low, high = bounds(attrs.dtype)
    whole = np.clip(np.nan_to_num(whole, nan=-np.inf, posinf=np.inf, neginf=-np.inf), -(2.0**40), 2.0**40)
    result: np.ndarray = np.clip(whole.astype(np.int64) + zero_point, low, high).astype(attrs.dtype)
    return result


def _quantize_compute(attrs: Attrs, out: TensorType, data: te.Tensor) -> te.Tensor:
    scale = _Table(attrs.scale, "float32", "scale")
    zero_point = _Table(attrs.zero_point, "int32", "zero_point")
    low, high = bounds(out.dtype)

    def at(*index: Any) -> Expr:
        channel = index[attrs.axis] if index else Imm(0, "int32")
        real = data[index] / scale[channel]
        if attrs.rounding == "even":
            whole: Expr = Call("round_even", real)
        else:
            # What trunc cuts off is exact, so this rounds once; trunc(x + 0.5) would round twice.
            whole = Call("trunc", real)
            rest = real - whole
            one, zero = Imm(1.0, "float32"), Imm(0.0, "float32")
            whole = whole + Select(rest >= 0.5, one, zero) - Select(rest <= -0.5, one, zero)
        if len(attrs.zero_point) == 1:
            return saturate(whole, attrs.zero_point[0], out.dtype)
        wide = clip_float(whole).astype("int64") + zero_point[channel].astype("int64")
        return minimum(maximum(wide, low), high).astype(out.dtype)

    return te.compute(out.shape, at, "quantize")


define_op(
    name="qnn.quantize",
    doc=(
        "saturate(round(data / scale) + zero_point), divided in float32; NaN gives the least value. TFLite's "
        "QUANTIZE rounds half away from zero, ONNX's QuantizeLinear half to even."
    ),
    inputs=("data",),
    attrs=(
        *_PARAMETERS,
        Attr("rounding", Choice("away", "even"), "where halves go"),
        Attr("dtype", Dtype, "int8, uint8, int16 or int32"),
    ),
    infer=_infer_quantize,
    reference=_quantize_reference,
    compute=_quantize_compute,
    kind="elementwise",
    specials=Specials(
        "replaced",
        "the least value for NaN, the limits of the type for infinities",
        tflite="undefined in C for infinities: depends on the CPU",
    ),
)

# --- dequantize ------------------------------------------------------------------------------------------------------


def _infer_dequantize(attrs: Attrs, data: TensorType) -> TensorType:
    """Data is int8, uint8, int16 or int32; the result has its shape and is float32. There is one scale and one zero
    point, or one for each element of ``axis``.
    """
    require_integers(data, allowed=(*QUANTISED, "int32"))
    _check_parameters(attrs, data.shape, data.dtype)
    return TensorType(data.shape, "float32")


def _dequantize_reference(attrs: Attrs, data: np.ndarray) -> np.ndarray:
    import numpy as np

    scale, zero_point = _parameters(attrs, data.ndim)
    result: np.ndarray = (data.astype(np.int64) - zero_point).astype(np.float32) * scale
    return result


def _dequantize_compute(attrs: Attrs, out: TensorType, data: te.Tensor) -> te.Tensor:
    wide = "int64" if data.dtype == "int32" else "int32"
    scale = _Table(attrs.scale, "float32", "scale")
    zero_point = _Table(attrs.zero_point, wide, "zero_point")

    def at(*index: Any) -> Expr:
        channel = index[attrs.axis] if index else Imm(0, "int32")
        value = data[index].astype(wide)
        if any(attrs.zero_point):
            value = value - zero_point[channel]
        return value.astype("float32") * scale[channel]

    return te.compute(out.shape, at, "dequantize")


define_op(
    name="qnn.dequantize",
    doc="float32(data - zero_point) * scale. The same in TFLite's DEQUANTIZE and ONNX's DequantizeLinear.",
    inputs=("data",),
    attrs=_PARAMETERS,
    infer=_infer_dequantize,
    reference=_dequantize_reference,
    compute=_dequantize_compute,
    kind="elementwise",
)

# --- requantize ------------------------------------------------------------------------------------------------------


def _infer_requantize(attrs: Attrs, data: TensorType) -> TensorType:
    """Data is int8, uint8, int16 or int32; the result has its shape, and is one of these, as ``dtype`` says. There is
    one scale, or one for each element of ``axis``.
    """
    require_integers(data, allowed=(*QUANTISED, "int32"))
    out = TensorType(data.shape, attrs.dtype)
    require_integers(out, allowed=(*QUANTISED, "int32"))
    axis = _channel_axis(attrs, data.shape, len(attrs.scale) > 1)
    check_channels(attrs.scale, data.shape, axis)
    if attrs.form is not None:
        check_channels(attrs.form, data.shape, axis)
    check_form(attrs.form, attrs.dtype)
    check_zero_point(attrs.input_zero_point, data.dtype)
    check_zero_point(attrs.output_zero_point, attrs.dtype)
    return out


def _requantize_reference(attrs: Attrs, data: np.ndarray) -> np.ndarray:
    import numpy as np

    if attrs.form is not None:
        return np.asarray(attrs.form.apply(data, attrs.axis).astype(attrs.dtype))
    centred = (data.astype(np.int64) - attrs.input_zero_point).astype(np.int32)
    low, high = bounds(attrs.dtype)
    scaled = scale_array(centred, attrs.scale, attrs.axis)
    result: np.ndarray = np.clip(scaled + attrs.output_zero_point, low, high).astype(attrs.dtype)
    return result


def _requantize_compute(attrs: Attrs, out: TensorType, data: te.Tensor) -> te.Tensor:
    if attrs.form is not None:
        in_floats = FloatScaler(attrs.form)
        return te.compute(
            out.shape,
            lambda *index: in_floats(data[index].astype("int32"), index[attrs.axis] if index else 0).astype(out.dtype),
            "requantize",
        )
    # Scaled by 1, what fits a float32 and does not overflow where it is doubled before is what it was.
    is_short = attrs.narrow and has_short_form(attrs.scale)
    scaler = None if attrs.scale.is_one and data.dtype != "int32" else Scaler(attrs.scale, is_narrow=is_short)

    def at(*index: Any) -> Expr:
        value = data[index].astype("int32")
        if attrs.input_zero_point:
            value = value - attrs.input_zero_point
        scaled = value if scaler is None else scaler(value, index[attrs.axis] if index else 0)
        return saturate(scaled, attrs.output_zero_point, out.dtype)

    return te.compute(out.shape, at, "requantize")


def _requantize_range(attrs: Attrs, out: TensorType, types: Types, data: Bounds) -> Bounds | None:
    if attrs.form is not None:
        return Bounds(attrs.form.low, attrs.form.high)
    centred = Bounds(data.low - attrs.input_zero_point, data.high - attrs.input_zero_point)
    scaled = scaled_bounds(centred, attrs.scale)
    if scaled is None:
        return None
    low, high = bounds(out.dtype)
    ends = [min(max(value + attrs.output_zero_point, low), high) for value in scaled]
    return Bounds(*ends)


define_op(
    name="qnn.requantize",
    doc=(
        "saturate(scaled(data - input_zero_point) + output_zero_point), the difference in int32, scaled and "
        "rounded as ``scale`` says: see FixedPoint and FloatScale. With a ``form`` it is what that makes of "
        "data: see FloatForm."
    ),
    inputs=("data",),
    attrs=(
        Attr("scale", Scale, "one for all, or one per channel"),
        Attr("input_zero_point", Int, "subtracted first", neutral=0),
        Attr("output_zero_point", Int, "added last", neutral=0),
        Attr("dtype", Dtype, "int8, uint8, int16 or int32"),
        Attr("axis", Int, "the dimension of the channels", default=-1),
        form_attr(FloatForm),
        Attr(
            "narrow",
            Boolean,
            "whether what is scaled is proven to be smaller than 2**30 in size: fewer operations do then",
            neutral=False,
        ),
    ),
    infer=_infer_requantize,
    reference=_requantize_reference,
    compute=_requantize_compute,
    kind="elementwise",
    value_range=_requantize_range,
)
