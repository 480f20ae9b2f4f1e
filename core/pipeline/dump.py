"""Dumps: every stage's form as text, with its larger constants beside it, and back."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from ..errors import ModelError, UsageError
from ..program.text import parse_program, print_program
from ..relay.module import IRModule
from ..relay.text import parse_module, print_module
from ..relay.types import MAX_BYTES
from ..support.regular_files import open_plain, size_of, unreadable, write_whole
from .stages import STAGES, Form

if TYPE_CHECKING:
    import numpy as np

__all__ = ["CONSTANTS_FILE", "SUFFIX", "Dumper", "constants_file", "parse_dump", "print_form", "read_dump"]

SUFFIX = ".py"
"""Text forms are Python syntax, and editors show them as such."""

CONSTANTS_FILE = "constants.npz"
"""Beside the texts of one folder: their constants, by the SHA-256 of their bytes."""

_PROGRAM = re.compile(r"^@program\b", re.MULTILINE)
_MAX_TEXT_BYTES = 1 << 30
_DIGEST = re.compile(r"\b[0-9a-f]{64}\b")
_NPY_MAGIC = b"\x93NUMPY"


def print_form(form: Form) -> tuple[str, dict[str, np.ndarray]]:
    """The text of ``form``, and its larger constants by the SHA-256 of their bytes."""
    import numpy as np

    if isinstance(form, IRModule):
        return print_module(form)
    text, constants = print_program(form)
    return text, {digest: np.frombuffer(raw, np.uint8) for digest, raw in constants.items()}


class Dumper:
    """Writes every stage to ``folder`` as ``N-STAGE.py``; UsageError where it cannot be written.

    What a plugin's pass gives on the way to a stage is ``N-STAGE.LABEL.PASS.py``.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        self.constants: dict[str, np.ndarray] = {}

    def __call__(self, stage: str, form: Form, made_by: str | None = None) -> None:
        text, constants = print_form(form)
        known = len(self.constants)
        for digest, array in constants.items():
            self.constants.setdefault(digest, array)
        if len(self.constants) > known:  # before the text that names them
            self._save_constants()
        name = stage if made_by is None else f"{stage}.{made_by}"
        self._write(f"{STAGES.index(stage) + 1}-{name}{SUFFIX}", text.encode())

    def _write(self, name: str, content: bytes) -> None:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            write_whole(self.folder / name, content, sync=False)
        except OSError as error:
            raise UsageError(f"cannot write the dump: {error.strerror}", where=str(self.folder)) from error

    def _save_constants(self) -> None:
        self._write(CONSTANTS_FILE, constants_file(self.constants))


def constants_file(constants: Mapping[str, np.ndarray]) -> bytes:
    """Return the content of `CONSTANTS_FILE` for constants by the SHA-256 of their bytes."""
    import numpy as np

    content = io.BytesIO()
    np.savez(content, **constants)  # type: ignore[arg-type]  # its stub takes keywords for options only
    return content.getvalue()


def read_dump(path: Path) -> Form:
    """The form that a text file holds; its constants are in `CONSTANTS_FILE` beside it.

    Raises:
        UsageError: a file cannot be opened.
        ModelError: a file is damaged or too large, or there is no model in it.
        TextError: the text is malformed, or a constant is missing.
    """
    beside = path.with_name(CONSTANTS_FILE)
    try:
        with open_plain(path) as file, io.TextIOWrapper(file, encoding="utf-8") as reader:
            if size_of(file) > _MAX_TEXT_BYTES:
                raise ModelError(f"the text is larger than {_MAX_TEXT_BYTES} bytes", where=str(path))
            text = reader.read()
        constants = {}
        if beside.exists():
            with open_plain(beside) as whole:
                constants = _read_constants(whole, size_of(whole), text, beside)
    except UnicodeDecodeError as error:
        raise ModelError(f"the text is not UTF-8: {error.reason} at byte {error.start}", where=str(path)) from error
    except (OSError, ValueError) as error:  # a path with a null character is a ValueError
        raise unreadable(path, error) from error
    return _parsed(text, constants, path)


def parse_dump(text: str, constants: bytes | None, where: Path) -> Form:
    """Return the form of a text.

    Args:
        text: of the form.
        constants: the content of `CONSTANTS_FILE`; None if there is none.
        where: names the text in errors.

    Raises:
        ModelError, TextError: as for `read_dump`.
    """
    arrays = {}
    if constants is not None:
        arrays = _read_constants(io.BytesIO(constants), len(constants), text, where.with_name(CONSTANTS_FILE))
    return _parsed(text, arrays, where)


def _parsed(text: str, constants: Mapping[str, bytes], path: Path) -> Form:
    import numpy as np

    if _PROGRAM.search(text):
        return parse_program(text, constants, str(path))
    arrays = {digest: np.frombuffer(raw, np.uint8) for digest, raw in constants.items()}
    module = parse_module(text, arrays, str(path))
    try:
        _ = module.main
    except ModelError as error:
        raise ModelError(error.what, where=str(path), hint=error.hint) from error
    return module


def _read_constants(whole: BinaryIO, size: int, text: str, path: Path) -> dict[str, bytes]:
    """The contents of the arrays that ``text`` names in a file of `Dumper`; ModelError for any other file.

    What they are is said by the text, and that they are what it means by their digests, so the headers are skipped.
    """
    import zipfile
    import zlib

    arrays = {}
    try:
        with zipfile.ZipFile(whole) as archive:
            members = archive.infolist()
            # Nothing is compressed or shared, so that no small file fills the memory.
            packed = any(member.compress_type != zipfile.ZIP_STORED for member in members)
            if packed or sum(member.file_size for member in members) > size:
                raise ModelError("the constants are compressed, as no dump is", where=str(path))
            named = set(_DIGEST.findall(text))
            sizes = {member.filename.removesuffix(".npy"): member.file_size for member in members}
            if sum(sizes[name] for name in named.intersection(sizes)) > MAX_BYTES:
                raise ModelError(f"the constants are larger than {MAX_BYTES} bytes", where=str(path))
            for member in members:
                name = member.filename.removesuffix(".npy")
                if name not in named:  # not even opened: what nobody reads may be anything
                    continue
                with archive.open(member) as file:
                    head = file.read(8)
                    if head[:6] != _NPY_MAGIC:
                        raise ModelError(f"{member.filename!r} among the constants is not an array", where=str(path))
                    file.read(int.from_bytes(file.read(2 if head[6:7] == b"\x01" else 4), "little"))
                    arrays[name] = file.read()
    except (zipfile.BadZipFile, zlib.error, ValueError, EOFError, OverflowError, RuntimeError) as error:
        raise ModelError(f"the constants are damaged: {error}", where=str(path)) from error
    return arrays
