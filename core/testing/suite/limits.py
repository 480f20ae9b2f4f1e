"""Values of attributes at their limits, and beyond them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...targets import Attribute, ListOf, MapOf

__all__ = ["limits_of", "wrong_values"]


def limits_of(attribute: Attribute) -> list[Any]:
    """Values at both ends of what an attribute takes, and its default: as targets hold them."""
    limits: list[Any] = [] if attribute.default is None else [attribute.default]
    type_ = attribute.type
    item = type_.item if isinstance(type_, (ListOf, MapOf)) else type_
    for scalar in _scalars(attribute, item):
        limits.append(
            [scalar] if isinstance(type_, ListOf) else {"key": scalar} if isinstance(type_, MapOf) else scalar
        )
    unique: list[Any] = []
    for value in limits:
        if not any(type(value) is type(other) and value == other for other in unique):
            unique.append(value)
    return unique


def _scalars(attribute: Attribute, item: Any) -> list[Any]:
    """Values at both ends of what an item of an attribute takes."""
    if isinstance(item, tuple):
        return list(item)
    if item is bool:
        return [False, True]
    if item is str and attribute.pattern is None:
        return ["text with a blank"]
    if item not in (int, float):
        return []
    step = attribute.multiple_of or 1
    low, high = attribute.low, attribute.high
    scalars: list[Any] = []
    if low is not None:
        scalars.append(-(-int(low) // step) * step if item is int else float(low))
    if high is not None:
        scalars.append(int(high) // step * step if item is int else float(high))
    return scalars or [step if item is int else 1.0]


def wrong_values(attribute: Attribute) -> Iterator[Any]:
    """Values that an attribute must not take, as objects."""
    type_ = attribute.type
    item = type_.item if isinstance(type_, (ListOf, MapOf)) else type_

    def wrapped(value: Any) -> Any:
        return [value] if isinstance(type_, ListOf) else {"key": value} if isinstance(type_, MapOf) else value

    if isinstance(item, tuple):
        yield wrapped("no such choice" if isinstance(item[0], str) else max(int(one) for one in item) + 1)
    elif item in (int, float):
        if attribute.low is not None:
            yield wrapped(attribute.low - (attribute.multiple_of or 1))
        if attribute.high is not None:
            yield wrapped(attribute.high + (attribute.multiple_of or 1))
        if attribute.multiple_of is not None and attribute.multiple_of > 1:
            low = 0 if attribute.low is None else int(attribute.low)
            yield wrapped(-(-low // attribute.multiple_of) * attribute.multiple_of + 1)
        yield wrapped("no number")
    elif item is bool:
        yield wrapped("perhaps")
