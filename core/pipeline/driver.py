"""``build``: from a model and a target to an artifact."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..artifact import SCHEMA_VERSION, Artifact
from ..codegen.model import emit_model
from ..codegen.names import c_identifier
from ..errors import UsageError
from ..hookspecs import Code
from ..plugins import PluginEntry, PluginHost, default_host
from ..program import Buffer, Plan, Program, check_plan, plan
from ..relay.module import IRModule
from ..runtime.toolchain import KNOWN_COMPILERS, refused_flags
from ..target import Target
from ..version import __version__
from .dump import SUFFIX, Dumper, read_dump
from .stages import STAGES, Form, run

__all__ = [
    "LoadedModel",
    "Model",
    "build",
    "build_loaded",
    "load_model",
    "lower_loaded",
    "make_artifact",
    "resolve_target",
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
    target: str | Target,
    *,
    name: str | None = None,
    shapes: Shapes | None = None,
    dump: str | os.PathLike[str] | None = None,
    plugins: PluginHost | None = None,
) -> Artifact:
    """Compile a model.

    Args:
        model: path of a TFLite or ONNX file or of a dumped text form, or a module.
        target: what to build for, for example ``"c"`` or ``"c -opt=2"``.
        name: prefix of everything in the generated C; by default from the file's name.
        shapes: of inputs whose dimensions the model leaves open, by input name.
        dump: folder for the text of every stage.
        plugins: where targets come from; by default the plugins that are installed.

    Returns:
        The artifact; nothing has been compiled by the C compiler yet.

    Raises:
        UsageError: the target, the name or a path is wrong.
        ModelError: the model is malformed, or has unsupported ops: all of these are named.
        PluginError: the target's plugin is at fault.
    """
    host = plugins or default_host()
    chosen = resolve_target(target, host)  # before the model is read, which may take long
    return build_loaded(load_model(model, name=name, shapes=shapes), chosen, dump=dump, plugins=host)


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


def resolve_target(target: str | Target, host: PluginHost) -> Target:
    """The target to build a whole model for.

    Raises:
        UsageError: it is malformed, or cannot run a whole model.
        PluginError: its plugin is at fault.
    """
    if isinstance(target, str):
        target = host.target(target)
    if not isinstance(target, Target):
        raise UsageError(f"a target is a string or a Target, not {type(target).__name__}")
    if not target.kind.is_host:
        raise UsageError(f"{target.kind.name!r} cannot run a whole model by itself", hint="build for a host, such as c")
    return target


def lower_loaded(
    loaded: LoadedModel,
    until: str = STAGES[-1],
    *,
    dump: str | os.PathLike[str] | None = None,
    progress: Callable[[str], None] | None = None,
) -> Form:
    """The form of a model after a stage.

    Args:
        loaded: the model.
        until: the last stage to run, one of `STAGES`.
        dump: folder for the text of every stage.
        progress: told of each stage that begins.

    Raises:
        UsageError: there is no such stage, or the folder cannot be written.
        ModelError: the model cannot be lowered.
    """
    if until not in STAGES:
        raise UsageError(f"there is no stage {until!r}", hint=f"stages: {', '.join(STAGES)}")
    dumper = None if dump is None else Dumper(dump)
    following = dict(itertools.pairwise(STAGES))

    def after(stage: str, form: Form) -> None:
        if dumper is not None:
            dumper(stage, form)
        if progress is not None and stage != until:
            progress(following[stage])

    return run(loaded.form, loaded.name, until, after)


def build_loaded(
    loaded: LoadedModel,
    target: Target,
    *,
    dump: str | os.PathLike[str] | None = None,
    progress: Callable[[str], None] | None = None,
    plugins: PluginHost | None = None,
) -> Artifact:
    """Compile a model that was read; as `build`.

    Args:
        loaded: the model.
        target: from `resolve_target`.
        dump: folder for the text of every stage.
        progress: told of each stage that begins, and of the planning of memory and the generation of C.
        plugins: where the target comes from.
    """
    program = lower_loaded(loaded, dump=dump, progress=progress)
    assert isinstance(program, Program)
    if progress is not None:
        progress("plan")
    memory = plan(program)
    if progress is not None:
        progress("generate")
    return make_artifact(program, memory, target, plugins or default_host())


def make_artifact(program: Program, memory: Plan, target: Target, plugins: PluginHost) -> Artifact:
    """The C files of ``program`` and their description.

    Args:
        program: what to run.
        memory: where its buffers are.
        target: the host that runs it.
        plugins: where the target comes from.

    Raises:
        PluginError: the target's plugin is at fault.
    """
    check_plan(program, memory)
    plugin = plugins.plugin_for(target.kind.name)
    module = IRModule.of(dict(program.functions))
    code = plugin.call("tir_to_runtime", module=module, target=target) or Code()
    _check(code, plugin.entry)
    files = emit_model(program, memory)
    metadata = {
        "schema_version": SCHEMA_VERSION,
        "name": program.name,
        "uma_version": __version__,
        "plugins": {plugin.entry.distribution: plugin.entry.version},
        "targets": [str(target)],
        "inputs": [_tensor(b, files.identifiers[b.name]) for b in program.inputs],
        "outputs": [_tensor(b, files.identifiers[b.name]) for b in program.outputs],
        "arena_bytes": sum(memory.pool_bytes.values()),
        "constant_bytes": files.constant_bytes,
        "calls": [{"kernel": step.function, "layers": list(step.layers)} for step in program.steps],
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
