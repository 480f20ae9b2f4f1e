"""``uma ethosu``: what Vela compiles, run on the simulator or shown, without a model around it."""

from __future__ import annotations

import argparse
import io
import json
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from uma.errors import ModelError, UsageError
from uma.toolchain import write_whole

from .commands import OPERATIONS, WORD_BYTES, decode
from .network_file import Job, Tensor, read_job
from .payload import write_payload

if TYPE_CHECKING:
    import numpy as np

    from .compare import Comparison
    from .simulate import Simulation

__all__ = ["SCHEMA_VERSION", "comparison_lines", "main"]

SCHEMA_VERSION = 1
"""Of what ``--json`` prints."""

_SHOWN_ELEMENTS = 16
_RANDOM = "random:"


def main(name: str, arguments: Sequence[str]) -> int:
    """The command; ``name`` is what stands behind ``uma``.

    Raises:
        UmaError: what is wrong with the arguments, the file or its stream.
    """
    options = _parser(name).parse_args(arguments)
    action: int = options.action(options)
    return action


def _parser(name: str) -> argparse.ArgumentParser:
    text = "what Vela wrote: its raw output (.npz), or a .tflite that is one operator 'ethos-u'; or a payload"
    parser = argparse.ArgumentParser(
        f"uma {name}",
        description="Streams of commands of Ethos-U55 in files: made by Vela, run, or shown.",
        allow_abbrev=False,
    )
    actions = parser.add_subparsers(required=True, metavar="ACTION")
    run = actions.add_parser("run", help="run a stream on the simulator", description="Run a stream on the simulator.")
    run.add_argument(
        "--input",
        metavar="NAME=FILE.npy|NAME=random:SEED",
        action="append",
        default=[],
        help="an input; those that are not given are random, of seed 0",
    )
    run.add_argument("--outputs", metavar="OUT.npz", type=Path, help="write the outputs under their names")
    run.set_defaults(action=_run)
    action = actions.add_parser(
        "compile",
        help="compile a .tflite with Vela",
        description="Compile a .tflite with Vela, all of it for the machine.",
    )
    action.add_argument("file", metavar="MODEL.tflite", type=Path, help="the model, of int8 or int16")
    action.add_argument(
        "-o",
        "--output",
        metavar="OUT",
        type=Path,
        required=True,
        help="OUT.npz: Vela's raw output, which run and show read; OUT.bin: the payload alone, for a driver",
    )
    action.add_argument("--arena-cache-bytes", type=int, metavar="N", help="memory that feature maps may take")
    machine = action.add_mutually_exclusive_group()
    machine.add_argument(
        "--accelerator",
        metavar="NAME",
        help="write files for a machine that has no simulator here: ethos-u65-256, ethos-u85-512, ...",
    )
    action.set_defaults(action=_compile)
    compared = actions.add_parser(
        "compare",
        help="compile models here and with Vela, and compare",
        description="Compile models here and with Vela, run both streams on the simulator, and compare.",
    )
    compared.add_argument("files", metavar="MODEL.tflite", type=Path, nargs="+", help="models of int8")
    compared.set_defaults(action=_compare)
    show = actions.add_parser("show", help="print a stream", description="Print the commands of a stream.")
    show.set_defaults(action=_show)
    for one in (run, show):
        one.add_argument("file", metavar="FILE", type=Path, help=text)
    groups: list[argparse._ActionsContainer] = [machine, compared]
    for group in groups:
        group.add_argument("--macs", type=int, default=128, help="products per cycle: 32, 64, 128 or 256 (default 128)")
    for one in (run, action, compared, show):
        one.add_argument("--json", action="store_true", help="print one JSON object")
    return parser


def _print_json(fields: Mapping[str, Any]) -> None:
    print(json.dumps({"schema_version": SCHEMA_VERSION, **fields}))


# --- show ------------------------------------------------------------------------------------------------------------


