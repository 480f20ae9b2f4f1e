"""Forms that an artifact is handed on in, by their names: those of build systems, and those that plugins bring."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import UsageError
from ...runtime.objects import change_since_written, write_digests
from ...targets.values import shown, suggest
from ..folder import written_whole
from .systems import SYSTEMS

if TYPE_CHECKING:
    from ...contract.exporter import Exporter
    from ...plugins import LoadedPlugin, PluginHost
    from ..artifact import Artifact

__all__ = ["EXPORT_DIGESTS", "export"]

EXPORT_DIGESTS = ".uma-export.json"
"""In an export, the digests of its files. Only an export that still has exactly these files is replaced."""


def export(artifact: Artifact, name: str, path: Path, host: PluginHost | None = None) -> Path:
    """Write an artifact as the folder ``path``, in the form ``name``; see `Artifact.export`."""
    if host is None:
        from ...plugins import default_host

        host = default_host()
    plugin, exporter = _find(artifact, name, host)
    with written_whole(path, "the export", _refuse_to_replace) as staged:
        _refuse_to_replace(Path(os.path.realpath(path)))  # before the work as well
        if plugin is None:
            exporter.export(artifact, staged)
        else:
            plugin.run(f"exporter {name}", functools.partial(exporter.export, artifact, staged))
            if not any(staged.iterdir()):
                raise plugin.fault(f"wrote nothing in exporter {name}")
        write_digests(staged, EXPORT_DIGESTS)
    return Path(os.path.realpath(path))


def _find(artifact: Artifact, name: object, host: PluginHost) -> tuple[LoadedPlugin | None, Exporter]:
    """The exporter of that name, and its plugin, which is the only one that is imported; None for one of the core."""
    if isinstance(name, str) and name in SYSTEMS:
        return None, SYSTEMS[name]
    kind, dot, _ = name.partition(".") if isinstance(name, str) else ("", "", "")
    there: Mapping[str, Exporter] = {}
    if dot and host.promises(kind):
        plugin = host.plugin_for(kind)
        there = _exporters(plugin)
        if name in there:
            return plugin, there[name]
    every = {**SYSTEMS, **there}
    for plugin in _builders(artifact, host):
        every |= _exporters(plugin)
    guess = suggest(name, every) if isinstance(name, str) else ""
    listing = "; ".join(f"{one.name} ({one.help})" for one in every.values())
    raise UsageError(
        "the format to export to is missing" if name == "" else f"there is no format {shown(name)} to export to",
        where=artifact.name,
        hint=f"{guess}for this artifact there is: {listing}",
    )


def _exporters(plugin: LoadedPlugin) -> dict[str, Exporter]:
    return plugin.index_by_name("exporter", plugin.call("exporters") or (), lambda exporter: exporter.name)


def _builders(artifact: Artifact, host: PluginHost) -> list[LoadedPlugin]:
    """The plugins that the artifact was built with, as far as they are here and can be used; imports them."""
    here = {status.entry.distribution for status in host.plugins()}
    wanted = [name for name in artifact.record.plugins if name in here]
    return [status.plugin for name in wanted for status in host.examine(name) if status.plugin is not None]


def _refuse_to_replace(folder: Path) -> None:
    """UsageError unless ``folder`` is free, empty, or an export with exactly the files that were written."""
    if not os.path.lexists(folder) or (folder.is_dir() and not any(folder.iterdir())):
        return
    if not (folder / EXPORT_DIGESTS).is_file():
        text, hint = "there is something already", "name a folder that is new, empty or an export"
        raise UsageError(text, where=str(folder), hint=hint)
    if (change := change_since_written(folder, EXPORT_DIGESTS)) is not None:
        hint = "choose another folder, or move the file away; to remove the export, delete the folder"
        raise UsageError(f"the export there may not be replaced: {change}", where=str(folder), hint=hint)
