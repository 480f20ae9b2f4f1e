"""How large a tile of pixels by channels is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from .units import Unit

__all__ = ["Tile", "choose", "lanes_for"]

_MOST_VECTORS = 4
_LOOP = 0.5
"""What a step costs besides, in cycles: the loop itself."""


@dataclass(frozen=True)
class Tile:
    """A tile whose accumulators are all in registers.

    Args:
        pixels: rows of it.
        vectors: of channels, side by side.
        lanes: channels of a vector.
    """

    pixels: int
    vectors: int
    lanes: int

    @property
    def channels(self) -> int:
        """How many there are."""
        return self.vectors * self.lanes


def lanes_for(channels: int, unit: Unit) -> int | None:
    """The most lanes, at least four, that divide ``channels``; None where none do."""
    lanes = unit.lanes
    while lanes >= 4:
        if channels % lanes == 0:
            return lanes
        lanes //= 2
    return None


def choose(pixels: int, channels: int, step_bytes: int, unit: Unit, cost: float = 1.0, spare: int = 1) -> Tile | None:
    """The tile by which a product of ``pixels`` by ``channels`` takes the fewest cycles; None where there is none.

    A step adds one product to each accumulator. It takes as long as its multiply-adds, as its loads (the weights'
    vectors and a number of each pixel), or as a multiply-add needs for its result, whichever is longest.

    Args:
        pixels: in a row.
        channels: of the result.
        step_bytes: weights of one channel, in bytes: those of a tile are read again for each, and stay in the cache.
        unit: of the CPU.
        cost: multiply-adds of `Unit` that one step of an accumulator takes.
        spare: registers that a step needs besides accumulators and weights.
    """
    lanes = lanes_for(channels, unit)
    if lanes is None:
        return None

    def cycles(tile: Tile) -> float:
        count, rest = divmod(pixels, tile.pixels)
        row = count * _step(tile.pixels, tile.vectors, unit, cost) + (
            _step(rest, tile.vectors, unit, cost) if rest else 0
        )
        return channels // tile.channels * row

    fitting = (t for t in _tiles(pixels, channels // lanes, lanes, unit.registers - spare))
    small = [t for t in fitting if t.vectors == 1 or t.channels * step_bytes <= unit.cache_bytes]
    return min(small, key=lambda tile: (cycles(tile), tile.pixels * tile.vectors), default=None)


def _tiles(pixels: int, vectors: int, lanes: int, registers: int) -> Iterator[Tile]:
    for v in range(1, _MOST_VECTORS + 1):
        if vectors % v == 0:
            for p in range(1, min(pixels, (registers - v) // v) + 1):
                yield Tile(p, v, lanes)


def _step(pixels: int, vectors: int, unit: Unit, cost: float) -> float:
    products = max(pixels * vectors * cost, unit.latency * unit.products if cost == 1 else 0) / unit.products
    return max(products, (pixels + vectors) / unit.loads) + _LOOP
