"""HTML that is built of elements, never of text: what a model's names hold is text in it, whatever they hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from xml.etree.ElementTree import Element, tostring

__all__ = ["Child", "element", "html_of", "printable", "table"]

Child = Element | str | int | None
"""What may be in one: another, text, or nothing."""

Attributes = Mapping[str, "str | int | float | None"]

_JOINERS = "\u200c\u200d"
"""Not printable by Python's book, and letters join by them in some scripts."""


def printable(text: str) -> str:
    """``text`` without what steers instead of being shown: control characters, overrides of the direction of writing,
    halves of characters."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in _JOINERS or c == "\n" else "\N{REPLACEMENT CHARACTER}" for c in text)


def element(tag: str, attributes: Attributes | None = None, *children: Child) -> Element:
    """An element.

    Args:
        tag: its name, never one that comes from a model.
        attributes: their names are not the model's either; None leaves one out.
        children: in order; texts are text, None is nothing.
    """
    node = Element(tag)
    for name, value in (attributes or {}).items():
        if value is not None:
            node.set(name, printable(str(value)))
    last: Element | None = None
    for child in children:
        if isinstance(child, Element):
            node.append(child)
            last = child
        elif child is not None:
            text = printable(str(child))
            if last is None:
                node.text = (node.text or "") + text
            else:
                last.tail = (last.tail or "") + text
    return node


def html_of(root: Element) -> str:
    """The HTML of an element. What is in ``script`` and ``style`` is written as it is."""
    return tostring(root, encoding="unicode", method="html")


_CELL = "padding:.15em .7em .15em 0;vertical-align:top;text-align:"


def table(caption: str, head: Sequence[str], rows: Sequence[Sequence[Child]], numbers: Sequence[int] = ()) -> Element:
    """A table for a page that is somebody else's, as a notebook is: it styles itself, and takes on the page's colours.

    Args:
        caption: what stands above it.
        head: of its columns.
        rows: the cells of each row.
        numbers: the positions of the columns that stand to the right.
    """
    sides = ["right" if position in numbers else "left" for position in range(len(head))]

    def row(tag: str, cells: Sequence[Child]) -> Element:
        cell_elements = [element(tag, {"style": _CELL + side}, cell) for cell, side in zip(cells, sides, strict=True)]
        return element("tr", None, *cell_elements)

    top = "caption-side:top;text-align:left;font-weight:bold;padding:.3em 0;color:inherit"
    return element(
        "table",
        {"style": "border-collapse:collapse;font-variant-numeric:tabular-nums"},
        element("caption", {"style": top}, caption),
        element("thead", None, row("th", head)),
        element("tbody", None, *(row("td", cells) for cells in rows)),
    )
