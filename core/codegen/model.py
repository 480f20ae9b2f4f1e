"""The C files of a model: its kernels, the calls that run them, a typed header, weights, and an example.

The calls are those of the `Program`, in its order; the offsets are those of the `Plan`. The same program and plan
give the same bytes.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from ..contract.devices import Device, fields_of, targets
from ..errors import InternalError, PluginError
from ..program import Plan, Program, relocate
from ..program.control_flow import has_control
from ..support.c_text import c_identifier, weights_array
from ..support.weights_forms import WeightsForm
from ..tir.form.visit import uses_device
from .device_tables import device_files, slots
from .emission import Emission
from .entry import entry_text
from .example import example_text
from .executors import EXECUTORS
from .header import header_text
from .profile import profile_text
from .source import source_text
from .stepwise import stepwise_text
from .units import PluginFunctions, units_of
from .weights import assemble, assembly_text

__all__ = ["ModelFiles", "emit_model"]

_CSRC = Path(__file__).parents[1] / "runtime" / "csrc"
_SHARED_HEADERS = ("uma_math.h", "uma_runtime.h", "uma_ticks.h")
_DEVICE_HEADERS = ("uma_device.h", "uma_mmio.h", "uma_uio.h")
_THREADS_FILES = ("uma_parallel.h", "uma_pool.c", "uma_pool.h")
"""Of models with loops that several threads may run; the pool is for programs that want it."""
_OFFERED = {"uma_fixed.h": ("uma_fixed.h",), "uma_sim.h": ("uma_sim.h", "uma_device.h", "uma_fixed.h")}
"""What plugins' files may include besides, with what that includes."""
_INCLUDED = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"(\w+\.h)"', re.MULTILINE)


@dataclass(frozen=True)
class ModelFiles:
    """The C of one model.

    Args:
        contents: every file by name, the headers that all models share and the files of devices included.
        sources: which of the files to compile into an image.
        units: which of them for what is compiled apart, by label: of other hosts, and of accelerators.
        objects: files to link that plugins made, by the label of the target; None for the first host's.
        entry: the file that is compiled too where a shared library holds this model alone: ``uma_model_entry()``.
        profile: which of the files to compile instead, for a shared library that times its steps, and notes what the
            devices count in each.
        example: a program of its own that runs the model on files or on zeros.
        identifiers: what the C calls each input, output and state, by buffer name.
        constant_bytes: size of the weights.
    """

    contents: Mapping[str, str | bytes]
    sources: tuple[str, ...]
    units: Mapping[str, tuple[str, ...]]
    objects: Mapping[str | None, tuple[str, ...]]
    entry: str
    profile: tuple[str, ...]
    example: str
    identifiers: Mapping[str, str]
    constant_bytes: int


