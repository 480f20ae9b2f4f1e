"""Names that are bound late: functions of higher modules for lower ones, which the higher module sets here when it is
imported, and names of packages that are imported when they are first used."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

__all__ = ["installed_kinds", "lazy_names", "read_target"]

installed_kinds: Callable[[str], Any]
"""Gives the target kind or alias of a name, of the plugins that are installed; see `uma.targets.parsing.Kinds`."""

read_target: Callable[[object, Callable[[str], Any]], Any]
"""`uma.targets.parsing.read_target`, for `Target`, which that module builds."""


def lazy_names(
    package: str, names: Sequence[str], modules: Mapping[str, Sequence[str]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` of a package whose names are imported when they are first used.

    Args:
        package: its ``__name__``.
        names: its ``__all__``.
        modules: by relative name, the modules that define these names.
    """
    module_of = {name: module for module, defined in modules.items() for name in defined}

    def load(name: str) -> Any:
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(module_of[name], package), name)
        setattr(sys.modules[package], name, value)
        return value

    return load, lambda: sorted(names)
