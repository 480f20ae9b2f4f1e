"""A plugin that was loaded: calling its hooks, and checking what they give."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pluggy

from .. import hookspecs
from ..errors import PluginError, ToolchainError, UsageError
from ..relay.custom_ops import CustomOp
from ..relay.op import known_ops
from ..targets import Alias, Target, TargetKind
from ..targets.kind import shown
from .discovery import installed_version
from .entry import PluginEntry
from .hook_trace import call_traced
from .hook_types import HookTypes, hook_types, specified_hooks
from .process_guard import guarded

__all__ = ["LoadedPlugin"]

T = TypeVar("T")


@dataclass(frozen=True)
class LoadedPlugin:
    """A plugin that was imported and has declared its kinds, and its own operators.

    Args:
        entry: one of its entry points.
        kinds, aliases, ops: what it brings, by name.
        hooks: calls its hooks, unchecked: use `call`.
        api: the major and minor version of the plugin API that it says it was written for.
        notes: what was noticed while it was loaded, in sentences: deprecated hooks, an API later than this one.
    """

    entry: PluginEntry
    kinds: Mapping[str, TargetKind]
    hooks: pluggy.HookRelay
    aliases: Mapping[str, Alias] = field(default_factory=dict)
    ops: Mapping[str, CustomOp] = field(default_factory=dict)
    api: tuple[int, int] | None = None
    notes: tuple[str, ...] = ()
    _called: set[str] = field(default_factory=set, init=False, compare=False, repr=False)

    @property
    def implemented(self) -> tuple[str, ...]:
        """The names of the hooks that it implements, sorted."""
        return tuple(name for name, hook in specified_hooks(self.hooks).items() if hook.get_hookimpls())

    @property
    def active(self) -> bool:
        """Whether it was asked for more than to say what it brings: it took part in a build."""
        return bool(self._called)

    def call(self, hook: str, **arguments: object) -> Any:
        """Call one hook of this plugin, with ``arguments["target"]``, where there is one, as the current target.

        Returns:
            The hook's record, of the annotated type, or ``None`` where the plugin does not implement the hook or has no
            answer.

        Raises:
            PluginError: the hook is at fault, as `run` says, or gave something of a wrong type.
            UsageError, ToolchainError, Refuse: as `run`.
        """
        target = arguments.get("target")
        current = target if isinstance(target, Target) else None
        if current is not None:
            self._called.add(hook)
        function = getattr(self.hooks, hook)
        if not function.get_hookimpls():
            return None
        action = functools.partial(call_traced, self.entry, hook, function, arguments)
        types = self._types(hook)
        result = self.run(f"hook {hook}", action, current, may_refuse=types.may_refuse)
        if result is None:
            return None
        if not isinstance(result, types.results):
            raise self.wrong(hook, f"gave {shown(result)} from hook {hook}")
        for item in result if types.elements else ():
            if not isinstance(item, types.elements):
                records = " or ".join(one.__name__ for one in types.elements)
                raise self.wrong(hook, f"gave {shown(item)} from hook {hook} among its {records} records")
        return result

    def _types(self, hook: str) -> HookTypes:
        specification = getattr(self.hooks, hook).spec
        return hook_types(specification.function)

    def wrong(self, hook: str, predicate: str) -> PluginError:
        """`fault` of what a hook gave; to the author of an editable install it says where, and what is wanted."""
        error = self.fault(predicate)
        if self.entry.editable:
            code = getattr(getattr(self.hooks, hook).get_hookimpls()[0].function, "__code__", None)
            if code is not None:
                error.where = f"{code.co_filename}:{code.co_firstlineno} in {code.co_name}, {error.where}"
            wanted = self._types(hook)
            error.hint = f"have it give a {wanted}, or None; the docstring of uma.hookspecs.{hook} has an example"
        return error

    def run(
        self, action_name: str, action: Callable[[], Any], target: Target | None = None, *, may_refuse: bool = False
    ) -> Any:
        """What ``action``, which is code of this plugin, gives; ``target`` is the current one meanwhile.

        Args:
            action_name: names the action in errors: ``hook patterns``.
            action: what to call.
            target: the current target.
            may_refuse: whether the action is a lowering, to which `Refuse` is open.

        Raises:
            PluginError: the action raised anything but what is below; it names the plugin and ``action_name``.
            UsageError: raised by the action on purpose, about what the user asked for.
            ToolchainError: what it found missing on this machine.
            Refuse: raised by a lowering.
        """
        ops = {name: custom.op for name, custom in self.ops.items()}
        with target or nullcontext(), known_ops(ops), guarded(f"{self.entry.distribution} {self.entry.version}"):
            try:
                return action()
            except (ToolchainError, UsageError) as error:
                place = f"{action_name} of plugin {self.entry.distribution} {self.entry.version}"
                error.where = f"{place}, {error.where}" if error.where else place
                raise
            except KeyboardInterrupt:
                raise
            except BaseException as error:
                if may_refuse and isinstance(error, hookspecs.Refuse):
                    raise
                raise self.entry.fault(f"failed in {action_name}", self.entry.report, error) from error

    def index_by_name(self, noun: str, items: Iterable[T], name_of: Callable[[T], str]) -> dict[str, T]:
        """What a hook gave by its names, each of which is in the plugin's own namespace.

        Args:
            noun: names one of them in errors: ``op``.
            items: all of them.
            name_of: gives the name of one.

        Raises:
            PluginError: a name does not begin with one of the plugin's kinds, or comes twice.
        """
        by_name: dict[str, T] = {}
        for item in items:
            name = name_of(item)
            kind, _, rest = name.partition(".")
            if kind not in self.kinds or not rest:
                begin = " or ".join(f"{kind}." for kind in self.kinds)
                raise self.fault(f"declares the {noun} {shown(name)}, the name of which does not begin with {begin}")
            if name in by_name:
                raise self.fault(f"declares the {noun} {name!r} twice")
            by_name[name] = item
        return by_name

    def check_installed(self) -> None:
        """See that what was imported is what is installed: files that it reads later are those of today.

        Raises:
            PluginError: it was upgraded or removed in the meantime.
        """
        now = installed_version(self.entry)
        if now != self.entry.version:
            became = "removed" if now is None else f"replaced by {now}"
            text = f"was {became} while it was in use: its code and its files may be of two versions"
            raise self.entry.fault(text, "try again, in a new process")

    def fault(self, predicate: str) -> PluginError:
        """An error that says that this plugin did ``predicate``, and what to do about it."""
        return self.entry.fault(predicate, self.entry.report)
