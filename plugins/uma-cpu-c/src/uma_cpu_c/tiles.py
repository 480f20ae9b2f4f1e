"""How large a tile of pixels by channels is."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from .products import LANES, ROOM
from .vector_units import VectorModel

__all__ = ["Tile", "choose"]

_MOST_VECTORS = 4
_MOST_ALONE = 6
"""Pixels of a tile whose channels have data of their own: more save few loads, and take long to compile."""
_SHORT = 3
"""Steps of a row of a window that compilers write out."""
_CHAINS = 1.25
"""Accumulators for each multiply-add in flight: with just one, each waits for the one before where a load is late."""
_TAIL = 1.1
"""What a tail has to be better by: it is code of its own."""
_LOADS = 0.8
"""Of the loads that a CPU can begin: lines of the cache that are not there yet take their part."""
_SHARE = 0.02
"""Of loads that does not go on beside multiply-adds: a tile of many rows reads from as many places."""
_FAR = 3
"""Loads that one of weights counts as there: they come from the second cache."""
_FIRST_CACHE, _SET_BYTES = 32 << 10, 4 << 10
"""Of the first cache: its bytes, and how far apart lines lie that share places in it, whatever CPU it is of."""
_LOOP = 0.5
"""What a step costs besides, in cycles: the loop itself."""


@dataclass(frozen=True)
class Tile:
    """A tile whose accumulators are all in registers.

    Args:
        pixels: rows of it.
        vectors: of channels, side by side.
        lanes: channels of a vector.
        cycles: that a row of pixels takes, as `choose` estimates.
    """

    pixels: int
    vectors: int
    lanes: int
    cycles: float = field(default=0.0, compare=False)

    @property
    def channels(self) -> int:
        """How many there are."""
        return self.vectors * self.lanes


def choose(
    pixels: int,
    channels: int,
    steps: int,
    step_bytes: int,
    unit: VectorModel,
    *,
    cost: float = 1.0,
    epilogue: float = 1.0,
    spare: int = 1,
    row: int = 0,
    pitch: int = 0,
) -> Tile | None:
    """The tile by which a product of ``pixels`` by ``channels`` takes the fewest cycles; None where there is none.

    A step adds one product to each accumulator. It takes as long as its multiply-adds, as its loads (the weights'
    vectors and a number of each pixel), or as a multiply-add needs for its result, whichever is longest. After the last
    one, something is done to the sums in as wide vectors as a tile has channels for.

    Args:
        pixels: in a row.
        channels: of the result.
        steps: how often something is added to each sum.
        step_bytes: weights of one channel in a step: those of a tile are read again for each, and stay in the cache.
        unit: of the CPU.
        cost: multiply-adds of `Unit` that one step of an accumulator takes.
        epilogue: cycles of what is done to a vector of sums afterwards.
        spare: registers that a step needs besides accumulators and weights.
        row: of a window whose channels have data of their own, so that vectors of it are loaded; 0 for others.
        pitch: bytes of the data from one pixel to the next: where lines of many pixels share a few places in the first
            cache, a tile has no more pixels than places; 0 where that is not known.
    """

    def cycles(tile: Tile) -> float:
        count, rest = divmod(pixels, tile.pixels)
        begun = unit.products * (1 if tile.lanes == unit.lanes else unit.parts)
        row = count * step(tile.pixels, tile.vectors, begun) + (step(rest, tile.vectors, begun) if rest else 0)
        products = -(-channels // tile.channels) * row * (_TAIL if rest else 1)
        return products * steps + epilogue * pixels * vectors(tile)

    def vectors(tile: Tile) -> int:
        whole, rest = divmod(channels, tile.channels)
        # What is read of a pixel alone in vectors that overlap is kept in memory while it is added to, by gcc.
        apart = 0 if tile.pixels > 1 else rest % tile.lanes
        return whole * _pieces(tile.channels, unit.lanes) + max(_pieces(rest, unit.lanes), apart)

    def step(pixels: int, vectors: int, begun: int) -> float:
        in_flight = _CHAINS * unit.latency * begun if cost == 1 else 0
        products = max(pixels * vectors * cost, in_flight) / begun
        data = pixels * vectors if row else pixels
        far = (data + _FAR * vectors) / (_LOADS * unit.loads)
        return max(products, (data + vectors) / (_LOADS * unit.loads)) + _SHARE * far + _LOOP

    def held(tile: Tile) -> int:
        # Of a longer row compilers keep what the next step reads as well.
        return (tile.pixels * (2 if row > _SHORT else 1) + 1) * tile.vectors

    places = _FIRST_CACHE // math.gcd(pitch, _SET_BYTES) if pitch else pixels
    most = min(pixels, _MOST_ALONE if row else places)
    narrowing = (unit.lanes >> shift for shift in range(unit.lanes.bit_length()))
    lanes = [n for n in narrowing if n >= LANES]
    tiles = (t for n in lanes for t in _tiles(most, -(-channels // n), n, unit.registers - spare))
    room = 0 if channels % LANES == 0 else ROOM
    fitting = (t for t in tiles if not row or (-channels % t.channels <= room and held(t) <= unit.registers - spare))
    small = [t for t in fitting if t.vectors == 1 or 2 * t.channels * steps * step_bytes <= unit.cache_bytes]
    timed = (replace(tile, cycles=cycles(tile)) for tile in small)
    return min(timed, key=lambda tile: (tile.cycles, tile.lanes, tile.pixels * tile.vectors), default=None)


def _tiles(pixels: int, vectors: int, lanes: int, registers: int) -> Iterator[Tile]:
    for v in range(1, _MOST_VECTORS + 1):
        # Where all registers are taken, weights of several vectors are loaded again for each pixel.
        most = (registers - v - (v > 2)) // v
        for p in range(1, min(pixels, most) + 1 if v <= vectors else 0):
            yield Tile(p, v, lanes)


def _pieces(channels: int, lanes: int) -> int:
    """Vectors that so many channels are made in: what fills none is two that overlap, if it is not a power of two."""
    whole, rest = divmod(channels, lanes)
    return whole + min(rest.bit_count(), 2)
