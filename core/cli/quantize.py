"""``uma quantize``: from a float model to one of integers that accelerators take."""

from __future__ import annotations

import argparse
import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from ..errors import UsageError
from ..support.formatting import format_percent
from ..support.json_record import to_json
from ..targets.quantised import IoDtype, QuantisedForm, Scales
from ..targets.values import shorten
from .output import Output
from .shared_options import (
    add_model_arguments,
    add_output_arguments,
    find_members,
    shapes,
)

if TYPE_CHECKING:
    from ..quantisation import Agreement

__all__ = ["add"]

_SUFFIXES = (".onnx", ".tflite", ".lite")
"""That say what format a file has."""


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "quantize",
        help="make a float model one of integers",
        description="Quantise a float ONNX model by onnxruntime's quantiser, or a float TFLite model by "
        "ai-edge-quantizer, with the settings that the target's "
        "accelerators ask for, or its hosts if there are none. Print how far the result is from the float model, and "
        "how much of it accelerators have.",
        allow_abbrev=False,
    )
    parser.add_argument("model", metavar="MODEL", type=Path, help="an ONNX or TFLite file, in float")
    parser.add_argument(
        "--data",
        metavar="CALIBRATION.npz",
        type=Path,
        required=True,
        help="samples of the inputs, as the model will meet them: arrays under the inputs' names, of which the first "
        "axis counts samples",
    )
    add_model_arguments(parser, "quantize")
    parser.add_argument(
        "-o",
        "--output",
        metavar="OUT",
        type=Path,
        help="the file to write (default: build/NAME-int8.onnx or .tflite, as the model is)",
    )
    parser.add_argument(
        "--exclude",
        metavar="LAYER",
        action="append",
        default=[],
        help="leave a layer in float; 'conv*' leaves all whose names fit; may be repeated",
    )
    parser.add_argument(
        "--scales",
        choices=get_args(Scales),
        help="which scales numbers may have (default: what the accelerators ask for)",
    )
    parser.add_argument(
        "--io-dtype",
        choices=get_args(IoDtype),
        default=get_args(IoDtype)[0],
        help="type of the inputs and outputs (default: float32, as the float model has them)",
    )
    add_output_arguments(parser)
    parser.set_defaults(run=_run, partition="eager", costs=None, plan=None)


def _run(args: argparse.Namespace, out: Output) -> int:
    from ..quantisation.quantise import quantize_for
    from ..runtime.files import read_arrays

    members = find_members(args, out)
    output = args.output or Path("build", f"{args.model.stem}-int8{_suffix(args.model)}")
    if output.suffix.lower() in _SUFFIXES and _suffix(output) != _suffix(args.model):
        what = f"{output} would hold a model in the format of {args.model}"
        raise UsageError(what, hint=f"name the file {output.with_suffix(_suffix(args.model))}")
    for source in (args.model, args.data):
        if _is_same(source, output):
            raise UsageError(f"{output} would be written over what it is made of", hint="name another file: -o OUT")
    result = quantize_for(
        args.model,
        members,
        read_arrays(args.data),
        exclude=args.exclude,
        scales=args.scales,
        shapes=shapes(args),
        io_dtype=args.io_dtype,
        where=str(args.data),
        progress=out.step,
    )
    out.step("save")
    result.save(output)
    labels = ", ".join(member.label for member in members.accelerators or members.hosts)
    out.line(f"{result.name}: quantised for {labels} over {result.samples} samples, to {output}")
    out.table(_settings(result.form))
    if result.in_float:
        out.line(f"left in float: {', '.join(shorten(name, 60) for name in result.in_float)}")
    out.line("agreement with the float model, over these samples:")
    head = ("output", "same class", "largest difference", "mean difference", "signal to noise")
    out.columns(head, [_agreement_row(one) for one in result.agreement])
    consent = result.offloaded_with_consent
    more = "" if consent is None else f", {format_percent(consent)} with --allow rounding=fixed-point"
    if members.accelerators:
        out.line(
            f"accelerators have {format_percent(result.offloaded)} of the multiply-accumulates{more}; "
            f"of the float model {format_percent(result.offloaded_before)}"
        )
    for note in result.notes:
        out.line(f"note: {note}")
    command = _build_command(args, output, consent is not None)
    out.line(f"to build it: {command}")
    out.result({**to_json(result), "file": str(output), "build": command})
    return 0


def _suffix(model: Path) -> str:
    return ".tflite" if model.suffix.lower() in _SUFFIXES[1:] else ".onnx"


def _is_same(source: Path, output: Path) -> bool:
    try:
        return os.path.samefile(source, output)
    except (OSError, ValueError):
        return False  # one is not there


def _settings(form: QuantisedForm) -> dict[str, str]:
    zero_points = "all 0" if form.symmetric else "where ranges ask for them; of weights 0"
    per_channel = "one for each output channel" if form.per_channel else "one for all channels"
    kinds = "powers of two" if form.scales == "power-of-two" else "any"
    scales = {
        "activations": form.activation_scale,
        "weights": form.weight_scale,
        "biases": form.bias_scale,
    }
    listed = ", ".join(f"{what} at {scale:g}" for what, scale in scales.items() if scale is not None)
    return {
        "activations": f"int8, zero points {zero_points}",
        "weights": f"int8{f', {form.weight_bits} bits of it' if form.weight_bits < 8 else ''}, scales {per_channel}",
        "scales": listed or kinds,
    }


def _agreement_row(one: Agreement) -> tuple[str, ...]:
    return (
        shorten(one.output, 60),
        "-" if one.top1 is None else format_percent(one.top1),
        f"{one.largest:.3g}",
        f"{one.mean:.3g}",
        "equal" if one.snr_db is None else f"{one.snr_db:.1f} dB",
    )


def _build_command(args: argparse.Namespace, output: Path, consent: bool) -> str:
    words = ["uma", "build", str(output)]
    for option in ("target", "shape", "disable_plugin"):
        for value in getattr(args, option):
            words += [f"--{option.replace('_', '-')}", value]
    return shlex.join([*words, "--allow", "rounding=fixed-point"] if consent else words)
