"""The records that hooks take and give: typed, frozen, and checked when they are made."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

from .errors import PluginError, UsageError
from .machines import Machine, find_runner
from .target import Target
from .target.kind import shown
from .tir.nodes import PrimFunc

if TYPE_CHECKING:
    import numpy as np

    from .relay import IRModule
    from .relay.expr import Expr, Function

__all__ = [
    "PHASES",
    "Code",
    "Cost",
    "Lowered",
    "Pass",
    "Phase",
    "Refuse",
    "Scope",
    "Strategy",
]

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

Scope = Literal["module", "regions"]
"""What a pass is given: the whole module, or the regions of its own target."""

_COMPILER = re.compile(r"[a-z][a-z0-9_.+-]{0,63}")
_PASS = re.compile(r"[a-z][a-z0-9_]*")
_PASS_REFERENCE = re.compile(r"([a-z][a-z0-9_]*\.)?[a-z][a-z0-9_]*")


class Refuse(Exception):
    """Raised by a lowering that cannot do what its patterns promised: gives a node back.

    The core takes the match that holds the node out of the region, keeps every other match of it, places the node
    anew, and shows the reason to whoever asks why it is not on the accelerator. A refusal is no fault.

    Args:
        reason: one sentence for the user: what the hardware cannot do, and the value that shows it.
        at: the node, an expression of the region that the hook was given; None gives all of the region back.
    """

    def __init__(self, reason: str, at: Expr | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.at = at


@dataclass(frozen=True)
class Code:
    """How the functions of a host become machine code.

    The C is the core's own, printed from the functions of the module. What the fields do not say is the core's choice
    as well, so ``Code()`` means the same as no answer at all.

    Args:
        cflags: flags for the C compiler, one argument each, in order. Only flags on the core's published list are
            accepted; none goes through a shell.
        cc: the C compiler by its known name (``gcc``, ``clang``, ``arm-none-eabi-gcc``), never a path; ``None`` leaves
            it to the core.
        machine: the machine that the code is for, as `uma.machines.Machine.parse` takes it: ``aarch64-linux-gnu``, and
            ``arm-none-eabi cortex-m0`` where there is no operating system; ``None`` for this one. Hosts of one machine
            run in one process or image, others do not.
        runner: the emulator that runs the code here, one of `uma.machines.RUNNERS`; only with ``machine``.

    Raises:
        PluginError: a field is malformed.
    """

    cflags: tuple[str, ...] = ()
    cc: str | None = None
    machine: str | None = None
    runner: str | None = None

    def __post_init__(self) -> None:
        cflags: object = self.cflags
        if not isinstance(cflags, (tuple, list)):
            raise PluginError("Code.cflags must be a tuple of strings", hint='write ("-O3",), not "-O3"')
        for flag in cflags:
            if not (isinstance(flag, str) and flag.startswith("-") and flag.isprintable()):
                raise PluginError(f"Code.cflags: {shown(flag)} is no compiler flag", hint='flags look like "-O3"')
        object.__setattr__(self, "cflags", tuple(cflags))
        cc: object = self.cc
        if cc is not None and not (isinstance(cc, str) and _COMPILER.fullmatch(cc)):
            raise PluginError(f"Code.cc: {shown(cc)} is no name of a compiler", hint='names look like "gcc"')
        for name in ("machine", "runner"):
            value: object = getattr(self, name)
            if value is not None and not isinstance(value, str):
                raise PluginError(f"Code.{name} is {shown(value)}, not a text")
        try:
            machine = None if self.machine is None else Machine.parse(self.machine)
            if self.runner is not None:
                find_runner(self.runner, machine)
        except UsageError as error:
            raise PluginError(f"Code: {error.what}", hint=error.hint) from error


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

    Raises:
        PluginError: a field is malformed.
    """

    phase: Phase
    name: str
    fn: Callable[[IRModule], IRModule]
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    scope: Scope = "module"

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
        if not callable(self.fn):
            raise PluginError(f"fn of pass {name!r} is {shown(self.fn)}, not a function of the module")
        for side in ("before", "after"):
            names: object = getattr(self, side)
            if not isinstance(names, (tuple, list)) or not all(
                isinstance(other, str) and _PASS_REFERENCE.fullmatch(other) for other in names
            ):
                raise PluginError(f"{side} of pass {name!r} is {shown(names)}", hint='a tuple: ("name", "kind.name")')
            object.__setattr__(self, side, tuple(names))


