"""A oneDNN for the tests: that of this machine, and one that fails where it is told to."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from uma.toolchain import find_library
from uma_onednn.library import LIBRARY

FAKE = Path(__file__).with_name("fake_dnnl.c")


@pytest.fixture
def real(monkeypatch: pytest.MonkeyPatch) -> str:
    """The targets, with the oneDNN of this machine, which computes in one thread."""
    monkeypatch.delenv("UMA_LIBRARY_PATH", raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    if find_library(LIBRARY) is None:
        pytest.skip("there is no oneDNN 3: neither on the system nor from pip install onednn-cpu-gomp")
    return "c -compiler=onednn"


@pytest.fixture(scope="session")
def fake_dnnl(tmp_path_factory: pytest.TempPathFactory, compilers: tuple[str, ...]) -> Path:
    """The folder of a ``libdnnl.so`` that is none: `fake_dnnl.c`."""
    folder = tmp_path_factory.mktemp("dnnl")
    command = [compilers[0], "-std=c99", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", str(FAKE)]
    csrc = Path(__file__).parents[1] / "src" / "uma_onednn" / "csrc"
    subprocess.run([*command, f"-I{csrc}", "-o", str(folder / "libdnnl.so")], check=True)
    return folder
