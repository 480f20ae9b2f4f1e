"""Functions of higher modules for lower ones: the higher module sets them here when it is imported."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["installed_kinds", "read_target"]

installed_kinds: Callable[[str], Any]
"""Gives the target kind or alias of a name, of the plugins that are installed; see `uma.targets.parsing.Kinds`."""

read_target: Callable[[object, Callable[[str], Any]], Any]
"""`uma.targets.parsing.read_target`, for `Target`, which that module builds."""
