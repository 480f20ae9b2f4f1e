"""A limit on RAM: how it is written, what counts, and the error where nothing reaches it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..artifact.footprint import Footprint, memory_peaks
from ..artifact.record import ArtifactRecord, CallRecord
from ..errors import RequirementError
from ..option_values import Limit
from ..program import Plan, Program
from ..targets.values import shorten

__all__ = [
    "SHOWN",
    "beside_stack",
    "format_excess",
    "named_step",
    "ram_bytes",
    "ram_problems",
    "require_ram",
    "shorten_names",
    "step_layers",
]

SHOWN = 5
"""How many buffers, layers or regions are named."""


def ram_bytes(program: Program, memory: Plan) -> int:
    """The RAM that one context takes, without its stack: arena, state, inputs and outputs."""
    outside = (buffer for buffer in (*program.inputs, *program.outputs) if buffer.is_given)
    return memory.arena_bytes + memory.state_bytes + sum(buffer.nbytes for buffer in outside)


def beside_stack(record: ArtifactRecord, stack_bytes: int | None, limit: Limit) -> Limit | None:
    """What a limit leaves for the rest, where a model takes more RAM than it may by its stack, and there are ways that
    take less; else None.

    Args:
        record: of its artifact.
        stack_bytes: of one run; None where it is not known.
        limit: on both.
    """
    rows = record.rows
    if rows is None or not stack_bytes or rows.chosen == len(rows.points) - 1:
        return None
    if rows.point.ram_bytes + stack_bytes <= limit.amount:
        return None
    return Limit(max(0, limit.amount - stack_bytes), limit.said)


def require_ram(record: ArtifactRecord, memory: Footprint, limit: Limit) -> None:
    """Check that a model takes no more RAM than it may.

    Args:
        record: of its artifact.
        memory: what it takes.
        limit: just that.

    Raises:
        RequirementError: it takes more; says by how much, what is alive where most is, and what to change.
    """
    for lines, hint in ram_problems(record, memory, limit):
        raise RequirementError("\n".join(lines), where=record.name, hint=hint)


def format_excess(what: str, taken: int, limit: Limit, unit: str) -> str:
    """That more is taken than may be."""
    return f"{what} {taken:,} {unit}, {limit.amount:,} are allowed by {limit.said}"


def shorten_names(names: Sequence[str]) -> str:
    """The first of some names, without the middles of long ones: fused layers of TFLite have hundreds of characters."""
    first = ", ".join(repr(shorten(name, 48)) for name in names[:3]) or "no layer"
    return first + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def step_layers(calls: Sequence[CallRecord], step: int) -> tuple[str, ...]:
    """The layers of a step; where a block of rows begins with it, those of all calls in it."""
    layers: dict[str, None] = {}
    for call in calls[step:]:
        layers.update(dict.fromkeys(call.layers))
        if calls[step].way != "rows" or call.way == "rows_end":
            break
    return tuple(layers)


def named_step(calls: Sequence[CallRecord], step: int) -> str:
    """The number of a step, with its layers."""
    layers = step_layers(calls, step)
    return f"step {step} ({shorten_names(layers)})" if layers else f"step {step}"


def ram_problems(record: ArtifactRecord, memory: Footprint, limit: Limit) -> Iterator[tuple[list[str], str]]:
    """What is wrong where a model takes more RAM than it may, in lines, with what to change; else nothing."""
    if memory.ram_bytes <= limit.amount:
        return
    parts = {
        "arena": memory.arena_bytes,
        "state": memory.state_bytes,
        "inputs": memory.input_bytes,
        "outputs": memory.output_bytes,
        "stack": memory.stack_bytes or 0,
    }
    lines = [format_excess("the model takes", memory.ram_bytes, limit, "bytes of RAM")]
    taken = ", ".join(f"{name} {size:,}" for name, size in parts.items() if size)
    lines.append(f"    {taken}; {memory.ram_bytes - limit.amount:,} bytes too many")
    lines += _by_rows(record)
    floats = False
    at = ""
    for peak in memory_peaks(record):
        if peak.is_device:
            continue
        layers = step_layers(record.calls, peak.step)
        at = shorten_names(layers) if layers else f"step {peak.step}"
        lines.append(f"    alive at the peak of {peak.pool}, {named_step(record.calls, peak.step)}:")
        lines += [f"      {one.name}: {one.bytes:,} bytes, {one.dtype}{list(one.shape)}" for one in peak.alive[:SHOWN]]
        if len(peak.alive) > SHOWN:
            lines.append(f"      and {len(peak.alive) - SHOWN} more")
        floats = floats or any(one.dtype == "float32" for one in peak.alive[:1])
    largest = max(parts, key=lambda name: parts[name])
    hints = {
        "arena": f"make what {at} takes or gives smaller, or have an accelerator compute it in parts"
        + (": of int8 instead of float32 it is a quarter" if floats else ""),
        "state": "most of it is what the model keeps from run to run: keep fewer steps, or quantise them",
        "inputs": "most of it is the inputs: give a smaller shape, or have them in the arena by --io arena",
        "outputs": "most of it is the outputs: leave out those that nobody reads",
        "stack": "most of it is the stack of kernels: -opt=s keeps less there, and so do loops without vectors",
    }
    yield lines, hints[largest]


def _by_rows(record: ArtifactRecord) -> Iterator[str]:
    """That nothing takes less, in a line, where other ways to run the model were looked at."""
    rows = record.rows
    if rows is None or len(rows.points) < 2:
        return
    calls = sum(len(chain) for chain in rows.point.chains)
    whole = rows.points[0].ram_bytes
    if rows.chosen == len(rows.points) - 1:
        yield f"    that is the least, with {calls} calls by rows; {whole:,} with none, without the stack"
    else:
        yield f"    {calls} calls are by rows; {rows.points[-1].ram_bytes:,} is the least, without the stack"