def emit_model(
    program: Program,
    plan: Plan,
    devices: Mapping[str, Device] = MappingProxyType({}),
    *,
    remote: Collection[str] = (),
    apart: Collection[str] = (),
    plugin_functions: Mapping[str | None, PluginFunctions] = MappingProxyType({}),
    headers: Mapping[str, str] = MappingProxyType({}),
    weights_form: WeightsForm = "assembly",
    stepwise: bool = False,
    executor: str = "aot",
    threads: int = 1,
) -> ModelFiles:
    """Write a model as C99.

    Args:
        program: a program that `verify` accepts; its name is what `c_identifier` makes of it.
        plan: where its buffers are; one that `verify_plan` accepts.
        devices: by label, at least those that the program runs on; others do not get into the model.
        remote: the labels of hosts that are other machines than the first host.
        apart: the labels of accelerators whose loops are compiled by themselves.
        plugin_functions: what plugins bring of the functions themselves, by label; None for the first host's.
        headers: what hosts bring for their intrinsics, by name; only those that a kernel includes get into the model.
        weights_form: how the weights get into the image.
        stepwise: write a model of which single steps can be run; see `stepwise_text`.
        executor: what runs the steps, one of `EXECUTORS`.
        threads: for how many parallel loops are, with the executor ``aot``; 1 for none.

    Raises:
        InternalError: the program's name is not safe in C, its buffers are in several pools of the host, or a device
            is not described.
        ModelError: a function uses a memory, a queue, an intrinsic or a routine that is not its target's.
        PluginError: a plugin's file has the name of another file; or a field of a blob cannot hold what belongs there.
        UsageError: the labels of two hosts differ in upper and lower case alone.
    """
    name = program.name
    if c_identifier(name) != name:
        raise InternalError(f"{name!r} cannot be the prefix of a model in C", hint=f"{c_identifier(name)} can")
    if len(plan.host_pools) > 1:
        raise InternalError(
            f"the buffers of {name!r} are in several pools: {', '.join(plan.host_pools)}",
            hint="a model in C has one arena",
        )
    used = targets(program, devices)
    driven = slots(used)
    units = units_of(program, remote, devices, plugin_functions, apart)
    weights = assemble(program, plan, relocate(program, plan, fields_of(program, devices)))
    loaded = weights if weights.data and weights_form == "file" else None
    many = threads if executor == "aot" else 1
    model = Emission(
        program, plan, weights, used, units, loaded is not None, stepwise, plugin_functions.get(None), many
    )
    run = EXECUTORS[executor](model)
    elsewhere = [unit for unit in units.values() if unit.is_remote]
    inputs, outputs = model.inputs, model.outputs
    devices_of_steps = [step.device for step in program.steps]
    contents: dict[str, str | bytes] = {
        f"{name}.c": source_text(model, run),
        f"{name}.h": header_text(
            program, plan, inputs, outputs, driven, elsewhere, loaded, threads if model.in_threads else 1
        ),
        f"{name}_entry.c": entry_text(name, loaded),
        f"{name}_main.c": example_text(program, plan, inputs, outputs, driven, loaded is not None),
        f"{name}_profile.c": profile_text(name, devices_of_steps, driven, loaded, run.included, has_control(program)),
    }
    if stepwise:
        contents[f"{name}_stepwise.c"] = stepwise_text(name, len(program.steps), run.included)
    for unit in units.values():
        contents |= unit.files()
    others: list[str] = []
    if model.plugin_functions is not None:
        others += model.plugin_functions.sources
    if weights.data and weights_form == "array":
        others.append(f"{name}_weights.c")
        contents[others[0]] = weights_array(name, weights.data, weights.alignment)
    elif weights.data:
        contents[f"{name}_weights.bin"] = weights.data
        if weights_form == "assembly":
            others.append(f"{name}_weights.S")
            contents[others[0]] = assembly_text(name, weights)
    on_linux = any(slot.device.implementation.bus == "uma_uio_bus" for slot in slots(used))
    for header in (
        *_SHARED_HEADERS,
        *(_THREADS_FILES if model.in_threads else ()),
        *(_DEVICE_HEADERS[: 2 + on_linux] if driven else ()),
    ):
        contents[header] = (_CSRC / header).read_text(encoding="utf-8")
    needed = dict.fromkeys([*model.own_headers, *(header for unit in units.values() for header in unit.brought)])
    included = [*needed]
    for header in included:  # which grows by what each of them includes
        text = (_CSRC / header).read_text(encoding="utf-8") if (_CSRC / header).is_file() else headers.get(header)
        if text is not None:
            contents[header] = text
            included += [name for name in _INCLUDED.findall(text) if name not in included]
    contents |= run.files()
    drivers = device_files(used, contents)
    brought = _brought(model)
    taken = {name.lower() for name in (*contents, *drivers)}
    if both := [name for name in brought if name.lower() in taken]:
        raise PluginError(f"the plugin's file {both[0]!r} has the name of a file that the model has already")
    contents |= brought
    others += sorted(file for file in (*run.files(), *drivers) if file.endswith(".c") and file not in run.included)
    contents |= drivers
    for offered, headers_of_it in _OFFERED.items():
        if any(f'#include "{offered}"' in text for text in drivers.values()):
            contents |= {header: (_CSRC / header).read_text(encoding="utf-8") for header in headers_of_it}
    if missing := [header for header in needed if header not in contents]:
        raise PluginError(
            f"an intrinsic of the host includes {missing[0]!r}, which nobody brings",
            hint="the core has uma_vectors.h; a host's are in Code.headers, an accelerator's among Runtime.sources",
        )
    return ModelFiles(
        contents=MappingProxyType(dict(sorted(contents.items()))),
        sources=((f"{name}_stepwise.c",) if stepwise else run.included[::-1]) + tuple(others),
        units=MappingProxyType({label: unit.sources for label, unit in units.items()}),
        objects=MappingProxyType({label: tuple(sorted(one.code.objects)) for label, one in plugin_functions.items()}),
        entry=f"{name}_entry.c",
        profile=(f"{name}_profile.c", *others),
        example=f"{name}_main.c",
        identifiers=MappingProxyType(
            {port.buffer.name: port.identifier for port in (*inputs, *outputs, *model.states)}
        ),
        constant_bytes=len(weights.data),
    )


def _brought(model: Emission) -> dict[str, str | bytes]:
    """The files that plugins bring, with the headers of what is in them, by name."""
    files: dict[str, str | bytes] = {}
    if model.plugin_functions is not None:
        devices = any(map(uses_device, model.brought.values()))
        headers = [target.runtime.header for target in model.used if target.runtime.header is not None]
        includes = ("uma_device.h", *dict.fromkeys(headers)) if devices else ("uma_runtime.h",)
        files |= model.plugin_functions.files(model.brought, includes)
    for unit in model.units.values():
        if unit.plugin_functions is not None:
            files |= unit.plugin_functions.files(unit.kernels, unit.includes)
    return files
