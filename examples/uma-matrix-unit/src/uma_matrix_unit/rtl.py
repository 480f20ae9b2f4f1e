"""The matrix unit as logic, ``verilog/matrix_unit.sv``: Verilator makes a library of it for ``impl=rtl``."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import sys
import time
from functools import partial
from importlib.resources import files
from pathlib import Path

from uma.errors import ToolchainError, UsageError
from uma.hookspecs import Library, c_sources

__all__ = ["library", "verilate"]

_NAMES = ("matrix_unit.sv", "matrix_unit.cpp")
_SYMBOLS = ("mxu_rtl_new", "mxu_rtl_delete", "mxu_rtl_read", "mxu_rtl_write", "mxu_rtl_wait")
_PARAMETERS = ("ACT_BYTES", "WGT_BYTES", "ACC_BYTES")
_MADE = "made"
_VARIABLE = "UMA_MATRIX_UNIT_VERILATOR_S"
_LIMIT_S = 1800.0
"""How many seconds Verilator may take, unless the environment variable says otherwise."""
_SAY_S = 10.0
"""How many seconds go by from one line of progress to the next."""


def sources() -> dict[str, str]:
    """The files of it, by name."""
    folder = files(__package__) / "verilog"
    return {name: (folder / name).read_text(encoding="utf-8") for name in _NAMES} | c_sources(__package__, "mxu_rtl.h")


def library(sizes: tuple[int, int, int]) -> Library:
    """The library of a unit with memories of so many bytes. Its name says what it is made from."""
    texts = sources()
    key = "\n".join([*map(str, sizes), *(part for name in sorted(texts) for part in (name, texts[name]))])
    digest = hashlib.sha256(key.encode()).hexdigest()[:16]
    return Library(f"mxu_rtl_{digest}", symbols=_SYMBOLS, make=partial(verilate, texts, sizes))


def verilate(texts: dict[str, str], sizes: tuple[int, int, int], output: Path) -> None:
    """Make the library, and say on stderr how far it is. What was compiled stays beside it, for a second attempt.

    Args:
        texts: as `sources` gives them.
        sizes: of its memories, in bytes.
        output: where it goes.

    Raises:
        UsageError: the limit of time is not a number of seconds.
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
    limit_s, folder = _limit_s(), output.parent
    for file, text in texts.items():
        path = folder / file
        if not path.is_file() or path.read_text(encoding="utf-8") != text:  # make goes by times
            path.write_text(text, encoding="utf-8")
    command = [
        *("verilator", "--cc", "--exe", "--build", "-j", "2", "--Mdir", _MADE, "-O3", "-Wno-fatal"),
        *("-MAKEFLAGS", "VM_PARALLEL_BUILDS=1"),  # an object for each file
        *("-CFLAGS", "-fPIC -O2 -I..", "-LDFLAGS", "-shared", "-o", "library.so"),
        *(f"-G{parameter}={size}" for parameter, size in zip(_PARAMETERS, sizes, strict=True)),
        *_NAMES,
    ]
    log = folder / "verilator.log"
    try:
        status = _run(command, folder, log, limit_s)
    except OSError as error:
        raise ToolchainError(f"verilator could not be run: {error}", where=where) from error
    if status is None:
        raise ToolchainError(
            f"verilator did not finish within {limit_s:g} s and was stopped; {_progress(folder)}",
            where=where,
            hint=f"run it again, which continues, or raise the limit: {_VARIABLE}={2 * limit_s:g}",
        )
    if status != 0:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
        errors = [line for line in lines if "rror" in line] or lines
        said = "\n".join(f"    {line}" for line in errors[:10])
        raise ToolchainError(f"verilator could not make the unit (exit status {status})\n{said}", where=where)
    shutil.copyfile(folder / _MADE / "library.so", output)


def _limit_s() -> float:
    """The most seconds that Verilator may take."""
    text = os.environ.get(_VARIABLE, "")
    try:
        limit_s = float(text or _LIMIT_S)
    except ValueError:
        limit_s = 0.0
    if not 0 < limit_s < float("inf"):
        message = f"{_VARIABLE}={text!r} is not a number of seconds"
        raise UsageError(message, where="the environment", hint=f"set it to a number, for example {2 * _LIMIT_S:g}")
    return limit_s


def _run(command: list[str], folder: Path, log: Path, limit_s: float) -> int | None:
    """Exit status of Verilator; None where it was stopped, and all that it has started."""
    begin = time.monotonic()
    with log.open("wb") as file:
        process = subprocess.Popen(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            env={**os.environ, "TMPDIR": str(folder)},
            start_new_session=True,
        )
        try:
            while (seconds := time.monotonic() - begin) < limit_s:
                try:
                    return process.wait(min(_SAY_S, limit_s - seconds))
                except subprocess.TimeoutExpired:
                    message = f"matrix_unit: verilator compiles impl=rtl, {time.monotonic() - begin:.0f} s"
                    print(f"{message} of at most {limit_s:g} s; {_progress(folder)}", file=sys.stderr, flush=True)
            return None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def _progress(folder: Path) -> str:
    """How many files are compiled, in words."""
    sources = {path.stem for path in folder.glob(f"{_MADE}/*.cpp")} | {Path(name).stem for name in _NAMES}
    compiled = [path for path in folder.glob(f"{_MADE}/*.o") if path.stem in sources]
    return f"{len(compiled)} of {len(sources)} files are compiled"
