"""Discovery of plugins, and dispatch of hooks to the one plugin that owns a target kind.

Discovery reads metadata only. A plugin is imported when one of its kinds is asked for, and gets a pluggy manager of
its own: nothing that it does reaches another plugin. What goes wrong with a plugin is a `PluginError` for those who
asked for its kinds, and nothing for anybody else.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import re
import traceback
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import pluggy

from . import hookspecs
from .errors import PluginError, ToolchainError, UsageError
from .relay.custom import CustomOp
from .relay.op import known_ops
from .target import Alias, Target, TargetKind, read_target
from .target.forms import COMPOSITE_KIND
from .target.kind import COMPOSITE, shown, suggest
from .target.project import project_targets
from .version import __version__

__all__ = ["GROUP", "LoadedPlugin", "PluginEntry", "PluginHost", "default_host", "installed_plugins"]

GROUP = "uma.plugins"
"""The entry-point group: an entry point's name is the target kind that it serves."""

_CORE = "uma-core"
_REQUIRES_CORE = re.compile(r"uma[-_.]+core(?![A-Za-z0-9_.-])", re.IGNORECASE)


@dataclass(frozen=True, order=True)
class PluginEntry:
    """What the metadata of a distribution says about one target kind.

    Args:
        kind: the target kind, the entry point's name.
        value: ``module`` or ``module:Class``.
        distribution, version: who installed it.
        requires: the distribution's ``Requires-Dist`` lines.
    """

    kind: str
    value: str
    distribution: str
    version: str
    requires: tuple[str, ...] = ()

    def fault(self, what: str, hint: str) -> PluginError:
        """An error that names the plugin, its version and the entry point. ``what`` is a predicate."""
        api = ".".join(map(str, hookspecs.PLUGIN_API_VERSION))
        return PluginError(
            f"plugin {self.distribution} {self.version} {what}",
            where=f"entry point `{self.kind} = {self.value}`, with {_CORE} {__version__}, plugin API {api}",
            hint=hint,
        )


@dataclass(frozen=True)
class LoadedPlugin:
    """A plugin that was imported and has declared its kinds, and its own operators."""

    entry: PluginEntry
    kinds: Mapping[str, TargetKind]
    hooks: pluggy.HookRelay
    aliases: Mapping[str, Alias] = field(default_factory=dict)
    ops: Mapping[str, CustomOp] = field(default_factory=dict)

    def call(self, hook: str, **arguments: object) -> Any:
        """Call one hook of this plugin, with ``arguments["target"]``, where there is one, as the current target.

        Returns:
            The hook's record, of the type that `hookspecs.RESULTS` says, or ``None`` where the plugin does not
            implement the hook or has no answer.

        Raises:
            PluginError: the hook is at fault, as `run` says, or gave something of a wrong type.
            UsageError, ToolchainError, Refuse: as `run`.
        """
        target = arguments.get("target")
        current = target if isinstance(target, Target) else None
        action = functools.partial(getattr(self.hooks, hook), **arguments)
        result = self.run(f"hook {hook}", action, current, may_refuse=hook in hookspecs.MAY_REFUSE)
        if result is not None and not isinstance(result, hookspecs.RESULTS[hook]):
            raise self.entry.fault(f"gave {shown(result)} from hook {hook}", _report(self.entry))
        element = hookspecs.ELEMENTS.get(hook)
        if element is None:
            return result
        for item in result or ():
            if not isinstance(item, element):
                what = f"gave {shown(item)} from hook {hook} among its {element.__name__} records"
                raise self.entry.fault(what, _report(self.entry))
        return result

    def run(
        self, what: str, action: Callable[[], Any], target: Target | None = None, *, may_refuse: bool = False
    ) -> Any:
        """What ``action``, which is code of this plugin, gives; ``target`` is the current one meanwhile.

        Args:
            what: names the action in errors: ``hook patterns``.
            action: what to call.
            target: the current target.
            may_refuse: whether the action is a lowering, to which `Refuse` is open.

        Raises:
            PluginError: the action raised anything but what is below; it names the plugin and ``what``.
            UsageError: raised by the action on purpose, about what the user asked for.
            ToolchainError: what it found missing on this machine.
            Refuse: raised by a lowering.
        """
        with target or nullcontext(), known_ops({name: custom.op for name, custom in self.ops.items()}):
            try:
                return action()
            except (PluginError, ToolchainError, UsageError) as error:
                place = f"{what} of plugin {self.entry.distribution} {self.entry.version}"
                error.where = f"{place}, {error.where}" if error.where else place
                raise
            except KeyboardInterrupt:
                raise
            except BaseException as error:
                if may_refuse and isinstance(error, hookspecs.Refuse):
                    raise
                raise self.entry.fault(f"failed in {what}: {_brief(error)}", _report(self.entry)) from error

    def fault(self, what: str) -> PluginError:
        """An error that says that this plugin did ``what``, and what to do about it."""
        return self.entry.fault(what, _report(self.entry))


