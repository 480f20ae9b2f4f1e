"""From the forms in which targets are given to `Target`: texts, JSON, dicts, lists, and names that stand for others."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from dataclasses import replace
from typing import TypeAlias

from ..errors import UsageError
from ..support import late_binding
from .attribute import Attribute
from .kind import COMPOSITE, Alias, TargetKind
from .syntax_tree import Items, Mapped, Node, Option, Record, Source, Spelled, TargetLocation, join_path
from .target import Target
from .text import LocatedError, at_location, read_bag, read_json, too_deep
from .values import MAX_DEPTH, ListOf, MapOf, check_label, is_attribute_name, shown

__all__ = ["COMPOSITE_KIND", "Kinds", "Places", "parse_target", "read_placed", "read_target", "read_targets"]

Kinds: TypeAlias = Callable[[str], TargetKind | Alias]
"""Gives the kind or alias of a name, or raises `UsageError` where there is none, `PluginError` where it is broken."""

COMPOSITE_KIND = TargetKind(
    COMPOSITE,
    (
        Attribute("devices", ListOf(Target), also=("accelerators",), help="what works for the host, by priority"),
        Attribute("host", Target, also=("target_host",), help="runs what the devices leave"),
    ),
    help="a host and its devices",
    device_type=COMPOSITE,
)
"""The kind that is the core's own."""


class Places:
    """Where targets were given. Equal ones may have been given in several places: each object has its own."""

    def __init__(self) -> None:
        self._places: dict[int, tuple[Target, TargetLocation]] = {}

    def note(self, target: Target, place: TargetLocation) -> Target:
        """Keep the place of ``target``, which is given back."""
        self._places[id(target)] = target, place
        return target

    def __getitem__(self, target: Target) -> TargetLocation:
        """The place of this object, which was noted."""
        return self._places[id(target)][1]

    def get(self, target: Target, default: TargetLocation) -> TargetLocation:
        """The place of this object, ``default`` where none was noted."""
        return self[target] if id(target) in self._places else default


_FORMS = "a text, a Target, a dict with the key 'kind', a list of these, or a dict from labels to them"


def parse_target(text: str, kinds: Kinds) -> Target:
    """Read one target from its text or JSON form.

    Args:
        text: ``kind -attribute=value ...``, or JSON, or the name of an alias.
        kinds: see `Kinds`.

    Raises:
        UsageError: the text is malformed, or names what does not exist or does not fit; ``where`` has the column,
            counted from 1, and a caret below it, and the path of the attribute where it is within another.
        PluginError: from ``kinds``, or a kind's canonicaliser is at fault.
    """
    return read_target(text, kinds)


def read_target(source: object, kinds: Kinds) -> Target:
    """The target that a text, JSON, dict or `Target` describes. Raises as `parse_target`."""
    with locating_errors():
        return _Builder(kinds, Places()).target(_opened(source), "", 1)


def read_targets(source: object, kinds: Kinds) -> tuple[Target, ...]:
    """The targets that are given in any form: one, a list of them, a dict of labels, or a text with several.

    Raises:
        UsageError: as `parse_target`; or there is none; or a label contradicts the one that a target has.
        PluginError: as `parse_target`.
    """
    return read_placed(source, kinds)[0]


def read_placed(source: object, kinds: Kinds) -> tuple[tuple[Target, ...], Places]:
    """As `read_targets`; and where they, and those within them, were given."""
    places = Places()
    with locating_errors():
        return tuple(_Builder(kinds, places).bag(Node(source), "", 1)), places


@contextmanager
def locating_errors() -> Iterator[None]:
    """Turn a `LocatedError` into its error, which names its location: column and caret in a text, else the path."""
    try:
        yield
    except LocatedError as fault:
        if fault.spot is not None:
            fault.error.where = fault.spot.place("" if is_attribute_name(fault.path) else fault.path)
        elif fault.path:
            fault.error.where = fault.path
        raise fault.error from fault.error.__cause__


def _opened(source: object) -> Node:
    """What a user gives: a text may be JSON, which nested ones may not."""
    if isinstance(source, str) and source.lstrip()[:1] in ("{", "["):
        return read_json(source)
    return Node(source)


def _source(node: Node) -> Source | None:
    """The text that is to be read as a target, where the node is one."""
    if isinstance(node.value, Spelled):
        return node.value.source
    return Source(node.value, node.value) if isinstance(node.value, str) else None


def _items(node: Node) -> tuple[Node, ...] | None:
    if isinstance(node.value, Items):
        return node.value.nodes
    return tuple(map(Node, node.value)) if isinstance(node.value, (list, tuple)) else None


def _entries(node: Node) -> tuple[Option, ...] | None:
    if isinstance(node.value, Mapped):
        return node.value.entries
    if isinstance(node.value, Mapping):
        return tuple(Option(name, Node(value)) for name, value in node.value.items())
    return None


