"""Typed records as JSON. A frozen dataclass that is declared once gives the schema of its JSON, and what reads and
writes it.

Fields are of ``str``, ``int``, ``float``, ``bool``, ``Any``, a ``Literal``, another record, ``tuple[T, ...]``, or
``Mapping[str, T]``, or one of these or None. With ``Annotated`` a type also says what its values mean, as a text, and
what is allowed of them, as a `Constraint`.

A class whose JSON differs from its fields lists the members in ``json_fields``. Such a class is written, and not read:

- ``"..."`` stands for all fields of the dataclass;
- ``"name"`` is an attribute, or a method without arguments;
- ``"key=name"`` writes that attribute as ``key``; the name may be dotted, ``"ns=price.ns"``;
- ``"*name"`` writes the members of that attribute among those of the object.
"""

from __future__ import annotations

import dataclasses
import functools
import operator
import types
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

__all__ = ["Constraint", "from_json", "json_schema_of", "to_json"]

Record = TypeVar("Record")

_PLAIN = {str: "string", int: "integer", float: "number", bool: "boolean"}


@dataclass(frozen=True)
class Constraint:
    """What is allowed of a value besides its type.

    Args:
        pattern: of a text, anchored at both ends.
        minimum, maximum: of a number, both included.
        min_items, max_items: of a list.
        enum: all values that there are.
    """

    pattern: str | None = None
    minimum: int | None = None
    maximum: int | None = None
    min_items: int | None = None
    max_items: int | None = None
    enum: tuple[str, ...] | None = None

    def keywords(self) -> dict[str, Any]:
        """The same in JSON Schema."""
        named = {
            "pattern": self.pattern,
            "minimum": self.minimum,
            "maximum": self.maximum,
            "minItems": self.min_items,
            "maxItems": self.max_items,
            "enum": None if self.enum is None else list(self.enum),
        }
        return {keyword: value for keyword, value in named.items() if value is not None}


@functools.cache
def _fields(record: type[Any]) -> dict[str, Any]:
    """The types of the fields of a record, by name."""
    hints = get_type_hints(record, include_extras=True)
    return {field.name: hints[field.name] for field in dataclasses.fields(record)}


def json_schema_of(kind: Any) -> dict[str, Any]:
    """The JSON Schema of a record, or of another type that a field may have."""
    origin, args = get_origin(kind), get_args(kind)
    if origin is Annotated:
        inner = json_schema_of(args[0])
        for note in args[1:]:
            inner |= {"description": note} if isinstance(note, str) else note.keywords()
        return inner
    if origin in (Union, types.UnionType):
        (some,) = (arg for arg in args if arg is not type(None))
        inner = json_schema_of(some)
        return inner | {"type": [inner["type"], "null"]}
    if origin is Literal:
        return {"const": args[0]} if len(args) == 1 else {"enum": list(args)}
    if origin is tuple:
        return {"type": "array", "items": json_schema_of(args[0])}
    if origin is Mapping:
        names = {name: value for name, value in json_schema_of(args[0]).items() if name != "type"}
        mapping = {"type": "object", "additionalProperties": json_schema_of(args[1])}
        return mapping | ({"propertyNames": names} if names else {})
    if not dataclasses.is_dataclass(kind):
        return {} if kind is Any else {"type": _PLAIN[kind]}
    fields = {name: json_schema_of(inner) for name, inner in _fields(kind).items()}  # type: ignore[arg-type]  # it is a dataclass
    return {"type": "object", "required": list(fields), "additionalProperties": False, "properties": fields}


def from_json(kind: type[Record], value: Any) -> Record:
    """Return the record of ``kind`` that JSON describes, which fits the schema of ``kind``."""
    record: Record = _read(kind, value)
    return record


def _read(kind: Any, value: Any) -> Any:
    origin, args = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _read(args[0], value)
    if origin in (Union, types.UnionType):
        return None if value is None else _read(next(arg for arg in args if arg is not type(None)), value)
    if origin is tuple:
        return tuple(_read(args[0], item) for item in value)
    if origin is Mapping:
        return {name: _read(args[1], item) for name, item in value.items()}
    if dataclasses.is_dataclass(kind):
        return kind(**{name: _read(inner, value[name]) for name, inner in _fields(kind).items()})  # type: ignore[arg-type,operator]  # it is a dataclass
    return value


@functools.cache
def _members(kind: type[Any]) -> tuple[tuple[str, str], ...]:
    """Return key and attribute of each member of the JSON object of a class; an empty key for members to merge."""
    fields = tuple(field.name for field in dataclasses.fields(kind)) if dataclasses.is_dataclass(kind) else ()
    names = [name for text in getattr(kind, "json_fields", ("...",)) for name in (fields if text == "..." else (text,))]
    return tuple(
        ("", name[1:]) if name[0] == "*" else (name.partition("=")[0], name.rpartition("=")[2]) for name in names
    )


def to_json(value: Any) -> Any:
    """Return a record as plain data that `json.dumps` writes, with the members that ``--json`` prints.

    Args:
        value: a record, such as the result of `uma.explain` or `uma.verify`, or one of its rows; or a sequence or a
            mapping of records. Other values are returned unchanged.
    """
    if dataclasses.is_dataclass(value) or hasattr(type(value), "json_fields"):
        kind: Any = type(value)
        members: dict[str, Any] = {}
        for key, name in _members(kind):
            member = operator.attrgetter(name)(value)
            item = to_json(member() if isinstance(member, types.MethodType) else member)
            members |= {key: item} if key else item
        return members
    if isinstance(value, tuple | list):
        return [to_json(item) for item in value]
    if isinstance(value, Mapping):
        return {name: to_json(item) for name, item in value.items()}
    return value
