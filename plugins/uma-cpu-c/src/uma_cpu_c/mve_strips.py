"""Windows of int8 as runs of bytes, with their borders, for cores with M-profile vectors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from uma.relay import Call
from uma.tir import INDEX, Bin, Block, Expr, For, Imm, Intrinsic, PrimFunc, Select, Var, maximum, minimum, te, walk
from uma.tir.schedule import Schedule, ScheduleError

from .mve_forms import copy, fill, row

__all__ = ["Element", "Strip", "borders", "bring", "stored", "taps_of", "tensorized", "weight_of"]

Element = Callable[..., Expr]


def taps_of(weight: te.Tensor) -> int:
    """Products of one sum of a convolution."""
    return int(np.prod(weight.shape[:-1]))


def weight_of(weight: te.Tensor, o: Expr, k: Expr) -> Expr:
    """A weight of a convolution, by channel and number in the run of a window."""
    index: list[Expr] = [o]
    for extent in reversed(weight.shape[1:-1]):
        index.insert(0, k % extent)
        k = k // extent
    value: Expr = weight[(k, *index)]
    return value


@dataclass(frozen=True)
class Strip:
    """The data of a convolution: rows with borders, and from these the run that a pixel's window is.

    Args:
        rows: an element of the data, with borders, by picture, row, and number in it.
        pixel: an element of the data by the place of a pixel, and number in it: where a window is one pixel.
        patch: an element of the run.
        padded: rows with borders; None where there are none.
        patches: runs, of all pixels.
        run: how many numbers of a run lie side by side in a row.
        width: numbers of a row of the data.
        left: numbers before it.
        zero: what borders are.
        is_copied: whether a window is more than one pixel, or has borders.
    """

    rows: Element
    pixel: Element
    patch: Element
    padded: te.Tensor | None
    patches: te.Tensor
    run: int
    width: int
    left: int
    zero: int
    is_copied: bool

    @classmethod
    def from_call(cls, call: Call, data: te.Tensor, weight: te.Tensor) -> Strip:
        """Of ``call``, a convolution of ``data`` by ``weight``."""
        attrs, is_picture = call.attrs, len(call.attrs.strides) == 2
        width, channels = data.shape[-2:]
        height = data.shape[1] if is_picture else 1
        kernel_width = weight.shape[-3]
        stride, dilation = attrs.strides[-1], attrs.dilation[-1]
        row_stride, row_dilation = (attrs.strides[0], attrs.dilation[0]) if is_picture else (1, 1)
        top, left, bottom, right = attrs.padding if is_picture else (0, attrs.padding[0], 0, attrs.padding[1])
        shape = (data.shape[0], height, width * channels)
        is_given = isinstance(data.definition, te.Placeholder)
        rows = te.reshape(data, shape) if is_given else None

        def flat(n: Expr, y: Expr, i: Expr) -> Expr:
            if rows is not None:
                return rows[n, y, i]
            value: Expr = data[(n, *((y,) if is_picture else ()), i // channels, i % channels)]
            return value

        def bordered(n: Expr, y: Expr, i: Expr) -> Expr:
            # An instruction is given the address of a row that is there in any case: that this is the one asked for is
            # put so that nobody concludes it of the address.
            nearest = minimum(maximum(y - top, Imm(0, INDEX)), Imm(height - 1, INDEX))
            there = (
                Bin("eq", nearest ^ (y - top), Imm(0, INDEX)) & (i >= left * channels) & (i < (left + width) * channels)
            )
            return Select(there, flat(n, nearest, i - left * channels), Imm(attrs.input_zero_point, "int8"))

        has_borders = any((top, left, bottom, right))
        whole = (shape[0], height + top + bottom, (width + left + right) * channels)
        padded = te.compute(whole, bordered, "padded") if has_borders else None
        read: Element = flat if padded is None else lambda *i: padded[i]
        run = kernel_width * channels if dilation == 1 else channels
        taps = taps_of(weight)

        def at(index: tuple[Expr, ...], k: Expr) -> Expr:
            n, *y, x = index
            first = x * (stride * channels)
            below, across, inner = k // (kernel_width * channels), k // run % (kernel_width * channels // run), k % run
            row = (y[0] if y else Imm(0, INDEX)) * row_stride + below * row_dilation
            return read(n, row, first + across * (dilation * channels) + inner)

        patches = te.compute((*call.shape[:-1], taps), lambda *i: at(i[:-1], i[-1]), "patches")

        def pixel(*index: Expr) -> Expr:
            n, *y, x, k = index
            value: Expr = data[(n, *(one * row_stride for one in y), x * stride, k)]
            return value

        is_copied = has_borders or taps != channels
        return cls(
            read,
            pixel,
            lambda *i: patches[i],
            padded,
            patches,
            run,
            width * channels,
            left * channels,
            attrs.input_zero_point,
            is_copied,
        )

    def part(self, s: Schedule, loop: Var) -> None:
        """Borders apart from the picture, along a row."""
        assert self.padded is not None
        ends = (self.left, self.left + self.width)
        if places := [place for place in ends if 0 < place < self.padded.shape[-1]]:
            s.part(loop, *places)


def bring(s: Schedule, kernel: te.Kernel, strip: Strip, pixels: Var, row_at: Var) -> None:
    """The runs of a tile, and the rows with borders that a row of the result reads, in the arena."""
    stored(s, kernel, strip.patches, pixels)
    label = kernel.labels[strip.patches]
    loop = s.loops(label)[-1]
    if strip.patches.shape[-1] > strip.run:
        _, loop = s.split(loop, strip.run)
    tensorized(s, loop, copy(strip.run))
    if strip.padded is None:
        return
    stored(s, kernel, strip.padded, row_at)
    label = kernel.labels[strip.padded]
    loop = s.loops(label)[-1]
    strip.part(s, loop)


def borders(func: PrimFunc, label: str, zero: int) -> PrimFunc:
    """The parts of rows with borders as instructions, once they are apart."""
    s = Schedule(func)
    (block,) = (part for part in walk(func.body) if isinstance(part, Block) and part.label == label)
    for part in walk(block):
        if isinstance(part, For) and not any(isinstance(inner, For) for inner in walk(part.body)):
            assert isinstance(part.extent, Imm)
            count = int(part.extent.value)
            tensorized(s, part.var, row(count, zero), copy(count), fill(count, zero))
    return s.func


def tensorized(s: Schedule, loop: Var, *forms: Intrinsic) -> None:
    """A loop as the first of several instructions that does the same."""
    for number, form in enumerate(forms):
        try:
            s.tensorize(loop, form)
        except ScheduleError:
            if number == len(forms) - 1:
                raise
        else:
            return


def stored(s: Schedule, kernel: te.Kernel, stage: te.Tensor, loop: Var) -> None:
    """A stage made anew in each iteration of a loop, as large as what that reads, in the arena."""
    s.compute_at(kernel.labels[stage], loop)
    (small,) = s.store_at(kernel.buffers[stage], loop)
    s.set_scope(small, "global")
