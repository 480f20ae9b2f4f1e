"""Forms in which plugins hand an artifact on."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import PluginError
from ..targets.kind import shown

__all__ = ["Exporter"]

_NAME = re.compile(r"[a-z][a-z0-9_-]*(\.[a-z][a-z0-9_-]*)?")


@dataclass(frozen=True)
class Exporter:
    """A form in which an artifact can be handed on: what a tool, a board or a build system takes.

    Args:
        name: what ``uma export --format`` is given. It begins with one of the plugin's kinds: ``my_device.payload``.
        help: what it writes, in a few words.
        export: is called with the `uma.Artifact` and an empty folder, into which it writes. The folder becomes the one
            that the user named once this returns; if it raises, nothing is left. A `uma.errors.UsageError` says that
            the artifact has no such form, and why.

    Raises:
        PluginError: a field is malformed.
    """

    name: str
    help: str
    # The class of artifacts is of a layer above: functions that say `artifact: uma.Artifact` are what is meant.
    export: Callable[[Any, Path], object]

    def __post_init__(self) -> None:
        name: object = self.name
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise PluginError(f"{shown(name)} cannot name an exporter", hint='a name looks like "my_device.payload"')
        said: object = self.help
        if not isinstance(said, str) or not said.strip() or not said.isprintable():
            raise PluginError(f"help of exporter {name!r} is {shown(said)}, not a line of text")
        if not callable(self.export):
            raise PluginError(
                f"export of exporter {name!r} is {shown(self.export)}, not a function of artifact, folder"
            )
