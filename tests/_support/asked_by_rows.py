"""Strategies asked for loops by rows, whatever the pipeline would ask them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from uma.hookspecs import Fusion


@contextmanager
def asked_by_rows() -> Iterator[None]:
    """Within this, every `Fusion` has ``by_rows`` set."""
    finish = Fusion.__post_init__

    def forced(fusion: Fusion) -> None:
        object.__setattr__(fusion, "by_rows", True)
        finish(fusion)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Fusion, "__post_init__", forced)
        yield
