"""The cache of compiled models that folders of tests share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def shared_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Tests that ask for it share their compiled models, and nothing of this user's is touched."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("cache")
        folder.chmod(0o700)
        patch.setenv("UMA_CACHE_DIR", str(folder))
        patch.delenv("CC", raising=False)
        yield folder
