"""Folders whose files are listed with their digests: those within a saved artifact, and exports."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

__all__ = [
    "DIGESTS",
    "KEPT_FOLDERS",
    "MODEL_FOLDER",
    "OBJECTS_FOLDER",
    "change_since_written",
    "object_files",
    "write_digests",
    "write_objects",
]

OBJECTS_FOLDER = "objects"
"""In a saved artifact, what was compiled for other machines: a folder for each host, with an object for each source."""

MODEL_FOLDER = "model"
"""In a saved artifact, the model that it was built from."""

KEPT_FOLDERS = (OBJECTS_FOLDER, MODEL_FOLDER)
"""The folders that a saved artifact may have; they are not part of the artifact."""

DIGESTS = "digests.json"
"""In such a folder, the SHA-256 digest of each other file."""

_MAX_DIGESTS_BYTES = 1 << 20


def write_objects(folder: Path, objects: Mapping[str, bytes]) -> None:
    """Write objects, ``LABEL/NAME.c.o`` to content, below ``folder``, which is made, and their digests besides."""
    for name, content in object_files(objects).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def object_files(objects: Mapping[str, bytes]) -> dict[str, bytes]:
    """What is written of objects, by its path in the folder: they, and their digests."""
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in sorted(objects.items())}
    return {**objects, DIGESTS: _digests_text(digests)}


def write_digests(folder: Path, name: str) -> None:
    """Write the digests of all files below ``folder`` into its file ``name``."""
    (folder / name).write_bytes(_digests_text(_digests(folder)))


def change_since_written(folder: Path, name: str = DIGESTS) -> str | None:
    """Return how ``folder`` differs from what its file of digests lists, in words; None if it does not.

    Args:
        folder: as `write_objects` or `write_digests` left it.
        name: the file of digests in it.
    """
    digests = folder / name
    if folder.is_symlink() or digests.is_symlink() or not digests.is_file():
        return f"it has no file {name}"
    try:
        small = digests.stat().st_size <= _MAX_DIGESTS_BYTES
        wanted = json.loads(digests.read_text(encoding="utf-8")) if small else None
    except (ValueError, RecursionError):
        wanted = None
    if not isinstance(wanted, dict):
        return f"its file {name} is damaged"
    for path in sorted(folder.rglob("*")):
        inner = path.relative_to(folder).as_posix()
        if path != digests and inner not in wanted and (path.is_symlink() or not path.is_dir()):
            return f"it has files of another origin, {inner!r}"
    present = _digests(folder)
    for inner, digest in wanted.items():
        if present.get(inner) != digest:
            return f"{inner!r} was {'changed' if inner in present else 'removed'}"
    return None


def _digests_text(digests: Mapping[str, str]) -> bytes:
    return (json.dumps(digests, indent=1) + "\n").encode()


def _digests(folder: Path) -> dict[str, str]:
    files = (path for path in sorted(folder.rglob("*")) if path.is_file() and not path.is_symlink())
    return {path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
