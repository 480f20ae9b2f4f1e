"""Proof that what a plan overlaps may overlap: the distance is found anew, from the loops themselves."""

from __future__ import annotations

from ..support.interning import remembered
from ..tir.form.nodes import PrimFunc
from ..tir.proofs.overlap import distance_by_bounds, may_overlap
from ..tir.proofs.overlap_run import distance_by_running
from .memory_plan import Plan
from .program import Call, Program, arguments

__all__ = ["overlap_fault"]

_MAX_WORK = 6_000_000
"""Of one run of a function's index arithmetic; beyond, bounds must do."""


def overlap_fault(program: Program, plan: Plan, step: Call, out: str, given: str) -> str:
    """What is wrong with an output of a step over an input that dies in it; empty where nothing is.

    Args:
        program: it.
        plan: where the two are.
        step: of the program.
        out: the buffer that is written.
        given: one that it overlaps.
    """
    function = program.functions[step.function]
    passed = [(param, name) for param, name in arguments(program, step) if name in (out, given)]
    over = [param.buffer for param, name in passed if name == out]
    under = [param.buffer for param, name in passed if name == given]
    sizes = {buffer.name: buffer.nbytes for buffer in program.buffers if buffer.name in (out, given)}
    whole = all(sizes[name] == param.buffer.nbytes for param, name in passed)
    if not isinstance(function, PrimFunc) or step.queue is not None or len(over) != 1 or not under or not whole:
        return f"{out!r} overlaps {given!r}, which is live too"
    told = {pair[:2] for pair in function.overlaps}
    behind = plan.offsets[given] - plan.offsets[out]
    for buffer in under:
        asked = _distance(function, over[0].name, buffer.name)
        if asked is None or (over[0].name, buffer.name) not in told:
            return f"{out!r} overlaps {given!r}, which is live too"
        if behind < asked:
            return f"{out!r} overlaps {given!r}, which begins {behind} bytes behind it: it must be {asked} or more"
    return ""


def _distance(function: PrimFunc, out: str, given: str) -> int | None:
    """The bytes that an input must begin behind an output, at least; None where no number is enough."""
    known = _distances(function)
    if (out, given) not in known:
        pairs = {(over.name, under.name): (over, under) for over, under in may_overlap(function)}
        known[out, given] = None
        if (out, given) in pairs:
            over, under = pairs[out, given]
            found = distance_by_running(over, under, function, _MAX_WORK)
            known[out, given] = distance_by_bounds(over, under, function) if found is None else found
    return known[out, given]


@remembered
def _distances(function: PrimFunc) -> dict[tuple[str, str], int | None]:
    """Those that were asked for already."""
    return {}
