"""``uma verify``: the compiled model against references, layer by layer."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import UsageError, VerificationError
from ..target.values import shorten
from .common import (
    add_input_arguments,
    add_model_arguments,
    add_output_arguments,
    find_members,
    make_inputs,
    pins,
    shapes,
    states,
)
from .output import Output

if TYPE_CHECKING:
    from ..pipeline.verify import Difference, KernelCheck, OutputCheck, Verification

__all__ = ["add"]

_SIDES = "what it was given, what it gave, and what it should have given"

_AGAINST = {
    "inspected": "the same kernels without reuse of memory",
    "references": "the references of the whole model",
    "first run": "the first run, after a reset",
    "litert": "LiteRT",
    "onnxruntime": "onnxruntime",
}


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "verify",
        help="compare a compiled model with references",
        description="Compare every kernel of the compiled model with the numpy references of its ops, and name the "
        "first layer that differs. Integers must be equal, floats within 1e-5 of the largest element.",
        allow_abbrev=False,
    )
    parser.add_argument("model", metavar="MODEL", type=Path, help="a TFLite or ONNX file")
    add_model_arguments(parser)
    add_input_arguments(parser)
    parser.add_argument(
        "--against",
        choices=("builtin", "litert", "onnxruntime"),
        default="builtin",
        help="compare the model's outputs with another runtime's as well (default: builtin, the references alone)",
    )
    parser.add_argument(
        "--dump",
        metavar="DIR",
        type=Path,
        help=f"of every kernel or region that differs, write {_SIDES}",
    )
    add_output_arguments(parser)
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace, out: Output) -> int:
    from ..pipeline.blame import blaming_sources
    from ..pipeline.driver import build_loaded, load_model
    from ..pipeline.oracles import ORACLES, kept_states
    from ..pipeline.verify import verify

    members = find_members(args, out)
    out.step("import")
    loaded = load_model(args.model, members, name=args.name, shapes=shapes(args), states=states(args), pins=pins(args))
    artifact = build_loaded(loaded, members, progress=out.step)
    declared = artifact.metadata["inputs"]
    inputs = make_inputs(args, declared)
    oracle = None
    if args.against != "builtin":
        kept = kept_states(loaded.form, states(args))
        shapes_given = [tuple(row["shape"]) for row in declared]
        oracle = args.against, partial(ORACLES[args.against], args.model, shapes_given, kept)
    with blaming_sources(members):
        found = verify(loaded, artifact, members, inputs, oracle=oracle, progress=out.step)

    out.notes(loaded.notes)
    wrong = [check for check in found.kernels if not check.difference.ok]
    if out.verbose:
        for kernel in found.kernels:
            out.line(f"  {shorten(_layers(kernel), 60)}: {kernel.difference}")
        for skipped in found.skipped:
            out.line(f"  {shorten(', '.join(skipped.layers) or '(no layer)', 60)}: not compared")
    verdict = f"{len(wrong)} differ" if wrong else "all agree"
    over = f" over {found.frames} frames" if found.frames > 1 else ""
    out.line(
        f"{artifact.name}: {len(found.kernels)} results of kernels compared with their references{over}: {verdict}"
    )
    reasons = Counter(skipped.reason for skipped in found.skipped)
    for reason, count in reasons.items():
        out.line(f"{count} kernel{'s' if count > 1 else ''} could not be compared: {reason}")
    checks = _summary(found.outputs)
    for check in checks:
        if check.role == "output" or not check.difference.ok:
            out.line(f"{check.role} {shorten(check.name, 60)} against {_AGAINST[check.against]}: {check.difference}")
    good = Counter(check.against for check in checks if check.role == "state" and check.difference.ok)
    for against, count in good.items():
        out.line(f"{count} state{'s' if count > 1 else ''} against {_AGAINST[against]}: all agree")
    if args.dump is not None:
        for position, kernel in enumerate(wrong):
            out.line(f"both sides of {kernel.kernel} are in {_dump(args.dump, position, kernel)}")
    error = _error(found, bool(loaded.notes), args.dump is not None)
    out.result(
        {
            "name": artifact.name,
            "equal": error is None,
            "kernels": [
                {
                    "kernel": c.kernel,
                    "target": c.target,
                    "layers": list(c.layers),
                    "frame": c.frame,
                    **_as_json(c.difference),
                }
                for c in found.kernels
            ],
            "skipped": [{"target": k.target, "layers": list(k.layers), "reason": k.reason} for k in found.skipped],
            "outputs": [
                {"name": c.name, "role": c.role, "frame": c.frame, "against": c.against, **_as_json(c.difference)}
                for c in found.outputs
            ],
        }
    )
    if error is not None:
        raise error
    return 0


def _dump(folder: Path, position: int, check: KernelCheck) -> Path:
    """Write both sides of a difference as ``DIR/N-KERNEL.npz``; gives its path."""
    from ..runtime.files import save_arrays

    assert check.sides is not None
    arrays = {f"input{i}": array for i, array in enumerate(check.sides.inputs)}
    path = folder / f"{position}-{check.kernel}.npz"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot make the folder: {error.strerror}", where=str(folder)) from error
    save_arrays(path, {**arrays, "got": check.sides.got, "expected": check.sides.expected}, "the difference")
    return path


def _summary(outputs: Iterable[OutputCheck]) -> list[OutputCheck]:
    """One check of each output and state against each that it is compared with: where it differs first, else the
    last."""
    found: dict[tuple[str, str, str], OutputCheck] = {}
    for check in outputs:
        key = check.role, check.name, check.against
        if key not in found or found[key].difference.ok:
            found[key] = check
    return list(found.values())


def _error(found: Verification, noted: bool, dumped: bool) -> VerificationError | None:
    """What the first difference means.

    Args:
        found: what was compared, and what could not be.
        noted: whether reading the model gave something to note.
        dumped: whether both sides of what differs were written.
    """
    for position, kernel in enumerate(found.kernels):
        if not kernel.difference.ok:
            what = f"layer {shorten(_layers(kernel), 200)} differs from its reference: {kernel.difference}"
            part = f"kernel {kernel.kernel}" if kernel.target is None else f"region {kernel.kernel} of {kernel.target}"
            hint = None if dumped else f"--dump DIR writes {_SIDES}"
            place = f"{part}, result {position + 1} of {len(found.kernels)}"
            if found.frames > 1:
                place += f", frame {kernel.frame + 1}"
            return VerificationError(what, where=place, hint=hint)
    for output in found.outputs:
        if not output.difference.ok:
            what = f"{output.role} {output.name} differs from {_AGAINST[output.against]}: {output.difference}"
            every = "every kernel that could be compared" if found.skipped else "every kernel by itself"
            hint = f"{every} agrees with its reference"
            if noted:
                hint += "; a note on how the model was read may tell why: -v"
            where = f"frame {output.frame + 1}" if found.frames > 1 else None
            return VerificationError(what, where=where, hint=hint)
    return None


def _layers(check: KernelCheck) -> str:
    return ", ".join(check.layers) or check.kernel


def _as_json(difference: Difference) -> dict[str, Any]:
    return {
        "ok": difference.ok,
        "differing": difference.count,
        "size": difference.size,
        "largest": difference.largest,
        "first": None if difference.index is None else list(difference.index),
        "got": difference.got,
        "expected": difference.expected,
    }
