"""The record of an artifact, ``metadata.json``, from its schema."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from uma.artifact import schema

from .docstrings import inline
from .markdown import code, heading, table

__all__ = ["fields", "page"]


def page() -> str:
    """``metadata``."""
    rows = [(code(path), types, inline(said, lambda name: None)) for path, types, said in fields(schema())]
    return "\n".join(
        [
            heading(1, code("metadata.json")),
            "What [an artifact](../artifact.md) says of itself. `[]` stands for each item of a list, `*` for any name. "
            "`uma.artifact.schema()` gives its JSON Schema; what is not there must not be in the file.\n",
            table(("field", "type", "meaning"), rows),
        ]
    )


def fields(given: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Every field: its path, its type, and what is said of it."""
    yield from _within(given, "")


def _within(node: dict[str, Any], path: str) -> Iterator[tuple[str, str, str]]:
    inner = [(f"{path}.{name}".lstrip("."), field) for name, field in node.get("properties", {}).items()]
    if isinstance(node.get("items"), dict):
        inner.append((f"{path}[]", node["items"]))
    if isinstance(node.get("additionalProperties"), dict):
        inner.append((f"{path}.*".lstrip("."), node["additionalProperties"]))
    for where, field in inner:
        if "description" in field or not where.endswith(("[]", ".*")):
            yield where, _type(field), field.get("description", "")
        yield from _within(field, where)


def _type(field: dict[str, Any]) -> str:
    if "enum" in field:
        return ", ".join(code(json.dumps(value)) for value in field["enum"])
    if "const" in field:
        return code(json.dumps(field["const"]))
    given = field.get("type", "")
    return " or ".join(given) if isinstance(given, list) else str(given)
