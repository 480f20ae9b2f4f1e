"""The folder that an artifact is saved as: written whole or not at all, and read as hostile data."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from ..errors import ModelError, UmaError, UsageError
from ..runtime.atomic_replace import one_at_a_time, recover, replace_folder, staging
from ..runtime.files import read_plain
from ..runtime.objects import KEPT_FOLDERS, change_since_written, write_objects
from .export.makefile import makefile_products
from .record import METADATA_FILE, ArtifactRecord, FileRecord
from .record_verifier import parse_record

__all__ = ["MAX_METADATA_BYTES", "file_table", "intact", "read_folder", "write_folder", "written_whole"]

MAX_METADATA_BYTES = 1 << 25
"""What ``metadata.json`` may have; only names that come from the model can take it that far."""


def file_table(contents: Mapping[str, bytes]) -> dict[str, FileRecord]:
    """The size and the digest of each file, by its name."""
    return {name: FileRecord(len(content), hashlib.sha256(content).hexdigest()) for name, content in contents.items()}


def write_folder(
    path: str | os.PathLike[str],
    files: Mapping[str, bytes],
    metadata: str,
    folders: Mapping[str, Mapping[str, bytes]],
) -> Path:
    """Write an artifact as the folder ``path``; a kill at any moment leaves it whole, or the one that was there.

    Args:
        path: the folder. An artifact that is there is replaced, with what its Makefile made; nothing else is.
        files: name to content.
        metadata: the text of ``metadata.json``.
        folders: of `KEPT_FOLDERS`, each with its files; one without files is not written.

    Returns:
        The folder, without symbolic links.

    Raises:
        UsageError: something else is at ``path``, or it cannot be written.
    """
    with written_whole(path, "the artifact", _refuse_to_replace) as staged:
        for name, content in files.items():
            staged.joinpath(name).write_bytes(content)
        staged.joinpath(METADATA_FILE).write_text(metadata, encoding="utf-8", newline="\n")
        for name, inner in folders.items():
            if inner:
                write_objects(staged / name, inner)
    return Path(os.path.realpath(path))


@contextlib.contextmanager
def written_whole(path: str | os.PathLike[str], noun: str, refuse: Callable[[Path], None]) -> Iterator[Path]:
    """Within, an empty folder; behind it, it is the folder ``path``, with all that was written into it.

    Args:
        path: the folder.
        noun: names what it is, in errors.
        refuse: raises UsageError unless what is at a path, without symbolic links, may be replaced.

    Raises:
        UsageError: something is there that may not be replaced, or it cannot be written. Then nothing is left.
    """
    if "\0" in os.fspath(path):
        raise UsageError(f"cannot write {noun}: there is a null character in the path", where=os.fspath(path))
    try:
        folder = Path(os.path.realpath(path))
        if folder == folder.parent:
            noun = f"cannot write {noun}: this is the root of the file system"
            raise UsageError(noun, where=os.fspath(path), hint="name a folder that is new or may be replaced")
        with staging(folder) as staged:
            yield staged
            with one_at_a_time(folder.parent):
                refuse(folder)
                replace_folder(staged, folder)
    except OSError as error:
        raise UsageError(f"cannot write {noun}: {error.strerror}", where=os.fspath(path)) from error


def read_folder(path: str | os.PathLike[str]) -> tuple[dict[str, bytes], ArtifactRecord]:
    """The files of an artifact, and its record. Nothing of it is compiled or run.

    Raises:
        UsageError, ModelError: as for `uma.load`.
    """
    folder = Path(path)
    where = folder / METADATA_FILE
    try:
        recover(folder)
        os.lstat(where)
    except (OSError, ValueError) as error:  # ValueError: there is a null character in the path
        if isinstance(error, PermissionError):
            raise UsageError(f"the artifact cannot be read: {error.strerror}", where=os.fspath(path)) from error
        raise UsageError(
            f"there is no artifact at {os.fspath(path)!r}",
            hint=f"give a folder or a .zip written by Artifact.save: {METADATA_FILE} is in it",
        ) from error
    record = parse_record(read_plain(where, range(MAX_METADATA_BYTES + 1)), where)
    files = {}
    for name, row in record.files.items():
        files[name] = intact(read_plain(folder / name, range(row.bytes, row.bytes + 1)), row, folder / name)
    return files, record


def intact(content: bytes, row: FileRecord, where: Path) -> bytes:
    """``content``, if it is what the record says.

    Raises:
        ModelError: it is something else.
    """
    if hashlib.sha256(content).hexdigest() != row.sha256:
        raise ModelError(
            "the file was changed or damaged: its digest is not the one in the metadata",
            where=str(where),
            hint="build the model again; to work on the C, copy it out of the artifact",
        )
    return content


def _refuse_to_replace(folder: Path) -> None:
    """UsageError unless `folder` is free, empty, or an artifact as it was written and as its Makefile left it."""
    if not os.path.lexists(folder) or (folder.is_dir() and not any(folder.iterdir())):
        return
    try:
        files, record = read_folder(folder)
    except UmaError as error:
        raise UsageError(
            f"the folder is not an artifact that may be replaced: {error.what}",
            where=str(folder),
            hint="choose another, or remove it",
        ) from error
    expected = {METADATA_FILE, *files}
    expected |= {name for name in makefile_products(record) if (folder / name).is_file()}
    expected |= {name for name in KEPT_FOLDERS if change_since_written(folder / name) is None}
    if extra := sorted({item.name for item in folder.iterdir()} - expected):
        raise UsageError(
            f"the artifact there may not be replaced: it has files of another origin, {_few(extra)}",
            where=str(folder),
            hint="choose another folder, or move them away",
        )


def _few(names: Iterable[str]) -> str:
    first, *rest = names
    return repr(first) + (f" and {len(rest)} more" if rest else "")
