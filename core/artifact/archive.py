"""The ``.zip`` that an artifact is saved as: what its folder has, the same bytes each time, read as hostile data."""

from __future__ import annotations

import io
import os
import re
import struct
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

from ..errors import ModelError, UmaError, UsageError
from ..runtime.atomic_replace import one_at_a_time, staging
from ..runtime.objects import object_files
from ..support.regular_files import open_plain, size_of
from .folder import MAX_METADATA_BYTES, intact
from .record import METADATA_FILE, ArtifactRecord
from .record_verifier import parse_record

__all__ = ["is_archive", "is_artifact", "names_archive", "read_archive", "write_archive"]

_MAGIC = b"PK\x03\x04"
_MAX_UNPACKED_BYTES = 1 << 29
"""What the files may take in memory, beyond the size of the archive: a small one could fill all there is."""

_OUTSIDE = re.compile(r"[/\\]|[A-Za-z]:|(.*[/\\])?\.\.([/\\].*)?$|.*\0", re.DOTALL)
"""Names of what would not be within the folder that somebody unpacks an archive to."""


def names_archive(path: Path) -> bool:
    """Whether what is saved as ``path`` is to be an archive."""
    return path.suffix.lower() == ".zip"


def is_archive(path: str | os.PathLike[str]) -> bool:
    """Whether a plain file is there that begins as an archive does."""
    try:
        with open_plain(path) as file:
            return file.read(len(_MAGIC)) == _MAGIC
    except (OSError, ValueError):  # ValueError: there is a null character in the path
        return False


def is_artifact(path: str | os.PathLike[str]) -> bool:
    """Return whether ``path`` names an artifact, a folder or an archive, and not the file of a model."""
    # (A path raises where its name is too long.)
    return os.path.isdir(path) or is_archive(path)


def write_archive(
    path: Path, files: Mapping[str, bytes], metadata: str, folders: Mapping[str, Mapping[str, bytes]]
) -> Path:
    """Write an artifact as the file ``path``; a kill at any moment leaves it whole, or the one that was there.

    Nothing is compressed: what compression gives differs from one version of zlib to the next.

    Args:
        path: the file. An artifact that is there is replaced; nothing else is.
        files, metadata, folders: as `write_folder` takes them.

    Returns:
        The file, without symbolic links.

    Raises:
        UsageError: something else is at ``path``, or it cannot be written.
    """
    if "\0" in os.fspath(path):
        raise UsageError("cannot write the artifact: there is a null character in the path", where=os.fspath(path))
    members = {**files, METADATA_FILE: metadata.encode()}
    for folder, inner in folders.items():
        if inner:
            members |= {f"{folder}/{name}": content for name, content in object_files(inner).items()}
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_STORED) as archive:
        for name, data in sorted(members.items()):
            info = zipfile.ZipInfo(name)  # of 1 January 1980
            info.create_system, info.external_attr = 3, 0o644 << 16  # as Unix has it, wherever it is written
            archive.writestr(info, data)
    real = Path(os.path.realpath(path))
    try:
        with staging(real) as staged:
            archive_path = staged / "artifact.zip"
            archive_path.write_bytes(content.getbuffer())
            with one_at_a_time(real.parent):
                _refuse_to_replace(real)
                os.replace(archive_path, real)
            staged.rmdir()
    except OSError as error:
        raise UsageError(f"cannot write the artifact: {error.strerror}", where=os.fspath(path)) from error
    return real


def read_archive(path: str | os.PathLike[str]) -> tuple[dict[str, bytes], ArtifactRecord]:
    """The files of an artifact, and its record. Nothing of it is unpacked to a disk, compiled or run.

    Raises:
        UsageError, ModelError: as for `uma.load`.
    """
    where = Path(path)
    try:
        with open_plain(where) as file:
            return _read(file, where)
    except OSError as error:
        raise UsageError(f"the artifact cannot be read: {error.strerror}", where=str(where)) from error
    except (
        EOFError, LookupError, NotImplementedError, OverflowError, RuntimeError, UnicodeError, ValueError,
        struct.error, zipfile.BadZipFile, zlib.error,
    ) as error:  # fmt: skip
        hint = "copy it again from where it came, or build the model again"
        raise ModelError(f"the archive is damaged: {error}", where=str(where), hint=hint) from error


def _read(file: BinaryIO, where: Path) -> tuple[dict[str, bytes], ArtifactRecord]:
    """The same of an open file; ValueError, or one of zipfile's errors, where it is not an archive that may be read."""
    with zipfile.ZipFile(file) as archive:
        members = {}
        for info in archive.infolist():
            if _OUTSIDE.match(info.orig_filename):
                raise ValueError(f"it has {info.orig_filename[:100]!r}, which would be outside of its folder")
            if info.filename in members:
                raise ValueError(f"it has {info.filename[:100]!r} twice")
            members[info.filename] = info
        if METADATA_FILE not in members:
            hint = f"give one written by Artifact.save: {METADATA_FILE} is in it"
            raise UsageError("the archive holds no artifact", where=str(where), hint=hint)
        if members[METADATA_FILE].file_size > MAX_METADATA_BYTES:
            raise ValueError(f"{METADATA_FILE} has more than {MAX_METADATA_BYTES} bytes")
        record = parse_record(_member(archive, members, METADATA_FILE), where / METADATA_FILE)
        if sum(row.bytes for row in record.files.values()) > size_of(file) + _MAX_UNPACKED_BYTES:
            raise ValueError(f"its files would fill more than {_MAX_UNPACKED_BYTES >> 20} MiB, unpacked")
        files = {}
        for name, row in record.files.items():
            if name not in members:
                raise ValueError(f"it lacks {name!r}")
            if members[name].file_size != row.bytes:
                raise ValueError(f"{name!r} has {members[name].file_size} bytes, expected {row.bytes}")
            files[name] = intact(_member(archive, members, name), row, where / name)
        return files, record


def _member(archive: zipfile.ZipFile, members: Mapping[str, zipfile.ZipInfo], name: str) -> bytes:
    info = members[name]
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ValueError(f"{name!r} is compressed in a way that is not read")
    return archive.read(info)


def _refuse_to_replace(path: Path) -> None:
    """UsageError unless ``path`` is free, or an artifact."""
    if not os.path.lexists(path):
        return
    reason = "it is not a file"
    if path.is_file():
        try:
            read_archive(path)
            return
        except UmaError as error:
            reason = error.what
    raise UsageError(
        f"the path is not an artifact that may be replaced: {reason}",
        where=str(path),
        hint="choose another name, or remove it",
    )
