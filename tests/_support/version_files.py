"""Writes one file of each kind that a later version reads: ``python -m tests._support.version_files FOLDER``.

The committed files in ``tests/version_files`` were written by the version before the current one. After a release, run
this module with the released version and commit what it writes.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import numpy as np
from tests._support.residual_nets import residual_block
from tests._support.small_models import NET

from uma.cli import main
from uma.runtime.state import SessionState

ACCELERATED = ("--target", "matrix_unit", "--target", "c")


def write_all(folder: Path) -> None:
    """Write an artifact, a plan, a kept cost, a dump, a trace and a session state to an empty folder."""
    work = folder / "work"
    work.mkdir(parents=True)
    os.environ["UMA_CACHE_DIR"] = str(work / "cache")
    (work / "cache").mkdir(mode=0o700)
    net, block = work / "net.py", work / "block.onnx"
    net.write_text(NET)
    block.write_bytes(residual_block())
    run("build", net, "--target", "c", "--no-compile", "-o", folder / "artifact.zip", "--dump", work / "dump")
    run("plan", block, *ACCELERATED, "-o", folder / "plan.json")
    run("run", block, *ACCELERATED, "--device-trace", folder / "device.trace")
    shutil.copy(sorted((work / "cache" / "costs").glob("*.json"))[0], folder / "cost.json")
    shutil.make_archive(str(folder / "dump"), "zip", work / "dump")
    SessionState("0" * 64, {"s": np.arange(3, dtype=np.int8)}).write(folder / "state.npz")
    shutil.rmtree(work)


def run(*argv: str | Path) -> None:
    """Run a command that has to succeed."""
    if code := main([*map(str, argv), "-q"]):
        raise SystemExit(f"uma {argv[0]} ended with {code}")


if __name__ == "__main__":
    write_all(Path(sys.argv[1]))
