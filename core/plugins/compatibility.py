"""Whether a plugin and this core fit each other, by the plugin's metadata: nothing is imported."""

from __future__ import annotations

import re

from ..version import __version__
from .entry import CORE, PluginEntry

__all__ = ["check_requirement", "core_requirement"]

# What an artifact can name as the version of a plugin that made it: see artifact_schema.json.
_VERSION = re.compile(r"[0-9A-Za-z][0-9A-Za-z.+!_-]{0,99}")
_REQUIRES_CORE = re.compile(r"uma[-_.]+core(?![A-Za-z0-9_.-])", re.IGNORECASE)


def core_requirement(entry: PluginEntry) -> str | None:
    """What the plugin's metadata say of uma-core, None where they say nothing."""
    return next((line for line in entry.requires if _REQUIRES_CORE.match(line)), None)


def check_requirement(entry: PluginEntry) -> None:
    """See that the metadata of a plugin, which was not imported yet, admit this uma-core.

    Raises:
        PluginError: they do not, or cannot be understood.
    """
    if not _VERSION.fullmatch(entry.version):
        raise entry.fault("has metadata without a version: was it removed half-way?", entry.repair)
    if not entry.value:
        raise entry.fault("has entry points that cannot be read, or that lead nowhere", entry.repair)
    lines = [line for line in entry.requires if _REQUIRES_CORE.match(line)]
    if not lines:
        return
    from packaging.requirements import Requirement

    for line in lines:
        try:
            requirement = Requirement(line)
            applies = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
        except ValueError as error:  # no requirement, or a marker that cannot be compared
            raise entry.fault(f"has metadata that cannot be read: {line[:100]!r}", entry.repair) from error
        if applies and not requirement.specifier.contains(__version__, prereleases=True):
            text = f"needs {CORE}{requirement.specifier}, this is {CORE} {__version__}"
            raise entry.fault(text, entry.mismatch)
