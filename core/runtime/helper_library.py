"""C of the runtime that Python itself calls, compiled for this machine and loaded."""

from __future__ import annotations

import functools
import hashlib
from typing import Any

from ..errors import ToolchainError
from ..toolchain.cache import Cache, library_key, on_trial
from ..toolchain.compile import CompileUnit, compile_shared
from ..toolchain.discovery import find_compiler
from . import CSRC
from .abi import abi

__all__ = ["part_of_runtime"]


@functools.cache
def part_of_runtime(source: str, headers: tuple[str, ...], purpose: str) -> Any:
    """A source of ``csrc`` with the headers that it includes, as a library of `abi`.

    Args:
        source, headers: names of the files.
        purpose: it does, in errors.

    Raises:
        ToolchainError: it cannot be compiled or loaded.
    """
    part = CompileUnit(find_compiler(), [source], ["-std=c99", "-O2"])
    files = {name: (CSRC / name).read_bytes() for name in (source, *headers)}
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    path = Cache().library(library_key(digests, [part]), lambda output: compile_shared([part], files, output))
    with on_trial(path):
        try:
            return abi().ffi.dlopen(str(path))
        except OSError as error:
            raise ToolchainError(f"cannot load {purpose}: {error}", where=str(path)) from error
