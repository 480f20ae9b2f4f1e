"""A report as JSON: its records, field by field."""

from __future__ import annotations

import json

from ...support.json_record import to_json
from .records import ReportRecord

__all__ = ["as_json"]


def as_json(report: ReportRecord) -> str:
    """The text of the file; fields are described in `records`."""
    return json.dumps(to_json(report), indent=1, ensure_ascii=False, allow_nan=False) + "\n"
