"""A BLAS for the tests: the one of this machine, and one that checks how it is called."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from uma.toolchain import find_library
from uma_blas.library import library_of

CHECKED = Path(__file__).with_name("checked_blas.c")


@pytest.fixture(scope="session")
def checked_blas(tmp_path_factory: pytest.TempPathFactory, compilers: tuple[str, ...]) -> Path:
    """The folder of ``libopenblas.so``, which is none: `checked_blas.c`."""
    folder = tmp_path_factory.mktemp("blas")
    command = [compilers[0], "-std=c99", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", str(CHECKED)]
    subprocess.run([*command, "-o", str(folder / "libopenblas.so")], check=True)
    return folder


@pytest.fixture
def checked(checked_blas: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The target, with the BLAS that checks."""
    monkeypatch.setenv("UMA_LIBRARY_PATH", str(checked_blas))
    return "blas -library=openblas"


@pytest.fixture
def real(monkeypatch: pytest.MonkeyPatch) -> str:
    """The target, with the BLAS of this machine."""
    monkeypatch.delenv("UMA_LIBRARY_PATH", raising=False)
    if find_library(library_of("auto")) is None:
        pytest.skip("there is no BLAS: neither on the system nor from pip install scipy-openblas32")
    return "blas"


@pytest.fixture(params=["checked", "real"])
def target(request: pytest.FixtureRequest) -> str:
    """The target, with either."""
    found: str = request.getfixturevalue(request.param)
    return found
