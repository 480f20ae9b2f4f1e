"""What tests of artifacts share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests._support.scale_artifact import FILES, METADATA, artifact_of

from uma.artifact import Artifact


@pytest.fixture(scope="module")
def cache_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A cache of the file's own, and no compiler that the environment names."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("cache") / "uma"
        patch.setenv("UMA_CACHE_DIR", str(folder))
        patch.delenv("CC", raising=False)
        yield folder


@pytest.fixture
def artifact() -> Artifact:
    return artifact_of(FILES, METADATA)


@pytest.fixture
def saved(artifact: Artifact, tmp_path: Path) -> Path:
    return artifact.save(tmp_path / "scale")
