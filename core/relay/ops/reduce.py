"""Reductions over axes, and softmax."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...errors import ModelError
from ...tir import te
from ...tir.form.nodes import Call, Expr, Imm
from ..op import Attr, Attrs, Boolean, Bounds, Int, Ints, Specials, define_op
from ..types import TensorType
from .common import Types, as_float, normalise_axes, normalise_axis, require_elements, require_float

if TYPE_CHECKING:
    import numpy as np

EXTREMA = ("max", "min")

IGNORES_NAN = Specials(
    "ignored",
    "-0 and 0 are equal",
    onnx="depends on positions and on the CPU: elements before a NaN may be forgotten; all NaN is NaN",
    tflite="the smallest or largest finite number where all are NaN or infinite",
)
"""Of reductions to the largest or smallest element."""

_Full = Callable[[tuple[Any, ...], Any], tuple[Any, ...]]
_Rest = Callable[[tuple[Any, ...]], tuple[Any, ...]]

__all__ = ["EXTREMA", "IGNORES_NAN", "extremum_of_floats", "falling_exp", "reduced_load", "reduced_shape", "sum_bounds"]

_AXES = (
    Attr("axis", Ints(), "axes to reduce; () is all of them"),
    Attr("keepdims", Boolean, "keep the reduced axes, with extent 1", default=False),
)


def reduced_shape(attrs: Attrs, data: TensorType) -> tuple[int, ...]:
    """Shape of a reduction of ``data``, by its attributes ``axis`` and ``keepdims``."""
    axes = normalise_axes(attrs.axis, len(data.shape))
    kept = ((d, 1 if d in axes else extent) for d, extent in enumerate(data.shape))
    return tuple(extent for d, extent in kept if attrs.keepdims or d not in axes)


def _count(attrs: Attrs, shape: tuple[int, ...]) -> Any:
    count = 1
    for axis in normalise_axes(attrs.axis, len(shape)):
        count *= shape[axis]
    return count


def _infer_sum(attrs: Attrs, data: TensorType) -> TensorType:
    """Any dtype but bool, which the result has; without the reduced axes, or with extent 1 in their places."""
    if data.dtype == "bool":
        raise ModelError("it takes numbers, not bool")
    return TensorType(reduced_shape(attrs, data), data.dtype)


def _infer_extremum(attrs: Attrs, data: TensorType) -> TensorType:
    """Any dtype but bool, which the result has; without the reduced axes, or with extent 1 in their places. There are
    elements along the axes.
    """
    require_elements(*(data.shape[axis] for axis in normalise_axes(attrs.axis, len(data.shape))))
    return _infer_sum(attrs, data)


def _infer_mean(attrs: Attrs, data: TensorType) -> TensorType:
    """A float dtype, which the result has; without the reduced axes, or with extent 1 in their places. There are
    elements along the axes.
    """
    require_elements(*(data.shape[axis] for axis in normalise_axes(attrs.axis, len(data.shape))))
    return TensorType(reduced_shape(attrs, data), require_float(data))


def _reference(name: str) -> Callable[..., np.ndarray]:
    """numpy's reduction of that name, of floats in float64; integers wrap around, extrema ignore NaN."""

    def reference(attrs: Attrs, data: np.ndarray) -> np.ndarray:
        import numpy as np

        axes = normalise_axes(attrs.axis, data.ndim)
        if name in EXTREMA and data.dtype.kind == "f":
            return np.asarray(extremum_of_floats(name, data, axes, keepdims=attrs.keepdims))
        how: dict[str, Any] = {"dtype": data.dtype} if name in ("sum", "prod") and data.dtype.kind != "f" else {}
        wide = data.astype(np.float64) if data.dtype.kind == "f" else data
        return np.asarray(getattr(wide, name)(axis=axes, keepdims=attrs.keepdims, **how)).astype(data.dtype)

    return reference


