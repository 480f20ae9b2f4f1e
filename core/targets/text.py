r"""The text form of targets, and JSON text with columns.

The grammar, in which a gap is made of spaces, tabs and line ends::

    bag       = target { ";" gap target } [ ";" ]
    target    = [ label ":" gap ] name { gap "-" attribute "=" value }
    value     = item { "," item } | "[" [ item { "," item } ] "]"
    item      = bare | quoted | map | "(" target ")"
    map       = "{" [ key ":" item { "," key ":" item } ] "}"
    key       = bare | quoted
    bare      = one or more of the ASCII letters and digits and _ . + / = -
    quoted    = "'" { any character but ' and \ | "\'" | "\\" } "'"

What a bare or quoted text means is said by the type of its attribute; where that is a target, it is the text of one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn

from ..errors import UsageError
from ..support.project_file import ProjectError
from .syntax_tree import Items, Mapped, Node, Option, Record, Source, Spelled, Spot
from .values import MAX_DEPTH, MAX_ITEMS, MAX_TEXT_CHARS, Value, shown

__all__ = ["MAX_JSON_CHARS", "LocatedError", "at_location", "read_bag", "read_json", "spell"]

MAX_JSON_CHARS = 1 << 20
"""Longest JSON text."""

_MAX_JSON_DEPTH = 4 * MAX_DEPTH
"""A target within a target is at most a list within a map further in."""

_SEPARATORS = " \t\r\n"
_GAP = re.compile(f"[{_SEPARATORS}]*")
_END = rf"(?=[{_SEPARATORS})]|\Z|;(?:[{_SEPARATORS}]|\Z))"
_NEXT = re.compile(rf";(?=[{_SEPARATORS}]|\Z)")
_WORD = re.compile(rf"[^{_SEPARATORS})]*?{_END}")
_LABEL = re.compile(f"([^{_SEPARATORS}:()'\"]*):(?=[{_SEPARATORS}])")
_OPTION = re.compile(r"-([a-z][a-z0-9_-]*)=")
_MISWRITTEN = re.compile(r"(?=-|.*=)-*([a-z][a-z0-9_-]{0,63})(=[ -~]{1,64})?")
"""An attribute with no or too many dashes before it, or with no value behind it."""
_BARE = re.compile(r"[A-Za-z0-9_.+/=-]+")
_QUOTED = re.compile(r"'([^'\\]*(?:\\['\\][^'\\]*)*)'")


class LocatedError(Exception):
    """A user's error of which the place is known: the innermost one, as the outer ones let it pass.

    Args:
        error: what is wrong.
        path: the attribute that it is wrong in, from the outermost target on.
        spot: its place in the text.
    """

    def __init__(self, error: UsageError, path: str, spot: Spot | None) -> None:
        super().__init__(error.what)
        self.error, self.path, self.spot = error, path, spot


@contextmanager
def at_location(path: str, spot: Spot | None) -> Iterator[None]:
    """Within, a `UsageError` gets this place, unless it is about the file of the project."""
    try:
        yield
    except ProjectError:
        raise
    except UsageError as error:
        raise LocatedError(error, path, spot) from error


def read_bag(source: Source, path: str = "", depth: int = 0) -> tuple[Record, ...]:
    """The targets that a text describes, one or more, as they stand there.

    Raises:
        LocatedError: the text is malformed.
    """
    if len(source.text) > MAX_TEXT_CHARS:
        error = UsageError(f"the text of a target has more than {MAX_TEXT_CHARS} characters")
        raise LocatedError(error, path, source.spot(MAX_TEXT_CHARS))
    reader = _Reader(source, path)
    targets = [reader.target(depth)]
    while reader.next():
        targets.append(reader.target(depth))
    if not reader.ended:
        reader.fail(reader.misplaced())
    return tuple(targets)


class _Reader:
    """Reads targets of one text from left to right."""

    def __init__(self, source: Source, path: str) -> None:
        self.source, self.text, self.path, self.at = source, source.text, path, 0

    @property
    def ended(self) -> bool:
        return self.at == len(self.text)

    def gap(self) -> bool:
        """Skip a gap; whether there was one."""
        before, self.at = self.at, self._match_end(_GAP)
        return self.at > before

    def skip(self, char: str) -> bool:
        """Skip ``char``; whether it was there."""
        there = self.text.startswith(char, self.at)
        self.at += there
        return there

    def next(self) -> bool:
        """Skip to the next target of a bag; whether there is one."""
        if _NEXT.match(self.text, self.at) is None:
            return False
        self.at += 1
        self.gap()
        return not self.ended

    def spot(self) -> Spot:
        return self.source.spot(self.at)

    def fail(self, error: UsageError, spot: Spot | None = None) -> NoReturn:
        raise LocatedError(error, self.path, spot or self.spot()) from None

    def misplaced(self) -> UsageError:
        if self.ended:
            return UsageError("the text ends too early", hint="close every bracket")
        hint = "put the value in single quotes: -name='...'"
        return UsageError(f"{shown(self.text[self.at])} cannot stand here", hint=hint)

    def _match_end(self, pattern: re.Pattern[str]) -> int:
        match = pattern.match(self.text, self.at)
        return match.end() if match else self.at

    def word(self) -> str:
        return self.text[self.at : self._match_end(_WORD)]

    def target(self, depth: int) -> Record:
        if depth > MAX_DEPTH:
            self.fail(too_deep())
        self.gap()
        label, label_spot = None, None
        if (labelled := _LABEL.match(self.text, self.at)) is not None:
            label, label_spot = labelled[1], self.spot()
            self.at = labelled.end()
            self.gap()
        name, spot = self.word(), self.spot()
        if not name or name.startswith("-"):
            self.fail(UsageError("a target begins with its kind", hint="write it like `c -opt=2`"))
        self.at += len(name)
        options = []
        while self.gap() and not (self.ended or self.text[self.at] == ")" or _NEXT.match(self.text, self.at)):
            option = _OPTION.match(self.text, self.at)
            if option is None:
                attribute = _MISWRITTEN.fullmatch(self.word())
                example = "-opt=2" if attribute is None else f"-{attribute[1]}{attribute[2] or '=VALUE'}"
                self.fail(UsageError(f"{shown(self.word())} is not an attribute", hint=f"write it like `{example}`"))
            option_spot = self.spot()
            self.at = option.end()
            options.append(Option(option[1], self.value(depth), option_spot))
        return Record(name, label, tuple(options), spot, label_spot)

    def value(self, depth: int) -> Node:
        spot = self.spot()
        if self.skip("["):
            nodes = [] if self.skip("]") else self.items(depth, "]")
            return Node(Items(tuple(nodes)), spot)
        nodes = [self.item(depth)]
        while self.skip(","):
            nodes.append(self.item(depth))
        if not (self.ended or self.text[self.at] in f"{_SEPARATORS})" or _NEXT.match(self.text, self.at)):
            self.fail(self.misplaced())
        return nodes[0] if len(nodes) == 1 else Node(Items(tuple(nodes)), spot)

    def items(self, depth: int, end: str) -> list[Node]:
        nodes = [self.item(depth)]
        while self.skip(","):
            nodes.append(self.item(depth))
        if not self.skip(end):
            self.fail(self.misplaced())
        return nodes

    def item(self, depth: int) -> Node:
        spot = self.spot()
        if self.skip("("):
            record = self.target(depth + 1)
            if not self.skip(")"):
                self.fail(self.misplaced())
            return Node(record, spot)
        if self.skip("{"):
            entries = [] if self.skip("}") else [self.entry(depth)]
            while entries and self.skip(","):
                entries.append(self.entry(depth))
            if entries and not self.skip("}"):
                self.fail(self.misplaced())
            return Node(Mapped(tuple(entries)), spot)
        return Node(Spelled(self.spelled()), spot)

    def entry(self, depth: int) -> Option:
        spot = self.spot()
        key = self.spelled()
        if not self.skip(":"):
            self.fail(self.misplaced())
        return Option(key.text, self.item(depth), spot)

    def spelled(self) -> Source:
        if self.text.startswith("'", self.at):
            quoted = _QUOTED.match(self.text, self.at)
            if quoted is None:
                hint = "end it with '; write \\' for a quote and \\\\ for a backslash"
                self.fail(UsageError("the quoted value does not end, or has a stray backslash", hint=hint))
            self.at = quoted.end()
            return self.source.without(*quoted.span(1), "\\")
        start, self.at = self.at, self._match_end(_BARE)
        if self.at == start:
            if self.ended or self.text[start] in _SEPARATORS:
                self.fail(UsageError("the attribute has no value", hint="an empty text is written ''"))
            self.fail(self.misplaced())
        return self.source.part(start, self.at)


def too_deep() -> UsageError:
    """The error for what is nested too far."""
    return UsageError(f"targets are nested more than {MAX_DEPTH} deep")


def read_json(text: str) -> Node:
    """The JSON value that a text holds, with the places of its parts.

    Raises:
        LocatedError: the text is malformed, too long, or nested too far.
    """
    source = Source(text, text)
    if len(text) > MAX_JSON_CHARS:
        error = UsageError(f"a target in JSON has more than {MAX_JSON_CHARS} characters")
        raise LocatedError(error, "", source.spot(MAX_JSON_CHARS))
    reader = _JsonReader(source, "")
    reader.gap()
    node = reader.json(0)
    reader.gap()
    if not reader.ended:
        reader.fail(UsageError("there is more after the end of the JSON value"))
    return node


class _JsonReader(_Reader):
    """Reads JSON, as RFC 8259 has it; of numbers, NaN and infinities are refused by those who use them."""

    _DECODE: Callable[[str, int], tuple[object, int]] = staticmethod(json.JSONDecoder(strict=True).raw_decode)

    def json(self, depth: int) -> Node:
        if depth > _MAX_JSON_DEPTH:
            self.fail(UsageError(f"the JSON value is nested more than {_MAX_JSON_DEPTH} deep"))
        spot = self.spot()
        if self.skip("["):
            return Node(Items(tuple(node for _, node in self.members(depth, "]", keyed=False))), spot)
        if self.skip("{"):
            entries = self.members(depth, "}", keyed=True)
            return Node(Mapped(tuple(Option(key.value, node, key.spot) for key, node in entries)), spot)
        return Node(self.scalar(), spot)

    def members(self, depth: int, end: str, *, keyed: bool) -> list[tuple[Node, Node]]:
        pairs: list[tuple[Node, Node]] = []
        self.gap()
        if self.skip(end):
            return pairs
        while True:
            self.gap()
            key = Node(None, self.spot())
            if keyed:
                if not self.text.startswith('"', self.at):
                    self.fail(UsageError("a key in double quotes is missing", hint='write it like {"kind": "c"}'))
                key = Node(self.scalar(), key.spot)
                self.gap()
                if not self.skip(":"):
                    self.fail(UsageError("a colon is missing after the key", hint='write it like {"kind": "c"}'))
                self.gap()
            if len(pairs) == MAX_ITEMS:
                self.fail(UsageError(f"there are more than {MAX_ITEMS} items"))
            pairs.append((key, self.json(depth + 1)))
            self.gap()
            if self.skip(end):
                return pairs
            if not self.skip(","):
                self.fail(UsageError(f"a comma or {end} is missing", hint=f"add one of the two: , or {end}"))

    def scalar(self) -> object:
        try:
            value, self.at = self._DECODE(self.text, self.at)
        except json.JSONDecodeError as error:
            self.fail(UsageError(f"this is not JSON: {error.msg}"), self.source.spot(min(error.pos, len(self.text))))
        except ValueError as error:  # a number of thousands of digits
            self.fail(UsageError(f"this is not JSON: {error}"))
        return value


def spell(value: Value) -> str:
    """The canonical text of an attribute's value."""
    if isinstance(value, tuple):
        return ",".join(spell(item) for item in value) if value else "[]"
    if not isinstance(value, (str, int, float)):
        if hasattr(value, "items"):
            return "{" + ",".join(f"{spell(key)}:{spell(item)}" for key, item in value.items()) + "}"
        # A target within a target is quoted, or in brackets where quotes would pile up backslashes.
        text = str(value)
        return f"({text})" if "'" in text or "\\" in text else spell(text)
    if isinstance(value, bool):
        return "true" if value else "false"
    text = repr(value) if isinstance(value, float) else str(value)
    if _BARE.fullmatch(text):
        return text
    return "'" + re.sub(r"(['\\])", r"\\\1", text) + "'"
