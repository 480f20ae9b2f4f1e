"""A layer's weights as the machine wants them: their order, and the records of bias and scale beside them.

`csrc/eu_weights.c` has a reading of the order of its own; `compression.py` makes the streams.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from uma.errors import PluginError

from .compression import ALIGNMENT, encode

__all__ = ["Encoded", "Order", "Record", "encode_filter", "traversal"]

RECORD_BYTES = 10


@dataclass(frozen=True)
class Order:
    """What the order of an operation's weights depends on.

    Attributes:
        ofm_ublock_depth: output channels of a micro-block: 4 on the machine of 32 MACs, else 8.
        ifm_ublock_depth: its input channels: 8.
        ofm_block_depth: output channels of a block of the operation, a multiple of `ofm_ublock_depth`.
        ifm_bits: 8 or 16.
        depthwise: the operation is depthwise.
        part_kernel: elements of the kernel come before input channels (never for a depthwise operation).
        dilation: vertical and horizontal, 1 or 2: a part of a kernel spans 8 pixels at most.
    """

    ofm_ublock_depth: int
    ofm_block_depth: int
    ifm_bits: int = 8
    depthwise: bool = False
    part_kernel: bool = False
    dilation: tuple[int, int] = (1, 1)
    ifm_ublock_depth: int = 8

    def __post_init__(self) -> None:
        wrong = None
        if self.ofm_block_depth < 1 or self.ofm_block_depth % self.ofm_ublock_depth:
            wrong = f"blocks of {self.ofm_block_depth} output channels are not a multiple of {self.ofm_ublock_depth}"
        elif self.ifm_bits not in (8, 16):
            wrong = f"inputs have 8 or 16 bits, not {self.ifm_bits}"
        elif self.depthwise and self.part_kernel:
            wrong = "a depthwise kernel is not taken part by part"
        elif not set(self.dilation) <= {1, 2}:
            wrong = f"kernels are dilated by 1 or 2, not by {self.dilation}"
        if wrong:
            raise PluginError(f"weights have no such order: {wrong}")


def traversal(shape: Sequence[int], order: Order) -> NDArray[np.int64]:
    """Where the machine's weights come from, one after the other.

    Args:
        shape: of the weights: output channels, height, width, input channels (1 if depthwise).
        order: of the operation.

    Returns:
        Indices into the flat weights; -1 where a zero fills up what the array takes at once.
    """
    outputs, height, width, inputs = shape
    block, parts = order.ofm_block_depth, []
    whole, rest = divmod(outputs, block)
    for depth, first, count in ((block, 0, whole), (rest, whole * block, 1)):
        if depth and count:
            output, tap, channel = _block(depth, height, width, inputs, order)
            output = output + (first + block * np.arange(count))[:, None]
            real = (output < outputs) & (tap >= 0) & (channel < inputs)
            parts.append(np.where(real, (output * (height * width) + tap) * inputs + channel, -1).reshape(-1))
    return np.concatenate(parts)


def _block(depth: int, height: int, width: int, inputs: int, order: Order) -> tuple[NDArray[np.int64], ...]:
    """Output channel, element of the kernel (-1: none) and input channel of each weight of a block."""
    lanes = 1 if order.depthwise else order.ifm_ublock_depth
    slab = 16 if order.part_kernel or order.ifm_bits == 16 else 32
    at_once = 4 if order.depthwise else 1 if not order.part_kernel else 2 if order.ifm_bits == 16 else 4
    sub_height, sub_width = (8 // one for one in order.dilation)
    output = np.arange(0, depth, order.ofm_ublock_depth)
    output_lane, input_lane = np.arange(order.ofm_ublock_depth), np.arange(lanes)
    pieces = []
    for first in range(0, inputs, slab):
        end = lanes if order.depthwise else min(slab, inputs - first) if order.part_kernel else slab
        channel = np.arange(first, first + end, order.ifm_ublock_depth)
        for y in range(0, height, sub_height):
            for x in range(0, width, sub_width):
                rows = np.arange(y, min(y + sub_height, height))
                columns = np.arange(x, min(x + sub_width, width))
                tap = (rows[:, None] * width + columns).reshape(-1)
                tap = np.concatenate([tap, np.full(-len(tap) % at_once, -1)])
                if order.part_kernel:
                    grid = np.meshgrid(channel, output, tap, output_lane, input_lane, indexing="ij")
                    channels, outputs, taps = grid[0] + grid[4], grid[1] + grid[3], grid[2]
                else:
                    grid = np.meshgrid(output, tap, channel, output_lane, input_lane, indexing="ij")
                    channels, outputs, taps = grid[2] + grid[4], grid[0] + grid[3], grid[1]
                pieces.append([outputs.reshape(-1), taps.reshape(-1), channels.reshape(-1)])
    output, tap, channel = (np.concatenate(one) for one in zip(*pieces, strict=True))
    return output, tap, channel


@dataclass(frozen=True)
class Record:
    """What is done to the sum of an output channel: (sum + bias) * scale / 2 ** shift, rounded.

    Attributes:
        bias: 40 bits, with sign.
        scale: 32 bits, without.
        shift: 0 to 63.
    """

    bias: int
    scale: int
    shift: int

    def __post_init__(self) -> None:
        for name, value, least, most in (
            ("bias", self.bias, -(1 << 39), (1 << 39) - 1),
            ("scale", self.scale, 0, (1 << 32) - 1),
            ("shift", self.shift, 0, 63),
        ):
            if not least <= value <= most:
                raise PluginError(f"no record of bias and scale: its {name} is {value}, not {least} to {most}")

    def pack(self) -> bytes:
        """The 10 bytes that the machine reads."""
        return (self.bias & (1 << 40) - 1 | self.scale << 40 | self.shift << 72).to_bytes(RECORD_BYTES, "little")

    @classmethod
    def unpack(cls, data: bytes) -> Record:
        """The record that 10 bytes hold; what is not its, two bits, is 0."""
        word = int.from_bytes(data, "little")
        if len(data) != RECORD_BYTES or word >> 78:
            raise PluginError(f"no record of bias and scale: {data.hex()}")
        bias = word & (1 << 40) - 1
        return cls(bias - (bias >> 39 << 40), word >> 40 & (1 << 32) - 1, word >> 72)


@dataclass(frozen=True, eq=False)
class Encoded:
    """A filter, or a part of it by output channels, as the machine reads it.

    Attributes:
        data: records, then weights, both at multiples of 16 bytes.
        records: first byte of the records, and how many, filled up to a multiple of 16.
        weights: first byte of the compressed weights, and how many.
    """

    data: bytes
    records: tuple[int, int]
    weights: tuple[int, int]


def encode_filter(weights: NDArray[np.integer], records: Sequence[Record], order: Order) -> Encoded:
    """A filter in the order of an operation.

    Args:
        weights: output channels, height, width, input channels; -255 to 255, their zero point taken off.
        records: one for each output channel.
        order: of the operation.

    Raises:
        PluginError: a weight that has more than 9 bits, or another number of records.
    """
    if len(records) != len(weights):
        raise PluginError(f"{len(weights)} output channels have {len(records)} records of bias and scale")
    indices = traversal(weights.shape, order)
    stream = encode(np.where(indices < 0, 0, weights.reshape(-1)[indices]))
    packed = b"".join(one.pack() for one in records)
    packed += bytes(-len(packed) % ALIGNMENT)
    return Encoded(packed + stream, (0, len(packed)), (len(packed), len(stream)))
