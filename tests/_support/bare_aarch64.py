"""Kernels compiled for AArch64 and run on an emulated machine, with clang and lld alone: no sysroot is needed."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from tests._support.c_programs import CSRC, Run, outputs_of, program_text

TOOLS = ("clang", "ld.lld", "qemu-system-aarch64")

_MATH = ("rint", "floor", "ceil", "trunc", "sqrt", "fma", "fabs")
_HEADERS = {
    "math.h": "".join(f"#define {name}{f} __builtin_{name}{f}\n" for name in _MATH for f in ("", "f"))
    + '#define NAN __builtin_nanf("")\n#define INFINITY __builtin_inff()\n',
    "stdio.h": "#pragma once\n#include <stddef.h>\ntypedef struct FILE FILE;\nextern FILE *const stdout;\n"
    "size_t fwrite(const void *, size_t, size_t, FILE *);\n",
    "stdlib.h": "#include <stddef.h>\nvoid abort(void);\nvoid free(void *);\n"
    "int posix_memalign(void **, size_t, size_t);\n",
    "string.h": "#include <stddef.h>\nvoid *memcpy(void *restrict, const void *restrict, size_t);\n",
}
"""What a program of `program_text` uses of the C library; instructions do what it asks of math.h."""


def missing_tool() -> str | None:
    """What is not installed of what this needs."""
    return next((tool for tool in TOOLS if shutil.which(tool) is None), None)


def run_on_aarch64(
    runs: Sequence[Run], flags: Sequence[str], folder: Path, device: str = ""
) -> list[dict[str, np.ndarray]]:
    """The outputs of each run, by name, as `run_compiled` gives them.

    Raises:
        AssertionError: the compiler or the program complains.
    """
    for name, text in _HEADERS.items():
        (folder / name).write_text(text)
    (folder / "program.c").write_text(program_text(runs, device))
    machine = ["clang", "--target=aarch64-none-elf", "-ffreestanding", "-fno-math-errno", "-I.", "-I", str(CSRC)]
    bare = Path(__file__).with_name("bare_aarch64.c")
    emulated = ["qemu-system-aarch64", "-M", "virt", "-cpu", "max", "-m", "512", "-net", "none", "-display", "none"]
    for command in (
        [*machine, *flags, "-c", "program.c", "-o", "program.o"],
        [*machine, "-O1", "-c", str(bare), "-o", "bare.o"],
        ["ld.lld", "-Ttext=0x40080000", "--entry=_start", "bare.o", "program.o", "-o", "program"],
        [*emulated, "-semihosting-config", "enable=on,target=native", "-kernel", "program"],
    ):
        done = subprocess.run(command, cwd=folder, capture_output=True, check=False, timeout=600)
        assert done.returncode == 0, f"{' '.join(command)}\n{done.stderr.decode(errors='replace')}"
    return outputs_of(runs, done.stdout)
