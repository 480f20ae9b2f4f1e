"""`Report`, and the forms that it is written in, by the suffix of its file."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

from ...errors import UsageError
from ...support.argument_checks import path_of
from ...support.html import element, html_of, table
from ...support.regular_files import write_whole
from .as_csv import as_csv
from .as_json import as_json
from .as_markdown import as_markdown
from .page import as_page
from .records import ReportRecord

__all__ = ["FORMATS", "Report", "check_output"]

FORMATS: Mapping[str, Callable[[ReportRecord], str]] = MappingProxyType(
    {".html": as_page, ".json": as_json, ".csv": as_csv, ".md": as_markdown}
)
"""What writes a report, by the suffix of the file."""


def check_output(path: Path) -> None:
    """That a report can be written to a file of that name, before anything is built.

    Raises:
        UsageError: its suffix is that of no form, it is a folder, or there is no folder for it.
    """
    if path.suffix.lower() not in FORMATS:
        noun = f"a file {path.suffix!r}" if path.suffix else "a file without a suffix"
        raise UsageError(f"a report cannot be {noun}", where=str(path), hint=f"end it with {', '.join(FORMATS)}")
    if os.path.isdir(path):
        raise UsageError("there is a folder of that name", where=str(path), hint="name a file")
    if not os.path.isdir(path.parent):
        raise UsageError("there is no folder for the report", where=str(path.parent), hint="make it first")


class Report(ReportRecord):
    """A report that writes itself, and that notebooks show."""

    def __repr__(self) -> str:
        return f"<Report {self.name}: {len(self.layers)} layers on {', '.join(row.label for row in self.targets)}>"

    def html(self) -> str:
        """Return the page, which needs no other file."""
        return as_page(self)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the report, whole or not at all: a page (.html), or the same as .json, .csv or .md.

        Raises:
            UsageError: the suffix is none of these, or the file cannot be written.
        """
        file = path_of(path, "a report")
        check_output(file)
        content = FORMATS[file.suffix.lower()](self).encode()
        try:
            write_whole(file, content)
        except OSError as error:
            raise UsageError(f"cannot write the report: {error.strerror}", where=str(file)) from error

    def _repr_html_(self) -> str:
        """The summary, and a row for each layer."""
        head = ("layer", "on", "MACs", "shape", "us", "cycles")
        rows = [
            (
                element("bdi", None, layer.name),
                ", ".join(layer.targets),
                f"{layer.macs:,}" if layer.macs else "",
                "" if layer.shape is None else "x".join(map(str, layer.shape)),
                "" if layer.time_us is None else f"{layer.time_us:,.2f}",
                "" if layer.cycles is None else f"{layer.cycles:,.0f}",
            )
            for layer in self.layers
        ]
        paragraphs = [element("p", None, sentence) for sentence in self.summary]
        layers = table(f"Report on {self.name}", head, rows, (2, 4, 5))
        return html_of(element("div", None, *paragraphs, layers))
