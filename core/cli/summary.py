"""What a build ends with: who has how much of the model, and the memory that it takes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .output import Output

if TYPE_CHECKING:
    from ..artifact import Artifact, ArtifactRecord
    from ..reports.explain import Explanation

__all__ = ["footprint", "memory_map", "say_footprint", "say_map", "say_shares", "shares_record"]


def shares_record(found: Explanation | None, why: str) -> list[dict[str, Any]] | None:
    """The part of each accelerator in the ops and the multiply-accumulates of a model, for JSON.

    Args:
        found: where its ops go; None where it was lowered already, and has none.
        why: the command that tells the reasons.
    """
    if found is None:
        return None
    return [
        {
            "target": share.label,
            "ops": share.ops,
            "ops_share": share.ops / (len(found.counted) or 1),
            "macs": share.macs,
            "macs_share": share.macs / found.macs if found.macs else None,
            "why": why,
        }
        for share in found.shares()
        if share.label in found.accelerators
    ]


def say_shares(rows: Sequence[dict[str, Any]], out: Output) -> None:
    """The same for people; of accelerators that have little, the way to the reasons."""
    width = max((len(row["target"]) for row in rows), default=0)
    for row in rows:
        macs = "" if row["macs_share"] is None else f", {_percent(row['macs_share'])} of the multiply-accumulates"
        out.line(f"  {row['target']:<{width}}  {_percent(row['ops_share'])} of the ops{macs}")
    if any(row["ops_share"] < 1 for row in rows):
        out.line(f"  why not more: {rows[0]['why']}")


def _percent(share: float) -> str:
    return f"{math.floor(share * 1000) / 10}%"  # rounded up it might look like all


def footprint(artifact: Artifact, code_bytes: int | None, stack_bytes: int | None) -> dict[str, int | None]:
    """The memory that a model takes, in bytes; a sum with a part that is not known is not known.

    Args:
        artifact: the model.
        code_bytes: its machine code; None where it was not compiled.
        stack_bytes: of one run; None where the compiler does not tell.
    """
    inputs, outputs = (
        sum(one.bytes for one in artifact.record.buffers if one.role == role) for role in ("input", "output")
    )
    rom = (artifact.constant_bytes, code_bytes)
    ram = (artifact.arena_bytes, artifact.state_bytes, inputs, outputs, stack_bytes)
    return {
        "rom_bytes": _sum(rom),
        "constant_bytes": artifact.constant_bytes,
        "code_bytes": code_bytes,
        "ram_bytes": _sum(ram),
        "arena_bytes": artifact.arena_bytes,
        "state_bytes": artifact.state_bytes,
        "input_bytes": inputs,
        "output_bytes": outputs,
        "stack_bytes": stack_bytes,
    }


def _sum(parts: Sequence[int | None]) -> int | None:
    known = [part for part in parts if part is not None]
    return sum(known) if len(known) == len(parts) else None


def say_footprint(memory: dict[str, int | None]) -> dict[str, str]:
    """The same for people, as rows of a table."""
    return {
        "ROM": _told(memory, {"weights": "constant_bytes", "code": "code_bytes"}),
        "RAM": _told(
            memory,
            {
                "arena": "arena_bytes",
                **({"state": "state_bytes"} if memory["state_bytes"] else {}),
                "inputs": "input_bytes",
                "outputs": "output_bytes",
                "stack": "stack_bytes",
            },
        ),
    }


def _told(memory: dict[str, int | None], parts: dict[str, str]) -> str:
    values = {name: memory[field] for name, field in parts.items()}
    known = sum(value for value in values.values() if value is not None)
    unknown = [name for name, value in values.items() if value is None]
    whole = f"{known:,} bytes" + (f" without the {' and the '.join(unknown)}" if unknown else "")
    shown = (f"{name} {'unknown' if value is None else f'{value:,}'}" for name, value in values.items())
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
