"""What the page is put together from: tables and their cells, tiles with a number, names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from xml.etree.ElementTree import Element

from ...support.html import Child, element
from ...targets.values import shorten

__all__ = ["duration", "filter_box", "hundredths", "name_of", "number", "size_tile", "table", "tile"]


def name_of(text: str, width: int = 400) -> Element:
    """A model's own name, in whatever direction it is written."""
    return element("bdi", None, shorten(text, width))


def number(value: float | None, text: str | None = None, part: float | None = None, colour: str = "") -> Element:
    """A cell with a number, and a bar below it where it is a part, in percent, of the largest."""
    shown: Child = "" if value is None else text if text is not None else f"{value:,}"
    attributes = {"class": "num" if value else "num none", "data-n": "" if value is None else f"{value:.15g}"}
    if part:
        attributes |= {"class": f"num bar {colour}", "style": f"--v:{part:.1f}"}
    return element("td", attributes, shown)


def hundredths(value: float | None) -> str | None:
    """A number with two digits behind the point."""
    return None if value is None else f"{value:,.2f}"


def duration(us: float) -> str:
    """A time that is given in microseconds."""
    return f"{us / 1e3:,.2f} ms" if us >= 1000 else f"{us:,.1f} us"


def size_tile(title: str, whole: int, parts: Mapping[str, int | None]) -> Element:
    """A tile of a memory, in bytes, with its parts; None is a part that is not known."""
    total = sum(one or 0 for one in parts.values()) or 1
    colours = ("c1", "c2", "c6", "c3", "c4")
    pieces = [
        element("i", {"class": f"fill {colour}", "style": f"width:{100 * one / total:.2f}%"})
        for colour, one in zip(colours, parts.values(), strict=False)
        if one
    ]
    rows: list[tuple[Element | None, str, str]] = [
        (element("i", {"class": f"swatch fill {colour}"}), name, "unknown" if one is None else f"{one:,}")
        for colour, (name, one) in zip(colours, parts.items(), strict=False)
    ]
    return tile(
        f"bytes of {title}", f"{whole:,}", element("div", {"class": "stack", "aria-hidden": "true"}, *pieces), rows
    )


def tile(title: str, value: str, picture: Element | None, rows: Sequence[tuple[Element | None, str, str]]) -> Element:
    """A number, what it is, and below it what it is made of: a mark, a name and a value each."""
    said = {"class": "of"}
    listed = [
        element("li", None, element("span", None, mark, name), element("span", said, amount))
        for mark, name, amount in rows
    ]
    return element(
        "div",
        {"class": "tile"},
        element("b", None, value),
        element("span", None, title),
        picture,
        element("ul", {"class": "parts"}, *listed) if listed else None,
    )


def filter_box(table: str, noun: str) -> Element:
    """The box in which one writes what the rows of a table must have."""
    box = element(
        "input",
        {"type": "search", "data-filters": table, "placeholder": f"filter {noun}", "aria-label": f"Filter {noun}"},
    )
    return element("div", {"class": "filter"}, box, element("output", {"aria-live": "polite"}))


def table(
    key: str,
    head: Sequence[str],
    rows: Sequence[Element],
    numbers: Sequence[int] = (),
    *,
    widths: Sequence[float] = (),
) -> Element:
    """A table that scrolls sideways where there is no room, and by the keys too.

    Args:
        key: its id.
        head: of its columns.
        rows: of it.
        numbers: the positions of the columns that stand to the right.
        widths: of the columns, in rem; the widest takes what is left. With these it may be of thousands of rows: where
            it is tall, a browser lays out a row when it is seen. It can be sorted, too.
    """
    sortable = bool(widths)
    cells = []
    for at, text in enumerate(head):
        inside = element("button", {"type": "button"}, text) if sortable and text else text
        kind = "num" if at in numbers else None
        empty = {"aria-label": "graph"} if not text else {}
        cells.append(element("th", {"scope": "col", "class": kind, **empty}, inside))
    tracks = " ".join(f"minmax({width:g}rem,1fr)" if width == max(widths) else f"{width:g}rem" for width in widths)
    style = f"--tracks:{tracks};--least:{sum(widths):g}rem" if widths else None
    element_ = element(
        "table",
        {"id": key, "class": "sortable" if sortable else None, "style": style},
        element("thead", None, element("tr", None, *cells)),
        element("tbody", None, *rows),
    )
    tall = " tall" if len(rows) > 40 else ""
    label = key.replace("-", " ")
    return element("div", {"class": f"scroll{tall}", "tabindex": "0", "role": "region", "aria-label": label}, element_)
