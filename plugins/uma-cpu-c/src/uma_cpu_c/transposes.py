"""The schedule of a transposition: matrices, each transposed in registers block by block."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import pairwise

from uma.hookspecs import Declined, Fusion, ScheduledKernel
from uma.relay import Call
from uma.tir import INDEX, Buffer, For, Imm, Intrinsic, Store, Var, te
from uma.tir.schedule import Schedule

from .products import LANES
from .schedules import looks_up, widest
from .vector_units import VectorModel

__all__ = ["axis_order", "transposed", "transposition"]

_BLOCK_BYTES = 16
"""Of a row of a block in ``uma_transpose.h``, which has as many rows, at least, as there are elements in these."""


def transposed(fusion: Fusion, unit: VectorModel) -> ScheduledKernel | Declined | None:
    """The loops of a fusion whose anchor is a transposition; or why it has no form here. None where something follows
    it in the same loops, where elements that lie side by side stay so, and where the plain loops are as good, as for
    the three colours of a picture.

    Args:
        fusion: whose anchor it is.
        unit: of the CPU.
    """
    call = fusion.anchor
    assert call is not None
    if fusion.epilogue:
        return None
    (data,) = fusion.tensors.by_expr[call.args[0]]
    shape, axes = merged(call.args[0].shape, axis_order(call))
    last = len(axes) - 1
    if last < 1 or axes[last] == last:
        return None
    if fusion.prologue:
        return _after(fusion, call, data, unit)
    if fusion.known:
        return None
    rows, columns = shape[axes[last]], shape[last]
    if min(rows, columns) < LANES:
        return None
    if few := _too_few(rows, columns, data):
        return few
    place = [axes.index(dim) for dim in range(len(axes))]
    source = te.reshape(data, shape)
    result = te.compute([shape[axis] for axis in axes], lambda *i: source[tuple(i[dim] for dim in place)], "transposed")
    kernel = te.plain(fusion.tensors.params, (result,))
    s = Schedule(kernel.func)
    loops = s.loops(kernel.labels[result])
    row, column = loops[last], loops[place[last]]
    s.reorder(*(loops[dim] for dim in place if loops[dim] not in (row, column)), column, row)
    s.tensorize(column, transposition(rows, columns, data.dtype))
    return ScheduledKernel(replace(kernel, func=s.func))


def _after(fusion: Fusion, call: Call, data: te.Tensor, unit: VectorModel) -> ScheduledKernel | Declined | None:
    """The same where the data is computed first: as much of it as one matrix has, in memory of its own."""
    axes, shape = axis_order(call), data.shape
    row_dim = next(dim for dim in reversed(axes) if shape[dim] > 1)
    column_dim = max(dim for dim in axes if shape[dim] > 1)
    if min(shape[row_dim], shape[column_dim]) < LANES:
        return None
    if few := _too_few(shape[row_dim], shape[column_dim], data):
        return few
    result = fusion.tensors.results[0]
    kernel = fusion.plain(None, (data,))
    around = [dim for dim in range(len(axes)) if shape[dim] > 1 and dim not in (row_dim, column_dim)]
    if set(kernel.labels) != {data, result} or not around:
        return None
    s = Schedule(kernel.func)
    loops = dict(zip(axes, s.loops(kernel.labels[result]), strict=True))
    outer = [dim for dim in range(len(axes)) if dim not in (row_dim, column_dim)]
    s.reorder(*(loops[dim] for dim in outer), loops[column_dim], loops[row_dim])
    s.compute_at(kernel.labels[data], loops[around[-1]])
    (held,) = s.store_at(kernel.buffers[data], loops[around[-1]])
    s.set_scope(held, "global")
    widest_bytes = max(data.nbytes // data.size, widest(kernel.func, kernel.labels[data]))
    lanes = math.gcd(shape[column_dim], unit.bytes // widest_bytes)
    if lanes >= LANES and not looks_up(kernel.func, kernel.labels[data]):
        s.vectorize(s.split(s.loops(kernel.labels[data])[-1], lanes)[1])
    s.tensorize(loops[column_dim], transposition(shape[row_dim], shape[column_dim], data.dtype))
    return ScheduledKernel(replace(kernel, func=s.func))


def _too_few(rows: int, columns: int, data: te.Tensor) -> Declined | None:
    least = _BLOCK_BYTES * data.size // data.nbytes
    if min(rows, columns) >= least:
        return None
    few = f"{min(rows, columns)} {'rows' if rows < columns else 'columns'} of {data.dtype}"
    return Declined(f"no blocks that are transposed in registers: its matrices have {few}, fewer than {least}")


def axis_order(call: Call) -> tuple[int, ...]:
    """Return for each dimension of the result of a permutation which one of the data it is."""
    if call.op_name == "transpose":
        return tuple(call.attrs.axes)
    return tuple(call.attrs.src_layout.index(name) for name in call.attrs.dst_layout)


def merged(shape: Sequence[int], axes: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The shape of the data and the axes of a transposition, without dimensions of one element, and with those as one
    that follow one another before and after.
    """
    runs: list[list[int]] = []
    kept = [dim for dim, extent in enumerate(shape) if extent != 1]
    following = dict(pairwise(kept))
    for axis in axes:
        if shape[axis] == 1:
            continue
        if runs and following.get(runs[-1][-1]) == axis:
            runs[-1].append(axis)
        else:
            runs.append([axis])
    order = sorted(runs)
    return tuple(math.prod(shape[dim] for dim in run) for run in order), tuple(order.index(run) for run in runs)


@cache
def transposition(rows: int, columns: int, dtype: str) -> Intrinsic:
    """``y[j, i] = x[i, j]`` for a matrix ``x`` of so many rows and columns, in ``uma_transpose.h``."""
    y, x = Buffer("y", (columns, rows), dtype), Buffer("x", (rows, columns), dtype)
    j, i = Var("j"), Var("i")
    body = For(j, Imm(columns, INDEX), For(i, Imm(rows, INDEX), Store(y, (j, i), x[i, j])))
    bits = 8 * x.nbytes // x.size
    text = f"uma_transpose_{bits}({{y}}, {{y_stride0}}, {{x}}, {{x_stride0}}, {rows}, {columns})"
    return Intrinsic(f"transpose_{rows}x{columns}_{dtype}", (y, x), (), body, statement=text, include="uma_transpose.h")
