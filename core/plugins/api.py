"""Whether a plugin and this core fit each other, by the API that the plugin, which was imported, was written for.

The policy of versions is that of `uma.hookspecs`.
"""

from __future__ import annotations

import inspect

from .. import hookspecs
from ..errors import PluginError
from .entry import PluginEntry
from .moves import declared_in_sources, used_renames

__all__ = ["API_ATTRIBUTE", "declared_api", "later_api", "refuse_earlier_sources"]

API_ATTRIBUTE = "UMA_PLUGIN_API"
"""Of a plugin's module or class: major and minor version of the plugin API that it was written for."""


def declared_api(entry: PluginEntry, plugin: object) -> tuple[int, int] | None:
    """The version of the plugin API that a plugin, which was imported, was written for; None where it does not say.

    Args:
        entry: of the plugin.
        plugin: the module or object that may have `API_ATTRIBUTE`.

    Raises:
        PluginError: what it says is not a version, has another major version than this one, or is from before a break.
    """
    wanted = inspect.getattr_static(plugin, API_ATTRIBUTE, None)
    if wanted is None:
        return None
    if not (isinstance(wanted, tuple) and len(wanted) == 2 and all(type(part) is int and part >= 0 for part in wanted)):
        hint = f"{API_ATTRIBUTE} = {hookspecs.PLUGIN_API_VERSION}, in numbers; {entry.report}"
        raise entry.fault(f"has an {API_ATTRIBUTE} that is not a pair of major and minor version", hint)
    major, minor = wanted
    if major != hookspecs.PLUGIN_API_VERSION[0]:
        raise entry.fault(_is_for(wanted), entry.mismatch)
    if wanted < hookspecs.LAST_BREAKING_VERSION:
        raise _earlier(entry, wanted)
    return major, minor


def refuse_earlier_sources(entry: PluginEntry) -> None:
    """Refuse a plugin that could not be imported, where its sources declare a version before the last break.

    Raises:
        PluginError: they do. The hint lists the names that its sources use and that were renamed.
    """
    declared = declared_in_sources(entry, API_ATTRIBUTE)
    if isinstance(declared, tuple) and (0,) <= declared < hookspecs.LAST_BREAKING_VERSION:
        raise _earlier(entry, declared)


def _earlier(entry: PluginEntry, api: tuple[int, ...]) -> PluginError:
    version = "{}.{}".format(*hookspecs.LAST_BREAKING_VERSION)
    rows = "".join(f"; {row}" for row in used_renames(entry))
    hint = f"{entry.mismatch}; its authors find the renamed names in docs/moving-to-{version}.md{rows}"
    return entry.fault(f"{_is_for(api)}, and {version} broke with what was before", hint)


def later_api(entry: PluginEntry, api: tuple[int, int] | None) -> str | None:
    """What there is to say where a plugin was written for a later minor version, and may or may not work."""
    if api is None or api <= hookspecs.PLUGIN_API_VERSION:
        return None
    return f"plugin {entry.distribution} {entry.version} {_is_for(api)}: it may ask for more"


def _is_for(api: tuple[int, ...]) -> str:
    return "is for plugin API {}.{}, this is {}.{}".format(*api, *hookspecs.PLUGIN_API_VERSION)
