"""How the text of a target that is being written can go on: for shells that complete words.

A text that has no end yet is not a target, so that this reads it for itself, with the grammar of `text`, from left to
right; it needs to know no more of what is behind it than the kind and the attribute that the end belongs to.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import NoReturn

from ..errors import UmaError
from .attribute import Attribute
from .kind import TargetKind
from .parsing import Kinds
from .text import spell
from .values import MAX_TEXT_CHARS, ListOf, MapOf

__all__ = ["continuations"]

_GAP = re.compile(r"[ \t\r\n]*")
_LABEL = re.compile(r"[^ \t\r\n:()'\"]*:(?=[ \t\r\n])")
_WORD = re.compile(r"[^ \t\r\n();]*")
_OPTION = re.compile(r"-([a-z0-9_-]*)(=?)")
_BARE = re.compile(r"[A-Za-z0-9_.+/=-]*")
_QUOTED = re.compile(r"'((?:[^'\\]|\\['\\])*)'")
_OPEN = re.compile(r"'((?:[^'\\]|\\['\\])*)")


def continuations(text: str, kinds: Kinds, names: Callable[[], Iterable[str]]) -> list[str]:
    """``text`` with what may complete its last name or value; nothing where nothing is known, or it is malformed.

    Args:
        text: the beginning of the text of a target, or of several; it may end within targets that stand in others.
        kinds: gives the kind or alias of a name; only asked for those to whose attributes the end may belong, and its
            errors are no matter here.
        names: gives the names of all kinds and aliases.
    """
    if len(text) > MAX_TEXT_CHARS:
        return []
    try:
        _Reader(text, kinds, names).bag()
    except _End as end:
        return [text + rest for rest in end.rests]
    return []


class _End(Exception):
    """The end of the text; ``rests`` are the ways in which it can go on, none where it is malformed."""

    def __init__(self, rests: Iterable[str] = ()) -> None:
        self.rests = tuple(rests)


class _Reader:
    """Reads targets until the text ends, which is an `_End`."""

    def __init__(self, text: str, kinds: Kinds, names: Callable[[], Iterable[str]]) -> None:
        self.text, self.kinds, self.names, self.at = text, kinds, names, 0

    @property
    def ended(self) -> bool:
        return self.at == len(self.text)

    def take(self, pattern: re.Pattern[str]) -> str:
        """Skip what ``pattern`` matches here, which may be nothing; what it was."""
        match = pattern.match(self.text, self.at)
        self.at = match.end() if match else self.at
        return match.group() if match else ""

    def skip(self, char: str) -> bool:
        there = self.text.startswith(char, self.at)
        self.at += there
        return there

    def expect(self, char: str) -> None:
        if not self.skip(char):
            raise _End

    def end(self, begun: str, whole: Iterable[str]) -> NoReturn:
        """The end is that of a word that is begun, and can become one of these."""
        raise _End(word[len(begun) :] for word in whole if word.startswith(begun))

    def bag(self) -> None:
        self.target()
        while self.skip(";"):
            self.target()

    def target(self) -> None:
        self.take(_GAP)
        self.take(_LABEL)
        self.take(_GAP)
        name = self.take(_WORD)
        if self.ended:
            self.end(name, self.names())
        options: list[str] = []
        while self.take(_GAP):
            if self.ended:
                self.end("", self.options(name, options))
            if self.text[self.at] in ");":
                return
            option = _OPTION.match(self.text, self.at)
            if option is None:
                raise _End
            self.at = option.end()
            if not option[2]:
                if self.ended:
                    self.end(option[0], self.options(name, options))
                raise _End
            options.append(option[1])
            self.value(name, option[1])

    def value(self, name: str, option: str) -> None:
        listed = self.skip("[")
        if listed and self.skip("]"):
            return
        self.item(name, option)
        while self.skip(","):
            self.item(name, option)
        if listed:
            self.expect("]")
        if self.ended:
            raise _End

    def item(self, name: str, option: str) -> None:
        if self.skip("("):
            self.target()
            self.expect(")")
        elif self.skip("{"):
            while not self.skip("}"):
                self.take(_QUOTED) or self.take(_BARE)
                self.expect(":")
                self.item(name, option)
                self.skip(",")
        elif self.text.startswith("'", self.at):
            if not self.take(_QUOTED):
                self.quoted(name, option)
        else:
            begun = self.take(_BARE)
            if self.ended:
                self.end(begun, self.values(name, option))
            if not begun:
                raise _End

    def quoted(self, name: str, option: str) -> NoReturn:
        """The end is within quotes: that of a target within this one, or a text of which nothing is known."""
        begun = _OPEN.match(self.text, self.at)
        attribute = self.attribute(name, option)
        if begun is None or begun.end() < len(self.text) or attribute is None or not attribute.holds_targets:
            raise _End
        inner = re.sub(r"\\(.)", r"\1", begun[1])
        longer = continuations(inner, self.kinds, self.names)
        raise _End(re.sub(r"(['\\])", r"\\\1", text[len(inner) :]) for text in longer)

    def kind(self, name: str) -> TargetKind | None:
        try:
            entry = self.kinds(name)
        except UmaError:
            return None
        return entry if isinstance(entry, TargetKind) else None

    def attribute(self, name: str, option: str) -> Attribute | None:
        kind = self.kind(name)
        return kind.attribute(option) if kind is not None and kind.has(option) else None

    def options(self, name: str, used: Iterable[str]) -> Iterable[str]:
        """The beginnings of the attributes that were not given, in order of declaration; former names are no choice."""
        kind = self.kind(name)
        if kind is None:
            return ()
        done = {kind.attribute(option).name for option in used if kind.has(option)}
        return [f"-{one.name}=" for one in (*kind.attributes, *kind.common) if one.name not in done]

    def values(self, name: str, option: str) -> Iterable[str]:
        """What an attribute may hold, as far as it can be listed: choices, names of kinds; else its default."""
        attribute = self.attribute(name, option)
        if attribute is None:
            return ()
        if attribute.holds_targets:
            return self.names()
        item = attribute.type.item if isinstance(attribute.type, (ListOf, MapOf)) else attribute.type
        if isinstance(item, tuple):
            return [spell(choice) for choice in item]
        if item is bool:
            return ("true", "false")
        default = attribute.default
        if attribute.known:
            return map(spell, attribute.known)
        return [spell(default)] if isinstance(default, (str, int, float)) else ()
