"""Which output of a kernel may be the same memory as an input: every element must be read before it is overwritten."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from math import gcd

from ..form.fields import Access, accesses
from ..form.nodes import Bin, Buffer, Copy, Exec, For, Imm, Param, Stmt, Var
from ..form.visit import child_statements, operands, walk
from .affine import Affine, affine, flat_index
from .intervals import Bounds, Interval

__all__ = ["flat", "in_lanes", "joined", "may_alias", "reach"]


@dataclass(frozen=True)
class _Access:
    """Elements from ``index`` to ``reach`` further, by these ``steps``, of which at least one may be accessed."""

    buffer: Buffer
    index: Affine
    loops: tuple[Var, ...]
    writes: bool
    reach: int = 0
    steps: tuple[int, ...] = ()


def may_alias(params: Sequence[Param], body: Stmt) -> tuple[tuple[str, str], ...]:
    """The pairs (output, input) of names that may be one memory, as far as can be shown.

    They have one dtype and size, and what a store writes in one round of the loops around it and a load no load reads
    in another round, nor behind it in the same; in loops over lanes no load stands behind a store at all. What is read
    by what is only started may be read any time later.
    """
    inputs = [param.buffer for param in params if param.role == "input"]
    outputs = [param.buffer for param in params if param.role == "output"]
    pairs = [(out, x) for out in outputs for x in inputs if out.dtype == x.dtype and out.size == x.size]
    if not pairs:
        return ()
    ranges: dict[Var, Interval] = {}
    found: list[_Access] = []
    _collect(body, (), ranges, found)
    known = Bounds(ranges)
    lanes = in_lanes(body)
    in_flight = [part for part in walk(body) if isinstance(part, (Copy, Exec)) and part.queue is not None]
    started = {use.buffer for part in in_flight for use in accesses(part) if use.reads}
    return tuple((out.name, x.name) for out, x in pairs if x not in started and _safe(out, x, found, known, lanes))


def in_lanes(body: Stmt) -> bool:
    """Whether there are vector loops: these gain more by being told that nothing they store is what they load than by
    using less memory."""
    return any(isinstance(part, For) and part.kind == "vectorized" for part in walk(body))


def _collect(stmt: Stmt, loops: tuple[Var, ...], ranges: dict[Var, Interval], found: list[_Access]) -> None:
    """Appends the accesses of ``stmt``, in the order of its text."""
    loads = [use for expr in operands(stmt) for part in walk(expr) for use in accesses(part)]
    found += [_Access(use.buffer, flat(use), loops, False) for use in loads]
    # What a statement itself reads counts as read after what it writes: it does both in its own order.
    for writes in (True, False):
        for use in accesses(stmt):
            if use.writes if writes else use.reads:
                limits = Bounds(ranges)
                far, steps = reach(use, limits), _steps(use, limits)
                found.append(_Access(use.buffer, flat(use), loops, writes, far, steps))
    if isinstance(stmt, For):
        ranges[stmt.var] = (0, Bounds(ranges).interval(stmt.extent)[1] - 1)
        loops = (*loops, stmt.var)
    for inner in child_statements(stmt):
        _collect(inner, loops, ranges, found)


def flat(use: Access) -> Affine:
    """The first element of a use."""
    return joined(flat_index(use.buffer, use.start))


def joined(index: Affine) -> Affine:
    """An index in which what loops over several dimensions at once, ``i // 5`` and ``i % 5``, is ``i`` again where
    these lie side by side."""
    for term, factor in index.terms.items():
        if isinstance(term, Bin) and term.op == "floordiv" and isinstance(term.b, Imm):
            rest, size = Bin("floormod", term.a, term.b), int(term.b.value)
            if index.terms.get(rest, 0) * size == factor:
                kept = {other: f for other, f in index.terms.items() if other not in (term, rest)}
                joined = affine(term.a).scaled(factor // size)
                index = Affine(kept, index.constant) + joined
    return index


def reach(use: Access, known: Bounds) -> int:
    """How far beyond its first element a use goes, at most."""
    strides = () if use.view is None else use.view.strides()
    extents = [max(0, known.interval(extent)[1] - 1) for extent in use.shape]
    return sum(stride * steps for stride, steps in zip(strides, extents, strict=True))


def _steps(use: Access, known: Bounds) -> tuple[int, ...]:
    """By how much elements of a use lie apart, for each axis along which it has several."""
    strides = () if use.view is None else use.view.strides()
    pairs = zip(strides, use.shape, strict=True) if strides else ()
    return tuple(stride for stride, extent in pairs if known.interval(extent)[1] > 1)


def _safe(out: Buffer, x: Buffer, accesses: Sequence[_Access], known: Bounds, lanes: bool) -> bool:
    written: list[_Access] = []
    read: list[_Access] = []
    for access in accesses:
        if access.buffer == out and access.writes:
            written.append(access)
        elif access.buffer == x:
            if written and (lanes or not all(_elsewhere(access, store, known) for store in written)):
                return False
            read.append(access)
    return all(_apart(load, store, known) for load in read for store in written)


def _elsewhere(load: _Access, store: _Access, known: Bounds) -> bool:
    """Whether a load that stands behind a store in the text reads nothing that the same round has written."""
    common = _common(load, store)
    if any(load.index.stride(var) is None or load.index.stride(var) != store.index.stride(var) for var in common):
        return False
    (a, b), (c, d) = (_rest(access.index, common, known) for access in (load, store))
    return b + load.reach < c or d + store.reach < a


def _common(load: _Access, store: _Access) -> list[Var]:
    """The loops around both, outermost first."""
    return [a for a, b in takewhile(lambda pair: pair[0] is pair[1], zip(load.loops, store.loops, strict=False))]


def _apart(load: _Access, store: _Access, known: Bounds) -> bool:
    """Whether each round of the loops around both has a part of the memory of its own."""
    common = _common(load, store)
    strides = []
    for var in common:
        stride = load.index.stride(var)
        if stride is None or stride != store.index.stride(var):
            return False
        low, high = known.interval(var)
        if high > low:
            strides.append((abs(stride), high - low))
    (a, b), (c, d) = (_rest(access.index, common, known) for access in (load, store))
    span = max(b + load.reach, d + store.reach) - min(a, c) + 1
    return _is_whole(span, strides) is not None or _interleaved(load, store, common, strides)


def _is_whole(span: int, strides: Sequence[tuple[int, int]]) -> int | None:
    """Over how many elements rounds go that each use ``span`` elements, all others; None where some may be shared."""
    for stride, steps in sorted(strides):
        if stride < span:
            return None
        span += stride * steps
    return span


def _interleaved(load: _Access, store: _Access, common: Sequence[Var], strides: Sequence[tuple[int, int]]) -> bool:
    """Whether each round has elements of its own in each of some lines that all rounds go through, such as a channel of
    all pixels."""
    factors = [factor for one in (load, store) for term, factor in one.index.terms.items() if term not in common]
    line = gcd(*factors, *load.steps, *store.steps, load.index.constant - store.index.constant)
    whole = _is_whole(1, strides)
    return whole is not None and whole <= line


def _rest(index: Affine, common: Sequence[Var], known: Bounds) -> Interval:
    """The values of ``index`` less the terms of ``common``."""
    low = high = index.constant
    for term, factor in index.terms.items():
        if term not in common:
            ends = [factor * end for end in known.interval(term)]
            low, high = low + min(ends), high + max(ends)
    return low, high
