"""High-level operations: what the machine does to whole feature maps, before anything has an address.

`plan` makes them of a region, `stream` writes them as commands. An `Operation` may be done in parts: `Step` is one of
them, a box of its output, with what of the inputs and how much padding that needs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "BRICK",
    "DTYPE_BYTES",
    "ELEMENTWISE",
    "LIMITS",
    "Box",
    "Curve",
    "FeatureMap",
    "Filter",
    "Kind",
    "Layout",
    "Operation",
    "Rounding",
    "Scale",
    "Step",
    "Storage",
    "Window",
]

Kind = Literal[
    "conv",
    "depthwise",
    "max_pool",
    "average_pool",
    "reduce_sum",
    "mul",
    "add",
    "sub",
    "min",
    "max",
    "lrelu",
    "abs",
    "clz",
    "shr",
    "shl",
]

ELEMENTWISE: tuple[Kind, ...] = ("mul", "add", "sub", "min", "max", "lrelu", "abs", "clz", "shr", "shl")
"""Kinds of the command ``OP_ELEMENTWISE``."""

Layout = Literal["nhwc", "nhcwb16"]

Rounding = Literal["tfl", "truncate", "natural"]

Curve = Literal["sigmoid", "tanh"]
"""What the machine computes of results of 16 bits: see README.md."""

BRICK = 16
"""Channels that lie together in the layout ``nhcwb16``."""

DTYPE_BYTES = {"int8": 1, "uint8": 1, "int16": 2, "int32": 4}

LIMITS = {"int8": (-128, 127), "int16": (-(1 << 15), (1 << 15) - 1)}
"""The least and the largest number of what activations are of."""


@dataclass(frozen=True, eq=False)
class Storage:
    """Memory that feature maps lie in.

    Args:
        name: for those who read.
        nbytes: its size.
        data: what it holds, where that is constant.
    """

    name: str
    nbytes: int
    data: bytes | None = None


@dataclass(frozen=True)
class Box:
    """Part of a feature map: from ``start`` to before ``end``, each (row, column, channel)."""

    start: tuple[int, int, int]
    end: tuple[int, int, int]

    @property
    def shape(self) -> tuple[int, int, int]:
        """Rows, columns, channels."""
        rows, columns, channels = (end - start for start, end in zip(self.start, self.end, strict=True))
        return rows, columns, channels


@dataclass(frozen=True)
class FeatureMap:
    """A picture in memory.

    Args:
        storage: where it lies.
        offset: of its first element, in bytes.
        shape: rows, columns, channels.
        strides: bytes from row to row, from column to column, from brick to brick. In ``nhwc`` the last is the size of
            an element, in ``nhcwb16`` the second is that of a brick of one column.
        dtype: of its elements.
        zero_point: what is subtracted from it as an input, and added as an output.
        layout: of its channels.
        ring: rows that its storage holds, in turn; 0 for all of them. ``offset`` is that of the first of these.
        first: which of these its own first row is.
    """

    storage: Storage
    offset: int
    shape: tuple[int, int, int]
    strides: tuple[int, int, int]
    dtype: str = "int8"
    zero_point: int = 0
    layout: Layout = "nhwc"
    ring: int = 0
    first: int = 0

    @staticmethod
    def whole(
        storage: Storage, shape: tuple[int, int, int], dtype: str = "int8", zero_point: int = 0, *, offset: int = 0
    ) -> FeatureMap:
        """One that lies dense in memory, in ``nhwc``."""
        _, columns, channels = shape
        size = DTYPE_BYTES[dtype]
        return FeatureMap(storage, offset, shape, (columns * channels * size, channels * size, size), dtype, zero_point)

    def part(self, box: Box) -> FeatureMap:
        """A part of it. In ``nhcwb16`` it begins with a whole brick."""
        (row, column, channel), (by_row, by_column, by_brick) = box.start, self.strides
        inner = channel * DTYPE_BYTES[self.dtype] if self.layout == "nhwc" else channel // BRICK * by_brick
        offset = self.offset + column * by_column + inner
        if self.ring:
            return replace(self, offset=offset, shape=box.shape, first=(self.first + row) % self.ring)
        return replace(self, offset=offset + row * by_row, shape=box.shape)

    @property
    def rows_before_turn(self) -> int:
        """How many of its rows lie behind its first one, until the storage begins anew."""
        return min(self.shape[0], self.ring - self.first) if self.ring else self.shape[0]


@dataclass(frozen=True)
class Window:
    """What of the input makes an element of the output.

    Args:
        kernel, strides, dilation: in height and in width.
        padding: rows above, columns to the left of the input. What is needed below and to the right follows.
    """

    kernel: tuple[int, int] = (1, 1)
    strides: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)
    padding: tuple[int, int] = (0, 0)

    @property
    def span(self) -> tuple[int, int]:
        """Rows and columns from the first tap to behind the last."""
        height, width = (d * (k - 1) + 1 for k, d in zip(self.kernel, self.dilation, strict=True))
        return height, width


@dataclass(frozen=True)
class Scale:
    """A factor, ``multiplier * 2**-shift``: of 32 and 6 bits."""

    multiplier: int
    shift: int


@dataclass(frozen=True, eq=False)
class Filter:
    """What a convolution needs besides its input.

    Args:
        weights: -255 to 255 (out channels, rows, columns, channels); of a depthwise one the last is 1.
        bias: (out channels,), 40 bits.
        scales: one per output channel.
    """

    weights: NDArray[np.integer]
    bias: NDArray[np.int64]
    scales: tuple[Scale, ...]


@dataclass(frozen=True, eq=False)
class Operation:
    """One operation on whole maps.

    Args:
        kind: what is done.
        ofm: what it writes.
        ifm: what it reads.
        ifm2: the second operand of an elementwise operation: a map, of extent 1 where it is repeated, or a number.
        layers: of the model, whose work it is.
        window: of a convolution or pool.
        filter: of a convolution.
        scale: of the result, the same for all channels; None where the filter has them, or nothing is scaled.
        operand: which operand of a sum is scaled by ``operand_scale``, 20 bits (of int16: 15) to the left of the
            other's half: 0 for none, 1 for the left one, 2 for the right one.
        operand_scale: see there.
        reversed: whether ``ifm2`` is the left operand.
        rounding: behind the scale.
        low, high: results are clamped to these, and to their type.
        table: what is looked up for a result from -128 on, if anything is.
        curve: of results, scaled to 1 / 12288.
    """

    kind: Kind
    ofm: FeatureMap
    ifm: FeatureMap
    ifm2: FeatureMap | int | None = None
    layers: tuple[str, ...] = ()
    window: Window = Window()
    filter: Filter | None = None
    scale: Scale | None = None
    operand: int = 0
    operand_scale: Scale = Scale(1, 0)
    reversed: bool = False
    rounding: Rounding = "tfl"
    low: int = LIMITS["int16"][0]
    high: int = LIMITS["int16"][1]
    table: bytes | None = None
    curve: Curve | None = None

    @property
    def whole(self) -> Step:
        """All of it at once."""
        return Step(self, Box((0, 0, 0), self.ofm.shape))

    @property
    def maps(self) -> Iterator[tuple[FeatureMap, bool]]:
        """Its maps, and whether they are written."""
        yield self.ofm, True
        yield self.ifm, False
        if isinstance(self.ifm2, FeatureMap):
            yield self.ifm2, False


@dataclass(frozen=True, eq=False)
class Step:
    """A part of an operation: that which gives a box of its output.

    Args:
        operation: what is done.
        box: of ``operation.ofm``.
    """

    operation: Operation
    box: Box

    @cached_property
    def ofm(self) -> FeatureMap:
        """What it writes."""
        return self.operation.ofm.part(self.box)

    @cached_property
    def ifm(self) -> FeatureMap:
        """What it reads of the input."""
        return self.operation.ifm.part(self._input[0])

    @cached_property
    def ifm2(self) -> FeatureMap | int | None:
        """What it reads of the second operand."""
        second = self.operation.ifm2
        return second.part(_repeated(self.box, second.shape)) if isinstance(second, FeatureMap) else second

    @property
    def reads(self) -> Iterator[tuple[FeatureMap, Box]]:
        """The maps that it reads, and which part of each."""
        one = self.operation
        yield one.ifm, self._input[0]
        if isinstance(one.ifm2, FeatureMap):
            yield one.ifm2, _repeated(self.box, one.ifm2.shape)

    @property
    def padding(self) -> tuple[int, int, int, int]:
        """Rows above, columns to the left, rows below, columns to the right of what it reads."""
        return self._input[1]

    @cached_property
    def _input(self) -> tuple[Box, tuple[int, int, int, int]]:
        one, shape = self.operation, self.operation.ifm.shape
        if one.kind in ELEMENTWISE:
            return _repeated(self.box, shape), (0, 0, 0, 0)
        starts, ends, before, behind = [], [], [], []
        for axis in range(2):
            first = self.box.start[axis] * one.window.strides[axis] - one.window.padding[axis]
            last = first + (self.box.shape[axis] - 1) * one.window.strides[axis] + one.window.span[axis]
            starts.append(max(first, 0))
            ends.append(min(last, shape[axis]))
            before.append(max(-first, 0))
            behind.append(max(last - shape[axis], 0))
        depths = (0, shape[2]) if one.kind in ("conv", "reduce_sum") else (self.box.start[2], self.box.end[2])
        box = Box((starts[0], starts[1], depths[0]), (ends[0], ends[1], depths[1]))
        return box, (before[0], before[1], behind[0], behind[1])

    @property
    def filter(self) -> Filter | None:
        """The part of the filter that it needs."""
        whole, (first, last) = self.operation.filter, (self.box.start[2], self.box.end[2])
        if whole is None or (first, last) == (0, len(whole.scales)):
            return whole
        return Filter(whole.weights[first:last], whole.bias[first:last], whole.scales[first:last])

    @property
    def macs(self) -> int:
        """Products that it sums up, those with padding included."""
        per_element = math.prod(self.operation.window.kernel)
        if self.operation.kind in ("conv", "reduce_sum"):
            per_element *= self.ifm.shape[2]
        return math.prod(self.box.shape) * per_element


def _repeated(box: Box, shape: tuple[int, int, int]) -> Box:
    """What of an operand of that shape is needed, which is repeated where its extents are 1."""
    starts = tuple(0 if extent == 1 else start for start, extent in zip(box.start, shape, strict=True))
    ends = tuple(1 if extent == 1 else end for end, extent in zip(box.end, shape, strict=True))
    return Box((starts[0], starts[1], starts[2]), (ends[0], ends[1], ends[2]))
