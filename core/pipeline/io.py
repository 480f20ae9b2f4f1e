"""Where inputs and outputs are: what was asked for, and what becomes of a program for that."""

from __future__ import annotations

from dataclasses import replace

from ..errors import UsageError
from ..program import Program
from ..program.program import CALLER_POOL, default_pool
from ..support.io_forms import IoForm

__all__ = ["pool_of", "with_io"]


def pool_of(io: IoForm | None) -> str:
    """The pool that inputs and outputs are in."""
    return CALLER_POOL if io in (None, "caller") else default_pool("intermediate")


def with_io(program: Program, io: IoForm) -> Program:
    """A program with its inputs and outputs where they were asked to be.

    Raises:
        UsageError: they are in its arena, and the caller is to have them: its steps may count on how they lie there.
    """
    placed = program.placed
    if io == "caller" and placed:
        what = f"the program has {placed[0].role} {placed[0].name!r} in its arena, and the caller was to give it"
        raise UsageError(what, hint="leave io out, or build the model that the program was made of")
    if io == "caller":
        return program
    buffers = (replace(one, pool=pool_of(io)) if one.is_given else one for one in program.buffers)
    return replace(program, buffers=tuple(buffers))
