"""Target kinds and the attributes that they declare.

A plugin declares its attributes once; parsing, checking, defaults, error messages and the tables of ``uma targets``
all come from the declaration. A wrong declaration is the plugin's fault (`PluginError`), a wrong value the user's
(`UsageError`).
"""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Callable, Iterable
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING

from ..errors import PluginError, UsageError

if TYPE_CHECKING:
    from .limits import Limits
    from .target import Target

__all__ = ["MAX_VALUE_CHARS", "Attribute", "AttributeType", "TargetKind", "Value", "is_name", "shown", "suggest"]

Value = str | int | float | bool
AttributeType = type[str] | type[int] | type[float] | type[bool] | tuple[str, ...]
"""``str``, ``int`` (64 bits), ``float`` (finite), ``bool``, or the tuple of the strings that are allowed."""

MAX_VALUE_CHARS = 1024
"""No attribute needs more; what is longer is junk, and is refused before it is copied around."""

_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
_INT = re.compile(r"[+-]?[0-9]{1,19}")
_FLOAT = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_INT_LOW, _INT_HIGH = -(2**63), 2**63 - 1


def is_name(text: str) -> bool:
    """Whether ``text`` can name a kind or an attribute: ``[a-z][a-z0-9_]*``, at most 64 characters."""
    return _NAME.fullmatch(text) is not None


def shown(value: object) -> str:
    """``value`` for a message: on one line, quoted, escaped and short; of what is no plain value, the type only."""
    if isinstance(value, str):
        return repr(value) if len(value) <= 60 else repr(value[:57]) + "..."
    # Python refuses to print integers of thousands of digits, and a repr of someone else's may do anything.
    if isinstance(value, float) or (isinstance(value, int) and value.bit_length() <= 128):
        return repr(value)
    return f"a value of type {type(value).__name__}"


def suggest(name: str, names: Iterable[str]) -> str:
    """``"did you mean 'x'? "``, or nothing where no name is near."""
    near = difflib.get_close_matches(name, list(names), n=1) if len(name) <= 64 else []
    return f"did you mean {near[0]!r}? " if near else ""


def _is_text(value: str) -> bool:
    return len(value) <= MAX_VALUE_CHARS and value.isprintable()


