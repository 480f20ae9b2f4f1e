"""Loops cut, joined, put in another order, and told how to run."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal, get_args

from ..form.nodes import (
    INDEX,
    Alloc,
    Bin,
    Bind,
    Block,
    Buffer,
    Expr,
    For,
    If,
    Imm,
    Seq,
    Stmt,
    Store,
    Var,
    const,
    minimum,
    seq,
)
from ..form.printer import headline
from ..form.visit import (
    buffers_read,
    buffers_written,
    child_statements,
    fresh_name,
    operands,
    rebuild,
    statements,
    substitute,
    variables,
)
from ..proofs.intervals import Bounds
from .cache_stages import is_filled, redeclared
from .dependences import Conflict, Use, carried, collect, collect_all, conflicts_between, inner_loops, reordered, span
from .sites import Site, copy_with_new_names, illegal, site_of, substitute_variables, wrap_in
from .state import LAST, State

__all__ = [
    "Tail",
    "fuse",
    "merge",
    "parallel",
    "part",
    "parted",
    "peel",
    "reorder",
    "require_independent",
    "split",
    "unroll",
    "vectorize",
]

Tail = Literal["guard", "peel", "pad", "shrink"]

_MOST = 2**30
"""Iterations of a block: indices are int32, and those of the last block are computed before they are left out."""


def split(state: State, var: Var | str, factor: int, tail: Tail) -> tuple[State, Var, Var]:
    """The loop over ``var`` as one over blocks of ``factor`` iterations and one within them."""
    _, loop = state.plain_loop(var, "split")
    if type(factor) is not int or not 0 < factor <= _MOST:
        raise illegal(f"loop {loop.var.name!r} cannot be split by {factor!r}", f"give a whole number from 1 to {_MOST}")
    if tail not in get_args(Tail):
        raise illegal(f"loop {loop.var.name!r} has no tail {tail!r}", f"choose one of {', '.join(get_args(Tail))}")
    names = state.names()
    outer, inner = (Var(names.new(f"{loop.var.name}_{part}")) for part in "oi")
    count = Bin("floordiv", loop.extent + (factor - 1), Imm(factor, INDEX))
    is_even = isinstance(loop.extent, Imm) and int(loop.extent.value) % factor == 0
    if tail == "pad" and not isinstance(loop.extent, Imm):
        raise illegal(
            f"loop {loop.var.name!r} has no constant extent: its tail cannot be dealt with by {tail!r}", "shrink it"
        )
    if tail == "pad" and not is_even:
        state = _padded(state, loop.var, -(-_constant(loop) // factor) * factor)
        _, loop = state.loop(loop.var)
        is_even = True
    at: Expr = outer * factor + inner
    body, length = substitute_variables(loop.body, {loop.var: at}), const(factor)
    if not is_even and tail == "guard":
        body = If(at < loop.extent, body)
    elif not is_even:
        length = minimum(loop.extent - outer * factor, factor)
    result = state.put(loop, For(outer, count, For(inner, length, body)))
    if tail == "peel" and not is_even:
        result = result.cut(outer, _constant(loop) // factor if isinstance(loop.extent, Imm) else LAST)
    return result, outer, inner


def _constant(loop: For) -> int:
    assert isinstance(loop.extent, Imm)
    return int(loop.extent.value)


def _padded(state: State, var: Var, extent: int) -> State:
    """The loop run up to ``extent``, where what it does beyond its own end stays in memory of its own."""
    site, loop = state.loop(var)
    count = _constant(loop)
    longer = For(loop.var, const(extent), loop.body)
    grown: dict[Buffer, tuple[int, ...]] = {}
    uses = collect_all(longer, site.bounds)
    # What the loop itself allocates is there anew in each iteration: nobody sees what is written there.
    inner = {part.buffer for part in statements(loop.body) if isinstance(part, Alloc)}
    for use in uses:
        if use.writes and use.buffer not in inner:
            grown[use.buffer] = _grown(state, use, grown.get(use.buffer, use.buffer.shape), loop.var, count)
    for use in uses:
        shape = grown.get(use.buffer, use.buffer.shape)
        ends = [span(form, use.known) for form in use.forms]
        if any(low < 0 or high >= extent for (low, high), extent in zip(ends, shape, strict=True)):
            what = (
                f"loop {loop.var.name!r} cannot be padded from {count} to {extent}: `{use}` leaves {use.buffer.name!r}"
            )
            raise illegal(what, "give the buffer room for whole blocks, or choose another tail")
        reads_more = not use.writes and any(loop.var in variables(term) for form in use.forms for term in form.terms)
        is_before = use.buffer not in inner and use.buffer not in grown
        has_value = is_filled(state, use.buffer, loop) if is_before else _is_stored_before(use, uses)
        if reads_more and not has_value:
            what = f"loop {loop.var.name!r} cannot be padded from {count} to {extent}: `{use}` would read elements of"
            raise illegal(f"{what} {use.buffer.name!r} that may have no value", "choose another tail")
    result = state.put(loop, longer)
    for buffer, shape in grown.items():
        if shape != buffer.shape:
            result, _ = redeclared(result, buffer, replace(buffer, shape=shape))
    return result


def _is_stored_before(use: Use, uses: Sequence[Use]) -> bool:
    """Whether each execution of a read follows one of a store to the same element, within what was searched."""
    stores = itertools.takewhile(lambda other: other is not use, uses)
    return any(
        other.buffer is use.buffer
        and isinstance(other.stmt, Store)
        and other.writes
        and other.forms == use.forms
        and all(stmt in use.around for stmt in other.around if isinstance(stmt, (For, If)))
        for other in stores
    )


def _grown(state: State, use: Use, shape: tuple[int, ...], var: Var, count: int) -> tuple[int, ...]:
    """The shape that a buffer needs for what is written beyond iteration ``count``, which nobody else may see."""
    beyond = Bounds({}) if var not in use.inner else use.known.declare(var, (count, use.known.interval(var)[1]))
    roles = {param.buffer: param.role for param in state.func.params}
    for dim, form in enumerate(use.forms):
        low = span(form, beyond)[0]
        if var in form.terms and low >= use.buffer.shape[dim] and roles.get(use.buffer, "workspace") == "workspace":
            high = span(form, use.known)[1]
            return (*shape[:dim], max(shape[dim], high + 1), *shape[dim + 1 :])
    whose = f"parameter {use.buffer.name!r}" if use.buffer in roles else f"{use.buffer.name!r}"
    raise illegal(f"loop {var.name!r} cannot be padded: `{use}` would write more of {whose}", "choose another tail")


def fuse(state: State, a: Var | str, b: Var | str) -> tuple[State, Var]:
    """Two loops, the second directly within the first, as one over all their iterations."""
    _, outer = state.plain_loop(a, "fused")
    _, inner = state.plain_loop(b, "fused")
    what = f"loops {outer.var.name!r} and {inner.var.name!r} cannot be fused"
    if outer.body is not inner:
        raise illegal(
            f"{what}: the second is not directly within the first", "reorder them, or decompose the reduction first"
        )
    if not isinstance(inner.extent, Imm):
        raise illegal(f"{what}: the extent of the second is not constant", "fuse loops before one of them is split")
    var = Var(state.names().new(f"{outer.var.name}_{inner.var.name}"))
    count = _constant(inner)
    values = {outer.var: Bin("floordiv", var, Imm(count, INDEX)), inner.var: var % count}
    extent = const(_constant(outer) * count) if isinstance(outer.extent, Imm) else outer.extent * count
    return state.put(outer, For(var, extent, substitute_variables(inner.body, values))), var


def merge(state: State, order: Sequence[Var | str], levels: int = 1) -> tuple[State, list[Var]]:
    """Loops that stand one after the other as one, each iteration of which does what one of each did; and so on for the
    loops directly within them.
    """
    chosen = [state.uncut_loop(var, "merged")[1] for var in order]
    names = ", ".join(repr(loop.var.name) for loop in chosen)
    what = f"loops {names} cannot be merged"
    if not chosen or len(set(chosen)) < len(chosen):
        raise illegal(f"{what}: it takes one or several, each named once")
    bands = [_band(loop, levels, what) for loop in chosen]
    first = bands[0]
    loop_vars = [loop.var for loop in first]
    for band in bands[1:]:
        values: dict[Var, Expr] = dict(zip((loop.var for loop in band), loop_vars, strict=True))
        for loop, other in zip(band, first, strict=True):
            if substitute(loop.extent, values) is not other.extent:
                raise illegal(f"{what}: {loop.var.name!r} has another extent than {other.var.name!r}")
            if state.cuts.get(loop.var) != state.cuts.get(other.var):
                hint = "split them alike"
                raise illegal(f"{what}: {loop.var.name!r} is peeled elsewhere than {other.var.name!r}", hint)
    site = site_of(state.func.body, lambda stmt: _run_of(stmt, chosen) is not None)
    if site is None:
        raise illegal(f"{what}: they do not stand one after the other", "name all that stand there, in order")
    old = site.stmt
    start, stop = _run_of(old, chosen) or (0, 0)
    bodies_of = {band[0]: _iteration(band, loop_vars) for band in bands}
    earlier: list[Use] = []
    for loop in chosen if len(chosen) > 1 else ():
        uses = collect(wrap_in(bodies_of[loop], first), site.bounds)
        for conflict in conflicts_between(earlier, uses, loop_vars):
            if _may_come_before(conflict, loop_vars):
                raise illegal(f"{what}: {conflict}, the second in an earlier iteration than the first")
        earlier += uses
    stmts = _one_by_one(old)
    merged = wrap_in(seq(*(_in_blocks(stmt, bodies_of) for stmt in stmts[start:stop])), first)
    gone = {loop.var for band in bands[1:] for loop in band}
    state = replace(state, cuts={var: cut for var, cut in state.cuts.items() if var not in gone})
    return state.put(old, seq(*stmts[:start], merged, *stmts[stop:])), loop_vars


def _band(loop: For, levels: int, what: str) -> list[For]:
    """A loop and those directly within it."""
    band = [loop]
    while len(band) < levels:
        inner = band[-1].body
        if not isinstance(inner, For):
            raise illegal(f"{what}: there are not {levels} loops directly within one another", "reorder them first")
        band.append(inner)
    return band


def _may_come_before(conflict: Conflict, order: Sequence[Var]) -> bool:
    """Whether the second access may be in an earlier iteration than the first."""
    for var in order:
        low, _ = conflict.apart[var]
        if low != 0:
            return low < 0
    return False


def _one_by_one(stmt: Stmt) -> tuple[Stmt, ...]:
    return stmt.stmts if isinstance(stmt, Seq) else (stmt,)


def _run_of(stmt: Stmt, loops: Sequence[For]) -> tuple[int, int] | None:
    """From which of the statements of a sequence to which they consist of just these loops, in this order, and blocks
    around them.
    """
    stmts = _one_by_one(stmt)
    for start in range(len(stmts)):
        run: list[Stmt] = []
        for stop, part in enumerate(stmts[start:], start + 1):
            run += _out_of_blocks(part)
            if run == list(loops):
                return start, stop
            if run != list(loops[: len(run)]):
                break
    return None


def _out_of_blocks(stmt: Stmt) -> list[Stmt]:
    """The statements, one after the other, that blocks consist of."""
    if isinstance(stmt, (Block, Seq)):
        return [part for body in child_statements(stmt) for part in _out_of_blocks(body)]
    return [stmt]


def _iteration(band: Sequence[For], loop_vars: Sequence[Var]) -> Stmt:
    """What an iteration of loops does, that of others with the variables ``loop_vars``."""
    values: dict[Var, Expr] = {loop.var: var for loop, var in zip(band, loop_vars, strict=True) if loop.var is not var}
    return substitute_variables(band[-1].body, values) if values else band[-1].body


def _in_blocks(stmt: Stmt, bodies_of: Mapping[For, Stmt]) -> Stmt:
    """What stands in the place of loops, in the blocks that stand around them."""
    if isinstance(stmt, For):
        return bodies_of[stmt]
    return rebuild(stmt, operands(stmt), [_in_blocks(body, bodies_of) for body in child_statements(stmt)])


def peel(state: State, var: Var | str) -> tuple[State, tuple[Var, ...]]:
    """The parts of a loop that is to be peeled, one after the other; their variables."""
    _, loop = state.loop(var)
    if loop.var not in state.cuts:
        raise illegal(f"loop {loop.var.name!r} has no tail to be peeled", 'split with tail="peel"')
    return parted(state, loop.var)


def parted(state: State, var: Var) -> tuple[State, tuple[Var, ...]]:
    """The loop over ``var`` as several, one after the other; none where it is gone."""
    cuts = state.cuts[var]
    rest = {other: at for other, at in state.cuts.items() if other is not var}
    site = site_of(state.func.body, lambda stmt: isinstance(stmt, For) and stmt.var is var)
    if site is None:
        return replace(state, cuts=rest), ()
    loop = site.stmt
    assert isinstance(loop, For)
    low, high = site.bounds.interval(loop.extent)
    if low != high:
        raise illegal(f"loop {var.name!r} cannot be peeled: its extent is not constant", "shrink its tail")
    is_uneven = any(var in variables(inner.extent) for inner in inner_loops(loop.body))
    places = [high - 1 if at == LAST else at for at in cuts if at != LAST or is_uneven]
    points = [0, *sorted({at for at in places if 0 < at < high}), high]
    names, kinds = state.names(), dict(state.kinds)
    parts: list[Stmt] = []
    part_vars: list[Var] = []
    for start, end in itertools.pairwise(points):
        part = For(var, const(end - start), substitute_variables(loop.body, {var: var + start} if start else {}))
        if start:
            copied, new = copy_with_new_names(part, lambda name: fresh_name(name, names.taken))
            assert isinstance(copied, For)
            part = copied
            kinds.update({Var(new[old.name]): kind for old, kind in kinds.items() if old.name in new})
            rest.update({Var(new[old.name]): at for old, at in rest.items() if old.name in new})
        part_vars.append(part.var)
        # What is allocated in a loop that has one round then is not there for what follows.
        parts.append(Block(names.new(f"{var.name}_{len(parts)}"), part) if _makes_room(loop.body) else part)
    return replace(state, cuts=rest, kinds=kinds).put(loop, seq(*parts)), tuple(part_vars)


def _makes_room(stmt: Stmt) -> bool:
    if isinstance(stmt, For) and stmt.extent == Imm(1, stmt.var.dtype):
        return _makes_room(stmt.body)
    return isinstance(stmt, (Alloc, Bind)) or (isinstance(stmt, Seq) and any(map(_makes_room, stmt.stmts[-1:])))


def reorder(state: State, order: Sequence[Var | str]) -> State:
    """Loops of one nest in another order, in the places that they have now."""
    sites = [state.uncut_loop(var, "reordered") for var in order]
    chosen = [loop for _, loop in sites]
    names = ", ".join(repr(loop.var.name) for loop in chosen)
    if len(set(chosen)) < len(chosen):
        raise illegal(f"loops {names} cannot be reordered: one is named twice")
    if len(chosen) < 2:
        return state
    site = max((site for site, _ in sites), key=lambda site: len(site.path))
    apart = next((loop for loop in chosen if loop not in site.path), None)
    if apart is not None:
        raise illegal(f"loops {names} cannot be reordered: {apart.var.name!r} is not in one nest with the others")
    first = min(site.path.index(loop) for loop in chosen)
    band = site.path[first:]
    _check_nest(band, names)
    loops = [stmt for stmt in band if isinstance(stmt, For)]
    remaining = iter(chosen)
    after = [next(remaining) if loop in chosen else loop for loop in loops]
    seen: set[Var] = set()
    for loop in after:
        late = [other.var for other in loops if other.var in variables(loop.extent) and other.var not in seen]
        if late:
            what = f"loop {loop.var.name!r} cannot be put outside of {late[0].name!r}"
            raise illegal(f"{what}, on which its extent depends", "split it with another tail, or later")
        seen.add(loop.var)
    bounds = site.up_to(band[0]).bounds
    conflict = reordered(loops[0], bounds, [loop.var for loop in loops], [loop.var for loop in after])
    if conflict is not None:
        raise illegal(f"loops {names} cannot be put in that order: {conflict}, and would do so in another order")
    ordered = iter(after)
    stack = [next(ordered) if isinstance(stmt, For) else stmt for stmt in band]
    return state.put(band[0], wrap_in(loops[-1].body, _sunk(stack)))


def _check_nest(band: Sequence[Stmt], names: str) -> None:
    """Raise unless nothing stands between loops but what can be moved among them."""
    written = set(buffers_written(band[-1]))
    for stmt in band[:-1]:
        what = f"loops {names} cannot be reordered: "
        if len(child_statements(stmt)) != 1:
            beside = "a sequence of statements" if isinstance(stmt, Seq) else f"`{headline(stmt)}`"
            raise illegal(
                f"{what}{beside} stands between them", "decompose the reduction first, or move what stands beside"
            )
        if isinstance(stmt, Alloc):
            raise illegal(f"{what}{stmt.buffer.name!r} is allocated between them", "store it at another loop")
        if isinstance(stmt, (If, Bind)) and any(set(buffers_read(expr)) & written for expr in operands(stmt)):
            raise illegal(f"{what}`{headline(stmt)}` between them asks for what they write")


def _sunk(stack: Sequence[Stmt]) -> list[Stmt]:
    """Loops, and what stands between them: conditions and names come after the variables that they use."""
    declared = [stmt.var for stmt in stack if isinstance(stmt, (For, Bind))]
    placed: list[Stmt] = []
    waiting: list[Stmt] = []
    missing = set(declared)
    for stmt in stack:
        waiting.append(stmt)
        progresses = True
        while progresses:
            progresses = False
            for candidate in waiting:
                if isinstance(candidate, (If, Bind)) and any(
                    set(variables(expr)) & missing for expr in operands(candidate)
                ):
                    continue
                placed.append(candidate)
                waiting.remove(candidate)
                missing.discard(getattr(candidate, "var", None))
                progresses = True
                break
    return placed


def part(state: State, var: Var | str, places: Sequence[int]) -> State:
    """The loop as several, which begin where it does and at the places that are given."""
    _, loop = state.uncut_loop(var, "parted")
    what = f"loop {loop.var.name!r} cannot be parted"
    if not isinstance(loop.extent, Imm):
        raise illegal(f"{what}: its extent is not constant", "part it before it is shrunk")
    for place in places:
        if type(place) is not int or not 0 < place < _constant(loop):
            raise illegal(f"{what} before iteration {place!r}: it has {_constant(loop)}", "give one of the later ones")
        state = state.cut(loop.var, place)
    return state


def unroll(state: State, var: Var | str) -> State:
    """The loop's iterations will stand one after the other."""
    return state.marked(_to_mark(state, var, "unrolled").var, "unrolled")


def vectorize(state: State, var: Var | str) -> State:
    """The loop's iterations will run at once, in the lanes of vectors."""
    return state.marked(_independent(state, var, "vectorized").var, "vectorized")


def parallel(state: State, var: Var | str) -> State:
    """The loop's iterations may run in any order, or at once."""
    return state.marked(_independent(state, var, "parallel").var, "parallel")


def _to_mark(state: State, var: Var | str, kind: str) -> For:
    _, loop = state.uncut_loop(var, kind)
    return loop


def _independent(state: State, var: Var | str, kind: str) -> For:
    loop = _to_mark(state, var, kind)
    site, _ = state.loop(var)
    require_independent(site, kind)
    return loop


def require_independent(site: Site, kind: str) -> None:
    """Raise unless the iterations of a loop do not depend on one another."""
    loop = site.stmt
    assert isinstance(loop, For)
    conflict = carried(loop, site.bounds)
    if conflict is not None:
        hint = "split the reduction off with rfactor, or take a loop over elements of the result"
        raise illegal(f"loop {loop.var.name!r} cannot be {kind}: {conflict}", hint)
