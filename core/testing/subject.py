"""What is checked: a target of the plugin under test, made ready."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ..errors import PluginError, UsageError
from ..hookspecs import Claims
from ..lowering.build_targets import BuildTarget, BuildTargets, resolve_targets
from ..plugins import LoadedPlugin, PluginHost
from ..plugins.entry import normalised
from ..targets import Target, TargetKind
from ..targets.kind import shown
from .deadline import DEFAULT_SECONDS

__all__ = ["DEFAULT_LAYERS", "Subject", "find_subjects", "read_project"]

DEFAULT_LAYERS = 60
"""How many layers that the plugin takes are made, run and compared."""

_FEWER = 3
"""A target that is claimed besides gets so many times fewer."""


@dataclass(frozen=True)
class Subject:
    """One target of the plugin under test.

    Args:
        plugins: where targets come from.
        target: the accelerator, as `CompilationConfig` has it.
        host: what runs the rest.
        members: both, with their plugins.
        claims: what the plugin claims of the target.
        models: files of models whose layers are checked as well.
        folder: where files go that repeat what was found.
        seed: of all that is drawn at random.
        layers: how many accepted layers are wanted.
        source: the folder of the plugin's sources, where it is known.
        is_first: whether it is the first target of its kind that is checked.
        leads: whether it is the first of all of the plugin's.
        seconds: how long a check may take before it leaves out what it has not come to.
        cache: what one check has made and others of this target may want, by the text of the target and what it is.
    """

    plugins: PluginHost
    target: Target
    host: Target
    members: BuildTargets
    claims: Claims
    models: tuple[Path, ...] = ()
    folder: Path = Path("uma-check")
    seed: int = 0
    layers: int = DEFAULT_LAYERS
    source: Path | None = None
    is_first: bool = True
    leads: bool = True
    seconds: float = DEFAULT_SECONDS
    cache: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)

    @property
    def member(self) -> BuildTarget:
        """The accelerator with its plugin."""
        return self.members.accelerators[0]

    @property
    def plugin(self) -> LoadedPlugin:
        """The plugin under test."""
        return self.member.plugin

    @property
    def kind(self) -> TargetKind:
        """The kind of the target."""
        return self.target.kind

    @property
    def targets(self) -> tuple[Target, Target]:
        """What to build for: the accelerator, then its host."""
        return self.target, self.host

    def for_target(self, target: Target, host: Target | None = None) -> Subject:
        """The same for another target of the plugin, with another host if one is given.

        Raises:
            UsageError, PluginError: as `resolve_targets`; or the hook ``claims`` is at fault.
        """
        members = resolve_targets([target, host or self.host], self.plugins)
        claims = self.plugin.call("claims", target=members.accelerators[0].target) or Claims()
        accelerator = members.accelerators[0].target
        return replace(self, target=accelerator, host=members.host.target, members=members, claims=claims)


def find_subjects(
    plugin: str,
    models: Sequence[Path] = (),
    *,
    plugins: PluginHost,
    target: str | None = None,
    host: str | None = None,
    folder: Path = Path("uma-check"),
    seed: int = 0,
    layers: int = DEFAULT_LAYERS,
    seconds: float = DEFAULT_SECONDS,
) -> tuple[Subject, ...]:
    """The targets that are checked of a plugin: of each of its accelerators the one with defaults, then those that the
    plugin claims.

    Args:
        plugin: the name of a distribution or of an entry point, in any spelling; or the folder of a plugin's sources.
        models, plugins, folder, seed, layers, seconds: as of `Subject`.
        target: the text of the one target to check.
        host: the text of the host beside it, where that is not the one that the target names or has by default.

    Raises:
        UsageError: there is no such plugin, or it serves no accelerators; the target is malformed, or not the plugin's;
            no host is to be had.
        PluginError: the plugin is at fault, or disabled.
    """
    source, name = _named(plugin)
    loaded = _loaded(name, plugins)
    kinds = _kinds(name, loaded)
    if target is not None:
        targets = [plugins.target(target)]
        if targets[0].kind.name not in loaded.kinds:
            of_it = ", ".join(kind.name for kind in kinds)
            raise UsageError(
                f"target {shown(target)} is none of {loaded.entry.distribution}",
                hint=f"it serves {of_it}; name one of them with its attributes",
            )
    else:
        targets = [plugins.target(kind.name) for kind in kinds]
    subjects: list[Subject] = []
    for number, one in enumerate(targets):
        beside = plugins.target(host) if host is not None else _host_of(one, loaded, plugins)
        members = resolve_targets([one, beside], plugins)
        accelerator = members.accelerators[0].target
        claims = loaded.call("claims", target=accelerator) or Claims()
        subject = Subject(
            plugins,
            accelerator,
            members.host.target,
            members,
            claims,
            tuple(models),
            folder,
            seed,
            layers,
            source,
            is_first=True,
            leads=number == 0,
            seconds=seconds,
        )
        subjects.append(subject)
        if target is None:
            subjects += [_claimed(text, subject) for text in claims.targets]
    return tuple(subjects)


def _claimed(text: str, subject: Subject) -> Subject:
    """A target that the claims name; whatever is wrong with it is the plugin's fault."""
    try:
        target = subject.plugins.target(text)
        if target.kind.name != subject.kind.name:
            raise UsageError(f"it is of kind {target.kind.name}, not {subject.kind.name}")
        other = subject.for_target(target)
    except UsageError as error:
        raise subject.plugin.fault(f"claims the target {shown(text)}, which cannot be had: {error.what}") from error
    fewer = max(1, subject.layers // _FEWER)
    return replace(other, is_first=False, leads=False, layers=fewer, claims=replace(other.claims, targets=()))


def _named(plugin: str) -> tuple[Path | None, str]:
    """The folder of sources, where one is given, and the name of the plugin."""
    path = Path(plugin)
    if not (path.is_dir() and (path / "pyproject.toml").is_file()):
        if "/" in plugin or plugin in (".", ".."):
            raise UsageError(f"{shown(plugin)} is not a folder of a plugin's sources", hint="it has no pyproject.toml")
        return None, plugin
    project = read_project(path).get("project")
    name = project.get("name") if isinstance(project, dict) else None
    if not isinstance(name, str):
        raise UsageError("the project has no name", where=str(path / "pyproject.toml"), hint="write it under [project]")
    return path.resolve(), name


def read_project(folder: Path) -> dict[str, Any]:
    """The pyproject.toml of a folder of sources.

    Raises:
        UsageError: it cannot be read, or is not a TOML.
    """
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib

    path = folder / "pyproject.toml"
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"the project cannot be read: {error}", where=str(path)) from error


