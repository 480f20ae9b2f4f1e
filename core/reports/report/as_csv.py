"""A report as one table: a row for each record, of which the first column says what it is."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping
from typing import Any

from ...support.json_record import to_json
from .records import ReportRecord

__all__ = ["as_csv", "rows_of"]

_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")
"""What a spreadsheet may take for the beginning of a formula, which it computes."""


def as_csv(report: ReportRecord) -> str:
    """The text of the file: UTF-8 with a heading, lines end as RFC 4180 has it."""
    rows = list(rows_of(report))
    heads = dict.fromkeys(head for _, row in rows for head in row)
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(["record", *heads])
    for kind, row in rows:
        writer.writerow([kind, *(_cell(row.get(head)) for head in heads)])
    return out.getvalue()


def rows_of(report: ReportRecord) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """What each row is, and its fields: one row of the model, then those of each list of the report."""
    lists = {"layers": "layer", "steps": "step", "targets": "target", "reasons": "reason", "regions": "region"}
    whole = to_json(report)
    flat = {name: value for name, value in whole.items() if not isinstance(value, (list, dict))}
    yield "model", {**flat, **whole["footprint"]}
    for name, kind in {**lists, "tensors": "tensor"}.items():
        for row in whole[name]:
            yield kind, row
    for memory in whole["memories"]:
        yield "memory", {name: value for name, value in memory.items() if name != "placed"}
        for row in memory["placed"]:
            yield "buffer", {"pool": memory["pool"], **row}
    for distribution, version in whole["plugins"].items():
        yield "plugin", {"name": distribution, "version": version}
    for position, text in enumerate(whole["summary"]):
        yield "summary", {"number": position, "text": text}


def _cell(value: Any) -> Any:
    """A value as a cell: lists in one, nothing as an empty one, behind an apostrophe what begins like a formula."""
    if isinstance(value, list):
        value = "; ".join(_one(item) for item in value)
    if isinstance(value, str):
        # (No reader of tables takes a null character.)
        value = value.replace("\0", "\N{REPLACEMENT CHARACTER}")
        return f"'{value}" if value.startswith(_FORMULA) else value
    return "" if value is None else value


def _one(item: Any) -> str:
    return ": ".join(map(str, item.values())) if isinstance(item, dict) else str(item)
