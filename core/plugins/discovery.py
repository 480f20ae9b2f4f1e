"""Finding plugins: what the metadata of installed distributions say. Nothing is imported."""

from __future__ import annotations

import importlib
import json
import os
import re
import sys
from collections.abc import Sequence
from itertools import chain

from ..support.package_metadata import Distribution, distributions, headers, read
from .entry import GROUP, PluginEntry, normalised

__all__ = ["installed_plugins", "installed_version"]

_FOLDER = re.compile(r"(?:(?P<name>.+?)(?:-[^-]*)?\.dist-info|(?P<egg>[^-]+).*\.egg-info)", re.IGNORECASE)


def installed_plugins(group: str = GROUP) -> list[PluginEntry]:
    """Every entry point of a group, from the metadata of what is installed; imports no plugin.

    Of distributions with one name, in any spelling, the first on the path counts, as it does when they are imported.
    What cannot be read of one distribution is that one's loss: the others are found all the same.
    """
    entries: list[PluginEntry] = []
    seen: set[str] = set()
    later: dict[str, list[Distribution]] = {}
    for distribution in distributions(path=[*map(str, sys.path)]):  # some put a Path there
        name = _name(distribution)
        if name in seen:
            later.setdefault(name, []).append(distribution)
            continue
        if name:
            seen.add(name)
        entries += _entries(distribution, group)
    return [_with_hidden(entry, later.get(normalised(entry.distribution), ())) for entry in entries]


def _with_hidden(entry: PluginEntry, later: Sequence[Distribution]) -> PluginEntry:
    """An entry that names the other versions of its distribution."""
    versions = [(headers(one, "Version")[0], str(one.locate_file("")).rstrip("/")) for one in later]
    hidden = [f"{version} in {folder}" for version, folder in versions if version not in (None, entry.version)]
    return entry._replace(hidden=tuple(hidden)) if hidden else entry


def installed_version(entry: PluginEntry) -> str | None:
    """The version that the metadata of a plugin say now, None where it is gone.

    Where they are in no folder, it is taken to be what it was.
    """
    if not os.path.isdir(entry.location):
        return entry.version
    importlib.invalidate_caches()  # folders are listed anew only when their times differ, which are coarse
    path = [entry.location]
    # Those of its name come first: others are read only where it is gone.
    everything = chain(distributions(name=entry.distribution, path=path), distributions(path=path))
    entries = (one for distribution in everything for one in _entries(distribution, GROUP))
    return next((one.version for one in entries if (one.kind, one.plugin) == (entry.kind, entry.plugin)), None)


def _name(package: Distribution) -> str:
    """The name of a distribution, normalised: that in ``name-version.dist-info``, ``name.egg-info`` or
    ``name-version-python.egg-info``, which stays when a file is gone; empty where there is none."""
    # Where the metadata are is known to the class alone.
    folder = _FOLDER.fullmatch(os.path.basename(str(getattr(package, "_path", "")).rstrip("/")))
    return normalised((folder["name"] or folder["egg"]) if folder else headers(package, "Name")[0] or "")


def _entries(package: Distribution, group: str) -> list[PluginEntry]:
    points, folder = _points(package, group), _name(package)
    # pip renames what it removes to ~NAME first; what it could not remove after that is not a distribution any more.
    if not points or folder.startswith("~"):
        return []
    # A distribution that was removed half-way may have entry points, but no metadata any more.
    name, version = headers(package, "Name", "Version")
    name, version = name or folder or "(no name)", version or "(no version)"
    requires = tuple(read(package, lambda one: one.requires or []) or ())
    location, editable = str(package.locate_file("")).rstrip("/"), _is_editable(package)
    return [PluginEntry(kind or name, value, name, version, requires, location, editable) for kind, value in points]


def _points(package: Distribution, group: str) -> list[tuple[str, str]]:
    """Names and values of the entry points of a group; where their list cannot be understood, one without both."""
    points = read(package, lambda one: [(point.name, point.value) for point in one.entry_points.select(group=group)])
    if points is None:
        return [("", "")] if group in (read(package, lambda one: one.read_text("entry_points.txt")) or "") else []
    return [(name, value.partition("[")[0].strip()) for name, value in points]


def _is_editable(package: Distribution) -> bool:
    """https://packaging.python.org/en/latest/specifications/direct-url"""
    return bool(read(package, lambda one: json.loads(one.read_text("direct_url.json") or "")["dir_info"]["editable"]))
