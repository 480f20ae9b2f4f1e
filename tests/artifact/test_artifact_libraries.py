"""Artifacts that call libraries: found when they are compiled, on the machine that compiles them."""

from __future__ import annotations

import copy
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests._support.scale_artifact import FILES, METADATA, SCALE_C, X, artifact_of

from uma.artifact import Artifact, load
from uma.errors import ToolchainError

CALLING_C = SCALE_C.replace("arena[i] = ", "arena[i] = twice(1) * ").replace(
    "static uma_status init", "int twice(int);\n static uma_status init", 1
)


@pytest.fixture(autouse=True)
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UMA_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("UMA_LIBRARY_PATH", raising=False)
    monkeypatch.delenv("CC", raising=False)


def calling(package: str | None = None) -> Artifact:
    """The model ``scale``, which multiplies with what a library gives."""
    record: dict[str, Any] = copy.deepcopy(METADATA)
    record["compile"]["libraries"] = [{"name": "twice", "package": package, "symbols": ["twice"]}]
    return artifact_of({**FILES, "scale.c": CALLING_C}, record)


def made(folder: Path, factor: int) -> Path:
    """A library that multiplies by ``factor``."""
    folder.mkdir(exist_ok=True)
    (folder / "twice.c").write_text(f"int twice(int x) {{ return {factor} * x; }}\n")
    command = [shutil.which("cc") or "gcc", "-shared", "-fPIC", "twice.c", "-o", "libtwice.so"]
    subprocess.run(command, cwd=folder, check=True)
    return folder


def test_it_is_found_where_the_model_is_compiled(
    compilers: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UMA_LIBRARY_PATH", str(made(tmp_path / "lib", 2)))
    artifact = calling()
    np.testing.assert_array_equal(artifact.run(X)["y:0"], [2, -8, 18, 800])
    np.testing.assert_array_equal(artifact.profile(X, repeat=1).outputs["y:0"], [2, -8, 18, 800])
    assert str(tmp_path) not in str(artifact.metadata)
    loaded = load(artifact.save(tmp_path / "saved"))
    np.testing.assert_array_equal(loaded.run(X)["y:0"], [2, -8, 18, 800])


@pytest.mark.usefixtures("compilers")
def test_another_one_makes_another_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    models = []
    for factor in 2, 3:
        monkeypatch.setenv("UMA_LIBRARY_PATH", str(made(tmp_path / str(factor), factor)))
        models.append(calling()._compiled.library())
        np.testing.assert_array_equal(calling().run(X)["y:0"], np.array([1, -4, 9, 400]) * factor)
    assert models[0] != models[1]
    assert calling()._compiled.library() == models[1]
    library = tmp_path / "3" / "libtwice.so"
    os.utime(library, ns=(0, 0))
    assert len(list((tmp_path / "cache").iterdir())) == 2
    calling()._compiled.library()
    keys = {entry.name.partition("-")[0] for entry in (tmp_path / "cache").iterdir()}
    assert len(keys) == 3


@pytest.mark.usefixtures("compilers")
def test_it_is_missing_on_this_machine(tmp_path: Path) -> None:
    artifact = calling("twice-lib")
    for use in (lambda: artifact.run(X), lambda: artifact.profile(X), lambda: artifact.code_bytes):
        with pytest.raises(ToolchainError, match="library 'twice' is missing") as error:
            use()
        assert error.value.where == "model scale"
        assert error.value.hint is not None and "pip install twice-lib" in error.value.hint
    assert load(artifact.save(tmp_path / "saved")).name == "scale"


def test_a_library_that_goes_meanwhile(
    compilers: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "libtwice.so"
    monkeypatch.setattr("uma.artifact.local_build.require_library", lambda *given: gone)
    with pytest.raises(ToolchainError, match="a library cannot be read any more: No such file") as error:
        calling().run(X)
    assert error.value.where == str(gone)


@pytest.mark.usefixtures("compilers")
def test_the_makefile_links_it(tmp_path: Path) -> None:
    make = shutil.which("make")
    if make is None:
        pytest.skip("make is not installed")
    artifact = calling()
    assert "\nLDLIBS = -ltwice -lm\n" in artifact.source("Makefile")
    folder = artifact.save(tmp_path / "saved")
    library = made(tmp_path / "lib", 5)
    command = [make, "-s", f"LDFLAGS=-L{library} -Wl,-rpath,{library}"]
    subprocess.run(command, cwd=folder, check=True, timeout=60)
    done = subprocess.run([folder / "scale_example"], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["5", "10", "15", "20"]
