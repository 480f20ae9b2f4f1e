"""Initialisers that an ONNX file keeps in files beside it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import ModelError
from ...plain_files import open_plain, size_of
from ..model import MAX_FILE_BYTES

if TYPE_CHECKING:
    from onnx import GraphProto, TensorProto

__all__ = ["embed_external"]

EXTERNAL = 1
"""TensorProto.DataLocation of what is in another file."""


def embed_external(graph: GraphProto, folder: Path | None) -> int:
    """Put what initialisers keep in other files into them.

    Args:
        graph: not trusted. Its initialisers are changed.
        folder: of the model; nothing outside of it is read. None for a model that is no file.

    Returns:
        How many bytes that are: never more than the files have, however often the model asks for them.

    Raises:
        ModelError: the files are not there, not in the folder, too short, or too large.
    """
    sizes: dict[str, int] = {}
    taken = 0
    for tensor in graph.initializer:
        if tensor.data_location != EXTERNAL:
            continue
        what = repr(tensor.name)
        if folder is None:
            raise ModelError(f"{what} is stored in another file", hint="save the model as one file")
        entries = {entry.key: entry.value for entry in tensor.external_data}
        location = entries.get("location", "")
        what_where = f"{what} is stored in {location!r}"
        try:
            path = _path(folder, location, what_where)
            with open_plain(path) as file:
                sizes[path] = size_of(file)
                offset = _number(entries.get("offset", "0"), what)
                length = _number(entries.get("length", str(max(sizes[path] - offset, 0))), what)
                taken += length
                if offset + length > sizes[path] or taken > sum(sizes.values()):
                    raise ModelError(f"{what} needs more bytes than {location!r} has", hint="is it complete?")
                if taken > MAX_FILE_BYTES:
                    raise ModelError("the files beside the model are larger than 2 GiB")
                file.seek(offset)
                _embed(tensor, file.read(length))
        except FileNotFoundError as error:
            hint = "it belongs beside the model; or save the model as one file"
            raise ModelError(f"{what_where}, which is not there", hint=hint) from error
        except (OSError, ValueError) as error:  # ValueError: there is a null character in the path
            why = error.strerror if isinstance(error, OSError) else str(error)
            raise ModelError(f"{what_where}, which cannot be read: {why}") from error
    return taken


def _embed(tensor: TensorProto, data: bytes) -> None:
    tensor.raw_data = data
    tensor.ClearField("external_data")
    tensor.ClearField("data_location")


def _path(folder: Path, location: str, what_where: str) -> str:
    """The path of what a model calls ``location``; ModelError unless that is in ``folder`` or below."""
    inside, path = os.path.realpath(folder), os.path.realpath(folder / location)
    if os.path.isabs(location) or os.path.commonpath([inside, path]) != inside:
        raise ModelError(f"{what_where}, which is not in the model's folder")
    return path


def _number(text: str, what: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise ModelError(f"{what} is stored in another file, at an offset or length {text!r}")
    return int(text)
