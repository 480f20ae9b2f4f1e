"""Finding plugins: what the metadata of installed distributions say. Nothing is imported.

Folders of the path are read here: importing the standard library's reader takes longer than all of that. It is asked
for what else there may be: archives on the path, and finders of other kinds.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from .entry import GROUP, PluginEntry, normalised

if TYPE_CHECKING:
    from importlib.metadata import Distribution

__all__ = ["installed_plugins", "installed_version"]

_SUFFIXES = (".dist-info", ".egg-info")


class _Metadata(NamedTuple):
    """The metadata of one distribution.

    Args:
        name: that of their folder, normalised; empty where it has none.
        location: what holds the folder.
        read_text: the text of a file in it; raises `OSError` or `ValueError`, or gives None, where there is none.
    """

    name: str
    location: str
    read_text: Callable[[str], str | None]

    def read(self, file: str) -> str:
        """The text of a file; an empty one where there is none, or it is no text."""
        try:
            return self.read_text(file) or ""
        except (OSError, ValueError):
            return ""


def installed_plugins() -> list[PluginEntry]:
    """Every entry point of `GROUP`, from the metadata of what is installed; imports no plugin.

    Of distributions with one name, in any spelling, the first on the path counts, as it does when they are imported.
    What cannot be read of one distribution is that one's loss: the others are found all the same.
    """
    entries: list[PluginEntry] = []
    seen: set[str] = set()
    for metadata in _installed():
        if not metadata.name or metadata.name not in seen:
            seen.add(metadata.name)
            entries += _entries(metadata)
    return entries


def installed_version(entry: PluginEntry) -> str | None:
    """The version that the metadata of a plugin say now, None where it is gone.

    Where they are in no folder, it is taken to be what it was.
    """
    if not os.path.isdir(entry.location):
        return entry.version
    # Those of its name come first: others are read only where it is gone.
    own = normalised(entry.distribution)
    everything = sorted(_in_folder(entry.location), key=lambda metadata: metadata.name != own)
    found = (one for metadata in everything for one in _entries(metadata))
    return next((one.version for one in found if (one.kind, one.plugin) == (entry.kind, entry.plugin)), None)


def _installed() -> Iterator[_Metadata]:
    """Of each distribution, in the order of the path, then of other finders."""
    for place in map(str, sys.path):  # some put a Path there
        if os.path.isdir(place or ".") and not place.endswith(".egg"):
            yield from _in_folder(place or os.getcwd())
        elif os.path.exists(place):
            from importlib.metadata import distributions

            yield from map(_of, distributions(path=[place]))
    for finder in sys.meta_path:
        find = getattr(finder, "find_distributions", None)
        if find is not None and getattr(finder, "__name__", None) != "PathFinder":
            from importlib.metadata import DistributionFinder

            yield from map(_of, find(DistributionFinder.Context()))


def _in_folder(folder: str) -> Iterator[_Metadata]:
    try:
        names = sorted(name for name in os.listdir(folder) if name.lower().endswith(_SUFFIXES))
    except OSError:  # it may be searched, but not listed
        return
    # pip renames what it removes to ~NAME first; what it could not remove after that is no distribution any more.
    for name in (name for name in names if not name.startswith("~")):
        path = os.path.join(folder, name)
        yield _Metadata(_stem(name), folder, partial(_text, path))


def _text(folder: str, file: str) -> str:
    with open(os.path.join(folder, file), encoding="utf-8") as opened:
        return opened.read()


def _of(distribution: Distribution) -> _Metadata:
    # Where the metadata are is known to the class alone; without it they have a name all the same.
    path = str(getattr(distribution, "_path", "")).rstrip("/")
    location = str(distribution.locate_file("")).rstrip("/")
    return _Metadata(_stem(os.path.basename(path)), location, distribution.read_text)


def _stem(folder: str) -> str:
    """The name in ``name-version.dist-info``, ``name.egg-info`` or ``name-version-python.egg-info``."""
    stem, _, suffix = folder.rpartition(".")
    name = stem.rpartition("-")[0] if suffix.lower() == "dist-info" else stem.partition("-")[0]
    return normalised(name or stem)


def _points(text: str) -> Iterator[tuple[str, str]]:
    """Names and values of the entry points of `GROUP`. A line that is none is a name without value."""
    section = None
    for line in map(str.strip, text.splitlines()) if GROUP in text else ():
        if line.startswith("[") and line.endswith("]"):
            section = line[1:-1].strip()
        elif section == GROUP and line and line[0] not in "#;":
            name, _, value = line.partition("=")
            yield name.strip(), value.partition("[")[0].strip()


def _entries(metadata: _Metadata) -> list[PluginEntry]:
    points = list(_points(metadata.read("entry_points.txt")))
    if not points:
        return []
    headers = list(_headers(metadata.read("METADATA") or metadata.read("PKG-INFO")))
    # A distribution that was removed half-way may have entry points, but no metadata any more.
    name = next((value for header, value in headers if header == "name"), metadata.name or "(no name)")
    version = next((value for header, value in headers if header == "version"), "(no version)")
    requires = tuple(value for header, value in headers if header == "requires-dist")
    if not requires:  # of an egg: behind the first section are those that hold under conditions
        lines = metadata.read("requires.txt").partition("[")[0].splitlines()
        requires = tuple(filter(None, map(str.strip, lines)))
    location, editable = metadata.location, _is_editable(metadata)
    return [PluginEntry(kind, value, name, version, requires, location, editable) for kind, value in points]


def _headers(text: str) -> Iterator[tuple[str, str]]:
    """https://packaging.python.org/en/latest/specifications/core-metadata: headers as of mail, before the first gap."""
    for line in text.split("\n"):
        if not line.strip():
            return
        header, _, value = line.partition(":")
        yield header.lower(), value.strip()


def _is_editable(metadata: _Metadata) -> bool:
    """https://packaging.python.org/en/latest/specifications/direct-url"""
    text = metadata.read("direct_url.json")
    if "editable" not in text:
        return False
    import json

    try:
        return bool(json.loads(text)["dir_info"]["editable"])
    except (KeyError, TypeError, ValueError):
        return False
