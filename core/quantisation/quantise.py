"""``quantize``: from a float model to one of integers that a target's accelerators take."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, get_args

from ..artifact.record import TensorRecord
from ..errors import RequirementError, UsageError
from ..lowering.build_targets import BuildTargets, TargetLike, resolve_targets
from ..option_values import Shapes
from ..options import BuildKeywords, BuildOptions
from ..pipeline.driver import start_build
from ..pipeline.loading import LoadedModel, load_model
from ..plugins import default_host
from ..relay.module import IRModule
from ..reports.explain import explain
from ..runtime.files import read_arrays
from ..support.argument_checks import path_of
from ..support.float_environment import default_mode
from ..support.formatting import format_value
from ..support.regular_files import open_plain, write_whole
from ..targets import QuantisedForm
from ..targets.quantised import IoDtype, Scales
from ..verification.reference_runtimes import Oracle, litert, onnxruntime
from .agreement import Agreement, compare
from .data import calibration
from .graph import FloatGraph, matching_layers
from .integer_io import with_integer_io
from .litert import check_quantiser, quantised_tflite
from .onnxruntime import check_installed, measured_ranges, prepared, quantised
from .scales import choose, fit_constants

if TYPE_CHECKING:
    import numpy as np
    from onnx import ModelProto
    from typing_extensions import Unpack

__all__ = ["Quantised", "quantize", "quantize_for"]

_TOLD = 3
"""How many of the tensors that are cut off a note names."""


@dataclass(frozen=True)
class Quantised:
    """A model of integers, made of one of floats.

    Args:
        name: of the float model.
        content: the file, in the format of the float model (ONNX in the QDQ form); its inputs and outputs are those of
            the float model, or int8.
        form: the settings that it was made with.
        samples: how many it was calibrated with.
        in_float: the layers that were excluded.
        agreement: with the float model over these samples, of each output.
        offloaded_before, offloaded: the part of the multiply-accumulates that the target's accelerators have of the
            float model and of this one, 0 to 1.
        offloaded_with_consent: the part that they have of it where the build lets them round otherwise, by
            ``allow={"rounding": "fixed-point"}``; None where that is no more.
        notes: what a user may want to know.
        suffix: of the file's name: ``.onnx``, or ``.tflite`` for a model from a TFLite file.
    """

    name: str
    content: bytes = field(repr=False)
    form: QuantisedForm
    samples: int
    in_float: tuple[str, ...]
    agreement: tuple[Agreement, ...]
    offloaded_before: float
    offloaded: float
    offloaded_with_consent: float | None = None
    notes: tuple[str, ...] = ()
    suffix: str = ".onnx"

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the file, or replace one; gives its path.

        Raises:
            UsageError: it cannot be written.
        """
        path = path_of(path, "a file")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, self.content)
        except (OSError, ValueError) as error:  # ValueError: there is a null character in the path
            why = error.strerror if isinstance(error, OSError) else str(error)
            raise UsageError(f"cannot write the model: {why}", where=str(path)) from error
        return path

    json_fields: ClassVar = (
        "name",
        "samples",
        "form",
        "in_float",
        "agreement",
        "offloaded_before",
        "offloaded",
        "offloaded_with_consent",
        "notes",
    )


def quantize(
    model: str | os.PathLike[str],
    target: TargetLike,
    data: str | os.PathLike[str] | Mapping[str, np.ndarray],
    *,
    exclude: Sequence[str] = (),
    scales: Scales | None = None,
    io_dtype: IoDtype = "float32",
    **options: Unpack[BuildKeywords],
) -> Quantised:
    """Quantise a float model for the accelerators of a target, or for its hosts.

    onnxruntime's quantiser makes ONNX files, ai-edge-quantizer TFLite files.

    What the target kinds say of the models that they take (`uma.targets.QuantisedForm`) chooses the settings: zero
    points or none, scales for each output channel or one for all, powers of two, fewer bits. The same model, target
    and data give the same bytes.

    Args:
        model: path of the ONNX or TFLite file.
        target: as for `uma.build`; without accelerators the model is quantised for the hosts.
        data: samples to calibrate with, at least two: arrays, or an ``.npz`` file of them, by the names of the model's
            inputs, in their dtypes; the first axis counts samples.
        exclude: layers that stay in float, by their names or by patterns of these (``*``, ``?``, ``[...]``).
        scales: ``any`` or ``power-of-two``, where not what the target kinds say is wanted.
        io_dtype: ``float32`` for the inputs and outputs of the float model, or ``int8`` for those of the arithmetic; a
            note names what stays float32.
        options: see `uma.options.BuildOptions`; only ``shapes`` and ``plugins`` have an effect here.

    Raises:
        UsageError: an argument makes no sense, two accelerators take no model in common, ``exclude`` names no layer, or
            the quantiser of the format is not installed.
        ModelError: the model is malformed, of another format, quantised already, or not what the quantiser takes; or
            the data does not fit it, has one sample only, or numbers that are not finite.
        RequirementError: the quantiser cannot make what the target asks for.
        PluginError: a target's plugin is at fault.
    """
    with default_mode():
        asked = BuildOptions.read("quantize", options)
        members = resolve_targets(target, asked.plugins or default_host(), "eager")
        path = path_of(model, "a model")
        if isinstance(data, Mapping):
            arrays: Mapping[str, np.ndarray] = data
        else:
            arrays = read_arrays(path_of(data, "calibration data"))
        where = "the data" if isinstance(data, Mapping) else str(data)
        return quantize_for(
            path, members, arrays, exclude=exclude, scales=scales, shapes=asked.shapes, io_dtype=io_dtype, where=where
        )


