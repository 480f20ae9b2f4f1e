"""What low layers need of high ones, handed down by the top of the house when `uma` is imported."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["installed_kinds"]

installed_kinds: Callable[[str], Any]
"""Gives the target kind or alias of a name, of the plugins that are installed; see `uma.targets.parsing.Kinds`."""
