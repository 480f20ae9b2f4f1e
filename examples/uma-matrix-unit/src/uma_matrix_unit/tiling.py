"""What a layer is to the machine, and how it is cut to fit the scratchpads."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from .machine import LANES, MAX_DEPTH, MAX_EDGE, MAX_TAPS, RECORD_BYTES, Machine

__all__ = ["Shape", "Tiling", "choose_tiling", "parts", "window_bytes"]


@dataclass(frozen=True)
class Shape:
    """The sizes of a convolution. A dense layer is one of 1x1 over as many pixels as it has rows.

    Args:
        batch, height, width, channels: of the input, channels last.
        kernel, strides: of height and width.
        padding: top, left, bottom, right.
        out_height, out_width, out_channels: of the output.
        residual_taps: of the products that add a residual to the sums; 0 where there is none.
    """

    batch: int
    height: int
    width: int
    channels: int
    kernel: tuple[int, int]
    strides: tuple[int, int]
    padding: tuple[int, int, int, int]
    out_height: int
    out_width: int
    out_channels: int
    residual_taps: int = 0

    @property
    def taps(self) -> int:
        """Rows of the kernel."""
        return self.kernel[0]

    @property
    def depth(self) -> int:
        """Bytes of one tap: a row of the kernel lies side by side in memory, as the pixels under it do."""
        return self.kernel[1] * self.channels

    @property
    def is_padded(self) -> bool:
        """Whether windows reach beyond the picture."""
        rows, columns = self.window(self.out_height, self.out_width)
        top, left, _, _ = self.padding
        return top > 0 or left > 0 or rows > self.height or columns > self.width

    @property
    def residual_bytes(self) -> int:
        """Weights that add a residual: a square of `LANES` for each tap, the same for all blocks."""
        return self.residual_taps * LANES * LANES

    @property
    def blocks(self) -> int:
        """Output channels in eights, the last block perhaps not full."""
        return parts(self.out_channels, LANES)

    def window(self, height: int, width: int) -> tuple[int, int]:
        """Rows and columns of the input under ``height`` x ``width`` pixels of the output."""
        extents = zip((height, width), self.strides, self.kernel, strict=True)
        rows, columns = ((size - 1) * stride + taps for size, stride, taps in extents)
        return rows, columns


@dataclass(frozen=True)
class Tiling:
    """How a layer is cut.

    Args:
        height, width: pixels of the output that are made at a time.
        blocks: blocks of output channels whose records, and weights where they are ``resident``, are held at a time.
        taps, depth: what one ``mac`` takes; several taps only of full depth.
        resident: the weights of a block fit the scratchpad, and stay in it for all pixels. Else each ``mac`` loads its
            own.
        ahead: of what the DMA queue moves some while the array computes, in scratchpads that are held twice: pixels of
            the next and of the last tile (``tiles``); the next weights, the only tile staying (``groups``); what the
            next ``mac`` needs (``steps``); nothing (None).
    """

    height: int
    width: int
    blocks: int
    taps: int
    depth: int
    resident: bool
    ahead: Literal["tiles", "groups", "steps"] | None = None

    @property
    def slices(self) -> bool:
        """Whether results leave group by group. Few pixels, such as a dense layer has, are not worth so many
        transfers."""
        return self.ahead == "groups" and self.height * self.width >= LANES


def parts(whole: int, part: int) -> int:
    """How many parts ``whole`` has, the last one perhaps not full."""
    return -(-whole // part)


_WORTH = 64
"""Bytes of the weights of an output channel for which a transfer is worth while."""


def window_bytes(shape: Shape, height: int, width: int, blocks: int) -> int:
    """Activations that a tile needs: its input with the padding, its results, and the residual."""
    rows, columns = shape.window(height, width)
    channels = min(blocks * LANES, shape.out_channels) * (2 if shape.residual_taps else 1)
    return rows * columns * shape.channels + height * width * channels


def choose_tiling(shape: Shape, machine: Machine) -> Tiling | None:
    """The largest tiles that fit: first as many weights as possible stay, then as many pixels as possible are made with
    them. None where the input under one pixel does not fit the activation scratchpad, or what adds a residual leaves no
    room for other weights.

    Then, where that leaves the machine something to do, transfers are made while the array computes: the pixels of
    tiles that are whole rows (one transfer each), if there are several; else the weights, group by group.
    """
    tiling = _largest(shape, machine)
    if tiling is None:
        return None
    is_one = (tiling.height, tiling.width) == (shape.out_height, shape.out_width)
    if not tiling.resident:
        held = shape.residual_bytes + RECORD_BYTES
        steps = _largest(shape, replace(machine, weight_bytes=held + (machine.weight_bytes - held) // 2))
        return tiling if steps is None else replace(steps, ahead="steps")
    if is_one and shape.batch == 1:
        return _in_groups(shape, tiling, machine)
    halves = _largest(shape, replace(machine, activation_bytes=machine.activation_bytes // 2))
    if halves is None or halves.width < shape.out_width or halves.blocks < tiling.blocks:
        return tiling
    return replace(halves, ahead="tiles")


def _in_groups(shape: Shape, tiling: Tiling, machine: Machine) -> Tiling:
    """Weights a few at a time, as many as are worth a transfer, with what they make; if there is room."""
    rows = shape.taps * shape.depth
    held = (machine.weight_bytes - shape.residual_bytes) // 2 // (rows * LANES + RECORD_BYTES)
    groups = replace(tiling, blocks=max(1, min(parts(_WORTH, rows), parts(shape.blocks, 2), held)), ahead="groups")
    if shape.out_channels % (LANES * groups.blocks):
        groups = replace(groups, blocks=1)  # one loop over channels gets shorter then, not two
    channels = 2 * LANES * groups.blocks if groups.slices else shape.out_channels
    made = tiling.height * tiling.width * channels * (2 if shape.residual_taps else 1)
    room = window_bytes(shape, tiling.height, tiling.width, 0) + made <= machine.activation_bytes
    return groups if room and groups.blocks <= held and groups.blocks < shape.blocks else tiling


def _largest(shape: Shape, machine: Machine) -> Tiling | None:
    block_bytes = shape.taps * shape.depth * LANES + RECORD_BYTES
    weight_bytes = machine.weight_bytes - shape.residual_bytes
    resident = block_bytes <= weight_bytes
    most_blocks = min(shape.blocks, weight_bytes // block_bytes) if resident else 1
    rows = MAX_TAPS * MAX_DEPTH if resident else (weight_bytes - RECORD_BYTES) // LANES
    if rows < 1:
        return None  # the clause residual_factor
    depth = min(shape.depth, MAX_DEPTH, rows)
    if LANES < depth < shape.depth:
        depth -= depth % LANES  # of a last column of the array that is not full there is one only
    taps = min(shape.taps, MAX_TAPS, rows // depth) if depth == shape.depth else 1
    for blocks in dict.fromkeys((most_blocks, 1)):
        tile = _largest_tile(shape, machine, blocks)
        if tile is not None:
            return Tiling(*tile, blocks, taps, depth, resident)
    return None


def _largest_tile(shape: Shape, machine: Machine, blocks: int) -> tuple[int, int] | None:
    width = min(shape.out_width, MAX_EDGE, machine.pixels)
    height = min(shape.out_height, MAX_EDGE, machine.pixels // width)
    while window_bytes(shape, height, width, blocks) > machine.activation_bytes:
        if height > 1:
            height -= 1
        elif width > 1:
            width -= 1
        else:
            return None
    # As many tiles, all of about the same size.
    height, width = (
        parts(whole, parts(whole, size))
        for whole, size in zip((shape.out_height, shape.out_width), (height, width), strict=True)
    )
    return height, width
