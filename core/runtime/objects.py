"""The folder of objects within a saved artifact, and whether it is still as it was written."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

__all__ = ["OBJECTS_FOLDER", "is_as_written", "object_files", "write_objects"]

OBJECTS_FOLDER = "objects"
"""In a saved artifact, what was compiled for other machines: a folder for each host, with an object for each source."""

_DIGESTS = "digests.json"
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
    return {**objects, _DIGESTS: (json.dumps(digests, indent=1) + "\n").encode()}


def is_as_written(folder: Path) -> bool:
    """Whether all that is in ``folder`` is what `write_objects` wrote there."""
    found = [path for path in sorted(folder.rglob("*")) if path.is_symlink() or not path.is_dir()]
    if folder.is_symlink() or any(path.is_symlink() or not path.is_file() for path in found):
        return False
    digests = folder / _DIGESTS
    if digests not in found or digests.stat().st_size > _MAX_DIGESTS_BYTES:
        return False
    try:
        wanted = json.loads(digests.read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        return False
    found.remove(digests)
    given = {path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in found}
    return bool(given == wanted)
