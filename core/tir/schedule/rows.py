"""Loops over rows that become the rows of a function."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ..form.nodes import Buffer, For, PrimFunc, Var
from ..form.visit import buffers_written
from ..proofs.intervals import Bounds
from ..rewrites.row_form import NoRows, row_form
from ..rewrites.simplify import simplify
from .sites import illegal, simplify_expressions
from .state import State

__all__ = ["in_rows", "rows"]


def rows(state: State, at: Var | str) -> State:
    """The function will have a row form by an outermost loop."""
    site, loop = state.uncut_loop(at, "made rows")
    outer = next((stmt for stmt in site.path if isinstance(stmt, For) and stmt is not loop), None)
    if outer is not None:
        raise illegal(
            f"loop {loop.var.name!r} cannot become rows: loop {outer.var.name!r} is around it", "put it outermost"
        )
    written = buffers_written(loop)
    by_rows = any(buffer in written for buffer in state.func.buffers("output"))
    heights = {
        param.buffer.name: _height(param.buffer)
        for param in state.func.params
        if param.role == "input" or (param.role == "output" and by_rows)
    }
    in_rows(simplify(replace(state.func, body=simplify_expressions(state.func.body, Bounds({})))), heights)
    return replace(state, heights=heights)


def in_rows(func: PrimFunc, heights: Mapping[str, int]) -> PrimFunc:
    """The row form of a function.

    Raises:
        ScheduleError: it has none.
    """
    made = row_form(func, heights)
    if isinstance(made, NoRows):
        raise illegal(
            f"the function has no rows: {made.reason}", "what is done for one row stands in an outermost loop"
        )
    return made


def _height(buffer: Buffer) -> int:
    return next((extent for extent in buffer.shape[:-1] if extent > 1), 1)
