"""What a hook gave, as text that is the same where it gave the same: in another call, and in another process."""

from __future__ import annotations

import dataclasses
import hashlib
import re
import types
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import suppress
from typing import Any

__all__ = ["fingerprint", "first_difference"]

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_MAX_DEPTH = 40
_MAX_TEXT = 1 << 12


def fingerprint(value: Any) -> list[str]:
    """Lines, one for each part of a value, with the path of the part before it.

    Functions are told by their names and the values that they close over, texts and arrays that are long by a digest.
    """
    lines: list[str] = []
    _tell(value, "", lines, {}, 0)
    return lines


def first_difference(one: Sequence[str], other: Sequence[str]) -> str | None:
    """The first line in which two fingerprints differ, in words; None where they are the same."""
    for left, right in zip(one, other, strict=False):
        if left != right:
            path = left.partition(" = ")[0] or "the whole"
            return f"{path}: {left.partition(' = ')[2][:100]}, then {right.partition(' = ')[2][:100]}"
    return None if len(one) == len(other) else f"{len(one)} parts, then {len(other)}"


def _tell(value: Any, path: str, lines: list[str], seen: dict[int, str], depth: int) -> None:
    if value is None or isinstance(value, (bool, int, float, complex)):
        lines.append(f"{path} = {value!r}")
    elif isinstance(value, (str, bytes)):
        lines.append(f"{path} = {_text(value)}")
    elif id(value) in seen:
        lines.append(f"{path} = as {seen[id(value)]}")
    elif depth > _MAX_DEPTH:
        lines.append(f"{path} = {type(value).__qualname__}")
    else:
        seen[id(value)] = path or "the whole"
        _tell_parts(value, path, lines, seen, depth + 1)


def _tell_parts(value: Any, path: str, lines: list[str], seen: dict[int, str], depth: int) -> None:
    if isinstance(value, Mapping):
        lines.append(f"{path} = {len(value)} entries")
        for key in value:
            _tell(value[key], f"{path}[{_ADDRESS.sub('', repr(key))[:80]}]", lines, seen, depth)
    elif isinstance(value, Set):
        lines.append(f"{path} = {sorted(_ADDRESS.sub('', repr(one)) for one in value)}")
    elif isinstance(value, (list, tuple)):
        lines.append(f"{path} = {len(value)} items")
        for index, item in enumerate(value):
            _tell(item, f"{path}[{index}]", lines, seen, depth)
    elif isinstance(value, (types.FunctionType, types.MethodType)):
        lines.append(f"{path} = function {value.__module__}.{value.__qualname__}")
        for name, content in _closure(value):
            _tell(content, f"{path}.{name}", lines, seen, depth)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        lines.append(f"{path} = {type(value).__qualname__}")
        for name in (field.name for field in dataclasses.fields(value) if hasattr(value, field.name)):
            _tell(getattr(value, name), f"{path}.{name}", lines, seen, depth)
    elif hasattr(value, "tobytes") and hasattr(value, "dtype"):
        digest = hashlib.sha256(value.tobytes()).hexdigest()[:16]
        lines.append(f"{path} = {value.dtype}{list(getattr(value, 'shape', ()))} {digest}")
    else:
        lines.append(f"{path} = {_text(_ADDRESS.sub('', repr(value)))}")


def _closure(function: types.FunctionType | types.MethodType) -> Iterator[tuple[str, Any]]:
    """The variables that a function uses of the functions around it, those that have a value."""
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with suppress(ValueError):  # not yet filled
            yield name, cell.cell_contents


def _text(value: str | bytes) -> str:
    if len(value) <= _MAX_TEXT:
        return repr(value)
    content = value.encode() if isinstance(value, str) else value
    return f"{len(content)} bytes, {hashlib.sha256(content).hexdigest()[:16]}"