def reduced_load(attrs: Attrs, data: te.Tensor, index: tuple[Any, ...]) -> tuple[Expr, tuple[te.IterVar, ...]]:
    """What a reduction adds up for the element at ``index``, and the axes over which it does."""
    axes = normalise_axes(attrs.axis, len(data.shape))
    inner = {axis: te.reduce_axis(data.shape[axis], f"r{axis}") for axis in axes}
    if attrs.keepdims:
        full = [inner.get(d, i) for d, i in enumerate(index)]
    else:
        outer = iter(index)
        full = [inner[d] if d in inner else next(outer) for d in range(len(data.shape))]
    return data[tuple(full)], tuple(inner.values())


def extremum_of_floats(name: str, data: np.ndarray, axes: tuple[int, ...], keepdims: bool) -> np.ndarray:
    """Return the largest (``max``) or smallest (``min``) number over axes; where all are NaN, -inf or inf."""
    import numpy as np

    is_largest = name == "max"
    numbers = np.where(np.isnan(data), data.dtype.type(-np.inf if is_largest else np.inf), data)
    extremum: Callable[..., np.ndarray] = np.max if is_largest else np.min
    return extremum(numbers, axis=axes, keepdims=keepdims)


def _folded(fold: Callable[..., te.Reduction], name: str) -> Callable[..., te.Tensor]:
    def compute(attrs: Attrs, out: TensorType, data: te.Tensor) -> te.Tensor:
        return te.compute(out.shape, lambda *i: fold(*reduced_load(attrs, data, i)), name)

    return compute


_total = _folded(te.sum, "sum")


def _mean_compute(attrs: Attrs, out: TensorType, data: te.Tensor) -> te.Tensor:
    total = _total(attrs, out, data)
    count = as_float(_count(attrs, data.shape), out.dtype)
    return te.compute(out.shape, lambda *i: total[i] / count, "mean")


def sum_bounds(out: TensorType, types: Types, data: Bounds) -> Bounds:
    """Bounds of sums over all of the first of ``types`` that ``out`` has not, of elements within ``data``."""
    count = types[0].size // out.size
    return Bounds(count * data.low, count * data.high)


def _sum_range(attrs: Attrs, out: TensorType, types: Types, data: Bounds | None) -> Bounds | None:
    return None if data is None else sum_bounds(out, types, data)


def _extremum_range(attrs: Attrs, out: TensorType, types: Types, data: Bounds | None) -> Bounds | None:
    return None if data is None else Bounds(data.low, data.high)


def _declare(
    name: str,
    doc: str,
    infer: Callable[..., TensorType],
    compute: Callable[..., te.Tensor],
    value_range: Callable[..., Bounds | None] | None = None,
    specials: Specials | None = None,
) -> None:
    define_op(
        name=name,
        doc=doc,
        inputs=("data",),
        attrs=_AXES,
        infer=infer,
        reference=_reference(name),
        compute=compute,
        kind="reduction",
        value_range=value_range,
        specials=specials or Specials("kept"),
    )


_declare("sum", "Sum over axes. Integers wrap around.", _infer_sum, _total, _sum_range)
_declare("mean", "Mean over axes, for floats.", _infer_mean, _mean_compute)
_declare("prod", "Product over axes. Integers wrap around.", _infer_sum, _folded(te.prod, "prod"))
_declare(
    "max",
    "The largest element over axes; NaN is ignored, and -inf is the largest where all are NaN.",
    _infer_extremum,
    _folded(te.max, "max"),
    _extremum_range,
    IGNORES_NAN,
)
_declare(
    "min",
    "The smallest element over axes; NaN is ignored, and inf is the smallest where all are NaN.",
    _infer_extremum,
    _folded(te.min, "min"),
    _extremum_range,
    IGNORES_NAN,
)


def _infer_softmax(attrs: Attrs, data: TensorType) -> TensorType:
    """The result is of the type of the data, any float dtype."""
    require_float(data)
    normalise_axis(attrs.axis, len(data.shape))
    return data


