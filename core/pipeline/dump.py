"""Dumps: every stage's form as text, with its larger constants beside it, and back."""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import UsageError
from ..program.text import parse_program, print_program
from ..relay.module import IRModule
from ..relay.text import parse_module, print_module
from .stages import STAGES, Form

if TYPE_CHECKING:
    import numpy as np

__all__ = ["CONSTANTS_FILE", "SUFFIX", "Dumper", "print_form", "read_dump"]

SUFFIX = ".py"
"""Text forms are Python syntax, and editors show them as such."""

CONSTANTS_FILE = "constants.npz"
"""Beside the texts of one folder: their constants, by the SHA-256 of their bytes."""

_PROGRAM = re.compile(r"^@program\b", re.MULTILINE)
_MAX_BYTES = 1 << 30


def print_form(form: Form) -> tuple[str, dict[str, np.ndarray]]:
    """The text of ``form``, and its larger constants by the SHA-256 of their bytes."""
    import numpy as np

    if isinstance(form, IRModule):
        return print_module(form)
    text, constants = print_program(form)
    return text, {digest: np.frombuffer(raw, np.uint8) for digest, raw in constants.items()}


class Dumper:
    """Writes every stage to ``folder`` as ``N-STAGE.py``.

    Raises:
        UsageError: the folder cannot be written.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        self.constants: dict[str, np.ndarray] = {}

    def __call__(self, stage: str, form: Form) -> None:
        text, constants = print_form(form)
        known = len(self.constants)
        for digest, array in constants.items():
            self.constants.setdefault(digest, array)
        self._write(f"{STAGES.index(stage) + 1}-{stage}{SUFFIX}", text.encode())
        if len(self.constants) > known:
            self._save_constants()

    def _write(self, name: str, content: bytes) -> None:
        with self._reporting():
            self.folder.mkdir(parents=True, exist_ok=True)
            staged = self.folder / f".{name}.{os.getpid()}"
            try:
                staged.write_bytes(content)
                staged.replace(self.folder / name)
            finally:
                staged.unlink(missing_ok=True)

    def _save_constants(self) -> None:
        import io

        import numpy as np

        content = io.BytesIO()
        np.savez(content, **self.constants)  # type: ignore[arg-type]  # its stub takes keywords for options only
        self._write(CONSTANTS_FILE, content.getvalue())

    @contextlib.contextmanager
    def _reporting(self):  # type: ignore[no-untyped-def]
        try:
            yield
        except OSError as error:
            raise UsageError(f"cannot write the dump: {error.strerror}", where=str(self.folder)) from error


def read_dump(path: Path) -> Form:
    """The form that a text file holds; its constants are in `CONSTANTS_FILE` beside it.

    Raises:
        UsageError: a file cannot be read.
        TextError: the text is malformed, or a constant is missing.
    """
    import numpy as np

    constants: dict[str, np.ndarray] = {}
    beside = path.with_name(CONSTANTS_FILE)
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise UsageError(f"the text is larger than {_MAX_BYTES} bytes", where=str(path))
        text = path.read_text(encoding="utf-8")
        if beside.exists():
            with np.load(beside, allow_pickle=False) as loaded:
                constants = {name: loaded[name] for name in loaded.files}
    except (OSError, ValueError, EOFError) as error:
        raise UsageError(f"cannot read the text form: {error}", where=str(path)) from error
    if _PROGRAM.match(text):
        return parse_program(text, {digest: array.tobytes() for digest, array in constants.items()}, str(path))
    return parse_module(text, constants, str(path))
