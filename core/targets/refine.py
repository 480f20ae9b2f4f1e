"""`H -compiler=X`: the kind X beside H. Taken apart here, and what means one thing made one.

X gets the attributes of H that it declares, and the name that `H -compiler=X` has; H is its host, or has the same host.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple, Protocol

from ..errors import UsageError
from .kind import COMPOSITE, Alias, TargetKind
from .syntax_tree import TargetLocation, join_path
from .target import Target
from .text import LocatedError
from .values import shown

__all__ = ["Given", "Plugins", "general", "one_each", "refines", "split_refinement"]


class Plugins(Protocol):
    """Where kinds come from."""

    def lookup(self, name: str) -> TargetKind | Alias:
        """The kind or alias of a name; UsageError where there is none, PluginError where it is broken."""

    def hosts(self) -> Sequence[TargetKind]:
        """The kinds that can be hosts, as far as they are not broken."""


class Given(NamedTuple):
    """A target, and where it was given.

    Args:
        target: what it is.
        place: where it stands.
        role: of what `H -compiler=X` was taken apart into: ``compiler`` for X, ``compiled`` for H.
        origin: what was taken apart.
    """

    target: Target
    place: TargetLocation
    role: Literal["compiler", "compiled"] | None = None
    origin: Target | None = None


def refines(special: Target, general: Target) -> bool:
    """Whether ``special`` is ``general`` with more said of it: one kind, and all attributes of ``general`` are its.

    `cuda -arch=sm_80 -compiler=cutlass` refines `cuda -arch=sm_80`. Every target refines itself; labels do not count.
    """
    return special.kind.name == general.kind.name and general.attrs.items() <= special.attrs.items()


def general(special: Target, candidates: Iterable[Target]) -> Target:
    """The least specialised of ``candidates`` that ``special`` refines, the first of several; else ``special``."""
    return min((one for one in candidates if refines(special, one)), key=lambda one: len(one.attrs), default=special)


def split_refinement(entry: Given, plugins: Plugins) -> tuple[Given | None, Given]:
    """X and H of `H -compiler=X`; None and the target itself where nothing compiles for it but its own kind.

    Raises:
        UsageError: no plugin serves a kind X, X is a host or a name for a whole target, or an attribute of H is no
            value of X's.
        PluginError: from ``plugins``.
    """
    target, place = entry.target, entry.place
    name = target.attrs.get("compiler")
    if target.kind.name == COMPOSITE or name is None:
        return None, entry
    attrs = {attribute: value for attribute, value in target.attrs.items() if attribute != "compiler"}
    try:
        if name == target.kind.name:
            return None, Given(Target(target.kind, attrs, target.label, host=target.host), place)
        kind = _compiler(str(name), target, plugins)
        names = {attribute.name for attribute in kind.attributes}
        handed = {attribute: value for attribute, value in attrs.items() if attribute in names}
        compiler = Target(kind, handed, target.label)
        compiled = Target(target.kind, attrs, host=target.host)
    except UsageError as error:
        error.where = None
        raise LocatedError(error, join_path(place.path, "compiler"), place.spot) from error
    return Given(compiler, place, "compiler", target), Given(compiled, place, "compiled", target)


def _compiler(name: str, target: Target, plugins: Plugins) -> TargetKind:
    """The kind that compiles for ``target``."""
    try:
        kind = plugins.lookup(name)
    except UsageError as error:
        text = f"{error.what}, which '{target}' names as its compiler"
        raise UsageError(text, hint=error.hint) from error
    if isinstance(kind, Alias):
        text = f"{shown(name)}, which '{target}' names as its compiler, stands for a whole target"
        raise UsageError(text, hint=f"name a kind, or give what {name} stands for beside the target")
    if kind.is_host or kind.name == COMPOSITE:
        text = f"{shown(name)}, which '{target}' names as its compiler, runs whole models itself"
        raise UsageError(text, hint="give both, as two targets")
    return kind


def one_each(entries: Sequence[Given], also: Sequence[Given] = ()) -> tuple[list[Given], list[str]]:
    """Targets of one sort, with what came of a ``-compiler`` made one with what it is the same as.

    - H of `H -compiler=X` is the least specialised of all those that it refines. An X among them stands before it.
    - X is one with another X of which no other name was given, where one of the two refines the other: the more special
      of the two, at the place of the first.

    Args:
        entries: hosts, or accelerators, in order.
        also: targets that H may stand for besides.

    Returns:
        What is left, in order; and in sentences where attributes of an H play no part any more.
    """
    remaining: list[Given] = []
    notes: list[str] = []
    compiler: int | None = None
    candidates = sorted((*entries, *also), key=lambda t: t.role is not None)  # stable: what was given goes first
    explicit = {id(entry.target) for entry in entries if entry.role is None}
    for entry in entries:
        merged = entry
        if entry.role == "compiled":
            stand = general(entry.target, (one.target for one in candidates if one.role != "compiler"))
            merged = next(one for one in candidates if one.target is stand)
            if merged.target.attrs != entry.target.attrs:
                notes.append(f"what '{entry.origin}' leaves goes to '{merged.target}', which is less specialised")
            before = next((i for i, one in enumerate(remaining) if one.target == stand), None)
            if before is not None and compiler is not None and compiler > before:
                remaining.insert(before, remaining.pop(compiler))
            if before is not None or id(stand) in explicit:
                continue
        twin = next((i for i, one in enumerate(remaining) if _is_one(one, merged)), None)
        if twin is None:
            remaining.append(merged)
        else:
            remaining[twin] = _both(remaining[twin], merged)
        # The one of what is taken apart is followed by the other.
        compiler = (len(remaining) - 1 if twin is None else twin) if entry.role == "compiler" else None
    return remaining, notes


def _is_one(one: Given, other: Given) -> bool:
    """Whether two are one X, of which a ``-compiler`` speaks."""
    if "compiler" not in (one.role, other.role):
        return False
    named = {entry.target.label for entry in (one, other)} - {None}
    return len(named) < 2 and (refines(one.target, other.target) or refines(other.target, one.target))


def _both(first: Given, second: Given) -> Given:
    """One target for two, of which one at least came of a ``-compiler``."""
    special, other = (first, second) if refines(first.target, second.target) else (second, first)
    base = special if special.role is None or other.role is not None else other
    label = special.target.label or other.target.label
    target = special.target if label == special.target.label else special.target.with_name(label, special.target.tag)
    return Given(target, base.place, base.role, base.origin)