def _softmax_reference(attrs: Attrs, data: np.ndarray) -> np.ndarray:
    import numpy as np

    wide = data.astype(np.float64)
    e = np.exp(wide - wide.max(axis=attrs.axis, keepdims=True))
    result: np.ndarray = (e / e.sum(axis=attrs.axis, keepdims=True)).astype(data.dtype)
    return result


def _log_softmax_reference(attrs: Attrs, data: np.ndarray) -> np.ndarray:
    import numpy as np

    wide = data.astype(np.float64)
    centred = wide - wide.max(axis=attrs.axis, keepdims=True)
    result: np.ndarray = (centred - np.log(np.exp(centred).sum(axis=attrs.axis, keepdims=True))).astype(data.dtype)
    return result


def _along(attrs: Attrs, out: TensorType, name: str) -> tuple[te.IterVar, tuple[int, ...], _Full, _Rest]:
    """For what is computed along one axis: an index over it, the shape without it, and indices with and without it."""
    axis = normalise_axis(attrs.axis, len(out.shape))

    def full(index: tuple[Any, ...], at: Any) -> tuple[Any, ...]:
        return (*index[:axis], at, *index[axis:])

    def rest(index: tuple[Any, ...]) -> tuple[Any, ...]:
        return index[:axis] + index[axis + 1 :]

    return te.reduce_axis(out.shape[axis], name), rest(out.shape), full, rest


def falling_exp(x: Expr) -> Expr:
    """exp of a number that is not positive."""
    return Call("exp_flushed" if x.dtype == "float32" else "exp", x)


def _softmax_compute(attrs: Attrs, out: TensorType, data: te.Tensor) -> te.Tensor:
    k, outer, full, rest = _along(attrs, out, "k")
    j = te.reduce_axis(k.extent, "j")
    greatest = te.compute(outer, lambda *i: te.max(data[full(i, k)], (k,)), "greatest")
    power = te.compute(out.shape, lambda *i: falling_exp(data[i] - greatest[rest(i)]), "power")
    total = te.compute(outer, lambda *i: te.sum(power[full(i, j)], (j,)), "total")
    inverse = te.compute(outer, lambda *i: Imm(1.0, out.dtype) / total[i], "inverse")
    return te.compute(out.shape, lambda *i: power[i] * inverse[rest(i)], "softmax")


def _log_softmax_compute(attrs: Attrs, out: TensorType, data: te.Tensor) -> te.Tensor:
    k, outer, full, rest = _along(attrs, out, "k")
    j = te.reduce_axis(k.extent, "j")
    greatest = te.compute(outer, lambda *i: te.max(data[full(i, k)], (k,)), "greatest")
    total = te.compute(outer, lambda *i: te.sum(falling_exp(data[full(i, j)] - greatest[i]), (j,)), "total")
    logarithm = te.compute(outer, lambda *i: Call("log", total[i]), "logarithm")
    return te.compute(out.shape, lambda *i: data[i] - greatest[rest(i)] - logarithm[rest(i)], "log_softmax")


def _declare_softmax(
    name: str, doc: str, reference: Callable[..., np.ndarray], compute: Callable[..., te.Tensor]
) -> None:
    define_op(
        name=name,
        doc=doc,
        inputs=("data",),
        attrs=(Attr("axis", Int, "the axis that sums to 1", default=-1),),
        infer=_infer_softmax,
        reference=reference,
        compute=compute,
        kind="opaque",
        specials=Specials("kept", "all along the axis; so where one is inf, or all are -inf"),
    )


_declare_softmax(
    "nn.softmax",
    "exp(data - max) / sum(exp(data - max)) along one axis, for floats.",
    _softmax_reference,
    _softmax_compute,
)
_declare_softmax(
    "nn.log_softmax",
    "The logarithm of `nn.softmax`: data - max - log(sum(exp(data - max))) along one axis, for floats.",
    _log_softmax_reference,
    _log_softmax_compute,
)