class PluginHost:
    """The plugins of one environment.

    Args:
        discover: gives the entries that are installed (default: `installed_plugins`); called once, when the first
            kind is asked for.
    """

    def __init__(self, discover: Callable[[], Iterable[PluginEntry]] | None = None) -> None:
        self._discover = discover or installed_plugins
        self._plugins: dict[tuple[str, str], LoadedPlugin | PluginError] = {}

    @functools.cached_property
    def _entries(self) -> tuple[PluginEntry, ...]:
        # An installation may list one entry point twice; the order of site-packages must not matter.
        return tuple(sorted(set(self._discover())))

    def names(self) -> tuple[str, ...]:
        """The kinds that installed plugins promise, sorted; imports no plugin."""
        return tuple(sorted({entry.kind for entry in self._entries}))

    def plugin_for(self, kind: str) -> LoadedPlugin:
        """The plugin that owns ``kind``, imported if it was not yet.

        Raises:
            UsageError: no installed plugin promises this kind.
            PluginError: the plugin is incompatible, cannot be imported, or does not keep to the contract; or two
                plugins promise the kind. Asking again gives the same error; nothing is imported twice.
        """
        owners = [entry for entry in self._entries if entry.kind == kind]
        if not owners:
            names = self.names()
            installed = f"installed kinds: {', '.join(names)}" if names else "no plugin is installed"
            raise UsageError(
                f"there is no target kind {shown(kind)}",
                hint=f"{suggest(kind, (*names, COMPOSITE))}{installed}; a plugin brings its kinds with it: "
                "pip install PLUGIN",
            )
        entry, *others = owners
        if others:
            rivals = ", ".join(f"{owner.distribution} {owner.version} ({owner.value})" for owner in owners)
            raise PluginError(
                f"target kind {kind!r} is claimed by more than one plugin: {rivals}",
                where=f"entry points of group {GROUP}",
                hint="keep one of them and remove the rest: pip uninstall PLUGIN",
            )
        key = (entry.distribution, entry.value)
        if key not in self._plugins:
            siblings = {sibling.kind for sibling in self._entries if (sibling.distribution, sibling.value) == key}
            try:
                loaded: LoadedPlugin | PluginError = _load(entry, siblings)
            except PluginError as error:
                loaded = error
            self._plugins.setdefault(key, loaded)  # two threads may have loaded it: both go on with the same one
        plugin = self._plugins[key]
        if isinstance(plugin, PluginError):
            raise plugin.with_traceback(None)
        return plugin

    def kind(self, name: str) -> TargetKind:
        """The target kind ``name``. Raises as `plugin_for`, and UsageError for an alias."""
        kinds = self.plugin_for(name).kinds
        if name not in kinds:
            raise UsageError(f"{name!r} is no target kind: it stands for a whole target")
        return kinds[name]

    def named(self, name: str) -> TargetKind | Alias:
        """The target kind or alias ``name``, of a plugin or of the project that the current folder belongs to.

        Raises:
            UsageError: there is none; or the project's are malformed.
            PluginError: as `plugin_for`.
        """
        if name not in self.names():
            if name == COMPOSITE:
                return COMPOSITE_KIND
            project = project_targets()
            if name in project:
                return project[name]
        plugin = self.plugin_for(name)
        return plugin.aliases[name] if name in plugin.aliases else plugin.kinds[name]

    def hosts(self) -> tuple[TargetKind, ...]:
        """The kinds that can be hosts, sorted by name, but those of broken plugins. Imports every plugin."""
        return tuple(kind for kind in self.kinds().values() if isinstance(kind, TargetKind) and kind.is_host)

    def kinds(self) -> dict[str, TargetKind | Alias | PluginError]:
        """Every promised kind and alias, sorted by name, or why it cannot be had. Imports every plugin."""
        found: dict[str, TargetKind | Alias | PluginError] = {}
        for name in self.names():
            try:
                found[name] = self.named(name)
            except PluginError as error:
                found[name] = error
        return found

    def target(self, given: str | Mapping[str, object] | Target) -> Target:
        """The target that a text, JSON or a dict describes.

        Raises:
            UsageError: it is malformed, or names a kind, an attribute or a value that does not exist.
            PluginError: as `plugin_for`.
        """
        return read_target(given, self.named)


@functools.cache
def default_host() -> PluginHost:
    """The host of this process: the plugins that are installed beside uma-core."""
    return PluginHost()


def installed_plugins() -> list[PluginEntry]:
    """Every entry point of `GROUP`, from the metadata of what is installed; imports no plugin."""
    # Costs 30 ms to import: paid by those who ask for a kind.
    import importlib.metadata

    entries = []
    for point in importlib.metadata.entry_points(group=GROUP):
        distribution, version, requires = "(no name)", "(no version)", None
        if point.dist is not None:
            # A distribution that was removed half-way may have entry points, but no metadata any more.
            distribution = (point.dist.metadata.get_all("Name") or [distribution])[0]
            version = (point.dist.metadata.get_all("Version") or [version])[0]
            requires = point.dist.requires
        entries.append(PluginEntry(point.name, point.value, distribution, version, tuple(requires or ())))
    return entries


