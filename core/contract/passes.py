"""Passes of plugins, and the points of the build at which they run."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Literal, get_args

from ..errors import PluginError
from ..support.formatting import format_difference
from ..targets.kind import shown

if TYPE_CHECKING:
    from ..relay import IRModule

__all__ = ["PHASES", "Pass", "Phase", "Scope", "Tolerance"]

Phase = Literal[
    "PRE_PARTITIONING",
    "POST_PARTITIONING_0",
    "POST_PARTITIONING_1",
    "TIR_0",
    "TIR_1",
    "TIR_2",
    "TIR_3",
]
"""A point of the build at which plugins' passes run. Each finds the module in a certain form, and leaves it so:

- ``PRE_PARTITIONING``: canonical relay: types are known, constants folded, nothing is decomposed, and canonicalising it
  changes nothing. Nothing is placed but what has the attribute ``Compiler`` already.
- ``POST_PARTITIONING_0``: canonical relay with regions: functions of the module with ``Compiler``, each for an
  accelerator of the build. Every op has an owner, the host where it is in no region.
- ``POST_PARTITIONING_1``: every op that is left in ``main`` is in a function that becomes one kernel of the host. The
  last sight of ops.
- ``TIR_0``: ``main`` and the regions call loops; besides there are tuples and reshapes only. Loops that drive a device
  are called in a region of its target, and use what its `Runtime` declares.
- ``TIR_1``: as before; the loops came here simplified.
- ``TIR_2``: no loop is left that is meant to be unrolled.
- ``TIR_3``: buffers have one dimension or none, and what loops allocate in an accelerator's memory has become workspace
  parameters. The last sight of loops: the order of calls and the plan of memory follow.

At every phase the module is verified after each pass, ``main`` keeps what it takes and gives, and a region keeps its
target.
"""

PHASES: tuple[Phase, ...] = get_args(Phase)
"""The points of the build at which a plugin's passes run, in order."""

_WITH_OPS: tuple[Phase, ...] = PHASES[:3]
"""The phases at which the module is made of ops."""

Scope = Literal["module", "regions"]
"""What a pass is given: the whole module, or the regions of its own target."""

_PASS = re.compile(r"[a-z][a-z0-9_]*")
_PASS_REFERENCE = re.compile(r"([a-z][a-z0-9_]*\.)?[a-z][a-z0-9_]*")


@dataclass(frozen=True)
class Tolerance:
    """How far off what a pass gives may be from what it was given, for the same inputs.

    Args:
        steps: of integers, the largest difference.
        relative: of floats, the largest difference as a part of the largest element of the array, below 1.

    Raises:
        PluginError: a field is malformed, or both are 0: a pass that changes no result declares none.
    """

    steps: int = 0
    relative: float = 0.0

    def __post_init__(self) -> None:
        steps: object = self.steps
        relative: object = self.relative
        if type(steps) is not int or steps < 0:
            raise PluginError(f"a tolerance of {shown(steps)} steps", hint="a whole number, 0 or more")
        if type(relative) not in (int, float) or not math.isfinite(self.relative) or not 0 <= self.relative < 1:
            what = f"a tolerance of {shown(relative)} of the largest element"
            raise PluginError(what, hint="a number from 0 to 1, for example 1e-3")
        if not any(getattr(self, field.name) for field in fields(self)):
            raise PluginError("a tolerance of nothing", hint="leave tolerance out where no result changes")

    def __str__(self) -> str:
        return format_difference(self.steps, self.relative)


@dataclass(frozen=True)
class Pass:
    """A rewrite of the module at one phase of the build.

    Args:
        phase: when it runs, one of `PHASES`.
        name: lower-case words and underscores, unique among the target's passes of that phase.
        fn: is given a read-only module and gives the one to go on with. With scope ``regions`` the module holds the
            target's own regions and the loops that they call alone, and the result the same functions under the same
            names; what others call of them stays as it is for these.
        before, after: passes of the same phase that it must come before or after: ``name`` of its own plugin, or
            ``kind.name`` of another target kind, which counts where that kind is part of the build.
        scope: ``module``, or ``regions`` for the target's own regions; a host has none.
        tolerance: how far off it may make what ``main`` gives, or with scope ``regions`` what each region gives; None
            for a pass that changes no result. One that declares it is run where the user consents alone, and is held
            to it by ``uma verify``. It is for a phase at which there are ops.

    Raises:
        PluginError: a field is malformed.
    """

    phase: Phase
    name: str
    fn: Callable[[IRModule], IRModule]
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    scope: Scope = "module"
    tolerance: Tolerance | None = None

    def __post_init__(self) -> None:
        name: object = self.name
        if not isinstance(name, str) or not _PASS.fullmatch(name):
            raise PluginError(f"{shown(name)} cannot name a pass", hint="lower-case letters, digits, underscores")
        if self.phase not in PHASES:
            raise PluginError(
                f"pass {name!r} is for phase {shown(self.phase)}, which there is not", hint=", ".join(PHASES)
            )
        if self.scope not in get_args(Scope):
            raise PluginError(f"pass {name!r} has scope {shown(self.scope)}", hint="module or regions")
        if self.scope == "regions" and self.phase == "PRE_PARTITIONING":
            raise PluginError(
                f"pass {name!r} is for regions, before there are any", hint="a later phase, or scope module"
            )
        tolerance: object = self.tolerance
        if tolerance is not None and not isinstance(tolerance, Tolerance):
            what = f"tolerance of pass {name!r} is {shown(tolerance)}"
            raise PluginError(what, hint="for example Tolerance(steps=1)")
        if tolerance is not None and self.phase not in _WITH_OPS:
            what = f"pass {name!r} declares a tolerance at {self.phase}, where there are no ops to compare"
            raise PluginError(what, hint=", ".join(_WITH_OPS))
        if not callable(self.fn):
            raise PluginError(f"fn of pass {name!r} is {shown(self.fn)}, not a function of the module")
        for side in ("before", "after"):
            names: object = getattr(self, side)
            if not isinstance(names, (tuple, list)) or not all(
                isinstance(other, str) and _PASS_REFERENCE.fullmatch(other) for other in names
            ):
                raise PluginError(f"{side} of pass {name!r} is {shown(names)}", hint='a tuple: ("name", "kind.name")')
            object.__setattr__(self, side, tuple(names))
