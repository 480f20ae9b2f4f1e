"""What the metadata of a distribution say about a plugin, and errors that name it."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from types import FrameType, TracebackType
from typing import NamedTuple

from ..errors import PluginError
from ..version import __version__

__all__ = ["CORE", "GROUP", "PluginEntry", "brief", "normalised", "versions"]

GROUP = "uma.plugins"
"""The entry-point group: an entry point's name is the target kind that it serves."""

CORE = "uma-core"

_MAX_BRIEF_CHARS = 300


# A tuple, as those that finding plugins comes across are: importing dataclasses takes as long as reading all metadata.
class PluginEntry(NamedTuple):
    """What the metadata of a distribution say about one target kind.

    Args:
        kind: the target kind, the entry point's name.
        value: ``module`` or ``module:Class``.
        distribution, version: who installed it.
        requires: the distribution's ``Requires-Dist`` lines.
        location: the folder or archive on the path that has the metadata.
        editable: whether it was installed from a folder of sources, which it goes on using.
        hidden: other versions of the distribution, which are behind this one on the path: ``2.0 in FOLDER``.
    """

    kind: str
    value: str
    distribution: str
    version: str
    requires: tuple[str, ...] = ()
    location: str = ""
    editable: bool = False
    hidden: tuple[str, ...] = ()

    @property
    def shadow(self) -> str | None:
        """Return which version is used where several are installed, in a sentence; None where one is."""
        if not self.hidden:
            return None
        others = ", ".join(self.hidden)
        return f"{self.distribution} {self.version} in {self.location} is used, and hides {others}"

    @property
    def plugin(self) -> tuple[str, str]:
        """Identifies the plugin: entries of one distribution with one value are one plugin, which serves them all."""
        return self.distribution, self.value

    def is_called(self, name: str) -> bool:
        """Whether ``name``, in any spelling, is that of the distribution or of the entry point."""
        return normalised(name) in (normalised(self.distribution), normalised(self.kind))

    def fault(self, predicate: str, hint: str, cause: BaseException | None = None) -> PluginError:
        """An error that names the plugin, its version and the entry point.

        Args:
            predicate: a predicate: ``cannot be imported``.
            hint: what to do.
            cause: what the plugin raised; its text follows ``predicate``, and ``where`` begins with the place.
        """
        place = f"entry point `{self.kind} = {self.value}`, {versions()}"
        if isinstance(cause, PluginError):  # of a record that was made wrongly: it says itself what is wrong
            predicate, hint = f"{predicate}: {cause.what}", cause.hint or hint
            place = f"{cause.where}, {place}" if cause.where else place
        elif cause is not None:
            predicate = f"{predicate}: {brief(cause)}"
        if cause is not None and (raised := self.raised_at(cause)) is not None:
            place = f"{raised}, {place}"
        return PluginError(f"plugin {self.distribution} {self.version} {predicate}", where=place, hint=hint)

    @property
    def repair(self) -> str:
        """What to do where its installation is at fault."""
        name = self.distribution
        if self.editable:
            return f"install its sources once more (pip install -e FOLDER), or remove it (pip uninstall {name})"
        return f"repair it (pip install --force-reinstall {name}) or remove it (pip uninstall {name})"

    @property
    def report(self) -> str:
        """What to do where its code is at fault: whoever installed the sources themselves is its author."""
        if self.editable:
            return "it is an editable install: change its sources there, and run this again"
        return f"tell its authors, or look for a newer version: pip install --upgrade {self.distribution}"

    @property
    def mismatch(self) -> str:
        """What to do where it and the core do not fit each other."""
        if self.editable:
            return "it is an editable install: bring its sources to this core (docs/plugins.md, Versions)"
        return f"install a pair that fits: pip install --upgrade {CORE} {self.distribution}"

    def raised_at(self, error: BaseException) -> str | None:
        """The innermost place in the plugin's own code that an exception, or what caused it, went through."""
        package = self.value.partition(":")[0].partition(".")[0]
        place, cause = None, error.__cause__
        for frame, line in _frames(error.__traceback__):
            if str(frame.f_globals.get("__name__")).partition(".")[0] == package:
                place = f"{frame.f_code.co_filename}:{line} in {frame.f_code.co_name}"
        return self.raised_at(cause) or place if cause is not None else place


def _frames(traceback: TracebackType | None) -> Iterator[tuple[FrameType, int]]:
    while traceback is not None:
        yield traceback.tb_frame, traceback.tb_lineno
        traceback = traceback.tb_next


def normalised(name: str) -> str:
    """The name of a distribution as names are compared: without case, runs of ``-_.`` as one ``-``.

    https://packaging.python.org/en/latest/specifications/name-normalization
    """
    return re.sub(r"[-_.]+", "-", name).lower()


def versions() -> str:
    """What a report on a plugin has to say of this installation."""
    # The contract is a large module; who only lists plugins never comes here.
    from ..hookspecs import PLUGIN_API_VERSION

    api = ".".join(map(str, PLUGIN_API_VERSION))
    python = ".".join(map(str, sys.version_info[:3]))
    return f"with {CORE} {__version__}, plugin API {api}, Python {python}"


def brief(error: BaseException) -> str:
    """The exception's type and text on one short line; `traceback` copes with exceptions that cannot be printed."""
    import traceback  # finding plugins needs no such thing

    text = " ".join("".join(traceback.format_exception_only(type(error), error)).split())
    return text if len(text) <= _MAX_BRIEF_CHARS else f"{text[: _MAX_BRIEF_CHARS - 3]}..."
