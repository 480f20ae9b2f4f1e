"""``build``: from a model and a target to an artifact."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..artifact import SCHEMA_VERSION, Artifact
from ..codegen.devices import Device, device_record
from ..codegen.model import emit_model
from ..codegen.names import c_identifier
from ..errors import ModelError, UsageError
from ..hookspecs import Code
from ..plugins import PluginEntry, PluginHost, default_host
from ..program import Buffer, Plan, Program, check_plan, plan
from ..relay.module import IRModule
from ..runtime.toolchain import KNOWN_COMPILERS, refused_flags
from ..version import __version__
from .dump import SUFFIX, Dumper, read_dump
from .members import Members, TargetLike, resolve_targets
from .stages import STAGES, Build, Form

__all__ = [
    "LoadedModel",
    "Model",
    "build",
    "build_loaded",
    "finish_build",
    "load_model",
    "lower_loaded",
    "make_artifact",
    "start_build",
]

Model = str | os.PathLike[str] | IRModule

Shapes = Mapping[str, tuple[int, ...]]

DEFAULT_FLAGS = ("-O2",)
"""For a host whose plugin leaves the choice to the core."""


@dataclass(frozen=True)
class LoadedModel:
    """A model that was read.

    Args:
        form: a module, or a program where the text of one was read.
        name: of the model, a C identifier.
        notes: what the front-end did that its user may want to know.
    """

    form: Form
    name: str
    notes: tuple[str, ...] = ()


def build(
    model: Model,
    target: TargetLike,
    *,
    name: str | None = None,
    shapes: Shapes | None = None,
    dump: str | os.PathLike[str] | None = None,
    plugins: PluginHost | None = None,
) -> Artifact:
    """Compile a model.

    Args:
        model: path of a TFLite or ONNX file or of a dumped text form, or a module.
        target: what to build for: a host, or a list of accelerators in order of priority and a host.
        name: prefix of everything in the generated C; by default from the file's name.
        shapes: of inputs whose dimensions the model leaves open, by input name.
        dump: folder for the text of every stage.
        plugins: where targets come from; by default the plugins that are installed.

    Returns:
        The artifact; nothing has been compiled by the C compiler yet.

    Raises:
        UsageError: a target, the name or a path is wrong.
        ModelError: the model is malformed, or has unsupported ops: all of these are named.
        PluginError: a target's plugin is at fault.
    """
    members = resolve_targets(target, plugins or default_host())  # before the model is read, which may take long
    return build_loaded(load_model(model, name=name, shapes=shapes), members, dump=dump)


def load_model(model: Model, *, name: str | None = None, shapes: Shapes | None = None) -> LoadedModel:
    """Read a model.

    Args:
        model: a file (TFLite, ONNX, or a text form with the suffix ``.py``), or a module.
        name: what to call it in C; by default the name that it has, or its file's, made an identifier.
        shapes: of inputs whose dimensions the model leaves open.

    Raises:
        UsageError: there is no such file, ``name`` is no identifier, or shapes are given that nothing leaves open.
        ModelError: the model is malformed or has unsupported ops; all of these are named.
    """
    if name is not None and c_identifier(name) != name:
        raise UsageError(f"{name!r} is no name for a model", hint=f"for example {c_identifier(name)}")
    if isinstance(model, IRModule) or Path(model).suffix == SUFFIX:
        if shapes:
            raise UsageError("shapes were given for a model that leaves none open", hint="leave them out")
        form, fallback = (model, "model") if isinstance(model, IRModule) else (read_dump(Path(model)), Path(model).stem)
        if isinstance(form, Program):
            form = replace(form, name=name or c_identifier(form.name))
            return LoadedModel(form, form.name)
        return LoadedModel(form, name or c_identifier(fallback))
    from ..frontends import import_model

    imported = import_model(model, shapes=shapes)
    return LoadedModel(imported.module, name or c_identifier(Path(model).stem), imported.notes)


def start_build(
    loaded: LoadedModel,
    members: Members,
    until: str = STAGES[-1],
    *,
    dump: str | os.PathLike[str] | None = None,
    progress: Callable[[str], None] | None = None,
) -> Build:
    """A build of ``loaded`` that tells of its stages.

    Args:
        loaded: the model.
        members: the targets, from `resolve_targets`.
        until: the last stage that it will be run to, one of `STAGES`.
        dump: folder for the text of every stage.
        progress: told of each stage that begins.

    Raises:
        UsageError: there is no such stage.
    """
    if until not in STAGES:
        raise UsageError(f"there is no stage {until!r}", hint=f"stages: {', '.join(STAGES)}")
    dumper = None if dump is None else Dumper(dump)
    following = dict(itertools.pairwise(STAGES))

    def after(stage: str, form: Form, made_by: str | None = None) -> None:
        if dumper is not None:
            dumper(stage, form, made_by)
        if progress is not None and stage != until and made_by is None:
            progress(following[stage])

    return Build(loaded.name, members, after)


def lower_loaded(
    loaded: LoadedModel,
    members: Members,
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
    members: Members,
    *,
    dump: str | os.PathLike[str] | None = None,
    progress: Callable[[str], None] | None = None,
) -> Artifact:
    """Compile a model that was read; as `build`.

    Args:
        loaded: the model.
        members: the targets, from `resolve_targets`.
        dump: folder for the text of every stage.
        progress: told of each stage that begins, and of the planning of memory and the generation of C.
    """
    return finish_build(start_build(loaded, members, dump=dump, progress=progress), loaded, progress)


def finish_build(build: Build, loaded: LoadedModel, progress: Callable[[str], None] | None = None) -> Artifact:
    """The artifact of a build that was started.

    Args:
        build: from `start_build`, for all stages.
        loaded: the model that it was started for.
        progress: told of the planning of memory and the generation of C.
    """
    program = build.run(loaded.form)
    assert isinstance(program, Program)
    if progress is not None:
        progress("plan")
    memory = plan(program)
    if progress is not None:
        progress("generate")
    return make_artifact(program, memory, build.members)


def make_artifact(program: Program, memory: Plan, members: Members) -> Artifact:
    """The C files of ``program`` and their description.

    Args:
        program: what to run.
        memory: where its buffers are.
        members: the targets that it was built for.

    Raises:
        PluginError: the target's plugin is at fault.
    """
    check_plan(program, memory)
    host = members.host
    module = IRModule.of(dict(program.functions))
    code = host.plugin.call("tir_to_runtime", module=module, target=host.target) or Code()
    _check(code, host.plugin.entry)
    devices = {label: _device(label, members) for label in program.devices}
    files = emit_model(program, memory, devices)
    metadata = {
        "schema_version": SCHEMA_VERSION,
        "name": program.name,
        "uma_version": __version__,
        "plugins": {member.plugin.entry.distribution: member.plugin.entry.version for member in members.all},
        "targets": [str(member.target) for member in members.all],
        "inputs": [_tensor(b, files.identifiers[b.name]) for b in program.inputs],
        "outputs": [_tensor(b, files.identifiers[b.name]) for b in program.outputs],
        "arena_bytes": memory.arena_bytes,
        "constant_bytes": files.constant_bytes,
        "devices": [device_record(device, program, memory) for device in devices.values()],
        "calls": [
            {"kernel": step.function, "layers": list(step.layers), "device": step.device} for step in program.steps
        ],
        "compile": {
            "compiler": code.cc,
            "flags": ["-std=c99", *(code.cflags or DEFAULT_FLAGS)],
            "sources": list(files.sources),
            "library_entry": files.entry,
            "profile": list(files.profile),
            "example": files.example,
        },
    }
    return Artifact(files.contents, metadata)


def _device(label: str, members: Members) -> Device:
    member = members.get(label)
    if member is None:
        known = ", ".join(m.label for m in members.all)
        raise ModelError(f"the program runs on {label!r}, which is no target of this build", hint=f"targets: {known}")
    if member.runtime is None:
        raise member.plugin.fault(f"gave loops that drive {label!r}, and no driver from hook runtime")
    return Device.of(label, member.target, member.runtime)


def _check(code: Code, plugin: PluginEntry) -> None:
    """PluginError where a plugin wants what is not allowed."""
    remedy = f"tell its authors, or look for a newer version: pip install --upgrade {plugin.distribution}"
    if refused := refused_flags(code.cflags):
        raise plugin.fault(f"wants the compiler flag {refused[0]!r}, which is not allowed", remedy)
    if code.cc is not None and not KNOWN_COMPILERS.fullmatch(code.cc):
        raise plugin.fault(f"wants the compiler {code.cc!r}, which is not a known one", remedy)


def _tensor(buffer: Buffer, identifier: str) -> dict[str, Any]:
    quantised = buffer.quantisation
    return {
        "name": buffer.tensor or buffer.name,
        "identifier": identifier,
        "shape": list(buffer.shape),
        "dtype": buffer.dtype,
        "quantization": quantised and {"scale": quantised.scale, "zero_point": quantised.zero_point},
    }
