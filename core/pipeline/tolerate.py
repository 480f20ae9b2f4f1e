"""What the user consents to: plugins' passes that change results, within a tolerance that they declare."""

from __future__ import annotations

from collections.abc import Collection
from fnmatch import fnmatchcase

from ..contract.passes import PHASES
from ..errors import UsageError
from ..lowering.build_targets import Members
from ..lowering.graph_queries import has_loops
from ..option_values import Tolerate
from ..program import Program
from ..relay.module import IRModule
from ..targets.values import shown, suggest
from .passes import Step, ordered

__all__ = ["passes_with_tolerance", "passes_withheld", "tolerated_passes"]


def passes_with_tolerance(members: Members) -> tuple[Step, ...]:
    """The passes of a build that declare a tolerance, in the order in which they would run.

    Raises:
        PluginError: as `ordered`.
    """
    return tuple(step for phase in PHASES for step in ordered(members.all, phase) if step.made.tolerance is not None)


def passes_withheld(members: Members, tolerate: Collection[str]) -> tuple[Step, ...]:
    """Those of them that are not run, for they are not among the consented."""
    return tuple(step for step in passes_with_tolerance(members) if step.name not in tolerate)


def tolerated_passes(form: IRModule | Program, tolerate: Tolerate, members: Members) -> tuple[str, ...]:
    """The passes that may change results, as ``label.pass``.

    Args:
        form: a model.
        tolerate: see `Tolerate`.
        members: the targets of the build.

    Raises:
        UsageError: it is malformed, or fits no pass that declares a tolerance; or the model was lowered already.
        PluginError: as `ordered`.
    """
    given: object = [tolerate] if isinstance(tolerate, str) else tolerate
    if not isinstance(given, (list, tuple)) or not all(isinstance(one, str) for one in given):
        raise UsageError(f"{shown(given)} names no passes", hint='for example tolerate="npu.round_weights"')
    if given and (isinstance(form, Program) or has_loops(form)):
        what = "the passes that change results within a tolerance have no business with a form that was lowered already"
        raise UsageError(what, hint="give tolerate with the model's file")
    known = [step.name for step in passes_with_tolerance(members)]
    found: dict[str, None] = {}
    for pattern in given:
        matching = [name for name in known if name == pattern or fnmatchcase(name, pattern)]
        if not matching:
            there = f"these do: {', '.join(known)}" if known else "none of this build does"
            what = f"no pass that declares a tolerance is called {shown(pattern)}"
            raise UsageError(what, hint=suggest(pattern, known) + there)
        found.update(dict.fromkeys(matching))
    return tuple(name for name in known if name in found)
