"""Functions of one quantised tensor: sigmoid, tanh, hard swish, leaky ReLU, absolute value.

Where a function has 256 possible arguments it is a table.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ...errors import ModelError
from ...tir import te
from ...tir.form.dtype import bounds
from ...tir.form.nodes import Expr, Select
from ..fixed_point import quantize_multiplier, scale_array
from ..op import Attr, Attrs, Bounds, FixedPoint, Int, Real, Scale, define_op
from ..types import TensorType
from .common import Types, require_integers
from .int16_activations import SIGMOID_INT16, TANH_INT16, Int16Curve
from .qnn import QUANTISED, check_zero_point
from .qnn_scale import Scaler, saturate, scaled_bounds

if TYPE_CHECKING:
    import numpy as np

__all__: list[str] = []


def _infer(attrs: Attrs, data: TensorType) -> TensorType:
    """Data is int8 or uint8, and the result of its type. Scales are from 2**-126 to below 2**126."""
    require_integers(data, allowed=("int8", "uint8"))
    check_zero_point(attrs.input_zero_point, data.dtype)
    check_zero_point(attrs.output_zero_point, data.dtype)
    for scale in (attrs.input_scale, attrs.output_scale):
        if not 2.0**-126 <= scale < 2.0**126:
            raise ModelError(f"scale {scale} is not a positive float32")
    return data


def _apply(attrs: Attrs, data: np.ndarray, function: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """``function`` of every element; it maps float64 to float64, rounded to float32 afterwards."""
    import numpy as np

    f32 = np.float32
    with np.errstate(over="ignore"):
        real = f32(attrs.input_scale) * (data.astype(np.int32) - attrs.input_zero_point).astype(f32)
        product = function(real) * (f32(1) / f32(attrs.output_scale))
    # float64 holds a float32 and its half exactly.
    wide = product.astype(np.float64)
    rounded = np.copysign(np.floor(np.abs(wide) + 0.5), wide)
    low, high = bounds(data.dtype.name)
    result: np.ndarray = np.clip(rounded + attrs.output_zero_point, low, high).astype(data.dtype)
    return result


def _sigmoid(x: np.ndarray) -> np.ndarray:
    import numpy as np

    one = np.float32(1)
    with np.errstate(over="ignore"):
        power = np.exp(-x.astype(np.float64)).astype(np.float32)
    result: np.ndarray = one / (one + power)
    return result


def _tanh(x: np.ndarray) -> np.ndarray:
    import numpy as np

    return np.tanh(x.astype(np.float64)).astype(np.float32)


Apply = Callable[[Attrs, "np.ndarray"], "np.ndarray"]
"""The numbers of a result, from the attributes of a call and the numbers of its data."""


def _of_real(function: Callable[[np.ndarray], np.ndarray]) -> Apply:
    """``function``, of float32 in float64 and rounded to float32, on quantised numbers."""

    def apply(attrs: Attrs, data: np.ndarray) -> np.ndarray:
        return _apply(attrs, data, function)

    return apply


# --- hard swish ------------------------------------------------------------------------------------------------------

_INT16 = bounds("int16")


def _hard_swish_factors(attrs: Attrs) -> tuple[int, int, int, int]:
    """Multipliers of 15 bits and their exponents: to the scale of the result, and to that of 3 = 2**15.

    As TFLite's ``HardSwishPrepare``, in float32; an infinity of it is refused where types are inferred.
    """
    import numpy as np

    with np.errstate(over="ignore", under="ignore"):
        fine = np.float32(1 / 128) * np.float32(attrs.input_scale)
        factors = float(fine / np.float32(attrs.output_scale)), float(fine / (np.float32(3) / np.float32(32768)))
    (out, out_shift), (gate, gate_shift) = (_of_15_bits(factor) for factor in factors)
    return out, out_shift, gate, gate_shift


def _of_15_bits(factor: float) -> tuple[int, int]:
    multiplier, shift = quantize_multiplier(factor)
    return (_INT16[1] if multiplier >= 2**31 - 2**15 else (multiplier + 2**15) >> 16), shift


def _hard_swish(attrs: Attrs, data: np.ndarray) -> np.ndarray:
    """In int16, as TFLite's ``reference_ops::HardSwish``: the gate relu6(x + 3) / 6 has 15 bits."""
    import numpy as np

    out, out_shift, gate, gate_shift = _hard_swish_factors(attrs)
    fine = (data.astype(np.int64) - attrs.input_zero_point) << 7
    value = _high_product(fine, out)
    share = fine
    if gate_shift > 0:
        share = np.clip(share << min(gate_shift - 1, 16), *_INT16)
    share = _high_product(share, gate)
    if gate_shift > 0:
        share = np.clip(share << 1, *_INT16)
    share = (_away(share, max(0, -gate_shift)) + (1 << 15)) >> 1
    product = share * value
    # (C's division cuts off.)
    scaled_product = _away(np.sign(product) * (np.abs(product) >> 15), -out_shift)
    low, high = bounds(data.dtype.name)
    result: np.ndarray = np.clip(scaled_product + attrs.output_zero_point, low, high).astype(data.dtype)
    return result


