"""Which form a report is written in, by the suffix of its file."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

from ...errors import UsageError
from ...support.regular_files import write_whole
from .as_csv import as_csv
from .as_json import as_json
from .as_markdown import as_markdown
from .page import as_page
from .records import Report

__all__ = ["FORMATS", "check_output", "write_report"]

FORMATS: Mapping[str, Callable[[Report], str]] = MappingProxyType(
    {".html": as_page, ".json": as_json, ".csv": as_csv, ".md": as_markdown}
)
"""What writes a report, by the suffix of the file."""


def check_output(path: Path) -> None:
    """That a report can be written to a file of that name, before anything is built.

    Raises:
        UsageError: its suffix is that of no form, it is a folder, or there is no folder for it.
    """
    if path.suffix.lower() not in FORMATS:
        what = f"a file {path.suffix!r}" if path.suffix else "a file without a suffix"
        raise UsageError(f"a report cannot be {what}", where=str(path), hint=f"end it with {', '.join(FORMATS)}")
    if os.path.isdir(path):
        raise UsageError("there is a folder of that name", where=str(path), hint="name a file")
    if not os.path.isdir(path.parent):
        raise UsageError("there is no folder for the report", where=str(path.parent), hint="make it first")


def write_report(report: Report, path: Path) -> None:
    """Write a report, whole or not at all.

    Raises:
        UsageError: as of `check_output`; or the file cannot be written.
    """
    check_output(path)
    content = FORMATS[path.suffix.lower()](report).encode()
    try:
        write_whole(path, content)
    except OSError as error:
        raise UsageError(f"cannot write the report: {error.strerror}", where=str(path)) from error
