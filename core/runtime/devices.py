"""The devices of a session: memory for them, opening and closing, counters, and faults as errors."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..contract.drivers import PartCounters
from ..errors import DeviceError, ModelError, PluginError
from .abi import abi, aligned, text

__all__ = ["CORE_FAULTS", "DeviceInfo", "Devices", "device_error", "device_infos", "miscounted", "run_error"]

_BUS_ALIGNMENT = 64
CORE_FAULTS = {
    -101: "memory was to be given to it that it does not reach",
    -102: "its registers, or the buffer that it shares, could not be mapped",
}
"""What the codes of ``csrc/uma_device.h`` mean that are not a device's own."""


@dataclass(frozen=True)
class DeviceInfo:
    """A device that a compiled model runs on.

    Args:
        label: what the build calls it.
        about: its kind and implementation, for messages.
        faults: what its fault codes mean.
        counters: names of what it counts, in the order of its driver.
        parts: what it counts of each part of a call.
    """

    label: str
    about: str
    faults: Mapping[int, str] = field(default_factory=dict)
    counters: tuple[str, ...] = ()
    parts: PartCounters | None = None

    @property
    def n_counters(self) -> int:
        """How many things its driver counts."""
        return len(self.counters) + (0 if self.parts is None else self.parts.n_counters)

    @property
    def n_indices(self) -> int:
        """How many counters its driver says that it has: where it found a fault is in two more."""
        return self.n_counters + 2 * self.locates_faults

    @property
    def locates_faults(self) -> bool:
        """Whether its driver says where a fault was, by two indices more."""
        return self.parts is not None and self.parts.locates_faults


def device_infos(descriptor: Any, expected: Sequence[DeviceInfo] | None, where: str) -> tuple[DeviceInfo, ...]:
    """The devices of a library's model, in the order of its table.

    Args:
        descriptor: the library's ``uma_model``.
        expected: what the artifact says of them; None for what the library alone knows.
        where: names the library in errors.

    Raises:
        ModelError: the library has other devices.
        PluginError: a driver does not count what its plugin says.
    """
    rows = [descriptor.devices[i] for i in range(descriptor.n_devices)]
    labels = [text(row.label, where) for row in rows]
    if expected is None:
        return tuple(DeviceInfo(name, text(row.driver.kind, where)) for name, row in zip(labels, rows, strict=True))
    if labels != [info.label for info in expected]:
        wanted = ", ".join(info.label for info in expected)
        raise ModelError(f"the library has the devices ({', '.join(labels)}), expected ({wanted})", where=where)
    for info, row in zip(expected, rows, strict=True):
        if row.driver.n_counters != info.n_indices:
            raise miscounted(info, row.driver.n_counters, where)
    return tuple(expected)


def miscounted(info: DeviceInfo, count: int, where: str) -> PluginError:
    """The error of a driver that counts another number of things than its plugin says."""
    return PluginError(
        f"the driver of device {info.label!r} ({info.about}) has {count} counters, its plugin names {info.n_indices}",
        where=where,
        hint="Runtime.counters names each counter of the driver, in order, Runtime.parts those of parts",
    )


def device_error(
    info: DeviceInfo, model: str, code: int, doing: str, layers: tuple[str, ...] = (), cycle: int | None = None
) -> DeviceError:
    """The fault ``code`` of a device; ``doing`` says what did not work, as a predicate."""
    meaning = info.faults.get(code, CORE_FAULTS.get(code, "which its plugin does not explain"))
    if cycle is not None:
        meaning += f", in cycle {cycle}"
    place = f"model {model}"
    if layers:
        place += f", layer{'s' if len(layers) > 1 else ''} {', '.join(layers)}"
    text = f"device {info.label!r} ({info.about}) {doing}: fault {code}, {meaning}"
    return DeviceError(text, device=info.label, layers=layers, code=code, where=place)


