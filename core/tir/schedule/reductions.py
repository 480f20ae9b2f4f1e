"""Reductions: where they begin, and in how many parts."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..form.dtype import bounds, is_float
from ..form.nodes import (
    Alloc,
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
    Update,
    Var,
    const,
    seq,
)
from ..form.printer import headline
from ..form.visit import buffers_read, buffers_written, child_statements, fresh_name, variables, walk
from .dependences import collect, conflicts, reduction_op
from .regions import box_of
from .sites import Site, block_site, chain, copy_with_new_names, illegal, replace_statement, wrap_in
from .state import State

__all__ = ["decompose_reduction", "identity", "rfactor"]

_MOST_PARTS = 2**16
"""More parts of a reduction than that are nobody's wish."""


def decompose_reduction(state: State, label: str, at: Var | str) -> tuple[State, str]:
    """What a block does before its reduction, in a nest of its own before a loop; its label."""
    block = block_site(state.func, label)
    site, loop = state.loop(at)
    what = f"the reduction of {label!r} cannot be decomposed at loop {loop.var.name!r}"
    inside = chain(loop)
    parted = next((stmt for stmt in inside if isinstance(stmt, Seq)), None)
    is_related = block.stmt in site.path or block.stmt in inside
    if not is_related or parted is None:
        raise illegal(f"{what}: there is nothing before the reduction within it", "take one of the loops around it")
    position = inside.index(parted)
    path, number = inside[:position], parted.stmts.index(inside[position + 1])
    if number == 0:
        raise illegal(f"{what}: the reduction comes first within it")
    allocation = next((stmt for stmt in path if isinstance(stmt, Alloc)), None)
    if allocation is not None:
        raise illegal(f"{what}: {allocation.buffer.name!r}, which is allocated within it, is used by both parts")
    before, after = parted.stmts[:number], parted.stmts[number:]
    written = set(buffers_written(loop))
    asked = next((stmt for stmt in path if isinstance(stmt, If) and set(buffers_read(stmt.condition)) & written), None)
    if asked is not None:
        raise illegal(f"{what}: `{headline(asked)}` asks for what it writes")
    loops = [stmt.var for stmt in path if isinstance(stmt, For)]
    for conflict in conflicts(collect(loop, site.bounds), loops):
        early = [any(stmt in before for stmt in use.around) for use in (conflict.first, conflict.second)]
        if early[0] != early[1] and any(apart != (0, 0) for apart in conflict.apart.values()):
            raise illegal(f"{what}: {conflict}, in different iterations of it")
    names = state.names()
    init_label = names.new(f"{label}_init")
    unlabelled = [stmt for stmt in path if stmt is not block.stmt]
    copied, _ = copy_with_new_names(wrap_in(seq(*before), unlabelled), lambda name: fresh_name(name, names.taken))
    rest, start = wrap_in(seq(*after), path), Block(init_label, copied)
    if block.stmt in path:
        return state.put(loop, seq(start, rest)), init_label
    # The label stays with what reduces.
    return state.put(
        block.stmt, replace_statement(child_statements(block.stmt)[0], loop, seq(start, Block(label, rest)))
    ), init_label