@dataclass(frozen=True)
class Attribute:
    """One typed attribute of a target kind.

    Args:
        name: ``[a-z][a-z0-9_]*``.
        type: see `AttributeType`.
        help: one line for users, with the unit where there is one.
        default: what `Target.get_attr` gives where the attribute was not given; ``None`` where it has no value then.
        required: must be given; excludes a default.
        low, high: inclusive bounds of a number.
        pattern: regular expression that the whole of a ``str`` must match. Strings are printable and at most
            `MAX_VALUE_CHARS` characters long in any case.

    Raises:
        PluginError: the declaration contradicts itself.
    """

    name: str
    type: AttributeType
    _: KW_ONLY
    help: str
    default: Value | None = None
    required: bool = False
    low: int | float | None = None
    high: int | float | None = None
    pattern: str | None = None

    def __post_init__(self) -> None:
        self._require(is_name(self.name), "its name must match [a-z][a-z0-9_]* and have at most 64 characters")
        self._require(bool(self.help.strip()), "it needs a help text")
        if isinstance(self.type, tuple):
            choices: tuple[object, ...] = self.type
            fit = all(isinstance(choice, str) and _is_text(choice) for choice in choices)
            self._require(fit, "its choices must be strings, printable and not longer than a value may be")
            self._require(len(self.type) > 0, "it needs at least one choice")
            self._require(len(set(self.type)) == len(self.type), "a choice is listed twice")
        else:
            self._require(self.type in (str, int, float, bool), "its type must be str, int, float, bool or choices")
        bounded = self.low is not None or self.high is not None
        self._require(not bounded or self.type in (int, float), "only numbers have bounds")
        if self.low is not None and self.high is not None:
            self._require(self.low <= self.high, f"its bounds {self.low} and {self.high} leave nothing")
        if self.pattern is not None:
            self._require(self.type is str, "only str has a pattern")
            try:
                re.compile(self.pattern)
            except re.error as error:
                raise PluginError(f"attribute {self.name!r}: its pattern is no regular expression: {error}") from error
        if self.default is not None:
            self._require(not self.required, "what is required has no default")
            try:
                object.__setattr__(self, "default", self.check(self.default))
            except UsageError as error:
                raise PluginError(f"attribute {self.name!r}: its default {shown(self.default)} does not fit") from error

    def _require(self, condition: bool, what: str) -> None:
        if not condition:
            raise PluginError(f"attribute {shown(self.name)}: {what}")

    def allowed(self) -> str:
        """What the attribute takes, in words: ``a whole number from 1 to 64``."""
        if isinstance(self.type, tuple):
            return "one of " + ", ".join(self.type)
        if self.type is bool:
            return "true or false"
        if self.type is str:
            return f"text that matches {self.pattern}" if self.pattern else "printable text"
        noun = "a whole number" if self.type is int else "a number"
        match (self.low, self.high):
            case (None, None):
                return noun
            case (low, None):
                return f"{noun} of at least {low}"
            case (None, high):
                return f"{noun} of at most {high}"
            case (low, high):
                return f"{noun} from {low} to {high}"

    def check(self, value: object) -> Value:
        """``value`` as a target stores it: a whole number becomes a float where a float is declared.

        Raises:
            UsageError: the value has the wrong type, is out of range, or is not one of the choices.
        """
        accepted = self._accept(value)
        if accepted is None:
            near = suggest(value, self.type) if isinstance(self.type, tuple) and isinstance(value, str) else ""
            raise UsageError(
                f"{shown(value)} does not fit attribute {self.name!r}",
                hint=f"{near}it takes {self.allowed()}: {self.help}",
            )
        return accepted

    def parse(self, text: str) -> Value:
        """The value that ``text`` spells, checked.

        Raises:
            UsageError: as `check`.
        """
        value: Value = text
        if self.type is bool:
            value = {"true": True, "false": False}.get(text, text)
        elif self.type is int and _INT.fullmatch(text):
            value = int(text)
        elif self.type is float and len(text) <= MAX_VALUE_CHARS and _FLOAT.fullmatch(text):
            value = float(text)
        return self.check(value)

    def _accept(self, value: object) -> Value | None:
        if isinstance(self.type, tuple):
            return value if isinstance(value, str) and value in self.type else None
        if self.type is bool:
            return value if isinstance(value, bool) else None
        if self.type is str:
            if not isinstance(value, str) or not _is_text(value):
                return None
            return value if self.pattern is None or re.fullmatch(self.pattern, value) else None
        if isinstance(value, bool) or not isinstance(value, int if self.type is int else (int, float)):
            return None
        # Every comparison with NaN is false, so it is refused here as well.
        limit = sys.float_info.max
        low, high = (_INT_LOW, _INT_HIGH) if self.type is int else (-limit, limit)
        if not (low <= value <= high):
            return None
        if (self.low is not None and value < self.low) or (self.high is not None and value > self.high):
            return None
        return value if self.type is int else float(value) + 0.0  # -0.0 equals 0.0 and must read like it


@dataclass(frozen=True)
class TargetKind:
    """A kind of hardware: its name and what can be said about one.

    Args:
        name: ``[a-z][a-z0-9_]*``; the name of the entry point that serves it.
        attributes: in the order in which targets are printed.
        help: one line for users.
        device_type: the class of hardware, for example ``cpu``.
        is_host: whether it runs every op, and so can be the one that takes what others leave.
        limits: how large the regions of an accelerator may be, or what says so of a target; None for any size.

    Raises:
        PluginError: the declaration contradicts itself.
    """

    name: str
    attributes: tuple[Attribute, ...] = ()
    _: KW_ONLY
    help: str
    device_type: str = "cpu"
    is_host: bool = False
    limits: Limits | Callable[[Target], Limits] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "attributes", tuple(self.attributes))
        self._require(is_name(self.name), "its name must match [a-z][a-z0-9_]* and have at most 64 characters")
        self._require(is_name(self.device_type), f"device type {shown(self.device_type)} must be a name as well")
        self._require(bool(self.help.strip()), "it needs a help text")
        names = [attribute.name for attribute in self.attributes]
        for name in names:
            self._require(names.count(name) == 1, f"attribute {name!r} is declared twice")

    def _require(self, condition: bool, what: str) -> None:
        if not condition:
            raise PluginError(f"target kind {shown(self.name)}: {what}")

    def attribute(self, name: str) -> Attribute:
        """The declaration of ``name``.

        Raises:
            UsageError: the kind has no such attribute; the nearest name and all names are in the hint.
        """
        for attribute in self.attributes:
            if attribute.name == name:
                return attribute
        names = [attribute.name for attribute in self.attributes]
        raise UsageError(
            f"target kind {self.name!r} has no attribute {shown(name)}",
            hint=suggest(name, names) + (f"it has {', '.join(names)}" if names else "it has none"),
        )
