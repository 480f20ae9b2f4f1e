"""Blocks moved into the loops of others, or written into them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from ..form.nodes import (
    INDEX,
    Alloc,
    Bin,
    Bind,
    Block,
    Buffer,
    Copy,
    Exec,
    Expr,
    For,
    If,
    Imm,
    Load,
    Seq,
    Stmt,
    Store,
    Var,
    minimum,
    seq,
)
from ..form.printer import headline
from ..form.visit import (
    buffers,
    buffers_read,
    buffers_written,
    child_statements,
    map_expressions,
    operands,
    rebuild,
    rewrite,
    substitute,
    variables,
    walk,
)
from ..proofs.affine import Affine, affine
from ..proofs.intervals import Bounds
from ..rewrites.simplify import simplify_within
from .cache_stages import dropped, is_certain
from .dependences import Conflict, Use, collect, collect_all, conflicts, distances, inner_loops, span
from .regions import Box, as_expr, box_of
from .sites import Site, block_site, chain, illegal, replace_statement, substitute_variables
from .state import State

__all__ = ["compute_at", "inline", "reverse_compute_at"]


def reverse_compute_at(state: State, label: str, at: Var | str, tail: str) -> State:
    """A block that uses what a loop makes, part by part as each iteration has made it."""
    if tail not in ("peel", "shrink"):
        raise illegal(f"block {label!r} has no tail {tail!r}", "choose one of peel, shrink")
    block = block_site(state.func, label).stmt
    site, loop = state.loop(at)
    what = f"block {label!r} cannot be computed at loop {loop.var.name!r}"
    _check_between(state, site, block, loop, what, later=True)
    body_site = Site((*site.path, loop.body))
    bounds = body_site.bounds
    produced = [buffer for buffer in buffers_read(block) if buffer in buffers_written(loop)]
    if not produced:
        raise illegal(
            f"{what}: it reads nothing that is written there", "name a loop of a block whose results it reads"
        )
    used = collect(block, Bounds({}))
    around = [stmt.var for stmt in (*site.loops, loop)]
    limits: dict[Var, tuple[Expr, Expr]] = {}
    for buffer in produced:
        nest_uses = collect(site.path[0], Bounds({}), buffer)
        writes = [use for use in nest_uses if use.writes and loop in use.around]
        _check_finished(writes, around, f"{what}: {buffer.name!r} is not done in one iteration of it")
        inside = collect(loop.body, bounds, buffer)
        box = box_of(inside, bounds)
        if not box.is_whole or not _is_sure(inside, writes, box, bounds):
            hint = "peel or shrink tails instead of guarding them"
            raise illegal(f"{what}: what is written of {buffer.name!r} in one iteration is not a whole box", hint)
        elsewhere = next((use for use in nest_uses if use.writes and loop not in use.around), None)
        if elsewhere is not None and not _is_all(box):
            raise illegal(f"{what}: `{elsewhere}`, outside of that loop, writes {buffer.name!r} too")
        for use in used:
            if use.buffer is buffer:
                _limit(limits, use, box, block, what)
                _check_reached(use, box_of(writes, Bounds({})), what)
    for use in used:
        if use.writes and _meets_itself(use, limits):
            raise illegal(f"{what}: `{use}` writes an element in several iterations of the loops that would be parted")
    conflict = _carried(used, limits)
    if conflict is not None:
        raise illegal(f"{what}: {conflict}, in different iterations of the loops that would be parted")
    # What is written of a buffer beyond what the block reads is left out.
    inner = _parted_loops(block, limits, bounds)
    state = _move_block(state, block, loop, For(loop.var, loop.extent, seq(loop.body, inner), loop.kind))
    for one in inner_loops(block):
        if one.var in limits and tail == "peel":
            state = _cut_short(state, one, *limits[one.var], bounds)
    return state


def _is_sure(inside: Sequence[Use], writes: Sequence[Use], box: Box, bounds: Bounds) -> bool:
    """Whether all of a box is written whatever is asked: by what is asked nothing, where anything else is."""
    free = [use for use in inside if use.writes and not any(isinstance(stmt, If) for stmt in use.around)]
    is_asked = any(isinstance(stmt, If) for use in writes for stmt in use.around)
    return not is_asked or bool(free and box_of(free, bounds).covers(box))


def _cut_short(state: State, old: For, start: Expr, extent: Expr, bounds: Bounds) -> State:
    """Where the last parts of a loop are smaller, as its extent is not a multiple of theirs, they get loops of their
    own.
    """
    form = affine(start)
    (var, factor) = next(iter(form.terms.items()), (None, 0))
    if not isinstance(old.extent, Imm) or not isinstance(extent, Imm) or not isinstance(var, Var) or factor < 1:
        return state
    room = int(old.extent.value) - form.constant - int(extent.value)
    last = bounds.interval(var)[1]
    return state.cut(var, room // factor + 1) if len(form.terms) == 1 and room < factor * last else state


def _move_block(state: State, block: Stmt, loop: For, new_loop: For) -> State:
    """``new_loop`` in the place of a loop, and nothing in that of a block."""
    without = replace_statement(state.func.body, block, Seq(()))
    return replace(state, func=replace(state.func, body=replace_statement(without, loop, new_loop))).tidy()


def _check_between(state: State, site: Site, block: Stmt, loop: For, what: str, *, later: bool) -> None:
    """Raise unless a block can be moved to a loop of another nest past all that stands between them."""
    if block in site.path or _contains(loop, block):
        raise illegal(f"{what}: one is within the other")
    order = _statements(state.func.body)
    tops = [stmt for stmt in order if _contains(stmt, loop) or _contains(stmt, block)]
    nest = next(stmt for stmt in tops if _contains(stmt, loop))
    block_nest = next(stmt for stmt in tops if _contains(stmt, block))
    if nest is block_nest:
        raise illegal(f"{what}: they are in one nest already")
    first, last = (nest, block_nest) if later else (block_nest, nest)
    if order.index(first) > order.index(last):
        raise illegal(f"{what}: it comes {'before' if later else 'after'} that")
    if block_nest is not block:
        raise illegal(f"{what}: it is within loops of its own")
    for stmt in walk(state.func.body):
        if isinstance(stmt, Alloc) and stmt.buffer in buffers(block) and not _contains(stmt, loop):
            raise illegal(f"{what}: {stmt.buffer.name!r}, which it uses, is not there", "move the block first")
    _check_accesses(order[order.index(first) + 1 : order.index(last)], block, nest, what, later=later)
    if later:
        loop_writes = buffers_written(loop)
        for buffer in buffers_read(block):
            if buffer in buffers_written(nest) and buffer not in loop_writes:
                write = next(use for use in collect(nest, Bounds({}), buffer) if use.writes)
                raise illegal(f"{what}: `{write}`, outside of that loop, writes {buffer.name!r}, which it reads, too")


def _check_accesses(between: Sequence[Stmt], block: Stmt, nest: Stmt, what: str, *, later: bool) -> None:
    """Raise if a block and the statements that it would pass, or the nest that it would be part of, touch the same
    buffers in an order that matters."""
    mine = collect(block, Bounds({}))
    touched = {use.buffer for use in mine}
    written = {use.buffer for use in mine if use.writes}
    for stmt in between:
        bad = [b for b in buffers(stmt) if b in written] + [b for b in buffers_written(stmt) if b in touched]
        if bad:
            raise illegal(f"{what}: `{headline(stmt)}`, between them, uses {bad[0].name!r}", "move that first")
    shared = [b for b in buffers(nest) if b in written] if later else [b for b in buffers_written(nest) if b in touched]
    if shared:
        raise illegal(f"{what}: both write {shared[0].name!r}, or it overwrites what is read there")


def _statements(body: Stmt) -> list[Stmt]:
    """The statements of a function one after the other, out of the scopes that only make room."""
    if isinstance(body, Seq):
        return [stmt for part in body.stmts for stmt in _statements(part)]
    return _statements(body.body) if isinstance(body, Alloc) else [body]


def _contains(stmt: Stmt, inner: Stmt) -> bool:
    """Whether ``inner`` stands in ``stmt``, or is it."""
    return stmt is inner or any(_contains(body, inner) for body in child_statements(stmt))


def _check_finished(writes: Sequence[Use], around: Sequence[Var], what: str) -> None:
    """Raise unless each element is written in one iteration of some loops only."""
    for number, first in enumerate(writes):
        for second in writes[number:]:
            apart = distances(first, second, around)
            moving = [var for var in around if apart is not None and apart[var] != (0, 0)]
            if moving:
                raise illegal(
                    f"{what}: loop {moving[0].name!r} goes on with it", "take a loop outside of the reduction"
                )


def _is_all(box: Box) -> bool:
    """Whether a box is all of its buffer."""
    sides = zip(box.sides, box.buffer.shape, strict=True)
    return all(isinstance(side.extent, Imm) and side.extent.value == extent for side, extent in sides)


def _check_reached(use: Use, written: Box, what: str) -> None:
    """Raise if a block does something where it does not read what a loop makes, so that no part of it would do that.

    What it surely reads is written somewhere, as the program is right.
    """
    if is_certain(use):
        return
    for form, side in zip(use.forms, written.sides, strict=True):
        low, high = span(form, use.known)
        start, extent = (int(end.value) if isinstance(end, Imm) else -1 for end in (side.start, side.extent))
        if not (side.is_whole and 0 <= start <= low and high < start + extent):
            reason = f"`{use}` does not read {use.buffer.name!r} in all of its iterations"
            raise illegal(f"{what}: {reason}, and would be left out there", "compute it as a block of its own")


def _carried(uses: Sequence[Use], limits: Collection[Var]) -> Conflict | None:
    """Two accesses of a block in different iterations of the loops that would be parted; None for none."""
    candidates = conflicts(uses, list(limits))
    return next((one for one in candidates if any(apart != (0, 0) for apart in one.apart.values())), None)


def _meets_itself(use: Use, limits: Collection[Var]) -> bool:
    """Return whether two different iterations of the loops ``limits`` may access the same element."""
    if not use.inner.issuperset(limits):
        return True  # every iteration of the loop that is missing accesses the same element
    apart = distances(use, use, list(limits))
    return apart is not None and any(apart[var] != (0, 0) for var in limits)


def _limit(limits: dict[Var, tuple[Expr, Expr]], use: Use, box: Box, block: Stmt, what: str) -> None:
    """Notes the part of the block's loops that reads ``box``."""
    extents = {loop.var: loop.extent for loop in inner_loops(block)}
    for dim, (form, side) in enumerate(zip(use.forms, box.sides, strict=True)):
        if isinstance(side.extent, Imm) and side.extent.value == use.buffer.shape[dim]:
            continue
        (var, factor) = next(iter(form.terms.items()), (None, 0))
        if len(form.terms) != 1 or factor != 1 or not isinstance(var, Var) or var not in extents:
            where = f"dimension {dim} of {use.buffer.name!r}"
            raise illegal(
                f"{what}: `{use}` does not read {where} at one of its loops", "split and fuse its loops afterwards"
            )
        start = simplify_within(side.start - form.constant, Bounds({}))
        extent = side.extent
        if limits.setdefault(var, (start, extent)) != (start, extent):
            raise illegal(f"{what}: its loop {var.name!r} would have to go over two parts at once")


