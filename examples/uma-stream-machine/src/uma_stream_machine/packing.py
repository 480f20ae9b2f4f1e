"""The machine's own format of weights: blocks of eight output channels, each at the bit width that it needs.

A block is a header and rows. The header holds, little-endian: uint32 bits of a weight (1 to 8), uint32 rows, int32
bias[8], int32 multiplier[8], int8 shift[8]. A row holds the weights of the eight channels for one tap and input
channel, eight numbers in two's complement side by side from the lowest bit on: so it takes as many bytes as a weight
has bits. Zeros fill up to a multiple of `WEIGHT_UNIT` bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from uma.errors import PluginError

from .commands import WEIGHT_UNIT

__all__ = ["HEADER_BYTES", "LANES", "Block", "block_bytes", "pack", "unpack", "weight_bits"]

LANES = 8
"""Output channels of a block."""

_HEADER = struct.Struct("<II8i8i8b")

HEADER_BYTES = _HEADER.size
"""Before the rows of a block."""


@dataclass(frozen=True)
class Block:
    """What a block holds.

    Args:
        weights: int8 (rows, `LANES`).
        bias, multiplier, shift: int32 (`LANES`,).
    """

    weights: NDArray[np.int8]
    bias: NDArray[np.int32]
    multiplier: NDArray[np.int32]
    shift: NDArray[np.int32]


def block_bytes(rows: int, bits: int = 8) -> int:
    """Bytes of a block of so many rows of weights of ``bits`` bits."""
    return HEADER_BYTES + -(-rows * bits // WEIGHT_UNIT) * WEIGHT_UNIT


def weight_bits(weights: NDArray[np.integer]) -> int:
    """The least width whose two's complement holds all weights."""
    wide = weights.astype(np.int64)
    largest = int(np.maximum(wide, -1 - wide).max())
    return largest.bit_length() + 1


def pack(
    weights: NDArray[np.int8], bias: Sequence[int], multiplier: Sequence[int], shift: Sequence[int]
) -> tuple[bytes, ...]:
    """The blocks of a layer.

    Args:
        weights: int8 (rows, channels): for each tap and input channel the weights of all output channels.
        bias, multiplier, shift: one number per output channel: int32, 0 to 2**31 - 1, -31 to 30.

    Returns:
        One block for every eight output channels. Those that there are not in the last one are 0.
    """
    rows, channels = weights.shape
    blocks = []
    for first in range(0, channels, LANES):
        count = min(LANES, channels - first)
        part = np.zeros((rows, LANES), np.int64)
        part[:, :count] = weights[:, first : first + count]
        bits = weight_bits(part)
        numbers = [[*row[first : first + count], *[0] * (LANES - count)] for row in (bias, multiplier, shift)]
        whole = np.zeros(rows, np.uint64)
        for lane in range(LANES):
            whole |= (part[:, lane] & ((1 << bits) - 1)).astype(np.uint64) << np.uint64(lane * bits)
        packed = whole.astype("<u8").view(np.uint8).reshape(rows, 8)[:, :bits].tobytes()
        block = _HEADER.pack(bits, rows, *numbers[0], *numbers[1], *numbers[2]) + packed
        blocks.append(block.ljust(block_bytes(rows, bits), b"\0"))
    return tuple(blocks)


def unpack(data: bytes, rows: int) -> list[Block]:
    """The blocks that lie in ``data``, one behind the other, each of so many rows.

    Raises:
        PluginError: these are no such blocks.
    """
    blocks, at = [], 0
    while at < len(data):
        where = f"byte {at} of the weights"
        if len(data) - at < HEADER_BYTES:
            raise PluginError("no block of weights has place here", where=where)
        bits, count, *numbers = _HEADER.unpack_from(data, at)
        if not 1 <= bits <= 8 or count != rows or block_bytes(rows, bits) > len(data) - at:
            raise PluginError(f"no block of {rows} rows: {count} rows of {bits} bits", where=where)
        packed = np.zeros((rows, 8), np.uint8)
        packed[:, :bits] = np.frombuffer(data, np.uint8, rows * bits, at + HEADER_BYTES).reshape(rows, bits)
        whole = packed.view("<u8").astype(np.uint64)
        lanes = (whole >> (np.arange(LANES, dtype=np.uint64) * np.uint64(bits))).astype(np.int64) & ((1 << bits) - 1)
        half = 1 << (bits - 1)
        bias, multiplier, shift = np.array(numbers, np.int32).reshape(3, LANES)
        blocks.append(Block(((lanes ^ half) - half).astype(np.int8), bias, multiplier, shift))
        at += block_bytes(rows, bits)
    return blocks
