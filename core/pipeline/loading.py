"""Reading a model: a file, a module, a text form or an exported program, with what the caller asks of it."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from ..arguments import check_mapping, path_of, told
from ..codegen.names import c_identifier
from ..errors import ModelError, UsageError
from ..frontends.fixed import Fixed
from ..frontends.model import HYBRID
from ..frontends.open_shapes import AskedShape
from ..frontends.states import keep_states
from ..frontends.torch import exported_content, is_exported
from ..import_budget import IMPORT_LIMIT
from ..io_forms import IoForm
from ..lowering.members import Members
from ..partition import RoundingOptIn
from ..program import Program
from ..relay.module import IRModule
from .custom import CustomImporters
from .dump import SUFFIX, print_form, read_dump
from .hybrid import check_hybrid
from .io import check_io, with_io
from .pins import Pins, pin_layers, unpinned
from .requantize import Requantize, consent_to
from .stages import Form
from .streams import check_stream_inputs
from .strips import StripsAsked, read_strips
from .tolerate import Tolerate, tolerated_passes

if TYPE_CHECKING:
    import numpy as np
    from onnx import ModelProto
    from torch.export import ExportedProgram

__all__ = ["LoadedModel", "Model", "Shapes", "load_model", "model_digest"]

Model: TypeAlias = "str | os.PathLike[str] | IRModule | ModelProto | ExportedProgram"

Shapes = Mapping[str, AskedShape]


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
        tolerate: the plugins' passes, as ``label.pass``, that may change results as they declare.
        hybrid: how layers of float32 with weights of integers are computed; None where the weights are dequantised.
        io: where its inputs and outputs are; of a program nothing, which says it itself.
        strips: what is computed in strips of columns; None for nothing.
        stream_inputs: those of its inputs that the caller gives row by row, likewise.
        literal: the module with the floats that its file has between quantisations; None where it is ``form``.
    """

    form: Form
    name: str
    notes: tuple[str, ...] = ()
    constants: Mapping[str, np.ndarray] = field(default_factory=dict)
    simplified: tuple[str, ...] = ()
    consent: RoundingOptIn | None = None
    tolerate: tuple[str, ...] = ()
    hybrid: str | None = None
    io: IoForm = "caller"
    strips: StripsAsked | None = None
    stream_inputs: tuple[str, ...] = ()
    literal: IRModule | None = field(default=None, repr=False)


