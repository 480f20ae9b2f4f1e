"""Proof that what a plan overlaps may overlap: the distance is found anew, from the loops themselves."""

from __future__ import annotations

from ..support.interning import cached_on_node
from ..tir.form.nodes import PrimFunc
from ..tir.proofs.overlap import distance_by_bounds, may_overlap
from ..tir.proofs.overlap_run import distance_by_running
from .memory_plan import Plan
from .program import Call, Program, arguments

__all__ = ["overlap_fault"]

_MAX_WORK = 6_000_000
"""Of one run of a function's index arithmetic; beyond, bounds must do."""


def overlap_fault(program: Program, plan: Plan, step: Call, out: str, source: str) -> str:
    """What is wrong with an output of a step over an input that dies in it; empty where nothing is.

    Args:
        program: it.
        plan: where the two are.
        step: of the program.
        out: the buffer that is written.
        source: one that it overlaps.
    """
    function = program.functions[step.function]
    passed = [(param, name) for param, name in arguments(program, step) if name in (out, source)]
    over = [param.buffer for param, name in passed if name == out]
    under = [param.buffer for param, name in passed if name == source]
    sizes = {buffer.name: buffer.nbytes for buffer in program.buffers if buffer.name in (out, source)}
    is_whole = all(sizes[name] == param.buffer.nbytes for param, name in passed)
    if not isinstance(function, PrimFunc) or step.queue is not None or len(over) != 1 or not under or not is_whole:
        return f"{out!r} overlaps {source!r}, which is live too"
    declared = {pair[:2] for pair in function.overlaps}
    behind = plan.offsets[source] - plan.offsets[out]
    for buffer in under:
        asked = _distance(function, over[0].name, buffer.name)
        if asked is None or (over[0].name, buffer.name) not in declared:
            return f"{out!r} overlaps {source!r}, which is live too"
        if behind < asked:
            return f"{out!r} overlaps {source!r}, which begins {behind} bytes behind it: it must be {asked} or more"
    return ""


def _distance(function: PrimFunc, out: str, source: str) -> int | None:
    """The bytes that an input must begin behind an output, at least; None where no number is enough."""
    distances = _distances(function)
    if (out, source) not in distances:
        pairs = {(over.name, under.name): (over, under) for over, under in may_overlap(function)}
        distances[out, source] = None
        if (out, source) in pairs:
            over, under = pairs[out, source]
            distance = distance_by_running(over, under, function, _MAX_WORK)
            distances[out, source] = distance_by_bounds(over, under, function) if distance is None else distance
    return distances[out, source]


@cached_on_node
def _distances(function: PrimFunc) -> dict[tuple[str, str], int | None]:
    """Those that were asked for already."""
    return {}
