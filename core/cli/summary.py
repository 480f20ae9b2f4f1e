"""What a build ends with: who has how much of the model, and the memory that it takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..support.formatting import format_percent
from .output import Output

if TYPE_CHECKING:
    from ..artifact import ArtifactRecord, Footprint
    from ..reports.explain import Explanation

__all__ = ["memory_map", "say_footprint", "say_map", "say_shares", "shares_record"]


def shares_record(explanation: Explanation | None, why: str) -> list[dict[str, Any]] | None:
    """The part of each accelerator in the ops and the multiply-accumulates of a model, for JSON.

    Args:
        explanation: where its ops go; None where it was lowered already, and has none.
        why: the command that tells the reasons.
    """
    if explanation is None:
        return None
    return [
        {
            "target": share.label,
            "ops": share.ops,
            "ops_share": share.ops / (len(explanation.counted) or 1),
            "macs": share.macs,
            "macs_share": share.macs / explanation.macs if explanation.macs else None,
            "why": why,
        }
        for share in explanation.shares()
        if share.label in explanation.accelerators
    ]


def say_shares(rows: Sequence[dict[str, Any]], out: Output) -> None:
    """The same for people; of accelerators that have little, the way to the reasons."""
    width = max((len(row["target"]) for row in rows), default=0)
    for row in rows:
        macs = "" if row["macs_share"] is None else f", {format_percent(row['macs_share'])} of the multiply-accumulates"
        out.line(f"  {row['target']:<{width}}  {format_percent(row['ops_share'])} of the ops{macs}")
    if any(row["ops_share"] < 1 for row in rows):
        out.line(f"  why not more: {rows[0]['why']}")


def say_footprint(memory: Footprint) -> dict[str, str]:
    """The memory that a model takes for people, as rows of a table."""
    state = {"state": memory.state_bytes} if memory.state_bytes else {}
    ram = {"arena": memory.arena_bytes, **state, "inputs": memory.input_bytes, "outputs": memory.output_bytes}
    if not memory.input_bytes and not memory.output_bytes:
        ram = {"arena, inputs and outputs in it,": memory.arena_bytes, **state}
    return {
        "ROM": _size_text(memory.rom_bytes, {"weights": memory.constant_bytes, "code": memory.code_bytes}),
        "RAM": _size_text(memory.ram_bytes, {**ram, "stack": memory.stack_bytes}),
    }


def _size_text(known: int, parts: Mapping[str, int | None]) -> str:
    unknown = [name for name, value in parts.items() if value is None]
    whole = f"{known:,} bytes" + (f" without the {' and the '.join(unknown)}" if unknown else "")
    shown = (f"{name} {'unknown' if value is None else f'{value:,}'}" for name, value in parts.items())
    return f"{whole}: {', '.join(shown)}"


def memory_map(record: ArtifactRecord) -> list[dict[str, Any]]:
    """What the plan of memory places, by memory, offset and first step, for JSON."""
    placed = (one for one in record.buffers if one.offset is not None and one.role != "constant")
    rows = [
        {
            "pool": one.pool,
            "buffer": one.name,
            "role": one.role,
            "offset": one.offset,
            "bytes": one.bytes,
            "first_step": one.first_step,
            "last_step": one.last_step,
        }
        for one in placed
    ]
    return sorted(rows, key=lambda row: [row[key] for key in ("pool", "offset", "first_step", "buffer")])


def say_map(rows: Sequence[dict[str, Any]], out: Output) -> None:
    """The same for people."""
    if rows:
        out.line("memory map:")
        head = ("memory", "buffer", "role", "offset", "bytes", "first step", "last step")
        out.columns(head, [tuple(map(str, row.values())) for row in rows])