def _show(options: argparse.Namespace) -> int:
    job = read_job(options.file)
    rows = [(at, one) for at, one in decode(job.payload.words)]
    if options.json:
        commands = [{"word": at, "name": one.type.name, "fields": dict(one.values)} for at, one in rows]
        _print_json({**_record(job), "commands": commands})
        return 0
    for line in _heading(job):
        print(line)
    for at, one in rows:
        print(f"{WORD_BYTES * at:#08x}  {one}")
    return 0


def _record(job: Job) -> dict[str, Any]:
    return {
        "macs": job.payload.macs,
        "architecture": list(job.payload.architecture),
        "words": len(job.payload.words),
        "regions": {
            str(number): {"bytes": one.nbytes, "writable": one.data is None}
            for number, one in sorted(job.regions.items())
        },
    }


def _heading(job: Job) -> list[str]:
    words, macs = job.payload.words, job.payload.macs
    lines = [f"{len(words):,} words for the machine of {macs} multipliers"]
    for number, one in sorted(job.regions.items()):
        lines.append(f"region {number}: {one.nbytes:,} bytes{' to work in' if one.data is None else ''}")
    for role, tensors in (("input", job.inputs), ("output", job.outputs)):
        for tensor in tensors:
            place = f"in region {tensor.region} at {tensor.offset:#x}"
            lines.append(f"{role} {tensor.name}: {tensor.dtype}{list(tensor.shape)} {place}")
    return lines


# --- compile ---------------------------------------------------------------------------------------------------------

_WRITTEN = (".npz", ".bin")


def _compile(args: argparse.Namespace) -> int:
    from .vela import compile_model, export_model

    where, out = str(args.file), args.output
    if out.suffix not in _WRITTEN:
        raise UsageError(f"there is no format for {out.name}", where="-o", hint="OUT.npz, or OUT.bin for the payload")
    try:
        model = args.file.read_bytes()
    except OSError as error:
        raise UsageError(f"it cannot be read: {error.strerror}", where=where) from error
    options = {"arena_cache_bytes": args.arena_cache_bytes, "where": where}
    record: dict[str, Any]
    if args.accelerator is not None:
        exported = export_model(model, args.accelerator, **options)
        data = exported.raw if out.suffix == ".npz" else exported.payload
        record, lines = {"accelerator": args.accelerator}, [f"for {args.accelerator}, which is not simulated here"]
    else:
        built = compile_model(model, args.macs, **options)
        data = built.raw if out.suffix == ".npz" else write_payload(built.job.payload.words, built.job.payload.macs)
        record, lines = _record(built.job), _heading(built.job)
    try:
        write_whole(out, data, streams=True)
    except OSError as error:
        raise UsageError(f"it cannot be written: {error.strerror}", where=str(out)) from error
    if args.json:
        _print_json({**record, "file": str(out), "bytes": len(data)})
        return 0
    for line in lines:
        print(line)
    print(f"{out}: {len(data):,} bytes")
    return 0


# --- compare ---------------------------------------------------------------------------------------------------------

_COLUMNS = ("model", "compiler", "cycles", "Vela's estimate", "arena", "stream", "weights", "exact")


def _compare(options: argparse.Namespace) -> int:
    from .compare import compare

    comparisons = [compare(file, options.macs) for file in options.files]
    if options.json:
        _print_json({"macs": options.macs, "models": [asdict(one) for one in comparisons]})
        return 0
    for line in comparison_lines(comparisons):
        print(line)
    return 0


