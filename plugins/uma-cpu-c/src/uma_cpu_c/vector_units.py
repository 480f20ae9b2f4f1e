"""The vector units of CPUs in five numbers each, from which tiles are chosen."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

__all__ = ["VectorModel", "unit_of"]


@dataclass(frozen=True)
class VectorModel:
    """What a CPU has for vectors of floats.

    Args:
        bytes: of a vector.
        registers: how many vectors it holds.
        products: multiply-adds of whole vectors that begin in a cycle.
        loads: vectors, or numbers that fill one, that are loaded in a cycle.
        latency: of a multiply-add, in cycles.
        cache_bytes: of the cache of a core that holds what is read again and again (L2).
        parts: that a vector is multiplied in: of smaller ones so many times as many begin in a cycle.
    """

    bytes: int
    registers: int
    products: int
    loads: int
    latency: int
    cache_bytes: int = 512 << 10
    parts: int = 1

    @property
    def lanes(self) -> int:
        """Numbers of 32 bits in a vector."""
        return self.bytes // 4


_LEVELS: Mapping[str, VectorModel] = {
    "avx512bw": VectorModel(64, 32, 2, 2, 4, 1 << 20),
    "avx2": VectorModel(32, 16, 2, 2, 4),
    "asimd": VectorModel(16, 32, 2, 2, 4),
}
"""By the feature that a CPU has, the best first."""

_CPUS: Mapping[str, VectorModel] = {
    "haswell": VectorModel(32, 16, 2, 2, 5, 256 << 10),
    "broadwell": VectorModel(32, 16, 2, 2, 5, 256 << 10),
    "znver1": VectorModel(32, 16, 1, 1, 5, parts=2),
    "znver2": VectorModel(32, 16, 2, 2, 5),
    "znver4": VectorModel(64, 32, 1, 2, 4, 1 << 20, parts=2),
    "cortex-a53": VectorModel(16, 32, 1, 1, 8),
    "cortex-a55": VectorModel(16, 32, 1, 1, 4),
    "neoverse-v1": VectorModel(16, 32, 4, 3, 4, 1 << 20),
    "neoverse-v2": VectorModel(16, 32, 4, 3, 4, 1 << 20),
    "apple-m1": VectorModel(16, 32, 4, 3, 3, 4 << 20),
}
"""Those that differ from others of their level (Agner Fog's instruction tables; Arm's optimisation guides)."""


def unit_of(mcpu: str, features: Collection[str]) -> VectorModel | None:
    """The row of a CPU, by its name, else by what it can; None where no vector unit is known."""
    if mcpu in _CPUS:
        return _CPUS[mcpu]
    return next((unit for feature, unit in _LEVELS.items() if feature in features), None)
