"""Matrix products."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...errors import ModelError
from ...tir import te
from ...tir.form.nodes import Expr, Load
from ...tir.form.symbolic_dims import Dim
from ..op import Attr, Attrs, Bounds, Int, Specials, define_op
from ..types import TensorType
from .common import Types, broadcast_shapes, require_float, require_integers
from .conv import CONV_INTEGERS, product_sum_bounds, without_zero_point
from .qnn import check_zero_point

if TYPE_CHECKING:
    import numpy as np

__all__: list[str] = []

_ZERO_POINTS = (
    Attr("input_zero_point", Int, "subtracted from the first operand", neutral=0),
    Attr("kernel_zero_point", Int, "subtracted from the second operand", neutral=0),
)


def _zero_points(attrs: Attrs) -> tuple[int, int]:
    values = dict(attrs.items)
    return values.get("input_zero_point", 0), values.get("kernel_zero_point", 0)


def _dense_shape(attrs: Attrs, data: TensorType, weight: TensorType) -> tuple[int, ...]:
    """The result is (..., units) for data (..., in) and a weight (units, in)."""
    if len(weight.shape) != 2 or not data.shape or data.shape[-1] != weight.shape[1]:
        raise ModelError("the weight must be (units, in), with as many inputs as the data's last dimension")
    return (*data.shape[:-1], weight.shape[0])


def _matmul_shape(attrs: Attrs, a: TensorType, b: TensorType) -> tuple[int, ...]:
    """The result is (..., m, n) for (..., m, k) and (..., k, n); what is in front of them broadcasts as in numpy."""
    if len(a.shape) < 2 or len(b.shape) < 2 or a.shape[-1] != b.shape[-2]:
        raise ModelError("it multiplies (..., m, k) by (..., k, n)")
    return (*broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1])


def _product(attrs: Attrs, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a @ b with zero points, in float64, which holds every partial sum of the integer forms exactly."""
    import numpy as np

    a_zero, b_zero = _zero_points(attrs)
    out = (a.astype(np.float64) - a_zero) @ (b.astype(np.float64) - b_zero)
    return out.astype(a.dtype) if a.dtype.kind == "f" else out.astype(np.int64).astype(np.int32)


def _dense_reference(attrs: Attrs, data: np.ndarray, weight: np.ndarray) -> np.ndarray:
    return _product(attrs, data, weight.T)


def _term(attrs: Attrs, dtype: str, a: Load, b: Load) -> Expr:
    """A product, the data as it is: its zero point is subtracted from the sum."""
    _, b_zero = _zero_points(attrs)
    w = b.astype(dtype)
    return a.astype(dtype) * (w - b_zero if b_zero else w)


def _dense_compute(attrs: Attrs, out: TensorType, data: te.Tensor, weight: te.Tensor) -> te.Tensor:
    k = te.reduce_axis(weight.shape[1], "k")
    zero, weight_zero = _zero_points(attrs)

    def at(*index: Any) -> te.Reduction:
        *row, unit = index
        return te.sum(_term(attrs, out.dtype, data[(*row, k)], weight[unit, k]), (k,))

    sums = te.compute(out.shape, at, "dense")
    return without_zero_point(sums, zero, lambda k, unit: weight[unit, k], (weight.shape[1],), weight_zero)


def _matmul_compute(attrs: Attrs, out: TensorType, a: te.Tensor, b: te.Tensor) -> te.Tensor:
    k = te.reduce_axis(a.shape[-1], "k")
    zero, b_zero = _zero_points(attrs)

    def batch(tensor: te.Tensor, index: tuple[Any, ...]) -> list[Any]:
        dims = tensor.shape[:-2]
        batch_index = index[len(index) - len(dims) :]
        return [0 if extent == 1 else i for extent, i in zip(dims, batch_index, strict=True)]

    def at(*index: Any) -> te.Reduction:
        *outer, row, column = index
        left, right = batch(a, tuple(outer)), batch(b, tuple(outer))
        return te.sum(_term(attrs, out.dtype, a[(*left, row, k)], b[(*right, k, column)]), (k,))

    sums = te.compute(out.shape, at, "matmul")
    if not zero:
        return sums
    r = te.reduce_axis(a.shape[-1], "r")
    columns = te.compute(
        (*b.shape[:-2], b.shape[-1]), lambda *i: te.sum(b[(*i[:-1], r, i[-1])].astype(out.dtype), (r,)), "column_sums"
    )
    of_zeros = a.shape[-1] * b_zero

    def centred(*index: Any) -> Expr:
        *outer, _, column = index
        weights = columns[(*batch(b, tuple(outer)), column)]
        return (of_zeros - weights if of_zeros else -weights) * zero + sums[index]

    return te.compute(out.shape, centred, "centred")