def load_model(
    model: Model,
    members: Members | None = None,
    *,
    name: str | None = None,
    shapes: Shapes | None = None,
    states: Mapping[str, str] | None = None,
    constants: Mapping[str, Fixed] | None = None,
    pins: Pins | None = None,
    requantize: Requantize | None = None,
    tolerate: Tolerate = (),
    hybrid: str | None = None,
    io: IoForm | None = None,
    strips: int | str | None = None,
    stream_inputs: Sequence[str] = (),
    import_limit: int = IMPORT_LIMIT,
) -> LoadedModel:
    """Read a model.

    Args:
        model: a file (TFLite, ONNX, or a text form with the suffix ``.py``), or a module.
        members: the targets of the build, the plugins of which may bring operators that the model has.
        name: what to call it in C; by default the name that it has, or its file's, made an identifier.
        shapes: of inputs whose dimensions the model leaves open.
        states, constants: as for `build`.
        pins, requantize: as for `build`; they need ``members``.
        hybrid, io, strips, stream_inputs, import_limit: as for `build`.

    Raises:
        UsageError: there is no such file, ``name`` is no identifier, shapes are given that nothing leaves open, or
            ``states``, ``constants``, ``pins``, ``requantize``, ``hybrid``, ``io``, ``strips``, ``stream_inputs`` or
            ``import_limit`` do not fit the model.
        ModelError: the model is malformed or has unsupported ops; all of these are named.
        RequirementError: pins contradict each other, or the model.
    """
    given: object = name
    if given is not None and not isinstance(given, str):
        raise UsageError(f"{told(given)} is no name for a model", hint="give a C identifier, as a str")
    if name is not None and c_identifier(name) != name:
        raise UsageError(f"{name!r} is no name for a model", hint=f"for example {c_identifier(name)}")
    if shapes is not None:
        example = '{"image": (1, 3, 224, 224)}'
        for extents in check_mapping(shapes, (list, tuple, int, str), "shapes", example).values():
            given = extents if isinstance(extents, (list, tuple)) else [extents]
            if not all(isinstance(extent, (int, str)) for extent in given):
                raise UsageError(f"{told(extents)} is no shape", hint=f"for example shapes={example}")
    if states is not None:
        check_mapping(states, str, "states", '{"state_in": "state_out"}')
    if constants is not None:
        check_mapping(constants, object, "constants", '{"scale": 0.5}')
    with nullcontext() if members is None else members.known_ops():
        importers, how, where, parts = CustomImporters(members), check_hybrid(hybrid), check_io(io), read_strips(strips)
        budget = _check_import_limit(import_limit)
        loaded = _identified(_loaded(model, importers, name, shapes, states or {}, constants or {}, how, budget))
    if not isinstance(loaded.form, Program):
        loaded = replace(loaded, io=where, strips=parts)
    elif parts is not None:
        raise UsageError("a program is not computed in strips", hint="give the model's file, or leave out strips")
    elif io is not None:
        loaded = replace(loaded, form=with_io(loaded.form, where))
    loaded = replace(loaded, stream_inputs=check_stream_inputs(stream_inputs, loaded.form))
    if loaded.stream_inputs and parts is not None:
        what = "inputs are to be given row by row, and layers computed in strips, each of which reads all rows again"
        raise UsageError(what, hint="leave out one of the two")
    if members is None and (pins or requantize or tolerate):
        what = "layers are pinned" if pins else "layers are requantised" if requantize else "passes are tolerated"
        raise UsageError(f"{what} for no targets", hint="give the targets of the build as well")
    if members is not None and requantize:
        loaded = replace(loaded, consent=consent_to(loaded.form, requantize, members))
    if members is not None and tolerate:
        loaded = replace(loaded, tolerate=tolerated_passes(loaded.form, tolerate, members))
    return replace(loaded, form=pin_layers(loaded.form, pins, members)) if members is not None and pins else loaded


def _loaded(
    model: Model,
    custom: CustomImporters,
    name: str | None,
    shapes: Shapes | None,
    states: Mapping[str, str],
    constants: Mapping[str, Fixed],
    hybrid: str,
    import_limit: int,
) -> LoadedModel:
    content = None if isinstance(model, IRModule) else _proto_content(model)
    path = Path("model") if isinstance(model, IRModule) or content is not None else path_of(model, "a model")
    if isinstance(model, IRModule) or path.suffix == SUFFIX:
        if shapes:
            raise UsageError("shapes were given for a model that leaves none open", hint="leave them out")
        if constants:
            what = "constants were given for a module or a text form"
            raise UsageError(what, hint="give them with the model file that it was made of")
        if hybrid != HYBRID[0]:
            what = f"hybrid={hybrid!r} was given for a module or a text form"
            raise UsageError(what, hint="give it with the TFLite file that it was made of")
        form, fallback = (model, "model") if isinstance(model, IRModule) else (read_dump(path), path.stem)
        if isinstance(form, Program):
            if states:
                raise UsageError("states were given for a program, which has its own already", hint="leave them out")
            form = replace(form, name=name or c_identifier(form.name))
            return LoadedModel(form, form.name)
        return LoadedModel(keep_states(form, states), name or c_identifier(fallback))
    from ..frontends import import_model

    given = path if content is None else content
    imported = import_model(
        given,
        shapes=shapes,
        states=states,
        constants=constants,
        custom=custom,
        hybrid=hybrid,
        import_limit=import_limit,
    )
    return LoadedModel(
        imported.module,
        name or c_identifier(path.stem),
        imported.notes,
        imported.constants,
        imported.simplified,
        hybrid=None if hybrid == HYBRID[0] else hybrid,
        literal=imported.literal,
    )


def _check_import_limit(limit: object) -> int:
    """Return the limit; UsageError unless it is a positive whole number."""
    if type(limit) is not int or limit < 1:
        hint = f"a whole number from 1 on; {IMPORT_LIMIT} by default"
        raise UsageError(f"the import limit is {told(limit)}", hint=hint)
    return limit


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
