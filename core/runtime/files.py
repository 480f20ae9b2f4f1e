"""Files and folders: read as hostile data, written whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import ModelError, UsageError

if TYPE_CHECKING:
    import numpy as np

__all__ = ["one_at_a_time", "read_arrays", "read_plain", "replace_folder", "save_arrays", "write_whole"]


def write_whole(path: Path, content: bytes) -> None:
    """Write a file, or replace one, whole or not at all.

    Raises:
        OSError: it cannot be written, or what is there is no plain file.
    """
    path = Path(os.path.realpath(path))
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "what is there is no plain file")
    staged = path.with_name(f".uma-{secrets.token_hex(8)}")
    try:
        staged.write_bytes(content)
        staged.replace(path)
    finally:
        staged.unlink(missing_ok=True)


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """The arrays of an ``.npz`` file by name; that of an ``.npy`` file under the empty name.

    Raises:
        UsageError: the file cannot be opened.
        ModelError: it holds something else, or more than there is memory for. Objects are not unpickled.
    """
    import tokenize
    import zipfile
    import zlib

    import numpy as np

    try:
        file = path.open("rb")
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot read the file: {getattr(error, 'strerror', error)}", where=str(path)) from error
    try:
        with file:
            loaded = np.load(file, allow_pickle=False)
            if isinstance(loaded, np.ndarray):
                return {"": loaded}
            return {name: loaded[name] for name in loaded.files}
    except (
        EOFError, KeyError, MemoryError, OSError, OverflowError, RuntimeError, SyntaxError, ValueError,
        tokenize.TokenError, zipfile.BadZipFile, zlib.error,
    ) as error:  # fmt: skip
        hint = "write it with numpy.save or numpy.savez, from arrays of numbers"
        raise ModelError(f"the file does not hold arrays: {error}", where=str(path), hint=hint) from error


def save_arrays(path: Path, arrays: Mapping[str, np.ndarray], what: str) -> None:
    """What ``numpy.savez`` writes, but for any names.

    Raises:
        UsageError: the file cannot be written; ``what`` says in the message what should have been.
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
        raise UsageError(f"cannot write {what}: {error.strerror}", where=str(path)) from error


def read_plain(path: Path, sizes: range) -> bytes:
    """The bytes of a file, whose size is known before memory is taken for it.

    Args:
        path: what must be a plain file.
        sizes: that it may have, in bytes.

    Raises:
        ModelError: it is something else, has another size, or cannot be read.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        raise ModelError(f"a file of the artifact cannot be read: {error.strerror}", where=str(path)) from error
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise ModelError("an entry of the artifact is not a plain file", where=str(path))
        if status.st_size not in sizes:
            limit = f"expected {sizes[0]}" if len(sizes) == 1 else f"at most {sizes[-1]} are allowed"
            raise ModelError(f"a file of the artifact has {status.st_size} bytes, {limit}", where=str(path))
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return file.read(status.st_size)
    finally:
        os.close(descriptor)


def replace_folder(staged: Path, folder: Path) -> None:
    """Put `staged` where `folder` is; if that fails, what was there stays or comes back."""
    if not folder.exists() or not any(folder.iterdir()):
        os.rename(staged, folder)
        return
    retired = staged.with_name(staged.name + ".old")
    os.rename(folder, retired)
    try:
        os.rename(staged, folder)
    except OSError:
        os.rename(retired, folder)
        raise
    shutil.rmtree(retired, ignore_errors=True)


@contextlib.contextmanager
def one_at_a_time(parent: Path) -> Iterator[None]:
    """Within, no other process replaces an artifact in this folder; unless its file system has no locks."""
    import fcntl  # POSIX has it; who never saves can do without

    handle = os.open(parent, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
