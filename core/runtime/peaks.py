"""What a core of this machine does at most, measured: see ``csrc/uma_peak.c``."""

from __future__ import annotations

import hashlib
import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import ToolchainError
from ..toolchain.cache import Cache, library_key
from ..toolchain.compile import CompileUnit, compile_program
from ..toolchain.discovery import Compiler, host_cpu_id
from ..toolchain.subprocesses import ending, excerpt, run

__all__ = ["Peaks", "measured_peaks"]

_SOURCE = Path(__file__).with_name("csrc") / "uma_peak.c"
_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class Peaks:
    """What one core of this machine does of multiply-accumulates and nothing else, two operations each, as a compiler
    was told to use it.

    Args:
        float32_gops: of floats, in 1e9 operations per second; None where it is not known.
        int8_gops: of bytes into sums of 32 bits; None likewise.
    """

    float32_gops: float | None
    int8_gops: float | None


def measured_peaks(compiler: Compiler, flags: Sequence[str]) -> Peaks:
    """The peaks of this machine, as ``flags`` let ``compiler`` use it. They are measured once, which takes a tenth of a
    second, and kept in the `Cache` for CPU, compiler and flags.

    Raises:
        UsageError: a flag is not allowed.
        ToolchainError: the program that measures cannot be compiled, or fails.
    """
    source = _SOURCE.read_bytes()
    # However little a model is optimised, this is about the machine.
    part = CompileUnit(compiler, [_SOURCE.name], [*(flag for flag in flags if not flag.startswith("-O")), "-O3"])
    digests = {_SOURCE.name: hashlib.sha256(source).hexdigest(), "this CPU": host_cpu_id()}

    def measure(output: Path) -> None:
        with tempfile.TemporaryDirectory(prefix="uma-peak-", dir=output.parent, ignore_cleanup_errors=True) as name:
            program = compile_program([part], {_SOURCE.name: source}, Path(name) / "peak")
            status, text = run([str(program)], cwd=None, timeout_s=_TIMEOUT_S)
        if status != 0 or not re.fullmatch(r"\d+ \d+\n", text):
            raise ToolchainError(
                f"what measures the peak of this machine failed ({ending(status)})\n{excerpt(text)}".rstrip("\n"),
                where=" ".join(flags),
            )
        output.write_text(text, encoding="ascii")

    per_s = map(int, Cache().library(library_key(digests, [part]), measure).read_text(encoding="ascii").split())
    float32, int8 = (macs * 2e-9 or None for macs in per_s)
    return Peaks(float32, int8)
