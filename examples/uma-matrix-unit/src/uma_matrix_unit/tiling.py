"""What a layer is to the machine, and how it is cut to fit the scratchpads."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import starmap

from uma.tir.tiling import (
    Constraints,
    Costs,
    Dimension,
    Instruction,
    LoopAxis,
    Nest,
    PaddingFill,
    StagedBuffer,
    Tiles,
    choose_tiles,
    find_misfit,
)

from .cost import COMMAND_CYCLES, cycles
from .machine import LANES, Machine

__all__ = ["Shape", "choose_tiling", "fits", "window_bytes"]


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
    def blocks(self) -> int:
        """Output channels in eights, the last block perhaps not full."""
        return -(-self.out_channels // LANES)

    def window(self, height: int, width: int) -> tuple[int, int]:
        """Rows and columns of the input under ``height`` x ``width`` pixels of the output."""
        extents = zip((height, width), self.strides, self.kernel, strict=True)
        rows, columns = ((size - 1) * stride + taps for size, stride, taps in extents)
        return rows, columns


def window_bytes(shape: Shape) -> int:
    """Activations under one pixel and `LANES` channels of the output: the input, the results, and the residual."""
    channels = min(LANES, shape.out_channels) * (2 if shape.residual_taps else 1)
    return shape.taps * shape.depth + channels


def fits(shape: Shape, machine: Machine) -> bool:
    """Whether there are tiles: not where the input under one pixel does not fit the activation scratchpad, or what adds
    a residual leaves no room for other weights.
    """
    return find_misfit(_nest(shape, machine), machine.tir, _costs(machine), _constraints(shape)) is None


@lru_cache(maxsize=256)
def choose_tiling(shape: Shape, machine: Machine) -> Tiles | None:
    """The tiles that take the fewest cycles; None where none are there: see `fits`."""
    tiles = choose_tiles(_nest(shape, machine), machine.tir, _costs(machine), _constraints(shape))
    return tiles if isinstance(tiles, Tiles) else None


def _costs(machine: Machine) -> Costs:
    return Costs(cycles, COMMAND_CYCLES, machine.tir.queues[0])


def _constraints(shape: Shape) -> Constraints:
    # Blocks of channels in several loops are all whole.
    blocks = [n for n in range(1, shape.blocks + 1) if n in (1, shape.blocks) or not shape.out_channels % (n * LANES)]
    residual = {"kept": "byxg", "diagonal": [None]}
    return Constraints(
        tiles={"b": 1, "g": blocks},
        multiples={"k": LANES},  # of a last column of the array that is not full there is one only
        at={"taken": "byx", "record": "g", "out": "byxg", **(residual if shape.residual_taps else {})},
        sums_innermost=True,
    )


def _nest(shape: Shape, machine: Machine) -> Nest:
    """The loops of `lower`, with the instructions that they become."""
    extents = {"b": shape.batch, "y": shape.out_height, "x": shape.out_width, "g": shape.blocks}
    sums = {"t": shape.taps, "k": shape.depth}
    axes = [*starmap(LoopAxis, extents.items()), LoopAxis("n", LANES, is_whole=True)]
    axes += [LoopAxis(name, extent, is_reduction=True) for name, extent in sums.items()]
    (top, left, _, _), (down, right), (fill, bias, mac, requantise) = (
        shape.padding,
        shape.strides,
        machine.tir.intrinsics,
    )
    batch, blocks = Dimension(shape.batch, (("b", 1),)), Dimension(shape.blocks, (("g", 1),))
    pixels = batch, Dimension(shape.out_height, (("y", 1),)), Dimension(shape.out_width, (("x", 1),))
    rows = Dimension(shape.height, (("y", down), ("t", 1)), -top)
    columns = Dimension(shape.width * shape.channels, (("x", right * shape.channels), ("k", 1)), -left * shape.channels)
    channels, lanes = Dimension(shape.out_channels, (("g", LANES), ("n", 1))), Dimension(LANES, (("n", 1),))
    taps, depth = Dimension(shape.taps, (("t", 1),)), Dimension(shape.depth, (("k", 1),))
    border = PaddingFill(fill, "rows", "row_bytes") if shape.is_padded else None
    staged = [
        StagedBuffer("taken", "activations", (batch, rows, columns), 1, fill=border),
        StagedBuffer("record", "weights", (blocks, Dimension(3, span=2), lanes), 4),
        StagedBuffer("weight", "weights", (blocks, taps, depth, lanes), 1),
        StagedBuffer("sums", "accumulators", (*pixels, Dimension(shape.blocks * LANES, channels.steps)), 4, "made"),
        StagedBuffer("out", "activations", (*pixels, channels), 1, "out"),
    ]
    size: dict[str, str | int] = {"height": "y", "width": "x"}
    done: dict[str, str | int] = dict.fromkeys([var.name for var in requantise.vars], 0)
    instructions = [
        Instruction(bias, size, "first", ("n",)),
        Instruction(mac, {**size, "taps": "t", "depth": "k"}, whole_axes=("n",)),
        Instruction(requantise, {**done, **size}, "last", ("n",)),
    ]
    if shape.residual_taps:
        count, deep = shape.residual_taps, min(LANES, shape.out_channels)
        used = Dimension(count, span=count - 1), Dimension(LANES, span=deep - 1)
        staged.append(StagedBuffer("kept", "activations", (*pixels, channels), 1))
        staged.append(StagedBuffer("diagonal", "weights", (*used, lanes), 1))
        added: dict[str, str | int] = {**size, "taps": count, "depth": deep}
        instructions.append(Instruction(mac, added, "last", ("n",)))
    return Nest(tuple(axes), tuple(staged), tuple(instructions))
