"""Arithmetic of quantised tensors with numpy's broadcasting, and sums over axes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...errors import ModelError
from ...tir import te
from ...tir.form.dtype import bounds
from ...tir.form.nodes import Expr
from ..fixed_point import scale_array
from ..float_requantisation import SumForm
from ..op import Attr, Attrs, Boolean, Bounds, FixedPoint, Int, Ints, Scale, define_op
from ..types import TensorType
from .common import Types, broadcast_shapes, normalise_axes, require_integers, same_dtype
from .elementwise_table import broadcast_load
from .qnn import QUANTISED, check_zero_point
from .qnn_scale import Scaler, check_form, form_attr, in_floats, multiply_add, saturate
from .reduce import reduced_load, reduced_shape, sum_bounds

if TYPE_CHECKING:
    import numpy as np

__all__: list[str] = []

_ZERO_POINTS = (
    Attr("lhs_zero_point", Int, "subtracted from the left operand", neutral=0),
    Attr("rhs_zero_point", Int, "subtracted from the right operand", neutral=0),
    Attr("output_zero_point", Int, "added last", neutral=0),
)


def _infer(attrs: Attrs, lhs: TensorType, rhs: TensorType) -> TensorType:
    """Both are int8, both uint8 or both int16, and so is the result; shapes broadcast as in numpy. Scales are one
    `FixedPoint` each, zero points of int16 are 0.
    """
    dtype = same_dtype(lhs, rhs)
    require_integers(lhs, allowed=QUANTISED)
    for zero_point in (attrs.lhs_zero_point, attrs.rhs_zero_point, attrs.output_zero_point):
        check_zero_point(zero_point, dtype)
        if dtype == "int16" and zero_point:
            raise ModelError(f"int16 has the zero point {zero_point}, not 0")
    for name, value in attrs.items:
        if name.endswith("scale") and (not isinstance(value, FixedPoint) or len(value) != 1):
            raise ModelError(f"{name} must be one fixed point, not {value}")
    return TensorType(broadcast_shapes(lhs.shape, rhs.shape), dtype)


def _centred(attrs: Attrs, lhs: np.ndarray, rhs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    import numpy as np

    return lhs.astype(np.int64) - attrs.lhs_zero_point, rhs.astype(np.int64) - attrs.rhs_zero_point


def _saturated(values: np.ndarray, attrs: Attrs, dtype: str) -> np.ndarray:
    import numpy as np

    low, high = bounds(dtype)
    result: np.ndarray = np.clip(values + attrs.output_zero_point, low, high).astype(dtype)
    return result


def _difference(tensor: te.Tensor, index: tuple[Any, ...], zero_point: int) -> Expr:
    value = broadcast_load(tensor, index).astype("int32")
    return value - zero_point if zero_point else value


# --- add, subtract ---------------------------------------------------------------------------------------------------


def _infer_sum(attrs: Attrs, lhs: TensorType, rhs: TensorType) -> TensorType:
    """Both are int8, both uint8 or both int16, and so is the result; shapes broadcast as in numpy. Scales are one
    `FixedPoint` each, those of the operands below 1; zero points of int16 are 0.
    """
    out = _infer(attrs, lhs, rhs)
    # 9 bits of a difference shifted by 20, or 16 by 15, leave room for the sum of two.
    most = 15 if out.dtype == "int16" else 20
    if not 0 <= attrs.left_shift <= most:
        raise ModelError(f"left_shift {attrs.left_shift} is not in 0 .. {most}")
    check_form(attrs.form, out.dtype)
    if max(attrs.lhs_scale.shift[0], attrs.rhs_scale.shift[0]) > 0:
        raise ModelError("the operands are scaled by 1 or more", hint="factors below 1, and a larger left_shift")
    return out


def _sum_in_floats(form: SumForm, out: TensorType, lhs: te.Tensor, rhs: te.Tensor, name: str) -> te.Tensor:
    import numpy as np

    numbers = {"lhs_factor": form.lhs, "rhs_factor": form.rhs, "offset": form.offset}
    a, b, offset = (te.constant(np.array([number], np.float32), name) for name, number in numbers.items())

    def at(*index: Any) -> Expr:
        x, y = (broadcast_load(tensor, index).astype("int32").astype("float32") for tensor in (lhs, rhs))
        inner = multiply_add(y, b[0], offset[0], form.fused)
        return in_floats(multiply_add(x, a[0], inner, form.fused), form).astype(out.dtype)

    return te.compute(out.shape, at, name)


def _declare_sum(name: str, sign: int) -> None:
    def reference(attrs: Attrs, lhs: np.ndarray, rhs: np.ndarray) -> np.ndarray:
        if attrs.form is not None:
            sums: np.ndarray = attrs.form.apply(lhs, rhs).astype(lhs.dtype)
            return sums
        a, b = (values << attrs.left_shift for values in _centred(attrs, lhs, rhs))
        total = scale_array(a, attrs.lhs_scale, 0) + sign * scale_array(b, attrs.rhs_scale, 0)
        return _saturated(scale_array(total, attrs.output_scale, 0), attrs, lhs.dtype.name)

    def compute(attrs: Attrs, out: TensorType, lhs: te.Tensor, rhs: te.Tensor) -> te.Tensor:
        if attrs.form is not None:
            return _sum_in_floats(attrs.form, out, lhs, rhs, name)
        scale_lhs, scale_rhs = Scaler(attrs.lhs_scale, "lhs"), Scaler(attrs.rhs_scale, "rhs")
        scale_output = Scaler(attrs.output_scale, "output")

        def at(*index: Any) -> Expr:
            a = scale_lhs(_difference(lhs, index, attrs.lhs_zero_point) << attrs.left_shift)
            b = scale_rhs(_difference(rhs, index, attrs.rhs_zero_point) << attrs.left_shift)
            total = a + b if sign > 0 else a - b
            return saturate(scale_output(total), attrs.output_zero_point, out.dtype)

        return te.compute(out.shape, at, name)

    define_op(
        name=f"qnn.{name}",
        doc=(
            f"saturate(output_scale(lhs_scale(a) {'+' if sign > 0 else '-'} rhs_scale(b)) + output_zero_point) "
            "with a = (lhs - lhs_zero_point) << left_shift, b likewise, in int32. Scales are fixed points. With "
            "left_shift 20 (of int16 15) and rounding ``double`` it is TFLite's reference "
            f"{'ADD' if sign > 0 else 'SUB'}. With "
            "a ``form`` it is what that makes of lhs and rhs: see SumForm."
        ),
        inputs=("lhs", "rhs"),
        attrs=(
            Attr("lhs_scale", Scale, "of the left operand, below 1"),
            Attr("rhs_scale", Scale, "of the right operand, below 1"),
            Attr("output_scale", Scale, "of the result"),
            Attr("left_shift", Int, "bits gained before the operands are scaled, 0 .. 20; of int16 0 .. 15"),
            *_ZERO_POINTS,
            form_attr(SumForm),
        ),
        infer=_infer_sum,
        reference=reference,
        compute=compute,
        kind="broadcast",
    )


_declare_sum("add", 1)
_declare_sum("subtract", -1)

# --- multiply --------------------------------------------------------------------------------------------------------


def _multiply_reference(attrs: Attrs, lhs: np.ndarray, rhs: np.ndarray) -> np.ndarray:
    a, b = _centred(attrs, lhs, rhs)
    return _saturated(scale_array(a * b, attrs.scale, 0), attrs, lhs.dtype.name)


def _multiply_compute(attrs: Attrs, out: TensorType, lhs: te.Tensor, rhs: te.Tensor) -> te.Tensor:
    scaler = Scaler(attrs.scale)

    def at(*index: Any) -> Expr:
        product = _difference(lhs, index, attrs.lhs_zero_point) * _difference(rhs, index, attrs.rhs_zero_point)
        return saturate(scaler(product), attrs.output_zero_point, out.dtype)

    return te.compute(out.shape, at, "multiply")


define_op(
    name="qnn.multiply",
    doc=(
        "saturate(scale((lhs - lhs_zero_point) * (rhs - rhs_zero_point)) + output_zero_point), the scale one fixed "
        "point. With rounding ``double`` it is TFLite's reference MUL."
    ),
    inputs=("lhs", "rhs"),
    attrs=(Attr("scale", Scale, "of the product"), *_ZERO_POINTS),
    infer=_infer,
    reference=_multiply_reference,
    compute=_multiply_compute,
    kind="broadcast",
)

# --- sum -------------------------------------------------------------------------------------------------------------


def _infer_axes(attrs: Attrs, data: TensorType) -> TensorType:
    """Data is int8, uint8 or int16, the result int32, without the reduced axes or with extent 1 in their places. No sum
    of so many elements may overflow.
    """
    require_integers(data, allowed=QUANTISED)
    check_zero_point(attrs.input_zero_point, data.dtype)
    out = TensorType(reduced_shape(attrs, data), "int32")
    low, high = bounds(data.dtype)
    if data.size // out.size * (high - low) >= 2**31:
        raise ModelError(f"a sum of {data.size // out.size} elements may overflow int32")
    return out


def _axes_reference(attrs: Attrs, data: np.ndarray) -> np.ndarray:
    import numpy as np

    centred = data.astype(np.int32) - attrs.input_zero_point
    total = centred.sum(axis=normalise_axes(attrs.axis, data.ndim), keepdims=attrs.keepdims, dtype=np.int32)
    return np.asarray(total)


def _axes_compute(attrs: Attrs, out: TensorType, data: te.Tensor) -> te.Tensor:
    def at(*index: Any) -> te.Reduction:
        loaded, axes = reduced_load(attrs, data, index)
        value = loaded.astype("int32")
        return te.sum(value - attrs.input_zero_point if attrs.input_zero_point else value, axes)

    return te.compute(out.shape, at, "sum")


def _axes_range(attrs: Attrs, out: TensorType, types: Types, data: Bounds) -> Bounds:
    return sum_bounds(out, types, Bounds(data.low - attrs.input_zero_point, data.high - attrs.input_zero_point))


define_op(
    name="qnn.sum",
    doc="Sum over axes of data - input_zero_point in int32, to be requantised. TFLite's SUM and MEAN begin so.",
    inputs=("data",),
    attrs=(
        Attr("axis", Ints(), "axes to reduce; () is all of them"),
        Attr("keepdims", Boolean, "keep the reduced axes, with extent 1", default=False),
        Attr("input_zero_point", Int, "subtracted from every element", neutral=0),
    ),
    infer=_infer_axes,
    reference=_axes_reference,
    compute=_axes_compute,
    kind="reduction",
    value_range=_axes_range,
)
