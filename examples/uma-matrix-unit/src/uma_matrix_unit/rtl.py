"""The matrix unit as logic, ``verilog/matrix_unit.sv``: Verilator makes a library of it for ``impl=rtl``."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from functools import partial
from importlib.resources import files
from pathlib import Path

from uma.errors import ToolchainError
from uma.hookspecs import Library, c_sources

__all__ = ["library", "verilate"]

_NAMES = ("matrix_unit.sv", "matrix_unit.cpp")
_SYMBOLS = ("mxu_rtl_new", "mxu_rtl_delete", "mxu_rtl_read", "mxu_rtl_write", "mxu_rtl_wait")
_PARAMETERS = ("ACT_BYTES", "WGT_BYTES", "ACC_BYTES")
_TIMEOUT_S = 600.0


def sources() -> dict[str, str]:
    """The files of it, by name."""
    folder = files(__package__) / "verilog"
    return {name: (folder / name).read_text(encoding="utf-8") for name in _NAMES} | c_sources(__package__, "mxu_rtl.h")


def library(sizes: tuple[int, int, int]) -> Library:
    """The library of a unit with memories of so many bytes. Its name says what it is made from."""
    texts = sources()
    told = "\n".join([*map(str, sizes), *(part for name in sorted(texts) for part in (name, texts[name]))])
    digest = hashlib.sha256(told.encode()).hexdigest()[:16]
    return Library(f"mxu_rtl_{digest}", symbols=_SYMBOLS, make=partial(verilate, texts, sizes))


def verilate(texts: dict[str, str], sizes: tuple[int, int, int], output: Path) -> None:
    """Make the library.

    Args:
        texts: as `sources` gives them.
        sizes: of its memories, in bytes.
        output: where it goes.

    Raises:
        ToolchainError: Verilator, or the C++ compiler and make that it calls, is missing or fails.
    """
    where = "target kind 'matrix_unit', impl=rtl"
    missing = [tool for tool in ("verilator", "make", "g++") if shutil.which(tool) is None]
    if missing:
        raise ToolchainError(
            f"impl=rtl needs {' and '.join(missing)}, which {'is' if len(missing) == 1 else 'are'} not there",
            where=where,
            hint="install Verilator from the system's packages, with make and g++; or take impl=sim",
        )
    with tempfile.TemporaryDirectory(prefix="mxu-rtl-") as name:
        folder = Path(name)
        for file, text in texts.items():
            (folder / file).write_text(text, encoding="utf-8")
        command = [
            *("verilator", "--cc", "--exe", "--build", "-j", "2", "--Mdir", "made", "-O3", "-Wno-fatal"),
            *("-CFLAGS", "-fPIC -O2 -I..", "-LDFLAGS", "-shared", "-o", "library.so"),
            *(f"-G{parameter}={size}" for parameter, size in zip(_PARAMETERS, sizes, strict=True)),
            *_NAMES,
        ]
        try:
            done = subprocess.run(
                command,
                cwd=folder,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_TIMEOUT_S,
                check=False,
                env={**os.environ, "TMPDIR": name},
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ToolchainError(f"verilator could not be run: {error}", where=where) from error
        if done.returncode != 0:
            said = "\n".join(f"    {line}" for line in done.stderr.splitlines()[:10])
            raise ToolchainError(
                f"verilator could not make the unit (exit status {done.returncode})\n{said}", where=where
            )
        shutil.copyfile(folder / "made" / "library.so", output)
