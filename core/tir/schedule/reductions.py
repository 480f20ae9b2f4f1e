"""Reductions: where they begin, and in how many parts."""

from __future__ import annotations

from ..form.nodes import Alloc, Block, For, If, Seq, Var, seq
from ..form.printer import headline
from ..form.visit import bodies, buffers_read, buffers_written, fresh_name
from .dependences import collect, conflicts
from .nest import block_site, chain, illegal, renamed, replaced, wrapped
from .state import State

__all__ = ["decompose_reduction"]


def decompose_reduction(state: State, label: str, at: Var | str) -> tuple[State, str]:
    """What a block does before its reduction, in a nest of its own before a loop; its label."""
    block = block_site(state.func, label)
    site, loop = state.loop(at)
    what = f"the reduction of {label!r} cannot be decomposed at loop {loop.var.name!r}"
    inside = chain(loop)
    parted = next((stmt for stmt in inside if isinstance(stmt, Seq)), None)
    within = block.stmt in site.path or block.stmt in inside
    if not within or parted is None:
        raise illegal(f"{what}: there is nothing before the reduction within it", "take one of the loops around it")
    position = inside.index(parted)
    path, number = inside[:position], parted.stmts.index(inside[position + 1])
    if number == 0:
        raise illegal(f"{what}: the reduction comes first within it")
    held = next((stmt for stmt in path if isinstance(stmt, Alloc)), None)
    if held is not None:
        raise illegal(f"{what}: {held.buffer.name!r}, which is allocated within it, is used by both parts")
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
    made = names.new(f"{label}_init")
    unlabelled = [stmt for stmt in path if stmt is not block.stmt]
    copied, _ = renamed(wrapped(seq(*before), unlabelled), lambda name: fresh_name(name, names.taken))
    rest, start = wrapped(seq(*after), path), Block(made, copied)
    if block.stmt in path:
        return state.put(loop, seq(start, rest)), made
    # The label stays with what reduces.
    return state.put(block.stmt, replaced(bodies(block.stmt)[0], loop, seq(start, Block(label, rest)))), made
