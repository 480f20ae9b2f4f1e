"""A network as the driver takes it: one blob with everything that a start needs, and the text of it.

Words of 32 bits, little-endian:

- ``MAGIC``; the CRC-32 of all from the third word up to the places; counts (layers, loads << 8, stores << 16); bytes of
  weights; bytes of biases;
- for each load, then each store, its shape: frames, channels << 8, feature memory << 16;
- for each layer its register: low word, high word;
- the words of the weight memory, then those of the bias memory, then zeros up to a whole word;
- the places: for each load, then each store, the offset in a region of the caller's memory, and which one. They are
  filled in when the program's memory has been planned.

A load brings a map from the caller's memory (frames by channels, a byte each) into a feature memory before the start,
a store takes one back after the end.
"""

from __future__ import annotations

import binascii
import struct
from collections.abc import Sequence
from dataclasses import dataclass

from uma.errors import PluginError
from uma.hookspecs import BitField, Blob, Relocation

from .registers import REGISTER_BITS, Layer

__all__ = ["FIELDS", "MAGIC", "Image", "Transfer", "describe"]

MAGIC = 0x314E5455  # "UTN1"

FIELDS = (BitField("offset", 32), BitField("base", 32))
"""What relocations fill in."""

_HEAD = struct.Struct("<5I")
_CHECKED_FROM = 8


@dataclass(frozen=True)
class Transfer:
    """A map between a feature memory and memory of the caller.

    Args:
        symbol: the parameter of the extern.
        memory: 0 to 2.
        frames, channels: of the map.
    """

    symbol: str
    memory: int
    frames: int
    channels: int

    @property
    def shape_word(self) -> int:
        """Its description in the blob."""
        return self.frames | self.channels << 8 | self.memory << 16


@dataclass(frozen=True)
class Image:
    """One start of the machine.

    Args:
        layers: in order, the last one marked so, each with the name of the model's layer that it is.
        weights, biases: the words of all layers, as `weight_words` and `bias_words` of `packing` give them, one layer
            behind the other.
        loads: the maps that are there before, at most one for each memory.
        stores: the maps that are taken afterwards.
    """

    layers: Sequence[tuple[Layer, str]]
    weights: bytes
    biases: bytes
    loads: Sequence[Transfer]
    stores: Sequence[Transfer]

    def blob(self, name: str = "network") -> Blob:
        """As a blob with relocations for the places, and marks for the layers."""
        transfers = [*self.loads, *self.stores]
        shapes = struct.pack(f"<{len(transfers)}I", *(one.shape_word for one in transfers))
        registers = b"".join(struct.pack("<Q", layer.register) for layer, _ in self.layers)
        counts = len(self.layers) | len(self.loads) << 8 | len(self.stores) << 16
        body = struct.pack("<3I", counts, len(self.weights), len(self.biases))
        body += shapes + registers + self.weights + self.biases
        body += bytes(-len(body) % 4)
        data = struct.pack("<2I", MAGIC, binascii.crc32(body)) + body
        places = []
        for number, one in enumerate(transfers):
            at = len(data) + 8 * number
            places.append(Relocation(at, "offset", one.symbol))
            places.append(Relocation(at + 4, "base", one.symbol, value="base"))
        first = _HEAD.size + len(shapes)
        marks = tuple((first + 8 * number, layer) for number, (_, layer) in enumerate(self.layers))
        return Blob(name, data + bytes(8 * len(transfers)), 4, tuple(places), marks)


def describe(data: bytes) -> list[tuple[int, str]]:
    """A blob with its places filled in, as rows of offset and text, for ``uma explain --stream``.

    Raises:
        PluginError: it is not a network, or damaged; a register is illegal.
    """
    if len(data) < _HEAD.size or len(data) % 4:
        raise PluginError(f"{len(data)} bytes are not network")
    magic, crc, counts, n_weights, n_biases = _HEAD.unpack_from(data)
    n_layers, n_loads, n_stores = counts & 0xFF, counts >> 8 & 0xFF, counts >> 16
    registers = _HEAD.size + 4 * (n_loads + n_stores)
    end = -(-(registers + 8 * n_layers + n_weights + n_biases) // 4) * 4
    if magic != MAGIC or len(data) != end + 8 * (n_loads + n_stores):
        raise PluginError(f"{len(data)} bytes are not network")
    if binascii.crc32(data[_CHECKED_FROM:end]) != crc:
        raise PluginError("the network is damaged: its check sum is another")
    rows = [(0, f"network: {n_layers} layers, {n_weights} bytes of weights, {n_biases} bytes of biases")]
    for number in range(n_loads + n_stores):
        at = _HEAD.size + 4 * number
        (shape,) = struct.unpack_from("<I", data, at)
        offset, base = struct.unpack_from("<2I", data, end + 8 * number)
        memory, frames, channels = f"m{shape >> 16}", shape & 0xFF, shape >> 8 & 0xFF
        ends = (f"r{base}+{offset:#x}", memory)
        source, destination = ends if number < n_loads else reversed(ends)
        action = "load" if number < n_loads else "store"
        size = f"{frames} frame{'s' if frames > 1 else ''} of {channels} channel{'s' if channels > 1 else ''}"
        rows.append((at, f"{action} {source} -> {destination}, {size}"))
    for number in range(n_layers):
        at = registers + 8 * number
        (register,) = struct.unpack_from("<Q", data, at)
        rows.append((at, f"register {number:2} = {register:#0{REGISTER_BITS // 4 + 3}x}  {Layer.decode(register)}"))
    return rows
