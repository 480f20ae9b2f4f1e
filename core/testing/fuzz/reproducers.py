"""Files that repeat what was found: one layer with its constants, what it was built for, what it was fed and gave."""

from __future__ import annotations

import base64
import hashlib
import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import ModelError, UsageError
from ...relay.module import IRModule
from ...relay.text import parse_module, print_module
from ...support.regular_files import write_whole
from ..record import Part
from ..subject import Subject
from .layer import Layer
from .triage import LayerFailure

if TYPE_CHECKING:
    import numpy as np

__all__ = ["Written", "command", "layer_text", "read_array", "read_file", "write_file", "written_array"]

_VERSION = 1


@dataclass(frozen=True)
class Written:
    """What a file says.

    Args:
        layer: the layer.
        target, host: what it was built for, as text.
        part, way: what was wrong, as of `LayerFailure`.
        seed: of random inputs.
        arrays: what it was fed, by the names of its inputs; empty where nothing was.
        expected, got: its results; empty where nothing was compared.
        check: the name of the check that found it.
    """

    layer: Layer
    target: str
    host: str
    part: Part
    way: str
    seed: int
    arrays: Mapping[str, np.ndarray]
    expected: tuple[np.ndarray, ...]
    got: tuple[np.ndarray, ...]
    check: str


def layer_text(layer: Layer) -> str:
    """The text of a layer."""
    return print_module(IRModule.from_functions({"main": layer.function}))[0]


def written_array(array: np.ndarray) -> dict[str, Any]:
    """An array as plain data, for JSON."""
    import numpy as np

    data = np.ascontiguousarray(array)
    data = data.astype(data.dtype.newbyteorder("<")) if data.dtype.byteorder == ">" else data
    content = base64.b64encode(data.tobytes()).decode("ascii")
    return {"dtype": data.dtype.name, "shape": list(array.shape), "data": content}


def read_array(record: Any) -> np.ndarray:
    """The array that `written_array` was given."""
    import numpy as np

    content = base64.b64decode(record["data"], validate=True)
    shape = tuple(int(extent) for extent in record["shape"])
    return np.frombuffer(content, np.dtype(str(record["dtype"]))).reshape(shape).copy()


def write_file(fault: LayerFailure, subject: Subject, check: str) -> Path:
    """Write a file that repeats a fault, and give its path. The same fault has the same file.

    Raises:
        UsageError: it cannot be written.
    """
    text, constants = print_module(IRModule.from_functions({"main": fault.layer.function}))
    record = {
        "schema_version": _VERSION,
        "check": check,
        "part": fault.part,
        "way": fault.way,
        "what": fault.what,
        "pattern": fault.layer.pattern,
        "varied": list(fault.layer.varied),
        "target": str(subject.target),
        "host": str(subject.host),
        "seed": subject.seed,
        "sample": fault.sample,
        "text": text.splitlines(),
        "constants": {digest: written_array(array) for digest, array in constants.items()},
        "inputs": {name: written_array(array) for name, array in (fault.arrays or {}).items()},
        "expected": [written_array(array) for array in fault.expected or ()],
        "got": [written_array(array) for array in fault.got or ()],
    }
    content = json.dumps(record, indent=1) + "\n"
    digest = hashlib.sha256(content.encode()).hexdigest()[:12]
    path = subject.folder / f"{fault.part}-{digest}.json"
    try:
        subject.folder.mkdir(parents=True, exist_ok=True)
        write_whole(path, content.encode())
    except OSError as error:
        raise UsageError(
            f"a file that repeats a failure cannot be written: {error.strerror}", where=str(path)
        ) from error
    return path


def command(path: Path, subject: Subject) -> str:
    """The command that repeats what a file has."""
    return f"uma check {shlex.quote(subject.plugin.entry.distribution)} --repeat {shlex.quote(str(path))}"


def read_file(path: Path) -> Written:
    """What a file says.

    Raises:
        UsageError: there is no such file.
        ModelError: it is none that `write_file` wrote.
    """
    try:
        content = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError("there is no file that repeats a failure", where=str(path), hint=str(error)) from error
    try:
        record = json.loads(content)
        if record["schema_version"] != _VERSION:
            what = f"the file is of version {record['schema_version']}, not {_VERSION}"
            raise ModelError(what, where=str(path), hint="uma check PLUGIN writes a new one")
        constants = {digest: read_array(array) for digest, array in record["constants"].items()}
        module = parse_module("\n".join(record["text"]) + "\n", constants, str(path))
        function = module.main
        layer = Layer(function, str(record["pattern"]), "file", tuple(map(str, record["varied"])))
        return Written(
            layer,
            str(record["target"]),
            str(record["host"]),
            record["part"],
            str(record["way"]),
            int(record["seed"]),
            {name: read_array(array) for name, array in record["inputs"].items()},
            tuple(map(read_array, record["expected"])),
            tuple(map(read_array, record["got"])),
            str(record["check"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        message = f"the file is none that repeats a failure: {type(error).__name__}: {error}"
        raise ModelError(message, where=str(path), hint="uma check writes them") from error
