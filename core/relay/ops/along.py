"""What goes along one axis: the place of its extremum, running sums and products, the first k in order."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...errors import ModelError
from ...tir import te
from ...tir.form.nodes import Bin, Expr, Imm, Select, maximum, minimum
from ..op import Attr, Attrs, Boolean, Choice, Int, Op, register_op
from ..types import TensorType, TupleType
from .common import normalise_axis, require_elements

if TYPE_CHECKING:
    import numpy as np

__all__: list[str] = []

_AXIS = Attr("axis", Int, "the axis")
_DTYPE = Attr("dtype", Choice("int32", "int64"), "of the places", default="int64")


def _numbers(attrs: Attrs, data: TensorType) -> int:
    """The axis of ``data``, which are numbers; ModelError where it has none."""
    if data.dtype == "bool":
        raise ModelError("it takes numbers, not bool")
    return normalise_axis(attrs.axis, len(data.shape))


def _with(index: tuple[Any, ...], axis: int, at: Any) -> tuple[Any, ...]:
    """``index`` with ``at`` in the place of an axis."""
    return (*index[:axis], at, *index[axis + 1 :])


# --- the place of the extremum ---------------------------------------------------------------------------------------


def _infer_place(attrs: Attrs, data: TensorType) -> TensorType:
    """Numbers of any dtype; the result is of ``dtype``, without the axis, or with extent 1 in its place."""
    axis = _numbers(attrs, data)
    require_elements(data.shape[axis])
    kept = (1,) if attrs.keepdims else ()
    return TensorType((*data.shape[:axis], *kept, *data.shape[axis + 1 :]), attrs.dtype)


def _place_reference(name: str) -> Callable[..., np.ndarray]:
    def reference(attrs: Attrs, data: np.ndarray) -> np.ndarray:
        import numpy as np

        turned = np.flip(data, attrs.axis) if attrs.select_last else data
        found = getattr(np, name)(turned, attrs.axis, keepdims=attrs.keepdims)
        return np.asarray(data.shape[attrs.axis] - 1 - found if attrs.select_last else found).astype(attrs.dtype)

    return reference


def _place_compute(extremum: Callable[..., te.Reduction], name: str) -> Callable[..., te.Tensor]:
    def compute(attrs: Attrs, out: TensorType, data: te.Tensor) -> te.Tensor:
        axis = normalise_axis(attrs.axis, len(data.shape))
        extent = data.shape[axis]
        outer = data.shape[:axis] + data.shape[axis + 1 :]
        k, j = te.reduce_axis(extent, "k"), te.reduce_axis(extent, "j")

        def full(index: tuple[Any, ...], at: Any) -> tuple[Any, ...]:
            return (*index[:axis], at, *index[axis:])

        best = te.compute(outer, lambda *i: extremum(data[full(i, k)], (k,)), "best")
        # Nothing equals NaN: then it is the last place for the first, and the first for the last.
        none = Imm(0 if attrs.select_last else extent - 1, "int32")
        choose = te.max if attrs.select_last else te.min
        found = te.compute(outer, lambda *i: choose(Select(data[full(i, j)].equal(best[i]), j, none), (j,)), "place")
        kept = axis + (1 if attrs.keepdims else 0)
        return te.compute(out.shape, lambda *i: found[(*i[:axis], *i[kept:])].astype(attrs.dtype), name)

    return compute


for _name, _fold, _what in (("argmax", te.max, "largest"), ("argmin", te.min, "smallest")):
    register_op(
        Op(
            name=_name,
            doc=f"The place of the {_what} element along an axis: the first, or the last, where there are several. "
            "Along an axis with NaN it is some place.",
            inputs=("data",),
            attrs=(
                _AXIS,
                Attr("keepdims", Boolean, "keep the axis, with extent 1", default=False),
                Attr("select_last", Boolean, "of several equal ones the last", default=False),
                _DTYPE,
            ),
            infer=_infer_place,
            reference=_place_reference(_name),
            compute=_place_compute(_fold, _name),
            kind="opaque",
        )
    )


# --- running sums and products ---------------------------------------------------------------------------------------


def _infer_running(attrs: Attrs, data: TensorType) -> TensorType:
    """Numbers of any dtype; the result is of the type of the data."""
    _numbers(attrs, data)
    return data


def _running_reference(name: str) -> Callable[..., np.ndarray]:
    def reference(attrs: Attrs, data: np.ndarray) -> np.ndarray:
        import numpy as np

        axis = normalise_axis(attrs.axis, data.ndim)
        turned = np.flip(data, axis) if attrs.reverse else data
        wide = turned.astype(np.float64) if data.dtype.kind == "f" else turned
        made = getattr(np, name)(wide, axis, dtype=wide.dtype)
        if attrs.exclusive:
            first = np.full_like(made.take([0], axis), name == "cumprod")
            made = np.concatenate([first, made.take(range(data.shape[axis] - 1), axis)], axis)
        made = np.flip(made, axis) if attrs.reverse else made
        return np.ascontiguousarray(made.astype(data.dtype))

    return reference


def _running_compute(op: str, name: str) -> Callable[..., te.Tensor]:
    """By doubling (Hillis and Steele, 1986): each pass over the data adds what stands 1, 2, 4, ... places before, and
    none has a dependence among its elements.
    """

    def compute(attrs: Attrs, out: TensorType, data: te.Tensor) -> te.Tensor:
        axis = normalise_axis(attrs.axis, len(out.shape))
        extent = out.shape[axis]
        nothing = Imm(int(op == "mul"), out.dtype)

        def before(tensor: te.Tensor, index: tuple[Any, ...], distance: int, there: Any, here: Any) -> Expr:
            """``there(what stands so many places before)``; ``here`` where that is outside."""
            at = index[axis]
            inside = at < extent - distance if attrs.reverse else at >= distance
            place = at + distance if attrs.reverse else at - distance
            return Select(inside, there(tensor[_with(index, axis, place)]), here)

        made = data
        if attrs.exclusive:
            source = data
            made = te.compute(out.shape, lambda *i: before(source, i, 1, lambda x: x, nothing), "shifted")
        distance = 1
        while distance < extent:
            made = _doubled(made, distance, before, op)
            distance *= 2
        return te.compute(out.shape, lambda *i: made[i], name)

    return compute


def _doubled(tensor: te.Tensor, distance: int, before: Callable[..., Expr], op: str) -> te.Tensor:
    def at(*index: Any) -> Expr:
        own = tensor[index]
        return before(tensor, index, distance, lambda x: Bin(op, x, own), own)

    return te.compute(tensor.shape, at, "partial")


for _name, _op, _what in (("cumsum", "add", "sum"), ("cumprod", "mul", "product")):
    register_op(
        Op(
            name=_name,
            doc=f"The {_what} of what stands before each element along an axis, and of itself. Integers wrap around.",
            inputs=("data",),
            attrs=(
                _AXIS,
                Attr("exclusive", Boolean, "without the element itself", default=False),
                Attr("reverse", Boolean, "of what stands behind each element", default=False),
            ),
            infer=_infer_running,
            reference=_running_reference(_name),
            compute=_running_compute(_op, _name),
            kind="opaque",
        )
    )


# --- the first of an order -------------------------------------------------------------------------------------------


def _infer_topk(attrs: Attrs, data: TensorType) -> TupleType:
    """Numbers of any dtype; the results, of ``k`` elements along the axis, are of the dtype of the data, and of
    ``dtype``.
    """
    axis = _numbers(attrs, data)
    if not 1 <= attrs.k <= data.shape[axis]:
        raise ModelError(f"it takes {attrs.k} of {data.shape[axis]} elements")
    shape = _with(data.shape, axis, attrs.k)
    return TupleType((TensorType(shape, data.dtype), TensorType(shape, attrs.dtype)))


def _topk_reference(attrs: Attrs, data: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    import numpy as np

    # A stable sort keeps the order of equal ones; the largest are the first of the data turned round, last to first.
    turned = np.flip(data, attrs.axis) if attrs.largest else data
    places = np.argsort(turned, attrs.axis, kind="stable")
    if attrs.largest:
        places = data.shape[attrs.axis] - 1 - np.flip(places, attrs.axis)
    places = places.take(range(attrs.k), attrs.axis)
    return np.take_along_axis(data, places, attrs.axis), places.astype(attrs.dtype)


def _topk_compute(attrs: Attrs, out: TupleType, data: te.Tensor) -> tuple[te.Tensor, te.Tensor]:
    """Each element counts those that come before it: that is its rank, and the places are sorted by their ranks."""
    axis = normalise_axis(attrs.axis, len(data.shape))
    extent = data.shape[axis]
    j, k = te.reduce_axis(extent, "j"), te.reduce_axis(extent, "k")
    shape = _with(data.shape, axis, attrs.k)
    zero, one, last = Imm(0, "int32"), Imm(1, "int32"), Imm(extent - 1, "int32")

    def rank(*index: Any) -> te.Reduction:
        own, other = data[index], data[_with(index, axis, j)]
        precedes = other > own if attrs.largest else other < own
        first = precedes | (other.equal(own) & (j < index[axis]))
        return te.sum(Select(first, one, zero), (j,))

    ranks = te.compute(data.shape, rank, "rank")

    def place(*index: Any) -> te.Reduction:
        return te.min(Select(ranks[_with(index, axis, k)].equal(index[axis]), k, last), (k,))

    places = te.compute(shape, place, "place")

    def value(*index: Any) -> Expr:
        # The limits are for the proof that no index leaves the data.
        return data[_with(index, axis, minimum(maximum(places[index], zero), last))]

    values = te.compute(shape, value, "values")
    return values, te.compute(shape, lambda *i: places[i].astype(attrs.dtype), "indices")


register_op(
    Op(
        name="topk",
        doc="The k largest, or smallest, elements along an axis, in order, and their places: of equal ones that of the "
        "lower place is first. Among elements with NaN there is no order.",
        inputs=("data",),
        attrs=(
            Attr("k", Int, "how many"),
            Attr("axis", Int, "the axis", default=-1),
            Attr("largest", Boolean, "the largest first, else the smallest", default=True),
            _DTYPE,
        ),
        infer=_infer_topk,
        reference=_topk_reference,
        compute=_topk_compute,
        kind="opaque",
    )
)
