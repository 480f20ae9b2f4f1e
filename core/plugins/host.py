"""The plugins of one environment: who serves a target kind, and in which state each plugin is."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from ..errors import PluginError, UnknownKindError, UsageError
from .compatibility import check_requirement, core_requirement
from .disabling import disabled_names
from .discovery import installed_plugins
from .entry import GROUP, PluginEntry
from .requirements import check_required

# Everything else is imported where it is used: finding plugins, and saying which there are, needs no compiler.
if TYPE_CHECKING:
    from ..targets import Alias, Target, TargetKind
    from .loaded import LoadedPlugin

__all__ = ["PluginHost", "PluginStatus", "State", "default_host"]

State: TypeAlias = Literal["found", "compatible", "loaded", "active", "disabled", "quarantined"]


class PluginStatus(NamedTuple):
    """What is known of one plugin.

    Args:
        entries: its entry points, sorted; all of one distribution, with one value.
        state: ``found``: its metadata do not say which uma-core it needs; ``compatible``: they admit this one; neither
            was imported; ``loaded``: it was imported and keeps to the contract; ``active``: it took part in a build of
            this process; ``disabled``: somebody does not want it; ``quarantined``: it cannot be used.
        reason: why it is disabled or quarantined, or which of its kinds cannot be used; None where all is well.
        error: that it is quarantined for.
        plugin: what was loaded.
    """

    entries: tuple[PluginEntry, ...]
    state: State
    reason: str | None = None
    error: PluginError | None = None
    plugin: LoadedPlugin | None = None

    @property
    def entry(self) -> PluginEntry:
        """The first of its entry points."""
        return self.entries[0]


class _Found(NamedTuple):
    """What discovery gave.

    Args:
        entries: all of them, sorted.
        disabled: those that are not wanted, and by whom, in words.
        unknown: names that are disabled, and by whom, though no plugin has them.
    """

    entries: tuple[PluginEntry, ...]
    disabled: Mapping[PluginEntry, str]
    unknown: Mapping[str, str]


class PluginHost:
    """The plugins of one environment.

    Args:
        discover: gives the entries that are installed (default: `installed_plugins`); called once, when the first
            kind is asked for.
        disabled: names of distributions or entry points, in any spelling, of plugins that are as if they were not
            there; besides those that ``UMA_DISABLE_PLUGINS`` and the project name.
    """

    def __init__(
        self, discover: Callable[[], Iterable[PluginEntry]] | None = None, *, disabled: Iterable[str] = ()
    ) -> None:
        self._discover = discover or installed_plugins
        self._disabled = tuple(disabled)
        self._plugins: dict[tuple[str, str], LoadedPlugin | PluginError] = {}
        self._loading: set[tuple[str, str]] = set()
        # One plugin at a time: an import that failed is not tried again, not even by another thread.
        self._lock = threading.RLock()

    @functools.cached_property
    def _discovery(self) -> _Found:
        # An installation may list one entry point twice; the order of site-packages must not matter.
        entries = tuple(sorted(set(self._discover())))
        disabled: dict[PluginEntry, str] = {}
        unknown = {}
        for name, by in disabled_names(self._disabled).items():
            hit = {entry.plugin for entry in entries if entry.is_called(name)}
            disabled |= {entry: by for entry in entries if entry.plugin in hit}
            if not hit:
                unknown[name] = by
        return _Found(entries, disabled, unknown)

    @property
    def _usable(self) -> tuple[PluginEntry, ...]:
        return tuple(entry for entry in self._discovery.entries if entry not in self._discovery.disabled)

    @property
    def unknown_disabled(self) -> tuple[tuple[str, str], ...]:
        """Names that are disabled, and by whom, in words, though no plugin here has them."""
        return tuple(self._discovery.unknown.items())

    def check_required(self) -> None:
        """Check that the plugins that the project requires are here, by metadata alone.

        Raises:
            ProjectError: the setting ``require-plugins`` of the project is malformed.
            RequirementError: plugins are missing, disabled or of another version; names all of them.
        """
        check_required(self._discovery.entries, self._discovery.disabled)

    def without(self, *names: str) -> PluginHost:
        """The same environment less some plugins, by names of distributions or entry points.

        Raises:
            UsageError: there is no such plugin.
        """
        for name in names:
            self._called(name)
        entries = self._discovery.entries  # are not read again
        return PluginHost(lambda: entries, disabled=(*self._disabled, *names))

    def names(self) -> tuple[str, ...]:
        """The kinds that installed plugins promise, sorted; imports no plugin."""
        return tuple(sorted({entry.kind for entry in self._usable}))

    def promises(self, kind: str) -> bool:
        """Whether an installed plugin, disabled or not, has an entry point of this name; imports no plugin."""
        return any(entry.kind == kind for entry in self._discovery.entries)

    def plugins(self) -> tuple[PluginStatus, ...]:
        """Every plugin as it is now, sorted by distribution; imports none."""
        keys = dict.fromkeys(sorted(entry.plugin for entry in self._discovery.entries))
        return tuple(self._status(key) for key in keys)

    def examine(self, name: str | None = None) -> tuple[PluginStatus, ...]:
        """Import what is called ``name``, or all plugins, and tell how each of them is.

        Args:
            name: of a distribution or of an entry point, in any spelling.

        Raises:
            UsageError: there is no such plugin. What is wrong with one that there is, its status says.
        """
        keys = [status.entry.plugin for status in self.plugins()] if name is None else self._called(name)
        for key in keys:
            if self._status(key).state != "disabled":
                self._load(key)
        return tuple(self._status(key) for key in keys)

    def set_aside(self, entry: PluginEntry, how: str) -> PluginError:
        """Quarantine the plugin of an entry, without importing it, and return the error.

        Args:
            entry: one of its entry points.
            how: what it does to a process that imports it, as a predicate: ``ended the process with status 3``.
        """
        name = entry.distribution
        hint = f"disable it (UMA_DISABLE_PLUGINS={name}), and tell its authors"
        error = entry.fault(f"{how} when it was imported and asked for its kinds", hint)
        self._plugins[entry.plugin] = error
        return error

    def _called(self, name: str) -> list[tuple[str, str]]:
        entries = self._discovery.entries
        keys = dict.fromkeys(entry.plugin for entry in entries if entry.is_called(name))
        if not keys:
            from ..targets.values import shown, suggest

            names = list(dict.fromkeys(name for entry in entries for name in (entry.distribution, entry.kind)))
            installed = f"installed: {', '.join(names)}" if names else "no plugin is installed"
            raise UsageError(f"there is no plugin {shown(name)}", hint=f"{suggest(name, names)}{installed}")
        return list(keys)

    def _status(self, key: tuple[str, str]) -> PluginStatus:
        entries = tuple(entry for entry in self._discovery.entries if entry.plugin == key)
        by = self._discovery.disabled.get(entries[0])
        if by is not None:
            return PluginStatus(entries, "disabled", by)
        plugin = self._plugins.get(key)
        if plugin is None:
            try:
                check_requirement(entries[0])
            except PluginError as error:
                plugin = error
        if isinstance(plugin, PluginError):
            return PluginStatus(entries, "quarantined", plugin.what, plugin)
        contested = [rivals for entry in entries if len(rivals := self._owners(entry.kind)) > 1]
        reason = "; ".join(_claimed(rivals) for rivals in contested) or None
        if plugin is not None:
            return PluginStatus(entries, "active" if plugin.active else "loaded", reason, plugin=plugin)
        return PluginStatus(entries, "found" if core_requirement(entries[0]) is None else "compatible", reason)

    def _owners(self, kind: str) -> list[PluginEntry]:
        return [entry for entry in self._usable if entry.kind == kind]

    def plugin_for(self, kind: str) -> LoadedPlugin:
        """The plugin that owns ``kind``, imported if it was not yet.

        Raises:
            UsageError: no installed plugin promises this kind, or the one that does is disabled.
            PluginError: the plugin is incompatible, cannot be imported, or does not keep to the contract; or two
                plugins promise the kind. Asking again gives the same error; nothing is imported twice.
        """
        owners = self._owners(kind)
        if not owners:
            raise self._missing(kind)
        if len(owners) > 1:
            raise PluginError(
                _claimed(owners),
                where=f"entry points of group {GROUP}",
                hint="keep one of them: remove the rest (pip uninstall PLUGIN) or disable it (--disable-plugin PLUGIN)",
            )
        plugin = self._load(owners[0].plugin)
        if isinstance(plugin, PluginError):
            raise plugin.with_traceback(None)
        return plugin

    def _missing(self, kind: str) -> UsageError:
        from ..targets.values import shown, suggest

        for entry, by in self._discovery.disabled.items():
            if entry.kind == kind:
                text = (
                    f"target kind {kind!r} is not there: plugin {entry.distribution} {entry.version} is disabled {by}"
                )
                return UsageError(text, hint="name another target, or have the plugin enabled again")
        from ..targets.kind import COMPOSITE

        names = self.names()
        installed = f"installed kinds: {', '.join(names)}" if names else "no plugin is installed"
        hint = f"{suggest(kind, (*names, COMPOSITE))}{installed}; a plugin brings its kinds with it: pip install PLUGIN"
        return UnknownKindError(kind, shown(kind), hint=hint)

    def suggest_target(self, name: str) -> str | None:
        """Return the target that someone may mean who takes a known value of an attribute for a kind: for
        ``"cortex-m4"`` it may be ``"c -mcpu=cortex-m4"``; None for other names. Imports every plugin.
        """
        from ..targets.kind import TargetKind

        spelled = name.lower().replace("_", "-")
        for kind, one in self.kinds().items():
            for attribute in one.attributes if isinstance(one, TargetKind) else ():
                if spelled in attribute.known:
                    return f"{kind} -{attribute.name}={spelled}"
        return None

    def _load(self, key: tuple[str, str]) -> LoadedPlugin | PluginError:
        from .loading import load

        with self._lock:
            if key not in self._plugins:
                siblings = [entry for entry in self._discovery.entries if entry.plugin == key]
                if key in self._loading:
                    entry = siblings[0]
                    return entry.fault("asks for one of its own kinds while it is being imported", entry.report)
                self._loading.add(key)
                try:
                    self._plugins[key] = load(siblings[0], {entry.kind for entry in siblings})
                except PluginError as error:
                    self._plugins[key] = error
                finally:
                    self._loading.discard(key)
            return self._plugins[key]

    def kind(self, name: str) -> TargetKind:
        """The target kind ``name``. Raises as `plugin_for`, and UsageError for an alias."""
        kinds = self.plugin_for(name).kinds
        if name not in kinds:
            raise UsageError(f"{name!r} is not a target kind: it stands for a whole target")
        return kinds[name]

    def lookup(self, name: str) -> TargetKind | Alias:
        """The target kind or alias ``name``, of a plugin or of the project that the current folder belongs to.

        Raises:
            UsageError: there is none; or the project's are malformed.
            PluginError: as `plugin_for`.
        """
        if name not in self.names():
            from ..targets.parsing import COMPOSITE_KIND
            from ..targets.project import project_targets

            if name == COMPOSITE_KIND.name:
                return COMPOSITE_KIND
            project = project_targets()
            if name in project:
                return project[name]
        plugin = self.plugin_for(name)
        return plugin.aliases[name] if name in plugin.aliases else plugin.kinds[name]

    def hosts(self) -> tuple[TargetKind, ...]:
        """The kinds that can be hosts, sorted by name, but those of broken plugins. Imports every plugin."""
        from ..targets import TargetKind

        return tuple(kind for kind in self.kinds().values() if isinstance(kind, TargetKind) and kind.is_host)

    def kinds(self) -> dict[str, TargetKind | Alias | PluginError]:
        """Every promised kind and alias, sorted by name, or why it cannot be had. Imports every plugin."""
        kinds: dict[str, TargetKind | Alias | PluginError] = {}
        for name in self.names():
            try:
                kinds[name] = self.lookup(name)
            except PluginError as error:
                kinds[name] = error
        return kinds

    def target(self, source: str | Mapping[str, object] | Target) -> Target:
        """The target that a text, JSON or a dict describes.

        Raises:
            UsageError: it is malformed, or names a kind, an attribute or a value that does not exist.
            PluginError: as `plugin_for`.
        """
        from ..targets import read_target

        return read_target(source, self.lookup)


def _claimed(owners: Iterable[PluginEntry]) -> str:
    owners = sorted(owners, key=lambda owner: (owner.distribution, owner.version))
    rivals = ", ".join(f"{owner.distribution} {owner.version} ({owner.value})" for owner in owners)
    return f"target kind {owners[0].kind!r} is claimed by more than one plugin: {rivals}"


@functools.cache
def default_host() -> PluginHost:
    """The host of this process: the plugins that are installed beside uma-core."""
    return PluginHost()
