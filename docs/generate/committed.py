"""What is made from the code and kept in the repository all the same."""

from __future__ import annotations

from .pictures import pictures
from .site import PAGES
from .tables import attributes, operators, platforms, renames

__all__ = ["committed"]


def committed() -> dict[str, str]:
    """The files by their paths below ``docs/``."""
    made = {"operators.md": operators(), "platforms.md": platforms(), "moving-to-0.7.md": renames()}
    made["targets.md"] = attributes((PAGES / "targets.md").read_text(encoding="utf-8"))
    return made | {f"pictures/{name}": text for name, text in pictures().items()}
