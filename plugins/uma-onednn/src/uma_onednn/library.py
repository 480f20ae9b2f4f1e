"""Which oneDNN is there."""

from __future__ import annotations

from importlib.resources import files

from uma.errors import ToolchainError
from uma.hookspecs import Library
from uma.toolchain import find_library

__all__ = ["LIBRARY", "check_library", "sources"]

_PACKAGE = "onednn-cpu-gomp"

LIBRARY = Library("dnnl", _PACKAGE, ("dnnl_memory_desc_create_with_strides", "dnnl_matmul_primitive_desc_create"))
"""oneDNN from version 3 on: earlier ones have no such functions."""

_ANY_VERSION = Library("dnnl", _PACKAGE, ("dnnl_version",))


def check_library() -> None:
    """Nothing where oneDNN 3 can be linked with, or there is none at all, of which the core tells.

    Raises:
        ToolchainError: there is an older one.
    """
    if find_library(LIBRARY) is not None:
        return
    older = find_library(_ANY_VERSION)
    if older is not None:
        raise ToolchainError(
            f"{older.name} is oneDNN of a version before 3, or has been built without the functions of 3",
            hint=f"pip install {_PACKAGE}, which goes before it; or name the folder of another in UMA_LIBRARY_PATH",
        )


def sources() -> dict[str, str]:
    """The C files by name."""
    folder = files(__package__) / "csrc"
    names = ("uma_onednn.h", "uma_onednn.c", "uma_onednn_made.h", "uma_onednn_made.c", "uma_onednn_spec.h")
    return {name: (folder / name).read_text(encoding="utf-8") for name in (*names, "uma_onednn_abi.h")}
