"""The host side of a compiled model: finding a C compiler and libraries, caching what it makes, calling it.

`toolchain`, `libraries` and `cache` need the standard library only; `native` needs cffi and numpy and is imported where
a model is run. The C that every model shares is in ``csrc/``.
"""

from __future__ import annotations

from .libraries import find_library

__all__ = ["find_library"]
