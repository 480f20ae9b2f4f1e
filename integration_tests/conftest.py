"""Wheels of the repository, built once, fresh environments, and a folder with models to work in."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from integration_tests.environment import ROOT, Wheels, build_wheels
from tests._support.small_models import NET


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Wheels:
    """The wheels of the core, of all plugins of the repository, and of what brings several of them."""
    plugins = sorted(
        file.parent
        for folder in ("plugins", "examples", "packaging")
        for file in ROOT.glob(f"{folder}/*/pyproject.toml")
    )
    return build_wheels(tmp_path_factory.mktemp("wheels"), [ROOT, *plugins])


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Commands share their compiled models, and nothing of this user's is touched."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("cache")
        folder.chmod(0o700)
        patch.setenv("UMA_CACHE_DIR", str(folder))
        for name in ("CC", "UMA_DISABLE_PLUGINS", "UMA_LIBRARY_PATH"):
            patch.delenv(name, raising=False)
        yield folder


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with the models ``net.py`` and ``digits.onnx``, the latter with its scans."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text(NET)
    for name in ("digits.onnx", "scans.npz"):
        shutil.copy(ROOT / "examples" / "digits" / name, tmp_path)
    return tmp_path
