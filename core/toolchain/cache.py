"""Compiled libraries, and programs for emulators, kept by what they were made from.

An entry is one file, ``KEY-DIGEST.so``: what went in, and what came out. It is written under another name and moved
into place, so two processes and a kill at any moment leave either a whole entry or none; an entry whose bytes do not
match its name is made again. Nothing is locked: two processes that miss at once both build, and either result is right.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import hashlib
import os
import re
import shutil
import stat
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from ..errors import ToolchainError, UsageError
from ..support.compiler_flags import native_flags
from ..support.regular_files import open_plain
from ..version import __version__
from .compile import CompileUnit
from .discovery import host_cpu_id
from .stack import measuring_flags

__all__ = ["Cache", "Entry", "default_folder", "library_key", "lock_folder", "locked", "on_trial"]

_ENTRY = re.compile(r"[0-9a-f]{64}-[0-9a-f]{64}\.so")
_PARTIAL = ".partial-"
# Between finding an entry and loading it, another process must not remove it; a partial entry this old is abandoned.
_GRACE_S = 600.0
_ABANDONED_S = 24 * 3600.0


def library_key(
    files: Mapping[str, str],
    parts: Sequence[CompileUnit],
    libraries: Sequence[Path] = (),
) -> str:
    """Digest of all that a compiled library depends on.

    Args:
        files: name of each file that the compiler can see, to the SHA-256 of its content, in hexadecimal.
        parts: which of them are compiled, in order, and with what: compilers count by their identity, and with a flag
            that names ``native`` the CPU of this machine counts too.
        libraries: files of the libraries that it is linked with, in order; by path, size and time of their last change.

    Raises:
        ToolchainError: one of the libraries is gone.
    """
    groups: tuple[Sequence[str], ...] = (
        [__version__],
        [text for name in sorted(files) for text in (name, files[name])],
        *(group for part in parts for group in (part.sources, part.objects, part.flags, [part.compiler.identity])),
        [flag for part in parts for flag in measuring_flags(part.compiler)],
        [host_cpu_id()] if any(native_flags(part.flags) for part in parts) else [],
        [_stamp(library) for library in libraries],
    )
    digest = hashlib.sha256()
    for group in groups:
        digest.update(b"%d\n" % len(group))
        for text in group:
            raw = text.encode()
            digest.update(b"%d %s\n" % (len(raw), raw))
    return digest.hexdigest()


def _stamp(library: Path) -> str:
    try:
        status = library.stat()
    except OSError as error:
        raise ToolchainError(
            f"a library cannot be read any more: {error.strerror}", where=str(library), hint="install it again"
        ) from error
    return f"{status.st_size} {status.st_mtime_ns} {library}"


def default_folder() -> Path:
    """``UMA_CACHE_DIR``, else the folder ``uma`` where this platform keeps caches."""
    if chosen := os.environ.get("UMA_CACHE_DIR"):
        return Path(chosen).absolute()
    home = Path(os.path.expanduser("~"))  # stays "~" when no home is known: Cache says so
    if sys.platform == "darwin":
        return home / "Library" / "Caches" / "uma"
    xdg = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG base directory specification has a relative path ignored.
    return (Path(xdg) if os.path.isabs(xdg) else home / ".cache") / "uma"


def lock_folder() -> Path | None:
    """Return a folder for lock files that no other user can open: in the cache folder, else in ``XDG_RUNTIME_DIR``.

    None where neither belongs to this user alone.
    """
    for folder in (default_folder(), Path(os.environ.get("XDG_RUNTIME_DIR", ""), "uma")):
        if _unusable(folder) is None and _unusable(folder / "locks") is None:
            return folder / "locks"
    return None


@contextlib.contextmanager
def locked(file: Path) -> Iterator[None]:
    """Within, no other process is within the same; where there are no locks, it may be."""
    try:
        import fcntl
    except ImportError:
        yield
        return
    with open(file, "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


class Entry(NamedTuple):
    """A library that is kept: when it was last used, in seconds since the epoch, its size, and its file."""

    used_s: float
    size_bytes: int
    path: Path


class Cache:
    """A folder of compiled libraries.

    Native code is loaded from it, so it must belong to this user and nobody else may write there. Where the platform's
    own folder cannot be used, a private temporary one serves this process, with a `RuntimeWarning`; a folder that
    was asked for, by argument or by ``UMA_CACHE_DIR``, is used or refused.

    Args:
        folder: where; by default `default_folder`. Made, for this user alone, if it does not exist.
        max_bytes: when a new entry takes the sum above this, those used longest ago go, though none in use lately.

    Raises:
        UsageError: the folder that was asked for cannot be made, written or trusted.
        ToolchainError: nor can a temporary one be made.
    """

    def __init__(self, folder: str | os.PathLike[str] | None = None, *, max_bytes: int = 1 << 30) -> None:
        self.max_bytes = max_bytes
        self.folder = Path(folder).absolute() if folder is not None else default_folder()
        problem = _unusable(self.folder)
        if problem is None:
            return
        if folder is not None or os.environ.get("UMA_CACHE_DIR"):
            raise UsageError(
                f"the cache folder {problem}",
                where=str(self.folder),
                hint="choose a folder of your own with UMA_CACHE_DIR",
            )
        warnings.warn(
            f"the cache folder {self.folder} {problem}; compiled models are kept for this process only",
            RuntimeWarning,
            stacklevel=2,
        )
        self.folder = _private_folder()

    def library(self, key: str, build: Callable[[Path], object]) -> Path:
        """The library made from what `key` stands for; `build` is called to make it if there is no sound one.

        Args:
            key: from `library_key`.
            build: writes the library to the path it is given. What it raises is passed on, and leaves nothing behind.

        Returns:
            The library's path. It is not evicted for some minutes from now, time enough to load it.

        Raises:
            ToolchainError: the folder has no room, or cannot be written any more.
        """
        cached = self._find(key)
        if cached is not None:
            return cached
        try:
            with tempfile.TemporaryDirectory(prefix=_PARTIAL, dir=self.folder, ignore_cleanup_errors=True) as name:
                partial = Path(name) / "library.so"
                build(partial)
                entry = self.folder / f"{key}-{_digest(partial)}.so"
                os.replace(partial, entry)
            self._evict()
        except OSError as error:
            raise ToolchainError(
                f"cannot write to the cache folder: {error.strerror}",
                where=str(self.folder),
                hint="make room there, or choose another folder with UMA_CACHE_DIR",
            ) from error
        return entry

    def _find(self, key: str) -> Path | None:
        for entry in sorted(self.folder.glob(f"{key}-*.so")):
            try:
                sound = entry.name == f"{key}-{_digest(entry)}.so"
                if sound:
                    os.utime(entry)
                    return entry
                entry.unlink()
            except OSError:
                continue  # evicted by another process, or unreadable: as good as absent
        return None

    def entries(self) -> list[Entry]:
        """What is kept, that used longest ago first."""
        return sorted(
            Entry(status.st_mtime, status.st_size, path)
            for path, status in self._items()
            if _ENTRY.fullmatch(path.name) and stat.S_ISREG(status.st_mode)
        )

    def _items(self) -> Iterator[tuple[Path, os.stat_result]]:
        for item in os.scandir(self.folder):
            with contextlib.suppress(FileNotFoundError):  # another process removed it just now
                yield Path(item.path), item.stat(follow_symlinks=False)

    def _evict(self) -> None:
        now = time.time()
        for path, status in self._items():
            if path.name.startswith(_PARTIAL) and status.st_mtime < now - _ABANDONED_S:
                shutil.rmtree(path, ignore_errors=True)
        entries = self.entries()
        total = sum(entry.size_bytes for entry in entries)
        for entry in entries:
            if total <= self.max_bytes or entry.used_s > now - _GRACE_S:
                break
            entry.path.unlink(missing_ok=True)
            total -= entry.size_bytes


@contextlib.contextmanager
def on_trial(library: Path) -> Iterator[None]:
    """Within, an entry that turns out not to work is removed, so that the next time it is made again."""
    try:
        yield
    except ToolchainError:
        with contextlib.suppress(OSError):  # gone already; or it stays, and fails again
            library.unlink()
        raise


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    with open_plain(path) as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def _unusable(folder: Path) -> str | None:
    """Why `folder`, made if need be, cannot hold code that this process will load; None if it can."""
    if not folder.is_absolute():
        return "has no place: this user has no home folder"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.stat()
    except OSError as error:
        return f"cannot be made: {error.strerror}"
    if status.st_uid != os.geteuid():
        return f"belongs to user {status.st_uid}, not to this one"
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return "can be written by other users"
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        return "cannot be read and written"
    return None


@functools.cache
def _private_folder() -> Path:
    try:
        folder = tempfile.mkdtemp(prefix="uma-cache-")
    except OSError as error:
        raise ToolchainError(
            f"no folder for compiled models can be made: {error.strerror}",
            where="the folder for temporary files",
            hint="make room there, or choose another folder with UMA_CACHE_DIR or TMPDIR",
        ) from error
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)
