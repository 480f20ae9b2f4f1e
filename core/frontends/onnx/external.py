"""Initialisers that an ONNX file keeps in files beside it."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from ...errors import ModelError
from ...support.regular_files import open_plain, size_of
from ..model import MAX_FILE_BYTES

if TYPE_CHECKING:
    import numpy as np
    from onnx import GraphProto, TensorProto

__all__ = ["EXTERNAL", "Stored", "find_external"]

T = TypeVar("T")

EXTERNAL = 1
"""TensorProto.DataLocation of what is in another file."""


@dataclass(frozen=True)
class Stored:
    """Where the elements of an initialiser are, in a file beside the model.

    Args:
        what: the initialiser, in messages.
        location: what the model calls the file.
        path: of the file, which is in the model's folder.
        offset, length: in bytes; as long as its shape says.
    """

    what: str
    location: str
    path: str
    offset: int
    length: int

    def read(self) -> np.ndarray:
        """The bytes, as uint8; ModelError where the file cannot be read, or has fewer now."""
        import numpy as np

        def fill() -> np.ndarray:
            with open_plain(self.path) as file:
                file.seek(self.offset)
                data = np.fromfile(file, np.uint8, self.length)
            if data.size != self.length:
                raise _too_short(self.what, self.location)
            return data

        return _opened(fill, f"{self.what} is stored in {self.location!r}")


def find_external(
    graph: GraphProto, folder: Path | None, size_of_tensor: Callable[[TensorProto, str], int]
) -> dict[str, Stored]:
    """Where the initialisers are that ``graph`` keeps in other files, by name. Not a byte of them is read.

    Args:
        graph: not trusted.
        folder: of the model; nothing outside of it is read. None for a model that is not a file.
        size_of_tensor: how many bytes an initialiser has by its shape, or a ModelError, given what to call it.

    Raises:
        ModelError: the files are not there, not in the folder, too short, or too large, or hold another number of bytes
            than a shape says; or the model asks for more than they have, all in all.
    """
    sizes: dict[str, int] = {}
    initializers: dict[str, Stored] = {}
    total_bytes = 0
    for tensor in graph.initializer:
        if tensor.data_location != EXTERNAL:
            continue
        title = repr(tensor.name)
        if folder is None:
            raise ModelError(f"{title} is stored in another file", hint="give the model's path, or save it as one file")
        entries = {entry.key: entry.value for entry in tensor.external_data}
        location = entries.get("location", "")
        path = _opened(lambda: _measured(folder, location, title, sizes), f"{title} is stored in {location!r}")  # noqa: B023 - called at once
        offset = _number(entries.get("offset", "0"), title)
        length = _number(entries.get("length", str(max(sizes[path] - offset, 0))), title)
        total_bytes += length
        if offset + length > sizes[path] or total_bytes > sum(sizes.values()):
            raise _too_short(title, location)
        expected = size_of_tensor(tensor, title)
        if length != expected:
            raise ModelError(f"{title} has {length} bytes in {location!r}, its shape {tuple(tensor.dims)} {expected}")
        if total_bytes > MAX_FILE_BYTES:
            raise ModelError("the files beside the model are larger than 2 GiB")
        initializers[tensor.name] = Stored(title, location, path, offset, length)
    return initializers


def _too_short(title: str, location: str) -> ModelError:
    return ModelError(f"{title} needs more bytes than {location!r} has", hint="is it complete?")


def _opened(action: Callable[[], T], what_where: str) -> T:
    """What ``action`` gives, which opens a file; ModelError where that cannot be read."""
    try:
        return action()
    except FileNotFoundError as error:
        hint = "it belongs beside the model; or save the model as one file"
        raise ModelError(f"{what_where}, which is not there", hint=hint) from error
    except (OSError, ValueError) as error:  # ValueError: there is a null character in the path
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise ModelError(f"{what_where}, which cannot be read: {why}") from error


def _measured(folder: Path, location: str, title: str, sizes: dict[str, int]) -> str:
    """The path of a file, whose size is noted."""
    path = _path(folder, location, f"{title} is stored in {location!r}")
    with open_plain(path) as file:
        sizes[path] = size_of(file)
    return path


def _path(folder: Path, location: str, what_where: str) -> str:
    """The path of what a model calls ``location``; ModelError unless that is in ``folder`` or below."""
    inside, path = os.path.realpath(folder), os.path.realpath(folder / location)
    if os.path.isabs(location) or os.path.commonpath([inside, path]) != inside:
        raise ModelError(f"{what_where}, which is not in the model's folder")
    return path


def _number(text: str, title: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise ModelError(f"{title} is stored in another file, at an offset or length {text!r}")
    return int(text)