def quantize_for(
    path: Path,
    members: BuildTargets,
    arrays: Mapping[str, np.ndarray],
    *,
    exclude: Sequence[str] = (),
    scales: Scales | None = None,
    shapes: Shapes | None = None,
    io_dtype: IoDtype = "float32",
    where: str = "the data",
    progress: Callable[[str], None] | None = None,
) -> Quantised:
    """As `quantize`, for targets that are resolved.

    Args:
        path, exclude, scales, shapes, io_dtype: as for `quantize`.
        members: the targets, from `resolve_targets`.
        arrays: the calibration data.
        where: names it in errors.
        progress: told of each step that begins.

    Raises:
        UsageError, ModelError, RequirementError, PluginError: as for `quantize`.
    """
    say = progress or (lambda what: None)
    form = _form(members, scales)
    if io_dtype not in get_args(IoDtype):
        raise UsageError(f"inputs and outputs cannot be {format_value(io_dtype)}", hint=" or ".join(get_args(IoDtype)))
    is_tflite = _is_tflite(path)
    if is_tflite:
        check_quantiser(form)
    else:
        check_installed()
    say("import")
    for name, shape in (shapes or {}).items():
        if ".." in str(shape):
            raise UsageError(f"a model is quantised at fixed shapes, not at {shape} of {name!r}", hint="give numbers")
    loaded = load_model(path, members, shapes=shapes)
    task = _Task(path, loaded, calibration(arrays, _inputs(loaded), where), form, tuple(exclude), io_dtype, say)
    result = _quantise_tflite(task) if is_tflite else _quantise_onnx(task)
    say("place")
    with tempfile.TemporaryDirectory() as folder:
        now = Path(folder, f"quantised{result.suffix}")
        now.write_bytes(result.content)
        before = _offloaded(loaded, members)
        after = _offloaded(load_model(now, members, shapes=shapes), members)
        allowed = after
        if any(member.fixed_point is not None for member in members.accelerators):
            allowed = _offloaded(load_model(now, members, shapes=shapes, allow={"rounding": "fixed-point"}), members)
    return replace(
        result,
        offloaded_before=before,
        offloaded=after,
        offloaded_with_consent=allowed if allowed > after else None,
    )


@dataclass(frozen=True)
class _Task:
    """What `quantize_for` was asked, with the model and the samples read."""

    path: Path
    loaded: LoadedModel
    samples: Sequence[Mapping[str, np.ndarray]]
    form: QuantisedForm
    exclude: tuple[str, ...]
    io_dtype: IoDtype
    say: Callable[[str], None]

    def result(
        self,
        contents: tuple[bytes, bytes, bytes],
        in_float: tuple[str, ...],
        suffix: str,
        oracle: Callable[[Path, Sequence[tuple[int, ...]]], Oracle],
        notes: Sequence[str] = (),
    ) -> Quantised:
        """Return the result before placement, with the agreement of two files.

        Args:
            contents: the float model, the quantised one with the same inputs and outputs, and the one that is returned.
            in_float: the layers that were excluded.
            suffix: of files of this format.
            oracle: runs such a file.
            notes: what a user may want to know.
        """
        self.say("compare")
        with tempfile.TemporaryDirectory() as folder:
            was, now = Path(folder, f"float{suffix}"), Path(folder, f"quantised{suffix}")
            was.write_bytes(contents[0])
            now.write_bytes(contents[1])
            agreement = _agreement(was, now, self.loaded, self.samples, oracle)
        return Quantised(
            self.loaded.name,
            contents[2],
            self.form,
            len(self.samples),
            in_float,
            agreement,
            offloaded_before=0.0,
            offloaded=0.0,
            notes=tuple(notes),
            suffix=suffix,
        )


def _quantise_tflite(task: _Task) -> Quantised:
    """Quantise a TFLite file."""
    content = task.path.read_bytes()
    form = task.loaded.form
    assert isinstance(form, IRModule)  # from a model file
    layers = list(dict.fromkeys(name for _, names in form.spans for name in names))
    excluded = tuple(matching_layers(task.exclude, layers))
    names = [row.name for row in _inputs(task.loaded)]

    def quantised_with(io_dtype: IoDtype) -> bytes:
        return quantised_tflite(content, task.samples, names, task.form, excluded, io_dtype)

    task.say("quantise")
    with_float_io = quantised_with("float32")
    final = with_float_io if task.io_dtype == "float32" else quantised_with(task.io_dtype)
    return task.result((content, with_float_io, final), excluded, ".tflite", litert)


