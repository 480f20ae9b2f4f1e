"""Playing back a trace of a device on another implementation of it: what was written is written again, what was read
is compared.

Of the model nothing is needed: what the device was given of the processor's memory is in the trace.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from ..codegen.device_tables import device_files, device_tables, slots
from ..contract.devices import CORE_BUSES, Device
from ..contract.drivers import Register
from ..errors import DeviceError, ModelError, ToolchainError, UsageError
from ..runtime import CSRC
from ..runtime.abi import Array, abi, aligned
from ..runtime.devices import DeviceInfo, device_error
from ..runtime.traces import Entry, Trace, TraceLocation
from ..toolchain.cache import Cache, library_key, on_trial
from ..toolchain.compile import CompileUnit, compile_shared
from ..toolchain.discovery import find_compiler
from ..toolchain.libraries import require_library

__all__ = ["Difference", "Replayed", "replay"]

_SOURCE = "uma_replayed.c"
_ALIGNMENT = 4096
_GUARD_BYTES = 4096
"""What lies around memory that the device is given, so that what it writes beside it does no harm."""

_POLLS = 1_000_000
"""So often a status is read until it is what it was, before that counts as never."""

_READS = 1 << 16
"""So often at most a register is read that was read in sequence: one that gave up has read it millions of times."""


@dataclass(frozen=True)
class Difference:
    """The first thing that another implementation does otherwise.

    Args:
        what: in words: the register, or the byte of memory.
        expected: what the trace has.
        got: what this implementation has.
        place: where in the run.
        line: of the trace.
        count: how many bytes of the same memory differ; 1 for a register.
        hint: what may be the matter, where that is known.
    """

    what: str
    expected: int
    got: int
    place: TraceLocation
    line: int
    count: int = 1
    hint: str = ""

    json_fields: ClassVar = ("what", "expected", "got", "count", "line", "*place")


@dataclass(frozen=True)
class Replayed:
    """What came of it.

    Args:
        difference: the first one; None where there is none.
        reads: how many reads of registers were compared.
        polls: how many waits for a status ended as they had.
        uncompared: how many reads of counts were not.
        writes: how many registers were written.
        nbytes: how many bytes that the device has written were compared.
    """

    difference: Difference | None
    reads: int
    polls: int
    uncompared: int
    writes: int
    nbytes: int


def replay(trace: Trace, label: str | None, device: Device) -> Replayed:
    """Do to a device what a trace says was done to one of its kind.

    The device is opened by its driver first, and closed at the end. This runs its plugin's code, in this process.

    Args:
        trace: what was recorded.
        label: of a device in it; None for the one that has the kind of ``device``.
        device: the other implementation.

    Raises:
        UsageError: the trace has no such device, or several; or ``device`` has no registers that Python reaches.
        ModelError: the trace is of another kind of device, or of one with other parameters; or it does not hold what
            the device was given.
        DeviceError: the device cannot be opened or closed.
        ToolchainError, PluginError: it cannot be compiled.
    """
    position = _position(trace, label, device)
    with _Opened(device, trace) as opened:
        return _Replay(trace, position, device, opened).run()


def _position(trace: Trace, label: str | None, device: Device) -> int:
    kinds = [n for n, one in enumerate(trace.devices) if one.kind == device.kind or one.label == label]
    fitting = [n for n in kinds if label in (None, trace.devices[n].label)]
    there = ", ".join(f"{one.label} ({one.kind})" for one in trace.devices) or "none"
    if not fitting and label is not None:
        raise UsageError(f"the trace has no device {label!r}", where=trace.name, hint=f"it has {there}")
    if not fitting:
        raise ModelError(f"the trace is of no device of kind {device.kind!r}", where=trace.name, hint=f"it has {there}")
    if len(fitting) > 1:
        text = f"the trace has {len(fitting)} devices of kind {device.kind!r}"
        raise UsageError(text, where=trace.name, hint=f"choose one by its label: {there}")
    traced = trace.devices[fitting[0]]
    if traced.kind != device.kind:
        text = f"device {traced.label!r} of the trace is of kind {traced.kind!r}, not of kind {device.kind!r}"
        raise ModelError(text, where=trace.name, hint="name a target of its kind")
    if traced.parameters != tuple(device.runtime.parameters):
        theirs, ours = (", ".join(map(str, one)) for one in (traced.parameters, device.runtime.parameters))
        raise ModelError(
            f"the trace is of a device with the parameters ({theirs}), and this target has ({ours})",
            where=trace.name,
            hint="give the target the attributes that the model was built for",
        )
    if device.driver is None or device.implementation.bus is None or device.implementation.bus in CORE_BUSES:
        raise UsageError(
            f"implementation {device.impl!r} of {device.kind!r} has no registers that Python reaches",
            where=f"target kind {device.kind!r}",
            hint="choose another one with -impl=",
        )
    return fitting[0]


class _Opened:
    """A device of this process, without a model."""

    def __init__(self, device: Device, trace: Trace) -> None:
        meanings = device.runtime.faults
        self._info = DeviceInfo(device.label, f"{device.kind}, {device.impl}", meanings)
        self._model = trace.model
        library = _library(device)
        with on_trial(library):
            try:
                self._library = abi().ffi.dlopen(str(library), abi().ffi.RTLD_NOW | abi().ffi.RTLD_LOCAL)
            except OSError as error:
                raise ToolchainError(f"cannot load the compiled device: {error}", where=str(library)) from error
        info = self._library.uma_replayed_info()
        self._memory = (
            aligned(info.driver.state_bytes, max(info.driver.state_alignment, 1)),
            aligned(info.bus_bytes, 64),
        )
        self._device = abi().ffi.new("uma_device *")

    def __enter__(self) -> Any:
        state, memory = (abi().ffi.cast("void *", array.ctypes.data) for array in self._memory)
        code = self._library.uma_replayed_open(self._device, state, memory)
        if code != 0:
            raise self._error(code, "could not be opened")
        return self._device

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        close = self._device.driver.close
        code = close(self._device) if close else 0
        if code != 0 and error is None:
            raise self._error(code, "could not be closed")

    def _error(self, code: int, doing: str) -> DeviceError:
        return device_error(self._info, self._model, code, doing)


def _library(device: Device) -> Path:
    """Driver and implementation of a device, compiled for this machine."""
    (slot,) = slots([device])
    files_of_device = device_files([device], [_SOURCE])
    source = "\n".join(
        [
            '#include "uma_device.h"',
            *([f'#include "{device.runtime.header}"'] if device.runtime.header else []),
            f"int32_t {device.implementation.bus}(uma_device *device, void *memory, size_t bytes);",
            f"extern const uma_driver {device.driver};",
            *device_tables("uma_replayed", [slot]),
            "const uma_device_info *uma_replayed_info(void);",
            "int32_t uma_replayed_open(uma_device *device, void *state, void *memory);",
            "const uma_device_info *uma_replayed_info(void) { return uma_replayed_device_table; }",
            "int32_t uma_replayed_open(uma_device *device, void *state, void *memory)",
            "{",
            "    return uma_device_open(device, uma_replayed_device_table, state, memory);",
            "}",
            "",
        ]
    )
    files = {file.name: file.read_text(encoding="utf-8") for file in sorted(CSRC.glob("*.h"))}
    files |= {**files_of_device, _SOURCE: source}
    sources = [_SOURCE, *(name for name in files_of_device if name.endswith(".c"))]
    part = CompileUnit(find_compiler(), sources, ["-std=c99", "-O2"])
    where = f"device {device.label!r}, target kind {device.kind!r}"
    libraries = [require_library(one, part.compiler, where, part.flags) for one in device.runtime.libraries]
    digests = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in files.items()}
    key = library_key(digests, [part], libraries)
    return Cache().library(key, lambda output: compile_shared([part], files, output, libraries=libraries))


class _Replay:
    """One playback under way."""

    def __init__(self, trace: Trace, position: int, device: Device, opened: Any) -> None:
        self._trace, self._position = trace, position
        self._registers = {one.offset: one for one in device.runtime.registers}
        self._device, self._bus = opened, opened.bus
        self._memories: dict[int, tuple[Array, Array]] = {}
        self._reads = self._polls = self._uncompared = self._writes = self._nbytes = 0

    def run(self) -> Replayed:
        """Everything, up to the first difference."""
        difference = next(self._differences(), None)
        return Replayed(difference, self._reads, self._polls, self._uncompared, self._writes, self._nbytes)

    def _differences(self) -> Iterator[Difference]:
        entries = self._trace.entries
        at = 0
        while at < len(entries):
            entry = entries[at]
            at += 1
            if entry.what == "bytes":
                _, recorded = self._memory(entry.numbers[0])
                recorded[entry.numbers[1] : entry.numbers[1] + len(entry.data)] = np.frombuffer(entry.data, np.uint8)
            elif entry.device != self._position:
                continue
            elif entry.what == "read":
                first = entry
                while at < len(entries) and self._goes_on(entry, entries[at]):
                    entry = entries[at]
                    at += 1
                yield from self._read(entry, entry is not first)
            elif entry.what == "take":
                yield from self._take(entry)
            else:
                self._do(entry)

    def _goes_on(self, entry: Entry, following: Entry) -> bool:
        """Whether the reads before were those of a poll, as the same register was read until it changed."""
        register = self._registers.get(entry.numbers[0])
        return (
            (register is None or register.reads == "status")
            and following.what == "read"
            and following.device == entry.device
            and following.place == entry.place
            and following.numbers[0] == entry.numbers[0]
        )

    def _do(self, entry: Entry) -> None:
        numbers = entry.numbers
        if entry.what == "give":
            memory, first, nbytes = numbers
            shared, recorded = self._memory(memory)
            shared[first : first + nbytes] = recorded[first : first + nbytes]
            if self._bus.clean:
                self._bus.clean(self._bus.self, _pointer(shared, first), nbytes)
        elif entry.what == "wait":
            if self._bus.wait:
                self._bus.wait(self._bus.self)
        else:
            value = numbers[1] if entry.what == "write" else self._half(entry)
            self._bus.write32(self._bus.self, numbers[0], value)
            self._writes += 1

    def _half(self, entry: Entry) -> int:
        """A half of the address of the processor's memory, as the device has it."""
        _, memory, offset = entry.numbers
        if memory < 0:
            raise ModelError(
                "the device is given the address of memory that the trace does not hold",
                where=f"{self._trace.name}, line {entry.line}",
                hint="a driver calls uma_clean for memory that it gives to its device by itself",
            )
        shared, _ = self._memory(memory)
        address = abi().ffi.new("uint64_t *", shared.ctypes.data + offset)
        if self._bus.address:
            code = self._bus.address(self._bus.self, _pointer(shared, offset), address)
            if code != 0:
                text = f"the device does not reach memory of this process (code {code})"
                raise UsageError(text, where=f"{self._trace.name}, line {entry.line}")
        return int(address[0]) >> 32 if entry.what == "high" else int(address[0]) & 0xFFFFFFFF

    def _read(self, entry: Entry, polled: bool) -> Iterator[Difference]:
        """Compare; where a register was polled, it is read until it is as it was in the end."""
        offset, value, times, _ = entry.numbers
        register = self._registers.get(offset, Register(offset, "register"))
        if register.reads == "count":
            self._bus.read32(self._bus.self, offset)
            self._uncompared += 1
            return
        if polled or register.reads == "status":
            for _ in range(_POLLS):
                got = self._bus.read32(self._bus.self, offset)
                if got == value:
                    self._polls += 1
                    return
                if self._bus.wait:
                    self._bus.wait(self._bus.self)
            yield self._difference(entry, value, got, f"after {_POLLS:,} reads")
            return
        for _ in range(min(times, _READS)):
            got = self._bus.read32(self._bus.self, offset)
            self._reads += 1
            if got != value:
                is_register = offset in self._registers
                hint = "" if is_register else "a status or a count is declared as such in Runtime.registers"
                yield self._difference(entry, value, got, "", hint)
                return

    def _take(self, entry: Entry) -> Iterator[Difference]:
        memory, first, nbytes = entry.numbers
        shared, recorded = self._memory(memory)
        if self._bus.invalidate:
            self._bus.invalidate(self._bus.self, _pointer(shared, first), nbytes)
        wrong = np.flatnonzero(shared[first : first + nbytes] != recorded[first : first + nbytes])
        self._nbytes += nbytes
        if wrong.size:
            at = first + int(wrong[0])
            location = f"byte {at} of {self._trace.memories[memory].name}"
            place = self._trace.places[entry.place]
            yield Difference(location, int(recorded[at]), int(shared[at]), place, entry.line, int(wrong.size))

    def _difference(self, entry: Entry, expected: int, got: int, how: str, hint: str = "") -> Difference:
        offset = entry.numbers[0]
        register = self._registers.get(offset)
        named = f"register {register.name} ({offset:#x})" if register else f"register {offset:#x}"
        text = f"{named}, {how}" if how else named
        return Difference(text, expected, got, self._trace.places[entry.place], entry.line, hint=hint)

    def _memory(self, position: int) -> tuple[Array, Array]:
        """Memory of the processor's: as the device has it, and as it was recorded."""
        if position not in self._memories:
            nbytes = self._trace.memories[position].nbytes
            around = aligned(nbytes + 2 * _GUARD_BYTES, _ALIGNMENT)
            self._memories[position] = (around[_GUARD_BYTES : _GUARD_BYTES + nbytes], np.zeros(nbytes, np.uint8))
        return self._memories[position]


def _pointer(array: Array, offset: int) -> Any:
    return abi().ffi.cast("void *", array.ctypes.data + offset)