def _parted_loops(block: Stmt, limits: dict[Var, tuple[Expr, Expr]], bounds: Bounds) -> Stmt:
    """The block with some loops from a start on, for an extent, within what they have."""

    def statement(stmt: Stmt) -> Stmt:
        inner = [statement(body) for body in child_statements(stmt)]
        if not isinstance(stmt, For) or stmt.var not in limits:
            return rebuild(stmt, operands(stmt), inner)
        start, extent = limits[stmt.var]
        room = simplify_within(stmt.extent - start, bounds)
        low = bounds.interval(simplify_within(room - extent, bounds))[0]
        fits = low >= 0 or simplify_within(minimum(extent, room), bounds) is extent or _is_shrunk(extent, room, bounds)
        length = extent if fits else minimum(extent, room)
        return For(stmt.var, length, substitute_variables(inner[0], {stmt.var: start + stmt.var}), stmt.kind)

    return statement(block)


def _is_shrunk(extent: Expr, room: Expr, bounds: Bounds) -> bool:
    """Whether ``extent`` is ``min(room, ..)``."""
    if not isinstance(extent, Bin) or extent.op != "min":
        return False
    return any(bounds.interval(simplify_within(room - side, bounds))[0] >= 0 for side in (extent.a, extent.b))


def compute_at(state: State, label: str, at: Var | str) -> State:
    """A block whose results a loop reads, part by part before each iteration needs them."""
    block = block_site(state.func, label).stmt
    site, loop = state.loop(at)
    what = f"block {label!r} cannot be computed at loop {loop.var.name!r}"
    _check_between(state, site, block, loop, what, later=False)
    bounds = Site((*site.path, loop.body)).bounds
    limits: dict[Var, tuple[Expr, Expr]] = {}
    mine = collect(block, Bounds({}))
    for buffer in buffers_written(block):
        roles = {param.buffer: param.role for param in state.func.params}
        if roles.get(buffer, "workspace") != "workspace":
            raise illegal(f"{what}: it writes {buffer.name!r}, of which all is wanted")
        elsewhere = [use for use in collect(state.func.body, Bounds({}), buffer) if not {block, loop} & set(use.around)]
        if elsewhere:
            raise illegal(f"{what}: `{elsewhere[0]}`, outside of that loop, uses {buffer.name!r}")
        read = collect(loop.body, bounds, buffer)
        if not read:
            raise illegal(f"{what}: nothing there reads {buffer.name!r}")
        box = box_of(read, bounds)
        for use in mine:
            if use.buffer is buffer:
                _limit(limits, use, box, block, what)
    if _needs_past(block, limits):
        raise illegal(f"{what}: its iterations depend on one another", "compute it at a loop further out")
    inner = _parted_loops(block, limits, bounds)
    return _move_block(state, block, loop, For(loop.var, loop.extent, seq(inner, loop.body), loop.kind))


