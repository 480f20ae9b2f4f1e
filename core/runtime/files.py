"""Files of arrays and of JSON: read as hostile data, written whole or not at all."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from ..errors import ModelError, UsageError
from ..support.regular_files import open_plain, size_of, unreadable, write_whole

if TYPE_CHECKING:
    import numpy as np

__all__ = ["read_arrays", "read_plain", "save_arrays", "write_plain"]

_MAX_UNPACKED_BYTES = 1 << 29
"""What a compressed file may take in memory, beyond its own size: a small one could fill all there is."""

_MENDING = "build the model again; to work on the C, copy it out of the artifact"


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """The arrays of an ``.npz`` file by name; that of an ``.npy`` file under the empty name.

    Raises:
        UsageError: the file cannot be opened.
        ModelError: it holds something else, or more than there is memory for. Objects are not unpickled.
    """
    import struct
    import tokenize
    import zipfile
    import zlib

    from numpy.lib.format import MAGIC_PREFIX, read_array

    try:
        file = open_plain(path)
    except (OSError, ValueError) as error:
        raise unreadable(path, error) from error
    try:
        with file:
            head = file.read(len(MAGIC_PREFIX))
            file.seek(0)
            if head == MAGIC_PREFIX:
                return {"": read_array(file, allow_pickle=False)}
            if head[:2] != b"PK":
                raise ValueError("it begins like neither an .npy nor an .npz file")
            return _read_archive(file)
    except (
        EOFError, KeyError, MemoryError, OSError, OverflowError, RuntimeError, SyntaxError, ValueError,
        struct.error, tokenize.TokenError, zipfile.BadZipFile, zlib.error,
    ) as error:  # fmt: skip
        hint = "write it with numpy.save or numpy.savez, from arrays of numbers"
        reason = str(error) or "there is not enough memory for them"
        raise ModelError(f"the file does not hold arrays: {reason}", where=str(path), hint=hint) from error


def _read_archive(file: BinaryIO) -> dict[str, np.ndarray]:
    """The arrays of an ``.npz`` file; ValueError, or one of zipfile's errors, where it is none."""
    import zipfile

    from numpy.lib.format import read_array

    arrays: dict[str, np.ndarray] = {}
    with zipfile.ZipFile(file) as archive:
        members = archive.infolist()
        if any(member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) for member in members):
            raise ValueError("it is compressed as numpy does not do it")
        if sum(member.file_size for member in members) > size_of(file) + _MAX_UNPACKED_BYTES:
            raise ValueError(f"they would fill more than {_MAX_UNPACKED_BYTES >> 20} MiB, unpacked")
        for member in members:
            name = member.filename.removesuffix(".npy")
            if name in arrays:
                raise ValueError(f"two of them are called {name!r}")
            with archive.open(member) as content:
                arrays[name] = read_array(content, allow_pickle=False)
    return arrays


def save_arrays(path: Path, arrays: Mapping[str, np.ndarray], noun: str) -> None:
    """What ``numpy.savez`` writes, but for any names.

    Raises:
        UsageError: the file cannot be written; ``noun`` says in the message what should have been.
    """
    import io
    import zipfile

    import numpy as np

    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                np.lib.format.write_array(file, array, allow_pickle=False)
    try:
        write_whole(path, content.getvalue())
    except OSError as error:
        raise UsageError(f"cannot write {noun}: {error.strerror}", where=str(path)) from error


def write_plain(path: Path, plain: Any, noun: str) -> None:
    """Write plain data as JSON.

    Raises:
        UsageError: the file cannot be written; ``noun`` says in the message what should have been.
    """
    try:
        write_whole(path, (json.dumps(plain, separators=(",", ":"), allow_nan=False) + "\n").encode())
    except OSError as error:
        raise UsageError(f"cannot write {noun}: {error.strerror}", where=str(path)) from error


def read_plain(path: Path, sizes: range) -> bytes:
    """The bytes of a file, whose size is known before memory is taken for it.

    Args:
        path: what must be a plain file.
        sizes: that it may have, in bytes.

    Raises:
        ModelError: it is something else, has another size, or cannot be read.
    """
    try:
        with open_plain(path, links=False) as file:
            size = size_of(file)
            if size not in sizes:
                limit = f"expected {sizes[0]}" if len(sizes) == 1 else f"at most {sizes[-1]} are allowed"
                raise ModelError(f"a file of the artifact has {size} bytes, {limit}", where=str(path), hint=_MENDING)
            return file.read(size)
    except OSError as error:
        text = f"a file of the artifact cannot be read: {error.strerror}"
        raise ModelError(text, where=str(path), hint=_MENDING) from error
