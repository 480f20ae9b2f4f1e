"""Where elements are kept: buffers that hold the part of another one that a loop works on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from math import prod

from ..form.exprs import flat_element
from ..form.nodes import (
    ADDRESSED_SCOPES,
    HOST_SCOPES,
    INDEX,
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
    Memory,
    Param,
    PrimFunc,
    Seq,
    Stmt,
    Store,
    Var,
    View,
    const,
    seq,
)
from ..form.visit import accesses, buffers_read, child_statements, operands, rebuild, statements, unguarded, views, walk
from ..form.visit import buffers as used_buffers
from ..proofs.affine import affine
from ..proofs.intervals import Bounds
from .dependences import Use, collect, distances
from .regions import Box, Side, box_of
from .sites import Names, Site, block_site, illegal, redirect_accesses, replace_statement, site_of
from .state import State

__all__ = [
    "align",
    "buffer_of",
    "cache_read",
    "cache_write",
    "dropped",
    "flattened",
    "is_certain",
    "is_filled",
    "is_used_outside",
    "realigned",
    "redeclared",
    "set_scope",
    "store_at",
    "within_memory",
]


def buffer_of(func: PrimFunc, buffer: Buffer | str) -> Buffer:
    """The buffer of that name; a `ScheduleError` where there is none."""
    name = buffer if isinstance(buffer, str) else buffer.name
    buffers = {param.buffer.name: param.buffer for param in func.params}
    buffers |= {part.buffer.name: part.buffer for part in statements(func.body) if isinstance(part, Alloc)}
    if name not in buffers:
        raise illegal(f"there is no buffer {name!r}", f"the buffers are {', '.join(buffers)}")
    return buffers[name]


def within_memory(state: State, scope: str | Memory) -> tuple[State, str]:
    """The name of a scope, and the function that knows it."""
    if isinstance(scope, Memory):
        func = state.func
        if scope not in func.memories:
            state = replace(state, func=replace(func, memories=(*func.memories, scope)))
        return state, scope.name
    if scope not in HOST_SCOPES and scope not in [memory.name for memory in state.func.memories]:
        there = ", ".join([*HOST_SCOPES, *(memory.name for memory in state.func.memories)])
        raise illegal(f"there is no scope {scope!r}", f"it is a Memory, or one of {there}")
    return state, scope


@dataclass(frozen=True)
class _CachedBox:
    """A buffer that holds a box of another one.

    Args:
        box: what it holds.
        radices: for each dimension of the box, the extents of the dimensions that stand for it: none for one that has
            one element, several where loops go through it in several steps.
        order: the dimensions of the box in the order of those of ``buffer``.
        buffer: what holds it.
    """

    box: Box
    radices: tuple[tuple[int, ...], ...]
    order: tuple[int, ...]
    buffer: Buffer

    @staticmethod
    def from_uses(
        uses: Sequence[Use],
        bounds: Bounds,
        name: str,
        scope: str,
        order: Sequence[int] | None = None,
        alignment: int = 0,
        dims_from: int | None = None,
    ) -> _CachedBox:
        box = box_of(uses, bounds)
        # An instruction takes a dimension as it is.
        split = scope == "register" and not any(use.spans for use in uses)
        radices = [_radices(side, split) for side in box.sides]
        if dims_from is not None:
            radices[dims_from:] = [radix or (1,) for radix in radices[dims_from:]]
        elif not any(radices) and radices and scope != "register":
            radices[-1] = (1,)
        order = tuple(range(len(radices))) if order is None else tuple(order)
        if sorted(order) != list(range(len(radices))):
            raise illegal(f"{order} is not an order of the {len(radices)} dimensions of {box.buffer.name!r}")
        shape = tuple(extent for dim in order for extent in radices[dim])
        return _CachedBox(box, tuple(radices), order, Buffer(name, shape, box.buffer.dtype, scope, alignment))

    def at(self, indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
        """Where it holds the element of the other buffer at ``indices``."""
        result: list[Expr] = []
        for dim in self.order:
            rest, radices = indices[dim] - self.box.sides[dim].start, self.radices[dim]
            for position, extent in enumerate(radices):
                unit = prod(radices[position + 1 :])
                part = rest if unit == 1 else Bin("floordiv", rest, Imm(unit, INDEX))
                result.append(part if position == 0 else part % extent)
        return tuple(result)

    def view(self, view: View) -> View:
        """The view of this that shows what a view of the other buffer shows."""
        _check_seen(view.buffer, self.buffer.scope)
        dims = [dim for dim in self.order if self.radices[dim]]
        axes = []
        for axis in view.axes:
            # Along a dimension of one element nothing moves.
            axes.append(Axis(dims.index(axis.dim), axis.step) if axis.dim in dims else Axis(0, 0))
        return View(self.buffer, self.at(view.start), tuple(axes))

    def copy(self, names: Names, into: bool) -> Stmt:
        """The copy from the other buffer to this one, or back, in a block of its own."""
        label = names.new(f"{self.buffer.name}_{'in' if into else 'out'}")
        other = self.box.buffer
        if self.buffer.scope not in HOST_SCOPES or other.scope not in HOST_SCOPES:
            dims = [dim for dim in self.order if self.radices[dim]]
            shown = View(other, tuple(side.start for side in self.box.sides), tuple(Axis(dim) for dim in dims))
            zeros = (const(0),) * len(self.buffer.shape)
            cached_view = View(self.buffer, zeros, tuple(Axis(position) for position in range(len(dims))))
            extents = tuple(self.box.sides[dim].extent for dim in dims)
            return Block(
                label, self._there(Copy(cached_view, shown, extents) if into else Copy(shown, cached_view, extents))
            )
        loops: list[tuple[Var, Expr]] = []
        indices: list[Expr] = [side.start for side in self.box.sides]
        for dim in self.order:
            radices = self.radices[dim]
            for position, extent in enumerate(radices):
                var = Var(names.new(f"{label}_{len(loops)}"))
                loops.append((var, const(extent) if len(radices) > 1 else self.box.sides[dim].extent))
                indices[dim] = indices[dim] + var * prod(radices[position + 1 :])
        cached, at = tuple(var for var, _ in loops), tuple(indices)
        copy: Stmt = (
            Store(self.buffer, cached, Load(other, at)) if into else Store(other, at, Load(self.buffer, cached))
        )
        for var, length in reversed(loops):
            copy = For(var, length, copy)
        return Block(label, self._there(copy))

    def _there(self, copy: Stmt) -> Stmt:
        """A copy where it moves anything: a dimension without a loop has one element, or none in some iterations."""
        sides = zip(self.box.sides, self.radices, self.box.buffer.shape, strict=True)
        for side, radices, extent in sides:
            if not radices and not isinstance(side.extent, Imm):
                copy = If(side.start < extent, copy)
        return copy


def _check_seen(buffer: Buffer, scope: str) -> None:
    """Raise unless an instruction, or a copy, that a buffer is given to can be given one in another scope."""
    kinds = {"global" if one in ADDRESSED_SCOPES else one for one in (buffer.scope, scope)}
    if len(kinds) > 1:
        what = f"{buffer.name!r} cannot be put in {scope!r}: an instruction or a copy takes it from {buffer.scope!r}"
        raise illegal(what, "tensorize later")


def _radices(side: Side, split: bool) -> tuple[int, ...]:
    if side.size == 1:
        return ()
    steps = [count for _, count in side.steps or () if count > 1]
    dense = isinstance(side.extent, Imm) and prod(steps) == side.size
    return tuple(steps) if split and dense else (side.size,)


def _place(state: State, label: str, at: Var | str | None) -> tuple[Stmt, Stmt, Bounds, Callable[[Stmt], Stmt]]:
    """What is put in another statement's place, the statement within which a part is held, what is known there, and how
    the former is made from the latter.
    """
    if at is None:
        site = block_site(state.func, label)
        block = site.stmt
        return block, block, site.bounds, lambda body: body
    site, loop = state.loop(at)
    bounds = Site((*site.path, loop.body)).bounds
    return loop, loop.body, bounds, lambda body: For(loop.var, loop.extent, body, loop.kind)


def cache_write(
    state: State, label: str, buffer: Buffer | str, scope: str | Memory, at: Var | str | None
) -> tuple[State, Buffer]:
    """The part of a buffer that an iteration of a loop works on, kept elsewhere until it is done."""
    state, scope = within_memory(state, scope)
    buffer = buffer_of(state.func, buffer)
    old, body, bounds, around = _place(state, label, at)
    what = f"{buffer.name!r} cannot be kept in {scope!r} at {_where(label, at)}"
    uses = collect(body, bounds, buffer)
    if not any(use.writes for use in uses):
        raise illegal(f"{what}: nothing writes it there", "use cache_read for what is read")
    names = state.names()
    # An instruction takes a dimension even of one element.
    dims_from = len(buffer.shape) if scope == "local" and not any(use.spans for use in uses) else None
    part = _CachedBox.from_uses(uses, bounds, names.new(f"{buffer.name}_{scope}"), scope, dims_from=dims_from)
    takes = _takes(uses, part.box, bounds, what)
    if takes and not _has_value(state, uses, part.box, old):
        raise illegal(f"{what}: it cannot be seen which of its elements have a value there")
    leaves = is_used_outside(state, buffer, body)
    redirected = redirect_accesses(body, buffer, part.buffer, part.at, part.view)
    steps = [*([part.copy(names, True)] if takes else []), redirected, *([part.copy(names, False)] if leaves else [])]
    state = state.put(old, around(Alloc(part.buffer, seq(*steps))))
    return (state if leaves else dropped(state, buffer)), part.buffer


def _where(label: str, at: Var | str | None) -> str:
    return f"block {label!r}" if at is None else f"loop {at if isinstance(at, str) else at.name!r}"


def _takes(uses: Sequence[Use], box: Box, bounds: Bounds, what: str) -> bool:
    """Whether what the buffer holds before is read, or lost if it is not."""
    first = uses[0]
    if not first.writes:
        return True
    # What several statements write one after the other counts together.
    writes = list(takewhile(lambda use: use.writes, uses))
    covers = [
        box_of([use for use in writes if use.stmt is stmt], bounds) for stmt in dict.fromkeys(u.stmt for u in writes)
    ]
    early = any(_meets_early(write, use) for write in writes for use in uses)
    asked = any(isinstance(stmt, If) for write in writes for stmt in write.around)
    if early or asked or not (covers[0].covers(box) or _cover(covers, box)):
        reason = f"`{first}`, which comes first, does not surely write all that is used"
        raise illegal(f"{what}: {reason}", "peel or shrink tails instead of guarding them, or take a loop further out")
    return False


def _cover(boxes: Sequence[Box], target: Box) -> bool:
    """Whether some boxes that are wholly written make up another one."""
    rest = [tuple((side.start, side.size) for side in target.sides)]
    for box in boxes:
        if not box.is_whole:
            return False
        rest = [part for old in rest for part in _outside(old, box)]
    return not rest


def _outside(part: tuple[tuple[Expr, int], ...], box: Box) -> list[tuple[tuple[Expr, int], ...]]:
    """The parts of a box that another one leaves out; all of it where their places cannot be compared."""
    parts = []
    for dim, ((start, size), side) in enumerate(zip(part, box.sides, strict=True)):
        shift = affine(side.start - start)
        if shift.terms or not isinstance(side.extent, Imm):
            return [part]
        low, high = max(0, shift.constant), min(size, shift.constant + side.size)
        if low >= high:
            return [part]
        for begin, end in ((0, low), (high, size)):
            if begin < end:
                parts.append((*part[:dim], (start + begin, end - begin), *part[dim + 1 :]))
        part = (*part[:dim], (start + low, high - low), *part[dim + 1 :])
    return parts


def _meets_early(first: Use, use: Use) -> bool:
    """Whether the loops around a write may use an element before they come to write it."""
    shared = [loop.var for loop in first.loops if loop in use.loops]
    apart = distances(first, use, shared)
    return apart is not None and any(ends != (0, 0) for ends in apart.values())


def is_used_outside(state: State, buffer: Buffer, body: Stmt) -> bool:
    """Whether a buffer is used elsewhere than in a statement, by the caller perhaps."""
    roles = {param.buffer: param.role for param in state.func.params}
    if roles.get(buffer, "workspace") != "workspace":
        return True
    return _uses_beside(state.func.body, body, buffer)


def _uses_beside(stmt: Stmt, inner: Stmt, buffer: Buffer) -> bool:
    """Whether a statement uses a buffer elsewhere than in one of those within it."""
    if stmt is inner:
        return False
    is_used = any(use.buffer is buffer for use in accesses(stmt))
    is_used = is_used or any(buffer in buffers_read(expr) for expr in operands(stmt))
    return is_used or any(_uses_beside(body, inner, buffer) for body in child_statements(stmt))


def dropped(state: State, buffer: Buffer) -> State:
    """The function without a buffer that nothing uses any more."""
    func = state.func
    params = tuple(param for param in func.params if param.buffer is not buffer)
    return replace(state, func=replace(func, params=params, body=_without(func.body, buffer)))


def _without(stmt: Stmt, buffer: Buffer) -> Stmt:
    if isinstance(stmt, Alloc) and stmt.buffer is buffer:
        return stmt.body
    return rebuild(stmt, operands(stmt), [_without(body, buffer) for body in child_statements(stmt)])


def cache_read(
    state: State,
    label: str,
    buffer: Buffer | str,
    at: Var | str | None,
    scope: str | Memory,
    layout: Sequence[int] | None,
) -> tuple[State, Buffer]:
    """The part of a buffer that an iteration of a loop reads, copied to another place first."""
    state, scope = within_memory(state, scope)
    buffer = buffer_of(state.func, buffer)
    old, body, bounds, around = _place(state, label, at)
    what = f"{buffer.name!r} cannot be read through {scope!r} at {_where(label, at)}"
    uses = collect(body, bounds, buffer)
    writer = next((use for use in uses if use.writes), None)
    if writer is not None:
        raise illegal(f"{what}: `{writer}` writes it there", "use cache_write")
    if not uses:
        raise illegal(f"{what}: nothing reads it there")
    names = state.names()
    part = _CachedBox.from_uses(uses, bounds, names.new(f"{buffer.name}_{scope}"), scope, layout)
    if not _has_value(state, uses, part.box, old):
        raise illegal(f"{what}: it cannot be seen that all of what would be copied has a value")
    redirected = redirect_accesses(body, buffer, part.buffer, part.at, part.view)
    return state.put(old, around(Alloc(part.buffer, seq(part.copy(names, True), redirected)))), part.buffer


def _has_value(state: State, uses: Sequence[Use], box: Box, place: Stmt) -> bool:
    """Whether all of a box has a value where a statement begins: each use is of all of it, or it was written before."""
    return (box.is_whole and all(map(is_certain, uses))) or is_filled(state, box.buffer, place)


def is_filled(state: State, buffer: Buffer, place: Stmt) -> bool:
    """Whether all of a buffer surely has a value where a statement begins: the caller's, or what is written first."""
    roles = {param.buffer: param.role for param in state.func.params}
    if roles.get(buffer) in ("input", "constant"):
        return True
    first, *_ = collect(state.func.body, Bounds({}), buffer)
    if not first.writes or place in first.around or any(isinstance(stmt, If) for stmt in first.around):
        return False
    around = site_of(state.func.body, lambda stmt: stmt is place)
    written = box_of([first], Bounds({}))
    sides = zip(written.sides, buffer.shape, strict=True)
    is_complete = written.is_whole and all(side.size == extent for side, extent in sides)
    return is_complete and around is not None and not set(around.loops) & set(first.loops)


