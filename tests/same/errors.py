"""The error of the tool."""

from __future__ import annotations

__all__ = ["SameError"]


class SameError(Exception):
    """A run cannot start or go on.

    Args:
        problem: what is wrong, and where.
        hint: how to fix it.
    """

    def __init__(self, problem: str, hint: str) -> None:
        super().__init__(f"{problem}\n  hint: {hint}")
