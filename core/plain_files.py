"""Opening files that somebody names: nothing that blocks, and nothing without an end."""

from __future__ import annotations

import errno
import os
import stat
from typing import BinaryIO

__all__ = ["open_plain", "size_of"]


def open_plain(path: str | os.PathLike[str], *, links: bool = True) -> BinaryIO:
    """Open a plain file to read its bytes.

    Args:
        path: of the file.
        links: whether the path may be that of a symbolic link.

    Raises:
        OSError: it cannot be opened; or is a folder, a pipe or a device, which may have no end.
        ValueError: there is a null character in the path.
    """
    # A pipe that nobody writes to, and some devices, would not be opened before somebody does.
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
    descriptor = os.open(path, flags if links else flags | os.O_NOFOLLOW)
    try:
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            code = errno.EISDIR if stat.S_ISDIR(mode) else errno.EINVAL
            raise OSError(code, os.strerror(code) if code == errno.EISDIR else "it is no plain file")
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def size_of(file: BinaryIO) -> int:
    """The size of an open file, in bytes: as much as may be read of it, whatever comes behind."""
    return os.fstat(file.fileno()).st_size
