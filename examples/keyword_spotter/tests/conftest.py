"""What the tests of the keyword spotter share: one cache of compiled models, and what was built."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path

import pytest

import uma
from uma import Artifact


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("UMA_CACHE_DIR", str(tmp_path_factory.mktemp("cache") / "uma"))
        yield


_build = functools.cache(uma.build)


@pytest.fixture(autouse=True)
def built_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """For each target the model is built once, whoever asks: an artifact does not change."""

    def build(model: Path, target: str) -> Artifact:
        return _build(model, target)

    monkeypatch.setattr(uma, "build", build)