def is_certain(use: Use) -> bool:
    """Whether an access happens whatever conditions give."""
    if any(isinstance(stmt, If) for stmt in use.around):
        return False
    exprs = operands(use.stmt)
    sure = [part for expr in exprs for part in unguarded(expr)]
    loads = (part for expr in exprs for part in walk(expr) if isinstance(part, Load) and part.buffer is use.buffer)
    return all(part in sure for part in loads)


def store_at(
    state: State, buffers: Sequence[Buffer | str], at: Var | str | None, before: str | None, dims_from: int | None
) -> tuple[State, tuple[Buffer, ...]]:
    """Buffers made anew in each iteration of a loop, as large as what that works on."""
    new_buffers: list[Buffer] = []
    for name in buffers:
        buffer = buffer_of(state.func, name)
        if at is None:
            if buffer in [param.buffer for param in state.func.params]:
                raise illegal(f"{buffer.name!r} is a parameter: it has no other place", "set its scope first")
            state, new = dropped(state, buffer), buffer
        else:
            state, new = _smaller(state, buffer, at, dims_from)
        new_buffers.append(new)
    old = state.func.body if at is None else state.loop(at)[1].body
    return state.put(old, _allocated(old, new_buffers, before)), tuple(new_buffers)


def _smaller(state: State, buffer: Buffer, at: Var | str, dims_from: int | None) -> tuple[State, Buffer]:
    """A buffer in place of one, as large as what an iteration of a loop works on, which nothing makes yet."""
    _, body, bounds, _ = _place(state, "", at)
    what = f"{buffer.name!r} cannot be stored at {_where('', at)}"
    if is_used_outside(state, buffer, body):
        raise illegal(f"{what}: it is used outside of it", "compute all that uses it there first")
    uses = collect(body, bounds, buffer)
    if not uses:
        raise illegal(f"{what}: nothing uses it there")
    if _takes(uses, box_of(uses, bounds), bounds, what):
        raise illegal(f"{what}: `{uses[0]}` needs what an earlier iteration left in it")
    scope = "local" if buffer.scope == "global" else buffer.scope
    # It takes the name of the other one, which is gone then.
    part = _CachedBox.from_uses(uses, bounds, buffer.name, scope, alignment=buffer.alignment, dims_from=dims_from)
    state = dropped(state, buffer)
    old = state.loop(at)[1].body
    redirected = redirect_accesses(old, buffer, part.buffer, part.at, part.view)
    return replace(
        state, func=replace(state.func, body=replace_statement(state.func.body, old, redirected))
    ), part.buffer