def comparison_lines(comparisons: Sequence[Comparison]) -> list[str]:
    """What ``compare`` prints: a table, and below it what our compiler leaves to the host."""
    rows: list[tuple[str, ...]] = [_COLUMNS]
    for one in comparisons:
        for name, side, estimate in (("ours", one.ours, None), ("Vela", one.vela, one.estimated_cycles)):
            sizes = (side.arena_bytes, side.stream_bytes, side.weight_bytes)
            numbers = ["" if number is None else f"{number:,}" for number in (side.cycles, estimate, *sizes)]
            rows.append((one.model, name, *numbers, "yes" if side.exact else "no"))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(
            f"{text:{'<' if at < 2 else '>'}{width}}" for at, (text, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]
    for one in comparisons:
        if one.on_host:
            layers = ", ".join(one.on_host)
            lines.append(f"{one.model}: our compiler leaves {len(one.on_host)} layers to the host: {layers}")
    return lines


# --- run -------------------------------------------------------------------------------------------------------------


def _run(options: argparse.Namespace) -> int:
    from .simulate import simulate

    job = read_job(options.file)
    done = simulate(job, _inputs(options.input, job))
    if options.outputs is not None:
        _save(options.outputs, done.outputs)
    totals = {kind: _total(done, kind) for kind in OPERATIONS}
    if options.json:
        values = {
            name: {"dtype": str(a.dtype), "shape": list(a.shape), "values": a.tolist()}
            for name, a in done.outputs.items()
        }
        operations = [vars(one) for one in done.operations]
        counted = {"cycles": done.cycles, "dma_bytes": done.dma_bytes, "kinds": totals, "operations": operations}
        _print_json({**_record(job), "outputs": values, **counted})
        return 0
    for name, array in done.outputs.items():
        shown = " ".join(map(str, array.ravel()[:_SHOWN_ELEMENTS].tolist()))
        more = " ..." if array.size > _SHOWN_ELEMENTS else ""
        print(f"{name}: {array.dtype}{list(array.shape)} {shown}{more}")
    print(f"{done.cycles:,} cycles on the machine of {job.payload.macs} multipliers")
    for kind, row in totals.items():
        if row["count"]:
            print(f"  {kind:<11}  {row['count']:>5,}  {row['cycles']:>11,} cycles  {row['macs']:>13,} products")
    return 0


def _total(done: Simulation, kind: str) -> dict[str, int]:
    operations = [one for one in done.operations if one.kind == kind]
    return {
        "count": len(operations),
        "cycles": sum(one.cycles for one in operations),
        "macs": sum(one.macs for one in operations),
    }


def _inputs(texts: Sequence[str], job: Job) -> dict[str, np.ndarray]:
    """The arrays of ``--input``, and random ones for the others."""
    tensors = {tensor.name: tensor for tensor in job.inputs}
    sources = dict.fromkeys(tensors, f"{_RANDOM}0")
    for text in texts:
        name, equals, source = text.rpartition("=")
        if not equals or name not in tensors:
            names = ", ".join(tensors) or "there are none"
            raise UsageError(f"--input {text} names no input", hint=f"NAME=FILE.npy or NAME=random:SEED; {names}")
        sources[name] = source
    return {name: _array(sources[name], tensor) for name, tensor in tensors.items()}


def _array(source: str, tensor: Tensor) -> np.ndarray:
    import numpy as np

    if source.startswith(_RANDOM):
        seed = source.removeprefix(_RANDOM)
        if not seed.isascii() or not seed.isdigit():
            raise UsageError(f"{source} is not a seed", where=f"--input {tensor.name}", hint="random:7")
        limits = np.iinfo(tensor.dtype)
        values = np.random.default_rng(int(seed)).integers(limits.min, limits.max, tensor.shape, tensor.dtype, True)
        return np.asarray(values)
    try:
        loaded = np.load(source, allow_pickle=False)
    except OSError as error:
        raise UsageError(
            f"{source} cannot be read: {error.strerror or error}", where=f"--input {tensor.name}"
        ) from error
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        raise ModelError(f"{source} is no .npy: {error}", where=f"--input {tensor.name}") from error
    if not isinstance(loaded, np.ndarray):
        loaded.close()
        raise ModelError(f"{source} is no .npy, but several arrays", where=f"--input {tensor.name}")
    return loaded


def _save(file: Path, outputs: Mapping[str, np.ndarray]) -> None:
    import numpy as np

    content = io.BytesIO()
    np.savez(content, allow_pickle=False, **outputs)
    try:
        write_whole(file, content.getvalue(), streams=True)
    except OSError as error:
        raise UsageError(f"the outputs cannot be written: {error.strerror}", where=str(file)) from error