def _load(entry: PluginEntry, promised: set[str]) -> LoadedPlugin:
    _check_compatible(entry)
    plugin = _attempt(entry, "cannot be imported", _repair(entry), lambda: _resolve(entry.value))
    if inspect.isclass(plugin):
        plugin = _attempt(entry, "cannot be instantiated", _report(entry), plugin)
    manager = pluggy.PluginManager(hookspecs.PROJECT)
    manager.add_hookspecs(hookspecs)
    _attempt(entry, "has a hook that does not fit", _report(entry), lambda: _register(manager, plugin))
    for hook in hookspecs.RESULTS:
        implemented = bool(getattr(manager.hook, hook).get_hookimpls())
        if not implemented and inspect.isroutine(inspect.getattr_static(plugin, hook, None)):
            raise entry.fault(f"has a function {hook} without the mark @uma.hookimpl", _report(entry))
    given = _attempt(entry, "failed in hook register_target", _report(entry), manager.hook.register_target)
    kinds, aliases = _check_kinds(entry, promised, given)
    loaded = LoadedPlugin(entry, kinds, manager.hook, aliases)
    return replace(loaded, ops=_check_ops(loaded, loaded.call("ops") or ()))


def _attempt(entry: PluginEntry, what: str, hint: str, action: Callable[[], Any]) -> Any:
    """Run code of a plugin. Whatever it raises becomes a `PluginError`, `SystemExit` included."""
    try:
        return action()
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise entry.fault(f"{what}: {_brief(error)}", hint) from error


def _resolve(value: str) -> object:
    module, _, path = value.partition(":")
    found: object = importlib.import_module(module)
    for name in filter(None, path.split(".")):
        found = getattr(found, name)
    return found


def _register(manager: pluggy.PluginManager, plugin: object) -> None:
    manager.register(plugin)
    manager.check_pending()


def _check_compatible(entry: PluginEntry) -> None:
    lines = [line for line in entry.requires if _REQUIRES_CORE.match(line)]
    if not lines:
        return
    from packaging.requirements import InvalidRequirement, Requirement

    hint = f"install a pair that fits: pip install --upgrade {_CORE} {entry.distribution}"
    for line in lines:
        try:
            requirement = Requirement(line)
        except InvalidRequirement as error:
            raise entry.fault(f"has metadata that cannot be read: {shown(line)}", _repair(entry)) from error
        applies = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
        if applies and not requirement.specifier.contains(__version__, prereleases=True):
            raise entry.fault(f"needs {_CORE}{requirement.specifier}, this is {_CORE} {__version__}", hint)


def _check_kinds(entry: PluginEntry, promised: set[str], given: Any) -> tuple[dict[str, TargetKind], dict[str, Alias]]:
    if not isinstance(given, hookspecs.RESULTS["register_target"]):
        what = "does not implement" if given is None else f"gave {shown(given)} from"
        raise entry.fault(f"{what} hook register_target, which gives a list of TargetKind", _report(entry))
    for kind in given:
        if not isinstance(kind, (TargetKind, Alias)):
            raise entry.fault(f"gave {shown(kind)} from hook register_target among its TargetKinds", _report(entry))
    names = [kind.name for kind in given]
    if len(set(names)) < len(names) or set(names) != promised or COMPOSITE in names:
        raise entry.fault(
            f"registers the kinds {', '.join(names) or 'none'}, but its entry points name {', '.join(sorted(promised))}"
            + (f"; {COMPOSITE!r} is the core's" if COMPOSITE in names else ""),
            _report(entry),
        )
    kinds = {kind.name: kind for kind in given if isinstance(kind, TargetKind)}
    return kinds, {kind.name: kind for kind in given if isinstance(kind, Alias)}


def _check_ops(plugin: LoadedPlugin, given: Iterable[CustomOp]) -> dict[str, CustomOp]:
    ops: dict[str, CustomOp] = {}
    for custom in given:
        name = custom.op.name
        kind, _, rest = name.partition(".")
        if kind not in plugin.kinds or not rest:
            begin = " or ".join(f"{kind}." for kind in plugin.kinds)
            raise plugin.fault(f"declares the op {shown(name)}, the name of which does not begin with {begin}")
        if name in ops:
            raise plugin.fault(f"declares the op {name!r} twice")
        ops[name] = custom
    return ops


def _brief(error: BaseException) -> str:
    """The exception's type and text on one short line; `traceback` copes with exceptions that cannot be printed."""
    text = " ".join("".join(traceback.format_exception_only(type(error), error)).split())
    return text if len(text) <= 300 else text[:297] + "..."


def _repair(entry: PluginEntry) -> str:
    name = entry.distribution
    return f"repair it (pip install --force-reinstall {name}) or remove it (pip uninstall {name})"


def _report(entry: PluginEntry) -> str:
    return f"tell its authors, or look for a newer version: pip install --upgrade {entry.distribution}"
