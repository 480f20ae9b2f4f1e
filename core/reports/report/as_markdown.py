"""A report as Markdown, for a comment, a wiki or a repository."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from ...support.html import printable
from ..memory import point_cells
from .records import ReportRecord

__all__ = ["as_markdown"]

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>()#|~&!])")


def as_markdown(report: ReportRecord) -> str:
    """The text of the file; what names hold is text in it."""
    return "\n".join(_lines(report)) + "\n"


def _lines(report: ReportRecord) -> Iterator[str]:
    size = report.footprint
    yield f"# {_text(report.name)}"
    for sentence in report.summary:
        yield from ("", _text(sentence))
    parts = {
        "weights": size.constant_bytes,
        "code": size.code_bytes,
        "arena": size.arena_bytes,
        "state": size.state_bytes,
        "inputs": size.input_bytes,
        "outputs": size.output_bytes,
        "stack": size.stack_bytes,
    }
    yield from ("", "## Sizes", "")
    sums = [("ROM", report.rom_bytes), ("RAM", report.ram_bytes)]
    yield from _table(["", "bytes"], [*sums, *parts.items()])
    for memory in report.memories:
        peak = f"peak of {memory.peak_bytes:,} bytes at step {memory.peak_step}"
        yield from ("", f"## Memory {_text(memory.pool)}: {memory.bytes:,} bytes, {peak}", "")
        alive = [(one.layer, one.role, one.offset, one.bytes) for one in memory.placed if one.at_peak]
        yield from _table(["alive at the peak", "role", "offset", "bytes"], alive)
    if report.rows is not None and len(report.rows.points) > 1:
        yield from ("", "## Less RAM, row by row", "")
        yield from _table(["RAM", "arena", "added", "layers by rows", "built"], point_cells(report.rows))
    yield from ("", "## Targets", "")
    yield from _table(
        ["label", "target", "ops", "MACs", "cycles"],
        [(one.label, one.target, one.ops, one.macs, one.cycles) for one in report.targets],
    )
    if report.reasons:
        yield from ("", "## Why not elsewhere", "")
        yield from _table(
            ["target", "layers", "MACs", "reason"],
            [(one.target, one.layers, one.macs, one.reason) for one in report.reasons],
        )
    yield from ("", "## Layers", "")
    yield from _table(
        ["layer", "names", "target", "MACs", "weight bytes", "output", "bytes", "us", "cycles", "why not elsewhere"],
        [
            (
                one.name,
                ", ".join(one.names),
                ", ".join(one.targets),
                one.macs,
                one.weight_bytes,
                None if one.shape is None else "x".join(map(str, one.shape)),
                one.output_bytes,
                one.time_us,
                one.cycles,
                "; ".join(f"{why.target}: {why.reason}" for why in one.why),
            )
            for one in report.layers
        ],
    )
    yield from ("", "## Steps", "")
    yield from _table(
        ["step", "layer", "kernel", "on", "MACs", "bytes", "us", "cycles", "times"],
        [
            (one.number, one.title, one.kernel, one.target, one.macs, one.bytes, one.time_us, one.cycles, one.times)
            for one in report.steps
        ],
    )
    versions = ", ".join(f"{name} {version}" for name, version in report.plugins.items())
    yield from ("", f"Made by UMA {_text(report.uma_version)}{f' with {_text(versions)}' if versions else ''}.")


def _table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    right = [
        bool(rows) and all(row[i] is None or isinstance(row[i], (int, float)) for row in rows) for i in range(len(head))
    ]
    yield f"| {' | '.join('---:' if one else '---' for one in right)} |"
    for row in rows:
        yield f"| {' | '.join(map(_cell, row))} |"


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.1f}"
    return f"{value:,}" if isinstance(value, int) else _text(str(value))


def _text(text: str) -> str:
    return _SPECIAL.sub(r"\\\1", " ".join(printable(text).split()))
