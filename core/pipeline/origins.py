"""What plugins bring of the C of a model, for the errors of compilers and linkers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from ..contract.code import TargetCode
from ..contract.devices import Device
from ..contract.drivers import Runtime
from ..lowering.build_targets import BuildTargets
from ..plugins import PluginEntry
from ..program import Program
from ..relay.extern import Extern
from ..tir.form.visit import intrinsics
from ..toolchain.origins import Origins, words_of

__all__ = ["origins_of"]


def origins_of(
    program: Program, members: BuildTargets, devices: Mapping[str, Device], codes: Mapping[str, TargetCode]
) -> Origins:
    """Collect the plugins behind the C of a model.

    Args:
        program: the program, whose kernels have the C texts of intrinsics and routines.
        members: the targets of the build.
        devices: of the targets that have a driver or a library, by label.
        codes: what targets say of their loops, by label.
    """
    files: dict[str, PluginEntry] = {}
    symbols: dict[str, tuple[PluginEntry, str]] = {}

    def note(label: str, named: Iterable[str], texts: Iterable[tuple[str, Iterable[str]]]) -> PluginEntry:
        entry = members[label].plugin.entry
        files.update(dict.fromkeys(named, entry))
        for what, parts in texts:
            for word in sorted(words_of(parts)):
                symbols.setdefault(word, (entry, f"{what} of target {label!r}"))
        return entry

    for label, device in devices.items():
        driven = [("the driver", filter(None, [device.driver, device.driver and device.implementation.bus]))]
        note(label, device.sources, [*driven, *_texts(device.runtime)])
    for label, code in codes.items():
        brought = [(f"TargetCode.symbols[{name!r}]", [symbol]) for name, symbol in code.symbols.items()]
        note(label, [*code.sources, *code.objects, *code.headers], brought)
    functions: dict[str, tuple[PluginEntry, str]] = {}
    for _, step in program.calls:
        function, label = program.functions[step.function], step.device or step.host or members.host.label
        if isinstance(function, Extern):
            what = f"routine {function.routine!r}"
        else:
            used = intrinsics(function)
            what = ", ".join(f"intrinsic {one.name!r}" for one in used) or "a transfer"
            if not used and not function.memories:
                continue
            hosts = [(f"intrinsic {one.name!r}", [one.statement]) for one in used if one.is_host]
            note(label, (), hosts)
        functions.setdefault(step.function, (members[label].plugin.entry, f"{what} of target {label!r}"))
    return Origins(files, functions, symbols)


def _texts(runtime: Runtime) -> Iterator[tuple[str, Iterable[str]]]:
    """The C texts of a runtime that the core puts into kernels, with what each is of."""
    for routine in runtime.routines:
        yield f"routine {routine.name!r}", [routine.call]
    for launch_queue in runtime.launch_queues:
        yield f"launch queue {launch_queue.name!r}", [launch_queue.wait]
    if runtime.machine is None:
        return
    for one in runtime.machine.intrinsics:
        yield f"intrinsic {one.name!r}", [one.code, one.start]
    for memory in runtime.machine.memories:
        yield f"memory {memory.name!r}", [memory.copy_in, memory.copy_out, memory.start_in, memory.start_out]
    for queue in runtime.machine.queues:
        yield f"queue {queue.name!r}", [queue.wait]