def _loaded(name: str, plugins: PluginHost) -> LoadedPlugin:
    statuses = plugins.examine(name)
    for status in statuses:
        if status.plugin is not None:
            return status.plugin
    [first, *_] = statuses
    if first.error is not None:
        raise first.error.with_traceback(None)
    raise PluginError(
        f"plugin {first.entry.distribution} {first.entry.version} is disabled {first.reason}",
        hint="have it enabled again",
    )


def _kinds(name: str, loaded: LoadedPlugin) -> list[TargetKind]:
    """The accelerators among its kinds; the one that is called so, where one is."""
    called = [kind for kind in loaded.kinds.values() if normalised(kind.name) == normalised(name)]
    kinds = called or list(loaded.kinds.values())
    accelerators = [kind for kind in kinds if not kind.is_host]
    if not accelerators:
        hosts = ", ".join(kind.name for kind in kinds)
        raise UsageError(
            f"plugin {loaded.entry.distribution} has no accelerator to check: {hosts} runs as a host",
            hint="what hosts compute is compared with the reference by uma verify",
        )
    return accelerators


def _host_of(target: Target, loaded: LoadedPlugin, plugins: PluginHost) -> Target:
    """What runs beside it: what it names, its kind's default, what its distribution requires, the only one there is."""
    if target.host is not None:
        return target.host
    if target.kind.default_host is not None:
        return plugins.target(target.kind.default_host)
    hosts = plugins.hosts()
    required = {normalised(re.split(r"[^A-Za-z0-9._-]", line, maxsplit=1)[0]) for line in loaded.entry.requires}
    near = [kind for kind in hosts if normalised(plugins.plugin_for(kind.name).entry.distribution) in required]
    if len(near or hosts) != 1:
        names = ", ".join(kind.name for kind in near or hosts) or "none is installed"
        raise UsageError(
            f"which host runs beside {target.kind.name} is not clear",
            hint=f"name one: --target '{target.kind.name} -host=HOST'; hosts: {names}",
        )
    return plugins.target((near or hosts)[0].name)
