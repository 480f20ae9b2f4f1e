"""CMake: that of the system, else that of the package `cmake`, which the extra `test` brings."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

CMAKE = shutil.which("cmake") or shutil.which("cmake", path=str(Path(sys.executable).parent))
needs_cmake = pytest.mark.skipif(CMAKE is None, reason="cmake is not installed")
