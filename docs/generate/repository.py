"""The plugins of this repository: those of plugins/ and examples/, installed or not."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from uma.plugins import PluginEntry, PluginHost
from uma.version import __version__

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["ROOT", "Project", "host_of", "projects"]

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Project:
    """A plugin's project.

    Args:
        folder: where it is, from the root on.
        name: of the distribution.
        help: one line.
        requires: what it depends on.
        entries: what its metadata will say.
        keywords: the keywords of its metadata.
    """

    folder: str
    name: str
    help: str
    requires: tuple[str, ...]
    entries: tuple[PluginEntry, ...]
    keywords: tuple[str, ...] = ()


def projects() -> list[Project]:
    """All of them, by name."""
    found = []
    for file in (*ROOT.glob("plugins/*/pyproject.toml"), *ROOT.glob("examples/*/pyproject.toml")):
        project = tomllib.loads(file.read_text(encoding="utf-8"))["project"]
        name, requires = project["name"], tuple(project.get("dependencies", ()))
        points = project.get("entry-points", {}).get("uma.plugins", {})
        version = project.get("version", __version__)
        entries = tuple(PluginEntry(kind, value, name, version, requires) for kind, value in sorted(points.items()))
        folder = file.parent.relative_to(ROOT).as_posix()
        found.append(Project(folder, name, project["description"], requires, entries, tuple(project["keywords"])))
    return sorted(found, key=lambda project: project.name)


def host_of(found: list[Project]) -> PluginHost:
    """A host of these plugins and no others; their sources are made importable."""
    for project in found:
        source = str(ROOT / project.folder / "src")
        if source not in sys.path:
            sys.path.insert(0, source)
    return PluginHost(lambda: [entry for project in found for entry in project.entries])
