"""One attribute of a target kind: what it may hold, how that is written, and what is said of it."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Literal, cast

from ..errors import PluginError, UsageError
from .values import (
    MAX_ITEMS,
    MAX_VALUE_CHARS,
    AttributeType,
    FrozenMap,
    ItemType,
    ListOf,
    MapOf,
    NestedTarget,
    Scalar,
    Value,
    is_attribute_name,
    is_text,
    shown,
    suggest,
)

if TYPE_CHECKING:
    from .target import Target

__all__ = ["Attribute"]

_INT = re.compile(r"[+-]?[0-9]{1,19}")
_HEX = re.compile(r"0[xX][0-9a-fA-F]{1,16}")
_FLOAT = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_INT_LOW, _INT_HIGH = -(2**63), 2**63 - 1

_FACTORS = {"bytes": {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}, "Hz": {"k": 10**3, "M": 10**6, "G": 10**9}}


@dataclass(frozen=True)
class Attribute:
    """One typed attribute of a target kind.

    Args:
        name: ``[a-z][a-z0-9_-]*``.
        type: see `AttributeType`.
        help: one line for users.
        default: what `Target.get_attr` gives where the attribute was not given; ``None`` where it has no value then.
        required: must be given; excludes a default.
        low, high: inclusive bounds of a number, or of each number of a list or map.
        multiple_of: what a whole number, or each of a list or map, is a multiple of; positive.
        pattern: regular expression that the whole of a text must match, or each text of a list or map. Texts are
            printable and at most `MAX_VALUE_CHARS` characters long in any case.
        unit: of numbers. In bytes ``256K`` may be written, with K, M and G for powers of 1024; in Hz ``16M``, with k,
            M and G for powers of 1000.
        known: texts worth offering where the value is free text, such as names of CPUs: shells complete them, and an
            unknown target kind of such a name is answered with ``KIND -ATTRIBUTE=NAME``.
        also: other names under which it may be given.
        deprecated: names that it had before: they may still be given, with a warning that says this one.

    Raises:
        PluginError: the declaration contradicts itself.
    """

    name: str
    type: AttributeType
    _: KW_ONLY
    help: str
    default: Value | list[Scalar] | dict[str, Scalar] | None = None
    required: bool = False
    low: int | float | None = None
    high: int | float | None = None
    multiple_of: int | None = None
    pattern: str | None = None
    unit: Literal["bytes", "Hz"] | None = None
    known: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    deprecated: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self._require(
            is_attribute_name(self.name), "its name must match [a-z][a-z0-9_-]* and have at most 64 characters"
        )
        self._require(bool(self.help.strip()), "it needs a help text")
        self._check_type()
        for name in ("also", "deprecated"):
            names: object = getattr(self, name)
            fit = isinstance(names, tuple) and all(isinstance(n, str) and is_attribute_name(n) for n in names)
            self._require(fit, f"{name!r} is a tuple of names")
        item = self._item
        bounded = self.low is not None or self.high is not None
        self._require(not bounded or item in (int, float), "only numbers have bounds")
        if self.low is not None and self.high is not None:
            self._require(self.low <= self.high, f"its bounds {self.low} and {self.high} leave nothing")
        if self.multiple_of is not None:
            self._require(item is int, "only whole numbers are multiples")
            fits = type(self.multiple_of) is int and 0 < self.multiple_of <= _INT_HIGH
            self._require(fits, f"it is a multiple of {shown(self.multiple_of)}, which is not a positive whole number")
        if self.unit is not None:
            self._require(self.unit in _FACTORS, f"its unit {shown(self.unit)} is none of {', '.join(_FACTORS)}")
            self._require(self._number is not None, "only numbers have a unit")
        if self.pattern is not None:
            self._require(item is str, "only str has a pattern")
            try:
                re.compile(self.pattern)
            except re.error as error:
                raise PluginError(
                    f"attribute {self.name!r}: its pattern is not a regular expression: {error}"
                ) from error
        suggestions: object = self.known
        fits = isinstance(suggestions, tuple) and (not suggestions or item is str)
        self._require(fits and None not in map(self._accept, self.known), "'known' is a tuple of texts that it accepts")
        if self.default is not None:
            self._require(not self.required, "what is required has no default")
            try:
                object.__setattr__(self, "default", self.check(self.default))
            except UsageError as error:
                raise PluginError(f"attribute {self.name!r}: its default {shown(self.default)} does not fit") from error

    def _check_type(self) -> None:
        item = self._item
        if isinstance(item, tuple):
            choices: tuple[object, ...] = item
            self._require(len(item) > 0, "it needs at least one choice")
            texts = all(isinstance(choice, str) and is_text(choice) for choice in choices)
            numbers = all(type(choice) is int and _INT_LOW <= choice <= _INT_HIGH for choice in choices)
            self._require(texts or numbers, "its choices must be strings, printable and not too long, or whole numbers")
            self._require(len(set(item)) == len(item), "a choice is listed twice")
        else:
            plain = item in (str, int, float, bool) or self.holds_targets
            self._require(plain, "its type must be str, int, float, bool, Target or choices, or a list or map of one")

    def _require(self, condition: bool, text: str) -> None:
        if not condition:
            raise PluginError(f"attribute {shown(self.name)}: {text}")

    @property
    def _item(self) -> ItemType:
        item = self.type.item if isinstance(self.type, (ListOf, MapOf)) else self.type
        return NestedTarget if isinstance(item, type) and issubclass(item, NestedTarget) else item

    @property
    def _number(self) -> Literal["int", "float"] | None:
        """The type of a number that it holds; None where it holds none."""
        item = self._item
        if isinstance(item, tuple):
            return "int" if isinstance(item[0], int) else None
        return "int" if item is int else "float" if item is float else None

    @property
    def holds_targets(self) -> bool:
        """Whether its value is a target, or a list or map of targets."""
        return self._item is NestedTarget

    def has_same_type(self, other: Attribute) -> bool:
        """Whether both hold values of one type, or lists or maps of them."""
        return type(self.type) is type(other.type) and self._item == other._item

    @property
    def names(self) -> tuple[str, ...]:
        """Every name under which it may be given, its own first."""
        return (self.name, *self.also, *self.deprecated)

    def allowed(self) -> str:
        """What the attribute takes, in words: ``a whole number from 1 to 64``."""
        if isinstance(self.type, ListOf):
            return f"a list, each item {self._allowed_item()}"
        if isinstance(self.type, MapOf):
            return f"a map, each value {self._allowed_item()}"
        return self._allowed_item()

    def _allowed_item(self) -> str:
        item = self._item
        if isinstance(item, tuple):
            return "one of " + ", ".join(map(str, item))
        if item is bool:
            return "true or false"
        if item is str:
            return f"text that matches {self.pattern}" if self.pattern else "printable text"
        if self.holds_targets:
            return "a target"
        noun = "a whole number" if item is int else "a number"
        if self.unit is not None:
            noun += f" of {self.unit}"
        match (self.low, self.high):
            case (None, None):
                pass
            case (low, None):
                noun += f", at least {low}" if self.unit else f" of at least {low}"
            case (None, high):
                noun += f", at most {high}" if self.unit else f" of at most {high}"
            case (low, high):
                noun += f" from {low} to {high}"
        return noun if self.multiple_of is None else f"{noun}, a multiple of {self.multiple_of}"

    def check(self, value: object, path: str | None = None) -> Value:
        """``value`` as a target stores it: a whole number becomes a float where a float is declared, a list a tuple.

        Args:
            value: anything.
            path: what to call the attribute in an error, where it is not its own name.

        Raises:
            UsageError: the value has the wrong type, is out of range, or is not one of the choices.
        """
        path = path or self.name
        if isinstance(self.type, ListOf):
            if not isinstance(value, (list, tuple)) or len(value) > MAX_ITEMS:
                raise self._misfit(value, path)
            return tuple(self.check_item(item, f"{path}[{i}]") for i, item in enumerate(value))
        if isinstance(self.type, MapOf):
            if not isinstance(value, Mapping) or len(value) > MAX_ITEMS:
                raise self._misfit(value, path)
            for key in value:
                if not isinstance(key, str) or not key or not is_text(key):
                    raise UsageError(
                        f"{shown(key)} is not a key of attribute {path!r}", hint="keys are printable texts"
                    )
            return FrozenMap({key: self.check_item(item, f"{path}.{key}") for key, item in value.items()})
        return self.check_item(value, path)

    def check_item(self, value: object, path: str) -> Scalar | Target:
        """As `check`, of one item where the attribute holds a list or map."""
        accepted = self._accept(value)
        if accepted is None:
            raise self._misfit(value, path)
        return accepted

    def _misfit(self, value: object, path: str) -> UsageError:
        item = self._item
        texts = [choice for choice in item if isinstance(choice, str)] if isinstance(item, tuple) else self.known
        near = suggest(value, texts) if isinstance(value, str) else ""
        return UsageError(
            f"{shown(value)} does not fit attribute {path!r}", hint=f"{near}it takes {self.allowed()}: {self.help}"
        )

    def parse(self, text: str, path: str | None = None) -> Scalar | Target:
        """The value that ``text`` spells, checked; of a list or map, the item.

        Raises:
            UsageError: as `check`.
        """
        number, value = self._number, cast("Scalar", text)
        if self._item is bool:
            value = {"true": True, "false": False}.get(text, text)
        elif len(text) <= MAX_VALUE_CHARS and number is not None:
            factor = _FACTORS[self.unit].get(text[-1:], 1) if self.unit is not None else 1
            digits = text if factor == 1 else text[:-1]
            if number == "int" and _INT.fullmatch(digits):
                value = int(digits) * factor
            elif number == "int" and factor == 1 and _HEX.fullmatch(digits):
                value = int(digits, 16)
            elif number == "float" and _FLOAT.fullmatch(digits):
                value = float(digits) * factor
        return self.check_item(value, path or self.name)

    def _accept(self, value: object) -> Scalar | Target | None:
        item = self._item
        if isinstance(item, tuple):
            # True equals 1, and 4.0 equals 4.
            return next((choice for choice in item if choice == value and type(choice) is type(value)), None)
        if item is NestedTarget:
            return cast("Target", value) if isinstance(value, NestedTarget) else None
        if item is bool:
            return value if isinstance(value, bool) else None
        if item is str:
            if not isinstance(value, str) or not is_text(value):
                return None
            return value if self.pattern is None or re.fullmatch(self.pattern, value) else None
        if isinstance(value, bool) or not isinstance(value, int if item is int else (int, float)):
            return None
        # Every comparison with NaN is false, so it is refused here as well.
        limit = sys.float_info.max
        low, high = (_INT_LOW, _INT_HIGH) if item is int else (-limit, limit)
        if not (low <= value <= high):
            return None
        if (self.low is not None and value < self.low) or (self.high is not None and value > self.high):
            return None
        if self.multiple_of is not None and value % self.multiple_of:
            return None
        return int(value) if item is int else float(value) + 0.0  # -0.0 equals 0.0 and must read like it
