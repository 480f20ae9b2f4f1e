"""Vela, Arm's compiler, as a program: a TFLite file goes in, a job comes out.

Vela runs in a process of its own, on files in a temporary folder: it is native code that a file may well crash. What it
writes is read as any file is (`job`): no pickles.
"""

from __future__ import annotations

import csv
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from uma.errors import ModelError, ToolchainError, UsageError

from .machine import CONFIGURATIONS
from .network_file import MAX_BYTES, Job, parse_job, raw_payload
from .payload import accelerator_of

__all__ = ["EXPORTED", "Compiled", "Exported", "LeftToCPU", "compile_model", "export_model"]

EXPORTED = (
    *(f"ethos-u65-{macs}" for macs in (256, 512)),
    *(f"ethos-u85-{macs}" for macs in (128, 256, 512, 1024, 2048)),
)
"""Larger machines of the family, by Vela's names. Nothing here runs their streams."""

_PACKAGE = "ethos-u-vela"
_MAJOR, _MINOR = 5, 2
"""The version whose output is known; later ones of this major version are taken too."""

_HINT = "pip install 'uma-ethosu-like[vela]'"
_TIMEOUT_SECONDS = 900
_LEFT = re.compile(r"without passthrough/CPU operations \(found ([^)]*)\)")


class LeftToCPU(ModelError):
    """Vela compiles only some of a model.

    Args:
        operators: what it leaves, by the names of TFLite.
    """

    def __init__(self, operators: tuple[str, ...], where: str) -> None:
        hint = "what runs on the machine in part is compiled by UMA: uma build MODEL --target ethosu_like"
        super().__init__(f"Vela leaves some of it to a CPU: {', '.join(operators)}", where=where, hint=hint)
        self.operators = operators


@dataclass(frozen=True)
class Compiled:
    """What Vela made of a model.

    Args:
        job: its stream, memory, inputs and outputs.
        raw: the file that holds them, an ``.npz``.
        estimated_cycles: of one run, as Vela expects them; None if it does not say.
    """

    job: Job
    raw: bytes
    estimated_cycles: int | None = None


@dataclass(frozen=True)
class Exported:
    """What Vela made of a model for one of `EXPORTED`.

    Args:
        payload: as drivers take it.
        raw: the file that holds it with constants and sizes of memory, an ``.npz``.
    """

    payload: bytes
    raw: bytes


def compile_model(
    model: bytes, macs: int, *, arena_cache_bytes: int | None = None, where: str = "the model"
) -> Compiled:
    """Compiles a TFLite model, all of it for the machine.

    Vela's own defaults say how fast memories are, as those of `Machine` do.

    Args:
        model: the file.
        macs: for which machine: 32, 64, 128 or 256.
        arena_cache_bytes: how much memory feature maps may take; None leaves it to Vela.
        where: the file's name, for errors.

    Raises:
        UsageError: Vela is not installed, or another version of it; or there is no such machine.
        LeftToCPU: Vela leaves some of it to a CPU.
        ModelError: it is not a model.
        ToolchainError: Vela failed.
    """
    if macs not in CONFIGURATIONS:
        raise UsageError(f"there is no machine with {macs} multipliers", hint=", ".join(map(str, CONFIGURATIONS)))
    raw, estimated_cycles = _raw_output(model, f"ethos-u55-{macs}", arena_cache_bytes, where)
    job = parse_job(raw, f"{where}, as Vela has compiled it")
    if job.payload.macs != macs:
        raise ToolchainError(f"Vela compiled for {job.payload.macs} multipliers, not for {macs}", where=where)
    return Compiled(job, raw, estimated_cycles)


def export_model(
    model: bytes, accelerator: str, *, arena_cache_bytes: int | None = None, where: str = "the model"
) -> Exported:
    """Compiles a TFLite model, all of it for a machine that is not simulated here.

    Args:
        model, arena_cache_bytes, where: as of `compile_model`.
        accelerator: one of `EXPORTED`.

    Raises:
        UmaError: as of `compile_model`.
    """
    if accelerator not in EXPORTED:
        raise UsageError(f"there is no machine {accelerator!r}", hint=", ".join(EXPORTED))
    raw, _ = _raw_output(model, accelerator, arena_cache_bytes, where)
    label = f"{where}, as Vela has compiled it"
    payload = raw_payload(raw, label)
    if accelerator_of(payload, label) != accelerator:
        raise ToolchainError(f"Vela compiled for {accelerator_of(payload)}, not for {accelerator}", where=where)
    return Exported(payload, raw)


def _raw_output(model: bytes, accelerator: str, arena_cache_bytes: int | None, where: str) -> tuple[bytes, int | None]:
    """What Vela writes, and the cycles that it expects, if it says so."""
    if model[4:8] != b"TFL3":
        raise ModelError("this is not a TFLite file: the bytes 4 to 7 are not TFL3", where=where)
    if len(model) > MAX_BYTES:
        raise ModelError(f"it has more than {MAX_BYTES} bytes", where=where)
    _check_version()
    with tempfile.TemporaryDirectory(prefix="uma-vela-") as folder:
        file, out = Path(folder) / "model.tflite", Path(folder) / "out"
        file.write_bytes(model)
        options = ["--accelerator-config", accelerator, "--output-format", "raw", "--output-dir", str(out)]
        if arena_cache_bytes is not None:
            options += ["--arena-cache-size", str(arena_cache_bytes)]
        _run([*options, str(file)], folder, where)
        written = sorted(out.glob("*_vela*.npz"))
        if len(written) != 1:
            raise ToolchainError(f"Vela wrote {len(written)} files of raw output, not one", where=where)
        return written[0].read_bytes(), _estimated_cycles(out)


def _estimated_cycles(folder: Path) -> int | None:
    """What the summary says, a table of one row."""
    for file in sorted(folder.glob("*_summary_*.csv")):
        with file.open(encoding="utf-8", newline="") as lines:
            for row in csv.DictReader(lines):
                with suppress(KeyError, ValueError, TypeError):
                    return round(float(row["cycles_total"]))
    return None


def _check_version() -> None:
    try:
        installed = version(_PACKAGE)
    except PackageNotFoundError as error:
        raise UsageError("Vela is not installed", hint=_HINT) from error
    numbers = [int(number) for number in re.findall(r"\d+", installed)[:2]]
    if not [_MAJOR, _MINOR] <= numbers < [_MAJOR + 1]:
        raise UsageError(
            f"Vela {installed} is installed; {_MAJOR}.{_MINOR} is known, and later ones of {_MAJOR}", hint=_HINT
        )


def _run(options: Sequence[str], folder: str, where: str) -> None:
    command = [sys.executable, "-m", "ethosu.vela", *options]
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, stdin=subprocess.DEVNULL, timeout=_TIMEOUT_SECONDS, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise ToolchainError(f"Vela did not end within {_TIMEOUT_SECONDS} seconds", where=where) from error
    if done.returncode == 0:
        return
    said = (done.stdout + b"\n" + done.stderr).decode("utf-8", "replace")
    cpu_ops = _LEFT.search(said)
    if cpu_ops is not None:
        raise LeftToCPU(tuple(cpu_ops.group(1).split(", ")), where)
    lines = [line.strip() for line in said.splitlines() if line.strip() and not line.startswith("Warning")]
    how = f"was killed by signal {-done.returncode}" if done.returncode < 0 else f"failed ({done.returncode})"
    raise ToolchainError(f"Vela {how}: {lines[-1] if lines else 'it said nothing'}", where=where)
