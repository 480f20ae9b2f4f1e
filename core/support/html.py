"""HTML that is built of elements, never of text: what a model's names hold is text in it, whatever they hold."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from xml.etree.ElementTree import Element, tostring

__all__ = ["Child", "Section", "element", "html_of", "page", "printable", "row", "style_sheet", "table"]

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


def row(*cells: Child, key: str | None = None) -> Element:
    """Return a row of a table.

    Args:
        cells: elements ``td`` or ``th``, or the only child of a ``td``.
        key: its id.
    """
    is_cell = [isinstance(cell, Element) and cell.tag in ("td", "th") for cell in cells]
    children = [cell if ready else element("td", None, cell) for cell, ready in zip(cells, is_cell, strict=True)]
    return element("tr", {"id": key}, *children)


def _verbatim(tag: str, text: str) -> Element:
    node = element(tag)
    node.text = text  # `element` would replace control characters
    return node


def style_sheet(rules: str) -> Element:
    """Return a ``style`` element of CSS ``rules``, which come from no model."""
    return _verbatim("style", rules)


@dataclass(frozen=True)
class Section:
    """A part of a page, with a heading and a link to it in the navigation bar."""

    key: str
    title: str
    body: Sequence[Child]


def page(
    title: str, css: str, header: Sequence[Child], sections: Iterable[Section], footer: str, script: str | None = None
) -> str:
    """Return the text of an HTML file that loads nothing and runs no script except ``script``.

    Args:
        title: of the window.
        css: style sheet.
        header: children of the header, above the navigation bar.
        sections: in order.
        footer: text below them.
        script: JavaScript; the page's policy allows it by its SHA-256 digest.
    """
    policy = ["default-src 'none'", "style-src 'unsafe-inline'"]
    if script is not None:
        policy.append(f"script-src 'sha256-{b64encode(sha256(script.encode()).digest()).decode()}'")
    policy += ["base-uri 'none'", "form-action 'none'"]
    head = element(
        "head",
        None,
        element("meta", {"charset": "utf-8"}),
        element("meta", {"http-equiv": "Content-Security-Policy", "content": "; ".join(policy)}),
        element("meta", {"name": "viewport", "content": "width=device-width, initial-scale=1"}),
        element("title", None, title),
        style_sheet(css),
    )
    links: list[Element] = []
    panels: list[Element] = []
    for section in sections:
        links.append(element("a", {"href": f"#{section.key}"}, section.title))
        heading = element("h2", {"id": f"{section.key}-title"}, section.title)
        attributes = {"id": section.key, "aria-labelledby": f"{section.key}-title"}
        panels.append(element("section", attributes, heading, *section.body))
    body = element(
        "body",
        None,
        element("header", None, element("div", None, *header)),
        element("nav", {"aria-label": "Sections"}, element("div", None, *links)),
        element("main", None, *panels),
        element("footer", None, footer),
        None if script is None else _verbatim("script", script),
    )
    return f"<!DOCTYPE html>\n{html_of(element('html', {'lang': 'en'}, head, body))}\n"


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

    def line(tag: str, cells: Sequence[Child]) -> Element:
        return row(*(element(tag, {"style": _CELL + side}, cell) for cell, side in zip(cells, sides, strict=True)))

    top = "caption-side:top;text-align:left;font-weight:bold;padding:.3em 0;color:inherit"
    return element(
        "table",
        {"style": "border-collapse:collapse;font-variant-numeric:tabular-nums"},
        element("caption", {"style": top}, caption),
        element("thead", None, line("th", head)),
        element("tbody", None, *(line("td", cells) for cells in rows)),
    )