def _high_product(values: np.ndarray, factor: int) -> np.ndarray:
    """gemmlowp's ``SaturatingRoundingDoublingHighMul`` of int16: the half's rest is cut off."""
    import numpy as np

    product = values * factor
    product = product + np.where(product >= 0, 1 << 14, 1 - (1 << 14))
    result: np.ndarray = np.sign(product) * (np.abs(product) >> 15)
    return result


def _away(values: np.ndarray, bits: int) -> np.ndarray:
    """``values / 2**bits``, half away from zero."""
    import numpy as np

    half = (1 << bits) >> 1
    result: np.ndarray = np.sign(values) * ((np.abs(values) + half) >> bits)
    return result


def _infer_hard_swish(attrs: Attrs, data: TensorType) -> TensorType:
    """Data is int8 or uint8, and the result of its type. Scales are from 2**-126 to below 2**126, the result's not
    below 1/128 of the data's.
    """
    out = _infer(attrs, data)
    if _hard_swish_factors(attrs)[1] > 0:
        raise ModelError(f"the result's scale {attrs.output_scale} is too small beside the data's {attrs.input_scale}")
    return out


# --- tables ----------------------------------------------------------------------------------------------------------

_ZERO_POINTS = (
    Attr("input_zero_point", Int, "zero point of the data", neutral=0),
    Attr("output_zero_point", Int, "zero point of the result", neutral=0),
)


def _declare(name: str, doc: str, apply: Apply, infer: Callable[..., TensorType], wide: Int16Curve | None) -> None:
    """An op that is a table of 256 numbers; of int16 it is ``wide``."""

    def reference(attrs: Attrs, data: np.ndarray) -> np.ndarray:
        return apply(attrs, data) if wide is None or data.dtype.name != "int16" else wide.reference(attrs, data)

    def compute(attrs: Attrs, out: TensorType, data: te.Tensor) -> te.Tensor:
        import numpy as np

        if wide is not None and out.dtype == "int16":
            return wide.compute(attrs, out, data)
        low, high = bounds(out.dtype)
        table = te.constant(apply(attrs, np.arange(low, high + 1).astype(out.dtype)), "table")
        return te.compute(out.shape, lambda *i: table[data[i].astype("int32") - low], name)

    define_op(
        name=f"qnn.{name}",
        doc=doc,
        inputs=("data",),
        attrs=(
            Attr("input_scale", Real, "scale of the data"),
            Attr("output_scale", Real, "scale of the result"),
            *_ZERO_POINTS,
        ),
        infer=infer,
        reference=reference,
        compute=compute,
        kind="elementwise",
    )


def _in_float32(formula: str, operator: str) -> str:
    return (
        f"{formula} of x = input_scale * (data - input_zero_point), divided by output_scale and rounded half "
        f"away from zero, plus output_zero_point, saturated; in float32. Of int16 a table of 256 and lines between. "
        f"TFLite's reference {operator}."
    )


def _infer_curve(wide: Int16Curve) -> Callable[..., TensorType]:
    def infer(attrs: Attrs, data: TensorType) -> TensorType:
        require_integers(data, allowed=QUANTISED)
        if data.dtype == "int16":
            wide.check(attrs)
            return data
        return _infer(attrs, data)

    infer.__doc__ = (
        "Data is int8, uint8 or int16, and the result of its type. Scales are from 2**-126 to below 2**126; of int16 "
        "that of the data is at most 2, that of the result 2**-15, and zero points are 0."
    )
    return infer


for _name, _operator, _formula, _function, _wide in (
    ("sigmoid", "LOGISTIC", "1 / (1 + exp(-x))", _sigmoid, SIGMOID_INT16),
    ("tanh", "TANH", "tanh(x)", _tanh, TANH_INT16),
):
    _declare(_name, _in_float32(_formula, _operator), _of_real(_function), _infer_curve(_wide), _wide)
