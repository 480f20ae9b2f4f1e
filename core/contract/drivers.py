"""What a plugin gives of its driver or library: the C that is compiled with a model, and what of it a model may use."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from ..errors import PluginError
from ..relay.extern import BitField, Extern
from ..targets.kind import shown
from ..tir.form import ctext
from ..tir.form.machine import Machine
from ..tir.form.nodes import PrimFunc
from ..tir.form.visit import intrinsics

__all__ = ["DRIVER_FAULTS", "Clock", "Implementation", "LaunchQueue", "Library", "PartCounters", "Routine", "Runtime"]

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,199}")
_LIBRARY = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,99}")
_DISTRIBUTION = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,98}[A-Za-z0-9])?")
_FILE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,197}\.[ch]")


@dataclass(frozen=True)
class Implementation:
    """One way to reach a device: a simulator in C, for example.

    Args:
        bus: the C function ``int32_t BUS(uma_device *device, void *memory, size_t bytes)`` that fills in
            ``device->bus``; 0 where that worked, else a fault code. None where the driver needs no registers.
        sources: C files that are needed for this one alone, by name.
        state_bytes: memory that it works in, given by the caller, aligned to 64 bytes: ``device->memory``.
        driver: the C object ``const uma_driver DRIVER`` that drives the device by this implementation; None where it is
            that of the `Runtime`. A simulator that has no registers is its own driver, and defines the functions that
            intrinsics and routines call.
        is_real: whether it is the device itself and no stand-in, a library on the host's own processor for example:
            what its calls take here is what they take. One of the core's buses is the real thing in any case.

    Raises:
        PluginError: a field is malformed.
    """

    bus: str | None = None
    sources: Mapping[str, str] = field(default_factory=dict)
    state_bytes: int = 0
    driver: str | None = None
    is_real: bool = False

    def __post_init__(self) -> None:
        for name in ("bus", "driver"):
            if getattr(self, name) is not None:
                _identifier(getattr(self, name), f"Implementation.{name}")
        _sources(self, "Implementation.sources")
        if type(self.state_bytes) is not int or not 0 <= self.state_bytes < 2**31:
            raise PluginError(f"Implementation.state_bytes is {shown(self.state_bytes)}", hint="0 to 2**31 - 1")
        is_real: object = self.is_real
        if not isinstance(is_real, bool):
            raise PluginError(f"Implementation.is_real is {shown(is_real)}", hint="True or False")
        if self.is_real and self.state_bytes:
            raise PluginError("Implementation.state_bytes is memory of a stand-in, and is_real is True")


Rows = Sequence[tuple[int, str]]
"""What a blob says: (byte offset, text), in order of offsets."""


@dataclass(frozen=True)
class Routine:
    """A function in C that externs call: it starts a command stream, or is one of a library.

    Args:
        name: by which externs name it; unique in its `Runtime`.
        call: one expression of C. Placeholders: ``{device}``, a ``uma_device *``, where there is a driver; each
            parameter by its name, a pointer to its first element (in a memory of the device, its byte address there as
            a ``uint32_t``); each blob by its name, a pointer to its bytes, and ``{BLOB_bytes}``, their number as a
            ``size_t``; each scalar by its name; ``{bases}`` and ``{n_bases}``, a ``const uma_region *`` and an
            ``int32_t``, the memory that the call may touch. With ``{device}`` its type is ``int32_t``, 0 or a fault
            code; without, it is called for its effect alone and cannot fail. ``{bases}`` is gone when the call returns;
            what it points to stays.
        fields: the kinds of words that relocations of its blobs fill in.
        ports: names of the ports by which the device reaches memory. Where there are any, an extern says for each
            parameter and blob which one it takes (`Extern.ports`). They are checked and kept in text forms; memory is
            not planned by them yet.
        describe: turns a blob that has relocations or marks, with its relocations filled in, into rows for ``uma
            explain --stream``.

    Raises:
        PluginError: a field is malformed.
    """

    name: str
    call: str
    fields: tuple[BitField, ...] = ()
    ports: tuple[str, ...] = ()
    describe: Callable[[bytes], Rows] | None = None

    def __post_init__(self) -> None:
        _identifier(self.name, "Routine.name")
        what = f"routine {self.name!r}"
        call: object = self.call
        if not isinstance(call, str) or (fault := ctext.fault_in(call, ctext.placeholders(call), ())):
            raise PluginError(f"call of {what}: {fault if isinstance(call, str) else shown(call)}")
        fields: object = self.fields
        if not isinstance(fields, (tuple, list)) or not all(isinstance(one, BitField) for one in fields):
            raise PluginError(f"fields of {what} are {shown(fields)}, not a tuple of BitField")
        names = [one.name for one in self.fields]
        if len(set(names)) != len(names):
            raise PluginError(f"{what} has two fields of one name")
        if not self.drives_device and {"bases", "n_bases"} & ctext.placeholders(self.call):
            raise PluginError(f"{what} takes bases and no device", hint="they are for what a device is given")
        for port in self.ports:
            _identifier(port, f"a port of {what}")
        if self.describe is not None and not callable(self.describe):
            raise PluginError(f"describe of {what} is {shown(self.describe)}, not a function of bytes")
        object.__setattr__(self, "fields", tuple(self.fields))
        object.__setattr__(self, "ports", tuple(self.ports))

    @property
    def drives_device(self) -> bool:
        """Whether it is given a device, and gives a fault code."""
        return "device" in ctext.placeholders(self.call)

    def problem(self, extern: Extern) -> str | None:
        """What of an extern does not fit this routine, in words; None where all does."""
        known = {"device", "bases", "n_bases", *extern.scalars}
        named = [*(param.buffer.name for param in extern.params), *(blob.name for blob in extern.blobs)]
        known.update(named, (f"{blob.name}_bytes" for blob in extern.blobs))
        for placeholder in sorted(ctext.placeholders(self.call) - known):
            return f"nothing for placeholder {{{placeholder}}} of routine {self.name!r}"
        for name in named:
            port = extern.ports.get(name)
            if port not in (self.ports or (None,)):
                there = f"which has {', '.join(self.ports) or 'none'}"
                return f"{f'port {port!r}' if port else 'no port'} for {name!r} of routine {self.name!r}, {there}"
        return self._relocation_problem(extern)

    def _relocation_problem(self, extern: Extern) -> str | None:
        fields = {one.name: one for one in self.fields}
        for blob in extern.blobs:
            end_bit = 0
            taken: list[tuple[int, int, int]] = []
            for one in blob.relocations:
                place = f"a relocation of {one.symbol!r} at byte {one.at} of blob {blob.name!r}"
                if one.field not in fields:
                    there = f"it has {', '.join(fields) or 'none'}"
                    return f"{place}, in a field {one.field!r} that routine {self.name!r} does not declare ({there})"
                field = fields[one.field]
                if one.at + field.word_bytes > len(blob.data):
                    return f"{place}, whose field {one.field!r} goes past its end at byte {len(blob.data)}"
                taken.append((8 * one.at + field.lsb, 8 * one.at + field.lsb + field.bits, one.at))
            for low, high, at in sorted(taken):
                if low < end_bit:
                    return f"two relocations of the same bits near byte {at} of blob {blob.name!r}"
                end_bit = high
        return None


@dataclass(frozen=True)
class LaunchQueue:
    """Where a device takes what was started and not waited for. It runs one launch after the other, in order.

    Args:
        name: by which externs name it; unique in its `Runtime`.
        depth: how many launches may be unfinished at once, at least one.
        wait: one expression of C of type ``int32_t``, 0 or a fault code, that returns when at most ``{pending}``
            launches of the queue are unfinished. Placeholders: ``{device}``, a ``uma_device *``, and ``{pending}``, an
            ``int32_t`` from 0 to the depth less one.
        poll: one expression of C of type ``int32_t`` that returns at once: 0 when at most ``{pending}`` launches of the
            queue are unfinished, else 1. It reports no fault; ``wait`` does. The placeholders are those of ``wait``.
            Empty where the driver cannot tell. Reserved: generated code does not poll yet.

    Raises:
        PluginError: a field is malformed.
    """

    name: str
    depth: int
    wait: str
    poll: str = ""

    def __post_init__(self) -> None:
        _identifier(self.name, "LaunchQueue.name")
        if type(self.depth) is not int or not 1 <= self.depth < 2**31:
            raise PluginError(f"depth of queue {self.name!r} is {shown(self.depth)}", hint="1 to 2**31 - 1")
        needed = ("device", "pending")
        for field_name in ("wait", "poll"):
            text: object = getattr(self, field_name)
            if field_name == "poll" and text == "":
                continue
            if not isinstance(text, str) or (fault := ctext.fault_in(text, needed, needed)):
                what = f"{field_name} of queue {self.name!r}: {fault if isinstance(text, str) else shown(text)}"
                raise PluginError(what)


@dataclass(frozen=True)
class Register:
    """A register of a device, for those who read traces of it, and for the comparison of traces.

    Args:
        offset: in bytes, a multiple of 4.
        name: as its data sheet calls it; unique in its `Runtime`.
        reads: what reading it gives. ``value``: what depends on the commands alone, the same in each implementation.
            ``status``: it is polled; how often depends on time, how it ends does not. ``count``: a count or a time, in
            which implementations may differ.

    Raises:
        PluginError: a field is malformed.
    """

    offset: int
    name: str
    reads: Literal["value", "status", "count"] = "value"

    def __post_init__(self) -> None:
        _identifier(self.name, "Register.name")
        if type(self.offset) is not int or not 0 <= self.offset < 2**32 or self.offset % 4:
            what = f"offset of register {self.name!r} is {shown(self.offset)}"
            raise PluginError(what, hint="0 to 2**32 - 4, a multiple of 4")
        reads: object = self.reads
        if reads not in ("value", "status", "count"):
            raise PluginError(f"reads of register {self.name!r} is {shown(reads)}", hint="value, status or count")


@dataclass(frozen=True)
class Library:
    """A C library that generated code is linked with, as ``-lNAME``.

    Args:
        name: without ``lib`` and suffix.
        package: a distribution of Python that may bring it; None where only the system does.
        symbols: what generated code calls of it. A library without these is not the one that is meant.
        make: writes it as the file that it is given, where it is found nowhere; it raises ToolchainError where that
            cannot be. The file is kept with what UMA compiles and found by its name, in which there is a digest of what
            it is made from, therefore: what is made from something else has another name. It may keep files beside it:
            that folder is the library's own, and stays until the library is there, so that a second attempt continues.

    Raises:
        PluginError: a field is malformed.
    """

    name: str
    package: str | None = None
    symbols: tuple[str, ...] = ()
    make: Callable[[Path], None] | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        name: object = self.name
        package: object = self.package
        symbols: object = self.symbols
        if not isinstance(name, str) or not _LIBRARY.fullmatch(name):
            raise PluginError(f"{shown(name)} cannot name a library", hint="without lib and suffix, as for -l")
        if package is not None and not (isinstance(package, str) and _DISTRIBUTION.fullmatch(package)):
            raise PluginError(f"library {name!r} comes with {shown(package)}, which cannot name a distribution")
        if not isinstance(symbols, (tuple, list)):
            raise PluginError(f"symbols of library {name!r} are {shown(symbols)}", hint='a tuple: ("cblas_sgemm",)')
        for symbol in symbols:
            _identifier(symbol, f"a symbol of library {name!r}")
        if self.make is not None and not callable(self.make):
            raise PluginError(f"make of library {name!r} is {shown(self.make)}, not a function of a path")
        object.__setattr__(self, "symbols", tuple(symbols))


@dataclass(frozen=True)
class PartCounters:
    """What a driver counts of each part of a call: of the layers of a network, say, that is started as a whole.

    The n-th mark of a call's blobs says whose part n is.

    Args:
        count: of how many parts it counts, the first ones.
        counters: the names of what it counts of each.
        locates_faults: whether it says besides where it found a fault, by the two indices behind all counters: the
            number of the part, one that no part has where it was in none, and the cycle.

    Raises:
        PluginError: a field is malformed.
    """

    count: int
    counters: tuple[str, ...]
    locates_faults: bool = False

    def __post_init__(self) -> None:
        if type(self.count) is not int or not 1 <= self.count <= 4096:
            raise PluginError(f"PartCounters.count is {shown(self.count)}", hint="1 to 4096")
        counters: object = self.counters
        if not isinstance(counters, (tuple, list)) or not counters:
            raise PluginError(f"PartCounters.counters is {shown(counters)}", hint='a tuple: ("cycles",)')
        for counter in counters:
            _identifier(counter, "PartCounters.counters")
        locates: object = self.locates_faults
        if not isinstance(locates, bool):
            raise PluginError(f"PartCounters.locates_faults is {shown(locates)}", hint="True or False")
        object.__setattr__(self, "counters", tuple(counters))

    @property
    def n_counters(self) -> int:
        """How many counters of the driver that takes."""
        return self.count * len(self.counters)


@dataclass(frozen=True)
class Clock:
    """What a device's cycles are in time.

    Args:
        hz: cycles per second.
        cycles: the counter of cycles.
        busy: the counter of those cycles in which the device did what it is there for; their share is its utilisation.
            None where that is not counted.

    Raises:
        PluginError: a field is malformed.
    """

    hz: float
    cycles: str
    busy: str | None = None

    def __post_init__(self) -> None:
        hz: object = self.hz
        if type(hz) not in (int, float) or not (math.isfinite(self.hz) and self.hz > 0):
            raise PluginError(f"Clock.hz is {shown(hz)}, not a positive number")
        for counter in self.counters:
            _identifier(counter, "a counter of Clock")

    @property
    def counters(self) -> tuple[str, ...]:
        """The counters that it names."""
        return (self.cycles,) if self.busy is None else (self.cycles, self.busy)

    def seconds(self, counted: Mapping[str, int]) -> float:
        """The time of so many cycles."""
        return counted[self.cycles] / self.hz

    def utilisation(self, counted: Mapping[str, int]) -> float | None:
        """The share of the cycles in which it was busy, 0 to 1; None where there were none, or that is not counted."""
        return None if self.busy is None or not counted[self.cycles] else counted[self.busy] / counted[self.cycles]


@dataclass(frozen=True)
class Runtime:
    """How a device is driven, or a library called: C that is compiled with every model that uses it.

    The driver reaches the device by ``uma_device.h`` alone: registers, memory, interrupt or poll. So one driver serves
    the simulator and the real thing; the target's attribute ``impl`` says which. Where there is only a library to call
    there is no driver, and nothing that needs one.

    Args:
        driver: the C object ``const uma_driver DRIVER``, for implementations that have none of their own; None where
            nothing drives a device.
        header: the file that declares it and what intrinsics and routines call; a key of ``sources``.
        sources: C files of the driver, by name; names and symbols begin with something of the plugin's own.
        implementations: by the value of ``impl``. ``mmio``, registers at the address ``base``, is the core's own and
            need not be listed where the driver supports it: name it with the bus ``uma_mmio_bus``.
        parameters: numbers that tell one device of the kind from another, ``device->parameters`` in C.
        faults: what the fault codes of driver and device mean; every code but 0 is a fault.
        counters: names of what the driver counts, in the order of its indices: ``cycles``, ``bytes_in``.
        parts: what it counts of each part of a call besides. The indices of part 0 follow those of ``counters``, then
            come those of part 1.
        clock: what the cycles that it counts are in time.
        machine: the memories that loops and externs for this target may use, the queues on which loops may start
            something, and the instructions that they may execute. What is not in it is in no model: C text that comes
            with the text of a model counts for nothing.
        routines: what externs may call.
        launch_queues: on which externs may be started.
        libraries: what to link with.
        registers: of the device, as far as traces are to name them, or what they read is not to be compared.

    Raises:
        PluginError: a field is malformed.
    """

    driver: str | None = None
    header: str | None = None
    sources: Mapping[str, str] = field(default_factory=dict)
    implementations: Mapping[str, Implementation] = field(default_factory=dict)
    parameters: tuple[int, ...] = ()
    faults: Mapping[int, str] = field(default_factory=dict)
    counters: tuple[str, ...] = ()
    parts: PartCounters | None = None
    clock: Clock | None = None
    machine: Machine | None = None
    routines: tuple[Routine, ...] = ()
    launch_queues: tuple[LaunchQueue, ...] = ()
    libraries: tuple[Library, ...] = ()
    registers: tuple[Register, ...] = ()

    def __post_init__(self) -> None:
        _sources(self, "Runtime.sources")
        self._check_tables()
        if self.driver is not None:
            _identifier(self.driver, "Runtime.driver")
            if not self.implementations:
                raise PluginError("Runtime.implementations must have at least one", hint='{"sim": Implementation(...)}')
        else:
            self._check_driverless()
        for routine in self.routines:
            if routine.drives_device != (self.driver is not None):
                what = "drives a device, and there is no driver" if self.driver is None else "is not given the device"
                raise PluginError(f"routine {routine.name!r} {what}", hint="{device} in its call is for a driver")
        if self.header is None and self.driver is None:
            return
        if self.header is None or self.header not in self.sources or not self.header.endswith(".h"):
            raise PluginError(f"Runtime.header is {shown(self.header)}, not a header among the sources")

    def _check_tables(self) -> None:
        implementations: object = self.implementations
        if not isinstance(implementations, Mapping):
            raise PluginError(f"Runtime.implementations is {shown(implementations)}", hint='{"sim": Implementation()}')
        for name, implementation in implementations.items():
            if not isinstance(name, str) or not isinstance(implementation, Implementation):
                raise PluginError(
                    f"Runtime.implementations: {shown(name)} is {shown(implementation)}, not an Implementation"
                )
        self._check_numbers()
        for name, kind in _TABLES.items():
            rows: object = getattr(self, name)
            if not isinstance(rows, (tuple, list)) or not all(isinstance(row, kind) for row in rows):
                raise PluginError(f"Runtime.{name} is {shown(rows)}, not a tuple of {kind.__name__}")
            names = [row.name for row in rows]
            if len(set(names)) != len(names):
                raise PluginError(f"Runtime.{name} has two of one name")
            object.__setattr__(self, name, tuple(rows))
        offsets = [register.offset for register in self.registers]
        if len(set(offsets)) != len(offsets):
            raise PluginError("Runtime.registers has two of one offset")
        object.__setattr__(self, "implementations", MappingProxyType(dict(self.implementations)))
        object.__setattr__(self, "parameters", tuple(self.parameters))
        object.__setattr__(self, "faults", MappingProxyType(dict(self.faults)))
        object.__setattr__(self, "counters", tuple(self.counters))

    def _check_numbers(self) -> None:
        for number in self.parameters:
            if type(number) is not int or not -(2**63) <= number < 2**63:
                raise PluginError(f"Runtime.parameters: {shown(number)} is not a 64-bit integer")
        for code, meaning in self.faults.items():
            if type(code) is not int or not -(2**31) <= code < 2**31 or code == 0 or not isinstance(meaning, str):
                raise PluginError(
                    f"Runtime.faults: {shown(code)} is not a fault code with a meaning", hint="not 0: text"
                )
        for counter in self.counters:
            _identifier(counter, "Runtime.counters")
        for name, record in (("parts", PartCounters), ("clock", Clock), ("machine", Machine)):
            value: object = getattr(self, name)
            if value is not None and not isinstance(value, record):
                raise PluginError(f"Runtime.{name} is {shown(value)}, not a record {record.__name__}")
        for counter in () if self.clock is None else self.clock.counters:
            if counter not in self.counters:
                raise PluginError(f"Runtime.clock is of counter {counter!r}, which Runtime.counters does not have")

    def _check_driverless(self) -> None:
        """What only a driver can serve."""
        for name in _OF_DRIVERS:
            if getattr(self, name):
                raise PluginError(f"Runtime.{name} is for a device, and there is no driver", hint="name the driver")

    def routine(self, name: str) -> Routine | None:
        """The routine of that name, None where there is none."""
        return next((routine for routine in self.routines if routine.name == name), None)

    def launch_queue(self, name: str) -> LaunchQueue | None:
        """The launch queue of that name, None where there is none."""
        return next((queue for queue in self.launch_queues if queue.name == name), None)

    def undeclared(self, func: PrimFunc | Extern) -> str | None:
        """What a function uses though it is not this accelerator's, in words; None where all is."""
        machine = self.machine or Machine()
        for memory in func.memories:
            if memory not in machine.memories:
                return f"the memory {memory.name!r}"
        if isinstance(func, Extern):
            routine = self.routine(func.routine)
            if routine is None:
                return f"the routine {func.routine!r}"
            if func.queue is not None and self.launch_queue(func.queue) is None:
                return f"the launch queue {func.queue!r}"
            return routine.problem(func)
        for queue in func.queues:
            if queue not in machine.queues:
                return f"the queue {queue.name!r}"
        for intrinsic in intrinsics(func):
            if intrinsic not in machine.intrinsics:
                return f"the intrinsic {intrinsic.name!r}"
        return None


DRIVER_FAULTS: Mapping[int, str] = MappingProxyType(
    {
        16: "no such device answers",
        17: "the device has less than the model was compiled for",
        18: "a command does not end",
        19: "the simulator was given too little memory",
    }
)
"""What the codes ``UMA_FAULT_ABSENT``, ``_SIZE``, ``_TIMEOUT`` and ``_MEMORY`` of ``uma_device.h`` mean: for
``Runtime(faults={**DRIVER_FAULTS, 1: ...})`` of a driver that gives them."""

_TABLES: Mapping[str, type[Any]] = {
    "routines": Routine,
    "launch_queues": LaunchQueue,
    "libraries": Library,
    "registers": Register,
}

_OF_DRIVERS = (
    "implementations",
    "parameters",
    "faults",
    "counters",
    "parts",
    "clock",
    "machine",
    "launch_queues",
    "registers",
)


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