def _allocated(stmt: Stmt, buffers: Sequence[Buffer], before: str | None) -> Stmt:
    """``stmt`` with room for buffers, made first, or before the part with a block."""
    if before is not None and isinstance(stmt, Alloc):
        return Alloc(stmt.buffer, _allocated(stmt.body, buffers, before))
    parts = stmt.stmts if isinstance(stmt, Seq) else (stmt,)
    first = 0 if before is None else next((n for n, part in enumerate(parts) if _has_block(part, before)), None)
    if first is None:
        raise illegal(f"there is no block {before!r} where buffers are to be stored")
    late = [buffer for part in parts[:first] for buffer in used_buffers(part) if buffer in buffers]
    if late:
        raise illegal(f"{late[0].name!r} cannot be stored before block {before!r}: it is used earlier")
    inner = seq(*parts[first:])
    for buffer in reversed(buffers):
        inner = Alloc(buffer, inner)
    return seq(*parts[:first], inner)


def _has_block(stmt: Stmt, label: str) -> bool:
    return any(isinstance(part, Block) and part.label == label for part in statements(stmt))


def redeclared(state: State, old: Buffer, new: Buffer) -> tuple[State, Buffer]:
    """The function with another buffer, of the same dimensions, in place of one."""
    body = redirect_accesses(state.func.body, old, new, lambda at: at)
    return _declared(replace(state, func=replace(state.func, body=body)), old, new), new


