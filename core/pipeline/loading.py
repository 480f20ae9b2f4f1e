"""Reading a model: a file, a module, a text form or an exported program, with what the caller asks of it."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from ..errors import ModelError, UsageError
from ..frontends.state_pairs import keep_states
from ..frontends.torch import exported_content, is_exported
from ..lowering.build_targets import BuildTargets
from ..option_values import Limit
from ..options import BuildKeywords, BuildOptions
from ..partition import RoundingOptIn
from ..program import Program
from ..relay.module import IRModule
from ..support.argument_checks import path_of
from ..support.c_text import c_identifier
from ..support.io_forms import IO_FORMS
from .custom_importers import CustomImporters
from .dump import SUFFIX, print_form, read_dump
from .io import with_io
from .numerics import find_passes, find_rounding
from .pins import pin_layers, unpinned
from .stages import Form
from .streamed_inputs import check_stream_inputs

if TYPE_CHECKING:
    import numpy as np
    from onnx import ModelProto
    from torch.export import ExportedProgram
    from typing_extensions import Unpack

__all__ = ["LoadedModel", "Model", "load_model", "model_digest", "read_model", "with_max_ram"]

Model: TypeAlias = "str | os.PathLike[str] | IRModule | ModelProto | ExportedProgram"


@dataclass(frozen=True)
class LoadedModel:
    """A model that was read.

    Args:
        form: a module, or a program where the text of one was read.
        name: of the model, a C identifier.
        notes: what the front-end did that its user may want to know.
        constants: inputs of its file that were fixed to a value, by name.
        simplified: what the front-end folded and dropped, in sentences.
        consent: what accelerators may round otherwise than it says; None for nothing.
        literal: the module with the floats that its file has between quantisations; None where it is ``form``.
        hybrid_layers: the layers with float32 data and int8 weights that are computed as LiteRT does.
        options: of the build; ``allow`` has the names of passes that there are, as ``label.pass``.
    """

    form: Form
    name: str
    notes: tuple[str, ...] = ()
    constants: Mapping[str, np.ndarray] = field(default_factory=dict)
    simplified: tuple[str, ...] = ()
    consent: RoundingOptIn | None = None
    literal: IRModule | None = field(default=None, repr=False)
    hybrid_layers: tuple[str, ...] = ()
    options: BuildOptions = field(default_factory=BuildOptions, repr=False)


def load_model(model: Model, members: BuildTargets | None = None, **options: Unpack[BuildKeywords]) -> LoadedModel:
    """Read a model, as `read_model` does, with the options of `uma.build` as keywords."""
    return read_model(model, members, BuildOptions.read("build", options))


def read_model(model: Model, members: BuildTargets | None, options: BuildOptions) -> LoadedModel:
    """Read a model.

    Args:
        model: a file (TFLite, ONNX, or a text form with the suffix ``.py``), or a module.
        members: the targets of the build, the plugins of which may bring operators that the model has; the options
            ``pins`` and ``allow`` need them, apart from hybrid layers.
        options: of the build.

    Raises:
        UsageError: there is no such file, or an option does not fit the model.
        ModelError: the model is malformed or has unsupported ops; all of these are named.
        RequirementError: pins contradict each other, or the model.
    """
    with nullcontext() if members is None else members.known_ops():
        loaded = _identified(_loaded(model, CustomImporters(members), options))
    if not isinstance(loaded.form, Program):
        options = replace(options, io=options.io or IO_FORMS[0])
    elif options.strips is not None:
        raise UsageError("a program is not computed in strips", hint="give the model's file, or leave out strips")
    elif options.io is not None:
        loaded, options = replace(loaded, form=with_io(loaded.form, options.io)), replace(options, io=None)
    inputs = check_stream_inputs(options.stream_inputs, loaded.form)
    if inputs and options.strips is not None:
        what = "inputs are to be given row by row, and layers computed in strips, each of which reads all rows again"
        raise UsageError(what, hint="leave out one of the two")
    pins, allow = options.pins, options.allow
    if members is None:
        if pins or allow.rules("rounding") or allow.rules("pass"):
            what = "layers are pinned" if pins else "different results are allowed"
            raise UsageError(f"{what} for no targets", hint="give the targets of the build as well")
        return replace(loaded, options=replace(options, stream_inputs=inputs))
    consent, allow = find_rounding(loaded.form, allow, members), find_passes(loaded.form, allow, members)
    loaded = replace(loaded, consent=consent, options=replace(options, allow=allow, stream_inputs=inputs))
    return replace(loaded, form=pin_layers(loaded.form, pins, members)) if pins else loaded


def with_max_ram(loaded: LoadedModel, limit: Limit | None) -> LoadedModel:
    """Return ``loaded`` with another limit on RAM, None for no limit."""
    return replace(loaded, options=replace(loaded.options, max_ram=limit))


def _loaded(model: Model, custom: CustomImporters, options: BuildOptions) -> LoadedModel:
    name, shapes, states = options.name, options.shapes, options.states or {}
    constants, hybrid = options.constants or {}, options.allow.hybrid
    content = None if isinstance(model, IRModule) else _proto_content(model)
    path = Path("model") if isinstance(model, IRModule) or content is not None else path_of(model, "a model")
    if isinstance(model, IRModule) or path.suffix == SUFFIX:
        if shapes:
            raise UsageError("shapes were given for a model that leaves none open", hint="leave them out")
        if constants:
            what = "constants were given for a module or a text form"
            raise UsageError(what, hint="give them with the model file that it was made of")
        if hybrid:
            what = "allow hybrid=litert was given for a module or a text form"
            raise UsageError(what, hint="give it with the TFLite file that it was made of")
        form, fallback = (model, "model") if isinstance(model, IRModule) else (read_dump(path), path.stem)
        if isinstance(form, Program):
            if states:
                raise UsageError("states were given for a program, which has its own already", hint="leave them out")
            form = replace(form, name=name or c_identifier(form.name))
            return LoadedModel(form, form.name)
        return LoadedModel(keep_states(form, states), name or c_identifier(fallback))
    from ..frontends import import_model

    source = path if content is None else content
    imported = import_model(
        source,
        shapes=shapes,
        states=states,
        constants=constants,
        custom=custom,
        hybrid=hybrid,
        import_limit=options.import_limit,
    )
    return LoadedModel(
        imported.module,
        name or c_identifier(path.stem),
        imported.notes,
        imported.constants,
        imported.simplified,
        literal=imported.literal,
        hybrid_layers=imported.hybrid_layers,
    )


def _proto_content(model: object) -> bytes | None:
    """What the file of an ``onnx.ModelProto`` would hold, or of an exported program of PyTorch; None for others.

    Raises:
        UsageError: what exports the program is not installed.
        ModelError: it is too large for a file, or the exporter does not take it.
    """
    if is_exported(model):
        return exported_content(model)
    if type(model).__name__ != "ModelProto" or not hasattr(model, "SerializeToString"):
        return None
    try:
        content: bytes = model.SerializeToString(deterministic=True)
    except Exception as error:  # google.protobuf.message.EncodeError, or ValueError, by its version
        what = f"the model cannot be written down: {error}"
        raise ModelError(what, hint="above 2 GiB: save it with external data, and give the path") from error
    return content


def _identified(loaded: LoadedModel) -> LoadedModel:
    """``loaded`` with the digest by which saved states know it, if it keeps any and does not say it already."""
    form = loaded.form
    if isinstance(form, Program):
        return (
            replace(loaded, form=replace(form, model=model_digest(form))) if form.states and not form.model else loaded
        )
    if form.signature is None or not form.signature.states or form.signature.model:
        return loaded
    return replace(loaded, form=replace(form, signature=replace(form.signature, model=model_digest(form))))


def model_digest(form: Form) -> str:
    """Return the SHA-256 digest by which saved states know a model: of its text, which has the constants' digests.

    Pins are left out: the state of a model is the same wherever it is computed.
    """
    text, _ = print_form(unpinned(form) if isinstance(form, IRModule) else form)
    return hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()
