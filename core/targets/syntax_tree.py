"""Texts of targets, and what was read of them but not yet understood: every piece knows where it stands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Items", "Mapped", "Node", "Option", "Record", "Source", "Spelled", "Spot", "TargetLocation", "join_path"]


def join_path(path: str, step: str) -> str:
    """The path to what is ``step`` of the target at ``path``: ``devices[1].label``."""
    return f"{path}.{step}" if path else step


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
        start = self.whole.rfind("\n", 0, self.index) + 1
        end = self.whole.find("\n", self.index)
        line = f"line {self.whole.count(chr(10), 0, start) + 1} of " if "\n" in self.whole.strip() else ""
        first = max(start, self.index - 60)
        window = self.whole[first : min(first + 120, len(self.whole) if end < 0 else end)]
        window = "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in window)
        inside = f", in {path}" if path else ""
        caret = " " * (self.index - first) + "^"
        return f"column {self.index - start + 1} of {line}the target{inside}\n    {window}\n    {caret}"


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
    """A target as its text gives it: a name, perhaps a label, and options.

    Args:
        keyed: whether the label is one of the keys, as in JSON.
    """

    name: str
    label: str | None
    options: tuple[Option, ...]
    spot: Spot | None = None
    label_spot: Spot | None = None
    keyed: bool = False


@dataclass(frozen=True)
class TargetLocation:
    """Where a target was given: the path to it from the outermost one, its place in a text; and those of its label."""

    path: str
    spot: Spot | None
    label_path: str
    label_spot: Spot | None


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
