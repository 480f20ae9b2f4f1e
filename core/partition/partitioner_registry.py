"""Partitioners by name: `eager`, and what distributions bring as entry points of the group ``uma.partitioners``."""

from __future__ import annotations

import importlib
from dataclasses import dataclass

from ..errors import PluginError, UsageError
from ..plugins.compatibility import check_requirement
from ..plugins.disabling import disabled_names
from ..plugins.discovery import installed_plugins
from ..plugins.entry import PluginEntry
from ..targets.values import shown, suggest
from .candidates import Problem
from .collage import Collage
from .decision_check import Partitioner, Regions
from .eager import eager

__all__ = ["GROUP", "find_partitioner", "named_partitioner", "partitioner_names"]

GROUP = "uma.partitioners"
"""The entry-point group: an entry point's name is that of the partitioner, its value ``module:function``."""

_OWN: dict[str, Partitioner] = {"eager": eager, "collage": Collage()}


@dataclass(frozen=True)
class _Named:
    """A partitioner that an entry point leads to."""

    entry: PluginEntry
    function: Partitioner

    def __call__(self, problem: Problem) -> Regions:
        return self.function(problem)

    def __str__(self) -> str:
        return f"partitioner {self.entry.kind!r} of plugin {self.entry.distribution} {self.entry.version}"


def find_partitioner(choice: str | Partitioner) -> Partitioner:
    """What is meant by ``partition`` of a build: a partitioner, or the name of one.

    Raises:
        UsageError: there is none of that name, or it is neither a name nor a function.
        PluginError: two plugins have that name, or the one that has it cannot be imported, or is not a function.
    """
    if not isinstance(choice, str):
        function: object = choice
        if not callable(function):
            hint = "a name, or a function from a uma.partition.Problem to regions"
            raise UsageError(f"{shown(function)} is not a partitioner", hint=hint)
        return choice
    if choice in _OWN:
        return _OWN[choice]
    entries = [entry for entry in _installed() if entry.kind == choice]
    if not entries:
        names = partitioner_names()
        hint = f"{suggest(choice, names)}there are {', '.join(names)}; a plugin may bring others"
        raise UsageError(f"there is no partitioner {shown(choice)}", hint=hint)
    if len(entries) > 1:
        owners = " and ".join(f"{entry.distribution} {entry.version}" for entry in entries)
        hint = "keep one of them: remove the rest (pip uninstall PLUGIN)"
        raise PluginError(f"{owners} both have a partitioner {choice!r}", where=f"entry points of {GROUP}", hint=hint)
    return _Named(entries[0], _imported(entries[0]))


def named_partitioner(partitioner: Partitioner) -> str | None:
    """Return the name by which `find_partitioner` gives ``partitioner``; None for a function of the caller's."""
    if isinstance(partitioner, _Named):
        return partitioner.entry.kind
    return next((name for name, function in _OWN.items() if function == partitioner), None)


def partitioner_names() -> list[str]:
    """The names that `find_partitioner` knows, in alphabetical order; imports no plugin."""
    return sorted({*_OWN, *(entry.kind for entry in _installed())})


def _installed() -> list[PluginEntry]:
    disabled = disabled_names(())
    return [entry for entry in installed_plugins(GROUP) if not any(entry.is_called(name) for name in disabled)]


def _imported(entry: PluginEntry) -> Partitioner:
    check_requirement(entry)
    module, _, path = entry.value.partition(":")
    try:
        value: object = importlib.import_module(module)
        for name in filter(None, path.split(".")):
            value = getattr(value, name)
    except Exception as error:
        raise entry.fault("cannot be imported", entry.repair, error) from error
    if not callable(value):
        raise entry.fault(f"has {shown(value)} as a partitioner, which is not a function", entry.report)
    return value
