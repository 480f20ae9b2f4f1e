"""A folder in the place of another, so that a process that is killed at any moment leaves one of the two whole.

Where the system exchanges two folders in one step, there is no moment without one. Elsewhere the old one steps aside
first, under a name from which `recover` brings it back. What a killed process leaves beside it is hidden, and goes with
the next that writes there.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import hashlib
import os
import re
import secrets
import shutil
import stat
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from ..errors import UsageError
from ..toolchain.cache import lock_folder

__all__ = ["one_at_a_time", "recover", "replace_folder", "staging"]

_STAGED = re.compile(r"\.uma-save-[0-9a-f]{16}-[0-9a-f]{16}")
_ASIDE = ".old"
_ABANDONED_S = 24 * 3600.0
"""Where the file system has no locks, a folder this old belongs to nobody any more."""

_LOCK_LIMIT_S = 60.0
"""How long another process of this user may replace something in a folder before that is an error, in seconds."""

_LOCK_POLL_S = 0.01
_HOLDER = re.compile(rb"process [0-9]+ on [!-~]+")

# From <fcntl.h> and <linux/fs.h>; from <sys/stdio.h> of macOS.
_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
_RENAME_SWAP = 2
_NOT_SUPPORTED = {errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP}


@contextlib.contextmanager
def staging(folder: Path) -> Iterator[Path]:
    """Within, a new folder beside ``folder``, which is to become that; removed afterwards unless it became it.

    Parents that are missing are made, and removed again where an exception ends it. What killed processes left in the
    parent is removed first, and what one of them moved aside comes back.

    Args:
        folder: without symbolic links.

    Raises:
        OSError: it cannot be made.
        UsageError: another process writes beside ``folder`` for too long.
    """
    missing = [parent for parent in folder.parents if not parent.exists()]  # the innermost first
    staged = handle = None
    try:
        if missing:
            folder.parent.mkdir(parents=True, exist_ok=True)
        with one_at_a_time(folder.parent):
            _bring_back(folder)
            _sweep(folder.parent)
            staged, handle = _new_staged(folder)
        yield staged
    except BaseException:
        if staged is not None:
            shutil.rmtree(staged, ignore_errors=True)
        for parent in missing:
            with contextlib.suppress(OSError):  # never made, or another's file is in it by now
                parent.rmdir()
        raise
    finally:
        if handle is not None:
            os.close(handle)


def replace_folder(staged: Path, folder: Path) -> None:
    """Put what `staging` gave where ``folder`` is; if that fails, what was there stays or comes back.

    Raises:
        OSError: it fails.
    """
    if not folder.exists() or not any(folder.iterdir()):
        os.rename(staged, folder)
        return
    if not _exchange(staged, folder):
        aside = staged.with_name(staged.name + _ASIDE)
        os.rename(folder, aside)
        try:
            os.rename(staged, folder)
        except BaseException:
            os.rename(aside, folder)
            raise
        os.rename(aside, staged)  # while it is being removed it is nothing to bring back
    shutil.rmtree(staged, ignore_errors=True)


def recover(folder: Path) -> None:
    """Bring back what a killed process moved aside from the place ``folder``, if that is free."""
    with contextlib.suppress(OSError, ValueError):  # nobody may write there; or it is not a path at all
        folder = Path(os.path.realpath(folder))
        if not os.path.lexists(folder) and any(folder.parent.glob(f"{_prefix(folder)}*{_ASIDE}")):
            with one_at_a_time(folder.parent):  # whoever moved it aside may still be about to put another there
                _bring_back(folder)


@contextlib.contextmanager
def one_at_a_time(parent: Path) -> Iterator[None]:
    """Within, no other process of this user replaces an artifact in this folder.

    The lock is on a file in a private folder, because every user who may read ``parent`` can hold a lock on it for any
    time. Without a private folder, or where its file system has no locks, nothing is locked.

    Args:
        parent: without symbolic links.

    Raises:
        UsageError: another process does for too long.
    """
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):
            if (folder := lock_folder()) is not None:
                name = hashlib.sha256(os.fsencode(parent)).hexdigest()[:32]
                stack.callback(_release, folder / name, _acquire(folder / name, parent))
        yield


def _acquire(file: Path, parent: Path) -> int:
    """Return a handle of a new or existing file, locked.

    Raises:
        OSError: it cannot be opened, or its file system has no locks.
        UsageError: another process has it for too long.
    """
    import fcntl  # POSIX has it; who never saves can do without

    end = time.monotonic() + _LOCK_LIMIT_S
    while True:
        handle = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_file(handle, file):
                with contextlib.suppress(OSError):  # no room to say who has it
                    os.truncate(handle, 0)
                    os.write(handle, f"process {os.getpid()} on {os.uname().nodename}".encode())
                return handle
            os.close(handle)  # who had it has removed the file: there may be another one by now
        except BlockingIOError:
            holder = os.pread(handle, 200, 0)
            os.close(handle)
            if time.monotonic() > end:
                who = holder.decode() if _HOLDER.fullmatch(holder) else "another process of this user"
                raise UsageError(
                    f"{who} has been replacing something in this folder for {_LOCK_LIMIT_S:g} s",
                    where=os.fspath(parent),
                    hint="wait until it is done, or end it",
                ) from None
            time.sleep(_LOCK_POLL_S)
        except OSError:  # without locks nobody has it
            os.close(handle)
            file.unlink(missing_ok=True)
            raise
        except BaseException:
            os.close(handle)
            raise


def _is_file(handle: int, file: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), os.stat(file))
    except FileNotFoundError:
        return False


def _release(file: Path, handle: int) -> None:
    import fcntl

    with contextlib.suppress(OSError):
        file.unlink()
    fcntl.flock(handle, fcntl.LOCK_UN)  # a child that was forked meanwhile has the handle, too
    os.close(handle)


def _new_staged(folder: Path) -> tuple[Path, int | None]:
    """Return a new folder to become ``folder``, and a handle that keeps it locked, as `_locked`: so nobody sweeps it.

    Raises:
        OSError: it cannot be made.
    """
    while True:
        staged = folder.with_name(f"{_prefix(folder)}{secrets.token_hex(8)}")
        staged.mkdir(mode=0o700)  # until it is locked, no other user can open and lock it
        handle = _locked(staged, wait=True)
        if handle is None or staged.exists():
            break
        os.close(handle)  # a process with another private folder has swept it
    try:
        inner = staged / "mode"
        inner.mkdir()
        mode = stat.S_IMODE(inner.stat().st_mode)  # as the umask, or the access control list of the parent, says
        inner.rmdir()
        if mode != stat.S_IMODE(staged.stat().st_mode):
            staged.chmod(mode)
    except BaseException:
        shutil.rmtree(staged, ignore_errors=True)
        if handle is not None:
            os.close(handle)
        raise
    return staged, handle


def _prefix(folder: Path) -> str:
    """What the names of all folders begin with that are to become ``folder``, or were it; its own may be too long."""
    return f".uma-save-{hashlib.sha256(os.fsencode(folder.name)).hexdigest()[:16]}-"


def _bring_back(folder: Path) -> None:
    for aside in sorted(folder.parent.glob(f"{_prefix(folder)}*{_ASIDE}")):
        with contextlib.suppress(PermissionError):  # another user's, in a folder like /tmp: it stays
            if os.path.lexists(folder):
                os.rename(aside, aside.with_name(aside.name.removesuffix(_ASIDE)))  # to be swept
            else:
                os.rename(aside, folder)


def _sweep(parent: Path) -> None:
    """Remove what killed processes left in ``parent``, where all that live have what is theirs locked."""
    for item in sorted(parent.glob(".uma-save-*")):
        if not _STAGED.fullmatch(item.name) or item.is_symlink():
            continue
        with contextlib.suppress(OSError):  # another process removed it just now, or has it
            handle = _locked(item, wait=False)
            try:
                if handle is not None or item.stat().st_mtime < time.time() - _ABANDONED_S:
                    shutil.rmtree(item, ignore_errors=True)
            finally:
                if handle is not None:
                    os.close(handle)


def _locked(folder: Path, wait: bool) -> int | None:
    """A handle that keeps ``folder`` locked until it is closed; None where its file system has no locks.

    Raises:
        BlockingIOError: another process has it locked, and it is not waited for.
    """
    import fcntl

    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError as error:
        os.close(handle)
        if isinstance(error, BlockingIOError):
            raise
        return None
    return handle


def _exchange(first: Path, second: Path) -> bool:
    """Exchange two folders in one step; whether this system and its file system can.

    Raises:
        OSError: they can, and it failed.
    """
    library = ctypes.CDLL(None, use_errno=True)
    names = os.fsencode(first), os.fsencode(second)
    try:
        if sys.platform == "darwin":
            failed = library.renamex_np(*names, ctypes.c_uint(_RENAME_SWAP))
        else:
            failed = library.renameat2(_AT_FDCWD, names[0], _AT_FDCWD, names[1], ctypes.c_uint(_RENAME_EXCHANGE))
    except AttributeError:  # the C library is older than that
        return False
    if failed and ctypes.get_errno() not in _NOT_SUPPORTED:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), os.fspath(second))
    return not failed
