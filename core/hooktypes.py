"""The records that hooks take and give: typed, frozen, and checked when they are made."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, get_args

from .errors import PluginError
from .target import Target
from .target.kind import shown
from .tir.nodes import Intrinsic, Memory, PrimFunc
from .tir.visit import intrinsics

if TYPE_CHECKING:
    import numpy as np

    from .relay import IRModule
    from .relay.expr import Expr, Function

__all__ = [
    "PHASES",
    "Code",
    "Implementation",
    "Lowered",
    "Pass",
    "Phase",
    "Refuse",
    "Runtime",
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
PHASES: tuple[Phase, ...] = get_args(Phase)
"""The points of the build at which a plugin's passes run, in order."""

Scope = Literal["module", "regions"]

_COMPILER = re.compile(r"[a-z][a-z0-9_.+-]{0,63}")
_PASS = re.compile(r"[a-z][a-z0-9_]*")
_PASS_REFERENCE = re.compile(r"([a-z][a-z0-9_]*\.)?[a-z][a-z0-9_]*")
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,199}")
_FILE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,197}\.[ch]")


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
        cc: the C compiler by its known name (``gcc``, ``clang``), never a path; ``None`` leaves it to the core.

    Raises:
        PluginError: a field is malformed.
    """

    cflags: tuple[str, ...] = ()
    cc: str | None = None

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


@dataclass(frozen=True)
class Implementation:
    """One way to reach a device: a simulator in C, for example.

    Args:
        bus: the C function ``int32_t BUS(uma_device *device, void *memory, size_t bytes)`` that fills in
            ``device->bus``; 0 where that worked, else a fault code.
        sources: C files that are needed for this one alone, by name.
        state_bytes: memory that it works in, given by the caller, aligned to 64 bytes.

    Raises:
        PluginError: a field is malformed.
    """

    bus: str
    sources: Mapping[str, str] = field(default_factory=dict)
    state_bytes: int = 0

    def __post_init__(self) -> None:
        _identifier(self.bus, "Implementation.bus")
        _sources(self, "Implementation.sources")
        if type(self.state_bytes) is not int or not 0 <= self.state_bytes < 2**31:
            raise PluginError(f"Implementation.state_bytes is {shown(self.state_bytes)}", hint="0 to 2**31 - 1")


@dataclass(frozen=True)
class Runtime:
    """How a device is driven: C that is compiled with every model that uses it.

    The driver reaches the device by ``uma_device.h`` alone: registers, memory, interrupt or poll. So one driver serves
    the simulator and the real thing; the target's attribute ``impl`` says which.

    Args:
        driver: the C object ``const uma_driver DRIVER``.
        header: the file that declares it and what intrinsics call; a key of ``sources``.
        sources: C files of the driver, by name; names and symbols begin with something of the plugin's own.
        implementations: by the value of ``impl``. ``mmio``, registers at the address ``base``, is the core's own and
            need not be listed where the driver supports it: name it with the bus ``uma_mmio_bus``.
        parameters: numbers that tell one device of the kind from another, ``device->parameters`` in C.
        faults: what the fault codes of driver and device mean; every code but 0 is a fault.
        counters: names of what the driver counts, in the order of its indices: ``cycles``, ``bytes_in``.
        memories: the accelerator's memories that loops for this target may use.
        intrinsics: its instructions that they may execute. What is not listed is in no model: C text that comes with
            the text of a model counts for nothing.

    Raises:
        PluginError: a field is malformed.
    """

    driver: str
    header: str
    sources: Mapping[str, str]
    implementations: Mapping[str, Implementation]
    parameters: tuple[int, ...] = ()
    faults: Mapping[int, str] = field(default_factory=dict)
    counters: tuple[str, ...] = ()
    memories: tuple[Memory, ...] = ()
    intrinsics: tuple[Intrinsic, ...] = ()

    def __post_init__(self) -> None:
        _identifier(self.driver, "Runtime.driver")
        _sources(self, "Runtime.sources")
        if self.header not in self.sources or not self.header.endswith(".h"):
            raise PluginError(f"Runtime.header is {shown(self.header)}, not a header among the sources")
        implementations: object = self.implementations
        if not isinstance(implementations, Mapping) or not implementations:
            raise PluginError("Runtime.implementations must have at least one", hint='{"sim": Implementation(...)}')
        for name, made in implementations.items():
            if not isinstance(name, str) or not isinstance(made, Implementation):
                raise PluginError(f"Runtime.implementations: {shown(name)} is {shown(made)}, not an Implementation")
        for number in self.parameters:
            if type(number) is not int or not -(2**63) <= number < 2**63:
                raise PluginError(f"Runtime.parameters: {shown(number)} is no 64-bit integer")
        for code, meaning in self.faults.items():
            if type(code) is not int or not -(2**31) <= code < 2**31 or code == 0 or not isinstance(meaning, str):
                raise PluginError(f"Runtime.faults: {shown(code)} is no fault code with a meaning", hint="not 0: text")
        for counter in self.counters:
            _identifier(counter, "Runtime.counters")
        for name, kind in (("memories", Memory), ("intrinsics", Intrinsic)):
            given: object = getattr(self, name)
            if not isinstance(given, (tuple, list)) or not all(isinstance(one, kind) for one in given):
                raise PluginError(f"Runtime.{name} is {shown(given)}, not a tuple of {kind.__name__}")
            object.__setattr__(self, name, tuple(given))
        object.__setattr__(self, "implementations", MappingProxyType(dict(self.implementations)))
        object.__setattr__(self, "parameters", tuple(self.parameters))
        object.__setattr__(self, "faults", MappingProxyType(dict(self.faults)))
        object.__setattr__(self, "counters", tuple(self.counters))

    def undeclared(self, func: PrimFunc) -> str | None:
        """What loops use though it is not this accelerator's, in words; None where all is."""
        for memory in func.memories:
            if memory not in self.memories:
                return f"the memory {memory.name!r}"
        for intrinsic in intrinsics(func):
            if intrinsic not in self.intrinsics:
                return f"the intrinsic {intrinsic.name!r}"
        return None


def _identifier(value: object, what: str) -> None:
    if not isinstance(value, str) or not _IDENTIFIER.fullmatch(value):
        raise PluginError(f"{what} is {shown(value)}, not an identifier of C")


def _sources(record: Any, what: str) -> None:
    sources: object = record.sources
    if not isinstance(sources, Mapping):
        raise PluginError(f"{what} is {shown(sources)}", hint="a mapping from file name to text")
    for name, text in sources.items():
        if not isinstance(name, str) or not _FILE.fullmatch(name):
            raise PluginError(f"{what}: {shown(name)} cannot name a C file", hint="letters, digits, _ and .c or .h")
        if not isinstance(text, str):
            raise PluginError(f"{what}: {name} is {shown(text)}, not text")
    object.__setattr__(record, "sources", MappingProxyType(dict(sources)))