def _declared(state: State, old: Buffer, new: Buffer) -> State:
    """The function that makes room for ``new``, not ``old``."""

    def statement(stmt: Stmt) -> Stmt:
        if isinstance(stmt, Alloc) and stmt.buffer is old:
            return Alloc(new, stmt.body)
        return rebuild(stmt, operands(stmt), [statement(body) for body in child_statements(stmt)])

    params = tuple(replace(param, buffer=new) if param.buffer is old else param for param in state.func.params)
    return replace(state, func=replace(state.func, params=params, body=statement(state.func.body)))


def set_scope(state: State, buffer: Buffer | str, scope: str | Memory) -> tuple[State, Buffer]:
    """A buffer that is the function's own, in another memory."""
    state, scope = within_memory(state, scope)
    buffer = buffer_of(state.func, buffer)
    role = next((param.role for param in state.func.params if param.buffer is buffer), None)
    if role not in (None, "workspace"):
        raise illegal(f"{buffer.name!r} cannot be put in {scope!r}: it is an {role}", "use cache_read or cache_write")
    if any(view.buffer is buffer for part in walk(state.func.body) if isinstance(part, Stmt) for view in views(part)):
        _check_seen(buffer, scope)
    func = state.func
    if role is not None and scope == "global":
        return state, buffer
    if role is not None:
        params = tuple(param for param in func.params if param.buffer is not buffer)
        func = replace(func, params=params, body=Alloc(buffer, func.body))
    state, new = redeclared(replace(state, func=func), buffer, replace(buffer, scope=scope))
    if scope == "global":
        func = state.func
        func = replace(func, params=(*func.params, Param(new, "workspace")), body=_without(func.body, new))
        state = replace(state, func=func)
    return state, new