class _Builder:
    """Builds targets, each of them an object of its own, and notes their places; every error is a `LocatedError`.

    A depth is that of the target which is built: 1 for what the user gave.
    """

    def __init__(self, kinds: Kinds, places: Places) -> None:
        self._kinds = kinds
        self._places = places
        self._expanding: list[str] = []

    def bag(self, node: Node, path: str, depth: int) -> list[Target]:
        node = _opened(node.value) if isinstance(node.value, str) else node
        if (source := _source(node)) is not None:
            members: list[Target] = []
            for record in read_bag(source, path, depth):
                targets = self.named(record, path, depth)
                with at_location(path, record.label_spot or record.spot):
                    _check_names(members, targets)
                members += targets
            return members
        if (items := _items(node)) is not None:
            places = [path] if len(items) == 1 else [f"{path}[{i}]" for i in range(len(items))]
            members = []
            for item, place in zip(items, places, strict=True):
                with at_location(place, item.spot):
                    if _items(item) is not None:
                        raise UsageError("a list of targets holds a list", hint=f"a target is {_FORMS}")
                members += self.bag(item, place, depth)
        elif (entries := _entries(node)) is not None and not any(entry.name == "kind" for entry in entries):
            members = [self.labelled(entry, path, depth) for entry in entries]
        else:
            return [self.target(node, path, depth)]
        if not members:
            with at_location(path if path or node.spot else "the targets", node.spot):
                raise UsageError("there is no target", hint=f"give {_FORMS}")
        return members

    def labelled(self, entry: Option, path: str, depth: int) -> Target:
        with at_location(path, entry.spot):
            label = check_label(entry.name)
        inner = f"{path}[{label!r}]"
        target = self.target(entry.node, inner, depth)
        if target.label not in (None, label):
            with at_location(path, entry.spot):
                raise UsageError(f"the target of label {label!r} has the label {target.label!r}", hint="keep one")
        with at_location(path, entry.spot):
            named = target.with_name(label, target.tag)
        place = self._places[target]
        return self._places.note(named, replace(place, label_path=inner, label_spot=entry.spot or place.spot))

    def noted(self, target: Target, record: Record, path: str) -> Target:
        """``target``, the place of which is that of a record."""
        for alias in reversed(self._expanding):
            path = _within_alias(path, alias)
        label_at = join_path(path, "label") if record.keyed else path
        return self._places.note(target, TargetLocation(path, record.spot, label_at, record.label_spot or record.spot))

    def target(self, node: Node, path: str, depth: int) -> Target:
        if depth > MAX_DEPTH:
            with at_location(path, node.spot):
                raise too_deep()
        if isinstance(node.value, Target):
            return self.noted(copy(node.value), Record(node.value.kind.name, None, (), node.spot), path)
        if (source := _source(node)) is not None:
            first, *others = read_bag(source, path, depth)
            if others:
                with at_location(path, others[0].spot):
                    raise UsageError("these are several targets, where one is needed")
            record = first
        elif isinstance(node.value, Record):
            record = node.value
        elif (entries := _entries(node)) is not None:
            record = self.record(node, entries, path)
        else:
            with at_location(path, node.spot):
                subject = "a list" if _items(node) is not None else shown(node.value)
                raise UsageError(f"{subject} is not a target", hint="a text, a Target, or a dict with the key 'kind'")
        targets = self.named(record, path, depth)
        if len(targets) > 1:
            with at_location(path, record.spot):
                raise UsageError(f"{record.name!r} stands for several targets, where one is needed")
        return targets[0]

    def record(self, node: Node, entries: tuple[Option, ...], path: str) -> Record:
        """The target that a dict or JSON object describes."""
        options: dict[object, Option] = {}
        for entry in entries:
            with at_location(path, entry.spot):
                if entry.name in options:
                    raise UsageError(f"{shown(entry.name)} is given twice")
                options[entry.name] = entry
        with at_location(path, node.spot):
            if "kind" not in options:
                raise UsageError("a target in JSON has no kind", hint='write it like {"kind": "c", "opt": "2"}')
        head, label = options.pop("kind"), options.pop("label", None)
        with at_location(path, head.node.spot):
            if not isinstance(head.node.value, str):
                raise UsageError(f"{shown(head.node.value)} is not a target kind")
        record = Record(head.node.value, None, tuple(options.values()), head.node.spot)
        if label is None:
            return record
        with at_location(join_path(path, "label"), label.node.spot):
            name = check_label(label.node.value)
        return replace(record, label=name, label_spot=label.node.spot, keyed=True)

    def named(self, record: Record, path: str, depth: int) -> list[Target]:
        """The target of a record, or the targets that its name stands for."""
        with at_location(path, record.spot):
            if not is_attribute_name(record.name):
                lower = record.name.lower()
                guess = f"did you mean {lower!r}? " if is_attribute_name(lower) else ""
                raise UsageError(
                    f"{shown(record.name)} is not a target kind", hint=f"{guess}kinds are named like `c` or `my_device`"
                )
            kind = COMPOSITE_KIND if record.name == COMPOSITE else self._kinds(record.name)
        with at_location(path, record.label_spot):
            if record.label is not None:
                check_label(record.label)
        if isinstance(kind, Alias):
            return self.expanded(record, kind, path, depth)
        attrs: dict[str, object] = {}
        seen: dict[str, Option] = {}
        for option in record.options:
            with at_location(path, option.spot):
                if not isinstance(option.name, str):
                    raise UsageError(f"{shown(option.name)} is not an attribute")
                attribute = kind.attribute(option.name)
                if attribute.name in seen:
                    raise UsageError(f"attribute {attribute.name!r} is given twice")
                seen[attribute.name] = option
            attrs[option.name] = self.value(attribute, option.node, join_path(path, attribute.name), depth)
        try:
            return [self.noted(Target(kind, attrs, record.label), record, path)]
        except UsageError as error:
            if error.where not in seen:
                raise LocatedError(error, path, record.spot) from error
            raise LocatedError(error, join_path(path, error.where), seen[error.where].node.spot) from error

    def expanded(self, record: Record, alias: Alias, path: str, depth: int) -> list[Target]:
        with at_location(path, record.options[0].spot if record.options else record.spot):
            if record.options:
                raise UsageError(f"{alias.name!r} stands for a whole target, and takes no attributes")
            if alias.name in self._expanding:
                raise UsageError(f"{' -> '.join([*self._expanding, alias.name])}: a name stands for itself")
        self._expanding.append(alias.name)
        try:
            targets = self.bag(Node(alias.expands_to), "", depth)
        except LocatedError as fault:
            raise LocatedError(fault.error, _within_alias(fault.path, alias.name), fault.spot) from fault
        finally:
            self._expanding.pop()
        if len(targets) > 1:
            with at_location(path, record.label_spot):
                if record.label is not None:
                    raise UsageError(f"{alias.name!r} stands for several targets, which one label cannot name")
            return targets
        with at_location(path, record.label_spot):
            named = targets[0].with_name(record.label or targets[0].label, alias.name)
        return [self.noted(named, record, path)]

    def value(self, attribute: Attribute, node: Node, path: str, depth: int) -> object:
        if isinstance(attribute.type, ListOf):
            items = _items(node)
            if items is None and isinstance(node.value, (Spelled, Record)):
                items = (node,)
            if items is not None:
                return [self.item(attribute, item, f"{path}[{i}]", depth) for i, item in enumerate(items)]
        elif isinstance(attribute.type, MapOf):
            if (entries := _entries(node)) is not None:
                return self.map(attribute, entries, path, depth)
        else:
            return self.item(attribute, node, path, depth)
        with at_location(path, node.spot):
            return attribute.check(_plain(node))

    def map(self, attribute: Attribute, entries: tuple[Option, ...], path: str, depth: int) -> dict[object, object]:
        items: dict[object, object] = {}
        for entry in entries:
            with at_location(path, entry.spot):
                if entry.name in items:
                    raise UsageError(f"key {shown(entry.name)} of attribute {attribute.name!r} is given twice")
            items[entry.name] = self.item(attribute, entry.node, f"{path}.{entry.name}", depth)
        return items

    def item(self, attribute: Attribute, node: Node, path: str, depth: int) -> object:
        if attribute.holds_targets:
            return self.target(node, path, depth + 1)
        with at_location(path, node.spot):
            if isinstance(node.value, Spelled):
                return attribute.parse(node.value.source.text)
            if isinstance(node.value, Items):
                raise UsageError(
                    f"attribute {attribute.name!r} takes one value, not a list", hint=f"it takes {attribute.allowed()}"
                )
            return attribute.check_item(_plain(node), attribute.name)


def _within_alias(path: str, alias: str) -> str:
    return f"{path} of what {alias!r} stands for" if path else f"what {alias!r} stands for"


def _plain(node: Node) -> object:
    """The node's value as far as an error shows it."""
    if isinstance(node.value, Spelled):
        return node.value.source.text
    return {} if isinstance(node.value, (Mapped, Record)) else node.value


def _check_names(targets: list[Target], others: list[Target]) -> None:
    for target in targets:
        for other in others:
            # A target with a compiler means two, and one of them may be the other one here: `CompilationConfig` tells.
            if other.name == target.name != COMPOSITE and not {"compiler"} & {*target.attrs, *other.attrs}:
                raise two_alike(target, other)


def two_alike(target: Target, other: Target) -> UsageError:
    """The error for two targets of one name."""
    return UsageError(
        f"two targets are called {other.name!r}: {target} and {other}",
        hint=f"give one of them another label: '{other.name}_1: {other.kind.name}'",
    )


late_binding.read_target = read_target
