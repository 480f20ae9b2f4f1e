"""`Target`: one piece of hardware, as its kind and the attributes that were given; its text form; the current one.

The text form is ``kind -attribute=value -attribute=value``::

    target    = kind { space "-" attribute "=" value }
    value     = bare | quoted
    bare      = one or more of the ASCII letters and digits and _ . + / -
    quoted    = "'" { any character but ' and \\ | "\\'" | "\\\\" } "'"

What is neither bare nor quoted is refused, so that lists, labels and nested targets can get spellings of their own
without changing what a text means that is legal today.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from ..errors import UsageError
from .kind import TargetKind, Value, is_name, shown

__all__ = ["Target", "parse_target"]

_SEPARATORS = " \t\r\n"
_GAP = re.compile(f"[{_SEPARATORS}]+")
_WORD = re.compile(f"[^{_SEPARATORS}]+")
_OPTION = re.compile(r"-([a-z][a-z0-9_]*)=")
_BARE = re.compile(r"[A-Za-z0-9_.+/-]+")
_QUOTED = re.compile(r"'([^'\\]*(?:\\['\\][^'\\]*)*)'")
_ESCAPE = re.compile(r"\\(.)")


@dataclass(frozen=True, eq=False, repr=False, init=False)
class Target:
    """A target kind and the attributes that were given. Immutable; equal where kind and given attributes are.

    Args:
        kind: what it is.
        attrs: attribute name -> value, in any order. What is not given is not stored: defaults are looked up.

    Raises:
        UsageError: an attribute is unknown, missing though required, or has a value that does not fit.
    """

    kind: TargetKind
    _given: dict[str, Value]

    def __init__(self, kind: TargetKind, attrs: Mapping[str, object] | None = None) -> None:
        given = dict(attrs or {})
        for name in given:
            kind.attribute(name)
        checked: dict[str, Value] = {}
        for attribute in kind.attributes:
            if attribute.name in given:
                try:
                    checked[attribute.name] = attribute.check(given[attribute.name])
                except UsageError as error:
                    error.where = f"target kind {kind.name!r}"
                    raise
            elif attribute.required:
                raise UsageError(
                    f"target kind {kind.name!r} needs attribute {attribute.name!r}",
                    hint=f"add -{attribute.name}=...: {attribute.allowed()}",
                )
        object.__setattr__(self, "kind", kind)
        object.__setattr__(self, "_given", checked)

    @property
    def attrs(self) -> Mapping[str, Value]:
        """The attributes that were given, in the order in which the kind declares them; without defaults."""
        return MappingProxyType(self._given)

    def get_attr(self, name: str) -> Any:
        """The value of attribute ``name``, of the type that its declaration says: as given, else its default.

        ``None`` where it was not given and has no default.

        Raises:
            UsageError: the kind declares no such attribute.
        """
        return self._given.get(name, self.kind.attribute(name).default)

    @staticmethod
    def current() -> Target:
        """The target of the innermost ``with target:`` of this thread or task; inside a hook, the hook's target.

        Raises:
            UsageError: there is none.
        """
        stack = _STACK.get()
        if not stack:
            raise UsageError("there is no current target", hint="enter one: `with target:`")
        return stack[-1]

    def __enter__(self) -> Target:
        _STACK.set((*_STACK.get(), self))
        return self

    def __exit__(self, *_: object) -> None:
        _STACK.set(_STACK.get()[:-1])

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Target):
            return NotImplemented
        return self.kind.name == other.kind.name and self._given == other._given

    def __hash__(self) -> int:
        return hash((self.kind.name, tuple(self._given.items())))

    def __str__(self) -> str:
        """The canonical text: attributes in the order of their declaration; `parse_target` gives this target back."""
        return " ".join([self.kind.name, *(f"-{name}={_spell(value)}" for name, value in self._given.items())])

    def __repr__(self) -> str:
        return f"<Target {self}>"


_STACK: ContextVar[tuple[Target, ...]] = ContextVar("uma_target_stack", default=())


def _spell(value: Value) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    text = repr(value) if isinstance(value, float) else str(value)
    if _BARE.fullmatch(text):
        return text
    return "'" + re.sub(r"(['\\])", r"\\\1", text) + "'"


def parse_target(text: str, kinds: Callable[[str], TargetKind]) -> Target:
    """Read a target from its text form.

    Args:
        text: ``kind -attribute=value ...``
        kinds: gives the kind of a name, or raises `UsageError` where there is none.

    Raises:
        UsageError: the text is malformed, or names what does not exist or does not fit; ``where`` has the column,
            counted from 1, and a caret below it.
    """
    # Positions are known here, names and values are judged elsewhere: `at` is where what is being judged begins.
    at = _end(_GAP, text, 0)
    try:
        position = _end(_WORD, text, at)
        name = text[at:position]
        if not name or name.startswith("-"):
            raise UsageError("a target begins with its kind", hint="write it like `c -opt=2`")
        if not is_name(name):
            raise UsageError(f"{shown(name)} is no target kind", hint="kinds are named like `c` or `my_device`")
        kind = kinds(name)
        attrs: dict[str, Value] = {}
        while (at := _end(_GAP, text, position)) < len(text):
            option = _OPTION.match(text, at)
            if option is None:
                word = text[at : _end(_WORD, text, at)]
                raise UsageError(f"{shown(word)} is no attribute", hint="write it like `-opt=2`")
            name = option[1]
            attribute = kind.attribute(name)
            if name in attrs:
                raise UsageError(f"attribute {name!r} is given twice")
            at = option.end()
            spelled, position = _read_value(text, at)
            if position < len(text) and text[position] not in _SEPARATORS:
                at = position
                raise _misplaced(text, at)
            attrs[name] = attribute.parse(spelled)
        return Target(kind, attrs)
    except UsageError as error:
        error.where = _place(text, at)
        raise


def _end(pattern: re.Pattern[str], text: str, position: int) -> int:
    match = pattern.match(text, position)
    return match.end() if match else position


def _read_value(text: str, position: int) -> tuple[str, int]:
    if text.startswith("'", position):
        quoted = _QUOTED.match(text, position)
        if quoted is None:
            raise UsageError(
                "the quoted value does not end, or has a stray backslash",
                hint="end it with '; write \\' for a quote and \\\\ for a backslash",
            )
        return _ESCAPE.sub(r"\1", quoted[1]), quoted.end()
    bare = _BARE.match(text, position)
    if bare is not None:
        return bare.group(), bare.end()
    if position == len(text) or text[position] in _SEPARATORS:
        raise UsageError("the attribute has no value", hint="an empty text is written ''")
    raise _misplaced(text, position)


def _misplaced(text: str, position: int) -> UsageError:
    return UsageError(f"{shown(text[position])} cannot stand here", hint="put the value in single quotes: -name='...'")


def _place(text: str, position: int) -> str:
    """The column, and a window of the text with a caret: the text may be a megabyte, and may hold anything."""
    first = max(0, position - 60)
    window = "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text[first : first + 120])
    return f"column {position + 1} of the target\n    {window}\n    {' ' * (position - first)}^"
