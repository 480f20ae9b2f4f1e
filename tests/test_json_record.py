"""The JSON of records whose members are not their fields."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from uma.support.json_record import to_json


@dataclass(frozen=True)
class Size:
    width: int
    height: int


@dataclass(frozen=True)
class Shape:
    json_fields: ClassVar = ("id=name", "*size", "area", "w=size.width", "...")

    name: str
    size: Size

    def area(self) -> int:
        return self.size.width * self.size.height


class Plain:
    json_fields = ("text",)
    text = ("a", "b")


def test_json_fields_name_the_members() -> None:
    shape = Shape("box", Size(2, 3))
    expected = {"id": "box", "width": 2, "height": 3, "area": 6, "w": 2, "name": "box"}
    expected |= {"size": {"width": 2, "height": 3}}
    assert to_json(shape) == expected and list(to_json(shape)) == list(expected)


def test_a_class_with_json_fields_need_not_be_a_dataclass() -> None:
    assert to_json({"error": (Plain(), None)}) == {"error": [{"text": ["a", "b"]}, None]}