def run_error(
    infos: Sequence[DeviceInfo],
    model: str,
    layers: Sequence[Sequence[str]],
    parts: Sequence[Sequence[str]],
    device: int,
    step: int,
    code: int,
    at: tuple[int, int] | None,
) -> DeviceError:
    """What stopped a run.

    Args:
        infos: the devices of the model.
        model: its name.
        layers: those of each step.
        parts: the layers of the parts of each step, where its device tells these apart.
        device, step, code: as ``uma_fault`` has them.
        at: in which part the device found the fault, a number that is none's where that is not known, and in which
            cycle; None where it does not say.
    """
    doing = {-1: "could not be activated", -2: "could not be deactivated"}.get(step)
    at_step, cycle = tuple(layers[step]) if 0 <= step < len(layers) else (), None
    if at is not None and 0 <= step < len(parts) and at[0] < len(parts[step]):
        at_step, cycle = (parts[step][at[0]],), at[1]
    return device_error(infos[device], model, code, doing or f"stopped in step {step}", at_step, cycle)


class Devices:
    """The devices of one session. Not open at first.

    Args:
        library: what the descriptor is part of; kept loaded.
        descriptor: a ``uma_model`` with devices.
        infos: of its devices, in order.
        model: the model's name.
        described: with what a device is opened instead, given its position, description and memory: a description and
            memory.
    """

    def __init__(
        self,
        library: Any,
        descriptor: Any,
        infos: Sequence[DeviceInfo],
        model: str,
        described: Callable[[int, Any, Any], tuple[Any, Any]] | None = None,
    ) -> None:
        ffi = abi().ffi
        self._described = described
        self._library = library
        self._descriptor = descriptor
        self._infos = infos
        self._model = model
        self._devices = ffi.new("uma_device[]", len(infos))
        self.table = ffi.new("uma_device *[]", [self._devices + i for i in range(len(infos))])
        self._memory = []
        for i in range(len(infos)):
            info = descriptor.devices[i]
            state = aligned(info.driver.state_bytes, max(info.driver.state_alignment, 1))
            self._memory.append((state, aligned(info.bus_bytes if info.base == 0 else 0, _BUS_ALIGNMENT)))
        self._open = 0

    def open(self) -> None:
        """Open all devices, or none.

        Raises:
            DeviceError: one of them cannot be opened.
        """
        ffi = abi().ffi
        while self._open < len(self._infos):
            at = self._open
            state, memory = (ffi.cast("void *", array.ctypes.data) for array in self._memory[at])
            info = self._descriptor.devices + at
            if self._described is not None:
                info, memory = self._described(at, info, memory)
            code = self._descriptor.open(self._devices + at, info, state, memory)
            if code != 0:
                self.release()
                raise self._error(at, code, "could not be opened")
            self._open += 1

    def close(self) -> list[DeviceError]:
        """Close those that are open, the last one first, and give what they have to say about that."""
        errors = []
        while self._open > 0:
            self._open -= 1
            device = self._devices + self._open
            code = device.driver.close(device) if device.driver.close else 0
            if code != 0:
                errors.append(self._error(self._open, code, "could not be closed"))
        return errors

    def release(self) -> None:
        """As `close`, where there is nobody to raise an error to, or another error to raise: these are warnings."""
        for error in self.close():
            warnings.warn(str(error), RuntimeWarning, stacklevel=2)

    def counters(self) -> dict[str, dict[str, int]]:
        """What the open devices counted since they were activated last: label -> name -> value."""
        counted = {}
        for at, info in enumerate(self._infos):
            device = self._devices + at
            counted[info.label] = {name: int(device.driver.counter(device, i)) for i, name in enumerate(info.counters)}
        return counted

    def began(self, context: Any) -> bool:
        """Whether the last run of ``context``, which a fault stopped, had come to its steps."""
        return bool(self._descriptor.fault(context).step != -1)

    def fault(self, context: Any, layers: Sequence[Sequence[str]], parts: Sequence[Sequence[str]]) -> DeviceError:
        """What stopped the last run of ``context``.

        Args:
            context: of the run.
            layers: of each step.
            parts: the layers of the parts of each step, where its device tells these apart.
        """
        fault = self._descriptor.fault(context)
        info, device = self._infos[fault.device], self._devices + fault.device
        at = None
        if info.locates_faults:
            part, cycle = (int(device.driver.counter(device, info.n_counters + n)) for n in range(2))
            at = (part, cycle)
        return run_error(self._infos, self._model, layers, parts, fault.device, fault.step, fault.code, at)

    def _error(self, at: int, code: int, doing: str) -> DeviceError:
        return device_error(self._infos[at], self._model, code, doing)
