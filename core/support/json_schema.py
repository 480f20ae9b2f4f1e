"""Checks data that came from JSON against a JSON Schema, of which it knows the keywords listed in `KEYWORDS`.

Their meaning is that of JSON Schema draft 2020-12, but stricter in two points: ``1.0`` is not an integer, and strings
must be writable as UTF-8.
"""

from __future__ import annotations

import math
import re
from typing import Any

__all__ = ["KEYWORDS", "first_error"]

KEYWORDS = frozenset(
    {
        "$id", "$schema", "additionalProperties", "const", "description", "enum", "items", "maxItems",
        "maximum", "minItems", "minimum", "pattern", "properties", "propertyNames", "required", "title", "type",
    }
)  # fmt: skip
"""The keywords that a schema may use. A ``pattern`` must be anchored at both ends."""


_SURROGATE = re.compile("[\ud800-\udfff]")


def first_error(value: object, schema: dict[str, Any]) -> str | None:
    """What is wrong with `value`, with its path, in one line; None if `schema` holds."""
    return _first_error(value, schema, "")


def _first_error(value: object, schema: dict[str, Any], path: str) -> str | None:
    at = path or "the top level"
    if "const" in schema and not _same(value, schema["const"]):
        return f"{at} is {_show(value)}, expected {schema['const']!r}"
    if "enum" in schema and not any(_same(value, choice) for choice in schema["enum"]):
        return f"{at} is {_show(value)}, expected one of {', '.join(map(str, schema['enum']))}"
    kinds = [schema["type"]] if isinstance(schema.get("type"), str) else schema.get("type", [])
    if kinds and not any(_is(value, kind) for kind in kinds):
        return f"{at} is {_show(value)}, expected {' or '.join(kinds)}"
    if isinstance(value, str) and "pattern" in schema and not re.fullmatch(schema["pattern"], value):
        return f"{at} is {_show(value)}, which does not match {schema['pattern']}"
    if isinstance(value, int | float):
        if value < schema.get("minimum", -math.inf):
            return f"{at} is {_show(value)}, expected at least {schema['minimum']}"
        if value > schema.get("maximum", math.inf):
            return f"{at} is {_show(value)}, expected at most {schema['maximum']}"
    if isinstance(value, list):
        return _first_list_error(value, schema, path)
    if isinstance(value, dict):
        return _first_object_error(value, schema, path)
    return None


def _first_list_error(value: list[Any], schema: dict[str, Any], path: str) -> str | None:
    at = path or "the top level"
    if len(value) < schema.get("minItems", 0):
        return f"{at} has {len(value)} items, expected at least {schema['minItems']}"
    if len(value) > schema.get("maxItems", math.inf):
        return f"{at} has {len(value)} items, expected at most {schema['maxItems']}"
    if "items" in schema:
        for index, item in enumerate(value):
            if error := _first_error(item, schema["items"], f"{path}[{index}]"):
                return error
    return None


def _first_object_error(value: dict[str, Any], schema: dict[str, Any], path: str) -> str | None:
    at = path or "the top level"
    for name in schema.get("required", ()):
        if name not in value:
            return f"{at} lacks {name!r}"
    properties = schema.get("properties", {})
    others = schema.get("additionalProperties", True)
    for name, item in value.items():
        if not _is(name, "string"):
            return f"{at} has a name that is not text: {_show(name)}"
        inner = f"{path}.{name}" if path else name
        if "propertyNames" in schema and (error := _first_error(name, schema["propertyNames"], f"a name in {at}")):
            return error
        if name in properties:
            error = _first_error(item, properties[name], inner)
        elif isinstance(others, dict):
            error = _first_error(item, others, inner)
        else:
            error = None if others else f"{at} has an unknown entry {_show(name)}"
        if error:
            return error
    return None


def _is(value: object, kind: str) -> bool:
    if kind == "string":
        return isinstance(value, str) and (value.isascii() or _SURROGATE.search(value) is None)
    if kind == "number":
        return _is(value, "integer") or (isinstance(value, float) and math.isfinite(value))
    if kind == "integer":
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, {"array": list, "object": dict, "boolean": bool, "null": type(None)}[kind])


def _same(value: object, other: object) -> bool:
    return type(value) is type(other) and value == other


def _show(value: object) -> str:
    if isinstance(value, list | dict):
        return "a list" if isinstance(value, list) else "an object"
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 1 << 64:
        return "a number of more than 64 bits"  # printing it may be refused, or take long
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
