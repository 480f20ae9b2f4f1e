"""`Target`: one piece of hardware, as its kind and the attributes that were given; and the current one.

A target has three forms, which hold the same: the object, its text (`text` has the grammar), and its JSON.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any, cast

from ..errors import PluginError, UsageError
from ..support import late_binding
from ..support.formatting import format_value
from .kind import COMPOSITE, Alias, TargetKind
from .text import spell, too_deep
from .values import MAX_DEPTH, MAX_TEXT_CHARS, FrozenMap, NestedTarget, Value, check_label

__all__ = ["Target", "as_json"]


@dataclass(frozen=True, eq=False, repr=False, init=False)
class Target(NestedTarget):
    """A target kind and the attributes that were given. Immutable; equal where all that was given is.

    Args:
        kind: what it is; or a target in any other form, to be read with the plugins that are installed: a text,
            JSON, a dict; or a target. What else is given is added to it.
        attrs: attribute name -> value, in any order. What is not given is not stored: defaults are looked up.
        label: names this piece of hardware in a build; a C identifier.
        tag: the name that it was asked for by, where that stands for a whole target.
        host: runs what this target leaves.

    Raises:
        UsageError: an attribute is unknown, missing though required, or has a value that does not fit; the label is
            no identifier, or what names the target in its place; the host cannot be one; or there is too much of it,
            or too far within each other. Where it is about one attribute, ``where`` is that.
        PluginError: the kind's canonicaliser is at fault; or a plugin, where it had to be asked for a kind.
    """

    kind: TargetKind
    label: str | None
    tag: str | None
    host: Target | None
    _values: dict[str, Value]

    def __init__(
        self,
        kind: TargetKind | Target | str | Mapping[str, object],
        attrs: Mapping[str, object] | None = None,
        label: str | None = None,
        tag: str | None = None,
        host: Target | None = None,
    ) -> None:
        mapping: object = {} if attrs is None else attrs
        if not isinstance(mapping, Mapping) or not all(isinstance(name, str) for name in mapping):
            raise UsageError(f"{format_value(attrs)} are not attributes", hint='for example {"opt": "2"}')
        values = dict(attrs or {})
        if not isinstance(kind, TargetKind):
            base = kind if isinstance(kind, Target) else Target.from_json(kind, late_binding.installed_kinds)
            values = {**base.attrs, **{base.kind.attribute(name).name: value for name, value in values.items()}}
            kind, label, tag, host = base.kind, label or base.label, tag or base.tag, host or base.host
        for name, value in (("tag", tag), ("host", host)):
            if value is not None:
                values[name] = value
        try:
            checked = _copied(kind, _checked(kind, values))
            if label is not None:
                check_label(label)
            given_host, given_tag = checked.pop("host", None), checked.pop("tag", None)
            fields = {"kind": kind, "label": label, "tag": given_tag, "host": given_host, "_values": checked}
            for field, content in fields.items():
                object.__setattr__(self, field, content)
            self._check_composite()
            with _about("host"):
                self._check_host()
            with _about("compiler"):
                check_label(self.name)
            if self._depth > MAX_DEPTH:
                raise too_deep()
            if len(str(self)) > MAX_TEXT_CHARS:
                raise UsageError(f"the text of a target would have more than {MAX_TEXT_CHARS} characters")
            _ = self._derived  # so that what is wrong with it is said now
        except UsageError as error:
            error.where = error.where or f"target kind {kind.name!r}"
            raise

    def _check_composite(self) -> None:
        if self.kind.name != COMPOSITE:
            return
        if self.label is not None:
            hint = "give labels to its host and its devices"
            raise UsageError(f"the label {self.label!r} is given to a composite, which is several targets", hint=hint)
        if not self.nested:
            raise UsageError("a composite has neither a host nor devices", hint="composite -host=c -devices=...")

    def _check_host(self) -> None:
        if self.host is None:
            return
        if not self.host.kind.is_host:
            raise UsageError(f"{self.host.name!r} cannot be the host of {self.name!r}: it runs no whole model")
        if self.host.host is not None:
            raise UsageError(f"the host of {self.name!r} has a host itself")
        if self.kind.name == self.host.kind.name and self._values == self.host._values:
            raise UsageError(f"{self.name!r} is the host of itself")

    @cached_property
    def _depth(self) -> int:
        return 1 + max((nested._depth for nested in self.nested), default=0)

    @property
    def nested(self) -> tuple[Target, ...]:
        """The targets within it, its host first."""
        values: list[Value | None] = [self.host]
        for value in self._values.values():
            values += value.values() if isinstance(value, FrozenMap) else value if isinstance(value, tuple) else [value]
        return tuple(value for value in values if isinstance(value, Target))

    @property
    def name(self) -> str:
        """What names it in a build: its label, else the attribute ``compiler`` if given, else the name of its kind."""
        return self.label or str(self._values.get("compiler", "")) or self.kind.name

    @property
    def device_type(self) -> str:
        """The class of hardware: its own, else that of its kind."""
        return str(self.get_attr("device_type") or self.kind.device_type) if self.kind.has("device_type") else COMPOSITE

    @property
    def attrs(self) -> Mapping[str, Value]:
        """The attributes that were given, in order of declaration, without ``host`` and ``tag``."""
        return MappingProxyType(self._values)

    @property
    def derived(self) -> Mapping[str, Value]:
        """The attributes that the kind's canonicaliser gives, as far as they differ from those that were given. If a
        ``device`` was given, it is the first of ``keys``."""
        return MappingProxyType(self._derived)

    @cached_property
    def _derived(self) -> dict[str, Value]:
        canonicalise, derived = self.kind.canonicalise, dict[str, Value]()
        if canonicalise is not None:
            derived = _derived_attributes(self.kind, "its canonicaliser", lambda: canonicalise(self))
        if self.kind.is_common("device") and (device := self._values.get("device")) is not None:
            keys = derived.get("keys", self._values.get("keys", self.kind.attribute("keys").default)) or ()
            assert isinstance(device, str) and isinstance(keys, tuple)
            derived["keys"] = (device, *(key for key in keys if key != device))
        return {name: value for name, value in derived.items() if self._values.get(name) != value}

    def get_attr(self, name: str) -> Any:
        """The value of attribute ``name``, of the type that its declaration says; lists are tuples.

        It is what follows from the other attributes, else what was given, else the default; ``None`` where there is
        none of these. Within the kind's canonicaliser nothing follows yet.

        Raises:
            UsageError: the kind declares no such attribute.
        """
        attribute = self.kind.attribute(name)
        if attribute.name in ("host", "tag"):
            return getattr(self, attribute.name)
        derived: Mapping[str, Value] = self.__dict__.get("_derived", {})
        return derived.get(attribute.name, self._values.get(attribute.name, attribute.default))

    def common_attr(self, name: str) -> Any:
        """The value of an attribute that every kind has; None where the kind declares one with its own meaning."""
        return self.get_attr(name) if self.kind.is_common(name) else None

    def with_name(self, label: str | None, tag: str | None) -> Target:
        """The same with another label and tag."""
        return Target(self.kind, self._values, label, tag, self.host)

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
        return self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    @property
    def _key(self) -> tuple[object, ...]:
        return (self.label, self.kind.name, tuple(self._values.items()), self.tag, self.host)

    @property
    def _all(self) -> dict[str, Value]:
        """What was given, with host and tag."""
        values: dict[str, Value] = {**self._values}
        if self.host is not None:
            values["host"] = self.host
        if self.tag is not None:
            values["tag"] = self.tag
        return values

    @cached_property
    def _text(self) -> str:
        head = self.kind.name if self.label is None else f"{self.label}: {self.kind.name}"
        return " ".join([head, *(f"-{name}={spell(value)}" for name, value in self._all.items())])

    def __str__(self) -> str:
        """The canonical text: attributes in the order of their declaration; `parse_target` gives this target back."""
        return self._text

    def __repr__(self) -> str:
        return f"<Target {self}>"

    def _repr_html_(self) -> str:
        """A row for each attribute that was given or follows from others."""
        from ..support.html import html_of, table

        values = {**self._all, **self._derived}
        rows = [(name, spell(value), "derived" if name in self._derived else "") for name, value in values.items()]
        return html_of(table(f"Target {self}", ("attribute", "value", ""), rows))

    def to_json(self) -> dict[str, Any]:
        """The canonical JSON form, as dicts, lists and plain values; `from_json` gives this target back."""
        head = {"kind": self.kind.name} if self.label is None else {"kind": self.kind.name, "label": self.label}
        return {**head, **{name: as_json(value) for name, value in self._all.items()}}

    @staticmethod
    def from_json(record: str | Mapping[str, object], kinds: Callable[[str], TargetKind | Alias]) -> Target:
        """The target of a dict, or of what `to_json` gave; or of a text.

        Args:
            record: ``kind``, and as they were given ``label``, ``tag``, ``host`` and attributes; targets within it
                are dicts or texts.
            kinds: gives the kind or alias of a name.

        Raises:
            UsageError: something is unknown or does not fit; ``where`` has its path: ``devices[1].array_dim``.
            PluginError: as `Target`, or from ``kinds``.
        """
        target: Target = late_binding.read_target(record, kinds)
        return target


_STACK: ContextVar[tuple[Target, ...]] = ContextVar("uma_target_stack", default=())


@contextmanager
def _about(attribute: str) -> Iterator[None]:
    """Within, what is wrong is wrong with an attribute."""
    try:
        yield
    except UsageError as error:
        error.where = attribute
        raise


def _checked(kind: TargetKind, values: Mapping[str, object], *, partial: bool = False) -> dict[str, Value]:
    """What was given under its present names, in the order of declaration; unless ``partial``, all that is needed."""
    by_name: dict[str, object] = {}
    for name, value in values.items():
        attribute = kind.attribute(name)
        if attribute.name in by_name:
            raise UsageError(f"attribute {attribute.name!r} is given twice")
        if name in attribute.deprecated:
            text = f"attribute {name!r} of target kind {kind.name!r} is now called {attribute.name!r}"
            warnings.warn(text, FutureWarning, stacklevel=4)
        by_name[attribute.name] = value
    checked: dict[str, Value] = {}
    for attribute in (*kind.attributes, *kind.common):
        if attribute.name in by_name:
            checked[attribute.name] = attribute.check(by_name[attribute.name])
        elif attribute.required and not partial:
            raise UsageError(
                f"target kind {kind.name!r} needs attribute {attribute.name!r}",
                hint=f"add -{attribute.name}=...: {attribute.allowed()}",
            )
    return checked


def _derived_attributes(
    kind: TargetKind, subject: str, function: Callable[[], Mapping[str, object]]
) -> dict[str, Value]:
    """Attributes that a function of the kind returns.

    Raises:
        UsageError: the function raises it, or returns attributes that do not fit.
        PluginError: the function fails.
    """
    try:
        return _checked(kind, dict(function()), partial=True)
    except (KeyboardInterrupt, UsageError):
        raise
    except BaseException as error:
        brief = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        hint = f"tell the authors of its plugin: uma plugins {kind.name}"
        raise PluginError(f"target kind {kind.name!r}: {subject} failed: {brief}", hint=hint) from error


def _copied(kind: TargetKind, values: dict[str, Value]) -> dict[str, Value]:
    """``values`` with the attributes of the device of this machine that ``from_device`` names, in its place. What is
    given overrides what is copied."""
    read, number = kind.from_device, values.get("from_device")
    if read is None or number is None or not kind.is_common("from_device"):
        return values
    explicit = {name: value for name, value in values.items() if name != "from_device"}
    with _about("from_device"):
        copied = _derived_attributes(kind, "reading a device", lambda: read(Target(kind, explicit), cast(int, number)))
    return _checked(kind, {**copied, **explicit})


def as_json(value: Value) -> Any:
    """An attribute's value as JSON has it: targets and maps as dicts, lists as lists."""
    if isinstance(value, Target):
        return value.to_json()
    if isinstance(value, tuple):
        return [as_json(item) for item in value]
    return {key: as_json(item) for key, item in value.items()} if isinstance(value, FrozenMap) else value
