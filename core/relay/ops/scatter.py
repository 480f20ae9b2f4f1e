"""Updates put at places of a tensor that other tensors name."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ...errors import ModelError
from ...tir import te
from ...tir.form.dtype import bounds, is_float
from ...tir.form.nodes import Bin, Expr, Imm, Select, maximum, minimum
from ...tir.form.symbolic_dims import upper_bounds
from ...tir.te.stage_planning import identity_of
from ..op import STEP_OPERATIONS, Attr, Attrs, Bounds, Choice, Int, Specials, define_op
from ..types import TensorType
from .common import Types, all_of, normalise_axis, require_integers, same_dtype

if TYPE_CHECKING:
    import numpy as np

__all__: list[str] = []


def _infer(attrs: Attrs, data: TensorType, indices: TensorType, updates: TensorType) -> TensorType:
    """The result is of the type of the data; updates have its dtype, any (for sums, products, extrema not bool), and
    its number of dimensions, with extents that are no larger but along the axis. Indices are int32 or int64, of the
    shape of the updates, or 1 in other dimensions than the axis.
    """
    require_integers(indices, allowed=("int32", "int64"))
    dtype, rank = same_dtype(data, updates), len(data.shape)
    if dtype == "bool" and attrs.reduction != "update":
        raise ModelError("it takes numbers, not bool")
    axis = normalise_axis(attrs.axis, rank)
    if len(updates.shape) != rank or len(indices.shape) != rank:
        raise ModelError("data, indices and updates have different numbers of dimensions")
    for d, (whole, part, named) in enumerate(zip(data.shape, updates.shape, indices.shape, strict=True)):
        if (d != axis and part > whole) or (named != part and (d == axis or named != 1)):
            raise ModelError(f"indices {indices.shape} and updates {updates.shape} do not fit data {data.shape}")
    return data


def _reference(attrs: Attrs, data: np.ndarray, indices: np.ndarray, updates: np.ndarray) -> np.ndarray:
    import numpy as np

    axis = normalise_axis(attrs.axis, data.ndim)
    wide = data.astype(np.float64) if data.dtype.kind == "f" else data.copy()
    by = {"add": np.add, "mul": np.multiply, "min": np.fmin, "max": np.fmax}.get(attrs.reduction)
    places = np.broadcast_to(np.where(indices < 0, indices + data.shape[axis], indices), updates.shape)
    for at in np.ndindex(updates.shape):
        place = places[at]
        if 0 <= place < data.shape[axis]:
            to = (*at[:axis], int(place), *at[axis + 1 :])
            wide[to] = updates[at] if by is None else by(wide[to], updates[at].astype(wide.dtype))
    if attrs.reduction in ("min", "max") and data.dtype.kind == "f":
        is_changed = np.isfinite(wide) | (wide > 0 if attrs.reduction == "max" else wide < 0)
        wide = np.where(np.isnan(data) & ~is_changed, data, wide)
    return wide.astype(data.dtype)


def _effort(attrs: Attrs, out: TensorType, data: TensorType, indices: TensorType, updates: TensorType) -> int:
    return STEP_OPERATIONS * math.prod(upper_bounds(updates.shape))


def _compute(attrs: Attrs, out: TensorType, data: te.Tensor, indices: te.Tensor, updates: te.Tensor) -> te.Tensor:
    axis = normalise_axis(attrs.axis, len(out.shape))
    extent, count = out.shape[axis], updates.shape[axis]
    k = te.reduce_axis(count, "k")

    def at(index: tuple[Any, ...], tensor: te.Tensor, place: Any) -> Expr:
        """The element of indices or updates beside ``index``, at ``place`` along the axis."""
        limited = (
            i if part == whole else 0 if part == 1 else minimum(i, Imm(part - 1, "int32"))
            for i, part, whole in zip(index, tensor.shape, out.shape, strict=True)
        )
        position = list(limited)
        position[axis] = place
        return tensor[tuple(position)]

    def hit(index: tuple[Any, ...]) -> Expr:
        named = at(index, indices, k)
        place = Select(named < 0, named + extent, named)
        beside = (
            i < part
            for d, (i, part, whole) in enumerate(zip(index, updates.shape, out.shape, strict=True))
            if d != axis and part < whole
        )
        condition = all_of([place.equal(index[axis].astype(indices.dtype)), *beside])
        assert condition is not None
        return condition

    if attrs.reduction == "update":
        # Of several updates of one element the last one stays.
        last = te.compute(out.shape, lambda *i: te.max(k + 1, (k,), where=hit(i)), "last")

        def chosen(*index: Any) -> Expr:
            number = last[index]
            place = minimum(maximum(number - 1, Imm(0, "int32")), Imm(count - 1, "int32"))
            return Select(number > 0, at(index, updates, place), data[index])

        return te.compute(out.shape, chosen, "scatter")
    fold = {"add": te.sum, "mul": te.prod, "min": te.min, "max": te.max}[attrs.reduction]
    folded = te.compute(out.shape, lambda *i: fold(at(i, updates, k), (k,), where=hit(i)), "folded")

    def joined(*index: Any) -> Expr:
        a, b = data[index], folded[index]
        joined = Bin(attrs.reduction, a, b)
        if attrs.reduction not in ("min", "max") or not is_float(a.dtype):
            return joined
        # Updates that are NaN are ignored, and so is such data: but it stays where no number updates it.
        return Select(b.equal(identity_of(attrs.reduction, a.dtype)), a, joined)

    return te.compute(out.shape, joined, "scatter")


def _range(
    attrs: Attrs, out: TensorType, types: Types, data: Bounds | None, indices: object, updates: Bounds | None
) -> Bounds | None:
    if data is None or updates is None or attrs.reduction in ("add", "mul"):
        return Bounds(*bounds(out.dtype)) if not is_float(out.dtype) and out.dtype != "bool" else None
    return Bounds(min(data.low, updates.low), max(data.high, updates.high))


define_op(
    name="scatter",
    doc="The data, changed at the indices along an axis: replaced by updates, of several of one element by the "
    "last, or added to them, multiplied by them, or the smaller or larger of both. Indices below 0 count from the "
    "end; what is still outside changes nothing. Elements beside the updates stay.",
    inputs=("data", "indices", "updates"),
    attrs=(
        Attr("axis", Int, "the axis"),
        Attr("reduction", Choice("update", "add", "mul", "min", "max"), "what an update does", default="update"),
    ),
    infer=_infer,
    reference=_reference,
    compute=_compute,
    kind="opaque",
    specials=Specials(
        "moved",
        "sums and products keep it; minima and maxima ignore updates that are NaN, and data that is NaN where a "
        "number updates it",
        onnx="depends on the order of the updates",
    ),
    effort=_effort,
    value_range=_range,
)
