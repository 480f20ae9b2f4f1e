"""Arguments and output that commands share."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import UsageError

if TYPE_CHECKING:
    import numpy as np

__all__ = ["Output", "add_input_arguments", "add_model_arguments", "add_output_arguments", "make_inputs", "shapes"]

SCHEMA_VERSION = 1
"""Of what ``--json`` prints. Grows when a field changes its meaning or goes; new fields may come at any time."""


def add_output_arguments(parser: argparse.ArgumentParser) -> None:
    """``--json``, ``-q`` and ``-v``, which every command has."""
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of text")
    parser.add_argument("-q", "--quiet", action="store_true", help="print nothing but errors")
    parser.add_argument("-v", "--verbose", action="store_true", help="say more, with a traceback for errors")


def add_model_arguments(parser: argparse.ArgumentParser, *, target_required: bool = True) -> None:
    """The model and how to build it."""
    parser.add_argument("--target", metavar="T", required=target_required, help="what to build for: 'c', 'c -opt=2'")
    parser.add_argument("--name", metavar="N", help="C prefix of the model (default: from the file's name)")
    parser.add_argument(
        "--shape",
        metavar="NAME=1,3,224,224",
        action="append",
        default=[],
        help="shape of an input whose dimensions the model leaves open; may be repeated",
    )


def add_input_arguments(parser: argparse.ArgumentParser) -> None:
    """Where the values of the model's inputs come from."""
    parser.add_argument("--inputs", metavar="IN.npz", type=Path, help="arrays under the inputs' names")
    parser.add_argument(
        "--input",
        metavar="NAME=@X.npy",
        action="append",
        default=[],
        help="one input from a file, or NAME=random:SEED; may be repeated (default: random:0 for each)",
    )


def shapes(args: argparse.Namespace) -> dict[str, tuple[int, ...]]:
    """The shapes that ``--shape`` gives, by input name.

    Raises:
        UsageError: one is malformed.
    """
    found = {}
    for text in args.shape:
        name, _, extents = text.rpartition("=")
        try:
            shape = tuple(int(extent) for extent in extents.split(","))
        except ValueError:
            shape = ()
        if not name or not shape or min(shape) < 1:
            raise UsageError(f"--shape {text!r} is no shape", hint="write NAME=1,3,224,224, all positive")
        found[name] = shape
    return found


class Output:
    """Prints for people, or one JSON object for programs."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.as_json: bool = args.json
        self.quiet: bool = args.quiet
        self.verbose: bool = args.verbose

    def line(self, text: str = "") -> None:
        """A line for people."""
        if not (self.as_json or self.quiet):
            print(text)

    def note(self, text: str) -> None:
        """A line for people who asked for more."""
        if self.verbose:
            print(text, file=sys.stderr)

    def table(self, rows: Mapping[str, str]) -> None:
        """Names and values, one pair a line."""
        width = max(map(len, rows), default=0)
        for name, value in rows.items():
            self.line(f"  {name:<{width}}  {value}")

    def result(self, fields: Mapping[str, Any]) -> None:
        """The JSON object."""
        if self.as_json:
            print(json.dumps({"schema_version": SCHEMA_VERSION, **fields}, indent=2))


def make_inputs(args: argparse.Namespace, declared: Sequence[Mapping[str, Any]]) -> dict[str, np.ndarray]:
    """An array for every input of the model.

    Args:
        args: with ``inputs`` and ``input``.
        declared: the inputs as an artifact's metadata has them: ``name``, ``shape``, ``dtype``.

    Raises:
        UsageError: a file cannot be read, or an argument is malformed or names no input. Shapes and dtypes are left
            to the session.
    """
    import numpy as np

    given: dict[str, np.ndarray] = {}
    if args.inputs is not None:
        loaded = _load(args.inputs)
        if isinstance(loaded, np.ndarray):
            raise UsageError(f"{args.inputs} holds one array without a name", hint="give it as --input NAME=@FILE")
        given.update(loaded)
    seeds: dict[str, int] = {}
    for text in args.input:
        name, separator, source = text.rpartition("=")
        if not separator:
            raise UsageError(f"--input {text!r} names no input", hint="write NAME=@FILE.npy or NAME=random:SEED")
        if source.startswith("@"):
            loaded = _load(Path(source[1:]))
            if not isinstance(loaded, np.ndarray):
                raise UsageError(f"{source[1:]} holds several arrays", hint="give it as --inputs FILE.npz")
            given[name] = loaded
        elif source.startswith("random:") and source[7:].isdecimal():
            seeds[name] = int(source[7:])
        else:
            raise UsageError(f"--input {text!r} is no source", hint="write NAME=@FILE.npy or NAME=random:SEED")
    names = [row["name"] for row in declared]
    for name in (*given, *seeds):
        if name not in names:
            raise UsageError(f"the model has no input {name!r}", hint=f"its inputs: {', '.join(names)}")
    for row in declared:
        if row["name"] not in given:
            given[row["name"]] = random_array(row["shape"], row["dtype"], seeds.get(row["name"], 0))
    return given


def random_array(shape: Sequence[int], dtype_name: str, seed: int) -> np.ndarray:
    """Uniform numbers: all values of an integer type of up to 16 bits, 0 .. 255 of a wider one, [-1, 1) for floats."""
    import numpy as np

    rng = np.random.default_rng(seed)
    dtype = np.dtype(dtype_name)
    if dtype.kind == "f":
        return rng.uniform(-1, 1, shape).astype(dtype)
    if dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(dtype)
    low, high = (np.iinfo(dtype).min, np.iinfo(dtype).max) if dtype.itemsize <= 2 else (0, 255)
    return rng.integers(low, high, shape, dtype=dtype, endpoint=True)


def _load(path: Path) -> Any:
    import numpy as np

    try:
        loaded = np.load(path, allow_pickle=False)
        return loaded if isinstance(loaded, np.ndarray) else {name: loaded[name] for name in loaded.files}
    except (OSError, ValueError, EOFError) as error:
        raise UsageError(f"cannot read arrays from {path}: {error}", hint="an .npy or .npz file of numbers") from error
