"""The oldest and the newest Python that UMA is for, where this machine has them: the wheels install, build and run.

Their dependencies cannot be this Python's: the installer gets them, from its cache or from where it gets packages.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from integration_tests.environment import Environment, Wheels
from integration_tests.relu_unit import relu_unit

PLATFORM = "import sys; print(*sys.version_info[:2], sep='.')"


def interpreter(version: str) -> str | None:
    """One of this version: on PATH, or beside the one that runs."""
    return next((python for python in _candidates(version) if _version(python) == version), None)


def _candidates(version: str) -> Iterator[str]:
    if found := shutil.which(f"python{version}"):
        yield found
    # Managers of Pythons keep each in a folder of its own.
    yield from map(str, Path(sys.base_prefix).parent.glob(f"*{version}*/bin/python{version}"))


def _version(python: str) -> str | None:
    done = subprocess.run([python, "-c", PLATFORM], capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else None


@pytest.mark.soak
@pytest.mark.parametrize("version", ["3.10", "3.13"])
def test_all_plugins_on_another_python(version: str, wheels: Wheels, tmp_path: Path, folder: Path) -> None:
    python = interpreter(version)
    if python is None:
        pytest.skip(f"there is no Python {version} here")
    env = Environment(tmp_path / "venv", wheels, python=python)
    refused = env.try_to_install("uma-core[onnx]", *wheels.kinds)
    if refused:
        pytest.skip(f"the dependencies cannot be installed for Python {version}: {refused.strip()[-300:]}")
    env.install(relu_unit(tmp_path, "1.0"))
    assert f"Python {version}." in env.uma("doctor").out
    listed = env.uma("plugins", "--json").json["plugins"]
    assert {row["state"] for row in listed} == {"compatible"} and len(listed) == len(wheels.kinds) + 1
    kinds = [*wheels.accelerators, "relu_unit", "c"]
    targets = [word for kind in kinds for word in ("--target", kind)]
    for model, tensor in (("digits.onnx", "scan"), ("net.py", "image:0")):
        run = ("run", model, "--input", f"{tensor}=random:5", "--outputs")
        for outputs, chosen in (("c.npz", ["--target", "c"]), ("all.npz", targets)):
            done = env.uma(*run, outputs, *chosen)
            assert done.code == 0, done.err
        with np.load(folder / "c.npz") as want, np.load(folder / "all.npz") as got:
            assert all(np.array_equal(want[name], got[name]) for name in want)
    assert "cannot be imported" not in env.uma("targets").out
    env.uninstall("uma-relu-unit")
    assert "there is no target kind 'relu_unit'" in env.uma("build", "net.py", "--target", "relu_unit").error(2)