def _needs_past(block: Stmt, limits: dict[Var, tuple[Expr, Expr]]) -> bool:
    """Whether a block that is executed again, or in part, would give something else than as a whole."""
    uses = collect(block, Bounds({}))
    first: dict[Buffer, Use] = {}
    for use in uses:
        first.setdefault(use.buffer, use)
    for use in uses:
        if use.writes and not first[use.buffer].writes:
            return True  # it adds to what is there
        if use.writes and _meets_itself(use, limits):
            return True
    return _carried(uses, limits) is not None


def inline(state: State, label: str) -> State:
    """A block that computes a buffer element by element, written into all that reads it."""
    site = block_site(state.func, label)
    block = site.stmt
    what = f"block {label!r} cannot be inlined"
    path = chain(block)
    store = path[-1]
    plain = all(isinstance(stmt, (Block, For, Bind)) for stmt in path[:-1])
    if not isinstance(store, Store) or not plain or store.buffer in buffers_read(block):
        raise illegal(f"{what}: it does not compute each element of a buffer by itself")
    buffer, value = store.buffer, _unbound(path)
    roles = {param.buffer: param.role for param in state.func.params}
    if roles.get(buffer, "workspace") != "workspace":
        raise illegal(f"{what}: {buffer.name!r} is an {roles[buffer]}")
    uses = collect(state.func.body, Bounds({}), buffer)
    write = next(use for use in uses if use.writes and block in use.around)
    reads = [use for use in uses if not use.writes]
    other = next((use for use in uses if use.writes and use is not write), None)
    if other is not None:
        raise illegal(f"{what}: `{other}` writes {buffer.name!r} as well")
    shared = [loop.var for loop in site.loops]
    for use in reads:
        if use.spans or isinstance(use.stmt, (Copy, Exec)):
            raise illegal(f"{what}: `{use}` takes {buffer.name!r} as it lies in memory")
        apart = distances(write, use, shared) if set(shared) <= use.inner else None
        if apart is None or any(ends != (0, 0) for ends in apart.values()):
            raise illegal(f"{what}: `{use}` uses it in another iteration of the loops around it")
    _check_there(write, reads, value, what)
    _check_lasting(state, block, reads, value, what)
    solve = _solver(store, [stmt for stmt in path if isinstance(stmt, For)], what)

    def rule(node: Expr) -> Expr | None:
        if isinstance(node, Load) and node.buffer is buffer:
            return substitute(value, solve(node.indices))
        return None

    memo: dict[Expr, Expr] = {}
    body = map_expressions(replace_statement(state.func.body, block, Seq(())), lambda expr: rewrite(expr, rule, memo))
    return dropped(replace(state, func=replace(state.func, body=body)), buffer).tidy()


