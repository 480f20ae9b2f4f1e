"""The folder ``model`` of a saved artifact: the model that it was built from, as text, with the options of the build.

It is not a part of the artifact: `uma.load` does not read it. `uma.verify`, `uma.explain` and `uma.report` build the
model again from it.
"""

from __future__ import annotations

import hashlib
import json
import struct
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ..errors import ModelError
from ..runtime.files import read_plain
from ..runtime.objects import DIGESTS, MODEL_FOLDER
from ..support.regular_files import open_plain, size_of
from .archive import is_archive

__all__ = ["SIZES_FILE", "ModelSource", "SavedModel", "read_sizes", "sizes_file"]

SIZES_FILE = "sizes.json"
"""What the compiler of the build made of the artifact: bytes of code and of stack."""

_MAX_SMALL_BYTES = 1 << 20


class ModelSource(Protocol):
    """What an artifact was built from."""

    def files(self) -> Mapping[str, bytes]:
        """Return the files of the folder, by name; nothing if the model cannot be written down."""


@dataclass(frozen=True)
class SavedModel:
    """The folder ``model`` of an artifact that was loaded.

    Args:
        path: the folder or the archive of the artifact.
    """

    path: Path

    def files(self) -> dict[str, bytes]:
        """Return the files of the folder, by name; nothing if there is no such folder.

        Raises:
            ModelError: a file is damaged, was changed, or is missing.
        """
        try:
            return self._archived() if is_archive(self.path) else self._read()
        except (
            EOFError, LookupError, OSError, OverflowError, RuntimeError, ValueError, struct.error, zipfile.BadZipFile,
        ) as error:  # fmt: skip
            raise _damaged(self.path / MODEL_FOLDER, getattr(error, "strerror", None) or str(error)) from error

    def _read(self) -> dict[str, bytes]:
        folder = self.path / MODEL_FOLDER
        if not (folder / DIGESTS).is_file():
            return {}
        wanted = _table(read_plain(folder / DIGESTS, range(_MAX_SMALL_BYTES)))
        sizes = {name: (folder / name).stat().st_size for name in wanted if (folder / name).exists()}
        contents = {name: read_plain(folder / name, range(size, size + 1)) for name, size in sizes.items()}
        return _checked(contents, wanted, folder)

    def _archived(self) -> dict[str, bytes]:
        with open_plain(self.path) as file, zipfile.ZipFile(file) as archive:
            prefix = f"{MODEL_FOLDER}/"
            members = {
                one.filename[len(prefix) :]: one for one in archive.infolist() if one.filename.startswith(prefix)
            }
            if DIGESTS not in members:
                return {}
            # Nothing is compressed, so that no small file fills the memory.
            stored = all(one.compress_type == zipfile.ZIP_STORED for one in members.values())
            if not stored or sum(one.file_size for one in members.values()) > size_of(file):
                raise ValueError("it is compressed")
            wanted = _table(archive.read(members[DIGESTS]))
            contents = {name: archive.read(members[name]) for name in wanted if name in members}
            return _checked(contents, wanted, self.path / MODEL_FOLDER)


def sizes_file(code_bytes: int, stack_bytes: int | None) -> bytes:
    """Return the content of `SIZES_FILE`."""
    return (json.dumps({"code_bytes": code_bytes, "stack_bytes": stack_bytes}, indent=1) + "\n").encode()


def read_sizes(content: bytes) -> tuple[int | None, int | None]:
    """Return the bytes of code and of stack that `SIZES_FILE` holds; None for what it does not hold."""
    try:
        plain = json.loads(content)
    except (ValueError, RecursionError):
        return None, None
    code, stack = (plain.get(name) if isinstance(plain, dict) else None for name in ("code_bytes", "stack_bytes"))
    return code if type(code) is int and code >= 0 else None, stack if type(stack) is int and stack >= 0 else None


def _table(content: bytes) -> dict[str, str]:
    wanted = json.loads(content)
    if not isinstance(wanted, dict) or not all(name.isprintable() and "/" not in name for name in wanted):
        raise ValueError(f"{DIGESTS} lists no files")
    return wanted


def _checked(contents: Mapping[str, bytes], wanted: Mapping[str, str], where: Path) -> dict[str, bytes]:
    for name, digest in wanted.items():
        if name not in contents or hashlib.sha256(contents[name]).hexdigest() != digest:
            raise _damaged(where, f"{name!r} was {'changed' if name in contents else 'removed'}")
    return dict(contents)


def _damaged(where: Path, why: str) -> ModelError:
    hint = "build the model again"
    return ModelError(f"the model that the artifact keeps cannot be read: {why}", where=str(where), hint=hint)
