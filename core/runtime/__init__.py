"""The host side of a compiled model: calling it, in this process, in one of its own, or in an emulator.

`native` needs cffi and numpy and is imported where a model is run. The C that every model shares is in ``csrc/``.
"""

from __future__ import annotations

from ..toolchain.cpu import compiler_features
from ..toolchain.libraries import find_library

__all__ = ["compiler_features", "find_library"]
