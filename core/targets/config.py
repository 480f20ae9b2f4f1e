"""`CompilationConfig`: the one place that says which of some targets are hosts and accelerators, and in what order."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ..errors import PluginError, UsageError
from .kind import UNREAD, TargetKind
from .parsing import COMPOSITE_KIND, Places, locating_errors, read_placed, read_target, two_alike
from .refine import Given, Plugins, general, one_each, refines, split_refinement
from .syntax_tree import TargetLocation, join_path
from .target import Target
from .text import LocatedError, spell

__all__ = ["CompilationConfig", "Plugins", "derivations", "refines"]


def derivations(targets: Iterable[Target]) -> tuple[str, ...]:
    """What follows from the attributes of some targets, in a sentence for each of which something does."""
    return tuple(
        f"from {_named(target)} follows " + ", ".join(_derived(target, name) for name in target.derived)
        for target in targets
        if target.derived
    )


def _derived(target: Target, name: str) -> str:
    replaced = f" in place of {spell(target.attrs[name])}" if name in target.attrs else ""
    return f"-{name}={spell(target.derived[name])}{replaced}"


@dataclass(frozen=True)
class CompilationConfig:
    """The targets of a build, validated: no composites any more, and each with a name of its own.

    Args:
        hosts: at least one, in order of priority; the first runs the model's entry.
        accelerators: in order of priority.
        notes: which host was added or overridden, and which attributes have no effect, in sentences.
        compilers: the names of X and H of each `H -compiler=X`.
    """

    hosts: tuple[Target, ...]
    accelerators: tuple[Target, ...] = ()
    notes: tuple[str, ...] = field(default=(), compare=False)
    compilers: tuple[tuple[str, str], ...] = field(default=(), compare=False)

    @classmethod
    def resolve(cls, targets: object, plugins: Plugins) -> CompilationConfig:
        """The configuration for some targets.

        `H -compiler=X` is two targets, X and H: see `uma.targets.refine`.

        The first host is the one that a target names as its ``host``, the first of the hosts that do, else the first
        of the accelerators and composites; else the first host among the targets; else the default host of the first
        accelerator that has one. The other hosts among the targets follow. Of ``targets``, only the order of hosts
        and that of accelerators matter.

        Args:
            targets: in any form that `read_targets` takes; also a `CompilationConfig`.
            plugins: where kinds come from.

        Raises:
            UsageError: a target is malformed, two have one name, there is no host, or an accelerator needs a device
                that there is not; ``where`` says which, by its column in a text, else by its path.
            PluginError: from ``plugins``, or a default host is malformed.
        """
        requested = targets.targets if isinstance(targets, CompilationConfig) else targets
        bag, places = read_placed(requested, plugins.lookup)
        with locating_errors():
            sorter = _Sorter(places, plugins)
            for target in bag:
                sorter.add(Given(target, places[target]))
        offers = [*sorter.offered_by_hosts, *sorter.offered_by_others]
        given_hosts, notes = one_each(sorter.hosts, [offered for offered, _ in offers])
        given_accelerators, more = one_each(sorter.accelerators)
        notes += more
        offers = [(one_each([host], given_hosts)[0][0], by) for host, by in offers]
        if offers:
            (chosen, place, *_), by = offers[0]
            first = given_hosts[0].target if given_hosts else chosen
            if first != chosen and by.kind is not COMPOSITE_KIND:
                notes.append(f"{_named(chosen)}, which {_named(by)} names, goes before {_named(first)} as the host")
            given_hosts = [Given(chosen, place), *(host for host in given_hosts if host.target != chosen)]
            for (other, *_), by in offers[1:]:
                if all(other != host.target for host in given_hosts):
                    notes.append(f"the host {_named(other)}, which {_named(by)} names, gives way to {_named(chosen)}")
        with locating_errors():
            if not given_hosts:
                host, note = _default_host(given_accelerators, plugins)
                given_hosts, notes = [Given(host, _ADDED)], [*notes, note]
            _check_names([*given_hosts, *given_accelerators])
        hosts, accelerators = (tuple(one.target for one in some) for some in (given_hosts, given_accelerators))
        compilers = targets.compilers if isinstance(targets, CompilationConfig) else ()
        compilers += _compilers([*sorter.hosts, *sorter.accelerators], (*hosts, *accelerators))
        config = cls(hosts, accelerators, (*notes, *_without_effect((*accelerators, *hosts))), compilers)
        with locating_errors():
            for target, place, *_ in given_accelerators:
                config._check_device(target, place)
        return config

    @property
    def host(self) -> Target:
        """The host that runs the entry."""
        return self.hosts[0]

    @property
    def targets(self) -> tuple[Target, ...]:
        """Accelerators, then hosts."""
        return (*self.accelerators, *self.hosts)

    @property
    def default(self) -> Target:
        """The least specialised host that `host` refines: what takes an op of which nothing else is said."""
        return general(self.host, self.hosts)

    @property
    def canonical(self) -> Target:
        """One target that means all this: the host alone, or a composite of it and the others."""
        others = (*self.accelerators, *self.hosts[1:])
        return Target(COMPOSITE_KIND, {"devices": others}, host=self.host) if others else self.host

    def least_specialised(self, device_type: str) -> Target:
        """The one target of a device type that refines no other of this type.

        X of `H -compiler=X` refines H, and an accelerator that needs a device refines every target that is one.

        Raises:
            UsageError: there is no target of this type, or several refine no other.
        """
        candidates = [target for target in self.targets if target.device_type == device_type]
        least = [one for one in candidates if not any(self._is_above(one, other) for other in candidates)]
        if len(least) == 1:
            return least[0]
        if not candidates:
            types = sorted({target.device_type for target in self.targets})
            raise UsageError(f"there is no target of device type {device_type!r}", hint=f"there are {', '.join(types)}")
        raise UsageError(
            f"there is no least specialised target of device type {device_type!r}: {', '.join(map(_named, least))}",
            hint="name one by its label",
        )

    def _is_above(self, special: Target, other: Target) -> bool:
        """Whether a target is more special than another of its device type."""
        if special.kind.needs_device != other.kind.needs_device:
            return special.kind.needs_device
        if (special.name, other.name) in self.compilers:
            return True
        return refines(special, other) and not refines(other, special)

    def device(self, accelerator: Target) -> Target:
        """The target that is the device of an accelerator: itself, unless its kind needs one; the first host, if that
        is of its device type; else the least specialised target of this type.

        Raises:
            UsageError: no target is such a device, or several are and none is the least specialised.
        """
        if not accelerator.kind.needs_device:
            return accelerator
        if self.host.device_type == accelerator.device_type:
            return self.host
        if not any(one.device_type == accelerator.device_type for one in self.targets if not one.kind.needs_device):
            raise UsageError("no target of this build is one")
        return self.least_specialised(accelerator.device_type)

    def _check_device(self, accelerator: Target, place: TargetLocation) -> None:
        """UsageError where an accelerator has no device."""
        try:
            self.device(accelerator)
        except UsageError as error:
            kind = accelerator.device_type
            text = f"{accelerator.name!r} needs a device of type {kind!r}: {error.what}"
            hint = f"add a target of device type {kind!r}, or leave out {accelerator.name!r}"
            raise LocatedError(UsageError(text, hint=hint), place.path, place.spot) from error


_ADDED = TargetLocation("", None, "", None)
"""Of what nobody gave."""


class _Sorter:
    """Takes targets apart: composites into their members, and those into what is said of them and of others."""

    def __init__(self, places: Places, plugins: Plugins) -> None:
        self._places = places
        self._plugins = plugins
        self.hosts: list[Given] = []
        self.accelerators: list[Given] = []
        self.offered_by_hosts: list[tuple[Given, Target]] = []
        self.offered_by_others: list[tuple[Given, Target]] = []

    def add(self, entry: Given) -> None:
        """Add a target of the bag, and those within it."""
        entry = self._compiled(entry)
        target, drivers = entry.target, [entry]
        if target.kind is not COMPOSITE_KIND:
            (self.hosts if target.kind.is_host else self.accelerators).append(_alone(entry))
        if target.host is not None:
            host = self._compiled(self._nested(entry, "host", target.host))
            (self.offered_by_hosts if target.kind.is_host else self.offered_by_others).append((_alone(host), target))
            drivers.append(host)
        for driver in drivers:
            name, devices = _driven(driver.target)
            for i, device in enumerate(devices):
                self.add(self._nested(driver, f"{name}[{i}]", device))

    def _compiled(self, entry: Given) -> Given:
        """What is left of a target without who compiles for it, which is added."""
        compiler, compiled = split_refinement(entry, self._plugins)
        if compiler is not None:
            self.accelerators.append(compiler)
            if compiled.target.kind.is_host:
                self.offered_by_others.append((_alone(compiled), entry.target))
        return compiled

    def _nested(self, outer: Given, step: str, target: Target) -> Given:
        """A target within another: where it was given itself, else where it is in that."""
        path = join_path(outer.place.path, step)
        return Given(target, self._places.get(target, TargetLocation(path, outer.place.spot, path, outer.place.spot)))


def _compilers(entries: Sequence[Given], targets: Sequence[Target]) -> tuple[tuple[str, str], ...]:
    """The names of X and H of each `H -compiler=X`.

    Args:
        entries: hosts and accelerators as they were given.
        targets: what they became.
    """
    names: dict[int, dict[str, str]] = {}
    for target, _, role, whole in entries:
        if role is not None:
            alike = (one for one in targets if one.kind is target.kind and target.label in (None, one.label))
            related = [one for one in alike if refines(one, target) or refines(target, one)]
            least = general(target, related)
            names.setdefault(id(whole), {})[role] = (least if least in related or not related else related[0]).name
    return tuple((one["compiler"], one["compiled"]) for one in names.values() if len(one) == 2)


def _without_effect(targets: Iterable[Target]) -> Iterable[str]:
    """Which of the attributes that were given have no effect, and why, in sentences."""
    for target in targets:
        kind = target.kind
        for name in UNREAD:
            if name in target.attrs and kind.is_common(name):
                yield f"-{name} of '{target.name}' has no effect: target kind {kind.name!r} does not read it"
        if "from_device" in target.attrs and kind.is_common("from_device"):
            why = f"target kind {kind.name!r} cannot read the attributes of its devices"
            yield f"-from_device of '{target.name}' has no effect: {why}"


def _driven(target: Target) -> tuple[str, tuple[Target, ...]]:
    """The devices of a composite, or the accelerators of a host; before them the attribute's name."""
    name = "devices" if target.kind is COMPOSITE_KIND else "accelerators"
    drives = target.kind is COMPOSITE_KIND or target.kind.is_host
    return name, (target.get_attr(name) or ()) if drives else ()


