"""Loops for a layer: tiles of pixels, blocks of eight output channels, copies and instructions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from uma.hookspecs import Lowered
from uma.tir import (
    Alloc,
    Axis,
    Bin,
    Buffer,
    Copy,
    Exec,
    Expr,
    For,
    If,
    Param,
    PrimFunc,
    Stmt,
    Var,
    View,
    const,
    maximum,
    minimum,
    seq,
    simplify,
)

from .layer import Layer
from .machine import LANES, ROUNDINGS, Machine
from .tiling import Tiling, parts

__all__ = ["lower"]


def lower(
    layer: Layer,
    tiling: Tiling,
    machine: Machine,
    data: tuple[int, ...],
    out: tuple[int, ...],
    inputs: Sequence[str] = ("data",),
) -> Lowered:
    """The function that computes a layer, and its packed constants.

    Args:
        layer: what to compute.
        tiling: how to cut it.
        machine: what to compute it on.
        data, out: shapes of input and output: pictures, (batch, height, width, channels), perhaps without the first
            dimensions, which are 1 then.
        inputs: what the function is given, in order: ``data``, and ``residual`` where that is another tensor.
    """
    made = simplify(_Writer(layer, tiling, machine, data, out, inputs).function())
    return Lowered(made, (layer.weights, layer.records, *([layer.residual] if layer.residual.size else [])))


def _loop(name: str, extent: Expr | int, body: Callable[[Expr], Stmt]) -> Stmt:
    if extent == 1:
        return body(const(0))
    var = Var(name)
    return For(var, const(extent), body(var))


def _size(whole: int, part: int, index: Expr) -> Expr:
    """Of part ``index`` of ``whole``: the last one may be smaller."""
    return const(part) if whole % part == 0 else minimum(whole - index * part, part)


def _at(picture: Buffer, batch: Expr, row: Expr, column: Expr, channel: Expr) -> View:
    """The pixels of a picture from one on: axes for rows, columns and channels, as far as it has them."""
    missing = 4 - len(picture.shape)
    axes = tuple(Axis(dim - missing) for dim in (1, 2, 3) if dim >= missing)
    return View(picture, (batch, row, column, channel)[missing:], axes)


def _as(picture: View, buffer: Buffer, start: tuple[Expr, ...], axes: Sequence[Axis]) -> View:
    """Pixels in a scratchpad, with as many of the axes (rows, columns, channels) as ``picture`` has."""
    return View(buffer, start, tuple(axes[-len(picture.axes) :]))


@dataclass(frozen=True)
class _Span:
    """Of some rows (or columns) that are needed, those that the picture has.

    Args:
        start: the first of them, in the picture.
        count: how many there are.
        skipped: how many are needed before it.
        needed: how many are needed.
    """

    start: Expr
    count: Expr
    skipped: Expr
    needed: Expr

    @staticmethod
    def of(first: Expr, needed: Expr, extent: int, before: int, after: int) -> _Span:
        """``needed`` ones from ``first`` on, of a picture of ``extent`` with padding ``before`` and ``after`` it; some
        of them are in the picture."""
        start = maximum(first, 0) if before else first
        end = minimum(first + needed, extent) if after else first + needed
        return _Span(start, end - start, start - first, needed)


class _Writer:
    """Writes the loops: for groups of blocks that are held together, for tiles of pixels, for blocks."""

    def __init__(
        self,
        layer: Layer,
        tiling: Tiling,
        machine: Machine,
        data: tuple[int, ...],
        out: tuple[int, ...],
        inputs: Sequence[str],
    ) -> None:
        self.layer, self.tiling, self.machine, self.shape = layer, tiling, machine, layer.shape
        self.data, self.out = Buffer("data", data, "int8"), Buffer("out", out, "int8")
        self.weights = Buffer("weight", layer.weights.shape, "int8")
        self.records = Buffer("record", layer.records.shape, "int32")
        rows, columns = self.shape.window(tiling.height, tiling.width)
        pixels, channels = tiling.height * tiling.width, min(tiling.blocks * LANES, self.shape.out_channels)
        weight_bytes = layer.weights.shape[1] if tiling.resident else tiling.taps * tiling.depth * LANES
        self.row_bytes = columns * self.shape.channels
        self.taken = machine.activations("taken", (rows * self.row_bytes,))
        self.made = machine.activations("made", (pixels, channels))
        self.held_weights = machine.weights("held_weights", (tiling.blocks, weight_bytes))
        self.held_records = machine.records("held_records", (tiling.blocks, 3, LANES))
        self.sums = machine.accumulators("sums", (pixels, LANES))
        # A residual is of the shape of the output. It is taken to where the results are made: each block of channels is
        # read before it is written.
        residual = Buffer("residual", out, "int8") if "residual" in inputs else self.data
        self.residual = residual if layer.residual.size else None
        self.inputs = [residual if name == "residual" else self.data for name in inputs]
        count = max(1, layer.residual.size)
        self.diagonals, self.held_diagonals = Buffer("diagonal", (count,), "int8"), machine.weights("held", (count,))

    def function(self) -> PrimFunc:
        params = (
            *(Param(buffer, "input") for buffer in self.inputs),
            Param(self.out, "output"),
            Param(self.weights, "constant"),
            Param(self.records, "constant"),
            *([] if self.residual is None else [Param(self.diagonals, "constant")]),
        )
        body = _loop("group", parts(self.shape.blocks, self.tiling.blocks), self.group)
        held = () if self.residual is None else (self.held_diagonals,)
        for buffer in (self.sums, self.held_records, *held, self.held_weights, self.made, self.taken):
            body = Alloc(buffer, body)
        return PrimFunc(params, body, memories=self.machine.tir.memories)

    def group(self, group: Expr) -> Stmt:
        """All pixels, for one group of blocks."""
        shape, tiling = self.shape, self.tiling
        first, blocks = group * tiling.blocks, _size(shape.blocks, tiling.blocks, group)
        channels = _size(shape.out_channels, tiling.blocks * LANES, group)

        def tile(batch: Expr, y: Expr, x: Expr) -> Stmt:
            row, column = y * tiling.height, x * tiling.width
            height = _size(shape.out_height, tiling.height, y)
            width = _size(shape.out_width, tiling.width, x)
            out = _at(self.out, batch, row, column, first * LANES)
            made = _as(out, self.made, (const(0), const(0)), (Axis(0, tiling.width), Axis(0), Axis(1)))
            extents = (height, width, channels)[-len(out.axes) :]
            kept = []
            if self.residual is not None:
                kept.append(Copy(made, _at(self.residual, batch, row, column, first * LANES), extents))
            return seq(
                self.take(batch, row, column, height, width),
                *kept,
                _loop("block", blocks, lambda block: self.block(first, block, height, width)),
                Copy(out, made, extents),
            )

        rows, columns = parts(shape.out_height, tiling.height), parts(shape.out_width, tiling.width)
        nest = _loop(
            "batch",
            shape.batch,
            lambda batch: _loop("y", rows, lambda y: _loop("x", columns, lambda x: tile(batch, y, x))),
        )
        resident = self.hold_weights(first, blocks, const(0), const(self.held_weights.shape[1]))
        held = [resident] if tiling.resident else []
        if self.residual is not None:
            one = (Axis(0),)
            to, source = View(self.held_diagonals, (const(0),), one), View(self.diagonals, (const(0),), one)
            held.append(Copy(to, source, (const(self.shape.residual_bytes),)))
        return seq(self.hold_records(first, blocks), *held, nest)

    def hold_records(self, first: Expr, blocks: Expr) -> Stmt:
        axes = (Axis(0), Axis(1), Axis(2))
        to = View(self.held_records, (const(0), const(0), const(0)), axes)
        source = View(self.records, (first, const(0), const(0)), axes)
        return Copy(to, source, (blocks, const(3), const(LANES)))

    def hold_weights(self, first: Expr, blocks: Expr, start: Expr, count: Expr) -> Stmt:
        axes = (Axis(0), Axis(1))
        to = View(self.held_weights, (const(0), const(0)), axes)
        return Copy(to, View(self.weights, (first, start), axes), (blocks, count))

    def take(self, batch: Expr, row: Expr, column: Expr, height: Expr, width: Expr) -> Stmt:
        """The input under the pixels of a tile, and the zero point where that is outside of the picture."""
        shape = self.shape
        (step_y, step_x), (taps_y, taps_x), (top, left, bottom, right) = shape.strides, shape.kernel, shape.padding
        rows = _Span.of(row * step_y - top, (height - 1) * step_y + taps_y, shape.height, top, bottom)
        columns = _Span.of(column * step_x - left, (width - 1) * step_x + taps_x, shape.width, left, right)
        source = _at(self.data, batch, rows.start, columns.start, const(0))
        corner = rows.skipped * self.row_bytes + columns.skipped * shape.channels
        taken = _as(source, self.taken, (corner,), (Axis(0, self.row_bytes), Axis(0, shape.channels), Axis(0)))
        load = Copy(taken, source, (rows.count, columns.count, const(shape.channels))[-len(source.axes) :])
        if not any(shape.padding):
            return load
        numbers = (rows.needed * self.row_bytes, const(self.layer.input_zero_point))
        fill = Exec(self.machine.tir.intrinsic("mxu_fill"), (View(self.taken, (const(0),), (Axis(0),)),), numbers)
        return seq(If(Bin("or", rows.count < rows.needed, columns.count < columns.needed), fill), load)

    def block(self, first: Expr, block: Expr, height: Expr, width: Expr) -> Stmt:
        """Eight output channels of a tile."""
        layer, machine, tiling = self.layer, self.machine, self.tiling
        # Rows of a tile lie as far apart as in a whole one: between them are pixels that nobody asks for.
        pixels = (height - 1) * tiling.width + width
        sums = View(self.sums, (const(0), const(0)), (Axis(0), Axis(1)))
        record = View(self.held_records, (block, const(0), const(0)), (Axis(1), Axis(2)))
        made = View(self.made, (const(0), block * LANES), (Axis(0), Axis(1)))
        channels = _size(self.shape.out_channels, LANES, first + block)
        rounding = ROUNDINGS.index(layer.rounding)
        numbers = [const(n) for n in (rounding, layer.output_zero_point, layer.low, layer.high)]
        return seq(
            Exec(machine.tir.intrinsic("mxu_bias"), (sums, record), (pixels,)),
            self.multiply(first, block, height, width),
            *([] if self.residual is None else [self.add_residual(block, height, width, channels)]),
            Exec(machine.tir.intrinsic("mxu_requantise"), (made, sums, record), (pixels, channels, *numbers)),
        )

    def add_residual(self, block: Expr, height: Expr, width: Expr, channels: Expr) -> Stmt:
        """The residual of a block of channels, times its factor, added to the sums: a product with diagonals."""
        tiling = self.tiling
        sums = View(self.sums, (const(0), const(0)), (Axis(0, tiling.width), Axis(0), Axis(1)))
        # Every tap is the same pixel.
        act = View(self.made, (const(0), block * LANES), (Axis(0, tiling.width), Axis(0), Axis(0, 0), Axis(1)))
        weights = View(self.held_diagonals, (const(0),), (Axis(0, LANES * LANES), Axis(0, LANES), Axis(0)))
        taps = const(self.shape.residual_taps)
        return Exec(self.machine.tir.intrinsic("mxu_mac"), (sums, act, weights), (height, width, taps, channels))

    def multiply(self, first: Expr, block: Expr, height: Expr, width: Expr) -> Stmt:
        """The products of a block of output channels, added to the sums."""
        shape, tiling = self.shape, self.tiling
        step_y, step_x = shape.strides
        sums = View(self.sums, (const(0), const(0)), (Axis(0, tiling.width), Axis(0), Axis(1)))
        under = tuple(Axis(0, step) for step in (step_y * self.row_bytes, step_x * shape.channels, self.row_bytes, 1))

        def step(t: Expr, k: Expr) -> Stmt:
            tap, byte = t * tiling.taps, k * tiling.depth
            taps, depth = _size(shape.taps, tiling.taps, t), _size(shape.depth, tiling.depth, k)
            start = (tap * shape.depth + byte) * LANES
            at = (block, start) if tiling.resident else (const(0), const(0))
            weights = View(self.held_weights, at, (Axis(1, shape.depth * LANES), Axis(1, LANES), Axis(1)))
            act = View(self.taken, (tap * self.row_bytes + byte,), under)
            mac = Exec(self.machine.tir.intrinsic("mxu_mac"), (sums, act, weights), (height, width, taps, depth))
            if tiling.resident:
                return mac
            return seq(self.hold_weights(first + block, const(1), start, taps * depth * LANES), mac)

        steps = parts(shape.taps, tiling.taps), parts(shape.depth, tiling.depth)
        return _loop("tap", steps[0], lambda t: _loop("byte", steps[1], lambda k: step(t, k)))
