"""What goes along one axis: the place of its extremum, the first k in order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ...errors import ModelError
from ...tir import te
from ...tir.form.dtype import is_float
from ...tir.form.nodes import (
    Block,
    Buffer,
    Expr,
    For,
    If,
    Imm,
    Param,
    PrimFunc,
    Select,
    Stmt,
    Store,
    Var,
    const,
    maximum,
    minimum,
    seq,
)
from ..op import Attr, Attrs, Boolean, Choice, Int, Specials, define_op
from ..types import TensorType, TupleType
from .common import normalise_axis, require_elements
from .reduce import IGNORES_NAN, extremum_of_floats

if TYPE_CHECKING:
    import numpy as np

__all__ = ["numbers", "with_place"]

_AXIS = Attr("axis", Int, "the axis")
_DTYPE = Attr("dtype", Choice("int32", "int64"), "of the places", default="int64")


def numbers(attrs: Attrs, data: TensorType) -> int:
    """The axis of ``data``, which are numbers; ModelError where it has none."""
    if data.dtype == "bool":
        raise ModelError("it takes numbers, not bool")
    return normalise_axis(attrs.axis, len(data.shape))


def with_place(index: tuple[Any, ...], axis: int, at: Any) -> tuple[Any, ...]:
    """``index`` with ``at`` in the place of an axis."""
    return (*index[:axis], at, *index[axis + 1 :])


# --- the place of the extremum ---------------------------------------------------------------------------------------


def _infer_place(attrs: Attrs, data: TensorType) -> TensorType:
    """Numbers of any dtype; the result is of ``dtype``, without the axis, or with extent 1 in its place."""
    axis = numbers(attrs, data)
    require_elements(data.shape[axis])
    kept = (1,) if attrs.keepdims else ()
    return TensorType((*data.shape[:axis], *kept, *data.shape[axis + 1 :]), attrs.dtype)


def _place_reference(name: str) -> Callable[..., np.ndarray]:
    def reference(attrs: Attrs, data: np.ndarray) -> np.ndarray:
        import numpy as np

        axis = attrs.axis
        if data.dtype.kind == "f":
            best = extremum_of_floats(name[3:], data, (axis,), keepdims=True)
        else:
            best = getattr(data, name[3:])(axis, keepdims=True)
        is_best = data == best
        places = np.argmax(np.flip(is_best, axis) if attrs.select_last else is_best, axis, keepdims=attrs.keepdims)
        if attrs.select_last:
            places = data.shape[axis] - 1 - places
        return np.asarray(np.where(is_best.any(axis, keepdims=attrs.keepdims), places, 0)).astype(attrs.dtype)

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
        # Where all are NaN, none is as large as the largest number, -inf: the place is 0.
        may_be_none = is_float(data.dtype) and not attrs.select_last
        none = Imm(0 if attrs.select_last else extent if may_be_none else extent - 1, "int32")
        choose = te.max if attrs.select_last else te.min
        winner = te.compute(outer, lambda *i: choose(Select(data[full(i, j)].equal(best[i]), j, none), (j,)), "place")
        kept = axis + (1 if attrs.keepdims else 0)

        def place(*index: Any) -> Expr:
            number: Expr = winner[(*index[:axis], *index[kept:])]
            number = Select(number < none, number, Imm(0, "int32")) if may_be_none else number
            return number.astype(attrs.dtype)

        return te.compute(out.shape, place, name)

    return compute


_ONNX = "depends on positions and on the CPU: elements before a NaN may be forgotten"

for _name, _fold, _extreme in (("argmax", te.max, "largest"), ("argmin", te.min, "smallest")):
    define_op(
        name=_name,
        doc=f"The place of the {_extreme} element along an axis: the first, or the last, where there are several. "
        "NaN is ignored; where all are NaN it is 0.",
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
        specials=replace(IGNORES_NAN, onnx=_ONNX, tflite=""),
    )


# --- the first of an order -------------------------------------------------------------------------------------------


def _infer_topk(attrs: Attrs, data: TensorType) -> TupleType:
    """Numbers of any dtype; the results, of ``k`` elements along the axis, are of the dtype of the data, and of
    ``dtype``.
    """
    axis = numbers(attrs, data)
    if not 1 <= attrs.k <= data.shape[axis]:
        raise ModelError(f"it takes {attrs.k} of {data.shape[axis]} elements")
    shape = with_place(data.shape, axis, attrs.k)
    return TupleType((TensorType(shape, data.dtype), TensorType(shape, attrs.dtype)))


def _topk_reference(attrs: Attrs, data: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    import numpy as np

    # numpy sorts NaN behind all numbers. A stable sort keeps the order of equal ones; the largest are the first of the
    # data turned round, last to first.
    turned = np.flip(data, attrs.axis) if attrs.largest else data
    places = np.argsort(turned, attrs.axis, kind="stable")
    if attrs.largest:
        places = data.shape[attrs.axis] - 1 - np.flip(places, attrs.axis)
    places = places.take(range(attrs.k), attrs.axis)
    return np.take_along_axis(data, places, attrs.axis), places.astype(attrs.dtype)


def precedes(attrs: Attrs, a: Expr, b: Expr) -> Expr:
    """Whether ``a`` comes before ``b`` in the order of `topk`, places aside: NaN is larger than all numbers."""
    larger, smaller = (a, b) if attrs.largest else (b, a)
    ordered = larger > smaller
    return ordered | (larger.not_equal(larger) & smaller.equal(smaller)) if is_float(a.dtype) else ordered


def _topk_compute(attrs: Attrs, out: TupleType, data: te.Tensor) -> tuple[te.Tensor, te.Tensor]:
    """Each element counts those that come before it: that is its rank, and the places are sorted by their ranks."""
    axis = normalise_axis(attrs.axis, len(data.shape))
    extent = data.shape[axis]
    j, k = te.reduce_axis(extent, "j"), te.reduce_axis(extent, "k")
    shape = with_place(data.shape, axis, attrs.k)
    zero, one, last = Imm(0, "int32"), Imm(1, "int32"), Imm(extent - 1, "int32")

    def rank(*index: Any) -> te.Reduction:
        element, other = data[index], data[with_place(index, axis, j)]
        before = precedes(attrs, other, element)
        first = before | (~precedes(attrs, element, other) & (j < index[axis]))
        return te.sum(Select(first, one, zero), (j,))

    ranks = te.compute(data.shape, rank, "rank")

    def place(*index: Any) -> te.Reduction:
        return te.min(Select(ranks[with_place(index, axis, k)].equal(index[axis]), k, last), (k,))

    places = te.compute(shape, place, "place")

    def value(*index: Any) -> Expr:
        # The limits are for the proof that no index leaves the data.
        return data[with_place(index, axis, minimum(maximum(places[index], zero), last))]

    values = te.compute(shape, value, "values")
    return values, te.compute(shape, lambda *i: places[i].astype(attrs.dtype), "indices")


def _topk_loops(attrs: Attrs, out: TupleType, data: TensorType) -> PrimFunc:
    """One element after the other is put among the k first of those before it, behind its equals; what it displaces
    moves on by one."""
    axis, k = normalise_axis(attrs.axis, len(data.shape)), attrs.k
    x = Buffer("x", data.shape, data.dtype)
    values, places = (Buffer(f"y{i}", field.shape, field.dtype) for i, field in enumerate(out.fields))
    around = [Var(f"i{d}") for d in range(len(data.shape))]
    first, at, back = Var("first"), Var("at"), Var("back")
    place, zero = Imm(k - 1, "int32") - back, Imm(0, "int32")

    def there(to: Expr) -> tuple[Expr, ...]:
        return with_place(tuple(around), axis, to)

    element, before = x[there(at)], maximum(place - 1, zero)

    def put(to: Expr, value: Expr, number: Expr) -> Stmt:
        return seq(Store(values, there(to), value), Store(places, there(to), number.astype(attrs.dtype)))

    def displaces(other: Expr) -> Expr:
        return precedes(attrs, element, values[there(other)]) | (other >= at)

    shift_down = put(place, values[there(before)], places[there(before)])
    step = If((place > 0) & displaces(before), shift_down, If(displaces(place), put(place, element, at)))
    begin = For(first, const(k), put(first, x[there(zero)], zero))
    loops = seq(begin, For(at, const(data.shape[axis]), If(displaces(Imm(k - 1, "int32")), For(back, const(k), step))))
    for d in reversed(range(len(around))):
        loops = loops if d == axis else For(around[d], const(data.shape[d]), loops)
    params = (Param(x, "input"), Param(values, "output"), Param(places, "output"))
    return PrimFunc(params, Block("first", loops))


define_op(
    name="topk",
    doc="The k largest, or smallest, elements along an axis, in order, and their places: of equal ones that of the "
    "lower place is first. NaN is larger than all numbers, and equal to NaN.",
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
    loops=_topk_loops,
    kind="opaque",
    specials=Specials("largest", "of several NaN that of the lower place is first", tflite="sorted by chance"),
)
