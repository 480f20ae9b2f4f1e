"""From an entry point to a plugin that keeps to the contract, or a `PluginError` that says where it does not."""

from __future__ import annotations

import functools
import importlib
import inspect
import warnings
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pluggy

from .. import hookspecs
from ..errors import PluginError, ToolchainError, UsageError
from ..targets import Alias, TargetKind
from ..targets.kind import COMPOSITE, shown
from .api import declared_api, later_api, refuse_earlier_sources
from .compatibility import check_requirement
from .entry import PluginEntry
from .hook_trace import call_traced
from .hook_types import specified_hooks
from .loaded import LoadedPlugin
from .process_guard import guarded

__all__ = ["load"]


def load(entry: PluginEntry, promised: Iterable[str]) -> LoadedPlugin:
    """Import a plugin, and have it declare what it brings.

    What it may go on with, though it should not, is a warning that names it, and one of its `LoadedPlugin.notes`.

    Args:
        entry: one of its entry points.
        promised: the names of all of them.

    Raises:
        PluginError: it is incompatible, cannot be imported, or does not keep to the contract.
    """
    check_requirement(entry)
    with guarded(f"{entry.distribution} {entry.version}"):
        try:
            plugin = _attempt(entry, "cannot be imported", entry.repair, lambda: _resolve(entry.value))
        except PluginError:
            refuse_earlier_sources(entry)
            raise
        if inspect.isclass(plugin):
            plugin = _attempt(entry, "cannot be instantiated", entry.report, plugin)
        api = declared_api(entry, plugin)
        note = later_api(entry, api)
        notes = [] if note is None else [note]
        # What a plugin for another version of the API asks for, and this core does not have, is not a fault of its own.
        hint = entry.report if api in (None, hookspecs.PLUGIN_API_VERSION) else entry.mismatch
        hooks = _hooks(entry, plugin, hint, notes)
        register = functools.partial(call_traced, entry, "register_target", hooks.register_target, {})
        declared = _attempt(entry, "failed in hook register_target", hint, register)
    kinds, aliases = _declared(entry, set(promised), declared)
    loaded = LoadedPlugin(entry, kinds, hooks, aliases, api=api, notes=tuple(notes))
    for text in notes:
        warnings.warn(text, DeprecationWarning if text is not note else RuntimeWarning, stacklevel=4)
    try:
        given_ops = loaded.call("ops") or ()
    except (ToolchainError, UsageError) as error:  # nobody has asked for anything yet that could be wrong
        raise entry.fault("failed in hook ops", entry.report, error) from error
    return replace(loaded, ops=loaded.index_by_name("op", given_ops, lambda custom: custom.op.name))


def _attempt(entry: PluginEntry, predicate: str, hint: str, action: Callable[[], Any]) -> Any:
    """Run code of a plugin. Whatever it raises becomes a `PluginError`, `SystemExit` included."""
    try:
        return action()
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise entry.fault(predicate, hint, error) from error


def _resolve(value: str) -> object:
    module, _, path = value.partition(":")
    resolved: object = importlib.import_module(module)
    for name in filter(None, path.split(".")):
        resolved = getattr(resolved, name)
    return resolved


def _hooks(entry: PluginEntry, plugin: object, hint: str, notes: list[str]) -> pluggy.HookRelay:
    """The plugin's hooks, of which it is known that they fit the contract. What is deprecated goes to ``notes``."""
    manager = pluggy.PluginManager(hookspecs.PROJECT)
    manager.add_hookspecs(hookspecs)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        starred = _attempt(entry, "has a hook that does not fit", hint, lambda: _register(manager, plugin))
    if starred is not None:
        raise entry.fault(f"has a hook {starred} with arguments behind a *, which it is not given", entry.report)
    for warning in caught:
        place = f"{warning.filename}:{warning.lineno}"
        notes.append(f"plugin {entry.distribution} {entry.version}: {warning.message} ({place})")
    for name, hook in specified_hooks(manager.hook).items():
        function = inspect.getattr_static(plugin, name, None)
        # `from uma.hookspecs import *` imports specifications.
        if hook.spec is not None and function is hook.spec.function:
            continue
        if inspect.isroutine(function) and not hook.get_hookimpls():
            raise entry.fault(f"has a function {name} without the mark @uma.hookimpl", entry.report)
    return manager.hook


def _register(manager: pluggy.PluginManager, plugin: object) -> str | None:
    """The first hook that needs arguments which pluggy never gives, None where there is none."""
    manager.register(plugin)
    manager.check_pending()
    for name, hook in specified_hooks(manager.hook).items():
        for implementation in hook.get_hookimpls():
            parameters = inspect.signature(implementation.function).parameters.values()
            if any(p.kind is p.KEYWORD_ONLY and p.default is p.empty for p in parameters):
                return name
    return None


def _declared(entry: PluginEntry, promised: set[str], result: object) -> tuple[dict[str, TargetKind], dict[str, Alias]]:
    if not isinstance(result, (list, tuple)):
        predicate = "does not implement" if result is None else f"gave {shown(result)} from"
        raise entry.fault(f"{predicate} hook register_target, which gives a list of TargetKind", entry.report)
    for kind in result:
        if not isinstance(kind, (TargetKind, Alias)):
            raise entry.fault(f"gave {shown(kind)} from hook register_target among its TargetKinds", entry.report)
    names = [kind.name for kind in result]
    if len(set(names)) < len(names) or set(names) != promised or COMPOSITE in names:
        raise entry.fault(
            f"registers the kinds {', '.join(names) or 'none'}, but its entry points name {', '.join(sorted(promised))}"
            + (f"; {COMPOSITE!r} is the core's" if COMPOSITE in names else ""),
            entry.report,
        )
    kinds = {kind.name: kind for kind in result if isinstance(kind, TargetKind)}
    return kinds, {kind.name: kind for kind in result if isinstance(kind, Alias)}
