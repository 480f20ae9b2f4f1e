"""An accelerator's memory handed to the planner: what a function allocates in it becomes parameters."""

from __future__ import annotations

from dataclasses import replace

from ..form.nodes import Alloc, Buffer, Param, PrimFunc, Stmt
from ..form.visit import child_statements, map_fields

__all__ = ["hoist_scratch"]


def hoist_scratch(func: PrimFunc) -> PrimFunc:
    """``func`` with workspaces in place of what it allocates in accelerators' memories, in the order of its text.

    Buffers of one memory and dtype that are never in use together share a workspace, which is as large as the largest;
    those of several dimensions only if they have one shape. Workspaces in a memory, these and those that were there,
    are aligned as the memory asks. Nothing is left to hoist from the result.
    """
    return _Hoister(func).run()


class _Hoister:
    def __init__(self, func: PrimFunc) -> None:
        self.func = func
        self.alignments = {memory.name: memory.alignment for memory in func.memories}
        self.slots: list[Buffer] = []
        self.places: dict[Buffer, int] = {}
        self.hoisted: dict[Buffer, Buffer] = {}

    def run(self) -> PrimFunc:
        func = self.func
        self.assign(func.body, frozenset())
        params = [Param(self.aligned(param.buffer), param.role) for param in func.params]
        self.hoisted = {old.buffer: new.buffer for old, new in zip(func.params, params, strict=True)}
        self.hoisted.update((buffer, self.slots[place]) for buffer, place in self.places.items())
        scratch = [Param(buffer, "workspace") for buffer in self.slots]
        return replace(func, params=(*params, *scratch), body=self.statement(func.body))

    def aligned(self, buffer: Buffer) -> Buffer:
        alignment = max(buffer.alignment, self.alignments.get(buffer.scope, 1))
        return replace(buffer, alignment=alignment)

    def assign(self, stmt: Stmt, taken: frozenset[int]) -> None:
        """Give each buffer within ``stmt`` a slot that is not one of those ``taken`` around it."""
        if isinstance(stmt, Alloc) and stmt.buffer.scope in self.alignments:
            buffer = self.aligned(stmt.buffer)
            free = (n for n, slot in enumerate(self.slots) if n not in taken and _may_share(slot, buffer))
            place = next(free, len(self.slots))
            if place == len(self.slots):
                self.slots.append(buffer)
            slot = self.slots[place]
            larger = max(slot, buffer, key=lambda one: one.size)
            self.slots[place] = replace(slot, shape=larger.shape, alignment=max(slot.alignment, buffer.alignment))
            self.places[stmt.buffer] = place
            taken |= {place}
        for inner in child_statements(stmt):
            self.assign(inner, taken)

    def statement(self, stmt: Stmt) -> Stmt:
        if isinstance(stmt, Alloc) and stmt.buffer in self.places:
            return self.statement(stmt.body)
        return map_fields(stmt, element=lambda buffer, at: (self.hoisted.get(buffer, buffer), at), body=self.statement)


def _may_share(slot: Buffer, buffer: Buffer) -> bool:
    lines = len(slot.shape) == len(buffer.shape) == 1
    return slot.scope == buffer.scope and slot.dtype == buffer.dtype and (lines or slot.shape == buffer.shape)