def _alone(entry: Given) -> Given:
    """What is said of the target itself, and not of those around it; a tag is of them all."""
    target = entry.target
    if target.host is None and not (target.kind.is_host and "accelerators" in target.attrs):
        return entry
    attrs = {n: value for n, value in target.attrs.items() if not (target.kind.is_host and n == "accelerators")}
    return entry._replace(target=Target(target.kind, attrs, target.label))


def _default_host(entries: Sequence[Given], plugins: Plugins) -> tuple[Target, str]:
    """The default host of the first accelerator that has one, and what to say of that."""
    accelerators = [one.target for one in entries]
    for target in accelerators:
        text = target.kind.default_host
        if text is None:
            continue
        try:
            host = read_target(text, plugins.lookup)
        except UsageError as error:
            message = f"target kind {target.kind.name!r}: its default host {text!r} cannot be used: {error.what}"
            raise PluginError(message, where=error.where, hint=error.hint) from error
        if not host.kind.is_host or host.host is not None or host.get_attr("accelerators"):
            raise PluginError(f"target kind {target.kind.name!r}: its default host {text!r} is not a host alone")
        return host, f"no host was given: {_named(host)} was added, the default host of {_named(target)}"
    fault = UsageError(
        f"{' and '.join(repr(target.name) for target in accelerators)} cannot run a whole model alone",
        hint=f"give a host besides: {_with_host(accelerators, plugins.hosts())}",
    )
    raise LocatedError(fault, entries[0].place.path, entries[0].place.spot)


def _with_host(accelerators: Sequence[Target], hosts: Iterable[TargetKind]) -> str:
    """The option that would work, with the first host that needs nothing said of it."""
    for kind in hosts:
        if not any(attribute.required for attribute in kind.attributes):
            text = str(Target(kind, {"accelerators": accelerators}))
            # Within double quotes a shell still reads these; single quotes it does not, and targets have many.
            return "--target " + (shlex.quote(text) if set(text) & set('"$`\\!') else f'"{text}"')
    return "no installed plugin brings one"


def _check_names(entries: Iterable[Given]) -> None:
    by_name: dict[str, Target] = {}
    for target, place, *_ in entries:
        if target.name in by_name:
            path, spot = (place.path, place.spot) if target.label is None else (place.label_path, place.label_spot)
            raise LocatedError(two_alike(by_name[target.name], target), path, spot)
        by_name[target.name] = target


def _named(target: Target) -> str:
    return f"'{target}'"