_declare(
    "hard_swish",
    "x * min(max(x + 3, 0), 6) / 6 of x = input_scale * (data - input_zero_point), divided by output_scale, plus "
    "output_zero_point, saturated; in fixed points of 16 bits, rounded at every step. TFLite's reference HARD_SWISH.",
    _hard_swish,
    _infer_hard_swish,
    None,
)

# --- scaled on either side of the zero point -------------------------------------------------------------------------


def _infer_scaled(attrs: Attrs, data: TensorType) -> TensorType:
    """Data is int8, uint8 or int16, and the result of its type. Scales are one `FixedPoint` each."""
    require_integers(data, allowed=QUANTISED)
    check_zero_point(attrs.input_zero_point, data.dtype)
    check_zero_point(attrs.output_zero_point, data.dtype)
    for name, value in attrs.items:
        if name.endswith("scale") and (not isinstance(value, FixedPoint) or len(value) != 1):
            raise ModelError(f"{name} must be one fixed point, not {value}")
    return data


def _saturated(values: np.ndarray, attrs: Attrs, dtype: str) -> np.ndarray:
    import numpy as np

    low, high = bounds(dtype)
    result: np.ndarray = np.clip(values + attrs.output_zero_point, low, high).astype(dtype)
    return result


def _centred(attrs: Attrs, data: te.Tensor, index: tuple[Expr, ...]) -> Expr:
    value = data[index].astype("int32")
    return value - attrs.input_zero_point if attrs.input_zero_point else value


def _leaky_relu_reference(attrs: Attrs, data: np.ndarray) -> np.ndarray:
    import numpy as np

    x = data.astype(np.int64) - attrs.input_zero_point
    scaled_values = np.where(x >= 0, scale_array(x, attrs.scale, 0), scale_array(x, attrs.negative_scale, 0))
    return _saturated(scaled_values, attrs, data.dtype.name)


def _leaky_relu_compute(attrs: Attrs, out: TensorType, data: te.Tensor) -> te.Tensor:
    above, below = Scaler(attrs.scale), Scaler(attrs.negative_scale, "negative")

    def at(*index: Expr) -> Expr:
        x = _centred(attrs, data, index)
        # Not one of both: each is saturated, as they may be of different types.
        sides = [saturate(scaler(x), attrs.output_zero_point, out.dtype) for scaler in (above, below)]
        return Select(x >= 0, *sides)

    return te.compute(out.shape, at, "leaky_relu")


def _abs_reference(attrs: Attrs, data: np.ndarray) -> np.ndarray:
    import numpy as np

    size = np.abs(data.astype(np.int64) - attrs.input_zero_point)
    return _saturated(scale_array(size, attrs.scale, 0), attrs, data.dtype.name)


def _abs_compute(attrs: Attrs, out: TensorType, data: te.Tensor) -> te.Tensor:
    scaler = Scaler(attrs.scale)

    def at(*index: Expr) -> Expr:
        x = _centred(attrs, data, index)
        return saturate(scaler(Select(x < 0, 0 - x, x)), attrs.output_zero_point, out.dtype)

    return te.compute(out.shape, at, "abs")


def _abs_range(attrs: Attrs, out: TensorType, types: Types, data: Bounds) -> Bounds | None:
    ends = abs(data.low - attrs.input_zero_point), abs(data.high - attrs.input_zero_point)
    scaled = scaled_bounds(Bounds(0, max(ends)), attrs.scale)
    if scaled is None:
        return None
    low, high = bounds(out.dtype)
    return Bounds(*(min(max(value + attrs.output_zero_point, low), high) for value in scaled))


define_op(
    name="qnn.leaky_relu",
    doc=(
        "saturate(scale(x) + output_zero_point) of x = data - input_zero_point that is not negative, with "
        "negative_scale of one that is. Scales are fixed points. With rounding ``double`` it is TFLite's reference "
        "LEAKY_RELU."
    ),
    inputs=("data",),
    attrs=(
        Attr("scale", Scale, "of what is not negative"),
        Attr("negative_scale", Scale, "of what is negative"),
        *_ZERO_POINTS,
    ),
    infer=_infer_scaled,
    reference=_leaky_relu_reference,
    compute=_leaky_relu_compute,
    kind="elementwise",
)

define_op(
    name="qnn.abs",
    doc=(
        "saturate(scale(|data - input_zero_point|) + output_zero_point), the scale one fixed point. With rounding "
        "``double`` it is TFLite's reference ABS."
    ),
    inputs=("data",),
    attrs=(Attr("scale", Scale, "of the size"), *_ZERO_POINTS),
    infer=_infer_scaled,
    reference=_abs_reference,
    compute=_abs_compute,
    kind="elementwise",
    value_range=_abs_range,
)
