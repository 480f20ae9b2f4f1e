"""What a layer costs: the commands that its loops give, counted without running them. README.md has the cycles."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from uma.hookspecs import Cost

from .machine import LANES, RECORD_BYTES, Machine
from .tiling import Shape, Tiling, choose_tiling, parts

__all__ = ["cost_of"]

_COMMAND, _TRANSFER = 4, 16
"""Cycles of any command, and more of one that moves data."""


def cost_of(shape: Shape, machine: Machine) -> Cost:
    """Cycles and bytes of a layer that the machine takes."""
    tiling = choose_tiling(shape, machine)
    assert tiling is not None  # the clause window_fits
    counter = _Counter(shape, tiling)
    counter.count()
    return Cost(cycles=counter.cycles, bytes_moved=counter.bytes_moved)


def _sizes(whole: int, part: int) -> Iterator[tuple[int, int]]:
    """The start and the size of each part; the last one may be smaller."""
    for start in range(0, whole, part):
        yield start, min(part, whole - start)


def _inside(first: int, needed: int, extent: int) -> int:
    """Of ``needed`` rows or columns from ``first`` on, those that the picture has."""
    return max(min(first + needed, extent) - max(first, 0), 0)


@dataclass
class _Counter:
    """Goes the way of the loops of `lower`."""

    shape: Shape
    tiling: Tiling
    cycles: int = 0
    bytes_moved: int = 0

    def command(self, cycles: int) -> None:
        self.cycles += _COMMAND + cycles

    def transfer(self, *axes: tuple[int, int, int]) -> None:
        """A copy, by the extent of each axis and its steps on either side in bytes. Axes that go on where the next one
        ends are one; the last is a row, the one before it counts the rows of one command."""
        joined: list[tuple[int, int, int]] = []
        for extent, *steps in axes:
            if joined and joined[-1][1:] == (extent * steps[0], extent * steps[1]):
                extent *= joined.pop()[0]
            if extent != 1:
                joined.append((extent, steps[0], steps[1]))
        row_bytes = joined.pop()[0] if joined and joined[-1][1:] == (1, 1) else 1
        rows = joined.pop()[0] if joined else 1
        commands = 1
        for extent, _, _ in joined:
            commands *= extent
        if rows and row_bytes:
            self.cycles += commands * (_COMMAND + _TRANSFER + rows * parts(row_bytes, 8))
            self.bytes_moved += commands * rows * row_bytes

    def count(self) -> None:
        shape, tiling = self.shape, self.tiling
        block_bytes = shape.taps * shape.depth * LANES
        for first, blocks in _sizes(shape.blocks, tiling.blocks):
            self.transfer((blocks * RECORD_BYTES, 1, 1))
            if tiling.resident:
                self.transfer((blocks * block_bytes, 1, 1))
            if shape.residual_taps:
                self.transfer((shape.residual_bytes, 1, 1))
            channels = min(blocks * LANES, shape.out_channels - first * LANES)
            for row, height in _sizes(shape.out_height, tiling.height):
                for column, width in _sizes(shape.out_width, tiling.width):
                    for _ in range(shape.batch):
                        self.tile((row, column), (height, width), blocks, channels)

    def tile(self, start: tuple[int, int], size: tuple[int, int], blocks: int, channels: int) -> None:
        shape, tiling = self.shape, self.tiling
        needed = shape.window(*size)
        top, left = (at * step - pad for at, step, pad in zip(start, shape.strides, shape.padding, strict=False))
        rows, columns = _inside(top, needed[0], shape.height), _inside(left, needed[1], shape.width)
        taken_row = shape.window(tiling.height, tiling.width)[1] * shape.channels
        if (rows, columns) != needed:
            self.command(parts(needed[0] * taken_row, 8))
        pixel = shape.channels
        self.transfer((rows, taken_row, shape.width * pixel), (columns, pixel, pixel), (pixel, 1, 1))
        made, out = min(tiling.blocks * LANES, shape.out_channels), shape.out_channels
        if shape.residual_taps:
            self.transfer((size[0], tiling.width * made, shape.out_width * out), (size[1], made, out), (channels, 1, 1))
        for _ in range(blocks):
            self.block(*size)
        self.transfer((size[0], shape.out_width * out, tiling.width * made), (size[1], out, made), (channels, 1, 1))

    def block(self, height: int, width: int) -> None:
        shape, tiling = self.shape, self.tiling
        pixels = (height - 1) * tiling.width + width
        self.command(pixels)
        for _, taps in _sizes(shape.taps, tiling.taps):
            for _, depth in _sizes(shape.depth, tiling.depth):
                if not tiling.resident:
                    self.transfer((taps * depth * LANES, 1, 1))
                self.command(taps * parts(depth, LANES) * (LANES + height * width))
        if shape.residual_taps:
            self.command(shape.residual_taps * (LANES + height * width))
        self.command(pixels)
