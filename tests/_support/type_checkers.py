"""What type checkers say of code that uses `uma` as an author of plugins does: strictly, from outside."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

__all__ = ["CHECKERS", "type_faults"]

CHECKERS = ("mypy", "basedpyright")
"""The second is pyright, with all that it needs in its wheels: nothing is fetched when it runs."""

_SOURCES = Path(__file__).resolve().parents[2] / "src"


def type_faults(checker: str, package: Path) -> str:
    """What a checker, in its strict mode, has to say of a package; nothing where all is well.

    Args:
        checker: one of `CHECKERS`; the test is skipped where it is not installed.
        package: the folder of the package.
    """
    pytest.importorskip(checker, reason=f"{checker} is not installed: `make soak` installs it")
    if checker == "mypy":
        path = os.pathsep.join([str(package.parent), str(_SOURCES)])
        options = ["--strict", "--no-error-summary", "--follow-imports=silent", "--config-file=", "-p", package.name]
        return _said([sys.executable, "-m", "mypy", *options], package.parent, MYPYPATH=path)
    if sys.version_info < (3, 11):
        pytest.skip("numpy for this Python is not typed in full")
    with tempfile.TemporaryDirectory() as folder:
        project = Path(folder, "pyrightconfig.json")
        settings = {"include": [str(package)], "extraPaths": [str(_SOURCES)], "typeCheckingMode": "strict"}
        project.write_text(json.dumps(settings), encoding="utf-8")
        command = [sys.executable, "-m", "basedpyright", "--pythonpath", sys.executable, "--project", str(project)]
        said = _said(command, package.parent)
    return "" if said.startswith("0 errors, 0 warnings") else said


def _said(command: list[str], folder: Path, **variables: str) -> str:
    done = subprocess.run(command, cwd=folder, env={**os.environ, **variables}, capture_output=True, text=True)
    assert done.returncode in (0, 1), done.stdout + done.stderr  # 1: it has found something
    return done.stdout
