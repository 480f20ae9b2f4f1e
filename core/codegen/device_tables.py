"""What the C of a model says of its devices: their files, and the table that describes them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from ..contract.devices import Device, Slot
from ..errors import PluginError, UsageError
from ..support.c_text import c_comment, c_identifier, c_string

__all__ = ["device_files", "device_tables", "slots"]


def slots(used: Iterable[Device]) -> tuple[Slot, ...]:
    """Those of some targets that have a driver, as the model's devices."""
    driven: list[Slot] = []
    identifiers: set[str] = set()
    for device in used:
        if device.driver is not None:
            identifier = c_identifier(device.label, identifiers)
            identifiers.add(identifier)
            driven.append(Slot(len(driven), device, identifier))
    return tuple(driven)


def device_files(devices: Iterable[Device], generated: Iterable[str]) -> dict[str, str]:
    """The files of all devices, by name; those of one kind share theirs, and differ in their parameters alone.

    Args:
        devices: of one model.
        generated: names of the files that the core writes for that model.

    Raises:
        PluginError: a file has the name of another one, also where only upper and lower case tell the two apart; or
            two devices of one kind have different contents for it.
        UsageError: two devices of one kind have different drivers, which define the same functions.
    """
    files: dict[str, str] = {}
    drivers: dict[str | None, Device] = {}
    kinds: dict[str, str] = {}
    owners = {name.lower(): (name, "the core writes") for name in generated}
    for device in devices:
        other_device = drivers.setdefault(device.runtime.header, device)
        if device.driver != other_device.driver:
            both = f"impl={other_device.impl} of {other_device.label!r} and impl={device.impl} of {device.label!r}"
            raise UsageError(
                f"{both} have drivers of their own, which cannot be in one image",
                where=f"target kind {device.kind!r}",
                hint="choose one implementation for both",
            )
        for name, text in device.sources.items():
            if files.get(name) == text:
                continue
            other, owner = owners.get(name.lower(), (None, ""))
            if other == name and kinds.get(name) == device.kind:
                raise PluginError(
                    f"the plugin's file {name!r} is another for device {device.label!r} than for others of its kind",
                    where=f"target kind {device.kind!r}",
                    hint="one image has each file once: what differs from device to device goes into "
                    "Runtime(parameters=...)",
                )
            if other is not None:
                raise PluginError(
                    f"the plugin's file {name!r} has the name of a file {other!r} that {owner}",
                    where=f"device {device.label!r}, target kind {device.kind!r}",
                    hint="names of a plugin's files begin with something of its own; a model's with the model's name",
                )
            owners[name.lower()] = (name, f"target kind {device.kind!r} brings for device {device.label!r}")
            files[name], kinds[name] = text, device.kind
    return files


def device_tables(model: str, every: Sequence[Slot]) -> Iterator[str]:
    """The descriptions of the devices in C, as ``uma_device_info``, after what they point to."""
    rows = []
    for slot in every:
        device, parameters = slot.device, "NULL"
        if device.runtime.parameters:
            parameters = f"{model}_device_parameters_{slot.position}"
            values = ", ".join(map(_int64_literal, device.runtime.parameters))
            yield f"static const int64_t {parameters}[] = {{{values}}};"
        base = f"0x{device.base:x}u" if device.base is not None else "0"
        fields = [
            c_string(device.label),
            f"&{device.driver}",
            device.implementation.bus or "NULL",
            device.memory_bytes,
            base,
            parameters,
            str(len(device.runtime.parameters)),
        ]
        rows.append(f"    {{{', '.join(fields)}}}, /* {c_comment(f'{device.kind}, {device.impl}')} */")
    yield "\n".join([f"static const uma_device_info {model}_device_table[] = {{", *rows, "};"])


def _int64_literal(value: int) -> str:
    # C has no negative constants, and the smallest number without its sign does not fit.
    return "(-INT64_C(9223372036854775807) - 1)" if value == -(2**63) else f"INT64_C({value})"