def rfactor(state: State, at: Var | str, pairwise: bool = False) -> tuple[State, Buffer]:
    """A reduction in as many parts as one of its loops has iterations, and a sum of the parts; what holds these."""
    site, loop = state.plain_loop(at, "factored")
    what = f"loop {loop.var.name!r} cannot be factored"
    updates = [part for part in walk(loop) if isinstance(part, (Store, Update, Copy, Exec))]
    if len(updates) != 1 or not isinstance(updates[0], Update) or reduction_op(updates[0]) is None:
        raise illegal(f"{what}: it has not one update of a buffer within it", "decompose the reduction first")
    update = updates[0]
    count = site.bounds.interval(loop.extent)[1]
    if count >= _MOST_PARTS:
        raise illegal(f"{what}: it has no constant bound", "split it")
    if pairwise and (count < 2 or count & (count - 1)):
        raise illegal(f"{what}: its {count} parts cannot be summed up pairwise", "split off a power of two")
    outer = _outermost(site, loop, update)
    bounds = Site(site.path[: site.path.index(outer) + 1]).bounds
    uses = [use for use in collect(outer, bounds, update.buffer) if use.stmt is update]
    apart = next((c for c in conflicts(uses, [loop.var], steps=True) if c.apart[loop.var] != (0, 0)), None)
    if apart is None:
        raise illegal(f"{what}: its iterations do not add to one element", "take a loop of the reduction")
    box = box_of(uses, bounds)
    asked = any(isinstance(stmt, If) for stmt in uses[0].around) and not _is_begun(site, outer, update)
    if not box.is_whole or asked:
        raise illegal(f"{what}: what it adds to is not a whole box", "peel or shrink tails instead of guarding them")
    names = state.names()
    dims = [dim for dim, side in enumerate(box.sides) if side.size > 1]
    shape = (count, *(box.sides[dim].size for dim in dims))
    parts = Buffer(names.new(f"{update.buffer.name}_parts"), shape, update.buffer.dtype, "local")

    def at_part(var: Expr, indices: Sequence[Expr]) -> tuple[Expr, ...]:
        return (var, *(indices[dim] - box.sides[dim].start for dim in dims))

    def nest(name: str, make: Callable[[Expr, tuple[Var, ...]], Stmt], extent: int = count) -> Stmt:
        first = Var(names.new(f"{parts.name}_{name}"))
        inner = tuple(Var(names.new(f"{parts.name}_{name}_{dim}")) for dim in dims)
        stmt = make(first, inner)
        for var, dim in reversed(list(zip(inner, dims, strict=True))):
            stmt = For(var, box.sides[dim].extent, stmt)
        return For(first, const(extent), stmt)

    def block(name: str, *stmts: Stmt) -> Stmt:
        return Block(names.new(f"{parts.name}_{name}"), seq(*stmts))

    def start(first: Expr, inner: tuple[Var, ...]) -> Stmt:
        return Store(parts, (first, *inner), identity(update.op, parts.dtype))

    def fold(half: int) -> Callable[[Expr, tuple[Var, ...]], Stmt]:
        return lambda first, inner: Update(update.op, parts, (first, *inner), Load(parts, (first + half, *inner)))

    def end(first: Expr, inner: tuple[Var, ...]) -> Stmt:
        indices: list[Expr] = [side.start for side in box.sides]
        for var, dim in zip(inner, dims, strict=True):
            indices[dim] = indices[dim] + var
        return Update(update.op, update.buffer, tuple(indices), Load(parts, (first, *inner)))

    step = Update(update.op, parts, at_part(loop.var, update.indices), update.value)
    halves = [count >> level for level in range(1, count.bit_length())] if pairwise else []
    folds = [nest("fold", fold(half), half) for half in halves]
    first = block("init", nest("init", start))
    last = block("sum", *folds, nest("sum", end, 1 if pairwise else count))
    body = seq(first, replace_statement(outer, update, step), last)
    return state.put(outer, Alloc(parts, body)), parts


def _is_begun(site: Site, outer: For, update: Update) -> bool:
    """Whether what is added to has a value before ``outer``, the first loop that goes on with the reduction."""
    around = site.path[site.path.index(outer) - 1] if outer in site.path[1:] else None
    if not isinstance(around, Seq):
        return False
    before = around.stmts[: around.stmts.index(outer)]
    return any(
        isinstance(stmt, Store) and stmt.buffer is update.buffer and stmt.indices == update.indices for stmt in before
    )


def _outermost(site: Site, loop: For, update: Update) -> For:
    """The first of the loops directly around one another, ``loop`` among them, that go on with a reduction."""
    around = list(site.path[:-1])
    outer = loop
    while around and isinstance(around[-1], (For, Block, If)) and len(child_statements(around[-1])) == 1:
        last = around.pop()
        if isinstance(last, For):
            if any(last.var in variables(index) for index in update.indices):
                break
            outer = last
    return outer


def identity(op: str, dtype: str) -> Expr:
    """What changes nothing where a reduction begins with it."""
    if op in ("add", "mul"):
        return Imm(int(op == "mul"), dtype)
    if is_float(dtype):
        return Imm(float("-inf") if op == "max" else float("inf"), dtype)
    low, high = bounds(dtype)
    return Imm(low if op == "max" else high, dtype)
