"""Loops that move elements: the border around a picture apart from what is in it, and what is moved as one copy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..form.nodes import (
    Axis,
    Bin,
    Block,
    Buffer,
    Copy,
    Expr,
    For,
    Load,
    Select,
    Stmt,
    Store,
    Var,
    View,
    const,
    maximum,
    minimum,
    seq,
)
from ..form.printer import print_expr
from ..form.visit import buffers_read, clauses, fresh_name, variables
from ..proofs.affine import Affine, affine
from ..proofs.intervals import Bounds
from ..rewrites.simplify import simplify_within
from .dependences import collect, conflicts
from .regions import as_expr
from .sites import block_site, chain, copy_with_new_names, illegal, substitute_variables
from .state import State

__all__ = ["as_copy", "decompose_padding"]


def _moves(state: State, label: str, what: str) -> tuple[Block, Bounds, list[For], Store]:
    """A block of loops directly within one another around one store: it, what is known there, its loops, and the store.
    Each iteration writes an element of its own, and none reads what is written.
    """
    site = block_site(state.func, label)
    block, *path = chain(site.stmt)
    store, loops = path[-1] if path else block, [stmt for stmt in path if isinstance(stmt, For)]
    assert isinstance(block, Block)
    if not isinstance(store, Store) or len(loops) + 1 < len(path):
        raise illegal(f"{what}: it is not just loops around one store")
    if store.buffer in buffers_read(store):
        raise illegal(f"{what}: it reads {store.buffer.name!r}, which it writes")
    loop_vars = [loop.var for loop in loops]
    late = next((loop for loop in loops if set(variables(loop.extent)) & set(loop_vars)), None)
    if late is not None:
        raise illegal(f"{what}: the extent of loop {late.var.name!r} depends on another of its loops", "split it later")
    for conflict in conflicts(collect(block, site.bounds), loop_vars):
        if any(ends != (0, 0) for ends in conflict.apart.values()):
            raise illegal(f"{what}: {conflict}")
    return block, site.bounds, loops, store


def decompose_padding(state: State, label: str) -> tuple[State, tuple[str, ...]]:
    """A block that gives each element one of two values, by whether it lies in a box, as one nest for the box, which
    keeps the label, and nests for what is around it; the labels of these.
    """
    what = f"the padding of block {label!r} cannot be decomposed"
    block, bounds, loops, store = _moves(state, label, what)
    if not isinstance(store.value, Select):
        raise illegal(f"{what}: it does not choose between two values")
    inside, choice = _iterations_where(store.value.condition, loops, bounds, what), store.value
    names = state.names()
    nests: list[Stmt] = []

    def nest(name: str, ranges: Sequence[tuple[For, Expr, Expr]], value: Expr) -> str:
        stmt: Stmt = Store(store.buffer, store.indices, value)
        for loop, start, extent in reversed(ranges):
            stmt = For(
                loop.var,
                extent,
                stmt if start is const(0) else substitute_variables(stmt, {loop.var: start + loop.var}),
            )
        if nests:
            stmt, _ = copy_with_new_names(stmt, lambda old: fresh_name(old, names.taken))
        nests.append(Block(name, stmt))
        return name

    full_ranges = [(loop, const(0), loop.extent) for loop in loops]
    box = [(loop, *inside.get(loop.var, (const(0), loop.extent))) for loop in loops]
    nest(label, box, choice.a)
    labels = []
    for position, (loop, start, extent) in enumerate(box):
        end = simplify_within(start + extent, bounds)
        for first, count in ((const(0), start), (end, simplify_within(loop.extent - end, bounds))):
            if bounds.interval(count)[1] > 0:
                ranges = [*box[:position], (loop, first, count), *full_ranges[position + 1 :]]
                labels.append(nest(names.new(f"{label}_border"), ranges, choice.b))
    return state.put(block, seq(*nests)), tuple(labels)


def _iterations_where(condition: Expr, loops: Sequence[For], bounds: Bounds, what: str) -> dict[Var, tuple[Expr, Expr]]:
    """For loops, the first iteration in which a condition holds, and in how many it does."""
    ends = {loop.var: (const(0), loop.extent) for loop in loops}
    for part in clauses(condition):
        bounded = next(iter(_bounded(part, ends)), None)
        if bounded is None:
            raise illegal(f"{what}: `{print_expr(part)}` does not say where one of its loops begins or ends")
        var, is_start, limit = bounded
        start, end = ends[var]
        ends[var] = (maximum(start, limit), end) if is_start else (start, minimum(end, limit))
    ranges: dict[Var, tuple[Expr, Expr]] = {}
    for var, (start, end) in ends.items():
        extent = next(loop.extent for loop in loops if loop.var is var)
        if (start, end) != (const(0), extent):
            # Where it holds nowhere, all is in front of it.
            first = simplify_within(minimum(start, extent), bounds)
            ranges[var] = first, simplify_within(maximum(end - first, 0), bounds)
    return ranges


def _bounded(part: Expr, ends: dict[Var, tuple[Expr, Expr]]) -> Iterator[tuple[Var, bool, Expr]]:
    """The loop that a comparison is about: its variable, and the first iteration in which it holds, or in which not."""
    if not isinstance(part, Bin) or part.op not in ("lt", "le", "gt", "ge") or buffers_read(part):
        return
    apart = affine(part.a) + affine(part.b).scaled(-1)
    used = [var for term in apart.terms for var in variables(term) if var in ends]
    if len(used) != 1 or abs(apart.terms.get(used[0], 0)) != 1:
        return
    (var,) = used
    factor = apart.terms[var]
    # ``var`` compared to ``limit``
    limit = (apart + Affine({var: -factor}, 0)).scaled(-factor)
    grows = (part.op in ("gt", "ge")) == (factor > 0)
    strict = part.op in ("gt", "lt")
    step = int(strict) if grows else int(not strict)
    yield var, grows, as_expr(limit + Affine({}, step))


def as_copy(state: State, label: str) -> State:
    """A block that moves elements as they are, as one copy."""
    what = f"block {label!r} is not a copy"
    block, bounds, loops, store = _moves(state, label, what)
    source = store.value
    if not isinstance(source, Load):
        raise illegal(f"{what}: it stores `{print_expr(source)}`, not an element of another buffer")
    counted = [loop for loop in loops if loop.extent is not const(1)]
    to, origin = (_shown(one.buffer, one.indices, loops, counted, bounds, what) for one in (store, source))
    return state.put(block, Block(label, Copy(to, origin, tuple(loop.extent for loop in counted))))


def _shown(
    buffer: Buffer, indices: Sequence[Expr], loops: Sequence[For], counted: Sequence[For], bounds: Bounds, what: str
) -> View:
    """What loops go through of a buffer, as a view with an axis for each that has several iterations."""
    loop_vars = {loop.var for loop in loops}
    forms = [affine(index) for index in indices]
    axes = []
    for loop in counted:
        steps = [(dim, form.terms[loop.var]) for dim, form in enumerate(forms) if loop.var in form.terms]
        if len(steps) > 1 or any(step < 0 for _, step in steps):
            raise illegal(f"{what}: loop {loop.var.name!r} does not go along one dimension of {buffer.name!r}")
        axes.append(Axis(*steps[0]) if steps else Axis(0, 0))
    rest = [
        Affine({term: factor for term, factor in f.terms.items() if term not in loop_vars}, f.constant) for f in forms
    ]
    starts = tuple(simplify_within(as_expr(form), bounds) for form in rest)
    if any(set(variables(start)) & loop_vars for start in starts):
        raise illegal(f"{what}: {buffer.name!r} is not gone through in equal steps")
    return View(buffer, starts, tuple(axes))
