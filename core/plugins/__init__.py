"""The plugin host: discovery of plugins, and dispatch of hooks to the one plugin that owns a target kind.

Discovery reads metadata only. A plugin is imported when one of its kinds is asked for, and gets a pluggy manager of
its own: nothing that it does reaches another plugin. What goes wrong with a plugin is a `PluginError` for those who
asked for its kinds, and nothing for anybody else.

One job a file: `entry` (what metadata say), `discovery` (finding them), `disabling` (who is not wanted),
`requirements` (which plugins a project requires),
`compatibility` and `api` (whom this core can run, by metadata and by what it was written for), `process_guard` (what a
plugin may not change), `loading` (from an entry to a plugin), `loaded` (calling its hooks), `hook_types` (the types of
their results), `hook_trace` (a report of each call), `host` (all of them together, and their states).

Names are imported when they are first used: finding plugins needs none of the compiler.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..support.late_binding import lazy_names

if TYPE_CHECKING:
    from .discovery import installed_plugins
    from .entry import GROUP, PluginEntry
    from .host import PluginHost, PluginStatus, default_host
    from .loaded import LoadedPlugin

__all__ = [
    "GROUP",
    "LoadedPlugin",
    "PluginEntry",
    "PluginHost",
    "PluginStatus",
    "default_host",
    "installed_plugins",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    __all__,
    {
        ".discovery": ("installed_plugins",),
        ".entry": ("GROUP", "PluginEntry"),
        ".host": ("PluginHost", "PluginStatus", "default_host"),
        ".loaded": ("LoadedPlugin",),
    },
)
