"""``uma build``: from a model file to an artifact."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from .common import Output, add_model_arguments, add_output_arguments, shapes

__all__ = ["add"]


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command."""
    parser = commands.add_parser("build", help="compile a model", description="Compile a model to C and a library.")
    parser.add_argument("model", metavar="MODEL", type=Path, help="a .tflite or .onnx file, or a dumped text form")
    add_model_arguments(parser)
    parser.add_argument("-o", "--output", metavar="OUT", type=Path, help="folder of the artifact (default: build/NAME)")
    parser.add_argument("--dump", metavar="DIR", type=Path, help="write the text of every stage to this folder")
    parser.add_argument("--stop-after", metavar="STAGE", help="stop there and print the stage's text, or dump it")
    add_output_arguments(parser)
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> int:
    from ..pipeline.driver import build

    out = Output(args)
    if args.stop_after:
        return _stop_after(args, out)
    start = time.perf_counter()
    artifact = build(args.model, args.target, name=args.name, shapes=shapes(args), dump=args.dump, note=out.note)
    code_bytes = artifact.code_bytes  # compiles: a model that does not compile is not saved
    folder = artifact.save(args.output or Path("build") / artifact.name)
    seconds = time.perf_counter() - start

    metadata = artifact.metadata
    out.line(f"{artifact.name}: built for {', '.join(metadata['targets'])} in {seconds:.2f} s")
    out.table(
        {
            "calls": f"{len(metadata['calls'])}, of {len({call['kernel'] for call in metadata['calls']})} kernels",
            "arena": f"{artifact.arena_bytes:,} bytes",
            "weights": f"{artifact.constant_bytes:,} bytes",
            "code": f"{code_bytes:,} bytes",
            "in": str(folder),
        }
    )
    out.result(
        {
            "name": artifact.name,
            "targets": metadata["targets"],
            "folder": str(folder),
            "seconds": seconds,
            "arena_bytes": artifact.arena_bytes,
            "constant_bytes": artifact.constant_bytes,
            "code_bytes": code_bytes,
            "inputs": metadata["inputs"],
            "outputs": metadata["outputs"],
            "calls": metadata["calls"],
        }
    )
    return 0


def _stop_after(args: argparse.Namespace, out: Output) -> int:
    from ..pipeline.driver import lower_to
    from ..pipeline.dump import print_form
    from ..plugins import default_host

    default_host().target(args.target)
    form = lower_to(args.model, args.stop_after, name=args.name, shapes=shapes(args), dump=args.dump, note=out.note)
    if args.dump is None:
        text = print_form(form)[0]
        out.line(text.rstrip("\n"))
        out.result({"stage": args.stop_after, "text": text})
    else:
        out.line(f"stages up to {args.stop_after} are in {args.dump}")
        out.result({"stage": args.stop_after, "folder": str(args.dump)})
    return 0
