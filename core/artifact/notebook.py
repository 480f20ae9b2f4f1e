"""How an artifact and a profile show themselves in a notebook."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING
from xml.etree.ElementTree import Element

from ..support.formatting import format_percent
from ..support.html import Child, element, html_of, table
from ..targets.values import shorten
from .footprint import footprint, memory_peaks
from .record import ArtifactRecord, TensorRecord

if TYPE_CHECKING:
    from .profile import CallTime, Profile

__all__ = ["artifact_html", "profile_html"]

_NAME_CHARS = 60


def artifact_html(record: ArtifactRecord) -> str:
    """What it takes and gives, and what it takes of memory. Nothing is compiled for it."""
    size = footprint(record)
    rows: list[Sequence[Child]] = [
        ("targets", ", ".join(record.targets)),
        ("inputs", _tensors(record.inputs)),
        ("outputs", _tensors(record.outputs)),
        ("calls", f"{len(record.calls):,}, of {len({call.kernel for call in record.calls}):,} kernels"),
        ("weights", f"{size.constant_bytes:,} bytes"),
        ("arena", f"{size.arena_bytes:,} bytes"),
    ]
    if size.state_bytes:
        rows.append(("state", f"{size.state_bytes:,} bytes"))
    for peak in memory_peaks(record):
        layers = record.calls[peak.step].layers
        place = shorten(", ".join(layers), _NAME_CHARS)
        rows.append((f"peak of {peak.pool}", f"{peak.alive_bytes:,} bytes at step {peak.step} ({place})"))
    return html_of(table(f"Artifact {record.name}", ("", ""), rows))


def _tensors(tensors: Iterable[TensorRecord]) -> Element:
    shown = [f"{one.name}: {one.dtype}{list(one.shape)}" for one in tensors]
    return element("span", None, *(element("bdi", {"style": "display:block"}, one) for one in shown))


def profile_html(profile: Profile) -> str:
    """A row for each call, with a bar for its time; and what devices counted."""
    timed = [call.median_ns for call in profile.calls if not call.is_simulated]
    longest, whole = max(timed, default=0) or 1, sum(timed) or 1
    rows: list[Sequence[Child]] = []
    for call in profile.calls:
        cells = ("simulated", "", "") if call.is_simulated else _timed(call, longest, whole)
        macs = "" if not call.macs else f"{call.macs:,}"
        often = (f"{call.times:,}",) if profile.ways else ()
        layers = element("bdi", None, shorten(", ".join(call.layers), _NAME_CHARS))
        rows.append((layers, call.device or call.host, *often, *cells, macs))
    head = ("layers", "on", *(("times",) if profile.ways else ()), "us", "share", "", "MACs")
    numbers = (2, 3, 4, 6) if profile.ways else (2, 3, 5)
    tables = [table(f"Profile: {whole / 1e3:,.1f} us on hosts", head, rows, numbers)]
    for label, counted in profile.counters.items():
        if counted:
            tables.append(
                table(f"{label} counted in one run", ("", ""), [(n, f"{v:,}") for n, v in counted.items()], (1,))
            )
    return html_of(element("div", None, *tables))


def _timed(call: CallTime, longest: float, whole: float) -> tuple[Child, Child, Child]:
    style = f"width:{8 * call.median_ns / longest:.2f}em;height:.7em;background:currentColor;opacity:.55"
    return f"{call.median_ns / 1e3:,.2f}", format_percent(call.median_ns / whole), element("div", {"style": style})