@dataclass(frozen=True)
class Lowered:
    """Loops for one function, and the constants that they need.

    Args:
        func: its inputs are the parameters of the function, in order, of the same shapes and dtypes; its outputs the
            function's results likewise.
        constants: what its parameters of role ``constant`` hold, in order: packed weights, tables.

    Raises:
        PluginError: ``func`` is no PrimFunc, or the constants are not those that it takes.
    """

    func: PrimFunc
    constants: tuple[np.ndarray, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.func, PrimFunc):
            raise PluginError(f"Lowered.func is {shown(self.func)}, not a PrimFunc")
        wanted = [f"{b.dtype}{list(b.shape)}" for b in self.func.buffers("constant")]
        given = [f"{getattr(c, 'dtype', type(c).__name__)}{list(getattr(c, 'shape', ()))}" for c in self.constants]
        if given != wanted:
            raise PluginError(
                f"Lowered.constants are ({', '.join(given)}), the function takes ({', '.join(wanted)})",
                hint="one numpy array per parameter of role constant, in order",
            )
        object.__setattr__(self, "constants", tuple(self.constants))


@dataclass(frozen=True)
class Cost:
    """What it takes to run something once, as far as its target's plugin can tell. None is not known.

    Args:
        cycles: of the device's clock.
        seconds: time. Cycles or seconds are always known.
        bytes_moved: between the memory of the host and that of the device, both ways together.
        energy_j: energy, in joules.

    Raises:
        PluginError: a field is no such number, or neither cycles nor seconds are given.
    """

    cycles: float | None = None
    seconds: float | None = None
    bytes_moved: int | None = None
    energy_j: float | None = None

    def __post_init__(self) -> None:
        for name in COST_FIELDS:
            value: Any = getattr(self, name)
            kinds = (int,) if name == "bytes_moved" else (int, float)
            if value is not None and not (type(value) in kinds and math.isfinite(value) and value >= 0):
                what = "a whole number" if name == "bytes_moved" else "a number"
                raise PluginError(f"Cost.{name} is {shown(value)}, not {what} from 0 on")
        if self.cycles is None and self.seconds is None:
            raise PluginError("Cost has neither cycles nor seconds", hint="Cost(cycles=...) or Cost(seconds=...)")

    @staticmethod
    def total(costs: Sequence[Cost]) -> Cost | None:
        """The cost of one after the other: of each field the sum, where all know it. None of nothing, and where they
        have neither cycles nor seconds in common."""
        sums: dict[str, Any] = {}
        for name in COST_FIELDS:
            values = [getattr(cost, name) for cost in costs]
            sums[name] = None if None in values else sum(values)
        known = bool(costs) and (sums["cycles"] is not None or sums["seconds"] is not None)
        return Cost(**sums) if known else None

    def record(self) -> dict[str, float | None]:
        """The same as plain data, for JSON."""
        return {name: getattr(self, name) for name in COST_FIELDS}


COST_FIELDS = ("cycles", "seconds", "bytes_moved", "energy_j")

Lowering = Callable[["Function", Target], "Lowered | None"]


@dataclass(frozen=True)
class Strategy:
    """How a target computes an op, or what one of its patterns takes.

    Args:
        name: of the op (``qnn.conv2d``) or of the pattern (``my_device.conv2d_relu``).
        lower: is given a function that does just that, and the target; gives its loops, or None where this one is not
            for it. It may raise `Refuse`.

    Raises:
        PluginError: a field is malformed.
    """

    name: str
    lower: Lowering

    def __post_init__(self) -> None:
        name: object = self.name
        if not isinstance(name, str) or not name:
            raise PluginError(f"{shown(name)} names no op and no pattern")
        if not callable(self.lower):
            raise PluginError(f"lower of strategy {name!r} is {shown(self.lower)}, not a function")