def _unbound(path: Sequence[Stmt]) -> Expr:
    """What is stored at the end of a chain, without the names that it gives to parts."""
    values: dict[Var, Expr] = {}
    for stmt in path:
        if isinstance(stmt, Bind):
            values[stmt.var] = substitute(stmt.value, values)
    store = path[-1]
    assert isinstance(store, Store)
    return substitute(store.value, values)


def _check_there(write: Use, reads: Sequence[Use], value: Expr, what: str) -> None:
    """Raise if what a block reads does not exist everywhere where what it writes is used."""
    needed = {*buffers_read(value), *variables(value)}
    for stmt in write.around:
        symbol = stmt.buffer if isinstance(stmt, Alloc) else stmt.var if isinstance(stmt, Bind) else None
        if symbol in needed and (use := next((use for use in reads if stmt not in use.around), None)):
            gone = f"{what}: `{use}` is where {symbol.name!r}, which it reads, does not exist"
            raise illegal(gone, "store that further out, or inline first")


def _check_lasting(state: State, block: Stmt, reads: Sequence[Use], value: Expr, what: str) -> None:
    """Raise if what a block reads is overwritten before the last of those that use what it writes."""
    needed = set(buffers_read(value))
    uses = collect_all(state.func.body)
    mine = next(use.around for use in uses if block in use.around)
    start = max(number for number, use in enumerate(uses) if block in use.around)
    regions = {next(stmt for stmt in use.around if stmt not in mine) for use in reads}
    end = max((number for number, use in enumerate(uses) if regions & set(use.around)), default=start)
    for write in uses[start + 1 : end + 1]:
        if write.writes and write.buffer in needed:
            raise illegal(f"{what}: `{write}` overwrites what it reads before `{reads[-1]}` is done")


