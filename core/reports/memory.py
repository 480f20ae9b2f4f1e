"""What sets the peak of a model's memory, and what running layers row by row makes of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from ..artifact.footprint import Footprint, MemoryPeak, footprint, memory_peaks
from ..artifact.record import ArtifactRecord, CallRecord, RowsRecord, StripsRecord
from ..pipeline.memory_limit import named_step, shorten_names
from ..program import Program
from ..program.step_scheduling import Peak, order_peak
from ..support.formatting import format_percent
from .line_buffered_layers import LineBuffer, line_buffers

__all__ = ["MemoryFound", "ends_by_reason", "memory_found", "point_cells"]


@dataclass(frozen=True)
class MemoryFound:
    """The memory of a model.

    Args:
        size: what it takes; code and stack are not known, as nothing was compiled.
        peaks: where most of each memory is in use, and of what.
        steps: what is run.
        rows: the ways to run layers row by row; None where there is none to look for.
        order: what the order of the steps asks for; None where the steps have to stay as they are.
        line_buffers: what is held of values of which chains make row after row.
        strips: what is computed in strips of columns; None for nothing.
    """

    size: Footprint
    peaks: tuple[MemoryPeak, ...]
    steps: tuple[CallRecord, ...]
    rows: RowsRecord | None
    order: Peak | None = None
    line_buffers: tuple[LineBuffer, ...] = ()
    strips: StripsRecord | None = None

    def lines(self) -> Iterator[str]:
        """What sets the peaks, for people."""
        size = self.size
        parts = {"state": size.state_bytes, "inputs": size.input_bytes, "outputs": size.output_bytes}
        shown = "".join(f", {name} {count:,}" for name, count in parts.items() if count)
        yield f"memory: {size.ram_bytes:,} bytes of RAM without the stack: arena {size.arena_bytes:,}{shown}"
        for peak in self.peaks:
            between = peak.bytes - peak.alive_bytes
            gap = f", and {between:,} between them" if between else ""
            at = named_step(self.steps, peak.step)
            yield f"  {peak.pool} is fullest at {at}, {peak.alive_bytes:,} bytes{gap}:"
            for one in peak.alive:
                yield f"    {one.name}: {one.bytes:,} bytes, {one.role}, {one.dtype}{list(one.shape)}"
        if self.order is not None and self.order.nbytes:
            less = "" if self.order.bound == self.order.nbytes else f" than {self.order.bound:,}"
            needed = f"{self.order.nbytes:,} bytes"
            if self.order.nbytes > size.arena_bytes:
                needed += ", each buffer rounded up,"
            yield f"  in this order of steps {needed} are needed at once; no order needs less{less}"
        if self.line_buffers:
            yield f"  line buffers, {sum(one.bytes for one in self.line_buffers):,} bytes, of which some share memory:"
        for line in self.line_buffers:
            held = f"{line.rows} of {line.height} rows, {line.bytes:,} bytes"
            yield f"    {line.name} of chain {line.chain} ({shorten_names(line.layers)}): {held}"
        if self.strips is not None:
            yield f"  {_said(self.strips)}"

    json_fields: ClassVar = ("*size", "peaks", "rows", "line_buffers", "order", "strips")


def _said(strips: StripsRecord) -> str:
    """What strips cost and bring."""
    layers = f" up to {shorten_names(strips.layers)}" if strips.layers else ""
    more = format_percent(strips.added / max(strips.products, 1))
    said = f"{strips.count} strips of the {strips.columns} columns{layers}: {strips.added:,} products more, {more}"
    if strips.ram_before is None or strips.ram_bytes is None:
        return said
    return f"{said}; {strips.ram_bytes:,} bytes of RAM instead of {strips.ram_before:,}"


def memory_found(record: ArtifactRecord, program: Program) -> MemoryFound:
    """What an artifact's record, and the program that it was made of, say of its memory."""
    size, peaks, lines = footprint(record), memory_peaks(record), line_buffers(program)
    return MemoryFound(size, peaks, record.calls, record.rows, order_peak(program), lines, record.strips)


def point_cells(rows: RowsRecord) -> list[tuple[str, ...]]:
    """The ways to run layers row by row, a line of a table each: RAM, arena, what is added, which calls go by rows, and
    whether it was built."""
    cells: list[tuple[str, ...]] = []
    for number, point in enumerate(rows.points):
        chains = [f"{shorten_names(chain[0])} to {shorten_names(chain[-1])} ({len(chain)})" for chain in point.chains]
        added = format_percent(point.added / max(rows.instructions, 1))
        built = "built" if number == rows.chosen else ""
        cells.append((f"{point.ram_bytes:,}", f"{point.arena_bytes:,}", added, "; ".join(chains) or "none", built))
    return cells


def ends_by_reason(rows: RowsRecord) -> dict[str, tuple[str, ...]]:
    """Why calls are in no chain, each reason with the layers that it is said of."""
    layers_by_reason: dict[str, dict[str, None]] = {}
    for end in rows.ends:
        layers_by_reason.setdefault(end.reason, {}).update(dict.fromkeys(end.layers))
    return {reason: tuple(layers) for reason, layers in layers_by_reason.items()}
