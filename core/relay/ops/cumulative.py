"""Running sums and products."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...tir import te
from ...tir.form.nodes import (
    Alloc,
    Bin,
    Block,
    Buffer,
    Expr,
    For,
    Imm,
    Param,
    PrimFunc,
    Select,
    Stmt,
    Store,
    Var,
    const,
    seq,
)
from ..op import Attr, Attrs, Boolean, Int, Specials, define_op
from ..types import TensorType
from .axis_ops import numbers, with_place
from .common import normalise_axis

if TYPE_CHECKING:
    import numpy as np

__all__: list[str] = []


def _infer_running(attrs: Attrs, data: TensorType) -> TensorType:
    """Numbers of any dtype; the result is of the type of the data."""
    numbers(attrs, data)
    return data


def _running_reference(name: str) -> Callable[..., np.ndarray]:
    def reference(attrs: Attrs, data: np.ndarray) -> np.ndarray:
        import numpy as np

        axis = normalise_axis(attrs.axis, data.ndim)
        turned = np.flip(data, axis) if attrs.reverse else data
        wide = turned.astype(np.float64) if data.dtype.kind == "f" else turned
        totals = getattr(np, name)(wide, axis, dtype=wide.dtype)
        if attrs.exclusive:
            first = np.full_like(totals.take([0], axis), name == "cumprod")
            totals = np.concatenate([first, totals.take(range(data.shape[axis] - 1), axis)], axis)
        totals = np.flip(totals, axis) if attrs.reverse else totals
        return np.ascontiguousarray(totals.astype(data.dtype))

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
            return Select(inside, there(tensor[with_place(index, axis, place)]), here)

        totals = data
        if attrs.exclusive:
            source = data
            totals = te.compute(out.shape, lambda *i: before(source, i, 1, lambda x: x, nothing), "shifted")
        distance = 1
        while distance < extent:
            totals = _doubled(totals, distance, before, op)
            distance *= 2
        return te.compute(out.shape, lambda *i: totals[i], name)

    return compute


def _doubled(tensor: te.Tensor, distance: int, before: Callable[..., Expr], op: str) -> te.Tensor:
    def at(*index: Any) -> Expr:
        element = tensor[index]
        return before(tensor, index, distance, lambda x: Bin(op, x, element), element)

    return te.compute(tensor.shape, at, "partial")


# --- loops -----------------------------------------------------------------------------------------------------------

_SIDE_BY_SIDE = 16
"""Elements that are worth a loop of their own."""

_AT_ONCE = 8
"""Sums that are formed at once: each addition waits for the one before it in the same sum."""


def _running_loops(op: str) -> Callable[..., PrimFunc]:
    """One element after the other. What lies side by side goes along together; where that is little, some sums do."""

    def loops(attrs: Attrs, out: TensorType, data: TensorType) -> PrimFunc:
        axis = normalise_axis(attrs.axis, len(out.shape))
        extent, inner = out.shape[axis], math.prod(out.shape[axis + 1 :])
        shape = (math.prod(out.shape[:axis]), extent, inner)
        x, y = Buffer("x", shape, out.dtype), Buffer("y", shape, out.dtype)
        body = (_rows if inner >= _SIDE_BY_SIDE else _sums)(x, y, op, attrs)
        return PrimFunc((Param(x, "input"), Param(y, "output")), Block("running", body))

    return loops


def _rows(x: Buffer, y: Buffer, op: str, attrs: Attrs) -> Stmt:
    outer, extent, inner = x.shape
    o, at, i, j = Var("o"), Var("at"), Var("i"), Var("j")
    first = Imm(int(op == "mul"), x.dtype) if attrs.exclusive else x[o, _place(const(0), extent, attrs), i]
    stmts: list[Stmt] = [For(i, const(inner), Store(y, (o, _place(const(0), extent, attrs), i), first))]
    if extent > 1:
        before, here = _place(at, extent, attrs), _place(at + 1, extent, attrs)
        grown = Bin(op, y[o, before, j], x[o, before if attrs.exclusive else here, j])
        stmts.append(For(at, const(extent - 1), For(j, const(inner), Store(y, (o, here, j), grown))))
    return For(o, const(outer), seq(*stmts))


def _sums(x: Buffer, y: Buffer, op: str, attrs: Attrs) -> Stmt:
    outer, extent, inner = x.shape
    count = max(n for n in range(1, _AT_ONCE + 1) if outer % n == 0)
    sums = Buffer("sums", (count,), x.dtype, "local")
    o, i, at, r, begun = Var("o"), Var("i"), Var("at"), Var("r"), Var("begun")
    where = (o * count + r, _place(at, extent, attrs), i)
    grow, put = Store(sums, (r,), Bin(op, sums[r], x[where])), Store(y, where, sums[r])
    step = For(r, const(count), seq(put, grow) if attrs.exclusive else seq(grow, put), "unrolled")
    begin = For(begun, const(count), Store(sums, (begun,), Imm(int(op == "mul"), x.dtype)), "unrolled")
    return For(o, const(outer // count), For(i, const(inner), Alloc(sums, seq(begin, For(at, const(extent), step)))))


def _place(at: Expr, extent: int, attrs: Attrs) -> Expr:
    """The place of step ``at``."""
    return Imm(extent - 1, "int32") - at if attrs.reverse else at


for _name, _op, _total in (("cumsum", "add", "sum"), ("cumprod", "mul", "product")):
    define_op(
        name=_name,
        doc=f"The {_total} of what stands before each element along an axis, and of itself. Integers wrap around.",
        inputs=("data",),
        attrs=(
            Attr("axis", Int, "the axis"),
            Attr("exclusive", Boolean, "without the element itself", default=False),
            Attr("reverse", Boolean, "of what stands behind each element", default=False),
        ),
        infer=_infer_running,
        reference=_running_reference(_name),
        compute=_running_compute(_op, _name),
        loops=_running_loops(_op),
        kind="opaque",
        specials=Specials("kept", "and so are all behind it"),
    )
