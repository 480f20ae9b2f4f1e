"""Files that somebody names: opened so that nothing blocks and nothing has no end, and written whole or not at all."""

from __future__ import annotations

import contextlib
import difflib
import errno
import os
import secrets
import stat
from pathlib import Path
from typing import BinaryIO

from ..errors import UsageError

__all__ = ["Staged", "open_plain", "size_of", "unreadable", "write_whole"]


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
            raise OSError(code, os.strerror(code) if code == errno.EISDIR else "it is not a plain file")
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def unreadable(path: str | os.PathLike[str], error: OSError | ValueError, title: str = "the file") -> UsageError:
    """Return the error for a file that a user named and `open_plain` or a read refused.

    Args:
        path: as it was named; where nothing has that name, the nearest name in its folder is suggested.
        error: what was raised; a ValueError where the path holds a null character or the bytes are not UTF-8.
        title: the role of the file, as in ``"the cost table"``.
    """
    name = os.fspath(path)
    if isinstance(error, FileNotFoundError):
        folder, base = os.path.split(name)
        names = os.listdir(folder or os.curdir) if os.path.isdir(folder or os.curdir) else ()
        near = difflib.get_close_matches(base, names, n=1, cutoff=0.75)
        hint = f"did you mean {os.path.join(folder, near[0])!r}?" if near else "check the path"
        if title == "the file":
            return UsageError(f"there is no file {name}", hint=hint)
        return UsageError(f"{title} does not exist", where=name, hint=hint)
    if isinstance(error, IsADirectoryError):
        return UsageError(f"{name} is a folder", hint="name a file in it")
    if isinstance(error, UnicodeDecodeError):
        problem = f"{title} is not UTF-8 text: {error.reason} at byte {error.start}"
        return UsageError(problem, where=name, hint="store it as UTF-8")
    reason = error.strerror if isinstance(error, OSError) else "its path has a null character"
    hint = "make it readable for this user" if isinstance(error, PermissionError) else "name a regular file"
    return UsageError(f"cannot read {title}: {reason}", where=name, hint=hint)


def size_of(file: BinaryIO) -> int:
    """The size of an open file, in bytes: as much as may be read of it, whatever comes behind."""
    return os.fstat(file.fileno()).st_size


class Staged:
    """A new file, open for writing, that replaces the one at a path, or is removed. It has the permissions of that one.

    Args:
        path: of the file that is to be replaced; where it is a symbolic link, of what that leads to.

    Attributes:
        path: that path, without symbolic links.
        file: the new file, under a hidden name beside it.

    Raises:
        OSError: it cannot be made, or there is something else than a plain file at the path.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        if "\0" in os.fspath(path):
            raise OSError(errno.EINVAL, "there is a null character in the path")
        self.path = Path(os.path.realpath(path))
        if self.path.exists() and not self.path.is_file():
            raise OSError(errno.EINVAL, "the path is not a plain file")
        self._staged = self.path.with_name(f".uma-{secrets.token_hex(8)}")
        self.file: BinaryIO = self._staged.open("xb")
        with contextlib.suppress(OSError):  # there is none, or this file system has no such permissions
            os.fchmod(self.file.fileno(), stat.S_IMODE(self.path.stat().st_mode) & 0o777)

    def replace(self, *, sync: bool = True) -> None:
        """Close the file and put it at the path, in one step.

        Args:
            sync: whether its bytes are on the disk before it is at the path, so that it is whole after a power failure.

        Raises:
            OSError: its bytes cannot be written, or it cannot replace what is at the path.
        """
        self.file.flush()
        if sync:
            os.fsync(self.file.fileno())
        self.file.close()
        self._staged.replace(self.path)

    def discard(self) -> None:
        """Close the file and remove it, unless it is at the path."""
        with contextlib.suppress(OSError):  # of what could not be written
            self.file.close()
        self._staged.unlink(missing_ok=True)


def write_whole(path: str | os.PathLike[str], content: bytes, *, sync: bool = True, streams: bool = False) -> None:
    """Write a file, or replace one, whole or not at all. A symbolic link stays, and what it leads to is replaced.

    Args:
        path: of the file.
        content: its bytes.
        sync: as for `Staged.replace`.
        streams: whether a pipe or a device may be at the path, such as ``/dev/stdout``, which is then written to.

    Raises:
        OSError: it cannot be written, or there is something at the path that may not be.
    """
    if streams and _is_stream(path):
        with open(path, "wb") as file:
            file.write(content)
        return
    staged = Staged(path)
    try:
        staged.file.write(content)
        staged.replace(sync=sync)
    finally:
        staged.discard()


def _is_stream(path: str | os.PathLike[str]) -> bool:
    """Return whether a path is that of a pipe or device, or names an open file of a process, as ``/dev/fd/1`` does."""
    if os.path.abspath(path).startswith(("/dev/", "/proc/")):
        return True
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):  # ValueError: there is a null character in the path
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))
