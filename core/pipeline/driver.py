"""``build``: from a model and a target to an artifact."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType

from ..artifact import Artifact
from ..artifact.record import (
    SCHEMA_VERSION,
    AllowedRecord,
    ArtifactRecord,
    CompileRecord,
    HostRecord,
    LibraryRecord,
    RowsRecord,
    StateRecord,
    StripsRecord,
)
from ..artifact.record_builder import buffer_records, call_records, device_record, tensor_records
from ..codegen.model import emit_model
from ..contract.devices import Device
from ..errors import ModelError, NoCompilerError, UsageError
from ..hookspecs import Library, TargetCode
from ..lowering.build_targets import BuildTargets
from ..lowering.mac_count import Work
from ..program import Plan, Program, plan, streams, verify_plan
from ..program.overlap_constraints import with_those_in_use
from ..support.counters import timed
from ..support.formatting import format_value
from ..support.machines import Machine
from ..support.weights_forms import WeightsForm
from ..targets.config import derivations
from ..toolchain.discovery import find_compiler
from ..toolchain.libraries import require_library
from ..toolchain.packing_engine import packing_engine
from ..version import __version__
from .dump import Dumper
from .kept_model import KeptModel
from .line_buffering import RowsAsked
from .loading import LoadedModel, model_digest
from .machine_code import machine_code
from .numerics import list_differences
from .origins import origins_of
from .stages import STAGES, Build, Form

__all__ = [
    "build_loaded",
    "check_stage",
    "devices_of",
    "finish_build",
    "lower_loaded",
    "make_artifact",
    "start_build",
]


DEFAULT_FLAGS = ("-O2",)
"""For a host whose plugin leaves the choice to the core."""


def check_stage(stage: object) -> None:
    """Raise UsageError unless ``stage`` is one of `STAGES`."""
    if stage not in STAGES:
        raise UsageError(f"there is no stage {format_value(stage)}", hint=f"stages: {', '.join(STAGES)}")


def start_build(
    loaded: LoadedModel,
    members: BuildTargets,
    until: str = STAGES[-1],
    *,
    dump: str | os.PathLike[str] | None = None,
    progress: Callable[[str], None] | None = None,
    frontier: bool = False,
) -> Build:
    """A build of ``loaded`` that tells of its stages.

    Args:
        loaded: the model.
        members: the targets, from `resolve_targets`.
        until: the last stage that it will be run to, one of `STAGES`.
        dump: folder for the text of every stage.
        progress: told of each stage that begins.
        frontier: whether to look for ways to do so in any case.

    Raises:
        UsageError: there is no such stage.
    """
    check_stage(until)
    dumper = None if dump is None else Dumper(dump)
    following = dict(itertools.pairwise(STAGES))

    def after(stage: str, form: Form, made_by: str | None = None) -> None:
        if dumper is not None:
            dumper(stage, form, made_by)
        if progress is not None and stage != until and made_by is None:
            progress(following[stage])

    options = loaded.options
    rows = RowsAsked.from_targets(members, options.max_ram, frontier, options.strips is not None, options.stream_inputs)
    return Build(loaded.name, members, after, consent=loaded.consent, options=options, rows=rows)


def lower_loaded(
    loaded: LoadedModel,
    members: BuildTargets,
    until: str = STAGES[-1],
    *,
    dump: str | os.PathLike[str] | None = None,
    progress: Callable[[str], None] | None = None,
) -> Form:
    """The form of a model after a stage. For arguments see `start_build`.

    Raises:
        UsageError: there is no such stage, or the folder cannot be written.
        ModelError: the model cannot be lowered.
        PluginError: a target's plugin is at fault.
    """
    return start_build(loaded, members, until, dump=dump, progress=progress).run(loaded.form, until)


def build_loaded(
    loaded: LoadedModel,
    members: BuildTargets,
    *,
    dump: str | os.PathLike[str] | None = None,
    progress: Callable[[str], None] | None = None,
) -> Artifact:
    """Compile a model that was read.

    Args:
        loaded: the model.
        members: the targets, from `resolve_targets`.
        dump: folder for the text of every stage.
        progress: told of each stage that begins, and of the planning of memory and the generation of C.
    """
    build = start_build(loaded, members, dump=dump, progress=progress)
    return finish_build(build, loaded, progress)


def finish_build(
    build: Build,
    loaded: LoadedModel,
    progress: Callable[[str], None] | None = None,
    *,
    program: Program | None = None,
) -> Artifact:
    """The artifact of a build that was started.

    Args:
        build: from `start_build`, for all stages.
        loaded: the model that it was started for.
        progress: told of the planning of memory and the generation of C.
        program: what the build gave, where it has run already.

    Raises:
        PluginError: a target's plugin is at fault, or was upgraded or removed during the build.
    """
    form = build.run(loaded.form) if program is None else program
    assert isinstance(form, Program)
    program = form
    if progress is not None:
        progress("plan")
    with timed("step", "plan"):
        memory = plan(program, engine=packing_engine)
    if progress is not None:
        progress("generate")
    differences = list_differences(build.placement, build.facts.tolerated, loaded.hybrid_layers, build.members)
    artifact = make_artifact(
        program,
        memory,
        build.members,
        built_from=KeptModel(
            loaded,
            build.members,
            None if build.placement is None else build.placement.decision,
        ),
        weights=loaded.options.weights,
        work=build.facts.work(program),
        allowed=AllowedRecord(loaded.options.allow.texts, differences),
        rows=build.facts.rows,
        strips=build.facts.strips,
    )
    for member in build.members.all:
        member.plugin.check_installed()
    return artifact


@timed("step", "generate")
def make_artifact(
    program: Program,
    memory: Plan,
    members: BuildTargets,
    *,
    built_from: KeptModel | None = None,
    weights: WeightsForm = "assembly",
    stepwise: bool = False,
    work: Mapping[int, Work] = MappingProxyType({}),
    allowed: AllowedRecord = AllowedRecord(),  # noqa: B008 - immutable
    rows: RowsRecord | None = None,
    strips: StripsRecord | None = None,
) -> Artifact:
    """The C files of ``program`` and their description.

    Args:
        program: what to run.
        memory: where its buffers are.
        members: the targets that it was built for.
        built_from: the model, and how it is built; None where nothing builds it again.
        weights: as for `build`.
        stepwise: make one of which single steps can be run, for verification.
        work: what steps do of the model, by position, where that is known.
        allowed: the opt-ins to results that differ from the model's arithmetic, and their effect.
        rows: what there was to choose from of what runs row by row.
        strips: what is computed in strips of columns.

    Raises:
        UsageError: a host other than the first is to say what runs the steps.
        PluginError: the target's plugin is at fault.
        ToolchainError: a library that a target needs is missing.
    """
    verify_plan(program, memory)
    host_label = members.host.label
    compiled = machine_code(with_those_in_use(program, memory.offsets), members)
    program, codes = compiled.program, compiled.codes
    devices = devices_of(program, members)
    driven = {label for label, device in devices.items() if device.runtime.driver}
    remote = [label for label, code in codes.items() if code.machine != codes[host_label].machine]
    files = emit_model(
        program,
        memory,
        devices,
        remote=remote,
        apart=compiled.apart,
        plugin_functions=compiled.plugin_functions(host_label),
        headers=compiled.headers,
        weights_form=weights,
        stepwise=stepwise,
        executor=_executor(members),
        threads=members.host.threads,
    )
    hosts = tuple(
        HostRecord(
            label,
            code.cc,
            ("-std=c99", *(code.cflags or DEFAULT_FLAGS)),
            code.machine,
            code.runner,
            files.sources if label == host_label else files.units[label],
            files.objects.get(None if label == host_label else label, ()),
            tuple(code.symbols),
            tuple(sorted(members[label].features)),
            code.clock_hz,
        )
        for label, code in codes.items()
    )
    linked = _libraries(devices.values(), codes, members)
    record = ArtifactRecord(
        schema_version=SCHEMA_VERSION,
        name=program.name,
        uma_version=__version__,
        plugins={member.plugin.entry.distribution: member.plugin.entry.version for member in members.all},
        targets=tuple(str(member.target) for member in members.all),
        notes=(
            *members.notes,
            *derivations(member.target for member in members.all),
            *_unused_libs(linked, members),
        ),
        inputs=tensor_records(
            program.inputs,
            files.identifiers,
            {b.name: s.name for s, b in program.symbols},
            {one.input: one.wanted for one in streams(program)},
        ),
        outputs=tensor_records(program.outputs, files.identifiers, {b.name: s.name for s, b in program.computed}),
        arena_bytes=memory.arena_bytes,
        constant_bytes=files.constant_bytes,
        state=_state(program, memory, files.identifiers),
        buffers=buffer_records(program, memory),
        devices=tuple(device_record(devices[label], program, memory) for label in devices if label in driven),
        calls=tuple(call_records(program, devices, host_label, work)),
        allowed=allowed,
        compile=CompileRecord(
            hosts=hosts,
            libraries=tuple(
                LibraryRecord(one.name, one.package, tuple(one.symbols))
                for one in dict.fromkeys(library for _, library in linked)
            ),
            library_entry=files.entry,
            profile=files.profile,
            example=files.example,
        ),
        files={},
        rows=rows,
        strips=strips,
    )
    return Artifact(files.contents, record, built_from, origins_of(program, members, devices, codes))


def _executor(members: BuildTargets) -> str:
    """What runs the steps of the model: that is the first host's to say, and for how many threads loops are marked.

    Raises:
        UsageError: another host says it.
    """
    for host in members.hosts:
        for attribute in ("executor", "threads"):
            if host is not members.host and attribute in host.target.attrs:
                raise UsageError(
                    f"host {host.label!r} has the attribute {attribute!r}, but {members.host.label!r} runs the model's "
                    "steps",
                    hint=f"give it to {members.host.label!r}",
                )
    return str(members.host.target.get_attr("executor"))


def _libraries(
    devices: Iterable[Device], codes: Mapping[str, TargetCode], members: BuildTargets
) -> list[tuple[str, Library]]:
    """The libraries that the model is linked with, and for which target. On this machine they are there, so that the
    build fails and not the first run.

    Raises:
        UsageError: the attribute ``libs`` of the target, or of the first host, leaves one out.
        ToolchainError: one is missing.
    """
    wanted = [(device.label, library) for device in devices for library in device.runtime.libraries]
    wanted += [(label, library) for label, code in codes.items() for library in code.libraries]
    for label, library in wanted:
        for member in (members[label], members.host):
            allowed = member.target.common_attr("libs")
            if allowed is not None and library.name not in allowed:
                what = f"{label!r} is linked with library {library.name!r}, which -libs of {member.label!r} leaves out"
                raise UsageError(what, hint=f"give -libs={','.join((*allowed, library.name))}, or leave out {label!r}")
    if wanted:
        code = codes[members.host.label]
        machine = None if code.machine is None else Machine.parse(code.machine)
        try:
            compiler = find_compiler(code.cc, machine)
        except NoCompilerError:
            return wanted  # whoever compiles it finds them
        for library, label in {library: label for label, library in wanted}.items():
            require_library(library, compiler, f"target {label!r}", code.cflags, machine)
    return wanted


def _unused_libs(wanted: Iterable[tuple[str, Library]], members: BuildTargets) -> Iterator[str]:
    """Where the attribute ``libs`` has no effect, and why, in sentences."""
    labels = {label for label, _ in wanted}
    for member in members.all:
        concerned = labels if member is members.host else labels & {member.label}
        if member.target.common_attr("libs") is not None and not concerned:
            yield f"-libs of '{member.label}' has no effect: nothing that runs for it is linked with a library"


def _state(program: Program, memory: Plan, identifiers: Mapping[str, str]) -> StateRecord | None:
    if not program.states:
        return None
    tensors = tensor_records(program.states, identifiers)
    return StateRecord(memory.state_bytes, program.model or model_digest(program), tensors)


def devices_of(program: Program, members: BuildTargets) -> dict[str, Device]:
    """What the calls of a program are for, by label.

    Raises:
        ModelError: one of them is not a target of the build.
        PluginError: its plugin is at fault.
        UsageError: the target's attributes do not fit each other, or two devices have their registers at one address.
    """
    devices = {label: _device(label, members) for label in program.devices}
    at: dict[int, str] = {}
    for device in devices.values():
        if device.base is not None and (other := at.setdefault(device.base, device.label)) != device.label:
            raise UsageError(
                f"{other!r} and {device.label!r} have their registers at one address, {device.base}",
                hint="give each device a -base of its own",
            )
    return devices


def _device(label: str, members: BuildTargets) -> Device:
    member = members.get(label)
    if member is None:
        known = ", ".join(m.label for m in members.all)
        raise ModelError(
            f"the program runs on {label!r}, which is not a target of this build", hint=f"targets: {known}"
        )
    if member.runtime is None:
        raise member.plugin.fault(f"gave functions for {label!r}, and nothing from hook runtime")
    return Device.from_target(label, member.target, member.runtime)
