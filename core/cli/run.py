"""``uma run``: a model or an artifact on this machine."""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import UsageError
from .common import Output, add_input_arguments, add_model_arguments, add_output_arguments, make_inputs, shapes

if TYPE_CHECKING:
    import numpy as np

    from ..artifact import Artifact

__all__ = ["add"]

SHOWN_ELEMENTS = 16


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command."""
    parser = commands.add_parser("run", help="run a model", description="Run a model or an artifact on this machine.")
    parser.add_argument("model", metavar="MODEL|ARTIFACT", type=Path, help="a model file, or a folder of uma build")
    add_model_arguments(parser, target_required=False)
    add_input_arguments(parser)
    parser.add_argument("--outputs", metavar="OUT.npz", type=Path, help="write the outputs under their names")
    parser.add_argument("--repeat", metavar="N", type=int, default=1, help="run N times and print the median time")
    add_output_arguments(parser)
    parser.set_defaults(run=_run)


def _artifact(args: argparse.Namespace, out: Output) -> Artifact:
    if args.model.is_dir():
        from ..artifact import load

        if args.target or args.name or args.shape:
            raise UsageError("an artifact is built already", hint="--target, --name and --shape go with model files")
        return load(args.model)
    if not args.target:
        raise UsageError("running a model file needs --target", hint="for example --target c")
    from ..pipeline.driver import build

    return build(args.model, args.target, name=args.name, shapes=shapes(args), note=out.note)


def _run(args: argparse.Namespace) -> int:
    if args.repeat < 1:
        raise UsageError(f"--repeat {args.repeat} is not positive")
    out = Output(args)
    artifact = _artifact(args, out)
    inputs = make_inputs(args, artifact.metadata["inputs"])
    session = artifact.session()
    outputs = session.run(inputs)
    times_us = []
    for _ in range(args.repeat):
        start = time.perf_counter_ns()
        session.invoke()
        times_us.append((time.perf_counter_ns() - start) / 1000)
    median_us = statistics.median(times_us)
    if args.outputs is not None:
        _save(args.outputs, outputs)
    for name, array in outputs.items():
        out.line(f"{name}: {array.dtype}{list(array.shape)} {_excerpt(array)}")
    if args.repeat > 1:
        out.line(f"median of {args.repeat} runs: {median_us:.1f} us")
    summary = {
        name: {"dtype": str(a.dtype), "shape": list(a.shape), "values": a.reshape(-1)[:SHOWN_ELEMENTS].tolist()}
        for name, a in outputs.items()
    }
    out.result({"name": artifact.name, "outputs": summary, "runs": args.repeat, "median_us": median_us})
    return 0


def _excerpt(array: np.ndarray) -> str:
    flat = array.reshape(-1)
    shown = " ".join(f"{value:.6g}" for value in flat[:SHOWN_ELEMENTS].tolist())
    return f"{shown} ... ({flat.size - SHOWN_ELEMENTS} more)" if flat.size > SHOWN_ELEMENTS else shown


def _save(path: Path, outputs: dict[str, np.ndarray]) -> None:
    import io
    import os

    import numpy as np

    content = io.BytesIO()
    np.savez(content, **outputs)  # type: ignore[arg-type]  # its stub takes keywords for options only
    staged = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        staged.write_bytes(content.getvalue())
        staged.replace(path)
    except OSError as error:
        staged.unlink(missing_ok=True)
        raise UsageError(f"cannot write the outputs: {error.strerror}", where=str(path)) from error
