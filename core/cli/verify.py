"""``uma verify``: the compiled model against references, layer by layer."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from .common import Output, add_input_arguments, add_model_arguments, add_output_arguments, make_inputs, shapes

__all__ = ["add"]

EXIT_DIFFERS = 7


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "verify",
        help="compare a compiled model with references",
        description="Compare every kernel of the compiled model with the numpy references of its ops, and name the "
        "first layer that differs. Integers must be equal, floats within 1e-5 of the largest element.",
    )
    parser.add_argument("model", metavar="MODEL", type=Path, help="a .tflite or .onnx file")
    add_model_arguments(parser)
    add_input_arguments(parser)
    parser.add_argument(
        "--against",
        choices=("builtin", "litert", "onnxruntime"),
        default="builtin",
        help="compare the model's outputs with another runtime's as well (default: builtin, the references alone)",
    )
    add_output_arguments(parser)
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> int:
    from ..pipeline.driver import build, load_model
    from ..pipeline.oracles import ORACLES
    from ..pipeline.verify import Difference, compare, verify_layers

    out = Output(args)
    loaded = load_model(args.model, name=args.name, shapes=shapes(args))
    for note in loaded.notes:
        out.note(note)
    artifact = build(args.model, args.target, name=args.name, shapes=shapes(args))
    inputs = make_inputs(args, artifact.metadata["inputs"])
    layers = verify_layers(loaded, args.target, inputs)
    got = artifact.run(inputs)
    whole: list[Difference] = []
    if args.against != "builtin":
        expected = ORACLES[args.against](args.model, inputs)
        whole = [compare(got[name], expected[name], (name,), args.against) for name in got]

    wrong = [difference for difference in layers if not difference.ok]
    if args.verbose:
        for difference in layers:
            out.line(f"  {difference}")
    out.line(f"{len(layers)} kernels compared with the references of their ops: {len(wrong)} differ")
    if wrong:
        out.line(f"first: {wrong[0]}")
    for difference in whole:
        out.line(f"output against {args.against}: {difference}")
    failed = bool(wrong) or any(not difference.ok for difference in whole)
    out.result(
        {
            "name": artifact.name,
            "equal": not failed,
            "layers": [_as_json(difference) for difference in layers],
            "against": args.against,
            "outputs": [_as_json(difference) for difference in whole],
        }
    )
    return EXIT_DIFFERS if failed else 0


def _as_json(difference: Any) -> dict[str, Any]:
    return {
        "layers": list(difference.layers),
        "kernel": difference.kernel,
        "ok": difference.ok,
        "differing": difference.count,
        "size": difference.size,
        "largest": difference.largest if difference.largest != float("inf") else None,
        "first_index": None if difference.index is None else list(difference.index),
    }
