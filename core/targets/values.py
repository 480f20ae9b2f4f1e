"""What attributes of targets hold: names, lists, maps, and how values look in messages."""

from __future__ import annotations

import difflib
import keyword
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias, Union

from ..errors import UsageError

if TYPE_CHECKING:
    from .target import Target

__all__ = [
    "MAX_DEPTH",
    "MAX_ITEMS",
    "MAX_TEXT_CHARS",
    "MAX_VALUE_CHARS",
    "AttributeType",
    "FrozenMap",
    "ItemType",
    "ListOf",
    "MapOf",
    "NestedTarget",
    "Scalar",
    "Value",
    "check_label",
    "is_attribute_name",
    "is_keyword",
    "is_label",
    "is_name",
    "is_text",
    "shorten",
    "shown",
    "suggest",
]

MAX_VALUE_CHARS = 1024
"""No text of an attribute needs more; what is longer is junk, and is refused before it is copied around."""

MAX_ITEMS = 256
"""Most items of a list or a map."""

MAX_DEPTH = 8
"""Most targets within each other."""

MAX_TEXT_CHARS = 1 << 16
"""Longest text of a target, with all that is nested in it."""

_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
_ATTRIBUTE = re.compile(r"[a-z][a-z0-9_-]{0,63}")
_LABEL = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")


def is_name(text: str) -> bool:
    """Whether ``text`` can name a kind: ``[a-z][a-z0-9_]*``, at most 64 characters."""
    return _NAME.fullmatch(text) is not None


def is_attribute_name(text: str) -> bool:
    """Whether ``text`` can name an attribute or a target of a project: as a kind, and with ``-`` (``mfloat-abi``)."""
    return _ATTRIBUTE.fullmatch(text) is not None


_C99 = """
    auto break case char const continue default do double else enum extern float for goto if inline int long register
    restrict return short signed sizeof static struct switch typedef union unsigned void volatile while _Bool _Complex
    _Imaginary
"""
"""The keywords of ISO/IEC 9899:1999, 6.4.1."""


def is_keyword(text: str) -> bool:
    """Whether ``text`` is a keyword of C99, or of Python, the syntax of which the texts of stages have."""
    return text in _C99.split() or keyword.iskeyword(text)


def is_label(text: str) -> bool:
    """Whether ``text`` can be a label: an identifier of C, at most 64 characters, and no keyword."""
    return _LABEL.fullmatch(text) is not None and not is_keyword(text)


def check_label(label: object) -> str:
    """``label``; UsageError where it cannot be one."""
    if isinstance(label, str) and is_label(label):
        return label
    hint = "a label is an identifier of C, and no keyword: npu0, low_power_cpu"
    raise UsageError(f"{shown(label)} is not a label", hint=hint)


def is_text(value: str) -> bool:
    """Whether an attribute may hold ``value``: printable, and at most `MAX_VALUE_CHARS` long."""
    return len(value) <= MAX_VALUE_CHARS and value.isprintable()


def shown(value: object) -> str:
    """``value`` for a message: on one line, quoted, escaped and short; of what is not a plain value, the type only."""
    if isinstance(value, str):
        return repr(value) if len(value) <= 60 else repr(value[:57]) + "..."
    # Python refuses to print integers of thousands of digits, and a repr of someone else's may do anything.
    if isinstance(value, float) or (isinstance(value, int) and value.bit_length() <= 128):
        return repr(value)
    return f"a value of type {type(value).__name__}"


def shorten(text: str, width: int) -> str:
    """``text`` within ``width`` characters, less its middle: names of hundreds of characters differ at their ends."""
    if len(text) <= width:
        return text
    kept = width - 3
    return f"{text[: kept // 2]}...{text[len(text) - (kept - kept // 2) :]}"


def suggest(name: str, names: Iterable[str]) -> str:
    """``"did you mean 'x'? "``, or nothing where no name is near."""
    near = difflib.get_close_matches(name, list(names), n=1) if len(name) <= 64 else []
    return f"did you mean {near[0]!r}? " if near else ""


class NestedTarget:
    """The base of `Target`: it marks a target among the values of attributes, which a target consists of."""


class FrozenMap(Mapping[str, "Scalar | Target"]):
    """A map that does not change, can be hashed, and is equal to any mapping of the same items, in any order."""

    def __init__(self, items: Mapping[str, Scalar | Target]) -> None:
        self._items = dict(sorted(items.items()))

    def __getitem__(self, name: str) -> Scalar | Target:
        return self._items[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __hash__(self) -> int:
        return hash(tuple(self._items.items()))

    def __repr__(self) -> str:
        return repr(self._items)


Scalar: TypeAlias = str | int | float | bool
Value: TypeAlias = Union[Scalar, "Target", "tuple[Scalar | Target, ...]", FrozenMap]
"""What an attribute may hold: str, int, float, bool, a target; a tuple of these; or a map from text to them."""

ItemType: TypeAlias = (
    type[str] | type[int] | type[float] | type[bool] | tuple[str, ...] | tuple[int, ...] | type[NestedTarget]
)


@dataclass(frozen=True)
class ListOf:
    """The type of an attribute that holds a list, in Python a tuple: ``ListOf(str)``, ``ListOf(Target)``.

    Args:
        item: the type of each item.
    """

    item: ItemType


@dataclass(frozen=True)
class MapOf:
    """The type of an attribute that holds a map from text to values of one type: ``MapOf(int)``.

    Args:
        item: the type of each value.
    """

    item: ItemType


AttributeType: TypeAlias = ItemType | ListOf | MapOf
"""``str``, ``int`` (64 bits), ``float`` (finite), ``bool``, ``Target``, or the tuple of what is allowed, all of it
strings or all of it whole numbers; or a list or map of one of these."""