def _solver(store: Store, loops: Sequence[For], what: str) -> Callable[[tuple[Expr, ...]], dict[Var, Expr]]:
    """Gives the values of a store's loops for which it writes the element at some indices."""
    loops_by_var = {loop.var: loop for loop in loops}
    dims: list[tuple[Expr, list[tuple[Var, int]]]] = []
    for index in store.indices:
        form = affine(index)
        outer = {term: factor for term, factor in form.terms.items() if not set(variables(term)) & set(loops_by_var)}
        steps = sorted(((f, t) for t, f in form.terms.items() if t not in outer), key=lambda step: -step[0])
        unit = 1
        for factor, term in reversed(steps):
            extent = loops_by_var[term].extent if isinstance(term, Var) and term in loops_by_var else None
            if factor != unit or extent is None:
                raise illegal(f"{what}: `{headline(store)}` does not write one element for each iteration")
            unit *= int(extent.value) if isinstance(extent, Imm) else 2**31
        dims.append((as_expr(Affine(outer, form.constant)), [(t, f) for f, t in steps if isinstance(t, Var)]))
    solved = [var for _, steps in dims for var, _ in steps]
    for var in loops_by_var:
        if solved.count(var) != 1:
            raise illegal(f"{what}: loop {var.name!r} writes an element several times, or a diagonal")

    def solve(indices: tuple[Expr, ...]) -> dict[Var, Expr]:
        values: dict[Var, Expr] = {}
        for index, (base, steps) in zip(indices, dims, strict=True):
            rest = index - base
            for position, (var, factor) in enumerate(steps):
                part = rest if factor == 1 else Bin("floordiv", rest, Imm(factor, INDEX))
                count = loops_by_var[var].extent
                values[var] = part if position == 0 or not isinstance(count, Imm) else part % count
        return values

    return solve
