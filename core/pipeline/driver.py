"""``build``: from a model and a target to an artifact."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..artifact import SCHEMA_VERSION, Artifact
from ..codegen.model import emit_model
from ..codegen.names import c_identifier
from ..errors import UsageError
from ..hookspecs import Code
from ..plugins import LoadedPlugin, PluginHost, default_host
from ..program import Buffer, Plan, Program, check_plan, plan
from ..relay.module import IRModule
from ..target import Target
from ..version import __version__
from .dump import SUFFIX, Dumper, read_dump
from .stages import STAGES, Form, run

__all__ = ["LoadedModel", "Model", "build", "load_model", "lower_to", "make_artifact", "resolve_target"]

Model = str | os.PathLike[str] | IRModule

DEFAULT_FLAGS = ("-O2",)
"""For a host whose plugin leaves the choice to the core."""


@dataclass(frozen=True)
class LoadedModel:
    """A model that was read.

    Args:
        form: a module, or a program where a dump of one was read.
        name: of the model, a C identifier.
        notes: what the front-end did that its user may want to know.
    """

    form: Form
    name: str
    notes: tuple[str, ...] = ()


def load_model(
    model: Model, *, name: str | None = None, shapes: Mapping[str, tuple[int, ...]] | None = None
) -> LoadedModel:
    """Read a model.

    Args:
        model: a file (``.tflite``, ``.onnx``, or a text form with the suffix ``.py``), or a module.
        name: what to call it in C; by default the file's name, made an identifier.
        shapes: of inputs whose dimensions the model leaves open.

    Raises:
        UsageError: there is no such file, or ``name`` is no identifier.
        ModelError: the model is malformed or has unsupported ops; all of these are named.
    """
    if isinstance(model, IRModule):
        return LoadedModel(model, _name(name, "model"))
    path = Path(model)
    called = _name(name, path.stem)
    if path.suffix == SUFFIX:
        return LoadedModel(read_dump(path), called)
    from ..frontends import import_model

    imported = import_model(path, shapes=shapes)
    return LoadedModel(imported.module, called, imported.notes)


def _name(given: str | None, fallback: str) -> str:
    if given is None:
        return c_identifier(fallback)
    if c_identifier(given) != given:
        raise UsageError(f"{given!r} is no name for a model", hint=f"for example {c_identifier(given)}")
    return given


def lower_to(
    model: Model,
    stage: str,
    *,
    name: str | None = None,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    dump: str | os.PathLike[str] | None = None,
    note: Callable[[str], None] | None = None,
) -> Form:
    """The form of ``model`` after a stage, one of `STAGES`.

    Args:
        model, name, shapes, dump, note: as for `build`.
        stage: where to stop.
    """
    if stage not in STAGES:
        raise UsageError(f"there is no stage {stage!r}", hint=f"stages: {', '.join(STAGES)}")
    loaded = load_model(model, name=name, shapes=shapes)
    for text in loaded.notes if note is not None else ():
        note(text)
    return run(loaded.form, loaded.name, stage, None if dump is None else Dumper(dump))


def build(
    model: Model,
    target: str | Target,
    *,
    name: str | None = None,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    dump: str | os.PathLike[str] | None = None,
    note: Callable[[str], None] | None = None,
    plugins: PluginHost | None = None,
) -> Artifact:
    """Compile a model.

    Args:
        model: path of a TFLite or ONNX file or of a dumped text form, or a module.
        target: what to build for, for example ``"c"`` or ``"c -opt=2"``.
        name: prefix of everything in the generated C; by default from the file's name.
        shapes: of inputs whose dimensions the model leaves open, by input name.
        dump: folder for the text of every stage.
        note: is told what the front-end did that a user may want to know.
        plugins: where targets come from; by default the plugins that are installed.

    Returns:
        The artifact; nothing has been compiled by the C compiler yet.

    Raises:
        UsageError: the target, the name or a path is wrong.
        ModelError: the model is malformed, or has unsupported ops: all of these are named.
        PluginError: the target's plugin is at fault.
    """
    host = plugins or default_host()
    chosen = resolve_target(target, host)
    plugin = host.plugin_for(chosen.kind.name)
    program = lower_to(model, STAGES[-1], name=name, shapes=shapes, dump=dump, note=note)
    assert isinstance(program, Program)
    return make_artifact(program, plan(program), chosen, plugin)


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


def make_artifact(program: Program, memory: Plan, target: Target, plugin: LoadedPlugin) -> Artifact:
    """The C files of ``program`` and their description.

    Args:
        program: what to run.
        memory: where its buffers are.
        target: the host that runs it.
        plugin: that serves the target's kind.
    """
    check_plan(program, memory)
    module = IRModule.of(dict(program.functions))
    code = plugin.call("tir_to_runtime", module=module, target=target) or Code(DEFAULT_FLAGS)
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
            "flags": ["-std=c99", *code.cflags],
            "sources": list(files.sources),
            "library_entry": files.entry,
            "example": files.example,
        },
    }
    return Artifact(files.contents, metadata)


def _tensor(buffer: Buffer, identifier: str) -> dict[str, Any]:
    quantised = buffer.quantisation
    return {
        "name": buffer.tensor or buffer.name,
        "identifier": identifier,
        "shape": list(buffer.shape),
        "dtype": buffer.dtype,
        "quantization": quantised and {"scale": quantised.scale, "zero_point": quantised.zero_point},
    }
