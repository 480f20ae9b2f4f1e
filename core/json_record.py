"""Typed records as JSON. A frozen dataclass that is declared once gives the schema of its JSON, and what reads and
writes it.

Fields are of ``str``, ``int``, ``float``, ``bool``, a ``Literal``, another record, ``tuple[T, ...]``, or
``Mapping[str, T]``, or one of these or None. With ``Annotated`` a type also says what its values mean, as a text, and
what is allowed of them, as a `Constraint`.
"""

from __future__ import annotations

import dataclasses
import functools
import types
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

__all__ = ["Constraint", "plain", "read", "schema"]

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


def schema(kind: Any) -> dict[str, Any]:
    """The JSON Schema of a record, or of another type that a field may have."""
    origin, args = get_origin(kind), get_args(kind)
    if origin is Annotated:
        inner = schema(args[0])
        for said in args[1:]:
            inner |= {"description": said} if isinstance(said, str) else said.keywords()
        return inner
    if origin in (Union, types.UnionType):
        (some,) = (arg for arg in args if arg is not type(None))
        inner = schema(some)
        return inner | {"type": [inner["type"], "null"]}
    if origin is Literal:
        return {"const": args[0]} if len(args) == 1 else {"enum": list(args)}
    if origin is tuple:
        return {"type": "array", "items": schema(args[0])}
    if origin is Mapping:
        names = {name: value for name, value in schema(args[0]).items() if name != "type"}
        made = {"type": "object", "additionalProperties": schema(args[1])}
        return made | ({"propertyNames": names} if names else {})
    if not dataclasses.is_dataclass(kind):
        return {"type": _PLAIN[kind]}
    fields = {name: schema(inner) for name, inner in _fields(kind).items()}  # type: ignore[arg-type]  # it is a dataclass
    return {"type": "object", "required": list(fields), "additionalProperties": False, "properties": fields}


def read(kind: type[Record], value: Any) -> Record:
    """The record that JSON stands for which fits the schema of ``kind``."""
    made: Record = _read(kind, value)
    return made


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


def plain(value: Any) -> Any:
    """A record, or a value of one, as JSON has it."""
    if dataclasses.is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    if isinstance(value, Mapping):
        return {name: plain(item) for name, item in value.items()}
    return value
