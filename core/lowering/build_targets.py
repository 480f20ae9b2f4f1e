"""The targets of one build: hosts, and the accelerators before them, in order of priority, each with its plugin.

Who decides what goes where is told beside them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, TypeAlias, TypeVar

from ..errors import PluginError
from ..hookspecs import Pass, Runtime, Strategy
from ..partition import CostProvider, Owner, Partitioner, eager, find_partitioner
from ..plugins import LoadedPlugin, PluginHost
from ..relay.extern import Extern
from ..relay.op import known_ops
from ..relay.pattern import PatternTable
from ..support.formatting import format_value
from ..support.rounding import FixedPointForm
from ..targets import Limits, QuantisedForm, Target
from ..targets.config import CompilationConfig
from ..tir.form.nodes import PrimFunc
from ..tir.form.visit import uses_device

__all__ = ["BuildTarget", "BuildTargets", "TargetLike", "resolve_targets"]

TargetLike: TypeAlias = "str | Target | Mapping[str, Any] | Sequence[str | Target | Mapping[str, Any]]"
"""What a model is built for: one target in any form, or several: a list, or a dict from labels to targets."""


_Record = TypeVar("_Record", Limits, QuantisedForm)


@dataclass(frozen=True)
class BuildTarget:
    """One target of a build. What its plugin says of it is asked for once.

    Args:
        label: names it in this build.
        target: the target.
        plugin: who serves it.
    """

    label: str
    target: Target
    plugin: LoadedPlugin

    @cached_property
    def patterns(self) -> PatternTable:
        """What it takes; PluginError where the plugin is at fault."""
        patterns = self.plugin.call("patterns", target=self.target) or ()
        try:
            return PatternTable(patterns)
        except PluginError as error:
            raise self.plugin.fault(f"gave patterns that do not go together: {error.what}") from error

    @cached_property
    def passes(self) -> tuple[Pass, ...]:
        """Its passes, in the order in which the plugin lists them; PluginError where the plugin is at fault."""
        passes = tuple(self.plugin.call("passes", target=self.target) or ())
        names = [(p.phase, p.name) for p in passes]
        for phase, name in names:
            if names.count((phase, name)) > 1:
                raise self.plugin.fault(f"has two passes {name!r} for phase {phase}")
        for each in passes:
            if each.scope == "regions" and self.target.kind.is_host:
                raise self.plugin.fault(f"has pass {each.name!r} of {each.phase} for regions, which a host has none of")
        return passes

    @cached_property
    def strategies(self) -> Mapping[str, tuple[Strategy, ...]]:
        """How it computes things, by name of op or pattern; PluginError where the plugin is at fault."""
        strategies: dict[str, tuple[Strategy, ...]] = {}
        for strategy in self.plugin.call("strategies", target=self.target) or ():
            strategies[strategy.name] = (*strategies.get(strategy.name, ()), strategy)
        return strategies

    @cached_property
    def runtime(self) -> Runtime | None:
        """Its driver; PluginError where the plugin is at fault."""
        runtime: Runtime | None = self.plugin.call("runtime", target=self.target)
        return runtime

    @cached_property
    def limits(self) -> Limits:
        """How large its regions may be; PluginError where the plugin is at fault."""
        return self._declared(self.target.kind.limits, Limits(), "the limits")

    @cached_property
    def quantised(self) -> QuantisedForm:
        """How models are quantised for it; PluginError where the plugin is at fault."""
        return self._declared(self.target.kind.quantised, QuantisedForm(), "the quantised form")

    @cached_property
    def features(self) -> frozenset[str]:
        """What the CPU of a host can; PluginError where the plugin is at fault."""
        if self.target.kind.features is None:
            return frozenset()
        features: object = self.plugin.run(
            "the features of its target kind", partial(self.target.kind.features, self.target), self.target
        )
        if not isinstance(features, frozenset) or not all(isinstance(name, str) for name in features):
            raise self.plugin.fault(f"gave {format_value(features)} for the features of {self.target.kind.name}")
        return features

    @property
    def threads(self) -> int:
        """For how many threads loops are marked where this host runs the model's steps: 1 if its kind says nothing of
        threads, or these steps are a table, whose kernels models share."""
        if not self.target.kind.has("threads") or self.target.get_attr("executor") == "graph":
            return 1
        return int(self.target.get_attr("threads"))

    @cached_property
    def fixed_point(self) -> FixedPointForm | None:
        """What it is offered float scales in, with consent; PluginError where the plugin is at fault."""
        form: object = self.target.kind.fixed_point
        if callable(form):
            form = self.plugin.run("the fixed points of its target kind", partial(form, self.target), self.target)
        if form is not None and not isinstance(form, FixedPointForm):
            raise self.plugin.fault(f"gave {format_value(form)} for the fixed points of {self.target.kind.name}")
        return form

    def _declared(self, declaration: object, default: _Record, subject: str) -> _Record:
        """Return a record that the kind declares, or returns for the target; by default ``default``."""
        if callable(declaration):
            run = partial(declaration, self.target)
            declaration = self.plugin.run(f"{subject} of its target kind", run, self.target)
        elif declaration is None:
            return default
        if not isinstance(declaration, type(default)):
            raise self.plugin.fault(f"gave {format_value(declaration)} for {subject} of {self.target.kind.name}")
        return declaration

    def undeclared(self, func: PrimFunc | Extern) -> str | None:
        """What a function uses though the plugin does not declare it, in words; None where there is nothing."""
        if isinstance(func, PrimFunc) and not uses_device(func):
            return None
        if self.runtime is None:
            return "a device, for which hook runtime gives no driver"
        used = self.runtime.undeclared(func)
        return None if used is None else f"{used}, which its Runtime does not declare"

    @property
    def owner(self) -> Owner:
        """This target as partitioners see it."""
        return Owner(self.label, self.patterns, self.limits, self.target, self.fixed_point)


@dataclass(frozen=True)
class BuildTargets:
    """The targets of a build.

    Args:
        hosts: run what the accelerators leave; at least one. The first runs the model's entry, and drives devices.
        accelerators: in order of priority.
        notes: which host was added or overridden, in sentences.
        default: the label of the host that takes an op of which nothing is said; None for the first.
        partition: decides what goes where.
        costs: makes the cost provider of one build; None if no partitioner compares costs.
    """

    hosts: tuple[BuildTarget, ...]
    accelerators: tuple[BuildTarget, ...] = ()
    notes: tuple[str, ...] = ()
    default: str | None = None
    partition: Partitioner = eager
    costs: Callable[[BuildTargets], CostProvider] | None = None

    @property
    def host(self) -> BuildTarget:
        """The first host."""
        return self.hosts[0]

    @property
    def takers(self) -> tuple[BuildTarget, ...]:
        """The hosts in the order in which they are offered what accelerators leave: first that which takes an op of
        which nothing is said."""
        return tuple(sorted(self.hosts, key=lambda host: host.label != (self.default or self.host.label)))

    @property
    def all(self) -> tuple[BuildTarget, ...]:
        """Accelerators, then hosts."""
        return (*self.accelerators, *self.hosts)

    @property
    def texts(self) -> dict[str, str]:
        """The text of each target, by label."""
        return {member.label: str(member.target) for member in self.all}

    @property
    def models(self) -> dict[str, str]:
        """The attribute ``model`` of each target that has it, by label."""
        models = {member.label: member.target.common_attr("model") for member in self.all}
        return {label: model for label, model in models.items() if model is not None}

    @property
    def versions(self) -> dict[str, str]:
        """The version of each plugin, by the name of its distribution."""
        return {plugin.entry.distribution: plugin.entry.version for plugin in self.plugins}

    @property
    def plugins(self) -> tuple[LoadedPlugin, ...]:
        """Their plugins, each once."""
        return tuple({id(member.plugin): member.plugin for member in self.all}.values())

    def known_ops(self) -> AbstractContextManager[None]:
        """Within it the operators of all plugins of the build are known by their names."""
        return known_ops({name: custom.op for plugin in self.plugins for name, custom in plugin.ops.items()})

    def __getitem__(self, label: str) -> BuildTarget:
        """The target of that label, which there is."""
        return next(member for member in self.all if member.label == label)

    def get(self, label: str) -> BuildTarget | None:
        """The target of that label, None where there is none."""
        return next((member for member in self.all if member.label == label), None)


def resolve_targets(target: TargetLike, host: PluginHost, partition: str | Partitioner = "eager") -> BuildTargets:
    """The targets to build a whole model for.

    Args:
        target: in any form that `CompilationConfig.resolve` takes.
        host: where targets come from.
        partition: decides what goes where, or the name of what does.

    Raises:
        UsageError: one is malformed, there is no host, or two have one label; or there is no such partitioner.
        PluginError: a target's plugin is at fault, or that of the partitioner.
        RequirementError: a plugin that the project requires is missing, disabled or of another version.
    """
    host.check_required()
    partitioner = find_partitioner(partition)
    config = CompilationConfig.resolve(target, host)
    members = [BuildTarget(one.name, one, host.plugin_for(one.kind.name)) for one in config.targets]
    count = len(config.accelerators)
    return BuildTargets(tuple(members[count:]), tuple(members[:count]), config.notes, config.default.name, partitioner)
