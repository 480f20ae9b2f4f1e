"""What callers from Python give, checked where it comes in: a wrong type is a `UsageError` that says what is wanted."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import UsageError
from .formatting import format_value

__all__ = ["check_mapping", "path_of"]


def path_of(value: object, title: str) -> Path:
    """The path that a caller gave.

    Args:
        value: a str, or what has a path of str.
        title: names what it is the path of, with its article.

    Raises:
        UsageError: it is something else.
    """
    if isinstance(value, (str, os.PathLike)) and isinstance(path := os.fspath(value), str):
        return Path(path)
    raise UsageError(f"{format_value(value)} is not a path of {title}", hint="give a str or a pathlib.Path")


def check_mapping(value: object, values: type | tuple[type, ...], parameter: str, example: str) -> Mapping[str, Any]:
    """``value``, which is a mapping from texts to ``values``.

    Raises:
        UsageError: it is something else.
    """
    if isinstance(value, Mapping) and all(isinstance(k, str) and isinstance(v, values) for k, v in value.items()):
        return value
    raise UsageError(
        f"{format_value(value)} cannot be the {parameter} of a model", hint=f"for example {parameter}={example}"
    )
