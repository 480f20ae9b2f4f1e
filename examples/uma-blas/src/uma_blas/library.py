"""Which BLAS is there, and what it calls its functions."""

from __future__ import annotations

from collections.abc import Collection

from uma.hookspecs import Library, c_sources
from uma.toolchain import find_library

__all__ = ["ALTERNATIVES", "library_of", "sources"]

ALTERNATIVES = {
    library.name: library
    for library in (
        Library("openblas", symbols=("cblas_sgemm",)),
        # A wheel, the functions of which have names of their own, so that it bears another BLAS beside it.
        Library("scipy_openblas", "scipy-openblas32", symbols=("scipy_cblas_sgemm",)),
        Library("blas", symbols=("cblas_sgemm",)),
        Library("cblas", symbols=("cblas_sgemm",)),
    )
}
"""By name, the best one first."""


def library_of(name: str, allowed: Collection[str] | None = None) -> Library:
    """The library of that name; of ``auto`` the first that is there and, if the target says so, allowed.

    Where there is none it is the one that pip installs: the core says that it is missing, and what to do.
    """
    if name != "auto":
        return ALTERNATIVES[name]
    candidates = (one for one in ALTERNATIVES.values() if allowed is None or one.name in allowed)
    there = (library for library in candidates if find_library(library) is not None)
    return next(there, ALTERNATIVES["scipy_openblas"])


def sources(library: Library) -> dict[str, str]:
    """The C files for a library."""
    headers = {"uma_blas_library.h": f"#define UMA_BLAS_SGEMM {library.symbols[0]}\n"}
    return headers | c_sources(__package__, "uma_blas.h", "uma_blas.c")
