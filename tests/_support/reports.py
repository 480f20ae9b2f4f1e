"""Reports written by hand, of as many layers as a test wants, and a reader of pages that knows what is on them."""

from __future__ import annotations

from html.parser import HTMLParser

from uma.artifact import Footprint
from uma.reports.report.records import (
    LayerRow,
    MemoryRow,
    PlacedRow,
    ReasonRow,
    RegionRow,
    StepRow,
    TargetRow,
    TensorRow,
    Why,
)
from uma.reports.report.write import Report

__all__ = ["HOSTILE", "Page", "report_of"]

HOSTILE = (
    "</title><script>alert(1)</script>",
    "</style></script><img src=x onerror=alert(2)>",
    '" onmouseover="alert(3)" x=\'',
    "<!-- --><svg/onload=alert(4)>",
    "]]>&lt;b&gt;&#60;i&#62;",
    "=HYPERLINK(1)",
    "|a|b|\n| - |`code` [link](javascript:alert(5)) *bold*",
    "طبقة التفاف ۱",
    "畳み込み層",
    "Größe/Σχήμα/слой",
    "नेटवर्क‍परत",
    "👩‍🔬 layer",
    "\u202eevil\u2066",
    "nul\0bell\a\x1b[31m\ud800",
    "-1+1",
    "@SUM(A1)",
)
"""Names in many scripts, with markup of every language that a report has, and with bytes that are not text."""


def report_of(layers: int, names: tuple[str, ...] = ("layer",)) -> Report:
    """A report of a chain of layers, every fourth on the host and with a second value that goes further."""

    def name(at: int) -> str:
        return names[at % len(names)] if at < len(names) else f"{names[at % len(names)]} {at}"

    def runs(at: int) -> str:
        return "c" if at % 4 == 3 else "npu"

    rows = tuple(
        LayerRow(
            number=at,
            name=f"{at:04} conv2d 3x3 8->8 s1",
            names=(name(at), f"{name(at)}/bias"),
            targets=(runs(at),),
            region=None if at % 4 == 3 else f"npu_{at // 4}",
            ops=3,
            free=False,
            macs=1000 * (at % 7 + 1),
            weight_bytes=576 + at,
            output_bytes=8 * 64,
            shape=(1, 8, 8, 8),
            dtype="int8",
            time_us=2.5 if at % 4 == 3 else None,
            cycles=None if at % 4 == 3 else 400 + at,
            inputs=tuple(source for source in (at - 1, at - 3 if at % 4 == 0 else -1) if source >= 0),
            why=(Why("npu", f"conv2d: {name(at)} has 9 channels, at most 8 fit"),) if at % 4 == 3 else (),
        )
        for at in range(layers)
    )
    steps = tuple(
        StepRow(
            at,
            row.name,
            f"model_kernel_{at}",
            row.names,
            row.targets[0],
            "nn.conv2d",
            row.macs,
            2048,
            row.weight_bytes,
            row.time_us,
            None if row.cycles is None else int(row.cycles),
            (),
        )
        for at, row in enumerate(rows)
    )
    placed = tuple(
        PlacedRow(
            f"t{at}", "intermediate", 512 * (at % 2), 512, at, min(at + 1, layers - 1), runs(at), name(at), at < 2
        )
        for at in range(layers)
    )
    macs = sum(row.macs for row in rows)
    away = sum(row.macs for row in rows if row.targets == ("npu",))
    size = Footprint(9000, None, 1024, 0, 128, 10, 300)
    return Report(
        schema_version=1,
        name=names[0],
        summary=("One.", f"Two: {names[0]}", "Three."),
        footprint=size,
        rom_bytes=size.rom_bytes,
        ram_bytes=size.ram_bytes,
        macs=macs,
        offloaded=away / (macs or 1),
        targets=(
            TargetRow("npu", False, "npu -size=8", layers - layers // 4, away, 12345.0, True),
            TargetRow("c", True, "c -opt=2", layers // 4, macs - away, None, False),
        ),
        reasons=(
            ReasonRow("npu", f"conv2d: {name(3)} has 9 channels, at most 8 fit", layers // 4, layers // 4, macs - away),
        ),
        regions=(RegionRow("npu_0", "npu", (name(0),), 400.0, None, 412),),
        memories=(MemoryRow("ram", 1024, None, 1024, 0, placed),),
        layers=rows,
        steps=steps,
        tensors=(TensorRow(name(0), "input", (1, 8, 8, 2), "int8", "0.5 * (q - 3)"),),
        of_artifact=False,
        profiled=10,
        uma_version="0.1.0",
        plugins={"some-plugin": "0.1.0"},
        notes=(f"a note on {names[0]}",),
    )


class Page(HTMLParser):
    """What is on a page.

    Attributes:
        tags: how often there is an element of each name.
        attributes: name and value of each attribute of each element, with the element's.
        scripts, styles: what is in these elements.
        ids: of elements.
    """

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: dict[str, int] = {}
        self.attributes: list[tuple[str, str, str]] = []
        self.ids: list[str] = []
        self._texts: list[str] = []
        self.scripts: list[str] = []
        self.styles: list[str] = []
        self._inside = ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] = self.tags.get(tag, 0) + 1
        self._inside = tag
        for name, value in attrs:
            self.attributes.append((tag, name, value or ""))
            if name == "id":
                self.ids.append(value or "")

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside == "script":
            self.scripts.append(data)
        elif self._inside == "style":
            self.styles.append(data)
        else:
            self._texts.append(data)

    @property
    def text(self) -> str:
        """All that is shown."""
        return "".join(self._texts)