def _dense_range(attrs: Attrs, out: TensorType, types: Types, data: Bounds, weight: Bounds) -> Bounds:
    return _range(attrs, types, data, weight, axis=0)


def _matmul_range(attrs: Attrs, out: TensorType, types: Types, a: Bounds, b: Bounds) -> Bounds:
    return _range(attrs, types, a, b if len(types[1].shape) == 2 else Bounds(b.low, b.high), axis=-1)


def _range(attrs: Attrs, types: Types, data: Bounds, weight: Bounds, axis: int) -> Bounds:
    zero, weight_zero = _zero_points(attrs)
    around = Bounds(data.low - zero, data.high - zero)
    return product_sum_bounds(around, weight, weight_zero, axis, count=types[0].shape[-1])


def _dense_macs(attrs: Attrs, out: TensorType, data: TensorType, weight: TensorType) -> Dim:
    count: Dim = out.size * weight.shape[1]
    return count


def _matmul_macs(attrs: Attrs, out: TensorType, a: TensorType, b: TensorType) -> Dim:
    count: Dim = out.size * a.shape[-1]
    return count


def _require_quantised(attrs: Attrs, a: TensorType, b: TensorType) -> None:
    require_integers(a, b, allowed=CONV_INTEGERS)
    check_zero_point(attrs.input_zero_point, a.dtype)
    check_zero_point(attrs.kernel_zero_point, b.dtype)


Shape = Callable[[Attrs, TensorType, TensorType], tuple[int, ...]]


def _declare(
    name: str,
    doc: str,
    inputs: tuple[str, str],
    shape: Shape,
    reference: Callable[..., np.ndarray],
    compute: Callable[..., te.Tensor],
    macs: Callable[..., Dim],
    value_range: Callable[..., Bounds | None] | None = None,
) -> None:
    """Register a product: of integers, into int32, where it has a value range; else of floats."""

    def infer(attrs: Attrs, a: TensorType, b: TensorType) -> TensorType:
        if value_range is None:
            return TensorType(shape(attrs, a, b), require_float(a, b))
        _require_quantised(attrs, a, b)
        return TensorType(shape(attrs, a, b), "int32")

    floats = "Both are of one float dtype, which the result has."
    integers = "Both are int8, uint8 or int16, the result is int32; zero points are numbers of these dtypes."
    infer.__doc__ = f"{floats if value_range is None else integers} {shape.__doc__}"
    define_op(
        name=name,
        doc=doc,
        inputs=inputs,
        attrs=() if value_range is None else _ZERO_POINTS,
        infer=infer,
        reference=reference,
        compute=compute,
        kind="reduction",
        specials=None if name.startswith("qnn") else Specials("kept"),
        value_range=value_range,
        macs=macs,
    )


_declare(
    "nn.dense",
    "data (..., in) times the transpose of weight (units, in), giving (..., units).",
    ("data", "weight"),
    _dense_shape,
    _dense_reference,
    _dense_compute,
    _dense_macs,
)
_declare(
    "qnn.dense",
    "sum((data - input_zero_point) * (weight - kernel_zero_point)), int32; data (..., in), weight (units, in).",
    ("data", "weight"),
    _dense_shape,
    _dense_reference,
    _dense_compute,
    _dense_macs,
    _dense_range,
)
_declare(
    "matmul",
    "a (..., m, k) times b (..., k, n); leading dimensions broadcast as in numpy.",
    ("a", "b"),
    _matmul_shape,
    _product,
    _matmul_compute,
    _matmul_macs,
)
_declare(
    "qnn.matmul",
    "sum((a - input_zero_point) * (b - kernel_zero_point)), int32; a (..., m, k), b (..., k, n), broadcasting.",
    ("a", "b"),
    _matmul_shape,
    _product,
    _matmul_compute,
    _matmul_macs,
    _matmul_range,
)
