"""Memory of an output that lies over an input: what is written of the one is lost of the other."""

from __future__ import annotations

from typing import Any

from .dtype import itemsize
from .nodes import Buffer

__all__ = ["Overlaid"]


class Overlaid(list[Any]):
    """The elements of an output, None where there is no value, over the memory of inputs."""

    def __init__(self, out: Buffer) -> None:
        super().__init__([None] * out.size)
        self.itemsize = itemsize(out.dtype)
        self.under: list[tuple[list[Any], int, int]] = []

    def lay_over(self, x: Buffer, elements: list[Any], distance: int) -> None:
        """Have elements of ``x``, which begins ``distance`` bytes behind this memory, be lost where they are written
        over."""
        self.under.append((elements, distance, itemsize(x.dtype)))

    def __setitem__(self, position: Any, value: Any) -> None:
        super().__setitem__(position, value)
        for elements, distance, size in self.under:
            low, high = (at * self.itemsize - distance for at in (position, position + 1))
            for lost in range(max(0, low // size), min(len(elements), -(-high // size))):
                elements[lost] = None
