"""Silence for libraries that talk while they work."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["suppress_logging"]


@contextmanager
def suppress_logging() -> Iterator[None]:
    """Within, nothing is logged, and no warning is heard."""
    root, silent = logging.getLogger(), logging.NullHandler()
    disabled = root.manager.disable
    root.addHandler(silent)  # else the first word would set up a handler for the whole process
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)
        root.removeHandler(silent)
