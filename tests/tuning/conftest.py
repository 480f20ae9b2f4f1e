"""All tests here share compiled models with those of other folders."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session", autouse=True)
def one_cache(shared_cache: Path) -> Path:
    """Nothing of this user's is touched."""
    return shared_cache
