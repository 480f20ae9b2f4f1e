"""What is installed, as ``importlib.metadata`` of Python 3.12 tells it; below that, the package ``importlib-metadata``.

Importing it takes longer than reading what it reads: import this where it is used.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING or sys.version_info >= (3, 12):
    import importlib.metadata as library
else:
    import importlib_metadata as library

# No plugin's business: without __all__ this is not a public module.
Distribution = library.Distribution
PackageNotFoundError = library.PackageNotFoundError
distribution = library.distribution
distributions = library.distributions
files = library.files
metadata = library.metadata

_T = TypeVar("_T")


def read(distribution: Distribution, action: Callable[[Distribution], _T]) -> _T | None:
    """What ``action`` reads of a distribution; None where a file is gone, is not text, or says what it must not."""
    try:
        return action(distribution)
    except Exception:  # noqa: BLE001 - what the reader raises is told nowhere, and finders bring readers of their own
        return None


def headers(distribution: Distribution, *names: str) -> tuple[str | None, ...]:
    """The first header of each name in the metadata of a distribution; None where it is missing, or they are."""
    text = read(distribution, lambda one: one.metadata)
    return tuple(next(iter(text.get_all(name) or ()), None) if text is not None else None for name in names)
