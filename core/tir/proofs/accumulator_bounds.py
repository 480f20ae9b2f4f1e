"""Accumulators that cannot overflow: what their reductions may add up to, for every input."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod

from ..form.dtype import bits, is_integer
from ..form.nodes import Alloc, Buffer, For, PrimFunc, Stmt, Store, Update, Var
from ..form.visit import accesses
from .affine import Affine, flat_index
from .intervals import Bounds, Interval, fits

__all__ = ["exact_sums"]


def exact_sums(func: PrimFunc) -> set[Buffer]:
    """Buffers of integers of at least 32 bits, local or kept from row to row, that only loops write, and all of whose
    updates are additions that cannot overflow.

    An element holds what is stored to it and, after that, at most all that the updates in the buffer's scope add to it:
    each as often as the loops around it run that do not count the element's own indices.
    """
    finder = _Finder()
    if func.rows is not None:
        finder.begin(param.buffer for param in func.params if param.buffer.name in func.rows.kept)
    finder.visit(func.whole().body, Bounds({}), ())
    return {buffer for buffer, values in finder.values.items() if fits(values, buffer.dtype)}


Loops = Sequence[tuple[Var, int]]


class _Finder:
    def __init__(self) -> None:
        self.values: dict[Buffer, Interval] = {}
        self.depths: dict[Buffer, int] = {}

    def begin(self, buffers: Iterable[Buffer], depth: int = 0) -> None:
        """Buffers that exist within so many loops."""
        for buffer in buffers:
            if is_integer(buffer.dtype) and bits(buffer.dtype) >= 32:
                self.values[buffer] = (0, 0)
                self.depths[buffer] = depth

    def visit(self, stmt: Stmt, bounds: Bounds, loops: Loops) -> None:
        """Note what ``stmt`` writes, within ``loops`` and their extents."""
        if isinstance(stmt, Alloc):
            self.begin((stmt.buffer,), len(loops))
        elif isinstance(stmt, For):
            loops = (*loops, (stmt.var, max(0, bounds.interval(stmt.extent)[1])))
        for use in accesses(stmt):
            if use.writes and use.buffer in self.values:
                if isinstance(stmt, (Store, Update)):
                    self.note(stmt, bounds.interval(stmt.value), loops)
                else:
                    del self.values[use.buffer]
        for body, inside in bounds.children(stmt):
            self.visit(body, inside, loops)

    def note(self, stmt: Store | Update, value: Interval, loops: Loops) -> None:
        low, high = self.values[stmt.buffer]
        if isinstance(stmt, Store):
            # Added to what the other stores may leave, which is more than the hull of both, and simple.
            self.values[stmt.buffer] = (low + min(0, value[0]), high + max(0, value[1]))
        elif stmt.op != "add":
            del self.values[stmt.buffer]
        else:
            inner = loops[self.depths[stmt.buffer] :]
            distinct = _own_indices(flat_index(stmt.buffer, stmt.indices), inner)
            times = prod(extent for var, extent in inner if var not in distinct)
            self.values[stmt.buffer] = (low + times * min(0, value[0]), high + times * max(0, value[1]))


def _own_indices(index: Affine, loops: Loops) -> set[Var]:
    """Variables of ``loops`` of which no two sets of values give one element, all others being as they are."""
    strides = {var: abs(index.stride(var) or 0) for var, _ in loops}
    distinct: set[Var] = set()
    span = 1
    for var, extent in sorted(loops, key=lambda loop: strides[loop[0]]):
        if strides[var] >= span:
            distinct.add(var)
            span += strides[var] * (extent - 1)
    return distinct
