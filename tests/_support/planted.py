"""Plugins with a mistake: copies of one that is in the repository, in which a few lines are others."""

from __future__ import annotations

import importlib.util
import itertools
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from uma.plugins import PluginEntry, PluginHost, default_host
from uma.plugins.discovery import installed_plugins
from uma.targets import TargetKind
from uma.testing.subject import Subject, find_subjects

from .plugins import entry_of

__all__ = ["Edit", "host_entries", "planted", "stand_in", "subject_of"]

ROOT = Path(__file__).resolve().parent.parent.parent

Edit = tuple[str, str, str]
"""A file of the package, a text in it, and what stands there instead."""

_numbers = itertools.count()


def planted(folder: Path, package: str, edits: Sequence[Edit]) -> PluginHost:
    """Where targets come from: what is installed, but of one plugin a copy with edits.

    Args:
        folder: where the copy goes.
        package: of the plugin: ``uma_matrix_unit``.
        edits: what is different; each text must be there.
    """
    (source,) = ROOT.glob(f"*/*/src/{package}")
    name = f"planted_{next(_numbers)}_{package}"
    target = folder / name
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    for file, old, new in edits:
        path = target / file
        text = path.read_text(encoding="utf-8")
        assert old in text, f"{file} has no {old!r}"
        path.write_text(text.replace(old, new, 1), encoding="utf-8")
    spec = importlib.util.spec_from_file_location(
        name, target / "__init__.py", submodule_search_locations=[str(target)]
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    entries: list[PluginEntry] = []
    for entry in installed_plugins():
        ours = entry.value.partition(":")[0] == package
        # The copy is installed nowhere, so that there are no metadata of it that could change.
        copied = entry._replace(value=entry.value.replace(package, name), location="")
        entries.append(copied if ours else entry)
    return PluginHost(lambda: entries)


def subject_of(host: PluginHost, plugin: str, folder: Path, layers: int = 60, seed: int = 0) -> Subject:
    """The first target of a plugin, to be checked."""
    return find_subjects(plugin, plugins=host, folder=folder, layers=layers, seed=seed)[0]


def stand_in(*kinds: TargetKind, **hooks: Callable[..., Any]) -> PluginHost:
    """Where a plugin of this test is beside those that are installed."""
    entries = entry_of(*kinds, **hooks)
    installed = host_entries(default_host())
    return PluginHost(lambda: [*installed, *entries])


def host_entries(host: PluginHost) -> tuple[PluginEntry, ...]:
    """What a host knows of plugins."""
    return host._discovery.entries