def _quantise_onnx(task: _Task) -> Quantised:
    """Quantise an ONNX file."""
    form, samples, say = task.form, task.samples, task.say
    graph = FloatGraph(_read(task.path))
    graph.check_float()
    named = graph.named(task.exclude)
    say("prepare")
    graph = FloatGraph(prepared(graph.model))
    excluded = graph.layers_in(named)
    notes: list[str] = []
    chosen = None
    original = graph.model.SerializeToString(deterministic=True)
    if form.scales == "power-of-two" or form.weight_bits < 8:
        say("measure")
        cut = fit_constants(graph, form)
        chosen = choose(graph, measured_ranges(graph.model, samples), form)
        notes += _cut_off("constants", cut) + _cut_off("activations", chosen.cut_off)
    say("quantise")
    content = quantised(graph.model, samples, form, chosen, excluded)
    final = content
    if task.io_dtype == "int8":
        final, in_float = with_integer_io(content)
        if in_float:
            notes.append(f"these stay float32, because no quantised layer is next to them: {', '.join(in_float)}")
    return task.result((original, content, final), excluded, ".onnx", onnxruntime, notes)


def _form(members: BuildTargets, scales: Scales | None) -> QuantisedForm:
    form = QuantisedForm.for_all({member.label: member.quantised for member in members.accelerators or members.hosts})
    if form.activation_bits != 8:
        message = (
            f"activations of {form.activation_bits} bits are asked for, and onnxruntime's quantiser makes those of 8"
        )
        raise RequirementError(message, hint="choose a target of 8 bits, or train the model with its own quantisation")
    if scales is None:
        return form
    if scales not in get_args(Scales):
        raise UsageError(f"{format_value(scales)} are not scales", hint=" or ".join(get_args(Scales)))
    if scales == "any" and None not in (form.activation_scale, form.weight_scale):
        message = "the accelerator has scales of its own: others cannot be chosen"
        raise UsageError(message, hint="leave out the choice of scales")
    return replace(form, scales=scales)


def _is_tflite(path: Path) -> bool:
    try:
        with open_plain(path) as file:
            return file.read(8)[4:] == b"TFL3"
    except (OSError, ValueError):
        return False  # which reading it tells


def _read(path: Path) -> ModelProto:
    """The model, with what it keeps in files beside it. It was imported once, so that it is not a hostile one."""
    import onnx

    return onnx.load(path)


def _inputs(loaded: LoadedModel) -> list[TensorRecord]:
    form = loaded.form
    assert isinstance(form, IRModule) and form.signature is not None  # from a model file
    params = zip(form.signature.inputs, form.main.params, strict=True)
    return [TensorRecord(info.name, p.name, p.tensor.shape, p.tensor.dtype, None) for info, p in params]


def _agreement(
    was: Path,
    now: Path,
    loaded: LoadedModel,
    samples: Sequence[Mapping[str, np.ndarray]],
    oracle: Callable[[Path, Sequence[tuple[int, ...]]], Oracle],
) -> tuple[Agreement, ...]:
    """Compare the outputs of two files that an oracle runs."""
    form = loaded.form
    assert isinstance(form, IRModule) and form.signature is not None
    inputs = _inputs(loaded)
    shapes = [row.shape for row in inputs]
    sides = []
    for path in (was, now):
        run = oracle(path, shapes)
        sides.append([run([sample[row.name] for row in inputs]) for sample in samples])
    agreements = []
    for position, info in enumerate(form.signature.outputs):
        expected, actual = ([outputs[position] for outputs in side] for side in sides)
        if expected[0].dtype.kind != "f":
            continue
        agreements.append(compare(info.name, expected, actual, classes=_are_classes(expected[0].shape, shapes)))
    return tuple(agreements)


def _are_classes(shape: tuple[int, ...], inputs: Sequence[tuple[int, ...]]) -> bool:
    """Whether an output looks like classes, each row a list of them: two dimensions, and no input is of that width."""
    return len(shape) == 2 and shape[1] > 1 and all(shape[1] not in input_shape[-1:] for input_shape in inputs)


def _offloaded(loaded: LoadedModel, members: BuildTargets) -> float:
    build = start_build(loaded, members, "lower")
    build.run(loaded.form, "lower")
    return explain(build, reasons=False).offloaded


def _cut_off(title: str, reach: Mapping[str, float]) -> list[str]:
    """A note on what the scales of the hardware do not hold."""
    if not reach:
        return []
    names = sorted(reach, key=lambda name: -reach[name])
    shown = ", ".join(f"{name!r} {reach[name]:.3g} times as far" for name in names[:_TOLD])
    more = f" and {len(names) - _TOLD} more" if len(names) > _TOLD else ""
    return [f"{len(names)} {title} reach further than the accelerator's scale, and are cut off: {shown}{more}"]
