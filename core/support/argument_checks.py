"""What callers from Python give, checked where it comes in: a wrong type is a `UsageError` that says what is wanted."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import UsageError

__all__ = ["check_mapping", "path_of", "told"]


def told(value: object) -> str:
    """A value that is no good, in few words."""
    if value is None or isinstance(value, (bool, int, float)) or (isinstance(value, (str, bytes)) and len(value) < 40):
        return repr(value)
    return f"a value of type {type(value).__name__}"


def path_of(given: object, what: str) -> Path:
    """The path that a caller gave.

    Args:
        given: a str, or what has a path of str.
        what: names what it is the path of, with its article.

    Raises:
        UsageError: it is something else.
    """
    if isinstance(given, (str, os.PathLike)) and isinstance(path := os.fspath(given), str):
        return Path(path)
    raise UsageError(f"{told(given)} is no path of {what}", hint="give a str or a pathlib.Path")


def check_mapping(given: object, values: type | tuple[type, ...], what: str, example: str) -> Mapping[str, Any]:
    """``given``, which is a mapping from texts to ``values``.

    Raises:
        UsageError: it is something else.
    """
    if isinstance(given, Mapping) and all(isinstance(k, str) and isinstance(v, values) for k, v in given.items()):
        return given
    raise UsageError(f"{told(given)} cannot be the {what} of a model", hint=f"for example {what}={example}")