def align(state: State, buffer: Buffer | str, nbytes: int) -> tuple[State, Buffer]:
    """A constant, or a buffer that is the function's own, at a multiple of so many bytes."""
    buffer = buffer_of(state.func, buffer)
    role = next((param.role for param in state.func.params if param.buffer is buffer), None)
    what = f"{buffer.name!r} cannot be aligned to {nbytes!r} bytes"
    if role in ("input", "output"):
        raise illegal(f"{what}: it is an {role}, which the caller places", "use cache_read or cache_write")
    if type(nbytes) is not int or nbytes < buffer.alignment or nbytes & (nbytes - 1):
        raise illegal(f"{what}: it is to {buffer.alignment}", "give a power of two that is no smaller")
    return redeclared(state, buffer, replace(buffer, alignment=nbytes))


def flattened(state: State, buffer: Buffer) -> State:
    """The function with a buffer of its own made of one dimension."""
    new = replace(buffer, shape=(buffer.size,))

    def view(old: View) -> View:
        axes = tuple(Axis(0, stride) for stride in old.strides())
        return View(new, (flat_element(buffer, old.start),), axes)

    body = redirect_accesses(state.func.body, buffer, new, lambda at: (flat_element(buffer, at),), view)
    return _declared(replace(state, func=replace(state.func, body=body)), buffer, new).tidy()


def realigned(state: State, name: str, alignment: int) -> State:
    """The function with a buffer of its own aligned to at least so many bytes."""
    buffer = buffer_of(state.func, name)
    role = next((param.role for param in state.func.params if param.buffer is buffer), "workspace")
    if role != "workspace" or buffer.alignment >= alignment:
        return state
    return redeclared(state, buffer, replace(buffer, alignment=alignment))[0]
