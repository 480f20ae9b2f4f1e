"""Work that is kept from one iteration of a loop to the next, or started before it is needed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from ..form.nodes import (
    HOST_SCOPES,
    Alloc,
    Axis,
    Bin,
    Block,
    Buffer,
    Copy,
    Expr,
    For,
    If,
    Imm,
    Load,
    Queue,
    Select,
    Seq,
    Stmt,
    Store,
    Var,
    View,
    Wait,
    const,
    seq,
)
from ..form.visit import accesses, buffers_read, child_statements, operands, rebuild, variables, walk
from ..proofs.affine import affine
from ..proofs.intervals import Bounds
from .cache_stages import buffer_of, dropped, is_used_outside
from .dependences import Use, collect, inner_loops
from .regions import Box, box_of
from .sites import (
    Site,
    illegal,
    redirect_accesses,
    replace_statement,
    simplify_expressions,
    site_of,
    substitute_variables,
)
from .state import State

__all__ = ["double_buffer", "rolling"]


def rolling(state: State, buffer: Buffer | str, at: Var | str) -> tuple[State, Buffer]:
    """A buffer that keeps what iterations of a loop have in common: each makes what is new only."""
    site, loop = state.plain_loop(at, "rolled")
    buffer = buffer_of(state.func, buffer)
    what = f"{buffer.name!r} cannot roll along loop {loop.var.name!r}"
    if is_used_outside(state, buffer, loop.body):
        raise illegal(f"{what}: it is used outside of it", "compute all that uses it there first")
    bounds = Site((*site.path, loop.body)).bounds
    uses = collect(loop.body, bounds, buffer)
    writes = [use for use in uses if use.writes]
    producer = next((stmt for stmt in _parts(loop.body) if writes and any(stmt in use.around for use in writes)), None)
    if producer is None or any(producer not in use.around for use in writes):
        raise illegal(f"{what}: not one block makes it", "compute the block that makes it at the loop first")
    dim, box, step = _rolled(uses, writes, bounds, loop.var, producer, what)
    keeps = box.sides[dim].size - step
    row = next(one for one in inner_loops(producer) if one.var in writes[0].forms[dim].terms)
    first = Select(loop.var.equal(0), const(0), const(keeps))
    extent = Bin("sub", const(box.sides[dim].size), first)
    newer = replace_statement(
        producer, row, For(row.var, extent, substitute_variables(row.body, {row.var: row.var + first}))
    )
    names, size = state.names(), box.sides[dim].size
    axes = [axis for axis, side in enumerate(box.sides) if axis == dim or side.size > 1]
    ring = buffer.scope != "register"
    shape = tuple(box.sides[axis].size for axis in axes)
    scope = "local" if buffer.scope == "global" else buffer.scope
    new = Buffer(names.new(f"{buffer.name}_rolling"), shape, buffer.dtype, scope, buffer.alignment)

    def place(indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
        relative = [indices[axis] - box.sides[axis].start for axis in axes]
        if ring:
            relative[axes.index(dim)] = indices[dim] % size
        return tuple(relative)

    body = redirect_accesses(replace_statement(loop.body, producer, newer), buffer, new, place)
    if not ring:
        extents = [box.sides[axis].extent for axis in axes]
        body = seq(body, _shifted(new, extents, axes.index(dim), step, names.new(f"{new.name}_shift")))
    state = state.put(loop, Alloc(new, For(loop.var, loop.extent, body, loop.kind)))
    return dropped(state, buffer).cut(loop.var, 1), new


def _parts(body: Stmt) -> Sequence[Stmt]:
    """The statements of a loop's body one after the other."""
    if isinstance(body, Seq):
        return [part for stmt in body.stmts for part in _parts(stmt)]
    return _parts(body.body) if isinstance(body, Alloc) else [body]


def _rolled(
    uses: Sequence[Use], writes: Sequence[Use], bounds: Bounds, var: Var, producer: Stmt, what: str
) -> tuple[int, Box, int]:
    """The dimension along which a loop moves over a buffer, the box of an iteration, and by how much it moves."""
    box = box_of(uses, bounds)
    moving = [dim for dim, side in enumerate(box.sides) if var in variables(side.start)]
    if len(moving) != 1:
        raise illegal(f"{what}: an iteration does not move along one dimension of it")
    (dim,) = moving
    side = box.sides[dim]
    form = affine(side.start)
    step = form.stride(var) or 0
    if not 0 < step < side.size or not isinstance(side.extent, Imm):
        raise illegal(f"{what}: iterations have nothing in common, or not always as much")
    if not box_of(writes, bounds).covers(box):
        raise illegal(f"{what}: not all that an iteration uses is made in it")
    # What is made must not depend on the iteration but by its place.
    loops = [one for one in inner_loops(producer) if one.var in writes[0].forms[dim].terms]
    place = Var("_place")
    if len(loops) == 1 and not any(isinstance(part, If) for part in walk(producer)):
        shifted = substitute_variables(producer, {loops[0].var: place - side.start})
        tidy = simplify_expressions(shifted, bounds.declare(place, (-(2**20), 2**20)))
        if var not in variables(tidy) and not set(buffers_read(producer)) & set(_written_beside(uses, producer)):
            return dim, box, step
    raise illegal(f"{what}: what is made of it depends on the iteration", "compute the block at another loop")


def _written_beside(uses: Sequence[Use], producer: Stmt) -> set[Buffer]:
    around = uses[0].around[0]
    return {use.buffer for use in collect(around, Bounds({})) if use.writes and producer not in use.around}


