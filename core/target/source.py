"""Texts of targets, and what was read of them but not yet understood: every piece knows where it stands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Items", "Mapped", "Node", "Option", "Record", "Source", "Spelled", "Spot"]


@dataclass(frozen=True)
class Source:
    """A text, which may be what was quoted within a longer one.

    Args:
        text: what to read.
        whole: what the user gave.
        positions: of each character of ``text``, and of its end, in ``whole``; None where the two are the same.
    """

    text: str
    whole: str
    positions: Sequence[int] | None = None

    def spot(self, index: int) -> Spot:
        """Where the character ``index`` of ``text`` stands."""
        return Spot(self.whole, index if self.positions is None else self.positions[index])

    def part(self, start: int, end: int) -> Source:
        """The text from ``start`` to ``end``."""
        positions = range(start, end + 1) if self.positions is None else self.positions[start : end + 1]
        return Source(self.text[start:end], self.whole, positions)

    def without(self, start: int, end: int, char: str) -> Source:
        """The text from ``start`` to ``end``, less every ``char`` that stands before another character."""
        kept = []
        index = start
        while index < end:
            index += self.text[index] == char
            kept.append(index)
            index += 1
        positions = [index if self.positions is None else self.positions[index] for index in (*kept, end)]
        return Source("".join(self.text[index] for index in kept), self.whole, positions)


@dataclass(frozen=True)
class Spot:
    """A place in what the user gave."""

    whole: str
    index: int

    def place(self, path: str = "") -> str:
        """The column, the path, and a window of the text with a caret: it may be a megabyte, and may hold anything."""
        first = max(0, self.index - 60)
        window = self.whole[first : first + 120]
        window = "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in window)
        within = f", in {path}" if path else ""
        return f"column {self.index + 1} of the target{within}\n    {window}\n    {' ' * (self.index - first)}^"


@dataclass(frozen=True)
class Spelled:
    """A bare or quoted text, the meaning of which is for a type to say."""

    source: Source


@dataclass(frozen=True)
class Items:
    """A list."""

    nodes: tuple[Node, ...]


@dataclass(frozen=True)
class Mapped:
    """A map, or a target in JSON."""

    entries: tuple[Option, ...]


@dataclass(frozen=True)
class Record:
    """A target as its text gives it: a name, perhaps a label, and options."""

    name: str
    label: str | None
    options: tuple[Option, ...]
    spot: Spot | None = None
    label_spot: Spot | None = None


@dataclass(frozen=True)
class Node:
    """One value, and where it begins; ``value`` is one of the classes here, or a Python object."""

    value: object
    spot: Spot | None = None


@dataclass(frozen=True)
class Option:
    """A name and its value; ``spot`` is that of the name."""

    name: object
    node: Node
    spot: Spot | None = None
