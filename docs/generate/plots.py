"""Plots of the NPU's page, drawn from the tables in the README of its plugin, which its tests keep true."""

from __future__ import annotations

import itertools
import math
import re
from xml.sax.saxutils import escape

from .drawing import Drawing
from .repository import ROOT

__all__ = ["plots", "table"]

README = ROOT / "plugins" / "uma-ethosu-like" / "README.md"

_LEFT, _WIDTH = 70, 760


def plots() -> dict[str, str]:
    """The plots by the names of their files."""
    return {"npu-layers.svg": _layers(), "npu-memory.svg": _memory()}


def table(name: str) -> dict[str, list[list[str]]]:
    """The rows of a marked table by their first cell, in order, without that cell."""
    found = re.search(rf"^<!-- {name}: [^\n]*-->\n(.*?)\n<!-- end of {name} -->$", _text(), re.MULTILINE | re.DOTALL)
    if found is None:
        raise AssertionError(f"{README} has no table {name!r} between its marks")
    rows: dict[str, list[list[str]]] = {}
    for line in found[1].splitlines()[2:]:
        first, *rest = (cell.strip() for cell in line.strip("|").split("|"))
        rows.setdefault(first, []).append(rest)
    return rows


def _text() -> str:
    return README.read_text(encoding="utf-8")


def _number(cell: str) -> int:
    return int(cell.replace(",", ""))


def _shape(name: str, kind: str, said: str, **places: float) -> str:
    """An element with what it stands for, which a pointer on it shows."""
    where = " ".join(f'{key.replace("_", "-")}="{value:.1f}"' for key, value in places.items())
    return f'<{name} {where} class="{kind}"><title>{escape(said)}</title></{name}>'


def _rule(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<path d="M {x1:g} {y1:g} L {x2:g} {y2:g}" class="line" stroke-dasharray="2 4"/>'


# --- Utilisation -----------------------------------------------------------------------------------------------------

_KINDS = {
    "conv": ("core", "convolution, dense layer"),
    "depthwise": ("plugin", "depthwise"),
    "": ("bad", "others, which multiply nothing"),
}
"""By the first word of an operation: class of its bars, and what the legend says."""


def _layers() -> str:
    models, pitch, high = table("layers"), 172, 100
    height = pitch * len(models) + 50
    drawing = Drawing(
        860,
        height,
        "How busy the multipliers are",
        "For each layer of each model a bar: as wide as the share of the cycles that it takes, as high as the share of "
        "the multipliers that work meanwhile.",
    )
    drawing.parts.append(f'<rect x="5" y="5" width="850" height="{height - 10}" rx="8" class="box"/>')
    for strip, (model, rows) in enumerate(models.items()):
        bottom = pitch * strip + 150
        cycles = [_number(row[3]) for row in rows]
        used = [float(row[4].removesuffix(" %")) for row in rows]
        busy = sum(map(math.prod, zip(cycles, used, strict=True))) / sum(cycles)
        drawing.text(_LEFT, bottom - high - 16, model, "head", "start")
        said = f"{sum(cycles):,} cycles, in which {busy:.0f} % of the multipliers work"
        drawing.text(_LEFT + _WIDTH, bottom - high - 16, said, "small", "end")
        for percent in (0, 50, 100):
            drawing.text(_LEFT - 8, bottom - percent + 4, f"{percent} %", "small", "end")
            drawing.parts.append(_rule(_LEFT, bottom - percent, _LEFT + _WIDTH, bottom - percent))
        for number, (row, x, width) in enumerate(zip(rows, *_columns(cycles), strict=True), start=1):
            layer, operation, macs, taken, share = row
            kind, _ = _KINDS.get(operation.partition(" ")[0], _KINDS[""])
            up = max(2, used[number - 1] * high / 100)
            said = f"{layer}: {operation}, {macs} MACs, {taken} cycles, {share}"
            drawing.parts.append(_shape("rect", kind, said, x=x, y=bottom - up, width=width, height=up))
            if width >= 18:
                drawing.text(round(x + width / 2, 1), bottom + 15, str(number), "small")
    for place, (kind, said) in enumerate(_KINDS.values()):
        x = _LEFT + 220 * place
        drawing.parts.append(f'<rect x="{x}" y="{height - 33}" width="14" height="14" class="{kind}"/>')
        drawing.text(x + 22, height - 21, said, "small", "start")
    return drawing.svg()


def _columns(cycles: list[int]) -> tuple[list[float], list[float]]:
    """Where the bars of layers begin, and how wide they are."""
    ends = [_WIDTH * done / sum(cycles) for done in itertools.accumulate(cycles, initial=0)]
    return [_LEFT + end for end in ends[:-1]], [end - start for start, end in itertools.pairwise(ends)]


# --- Memory ----------------------------------------------------------------------------------------------------------


def _memory() -> str:
    models, top, bottom = table("memory"), 60, 340
    most = max(_number(row[1]) for rows in models.values() for row in rows)
    ticks = range(0, most + 16384, 8192)
    drawing = Drawing(
        860,
        400,
        "Cycles with less memory",
        "For each model the cycles, as a multiple of those with all memory, against the bytes of the arena cache that "
        "it takes.",
    )
    drawing.parts.append('<rect x="5" y="5" width="850" height="390" rx="8" class="box"/>')

    def across(nbytes: int) -> float:
        return _LEFT + _WIDTH * nbytes / ticks[-1]

    def up(factor: float) -> float:
        return bottom - (bottom - top) * math.log10(factor)

    drawing.text(20, 34, "cycles, as a multiple of those with all memory", "small", "start")
    for factor in (1, 1.5, 2, 3, 5, 10):
        drawing.text(_LEFT - 8, round(up(factor) + 4, 1), f"{factor:g}", "small", "end")
        drawing.parts.append(_rule(_LEFT, round(up(factor), 1), _LEFT + _WIDTH, round(up(factor), 1)))
    for nbytes in ticks:
        drawing.text(round(across(nbytes), 1), bottom + 20, f"{nbytes >> 10}", "small")
    drawing.text(_LEFT + _WIDTH, bottom + 40, "KiB of the arena cache", "small", "end")
    for number, (kind, (model, rows)) in enumerate(zip(("core", "plugin", "bad"), models.items(), strict=True)):
        points = [(_number(row[1]), _number(row[3])) for row in rows]
        fewest = points[0][1]
        places = [(across(nbytes), up(cycles / fewest)) for nbytes, cycles in points]
        path = " L ".join(f"{x:.1f} {y:.1f}" for x, y in places)
        drawing.parts.append(f'<path d="M {path}" class="{kind}" fill-opacity="0" stroke-width="2"/>')
        for (x, y), (nbytes, cycles) in zip(places, points, strict=True):
            said = f"{model}: {nbytes:,} bytes, {cycles:,} cycles"
            drawing.parts.append(_shape("circle", kind, said, cx=x, cy=y, r=5))
        row = 86 + 24 * number
        drawing.parts.append(f'<rect x="490" y="{row - 12}" width="14" height="14" class="{kind}"/>')
        drawing.text(514, row, f"{model}, {fewest:,} to {points[-1][1]:,} cycles", "small", "start")
    return drawing.svg()