def _shifted(buffer: Buffer, extents: Sequence[Expr], dim: int, step: int, label: str) -> Stmt:
    """The last slices of a buffer moved to where the next iteration looks for them."""
    loops = [Var(f"{label}_{axis}") for axis in range(len(buffer.shape))]
    source = [var + step if axis == dim else var for axis, var in enumerate(loops)]
    stmt: Stmt = Store(buffer, tuple(loops), Load(buffer, tuple(source)))
    for axis, var in reversed(list(enumerate(loops))):
        stmt = For(var, extents[axis] - step if axis == dim else extents[axis], stmt)
    # Slices one after the other: each is read before it is written.
    return Block(label, stmt)


def double_buffer(state: State, buffers: Sequence[Buffer | str], at: Var | str, queue: Queue) -> State:
    """What an iteration of a loop copies in is started one earlier, and what it copies out goes on meanwhile."""
    _, loop = state.plain_loop(at, "double-buffered")
    what = f"loop {loop.var.name!r} cannot be double-buffered"
    if any(getattr(part, "queue", None) is queue for part in walk(state.func.body)):
        raise illegal(f"{what}: queue {queue.name!r} is in use already", "name all buffers in one call")
    names = state.names()
    body, pairs = loop.body, []
    ins: list[Stmt] = []
    outs: list[Stmt] = []
    for name in buffers:
        buffer = buffer_of(state.func, name)
        copy = _copy_of(buffer, loop, what)
        started, comes_in = replace(copy, queue=queue), copy.to.buffer is buffer
        body = replace_statement(_unallocated(body, buffer), copy, Seq(()) if comes_in else started)
        shape = (2, *buffer.shape)
        pairs.append((buffer, replace(buffer, name=names.new(f"{buffer.name}_twice"), shape=shape)))
        (ins if comes_in else outs).append(started)

    def halved(stmt: Stmt, turn: Expr) -> Stmt:
        for old, new in pairs:
            stmt = redirect_accesses(stmt, old, new, lambda indices: (turn % 2, *indices), partial(_half, new, turn))
        return stmt

    after = loop.var + 1
    ahead = seq(*(halved(substitute_variables(copy, {loop.var: after}), after) for copy in ins))
    first = seq(*(halved(substitute_variables(copy, {loop.var: const(0)}), const(0)) for copy in ins))
    k, m = len(ins), len(outs)
    start: Stmt = Wait(queue, m)
    if ins:
        # What the iteration before started to copy out may go on.
        more = seq(ahead, If(loop.var > 0, Wait(queue, k + m), Wait(queue, k)) if m else Wait(queue, k))
        last = If(loop.var > 0, Wait(queue, m), Wait(queue)) if m else Wait(queue)
        start = If(after < loop.extent, more, last)
    rounds: Stmt = For(loop.var, loop.extent, seq(start, halved(body, loop.var)))
    steps = seq(*([If(loop.extent > 0, first)] if ins else []), rounds, *([Wait(queue)] if outs else []))
    for _, new in pairs:
        steps = Alloc(new, steps)
    func = state.func
    func = func if queue in func.queues else replace(func, queues=(*func.queues, queue))
    return replace(state, func=func).put(loop, steps)


def _half(new: Buffer, turn: Expr, view: View) -> View:
    return View(new, (turn % 2, *view.start), tuple(Axis(axis.dim + 1, axis.step) for axis in view.axes))


def _unallocated(stmt: Stmt, buffer: Buffer) -> Stmt:
    if isinstance(stmt, Alloc) and stmt.buffer is buffer:
        return stmt.body
    return rebuild(stmt, operands(stmt), [_unallocated(body, buffer) for body in child_statements(stmt)])


def _copy_of(buffer: Buffer, loop: For, what: str) -> Copy:
    """The one copy between a buffer and the host in each iteration of a loop."""
    site = site_of(loop.body, lambda stmt: isinstance(stmt, Alloc) and stmt.buffer is buffer)
    if site is None:
        raise illegal(f"{what}: {buffer.name!r} is not made in each iteration", "store it at the loop")
    if buffer.scope in HOST_SCOPES:
        raise illegal(f"{what}: {buffer.name!r} is in {buffer.scope!r}, not in the memory of an accelerator")
    copies = [
        part for part in walk(loop.body) if isinstance(part, Copy) and buffer in (part.to.buffer, part.source.buffer)
    ]
    alone = len(copies) == 1 and copies[0].queue is None
    copy_site = site_of(loop.body, lambda stmt: alone and stmt is copies[0])
    if copy_site is None or any(isinstance(stmt, (For, If)) for stmt in copy_site.path):
        raise illegal(f"{what}: not one copy in each iteration moves {buffer.name!r}")
    (copy,) = copies
    uses = collect(loop.body, Bounds({}), buffer)
    before = uses[: next(number for number, use in enumerate(uses) if use.stmt is copy)]
    if copy.to.buffer is buffer and any(use.writes for use in before):
        raise illegal(f"{what}: {buffer.name!r} is copied in and written before", "write what is around it afterwards")
    host = copy.source.buffer if copy.to.buffer is buffer else copy.to.buffer
    beside = [use for part in walk(loop.body) if part is not copy for use in accesses(part) if use.buffer is host]
    if any(use.writes for use in beside) or (copy.source.buffer is buffer and beside):
        raise illegal(f"{what}: {host.name!r} is used otherwise within it")
    return copy
