"""The JSON Schema checker: each keyword, and that our schema uses none that it does not know."""

from __future__ import annotations

from typing import Any

import pytest

from uma import artifact
from uma.support.json_schema import KEYWORDS, first_error

ITEM = {"type": "object", "additionalProperties": {"type": "integer"}}


@pytest.mark.parametrize(
    ("value", "schema"),
    [
        (1, {"type": "integer"}),
        (1, {"type": "number"}),
        (1.5, {"type": ["number", "null"]}),
        (None, {"type": ["number", "null"]}),
        ("é", {"type": "string"}),
        (True, {"type": "boolean", "const": True}),
        ([1, 2], {"type": "array", "minItems": 2, "maxItems": 2, "items": {"minimum": 1, "maximum": 2}}),
        ({"a": 1}, {"type": "object", "required": ["a"], "properties": {"a": {}}, "additionalProperties": False}),
        ({"a": 1, "b": "x"}, {"properties": {"a": {"enum": [1]}}}),
        ({"a": 1}, {"propertyNames": {"pattern": "^[a-z]$"}}),
        ({"a": 1}, ITEM),
        ("anything", {"title": "", "description": ""}),
    ],
)
def test_holds(value: Any, schema: dict[str, Any]) -> None:
    assert first_error(value, schema) is None


@pytest.mark.parametrize(
    ("value", "schema", "message"),
    [
        (True, {"type": "integer"}, "the top level is True, expected integer"),
        (1.0, {"type": "integer"}, "the top level is 1.0, expected integer"),
        (float("inf"), {"type": "number"}, "the top level is inf, expected number"),
        ("\udc80", {"type": "string"}, r"the top level is '\udc80', expected string"),
        ({}, {"type": ["string", "array"]}, "the top level is an object, expected string or array"),
        ([], {"type": "null"}, "the top level is a list, expected null"),
        (1, {"const": True}, "the top level is 1, expected True"),
        ("c", {"enum": ["a", "b"]}, "the top level is 'c', expected one of a, b"),
        ("a\n", {"pattern": "^a$"}, r"the top level is 'a\n', which does not match ^a$"),
        ("x" * 99, {"pattern": "^a$"}, "the top level is '" + "x" * 56 + "..., which does not match ^a$"),
        ([[0]], {"items": {"items": {"minimum": 1}}}, "[0][0] is 0, expected at least 1"),
        ({"a": [1]}, {"properties": {"a": {"items": {"maximum": 0}}}}, "a[0] is 1, expected at most 0"),
        pytest.param(
            10**5000, {"maximum": 0}, "the top level is a number of more than 64 bits, expected at most 0", id="huge"
        ),
        ([1], {"minItems": 2}, "the top level has 1 items, expected at least 2"),
        ([1], {"maxItems": 0}, "the top level has 1 items, expected at most 0"),
        ({}, {"required": ["a"]}, "the top level lacks 'a'"),
        ({"a": {"b": 1}}, {"properties": {"a": {"additionalProperties": False}}}, "a has an unknown entry 'b'"),
        (
            {"a": {"B": 1}},
            {"properties": {"a": {"propertyNames": {"pattern": "^b$"}}}},
            "a name in a is 'B', which does not",
        ),
        ({"\ud800": 1}, {}, r"the top level has a name that is not text: '\ud800'"),
        ({"a": {}}, ITEM, "a is an object, expected integer"),
    ],
)
def test_says_what_and_where(value: Any, schema: dict[str, Any], message: str) -> None:
    found = first_error(value, schema)
    assert found is not None
    assert found.startswith(message)


def keywords(schema: Any) -> set[str]:
    """Keywords that `schema` and the schemas in it use."""
    found = set(schema)
    inner = [schema[key] for key in ("items", "propertyNames", "additionalProperties") if key in schema]
    inner += schema.get("properties", {}).values()
    return found.union(*(keywords(part) for part in inner if isinstance(part, dict)))


def test_our_schema_uses_known_keywords() -> None:
    assert keywords(artifact.schema()) <= KEYWORDS
