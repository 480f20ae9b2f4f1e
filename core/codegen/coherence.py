"""Host memory that a device reaches by itself, for processors whose caches do not see what it does there.

What a device is given is cleaned before: what the processor wrote is in memory, and no line is left that could be
written over what the device writes. What the device has written is invalidated before the processor reads it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..program import Buffer, Call, Program, Wait
from ..program.program import arguments
from ..tir.form import nodes as tir
from ..tir.form.fields import Access, accesses
from ..tir.form.nodes import HOST_SCOPES, Copy, Exec, Expr, PrimFunc, Queue, Stmt
from ..tir.form.visit import walk

__all__ = ["Shared", "arrived", "by_device", "shared"]


@dataclass(frozen=True)
class Shared:
    """The host's buffers that the device of a kernel uses.

    Args:
        alone: parameters that the host itself does not touch, and whether results are in them: looked after once, where
            the kernel begins and where it ends.
        mixed: all others: looked after wherever the device uses them.
        started: of these, what statements write that are started on a queue: looked after by each wait for it.
    """

    alone: Mapping[tir.Buffer, bool]
    mixed: frozenset[tir.Buffer]
    started: Mapping[Queue, tuple[tir.Buffer, ...]]


def by_device(node: Expr | Stmt) -> tuple[Access, ...]:
    """The uses of the host's memory that a copy or an execution leaves to the device."""
    uses = accesses(node)
    device = (isinstance(node, Exec) and not node.intrinsic.is_host) or (
        isinstance(node, Copy) and any(use.buffer.scope not in HOST_SCOPES for use in uses)
    )
    return tuple(use for use in uses if use.buffer.scope in HOST_SCOPES) if device else ()


def shared(func: PrimFunc) -> Shared:
    """What a kernel shares with its device."""
    parts = list(walk(func.body))
    uses_by_part = {part: by_device(part) for part in parts}
    used = {use.buffer for uses in uses_by_part.values() for use in uses}
    host_buffers = {use.buffer for part in parts if not uses_by_part[part] for use in accesses(part)}
    written = {use.buffer for uses in uses_by_part.values() for use in uses if use.writes}
    params = [param for param in func.params if param.buffer in used - host_buffers]
    alone = {param.buffer: param.role == "output" and param.buffer in written for param in params}
    started: dict[Queue, dict[tir.Buffer, None]] = {}
    for part, uses in uses_by_part.items():
        if isinstance(part, (Copy, Exec)) and part.queue is not None:
            results = (use.buffer for use in uses if use.writes and use.buffer not in alone)
            started.setdefault(part.queue, {}).update(dict.fromkeys(results))
    return Shared(alone, frozenset(used - set(alone)), {queue: tuple(results) for queue, results in started.items()})


def arrived(program: Program) -> dict[int, tuple[Buffer, ...]]:
    """For each wait, by its position among the steps, the host's buffers that the launches wrote which it waits for."""
    buffers = {buffer.name: buffer for buffer in program.buffers}
    launched: dict[tuple[str | None, str], list[Call]] = {}
    buffers_by_position: dict[int, tuple[Buffer, ...]] = {}
    for position, step in enumerate(program.steps):
        if isinstance(step, Wait):
            flying = launched.setdefault((step.device, step.queue), [])
            count = max(0, len(flying) - step.pending)
            pairs = [pair for launch in flying[:count] for pair in arguments(program, launch)]
            results = [buffers[name] for param, name in pairs if param.role == "output"]
            buffers_by_position[position] = tuple(buffer for buffer in results if not buffer.in_scratch)
            del flying[:count]
        elif step.queue is not None:
            launched.setdefault((step.device, step.queue), []).append(step)
    return buffers_by_position
