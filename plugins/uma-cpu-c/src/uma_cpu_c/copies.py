"""The schedule of a transposition: blocks of the data, each transposed in registers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

from uma.hookspecs import Fusion, Scheduled
from uma.relay import Call
from uma.tir import INDEX, Block, Buffer, Expr, For, Imm, Intrinsic, Store, Var, te, walk
from uma.tir.schedule import Schedule

__all__ = ["transposed"]

Extents = tuple[int, ...]
Element = Callable[..., Expr]


def transposed(fusion: Fusion, lanes: int) -> Scheduled | None:
    """The loops of a fusion whose anchor is a transposition of 32-bit numbers; None where elements that lie side by
    side stay so, or are few.

    Args:
        fusion: whose anchor it is.
        lanes: of a vector: 4, 8, or more, of which 8 are used.
    """
    call, size = fusion.anchor, min(lanes, 8)
    assert call is not None
    axes = _axes(call)
    # The dimensions of the result along which it lies side by side, and along which the data does.
    rows, columns = len(axes) - 1, axes.index(len(axes) - 1)
    is_moved = rows != columns and min(call.shape[rows], call.shape[columns]) >= size
    if len(fusion.calls) > 1 or call.dtype not in ("float32", "int32") or not is_moved:
        return None
    (data,) = fusion.tensors.of[call.args[0]]
    anchor = te.assemble(call.shape, call.dtype, _pieces(call, data, axes, size), "transposed")
    kernel = fusion.plain(anchor)
    s = Schedule(kernel.func)
    whole = next(
        part.label for part in walk(kernel.func.body) if isinstance(part, Block) and isinstance(part.body, For)
    )
    loops = s.loops(whole)
    row, i = s.split(loops[rows], size)
    column, j = s.split(loops[columns], size)
    # The data in its own order.
    split = {rows: row, columns: column}
    s.reorder(*(split.get(dim, loops[dim]) for dim in map(axes.index, range(len(axes)))), j, i)
    s.tensorize(j, _block(size, call.dtype))
    return Scheduled(replace(kernel, func=s.func))


def _axes(call: Call) -> tuple[int, ...]:
    """Dimension d of the result is dimension ``axes[d]`` of the data."""
    if call.op_name == "transpose":
        return tuple(call.attrs.axes)
    return tuple(call.attrs.src_layout.index(name) for name in call.attrs.dst_layout)


def _pieces(call: Call, data: te.Tensor, axes: tuple[int, ...], size: int) -> list[tuple[Extents, Extents, Element]]:
    """All whole blocks, and what is left beside them."""
    rows, columns = len(axes) - 1, axes.index(len(axes) - 1)
    shape, origin = tuple(call.shape), (0,) * len(axes)
    whole = tuple(extent // size * size if dim in (rows, columns) else extent for dim, extent in enumerate(shape))
    boxes = [
        (origin, whole),
        (_with(origin, rows, whole[rows]), _with(shape, rows, shape[rows] - whole[rows])),
        (_with(origin, columns, whole[columns]), _with(whole, columns, shape[columns] - whole[columns])),
    ]

    def element(offset: Extents) -> Element:
        return lambda *i: data[tuple(i[axes.index(dim)] + offset[axes.index(dim)] for dim in range(len(axes)))]

    return [(offset, extents, element(offset)) for offset, extents in boxes if 0 not in extents]


def _with(values: Extents, position: int, value: int) -> Extents:
    return (*values[:position], value, *values[position + 1 :])


@cache
def _block(size: int, dtype: str) -> Intrinsic:
    y, x = Buffer("y", (size, size), dtype), Buffer("x", (size, size), dtype)
    j, i = Var("j"), Var("i")
    body = For(j, Imm(size, INDEX), For(i, Imm(size, INDEX), Store(y, (j, i), x[i, j])))
    text = f"uma_transpose_{size}({{y}}, {{y_stride0}}, {{x}}, {{x_stride0}})"
    return Intrinsic(f"transpose_{size}_{dtype}", (y, x), (), body, statement=text, include="uma_transpose.h")
