"""The record of an artifact, ``metadata.json``, from its schema."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from .docstrings import inline
from .markdown import code, heading, table
from .repository import ROOT

__all__ = ["fields", "page"]

_SCHEMA = ROOT / "core" / "artifact_schema.json"


def page() -> str:
    """``metadata``."""
    schema = json.loads(_SCHEMA.read_text(encoding="utf-8"))
    rows = [(code(path), types, inline(said, lambda name: None)) for path, types, said in fields(schema)]
    return "\n".join(
        [
            heading(1, code("metadata.json")),
            "What [an artifact](../artifact.md) says of itself. `[]` stands for each item of a list, `*` for any name. "
            "The schema is `artifact_schema.json` in the package; what is not there must not be in the file.\n",
            table(("field", "type", "meaning"), rows),
        ]
    )


def fields(schema: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Every field: its path, its type, and what is said of it."""
    yield from _within(schema, "", schema["$defs"])


def _within(node: dict[str, Any], path: str, shared: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    inner = [(f"{path}.{name}".lstrip("."), field) for name, field in node.get("properties", {}).items()]
    if isinstance(node.get("items"), dict):
        inner.append((f"{path}[]", node["items"]))
    if isinstance(node.get("additionalProperties"), dict):
        inner.append((f"{path}.*".lstrip("."), node["additionalProperties"]))
    for where, given in inner:
        field = {**shared.get(given.get("$ref", "").rpartition("/")[2], {}), **given}
        if "description" in field or not where.endswith(("[]", ".*")):
            yield where, _type(field), field.get("description", "")
        yield from _within(field, where, shared)


def _type(field: dict[str, Any]) -> str:
    if "enum" in field:
        return ", ".join(code(json.dumps(value)) for value in field["enum"])
    if "const" in field:
        return code(json.dumps(field["const"]))
    given = field.get("type", "")
    return " or ".join(given) if isinstance(given, list) else str(given)
