"""A folder with small models to work in, and the command line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests._support.small_models import NET, PAIR, Uma


@pytest.fixture(scope="session", autouse=True)
def one_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """All tests share their compiled models, and nothing of this user's is touched."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("cache")
        folder.chmod(0o700)
        patch.setenv("UMA_CACHE_DIR", str(folder))
        patch.delenv("CC", raising=False)
        yield folder


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with the models ``net.py`` and ``pair.py``."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text(NET)
    (tmp_path / "pair.py").write_text(PAIR)
    return tmp_path


@pytest.fixture
def uma(folder: Path, capsys: pytest.CaptureFixture[str]) -> Uma:
    """The command line, in a folder with models."""
    return Uma(capsys)


@pytest.fixture
def files(folder: Path) -> Iterator[None]:
    """Checks that a test leaves the files of its folder as they are."""

    def state() -> dict[str, bytes | None]:
        return {str(p): p.read_bytes() if p.is_file() else None for p in sorted(folder.rglob("*"))}

    before = state()
    yield
    assert state() == before
