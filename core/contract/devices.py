"""The devices that a model runs on, and what their plugins bring for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..errors import InternalError, ModelError, PluginError, UsageError
from ..program import Program
from ..relay.extern import BitField, Extern
from ..targets import Target
from ..targets.kind import shown, suggest
from .drivers import Implementation, Routine, Runtime

__all__ = ["CORE_BUSES", "MMIO_BUS", "Device", "Slot", "fields_of", "targets"]

CORE_BUSES = {"uma_mmio_bus": "uma_mmio.h", "uma_uio_bus": "uma_uio.h"}
"""The buses that are the core's own, by their names in C, and the headers that have them."""

MMIO_BUS = "uma_mmio_bus"
"""The bus that is the core's own, by its name in C: registers in memory, from the target's ``base`` on."""


@dataclass(frozen=True)
class Device:
    """One target that calls are for: an accelerator, and how it is driven; or a library, which has no driver.

    Args:
        label: what calls of the program are pinned to.
        kind: of its target, which names its plugin in errors.
        impl: which of the runtime's implementations reaches it; without meaning where there is no driver.
        runtime: what the plugin gave for its target.
        base: address of its registers, where these are memory of the machine.

    Raises:
        UsageError: there is no such implementation; or it needs an address, or cannot use one.
        PluginError: the sources of driver and implementation contradict each other.
    """

    label: str
    kind: str
    impl: str
    runtime: Runtime
    base: int | None = None

    def __post_init__(self) -> None:
        where = f"device {self.label!r}, target kind {self.kind!r}"
        if self.runtime.driver is None:
            return
        implementations = self.runtime.implementations
        if self.impl not in implementations:
            raise UsageError(
                f"there is no implementation {shown(self.impl)}",
                where=where,
                hint=suggest(self.impl, implementations) + f"impl takes {', '.join(implementations)}",
            )
        in_memory = self.implementation.bus == MMIO_BUS
        if self.implementation.bus in CORE_BUSES and self.implementation.state_bytes:
            message = f"implementation {self.impl!r} asks for memory, but {self.implementation.bus} has its own"
            raise PluginError(message, where=where)
        if in_memory and (self.base is None or not 0 < self.base < 2**64 or self.base % 4):
            fault = "has no base" if self.base is None else f"cannot have its registers at {self.base}"
            raise UsageError(
                f"implementation {self.impl!r} {fault}",
                where=where,
                hint="add -base=..., the address of the first register: positive, a multiple of 4",
            )
        if not in_memory and self.base is not None:
            raise UsageError(
                f"base was given, but implementation {self.impl!r} is not at an address of memory",
                where=where,
                hint="leave it out, or choose another implementation",
            )
        for name, text in self.implementation.sources.items():
            if self.runtime.sources.get(name, text) != text:
                message = f"driver and implementation {self.impl!r} have different files with the name {name!r}"
                raise PluginError(message, where=where)

    @classmethod
    def from_target(cls, label: str, target: Target, runtime: Runtime) -> Device:
        """The device that ``target`` describes by its attributes ``impl`` (default ``sim``) and ``base``."""
        impl, base = target.get_attr("impl"), target.get_attr("base")
        return cls(label, target.kind.name, "sim" if impl is None else impl, runtime, base)

    @property
    def implementation(self) -> Implementation:
        return self.runtime.implementations[self.impl]

    @property
    def driver(self) -> str | None:
        """The C object that drives it; None where nothing does."""
        return self.runtime.driver and (self.implementation.driver or self.runtime.driver)

    @property
    def memory_bytes(self) -> str:
        """In C, the bytes of memory that its implementation is given."""
        uio = self.implementation.bus == "uma_uio_bus"
        return "sizeof(uma_uio)" if uio else f"{self.implementation.state_bytes}u"

    @property
    def sources(self) -> dict[str, str]:
        """All files that are compiled or included for it, by name."""
        others = {} if self.runtime.driver is None else self.implementation.sources
        return {**self.runtime.sources, **others}

    def routine(self, extern: Extern) -> Routine:
        """The routine that an extern for this target calls, which there is."""
        routine = self.runtime.routine(extern.routine)
        assert routine is not None  # `targets` has checked
        return routine


@dataclass(frozen=True)
class Slot:
    """A device of a model: its position in the tables, and what it is called in C."""

    position: int
    device: Device
    identifier: str

    @property
    def n_counters(self) -> int:
        """How many counters its driver has, without what says where a fault was."""
        runtime = self.device.runtime
        return len(runtime.counters) + (0 if runtime.parts is None else runtime.parts.n_counters)


def targets(program: Program, devices: Mapping[str, Device]) -> tuple[Device, ...]:
    """What the calls of the program are for, besides the host, in order of their first one.

    Raises:
        InternalError: one of them is not among ``devices``.
        ModelError: a function uses what is not its target's.
    """
    for label in program.devices:
        if label not in devices:
            raise InternalError(f"the calls of {program.name!r} are for a device {label!r}, which nobody describes")
        _check_declared(program, devices[label])
    return tuple(devices[label] for label in program.devices)


def fields_of(program: Program, devices: Mapping[str, Device]) -> dict[str, dict[str, BitField]]:
    """What relocations of the blobs of each extern may fill in, by the names of function and field."""
    fields: dict[str, dict[str, BitField]] = {}
    for _, step in program.calls:
        function = program.functions[step.function]
        if isinstance(function, Extern) and step.device is not None:
            fields[step.function] = {field.name: field for field in devices[step.device].routine(function).fields}
    return fields


def _check_declared(program: Program, device: Device) -> None:
    """The C of memories, queues, intrinsics and routines is the plugin's, wherever the program comes from."""
    for _, step in program.calls:
        if step.device == device.label and (use := device.runtime.undeclared(program.functions[step.function])):
            raise ModelError(
                f"kernel {step.function!r} uses {use}, which the driver of {device.label!r} does not declare as it is",
                where=", ".join(step.layers) or program.name,
                hint="what Runtime lists (memories, queues, routines, ...) may depend on the target's attributes",
            )
    for queue in program.queues:
        declared = device.runtime.launch_queue(queue.name)
        if queue.device == device.label and (declared is None or declared.depth < queue.depth):
            raise ModelError(
                f"queue {queue.name!r} takes {queue.depth} launches, and that of the driver of {device.label!r} "
                f"{declared.depth if declared else 'none'}",
                where=program.name,
                hint="the depth is Runtime's; it may depend on the target's attributes",
            )
